"""The page at `/`, in a real Chromium: what it shows is what the service says, and everyone can use it."""
import base64
import contextlib
import datetime
import hashlib
import http.client
import http.server
import json
import pathlib
import queue
import re
import shutil
import subprocess
import threading
import time
import urllib.parse

import numpy as np
import pytest
from event_stream import EventStream
from service import ENDED, ROOT, TYPES, wait_for
from test_auth import bearer, keys
from test_progress import send

CONSOLE = ROOT / "src" / "http" / "console"
A = np.eye(3) * 4 + 1
JOBS = [("matmul", {"a": A, "b": A}), ("solve", {"a": A, "b": A[0]}), ("solve", {"a": A * 0, "b": A}),
        ("distance", {"x": np.arange(24.0).reshape(8, 3)}), ("regression", {"x": np.arange(8.0).reshape(8, 1) ** 2, "y": np.arange(8.0)}),
        ("matmul", {"a": np.ones((160, 160)), "b": np.ones((160, 160))})]


# --- what is served -----------------------------------------------------------------------------------------------


def hashed(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_page_is_one_document(service):
    """All that it is made of stands in it, and its policy lets in that alone, by hash."""
    answer = service.request("GET", "/", headers={"Accept": "*/*"})
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and service.request("HEAD", "/").status == 200
    page = answer.body.decode()
    styles, scripts = (re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", page, re.DOTALL) for tag in ("style", "script"))
    assert len(styles) == len(scripts) == 1
    policy = dict(one.strip().split(" ", 1) for one in answer.headers["Content-Security-Policy"].split(";"))
    assert policy == {"default-src": "'none'", "script-src": hashed(scripts[0]), "style-src": hashed(styles[0]), "img-src": "data:",
                      "connect-src": "'self'", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'"}
    outside = page.replace(scripts[0], "").replace(styles[0], "")
    assert not re.search(r"\sstyle=|\son[a-z]+=", outside), "something inline that no hash lets in"
    assert all(at.startswith(("data:image/svg+xml;base64,", "/docs", "#")) for at in re.findall(r'\s(?:src|href)="([^"]*)"', outside))
    assert styles[0] == (CONSOLE / "style.css").read_text()
    for module in CONSOLE.glob("*.js"):  # as it stands, but for what names other modules
        text = re.sub(r"^export ", "", module.read_text(), flags=re.MULTILINE)
        assert text.rpartition('.js";\n')[2] in scripts[0], module.name
    assert not re.search(r"^(?:import|export)\b", scripts[0], re.MULTILINE)
    assert not re.search(r"https?://|//cdn|@import", re.sub(r"http://www\.w3\.org/2000/svg", "", page)), "it names another host"
    assert service.request("GET", "/console/app.js").status == 404 and service.request("POST", "/").status == 405


def test_modules_of_a_form_that_is_not_known_are_refused(tmp_path):
    """What puts them together guesses at nothing: the build fails."""
    folder = tmp_path / "console"
    for line in ('import "./page.js";', 'import page from "./page.js";', 'import { a as b } from "./page.js";', "export default 1;",
                 "export let x = 1;", "export { $ };", 'const text = "</script>";', 'import { $ } from "./missing.js";'):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(CONSOLE, folder)
        with (folder / "send.js").open("a") as file:
            file.write(line + "\n")
        done = subprocess.run([ROOT / "mk/console.sh", folder], capture_output=True, text=True, check=False)
        assert done.returncode != 0 and "what is this in" in done.stderr, line


# --- in a browser -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def browse(venv):
    """browse(scenario, service, **wanted): what page_driver.py says of it."""
    for program in ("/usr/bin/chromium", "/usr/bin/chromedriver"):
        if not pathlib.Path(program).exists():
            pytest.skip(f"{program} is not installed: Debian has it as a package (deploy/install-packages.sh test), Ubuntu as a snap alone")
    python = venv("browser") / "bin" / "python"

    def run(scenario, service, **wanted):
        done = subprocess.run([python, ROOT / "tests/integration/page_driver.py", scenario, f"{service.url}/", json.dumps(wanted)],
                              capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout)
    return run


class Load:
    """Jobs of all kinds, until it is told to end: waited for and not, alone and together, some that fail."""

    def __init__(self, service, threads=2, jobs=10**9, headers=None):
        self.service, self.left, self.lock, self.headers = service, jobs, threading.Lock(), headers or {}
        self.threads = [threading.Thread(target=self.work, args=(i,)) for i in range(threads)]

    def work(self, seed):
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
        bodies = [json.dumps({"op": op, "inputs": {name: array.tolist() for name, array in inputs.items()}}) for op, inputs in JOBS]
        i = seed
        while True:
            with self.lock:
                self.left -= 1
                if self.left < 0:
                    break
            i += 1
            path = "/jobs?wait=20" if i % 3 else "/jobs"
            connection.request("POST", path, bodies[i % len(bodies)], {"Content-Type": "application/json", **self.headers})
            answer = connection.getresponse()
            answer.read()
            assert answer.status in (200, 202)
        connection.close()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def run_out(self):
        """Waits for all of its jobs."""
        for thread in self.threads:
            thread.join()

    def __exit__(self, *_):
        with self.lock:
            self.left = 0
        self.run_out()


def ended(service):
    """Totals by operation and state, as GET /metrics has them."""
    totals = {}
    for row, value in service.metrics().items():
        found = re.fullmatch(r'blasd_jobs_total\{op="(\w+)",state="(\w+)"\}', row)
        if found:
            totals.setdefault(found[1], {})[found[2]] = int(value)
    return {op: states for op, states in totals.items() if any(states.values())}


def test_it_shows_what_the_service_says(make_service, browse, tmp_path):
    """The page is opened while a mixed load runs; once the load has ended it equals /metrics and /jobs."""
    service = make_service()
    over, wanted = threading.Event(), {}

    def load():
        with Load(service) as running:
            over.wait(300)
            sent = 10**9 - running.left
        wait_for(lambda: all(job["state"] in ENDED for job in service.list_jobs()))
        wanted.update(totals=ended(service), jobs=[job["id"] for job in service.list_jobs()], sent=sent)
        (tmp_path / "new").write_text(json.dumps(wanted))
        (tmp_path / "new").rename(tmp_path / "wanted")
    thread = threading.Thread(target=load)
    thread.start()
    try:
        threading.Timer(20, over.set).start()
        said = browse("shows", service, file=str(tmp_path / "wanted"))
    finally:
        over.set()
        thread.join()
    assert said["complaints"] == [] and said["events"] > 0
    assert said["totals"] == wanted["totals"] == ended(service)
    assert {worker["worker"] for worker in service.request("GET", "/devices").json()["devices"]} == set(said["devices"])
    listed = {job["id"]: (job["op"], job["state"]) for job in service.list_jobs()}
    assert len(said["rows"]) == 50 and all(listed[row[0]] == tuple(row[1:]) for row in said["rows"])
    assert all(cell["queued"] == 0 for cell in said["queue"])


def test_every_operation_from_the_form(service, browse):
    said = browse("forms", service)
    names = [op["name"] for op in service.request("GET", "/ops").json()["ops"]]
    assert list(said["ends"]) == names
    for name, end in said["ends"].items():
        assert end["title"] == f"{name} – succeeded", end["document"]
        assert end["phases"] == 7
        assert json.loads(end["document"])["outputs"]
        # the command repeats it, in a shell
        done = subprocess.run(["sh", "-c", end["curl"]], capture_output=True, text=True, timeout=60, check=False)
        assert json.loads(done.stdout)["state"] == "succeeded", (end["curl"], done.stdout, done.stderr)
    assert "JSON" in said["wrong"] and "shape_mismatch" in said["refused"]


def test_cancelling(make_service, browse):
    service = make_service("--workers", "1", "--limit", "ready_workers=0")  # no worker comes for a card: it stays queued
    service.post("matmul", {"a": A, "b": A})
    job = service.post("solve", {"a": A, "b": A}, wait=0, device="cuda").json()["id"]
    said = browse("cancels", service, job=job)
    assert service.request("GET", f"/jobs/{job}").json()["state"] == "cancelled"
    assert said["before"].startswith("solve – queued") and "cancelled" in said["problem"] and said["complaints"] == []


def test_signing_in(make_service, browse, tmp_path):
    file = tmp_path / "keys.json"
    ann, root = (keys("add", name, "--role", role, "--tenant", name, file=file).strip() for name, role in (("ann", "user"), ("root", "admin")))
    service = make_service("--keys", str(file), start=False)
    service.headers = bearer(root)
    service.start()
    for key in (ann, root, root):
        service.request("POST", "/jobs?wait=10", json.dumps({"op": "matmul", "inputs": {"a": [[1]], "b": [[2]]}}), bearer(key))
    own = {job["id"] for job in service.request("GET", "/jobs", headers=bearer(ann)).json()["jobs"]}
    said = browse("signs_in", service, key=ann)
    assert said["axe"] == [] and said["refused"]
    assert {row[0] for row in said["rows"]} == own and len(own) == 1
    session, local, cookie, markup = said["held"]
    assert session == [ann] and ann not in str(local) and cookie == "" and ann not in markup
    assert "BLASD_API_KEY" in said["curl"] and ann not in said["curl"]
    assert "admins" in said["note"] and said["after"] == []
    assert all(" 401 " in one for one in said["complaints"]), said["complaints"]  # what it was told, no more


def test_how_it_looks_to_everyone(make_service, browse):
    service = make_service("--limit", "record_sync_s=3600")  # none of its jobs is gone when it is opened
    with Load(service, jobs=120) as load:
        load.run_out()
    said = browse("looks", service)
    for where, found in said["found"].items():
        assert found["axe"] == [], where
        wide, window, culprits = found["wide"]
        assert wide <= window and culprits == [], (where, found["wide"])
    assert said["theme"] == "light" and said["complaints"] == []


def test_long_work_with_the_keyboard_alone(make_service, browse):
    """What a device runs, how far a job is and how long it will yet take, and the end of it: without a mouse."""
    service = make_service("--limit", "record_sync_s=3600")
    steps = {"g": {"op": "matmul", "inputs": {"a": A.tolist(), "b": A.tolist()}}, "x": {"op": "solve", "inputs": {"a": {"step": "g"}, "b": A[0].tolist()}}}
    other = service.request("POST", "/graphs?wait=30", json.dumps({"steps": steps, "priority": "low"}), {"Content-Type": TYPES["json"]}).json()
    assert other["state"] == "succeeded"
    job = send(service, labels={"night": "of-the-7th"})
    said = browse("long_work", service, job=job, label="of-the-7th", other=other["id"])
    assert service.request("GET", f"/jobs/{job}").json()["state"] == "cancelled"
    assert said["first"] == "Skip to the figures" and said["skipped"] == "main"
    assert "runs 1 job: regression" in said["card"] and re.search(r"some [\d.]+ (µs|ms|s|min)", said["left"]), said
    assert said["stays"] == "document" and said["said"] == "job cancelled"
    assert said["complaints"] == []
    done = subprocess.run(["sh", "-c", said["curl"]], capture_output=True, text=True, timeout=60, check=False)
    again = json.loads(done.stdout)
    assert (again["op"], again["state"], again["priority"], set(again["steps"])) == ("graph", "succeeded", "low", {"g", "x"}), (said["curl"], again)


EVIL = """'"><img src=x onerror="window.hacked=1"><b class=evil>&lt;script&gt;</script><script>window.hacked=2</script>"""


class Answering(http.server.BaseHTTPRequestHandler):
    """What the servers have in common that stand in for the service: they send, and say nothing of it."""

    def send(self, status, document, kind=TYPES["json"], headers=()):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_page(self, page):
        """The service's own, under its policy."""
        self.send(200, page.body, "text/html; charset=utf-8", [("Content-Security-Policy", page.headers["Content-Security-Policy"])])

    def log_message(self, *_):
        pass


def phases_of(ms):
    return {f"{name}_ms": ms for name in ("receive", "queue", "batch_wait", "upload", "compute", "download")}


class Liar(http.server.ThreadingHTTPServer):
    """Serves the page as the service does, with its policy, and tells it of jobs and devices whose texts are all EVIL."""

    def __init__(self, service):
        page, ops = service.request("GET", "/", headers={"Accept": "*/*"}), service.request("GET", "/ops")
        at = "2026-01-31T12:00:00.000000Z"
        now = lambda: datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
        phases = phases_of(1000.0)
        job = lambda: {"id": EVIL, "op": EVIL, "state": "failed", "priority": EVIL, "device": EVIL, "created_at": now(), "started_at": now(),
                       "finished_at": now(), "progress": 1, "labels": {EVIL: EVIL}, "outputs": {EVIL: {"dtype": EVIL, "shape": [EVIL], "href": EVIL}},
                       "timing": {**phases, "total_ms": 6000.0},
                       "execution": {"device": EVIL, "device_name": EVIL, "method": EVIL, "batch_size": 2, "attempts": 2, "warnings": [EVIL]},
                       "error": {"code": EVIL, "title": EVIL, "detail": EVIL, "advice": EVIL, "retry": True}}
        devices = {"devices": [{"device": EVIL, "device_name": EVIL, "worker": EVIL, "running": 1, "busy_share": 0.5, "jobs": 1, "jobs_per_s": 1}],
                   "unusable": [{"device": EVIL, "reason": EVIL}], "totals": {f"{EVIL.replace(' ', '/')} failed": 3}}
        asked = self.asked = []

        class Handler(Answering):
            def do_GET(self):
                asked.append(self.path)
                if self.path == "/":
                    self.send_page(page)
                elif self.path == "/ops":
                    self.send(200, ops.body)
                elif self.path == "/events":
                    self.send_response(200)
                    self.send_header("Content-Type", "text/event-stream")
                    self.end_headers()
                    with contextlib.suppress(OSError):
                        for kind, data in [("hello", {"version": EVIL}), ("job", job()),
                                           ("batch", {"worker": EVIL, "device": EVIL, "op": EVIL, "jobs": 2, "started_at": at}), *[("devices", devices)] * 300]:
                            self.wfile.write(f"event: {kind}\nid: 1\ndata: {json.dumps({**data, 'time_ms': time.time() * 1000})}\n\n".encode())
                            time.sleep(0.2 if kind == "devices" else 0)
                elif self.path.startswith("/jobs?"):
                    self.send(200, {"jobs": [job()]})
                else:
                    self.send(200, job())
        super().__init__(("127.0.0.1", 0), Handler)
        self.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return super().__enter__()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


def test_no_text_becomes_markup(service, browse):
    """Whatever the texts are that the page is told, none becomes an element, runs, or has anything asked for. Its policy would stop
    the worst of it; it is not to come to that."""
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|javascript:",
                         "".join(file.read_text() for file in CONSOLE.iterdir()))
    with Liar(service) as liar:
        said = browse("hostile", liar)
    assert said["hacked"] is None and said["made"] == [] and said["complaints"] == []
    for where in ("tip", "body", "card", "row"):
        assert "<img src=x" in said[where], (where, said[where])
    assert "<img/src=x" in said["totals"]
    assert not any(re.search(r"/x$|favicon", path) for path in liar.asked), liar.asked


class Trouble(Liar):
    """Serves the page as the service does, and tells it, by phases that the scenario names with GET /phase?NAME, of what seldom happens."""
    QUIET = "s" + "0" * 39 + "1"     # runs as far as is told; the list has others
    TWICE = "s" + "0" * 39 + "2"     # told of by two front ends
    FAILED = "s" + "0" * 39 + "3"    # long ago

    def __init__(self, service):
        page, ops = service.request("GET", "/", headers={"Accept": "*/*"}), service.request("GET", "/ops")
        self.phase, self.asked, self.posted = "first", [], []
        self.pressed = threading.Event()
        trouble = self

        def stamp():
            return datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
        began = stamp()  # the list stays in one order: a row is not another job's by the time it is clicked

        def job(number, state, **more):
            phases = phases_of(1.0)
            now = stamp()
            return {"id": number, "op": "matmul", "state": state, "priority": "normal", "created_at": began, "started_at": now, "finished_at": now,
                    "timing": {**phases, "total_ms": 179600.0}, "execution": {"device": "cpu", "batch_size": 1, "attempts": 1}, **more}

        def told(phase, number):
            """The events of a stream: those that it begins with, and then one after the other."""
            devices = ("devices", {"devices": [{"device": "cpu", "worker": f"w{i}"} for i in range(70)], "unusable": [],
                                   "time_ms": time.time() * 1000})
            if number == 0:
                ended = ("job", job(self.TWICE, "succeeded"))
                begin = {"first": [("job", job(self.QUIET, "running")), ended], "again": [("lost", {"events": None}), ended],
                         "many": [("job", job(f"s{i:040x}", "succeeded")) for i in range(100, 1400)]}
                return [("hello", {"version": "1", "time_ms": time.time() * 1000}), *begin.get(phase, [])]
            if phase == "silent":
                return []
            return [devices] + [("job", job(f"s{10000 + number * 100 + i:040x}", "succeeded")) for i in range(20 if phase == "many" else 0)]

        class Handler(Answering):
            def allowed(self):
                return self.headers.get("Authorization") in (["Bearer other"] if trouble.phase in ("revoked", "silent") else ["Bearer good"])

            def do_GET(self):
                path, _, query = self.path.partition("?")
                trouble.asked.append(path)
                if path == "/phase":
                    trouble.phase = query or trouble.phase
                    self.send(200, {"asked": trouble.asked, "posted": trouble.posted})
                elif path == "/pressed":
                    trouble.pressed.set()
                    self.send(200, {})
                elif path == "/":
                    self.send_page(page)
                elif trouble.phase == "down":
                    self.send(503, {"detail": "not yet"})
                elif not self.allowed():
                    self.send(401, {"detail": "no such key"})
                elif path == "/ops":
                    self.send(200, ops.body)
                elif path == "/events" and trouble.phase == "full":
                    self.send(429, {"detail": "too many look on"})
                elif path == "/events":
                    self.stream(trouble.phase)
                elif path == "/jobs":
                    jobs = [job(trouble.FAILED, "failed", created_at="2026-01-01T00:00:00.000000Z")] if "state=failed" in query else \
                        [] if "state=running" in query or trouble.phase == "silent" else [job(trouble.TWICE, "succeeded")]
                    self.send(200, {"jobs": jobs})
                elif path in (f"/jobs/{trouble.QUIET}", f"/jobs/{trouble.TWICE}"):
                    runs = path.endswith(trouble.QUIET) and trouble.phase in ("first", "full")
                    if trouble.phase == "again" and path.endswith(trouble.TWICE):
                        trouble.pressed.wait(30)
                    self.send(200, job(path.rpartition("/")[2], "running" if runs else "succeeded"))
                else:
                    self.send(404, {"detail": "it is not there"})

            def stream(self, phase):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                number = 0
                with contextlib.suppress(OSError):
                    while trouble.phase == phase:
                        for kind, data in told(phase, number):
                            self.wfile.write(f"event: {kind}\nid: {number + 1}\ndata: {json.dumps(data)}\n\n".encode())
                        number += 1
                        time.sleep(0.1)

            def do_POST(self):
                trouble.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send(202, job("s" + "0" * 39 + "4", "succeeded"))

            def do_DELETE(self):
                self.send(200, job(trouble.TWICE, "succeeded"))
        super(Liar, self).__init__(("127.0.0.1", 0), Handler)
        self.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server_port}"


def test_what_goes_wrong(service, browse):
    """What the page makes of a service that is away at first, a stream that breaks off and goes on elsewhere, jobs whose end nobody told,
    a job that is not there, a connection on which nothing comes any more, and a key that is revoked."""
    with Trouble(service) as trouble:
        said = browse("goes_wrong", trouble, quiet=trouble.QUIET, twice=trouble.TWICE, failed=trouble.FAILED)
    assert "ASCII" in said["no_key"] and "too many look on" in said["full"]
    assert [one.get("params") for one in said["posted"]] == [{"p": "Infinity"}]  # once, though two tries to sign in were under way
    assert said["time"] == "3 min 0 s" and said["totals"]["matmul"]["succeeded"] == 1 and "and 6 more" in said["devices"]
    assert said["kept"] == [trouble.FAILED]
    assert said["focus"] == "older" and said["stays_away"]
    assert "not there" in said["unknown"] and trouble.TWICE not in said["unknown"]
    assert said["dialog"] is False and said["rows"] == []


class Late(Liar):
    """Serves the page, and answers what it asks when the scenario says so: what has WORDS in it, as "GET /jobs?… KEY", waits from
    GET /hold?WORDS to GET /go?WORDS. GET /say?JOB tells the stream of one; GET /asked is all that was asked."""

    def __init__(self, service):
        page, ops = service.request("GET", "/", headers={"Accept": "*/*"}), service.request("GET", "/ops")
        self.held, self.asked, self.streams, self.revoked = {}, [], [], False
        late = self

        def job(number, state, **more):
            phases = phases_of(1.0)
            at = "2026-01-31T12:00:00.000000Z"
            return {"id": number, "op": "matmul", "state": state, "priority": "normal", "created_at": at, "started_at": at, "finished_at": at,
                    "timing": {**phases, "total_ms": 6.0}, "execution": {"device": "cpu", "batch_size": 1, "attempts": 1},
                    "outputs": {"c": {"dtype": "float64", "shape": [1, 1]}}, **more}
        ids = ["s" + f"{number:040x}" for number in range(1, 5)]  # three that have ended, and one that is told of

        class Handler(Answering):
            def answer(self, method):
                path, _, query = self.path.partition("?")
                words = urllib.parse.unquote(query)
                if path == "/hold":
                    late.held[words] = threading.Event()
                elif path == "/go":
                    late.held.pop(words).set()
                elif path == "/say":
                    for stream in late.streams:
                        stream.put(job(ids[3], words))
                elif path == "/revoke":
                    late.revoked = True
                    for stream in late.streams:
                        stream.put(None)
                if path in ("/hold", "/go", "/say", "/revoke", "/asked"):
                    self.send(200, late.asked)
                    return
                key = (self.headers.get("Authorization") or "nobody").rpartition(" ")[2]
                asked = f"{method} {self.path} {key}"
                late.asked.append(asked)
                for held in [event for one, event in late.held.items() if one in asked]:
                    held.wait(60)
                if path == "/":
                    self.send_page(page)
                elif key != "good" or late.revoked and method == "GET":
                    self.send(401, {"detail": "no such key"})
                elif path == "/ops":
                    self.send(200, ops.body)
                elif path == "/events":
                    self.stream()
                elif method == "POST":
                    self.send(202, job("s" + f"{9:040x}", "queued"))
                elif method == "DELETE":
                    self.send(200, job(path.rpartition("/")[2], "succeeded"))
                elif path == "/jobs" and "state=failed" in query:
                    self.send(200, {"jobs": [], "cursor": "of-failed"})
                elif path == "/jobs":
                    running = [job(ids[3], "running")] if "op=matmul" in query else []
                    self.send(200, {"jobs": running + [job(one, "succeeded") for one in ids[:3]], "cursor": "of-all"})
                elif path in [f"/jobs/{one}" for one in ids]:
                    self.send(200, job(path.rpartition("/")[2], "queued" if path.endswith(ids[3]) else "succeeded"))
                else:
                    self.send(404, {"detail": "it is not there"})

            def do_GET(self):
                self.answer("GET")

            def do_DELETE(self):
                self.answer("DELETE")

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.answer("POST")

            def stream(self):
                said = queue.Queue()
                late.streams.append(said)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                devices = {"devices": [{"device": "cpu", "worker": "w"}], "unusable": [], "time_ms": time.time() * 1000}
                events = [("hello", {"version": "1", "time_ms": time.time() * 1000}), ("devices", devices)]
                with contextlib.suppress(OSError):
                    while events[-1][1]:
                        for kind, data in events:
                            self.wfile.write(f"event: {kind}\nid: 1\ndata: {json.dumps(data)}\n\n".encode())
                        events = [("job", said.get())]
        super(Liar, self).__init__(("127.0.0.1", 0), Handler)
        self.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server_port}"


