"""POST /graphs: several steps as one job, checked as a whole, run by one worker, ended once."""
import json
import pathlib

import numpy as np
import pytest
from service import TYPES, nested, npy, safetensors, wait_for

A = np.array([[4.0, 1.0], [1.0, 3.0]])
B = np.array([[1.0, 2.0], [3.0, 4.0]])
TWO = {"c": {"op": "matmul", "inputs": {"a": nested(A), "b": nested(B)}},
       "x": {"op": "solve", "inputs": {"a": {"step": "c", "output": "c"}, "b": [1, 2]}}}


def post(service, steps, wait=30, accept=None, headers=None, **members):
    body = json.dumps({"steps": steps, **members})
    headers = {"Content-Type": TYPES["json"], **(headers or {})}
    if accept:
        headers["Accept"] = TYPES[accept]
    return service.request("POST", f"/graphs?wait={wait}" if wait else "/graphs", body, headers, timeout=wait + 60)


def refused(service, steps, status=422, **members):
    answer = post(service, steps, **members)
    assert answer.status == status, answer.body
    problem = answer.json()
    return problem["code"], problem.get("field"), problem["detail"]


def chain(length, n=2, first=None):
    """s0 = a @ b, then each step is the one before it times b."""
    steps = {"s0": {"op": "matmul", "inputs": {"a": {"input": "a"}, "b": {"input": "b"}}}}
    for i in range(1, length):
        steps[f"s{i}"] = {"op": "matmul", "inputs": {"a": {"step": f"s{i - 1}"}, "b": {"input": "b"}}}
    return steps


# --- what comes out -----------------------------------------------------------------------------------------------


@pytest.mark.first
def test_two_steps(service):
    answer = post(service, TWO, results=["x"])
    assert answer.status == 200
    graph = answer.json()
    assert graph["op"] == "graph" and graph["state"] == "succeeded" and graph["progress"] == 1
    assert list(graph["outputs"])[0] == "x.x" and set(graph["outputs"]) == {"x.x"}
    assert np.allclose(graph["outputs"]["x.x"]["data"], np.linalg.solve(A @ B, [1, 2]))
    assert list(graph["steps"]) == ["c", "x"]
    for name, op in (("c", "matmul"), ("x", "solve")):
        step = graph["steps"][name]
        assert step["op"] == op and step["state"] == "succeeded" and step["execution"]["method"]
        assert step["execution"]["device"] == graph["execution"]["device"]
    assert graph["execution"]["flops"] == sum(s["execution"]["flops"] for s in graph["steps"].values())


def test_results_that_are_named_left_out_and_none(service):
    graph = post(service, TWO, results=["c.c", "x.x"]).json()
    assert list(graph["outputs"]) == ["c.c", "x.x"]
    assert graph["outputs"]["c.c"]["data"] == (A @ B).tolist()
    assert list(post(service, TWO).json()["outputs"]) == ["x.x"]  # the step that nobody reads from
    nothing = post(service, TWO, results=[]).json()
    assert nothing["state"] == "succeeded" and nothing["outputs"] == {} and len(nothing["steps"]) == 2
    both = {"e": {"op": "eigh", "inputs": {"a": nested(A)}}}
    assert list(post(service, both, results=["e"]).json()["outputs"]) == ["e.eigenvalues"]
    assert list(post(service, both, results=["e.eigenvectors", "e"]).json()["outputs"]) == ["e.eigenvectors", "e.eigenvalues"]


def test_steps_in_any_order_and_data_that_many_read(service):
    steps = dict(reversed(chain(5).items()))
    graph = post(service, steps, inputs={"a": nested(A), "b": nested(B)}, results=["s4"]).json()
    assert list(graph["steps"]) == ["s0", "s1", "s2", "s3", "s4"]
    assert np.allclose(graph["outputs"]["s4.c"]["data"], A @ np.linalg.matrix_power(B, 5))


def test_a_step_may_be_read_twice_and_by_several(service):
    steps = {"p": {"op": "matmul", "inputs": {"a": nested(A), "b": nested(B)}},
             "q": {"op": "matmul", "inputs": {"a": {"step": "p"}, "b": {"step": "p"}}},
             "r": {"op": "matmul", "inputs": {"a": {"step": "q"}, "b": {"step": "p"}}}}
    graph = post(service, steps, results=["r", "q"]).json()
    p = A @ B
    assert np.allclose(graph["outputs"]["r.c"]["data"], p @ p @ p)
    assert np.allclose(graph["outputs"]["q.c"]["data"], p @ p)


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_give_what_numpy_gives(service, seed):
    """Values that live long and short, of many sizes, in one memory: none may lie on another that is still read."""
    rng = np.random.default_rng(seed)
    n = 24
    data = {f"d{i}": rng.standard_normal((n, n)) / n ** 0.5 for i in range(3)}
    steps, values = {}, {}
    for i in range(60):
        names = [*data, *values]
        left, right = (names[rng.integers(len(names))] for _ in range(2))
        rows = int(rng.integers(1, n + 1))
        pick = np.eye(n)[:rows]
        one, other = (({"input": x} if x in data else {"step": x}) for x in (left, right))
        steps[f"v{i}"] = {"op": "matmul", "inputs": {"a": one, "b": other}, "params": {"alpha": 0.5, "transpose_a": True}}
        values[f"v{i}"] = 0.5 * (data.get(left, values.get(left))).T @ data.get(right, values.get(right))
        if rows < n:  # a value of another size beside it
            steps[f"w{i}"] = {"op": "matmul", "inputs": {"a": nested(pick), "b": {"step": f"v{i}"}}}
    used = json.dumps(steps)
    inputs = {name: nested(array) for name, array in data.items() if f'"input": "{name}"' in used}
    results = [f"v{i}" for i in range(0, 60, 2)]
    graph = post(service, steps, inputs=inputs, results=results).json()
    assert graph["state"] == "succeeded", graph
    for name in results:
        assert np.allclose(graph["outputs"][f"{name}.c"]["data"], values[name])


