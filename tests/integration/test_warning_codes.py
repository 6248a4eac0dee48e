"""Codes of warnings: each stands beside its text in every form of the document, and keeps its number and name."""
import json
import re

import numpy as np
import pytest
from service import ROOT

HILBERT = (1 / (np.add.outer(np.arange(20), np.arange(20)) + 1.0)).tolist()
LOPSIDED = [[4.0, 1.0], [2.0, 3.0]]
BIG = 2**60 + 1
# what stands in the contract; new ones come behind
PINNED = """near_singular 1 no_solution 2 inexact 3 precision_loss 4 overflow 5 underflow 6 not_symmetric 7 not_positive_definite 8
    not_converged 9 diverged 10 not_certifiable 11 rank_deficient 12 rank_truncated 13 ill_conditioned 14 no_degrees_of_freedom 15
    leverage_one 16 negative_r2 17 exact_fit 18 constant_target 19 covariance_ill_conditioned 20 zero_row 21 large_integers 22
    integer_overflow 23 group_without_fit 24 others_left_out 127""".split()

CASES = [
    ("solve", {"a": HILBERT, "b": [1.0] * 20}, {}, ["near_singular"]),
    ("solve", {"a": LOPSIDED, "b": [1.0, 2.0]}, {"assume_a": "symmetric"}, ["not_symmetric"]),
    ("solve", {"a": [[[1.0]], [[0.0]]], "b": [[[1.0]], [[1.0]]]}, {}, ["no_solution"]),
    ("solve", {"a": [[1e-300]], "b": [1e300]}, {}, ["overflow"]),
    ("cholesky", {"a": [[[1.0]], [[-1.0]]]}, {}, ["not_positive_definite"]),
    ("lstsq", {"a": [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]], "b": [1.0, 2.0, 3.0]}, {}, ["rank_deficient"]),
    ("matmul", {"a": [[BIG]], "b": [[2]]}, {}, ["large_integers", "large_integers"]),
    ("regression", {"x": [[1.0], [2.0], [3.0], [4.0]], "y": [1.0, 2.0, 2.0, 5.0]},
     {"method": "gd", "iterations": 50, "learning_rate": 5.0}, ["diverged", "negative_r2"]),
]


@pytest.mark.parametrize("op, inputs, params, codes", CASES, ids=[f"{case[0]}-{case[3][0]}" for case in CASES])
def test_each_warning_has_its_code(service, op, inputs, params, codes):
    _, job = service.run(op, inputs, params)
    ran = job["execution"]
    assert set(codes) <= set(ran["warning_codes"]) and len(ran["warning_codes"]) == len(ran["warnings"]), ran


def test_a_job_without_warnings_has_no_codes(service):
    _, job = service.run("solve", {"a": [[2.0]], "b": [1.0]})
    assert job["execution"]["warnings"] == job["execution"]["warning_codes"] == []


def test_codes_are_in_every_form(service):
    """JSON, a graph, an inference; those above are safetensors' metadata."""
    def post(path, body):
        return service.request("POST", path, json.dumps(body), {"Content-Type": "application/json"}).json()

    body = {"op": "solve", "inputs": {"a": HILBERT, "b": [1.0] * 20}}
    assert post("/jobs?wait=30", body)["execution"]["warning_codes"] == ["near_singular"]
    graph = post("/graphs?wait=30", {"steps": {"one": body}, "results": ["one"]})
    assert graph["execution"]["warning_codes"] == ["near_singular"]
    assert graph["execution"]["warnings"][0].startswith("one: ")
    tensors = [{"name": name, "datatype": "FP64", "shape": list(np.shape(value)), "data": value}
               for name, value in body["inputs"].items()]
    inference = post("/v2/models/solve/infer", {"inputs": tensors})
    assert inference["parameters"]["warning_code_0"] == "near_singular"


def test_codes_and_numbers_stay():
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", (ROOT / "docs" / "warnings.md").read_text(), re.MULTILINE)
    assert [word for row in rows for word in row] == PINNED
