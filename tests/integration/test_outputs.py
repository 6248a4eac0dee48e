"""Outputs that a few bytes ask for: they have to fit into what is free beside those of all jobs before them.

No worker runs here, for the jobs are as large as this machine's memory.
"""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from service import BLASD, Service, TYPES


@pytest.fixture
def front_end(tmp_path):
    """A front end and a Redis, and nobody who would run a job."""
    blobs = f"/dev/shm/blasd-test-{os.getpid()}"
    socket = tmp_path / "redis.sock"
    redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", socket, "--dir", tmp_path, "--appendonly", "yes", "--appendfsync", "no",
                              "--save", "", "--maxmemory-policy", "noeviction"], stdout=subprocess.DEVNULL)
    while not socket.exists():
        assert redis.poll() is None
        time.sleep(0.05)
    service = Service(tmp_path)
    service.log = open(tmp_path / "log", "ab")
    service.process = subprocess.Popen(
        [BLASD, "api", "--redis", f"unix:{socket}", "--blobs", f"dir:{blobs}", "--listen", "127.0.0.1:0",
         "--limit", "queue_bytes=1T", "--limit", "job_bytes=1T", "--limit", "record_bytes=1T"], stdout=subprocess.PIPE, stderr=service.log)
    service.url = service.process.stdout.readline().decode().split()[1]
    service.port = int(service.url.rsplit(":", 1)[1])
    end = time.monotonic() + 30
    while ask(service, 1000).status != 202:
        assert time.monotonic() < end, "the front end does not find its Redis"
        time.sleep(0.05)
    yield service
    service.process.send_signal(signal.SIGTERM)
    service.process.wait(60)
    service.process.stdout.close()
    redis.terminate()
    redis.wait(60)
    shutil.rmtree(blobs, ignore_errors=True)


def memory(name):
    for line in open("/proc/meminfo"):
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return None


def room():
    store = os.statvfs("/dev/shm")
    return (min(store.f_bavail * store.f_frsize, memory("MemAvailable")), min(store.f_blocks * store.f_frsize, memory("MemTotal")))


def ask(service, bytes_):
    """A product of two empty matrices, with a result of about so many bytes."""
    side = int((bytes_ / 8) ** 0.5)
    empty = {"dtype": "float64", "data": []}
    body = json.dumps({"op": "matmul", "inputs": {"a": {**empty, "shape": [side, 0]}, "b": {**empty, "shape": [0, side]}}})
    return service.request("POST", "/jobs", body, {"Content-Type": TYPES["json"]})


def refused(answer):
    assert answer.status == 503 and answer.json()["code"] == "no_space", answer.body
    assert int(answer.headers["Retry-After"]) >= 1 and answer.json()["retry"] is True


def test_outputs_fit_into_what_is_free(front_end):
    free, whole = room()
    answer = ask(front_end, 1.1 * whole)
    assert answer.status == 413 and answer.json()["code"] == "job_too_large", answer.body
    ids = []
    for _ in range(2):
        answer = ask(front_end, 0.4 * free)
        assert answer.status == 202, answer.body
        ids.append(answer.json()["id"])
    refused(ask(front_end, 0.4 * free))
    assert ask(front_end, 1000).status == 202  # what is small still fits
    assert front_end.request("DELETE", f"/jobs/{ids[0]}").status == 200
    end = time.monotonic() + 20
    while (answer := ask(front_end, 0.4 * free)).status != 202 and time.monotonic() < end:  # the queue's count is told
        refused(answer)
        time.sleep(0.1)
    assert answer.status == 202, answer.body
    refused(ask(front_end, 0.4 * free))


def test_many_at_once_do_not_slip_through(front_end):
    free, _ = room()
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: ask(front_end, 0.3 * free), range(20)))
    taken = [answer for answer in answers if answer.status == 202]
    assert 1 <= len(taken) <= 3, [answer.status for answer in answers]
    for answer in answers:
        if answer.status != 202:
            refused(answer)
