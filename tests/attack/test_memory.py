"""What requests and answers hold in a front end's memory is counted and limited, whichever way it is held: unpacked bodies,
text, pieces of large answers, packers. A tenant at its share is refused, others are not, and all is given back."""
import contextlib
import json
import pathlib
import socket
import subprocess
import time
import zlib

import numpy as np
import pytest
from service import BLASD, Service, wait_for

MIB = 1 << 20
LIMIT = 64 * MIB


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    made = [subprocess.run([BLASD, "keys", "add", name, "--tenant", name, "--role", "user", "--file", folder / "keys"],
                           capture_output=True, text=True, timeout=60) for name in ("greedy", "other")]
    admin = subprocess.run([BLASD, "keys", "add", "root", "--role", "admin", "--file", folder / "keys"], capture_output=True, text=True, timeout=60)
    one = Service(folder / "service", "--keys", folder / "keys", "--limit", f"memory_bytes={LIMIT}", "--limit", "json_bytes=32M")
    one.headers = {"Authorization": f"Bearer {admin.stdout.strip()}"}
    one.secrets = [each.stdout.strip() for each in made]
    yield one.start()
    one.stop()


def held(service):
    return service.metrics()["blasd_http_memory_bytes"]


def settled(service):
    """What is held once that does not change any more, as bodies are unpacked in turns; 0 while it does."""
    before = held(service)
    time.sleep(0.3)
    return before if held(service) == before else 0


def resident(service):
    return int(pathlib.Path(f"/proc/{service.part('api')}/statm").read_text().split()[1]) * 4096


def send(stack, service, head, body=b""):
    sock = stack.enter_context(socket.socket())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(60)
    sock.connect(("127.0.0.1", service.port))
    with contextlib.suppress(ConnectionError):
        sock.sendall(f"{head} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {service.secrets[0]}\r\n".encode() + body)
    return sock


def pack(unpacked, coding):
    packer = zlib.compressobj(9, wbits=31 if coding == "gzip" else 15)
    return packer.compress(unpacked) + packer.flush(zlib.Z_SYNC_FLUSH)


def others_work(service):
    answer = service.request("POST", "/jobs?wait=20", json.dumps({"op": "matmul", "inputs": {"a": [[2]], "b": [[3]]}}).encode(),
                             {"Content-Type": "application/json", "Authorization": f"Bearer {service.secrets[1]}"})
    assert answer.status == 200 and answer.json()["outputs"]["c"]["data"] == [[6.0]], answer.body


def infer(coding, text=b" " * (15 * MIB)):
    body = b'{"inputs":[' + text
    body = pack(body, coding) if coding != "identity" else body
    more = f"Content-Encoding: {coding}\r\n" if coding != "identity" else ""
    return "POST /v2/models/matmul/infer", f"{more}Content-Length: {len(body) + 100}\r\n\r\n".encode() + body


def post(kind):
    body = b'{"op":"matmul","inputs":{"a":[[' + b"1," * (7 * MIB)
    path = {"jobs": "/jobs", "graphs": "/graphs", "tensors": "/tensors"}[kind]
    return f"POST {path}", b"Content-Type: application/json\r\n" + f"Content-Length: {len(body) + 100}\r\n\r\n".encode() + body


BODIES = {"gzip": infer("gzip"), "deflate": infer("deflate"), "plain": infer("identity"), "jobs": post("jobs"), "tensors": post("tensors")}


@pytest.mark.parametrize("kind", BODIES)
def test_bodies_that_do_not_end(shared, kind):
    head, body = BODIES[kind]
    before = resident(shared)
    with contextlib.ExitStack() as stack:
        socks = [send(stack, shared, head, body) for _ in range(12)]
        wait_for(lambda: settled(shared) > LIMIT // 4)
        assert held(shared) <= LIMIT and resident(shared) < before + 2 * LIMIT
        answers = []
        for sock in socks:  # a short body is read to its end before its refusal is sent
            with contextlib.suppress(ConnectionError):
                sock.sendall(b" " * 100)
            with contextlib.suppress(ConnectionError):
                answers.append(sock.recv(65536))
        refused = [each for each in answers if b" 503 " in each.split(b"\r\n")[0]]
        assert len(refused) >= 6 and all(b"\r\nRetry-After: " in each for each in refused), answers
        others_work(shared)
    wait_for(lambda: held(shared) == 0)
    others_work(shared)


@pytest.mark.parametrize("output", ["json", "npy"])
def test_readers_that_do_not_read(shared, output):
    side = 700
    made = shared.request("POST", "/jobs?wait=20", json.dumps({"op": "matmul", "inputs": {"a": np.random.default_rng(1).random((side, 1)).tolist(), "b": [[1.5] * side]}}).encode(),
                          {"Content-Type": "application/json", "Authorization": f"Bearer {shared.secrets[0]}", "Prefer": "respond-async"})
    path = made.json()["id"]
    kind = "application/x-npy" if output == "npy" else "application/json"
    with contextlib.ExitStack() as stack:
        socks = [send(stack, shared, f"GET /jobs/{path}/outputs/c", f"Accept: {kind}\r\n\r\n".encode()) for _ in range(300)]
        wait_for(lambda: held(shared) > LIMIT // 2)
        assert 0 < held(shared) <= LIMIT
        others_work(shared)
        heads = [sock.recv(300) for sock in socks]
        refused = [head for head in heads if b" 503 " in head.split(b"\r\n")[0]]
        assert all(b" 200 " in head.split(b"\r\n")[0] or head in refused for head in heads), heads[:2]
        assert refused
    wait_for(lambda: held(shared) == 0)
    others_work(shared)


def test_clients_without_keys_leave_room_for_monitoring(make_service):
    service = make_service("--limit", f"memory_bytes={LIMIT}", "--limit", "json_bytes=32M")
    service.secrets = ["none"]
    head, body = BODIES["jobs"]
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            send(stack, service, head, body)
        wait_for(lambda: settled(service) > LIMIT // 2)
        assert held(service) <= LIMIT * 3 // 4 + MIB
        assert service.request("GET", "/load").status == service.request("GET", "/health/ready").status == 200


def test_a_tenant_cannot_take_the_room_of_monitoring(shared):
    """Answers to routes that any key may call count as the tenant's, too."""
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            send(stack, shared, *BODIES["jobs"])
        wait_for(lambda: settled(shared) > LIMIT // 2)
        for _ in range(2000):
            send(stack, shared, "GET /ops", b"\r\n")
        time.sleep(1)
        assert held(shared) <= LIMIT * 3 // 4 + MIB
        others_work(shared)