def test_safetensors_both_ways_and_single_outputs(service):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 300, 300))  # a result that goes to a file
    body = safetensors({"a": a, "b": b}, steps=json.dumps(chain(3)), results=json.dumps(["s2", "s0"]))
    answer = service.request("POST", "/graphs?wait=30", body, {"Content-Type": TYPES["safetensors"],
                                                              "Accept": TYPES["safetensors"]})
    assert answer.status == 200, answer.body
    arrays, graph = answer.safetensors()
    assert np.allclose(arrays["s2.c"], a @ b @ b @ b) and np.allclose(arrays["s0.c"], a @ b)
    assert list(graph["steps"]) == ["s0", "s1", "s2"]
    for path in (f"/jobs/{graph['id']}/outputs/s2.c", f"/jobs/{graph['id']}/result", f"/graphs/{graph['id']}"):
        answer = service.request("GET", path, headers={"Accept": TYPES["npy"]})
        assert answer.status == 200 and np.allclose(answer.npy(), a @ b @ b @ b)
    assert service.request("GET", f"/jobs/{graph['id']}/outputs/s1.c").status == 404
    assert service.request("GET", f"/jobs/{graph['id']}/outputs/results").status == 404
    listed = service.request("GET", f"/graphs/{graph['id']}").json()
    assert "data" not in listed["outputs"]["s2.c"] and listed["outputs"]["s2.c"]["shape"] == [300, 300]


def test_dtypes_flow_through(service):
    steps = {"i": {"op": "matmul", "inputs": {"a": {"dtype": "int32", "data": [[1, 2], [3, 4]]}, "b": nested(B)}},
             "h": {"op": "matmul", "inputs": {"a": {"dtype": "float32", "data": [[1, 2], [3, 4]]},
                                              "b": {"dtype": "float32", "data": [[1, 0], [0, 1]]}}},
             "w": {"op": "matmul", "inputs": {"a": {"step": "h"}, "b": {"step": "i"}}}}
    graph = post(service, steps, results=["i", "h", "w"]).json()
    assert [graph["outputs"][f"{s}.c"]["dtype"] for s in "ihw"] == ["float64", "float32", "float64"]
    assert graph["outputs"]["w.c"]["data"] == (B @ B @ B).tolist()


def test_data_made_by_rules(service):
    steps = {"p": {"op": "matmul", "inputs": {"a": {"eye": 3}, "b": {"input": "r"}}},
             "q": {"op": "matmul", "inputs": {"a": {"step": "p"}, "b": {"full": [3, 3], "value": 2}}}}
    graph = post(service, steps, inputs={"r": {"random": "uniform", "seed": 7, "shape": [3, 3]}}, results=["p", "q"]).json()
    assert graph["state"] == "succeeded", graph
    p = np.array(graph["outputs"]["p.c"]["data"])
    assert np.all((0 <= p) & (p < 1)) and np.allclose(graph["outputs"]["q.c"]["data"], p @ np.full((3, 3), 2.0))


def test_a_graph_is_a_job(make_service):
    service = make_service()
    with service.worker_held():
        answer = post(service, TWO, wait=0, headers={"Idempotency-Key": "one"})
        graph = answer.json()
        assert answer.status == 202 and answer.headers["Location"] == f"/graphs/{graph['id']}"
        assert graph["state"] == "queued" and graph["outputs"] == {}
        assert post(service, TWO, wait=0, headers={"Idempotency-Key": "one"}).json()["id"] == graph["id"]
        other = {**TWO, "y": TWO["x"]}
        assert post(service, other, wait=0, headers={"Idempotency-Key": "one"}).status == 422
        assert service.request("GET", f"/jobs/{graph['id']}").json()["op"] == "graph"
    done = service.request("GET", f"/graphs/{graph['id']}?wait=30").json()
    assert done["state"] == "succeeded"
    assert service.request("GET", f"/jobs/{graph['id']}").json() == done
    assert [j["id"] for j in service.list_jobs("op=graph")] == [graph["id"]]
    job = service.post("matmul", {"a": A, "b": B}).json()
    assert service.request("GET", f"/graphs/{job['id']}").status == 404
    assert service.request("DELETE", f"/graphs/{job['id']}?forget=1").status == 404
    assert service.request("GET", f"/jobs/{job['id']}").status == 200
    assert service.request("DELETE", f"/graphs/{graph['id']}").status == 409
    assert service.request("DELETE", f"/graphs/{graph['id']}?forget=1").json() == done  # as it was
    assert service.request("GET", f"/graphs/{graph['id']}").status in (404, 410)


