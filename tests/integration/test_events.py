"""GET /events: what becomes of jobs is told in their order, to whom it concerns, and nobody is held up by who does not listen."""
import http.client
import json
import socket
import threading

import numpy as np
import pytest
from event_stream import EventStream
from service import API, ENDED, wait_for
from test_auth import bearer, keys
from test_progress import send

A = np.arange(4.0).reshape(2, 2) + np.eye(2)


def readers(service):
    return service.metrics()["blasd_http_requests_in_flight"]


@pytest.mark.first
def test_a_job_from_the_queue_to_its_end(service):
    with EventStream(service) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream" and stream.headers["Cache-Control"] == "no-store"
        assert stream.hello.data["time_ms"] > 1e12
        job = service.post("solve", {"a": A, "b": A}, wait=0).json()["id"]
        ended = stream.job(job, "succeeded")
        told = [event for event in stream.seen if event.kind == "job" and event.data["id"] == job]
        assert [event.data["state"] for event in told] == ["queued", "running", "succeeded"]
        for event in told:
            API.validate({"$ref": "#/components/schemas/Job"}, event.data)
            assert event.data["op"] == "solve"
        document = service.request("GET", f"/jobs/{job}").json()
        assert {**document, "outputs": None} == {**ended.data, "outputs": None}
        assert "data" not in ended.data["outputs"]["x"] and ended.data["outputs"]["x"]["shape"] == [2, 2]
        assert told[1].data["execution"]["device"] == document["execution"]["device"] and told[1].data["started_at"]
        batch = next(event for event in stream.seen if event.kind == "batch")
        assert (batch.data["op"], batch.data["jobs"]) == ("solve", 1) and batch.data["started_at"] == told[1].data["started_at"]


def test_a_long_job_is_told_of_while_it_runs(make_service):
    """The first one, too, of a thread that has not heard whether anybody looks on."""
    service = make_service()
    a = np.random.default_rng(3).random((900, 900)) + 900 * np.eye(900)
    with EventStream(service) as stream:
        job = service.post("svd", {"a": a}, form="safetensors", wait=0).json()["id"]
        stream.job(job, "succeeded")
        told = [event.data for event in stream.seen if event.kind == "job"]
        states = [document["state"] for document in told]
        assert states == ["queued"] + ["running"] * (len(states) - 2) + ["succeeded"] and len(states) >= 3
        progress = [document["progress"] for document in told]
        assert progress == sorted(progress) and progress[-1] == 1
        assert all(document["started_at"] for document in told[1:])


def test_what_a_worker_gives_back_is_told_of(make_service):
    """It is queued again: who looks on would have it run on a worker that is no more."""
    service = make_service("--workers", "1")
    with EventStream(service) as stream:
        job = send(service)
        stream.job(job, "running")
        service.kill("worker")
        again = stream.job(job, "queued").data
        assert again["started_at"] is None and again["execution"]["device"] is None
        assert stream.job(job, "running").data["execution"]["attempts"] == 2
        service.request("DELETE", f"/jobs/{job}")
        stream.job(job, "cancelled")


def test_a_hundred_readers(make_service):
    """Each is told all, and no job waits for them."""
    service = make_service()
    readers_of = [socket.create_connection(("127.0.0.1", service.port), timeout=60) for _ in range(100)]
    for reader in readers_of:
        reader.sendall(b"GET /events?op=matmul HTTP/1.1\r\nHost: localhost\r\n\r\n")
    texts = []
    for reader in readers_of:
        text = b""
        while b"event: hello" not in text:
            text += reader.recv(65536)
        texts.append(text)
    sent = [service.post("matmul", {"a": A, "b": A}).json()["id"] for _ in range(40)]
    for text, reader in zip(texts, readers_of):
        while text.count(b'"state":"succeeded"') < len(sent):
            more = reader.recv(1 << 20)
            assert more
            text += more
        assert b"event: lost" not in text and all(job.encode() in text for job in sent)
        reader.close()


