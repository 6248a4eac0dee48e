"""Small jobs beside one that takes long, on the only worker: what the slow pool promises."""
import os
import re
import signal
import time

import numpy as np
import pytest
from service import ENDED, Redis, until, wait_for

SMALL = {"a": np.eye(2), "b": np.full((2, 2), 3.0)}


def start_heavy(service, n=4000, **members):
    """A job of seconds, seen to run; its id."""
    job_id = service.post("matmul", {"a": np.ones((n, n)), "b": np.ones((n, n))}, wait=0, form="safetensors",
                          **members).json()["id"]
    until(service, job_id, ("running",))
    return job_id


def test_small_jobs_end_before_the_heavy_one(make_service):
    service = make_service()
    heavy = start_heavy(service)
    small = [service.post("matmul", SMALL).json() for _ in range(20)]
    job = until(service, heavy, ENDED)
    assert job["state"] == "succeeded" and all(s["state"] == "succeeded" for s in small)
    assert all(s["finished_at"] < job["finished_at"] for s in small)
    got = service.request("GET", f"/jobs/{heavy}/outputs/c", headers={"Accept": "application/x-npy"}).npy()
    assert got.shape == (4000, 4000) and (got == 4000).all()


def test_redis_is_left_alone_while_nothing_but_the_heavy_job_is_there(make_service):
    """The worker waits for jobs a few times a second, and hears of the end of those that run."""
    service = make_service()
    redis = Redis(service)

    def waits():
        return int(re.search(rb"cmdstat_blmpop:calls=(\d+)", redis("INFO", "commandstats"))[1])
    heavy, began = start_heavy(service), time.monotonic()
    before = waits()
    until(service, heavy, ENDED)
    assert waits() - before < 10 + 15 * (time.monotonic() - began)
    redis.close()


@pytest.mark.full
def test_a_heavy_system_is_overtaken_too(make_service):
    service = make_service()
    rng = np.random.default_rng(5)
    a, x = rng.standard_normal((4000, 4000)), rng.standard_normal(4000)
    heavy = service.post("solve", {"a": a, "b": a @ x}, wait=0, form="safetensors").json()["id"]
    until(service, heavy, ("running",))
    small = service.post("matmul", SMALL).json()
    job = until(service, heavy, ENDED)
    assert small["finished_at"] < job["finished_at"]
    arrays, _ = service.request("GET", f"/jobs/{heavy}/result", headers={"Accept": "application/x-safetensors"}).safetensors()
    np.testing.assert_allclose(arrays["x"], x, rtol=1e-6, atol=1e-8)


@pytest.mark.full
def test_cancelling_the_heavy_job_leaves_the_others_alone(make_service):
    service = make_service()
    heavy = start_heavy(service, 6000)
    next_one = service.post("matmul", {"a": np.ones((1500, 1500)), "b": np.ones((1500, 1500))}, wait=0,
                            form="safetensors").json()["id"]
    assert service.request("DELETE", f"/jobs/{heavy}").json()["state"] == "cancelled"
    assert service.post("matmul", SMALL).json()["state"] == "succeeded"
    assert until(service, next_one, ENDED)["state"] == "succeeded"
    assert service.request("GET", f"/jobs/{heavy}").json()["state"] == "cancelled"


def post_behind_a_heavy_job(service, priorities):
    """Ids of long jobs that were all queued while another one ran, by priority; None where that had ended."""
    heavy, ids = start_heavy(service), {}
    a = np.random.default_rng(7).standard_normal((900, 900))
    for priority in priorities:
        ids[priority] = service.post("svd", {"a": a}, wait=0, form="safetensors", priority=priority).json()["id"]
    return ids if service.request("GET", f"/jobs/{heavy}").json()["state"] == "running" else None


@pytest.mark.full
def test_long_jobs_wait_for_each_other_by_priority(make_service):
    service = make_service()
    tries = (post_behind_a_heavy_job(service, ("low", "normal", "high")) for _ in range(4))
    ids = next(filter(None, tries))  # a machine that stands still for a moment may need another
    jobs = {priority: until(service, job_id, ENDED) for priority, job_id in ids.items()}
    starts = [jobs[priority]["started_at"] for priority in ("high", "normal", "low")]
    assert starts == sorted(starts)


@pytest.mark.full
def test_a_worker_killed_with_both_lanes_busy_loses_nothing(make_service):
    service = make_service()
    heavy = start_heavy(service)
    waiting = [service.post("matmul", SMALL, wait=0).json()["id"] for _ in range(100)]
    service.kill("worker")
    waiting += [service.post("matmul", SMALL, wait=0).json()["id"] for _ in range(20)]
    job = until(service, heavy, ENDED)
    assert job["state"] == "succeeded" and job["execution"]["attempts"] == 2
    for job_id in waiting:
        assert until(service, job_id, ENDED)["state"] == "succeeded"


@pytest.mark.full
def test_what_the_lane_runs_ends_when_the_service_is_told_to_stop(make_service):
    service = make_service("--limit", "drain_s=300")
    heavy, behind = start_heavy(service, 3000), []
    for n in (2500, 2501):
        behind.append(service.post("matmul", {"a": np.ones((n, n)), "b": np.ones((n, n))}, wait=0,
                                   form="safetensors").json()["id"])
    assert service.stop(timeout=400) == 0
    service.start()
    job = until(service, heavy, ENDED)
    assert job["state"] == "succeeded" and job["execution"]["attempts"] == 1
    for job_id in behind:
        job = until(service, job_id, ENDED)
        assert job["state"] == "succeeded" and job["execution"]["attempts"] == 1


@pytest.mark.full
def test_a_job_after_a_lapsed_lease_is_not_taken_for_cancelled(make_service):
    """The worker sleeps for longer than its lease. What it begins under the next one runs to its end."""
    service = make_service("--limit", "lease_ms=3000")
    for _ in range(3):
        worker = service.kill("worker", signal.SIGSTOP)
        try:
            n = 2500
            heavy = service.post("matmul", {"a": np.ones((n, n)), "b": np.ones((n, n))}, wait=0,
                                 form="safetensors").json()["id"]
            wait_for(lambda: not service.request("GET", "/devices").json()["devices"], "the lease has lapsed")
        finally:
            os.kill(worker, signal.SIGCONT)
        job = until(service, heavy, ENDED)
        assert job["state"] == "succeeded", job["error"]