def test_labels(service):
    graph = post(service, TWO, labels={"run": "graphs-7"}).json()
    assert graph["labels"] == {"run": "graphs-7"}
    assert [j["id"] for j in service.list_jobs("label=run=graphs-7")] == [graph["id"]]


def test_a_dry_run_checks_all_and_runs_nothing(make_service):
    service = make_service()
    body = {"steps": chain(3), "inputs": {"a": nested(A), "b": nested(B)}}
    answer = service.request("POST", "/graphs?dry_run=1", json.dumps(body), {"Content-Type": TYPES["json"]})
    told = answer.json()
    assert answer.status == 200 and told["op"] == "graph" and told["flops"] == 3 * 16
    assert told["outputs"] == {"s2.c": {"dtype": "float64", "shape": [2, 2], "bytes": 32}}
    assert told["peak_bytes"] >= told["bytes"] > 0
    wrong = {**body, "steps": {**chain(3), "x": {"op": "solve", "inputs": {"a": {"step": "s9"}, "b": [1]}}}}
    answer = service.request("POST", "/graphs?dry_run=1", json.dumps(wrong), {"Content-Type": TYPES["json"]})
    assert answer.status == 422 and answer.json()["field"] == "steps.x.inputs.a"
    assert service.list_jobs() == []


def dry(service, steps, **members):
    body = json.dumps({"steps": steps, **members})
    return service.request("POST", "/graphs?dry_run=1", body, {"Content-Type": TYPES["json"]})


def test_what_a_graph_is_predicted_to_take(make_service):
    """The sum of what its steps take, as far as the worker knows; and what that costs."""
    service = make_service("--price", "cpu=3.6/h,currency=CHF")
    inputs = {"a": {"full": [300, 300], "value": 1}, "b": {"eye": 300}}

    def both():  # once the front end knows the worker
        one, ten = (dry(service, chain(count), inputs=inputs).json() for count in (1, 10))
        known = one["predicted"]["compute_ms"] is not None and ten["predicted"]["compute_ms"] is not None
        return known and 4 < ten["predicted"]["compute_ms"] / one["predicted"]["compute_ms"] < 11 and (one, ten)
    for told in wait_for(both):
        assert told["cost"]["currency"] == "CHF" and told["device"] == "cpu" and told["predicted"]["queue_ms"] == 0
        assert np.isclose(told["cost"]["amount"], told["predicted"]["compute_ms"] / 1e3 * 0.001)
    kept = service.request("POST", "/tensors", json.dumps(nested(A)), {"Content-Type": TYPES["json"]}).json()["id"]
    referring = {"p": {"op": "matmul", "inputs": {"a": {"tensor": kept}, "b": {"tensor": kept}}}}
    assert dry(service, referring).json()["predicted"]["compute_ms"] > 0
    assert service.list_jobs() == []


def test_small_graphs_that_ran_say_nothing_of_a_large_one(make_service):
    service = make_service()
    small = {"steps": chain(300), "inputs": {"a": nested(A), "b": nested(B)}}

    def learnt():
        assert post(service, **small).json()["state"] == "succeeded"
        return "graph" in service.request("GET", "/devices").json()["devices"][0].get("cost", {"curves": {}})["curves"]
    wait_for(learnt, "the worker tells how long graphs took")
    large = {"a": {"full": [3000, 3000], "value": 1}, "b": {"eye": 3000}}  # 5e10 operations

    def told():  # once the front end has heard of it, too
        answer = dry(service, chain(1), inputs=large)
        return answer if answer.status != 200 or answer.json()["predicted"]["compute_ms"] is not None else None
    answer = wait_for(told)
    assert answer.status == 200, answer.body
    assert 0 < answer.json()["predicted"]["compute_ms"] < 3600e3


def test_users_do_not_meet_the_operation(service):
    assert "graph" not in [op["name"] for op in service.request("GET", "/ops").json()["ops"]]
    assert service.request("GET", "/ops/graph").status == 404
    answer = service.request("POST", "/jobs", json.dumps({"op": "graph", "inputs": {"data": [1]}}), {"Content-Type": TYPES["json"]})
    assert answer.json()["code"] == "unknown_operation"
    answer = service.request("POST", "/jobs", json.dumps(
        {"op": "matmul", "inputs": {"a": {"step": "x", "output": "c"}, "b": [[1]]}}), {"Content-Type": TYPES["json"]})
    assert answer.status == 422


