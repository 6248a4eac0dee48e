"""traceparent through the queue, and spans to a collector: one that is well, slow, lies, refuses, is away."""
import collections
import contextlib
import http.server
import json
import re
import socket
import subprocess
import threading
import time

import numpy as np
import pytest
from service import TYPES, wait_for

SMALL = {"a": np.eye(2), "b": np.ones((2, 2))}
BODY = '{"op":"matmul","inputs":{"a":[[1,2],[3,4]],"b":[[1,0],[0,1]]}}'
SPAN = "00f067aa0ba902b7"


def trace(number):
    return f"{number:032x}"


def traceparent(number, sampled=True):
    return {"traceparent": f"00-{trace(number)}-{SPAN}-{'01' if sampled else '00'}"}


class Collector:
    """Takes what is posted to /v1/traces; `answer` may change how."""

    def __init__(self):
        self.bodies, self.headers, self.seen = [], [], 0
        self.answer = lambda handler: (200, b"{}")
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.seen += 1
                collector.headers.append(dict(self.headers))
                assert self.path == "/v1/traces"
                answer = collector.answer(self)
                if answer is None:
                    self.close_connection = True
                    return
                status, reply, *more = answer
                if 200 <= status < 300:
                    collector.bodies.append(body)
                self.send_response(status)
                for name, value in more:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(reply)

            def log_message(self, *args):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self):
        """[(the part that sent it, span)]"""
        found = []
        for body in list(self.bodies):
            for resource in json.loads(body)["resourceSpans"]:
                part = {a["key"]: a["value"]["stringValue"] for a in resource["resource"]["attributes"]}["service.name"]
                found += [(part, span) for scope in resource["scopeSpans"] for span in scope["spans"]]
        return found

    def of(self, number):
        return [span for _, span in self.spans() if span["traceId"] == trace(number)]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def collector():
    one = Collector()
    yield one
    one.close()


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


def ask(service, number, path="/jobs?wait=20", sampled=True, body=BODY, **headers):
    answer = service.request("POST", path, body, {"Content-Type": TYPES["json"], **traceparent(number, sampled), **headers})
    return answer.json()


def counts(service, name="blasd_otlp_spans_total"):
    found = collections.Counter()
    for row, value in service.metrics().items():
        match = re.match(rf'{name}\{{.*outcome="(\w+)"', row)
        if match:
            found[match.group(1)] += value
    return found


def test_the_trace_stands_in_documents_and_log(make_service):
    """Also where no spans are exported; a header that is malformed counts as absent."""
    service = make_service("--audit")
    done = ask(service, 1)
    assert (done["state"], done["trace_id"]) == ("succeeded", trace(1))
    assert service.request("GET", f"/jobs/{done['id']}").json()["trace_id"] == trace(1)
    with service.worker_held():
        queued = ask(service, 2, "/jobs", sampled=False)
        assert (queued["state"], queued["trace_id"]) == ("queued", trace(2))
        late = ask(service, 3, "/jobs?wait=0.2")
        assert (late["state"], late["trace_id"]) == ("queued", trace(3))
    assert service.request("GET", f"/jobs/{queued['id']}?wait=20").json()["trace_id"] == trace(2)
    failed = ask(service, 4, body='{"op":"solve","inputs":{"a":[[0]],"b":[1]}}')
    assert (failed["state"], failed["trace_id"]) == ("failed", trace(4))
    refused = service.request("POST", "/jobs", "{", {"Content-Type": TYPES["json"], **traceparent(5)})
    assert refused.status == 400
    for text in ("", "00-", f"00-{trace(6)}-{SPAN}", f"ff-{trace(6)}-{SPAN}-01", f"00-{trace(0)}-{SPAN}-01"):
        assert "trace_id" not in service.request("POST", "/jobs?wait=20", BODY, {"Content-Type": TYPES["json"], "traceparent": text}).json()
    assert "trace_id" not in service.post("matmul", SMALL).json()
    model = json.dumps({"inputs": [{"name": n, "shape": [1, 1], "datatype": "FP64", "data": [2]} for n in "ab"]})
    assert service.request("POST", "/v2/models/matmul/infer", model, traceparent(7)).status == 200
    graph = {"steps": {"p": {"op": "matmul", "inputs": {"a": [[1]], "b": [[2]]}}}, "results": ["p"]}
    assert ask(service, 8, "/graphs?wait=20", body=json.dumps(graph))["trace_id"] == trace(8)
    log = (service.folder / "log").read_text()
    assert len(re.findall(f"job accepted: .* trace_id={trace(1)}$", log, re.M)) == 1
    assert len(re.findall(f"job failed: .* trace_id={trace(4)}$", log, re.M)) == 1
    assert len(re.findall(f"job refused: .* trace_id={trace(5)}$", log, re.M)) == 1
    assert len(re.findall(f"job accepted: .* trace_id={trace(7)}$", log, re.M)) == 1


