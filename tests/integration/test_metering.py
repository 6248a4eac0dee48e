"""What jobs used is written once each, whoever is killed meanwhile, and adds up to what the job documents say."""
import collections
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import threading
import uuid

import numpy as np
import pytest
from service import BLASD, QUEUES, Service, safetensors, TYPES, wait_for
from test_tenants import keys


def redis_of(service):
    return f"file:{service.folder / 'data' / 'redis.url'}"


class Meter:
    """`blasd meter` beside a service."""

    made = []

    def __init__(self, service, to, *options, env=None):
        self.log = open(service.folder / "meter-log", "ab")
        self.process = subprocess.Popen([BLASD, "meter", "--redis", redis_of(service), "--to", to, *options],
                                        stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env={**os.environ, "BLASD_QUEUES": str(QUEUES), **(env or {})})

        Meter.made.append(self)

    def ready(self):
        line = self.process.stdout.readline()
        assert line.startswith("ready "), (line, pathlib.Path(self.log.name).read_text())
        return self

    def end(self, signum=signal.SIGTERM):
        self.process.send_signal(signum)
        status = self.process.wait(60)
        self.process.stdout.close()
        self.log.close()
        return status


@pytest.fixture(autouse=True)
def no_meter_is_left():
    yield
    while Meter.made:
        Meter.made.pop().process.kill()


@contextlib.contextmanager
def metered(service, to, *options, env=None):
    meter = Meter(service, to, *options, env=env).ready()
    yield meter
    if meter.process.poll() is None:
        assert meter.end() == 0


def events_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def submit(service, path, body, headers):
    """The id; sent again under its key where the queue was away."""
    headers = {"Content-Type": TYPES["safetensors"], "Idempotency-Key": uuid.uuid4().hex, **(headers or {})}

    def try_once():
        try:
            answer = service.request("POST", path, body, headers)
        except (OSError, http.client.HTTPException):
            return None
        assert answer.status in (200, 202, 503), answer.body
        return answer.status != 503 and answer.json()["id"]
    return wait_for(try_once)


def some_jobs(service, count, headers=None):
    """Ids of jobs that end in many ways: alone, as batch entries, failed, cancelled."""
    ids = []
    a = np.random.default_rng(count).random((24, 24))
    for i in range(count):
        if i % 7 == 3:
            op, inputs = "solve", {"a": np.zeros((3, 3)), "b": np.ones(3)}
        else:
            op, inputs = "matmul", {"a": a, "b": a}
        ids.append(submit(service, "/jobs" + ("?wait=30" if i % 5 == 0 else ""), safetensors(inputs, op=op), headers))
        if i % 11 == 6:
            service.request("DELETE", f"/jobs/{ids[-1]}", check=False)
    return ids


def share_s(document):
    timing, execution = document["timing"], document["execution"]
    return sum(timing[part] for part in ("upload_ms", "compute_ms", "download_ms")) / 1e3 / max(1, execution["batch_size"])


def check_against_documents(service, events, ids):
    """Each job once, and of each what its document says."""
    assert collections.Counter(event["id"] for event in events) == collections.Counter(ids)
    for event in events:
        document = service.request("GET", f"/jobs/{event['id']}?wait=30").json()
        data = event["data"]
        assert (event["specversion"], event["source"], event["subject"]) == ("1.0", "/blasd/blasd", data["tenant"])
        assert (data["op"], data["state"]) == (document["op"], document["state"])
        if document["state"] == "succeeded":
            assert data["bytes"] == document["execution"]["bytes"] and data["flops"] == document["execution"]["flops"]
            assert data["device"] == document["execution"]["device"]
            assert data["device_seconds"] == pytest.approx(share_s(document), abs=2e-6)


def sums(rows):
    total = collections.Counter()
    for row in rows:
        for name in ("jobs", "failed", "device_seconds", "bytes", "flops"):
            total[row["op"], name] += row[name]
    return total


