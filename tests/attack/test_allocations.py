"""Memory that runs out, at each allocation of a request's way and of a worker's in turn: an honest answer, no part that dies, and
the next request is served."""
import http.client
import json
import mmap
import re
import struct
import subprocess
import time

import numpy as np
import pytest
from service import BLASD, TYPES, multipart, npy, safetensors

A = np.arange(9.0).reshape(3, 3)
OLD_HIREDIS = b"libhiredis.so.0" in BLASD.read_bytes()
LARGE = np.random.default_rng(3).integers(-4, 5, (120, 120)).astype(float)
JSON = json.dumps({"op": "matmul", "inputs": {"a": A.tolist(), "b": A.tolist()}})


def post(body, kind, accept="json"):
    return "POST", "/jobs?wait=20", body, {"Content-Type": TYPES[kind], "Accept": TYPES[accept]}


REQUESTS = {
    "json": post(JSON, "json"),
    "a segment": post(safetensors({"a": A, "b": A}, op="matmul"), "safetensors", "safetensors"),
    "a blob": post(safetensors({"a": LARGE, "b": LARGE}, op="matmul"), "safetensors", "npy"),
    "a form": post(multipart({"op": "solve", "a": npy(np.eye(3)), "b": npy(A[0])}), "multipart"),
    "a bad request": post('{"op":"matmul","inputs":{"a":[[1,2]],"b":[[1,2]]}}', "json"),
    "a list": ("GET", "/jobs?limit=10", None, {}),
    "metrics": ("GET", "/metrics", None, {}),
    "load": ("GET", "/load", None, {}),
    "operations": ("GET", "/ops", None, {}),
    "nothing": ("GET", "/nothing", None, {}),
}


class Scarce:
    """A service whose parts can be told which of their next allocations is to fail."""

    def __init__(self, make_service, folder, redis):
        folder.mkdir()
        self.left = {}
        for part in ("api", "worker"):
            (folder / part).write_bytes(bytes(8))
            with open(folder / part, "r+b") as file:
                self.left[part] = mmap.mmap(file.fileno(), 8)
        self.service = make_service("--workers", "1", "--redis", redis, env={"LD_PRELOAD": str(BLASD.parent / "alloc_fail.so"),
                                                           "BLASD_TEST_ALLOC": str(folder)})

    def arm(self, part, number):
        self.left[part][:] = struct.pack("<q", number)

    def failed(self, part):
        """Whether it came to that allocation; from here on there is memory again."""
        left = struct.unpack("<q", self.left[part][:])[0]
        self.arm(part, 0)
        return left == 0

    def ask(self, request):
        """(status, body), or None: closed without an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
        try:
            connection.request(*request)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def alive(self):
        """hiredis 0.14 ends the process itself where there is no memory for the next buffer, in redisBufferWrite(): there, and there
        alone, a part may be started again."""
        log = (self.service.folder / "log").read_text(errors="replace")
        died = "was ended by signal" in log
        assert "ended with status" not in log and (not died or OLD_HIREDIS), log[-4000:]
        if died:
            self.service.wait_ready()

    def works(self):
        """At last: Redis' connection may have to be made again."""
        end = time.monotonic() + 30
        while (answer := self.ask(REQUESTS["json"])) is None or answer[0] != 200:
            assert time.monotonic() < end, answer
            time.sleep(0.02)
        assert json.loads(answer[1])["outputs"]["c"]["data"] == (A @ A).tolist(), answer


@pytest.fixture(scope="module")
def scarce(tmp_path_factory):
    from service import Service
    folder, made = tmp_path_factory.mktemp("scarce"), []

    def make(*options, env):
        made.append(Service(folder / "service", *options, env=env).start())
        return made[0]
    # of its own, for it has another allocator
    socket = folder / "redis.sock"
    redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", socket, "--dir", folder, "--save", "", "--appendonly", "yes", "--appendfsync", "no",
                              "--logfile", folder / "redis.log"])
    try:
        while not socket.exists():
            time.sleep(0.02)
        yield Scarce(make, folder / "left", f"unix:{socket}")
        made[0].stop()
    finally:
        redis.kill()
        redis.wait()


def steps(scale):
    """Each allocation at first, where most of a request's own are; a few have hundreds."""
    number, step = 1, 1
    while True:
        yield number
        if number >= 400 * scale:
            step = max(1, number // 20)
        number += step


@pytest.mark.parametrize("name", REQUESTS)
def test_the_front_end(scarce, name, scale):
    scarce.works()
    good = scarce.ask(REQUESTS[name])
    for number in steps(scale):
        scarce.arm("api", number)
        answer = scarce.ask(REQUESTS[name])
        reached = scarce.failed("api")
        scarce.alive()
        if answer is not None and answer[0] != good[0]:
            problem = json.loads(answer[1])
            assert answer[0] in (500, 503) and problem["code"] in (
                "no_space", "out_of_memory", "internal_error", "queue_unavailable"), (number, answer)
        if number % 10 == 0:
            scarce.works()
        if not reached:
            break
    scarce.works()


@pytest.mark.parametrize("name", ["json", "a segment", "a blob", "a form"])
def test_the_worker(scarce, name, scale):
    scarce.works()
    good = scarce.ask(REQUESTS[name])
    for number in steps(scale):
        scarce.arm("worker", number)
        answer = scarce.ask(REQUESTS[name])
        reached = scarce.failed("worker")
        scarce.alive()
        assert answer is not None, number
        if answer[0] == 200 and answer[1][:1] == b"{" and json.loads(answer[1])["state"] == "failed":
            assert json.loads(answer[1])["error"]["code"] in ("out_of_memory", "no_space"), (number, answer)
        elif answer[0] != good[0]:
            assert json.loads(answer[1])["code"] in ("out_of_memory", "no_space"), (number, answer)
        if number % 10 == 0:
            scarce.works()
        if not reached:
            break
    scarce.works()
