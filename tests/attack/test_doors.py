"""Ways around: paths that climb, names that are rebound, ids of others, files that are not there to be read."""
import socket

import numpy as np
import pytest
from service import TYPES

CLIMBS = ["/../etc/passwd", "/jobs/../../etc/passwd", "/jobs/%2e%2e/%2e%2e/etc/passwd", "/jobs/..%2f..%2fetc%2fpasswd",
          "/jobs/%252e%252e", "//etc/passwd", "/jobs//", "/./jobs/.", "/jobs/..;/", "/jobs/..%00", "/jobs/%c0%ae%c0%ae/x",
          "/jobs/\\..\\..", "/jobs/" + "../" * 200, "/jobs/" + "%2e%2e%2f" * 200, "/ops/../openapi.json", "/share/../jobs",
          "/jobs/{id}/../{id}", "/jobs/{id}/outputs/../../../x", "/jobs/{id}/outputs/..%2f..%2f{id}.in",
          "/jobs/{id}/outputs/c%00.out", "/jobs/{id}/outputs/c/", "/jobs/{id}%20", "/jobs/{id}.out", "/jobs/ {id}"]


def ask(service, head, host=b"localhost"):
    """The status of the answer to a head as it stands, or 0: closed without one."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as sock:
        sock.sendall(head + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
        answer = b""
        try:
            while piece := sock.recv(65536):
                answer += piece
        except ConnectionError:
            pass
    assert b"root:" not in answer
    return int(answer.split()[1]) if answer else 0


@pytest.mark.parametrize("path", CLIMBS)
def test_no_path_leads_elsewhere(service, path):
    job = service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}).json()["id"]
    for method in (b"GET", b"DELETE", b"POST"):
        assert ask(service, method + b" " + path.replace("{id}", job).encode()) in (0, 400, 404, 405)
    assert service.request("GET", f"/jobs/{job}").status == 200


HOSTS = [b"evil.example", b"evil.example:80", b"localhost.evil.example", b"evil-localhost", b"localhostx", b"127.0.0.1.evil.example",
         b"127.0.0.1.nip.io", b"0x7f000001.example", b"localhost@evil.example", b"evil.example#localhost", b"evil.example/localhost",
         b"localhost:80@evil.example", b"[::1].evil.example", b"[::1", b"::1]", b"localhost:x", b"localhost:80:80", b"localhost\\evil",
         b"evil.example\tlocalhost", b"a" * 300, b"", b".", b"localhost\0.evil", b"xn--localhost", b"LOCALHOST.EVIL.EXAMPLE"]


@pytest.mark.parametrize("host", HOSTS, ids=range(len(HOSTS)))
def test_a_name_that_was_rebound_reads_nothing(service, host):
    """A page that had its own name point here comes with that name."""
    for method in (b"GET /jobs", b"GET /metrics", b"POST /jobs", b"DELETE /jobs/x", b"GET /openapi.json"):
        assert ask(service, method, host) in (0, 400, 403, 421)


@pytest.mark.parametrize("host", [b"localhost", b"LocalHost:1234", b"127.0.0.1", b"[::1]:8080", b"localhost."])
def test_names_of_this_machine_are_its_own(service, host):
    assert ask(service, b"GET /ops", host) == 200


ORIGINS = ["http://evil.example", "null", "file://", "http://localhost.evil.example", "https://127.0.0.1.evil.example",
           "http://localhost:1", "chrome-extension://x", "http://", "x", "", "http://evil.example http://localhost"]


@pytest.mark.parametrize("origin", ORIGINS)
def test_pages_of_other_origins_send_nothing(service, origin):
    body = '{"op":"matmul","inputs":{"a":[[1]],"b":[[2]]}}'
    for kind in (TYPES["json"], "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = service.request("POST", "/jobs", body, {"Content-Type": kind, "Origin": origin}, check=False)
        assert answer.status in (403, 415), (origin, kind, answer.status)


def test_ids_cannot_be_made_up(service, scale):
    """An id is signed: nobody comes by another's by counting on from his own."""
    mine = service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}).json()["id"]
    for at in range(1, len(mine)):
        for digit in "0123456789abcdef"[:4 * min(scale, 4)]:
            if digit == mine[at]:
                continue
            other = mine[:at] + digit + mine[at + 1:]
            for path in (f"/jobs/{other}", f"/jobs/{other}/result", f"/jobs/{other}/outputs/c"):
                assert service.request("GET", path, check=False).status in (404, 410)
            assert service.request("DELETE", f"/jobs/{other}?forget=1", check=False).status in (404, 410)
    assert service.request("GET", f"/jobs/{mine}").status == 200