def test_ends_of_every_kind(service):
    with EventStream(service) as stream:
        failed = service.post("solve", {"a": np.zeros((2, 2)), "b": A}, wait=0).json()["id"]
        assert stream.job(failed, "failed").data["error"]["code"] == "singular_matrix"
        with service.worker_held():
            cancelled = service.post("matmul", {"a": A, "b": A}, wait=0).json()["id"]
            service.request("DELETE", f"/jobs/{cancelled}")
            assert stream.job(cancelled, "cancelled").data["error"]["code"] == "cancelled"
            late = service.request("POST", "/jobs", json.dumps({"op": "matmul", "inputs": {"a": [[1]], "b": [[1]]}, "deadline_ms": 1}))
            assert stream.job(late.json()["id"], "expired").data["error"]["code"] == "deadline_exceeded"


@pytest.mark.parametrize("waits", [True, False])
def test_many_jobs_equal_the_list_and_the_metrics(make_service, waits):
    """As many ends are told as there are, whoever waits, in batch entries or alone, large or small."""
    service = make_service("--limit", "event_rate=100000")
    big = np.ones((100, 100))
    with EventStream(service) as stream:
        sent = set()
        for i in range(60):
            a = [A, big, np.eye(30)][i % 3]
            answer = service.post("matmul", {"a": a, "b": a}, wait=30 if waits else 0)
            sent.add(answer.json()["id"])
        ends = {}
        while len(ends) < len(sent):
            event = stream.take(lambda event: event.kind == "job" and event.data["state"] in ENDED)
            assert event.data["id"] not in ends, "told twice"
            ends[event.data["id"]] = event.data["state"]
        assert set(ends) == sent == {job["id"] for job in service.list_jobs()}
        assert not [event for event in stream.seen if event.kind == "lost"]
        metrics = service.metrics()
        totals = stream.take(lambda event: event.kind == "devices" and
                             event.data["totals"].get("matmul succeeded") == len(sent)).data["totals"]
        assert metrics['blasd_jobs_total{op="matmul",state="succeeded"}'] == totals["matmul submitted"] == len(sent)
        assert sum(event.data["jobs"] for event in stream.seen if event.kind == "batch") == len(sent)


def test_filters(service):
    with EventStream(service, "?op=solve") as solves, EventStream(service, "?state=failed") as failures:
        for _ in range(3):
            service.post("matmul", {"a": A, "b": A})
        good = service.post("solve", {"a": A, "b": A}).json()["id"]
        bad = service.post("solve", {"a": np.zeros((2, 2)), "b": A}).json()["id"]
        solves.job(bad, "failed")
        failures.job(bad, "failed")
        assert {event.data["op"] for event in solves.seen if event.kind in ("job", "batch")} == {"solve"}
        assert {event.data["id"] for event in solves.seen if event.kind == "job"} == {good, bad}
        assert [(event.kind, event.data["id"]) for event in failures.seen if event.kind in ("job", "batch")] == [("job", bad)]
    for query, status in (("?state=nothing", 400), ("?state=queued&state=failed", 400), ("?wait=1", 400)):
        assert service.request("GET", f"/events{query}").status == status
    unknown = service.request("GET", "/events?op=matmull")
    assert unknown.status == 400 and unknown.json()["field"] == "op" and all(op in unknown.json()["detail"] for op in ("'matmull'", "matmul", "graph"))
    assert service.request("GET", "/events?op=").status == 400
    assert service.request("POST", "/events").status == 405