def check_usage(service, events, headers=None):
    """GET /usage says what the events add up to."""
    expected = collections.Counter()
    for event in events:
        data = event["data"]
        expected[data["op"], "jobs"] += 1
        expected[data["op"], "failed"] += data["state"] != "succeeded"
        for name in ("device_seconds", "bytes", "flops"):
            expected[data["op"], name] += data[name]
    got = sums(service.request("GET", "/usage", headers=headers).json()["usage"])
    assert set(got) == set(expected)
    for name, value in expected.items():
        assert got[name] == pytest.approx(value, rel=1e-9, abs=1e-5), name


def test_a_file_holds_each_job_once(make_service, tmp_path):
    service, path = make_service(), tmp_path / "events"
    before = some_jobs(service, 3)  # that nobody has asked to note
    assert service.request("GET", "/usage").json() == {"usage": []}
    for job in before:
        service.request("GET", f"/jobs/{job}?wait=30")
    with metered(service, f"file:{path}"):
        ids = some_jobs(service, 40)
        wait_for(lambda: len(events_of(path)) >= len(ids))
        check_against_documents(service, events_of(path), ids)
        wait_for(lambda: service.request("GET", "/usage").json()["usage"])
    check_usage(service, events_of(path))
    assert path.stat().st_mode & 0o777 == 0o600
    sequences = [event["sequence"] for event in events_of(path)]
    assert sequences == sorted(set(sequences))


def test_nothing_is_lost_or_written_twice_when_anything_is_killed(make_service, tmp_path):
    service, path, ids = make_service(), tmp_path / "events", []
    meter = Meter(service, f"file:{path}").ready()
    for turn, part in enumerate(("meter", "worker", "redis", "meter", "api")):
        ids += some_jobs(service, 30)
        if part != "meter":
            service.kill(part)
            service.wait_ready()
            continue
        meter.end(signal.SIGKILL)
        if turn == 3:  # half a line, as a machine that stops leaves it
            with open(path, "ab") as file:
                file.write(b'{"specversion":"1.0","id":"s0000')
        ids += some_jobs(service, 10)
        meter = wait_for(lambda: started(service, path))
    wait_for(lambda: len(events_of(path)) >= len(ids))
    assert meter.end() == 0
    check_against_documents(service, events_of(path), ids)
    check_usage(service, events_of(path))


def started(service, path):
    """A meter, once the lock of the one that was killed has expired."""
    meter = Meter(service, f"file:{path}")
    if meter.process.stdout.readline().startswith("ready "):
        return meter
    assert meter.process.wait(60) == 1
    return None


