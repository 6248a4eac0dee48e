"""Word that a machine goes: a worker, or all of `blasd up`, then ends as on SIGTERM, and loses nothing."""
import http.server
import signal
import subprocess
import threading

import numpy as np
import pytest
from service import BLASD, wait_for
from test_redis import client, ready_line, server  # noqa: F401  (a fixture)

PRODUCT = {"a": np.eye(2), "b": np.ones((2, 2))}


class Cloud:
    """What stands at a cloud's address for its machines: `says` answers a GET, and a token is wanted where there is one."""

    def __init__(self, token=None):
        self.says, self.asked, self.tokens = (404, b""), [], 0
        cloud = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, status, body, **headers):
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                cloud.asked.append((self.path, dict(self.headers)))
                if token and self.headers.get("X-aws-ec2-metadata-token") != token:
                    self.answer(401, b"")
                else:
                    status, body, *more = cloud.says
                    self.answer(status, body, **dict(more))

            def do_PUT(self):
                cloud.tokens += 1
                assert self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
                self.answer(200, token.encode())

            def log_message(self, *args):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/latest/meta-data/spot/instance-action"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def cloud():
    made = []

    def make(**words):
        made.append(Cloud(**words))
        return made[-1]
    yield make
    for one in made:
        one.server.shutdown()
        one.server.server_close()


@pytest.fixture
def apart(server):  # noqa: F811
    """A front end without workers over a Redis, and what starts workers beside it."""
    server.up()
    service = client(server, server.api("--redis", server.url))

    def worker(*words):
        process = server.worker("--redis", server.url, "--measured", "none", *map(str, words))
        line = ready_line(process, 60)
        assert line and line.startswith("ready "), server.log_text()
        return process
    service.worker_beside, service.log_of_all = worker, server.log_text
    return service


def work_on(service, jobs):
    return [service.post("matmul", PRODUCT, wait=0).json()["id"] for _ in range(jobs)]


def all_done_once(service, ids):
    """Each has succeeded, in one attempt, and the service counts as many ends."""
    for job in ids:
        document = service.request("GET", f"/jobs/{job}?wait=60").json()
        assert document["state"] == "succeeded", document
    assert service.metrics()['blasd_jobs_total{op="matmul",state="succeeded"}'] == len(ids)


def test_a_file(apart, tmp_path):
    """A worker ends by itself, with what it has in hand; another one takes the rest."""
    first = apart.worker_beside("--notice-file", tmp_path / "goes")
    ids = work_on(apart, 30)
    (tmp_path / "goes").write_text("")
    ids += work_on(apart, 30)
    assert first.wait(60) == 0
    ids += work_on(apart, 5)
    second = apart.worker_beside()
    all_done_once(apart, ids)
    assert second.poll() is None


def test_what_is_not_done_in_time_goes_back(apart, tmp_path):
    """A job that computes for longer than drain_s is another worker's, and is none of those that killed one."""
    first = apart.worker_beside("--notice-file", tmp_path / "goes", "--limit", "drain_s=1")
    x = np.random.default_rng(1).standard_normal((40, 30))
    job = apart.post("regression", {"x": x, "y": x[:, 0]}, {"method": "gd", "iterations": 1_000_000_000, "learning_rate": 1e-6}, wait=0).json()["id"]
    wait_for(lambda: apart.request("GET", f"/jobs/{job}").json()["state"] == "running", "it runs")
    (tmp_path / "goes").write_text("")
    assert first.wait(60) == 0
    assert apart.request("GET", f"/jobs/{job}").json()["state"] == "queued"
    apart.worker_beside()
    wait_for(lambda: apart.request("GET", f"/jobs/{job}").json()["state"] == "running", "it runs again")
    assert apart.request("DELETE", f"/jobs/{job}").status == 200


@pytest.mark.parametrize("words, before, after", [
    ([], [(404, b""), (503, b"no"), (302, b"", ("Location", "/elsewhere"))], (200, b'{"action": "terminate", "time": "2027-09-18T08:22:00Z"}')),
    (["--notice-text", "TRUE"], [(200, b"FALSE"), (404, b"TRUE"), (200, b"")], (200, b"TRUE")),
    (["--notice-text", '"Preempt"'], [(200, b'{"DocumentIncarnation":1,"Events":[]}'), (200, b"x" * 100000 + b'"Preempt"')],
     (200, b'{"Events":[{"EventType":"Preempt"}]}'))], ids=["amazon", "google", "azure"])
def test_an_address(apart, cloud, words, before, after):
    """Of each cloud's kind: only what means it is taken for it."""
    there = cloud()
    worker = apart.worker_beside("--notice-url", there.url, *words)
    for there.says in before:
        seen = len(there.asked)
        wait_for(lambda: len(there.asked) >= seen + 2, "it asks again")  # noqa: B023
        assert worker.poll() is None
    assert {path for path, _ in there.asked} == {"/latest/meta-data/spot/instance-action"}  # no redirect was followed
    assert all(headers["Metadata"] == "true" and headers["Metadata-Flavor"] == "Google" for _, headers in there.asked)
    ids = work_on(apart, 3)
    all_done_once(apart, ids)
    there.says = after
    assert worker.wait(60) == 0


def test_an_address_that_wants_a_token(apart, cloud):
    there = cloud(token="AQAEhunter2==")
    worker = apart.worker_beside("--notice-url", there.url)
    wait_for(lambda: len(there.asked) >= 4, "it asks")
    assert worker.poll() is None and there.tokens == 1
    there.says = (200, b"{}")
    assert worker.wait(60) == 0 and there.tokens == 1
    assert "hunter2" not in apart.log_of_all()


def test_an_address_that_is_away(apart, cloud):
    there = cloud()
    there.server.shutdown()
    there.server.server_close()
    worker = apart.worker_beside("--notice-url", there.url)
    wait_for(lambda: "does not answer" in apart.log_of_all(), "it says so")
    all_done_once(apart, work_on(apart, 20))
    assert worker.poll() is None and apart.log_of_all().count("does not answer") == 1
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0


def test_the_whole_service(make_service, tmp_path):
    service = make_service("--notice-file", str(tmp_path / "goes"))
    job = service.post("matmul", PRODUCT).json()
    assert job["state"] == "succeeded"
    (tmp_path / "goes").write_text("")
    assert service.process.wait(60) == 0
    assert "word came that this machine goes" in (service.folder / "log").read_text()


@pytest.mark.parametrize("command", ["worker", "up"])
@pytest.mark.parametrize("words", [["--notice-url", "169.254.169.254"], ["--notice-url", "file:///etc/passwd"], ["--notice-text", "x"]])
def test_what_cannot_be_meant(tmp_path, command, words):
    place = ["--redis", "redis://127.0.0.1:1"] if command == "worker" else ["--data", str(tmp_path)]
    done = subprocess.run([BLASD, command, *place, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "--notice-" in done.stderr and done.stdout == ""


def test_killed_between(apart, tmp_path):
    """The word, and kills of the workers that got it, while jobs come: each ends once."""
    ids = []
    for turn in range(4):
        word = tmp_path / f"goes{turn}"
        worker = apart.worker_beside("--notice-file", word)
        ids += work_on(apart, 25)
        word.write_text("")
        ids += work_on(apart, 25)
        if turn % 2:
            worker.kill()
        worker.wait(60)
    apart.worker_beside()
    all_done_once(apart, ids)