# --- what is refused before anything runs -------------------------------------------------------------------------


def test_references_that_lead_nowhere(service):
    def with_a(reference):
        return {**TWO, "x": {"op": "solve", "inputs": {"a": reference, "b": [1, 2]}}}
    assert refused(service, with_a({"step": "d"}))[:2] == ("unknown_step", "steps.x.inputs.a")
    code, field, detail = refused(service, with_a({"step": "c", "output": "q"}))
    assert (code, field) == ("unknown_output", "steps.x.inputs.a") and "it has c" in detail
    assert refused(service, with_a({"input": "a"}))[:2] == ("unknown_input", "steps.x.inputs.a")
    assert refused(service, with_a({"input": "a", "output": "c"}))[:2] == ("invalid_tensor", "steps.x.inputs.a")
    assert refused(service, with_a({"step": "c", "x": 1}))[:2] == ("invalid_tensor", "steps.x.inputs.a")
    assert refused(service, TWO, inputs={"z": [1]})[:2] == ("invalid_field", "inputs.z")
    assert refused(service, TWO, results=["d"])[:2] == ("unknown_step", "results")
    assert refused(service, TWO, results=["c.q"])[:2] == ("unknown_output", "results")
    assert refused(service, TWO, results=["c."])[:2] == ("unknown_output", "results")
    assert refused(service, with_a({"step": "c", "output": ""}))[:2] == ("unknown_output", "steps.x.inputs.a")
    assert refused(service, TWO, results=["c", "c.c"])[:2] == ("invalid_field", "results")


def test_cycles(service):
    def times(name):
        return {"op": "matmul", "inputs": {"a": {"step": name}, "b": [[1]]}}
    assert refused(service, {"a": times("a")})[:2] == ("graph_cycle", "steps.a.inputs.a")
    code, field, _ = refused(service, {"a": times("c"), "b": times("a"), "c": times("b"), "d": times("c")})
    assert code == "graph_cycle" and field.startswith("steps.")


def test_shapes_and_dtypes_are_known_before_anything_runs(make_service):
    service = make_service()
    three = {"c": {"op": "matmul", "inputs": {"a": nested(A), "b": [[1, 2, 3], [4, 5, 6]]}},
             "x": {"op": "solve", "inputs": {"a": {"step": "c"}, "b": [1, 2]}}}
    with service.worker_held():
        code, field, detail = refused(service, three)
        assert (code, field) == ("invalid_shape", "steps.x.inputs.a") or code == "shape_mismatch", (code, field)
        assert field.startswith("steps.x.") and "(2, 3)" in detail
        half = {"c": {"op": "matmul", "inputs": {"a": {"dtype": "float16", "data": [[1]]}, "b": {"dtype": "float16", "data": [[1]]}}},
                "x": {"op": "eigh", "inputs": {"a": {"step": "c"}}}}
        code, field, _ = refused(service, half)
        assert (code, field) == ("unsupported_dtype", "steps.x.inputs.a")
        assert service.list_jobs() == []


def test_a_step_is_held_to_its_operation(service):
    def only(**members):
        return {"s": {"op": "matmul", "inputs": {"a": [[1]], "b": [[1]]}, **members}}
    assert refused(service, only(op="matmull"))[:2] == ("unknown_operation", "steps.s.op")
    assert refused(service, only(op="graph"))[:2] == ("unknown_operation", "steps.s.op")
    assert refused(service, only(op=1))[:2] == ("invalid_field", "steps.s.op")
    assert refused(service, only(params={"alpa": 1}))[:2] == ("unknown_parameter", "steps.s.params.alpa")
    assert refused(service, only(params={"alpha": "x"}))[:2] == ("invalid_parameter", "steps.s.params.alpha")
    assert refused(service, only(params=[]))[:2] == ("invalid_field", "steps.s.params")
    assert refused(service, only(inputs={"a": [[1]]}))[:2] == ("missing_input", "steps.s.inputs.b")
    assert refused(service, only(inputs={"a": [[1]], "b": [[1]], "q": [1]}))[:2] == ("unknown_input", "steps.s.inputs.q")
    assert refused(service, only(inputs={"a": [[1], [2, 3]], "b": [[1]]}))[:2] == ("invalid_tensor", "steps.s.inputs.a[1]")
    assert refused(service, only(priority="high"))[:2] == ("unknown_field", "steps.s.priority")
    assert refused(service, {"s": 1})[:2] == ("invalid_field", "steps.s")
    assert refused(service, {"s.t": only()["s"]})[:2] == ("invalid_field", "steps")
    assert refused(service, {"s" * 32: only()["s"]})[:2] == ("invalid_field", "steps")
    assert refused(service, {})[:2] == ("invalid_field", "steps")
    assert refused(service, only(), op="matmul")[:2] == ("unknown_field", "op")
    assert refused(service, only(), results="s")[:2] == ("invalid_field", "results")
    assert post(service, {"s" * 31: only()["s"]}).status == 200
    nan = {"s": {"op": "solve", "inputs": {"a": [["NaN"]], "b": [1]}}}
    assert refused(service, nan)[:2] == ("not_finite", "steps.s.inputs.a")
    data = {"s": {"op": "solve", "inputs": {"a": {"input": "m"}, "b": [1]}}}
    assert refused(service, data, inputs={"m": [["Infinity"]]})[:2] == ("not_finite", "steps.s.inputs.a")


