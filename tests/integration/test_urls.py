"""Inputs by URL: every format, a real object store, and servers that lie, stall, redirect or lead astray."""
import http.client
import http.server
import json
import os
import pathlib
import signal
import socket
import socketserver
import subprocess
import threading

import blasd
import numpy as np
import pytest
from service import BLASD, TYPES, Service, nested, npy, safetensors, wait_for
from test_tensors import problem, result, run

RNG = np.random.default_rng(23)
A, B = RNG.standard_normal((40, 30)), RNG.standard_normal((30, 20))
BIG = RNG.standard_normal((1200, 1000))  # some 9 MiB, in many pieces


class Files(http.server.BaseHTTPRequestHandler):
    """Serves `self.server.files`: PATH -> bytes, or a function of the handler that answers by itself."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        files = self.server.files
        self.server.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        what = files.get(self.path.split("?")[0])
        if what is None:
            self.send_error(404)
        elif callable(what):
            what(self)
        else:
            self.whole(what)

    def whole(self, body, etag='"one"', **more):
        self.head(200, len(body), etag, **more)
        self.wfile.write(body)

    def head(self, status, length, etag='"one"', **more):
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        if etag:
            self.send_header("ETag", etag)
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *args):
        pass


class LocalServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.base = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request, address):
        pass  # a client that leaves, or is killed


class Server(LocalServer):
    def __init__(self):
        self.files, self.asked, self.held = {}, [], threading.Event()
        super().__init__(Files)

    def asks(self, path):
        return [headers for at, headers in self.asked if at.split("?")[0] == path]


@pytest.fixture(scope="module")
def files():
    one = Server()
    yield one
    one.held.set()
    one.shutdown()
    one.server_close()


@pytest.fixture(scope="module")
def fetching(tmp_path_factory, files):
    """A service whose operator has listed the server of files."""
    one = Service(tmp_path_factory.mktemp("fetching"), "--outgoing-hosts", f"{files.base}", "--limit", "url_s=60").start()
    yield one
    one.stop()


def product(service, a, b=None, **members):
    return run(service, "matmul", {"a": a, "b": B if b is None else b}, **members)


def stored(service):
    """The files of the blob store that jobs' inputs lie in."""
    return [p.name for p in pathlib.Path(f"/proc/{service.part('api')}/fd").iterdir()
            if os.path.realpath(p).endswith(".in")]


# --- what can be fetched ----------------------------------------------------------------------------------------------


def test_every_format(fetching, files):
    files.files.update({
        "/a.npy": npy(A), "/f.npy": npy(np.asfortranarray(A)), "/big-endian.npy": npy(A.astype(">f8")),
        "/raw": A.astype("float32").tobytes(), "/b.npy": npy(B)})
    for reference, tolerance in (
            ({"url": f"{files.base}/a.npy"}, 1e-12), ({"url": f"{files.base}/f.npy", "dtype": "float64"}, 1e-12),
            ({"url": f"{files.base}/big-endian.npy"}, 1e-12),
            ({"url": f"{files.base}/raw", "dtype": "float32", "shape": [40, 30]}, 1e-4)):
        np.testing.assert_allclose(result(product(fetching, reference), "c"), A @ B, rtol=tolerance, atol=tolerance)
    both = product(fetching, {"url": f"{files.base}/a.npy"}, {"url": f"{files.base}/b.npy"})
    np.testing.assert_allclose(result(both, "c"), A @ B)


@pytest.mark.parametrize("part", [{"tensor": "x"}, {"slice": [[0, 1]]}, {"slice": []}])
def test_the_whole_file_is_taken(fetching, files, part):
    """A part is a tensor's, of one that is stored."""
    files.files["/a.npy"] = npy(A)
    answer = product(fetching, {"url": f"{files.base}/a.npy", **part})
    assert "POST /tensors" in problem(answer, 422, "invalid_reference", "inputs.a")
    with blasd.Client(fetching.url) as client:
        assert np.array_equal(client.matmul(client.tensors.put(A)[:1], np.eye(30)), A[:1])


