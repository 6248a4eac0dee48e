"""References in jobs and graphs: to outputs of jobs that have ended; those that have not are rejected."""
import json

import numpy as np
import pytest
from service import TYPES, until
from test_tenants import As, keys
from test_tensors import problem, put, run

RNG = np.random.default_rng(23)


def queued(service, op, inputs, **members):
    """The id of a job without a waiting client."""
    answer = run(service, op, inputs, wait=0, **members)
    assert answer.status == 202, answer.body
    return answer.json()["id"]


def of(job, output="c", **more):
    return {"job": job, "output": output, **more}


def graph(service, steps, wait=30, headers=None, **members):
    return service.request("POST", f"/graphs?wait={wait}" if wait else "/graphs", json.dumps({"steps": steps, **members}),
                           {"Content-Type": TYPES["json"], **(headers or {})})


def value(service, document, name):
    path = f"/jobs/{document['id']}/outputs/{name}"
    return service.request("GET", path, headers={"Accept": TYPES["npy"]}).npy()


def test_a_job_that_has_not_ended_cannot_be_referred_to(make_service):
    service = make_service()
    with service.worker_held():
        first = queued(service, "matmul", {"a": np.eye(2), "b": np.eye(2)})
        detail = problem(run(service, "matmul", {"a": np.eye(2), "b": of(first)}, wait=0), 409, "job_not_ended", "inputs.b")
        assert first in detail and "queued" in detail
        steps = {"p": {"op": "matmul", "inputs": {"a": of(first), "b": [[1.0, 0.0], [0.0, 1.0]]}}}
        problem(graph(service, steps, wait=0), 409, "job_not_ended", "steps.p.inputs.a")
        assert service.request("GET", "/jobs?state=waiting").status == 400
    until(service, first, ("succeeded",))
    assert run(service, "matmul", {"a": np.eye(2), "b": of(first)}).json()["state"] == "succeeded"
    assert graph(service, steps).json()["state"] == "succeeded"


