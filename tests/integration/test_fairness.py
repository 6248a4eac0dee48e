"""Long jobs beside short ones, of other tenants and priorities: what waits for them is counted by what ran before it."""
import re
import threading
import time

import numpy as np
import pytest
from service import ENDED, Service, until, wait_for
from test_redis import client, server  # noqa: F401  (a fixture)
from test_tenants import As, keys

SHORT = {"a": np.eye(8), "b": np.eye(8)}
LONG = np.random.default_rng(3).standard_normal((900, 900))  # its svd is predicted to take seconds
ENDLESS = '{"method": "gd", "iterations": 15000000, "learning_rate": 1e-6}'  # minutes


def post_long(one, count, **members):
    """Ids of jobs that take seconds each."""
    answers = [one.submit("svd", {"a": LONG}, **members) for _ in range(count)]
    assert {answer.status for answer in answers} == {202}, answers[0].body
    return [answer.json()["id"] for answer in answers]


def begun_before(one, ids, moment):
    """How many of them had begun by then."""
    jobs = [one.request("GET", f"/jobs/{job}").json() for job in ids]
    return sum(1 for job in jobs if job["started_at"] and job["started_at"] < moment)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fairness")
    file, secrets = keys(folder, ann={"tenant": "ann"}, ben={"tenant": "ben"}, admin={"role": "admin"})
    service = Service(folder / "service", "--keys", file, "--limit", "drain_s=5").start()
    yield As(service, secrets["ann"]), As(service, secrets["ben"]), As(service, secrets["admin"])
    service.stop(check=False)


def test_a_backlog_of_long_jobs(two):
    """Another tenant's short job, and one of high priority, begin soon; all that has not begun is seen to wait."""
    ann, ben, admin = two
    ids = post_long(ann, 100)
    wait_for(lambda: any(ann.request("GET", f"/jobs/{job}").json()["state"] == "running" for job in ids[:3]))
    for who, members in ((ben, {}), (ann, {"priority": "high"}), (ben, {"priority": "low"})):
        before = sum(1 for job in ids if ann.request("GET", f"/jobs/{job}").json()["state"] != "queued")
        job = who.submit("matmul", SHORT, "?wait=60", **members).json()
        assert job["state"] == "succeeded"
        assert begun_before(ann, ids, job["started_at"]) <= before + 2
    text = admin.request("GET", "/metrics").body.decode()
    waiting = {name: sum(float(x) for x in re.findall(rf"^blasd_queue_{name}{{.*}} (\S+)$", text, re.M))
               for name in ("waiting_jobs", "claimed_jobs", "oldest_seconds")}
    ended = sum(1 for job in ids if ann.request("GET", f"/jobs/{job}").json()["state"] in ENDED)
    assert waiting["claimed_jobs"] <= 2 and waiting["waiting_jobs"] >= 98 - ended - 2 and waiting["oldest_seconds"] > 0
    load = admin.request("GET", "/load?target_s=1").json()["classes"]["cpu"]
    assert load["waiting_s"] > 20 and load["wanted"] > 10
    for job in ids:
        ann.request("DELETE", f"/jobs/{job}")


def test_one_that_runs_for_hours(two):
    """An iteration of low priority without end: jobs of all lengths pass it, but long ones."""
    ann, ben, _ = two
    rng = np.random.default_rng(5)
    endless = ann.submit("regression", {"x": rng.standard_normal((300, 80)), "y": rng.standard_normal(300)},
                         params=ENDLESS, priority="low")
    assert endless.status == 202, endless.body
    endless = endless.json()["id"]
    wait_for(lambda: ann.request("GET", f"/jobs/{endless}").json()["state"] == "running")
    for n in (8, 200, 700):
        job = ben.submit("matmul", {"a": np.eye(n), "b": np.eye(n)}, "?wait=60").json()
        assert job["state"] == "succeeded"
    assert ann.request("GET", f"/jobs/{endless}").json()["state"] == "running"
    assert ann.request("DELETE", f"/jobs/{endless}").json()["state"] == "cancelled"


