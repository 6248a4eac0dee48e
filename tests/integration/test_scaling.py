"""GET /load: what waits for each class of devices, and how many workers would clear it; and what is asked of workers to come."""
import json

import numpy as np
import pytest
from service import wait_for
from test_redis import client, ready_line, server  # noqa: F401  (a fixture)

SMALL = {"a": np.eye(2), "b": np.eye(2)}


def load(service, query=""):
    answer = service.request("GET", "/load" + query)
    assert answer.status == 200
    return answer.json()["classes"]


def test_down_to_no_worker_and_back(server):  # noqa: F811
    """With ready_workers=0 jobs wait for a worker that is yet to be started, and /load tells how many are wanted."""
    server.up()
    address = ("--redis", server.url, "--blobs", "redis")
    service = client(server, server.api(*address, "--limit", "ready_workers=0"))
    wait_for(lambda: service.request("GET", "/health/ready").status == 200)
    assert load(service) == {name: {"waiting_s": 0, "workers": 0, "wanted": 0} for name in ("cpu", "cuda")}
    jobs = [service.post("matmul", SMALL, wait=0).json()["id"] for _ in range(3)]
    card = service.post("matmul", SMALL, wait=0, device="cuda")
    assert card.status == 202, card.body
    told = load(service)
    assert (told["cpu"]["workers"], told["cpu"]["wanted"]) == (0, 1) and told["cpu"]["waiting_s"] > 0
    assert (told["cuda"]["workers"], told["cuda"]["wanted"]) == (0, 1)
    least = told["cpu"]["waiting_s"] / 2
    if least >= 0.001:
        assert load(service, f"?target_s={least}")["cpu"]["wanted"] == 2
    worker = server.worker(*address, "--device", "cpu:0", "--measured", "none")
    for job in jobs:
        wait_for(lambda: service.request("GET", f"/jobs/{job}").json()["state"] == "succeeded")
    wait_for(lambda: load(service)["cpu"] == {"waiting_s": 0, "workers": 1, "wanted": 0})
    assert load(service)["cuda"]["wanted"] == 1  # for which none of cpu will do
    worker.terminate()
    assert worker.wait(60) == 0
    wait_for(lambda: load(service)["cpu"]["workers"] == 0)
    assert service.request("GET", "/health/ready").status == 200


def test_a_service_of_fixed_workers_wants_one(server):  # noqa: F811
    server.up()
    service = client(server, server.api("--redis", server.url, "--blobs", "redis"))
    answer = service.request("GET", "/health/ready")
    assert answer.status == 503 and "ready_workers" in answer.json()["detail"]


@pytest.mark.parametrize("value", ["0", "-1", "1e10", "nan", "", "soon"])
def test_targets_that_are_none(service, value):
    answer = service.request("GET", f"/load?target_s={value}")
    assert answer.status == 400
    assert (answer.json()["code"], answer.json()["field"]) == ("malformed_query", "target_s"), json.dumps(answer.json())
