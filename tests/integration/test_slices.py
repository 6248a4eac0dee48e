"""Payloads of every size, by every way they can travel: beside the frame, in a segment, in a blob of their own, in Redis."""
import os
import pathlib
import time

import numpy as np
import pytest

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
    service = make_service("--limit", "record_sync_s=1", "--limit", "record_async_s=1")
    folder = blob_folder(service)
    a = np.arange(90.0 * 90).reshape(90, 90) % 17
    want = a @ np.eye(90)
    most = 0
    for _ in range(400):  # 80 MiB of inputs and outputs
        arrays, _ = service.post("matmul", {"a": a, "b": np.eye(90)}, form="safetensors", accept="safetensors").safetensors()
        np.testing.assert_array_equal(arrays["c"], want)
        most = max(most, len(list(folder.glob("*.seg"))))
    assert 2 <= most
    end = time.monotonic() + 60
    left = most
    while left > 4 and time.monotonic() < end:
        left = len(list(folder.glob("*.seg")))
        time.sleep(0.3)
    assert left <= 4, left
