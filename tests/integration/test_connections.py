"""How connections come in: whatever their first bytes look like and however slowly they come, every request is served.

How much memory a connection has, and in how many pieces a body so comes, may not show in an answer.
"""
import concurrent.futures
import contextlib
import json
import re
import socket
import threading
import time

import numpy as np
import pytest
from service import TYPES, npy, safetensors, wait_for

SIDE = 600  # two of them in float32: 2.9 MB


def small():
    body = json.dumps({"op": "matmul", "inputs": {"a": [[2]], "b": [[3]]}}).encode()
    return head(TYPES["json"], len(body)) + body, lambda answer: json.loads(answer)["outputs"]["c"]["data"] == [[6.0]]


def large(seed, accept="npy"):
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-4, 5, (SIDE, SIDE)).astype(np.float32) for _ in "ab")
    body = safetensors({"a": a, "b": b}, op="matmul")
    return head(TYPES["safetensors"], len(body), accept) + body, lambda answer: answer == npy(a @ b)


def head(kind, length, accept="json"):
    return (f"POST /jobs?wait=60 HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
            f"Accept: {TYPES[accept]}\r\ncontent-length: {length}\r\n\r\n").encode()


def connect(service):
    return socket.create_connection(("127.0.0.1", service.port), timeout=120)


def answer_of(sock):
    """(status, body) of the next answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        assert piece, f"closed after {data[:200]!r}"
        data += piece
    start, _, body = data.partition(b"\r\n\r\n")
    length = int(re.search(rb"(?i)\r\ncontent-length: (\d+)", start + b"\r\n").group(1))
    while len(body) < length:
        piece = sock.recv(1 << 20)
        assert piece, "closed in the middle of a body"
        body += piece
    assert len(body) == length, "more than one answer"
    return int(start.split()[1]), body


def served(sock, request):
    sock.sendall(request[0])
    status, body = answer_of(sock)
    assert status == 200, body[:500]
    assert request[1](body), body[:300]


def test_one_connection_may_change_its_habits(service):
    with connect(service) as sock:
        for request in (large(1), small(), large(2), small(), small()):
            served(sock, request)
    with connect(service) as sock:
        for request in (small(), large(3), small(), large(4)):
            served(sock, request)


def test_who_begins_small_may_send_a_long_head_later(service):
    bytes_, check = small()
    start, body = bytes_.split(b"\r\n\r\n", 1)
    with connect(service) as sock:
        served(sock, (bytes_, check))
        served(sock, (start + b"\r\nX-Long: " + b"x" * 11000 + b"\r\n\r\n" + body, check))
        served(sock, (bytes_, check))


def filled(length, seed):
    """A request of that many bytes, head and body, and its check."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-4, 5, (length // 5, 1)).astype(np.float32), rng.integers(1, 5, (1, 1)).astype(np.float32)
    body = safetensors({"a": a, "b": b}, op="matmul")
    start = head(TYPES["safetensors"], len(body), "npy")
    pad = length - len(start) - len(body) - len("X-Pad: \r\n")
    return (start[:-2] + b"X-Pad: " + b"x" * pad + b"\r\n\r\n" + body, lambda answer: answer == npy(a * b[0, 0]))


# half of a connection's memory, and an eighth of what is left more: what may be received at once
RECEIVED = [8 << 10, 9 << 10, 16 << 10, 18 << 10, 32 << 10, 34 << 10, 36 << 10, 54 << 10]


@pytest.mark.parametrize("length", RECEIVED)
def test_requests_about_as_long_as_what_is_received_at_once(service, length):
    """By themselves, and one behind the other, where the next one's first bytes come with the last of the one before."""
    for more in (-2, -1, 0, 1, 2):
        requests = [filled(length + more, length + more), small(), filled(length - more, length), small()]
        assert len(requests[0][0]) == length + more
        with connect(service) as sock:
            for request in requests:
                served(sock, request)
            sock.sendall(b"".join(bytes_ for bytes_, _ in requests))
            with sock.makefile("rb") as stream:
                for _, check in requests:
                    start = b"".join(iter(stream.readline, b"\r\n"))
                    body = stream.read(int(re.search(rb"(?i)\r\ncontent-length: (\d+)", start).group(1)))
                    assert start.split()[1] == b"200" and check(body), start + body[:300]


def test_short_bodies_on_every_kind_of_connection_at_once(service):
    """With half of a body sent and the rest to come later, and with nothing else that would wake the loop."""

    def talk(number):
        first = [small(), filled(33000, number), large(number)][number % 3]
        with connect(service) as sock:
            served(sock, first)
            for i in range(12):
                bytes_, check = filled(20000 + 4000 * i, i)
                if i % 4 == 0:
                    cut = len(bytes_) - 1 - i * 1000
                    sock.sendall(bytes_[:cut])
                    time.sleep(0.02)
                    bytes_ = bytes_[cut:]
                served(sock, (bytes_, check))

    talk(2)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        list(pool.map(talk, range(12)))


def test_connections_may_have_much_memory(make_service):
    service = make_service("--limit", "connection_bytes=1M")
    with connect(service) as sock:
        for request in (small(), large(20), small()):
            served(sock, request)