def test_events_are_not_kept(service):
    """A client that comes again lists the jobs."""
    refused = service.request("GET", "/events", headers={"Last-Event-ID": "1795455123456788"})
    assert refused.status == 400 and refused.json()["field"] == "Last-Event-ID" and "GET /jobs" in refused.json()["detail"]
    with EventStream(service) as first:
        before = service.post("matmul", {"a": A, "b": A}).json()["id"]
        first.job(before, "succeeded")
        with EventStream(service) as second:
            job = service.post("matmul", {"a": A, "b": A}).json()["id"]
            second.job(job, "succeeded")
            assert {event.data["id"] for event in second.seen if event.kind == "job"} == {job}
        assert before in {one["id"] for one in service.request("GET", "/jobs").json()["jobs"]}


def test_who_reads_too_slowly_loses_and_is_told(make_service):
    """Events are kept for nobody's sake: a stream that may take few a second."""
    service = make_service("--limit", "event_rate=20")
    with EventStream(service) as stream:
        count = 0
        while not any(event.kind == "lost" for event in stream.seen):
            for _ in range(30):
                count += service.post("matmul", {"a": A, "b": A}).json()["state"] == "succeeded"
            assert count < 3000
            stream.take(lambda event: event.kind in ("lost", "devices"))
        assert next(event.data["events"] for event in stream.seen if event.kind == "lost") > 0
        wait_for(lambda: any(event.kind == "devices" and event.data["totals"].get("matmul succeeded") == count
                          for event in [stream.take()]))
        told = sum(event.kind == "job" and event.data["state"] == "succeeded" for event in stream.seen)
        lost = sum(event.data["events"] for event in stream.seen if event.kind == "lost")
        assert count - lost <= told < count


def test_a_client_that_does_not_read_holds_nobody_up(make_service):
    service = make_service()
    deaf = socket.create_connection(("127.0.0.1", service.port))
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with EventStream(service) as stream:
        for _ in range(300):
            last = service.post("distance", {"x": np.ones((9, 9))}).json()["id"]
        stream.job(last, "succeeded")
        assert not [event for event in stream.seen if event.kind == "lost"]
    deaf.close()
    wait_for(lambda: readers(service) <= 1)  # this very question
    deaf = socket.create_connection(("127.0.0.1", service.port))
    deaf.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wait_for(lambda: readers(service) == 2)
    assert service.stop() == 0  # nor the end
    deaf.close()


def test_as_many_as_may(make_service):
    service = make_service("--limit", "event_streams=2")
    with EventStream(service), EventStream(service):
        refused = service.request("GET", "/events")
        assert refused.status == 429 and refused.json()["code"] == "too_many_streams" and refused.headers["Retry-After"]
        assert "event_streams" in refused.json()["detail"]
    wait_for(lambda: readers(service) <= 1)
    with EventStream(service) as stream:
        assert stream.status == 200


def test_it_ends_when_the_service_drains(make_service):
    service = make_service()
    with EventStream(service) as stream:
        assert service.stop() == 0
        assert stream.take(lambda event: event.kind == "end").data == {"reason": "draining"}
        assert stream.take() is None


def test_nothing_is_told_where_nobody_listens(make_service):
    """Redis publishes no events before anybody reads, and a stream that comes then begins anew."""
    service = make_service()
    for _ in range(3):
        service.post("matmul", {"a": A, "b": A})
    with EventStream(service) as stream:
        job = service.post("matmul", {"a": A, "b": A}, wait=0).json()["id"]
        stream.job(job, "succeeded")
        assert {event.data["id"] for event in stream.seen if event.kind == "job"} == {job}


def test_it_goes_on_when_redis_comes_back(make_service):
    service = make_service()
    with EventStream(service) as stream:
        first = service.post("matmul", {"a": A, "b": A}, wait=0).json()["id"]
        stream.job(first, "succeeded")
        service.kill("redis")
        service.wait_ready()
        assert stream.take(lambda event: event.kind == "lost", timeout=30).data == {"events": None}
        job = wait_for(lambda: service.post("matmul", {"a": A, "b": A}, wait=0).json().get("id"))
        stream.job(job, "succeeded")