class Receiver(http.server.BaseHTTPRequestHandler):
    """Answers as told by `server.answers`, 204 once these are used up; 0 hangs up."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Content-Type"].startswith("application/cloudevents-batch+json")
        status = self.server.answers.pop(0) if self.server.answers else 204
        if status == 0:
            self.close_connection = True
            return
        if status < 300 and self.headers["Authorization"] == "Bearer a-token":
            self.server.events += body
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def test_a_receiver_that_fails_gets_them_again(make_service):
    service = make_service()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.answers, server.events = [503, 0, 404, 301], []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with metered(service, f"http://127.0.0.1:{server.server_port}/usage", env={"BLASD_METER_TOKEN": "a-token"}):
        ids = some_jobs(service, 20)
        wait_for(lambda: len(server.events) >= len(ids))
    server.shutdown()
    check_against_documents(service, server.events, ids)
    check_usage(service, server.events)
    assert "a-token" not in (service.folder / "meter-log").read_text()


def redis_cli(service, *words, form="--json"):
    password = re.search(r":([0-9a-f]+)@", (service.folder / "data" / "redis.url").read_text())[1]
    told = subprocess.run(["redis-cli", "-s", service.folder / "data" / "redis.sock", form, *words], capture_output=True,
                          env={**os.environ, "REDISCLI_AUTH": password}, check=True).stdout
    return json.loads(told) if form == "--json" else told


def test_what_is_noted_of_a_job_has_no_longer_tensors(make_service, tmp_path):
    """Short results lie in records, and would lie in the stream, too."""
    service, path, ids = make_service(), tmp_path / "events", []
    with metered(service, f"file:{path}") as meter:
        meter.process.send_signal(signal.SIGSTOP)
        for n in (4, 10, 24, 40):
            ids.append(submit(service, "/jobs?wait=30", safetensors({"a": np.full((n, n), np.pi), "b": np.eye(n)}, op="matmul"), None))
        tags = ["{blasd}"] + [f"{{blasd:{n}}}" for n in range(1, QUEUES)]
        noted = b"".join(redis_cli(service, "XRANGE", f"{tag}:usage", "-", "+", form="--raw") for tag in tags)
        meter.process.send_signal(signal.SIGCONT)
        assert all(job.encode() in noted for job in ids) and noted.count(struct.pack("<d", np.pi)) == 4 * 4
        wait_for(lambda: len(events_of(path)) == len(ids))
        check_against_documents(service, events_of(path), ids)


def test_a_stream_of_redis_and_the_end_of_it(make_service):
    """Of several queues each has its own."""
    service = make_service()
    tags = ["{blasd}"] + [f"{{blasd:{n}}}" for n in range(1, QUEUES)]

    def rows():
        return [row for tag in tags for row in redis_cli(service, "XRANGE", f"{tag}:cloudevents", "-", "+")]
    with metered(service, "redis") as meter:
        ids = some_jobs(service, 12)
        wait_for(lambda: len(rows()) >= len(ids))
        events = [json.loads(fields[1]) for _, fields in rows()]
        check_against_documents(service, events, ids)
        second = Meter(service, "redis")
        assert second.process.wait(60) == 1 and "another process" in (service.folder / "meter-log").read_text()
        meter.end(signal.SIGTERM)
    more = some_jobs(service, 4)  # kept for the next one
    for job in more:
        service.request("GET", f"/jobs/{job}?wait=30")
    last = Meter(service, "redis", "--end").ready()
    assert last.process.wait(60) == 0
    some_jobs(service, 2)
    assert len(rows()) == len(ids) + len(more)
    for tag in tags:
        assert redis_cli(service, "EXISTS", f"{tag}:metered") == 0 and redis_cli(service, "XLEN", f"{tag}:usage") == 0


def test_tenants_see_their_own(tmp_path):
    file, secrets = keys(tmp_path, ann={"tenant": "ann"}, ben={"tenant": "ben"}, root={"role": "admin"}, graphs={"role": "metrics"})
    service = Service(tmp_path / "service", "--keys", file).start()
    headers = {name: {"Authorization": f"Bearer {secret}"} for name, secret in secrets.items()}
    path = tmp_path / "events"
    try:
        with metered(service, f"file:{path}"):
            ids = {name: some_jobs(service, count, headers[name]) for name, count in (("ann", 5), ("ben", 8))}
            wait_for(lambda: len(events_of(path)) >= 13)
        rows = {name: service.request("GET", "/usage", headers=head).json()["usage"]
                for name, head in headers.items() if name != "graphs"}
        assert service.request("GET", "/usage", headers=headers["graphs"]).status == 403
        assert {row["tenant"] for row in rows["ann"]} == {"ann"} and {row["tenant"] for row in rows["root"]} == {"ann", "ben"}
        for name, own in ids.items():
            assert sum(row["jobs"] for row in rows[name]) == len(own)
        assert service.request("GET", "/usage?since=2020-01-01T00:00:00Z&before=2020-02-01T00:00:00Z",
                               headers=headers["ann"]).json() == {"usage": []}
    finally:
        service.stop()


@pytest.mark.parametrize("to", ["file:", "nowhere", "ftp://example.org/", "file:/no/such/folder/events"])
def test_what_is_no_place_is_refused(service, to):
    done = subprocess.run([BLASD, "meter", "--redis", redis_of(service), "--to", to], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and ("--to is" in done.stderr or "cannot open" in done.stderr) and done.stdout == ""


def test_a_file_of_something_else_is_left_alone(service, tmp_path):
    for text in (b"no line at all", b"a line\nhalf another", b"\0" * 100):
        (tmp_path / "other").write_bytes(text)
        done = subprocess.run([BLASD, "meter", "--redis", redis_of(service), "--to", f"file:{tmp_path / 'other'}"],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "not a file of events" in done.stderr
        assert (tmp_path / "other").read_bytes() == text
