"""SIGKILL at every part while jobs are in flight: none is lost, each ends once, all answers are right."""
import concurrent.futures
import http.client
import os
import threading
import time

import numpy as np
import pytest
from service import children, command_line, wait_for


SMALL = {"a": np.eye(2), "b": np.eye(2)}


def value_of(i):
    return float(i % 1000)


def run_one(service, i):
    """Submits a job and sees it through, as a careful client does: what was acknowledged is asked for by its id."""
    n = (3, 24)[i % 2]  # beside the frame, and in a segment
    body = {"a": np.full((n, n), value_of(i)), "b": np.eye(n)}
    key = f"fault-{i}"
    end = time.monotonic() + 60
    job_id = None
    while time.monotonic() < end:
        try:
            if job_id is None:
                answer = submit(service, body, key)
                if answer.status in (200, 202):
                    job_id = answer.json()["id"]
                else:
                    assert answer.status in (429, 503), answer.body
                    time.sleep(0.05)
                    continue
            answer = service.request("GET", f"/jobs/{job_id}?wait=20", timeout=30)
            assert answer.status in (200, 202, 503), (job_id, answer.status, answer.body)
            if answer.status == 200:
                job = answer.json()
                assert job["state"] == "succeeded", job
                assert job["outputs"]["c"]["data"] == [[value_of(i)] * n] * n
                return job
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)  # the front end itself was killed
    raise AssertionError(f"job {i} ({job_id}) did not end")


def submit(service, inputs, key):
    import json
    from service import TYPES, nested
    body = json.dumps({"op": "matmul", "inputs": {k: nested(v) for k, v in inputs.items()}})
    return service.request("POST", "/jobs", body, {"Content-Type": TYPES["json"], "Idempotency-Key": key}, timeout=30)


@pytest.mark.parametrize("victim", ["worker", "api", "redis"])
def test_killing_a_part_under_load_loses_nothing(make_service, victim):
    service = make_service()
    stop = threading.Event()
    kills = []

    def killer():
        while not stop.wait(0.4):
            if len(kills) < 6 and service.part(victim) is not None:
                kills.append(service.kill(victim))
    thread = threading.Thread(target=killer)
    thread.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            start = time.monotonic()
            count = 0
            while len(kills) < 6 or count == 0:
                assert time.monotonic() - start < 120
                list(pool.map(lambda i: run_one(service, i), range(count, count + 300)))
                count += 300
    finally:
        stop.set()
        thread.join()
    assert len(set(kills)) == len(kills) >= 6
    service.wait_ready()
    assert service.run("matmul", {"a": np.eye(2), "b": np.eye(2)})[1]["state"] == "succeeded"


def test_a_killed_service_finds_its_jobs_again(make_service):
    """SIGKILL to the supervisor: its children go too; started again over the same directory, it ends every job."""
    service = make_service()
    big = {"a": np.ones((3000, 3000)), "b": np.ones((3000, 3000))}
    service.post("matmul", big, wait=0, form="safetensors")
    stored = {"a": np.arange(40000.0).reshape(200, 200), "b": np.eye(200)}  # too large for Redis
    ids = [service.post("matmul", stored, wait=0, form="safetensors").json()["id"] for _ in range(5)]
    ids += [service.post("matmul", {"a": np.eye(3), "b": np.eye(3)}, wait=0).json()["id"] for _ in range(50)]
    parts = children(service.process.pid)
    service.process.kill()
    service.stop(check=False)
    wait_for(lambda: not any(command_line(p) for p in parts))
    service.start()
    for job_id in ids:
        job = service.request("GET", f"/jobs/{job_id}?wait=60", timeout=90).json()
        assert job["state"] == "succeeded", job
    got = service.request("GET", f"/jobs/{ids[0]}/outputs/c", headers={"Accept": "application/x-npy"}).npy()
    assert np.array_equal(got, stored["a"])


def test_half_a_call_at_the_end_of_redis_file_is_never_done(make_service):
    """What a Redis leaves that is killed while it writes, effects of a call that nobody was answered, has no effect
    in the next start, nor in the one after it."""
    def command(*words):
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    service = make_service()
    kept = service.post("matmul", SMALL, wait=0).json()["id"]
    service.stop()
    ghost = kept[:9].encode() + b"0" * 32
    stub = b"2 1795321940965573 100 0 0\t\tmatmul\tanonymous"
    torn = command(b"MULTI") + command(b"HSET", b"{blasd}:pending", ghost, stub) + b"*4\r\n$4\r\nHSE"
    path = max((service.folder / "data" / "appendonlydir").glob("*.incr.aof"), key=os.path.getmtime)
    with open(path, "ab") as file:
        file.write(torn)
    service.start()
    assert f"the last {len(torn)} bytes of its file" in service.log_text()
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    killed = service.kill("redis")
    wait_for(lambda: service.part("redis") not in (killed, None))
    wait_for(lambda: service.post("matmul", SMALL).status == 200)
    assert service.request("GET", f"/jobs/{ghost.decode()}").status == 404
    assert service.request("GET", f"/jobs/{kept}").json()["state"] == "succeeded"


def test_a_drained_service_ends_what_it_began(make_service):
    service = make_service()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        big = {"a": np.ones((2500, 2500)), "b": np.ones((2500, 2500))}
        waiting = pool.submit(service.post, "matmul", big, wait=60, form="safetensors")
        while not any(j["state"] == "running" for j in service.request("GET", "/jobs").json()["jobs"]):
            time.sleep(0.02)
        assert service.stop() == 0
        assert waiting.result().status in (200, 202)


def test_inputs_that_are_gone_are_an_error_of_the_job(make_service):
    import pathlib
    service = make_service()
    stored = {"a": np.ones((200, 200)), "b": np.eye(200)}
    with service.worker_held():
        job_id = service.post("matmul", stored, wait=0, form="safetensors").json()["id"]
        blobs = list(pathlib.Path("/dev/shm").glob(f"blasd-*/{job_id}.in"))
        assert len(blobs) == 1
        blobs[0].unlink()
    job = service.request("GET", f"/jobs/{job_id}?wait=60", timeout=90).json()
    assert job["state"] == "failed" and job["error"]["code"] == "inputs_lost"


def test_blobs_do_not_pile_up(make_service):
    import pathlib
    service = make_service("--limit", "record_sync_s=1", "--limit", "record_async_s=1")
    stored = {"a": np.ones((200, 200)), "b": np.eye(200)}
    ids = [service.post("matmul", stored, form="safetensors").json()["id"] for _ in range(10)]
    wait_for(lambda: not [i for i in ids if list(pathlib.Path("/dev/shm").glob(f"blasd-*/{i}.*"))])