def test_tenants_see_their_own(make_service, tmp_path):
    file = tmp_path / "keys.json"
    made = {name: keys("add", name, "--role", role, "--tenant", tenant, file=file).strip()
            for name, role, tenant in (("ann", "user", "red"), ("ben", "user", "blue"), ("eve", "read", "blue"),
                                       ("max", "metrics", "ops"), ("root", "admin", "ops"))}
    service = make_service("--keys", str(file), "--limit", "event_streams=8", start=False)
    service.headers = bearer(made["root"])
    service.start()
    assert service.request("GET", "/events", headers=bearer(made["max"])).status == 403
    assert service.request("GET", "/events", headers={"Authorization": "Bearer x"}).status == 401

    def product(name):
        body = json.dumps({"op": "matmul", "inputs": {"a": [[1]], "b": [[2]]}})
        return service.request("POST", "/jobs?wait=10", body, bearer(made[name])).json()["id"]

    with EventStream(service, headers=bearer(made["ann"])) as red, EventStream(service, headers=bearer(made["eve"])) as blue, \
            EventStream(service) as root:
        mine, theirs = [], []
        for _ in range(4):
            mine.append(product("ann"))
            theirs.append(product("ben"))
        red.job(mine[3], "succeeded")
        blue.job(theirs[3], "succeeded")
        assert {event.data["id"] for event in red.seen if event.kind == "job"} == set(mine)
        assert {event.data["id"] for event in blue.seen if event.kind == "job"} == set(theirs)
        for stream in (red, blue):
            devices = stream.take(lambda event: event.kind == "devices").data
            assert "queue" not in devices and "totals" not in devices and "jobs" not in devices["devices"][0]
        devices = root.take(lambda event: event.kind == "devices" and event.data["totals"].get("matmul succeeded") == 8).data
        assert devices["queue"] and not [event for event in root.seen if event.kind in ("job", "batch")]
        with EventStream(service, headers=bearer(made["ben"])):  # a quarter of 8 streams for one tenant
            assert service.request("GET", "/events", headers=bearer(made["ben"])).json()["code"] == "too_many_streams"


def test_a_key_that_is_valid_no_more_hears_no_more(make_service, tmp_path):
    file = tmp_path / "keys.json"
    made = {name: keys("add", name, file=file).strip() for name in ("ann", "ben")}
    service = make_service("--keys", str(file), start=False)
    service.headers = bearer(made["ben"])
    service.start()
    with EventStream(service, headers=bearer(made["ann"])) as revoked, EventStream(service) as other:
        keys("revoke", "ann", file=file)
        assert revoked.take(lambda event: event.kind == "end").data == {"reason": "unauthorized"}
        assert revoked.take() is None
        other.job(service.post("matmul", {"a": A, "b": A}, wait=0).json()["id"], "succeeded")


def test_the_header_alone(service):
    """A client that hangs up right away leaves nothing behind."""
    before = readers(service)
    for _ in range(20):
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
        connection.request("GET", "/events")
        assert connection.getresponse().status == 200
        connection.close()
    wait_for(lambda: readers(service) <= before)


def test_who_comes_and_goes_keeps_nobody_from_hearing(make_service):
    """However quickly newcomers follow each other on the loop of a stream that stays; nor is their place taken once they have left."""
    service = make_service("--loops", "1")
    over, answers = threading.Event(), []

    def come_and_go():
        while not over.is_set():
            with socket.create_connection(("127.0.0.1", service.port), timeout=30) as one:
                one.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answers.append(one.recv(4096).split(b"\r\n")[0])
    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        wait_for(lambda: len(answers) > 1000)
        with EventStream(service, hello=False) as stream:
            assert stream.status == 200 and stream.take(lambda event: event.kind == "hello", timeout=20)
            job = service.post("matmul", {"a": A, "b": A}, wait=0).json()["id"]
            stream.job(job, "succeeded")
    finally:
        over.set()
        thread.join()
    assert set(answers) == {b"HTTP/1.1 200 OK"}