def test_limits_of_steps_depth_and_results(make_service):
    service = make_service("--limit", "graph_steps=5", "--limit", "graph_depth=3", "--limit", "graph_results=2")
    data = {"a": nested(A), "b": nested(B)}
    flat = {f"s{i}": {"op": "matmul", "inputs": {"a": {"input": "a"}, "b": {"input": "b"}}} for i in range(6)}
    five = dict(list(flat.items())[:5])
    assert post(service, five, inputs=data, results=["s0", "s4"]).status == 200
    assert refused(service, flat, 413, inputs=data, results=[])[:2] == ("graph_too_large", "steps")
    code, field, detail = refused(service, five, 413, inputs=data, results=["s0", "s1", "s2"])
    assert (code, field) == ("graph_too_large", "results") and "graph_results" in detail
    assert refused(service, five, 413, inputs=data)[:2] == ("graph_too_large", "results")
    assert post(service, chain(3), inputs=data).status == 200
    code, field, detail = refused(service, chain(4), 413, inputs=data)
    assert (code, field) == ("graph_too_large", "steps.s3") and "graph_depth" in detail


def test_parts_of_a_tensor_count_each_by_itself(service):
    kept = service.request("POST", "/tensors", json.dumps(nested(np.eye(8))), {"Content-Type": TYPES["json"]}).json()["id"]

    def rows(count):
        return {f"s{i}": {"op": "matmul", "inputs": {"a": {"tensor": kept, "slice": [[i, i + 1]]}, "b": {"eye": 8}}} for i in range(count)}
    assert post(service, rows(7)).json()["state"] == "succeeded"
    code, field, detail = refused(service, rows(8))
    assert (code, field) == ("invalid_reference", "steps.s7.inputs.a") and "each part of one counted by itself" in detail


def test_data_beside_the_steps(service):
    def body(count):
        return ({f"s{i}": {"op": "matmul", "inputs": {"a": {"input": f"d{i}"}, "b": [[1]]}} for i in range(count)},
                {"inputs": {f"d{i}": [[i]] for i in range(count)}, "results": ["s31"]})
    steps, members = body(32)
    assert post(service, steps, **members).json()["outputs"]["s31.c"]["data"] == [[31]]
    arrays = {f"d{i}": np.full((1, 1), float(i)) for i in range(33)}
    for count, status in ((32, 200), (33, 413)):
        packed = safetensors(dict(list(arrays.items())[:count]), steps=json.dumps(body(count)[0]), results='["s31"]')
        assert service.request("POST", "/graphs?wait=30", packed, {"Content-Type": TYPES["safetensors"]}).status == status
    steps, members = body(33)
    assert refused(service, steps, 413, **members)[:2] == ("graph_too_large", "inputs.d32")


def test_a_thousand_steps(service):
    body = {"inputs": {"a": nested(A), "b": nested(np.eye(2))}, "results": ["s999"]}
    graph = post(service, chain(1000), **body).json()
    assert graph["state"] == "succeeded" and len(graph["steps"]) == 1000
    assert graph["outputs"]["s999.c"]["data"] == A.tolist()
    assert refused(service, chain(1001), 413, **{**body, "results": ["s1000"]})[:2] == ("graph_too_large", "steps")


def test_memory_at_its_widest(make_service):
    """A chain keeps two values at a time, however long it is; forty that come before any of them is read are forty."""
    service = make_service("--limit", "job_bytes=4M")
    n = 128  # 128 KiB a value
    data = {"a": nested(np.ones((n, n))), "b": nested(np.eye(n))}
    assert post(service, chain(60), inputs=data, results=["s59"]).status == 200
    wide = {f"w{i}": {"op": "matmul", "inputs": {"a": {"input": "a"}, "b": {"input": "b"}}} for i in range(40)}
    wide["s0"] = {"op": "matmul", "inputs": {"a": {"step": "w0"}, "b": {"step": "w1"}}}
    for i in range(1, 39):
        wide[f"s{i}"] = {"op": "matmul", "inputs": {"a": {"step": f"s{i - 1}"}, "b": {"step": f"w{i + 1}"}}}
    code, field, detail = refused(service, wide, 413, inputs=data, results=["s38"])
    assert code == "job_too_large" and field.startswith("steps.") and "job_bytes" in detail


