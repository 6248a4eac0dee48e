"""Jobs that would take for ever: refused where that can be known, and heard by DELETE, deadline and SIGTERM where not,
while the service goes on with others. Nothing here is timed: states are waited for."""
import json
import time

import numpy as np
import pytest
from service import until

SMALL = {"a": np.eye(2), "b": np.full((2, 2), 3.0)}


def empty(*shape):
    return {"dtype": "float64", "shape": list(shape), "data": []}


def numbers(*shape):
    return np.random.default_rng(7).standard_normal(shape).tolist()


SWEEPS = {"method": "lasso", "alpha": 1e-9, "tol": 0, "max_iter": 10 ** 9}
STEPS = {"method": "gd", "iterations": 10 ** 9, "learning_rate": 1e-9}
MANY = 4 * 10 ** 8  # random numbers, which one thread makes in some seconds
ENDLESS = {
    "sweeps": ("regression", {"x": numbers(30, 40), "y": numbers(30)}, SWEEPS),
    "sweeps of many": ("regression", {"x": numbers(64, 30, 40), "y": numbers(64, 30)}, SWEEPS),
    "steps": ("regression", {"x": numbers(50, 9), "y": numbers(50)}, STEPS),
    "no coordinates": ("distance", {"x": empty(1, 0), "y": empty(10 ** 12, 0)}, {"output": "argmin"}),
    "rows of nothing": ("distance", {"x": empty(10 ** 5, 0), "y": empty(10 ** 9, 0)}, {"output": "topk", "k": 3}),
    "a rule": ("matmul", {"a": {"random": "normal", "seed": 1, "shape": [MANY], "dtype": "float16"},
                          "b": {"full": [MANY], "value": 1, "dtype": "float16"}}, {}),
    "room for outputs": ("svd", {"a": empty(10 ** 7, 0, 3)}, {}),
    "a covariance": ("distance", {"x": numbers(1100, 1000)}, {"metric": "mahalanobis", "output": "argmin"}),
}


def submit(service, job, **members):
    op, inputs, params = ENDLESS[job] if isinstance(job, str) else job
    body = json.dumps({"op": op, "inputs": inputs, "params": params, **members})
    return service.request("POST", "/jobs", body, {"Content-Type": "application/json"})


def begin(service, job, **members):
    """The job, seen to run: so nothing before it holds the only worker's place for such jobs."""
    answer = submit(service, job, **members)
    assert answer.status == 202, answer.body
    return until(service, answer.json()["id"], ("running",))["id"]


def others_go_on(service):
    assert service.post("matmul", SMALL).json()["state"] == "succeeded"


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    """A service that refuses no job for the time it takes."""
    from service import Service
    one = Service(tmp_path_factory.mktemp("patient"), "--workers", "1", "--limit", "job_s=0").start()
    yield one
    one.stop()


@pytest.mark.parametrize("job", ENDLESS)
def test_delete_is_heard(patient, job):
    worker = patient.part("worker")
    for _ in range(2):
        job_id = begin(patient, job)
        others_go_on(patient)
        assert patient.request("DELETE", f"/jobs/{job_id}").json()["state"] == "cancelled"
    others_go_on(patient)
    assert patient.part("worker") == worker


@pytest.mark.parametrize("job", ["sweeps", "no coordinates"])
def test_a_deadline_is_heard(patient, job):
    worker = patient.part("worker")
    for _ in range(2):
        job_id = begin(patient, job, deadline_ms=1500)
        until(patient, job_id, ("expired",))
    others_go_on(patient)
    assert patient.part("worker") == worker


@pytest.mark.parametrize("job", ["sweeps of many", "rows of nothing"])
def test_sigterm_is_heard(make_service, job):
    service = make_service("--limit", "job_s=0")
    begin(service, job)
    others_go_on(service)
    service.stop()  # which fails where it exits with anything but 0, or not at all


def test_a_few_bytes_do_not_stop_the_service(service):
    """Shapes without elements: no more problems than job_items, and those are done at once."""
    for shape in ((10 ** 12, 0, 0), (10 ** 11, 1, 0)):
        answer = submit(service, ("distance", {"x": empty(*shape)}, {}))
        problem = answer.json()
        assert answer.status == 413 and problem["code"] == "job_too_large"
        assert "job_items" in problem["detail"] and problem["field"] == "inputs"
    for op, inputs, params in (
            ("distance", {"x": empty(10 ** 8, 0, 0)}, {"output": "topk"}),
            ("distance", {"x": empty(10 ** 8, 1, 0)}, {"output": "condensed"}),
            ("distance", {"x": empty(10 ** 6, 2, 0)}, {"output": "within", "radius": 1}),
            ("distance", {"x": empty(10 ** 6, 1, 0), "y": empty(1, 0)}, {}),
            ("matmul", {"a": empty(10 ** 6, 1, 0), "b": empty(0, 1)}, {}),
            ("matmul", {"a": empty(5000, 0), "b": empty(0, 5000)}, {}),
            ("solve", {"a": empty(10 ** 6, 0, 0), "b": empty(0, 1)}, {})):
        job_id = submit(service, (op, inputs, params)).json()["id"]
        others_go_on(service)
        job = until(service, job_id, ("succeeded",))
        assert job["execution"]["flops"] >= max(np.prod(t["shape"]) for t in job["outputs"].values())


def test_what_is_predicted_to_take_too_long_is_refused(make_service):
    service = make_service("--limit", "job_s=1")
    end = time.monotonic() + 120
    while not all("cost" in device for device in service.request("GET", "/devices").json()["devices"]):
        assert time.monotonic() < end, "the worker does not say how fast it is"
        time.sleep(0.1)
    end = time.monotonic() + 60
    while True:  # the front end looks now and then
        answer = submit(service, "steps")
        if answer.status != 202 or time.monotonic() > end:
            break
        assert service.request("DELETE", f"/jobs/{answer.json()['id']}").json()["state"] == "cancelled"
        time.sleep(0.5)
    problem = answer.json()
    assert (answer.status, problem["code"]) == (422, "job_too_long")
    assert "may take 1 s (limit job_s)" in problem["detail"]
    for job in ENDLESS:
        answer = submit(service, job)
        if "sweeps" not in job and job != "room for outputs":
            assert (answer.status, answer.json()["code"]) == (422, "job_too_long"), job
        else:  # which may be over soon, or take long though they count few operations: they are ended when their time is up
            assert answer.status == 202
            assert until(service, answer.json()["id"], ("failed",))["error"]["code"] == "job_too_long"
    fewer = {**SWEEPS, "max_iter": 1000}
    job_id = submit(service, ("regression", {"x": numbers(30, 40), "y": numbers(30)}, fewer)).json()["id"]
    until(service, job_id, ("succeeded",))
    others_go_on(service)
