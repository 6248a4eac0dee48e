"""Servers that stand in for the service: they serve the page as it does, and tell it what a test wants."""
import contextlib
import datetime
import http.server
import json
import queue
import threading
import time
import urllib.parse

from service import TYPES

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
                            self.wfile.write(f"event: {kind}\ndata: {json.dumps({**data, 'time_ms': time.time() * 1000})}\n\n".encode())
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
                            self.wfile.write(f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode())
                        events = [("job", said.get())]
        super(Liar, self).__init__(("127.0.0.1", 0), Handler)
        self.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server_port}"


def document_of(number, state="succeeded", **more):
    """A job's; the higher the number, the newer."""
    at = (datetime.datetime(2026, 1, 31, tzinfo=datetime.timezone.utc) + datetime.timedelta(milliseconds=number)).isoformat(timespec="microseconds")
    at = at.replace("+00:00", "Z")
    return {"id": f"s{number:040x}", "op": "matmul", "state": state, "priority": "normal", "created_at": at, "started_at": at, "finished_at": at,
            "timing": {**phases_of(1.0), "total_ms": 6.0}, "execution": {"device": "cpu", "batch_size": 1, "attempts": 1}, **more}


class Told(Liar):
    """Serves the page, and is told what else by the scenario: POST /control {"jobs": […], "tell": [KIND, DOCUMENT], "deaf": BOOL,
    "devices": DOCUMENT}, which answers what was posted and asked. Its list has the jobs in pages, by state and op, before a time or behind a cursor, as the service has them."""

    def __init__(self, service, jobs=()):
        page, ops = service.request("GET", "/", headers={"Accept": "*/*"}), service.request("GET", "/ops")
        self.jobs, self.posted, self.asked, self.streams, self.deaf = {job["id"]: job for job in jobs}, [], [], [], False
        self.devices = {"devices": [{"device": "cpu", "worker": "w", "running": 1}], "unusable": []}
        told = self

        def listed(query):
            key = lambda job: (job["created_at"], job["id"])
            fits = [job for job in told.jobs.values() if all(job[name] == query.get(name, job[name]) for name in ("state", "op"))]
            fits = sorted((job for job in fits if job["created_at"] < query.get("before", "9")), key=key, reverse=True)
            if "cursor" in query:
                fits = [job for job in fits if key(job) < tuple(query["cursor"].split(" "))]
            many = int(query.get("limit", 100))
            return {"jobs": fits[:many], **({"cursor": " ".join(key(fits[many - 1]))} if len(fits) > many else {})}

        class Handler(Answering):
            def do_GET(self):
                path, _, query = self.path.partition("?")
                told.asked.append(self.path)
                if path == "/":
                    self.send_page(page)
                elif told.deaf:
                    self.send(503, {"title": "Away", "detail": "it is away"})
                elif path == "/ops":
                    self.send(200, ops.body)
                elif path == "/events":
                    self.stream()
                elif path == "/jobs":
                    self.send(200, listed(dict(urllib.parse.parse_qsl(query))))
                elif path.removeprefix("/jobs/") in told.jobs:
                    self.send(200, told.jobs[path.removeprefix("/jobs/")])
                else:
                    self.send(404, {"detail": "it is not there"})

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if self.path == "/control":
                    self.control(json.loads(body))
                else:
                    told.posted.append(body)
                    job = document_of(10**6, "queued")
                    told.jobs[job["id"]] = job
                    self.send(202, job)

            def control(self, what):
                for job in what.get("jobs", ()):
                    told.jobs[job["id"]] = job
                if "tell" in what:
                    for stream in told.streams:
                        stream.put(what["tell"])
                told.deaf, told.devices = what.get("deaf", told.deaf), what.get("devices", told.devices)
                if told.deaf:
                    for stream in told.streams:
                        stream.put(None)
                self.send(200, {"posted": told.posted, "asked": told.asked})

            def stream(self):
                said = queue.Queue()
                now = time.time() * 1000
                said.put(["hello", {"version": "1", "time_ms": now}])
                told.streams.append(said)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                with contextlib.suppress(OSError):
                    while True:
                        try:
                            event = said.get(timeout=1)
                        except queue.Empty:
                            event = ["devices", {**told.devices, "time_ms": time.time() * 1000}]
                        if event is None:
                            return
                        self.wfile.write(f"event: {event[0]}\ndata: {json.dumps(event[1])}\n\n".encode())
        super(Liar, self).__init__(("127.0.0.1", 0), Handler)
        self.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server_port}"
