"""Outputs by URL: put to a real object store, and to servers that fail, stall, lie and redirect; whoever is killed meanwhile."""
import contextlib
import http.server
import io
import json
import signal
import subprocess
import threading
import urllib.parse

import blasd
import numpy as np
import pytest
from service import API, BLASD, ONE_QUEUE, TYPES, Redis, Service, safetensors, wait_for
from test_tenants import keys
from test_urls import LocalServer, signed, store  # noqa: F401  (a fixture)

RNG = np.random.default_rng(24)
A, B = RNG.standard_normal((40, 30)), RNG.standard_normal((30, 20))
BIG = RNG.standard_normal((1200, 1000))  # some 9 MiB: its outputs are a blob


class Takes(http.server.BaseHTTPRequestHandler):
    """Keeps what is put. `self.server.answers`: PATH -> statuses of the next tries, or a function of the handler."""
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        path = self.path.split("?")[0]
        server = self.server
        with server.lock:
            server.tries.append(self.path)
            answer = server.answers.get(path)
            status = answer.pop(0) if isinstance(answer, list) and answer else 200
        if callable(answer):
            answer(self)
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if status == 200:
            with server.lock:
                server.files[path] = (dict(self.headers.items()), body)
        self.answer(status)

    def answer(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


class Server(LocalServer):
    def __init__(self):
        self.files, self.tries, self.answers, self.lock, self.go_on = {}, [], {}, threading.Lock(), threading.Event()
        super().__init__(Takes)

    def count(self, path):
        with self.lock:
            return sum(one.split("?")[0] == path for one in self.tries)

    def array(self, path):
        return np.load(io.BytesIO(self.files[path][1]))


@pytest.fixture(scope="module")
def server():
    one = Server()
    yield one
    one.go_on.set()
    one.shutdown()
    one.server_close()


@pytest.fixture(scope="module")
def putting(tmp_path_factory, server):
    """A service whose operator has listed the server."""
    one = Service(tmp_path_factory.mktemp("putting"), "--outgoing-hosts", server.base).start()
    yield one
    one.stop()


def post(service, put, a=A, b=B, path="/jobs?wait=60", **members):
    body = {"op": "matmul", "inputs": {"a": np.asarray(a).tolist(), "b": np.asarray(b).tolist()}, "put": put, **members}
    return service.request("POST", path, json.dumps(body), {"Content-Type": TYPES["json"]})


def job(service, put, **more):
    answer = post(service, put, **more)
    assert answer.status == 200, answer.body
    document = answer.json()
    assert document["state"] == "succeeded", document
    return document["id"]


def of(service, job_id, output="c"):
    """What its document says of the put."""
    document = service.request("GET", f"/jobs/{job_id}").json()
    API.validate(API.document["components"]["schemas"]["Job"], document)
    return document["outputs"][output]["put"]


def until(service, job_id, state, output="c"):
    return wait_for(lambda: (one := of(service, job_id, output))["state"] == state and one)


def totals(service):
    metrics = service.metrics()
    return {outcome: metrics[f'blasd_puts_total{{outcome="{outcome}"}}'] for outcome in ("delivered", "failed", "given_up")}


def test_every_form_of_request_and_every_place_an_output_lies(putting, server):
    """Beside the record, in a segment, in a blob; .npy and safetensors; what is kept, and what is not among the results."""
    small = job(putting, {"c": f"{server.base}/small.npy?secret=1"}, a=A[:2, :3], b=B[:3, :2])
    assert until(putting, small, "done") == {"state": "done", "tries": 1}
    headers, body = server.files["/small.npy"]
    assert headers["Content-Type"] == "application/x-npy" and int(headers["Content-Length"]) == len(body)
    assert "Transfer-Encoding" not in headers and "Content-Encoding" not in headers
    np.testing.assert_allclose(server.array("/small.npy"), A[:2, :3] @ B[:3, :2])
    middle = job(putting, {"c": f"{server.base}/middle.npy"})
    until(putting, middle, "done")
    np.testing.assert_allclose(server.array("/middle.npy"), A @ B)
    put = json.dumps({"c": f"{server.base}/big.npy"})
    inputs = {"a": BIG, "b": np.eye(1000)}
    big = putting.request("POST", "/jobs?wait=60", safetensors(inputs, op="matmul", put=put), {"Content-Type": TYPES["safetensors"]}).json()
    until(putting, big["id"], "done")
    np.testing.assert_allclose(server.array("/big.npy"), BIG)
    form = putting.post("matmul", {"a": A, "b": B}, form="multipart", put=json.dumps({"c": f"{server.base}/form.safetensors"})).json()
    until(putting, form["id"], "done")
    headers, body = server.files["/form.safetensors"]
    assert headers["Content-Type"] == "application/x-safetensors" and body[8:9] == b"{"
    quoted = urllib.parse.quote(put.replace("big", "query"))
    asked = json.dumps({"op": "matmul", "inputs": {"a": A.tolist(), "b": B.tolist()}})
    query = putting.request("POST", f"/jobs?wait=60&put={quoted}", asked, {"Content-Type": TYPES["json"]}).json()
    until(putting, query["id"], "done")
    kept = job(putting, {"c": f"{server.base}/kept.npy"}, keep=["c"], results=[])
    until(putting, kept, "done")
    np.testing.assert_allclose(server.array("/kept.npy"), A @ B)
    two = post(putting, {"coef": f"{server.base}/coef.npy", "intercept": f"{server.base}/intercept.npy"}, op="regression",
               inputs={"x": A[:, :3].tolist(), "y": A[:, 4].tolist()}).json()["id"]
    until(putting, two, "done", "coef")
    until(putting, two, "done", "intercept")
    assert server.array("/coef.npy").shape == (3,)
    assert totals(putting)["failed"] == totals(putting)["given_up"] == 0 and putting.metrics()["blasd_puts_waiting"] == 0


def test_bytes_are_those_of_the_output_by_its_name(putting, server):
    one = job(putting, {"c": f"{server.base}/same.npy"})
    until(putting, one, "done")
    answer = putting.request("GET", f"/jobs/{one}/outputs/c", headers={"Accept": "application/x-npy"})
    assert answer.body == server.files["/same.npy"][1]


def test_a_presigned_url_of_an_object_store(make_service, store, tmp_path):  # noqa: F811
    service = make_service("--outgoing-hosts", store.base)
    client = blasd.Client(service.url)
    result = client.run("matmul", a=BIG, b=np.eye(1000), put={"c": signed(store, "result.npy", "put_object")})
    assert until(service, result.job["id"], "done")["tries"] == 1
    store(f"s3.download_file('lab', 'result.npy', '{tmp_path / 'result.npy'}')")
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), BIG)
    missing = client.run("matmul", a=A, b=B, put={"c": signed(store, "x.npy", "put_object").replace("/lab/", "/no-such-bucket/")})
    error = until(service, missing.job["id"], "failed")["error"]
    assert error["code"] == "url_refused" and "404" in error["detail"] and error["field"] == "put.c"
    log = service.log_text()
    assert "Signature" not in log and "X-Amz" not in log and "Signature" not in json.dumps(of(service, missing.job["id"]))


