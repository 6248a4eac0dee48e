"""What the log says of jobs that were refused, failed or cancelled: one line each, with what finds them again, and no more."""
import http.client
import json
import re
import socket
import subprocess
import time

import numpy as np
from event_stream import EventStream
from service import BLASD, TYPES
from service import wait_for as service_wait_for
from test_traces import collector  # noqa: F401  (a fixture)

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
    answer.text = answer.read().decode(errors="replace")
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


ACCESS = re.compile(r"^\S+ blasd api\[\d+\] info: request: (.*)$", re.M)


def access_lines(service, count):
    end = time.monotonic() + 20
    while len(found := ACCESS.findall((service.folder / "log").read_text())) < count and time.monotonic() < end:
        time.sleep(0.05)
    return [dict(pair.split("=", 1) for pair in line.split()) for line in found]


def test_an_access_log_has_each_request(make_service):
    service = make_service("--access-log", "--limit", "log_jobs=0")
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    body = '{"op":"solve","inputs":{"a":[[2]],"b":[4]}}'
    job = service.request("POST", "/jobs?wait=20", body, {"Content-Type": TYPES["json"], "traceparent": f"00-{trace}-00f067aa0ba902b7-00"}).json()
    service.request("GET", f"/jobs/{job['id']}")
    service.request("GET", "/hunter2?hunter2=1")
    service.request("POST", "/jobs", "hunter2", {"Content-Type": TYPES["json"]})
    service.request("POST", "/jobs", b"x" * 100, {"Content-Type": TYPES["json"], "Content-Length": str(1 << 45)}, check=False)
    lines = [line for line in access_lines(service, 5) if line["route"] != "/health/ready"]
    assert [(line["method"], line["route"], line["status"], line.get("code")) for line in lines] == [
        ("POST", "/jobs", "200", None), ("GET", "/jobs/{id}", "200", None), ("GET", "-", "404", "route_not_found"),
        ("POST", "/jobs", "400", "malformed_json"), ("POST", "/jobs", "413", "body_too_large")]
    assert (lines[0]["id"], lines[0]["trace_id"], lines[0]["received"], lines[1]["id"]) == (job["id"], trace, str(len(body)), job["id"])
    assert all(float(line["ms"]) >= 0 and line["client"].startswith("127.0.0.1:") for line in lines)
    assert "hunter2" not in (service.folder / "log").read_text()


def test_lines_in_json(make_service):
    """Every line of every part, at every level."""
    service = make_service("--log", "json", "--log-level", "debug", "--access-log", "--audit")
    job = service.post("solve", {"a": np.zeros((2, 2)), "b": np.ones(2)}).json()
    service.request("POST", "/jobs", '{"op":"hunter2\\u0000\\""}', {"Content-Type": TYPES["json"]})
    service_wait_for(lambda: '"job failed"' in service.log_text())  # the worker says so behind the answer
    service.kill("worker")
    service.wait_ready()
    assert service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}).json()["state"] == "succeeded"
    service.stop()
    lines = [json.loads(line) for line in (service.folder / "log").read_text().splitlines() if not line[:1].isdigit()]
    assert all(set(line) >= {"time", "level", "process", "pid", "message"} for line in lines)
    assert {line["process"] for line in lines} == {"blasd up", "blasd api", "blasd worker"}
    assert {line["level"] for line in lines} >= {"info", "debug"}
    failed = [line for line in lines if line["message"] == "job failed"]
    assert [(line["id"], line["code"], line["attempts"]) for line in failed] == [(job["id"], "singular_matrix", 1)]
    assert [line["op"] for line in lines if line["message"] == "job accepted"] == ["solve", "matmul"]
    assert {line["status"] for line in lines if line["message"] == "request"} >= {200, 400}
    assert not re.search(r"^\d{4}-\d\d-\d\dT", (service.folder / "log").read_text(), re.M), "a line of ours that is none"


def test_no_secret_stands_in_a_log(make_service, collector, tmp_path):  # noqa: F811
    """Keys, passwords, tokens and what clients wrote, at the level that says most; nor do keys stand in answers, events and spans."""
    secrets = {"idem": "hunter2-idempotency", "cookie": "hunter2-cookie", "basic": "aHVudGVyMjpodW50ZXIy", "query": "hunter2-query",
               "header": "hunter2-otlp", "env": "hunter2-environment", "signed": "hunter2-signature"}
    keys = tmp_path / "keys"
    (tmp_path / "headers").write_text(f"Authorization: Bearer {secrets['header']}\n")
    from service import BLASD
    import subprocess
    made = [subprocess.run([BLASD, "keys", "add", name, "--role", role, "--file", keys], capture_output=True, text=True, check=True).stdout.strip()
            for name, role in (("one", "user"), ("watch", "metrics"))]
    for form in ("text", "json"):
        service = make_service("--keys", str(keys), "--log", form, "--log-level", "debug", "--access-log", "--audit", "--otlp", collector.url,
                               "--otlp-sample", "1", "--otlp-headers", str(tmp_path / "headers"),
                               env={"BLASD_OTLP_HEADERS": f"x-key={secrets['env']}"})
        stream, answers = EventStream(service, headers={"Authorization": f"Bearer {made[0]}"}), []
        signed = {"url": f"https://store.example/a.npy?X-Amz-Signature={secrets['signed']}"}
        answers.append(ask(service, json.dumps({"op": "solve", "inputs": {"a": signed, "b": [4]}}), {"Authorization": f"Bearer {made[0]}"})[0])
        late = json.dumps({"op": "solve", "inputs": {"a": [[2]], "b": [4]}, "deadline_ms": 1})
        ask(service, late, {"Authorization": f"Bearer {made[0]}", "Idempotency-Key": secrets["idem"] + "-late"})
        for authorization in (f"Bearer {made[0]}", f"Bearer {made[1]}", f"Bearer {made[0]}x", f"Basic {secrets['basic']}", "Bearer hunter2"):
            for path in ("/jobs?wait=20", f"/jobs?{secrets['query']}=1", f"/{secrets['query']}"):
                answers.append(ask(service, '{"op":"solve","inputs":{"a":[[2]],"b":[4]}}',
                                   {"Authorization": authorization, "Cookie": secrets["cookie"], "Idempotency-Key": secrets["idem"]}, path)[0])
        told = stream.take(lambda event: event.kind == "job" and event.data["state"] == "succeeded").data
        service.stop()
        text = json.dumps([told, [event.data for event in stream.seen]]) + "".join(str(answer.msg) + answer.text for answer in answers)
        text += "".join(body.decode() for body in collector.bodies)
        assert "job solve" in text and "succeeded" in text
        for secret in [*made, *(secrets[name] for name in ("cookie", "basic", "header", "env"))]:
            assert secret not in text, (form, secret)
        log = (service.folder / "log").read_text()
        assert log.count("job accepted") + log.count("job repeated") >= 1
        for secret in [*secrets.values(), *made, *(part for key in made for part in re.split(r"[._-]", key) if len(part) > 16), "hunter2"]:
            assert secret not in log, (form, secret)
