"""What hangs does not hold the others: parts that are stopped, computations that hear nobody, a drain beside them."""
import http.client
import json
import os
import re
import signal
import socket
import threading
import time

import numpy as np
import pytest
from service import API, BLASD, TYPES, Answer, Service, command_line, wait_for
from test_redis import Server
from test_up import Apart
from test_webhooks import secrets

SMALL = {"a": np.eye(2), "b": np.full((2, 2), 3.0)}
N = 1700  # long enough to have the slow pool to itself, but for small jobs
HANG = BLASD.parent / "hang.so"
ENDED = ("succeeded", "failed", "cancelled", "expired")


def state(service, job_id):
    return service.request("GET", f"/jobs/{job_id}").json()["state"]


def waiting(service):
    """Requests that wait for a job to end."""
    text = service.request("GET", "/metrics").body.decode()
    return int(re.search(r"^blasd_http_requests_waiting (\d+)$", text, re.M).group(1))


def ended(service, job_id):
    return wait_for(lambda: (job := service.request("GET", f"/jobs/{job_id}").json())["state"] in ENDED and job)


def submit(service, inputs=SMALL):
    answer = service.post("matmul", inputs, wait=0, form="safetensors")
    assert answer.status == 202, answer.body
    return answer.json()["id"]


# --- parts that are stopped ---------------------------------------------------------------------------------------


PARTS = ("redis", "api", "worker")


@pytest.mark.parametrize("victim", PARTS)
def test_a_part_that_gives_no_sign_of_life_is_replaced(make_service, victim):
    service = make_service("--limit", "silence_s=4")
    before = {name: service.part(name) for name in PARTS}
    ids = [submit(service) for _ in range(20)]
    service.kill(victim, signal.SIGSTOP)
    wait_for(lambda: service.part(victim) not in (before[victim], None))
    service.wait_ready()
    ids += [submit(service) for _ in range(20)]
    for job_id in ids:
        assert ended(service, job_id)["state"] == "succeeded"
    assert command_line(before[victim]) == ""
    assert {name: service.part(name) for name in PARTS if name != victim} == \
        {name: pid for name, pid in before.items() if name != victim}
    assert "silence_s" in service.log_text()


def test_each_of_several_workers_is_replaced(make_service):
    service = make_service("--workers", "2", "--limit", "silence_s=4")
    from service import children

    def all_workers():
        return [pid for pid in children(service.process.pid) if command_line(pid).startswith("blasd worker")]
    # it is ready with the first one; a worker that never was is not watched
    wait_for(lambda: len(service.request("GET", "/devices").json()["devices"]) == 2)
    workers = all_workers()
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    ids = [submit(service) for _ in range(10)]
    for job_id in ids:
        assert ended(service, job_id)["state"] == "succeeded"
    assert not any(command_line(pid) for pid in workers)


@pytest.mark.parametrize("victim", PARTS)
def test_a_drain_does_not_wait_for_a_part_that_is_stopped(make_service, victim):
    service = make_service("--limit", "silence_s=4")
    ids = [submit(service) for _ in range(5)]
    pid = service.kill(victim, signal.SIGSTOP)
    assert service.stop(timeout=150) == 0
    assert f"(process {pid}) has given no sign of life" in service.log_text()
    service.start()
    for job_id in ids:
        assert ended(service, job_id)["state"] == "succeeded"


def test_a_disk_that_hangs_does_not_hold_the_drain(make_service, tmp_path):
    """The supervisor syncs Redis' file in a thread; the one that ends the parts does not wait for it."""
    gate = tmp_path / "gate"
    service = make_service(env={"LD_PRELOAD": str(HANG), "BLASD_TEST_SYNC_GATE": str(gate)})
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    parts = [service.part(name) for name in PARTS]
    service.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not any(command_line(pid) for pid in parts))
    assert service.process.poll() is None  # what was appended is to be on the disk first
    gate.touch()
    assert service.stop() == 0