@pytest.mark.parametrize("silence", [0.05, 1.6])
def test_who_is_silent_at_first_is_served_like_anybody(service, silence):
    with connect(service) as one, connect(service) as other:
        time.sleep(silence)  # the longer one: beyond what is waited for the first bytes
        served(one, large(5))
        served(other, small())


def test_a_head_may_come_in_drops(service):
    bytes_, check = large(6)
    with connect(service) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(40):
            sock.sendall(bytes_[at:at + 1])
            time.sleep(0.002)
        served(sock, (bytes_[40:], check))


def test_a_body_may_come_after_its_head_and_in_pieces(service):
    bytes_, check = large(7)
    end = bytes_.index(b"\r\n\r\n") + 4
    with connect(service) as sock:
        sock.sendall(bytes_[:end])
        for at in range(end, len(bytes_) - 700000, 700000):
            time.sleep(0.03)
            sock.sendall(bytes_[at:at + 700000])
            end = at + 700000
        time.sleep(0.4)
        served(sock, (bytes_[end:], check))


def test_more_large_bodies_at_once_than_get_more_memory(make_service):
    """80 connections that all announce a large body; small requests are answered while they hold back their bodies."""
    service = make_service()
    requests = [large(number) for number in range(4)]
    cuts = [len(bytes_) - 1000 for bytes_, _ in requests]
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connect(service)) for _ in range(80)]
        for number, sock in enumerate(socks):
            sock.sendall(requests[number % 4][0][:cuts[number % 4]])
        with connect(service) as sock:
            served(sock, small())
        for number, sock in enumerate(socks):
            sock.sendall(requests[number % 4][0][cuts[number % 4]:])
        for number, sock in enumerate(socks):
            status, body = answer_of(sock)
            assert status == 200 and requests[number % 4][1](body), (number, body[:300])


def test_a_client_that_leaves_before_its_first_byte_or_in_mid_body_costs_nothing(make_service):
    service = make_service()
    bytes_, _ = large(8)
    for number in range(60):
        sock = connect(service)
        if number % 3 == 1:
            sock.sendall(bytes_[:900])
        if number % 3 == 2:
            sock.sendall(bytes_[:1500000])
        sock.close()
    with connect(service) as sock:
        served(sock, large(9))
        served(sock, small())
    deadline = time.monotonic() + 30
    while True:  # the one that asks
        text = service.request("GET", "/metrics").body.decode()
        if re.search(r"^blasd_http_connections 1$", text, re.M):
            break
        assert time.monotonic() < deadline, re.search(r"^blasd_http_connections .*$", text, re.M)
        time.sleep(0.1)


def test_a_reset_while_the_job_waits_takes_it_along(make_service):
    service = make_service()
    with service.worker_held():
        sock = connect(service)
        sock.sendall(small()[0])
        wait_for(lambda: service.request("GET", "/jobs?state=queued").json()["jobs"], "the job is queued")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        sock.close()
        wait_for(lambda: service.request("GET", "/jobs?state=cancelled").json()["jobs"], "the job is cancelled")
    with connect(service) as sock:
        served(sock, small())


@pytest.mark.parametrize("held", [0, 0.7])
def test_an_answer_may_take_longer_than_most(make_service, held):
    """All of the ways to wait for one: briefly, and for long; more of them at a time than may wait in the brief way."""
    service = make_service()
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connect(service)) for _ in range(1200)]
        with service.worker_held():
            for sock in socks:
                sock.sendall(small()[0])
            time.sleep(held)
        for sock in socks:
            status, body = answer_of(sock)
            assert status == 200 and small()[1](body), body[:300]
        for sock in socks[::100]:
            served(sock, small())


def test_large_bodies_and_results_pass_while_others_wait(service):
    stop = threading.Event()

    def keep_sending():
        with connect(service) as sock:
            while not stop.is_set():
                served(sock, small())

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(keep_sending) for _ in range(8)]
        try:
            with connect(service) as sock:
                for seed in range(4):
                    served(sock, large(seed))
                    served(sock, small())
        finally:
            stop.set()
        for each in waiting:
            each.result()


def test_beyond_the_limit_the_address_with_most_gives_way(make_service):
    """Connections that have only begun a request count, too, and go first. The address itself gets no more."""
    service = make_service("--limit", "connections=16", "--limit", "connections_per_address=16")
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(connect(service)).sendall(b"P")
        with connect(service) as late:
            late.sendall(small()[0])
            assert late.recv(100).startswith(b"HTTP/1.1 503 ")
        for number in range(6):
            other = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=60, source_address=("127.0.0.9", 0)))
            served(other, small())


def test_connections_may_have_little_memory(make_service):
    service = make_service("--limit", "connection_bytes=4K")
    with connect(service) as sock:
        for request in (large(10), small(), large(11)):
            served(sock, request)


def test_the_service_ends_in_time_beside_silent_connections(make_service):
    service = make_service()
    bytes_, _ = large(12)
    with connect(service), connect(service) as begun, connect(service) as quiet:
        begun.sendall(bytes_[:2000])
        time.sleep(1.3)
        with connect(service):
            assert service.stop() == 0
        assert quiet.recv(10) == b""
