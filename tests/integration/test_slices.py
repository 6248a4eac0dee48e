"""Payloads of every size, by every way they can travel: beside the frame, in a segment, in a blob of their own, in Redis."""
import os
import pathlib
import socket

import numpy as np
import pytest

from service import safetensors, wait_for

SIZES = [1, 7, 8, 9, 11, 12, 40, 90, 127, 128, 129, 181, 182, 256]  # 2 n^2 doubles: 1 KiB at 8, 256 KiB at 128


def blob_folder(service):
    """The store's directory: the worker has it open."""
    for link in pathlib.Path(f"/proc/{service.part('worker')}/fd").iterdir():
        target = pathlib.Path(os.readlink(link))
        if (target / ".store").exists():
            return target
    raise AssertionError("the worker has no store open")


@pytest.mark.parametrize("options", [(), ("--limit", "inline_bytes=0"), ("--limit", "inline_bytes=1M")])
@pytest.mark.parametrize("form", ["json", "safetensors", "multipart"])
def test_every_size_travels_whole(make_service, options, form):
    service = make_service(*options)
    for n in SIZES[:9] if form == "json" else SIZES:
        rng = np.random.default_rng(n)
        a, b = rng.integers(-9, 9, (2, n, n)).astype(float)
        answer = service.post("matmul", {"a": a, "b": b}, form=form, accept="safetensors")
        assert answer.status == 200, answer.body
        arrays, job = answer.safetensors()
        np.testing.assert_array_equal(arrays["c"], a @ b)
        again = service.request("GET", f"/jobs/{job['id']}/outputs/c", headers={"Accept": "application/x-npy"})
        np.testing.assert_array_equal(again.npy(), a @ b)


def test_inputs_of_one_size_and_outputs_of_another(make_service):
    service = make_service()
    for rows, inner, columns in [(300, 1, 300), (2, 4000, 2), (1, 16000, 1), (200, 3, 150), (5, 5, 3000)]:
        a = np.arange(rows * inner, dtype=float).reshape(rows, inner) % 13
        b = np.arange(inner * columns, dtype=float).reshape(inner, columns) % 7
        arrays, _ = service.post("matmul", {"a": a, "b": b}, form="safetensors", accept="safetensors").safetensors()
        np.testing.assert_array_equal(arrays["c"], a @ b)


def test_jobs_that_wait_outlive_the_front_end_and_the_worker(make_service):
    """Both owners of the segments die; what was acknowledged is still run, and what ended can still be fetched."""
    service = make_service()
    n = 48
    ended = []
    for i in range(40):
        job = service.post("matmul", {"a": np.full((n, n), float(i)), "b": np.eye(n)}, form="safetensors").json()
        ended.append(job["id"])
    service.post("matmul", {"a": np.ones((2500, 2500)), "b": np.ones((2500, 2500))}, wait=0, form="safetensors")
    waiting = [service.post("matmul", {"a": np.full((n, n), float(i)), "b": np.eye(n)}, wait=0, form="safetensors").json()["id"]
               for i in range(40)]
    service.kill("worker")
    service.kill("api")
    service.wait_ready()
    for ids in (ended, waiting):
        for i, job_id in enumerate(ids):
            job = service.request("GET", f"/jobs/{job_id}?wait=60", timeout=90).json()
            assert job["state"] == "succeeded", job
            assert job["outputs"]["c"]["data"] == [[float(i)] * n] * n


def test_segments_are_used_again_and_given_back(make_service):
    # each loop of the front end fills segments of its own
    service = make_service("--limit", "record_sync_s=1", "--limit", "record_async_s=1", "--loops", "1")
    folder = blob_folder(service)
    a = np.arange(90.0 * 90).reshape(90, 90) % 17
    want = a @ np.eye(90)
    most = 0
    for _ in range(400):  # 80 MiB of inputs and outputs
        arrays, _ = service.post("matmul", {"a": a, "b": np.eye(90)}, form="safetensors", accept="safetensors").safetensors()
        np.testing.assert_array_equal(arrays["c"], want)
        most = max(most, len(list(folder.glob("*.seg"))))
    assert 2 <= most
    wait_for(lambda: len(list(folder.glob("*.seg"))) <= 4)


def half_sent(service, body):
    """A connection on which half of a job's body has been sent."""
    head = (f"POST /jobs?wait=60 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-safetensors\r\n"
            f"Accept: application/x-npy\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n")
    sock = socket.create_connection(("127.0.0.1", service.port), timeout=60)
    sock.sendall(head.encode() + body[:len(body) // 2])
    return sock


def read_all(sock):
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_bodies_that_stand_still_hold_nobody_up(make_service):
    """More of them than may come into segments at a time. Some end after all, some never do: their room is used again."""
    service = make_service("--limit", "record_sync_s=1")
    folder = blob_folder(service)
    n = 64
    bodies = [safetensors({"a": np.full((n, n), float(i)), "b": np.eye(n)}, op="matmul") for i in range(100)]
    socks = [half_sent(service, body) for body in bodies]
    a = np.arange(90.0 * 90).reshape(90, 90) % 17
    for _ in range(60):
        arrays, _ = service.post("matmul", {"a": a, "b": np.eye(90)}, form="safetensors", accept="safetensors").safetensors()
        np.testing.assert_array_equal(arrays["c"], a)
    for i in range(0, 100, 2):
        socks[i].sendall(bodies[i][len(bodies[i]) // 2:])
    for i in range(0, 100, 2):
        answer = read_all(socks[i])
        assert answer.startswith(b"HTTP/1.1 200"), answer[:500]
        assert answer.endswith(np.full((n, n), float(i)).tobytes())
    for sock in socks:
        sock.close()
    wait_for(lambda: len(list(folder.glob("*.seg"))) <= 4)


def test_slow_bodies_pin_no_segments(make_service):
    """Each of them begins in a segment of its own, for others fill the rest of it; none of these segments stays."""
    service = make_service("--limit", "record_sync_s=1")
    folder = blob_folder(service)
    n = 64
    bodies = [safetensors({"a": np.full((n, n), float(i)), "b": np.eye(n)}, op="matmul") for i in range(10)]
    a = np.arange(90.0 * 90).reshape(90, 90) % 17
    socks = []
    for body in bodies:
        socks.append(half_sent(service, body))
        for _ in range(32):  # 4 MiB
            arrays, _ = service.post("matmul", {"a": a, "b": np.eye(90)}, form="safetensors", accept="safetensors").safetensors()
            np.testing.assert_array_equal(arrays["c"], a)
    wait_for(lambda: len(list(folder.glob("*.seg"))) <= 4)
    for i, (sock, body) in enumerate(zip(socks, bodies)):
        sock.sendall(body[len(body) // 2:])
        answer = read_all(sock)
        assert answer.startswith(b"HTTP/1.1 200"), answer[:500]
        assert answer.endswith(np.full((n, n), float(i)).tobytes())


def test_refused_bodies_leave_no_room_taken(make_service):
    """60 MiB of bodies that came whole before they were refused; nothing was ever submitted, so one segment does."""
    service = make_service()
    folder = blob_folder(service)
    before = len(list(folder.glob("*.seg")))
    for i in range(400):
        answer = service.post("matmul", {"a": np.ones((100, 90)), "b": np.ones((100, 90))}, form="safetensors")
        assert answer.status == 422 and answer.json()["code"] == "shape_mismatch", answer.body
    wait_for(lambda: len(list(folder.glob("*.seg"))) <= before + 4)
    service.run("matmul", {"a": np.ones((100, 90)), "b": np.ones((90, 100))}, form="safetensors")
