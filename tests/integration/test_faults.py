"""A service that is killed or drained, and files that are gone: what is there afterwards. Kills under load: test_chaos.py."""
import concurrent.futures
import os
import time

import numpy as np
import pytest
from service import children, command_line, wait_for


SMALL = {"a": np.eye(2), "b": np.eye(2)}


@pytest.mark.first
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
    unlisted = kept[:9].encode() + b"0" * 32
    meta = b"2 1795321940965573 100 0 0\t\tmatmul\tanonymous"
    torn = command(b"MULTI") + command(b"HSET", b"{blasd}:pending", unlisted, meta) + b"*4\r\n$4\r\nHSE"
    path = max((service.folder / "data" / "appendonlydir").glob("*.incr.aof"), key=os.path.getmtime)
    with open(path, "ab") as file:
        file.write(torn)
    service.start()
    assert f"diff={len(torn)}" in service.log_text()  # what redis-check-aof has taken off
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    killed = service.kill("redis")
    wait_for(lambda: service.part("redis") not in (killed, None))
    wait_for(lambda: service.post("matmul", SMALL).status == 200)
    assert service.request("GET", f"/jobs/{unlisted.decode()}").status == 404
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
    import glob  # directories of other services come and go
    service = make_service("--limit", "record_sync_s=1", "--limit", "record_async_s=1")
    stored = {"a": np.ones((200, 200)), "b": np.eye(200)}
    ids = [service.post("matmul", stored, form="safetensors").json()["id"] for _ in range(10)]
    wait_for(lambda: not [i for i in ids if glob.glob(f"/dev/shm/blasd-*/{i}.*")])