def test_workers_that_join(server):  # noqa: F811
    """Of eight long jobs that one worker had in sight two that join later run some each, and what they wait is `queue_ms`."""
    server.up()
    address = ("--redis", server.url, "--blobs", "redis")
    service = client(server, server.api(*address))
    device = ("--measured", "none", "--device", "cpu:0")
    server.worker(*address, *device)
    wait_for(lambda: service.request("GET", "/health/ready").status == 200)
    ids = [service.post("svd", {"a": LONG}, wait=0, form="safetensors").json()["id"] for _ in range(8)]
    until(service, ids[0], ("running",))
    for name in ("second", "third"):
        server.worker(*address, *device, "--name", name)
    jobs = [until(service, job, ENDED) for job in ids]
    assert all(job["state"] == "succeeded" for job in jobs)
    assert all(job["timing"]["batch_wait_ms"] < 0.2 * job["timing"]["queue_ms"] + 100 for job in jobs)
    done = [device["jobs"] for device in service.request("GET", "/devices").json()["devices"]]
    assert len(done) == 3 and min(done) >= 1, done


def whole(n, suspicious):
    """Factors of an exact product; suspicious ones have large elements, which never meet: each sum is looked at for a wrap."""
    a, b = np.random.default_rng(n).integers(-9, 9, (2, n, n))
    if suspicious:
        a[:, 0], b[1, :] = 0, 0
        a[0, 1], b[0, 0] = 2**62, 2**62
    return {"a": a, "b": b}


def test_shares_are_of_what_jobs_took(two):
    """Exact products that must be looked at for a wrap take many times what is predicted. Beside as many usual ones of another tenant
    they have half of the device, not most of it."""
    ann, ben, admin = two
    with ann.service.worker_held():
        jobs = {who: [who.submit("matmul", whole(300, suspicious), params='{"exact": true}').json()["id"] for _ in range(120)]
                for who, suspicious in ((ann, True), (ben, False))}
    wait_for(lambda: ben.request("GET", f"/jobs/{jobs[ben][-1]}").json()["state"] in ENDED)
    documents = {who: [who.request("GET", f"/jobs/{job}").json() for job in jobs[who]] for who in jobs}
    last = max(job["started_at"] for job in documents[ben])
    used = {who: sum(job["timing"]["compute_ms"] / job["execution"]["batch_size"] for job in documents[who]
                     if job["state"] == "succeeded" and job["started_at"] < last) for who in jobs}
    assert used[ann] < 10 * used[ben], used
    for job in jobs[ann]:
        ann.request("DELETE", f"/jobs/{job}")


def test_the_phases_are_what_the_client_waited(make_service):
    """Redis stands still while a job is submitted: the document says so."""
    service = make_service()
    assert service.post("matmul", SHORT).json()["state"] == "succeeded"
    with service.held("redis"):
        posted = threading.Thread(target=lambda: answers.append(service.post("matmul", SHORT).json()))
        answers = []
        posted.start()
        time.sleep(1.5)
    posted.join()
    timing = answers[0]["timing"]
    assert timing["total_ms"] >= 1000
    assert timing["total_ms"] == pytest.approx(sum(value for name, value in timing.items() if name != "total_ms"), abs=0.1)


def test_a_job_that_takes_longer_than_predicted_gives_way(two):
    """The look for wraps takes many times what is predicted: such a product runs to its end, but others need not wait for that."""
    ann, ben, _ = two
    ids = [ann.submit("matmul", whole(1000, True), params='{"exact": true}').json()["id"] for _ in range(3)]
    wait_for(lambda: ann.request("GET", f"/jobs/{ids[0]}").json()["state"] == "running")
    job = ben.submit("matmul", {"a": np.eye(600), "b": np.eye(600)}, "?wait=60").json()
    assert job["state"] == "succeeded"
    first = until(ann, ids[0], ENDED)
    assert first["state"] == "succeeded" and first["execution"]["attempts"] == 1
    assert job["started_at"] < first["finished_at"]
    for job in ids[1:]:
        ann.request("DELETE", f"/jobs/{job}")