def test_a_large_one_goes_to_the_blob_store_and_every_kind_of_request_may_name_one(fetching, files):
    files.files["/big.npy"] = npy(BIG)
    reference = {"url": f"{files.base}/big.npy"}
    one = run(fetching, "matmul", {"a": reference, "b": np.eye(1000)[:, :3]})
    np.testing.assert_allclose(result(one, "c"), BIG[:, :3])
    text = json.dumps({"a": reference})
    body = safetensors({"b": np.eye(1000)[:, :2]}, op="matmul", inputs=text)
    two = fetching.request("POST", "/jobs?wait=30", body, {"Content-Type": TYPES["safetensors"]})
    np.testing.assert_allclose(result(two, "c"), BIG[:, :2])
    graph = {"inputs": {"x": reference}, "results": ["s.c"],
             "steps": {"s": {"op": "matmul", "inputs": {"a": {"input": "x"}, "b": nested(np.ones((1000, 1)))}}}}
    three = fetching.request("POST", "/graphs?wait=30", json.dumps(graph), {"Content-Type": TYPES["json"]})
    np.testing.assert_allclose(np.array(three.json()["outputs"]["s.c"]["data"]), BIG @ np.ones((1000, 1)))
    later = run(fetching, "matmul", {"a": reference, "b": np.eye(1000)[:, :1]}, wait=0)
    assert later.status == 202
    done = fetching.request("GET", f"/jobs/{later.json()['id']}?wait=30").json()
    assert done["state"] == "succeeded", done


def test_a_request_sent_twice_with_one_key_is_one_job(fetching, files):
    files.files["/key.npy"] = npy(A)
    body = json.dumps({"op": "matmul", "inputs": {"a": {"url": f"{files.base}/key.npy"}, "b": nested(B)}})
    headers = {"Content-Type": TYPES["json"], "Idempotency-Key": "by-url"}
    ids = {fetching.request("POST", "/jobs?wait=30", body, headers).json()["id"] for _ in range(2)}
    assert len(ids) == 1
    files.files["/key.npy"] = npy(A + 1)
    problem(fetching.request("POST", "/jobs?wait=30", body, headers), 422, "idempotency_conflict")