def test_a_server_that_fails_three_times(putting, server):
    server.answers["/thrice.npy"] = [500, 503, 429]
    before = totals(putting)
    one = job(putting, {"c": f"{server.base}/thrice.npy"})
    waits = wait_for(lambda: (is_ := of(putting, one)) and "error" in is_ and is_)
    assert waits["error"]["code"] == "url_unavailable" and waits["state"] in ("pending", "done")
    assert until(putting, one, "done") == {"state": "done", "tries": 4}
    np.testing.assert_allclose(server.array("/thrice.npy"), A @ B)
    after = totals(putting)
    assert after["failed"] - before["failed"] == 3 and after["delivered"] - before["delivered"] == 1


@pytest.mark.parametrize("status, code", [(403, "url_refused"), (404, "url_refused"), (307, "url_refused"), (302, "url_refused")])
def test_what_will_be_no_other_next_time_fails_at_once(putting, server, status, code):
    path = f"/{status}.npy"
    server.answers[path] = lambda handler: (handler.rfile.read(int(handler.headers["Content-Length"])),
                                            handler.answer(status, Location=f"{server.base}/elsewhere.npy"))
    one = job(putting, {"c": f"{server.base}{path}"})
    failed = until(putting, one, "failed")
    assert failed["tries"] == 1 and failed["error"]["code"] == code and str(status) in failed["error"]["detail"]
    assert failed["error"]["advice"] and server.count("/elsewhere.npy") == 0 and server.count(path) == 1


def test_a_refusal_before_the_bytes_is_one(putting, server):
    """The server answers while most of the body is to come, and hangs up."""
    def refuse(handler):
        handler.answer(403)
        handler.close_connection = True
    server.answers["/early.npy"] = refuse
    body = safetensors({"a": BIG, "b": np.eye(1000)}, op="matmul", put=json.dumps({"c": f"{server.base}/early.npy"}))
    one = putting.request("POST", "/jobs?wait=60", body, {"Content-Type": TYPES["safetensors"]}).json()["id"]
    assert "403" in until(putting, one, "failed")["error"]["detail"]


