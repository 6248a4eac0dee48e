"""What one tenant has takes nothing of others away; what it asks for costs Redis so much and no more; and who may use a queue."""
import contextlib
import json
import signal
import time

import numpy as np
import pytest
from service import Redis, Service, until, wait_for
from test_redis import Server, client
from test_tenants import As, keys


MIB = 1 << 20


@contextlib.contextmanager
def two(tmp_path, *options, **of_ann):
    """Ann and Ben, of two tenants, at a service of their own."""
    file, secrets = keys(tmp_path, ann={"tenant": "ann", **of_ann}, ben={"tenant": "ben"})
    limits = ("lease_ms=60000", "silence_s=60", *options)  # a worker may be held for some time
    service = Service(tmp_path / "service", "--keys", file, *(word for one in limits for word in ("--limit", one))).start()
    try:
        yield service, As(service, secrets["ann"]), As(service, secrets["ben"])
    finally:
        service.stop()


def outer(one, side, wait="", headers=None, **members):
    """A few bytes that ask for side x side numbers."""
    inputs = {name: {"full": shape, "value": 1} for name, shape in (("a", [side, 1]), ("b", [1, side]))}
    body = json.dumps({"op": "matmul", "inputs": inputs, **members})
    return one.request("POST", f"/jobs{wait}", body, {"Content-Type": "application/json", **(headers or {})})


def fill(one, most=100, **job):
    """Sends such jobs until one is refused; the refusal."""
    for _ in range(most):
        answer = outer(one, **job)
        if answer.status != 202:
            return answer
    raise AssertionError("nothing was refused")


def put(one, count):
    return one.request("POST", "/tensors", json.dumps([[1.0] * count]), {"Content-Type": "application/json"})


@pytest.mark.parametrize("quota", [{}, {"max_stored_bytes": 4 * MIB}])
@pytest.mark.parametrize("queued", [True, False])
def test_results_are_reserved(tmp_path, queued, quota):
    with two(tmp_path, "record_bytes=16M", "queue_bytes=32M", **quota) as (service, ann, ben):
        with service.worker_held() if queued else contextlib.nullcontext():
            refused = fill(ann, side=300)
            assert (refused.status, refused.json()["code"]) == (429, "quota_exceeded"), refused.body
            for _ in range(5):
                assert outer(ben, 300).status == 202
        assert service.request("GET", "/health/ready", headers={"Authorization": f"Bearer {ben.secret}"}).status == 200
        job = outer(ben, 300, "?wait=30").json()
        assert job["state"] == "succeeded"
        if not quota:  # the room comes back
            wait_for(lambda: all(j["state"] == "succeeded" for j in ann.request("GET", "/jobs?limit=100").json()["jobs"]))
            for one in ann.request("GET", "/jobs?limit=100").json()["jobs"]:
                assert ann.request("DELETE", f"/jobs/{one['id']}?forget=1").status < 300
            assert outer(ann, 300).status == 202


def test_waited_for_results_of_the_one_that_has_most_stay_for_less_time(tmp_path):
    with two(tmp_path, "record_sync_bytes=1M") as (_service, ann, ben):
        first = outer(ben, 100, "?wait=30").json()["id"]
        own = [outer(ann, 200, "?wait=30").json()["id"] for _ in range(6)]
        last = outer(ben, 100, "?wait=30").json()["id"]
        wait_for(lambda: ann.request("GET", f"/jobs/{own[-1]}").status == 410)
        assert ann.request("GET", f"/jobs/{own[0]}").status == 200
        assert ben.request("GET", f"/jobs/{first}").status == 200
        assert ben.request("GET", f"/jobs/{last}").status == 200


def test_a_key_outlives_pressure(tmp_path):
    with two(tmp_path, "record_sync_bytes=1M") as (_service, ann, ben):
        key = {"Idempotency-Key": "once"}
        for _ in range(8):
            outer(ann, 200, "?wait=30")
        first = outer(ann, 50, "?wait=30", key).json()
        wait_for(lambda: ann.request("GET", f"/jobs/{first['id']}").status == 410)
        again = outer(ann, 50, "?wait=30", key)
        assert (again.status, again.json()["code"]) == (410, "record_expired"), again.body
        again = outer(ben, 50, "?wait=30", key).json()  # another one's key
        assert again["state"] == "succeeded" and again["id"] != first["id"]


def test_tensors_of_others_stay(tmp_path):
    with two(tmp_path, "tensor_bytes=8M", "record_bytes=64M", "queue_bytes=128M") as (service, ann, ben):
        kept = put(ben, 50000).json()["id"]
        with service.worker_held():
            refused = fill(ann, side=300, keep=["c"], results=[])
            assert (refused.status, refused.json()["code"]) == (429, "tensors_full"), refused.body
        wait_for(lambda: all(j["state"] == "succeeded" for j in ann.request("GET", "/jobs?limit=100").json()["jobs"]))
        for _ in range(30):
            assert put(ann, 20000).status == 201
        assert ben.request("GET", f"/tensors/{kept}").status == 200
        assert put(ben, 50000).status == 201
        assert ben.request("GET", f"/tensors/{kept}").status == 200


