"""Slices of what steps make, as inputs of other steps."""
import json

import blasd
import numpy as np
import pytest
from service import TYPES, nested

A = np.arange(24.0).reshape(4, 6)
EYE = {"op": "matmul", "inputs": {"a": nested(np.eye(4)), "b": nested(A)}}


def post(service, steps, query="?wait=30", headers=None, **members):
    return service.request("POST", f"/graphs{query}", json.dumps({"steps": steps, **members}),
                           {"Content-Type": TYPES["json"], **(headers or {})}, timeout=90)


def part_of(*bounds, **members):
    return {"step": "s", "output": "c", "slice": [list(pair) for pair in bounds], **members}


def times_one(part, shape):
    """A step that gives the part as it is."""
    return {"op": "matmul", "inputs": {"a": part, "b": {"eye": shape[-1]}}}


def random_bounds(rng, shape):
    pairs = []
    for length in shape[:rng.integers(len(shape) + 1)]:
        low, high = sorted(int(x) for x in rng.integers(0, length + 1, 2))
        pairs.append([low if low > 0 or rng.random() < 0.5 else None, high if high < length or rng.random() < 0.5 else None])
    return pairs


@pytest.mark.parametrize("seed", range(3))
def test_random_parts_are_what_numpy_cuts(service, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 20, 3))
    stack = rng.standard_normal(shape)
    steps, right = {"s": {"op": "matmul", "inputs": {"a": nested(stack), "b": {"eye": shape[2]}}}}, {}
    for i in range(30):
        pairs = random_bounds(rng, shape)
        cut = stack[tuple(slice(*pair) for pair in pairs)]
        if 0 in cut.shape:
            continue
        steps[f"p{i}"] = times_one(part_of(*pairs), cut.shape)
        right[f"p{i}.c"] = cut
    graph = post(service, steps, results=list(right)).json()
    assert graph["state"] == "succeeded", graph
    for name, cut in right.items():
        assert np.array_equal(np.reshape(graph["outputs"][name]["data"], cut.shape), cut), name


def test_parts_of_parts_dtypes_and_other_outputs(service):
    whole = np.array([[4.0, 1, 0], [1, 3, 0], [0, 0, 2]])
    steps = {"e": {"op": "eigh", "inputs": {"a": nested(whole)}},
             "two": {"op": "matmul", "params": {"transpose_a": True},
                     "inputs": {"a": {"slice": [[None, None], [1, 3]], "step": "e", "output": "eigenvectors"},
                                "b": {"output": "eigenvectors", "slice": [[None, None], [1, 3]], "dtype": "float64", "step": "e"}}},
             "one": {"op": "matmul", "inputs": {"a": {"step": "two", "slice": [[0, 1], [0, 1]]}, "b": [[7]]}}}
    graph = post(service, steps, results=["two", "one"]).json()
    assert graph["state"] == "succeeded", graph
    assert np.allclose(graph["outputs"]["two.c"]["data"], np.eye(2), atol=1e-14)
    assert np.allclose(graph["outputs"]["one.c"]["data"], [[7]])


@pytest.mark.parametrize(("part", "code", "says"), [
    (part_of((0, 5)), "invalid_reference", "0 to 5 of length 0, which is 4"),
    (part_of((2, 1)), "invalid_reference", "2 to 1"),
    (part_of((0, 1), (0, 1), (0, 1)), "invalid_reference", "3 lengths, and there are 2"),
    (part_of((-1, 2)), "invalid_reference", "integers >= 0 or null"),
    ({"step": "s", "slice": 3}, "invalid_reference", "not a list of pairs"),
    (part_of((0, 1), dtype="float32"), "invalid_reference", "is float64, not float32"),
    ({"step": "s", "slice": [], "shape": [1]}, "invalid_tensor", "'shape'"),
    ({"input": "m", "slice": [[0, 1]]}, "invalid_reference", "inputs of the graph"),
])
def test_parts_that_are_none(service, part, code, says):
    steps = {"s": EYE, "x": times_one(part, (6,))}
    for query in ("?wait=30", "?dry_run=1"):
        problem = post(service, steps, query, **({"inputs": {"m": nested(A)}} if "input" in part else {}))
        assert problem.status == 422
        assert (problem.json()["code"], problem.json()["field"]) == (code, "steps.x.inputs.a")
        assert says in problem.json()["detail"]


def test_shapes_of_parts_are_known_before_anything_runs(service):
    steps = {"s": EYE, "x": {"op": "matmul", "inputs": {"a": part_of((0, 2)), "b": part_of((0, 2))}}}
    problem = post(service, steps, "?dry_run=1")
    assert problem.status == 422 and problem.json()["code"] == "shape_mismatch"
    steps["x"]["inputs"]["b"] = part_of((None, None), (0, 4))
    steps["x"]["params"] = {"transpose_b": True}
    steps["x"]["inputs"]["a"] = part_of((1, 3), (0, 4))
    told = post(service, steps, "?dry_run=1").json()
    assert told["outputs"] == {"x.c": {"dtype": "float64", "shape": [2, 4], "bytes": 64}}
    graph = post(service, steps).json()
    assert np.array_equal(graph["outputs"]["x.c"]["data"], A[1:3, :4] @ A[:, :4].T)


def test_keys_tell_parts_apart(service):
    steps = {"s": EYE, "x": times_one(part_of((0, 2)), (6,))}
    headers = {"Idempotency-Key": "parts"}
    first = post(service, steps, headers=headers).json()
    assert post(service, steps, headers=headers).json()["id"] == first["id"]
    steps["x"] = times_one(part_of((1, 3)), (6,))
    assert post(service, steps, headers=headers).json()["code"] == "idempotency_conflict"


def test_the_python_client_records_parts(service):
    client = blasd.Client(service.url)
    with client.graph() as g:
        s = g.matmul(np.eye(4), A)
        x = g.matmul(s[1:3, :4], s[:, :4], transpose_b=True)
        v = g.eigh(np.diag([3.0, 1.0, 2.0]))["eigenvectors"]
        y = g.matmul(v[:, :1], v[:, :1], transpose_a=True)
        g.results(x, y)
    assert np.array_equal(x.value, A[1:3, :4] @ A[:, :4].T)
    assert np.allclose(y.value, [[1]])
    with pytest.raises(blasd.InputError, match="whole"):
        g.results(s[:1])
    with pytest.raises(blasd.InputError, match="part of a part"):
        s[:2][:1]
    with pytest.raises(blasd.InputError, match="counted from the start"):
        s[-1:]