def test_bytes_at_the_widest_step_at_the_limit_and_one_past_it(make_service):
    """What a dry run says the graph takes is what the limit is held against."""
    n = 256
    data = {"a": nested(np.ones((n, n))), "b": nested(np.eye(n))}
    steps = {**chain(3), "t": {"op": "matmul", "inputs": {"a": {"step": "s0"}, "b": {"step": "s2"}}}}
    service = make_service()
    peak = service.request("POST", "/graphs?dry_run=1", json.dumps({"steps": steps, "inputs": data, "results": ["t"]}),
                           {"Content-Type": TYPES["json"]}).json()["peak_bytes"]
    for limit, status in ((peak, 200), (peak - 1, 413)):
        service = make_service("--limit", f"job_bytes={limit}")
        answer = post(service, steps, inputs=data, results=["t"])
        assert answer.status == status, answer.body[:500]
        if status == 413:
            assert answer.json()["code"] == "job_too_large" and answer.json()["field"].startswith("steps.")


def test_as_many_results_as_there_may_be(service):
    data = {"a": nested(A), "b": nested(np.eye(2))}
    wide = {f"w{i}": {"op": "matmul", "inputs": {"a": {"input": "a"}, "b": {"input": "b"}}} for i in range(40)}
    assert post(service, wide, inputs=data).status == 200
    more = {**wide, "w40": wide["w0"]}
    assert refused(service, more, 413, inputs=data)[:2] == ("graph_too_large", "results")


# --- what happens while it runs -----------------------------------------------------------------------------------


def test_a_step_that_fails_fails_the_graph(service):
    steps = {"p": {"op": "matmul", "inputs": {"a": [[1, 1], [1, 1]], "b": nested(A)}},
             "x": {"op": "solve", "inputs": {"a": {"step": "p"}, "b": [1, 2]}},
             "y": {"op": "matmul", "inputs": {"a": {"step": "x"}, "b": [1, 1]}}}
    graph = post(service, steps).json()
    assert graph["state"] == "failed" and graph["error"]["code"] == "singular_matrix"
    assert graph["error"]["field"].startswith("steps.x") and graph["outputs"] == {}
    assert {name: step["state"] for name, step in graph["steps"].items()} == {"p": "succeeded", "x": "failed", "y": "skipped"}
    assert graph["steps"]["p"]["execution"]["method"] and graph["steps"]["p"]["timing"]["total_ms"] >= 0
    assert graph["steps"]["x"] == {"op": "solve", "state": "failed"}
    again = service.request("GET", f"/graphs/{graph['id']}").json()
    assert (again["state"], again["steps"]) == ("failed", graph["steps"])
    listed = [job for job in service.request("GET", "/jobs?op=graph&state=failed").json()["jobs"] if job["id"] == graph["id"]]
    assert listed and listed[0]["outputs"] == {} and listed[0]["error"]["code"] == "singular_matrix"
    assert service.request("GET", f"/jobs/{graph['id']}/result").json()["code"] == "singular_matrix"
    forgotten = service.request("DELETE", f"/graphs/{graph['id']}?forget=1")
    assert forgotten.status == 200 and forgotten.json() == again


def test_results_of_a_graph_cannot_be_referred_to(service):
    a, b = np.random.default_rng(3).standard_normal((2, 3, 3))
    graph = post(service, {"p": {"op": "matmul", "inputs": {"a": a.tolist(), "b": b.tolist()}}}).json()
    assert graph["state"] == "succeeded", graph
    inputs = {"a": {"job": graph["id"], "output": "p.c"}, "b": np.eye(3).tolist()}
    code, field, detail = refused(service, {"r": {"op": "matmul", "inputs": inputs}})
    assert (code, field) == ("invalid_reference", "steps.r.inputs.a") and "POST /tensors" in detail
    answer = service.request("POST", "/jobs?wait=30", json.dumps({"op": "matmul", "inputs": inputs}), {"Content-Type": TYPES["json"]})
    assert answer.status == 422 and answer.json()["code"] == "invalid_reference", answer.body
    kept = service.request("POST", "/tensors", npy(values(service, graph, "p.c")), {"Content-Type": TYPES["npy"]}).json()["id"]
    job = service.request("POST", "/jobs?wait=30", json.dumps({"op": "matmul", "inputs": {**inputs, "a": {"tensor": kept}}}),
                          {"Content-Type": TYPES["json"]}).json()
    np.testing.assert_allclose(job["outputs"]["c"]["data"], a @ b)


def values(service, graph, output):
    assert graph["state"] == "succeeded", graph
    return service.request("GET", f"/jobs/{graph['id']}/outputs/{output}", headers={"Accept": TYPES["npy"]}).npy()


def test_a_long_graph_that_fails_says_so_of_each_step(service):
    steps = {**chain(600), "x": {"op": "solve", "inputs": {"a": [[0]], "b": [1]}}}
    steps = dict(reversed(steps.items()))
    steps["x"]["inputs"] = {"a": {"step": "s299"}, "b": [[1], [1]]}
    graph = post(service, steps, inputs={"a": [[1, 1], [1, 1]], "b": [[1, 0], [0, 1]]}, results=["x", "s599"]).json()
    states = [step["state"] for step in graph["steps"].values()]
    assert graph["error"]["field"].startswith("steps.x") and graph["steps"]["x"]["state"] == "failed"
    assert len(states) == 601 and states == sorted(states, key=["succeeded", "failed", "skipped"].index) and states.count("failed") == 1
    assert service.request("GET", f"/jobs/{graph['id']}/result").json()["code"] == "singular_matrix"


