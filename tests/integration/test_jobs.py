"""The life of a job as its sender sees it: waiting, listing, cancelling, deadlines, expiry, full queues."""
import concurrent.futures
import http.client
import json
import re
import time

import numpy as np
import pytest
from service import API, LONG, TYPES, safetensors, wait_for

SMALL = {"a": np.eye(2), "b": np.full((2, 2), 3.0)}


def big(n=2600):
    """A job of about a second on one core."""
    return {"a": np.ones((n, n)), "b": np.ones((n, n))}


def poll(service, job_id, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        job = service.request("GET", f"/jobs/{job_id}").json()
        if job["state"] not in ("queued", "running"):
            return job
        time.sleep(0.02)
    raise AssertionError(f"{job_id} has not ended")


@pytest.mark.first
def test_submit_and_poll(service):
    answer = service.post("matmul", SMALL, wait=0)
    assert answer.status == 202
    job = answer.json()
    assert answer.headers["Location"] == f"/jobs/{job['id']}" and job["state"] in ("queued", "running")
    job = poll(service, job["id"])
    assert job["state"] == "succeeded" and job["outputs"]["c"]["data"] == [[3, 3], [3, 3]]
    assert job["progress"] == 1 and job["created_at"] <= job["started_at"] <= job["finished_at"]


@pytest.mark.first
def test_prefer_wait(service):
    body = json.dumps({"op": "matmul", "inputs": {"a": [[1]], "b": [[1]]}})
    answer = service.request("POST", "/jobs", body, {"Content-Type": TYPES["json"], "Prefer": "wait=10"})
    assert answer.status == 200 and answer.headers["Preference-Applied"] == "wait=10"
    answer = service.request("POST", "/jobs", body, {"Content-Type": TYPES["json"], "Prefer": "respond-async"})
    assert answer.status == 202


def test_a_wait_ends_when_its_time_is_up(make_service):
    service = make_service()
    with service.worker_held():
        start = time.monotonic()
        answer = service.post("matmul", SMALL, wait=0.3)
    assert answer.status == 202 and 0.25 < time.monotonic() - start
    answer = service.request("GET", f"/jobs/{answer.json()['id']}?wait=60", timeout=90)
    assert answer.status == 200 and answer.json()["state"] == "succeeded"


def test_waiting_on_a_job_from_several_connections(service):
    job_id = service.post("matmul", big(1500), wait=0, form="safetensors").json()["id"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: service.request("GET", f"/jobs/{job_id}?wait=30"), range(8)))
    assert all(a.status == 200 and a.json()["state"] == "succeeded" for a in answers)


def test_no_result_before_the_end(make_service):
    service = make_service()
    with service.worker_held():
        job = service.post("matmul", SMALL, wait=0).json()
        assert service.request("GET", f"/jobs/{job['id']}/result").status == 409
        assert service.request("GET", f"/jobs/{job['id']}/outputs/c").status == 409


@pytest.mark.first
def test_cancel_and_forget(make_service):
    service = make_service()
    with service.worker_held():
        job = service.post("matmul", SMALL, wait=0).json()
        assert service.request("DELETE", f"/jobs/{job['id']}").json()["state"] == "cancelled"
    assert service.request("GET", f"/jobs/{job['id']}").json()["state"] == "cancelled"
    assert service.request("GET", f"/jobs/{job['id']}/result").json()["code"] == "cancelled"
    done = service.post("matmul", SMALL).json()
    refused = service.request("DELETE", f"/jobs/{done['id']}")
    assert (refused.status, refused.json()["code"]) == (409, "job_ended")
    assert service.request("DELETE", f"/jobs/{done['id']}?forget=0").status == 409
    assert service.request("DELETE", f"/jobs/{done['id']}?forget=yes").status == 400
    assert service.request("GET", f"/jobs/{done['id']}").status == 200
    assert service.request("DELETE", f"/jobs/{done['id']}?forget=1").json()["state"] == "succeeded"
    assert service.request("GET", f"/jobs/{done['id']}").status == 404
    assert service.request("DELETE", f"/jobs/{done['id']}?forget=1").status == 404


def test_cancel_of_a_running_job_and_of_a_waited_for_one(make_service):
    service = make_service()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.post, *LONG, wait=60)
        while not (jobs := service.request("GET", "/jobs").json()["jobs"]) or jobs[0]["state"] != "running":
            time.sleep(0.02)
        assert service.request("DELETE", f"/jobs/{jobs[0]['id']}").json()["state"] == "cancelled"
        assert waiting.result().json()["state"] == "cancelled"
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"