@pytest.mark.full
def test_a_supervisor_that_was_stopped_replaces_nothing(make_service):
    """It counts what it missed itself, not how long it was away."""
    service = make_service("--limit", "silence_s=3")
    before = {name: service.part(name) for name in PARTS}
    for _ in range(2):
        service.process.send_signal(signal.SIGSTOP)
        time.sleep(6)
        service.process.send_signal(signal.SIGCONT)
        time.sleep(2)
    assert {name: service.part(name) for name in PARTS} == before


@pytest.mark.full
def test_who_sends_is_not_replaced_for_a_redis_that_hangs(tmp_path):
    """It asks for webhooks, and waits for the answer."""
    server = Server(tmp_path / "redis").up()
    service = Service(tmp_path / "service", "--redis", server.url, "--outgoing-hosts", "http://127.0.0.1:9",
                      "--webhook-secrets", secrets(tmp_path))
    try:
        service.start()
        before = service.part("notify")
        server.redis.send_signal(signal.SIGSTOP)
        wait_for(lambda: service.log_text().count("pending requests wait") >= 1)
        server.redis.send_signal(signal.SIGCONT)
        wait_for(lambda: service.log_text().count("sending goes on") >= 1)
        assert service.part("notify") == before
    finally:
        server.redis.send_signal(signal.SIGCONT)
        service.stop(check=False)
        server.close()


# --- computations that hear nobody --------------------------------------------------------------------------------


@pytest.fixture
def hanging(make_service, tmp_path):
    """Makes services whose matrix products can hang; `gate` lets those that only wait go on."""
    def make(*limits):
        options = [word for limit in ("stop_s=1", *limits) for word in ("--limit", limit)]
        service = make_service(*options, env={"LD_PRELOAD": str(HANG), "BLASD_TEST_GATE": str(tmp_path / "gate")})
        service.gate = tmp_path / "gate"
        return service
    return make


def product(first, n=N):
    return {"a": np.full((n, n), first), "b": np.eye(n)}


def start(service, first):
    job_id = submit(service, product(first))
    wait_for(lambda: state(service, job_id) == "running")
    return job_id


FOREVER, GATED = 777.125, 777.25


def test_a_cancelled_job_that_hangs_ends_its_worker(hanging):
    service = hanging()
    worker, job_id = service.part("worker"), start(service, FOREVER)
    behind = [submit(service, product(5.0)) for _ in range(3)] + [submit(service) for _ in range(5)]
    assert service.request("DELETE", f"/jobs/{job_id}").json()["state"] == "cancelled"
    for other in behind:
        job = ended(service, other)
        assert job["state"] == "succeeded" and job["execution"]["attempts"] == 1, job
    wait_for(lambda: service.part("worker") not in (worker, None))
    assert state(service, job_id) == "cancelled"
    assert f"{job_id} (jobs in the call: 1) is cancelled or past its deadline and does not stop" in service.log_text()


def test_one_past_its_deadline_that_hangs_ends_its_worker(hanging):
    service = hanging()
    worker = service.part("worker")
    job_id = service.post("matmul", product(FOREVER), wait=0, form="safetensors", deadline_ms=1500).json()["id"]
    assert ended(service, job_id)["state"] == "expired"
    wait_for(lambda: service.part("worker") not in (worker, None))
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"


def test_a_job_past_job_s_fails_once(hanging):
    service = hanging("job_s=8")  # what a small one never takes, though its machine stands still for seconds
    worker, job_id = service.part("worker"), start(service, FOREVER)
    behind = submit(service, product(5.0, 700))  # waits for the other, and takes a fiftieth of a second of a processor
    job = ended(service, job_id)
    assert (job["state"], job["error"]["code"]) == ("failed", "job_too_long") and "job_s" in job["error"]["detail"]
    assert job["execution"]["attempts"] == 1
    assert ended(service, behind)["state"] == "succeeded"
    wait_for(lambda: service.part("worker") not in (worker, None))