def test_computed_data_are_held_to_what_sent_data_are(service):
    big = {"p": {"op": "matmul", "inputs": {"a": [[1e200]], "b": [[1e200]]}},
           "x": {"op": "solve", "inputs": {"a": {"step": "p"}, "b": [1]}}}
    graph = post(service, big).json()
    assert graph["state"] == "failed"
    assert (graph["error"]["code"], graph["error"]["field"]) == ("not_finite", "steps.x.inputs.a")
    weights = {"p": {"op": "matmul", "inputs": {"a": [[-1.0], [1.0], [1.0]], "b": [1.0]}},
               "r": {"op": "regression", "inputs": {"x": [[1], [2], [3]], "y": [1, 2, 3], "sample_weight": {"step": "p"}}}}
    graph = post(service, weights).json()
    assert graph["state"] == "failed"
    assert (graph["error"]["code"], graph["error"]["field"]) == ("out_of_range", "steps.r.inputs.sample_weight")


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int8", "float64"])
def test_tensors_are_held_to_what_sent_data_are(service, dtype):
    variances = {"dtype": dtype, "data": [True, False, True] if dtype == "bool" else [1, 0, 2]}
    kept = service.request("POST", "/tensors", json.dumps(variances), {"Content-Type": TYPES["json"]}).json()["id"]
    step = {"op": "distance", "params": {"metric": "seuclidean"},
            "inputs": {"x": [[1, 2, 3], [4, 5, 7]], "V": {"tensor": kept}}}
    graph = post(service, {"s": step}).json()
    assert graph["state"] == "failed"
    assert (graph["error"]["code"], graph["error"]["field"]) == ("out_of_range", "steps.s.inputs.V")


def slow(length):
    """A graph of some seconds, whose steps take a fraction of one each."""
    n = 1200
    return {"steps": chain(length), "inputs": {"a": {"dtype": "float64", "shape": [n, n], "base64": ONES},
                                               "b": {"dtype": "float64", "shape": [n, n], "base64": ONES}}}


def ones_base64():
    import base64
    return base64.b64encode(np.zeros((1200, 1200)).tobytes()).decode()


ONES = ones_base64()


def test_a_running_graph_is_cancelled_as_one(make_service):
    service = make_service()
    body = slow(400)
    graph_id = post(service, body["steps"], wait=0, inputs=body["inputs"]).json()["id"]
    wait_for(lambda: service.request("GET", f"/graphs/{graph_id}").json()["progress"] > 0, 60)
    assert service.request("DELETE", f"/graphs/{graph_id}").json()["state"] == "cancelled"
    # the worker is free for the next one long before that graph would have ended
    assert post(service, TWO).json()["state"] == "succeeded"
    assert service.request("GET", f"/graphs/{graph_id}").json()["state"] == "cancelled"
    wait_for(lambda: not list(pathlib.Path("/dev/shm").glob(f"blasd-*/{graph_id}.*")), 30)


def test_a_deadline_holds_for_all_steps_together(make_service):
    service = make_service()
    body = slow(400)
    graph = post(service, body["steps"], inputs=body["inputs"], deadline_ms=700, wait=60).json()
    assert graph["state"] == "expired"


def test_a_graph_takes_no_longer_than_a_job_may(make_service):
    service = make_service("--limit", "job_s=1")
    body = slow(400)
    graph = post(service, body["steps"], inputs=body["inputs"], wait=60).json()
    # refused, or ended by the worker, by how long it is predicted to take
    assert graph.get("error", graph)["code"] == "job_too_long"


def test_a_graph_survives_its_worker(make_service):
    service = make_service()
    body = slow(60)
    graph_id = post(service, body["steps"], wait=0, inputs=body["inputs"]).json()["id"]
    wait_for(lambda: service.request("GET", f"/graphs/{graph_id}").json()["progress"] > 0, 60)
    service.kill("worker")
    graph = wait_for(lambda: (document := service.request("GET", f"/graphs/{graph_id}?wait=60", timeout=90).json())["state"] not in
                     ("queued", "running") and document, "it ends", 900)
    assert graph["state"] == "succeeded" and graph["execution"]["attempts"] == 2
    assert not np.any(service.request("GET", f"/jobs/{graph_id}/outputs/s59.c", headers={"Accept": TYPES["npy"]}).npy())


