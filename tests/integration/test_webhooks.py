"""Webhooks: of each job that asked for one its end is told, signed, whoever is killed meanwhile and whatever receivers do."""
import base64
import collections
import contextlib
import http.client
import http.server
import json
import os
import socket
import ssl
import subprocess
import threading
import uuid

import blasd
import numpy as np
import pytest
from service import API, BLASD, Redis, safetensors, TYPES, wait_for
from test_tenants import keys
from test_tls import authority  # noqa: F401  (a fixture)

SECRET = "whsec_" + base64.b64encode(b"a secret of twenty-four b").decode()
OTHER = "whsec_" + base64.b64encode(b"another one, of more bytes").decode()
SMALL = {"a": [[1, 2], [3, 4]], "b": [[1, 0], [0, 1]]}

Hook = collections.namedtuple("Hook", "path headers body")


def submit(service, path, body, headers):
    """The id; sent again under its key where the queue was away."""
    headers = {"Content-Type": TYPES["safetensors"], "Idempotency-Key": uuid.uuid4().hex, **(headers or {})}

    def try_once():
        try:
            answer = service.request("POST", path, body, headers)
        except (OSError, http.client.HTTPException):
            return None
        assert answer.status in (200, 202, 503), answer.body
        return answer.status != 503 and answer.json()["id"]
    return wait_for(try_once)