@pytest.mark.parametrize("own", [True, False])
def test_tensors_in_use_are_not_walked(tmp_path, own):
    """A refusal asks Redis as much with 30 tensors in use as with 200, whoever's they are."""
    with two(tmp_path, "tensors=60") as (service, ann, ben):
        redis, calls = Redis(service), []

        def cost():
            redis("CONFIG", "RESETSTAT")
            refused = put(ann if own else ben, 1)
            assert (refused.status, refused.json()["code"]) == (429, "tensors_full"), refused.body
            lines = [line for line in redis("INFO", "commandstats").splitlines() if line.startswith(b"cmdstat_h")]
            return sum(int(line.split(b"calls=")[1].split(b",")[0]) for line in lines)

        with service.worker_held():
            for tensors in (b" 60 ", b" 400 "):
                limits = redis("GET", "{blasd}:limits").replace(b" 60 ", tensors)
                redis("SET", "{blasd}:limits", limits)
                time.sleep(1.5)  # a tick looks at it
                for one in (ann, *(() if own else (ben,))):
                    while (made := put(one, 1)).status == 201:
                        ref = {"tensor": made.json()["id"]}
                        job = one.request("POST", "/jobs", json.dumps({"op": "qr", "inputs": {"a": ref}}),
                                          {"Content-Type": "application/json"})
                        assert job.status == 202, job.body
                calls.append(cost())
        assert abs(calls[0] - calls[1]) <= 40, calls  # ticks ask, too
        redis.close()


@pytest.mark.parametrize("request_of", [lambda ann: put(ann, 1), lambda ann: ann.request("GET", "/tensors"),
                                        lambda ann: ann.request("GET", "/jobs")])
def test_a_keys_rate_counts_all_that_reaches_redis(tmp_path, request_of):
    with two(tmp_path, max_jobs_per_second=3) as (_service, ann, ben):
        answers = [request_of(ann) for _ in range(30)]
        assert {answer.status for answer in answers} - {429} in ({200}, {201})
        assert any(answer.status == 429 and answer.json()["code"] == "rate_limited" for answer in answers)
        assert ann.request("GET", "/ops").status == 200 and request_of(ben).status < 300


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path / "server")
    yield server.up()
    server.close()


@pytest.mark.parametrize("change, told", [(("SET", "{blasd}:schema", "8"), "schema 8"),
                                          (("DEL", "{blasd}:schema"), "schema 5")])  # which recorded no number
def test_a_queue_of_another_schema_is_refused(server, change, told):
    service = client(server, server.api("--redis", server.url))
    worker = server.worker("--redis", server.url)
    service.wait_ready()
    eye = {"a": np.eye(2), "b": np.eye(2)}
    assert service.run("matmul", eye)[1]["state"] == "succeeded"
    assert server.ask("GET", "{blasd}:schema") == b"7"
    jobs = server.ask("HGET", "{blasd}:state", "matmul submitted")
    server.ask(*change)
    wait_for(lambda: service.request("GET", "/health/ready").status == 503)
    detail = service.request("GET", "/health/ready").json()["detail"]
    assert told in detail and "--queue" in detail
    assert service.post("matmul", eye).status == 503
    for part in ("api", "worker"):
        wait_for(lambda: any(f"blasd {part}" in line and told in line for line in server.log_text().splitlines()))
    assert worker.poll() is None
    late = server.start([*server.api("--redis", server.url).args])  # one that is started now
    assert late.wait(60) != 0
    assert server.ask("HGET", "{blasd}:state", "matmul submitted") == jobs
    server.ask("SET", "{blasd}:schema", "7")
    service.wait_ready()
    assert service.run("matmul", eye)[1]["state"] == "succeeded"


def test_limits_are_recorded_once(server, tmp_path):
    one = client(server, server.api("--redis", server.url, "--limit", "tensor_bytes=8M"))
    server.worker("--redis", server.url, "--limit", "tensor_bytes=2M", "--limit", "lease_ms=60000")
    other = client(server, server.api("--redis", server.url, "--limit", "tensor_bytes=1M", "--limit", "queue_jobs=7"))
    one.wait_ready()
    kept = [put(one, 100000).json()["id"] for _ in range(8)]
    wait_for(lambda: "tensor_bytes" in other.request("GET", "/health/ready").json().get("limits", ""))
    assert "queue_jobs" in other.request("GET", "/health/ready").json()["limits"]
    assert "limits" not in one.request("GET", "/health/ready").json()
    wait_for(lambda: server.log_text().count("the deployment has other limits") >= 2)
    time.sleep(2)
    for tensor in kept:
        assert other.request("GET", f"/tensors/{tensor}").status == 200
    jobs = [other.post("matmul", {"a": np.eye(2), "b": np.eye(2)}, wait=0).status for _ in range(30)]
    assert set(jobs) == {202}


def test_an_expired_job_is_gone_at_once_for_a_new_front_end(server):
    service = client(server, server.api("--redis", server.url, "--limit", "record_async_s=1"))
    server.worker("--redis", server.url, "--limit", "record_async_s=1")
    service.wait_ready()
    job = service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}, wait=0).json()["id"]
    until(service, job, {"succeeded"})
    wait_for(lambda: service.request("GET", f"/jobs/{job}").status == 410)
    for _ in range(5):
        late = client(server, server.api("--redis", server.url, "--limit", "record_async_s=1"))
        statuses = [late.request("GET", f"/jobs/{job}").status for _ in range(20)]
        assert set(statuses) <= {410, 503}, statuses