def test_a_job_that_redis_ended_has_its_trace(make_service, collector, venv, tmp_path):
    """Cancelled and expired in the queue and while they ran, given up: in the document, the log and as one span, as others'."""
    service = make_service("--otlp", collector.url, "--otlp-sample", "0", "--limit", "attempts=1")
    long = json.dumps({"op": "svd", "inputs": {"a": {"random": "normal", "seed": 1, "shape": [3200, 3200]}}})
    wanted = {}

    def ended(number, job, state, code):
        document = service.request("GET", f"/jobs/{job['id']}?wait=30").json()
        assert (document["state"], document["error"]["code"], document["trace_id"]) == (state, code, trace(number)), document
        wanted[number] = (job, code)

    def running(number, path="/jobs", **members):
        job = ask(service, number, path, body=json.dumps({**json.loads(long), **members}))
        wait_for(lambda: service.request("GET", f"/jobs/{job['id']}").json()["state"] == "running", "it runs", 60)
        assert service.request("GET", f"/jobs/{job['id']}").json()["trace_id"] == trace(number)
        return job
    with service.worker_held():
        alone, *others = (ask(service, n, "/jobs") for n in (1, 2, 3))  # one, or a batch entry
        for number, job in enumerate((alone, *others), 1):
            assert service.request("GET", f"/jobs/{job['id']}").json()["trace_id"] == trace(number)
        assert {job["trace_id"] for job in service.list_jobs()} == {trace(1), trace(2), trace(3)}
        assert service.request("DELETE", f"/jobs/{alone['id']}").json()["trace_id"] == trace(1)
        ended(1, alone, "cancelled", "cancelled")
        late = ask(service, 4, "/jobs", body=json.dumps({**json.loads(BODY), "deadline_ms": 100}))
        ended(4, late, "expired", "deadline_exceeded")
        unsampled = ask(service, 5, "/jobs", sampled=False, body=json.dumps({**json.loads(BODY), "deadline_ms": 100}))
        ended(5, unsampled, "expired", "deadline_exceeded")
    ended(6, running(6, deadline_ms=8000), "expired", "deadline_exceeded")
    job = running(7)
    service.request("DELETE", f"/jobs/{job['id']}")
    ended(7, job, "cancelled", "cancelled")
    job = running(8)
    service.kill("worker")
    ended(8, job, "failed", "poisoned")
    sampled = set(wanted) - {5}
    wait_for(lambda: all(any(span["name"].startswith("job ") for span in collector.of(n)) for n in sampled), "their spans come", 60)
    for number in sampled:
        job, code = wanted[number]
        mine = [span for span in collector.of(number) if span["name"].startswith("job ")]
        assert [span.get("status") for span in mine] == [{"code": 2, "message": code}], (number, collector.of(number))
        assert attributes(mine[0])["blasd.job.id"] == job["id"]
        post = next(span for span in collector.of(number) if span["name"] == "POST /jobs")
        assert mine[0]["parentSpanId"] == post["spanId"]
        # also of those that a worker which stood still had been given, and computed all the same
        assert [span["name"] for span in collector.of(number) if span["parentSpanId"] == mine[0]["spanId"]] == ["queue"]
    assert not collector.of(5)
    log = (service.folder / "log").read_text()
    for number, what in ((4, "expired"), (5, "expired"), (6, "expired"), (8, "failed")):
        assert len(re.findall(f"job {what}: .* trace_id={trace(number)}$", log, re.M)) == 1
    assert not re.search(f"job cancelled: .*trace_id={trace(1)}", log)
    judge(venv, tmp_path, collector)