class Receiver:
    """Notes what comes, and does what the path says."""

    def __init__(self, tls=None):
        self.hooks, self.lock, self.release = [], threading.Lock(), threading.Event()
        self.failing = collections.Counter()  # path -> how often it still answers 500
        self.later = {}  # path -> Retry-After
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with receiver.lock:
                    receiver.hooks.append(Hook(self.path, dict(self.headers.items()), body))
                    fails = receiver.failing[self.path] > 0
                    receiver.failing[self.path] -= fails
                with contextlib.suppress(OSError):
                    self.answer(fails)

            do_GET = do_POST

            def answer(self, fails):
                if self.path.startswith("/hang"):
                    receiver.release.wait(60)
                    self.close_connection = True
                    return
                if self.path.startswith("/cut"):
                    self.connection.sendall(b"HTTP/1.1 20")
                    self.close_connection = True
                    return
                if self.path.startswith("/short"):  # less than it says
                    self.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nno")
                    self.close_connection = True
                    return
                if self.path.startswith("/slow"):  # its body never comes
                    self.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
                    receiver.release.wait(60)
                    self.close_connection = True
                    return
                if self.path.startswith("/hints"):
                    self.connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
                    self.close_connection = True
                    return
                if self.path.startswith("/endless"):
                    self.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
                    while True:
                        self.connection.sendall(b"x" * 65536)
                status = 500 if fails else int(self.path[1:4]) if self.path[1:4].isdigit() else 204
                self.send_response(status)
                if self.path in receiver.later:
                    self.send_header("Retry-After", receiver.later[self.path])
                if status // 100 == 3:
                    self.send_header("Location", f"http://127.0.0.1:{receiver.port}/ok-by-redirect")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
            self.url = f"https://localhost:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of(self, path):
        with self.lock:
            return [hook for hook in self.hooks if hook.path == path]

    def ids(self, path="/ok"):
        return collections.Counter(hook.headers["webhook-id"] for hook in self.of(path))

    def close(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture()
def receivers():
    """Makes receivers."""
    made = []

    def make(tls=None):
        made.append(Receiver(tls))
        return made[-1]
    yield make
    for one in made:
        one.close()


def secrets(folder, *lines):
    path = folder / "secrets"
    path.touch(0o600)
    path.write_text("".join(line + "\n" for line in lines or [SECRET]))
    return path


@pytest.fixture()
def hooked(make_service, receivers, tmp_path):
    """A service that sends webhooks to a receiver."""
    receiver = receivers()
    service = make_service("--outgoing-hosts", receiver.url, "--webhook-secrets", secrets(tmp_path))
    return service, receiver


def post(service, url, headers=None, **members):
    body = json.dumps({"op": "matmul", "inputs": SMALL, "notify": url, **members})
    return service.request("POST", "/jobs", body, {"Content-Type": TYPES["json"], **(headers or {})})


def job(service, url, **more):
    answer = post(service, url, **more)
    assert answer.status == 202, answer.body
    return answer.json()["id"]


def totals(service):
    metrics = service.metrics()
    return {outcome: metrics[f'blasd_webhooks_total{{outcome="{outcome}"}}'] for outcome in ("delivered", "failed", "given_up")}


VERIFY = """
import json, sys
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError
for secret, headers, body, good in json.load(sys.stdin):
    try:
        Webhook(secret).verify(body, headers)
        verified = True
    except WebhookVerificationError:
        verified = False
    assert verified == good, (secret, headers, good)
"""


def verify(venv, cases):
    """Has the standard's own package look at (secret, hook, whether it is to hold)."""
    text = json.dumps([[secret, hook.headers, hook.body.decode(), good] for secret, hook, good in cases])
    done = subprocess.run([venv("webhooks") / "bin" / "python", "-c", VERIFY], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.first
def test_each_end_is_told(hooked):
    """JSON, safetensors, multipart, graphs, the query; a job that failed, one cancelled, one whose deadline passed."""
    service, receiver = hooked
    url = receiver.url + "/ok?from=" + uuid.uuid4().hex + "&k=x:y"
    expected = {job(service, url): "succeeded"}
    inputs = {"a": np.eye(2), "b": np.eye(2)}
    expected[service.request("POST", "/jobs", safetensors(inputs, op="matmul", notify=url),
                             {"Content-Type": TYPES["safetensors"]}).json()["id"]] = "succeeded"
    expected[service.post("matmul", inputs, form="multipart", notify=url, wait=0).json()["id"]] = "succeeded"
    quoted = url.replace("&", "%26").replace("?", "%3F")
    expected[service.request("POST", f"/jobs?notify={quoted}", safetensors(inputs, op="matmul"),
                             {"Content-Type": TYPES["safetensors"], "Idempotency-Key": "k=1:2 n=3"}).json()["id"]] = "succeeded"
    expected[job(service, url, op="solve", inputs={"a": [[0, 0], [0, 0]], "b": [1, 1]})] = "failed"
    graph = {"steps": {"one": {"op": "matmul", "inputs": SMALL}}, "results": ["one"], "notify": url}
    expected[service.request("POST", "/graphs", json.dumps(graph), {"Content-Type": TYPES["json"]}).json()["id"]] = "succeeded"
    with service.worker_held():
        gone = job(service, url)
        expected[job(service, url, deadline_ms=50)] = "expired"
        service.request("DELETE", f"/jobs/{gone}")
        expected[gone] = "cancelled"
        path = url.removeprefix(receiver.url)
        wait_for(lambda: len(receiver.ids(path)) == len(expected))
    for hook in receiver.of(path):
        document = json.loads(hook.body)
        called = API.document["paths"]["/jobs"]["post"]["callbacks"]["ended"]["{$request.body#/notify}"]["post"]
        API.validate(called["requestBody"]["content"]["application/json"]["schema"], document)
        for one in called["parameters"]:
            API.validate(one["schema"], hook.headers[one["name"]])
        assert hook.headers["webhook-id"] == document["id"] and hook.headers["Content-Type"] == "application/json"
        assert document["state"] == expected[document["id"]]
        if document["op"] == "matmul" and document["state"] == "succeeded":
            assert document["outputs"]["c"]["shape"] == [2, 2] and "data" not in document["outputs"]["c"]
    wait_for(lambda: totals(service)["delivered"] == len(expected))
    assert service.metrics()["blasd_webhooks_waiting"] == 0
    silent = service.request("POST", "/jobs?wait=30", json.dumps({"op": "matmul", "inputs": SMALL}),
                             {"Content-Type": TYPES["json"]}).json()["id"]
    assert silent not in receiver.ids(path)


def test_signatures_hold(hooked, venv, tmp_path):
    """By the standard's package: of one secret, of two while they are changed, of the new one alone."""
    service, receiver = hooked
    venv("webhooks")
    job(service, receiver.url + "/one")
    wait_for(lambda: receiver.of("/one"))
    secrets(tmp_path, OTHER, SECRET)

    def both():
        job(service, receiver.url + "/both")
        return [hook for hook in receiver.of("/both") if " " in hook.headers["webhook-signature"]]
    two = wait_for(both)[0]
    secrets(tmp_path, "# the old one is gone", OTHER)

    def new():
        job(service, receiver.url + "/new")
        return [hook for hook in receiver.of("/new") if " " not in hook.headers["webhook-signature"]]
    one, three = receiver.of("/one")[0], wait_for(new)[-1]
    spoilt = Hook(one.path, one.headers, one.body.replace(b'"succeeded"', b'"failed"'))
    renamed = Hook(one.path, {**one.headers, "webhook-id": "another"}, one.body)
    verify(venv, [(SECRET, one, True), (OTHER, one, False), (SECRET, two, True), (OTHER, two, True), (SECRET, three, False),
                  (OTHER, three, True), (SECRET, spoilt, False), (SECRET, renamed, False)])


def test_what_is_refused(hooked, make_service):
    service, receiver = hooked
    for url, code in [("https://evil.example/", "url_not_allowed"), (receiver.url.replace("http:", "https:"), "url_not_allowed"),
                      (f"http://localhost:{receiver.port}/", "url_not_allowed"), ("ftp://127.0.0.1/", "invalid_field"),
                      (receiver.url.replace("127", "user@127"), "invalid_field"), ("", "invalid_field"),
                      (receiver.url + "/\n", "invalid_field"), (receiver.url + "/" + 2048 * "x", "invalid_field"), (17, "invalid_field")]:
        answer = post(service, url)
        problem = answer.json()
        assert (answer.status, problem["code"], problem["field"]) == (422, code, "notify"), (url, problem)
        assert problem["advice"]
    answer = service.request("POST", "/jobs?notify=http://x/", json.dumps({"op": "matmul", "inputs": SMALL, "notify": receiver.url}),
                             {"Content-Type": TYPES["json"]})
    assert (answer.status, answer.json()["field"]) == (400, "notify")  # a JSON body says it itself
    problem = post(make_service(), receiver.url).json()
    assert problem["code"] == "url_not_allowed" and "--webhook-secrets" in problem["detail"]
    assert receiver.hooks == []


def test_a_private_address_is_not_visited(make_service, receivers, tmp_path):
    """A name that is listed, and leads to this machine without being listed so."""
    receiver = receivers()
    service = make_service("--outgoing-hosts", f"http://localhost:{receiver.port}", "--webhook-secrets", secrets(tmp_path))
    job(service, f"http://localhost:{receiver.port}/ok")
    wait_for(lambda: totals(service)["failed"] >= 2)
    assert receiver.hooks == [] and "its address is not one that the service may go to" in service.log_text()


def test_https(make_service, receivers, authority, tmp_path):
    """To a receiver whose certificate nobody vouches for, and to one that a file vouches for."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.sign("hooks"))
    receiver = receivers(tls)
    hosts = f"{receiver.url}+private"
    service = make_service("--outgoing-hosts", hosts, "--webhook-secrets", secrets(tmp_path))
    job(service, receiver.url + "/ok")
    wait_for(lambda: totals(service)["failed"] >= 1)
    assert receiver.hooks == []
    service = make_service("--outgoing-hosts", hosts, "--outgoing-ca", authority.cert, "--webhook-secrets", secrets(tmp_path))
    one = job(service, receiver.url + "/ok")
    wait_for(lambda: totals(service)["delivered"] == 1)
    assert receiver.ids() == {one: 1}


def test_a_receiver_that_fails_is_tried_again(hooked):
    service, receiver = hooked
    receiver.failing["/ok"] = 2
    first = job(service, receiver.url + "/ok")
    wait_for(lambda: len(receiver.of("/ok")) == 3)
    tries = receiver.of("/ok")
    assert receiver.ids() == {first: 3} and len({hook.body for hook in tries}) == 1
    times = [int(hook.headers["webhook-timestamp"]) for hook in tries]
    assert times == sorted(times) and times[-1] > times[0]  # each try is signed anew
    wait_for(lambda: totals(service) == {"delivered": 1, "failed": 2, "given_up": 0})


def test_redirects_lies_and_refusals(make_service, receivers, tmp_path):
    """None of them is a delivery, but what was answered with 2xx before the lie."""
    taken = ("/endless", "/short", "/slow")
    paths = {path: receivers() for path in ("/302", "/307", "/404", "/cut", "/hints", "/410", *taken)}
    service = make_service("--outgoing-hosts", ",".join(one.url for one in paths.values()), "--webhook-secrets", secrets(tmp_path))
    ids = {path: job(service, one.url + path) for path, one in paths.items()}
    for path in ("/302", "/307", "/404", "/cut", "/hints"):
        wait_for(lambda path=path: len(paths[path].of(path)) >= 2)
    wait_for(lambda: totals(service)["given_up"] == 1 and totals(service)["delivered"] == len(taken))
    for path, one in paths.items():
        assert {hook.path for hook in one.hooks} == {path}  # no redirect was followed
        assert path not in ("/410", *taken) or one.ids(path) == {ids[path]: 1}


@pytest.mark.parametrize("later", ["Thu, 01 Jan 1970 00:00:00 GMT", "-1", "x"])
def test_a_time_to_try_again_that_is_none(hooked, later):
    """One that has passed, or is no time: it is tried again all the same, and what became of it is told each time."""
    service, receiver = hooked
    path = "/503"
    receiver.later[path] = later
    job(service, receiver.url + path)
    wait_for(lambda: len(receiver.of(path)) >= 2 and totals(service)["failed"] >= 2)
    assert "webhooks wait" not in service.log_text()


def test_one_that_hangs_holds_up_no_other(make_service, receivers, tmp_path):
    """Nor does one that is not there."""
    good, bad = receivers(), receivers()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
        service = make_service("--outgoing-hosts", f"{good.url} {bad.url} {nobody}", "--webhook-secrets", secrets(tmp_path))
        for _ in range(20):
            job(service, bad.url + "/hang")
            job(service, nobody + "/ok")
        wait_for(lambda: bad.of("/hang"))
        ids = [job(service, good.url + "/ok") for _ in range(20)]
        wait_for(lambda: set(good.ids()) == set(ids))
        assert len(bad.of("/hang")) < 20 and not bad.release.is_set()  # most of the others have not had their turn


def test_a_receiver_that_is_away_has_its_share_of_the_room(make_service, receivers, tmp_path):
    good, bad = receivers(), receivers()
    service = make_service("--outgoing-hosts", f"{good.url},{bad.url}", "--webhook-secrets", secrets(tmp_path), "--limit", "webhooks=40")
    for _ in range(4):
        job(service, bad.url + "/hang")
    answer = post(service, bad.url + "/hang")
    assert (answer.status, answer.json()["code"]) == (429, "too_many_webhooks")
    for _ in range(6):
        one = job(service, good.url + "/ok")
        wait_for(lambda one=one: one in good.ids())


def test_given_up_after_its_time(make_service, receivers, tmp_path):
    receiver = receivers()
    service = make_service("--outgoing-hosts", receiver.url, "--webhook-secrets", secrets(tmp_path), "--limit", "webhook_s=2")
    job(service, receiver.url + "/503")
    wait_for(lambda: totals(service)["given_up"] == 1)
    assert receiver.of("/503") and service.metrics()["blasd_webhooks_waiting"] == 0
    with contextlib.closing(Redis(service)) as redis:
        assert redis("KEYS", "{blasd}:hook*") == [b"{blasd}:hooks"] and redis("XLEN", "{blasd}:hooks") == 0


def test_tenants_have_secrets_of_their_own(make_service, receivers, venv, tmp_path):
    receiver = receivers()
    path, secret = keys(tmp_path, one={"tenant": "one"}, two={"tenant": "two"})
    service = make_service("--keys", path, "--outgoing-hosts", receiver.url, "--webhook-secrets",
                           secrets(tmp_path, f"one {OTHER}", SECRET))
    for tenant in ("one", "two"):
        job(service, f"{receiver.url}/{tenant}", headers={"Authorization": f"Bearer {secret[tenant]}"})
        wait_for(lambda tenant=tenant: receiver.of(f"/{tenant}"))
    one, two = receiver.of("/one")[0], receiver.of("/two")[0]
    verify(venv, [(OTHER, one, True), (SECRET, one, False), (SECRET, two, True), (OTHER, two, False)])


def test_nothing_is_lost_whoever_is_killed(hooked):
    service, receiver = hooked
    ids, url = set(), receiver.url + "/ok"
    for part in ("notify", "worker", "redis", "api", "notify"):
        receiver.failing["/ok"] = 2
        for i in range(15):
            body = safetensors({"a": np.eye(3), "b": np.eye(3)}, op="matmul", notify=url)
            ids.add(submit(service, "/jobs", body, {}))
            if i == 7:
                service.kill(part)
    wait_for(lambda: set(receiver.ids()) >= ids, seconds=240)
    for hook in receiver.of("/ok"):
        assert json.loads(hook.body)["id"] == hook.headers["webhook-id"]
    wait_for(lambda: service.metrics().get("blasd_webhooks_waiting") == 0)


def test_one_killed_while_it_delivers(make_service, receivers, tmp_path):
    """What it had in hand is another's once its time is up."""
    receiver = receivers()
    service = make_service("--outgoing-hosts", receiver.url, "--webhook-secrets", secrets(tmp_path))
    first = job(service, receiver.url + "/hang")
    wait_for(lambda: receiver.of("/hang"))
    service.kill("notify")
    wait_for(lambda: receiver.ids("/hang")[first] >= 2)


def test_clients_name_it(hooked, venv):
    """From Python and the command line, which is C's."""
    service, receiver = hooked
    url = receiver.url + "/ok"
    with blasd.Client(service.url) as client:
        eye = np.eye(2)
        ids = [client.submit("matmul", a=eye, b=eye, notify=url).id, client.run("matmul", a=eye, b=eye, notify=url).job["id"]]
        with client.graph(notify=url) as graph:
            graph.matmul(eye, eye)
    file = service.folder / "a.npy"
    np.save(file, eye)
    for command in ("run", "submit"):
        subprocess.run([BLASD, command, "matmul", f"a={file}", f"b={file}", "--url", service.url, "--notify", url], check=True, capture_output=True)
    wait_for(lambda: len(receiver.ids()) == 5)
    assert set(ids) <= set(receiver.ids())


def test_what_no_part_sends_is_refused(hooked):
    service, receiver = hooked
    with contextlib.closing(Redis(service)) as redis:
        limits = " ".join(12 * ["1"])
        for name, *words in [("lease", "me"), ("lease", "me", "x"), ("lease", "me", "-1"), ("done", "1-1"), ("done", "1-1", "perhaps"),
                             ("done", "x", "delivered"), ("done", "-", "failed")]:
            with pytest.raises(AssertionError, match="webhook_"):
                redis("FCALL", "blasd_7_webhook", 1, "{blasd}", limits, name, *words)
        assert redis("FCALL", "blasd_7_webhook", 1, "{blasd}", limits, "done", "1-1", "delivered") == 0
        assert redis("FCALL", "blasd_7_webhook", 1, "{blasd}", limits, "lease", "me", "1")[0] == 0  # another delivers
    job(service, receiver.url + "/ok")
    wait_for(lambda: receiver.of("/ok"))


def test_wrong_options(tmp_path):
    def told(*options, command="notify"):
        done = subprocess.run([BLASD, command, *options], capture_output=True, text=True, timeout=60,
                              env={key: value for key, value in os.environ.items() if not key.startswith("BLASD_")}, check=False)
        return done.returncode, done.stderr
    redis, good = ("--redis", "unix:/nowhere"), secrets(tmp_path)
    assert told(*redis, "--secrets", good) == (2, told(*redis)[1]) and "--outgoing-hosts" in told(*redis)[1]
    assert told(*redis, "--secrets", good, "--outgoing-hosts", "*")[0] == 2
    assert told("--webhook-secrets", good, command="up")[0] == 2
    for text, why in [("", "has no secret"), ("whsec_c2hvcnQ=", "line 1"), ("\n# x\nwhsec_!" + "A" * 40, "line 3"), (f"a b {SECRET}", "line 1"),
                      ("\n".join(5 * [SECRET]), "line 5"), (SECRET.replace("whsec_", "one"), "line 1")]:
        status, words = told(*redis, "--secrets", secrets(tmp_path, text), "--outgoing-hosts", "a.example")
        assert status == 1 and why in words and "whsec_c" not in words, words
    good = secrets(tmp_path)
    good.chmod(0o644)
    assert "chmod 600" in told(*redis, "--secrets", good, "--outgoing-hosts", "a.example")[1]
