"""Many connections: all at once, and in a closed loop; every answer is checked.

BLASD_LOAD_SECONDS sets how long each closed loop runs (3 by default; `make soak` takes 60).
"""
import asyncio
import json
import os
import random
import time

import numpy as np
import pytest
from service import TYPES, safetensors

pytestmark = pytest.mark.full

SECONDS = float(os.environ.get("BLASD_LOAD_SECONDS", "3"))


def make_job(rng, i):
    """(request bytes, check of the job document) for one of four operations, in JSON or safetensors."""
    kind = i % 4
    if kind == 0:
        n = rng.choice([1, 2, 4, 8])
        a, b = (np.array([[float(rng.randrange(-9, 9)) for _ in range(n)] for _ in range(n)]) for _ in "ab")
        inputs, op, name, expected = {"a": a, "b": b}, "matmul", "c", a @ b
    elif kind == 1:
        n = rng.choice([2, 3, 5])
        a = np.array([[rng.uniform(-1, 1) for _ in range(n)] for _ in range(n)]) + 4 * np.eye(n)
        x = np.array([float(rng.randrange(1, 9)) for _ in range(n)])
        inputs, op, name, expected = {"a": a, "b": a @ x}, "solve", "x", x
    elif kind == 2:
        x = np.array([[0.0, 0.0], [3.0 * rng.randrange(1, 9), 0.0]])
        inputs, op, name = {"x": x}, "distance", "d"
        expected = np.abs(x[:, :1] - x[:, 0])
    else:
        x = np.array([[float(k), float(rng.randrange(9))] for k in range(6)])
        x[0, 1], x[1, 1] = 20, -20
        coef = np.array([rng.randrange(-5, 5), rng.randrange(-5, 5)], float)
        inputs, op, name, expected = {"x": x, "y": x @ coef + 2}, "regression", "coef", coef
    if i % 8 < 5:
        kind_of, body = TYPES["json"], json.dumps({"op": op, "inputs": {k: v.tolist() for k, v in inputs.items()}})
        body = body.encode()
    else:
        kind_of, body = TYPES["safetensors"], safetensors(inputs, op=op)

    def check(job):
        assert job["state"] == "succeeded" and job["op"] == op, job
        got = np.array(job["outputs"][name]["data"], float)
        assert got.shape == expected.shape and np.max(np.abs(got - expected)) <= 1e-9, (job, expected)
    head = (f"POST /jobs?wait=30 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind_of}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    return head + body, check


async def connect(port):
    for _ in range(200):
        try:
            return await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        except OSError:  # a full backlog
            await asyncio.sleep(0.05)
    raise AssertionError("no connection")


async def exchange(reader, writer, request):
    writer.write(request)
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length"))
    body = await reader.readexactly(length)
    return int(head.split()[1]), body


@pytest.mark.parametrize("round_number", range(3))
@pytest.mark.parametrize("connections", [1000, 128, 256, 384, 1024])
def test_all_at_once(service, connections, round_number):
    """Every connection is open before the first byte is sent; then all jobs arrive together."""
    rng = random.Random(connections * 10 + round_number)
    jobs = [make_job(rng, i) for i in range(connections)]

    async def one(streams, job, go):
        await go.wait()
        status, body = await asyncio.wait_for(exchange(*streams, job[0]), 60)
        assert status == 200, (status, body)
        job[1](json.loads(body))
        streams[1].close()

    async def main():
        streams = [await connect(service.port) for _ in range(connections)]
        go = asyncio.Event()
        tasks = [asyncio.create_task(one(s, j, go)) for s, j in zip(streams, jobs)]
        await asyncio.sleep(0.1)
        go.set()
        await asyncio.gather(*tasks)
    asyncio.run(main())


@pytest.mark.parametrize("kill", [False, True], ids=["quiet", "killing"])
@pytest.mark.parametrize("connections", [128, 256, 384])
def test_closed_loop(make_service, connections, kill):
    """Keep-alive connections, each with one job in flight; with `killing` a worker dies in the middle, by SIGKILL."""
    service = make_service()
    rng = random.Random(connections)
    jobs = [make_job(rng, i) for i in range(512)]
    counts = [0] * connections
    killed = []

    async def one(index, end):
        reader, writer = await connect(service.port)
        i = index * 7
        while True:  # once at least, however long it took to connect
            status, body = await asyncio.wait_for(exchange(reader, writer, jobs[i % 512][0]), 60)
            assert status == 200, (status, body)
            jobs[i % 512][1](json.loads(body))
            counts[index] += 1
            i += 1
            if time.monotonic() >= end:
                break
        writer.close()

    async def killer():
        for _ in range(3):
            await asyncio.sleep(SECONDS / 4)
            while service.part("worker") in (None, *killed):  # the last one is not replaced yet
                await asyncio.sleep(0.02)
            killed.append(service.kill("worker"))

    async def main():
        end = time.monotonic() + SECONDS
        await asyncio.gather(*(one(i, end) for i in range(connections)), *([killer()] if kill else []))
    asyncio.run(main())
    assert min(counts) > 0, "a connection starved"
    assert len(set(killed)) == (3 if kill else 0)
    print(f"{connections} connections: {sum(counts) / SECONDS:.0f} jobs/s, checked")