def test_a_client_that_leaves_takes_its_job_along(make_service):
    import socket
    service = make_service()
    with service.worker_held():
        with socket.create_connection(("127.0.0.1", service.port)) as raw:
            body = b'{"op":"matmul","inputs":{"a":[[1]],"b":[[1]]}}'
            raw.sendall(b"POST /jobs?wait=60 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                        b"Content-Length: %d\r\n\r\n" % len(body) + body)
            wait_for(lambda: service.request("GET", "/jobs?state=queued").json()["jobs"], "the job is queued")
        wait_for(lambda: service.request("GET", "/jobs?state=cancelled").json()["jobs"], "the job is cancelled")


@pytest.mark.parametrize("wait", [0.2, 0.4, 0.7])
def test_a_client_that_leaves_at_once_takes_its_job_along(make_service, wait):
    """Of a short wait nobody watches the connection, but at its end."""
    import socket
    service = make_service()
    body = b'{"op":"matmul","inputs":{"a":[[1]],"b":[[1]]}}'
    with service.worker_held():
        with socket.create_connection(("127.0.0.1", service.port)) as raw:
            raw.sendall(b"POST /jobs?wait=%g HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                        b"Content-Length: %d\r\n\r\n" % (wait, len(body)) + body)
        wait_for(lambda: service.request("GET", "/jobs?state=cancelled").json()["jobs"], "the job is cancelled", 20)


@pytest.mark.first
def test_list_by_state_newest_first(make_service):
    service = make_service()
    ids = [service.post("matmul", SMALL, wait=0).json()["id"] for _ in range(5)]
    for job_id in ids:
        poll(service, job_id)
    service.post("solve", {"a": np.zeros((2, 2)), "b": np.ones(2)})
    listed = service.request("GET", "/jobs?state=succeeded&limit=3").json()["jobs"]
    assert len(listed) == 3 and all(j["state"] == "succeeded" for j in listed)
    assert [j["created_at"] for j in listed] == sorted((j["created_at"] for j in listed), reverse=True)
    assert [j["state"] for j in service.request("GET", "/jobs?state=failed").json()["jobs"]] == ["failed"]
    assert len(service.request("GET", "/jobs").json()["jobs"]) == 6


def test_pages_hold_each_job_once(make_service):
    service = make_service()
    done = [service.post("matmul", SMALL, wait=30 if i % 2 else 0).json()["id"] for i in range(130)]
    for job_id in done:
        poll(service, job_id)
    service.post("solve", {"a": np.zeros((2, 2)), "b": np.ones(2)})
    with service.worker_held():
        left = [service.post("distance", {"x": np.ones((2, 2))}, wait=0).json()["id"] for _ in range(30)]
        assert sorted(j["id"] for j in service.list_jobs("op=distance", limit=7)) == sorted(left)
        pending = service.list_jobs("state=queued", 13) + service.list_jobs("state=running", 13)
        assert sorted(j["id"] for j in pending) == sorted(left)
        first = service.request("GET", "/jobs").json()
        assert len(first["jobs"]) == 100 and first["cursor"]
        assert {j["state"] for j in first["jobs"][:30]} <= {"queued", "running"}
        everything = service.list_jobs(limit=9)
        assert len(everything) == 161 and {j["id"] for j in everything} >= {*done, *left}
    for job_id in left:
        poll(service, job_id)
    assert sorted(j["id"] for j in service.list_jobs("state=succeeded&op=matmul", 10)) == sorted(done)
    assert [j["op"] for j in service.list_jobs("state=failed")] == ["solve"]
    assert service.list_jobs("state=expired") == []
    made = service.request("GET", f"/jobs/{done[60]}").json()["created_at"]
    early, late = service.list_jobs(f"before={made}", 40), service.list_jobs(f"since={made}", 40)
    assert len(early) + len(late) == 161 and max(j["created_at"] for j in early) < min(j["created_at"] for j in late)
    assert done[60] in [j["id"] for j in late]
    for when in (made, "2026-01-31T12:00:00Z", "2026-12-30T23:59:59.25Z", "1795455123.5"):
        API.validate(API.parameter("/jobs", "since"), when)
        assert service.request("GET", f"/jobs?since={when}").status == 200
    for query in ("limit=0", "cursor=x", "cursor=e--0-", "cursor=p-s1-0-", "since=today",
                  "before=2026-13-01T00:00:00Z", "since=1&since=2", "state=done"):
        answer = service.request("GET", f"/jobs?{query}")
        assert (answer.status, answer.json()["code"]) == (400, "malformed_query"), query


@pytest.mark.parametrize("wait", [0, 30])
def test_a_page_is_full_whichever_records_it_is_of(make_service, wait):
    service = make_service()
    for job_id in [service.post("matmul", SMALL, wait=wait).json()["id"] for _ in range(120)]:
        poll(service, job_id)
    assert len(service.request("GET", "/jobs").json()["jobs"]) == 100


def test_a_key_with_quotes_is_the_same_key(service):
    def send(key):
        return service.request("POST", "/jobs?wait=10", json.dumps({"op": "matmul", "inputs": {"a": [[1]], "b": [[1]]}}),
                               {"Content-Type": TYPES["json"], "Idempotency-Key": key})
    first = send('"8e03978e-40d5"').json()["id"]
    assert send("8e03978e-40d5").json()["id"] == first
    assert send(r'"a \"key\""').json()["id"] == send('a "key"').json()["id"] != first
    for bad in ('"', '""', '"a', '"a"b', '"a";b=1'):
        assert send(bad).status == 400, bad


def test_a_key_lives_while_its_job_waits(make_service):
    service = make_service("--limit", "record_sync_s=1", "--limit", "record_async_s=1")
    headers = {"Content-Type": TYPES["json"], "Idempotency-Key": "patience"}
    body = json.dumps({"op": "matmul", "inputs": {"a": [[2]], "b": [[1]]}})
    with service.worker_held():
        first = service.request("POST", "/jobs", body, headers).json()["id"]
        time.sleep(3)  # longer than the key's time once the job has ended
        assert service.request("POST", "/jobs", body, headers).json()["id"] == first
    poll(service, first)
    wait_for(lambda: service.request("GET", f"/jobs/{first}").status != 200)
    assert service.request("POST", "/jobs?wait=10", body, headers).json()["id"] != first


def test_what_a_202_promised_stays(make_service):
    """Two jobs of which one was waited for, until the time was up: both outlive what was answered with 200."""
    service = make_service("--limit", "record_sync_s=1", "--limit", "record_sync_bytes=1M")
    a = np.ones((300, 300))
    with service.worker_held():
        late = service.post("matmul", {"a": a, "b": a}, wait=0.2, form="safetensors")
        asked = service.post("matmul", {"a": a, "b": a}, wait=0, form="safetensors")
        assert (late.status, asked.status) == (202, 202)
    ids = [late.json()["id"], asked.json()["id"]]
    for job_id in ids:
        assert poll(service, job_id)["state"] == "succeeded"
    first = service.post("matmul", {"a": a, "b": a}, form="safetensors").json()["id"]
    end = time.monotonic() + 40
    while service.request("GET", f"/jobs/{first}").status == 200:
        service.post("matmul", {"a": a, "b": a}, form="safetensors")
        assert time.monotonic() < end
        time.sleep(0.2)
    for job_id in ids:
        got = service.request("GET", f"/jobs/{job_id}/outputs/c", headers={"Accept": TYPES["npy"]})
        assert got.status == 200 and (got.npy() == 300).all()


def test_kept_results_that_fill_their_room_refuse_new_jobs(make_service):
    service = make_service("--limit", "record_bytes=1M")
    a = np.ones((300, 300))
    ids, answer = [], None
    for _ in range(4):
        answer = service.post("matmul", {"a": a, "b": a}, wait=0, form="safetensors")
        if answer.status == 429:
            break
        ids.append(answer.json()["id"])
        poll(service, ids[-1])
    assert answer.status == 429 and answer.json()["code"] == "results_full" and int(answer.headers["Retry-After"]) >= 1
    assert all(service.request("GET", f"/jobs/{one}/result").status == 200 for one in ids)
    assert service.request("DELETE", f"/jobs/{ids[0]}?forget=1").status == 200
    wait_for(lambda: service.post("matmul", SMALL, wait=0).status == 202)


def test_made_up_ids_never_expired(make_service):
    service = make_service("--limit", "record_sync_s=1", "--limit", "record_async_s=1")
    for wait in (0, 10):
        job_id = service.post("matmul", SMALL, wait=wait).json()["id"]
        wait_for(lambda: service.request("GET", f"/jobs/{job_id}").status != 200)
        assert service.request("GET", f"/jobs/{job_id}").status == 410
        flip = lambda at: job_id[:at] + format(int(job_id[at], 16) ^ 1, "x") + job_id[at + 1:]
        for made_up in (flip(40), flip(29), flip(28), flip(9), flip(8), job_id[0] + "0" * 40,
                        {"s": "a", "a": "s"}[job_id[0]] + job_id[1:]):
            for path in ("", "/result", "/outputs/c", "?wait=1"):
                answer = service.request("GET", f"/jobs/{made_up}{path}")
                assert (answer.status, answer.json()["code"]) == (404, "job_not_found"), made_up
            assert service.request("DELETE", f"/jobs/{made_up}?forget=1").status == 404


def test_every_end_is_counted_once(make_service):
    service = make_service()
    singular = {"a": np.zeros((2, 2)), "b": np.ones(2)}
    for wait in (0, 10):
        poll(service, service.post("solve", singular, wait=wait).json()["id"])
        for _ in range(3):
            poll(service, service.post("matmul", SMALL, wait=wait).json()["id"])
    with service.worker_held():
        job = service.post("matmul", SMALL, wait=0).json()
        service.request("DELETE", f"/jobs/{job['id']}")
        assert service.request("DELETE", f"/jobs/{job['id']}").status == 409
        assert service.post("matmul", SMALL, wait=10, deadline_ms=100).json()["state"] == "expired"
    expected = {'blasd_jobs_submitted_total{op="matmul"}': 8, 'blasd_jobs_submitted_total{op="solve"}': 2,
                'blasd_jobs_total{op="matmul",state="succeeded"}': 6,
                'blasd_jobs_total{op="matmul",state="cancelled"}': 1,
                'blasd_jobs_total{op="matmul",state="expired"}': 1, 'blasd_jobs_total{op="matmul",state="failed"}': 0,
                'blasd_jobs_total{op="solve",state="failed"}': 2,
                'blasd_job_failures_total{op="solve",code="singular_matrix"}': 2}
    metrics = service.metrics()
    assert {row: metrics.get(row) for row in expected} == expected
    service.kill("worker")
    service.kill("api")
    end = time.monotonic() + 30
    while True:
        try:
            metrics = service.metrics()
            if 'blasd_jobs_total{op="solve",state="failed"}' in metrics:
                break
        except OSError:
            pass
        assert time.monotonic() < end
        time.sleep(0.1)
    assert {row: metrics.get(row) for row in expected} == expected


@pytest.mark.first
def test_idempotency_key(service):
    def send(value, key):
        return service.request("POST", "/jobs?wait=10", json.dumps({"op": "matmul", "inputs": {"a": [[value]], "b": [[1]]}}),
                               {"Content-Type": TYPES["json"], "Idempotency-Key": key})
    first = send(1, "key-1").json()
    assert send(1, "key-1").json()["id"] == first["id"]
    assert send(1, "key-2").json()["id"] != first["id"]
    assert send(2, "key-1").json()["code"] == "idempotency_conflict"


def test_a_deadline_fires_on_time_while_queued_and_while_running(make_service):
    service = make_service()
    running = service.post(*LONG, wait=0, deadline_ms=1000).json()
    with service.worker_held():
        start = time.monotonic()
        answer = service.post("matmul", SMALL, wait=300, deadline_ms=200)
        took = time.monotonic() - start
    assert answer.status == 200 and answer.json()["state"] == "expired" and 0.15 < took
    assert answer.json()["error"]["code"] == "deadline_exceeded"
    assert poll(service, running["id"])["state"] == "expired"
    assert service.post("matmul", SMALL, deadline_ms=30000).json()["state"] == "succeeded"


@pytest.mark.first
def test_high_priority_goes_first(make_service):
    service = make_service("--limit", "claim_jobs=1")
    with service.worker_held():
        service.post("matmul", SMALL, wait=0)  # what an idle worker is handed is no longer in the queue
        ids = {p: service.post("matmul", SMALL, wait=0, priority=p).json()["id"] for p in ("low", "normal", "high")}
    jobs = {p: poll(service, i) for p, i in ids.items()}
    starts = [jobs[p]["started_at"] for p in ("high", "normal", "low")]
    assert starts == sorted(starts) and all(jobs[p]["priority"] == p for p in ids)


@pytest.mark.first
def test_a_full_queue_says_so_and_loses_nothing(make_service):
    service = make_service("--limit", "queue_jobs=10", "--limit", "queue_wait_ms=50")
    with service.worker_held():
        answers = [service.post("matmul", SMALL, wait=0) for _ in range(40)]
    refused = [a for a in answers if a.status == 429]
    assert len(refused) == 30
    assert all(int(a.headers["Retry-After"]) >= 1 and a.json()["code"] == "queue_full" for a in refused)
    taken = [a.json()["id"] for a in answers if a.status == 202]
    assert len(taken) == 10 and all(poll(service, i)["state"] == "succeeded" for i in taken)


def in_flight(service):
    text = service.request("GET", "/metrics").body.decode()
    return float(re.search(r"^blasd_http_requests_in_flight (\S+)$", text, re.M).group(1))


def test_requests_wait_for_admission_to_a_full_queue(make_service):
    """Thirty clients, room for four jobs: nobody is refused as long as there is room before their time is up."""
    service = make_service("--limit", "queue_jobs=4", "--limit", "queue_wait_ms=60000")
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        with service.worker_held():
            asked = [pool.submit(service.post, "matmul", {"a": [[float(i)]], "b": [[2.0]]}, wait=30 if i % 2 else 0)
                     for i in range(30)]
            wait_for(lambda: in_flight(service) >= 26)  # four are in the queue
        answers = [a.result() for a in asked]
    assert {a.status for a in answers} == {200, 202}
    for i, answer in enumerate(answers):
        assert poll(service, answer.json()["id"])["outputs"]["c"]["data"] == [[2.0 * i]]


def test_bodies_that_find_the_queue_filled_up_wait_too(make_service):
    """Eight requests begin while there is room for four jobs; their bodies come after all have begun."""
    service = make_service("--limit", "queue_jobs=4", "--limit", "queue_wait_ms=60000")
    body = json.dumps({"op": "matmul", "inputs": {"a": [[3.0]], "b": [[2.0]]}}).encode()
    clients = [http.client.HTTPConnection("127.0.0.1", service.port, timeout=60) for _ in range(8)]
    with service.worker_held():
        for client in clients:
            client.putrequest("POST", "/jobs?wait=30")
            client.putheader("Content-Length", str(len(body)))
            client.endheaders()
        wait_for(lambda: in_flight(service) >= 9)  # with the question itself
        for client in clients:
            client.send(body)
        time.sleep(0.3)  # nobody is refused meanwhile
        clients.pop().close()  # and who leaves is forgotten
    answers = [client.getresponse() for client in clients]
    assert [answer.status for answer in answers] == [200] * 7
    assert all(json.loads(answer.read())["outputs"]["c"]["data"] == [[6.0]] for answer in answers)
    wait_for(lambda: in_flight(service) <= 1)


def test_jobs_of_every_kind_are_submitted_again_as_they_are(make_service):
    """Four loops, whose views of the queue are late, and room for three jobs: what Redis refused waits and gets in."""
    service = make_service("--loops", "4", "--limit", "queue_jobs=3", "--limit", "queue_wait_ms=60000")
    stored = service.post("matmul", {"a": [[1.0]], "b": [[7.0]]}, keep=["c"]).json()["outputs"]["c"]["tensor"]["id"]

    def ask(i):
        a, b, kind = float(i + 1), [[2.0]], i % 6
        if kind == 4:
            b = {"tensor": stored}
        body = {"op": "matmul", "params": {}, "inputs": {"a": [[a]], "b": b}, "keep": ["c"] if kind == 3 else []}
        if kind < 3:
            return service.post("matmul", {"a": [[a]], "b": b}, form=("json", "safetensors", "multipart")[kind])
        headers = {"Content-Type": TYPES["json"], **({"Idempotency-Key": f"key-{i // 12}"} if kind == 5 else {})}
        if kind == 5:
            body["inputs"]["a"] = [[float(i // 12 + 1)]]
        return service.request("POST", "/jobs?wait=60", json.dumps(body), headers, timeout=120)

    with concurrent.futures.ThreadPoolExecutor(48) as pool:
        with service.worker_held():
            asked = [pool.submit(ask, i) for i in range(48)]
            wait_for(lambda: in_flight(service) >= 40)
        answers = [a.result() for a in asked]
    assert [a.status for a in answers] == [200] * 48, [a.body[:200] for a in answers if a.status != 200][:3]
    for i, answer in enumerate(answers):
        factor = 7.0 if i % 6 == 4 else 2.0
        output = answer.json()["outputs"]["c"]
        data = output.get("data")
        if i % 6 == 3:
            data = service.request("GET", f"/tensors/{output['tensor']['id']}", headers={"Accept": TYPES["npy"]}).npy().tolist()
        assert data == [[factor * (i // 12 + 1 if i % 6 == 5 else i + 1)]], (i, output)
    assert answers[5].json()["id"] == answers[11].json()["id"]
    wait_for(lambda: in_flight(service) <= 1)


def test_jobs_that_are_submitted_again_have_their_tensors_and_their_key(make_service):
    """Their tensors are large enough for a place in a segment, of which each submission takes another one."""
    service = make_service("--loops", "4", "--limit", "queue_jobs=3", "--limit", "queue_wait_ms=60000")
    given = [{"a": np.full((20, 20), i + 1.0), "b": np.eye(20)} for i in range(40)]

    def ask(i):
        headers = {"Content-Type": TYPES["safetensors"], "Accept": TYPES["json"], "Idempotency-Key": f"again-{i}"}
        return service.request("POST", "/jobs?wait=60", safetensors(given[i], op="matmul"), headers, timeout=120)

    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        with service.worker_held():
            asked = [pool.submit(ask, i) for i in range(40)]
            wait_for(lambda: in_flight(service) >= 36)
        answers = [a.result() for a in asked]
    assert [a.status for a in answers] == [200] * 40, [a.body[:200] for a in answers if a.status != 200][:3]
    for i, answer in enumerate(answers):
        assert np.array_equal(answer.json()["outputs"]["c"]["data"], given[i]["a"]), i
        again = ask(i)
        assert again.status == 200 and again.json()["id"] == answer.json()["id"], (i, again.status, again.body[:200])


def test_many_that_wait_for_admission_are_all_answered(make_service):
    """More than are refused at one go, and nothing happens in the service meanwhile that would wake it."""
    service = make_service("--limit", "queue_jobs=4", "--limit", "queue_wait_ms=50")
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        with service.worker_held():
            answers = list(pool.map(lambda _: service.post("matmul", SMALL, wait=0), range(200)))
    taken = [a.json()["id"] for a in answers if a.status == 202]
    refused = [a for a in answers if a.status == 429]
    assert len(taken) == 4 and len(refused) == 196
    assert all(int(a.headers["Retry-After"]) >= 1 and a.json()["code"] == "queue_full" for a in refused)
    assert all(poll(service, i)["state"] == "succeeded" for i in taken)


def test_records_expire(make_service):
    service = make_service("--limit", "record_sync_s=1", "--limit", "record_async_s=1")
    job = service.post("matmul", SMALL).json()
    wait_for(lambda: service.request("GET", f"/jobs/{job['id']}").status != 200)
    for path in ("", "/result", "/outputs/c"):
        assert service.request("GET", f"/jobs/{job['id']}{path}").status == 410


def test_the_service_tells_of_itself(service):
    ops = {op["name"]: op for op in service.request("GET", "/ops").json()["ops"]}
    assert {"matmul", "solve", "distance", "regression"} <= set(ops)
    assert [p["name"] for p in ops["solve"]["inputs"]][:2] == ["a", "b"]
    assert service.request("GET", "/ops/solve").json() == ops["solve"]
    devices = service.request("GET", "/devices").json()["devices"]
    assert devices and devices[0]["device"] == "cpu:0" and devices[0]["device_name"]
    service.run("matmul", SMALL)
    metrics = service.request("GET", "/metrics").body.decode()
    for line in metrics.splitlines():
        if line and not line.startswith("#"):
            float(line.rsplit(" ", 1)[1])
    assert "blasd_" in metrics
    assert "blasd_device_memory_bytes{worker=" in metrics and 'device="cpu:0"' in metrics
    assert service.request("GET", "/health/live").status == 200
    assert service.request("GET", "/health/ready").status == 200
