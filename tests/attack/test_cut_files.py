"""Files of results that are cut while the front end reads them: the answer ends early, and nothing else does."""
import json
import os
import socket

import numpy as np
import pytest
from service import TYPES, folder_of, safetensors

SIDE = 1600  # 20 MB of results
HEADERS = {"Content-Type": TYPES["safetensors"], "Prefer": "share"}


def result(service):
    """A job with a large result: (id, the file it lies in)."""
    a = np.random.default_rng(1).random((SIDE, 2))
    answer = service.request("POST", "/jobs?wait=60", safetensors({"a": a, "b": a.T.copy()}, op="matmul"), HEADERS)
    job = answer.json()
    assert job["state"] == "succeeded", job
    return job["id"], folder_of(service) / job["outputs"]["c"]["blob"]["name"]


@pytest.mark.parametrize("left", [0, 4096 * 3 + 5, SIDE * SIDE * 4])
@pytest.mark.parametrize("kind", ["json", "npy", "safetensors"])
def test_a_result_that_is_cut_while_it_is_sent(make_service, kind, left):
    service = make_service("--share")
    api = service.part("api")
    one, path = result(service)
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 19)
        sock.sendall(f"GET /jobs/{one}/outputs/c HTTP/1.1\r\nHost: localhost\r\nAccept: {TYPES[kind]}\r\n"
                     "Connection: close\r\n\r\n".encode())
        got = len(sock.recv(4096))  # the answer is on its way, and most of it is still to be read
        os.truncate(path, left)
        try:
            tail = b""
            while piece := sock.recv(1 << 20):
                got += len(piece)
                tail = (tail + piece)[-5:]
        except ConnectionError:
            pass
    assert got < SIDE * SIDE * (16 if kind == "json" else 8), "more than there was"
    assert tail != b"0\r\n\r\n", "ended as if it were whole"
    assert service.part("api") == api
    answer = service.request("GET", f"/jobs/{one}/outputs/c", headers={"Accept": TYPES[kind]})
    assert answer.status == 410 and json.loads(answer.body)["code"] == "record_expired"
    for _ in range(2):  # what the front end has mapped and kept serves no other result
        one, path = result(service)
        found = service.request("GET", f"/jobs/{one}/outputs/c", headers={"Accept": TYPES["npy"]}).npy()
        a = np.random.default_rng(1).random((SIDE, 2))
        assert np.allclose(found, a @ a.T)
        assert service.request("DELETE", f"/jobs/{one}?forget=1").status == 200
    assert service.part("api") == api
