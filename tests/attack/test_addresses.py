"""One address has so many connections: further ones are told, and others do not notice."""
import contextlib
import json
import socket
import time

import pytest

ASK = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"


def connect(service, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", service.port), timeout=60, source_address=(source, 0))


def answer(sock, send=True):
    """What comes until the end; a request that is refused may never be read."""
    out = b""
    with sock, contextlib.suppress(ConnectionError):
        if send:
            sock.sendall(ASK + b"Connection: close\r\n\r\n")
        while piece := sock.recv(65536):
            out += piece
    return out


def lives(service, source="127.0.0.1"):
    return answer(connect(service, source)).startswith(b"HTTP/1.1 200 ")


def wait_until_full(service):
    """The kernel keeps silent connections for a second or two. None of ours may hold a place as they come."""
    time.sleep(3)
    end = time.monotonic() + 60
    while lives(service):
        assert time.monotonic() < end
        time.sleep(0.1)


def refused(out):
    head, _, body = out.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ") and b"\r\nRetry-After: " in head and b"\r\nConnection: close" in head, out
    problem = json.loads(body)
    assert problem["code"] == "too_many_connections" and "connections_per_address" in problem["detail"], problem


@pytest.mark.parametrize("habit", ["silent", "begun", "served", "mixed"])
def test_connections_of_one_address(make_service, habit):
    service = make_service("--limit", "connections_per_address=8")
    with contextlib.ExitStack() as stack:
        mine = [stack.enter_context(connect(service)) for _ in range(8)]
        for number, sock in enumerate(mine):
            if habit == "begun" or (habit == "mixed" and number % 3 == 1):
                sock.sendall(ASK)
            if habit == "served" or (habit == "mixed" and number % 3 == 2):
                sock.sendall(ASK + b"\r\n")
                assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
        wait_until_full(service)
        for _ in range(20):
            refused(answer(connect(service)))
        for _ in range(2):
            refused(answer(connect(service), send=False))
        assert lives(service, "127.0.0.2") and lives(service, "127.1.2.3")
        if habit == "silent":  # once they have been silent for long enough to be nobody's pending connections
            time.sleep(2)
            refused(answer(connect(service)))
            assert lives(service, "127.0.0.2")
        for sock in mine[:4]:
            sock.close()
        end = time.monotonic() + 20
        while not lives(service) and time.monotonic() < end:
            time.sleep(0.05)
        assert lives(service) and lives(service)
    assert all(lives(service) for _ in range(50)), "connections that have ended count on"


def test_by_itself_one_address_has_half(make_service):
    service = make_service("--limit", "connections=40")
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connect(service))
        wait_until_full(service)
        refused(answer(connect(service)))
        assert lives(service, "127.0.0.2")
