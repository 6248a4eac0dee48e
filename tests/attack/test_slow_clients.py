"""Requests that come in drops are ended with an answer that says so, ones that only take their time are not, and what is
refused in mid-body is counted like any other answer."""
import json
import os
import re
import signal
import socket
import time

import numpy as np

BODY = json.dumps({"op": "matmul", "inputs": {"a": [[1, 2]], "b": [[3], [4]]}}).encode()


def head(length, more=b""):
    return (b"POST /jobs?wait=20 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + more +
            (b"Content-Length: %d\r\n\r\n" % length if length is not None else b"\r\n"))


def connect(service):
    sock = socket.create_connection(("127.0.0.1", service.port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def drip(sock, data, seconds):
    """Sends a byte every `seconds` until an answer comes or there are no more. -> the answer, up to the closing."""
    sock.settimeout(seconds)
    answer = b""
    for at in range(len(data)):
        try:
            sock.sendall(data[at:at + 1])
            answer = sock.recv(65536)
            break
        except socket.timeout:
            continue
    sock.settimeout(60)
    try:
        while (piece := sock.recv(65536)):
            answer += piece
    except ConnectionError:  # closed with a byte of ours unread
        pass
    return answer


def problem(answer):
    start, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Type: application/problem+json" in start, answer
    return int(start.split()[1]), json.loads(body)


def answers(service, route, status):
    text = service.request("GET", "/metrics").body.decode()
    found = re.search(rf'^blasd_http_requests_total\{{route="{route}",method="\w+",status="{status}"\}} (\d+)$', text, re.M)
    return int(found.group(1)) if found else 0


def works(service):
    answer = service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}, wait=20)
    assert answer.json()["state"] == "succeeded", answer.body


def test_a_body_in_drops_is_ended(make_service):
    service = make_service("--limit", "request_s=1", "--limit", "request_rate=1M")
    with connect(service) as sock:
        sock.sendall(head(10000))
        status, document = problem(drip(sock, b" " * 1000, 0.1))
    assert (status, document["code"], document["retry"]) == (408, "request_timeout", True)
    assert "request_s" in document["detail"]
    assert answers(service, "/jobs", 408) == 1
    works(service)


def test_a_head_in_drops_is_ended(make_service):
    service = make_service("--limit", "request_s=1", "--limit", "connection_idle_s=1")
    with connect(service) as sock:
        sock.sendall(b"GET /ops HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        status, document = problem(drip(sock, b"x" * 1000, 0.1))
    assert (status, document["code"]) == (408, "request_timeout")
    assert answers(service, "none", 408) == 1
    works(service)


def test_a_head_in_drops_after_an_answer_is_ended(make_service):
    service = make_service("--limit", "request_s=1", "--limit", "connection_idle_s=1")
    with connect(service) as sock:
        sock.sendall(head(len(BODY)) + BODY)
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert problem(drip(sock, b"GET /" + b"x" * 1000, 0.1))[0] == 408


def test_who_is_fast_enough_may_take_longer(make_service):
    service = make_service("--limit", "request_s=1", "--limit", "request_rate=1K")
    data = BODY + b" " * 30000
    with connect(service) as sock:
        sock.sendall(head(len(data)))
        for at in range(0, len(data), 3000):
            sock.sendall(data[at:at + 3000])
            time.sleep(0.25)
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_wait_and_a_pause_between_requests_are_no_slowness(make_service):
    service = make_service("--limit", "request_s=1")
    worker = service.part("worker")
    with connect(service) as sock:
        os.kill(worker, signal.SIGSTOP)
        try:
            sock.sendall(head(len(BODY)).replace(b"wait=20", b"wait=3") + BODY)
            assert sock.recv(65536).startswith(b"HTTP/1.1 202 ")
        finally:
            os.kill(worker, signal.SIGCONT)
        time.sleep(2.5)
        sock.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_refusal_in_mid_body_is_counted(make_service):
    service = make_service("--limit", "json_bytes=64K")
    piece = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    with connect(service) as sock:
        sock.sendall(head(None, b"Transfer-Encoding: chunked\r\n"))
        try:
            for _ in range(100):
                sock.sendall(piece)
        except ConnectionError:
            pass
        assert sock.recv(65536).startswith(b"HTTP/1.1 413 ")
    assert answers(service, "/jobs", 413) == 1
    works(service)