def test_keys_cover_the_steps_of_a_graph(tmp_path, make_service):
    import subprocess

    from service import BLASD
    keys = tmp_path / "keys"
    secret = subprocess.run([BLASD, "keys", "add", "some", "--ops", "matmul", "--file", keys], check=True,
                            capture_output=True, text=True).stdout.strip()
    service = make_service("--keys", str(keys))
    service.headers = {"Authorization": f"Bearer {secret}"}
    answer = post(service, TWO)
    assert answer.status == 403 and "solve" in answer.json()["detail"]
    assert post(service, {"c": TWO["c"]}).json()["state"] == "succeeded"


# --- the Python client --------------------------------------------------------------------------------------------


def test_the_python_client_records(service):
    import blasd
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((500, 40)), rng.standard_normal(500)
    with blasd.Client(service.url) as client:
        with client.graph() as g:
            gram = g.matmul(x, x, transpose_a=True)
            moment = g.matmul(x, y, transpose_a=True, name="moment")
            coef = g.solve(gram, moment, assume_a="positive_definite")
        assert np.allclose(coef.value, np.linalg.lstsq(x, y, rcond=None)[0])
        assert list(g.result) == ["solve3.x"] and list(g.result.job["steps"]) == ["matmul1", "moment", "solve3"]
        with pytest.raises(blasd.Error, match="not among the results"):
            print(gram.value)
        with client.graph(priority="high") as g:
            e = g.eigh(g.matmul(x.T, x))
            s = g.svd(x, compute_uv=False, name="s")
            g.results(e, s["S"])
        assert np.allclose(e["eigenvalues"].value[::-1], s["S"].value ** 2) and g.result.job["priority"] == "high"
        assert np.allclose(e.value, e["eigenvalues"].value)
        many = [rng.standard_normal((20, 20)) for _ in range(30)]
        with client.graph() as g:
            product = many[0]
            for one in many[1:]:
                product = g.matmul(product, one)
        assert np.allclose(product.value, np.linalg.multi_dot(many))


def test_the_python_client_records_what_lies_at_the_service(service):
    import blasd
    a, b = np.random.default_rng(5).standard_normal((2, 30, 30))
    with blasd.Client(service.url) as client:
        kept, job = client.tensors.put(a), client.submit("matmul", a=a, b=b)
        assert job.wait(60)  # a graph refers to what has ended
        with client.graph() as g:  # nothing is sent
            square = g.matmul(kept, kept, name="square")
            part = g.matmul(kept[:2, 3:5], blasd.full((2, 1), 3.0), name="part")
            g.matmul(g.matmul(square, job["c"]), blasd.eye(30), name="last")
            g.results(square, part, g.matmul(blasd.eye(30), np.float32(2) * b, name="sent"))
        assert np.allclose(square.value, a @ a) and np.allclose(part.value, 3 * a[:2, 3:5].sum(1, keepdims=True))
        assert np.allclose(g.result["sent.c"], 2 * b)
        with client.graph() as g:
            last = g.matmul(g.matmul(kept, job["c"]), blasd.eye(30))
        assert np.allclose(last.value, a @ a @ b)
        client.tensors.delete(kept)
        with pytest.raises(blasd.Error) as caught, client.graph() as g:
            g.matmul(kept, kept, name="late")
        assert (caught.value.code, caught.value.field) == ("reference_not_found", "steps.late.inputs.a")


def test_what_the_python_client_says_is_wrong(service):
    import blasd
    client = blasd.Client(service.url)
    with pytest.raises(blasd.InvalidInput) as caught, client.graph() as g:
        g.matmul(np.ones((2, 3)), g.matmul(np.ones((2, 2)), np.ones((2, 2)), name="p"), name="q")
    assert caught.value.field == "steps.q.inputs.b" and caught.value.code == "shape_mismatch"
    with pytest.raises(blasd.SingularMatrix) as caught, client.graph() as g:
        g.solve(np.zeros((2, 2)), np.ones(2), name="z")
    assert caught.value.field.startswith("steps.z")
    with pytest.raises(blasd.InputError), client.graph() as g:
        g.matmul([[1]], [[1]], name="z")
        g.matmul([[1]], [[1]], name="z")
    with pytest.raises(blasd.InputError), client.graph() as g, client.graph() as other:
        other.matmul(g.matmul([[1]], [[1]]), [[1]])
    with pytest.raises(AttributeError), client.graph() as g:
        g.matmull([[1]], [[1]])
    step = client.graph().matmul([[1]], [[1]])
    with pytest.raises(blasd.Error, match="has not run"):
        print(step.value)


def test_the_asynchronous_python_client_records(service):
    import asyncio

    import blasd

    async def run():
        async with blasd.AsyncClient(service.url) as client:
            async with client.graph() as g:
                c = g.matmul(A, B)
                x = g.solve(c, [1, 2])
            return x.value
    assert np.allclose(asyncio.run(run()), np.linalg.solve(A @ B, [1, 2]))


def test_results_through_shared_memory(sharing):
    import blasd
    a = np.random.default_rng(4).standard_normal((400, 400))
    with blasd.Client(sharing.url, share=True) as client:
        with client.graph() as g:
            c = g.matmul(g.matmul(a, a), a)
        assert np.allclose(c.value, a @ a @ a)