# --- an object store --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(venv, tmp_path_factory):
    """Moto's S3, and boto3 to sign URLs: store(CODE) runs the code there, with `s3`, and gives what it prints."""
    python = venv("objects") / "bin/python"
    log = open(tmp_path_factory.mktemp("store") / "log", "wb")
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    process = subprocess.Popen([python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    base = f"http://127.0.0.1:{port}"

    def answers():
        assert process.poll() is None
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        except OSError:
            return False

    def ask(code):
        begin = ("import boto3, sys; from botocore.config import Config; s3 = boto3.client('s3', region_name='eu-central-1', "
                 f"endpoint_url='{base}', aws_access_key_id='key', aws_secret_access_key='secret', "
                 "config=Config(signature_version='s3v4', s3={'addressing_style': 'path'}))\n")
        done = subprocess.run([python, "-c", begin + code], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
    try:
        wait_for(answers)
        ask("s3.create_bucket(Bucket='lab', CreateBucketConfiguration={'LocationConstraint': 'eu-central-1'})")
        ask.base = base
        yield ask
    finally:
        process.terminate()
        process.wait()
        log.close()


def signed(store, name, method="get_object"):
    return store(f"print(s3.generate_presigned_url('{method}', Params={{'Bucket': 'lab', 'Key': '{name}'}}, ExpiresIn=600))")


def test_a_presigned_url_of_an_object_store(make_service, store, tmp_path):
    service = make_service("--outgoing-hosts", store.base)
    (tmp_path / "big.npy").write_bytes(npy(BIG))
    store(f"s3.upload_file('{tmp_path / 'big.npy'}', 'lab', 'big.npy')")
    client = blasd.Client(service.url)
    got = client.matmul(blasd.URL(signed(store, "big.npy")), np.eye(1000)[:, :3])
    np.testing.assert_allclose(got, BIG[:, :3])
    assert "Signature" not in repr(blasd.URL(signed(store, "big.npy"))) and "Signature" not in service.log_text()
    with pytest.raises(blasd.Error) as missing:
        client.matmul(blasd.URL(signed(store, "not-there.npy")), B)
    assert missing.value.code == "url_refused" and "404" in str(missing.value)


def test_the_command_line(fetching, files, tmp_path):
    files.files["/cli.npy"] = npy(A)
    np.save(tmp_path / "b.npy", B)
    for b in (f"b={tmp_path / 'b.npy'}", f"b={files.base}/cli-b.npy"):
        files.files["/cli-b.npy"] = npy(B)
        done = subprocess.run([BLASD, "run", "matmul", f"a={files.base}/cli.npy", b, "-q", "-o", tmp_path / "c.npy", "--url", fetching.url],
                              capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(np.load(tmp_path / "c.npy"), A @ B)


# --- what is wrong with the request -----------------------------------------------------------------------------------


@pytest.mark.parametrize("reference, code", [
    ({"url": 7}, "invalid_reference"), ({"url": "URL", "slice": [0, 1]}, "invalid_reference"),
    ({"url": "URL", "job": "j", "output": "c"}, None), ({"url": "URL", "shape": [2]}, "invalid_reference"),
    ({"url": "URL", "tensor": "x", "shape": [2], "dtype": "float64"}, "invalid_reference"),
    ({"url": "URL", "tensor": 7}, "invalid_reference"), ({"url": "URL", "data": [1]}, "invalid_reference"),
    ({"url": "URL", "dtype": "float64", "shape": [-1]}, "invalid_tensor"), ({"shape": [2], "tensor": "x"}, "invalid_reference"),
    ({"url": "URL", "dtype": "float32"}, "invalid_reference"),
    ({"url": "URL", "dtype": "float64", "shape": [3]}, "invalid_tensor")])
def test_references_that_do_not_hold_together(fetching, files, reference, code):
    files.files["/plain.npy"] = npy(A)
    reference = {k: f"{files.base}/plain.npy" if v == "URL" else v for k, v in reference.items()}
    answer = product(fetching, reference)
    assert 400 <= answer.status < 500, answer.body
    if code:
        assert answer.json()["code"] == code, answer.body


def test_a_step_of_a_graph_has_none(fetching, files):
    graph = {"results": ["s.c"],
             "steps": {"s": {"op": "matmul", "inputs": {"a": {"url": f"{files.base}/a.npy"}, "b": nested(B)}}}}
    answer = fetching.request("POST", "/graphs?wait=30", json.dumps(graph), {"Content-Type": TYPES["json"]})
    assert "inputs of the graph" in problem(answer, 422, "invalid_reference")


# --- servers that are no help -----------------------------------------------------------------------------------------


def test_a_transfer_that_is_cut_off_fails(fetching, files):
    """It is not gone on with: the file may be another one by then. The client sends the request again."""
    whole = npy(BIG)

    def cut(handler):
        if len(files.asks("/cut")) > 1:
            handler.whole(whole)
            return
        handler.head(200, len(whole))
        handler.wfile.write(whole[:3000000])
        handler.close_connection = True
    files.files["/cut"] = cut
    inputs = {"a": {"url": f"{files.base}/cut"}, "b": np.eye(1000)[:, :3]}
    assert f"of {len(whole)} bytes came" in problem(run(fetching, "matmul", inputs), 502, "url_unavailable", "inputs.a")
    assert len(files.asks("/cut")) == 1 and stored(fetching) == []
    np.testing.assert_allclose(result(run(fetching, "matmul", inputs), "c"), BIG[:, :3])


def test_a_server_that_sends_nothing_at_first_is_asked_again(fetching, files):
    def nothing(handler):
        if len(files.asks("/nothing")) > 1:
            handler.whole(npy(A), '"two"')
        else:
            handler.head(200, len(npy(A)))
            handler.close_connection = True
    files.files["/nothing"] = nothing
    np.testing.assert_allclose(result(product(fetching, {"url": f"{files.base}/nothing"}), "c"), A @ B)
    assert [ask.get("range") for ask in files.asks("/nothing")] == [None, None]


def chunked(handler):
    handler.head(200, None, **{"Transfer-Encoding": "chunked"})
    handler.wfile.write(b"5\r\nhello\r\n0\r\n\r\n")


def to_close(handler):
    handler.head(200, None, Connection="close")
    handler.wfile.write(npy(A))
    handler.close_connection = True


@pytest.mark.parametrize("name, answer, code", [
    ("html", lambda h: h.whole(b"<!DOCTYPE html><title>Sign in</title>" * 30), "malformed_npy"),
    ("chunked", chunked, "url_refused"), ("to-close", to_close, "url_refused"),
    ("redirect", lambda h: h.head(302, 0, Location="http://169.254.169.254/latest/"), "url_refused"),
    ("gzip", lambda h: h.whole(npy(A), **{"Content-Encoding": "gzip"}), "url_refused"),
    ("empty", lambda h: h.whole(b""), "malformed_npy"), ("gone", lambda h: h.send_error(404), "url_refused"),
    ("forbidden", lambda h: h.send_error(403), "url_refused"), ("partial", lambda h: h.head(206, 0), "url_refused"),
    ("short", lambda h: h.whole(npy(A)[:-8]), "malformed_npy"), ("more", lambda h: h.whole(npy(A) + b"more"), "malformed_npy"),
    ("huge", lambda h: h.head(200, 1 << 50), "body_too_large"), ("busy", lambda h: h.send_error(503), "url_unavailable"),
    ("lies", lambda h: (h.head(200, 10), h.wfile.write(npy(A))), "malformed_npy"),
    ("negative", lambda h: h.head(200, None, **{"Content-Length": "-5"}), None)])
def test_answers_that_are_no_file(fetching, files, name, answer, code):
    files.files[f"/{name}"] = answer
    got = product(fetching, {"url": f"{files.base}/{name}?X-Amz-Signature=secret"})
    assert got.status >= 400, got.body
    if code:
        assert got.json()["code"] == code, got.body
    assert b"secret" not in got.body and got.json()["field"] == "inputs.a"
    assert len(files.asks(f"/{name}")) == (5 if name == "busy" else 1) or name == "negative"
    assert stored(fetching) == []


def test_a_server_that_hangs_holds_nobody_up_and_a_client_that_leaves_ends_it(fetching, files):
    asked, left = threading.Event(), threading.Event()

    def hang(handler):
        handler.head(200, BIG.nbytes + 128)
        handler.wfile.write(npy(BIG)[:1000000])
        asked.set()
        handler.connection.settimeout(60)
        if handler.connection.recv(1) == b"":
            left.set()
    files.files["/hang"] = hang
    body = json.dumps({"op": "matmul", "inputs": {"a": {"url": f"{files.base}/hang"}, "b": nested(B)}}).encode()
    client = socket.create_connection(("127.0.0.1", fetching.port))
    client.sendall(b"POST /jobs?wait=30 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert asked.wait(30)
    np.testing.assert_allclose(result(product(fetching, {"url": f"{files.base}/a.npy"}), "c"), A @ B)
    client.close()
    assert left.wait(30)
    wait_for(lambda: stored(fetching) == [])


# --- where a request may not go -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [
    "http://169.254.169.254/latest/meta-data/", "http://localhost:80/", "file:///etc/passwd", "gopher://127.0.0.1/", "http://[::1]/",
    "http://user:key@127.0.0.1:PORT/a.npy", "http://127.0.0.1:PORT@evil.example/a.npy", "http:///a.npy",
    "https://127.0.0.1:PORT/a.npy", "http://127.0.0.1:1/a.npy", "http://0x7f000002:PORT/", "", "a.npy", "http://127.0.0.1:PORT/\n",
    "http://127.0.0.1:PORT/" + "x" * 3000])
def test_only_listed_hosts(fetching, files, url):
    before = len(files.asked)
    answer = product(fetching, {"url": url.replace("PORT", str(files.server_port))})
    assert answer.status == 422 and answer.json()["code"] in ("url_not_allowed", "invalid_field"), answer.body
    assert answer.json()["field"] == "inputs.a" and len(files.asked) == before


def test_without_a_list_nothing_is_fetched(service, files):
    before = len(files.asked)
    problem(product(service, {"url": f"{files.base}/a.npy"}), 422, "url_not_allowed", "inputs.a")
    assert len(files.asked) == before


def test_a_listed_name_that_leads_to_a_private_address(make_service, files):
    service = make_service("--outgoing-hosts", f"http://localhost:{files.server_port}")
    before = len(files.asked)
    problem(product(service, {"url": f"http://localhost:{files.server_port}/a.npy"}), 422, "url_not_allowed", "inputs.a")
    assert len(files.asked) == before


# --- limits and kills -------------------------------------------------------------------------------------------------


def test_limits_are_said_before_a_byte_is_taken(make_service, files):
    service = make_service("--outgoing-hosts", files.base, "--limit", "body_bytes=1M", "--limit", "url_s=2")
    sent = []

    def large(handler):
        handler.head(200, 9 << 20)
        try:
            for _ in range(9):
                handler.wfile.write(bytes(1 << 20))
                sent.append(1)
        except OSError:
            pass
    files.files["/large"] = large
    assert "body_bytes" in problem(product(service, {"url": f"{files.base}/large"}), 413, "body_too_large", "inputs.a")

    def slow(handler):
        handler.head(200, len(npy(A)))
        while not files.held.wait(0.1):
            handler.wfile.write(b"\x93")
    files.files["/slow"] = slow
    answer = product(service, {"url": f"{files.base}/slow"})
    assert answer.json()["code"] in ("url_unavailable", "malformed_npy"), answer.body


def test_what_is_too_many_waits(make_service, files):
    service = make_service("--outgoing-hosts", files.base, "--limit", "url_transfers=1")
    asked, go_on, answers = threading.Event(), threading.Event(), []

    def hold(handler):
        asked.set()
        go_on.wait(60)
        handler.whole(npy(A))
    files.files.update({"/one-at-a-time": hold, "/next": npy(A)})

    def ask(path):
        answers.append(product(service, {"url": files.base + path}))
    threads = [threading.Thread(target=ask, args=("/one-at-a-time",)), threading.Thread(target=ask, args=("/next",))]
    threads[0].start()
    assert asked.wait(30)
    threads[1].start()
    wait_for(lambda: service.metrics()["blasd_http_requests_in_flight"] == 3)  # the two and this one
    assert files.asks("/next") == []
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 2 and len(files.asks("/next")) == 1
    for answer in answers:
        np.testing.assert_allclose(result(answer, "c"), A @ B)


@pytest.mark.parametrize("part", ["api", "worker", "redis"])
def test_what_is_killed_while_it_is_fetched_leaves_nothing_behind(make_service, files, part):
    service = make_service("--outgoing-hosts", files.base)
    asked, go_on = threading.Event(), threading.Event()

    def hold(handler):
        whole = npy(BIG)
        handler.head(200, len(whole))
        handler.wfile.write(whole[:4000000])
        asked.set()
        go_on.wait(60)
        handler.wfile.write(whole[4000000:])
    files.files["/hold"] = hold
    answers = []

    def ask():
        try:
            answers.append(run(service, "matmul", {"a": {"url": f"{files.base}/hold"}, "b": np.eye(1000)[:, :3]}))
        except (OSError, http.client.HTTPException) as error:
            answers.append(error)
    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(30)
    pid = service.kill(part, signal.SIGKILL)
    wait_for(lambda: service.part(part) not in (None, pid))
    go_on.set()
    thread.join(90)
    if part == "worker":
        np.testing.assert_allclose(result(answers[0], "c"), BIG[:, :3])
    wait_for(lambda: service.request("GET", "/health/ready").status == 200, 30)
    files.files["/again.npy"] = npy(A)
    np.testing.assert_allclose(result(product(service, {"url": f"{files.base}/again.npy"}), "c"), A @ B)


def test_the_service_ends_while_something_is_fetched(make_service, files):
    service = make_service("--outgoing-hosts", files.base)
    asked = threading.Event()

    def hold(handler):
        handler.head(200, BIG.nbytes)
        asked.set()
        files.held.wait(60)
    files.files["/stop"] = hold
    answers = []

    def ask():
        try:
            answers.append(product(service, {"url": f"{files.base}/stop"}).status)
        except (OSError, http.client.HTTPException):
            answers.append(0)
    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(30)
    service.stop()
    thread.join(30)
    assert len(answers) == 1 and answers[0] in (0, 502, 503)
