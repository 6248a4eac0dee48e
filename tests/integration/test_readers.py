"""Many who read large results at once: all of them get theirs, and so have those who ask for
something small beside them (what a turn makes for readers is counted in tests/unit/http/test_http_pieces.c)."""
import concurrent.futures
import hashlib

import numpy as np
import pytest
from service import TYPES, safetensors

READERS = 40
SIDE = 800  # 5 MB, some 11 MB as JSON


def large_job(service):
    a = np.random.default_rng(2).random((SIDE, 2))
    answer = service.request("POST", "/jobs?wait=60", safetensors({"a": a, "b": a.T.copy()}, op="matmul"),
                             {"Content-Type": TYPES["safetensors"]})
    assert answer.json()["state"] == "succeeded", answer.body
    return answer.json()["id"]


def read(service, job, kind):
    answer = service.request("GET", f"/jobs/{job}/outputs/c", headers={"Accept": TYPES[kind]}, timeout=300, check=False)
    return answer.status, hashlib.sha256(answer.body).hexdigest()


@pytest.mark.parametrize("kind", ["json", "npy"])
def test_readers_share_the_loop(make_service, kind):
    service = make_service()
    job = large_job(service)
    alone = read(service, job, kind)
    assert alone[0] == 200
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        readers = [pool.submit(read, service, job, kind) for _ in range(READERS)]
        served = 0
        while not all(reader.done() for reader in readers):
            answer = service.post("matmul", {"a": np.eye(2), "b": np.eye(2)})
            assert answer.json()["state"] == "succeeded"
            served += 1
        assert all(reader.result() == alone for reader in readers) and served > 0
