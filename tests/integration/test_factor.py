"""The operation factor, and solve with what it made, over HTTP, in graphs and from Python: the answers of solve with the
matrix, bit for bit, at the cost of the substitutions. More shapes: tests/unit/kernels/test_factor.c."""
import json

import blasd
import blasd.default
import blasd.linalg
import numpy as np
import pytest
import scipy.linalg
from service import TYPES, nested

RANDOM = np.random.default_rng(45)
FIGURES = ["x", "rcond", "backward_error", "refinement_steps", "method", "error_estimate", "info"]
DTYPES = ["float64", "float32", "complex128", "complex64"]


def matrix(n, dtype, assume, hard):
    a = RANDOM.standard_normal((n, n))
    if dtype.startswith("complex"):
        a = a + 1j * RANDOM.standard_normal((n, n))
    if hard:
        a[:, 0] = a[:, 1] * (1 + 1e-15 * RANDOM.standard_normal(n))
    if assume == "positive_definite":
        a = a @ a.conj().T + (0 if hard else n) * np.eye(n)
    elif assume == "symmetric":
        a = a + a.T
    return a.astype(dtype)


@pytest.fixture
def client(service):
    with blasd.Client(service.url) as one:
        blasd.default.set_client(one)
        yield one
        blasd.default.set_client(None)


def factor(client, a, assume):
    return client.run("factor", {"assume_a": assume}, a=a, keep="factor").tensors["factor"]


def outcome(client, params, **inputs):
    try:
        return client.run("solve", params, **inputs)
    except blasd.NumericalError as error:
        return error.code


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("assume", ["general", "symmetric", "positive_definite"])
@pytest.mark.parametrize("hard", [False, True])
def test_the_answers_of_the_matrix(client, dtype, assume, hard):
    for n in (30, 100, 170):
        a, b = matrix(n, dtype, assume, hard), RANDOM.standard_normal((n, 3)).astype(dtype)
        try:
            kept = factor(client, a, assume)
        except blasd.NumericalError as error:
            assert hard and error.code in ("not_positive_definite", "singular_matrix")
            continue
        for certify in (False, True):
            wish, got = (outcome(client, {**params, "certify": certify}, b=b, **matrix_of)
                         for params, matrix_of in (({"assume_a": assume}, {"a": a}), ({}, {"factor": kept})))
            if isinstance(wish, str):  # what is definite in float32 alone
                assert hard and got == wish == "not_positive_definite"
                continue
            for name in FIGURES + ["error_bound"] * certify:
                assert got[name].tobytes() == wish[name].tobytes(), (n, name)
            assert got.warnings == wish.warnings and (got.warnings or not hard or assume != "general")


def test_in_a_graph(client, service):
    a, b = matrix(60, "float64", "general", False), RANDOM.standard_normal((60, 2))
    steps = {"f": {"op": "factor", "inputs": {"a": nested(a)}},
             "x": {"op": "solve", "inputs": {"factor": {"step": "f", "output": "factor"}, "b": nested(b)}},
             "y": {"op": "solve", "inputs": {"factor": {"step": "f"}, "b": {"step": "x"}}}}
    answer = service.request("POST", "/graphs?wait=20", json.dumps({"steps": steps, "results": ["x.x", "y.x"]}),
                             {"Content-Type": TYPES["json"]}, timeout=60)
    x, y = (np.array(answer.json()["outputs"][name]["data"]) for name in ("x.x", "y.x"))
    assert (x == client.solve(a, b)).all() and (y == client.solve(a, x)).all()


def test_scipys_shapes(client):
    for dtype in DTYPES:
        a, b = matrix(50, dtype, "general", False), RANDOM.standard_normal((50, 4)).astype(dtype)
        most = 1e-2 if np.finfo(dtype).bits == 32 else 1e-8
        for trans in (0, 1, 2):
            wish = scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b, trans)
            got = blasd.linalg.lu_solve(blasd.linalg.lu_factor(a), b, trans)
            assert got.dtype == wish.dtype and got.shape == wish.shape and np.abs(got - wish).max() <= most * np.abs(wish).max()
        a = matrix(50, dtype, "positive_definite", False)
        for lower in (False, True):
            read = np.tril(a) if lower else np.triu(a)
            factors = blasd.linalg.cho_factor(read, lower)
            assert factors[1] == lower
            for right in (b, b[:, 0]):
                wish = scipy.linalg.cho_solve(scipy.linalg.cho_factor(a, lower), right)
                got = blasd.linalg.cho_solve(factors, right)
                assert got.shape == wish.shape and np.abs(got - wish).max() <= most * np.abs(wish).max()
    with pytest.raises(np.linalg.LinAlgError):
        blasd.linalg.cho_factor(-np.eye(3))
    with pytest.raises(np.linalg.LinAlgError):
        blasd.linalg.lu_factor(np.zeros((3, 3)))


def test_what_is_no_factor(client):
    a, b = matrix(50, "float64", "general", False), RANDOM.standard_normal(50)
    kept = factor(client, a, "general")
    damaged = client.tensors.get(kept).copy()
    damaged.view("u1").reshape(-1)[12345] ^= 4
    cases = [({"factor": client.tensors.put(damaged)}, {}, "invalid_tensor"),
             ({"factor": client.tensors.put(np.zeros_like(damaged))}, {}, "invalid_tensor"),
             ({"factor": a}, {}, "invalid_shape"),
             ({"factor": kept, "a": a}, {}, "invalid_field"),
             ({"factor": kept}, {"assume_a": "symmetric"}, "invalid_parameter"),
             ({}, {}, "missing_input")]
    for inputs, params, code in cases:
        with pytest.raises(blasd.Error) as caught:
            client.run("solve", params, **inputs, b=b)
        assert caught.value.code == code, code
    sent = client.run("solve", factor=client.tensors.get(kept), b=b)
    assert (sent["x"] == client.solve(a, b)).all()
