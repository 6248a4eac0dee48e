"""Jobs whose inputs are outputs of jobs that have not ended: they wait, go on, or end with what they waited for."""
import json
import subprocess

import blasd
import numpy as np
import pytest
from event_stream import EventStream
from service import BLASD, TYPES, Redis, until, wait_for
from test_tenants import As, keys
from test_tensors import ended, files, problem, put, result, run

RNG = np.random.default_rng(23)


def queued(service, op, inputs, **members):
    """The id of a job that nobody waits for."""
    answer = run(service, op, inputs, wait=0, **members)
    assert answer.status == 202, answer.body
    return answer.json()["id"]


def of(job, output="c", **more):
    return {"job": job, "output": output, **more}


def state(service, job):
    return service.request("GET", f"/jobs/{job}").json()["state"]


def listed(service, which):
    return {job["id"] for job in service.request("GET", f"/jobs?state={which}").json()["jobs"]}


def output(service, job, name="c"):
    until(service, job, ("succeeded",))
    return service.request("GET", f"/jobs/{job}/outputs/{name}", headers={"Accept": TYPES["npy"]}).npy()


@pytest.fixture
def waiting(make_service):
    return make_service()


@pytest.mark.first
@pytest.mark.parametrize("n", [3, 60, 250])
def test_a_chain(waiting, n):
    """What is waited for lies in a record, in a segment, in a blob of its own."""
    service = waiting
    a, b = RNG.standard_normal((2, n, n))
    with service.worker_held():
        first = queued(service, "matmul", {"a": a, "b": b})
        second = queued(service, "matmul", {"a": of(first), "b": a})
        third = queued(service, "matmul", {"a": of(second), "b": of(first)})
        part = queued(service, "matmul", {"a": of(third, slice=[[1, 3], [0, 2]]), "b": np.eye(2)})
        assert [state(service, job) for job in (first, second, third, part)] == ["queued"] + 3 * ["waiting"]
        assert listed(service, "waiting") == {second, third, part} and listed(service, "queued") == {first}
    want = a @ b @ a @ (a @ b)
    np.testing.assert_allclose(output(service, third), want, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(output(service, part), want[1:3, :2], rtol=1e-6, atol=1e-6)
    assert listed(service, "waiting") == set()


def test_it_may_be_waited_for(waiting):
    service = waiting
    with service.worker_held():
        first = queued(service, "matmul", {"a": 2 * np.eye(2), "b": np.eye(2)})
        answer = service.request("POST", "/jobs", json.dumps(
            {"op": "matmul", "inputs": {"a": of(first), "b": [[1.0, 0.0], [0.0, 3.0]]}}), {"Content-Type": TYPES["json"]})
        assert answer.status == 202 and answer.json()["state"] == "waiting"
    np.testing.assert_array_equal(result(run(service, "matmul", {"a": of(answer.json()["id"]), "b": np.eye(2)}), "c"), [[2, 0], [0, 6]])


def test_many_wait_for_one_and_one_for_many(waiting):
    service = waiting
    x, y = RNG.standard_normal((20, 3)), RNG.standard_normal((1, 20))
    with service.worker_held():
        first = queued(service, "matmul", {"a": x, "b": np.eye(3)})
        moment = queued(service, "matmul", {"a": y, "b": np.eye(20)})
        fans = [queued(service, "matmul", {"a": of(first), "b": np.eye(3) * i}) for i in range(30)]
        both = queued(service, "matmul", {"a": of(moment), "b": of(fans[7])})
    for i, job in enumerate(fans):
        np.testing.assert_allclose(output(service, job), x * i)
    np.testing.assert_allclose(output(service, both), y @ x * 7)


def test_shapes_and_names_are_checked_at_once(waiting):
    service = waiting
    with service.worker_held():
        first = queued(service, "matmul", {"a": np.ones((4, 2)), "b": np.ones((2, 3))})
        for inputs, code, field in (({"a": of(first), "b": np.eye(2)}, "shape_mismatch", None),
                                    ({"a": of(first, "x"), "b": np.eye(3)}, "unknown_output", "inputs.a"),
                                    ({"a": of(first, slice=[[0, 5]]), "b": np.eye(3)}, "invalid_reference", "inputs.a"),
                                    ({"a": of(first, dtype="float32"), "b": np.eye(3)}, "invalid_reference", "inputs.a")):
            problem(run(service, "matmul", inputs, wait=0), 422, code, field)
        none = queued(service, "matmul", {"a": np.eye(3), "b": np.eye(3)}, results=[])
        problem(run(service, "matmul", {"a": of(none), "b": np.eye(3)}, wait=0), 422, "reference_not_found", "inputs.a")
        second = queued(service, "matmul", {"a": of(first, slice=[[1, 3]]), "b": np.ones((3, 5))})
        problem(run(service, "matmul", {"a": of(second), "b": np.eye(3)}, wait=0), 422, "shape_mismatch")
        third = queued(service, "matmul", {"a": of(second), "b": np.eye(5)})
    np.testing.assert_array_equal(output(service, third), np.full((2, 5), 6.0))


def test_what_becomes_of_who_waits_for_a_job_that_fails(waiting):
    service = waiting
    with service.worker_held():
        bad = queued(service, "solve", {"a": np.zeros((2, 2)), "b": np.ones((2, 2))})
        gone = queued(service, "matmul", {"a": np.eye(2), "b": np.eye(2)})
        good = queued(service, "matmul", {"a": np.eye(2), "b": np.eye(2)})
        chains = {}
        for job, name in ((bad, "x"), (gone, "c")):
            one = queued(service, "matmul", {"a": of(good), "b": of(job, name)})
            chains[job] = (one, queued(service, "matmul", {"a": of(one), "b": np.eye(2)}))
        service.request("DELETE", f"/jobs/{gone}")
        assert state(service, chains[gone][0]) == state(service, chains[gone][1]) == "failed"
    for job, what in ((bad, "singular_matrix"), (gone, "cancelled")):
        for waits_for, one, field in ((job, chains[job][0], "inputs.b"), (chains[job][0], chains[job][1], "inputs.a")):
            error = until(service, one, ("failed",))["error"]
            assert (error["code"], error["field"]) == ("input_failed", field), error
            assert waits_for in error["detail"], error
            assert (what if one == chains[job][0] else "input_failed") in error["detail"], error
    until(service, good, ("succeeded",))
    problem(run(service, "matmul", {"a": of(chains[bad][0]), "b": np.eye(2)}, wait=0), 422, "input_failed", "inputs.a")


def test_a_waiting_job_is_cancelled_and_expires(waiting):
    service = waiting
    with service.worker_held():
        first = queued(service, "matmul", {"a": np.eye(2), "b": np.eye(2)})
        one, two, three = (queued(service, "matmul", {"a": of(first), "b": np.eye(2)}, **more)
                           for more in ({}, {"deadline_ms": 50}, {}))
        assert service.request("DELETE", f"/jobs/{one}").json()["state"] == "cancelled"
        until(service, two, ("expired",))
        assert listed(service, "waiting") == {three}
    until(service, three, ("succeeded",))
    assert (state(service, one), state(service, two)) == ("cancelled", "expired")


def test_kept_outputs_are_waited_for(waiting):
    service = waiting
    with service.worker_held():
        first = queued(service, "matmul", {"a": np.eye(3) * 5, "b": np.eye(3)}, keep=["c"])
        second = queued(service, "matmul", {"a": of(first), "b": np.eye(3)})
    np.testing.assert_array_equal(output(service, second), np.eye(3) * 5)


def test_as_many_as_may_be_waited_for(make_service):
    service = make_service("--limit", "job_awaits=1")
    with service.worker_held():
        first, second = (queued(service, "matmul", {"a": np.eye(2), "b": np.eye(2)}) for _ in range(2))
        until_then = queued(service, "matmul", {"a": of(first), "b": np.eye(2)})
        detail = problem(run(service, "matmul", {"a": of(first), "b": of(second)}, wait=0), 422, "invalid_reference", "inputs")
        assert "job_awaits" in detail
    until(service, until_then, ("succeeded",))


def test_the_same_request_again(waiting):
    """An Idempotency-Key finds its job, whatever became meanwhile of what that refers to."""
    service = waiting
    headers = {"Content-Type": TYPES["json"], "Idempotency-Key": "once"}
    with service.worker_held():
        first = queued(service, "matmul", {"a": np.eye(2), "b": np.eye(2)})
        body = json.dumps({"op": "matmul", "inputs": {"a": of(first), "b": [[1.0, 2.0], [3.0, 4.0]]}})
        one, two = (service.request("POST", "/jobs", body, headers) for _ in range(2))
        assert one.status == two.status == 202 and one.json()["id"] == two.json()["id"]
    until(service, one.json()["id"], ("succeeded",))
    three = service.request("POST", "/jobs?wait=10", body, headers)
    assert three.status == 200 and three.json()["id"] == one.json()["id"], three.body
    other = service.request("POST", "/jobs", body.replace("4.0", "5.0"), headers)
    problem(other, 422, "idempotency_conflict")


@pytest.mark.parametrize("wait", [0, 10])
def test_the_same_request_again_once_what_it_referred_to_is_gone(waiting, wait):
    """It was taken in then, though it could not be now: it is the job that it was, and another request is refused as ever."""
    service = waiting
    query = f"?wait={wait}" if wait else ""

    def ask(key, inputs):
        headers = {"Content-Type": TYPES["json"], "Idempotency-Key": key}
        return service.request("POST", f"/jobs{query}", json.dumps({"op": "matmul", "inputs": {**inputs, "b": [[1.0, 2.0], [3.0, 4.0]]}}), headers)

    tensor = put(service, np.eye(2))["id"]
    with service.worker_held():
        fails, good = queued(service, "solve", {"a": np.zeros((2, 2)), "b": np.eye(2)}), queued(service, "matmul", {"a": np.eye(2), "b": np.eye(2)})
        cases = {"failed": {"a": of(fails, "x")}, "forgotten": {"a": of(good)}, "tensor": {"a": {"tensor": tensor}}}
        first = {}
        for key, inputs in cases.items():
            answer = service.request("POST", "/jobs", json.dumps({"op": "matmul", "inputs": {**inputs, "b": [[1.0, 2.0], [3.0, 4.0]]}}),
                                     {"Content-Type": TYPES["json"], "Idempotency-Key": key})
            assert answer.status == 202, answer.body
            first[key] = answer.json()["id"]
    ends = {"failed": "failed", "forgotten": "succeeded", "tensor": "succeeded"}
    for key, end in ends.items():
        until(service, first[key], (end,))
    assert service.request("DELETE", f"/jobs/{good}?forget=1").status == 200
    assert service.request("DELETE", f"/tensors/{tensor}").status in (200, 204)
    for key, inputs in cases.items():
        again = ask(key, inputs)
        assert again.status == 200, again.body
        assert (again.json()["id"], again.json()["state"]) == (first[key], ends[key])
    problem(ask("failed", {"a": of(fails, "x", slice=[[0, 2], [0, 2]])}), 422, "idempotency_conflict")
    problem(ask("new-failed", cases["failed"]), 422, "input_failed", "inputs.a")
    problem(ask("new-forgotten", cases["forgotten"]), 422, "reference_not_found", "inputs.a")
    problem(ask("new-tensor", cases["tensor"]), 422, "reference_not_found", "inputs.a")
    assert jobs_of(service) == 3 + 1  # and nothing was taken in beside them


def jobs_of(service):
    return len(service.request("GET", "/jobs?limit=100").json()["jobs"])


def test_anothers_job_is_not_there(make_service, tmp_path):
    file, secrets = keys(tmp_path, ann={"tenant": "ann"}, ben={"tenant": "ben"})
    service = make_service("--keys", file, start=False)
    service.headers = {"Authorization": f"Bearer {secrets['ann']}"}
    service.start()
    ben = As(service, secrets["ben"])
    with service.worker_held():
        first = queued(service, "matmul", {"a": np.eye(2), "b": np.eye(2)})
        body = json.dumps({"op": "matmul", "inputs": {"a": of(first), "b": [[1, 0], [0, 1]]}})
        problem(ben.request("POST", "/jobs", body, {"Content-Type": TYPES["json"]}), 422, "reference_not_found", "inputs.a")
        mine = queued(service, "matmul", {"a": of(first), "b": np.eye(2)})
    until(service, mine, ("succeeded",))


def test_waiting_jobs_outlive_every_process(make_service):
    """Each ends once, right or honestly failed; then nothing is left behind."""
    service = make_service()
    n = 60
    a = RNG.standard_normal((n, n))
    tensor = put(service, a)
    for part in ("worker", "api", "redis", "worker"):
        with service.worker_held():
            bad = queued(service, "solve", {"a": np.zeros((2, 2)), "b": np.ones(2)})
            chain = [queued(service, "matmul", {"a": {"tensor": tensor["id"]}, "b": np.eye(n)})]
            for _ in range(4):
                chain.append(queued(service, "matmul", {"a": of(chain[-1]), "b": of(chain[0])}, keep=["c"], results=["c"]))
            failing = [queued(service, "matmul", {"a": np.eye(2), "b": of(bad, "x")}) for _ in range(3)]
            service.kill(part)
        service.wait_ready()
        want = a
        for job in chain:
            document = wait_for(lambda job=job: ended(service, job))
            assert document["state"] == "succeeded", document
            got = service.request("GET", f"/jobs/{job}/outputs/c", headers={"Accept": TYPES["npy"]}).npy()
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
            want = want @ a
            for kept in [document["outputs"]["c"].get("tensor")]:
                assert kept is None or service.request("DELETE", f"/tensors/{kept['id']}").status == 200
        for job in failing:
            assert wait_for(lambda job=job: ended(service, job))["error"]["code"] == "input_failed"
        for job in [bad, *chain, *failing]:
            assert service.request("DELETE", f"/jobs/{job}?forget=1").status == 200
    assert service.request("DELETE", f"/tensors/{tensor['id']}").status == 200
    wait_for(lambda: not files(service), "the store is as it was")
    redis = Redis(service)
    left = {name for name in redis("KEYS", "*")
            if any(name.endswith(b":" + word) for word in (b"waits", b"wanted", b"made", b"due", b"holds", b"refs"))}
    redis.close()
    assert not left, left


def test_what_is_told_of_it(make_service):
    """In the events, the metrics, the C client's tool and the Python client."""
    service = make_service()
    client = blasd.Client(service.url)
    a = RNG.standard_normal((4, 4))
    with EventStream(service) as stream:
        with service.worker_held():
            first = client.submit("matmul", a=a, b=a)
            second = client.submit("matmul", a=first["c"], b=first["c"][:4])
            assert second.state == "waiting" and not second.ended
            wait_for(lambda: service.metrics()["blasd_queue_dependent_jobs"] == 1)
            listing = subprocess.run([BLASD, "jobs", "--url", service.url, "--state", "waiting"], capture_output=True, check=True)
            assert second.id in listing.stdout.decode() and first.id not in listing.stdout.decode()
        np.testing.assert_allclose(second.result(30)["c"], a @ a @ a @ a)
        stream.job(second.id, "succeeded")
        told = [event.data["state"] for event in stream.seen if event.kind == "job" and event.data["id"] == second.id]
        assert told == ["waiting", "queued", "running", "succeeded"]
    wait_for(lambda: service.metrics()["blasd_queue_dependent_jobs"] == 0)
    client.close()


# --- graphs -----------------------------------------------------------------------------------------------------------


def graph(service, steps, wait=30, headers=None, **members):
    return service.request("POST", f"/graphs?wait={wait}" if wait else "/graphs", json.dumps({"steps": steps, **members}),
                           {"Content-Type": TYPES["json"], **(headers or {})})


def value(service, document, name):
    path = f"/jobs/{document['id']}/outputs/{name}"
    return service.request("GET", path, headers={"Accept": TYPES["npy"]}).npy()


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


def test_a_graph_waits(waiting):
    service, a = waiting, RNG.standard_normal((5, 5))
    steps = {"p": {"op": "matmul", "inputs": {"a": None, "b": np.eye(5).tolist()}},
             "q": {"op": "matmul", "inputs": {"a": {"step": "p"}, "b": {"step": "p"}}}}
    headers = {"Idempotency-Key": "graph-once"}
    with service.worker_held():
        first = queued(service, "matmul", {"a": a, "b": a})
        bad = queued(service, "solve", {"a": np.zeros((5, 5)), "b": np.eye(5)})
        steps["p"]["inputs"]["a"] = of(first)
        good = graph(service, steps, wait=0, headers=headers)
        assert good.status == 202 and good.json()["state"] == "waiting", good.body
        behind = queued(service, "matmul", {"a": of(bad, "x"), "b": np.eye(5)})
        failing = {"p": {"op": "matmul", "inputs": {"a": of(behind), "b": np.eye(5).tolist()}}}
        failed = graph(service, failing, wait=0).json()["id"]
        wrong = {"p": {"op": "matmul", "inputs": {"a": of(first, slice=[[0, 9]]), "b": np.eye(5).tolist()}}}
        problem(graph(service, wrong, wait=0), 422, "invalid_reference", "steps.p.inputs.a")
        wrong = {"p": {"op": "matmul", "inputs": {"a": of(first), "b": np.eye(4).tolist()}}}
        assert "steps.p" in graph(service, wrong, wait=0).json()["field"]
    until(service, good.json()["id"], ("succeeded",))
    np.testing.assert_allclose(value(service, good.json(), "q.c"), a @ a @ a @ a)
    error = until(service, failed, ("failed",))["error"]
    assert (error["code"], error["field"]) == ("input_failed", "steps.p.inputs.a") and behind in error["detail"]
    again = graph(service, steps, headers=headers)
    assert again.status == 200 and again.json()["id"] == good.json()["id"], again.body
    assert service.request("DELETE", f"/jobs/{first}?forget=1").status == 200
    gone = graph(service, steps, headers=headers)
    assert gone.status == 200 and gone.json()["id"] == good.json()["id"], gone.body
    problem(graph(service, steps, headers={"Idempotency-Key": "graph-anew"}), 422, "reference_not_found", "steps.p.inputs.a")
    other = {"p": steps["p"], "q": {"op": "matmul", "inputs": {"a": {"step": "p"}, "b": np.eye(5).tolist()}}}
    problem(graph(service, other, headers=headers), 422, "idempotency_conflict")


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
