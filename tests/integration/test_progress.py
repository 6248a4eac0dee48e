"""Long work shows itself: how far it is and how long it will yet take, wherever one looks. By states, never by times."""
import json
import re
import subprocess

import numpy as np
import pytest
from event_stream import EventStream
from service import BLASD, TYPES, wait_for
from test_cli import Terminal

import blasd

RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((40, 30)), RNG.standard_normal(40)
LONG = {"method": "gd", "iterations": 200_000_000, "learning_rate": 1e-6}  # for minutes, or until it is cancelled; of far below job_s on a busy machine, too


def send(service, op="regression", inputs=None, params=None, **members):
    body = {**members, "op": op, "inputs": inputs or {"x": X.tolist(), "y": Y.tolist()}, "params": LONG if params is None else params}
    return service.request("POST", "/jobs", json.dumps(body), {"Content-Type": TYPES["json"]}).json()["id"]


def look(service, job):
    return service.request("GET", f"/jobs/{job}").json()


def told(service, job):
    """The job's document once it says how long it will yet take."""
    return wait_for(lambda: (document := look(service, job)) and "remaining_ms" in document and document, "it says how long it will take")


@pytest.fixture
def running(service):
    job = send(service)
    yield job
    service.request("DELETE", f"/jobs/{job}")


def test_the_document(service):
    with service.worker_held():
        job = send(service, params={**LONG, "iterations": 5_000_000})
        assert "remaining_ms" not in look(service, job)  # nobody has begun it
    document = told(service, job)
    assert document["state"] == "running" and 0 <= document["progress"] <= 1
    assert 0 <= document["remaining_ms"] < 1e11
    listed = [one for one in service.request("GET", "/jobs?state=running").json()["jobs"] if one["id"] == job]
    assert all("remaining_ms" in one for one in listed)
    ended = service.request("GET", f"/jobs/{job}?wait=60").json()
    assert ended["state"] == "succeeded" and ended["progress"] == 1 and "remaining_ms" not in ended
    assert "remaining_ms" not in look(service, job)


@pytest.mark.parametrize("op", ["svd", "eigh", "cholesky", "lstsq"])
def test_progress_of_long_calls(service, op):
    """Of those that LAPACK does in long calls, too: it never falls, the time to the end is always one, and at the end there is none."""
    n = 800
    inputs = {name: {"random": "normal", "seed": 3 + i, "shape": [n, n]} for i, name in enumerate("ab" if op == "lstsq" else "a")}
    if op == "cholesky":
        a = RNG.standard_normal((n, n))
        job = service.post("cholesky", {"a": a @ a.T + n * np.eye(n)}, wait=0, form="safetensors").json()["id"]
    else:
        job = send(service, op, inputs, {})
    last, seen = 0.0, []
    while (document := look(service, job))["state"] in ("queued", "running"):
        assert document["progress"] >= last
        last = document["progress"]
        if "remaining_ms" in document:
            assert document["state"] == "running" and 0 <= document["remaining_ms"] < 1e9
            seen.append((last, document["remaining_ms"]))
    assert document["state"] == "succeeded" and document["progress"] == 1 and "remaining_ms" not in document
    for progress, left in seen:
        assert progress < 0.999 or left < 1e5, seen  # nearly done: not long


def test_events_tell_it(service):
    with EventStream(service) as stream:
        job = send(service)
        event = stream.take(lambda event: event.kind == "job" and event.data["id"] == job and "remaining_ms" in event.data)
        assert event.data["state"] == "running" and event.data["remaining_ms"] >= 0
        service.request("DELETE", f"/jobs/{job}")


def test_python(service, running):
    told(service, running)
    with blasd.Client(service.url) as client:
        job = client.job(running)
        assert job.state == "running" and job.remaining >= 0
        assert re.search(r"regression running \d+% \d+ (s|min|h) left>$", repr(job)), repr(job)
        assert re.search(r"\d+ (s|min|h) left", job._repr_html_())
        job.cancel()
        assert job.remaining is None and repr(job).endswith("regression cancelled>")


def test_the_command_line(service, running, tmp_path):
    told(service, running)
    shown = subprocess.run([BLASD, "get", running, "--url", service.url], capture_output=True, text=True, timeout=60, check=False).stdout
    assert re.search(r"running \d+ %, \d+ (s|min|h) left", shown), shown
    listed = subprocess.run([BLASD, "jobs", "--state", "running", "--url", service.url], capture_output=True, text=True, timeout=60, check=True).stdout
    assert re.search(rf"{running}.* \d+ (s|min|h) left", listed), listed
    top = Terminal("top", "--url", service.url, "-n", "0.2")
    try:
        top.read(rf"{running}[^\n]* \d+ (?:s|min|h) left")
    finally:
        top.end()


def test_the_bar_of_the_command_line(service, tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    run = Terminal("run", "regression", f"x={tmp_path}/x.npy", f"y={tmp_path}/y.npy", *(f"{name}={value}" for name, value in LONG.items()),
                   "--url", service.url)
    try:
        run.read(r"running +\[[#.]{30}\] +\d+ % +\d+ (?:s|min|h) left")
    finally:
        run.end()
        for job in service.request("GET", "/jobs?state=running").json()["jobs"]:  # or those of the next tests would wait for it
            service.request("DELETE", f"/jobs/{job['id']}")
