"""What the log says of jobs that were refused, failed or cancelled: one line each, with what finds them again, and no more."""
import http.client
import json
import re
import socket
import time

import numpy as np
from service import TYPES

LINE = re.compile(r"^\S+ blasd (\w+)\[\d+\] info: job (\w+): (.*)$", re.M)


def lines(service, what=None):
    text = (service.folder / "log").read_text()
    found = [(part, kind, dict(pair.split("=", 1) for pair in rest.split())) for part, kind, rest in LINE.findall(text)]
    return [fields for part, kind, fields in found if what in (None, kind)]


def wait_for(service, what, count):
    end = time.monotonic() + 20
    while len(lines(service, what)) < count and time.monotonic() < end:
        time.sleep(0.05)
    assert len(lines(service, what)) == count, lines(service)
    return lines(service, what)


def ask(service, body, headers=None, path="/jobs"):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.request("POST", path, body, {"Content-Type": TYPES["json"], **(headers or {})})
    here = "%s:%d" % connection.sock.getsockname()
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer, here


def test_what_no_worker_ended_is_logged_once(make_service):
    """A deadline that passes in the queue, waited for and not; a job that ended every worker that began it."""
    service = make_service("--limit", "attempts=1")
    small = {"a": np.eye(2), "b": np.eye(2)}
    with service.worker_held():
        alone = service.post("matmul", small, wait=0, deadline_ms=100).json()["id"]
        waited = service.post("matmul", small, wait=30, deadline_ms=200).json()
        assert waited["state"] == "expired"
        found = wait_for(service, "expired", 2)
    assert {f["id"] for f in found} == {alone, waited["id"]}
    assert all((f["code"], f["op"]) == ("deadline_exceeded", "matmul") for f in found)
    a = np.random.default_rng(1).standard_normal((5000, 5000))
    job = service.post("matmul", {"a": a, "b": a}, wait=0, form="safetensors").json()["id"]
    end = time.monotonic() + 60
    while service.request("GET", f"/jobs/{job}").json()["state"] != "running" and time.monotonic() < end:
        time.sleep(0.02)
    service.kill("worker")
    found = wait_for(service, "failed", 1)[0]
    assert (found["id"], found["code"], found["op"]) == (job, "poisoned", "matmul")
    assert len(lines(service, "expired")) == 2


def test_refused_failed_and_cancelled(make_service):
    service = make_service()
    secret = {"Idempotency-Key": "hunter2-key", "Authorization": "Bearer hunter2", "Cookie": "hunter2"}
    cases = [
        ('{"op":"matmul","inputs":{"a":[[1,2]],"b":[[1,2]]}}', {}, "/jobs", 422, "shape_mismatch", "matmul"),
        ('{"op":"hunter2\\nx","inputs":{"a":[[1,2]]}}', {}, "/jobs", 422, "unknown_operation", "-"),
        ("hunter2", {}, "/jobs", 400, "malformed_json", "-"),
        ("{}", {"Origin": "http://hunter2.example"}, "/jobs", 403, "forbidden_origin", "-"),
        ("{}", {}, "/jobs?hunter2=1", 400, "malformed_query", "-"),
    ]
    for number, (body, headers, path, status, code, op) in enumerate(cases, 1):
        answer, here = ask(service, body, {**secret, **headers}, path)
        assert answer.status == status
        fields = wait_for(service, "refused", number)[-1]
        tenant = "-" if code == "forbidden_origin" else "anonymous"  # refused before anybody asks who it is
        assert fields == {"id": answer.headers["Request-Id"], "code": code, "status": str(status), "op": op, "tenant": tenant,
                          "key": "-", "client": here}
    job = service.post("solve", {"a": np.zeros((2, 2)), "b": np.ones(2)}).json()
    assert job["state"] == "failed"
    fields = wait_for(service, "failed", 1)[0]
    assert (fields["id"], fields["code"], fields["op"]) == (job["id"], "singular_matrix", "solve")
    with service.worker_held():
        first, second = (service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}, wait=0).json()["id"] for _ in range(2))
        service.request("DELETE", f"/jobs/{second}")
        assert wait_for(service, "cancelled", 1)[0]["id"] == second
    assert service.request("GET", f"/jobs/{first}?wait=20").json()["state"] == "succeeded"
    assert len(lines(service)) == len(cases) + 2, "a job that succeeded has no line"
    assert "hunter2" not in (service.folder / "log").read_text()


def test_a_flood_of_refusals_is_counted_and_not_written(make_service):
    service = make_service("--limit", "log_jobs=3")
    count, many = 2000, 200
    request = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"
    for _ in range(count // many):
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as sock:
            sock.sendall(request * many)
            got = b""
            while got.count(b"HTTP/1.1 400") < many:
                got += sock.recv(65536)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        text = (service.folder / "log").read_text()
        left_out = sum(int(n) for n in re.findall(r" (\d+) lines about jobs were left out", text))
        if left_out + len(lines(service, "refused")) == count:
            break
        time.sleep(0.1)
    assert left_out + len(lines(service, "refused")) == count
    assert left_out > 0 and len(text) < 200 * count
    assert json.loads(service.request("GET", "/health/live").body)["status"] == "live"


def test_with_audit_each_job_has_a_line(make_service):
    """All of them, however many; a repeated key says so."""
    service = make_service("--audit", "--limit", "log_jobs=1")
    ids = [service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}, wait=wait).json()["id"] for wait in (0, 20) * 25]
    body = '{"op":"solve","inputs":{"a":[[2]],"b":[4]}}'
    for path in ("/jobs", "/jobs?wait=20", "/jobs"):
        ask(service, body, {"Idempotency-Key": "one"}, path)
    accepted = wait_for(service, "accepted", 51)
    assert [fields["id"] for fields in accepted[:50]] == ids
    assert {(fields["op"], fields["client"].split(":")[0]) for fields in accepted[:50]} == {("matmul", "127.0.0.1")}
    assert accepted[50]["op"] == "solve"
    assert [fields["id"] for fields in wait_for(service, "repeated", 2)] == [accepted[50]["id"]] * 2
