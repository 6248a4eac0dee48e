"""Clients that leave before their request is whole, and addresses that take all connections they get, lock out no other client."""
import contextlib
import re
import resource
import socket
import time

import pytest

LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
POST = b"POST /jobs?wait=5 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
PARTS = {"method": b"GET /he", "head": b"GET /health/live HTTP/1.1\r\nHost: lo", "long head": POST[:-2] + b"X: " + b"x" * 30000,
         "body": POST + b'{"op"', "chunked": POST.replace(b"Content-Length: 5000", b"Transfer-Encoding: chunked") + b"5\r\n{",
         "chunk size": POST.replace(b"Content-Length: 5000", b"Transfer-Encoding: chunked") + b"5",
         "refused": POST.replace(b"/jobs?wait=5", b"/nosuch") + b"{", "nothing": b""}
ENDINGS = ["close", "reset", "half"]


def connect(service, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", service.port), timeout=30, source_address=(source, 0))


def lives(service, source="127.0.0.1"):
    try:
        with connect(service, source) as sock:
            sock.sendall(LIVE)
            return sock.recv(100).startswith(b"HTTP/1.1 200 ")
    except ConnectionError:
        return False


def connections(service):
    return int(re.search(r"^blasd_http_connections (\d+)$", service.request("GET", "/metrics").body.decode(), re.M)[1])


def leave(sock, ending):
    if ending == "reset":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    if ending == "half":
        sock.shutdown(socket.SHUT_WR)
    else:
        sock.close()


@pytest.mark.parametrize("ending", ENDINGS)
def test_whoever_leaves_before_the_request_is_whole_is_dropped(make_service, ending):
    service = make_service("--limit", "connection_idle_s=600", "--limit", "request_s=600")
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            for part in PARTS.values():
                sock = stack.enter_context(connect(service))
                sock.sendall(part)
                leave(sock, ending)
        end = time.monotonic() + 30
        while (left := connections(service)) > 1:
            assert time.monotonic() < end, f"{left} connections are left"
            time.sleep(0.2)


def test_a_whole_request_with_its_end_is_answered(make_service):
    """Half-closed behind the last byte, also of a body that takes several turns to be read."""
    service = make_service()
    for request in (LIVE, b"GET /ops HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3):
        with connect(service) as sock:
            sock.sendall(request)
            sock.shutdown(socket.SHUT_WR)
            assert sock.makefile("rb").read().count(b"HTTP/1.1 200 ") == request.count(b"GET")


def test_addresses_share_connections(make_service):
    """However many addresses take all they get, there is one for the next address."""
    service = make_service("--limit", "connections=120", "--limit", "connection_idle_s=600", "--limit", "request_s=600")
    with contextlib.ExitStack() as stack:
        held = []
        for number in range(8):
            for _ in range(70):
                sock = stack.enter_context(connect(service, f"127.0.1.{number + 1}"))
                with contextlib.suppress(ConnectionError):
                    sock.sendall(b"GET /")
                held.append(sock)
            assert lives(service, f"127.0.2.{number + 1}"), f"{number + 1} addresses have all connections"
        assert service.post("matmul", {"a": [[1.0]], "b": [[1.0]]}, wait=20).json()["state"] == "succeeded"


@pytest.mark.parametrize("leaving", [False, True])
def test_few_descriptors_stop_no_front_end(make_service, leaving):
    service = make_service("--limit", "connection_idle_s=600", "--limit", "request_s=600", start=False)
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    service.program = ["/bin/sh", "-c", 'ulimit -n 96; exec "$@"', "sh", *service.program]
    service.start()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == old
    front = service.part("api")
    with contextlib.ExitStack() as stack:
        for number in range(400):
            sock = stack.enter_context(connect(service, f"127.0.3.{number % 4 + 1}"))
            with contextlib.suppress(ConnectionError):
                sock.sendall(b"GET /he")
            if leaving:
                sock.close()
            if number % 40 == 39:
                assert lives(service, "127.0.4.1"), number
        assert service.post("matmul", {"a": [[1.0]], "b": [[1.0]]}, wait=20).json()["state"] == "succeeded"
    assert service.part("api") == front
