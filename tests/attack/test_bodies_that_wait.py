"""Bodies that begin and do not go on: on every route their text counts against the memory of requests."""
import contextlib
import socket

import pytest
from service import Service, wait_for

MIB = 1 << 20


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    one = Service(tmp_path_factory.mktemp("narrow"), "--limit", "memory_bytes=13M").start()
    yield one
    one.stop()


def begin(stack, service, path, framing, first):
    """A request whose body has begun."""
    sock = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=60))
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{framing}\r\n\r\n"
    sock.sendall(head.encode() + first)
    return sock


TEXT = b"[1" + b",1" * (3 * MIB // 2) + b"]"


def used(service):
    return service.metrics()["blasd_http_memory_bytes"]


BEGINS = {"/jobs": b'{"op":"matmul","inputs":{"a":[', "/graphs": b'{"steps":{"s":{"op":"matmul","inputs":{"a":[', "/tensors": b"["}


@pytest.mark.parametrize("path", BEGINS)
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_they_are_counted(narrow, path, chunked):
    piece = BEGINS[path] + b"1," * (3 * MIB // 2)
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {4 * MIB}"
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            begin(stack, narrow, path, framing, b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        wait_for(lambda: used(narrow) >= 6 * MIB)
        answer = narrow.request("POST", "/tensors", TEXT, {"Content-Type": "application/json"})
        assert (answer.status, answer.json()["code"]) == (503, "no_space") and answer.headers["Retry-After"], answer.body
    wait_for(lambda: used(narrow) == 0)
    answer = narrow.request("POST", "/tensors", TEXT, {"Content-Type": "application/json"})
    assert answer.status == 201, answer.body