def test_a_job_has_one_span_whoever_computed_it(make_service, collector):
    """Cancelled while a worker that stood still had it, which then computes it all the same."""
    service = make_service("--otlp", collector.url, "--otlp-sample", "0")
    with service.worker_held():
        job = ask(service, 1, "/jobs")
        assert service.request("DELETE", f"/jobs/{job['id']}").status == 200
    for number in (2, 3):  # one after the other: what the worker sent of the first has come by then
        ask(service, number, "/jobs?wait=30")
        wait_for(lambda number=number: any(span["name"].startswith("job ") for span in collector.of(number)), "its spans come", 60)
    wait_for(lambda: any(span["name"].startswith("job ") for span in collector.of(1)), "its span comes", 60)
    mine = [span for span in collector.of(1) if span["name"].startswith("job ")]
    assert [span.get("status") for span in mine] == [{"code": 2, "message": "cancelled"}], mine


def test_a_repeated_request_is_told_the_first_ones_trace(make_service):
    service = make_service()
    key = {"Idempotency-Key": "one"}
    first, second = ask(service, 1, **key), ask(service, 2, **key)
    assert (second["id"], second["trace_id"]) == (first["id"], trace(1))


def test_the_spans_of_a_job(make_service, collector, venv, tmp_path):
    service = make_service("--otlp", collector.url, "--otlp-sample", "0")
    job = ask(service, 1)
    failed = ask(service, 2, body='{"op":"solve","inputs":{"a":[[0]],"b":[1]}}')
    ask(service, 3, sampled=False)
    service.post("matmul", SMALL)
    wait_for(lambda: len(collector.of(1)) >= 8 and len(collector.of(2)) >= 8 and [s for _, s in collector.spans() if s["name"] == "batch solve"],
             "the spans come", 30)
    assert not collector.of(3), "the client did not want it"
    spans = {span["name"]: span for span in collector.of(1)}
    server, own = spans["POST /jobs"], spans["job matmul"]
    assert server["parentSpanId"] == SPAN and own["parentSpanId"] == server["spanId"]
    assert (server["kind"], own["kind"]) == (2, 5)
    assert attributes(server) == {"http.request.method": "POST", "http.route": "/jobs", "http.response.status_code": "200",
                                  "http.request.body.size": str(len(BODY)), "blasd.job.id": job["id"]}
    assert attributes(own)["blasd.job.id"] == job["id"] and attributes(own)["blasd.device"] == "cpu:0"
    assert set(spans) == {"POST /jobs", "job matmul", "receive", "queue", "batch_wait", "upload", "compute", "download"}
    for name, span in spans.items():
        begin, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
        assert begin <= end and abs(time.time() - end / 1e9) < 600
        if name not in ("POST /jobs", "job matmul"):
            assert span["parentSpanId"] == own["spanId"]
            assert abs((end - begin) / 1e6 - job["timing"][f"{name}_ms"]) < 0.002
            assert int(own["startTimeUnixNano"]) <= begin and end <= int(own["endTimeUnixNano"])
    batch = next(span for _, span in collector.spans() if span["name"] == "batch matmul")
    assert batch["links"] == [{"traceId": trace(1), "spanId": own["spanId"]}] and "parentSpanId" not in batch
    assert spans["compute"]["links"] == [{"traceId": batch["traceId"], "spanId": batch["spanId"]}]
    bad = next(span for span in collector.of(2) if span["name"] == "job solve")
    assert bad["status"] == {"code": 2, "message": "singular_matrix"} and failed["state"] == "failed"
    assert {part for part, _ in collector.spans()} == {"blasd api", "blasd worker"}
    assert all(h["Content-Type"] == "application/json" for h in collector.headers)
    judge(venv, tmp_path, collector)


JUDGE = """
import base64, json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
names = []
for body in json.load(open(sys.argv[1])):
    document = json.loads(body)
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:  # OTLP's JSON has ids in hexadecimal, protobuf's own in base64
                for one in [span, *span.get("links", [])]:
                    for name in ("traceId", "spanId", "parentSpanId"):
                        if name in one:
                            one[name] = base64.b64encode(bytes.fromhex(one[name])).decode()
    message = json_format.ParseDict(document, ExportTraceServiceRequest())
    for resource in message.resource_spans:
        assert [a.key for a in resource.resource.attributes] == ["service.name", "service.version", "service.instance.id"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert len(span.trace_id) == 16 and len(span.span_id) == 8 and len(span.parent_span_id) in (0, 8)
                assert span.name and 0 < span.start_time_unix_nano <= span.end_time_unix_nano
                assert all(len(link.trace_id) == 16 and len(link.span_id) == 8 for link in span.links)
                assert all(a.value.WhichOneof("value") in ("string_value", "int_value") for a in span.attributes)
                names.append(span.name)
print(json.dumps(names))
"""