@pytest.mark.full
def test_a_long_call_that_is_wanted_keeps_its_lease(hanging):
    """Neither the worker's lease nor the supervisor takes a library call of long for a worker that hangs."""
    service = hanging("lease_ms=3000", "silence_s=3")
    worker, job_id = service.part("worker"), start(service, GATED)
    for _ in range(16):
        time.sleep(0.5)
        assert state(service, job_id) == "running"
    service.gate.touch()
    job = ended(service, job_id)
    assert job["state"] == "succeeded" and job["execution"]["attempts"] == 1
    assert service.part("worker") == worker


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_drain_does_not_wait_for_what_hangs(hanging, cancelled):
    service = hanging("drain_s=1") if not cancelled else hanging("drain_s=3600")
    job_id, behind = start(service, FOREVER), submit(service, product(5.0))
    if cancelled:
        service.request("DELETE", f"/jobs/{job_id}")
    assert service.stop() == 0
    assert "killing it" not in service.log_text()  # it ended by itself, and gave back what it had
    service.start()
    if not cancelled:
        wait_for(lambda: state(service, job_id) == "running")
        service.request("DELETE", f"/jobs/{job_id}")
    assert ended(service, behind)["state"] == "succeeded"
    assert state(service, job_id) == "cancelled"


# --- the port while the service drains ----------------------------------------------------------------------------


def ask(service, method, path, body=None):
    """An answer, and whether the connection is to be closed after it."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": TYPES["json"]} if body else {})
        response = connection.getresponse()
        answer = Answer(response.status, response.headers, response.read())
    finally:
        connection.close()
    API.check(method, path.split("?")[0], answer)
    assert answer.headers["Connection"] == "close"
    return answer


JOB = json.dumps({"op": "matmul", "inputs": {"a": [[1]], "b": [[2]]}})


@pytest.mark.full
def test_the_port_says_that_it_drains(hanging):
    service = hanging("drain_s=3600")
    known, job_id = service.post("matmul", SMALL).json()["id"], start(service, GATED)
    got = []
    waiter = threading.Thread(target=lambda: got.append(service.request("GET", f"/jobs/{job_id}?wait=60", timeout=90)))
    waiter.start()
    wait_for(lambda: waiting(service) == 1)
    service.process.send_signal(signal.SIGTERM)
    refused = wait_for(lambda: (answer := service.request("POST", "/jobs", JOB, {"Content-Type": TYPES["json"]})).status
                    == 503 and answer)
    assert refused.json()["code"] == "draining"
    for _ in range(3):  # for as long as the job takes; that the workers are told after ten seconds changes nothing
        refused = ask(service, "POST", "/jobs", JOB)
        assert refused.status == 503 and refused.json()["code"] == "draining" and refused.headers["Retry-After"]
        ready = ask(service, "GET", "/health/ready")
        assert ready.status == 503 and ready.json()["code"] == "draining"
        assert ask(service, "GET", "/health/live").status == 200
        assert ask(service, "GET", f"/jobs/{known}").json()["outputs"]["c"]["data"] == [[3, 3], [3, 3]]
        assert ask(service, "GET", f"/jobs/{job_id}").json()["state"] == "running"
        time.sleep(4)
    service.gate.touch()
    waiter.join()
    assert got[0].status == 200 and got[0].json()["state"] == "succeeded"
    assert service.stop() == 0
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", service.port), timeout=5)


def test_a_front_end_by_itself_drains_too(tmp_path):
    apart = Apart(tmp_path, "redis")
    try:
        service = apart.client()
        worker, api = apart.processes[1], apart.processes[2]
        worker.send_signal(signal.SIGSTOP)
        job_id = submit(service)
        got = []
        waiter = threading.Thread(target=lambda: got.append(service.request("GET", f"/jobs/{job_id}?wait=60", timeout=90)))
        waiter.start()
        wait_for(lambda: waiting(service) == 1)
        api.terminate()
        answer = wait_for(lambda: (one := service.request("POST", "/jobs", JOB, {"Content-Type": TYPES["json"]})).status
                       == 503 and one)
        assert answer.json()["code"] == "draining"
        worker.send_signal(signal.SIGCONT)
        waiter.join()
        assert got[0].status == 200 and got[0].json()["state"] == "succeeded"
        assert api.wait(30) == 0
    finally:
        apart.stop()