def test_answers_that_come_late(service, browse):
    """What an answer finds changed that it is not meant for any more: another key, filter, job; or that is newer than it."""
    with Late(service) as late:
        said = browse("answers_late", late)
    assert said["signed_in"] == [["good"], True]
    assert "cursor=of-all" in said["older"], said["older"]
    assert said["states"] == ["running", "running", "running"]
    assert said["forgotten"] == [True, 2] and said["complaint"] == 0
    assert said["sent"] == [True, 2] and said["signed_out"] is False


def test_many_jobs_a_second(make_service, browse):
    """However many come: what is kept and drawn is bounded, pictures go on being drawn, and nobody's job waits for the page."""
    service = make_service()
    with Load(service, threads=4) as load, EventStream(service) as stream:
        said = browse("frames", service, events=3000)
        assert any(event.kind == "job" for event in [stream.take(lambda event: event.kind == "job")])
    assert load.left < 0 or load.left == 0
    before, after = said["before"], said["after"]
    assert after["events"] - before["events"] >= 3000
    assert after["bars"] <= 4500 and after["kept"] <= 1100 and after["rows"] <= 50 and after["rects"] <= 6 * 5000
    assert after["drawn"] > before["drawn"] and said["frames"] > 10
    assert said["nodes"] < 2500 and said["complaints"] == []