def judge(venv, tmp_path, collector):
    """By the protocol's own messages, as others read them: no field that they do not have."""
    (tmp_path / "bodies.json").write_text(json.dumps([body.decode() for body in collector.bodies]))
    judged = subprocess.run([venv("otlp") / "bin/python", "-c", JUDGE, tmp_path / "bodies.json"], capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stderr
    assert sorted(json.loads(judged.stdout)) == sorted(span["name"] for _, span in collector.spans())


def test_a_batch_links_its_jobs(make_service, collector):
    service = make_service("--otlp", collector.url)
    with service.worker_held():
        jobs = [ask(service, 100 + i, "/jobs", sampled=i % 2 == 0)["id"] for i in range(20)]
    for job in jobs:
        assert service.request("GET", f"/jobs/{job}?wait=20").json()["state"] == "succeeded"

    def linked():
        return {link["traceId"] for _, span in collector.spans() if span["name"].startswith("batch ") for link in span["links"]}
    wanted = {trace(100 + i) for i in range(0, 20, 2)}
    wait_for(lambda: linked() >= wanted, "each sampled job is in a batch's span", 30)
    assert not linked() & {trace(100 + i) for i in range(1, 20, 2)}
    batches = [span for _, span in collector.spans() if span["name"].startswith("batch ")]
    assert sum(int(attributes(span)["blasd.batch_size"]) for span in batches) >= 20


@pytest.mark.parametrize("share, least, most", [("1", 300, 300), ("0", 0, 0), ("0.5", 100, 200)])
def test_requests_without_a_trace_are_sampled(make_service, collector, share, least, most):
    service = make_service("--otlp", collector.url, "--otlp-sample", share)
    jobs = [service.post("matmul", SMALL).json() for _ in range(300)]
    sampled = {job["trace_id"] for job in jobs if "trace_id" in job}
    assert least <= len(sampled) <= most

    def seen():
        return {s["traceId"] for _, s in collector.spans() if s["name"] == "job matmul"}
    wait_for(lambda: seen() == sampled, "their spans come, and no others", 30)


def test_keys_for_the_collector(make_service, collector, tmp_path):
    """From a file or the environment, and in no list of processes; what is wrong is told at the start."""
    from service import BLASD, children, command_line
    (tmp_path / "headers").write_text("# for the collector\nX-Api-Key: hunter2-file\n\n")
    service = make_service("--otlp", collector.url + "/", "--otlp-headers", str(tmp_path / "headers"),
                           env={"BLASD_OTLP_HEADERS": "x-tenant=hunter2-env,x-more=a=b"})
    ask(service, 1)
    wait_for(lambda: len({part for part, _ in collector.spans()}) == 2, "both parts send", 30)
    for headers in collector.headers:
        assert (headers["X-Api-Key"], headers["x-tenant"], headers["x-more"]) == ("hunter2-file", "hunter2-env", "a=b")
    assert not any("hunter2" in command_line(pid) for pid in [service.process.pid, *children(service.process.pid)])
    assert "hunter2" not in (service.folder / "log").read_text()
    (tmp_path / "wrong").write_text("no colon\n")
    for words in (["--otlp", "127.0.0.1:4318"], ["--otlp", "http://user:hunter2@127.0.0.1"], ["--otlp", "ftp://127.0.0.1"],
                  ["--otlp", collector.url, "--otlp-headers", str(tmp_path / "none")], ["--otlp", collector.url, "--otlp-headers", str(tmp_path / "wrong")],
                  ["--otlp", collector.url, "--otlp-sample", "2"], ["--otlp", collector.url, "--otlp-sample", "x"], ["--log", "xml"]):
        refused = subprocess.run([BLASD, "up", "--data", tmp_path / "data", *words], capture_output=True, text=True, timeout=60, check=False)
        assert refused.returncode == 2 and refused.stdout == "", words
        assert refused.stderr.startswith("blasd: ") and "hunter2" not in refused.stderr, refused.stderr


def work_goes_on(service, number=30):
    for i in range(number):
        assert ask(service, 1000 + i)["state"] == "succeeded"


def announce(handler):
    """A connection that ends behind 103 has brought no answer."""
    handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")


@pytest.mark.parametrize("busy", [lambda handler: (503, b"", ("Retry-After", "0")), lambda handler: (429, b"{}"), lambda handler: None, announce],
                         ids=["503", "429", "lost", "103"])
def test_a_collector_that_is_busy(make_service, collector, busy):
    """A batch has one try: what was not taken is dropped, and what comes later is sent."""
    collector.answer = busy
    service = make_service("--otlp", collector.url, "--otlp-sample", "0")
    work_goes_on(service, 2)
    wait_for(lambda: counts(service)["dropped"] == 2, "they are given up", 30)
    collector.answer = lambda handler: (200, b"{}")
    ask(service, 7)
    wait_for(lambda: counts(service)["sent"] == 1, "the next one is sent", 30)
    assert counts(service) == {"sent": 1, "dropped": 2, "refused": 0}


def test_a_collector_that_refuses_and_one_that_takes_some(make_service, collector):
    collector.answer = lambda handler: (400, b"no")
    service = make_service("--otlp", collector.url, "--otlp-sample", "0")
    work_goes_on(service, 5)
    wait_for(lambda: counts(service)["refused"] == 5, "they are counted", 30)
    assert counts(service)["sent"] == 0
    collector.answer = lambda handler: (200, b'{"partialSuccess":{"rejectedSpans":"1","errorMessage":"odd"}}')
    ask(service, 7)
    wait_for(lambda: counts(service)["refused"] == 6, "it took all but one", 30)


@pytest.mark.parametrize("lie", [b"", b"{", b"[]", b'{"partialSuccess":7}', b'{"partialSuccess":{"rejectedSpans":-5}}',
                                 b'{"partialSuccess":{"rejectedSpans":"999999999999999999999999"}}', b"x" * (1 << 20), b"[" * 60000],
                         ids=["empty", "cut", "list", "number", "negative", "huge", "long", "deep"])
def test_a_collector_that_lies(make_service, collector, lie):
    collector.answer = lambda handler: (200, lie)
    service = make_service("--otlp", collector.url, "--otlp-sample", "0")
    work_goes_on(service, 3)
    wait_for(lambda: sum(counts(service).values()) == 3, "each span is counted once", 30)
    assert counts(service)["dropped"] == 0
    assert service.stop() == 0


def test_a_slow_collector_and_a_full_room(make_service, collector):
    """Work goes on, what is too much is dropped and counted, and the end does not wait for it."""
    release = threading.Event()
    collector.answer = lambda handler: (release.wait(60), (200, b"{}"))[1]
    service = make_service("--otlp", collector.url, "--otlp-sample", "0", "--limit", "otlp_spans=16")
    ask(service, 1)
    wait_for(lambda: collector.seen >= 2, "both threads wait for it", 30)
    work_goes_on(service, 60)
    wait_for(lambda: counts(service)["dropped"] > 0, "dropped ones are counted", 10)
    assert sum(counts(service).values()) <= 61
    wait_for(lambda: counts(service, "blasd_worker_otlp_spans_total")["dropped"] > 0, "by the worker too", 20)
    assert service.stop() == 0
    release.set()


def test_a_collector_that_is_away(make_service):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        service = make_service("--otlp", f"http://127.0.0.1:{nobody.getsockname()[1]}", "--otlp-sample", "1", "--limit", "otlp_spans=64")
        jobs = [service.post("matmul", SMALL).json() for _ in range(100)]
        assert all(job["state"] == "succeeded" and "trace_id" in job for job in jobs)
        wait_for(lambda: counts(service)["dropped"] > 0, "dropped ones are counted", 60)
        assert counts(service)["sent"] == 0
        assert service.stop() == 0


def test_what_is_left_is_sent_at_the_end(make_service, collector):
    service = make_service("--otlp", collector.url, "--otlp-sample", "0")
    work_goes_on(service, 3)
    assert service.stop() == 0
    assert len([s for _, s in collector.spans() if s["name"] == "POST /jobs"]) == 3
    assert len([s for _, s in collector.spans() if s["name"] == "job matmul"]) == 3

