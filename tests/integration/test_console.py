"""The page at `/`, in a real Chromium: what it shows is what the service says, and everyone can use it."""
import base64
import hashlib
import http.client
import json
import re
import shutil
import subprocess
import threading

import numpy as np
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
    service = make_service("--limit", "record_sync_bytes=4000000000")  # no result expires before it is compared
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
    assert "admin" in said["note"] and said["after"] == []
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
    assert "1 running: regression" in said["card"] and re.search(r"about [\d.]+ (µs|ms|s|min)", said["left"]), said
    assert said["stays"] == "document" and said["said"] == "job cancelled"
    assert said["complaints"] == []
    done = subprocess.run(["sh", "-c", said["curl"]], capture_output=True, text=True, timeout=60, check=False)
    again = json.loads(done.stdout)
    assert (again["op"], again["state"], again["priority"], set(again["steps"])) == ("graph", "succeeded", "low", {"g", "x"}), (said["curl"], again)


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
