"""Much of what is small: keys, connections, requests, lists. It is bounded, and gone when its time has come."""
import contextlib
import json
import resource
import socket
import time

import numpy as np
import pytest
from service import Redis, TYPES, wait_for

BODY = b'{"op":"matmul","inputs":{"a":[[1]],"b":[[2]]}}'


def post(key, kind=b"application/json"):
    return (b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + kind + b"\r\nIdempotency-Key: " + key +
            b"\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)


def pipelined(service, requests):
    """The statuses of the answers to all of them, sent at once."""
    statuses, data = [], b""
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as sock:
        sock.sendall(b"".join(requests))
        while len(statuses) < len(requests):
            head, found, rest = data.partition(b"\r\n\r\n")
            length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
            if found and len(rest) >= length:
                statuses.append(int(head.split()[1]))
                data = rest[length:]
                continue
            piece = sock.recv(1 << 20)
            assert piece, (len(statuses), data[:300])
            data += piece
    return statuses


def works(service):
    assert service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}).json()["state"] == "succeeded"


def test_idempotency_keys_go_with_their_jobs(make_service, scale):
    """Each is a key in Redis while its job is known, and no longer."""
    service = make_service("--limit", "record_sync_s=1", "--limit", "record_async_s=1")
    redis = Redis(service)

    def keys():
        return len(redis("KEYS", "{blasd}:idem:*"))
    count = 0
    for batch in range(4 * scale):
        statuses = pipelined(service, [post(b"flood-%d-%d" % (batch, i)) for i in range(250)])
        assert set(statuses) <= {202, 429}, set(statuses)
        count += statuses.count(202)
    assert count > 0
    end = time.monotonic() + 120
    while keys() > 0 and time.monotonic() < end:
        time.sleep(0.2)
    assert keys() == 0
    works(service)
    redis.close()


def test_keys_count_among_what_is_kept(make_service):
    """They take room, so they are counted as results are, and new jobs are refused where there is none."""
    service = make_service("--limit", "record_bytes=1M")
    statuses = []
    for batch in range(60):
        statuses += pipelined(service, [post(b"%0120d" % (batch * 100 + i)) for i in range(100)])
        if 429 in statuses:
            break
    assert 429 in statuses and set(statuses) == {202, 429}
    assert Redis(service)("MEMORY", "USAGE", "{blasd}:state") is not None


LONG_KEYS = [b"k" * 5000, b"\xff\xfe", b"a b", b"{blasd}:pending", b"a:b:c", b"*", b'"' + b"q" * 100 + b'"']


@pytest.mark.parametrize("key", LONG_KEYS, ids=range(len(LONG_KEYS)))
def test_a_key_names_only_itself(service, key):
    for _ in range(2):
        assert pipelined(service, [post(key)])[0] in (200, 202, 400, 422, 431)
    works(service)


@pytest.mark.parametrize("habit", [b"", b"GET", b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"])
def test_slow_connections(make_service, habit, scale):
    """Hundreds here, 10,000 with SCALE=34: who comes meanwhile is served, and they leave nothing behind."""
    count = 300 * scale
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most[0], min(most[1], count + 500)), most[1]))
    service = make_service("--limit", "connections=40000", "--limit", "connections_per_address=40000", "--limit", "request_s=5",
                           "--limit", "connection_idle_s=5")
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=60))
            sock.sendall(habit)
        for _ in range(10):
            works(service)
    wait_for(lambda: service.metrics()["blasd_http_connections"] == 1)


def test_lists_of_many_jobs(make_service, scale):
    """A page is a page, whoever asks and however often; every cursor that is made up is refused or empty."""
    service = make_service()
    for batch in range(2 * scale):
        pipelined(service, [post(b"list-%d-%d" % (batch, i)) for i in range(200)])
    for _ in range(20):
        page = service.request("GET", "/jobs?limit=100").json()
        assert len(page["jobs"]) <= 100
    for cursor in ("x", "-1", "9" * 300, "%00", "../..", page.get("cursor", "") + "0", json.dumps({})[1:]):
        assert service.request("GET", f"/jobs?cursor={cursor}", check=False).status in (200, 400)
    for limit in ("0", "-1", "x", "0x10", "99999999999999999999"):
        assert service.request("GET", f"/jobs?limit={limit}", check=False).status == 400
    for limit in ("101", "9223372036854775807"):  # as many as a page has
        assert len(service.request("GET", f"/jobs?limit={limit}").json()["jobs"]) == 100
    works(service)


def test_many_headers_and_cookies(service):
    for count, size in ((100, 10), (1000, 10), (5000, 1), (1, 60000)):
        head = b"GET /ops HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"y" * size) for i in range(count))
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as sock:
            with contextlib.suppress(ConnectionError):
                sock.sendall(head + b"Connection: close\r\n\r\n")
                answer = sock.recv(65536)
                assert answer == b"" or answer.split()[1] in (b"200", b"431", b"400"), answer[:200]
    works(service)


def test_requests_of_no_meaning(service, scale):
    for method in ("TRACE", "CONNECT", "OPTIONS", "PUT", "PATCH", "BREW", "a" * 100):
        answer = service.request(method, "/jobs", b"", check=False)
        assert answer.status in (204, 400, 403, 404, 405, 501), (method, answer.status)
    for _ in range(50 * scale):
        assert service.request("POST", "/jobs", b"", {"Content-Type": TYPES["json"]}).status == 400
    works(service)