def test_an_answer_before_the_bytes_is_no_success(putting, server):
    def lie(handler):
        handler.answer(200)
        handler.close_connection = True
    server.answers["/lie.npy"] = lie
    body = safetensors({"a": BIG, "b": np.eye(1000)}, op="matmul", put=json.dumps({"c": f"{server.base}/lie.npy"}))
    one = putting.request("POST", "/jobs?wait=60", body, {"Content-Type": TYPES["safetensors"]}).json()["id"]
    wait_for(lambda: of(putting, one)["tries"] > 0)
    assert of(putting, one)["state"] == "pending"
    server.answers["/lie.npy"] = []
    until(putting, one, "done")
    np.testing.assert_allclose(server.array("/lie.npy"), BIG)


def test_a_server_that_never_ends_holds_nobody_up(make_service, server):
    """One that takes everything and does not answer; one whose answer has no end. Others' outputs go on meanwhile."""
    other = Server()
    other.answers["/silent.npy"] = lambda handler: other.go_on.wait(120)

    def endless(handler):
        handler.rfile.read(int(handler.headers["Content-Length"]))
        handler.wfile.write(b"HTTP/1.1 500 No\r\nContent-Length: 99999999999\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b"x" * 65536)
    other.answers["/endless.npy"] = endless
    service = make_service("--outgoing-hosts", f"{server.base},{other.base}", "--limit", "put_s=1")
    silent = job(service, {"c": f"{other.base}/silent.npy"})
    endless_id = job(service, {"c": f"{other.base}/endless.npy"})
    wait_for(lambda: other.count("/silent.npy") == 1)
    good = job(service, {"c": f"{server.base}/meanwhile.npy"})
    until(service, good, "done")
    assert until(service, silent, "failed")["error"]["code"] == "url_unavailable"
    assert "500" in until(service, endless_id, "failed")["error"]["detail"]
    other.go_on.set()
    other.shutdown()
    other.server_close()


def test_what_is_refused(putting, server, make_service):
    url = f"{server.base}/no.npy"
    for put, code, field in [({"c": "https://evil.example/"}, "url_not_allowed", "put.c"), ({"c": "ftp://127.0.0.1/"}, "invalid_field", "put.c"),
                             ({"c": ""}, "invalid_field", "put.c"), ({"d": url}, "unknown_output", "put.d"), ({"c": 1}, "invalid_field", "put"),
                             ([url], "invalid_field", "put"), (url, "invalid_field", "put")]:
        problem = post(putting, put).json()
        assert (problem["status"], problem["code"], problem["field"]) == (422, code, field), (put, problem)
    problem = post(putting, {"error_bound": url}, op="solve", inputs={"a": [[2, 1], [1, 3]], "b": [1, 2]}).json()
    assert (problem["code"], problem["field"]) == ("invalid_field", "put.error_bound"), problem
    narrow = {"dtype": "bfloat16", "shape": [1, 1], "base64": "gD8="}
    problem = post(putting, {"c": url}, inputs={"a": narrow, "b": narrow}).json()
    assert problem["field"] == "put.c" and ".safetensors" in problem["detail"]
    graph = {"steps": {"one": {"op": "matmul", "inputs": {"a": [[1]], "b": [[1]]}}}, "put": {"one.c": url}}
    problem = putting.request("POST", "/graphs", json.dumps(graph), {"Content-Type": TYPES["json"]}).json()
    assert (problem["code"], problem["field"]) == ("unknown_field", "put")
    text = '{"c":"' + url + '?Signature=tell-nobody"'  # no JSON
    problem = putting.request("POST", "/jobs", safetensors({"a": A, "b": B}, op="matmul", put=text), {"Content-Type": TYPES["safetensors"]}).json()
    assert problem["field"] == "put" and "tell-nobody" not in json.dumps(problem)
    problem = post(make_service(), {"c": url}).json()
    assert problem["code"] == "url_not_allowed" and "--outgoing-hosts" in problem["detail"]
    assert server.count("/no.npy") == 0 and "tell-nobody" not in putting.log_text()


def test_a_listed_name_that_leads_to_a_private_address(make_service, server):
    port = server.server_port
    service = make_service("--outgoing-hosts", f"http://localhost:{port}")
    one = job(service, {"c": f"http://localhost:{port}/private.npy"})
    failed = until(service, one, "failed")
    assert failed["error"]["code"] == "url_not_allowed" and server.count("/private.npy") == 0


def test_a_job_that_fails_or_is_cancelled_puts_nothing(putting, server):
    url = f"{server.base}/nothing.npy"
    failed = post(putting, {"x": url}, op="solve", inputs={"a": [[0, 0], [0, 0]], "b": [1, 1]}).json()
    assert failed["state"] == "failed"
    with putting.worker_held():
        one = post(putting, {"c": url}, path="/jobs").json()["id"]
        putting.request("DELETE", f"/jobs/{one}")
    assert server.count("/nothing.npy") == 0
    with contextlib.closing(Redis(putting)) as redis:
        wait_for(lambda: redis("EXISTS", "{blasd}:putting", "{blasd}:puts", "{blasd}:put_counts", "{blasd}:put_due") == 0)


def test_one_request_sent_twice_is_put_once(putting, server):
    headers = {"Content-Type": TYPES["json"], "Idempotency-Key": "p=0:1 k=2"}
    body = {"op": "matmul", "inputs": {"a": A.tolist(), "b": B.tolist()}, "put": {"c": f"{server.base}/twice.npy"}}
    ids = {putting.request("POST", "/jobs?wait=60", json.dumps(body), headers).json()["id"] for _ in range(3)}
    assert len(ids) == 1
    until(putting, ids.pop(), "done")
    assert server.count("/twice.npy") == 1
    body["put"]["c"] += "x"
    assert putting.request("POST", "/jobs?wait=60", json.dumps(body), headers).json()["code"] == "idempotency_conflict"


@pytest.mark.parametrize("part", ["notify", "redis", "api", "worker"])
def test_what_is_killed_while_it_is_put_loses_nothing(make_service, server, part):
    """It is put once more, whole, and nothing else is."""
    path, asked, go_on = f"/killed-{part}.npy", threading.Event(), threading.Event()

    def hold(handler):
        body = handler.rfile.read(4000000)
        if not asked.is_set():
            asked.set()
            go_on.wait(60)
        body += handler.rfile.read(int(handler.headers["Content-Length"]) - len(body))
        if len(body) == int(handler.headers["Content-Length"]):
            handler.server.files[path] = ({}, body)
            handler.answer(200)
    server.answers[path] = hold
    service = make_service("--outgoing-hosts", server.base)
    body = safetensors({"a": BIG, "b": np.eye(1000)}, op="matmul", put=json.dumps({"c": server.base + path}))
    one = service.request("POST", "/jobs?wait=60", body, {"Content-Type": TYPES["safetensors"]}).json()["id"]
    assert asked.wait(60)
    pid = service.kill(part, signal.SIGKILL)
    wait_for(lambda: service.part(part) not in (None, pid))
    go_on.set()
    wait_for(lambda: service.request("GET", "/health/ready").status == 200)
    until(service, one, "done")
    np.testing.assert_allclose(server.array(path), BIG)
    assert server.count(path) <= 2
    with contextlib.closing(Redis(service)) as redis:
        assert redis("EXISTS", "{blasd}:puts", "{blasd}:put_counts", "{blasd}:put_due", "{blasd}:put_holds") == 0


def test_a_service_that_ends_goes_on_when_it_is_back(make_service, server):
    path, asked = "/restart.npy", threading.Event()

    def hold(handler):
        handler.rfile.read(4000000)
        asked.set()
        server.go_on.wait(60)
    server.answers[path] = hold
    service = make_service("--outgoing-hosts", server.base)
    body = safetensors({"a": BIG, "b": np.eye(1000)}, op="matmul", put=json.dumps({"c": server.base + path}))
    one = service.request("POST", "/jobs?wait=60", body, {"Content-Type": TYPES["safetensors"]}).json()["id"]
    assert asked.wait(60)
    service.stop()
    server.answers[path] = []
    service.start()
    until(service, one, "done")
    np.testing.assert_allclose(server.array(path), BIG)


def test_what_no_part_sends_is_refused(putting, server):
    with contextlib.closing(Redis(putting)) as redis:
        limits = " ".join(11 * ["1"])
        for name, *words in [("take", "x", "1", "1"), ("take", "1", "1"), ("keep", "lane"), ("keep", "lane", "-1"), ("done", "lane", "x"),
                             ("done", "lane", "1", "id", "perhaps"), ("done", "lane", "1", "id", "0 x"), ("done", "lane", "1", "id", "0 123456")]:
            with pytest.raises(AssertionError, match="put_"):
                redis("FCALL", f"blasd_6_put_{name}", 1, "{blasd}", limits, *words)
        for ident in ("no such id", "s" + 40 * "0" + ":39", ""):
            assert redis("FCALL", "blasd_6_put_done", 1, "{blasd}", limits, "no such lane", "1", ident, "0 503") == 0
        assert redis("FCALL", "blasd_6_put_keep", 1, "{blasd}", limits, "no such lane", "1000") == 0
        assert redis("KEYS", "{blasd}:put*") == []
    until(putting, job(putting, {"c": f"{server.base}/still.npy"}), "done")


def test_wrong_options():
    def told(*options):
        done = subprocess.run([BLASD, "notify", "--redis", "unix:/nowhere", *options], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2, done.stderr
        return done.stderr
    assert "--outgoing-hosts" in told("--puts") and "--puts" in told("--outgoing-hosts", "a.example")


def test_a_job_that_is_forgotten_is_not_put_any_more(putting, server):
    server.answers["/forgotten.npy"] = [503]
    one = job(putting, {"c": f"{server.base}/forgotten.npy"})
    wait_for(lambda: of(putting, one)["tries"] == 1)
    before = totals(putting)
    assert putting.request("DELETE", f"/jobs/{one}?forget=1").status == 200
    wait_for(lambda: totals(putting)["given_up"] == before["given_up"] + 1)
    assert server.count("/forgotten.npy") == 1 and putting.metrics()["blasd_puts_waiting"] == 0


def test_room_is_limited_in_all_and_for_one_host(make_service, server):
    other = Server()
    held = threading.Event()
    service = make_service("--outgoing-hosts", f"{server.base},{other.base}", "--limit", "puts=20", *ONE_QUEUE)
    server.answers["/held.npy"] = lambda handler: held.wait(60)
    for _ in range(2):  # a tenth of it
        assert post(service, {"c": f"{server.base}/held.npy"}).status == 200
    problem = post(service, {"c": f"{server.base}/held.npy"}).json()
    assert (problem["status"], problem["code"], problem["field"]) == (429, "too_many_puts", "put")
    until(service, job(service, {"c": f"{other.base}/there-is-room.npy"}), "done")
    held.set()
    other.shutdown()
    other.server_close()


def test_a_tenants_puts_are_its_own(make_service, server, tmp_path):
    path, secret = keys(tmp_path, one={"tenant": "one"}, two={"tenant": "two"})
    service = make_service("--keys", path, "--outgoing-hosts", server.base, "--limit", "puts=10", *ONE_QUEUE)
    service.headers = {"Authorization": f"Bearer {secret['one']}"}
    held = threading.Event()
    server.answers["/tenant-one.npy"] = lambda handler: held.wait(60)
    one = job(service, {"c": f"{server.base}/tenant-one.npy"})
    assert post(service, {"c": f"{server.base}/tenant-one.npy"}).json()["code"] == "too_many_puts"
    service.headers["Authorization"] = f"Bearer {secret['two']}"
    two = job(service, {"c": f"{server.base}/tenant-two.npy"})
    until(service, two, "done")
    assert service.request("GET", f"/jobs/{one}").status == 404
    held.set()


def test_clients(putting, server, tmp_path):
    client = blasd.Client(putting.url)
    submitted = client.submit("matmul", a=A, b=B, put={"c": f"{server.base}/submit.npy"})
    until(putting, submitted.id, "done") if submitted.wait(60) else None
    client.matmul(A, B, put={"c": f"{server.base}/method.npy"})
    wait_for(lambda: "/method.npy" in server.files)
    for name, array in (("a", A), ("b", B)):
        np.save(tmp_path / f"{name}.npy", array)
    done = subprocess.run([BLASD, "run", "matmul", f"a={tmp_path / 'a.npy'}", f"b={tmp_path / 'b.npy'}", "-q", "--put",
                           f"c={server.base}/cli.npy?x=1&y=2", "--url", putting.url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: "/cli.npy" in server.files)
    for path in ("/submit.npy", "/method.npy", "/cli.npy"):
        np.testing.assert_allclose(server.array(path), A @ B)
    wrong = subprocess.run([BLASD, "run", "matmul", f"a={tmp_path / 'a.npy'}", f"b={tmp_path / 'b.npy'}", "--put", "c", "--url", putting.url],
                           capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2 and "--put" in wrong.stderr