@pytest.mark.parametrize("n", [3, 60, 250])
def test_a_chain(service, n):
    """Each output is in a record, in a segment, in a blob of its own."""
    a, b = RNG.standard_normal((2, n, n))
    first = run(service, "matmul", {"a": a, "b": b}).json()["id"]
    second = run(service, "matmul", {"a": of(first), "b": a}).json()["id"]
    third = run(service, "matmul", {"a": of(second), "b": of(first)}).json()["id"]
    part = run(service, "matmul", {"a": of(third, slice=[[1, 3], [0, 2]]), "b": np.eye(2)}).json()
    np.testing.assert_allclose(value(service, part, "c"), (a @ b @ a @ (a @ b))[1:3, :2], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("wait", [0, 10])
def test_an_idempotency_key_finds_its_job_when_the_target_is_gone(make_service, wait):
    """Another request under the key is rejected as ever, and so is the same request under a new key."""
    service, query = make_service(), f"?wait={wait}" if wait else ""

    def ask(key, inputs, query=query):
        headers = {"Content-Type": TYPES["json"], "Idempotency-Key": key}
        return service.request("POST", f"/jobs{query}", json.dumps({"op": "matmul", "inputs": {**inputs, "b": [[1.0, 2.0], [3.0, 4.0]]}}), headers)

    tensor, good = put(service, np.eye(2))["id"], run(service, "matmul", {"a": np.eye(2), "b": np.eye(2)}, keep=["c"]).json()["id"]
    steps = {"p": {"op": "matmul", "inputs": {"a": of(good), "b": [[1.0, 0.0], [0.0, 1.0]]}}}
    once = {"Idempotency-Key": "graph"}
    cases = {"forgotten": {"a": of(good)}, "part": {"a": of(good, slice=[[0, 1]])}, "tensor": {"a": {"tensor": tensor}}}
    first = {key: ask(key, inputs, "?wait=10").json()["id"] for key, inputs in cases.items()}
    whole = graph(service, steps, headers=once).json()["id"]
    kept = service.request("GET", f"/jobs/{good}").json()["outputs"]["c"]["tensor"]["id"]
    assert service.request("DELETE", f"/jobs/{good}?forget=1").status == 200
    for id in (tensor, kept):
        assert service.request("DELETE", f"/tensors/{id}").status in (200, 204)
    for key, inputs in cases.items():
        again = ask(key, inputs)
        assert (again.status, again.json()["id"]) == (200, first[key]), again.body
        problem(ask("new-" + key, inputs), 422, "reference_not_found", "inputs.a")
    problem(ask("forgotten", {"a": of(good, slice=[[0, 2], [0, 2]])}), 422, "idempotency_conflict")
    problem(ask("part", {"a": of(good, slice=[[1, 2]])}), 422, "idempotency_conflict")
    again = graph(service, steps, headers=once)
    assert (again.status, again.json()["id"]) == (200, whole), again.body
    problem(graph(service, steps, headers={"Idempotency-Key": "graph-again"}), 422, "reference_not_found", "steps.p.inputs.a")


def test_another_tenants_job_is_not_found(make_service, tmp_path):
    file, secrets = keys(tmp_path, ann={"tenant": "ann"}, ben={"tenant": "ben"})
    service = make_service("--keys", file, start=False)
    service.headers = {"Authorization": f"Bearer {secrets['ann']}"}
    service.start()
    ben = As(service, secrets["ben"])
    with service.worker_held():
        first = queued(service, "matmul", {"a": np.eye(2), "b": np.eye(2)})
        body = json.dumps({"op": "matmul", "inputs": {"a": of(first), "b": [[1, 0], [0, 1]]}})
        problem(ben.request("POST", "/jobs", body, {"Content-Type": TYPES["json"]}), 422, "reference_not_found", "inputs.a")
    until(service, first, ("succeeded",))
    problem(ben.request("POST", "/jobs", body, {"Content-Type": TYPES["json"]}), 422, "reference_not_found", "inputs.a")


@pytest.mark.parametrize("n", [3, 60, 250])
def test_a_graph_on_what_is_there(service, n):
    a, b = RNG.standard_normal((2, n, n))
    tensor, whole = put(service, a)["id"], put(service, np.float32(b))["id"]
    job = run(service, "matmul", {"a": a, "b": b}).json()["id"]
    steps = {"p": {"op": "matmul", "inputs": {"a": {"tensor": tensor}, "b": of(job)}},
             "q": {"op": "matmul", "inputs": {"a": {"step": "p"}, "b": {"input": "m"}}},
             "r": {"op": "matmul", "inputs": {"a": {"tensor": tensor, "slice": [[0, 2], [1, 3]]}, "b": np.eye(2).tolist()}},
             "s": {"op": "matmul", "inputs": {"a": {"input": "m"}, "b": {"input": "m"}}}}
    answer = graph(service, steps, inputs={"m": {"tensor": whole}}, results=["q", "r", "s"])
    assert answer.status == 200 and answer.json()["state"] == "succeeded", answer.body[:500]
    document = answer.json()
    np.testing.assert_allclose(value(service, document, "q.c"), a @ a @ b @ np.float32(b), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(value(service, document, "r.c"), a[:2, 1:3])
    np.testing.assert_allclose(value(service, document, "s.c"), np.float32(b) @ np.float32(b), rtol=1e-3, atol=1e-3)


def test_as_much_as_a_graph_may_refer_to(service):
    tensors = [put(service, np.full((2, 2), float(i)))["id"] for i in range(8)]
    steps = {f"s{i}": {"op": "matmul", "inputs": {"a": {"tensor": tensors[i]}, "b": {"tensor": tensors[0]}}} for i in range(8)}
    seven = {name: step for name, step in steps.items() if name != "s7"}
    assert graph(service, seven).json()["state"] == "succeeded"
    problem(graph(service, steps), 422, "invalid_reference", "steps.s7.inputs.a")
    problem(graph(service, {"p": {"op": "solve", "inputs": {"a": {"tensor": "t" + "0" * 40}, "b": [1]}}}), 422, "reference_not_found",
            "steps.p.inputs.a")
    nan = put(service, np.array([[1, np.nan], [0, 1]]))["id"]
    failed = graph(service, {"p": {"op": "solve", "inputs": {"a": {"tensor": nan}, "b": [1.0, 1.0]}}}).json()
    assert (failed["error"]["code"], failed["error"]["field"]) == ("not_finite", "steps.p.inputs.a")
