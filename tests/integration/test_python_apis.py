"""What the Python client looks like: methods, parameters, errors, and the signatures of NumPy, SciPy and scikit-learn."""
import asyncio
import importlib.util
import inspect
import json
import pickle
import re
import subprocess
import sys
import types

import blasd
import blasd.linalg
import blasd.spatial.distance
import numpy as np
import pandas
import pytest
import scipy.linalg
import scipy.spatial.distance
from callers import OWN, on_a_loop
from service import ROOT

RNG = np.random.default_rng(21)


def signatures(kind):
    return {name: list(inspect.signature(getattr(kind, name)).parameters) for name in dir(kind) if not name.startswith("_")}


def test_both_clients_have_the_same_methods():
    ours, theirs = signatures(blasd.Client), signatures(blasd.AsyncClient)
    assert ours.keys() == theirs.keys()
    for name, parameters in ours.items():
        assert sorted(parameters) == sorted(theirs[name]), name


def test_methods_have_the_parameters_of_their_operations(client):
    """By name, for each operation that the service has; a new one has its methods as soon as its descriptor is there."""
    for op in client.ops():
        given = inspect.signature(getattr(blasd.Client, op["name"])).parameters
        named = [one["name"] for one in op["inputs"] + op["params"]]
        assert set(named) <= set(given) and list(given)[1:1 + len(op["inputs"])] == named[:len(op["inputs"])], op["name"]
        text = inspect.getdoc(getattr(blasd.Client, op["name"]))
        assert all(f"\n{name}: " in text for name in named), op["name"]
    options = set(inspect.signature(blasd.Client.run).parameters) - {"self", "op", "params", "inputs"}
    assert options == set(blasd.named.OPTIONS), "what run takes a method hands on"
    spec = importlib.util.spec_from_file_location("generate", ROOT / "clients" / "python" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    new = {"name": "spread", "summary": "x, spread", "doc": "One.\nTwo.",
           "inputs": [{"name": "x", "doc": "Numbers.", "shape": "(n,)", "optional": False, "dtypes": ["float64"],
                       "min_rank": 1, "max_rank": 1}],
           "params": [{"name": "how", "type": "choice", "doc": "The way.", "choices": ["far", "near"], "default": "far"}]}
    made = types.ModuleType("blasd.operations_made")
    exec(generate.text_of([*json.loads((ROOT / "api" / "operations.json").read_text())["ops"], new]), made.__dict__)
    asked = []
    instance = made.Operations()
    instance._named = lambda op, inputs, params, **options: asked.append((op, inputs, params, options["timeout"], options["more"]))
    instance.spread([1.0], how="near", timeout=5, more=1)
    assert asked == [("spread", {"x": [1.0]}, {"how": "near"}, 5, 1)]
    assert inspect.iscoroutinefunction(made.AsyncOperations.spread)


BAD = [("matmul", dict(a=np.ones((2, 3)), b=np.ones((2, 3)))), ("matmul", dict(a=np.ones((2, 3, 3)), b=np.ones((3, 3, 3)))),
       ("matmul", dict(a=np.ones((2, 3)), b=np.ones((2, 3)), params={"transpose_b": True, "transpose_a": True})),
       ("matmul", dict(a=np.ones(3), b=np.ones(4))), ("solve", dict(a=np.ones((2, 3)), b=np.ones(2))),
       ("solve", dict(a=np.eye(3), b=np.ones(2))), ("solve", dict(a=np.eye(3), b=np.ones((2, 2)))),
       ("solve", dict(a=np.ones((2, 3, 3)), b=np.ones((4, 3, 1)))), ("distance", dict(x=np.ones((3, 2)), y=np.ones((3, 4)))),
       ("regression", dict(x=np.ones((5, 2)), y=np.ones(4))), ("regression", dict(x=np.ones((5, 2)), y=np.ones((4, 2)))),
       ("regression", dict(x=np.ones((5, 2)), y=np.ones((1, 5, 2, 2)))), ("matmul", dict(a=np.ones(()), b=np.ones(1))),
       ("matmul", dict(a=np.eye(2), b=np.eye(2), c=np.eye(3))), ("matmul", dict(a=np.ones(2), b=np.ones((2, 3)), c=np.ones((1, 3)))),
       ("cholesky", dict(a=np.ones((2, 3)))), ("cholesky", dict(a=np.ones(3))), ("eigh", dict(a=np.ones((4, 2, 3)))),
       ("eigh", dict(a=1j * np.eye(2))), ("svd", dict(a=np.ones(3))), ("qr", dict(a=np.ones((1,) * 9))),
       ("lstsq", dict(a=np.ones((3, 2)), b=np.ones(4))), ("lstsq", dict(a=np.ones((3, 2)), b=np.ones((4, 1)))),
       ("lstsq", dict(a=np.ones((2, 3, 2)), b=np.ones((3, 3, 1)))), ("distance", dict(x=np.ones(3))),
       ("distance", dict(x=np.ones((2, 3, 2)), y=np.ones((3, 3, 2)))), ("distance", dict(x=np.ones((3, 2)), w=np.ones(3))),
       ("distance", dict(x=np.ones((3, 2)), V=np.ones(1), params={"metric": "seuclidean"})),
       ("distance", dict(x=np.ones((3, 2)), VI=np.ones((2, 3)), params={"metric": "mahalanobis"})),
       ("regression", dict(x=np.ones(5), y=np.ones(5))), ("regression", dict(x=np.ones((5, 2)), y=np.ones(5), sample_weight=np.ones(4))),
       ("regression", dict(x=np.ones((2, 5, 2)), y=np.ones((3, 5)))), ("regression", dict(x=np.ones((5, 2), complex), y=np.ones(5))),
       ("regression", dict(x=np.ones((2, 5, 2)), y=np.ones((2, 5)), sample_weight=np.ones((3, 5))))]


@pytest.mark.parametrize("op, job", BAD)
def test_wrong_shapes_fail_here_in_the_services_words(client, monkeypatch, op, job):
    with pytest.raises(blasd.InputError) as here:
        client.run(op, **job)
    monkeypatch.setattr("blasd.calls.check_shapes", lambda *_: None)
    with pytest.raises(blasd.InvalidInput) as there:
        client.run(op, **job)
    for name in ("code", "status", "field", "title", "detail", "advice"):
        assert getattr(here.value, name) == getattr(there.value, name)


def test_shapes_that_fit_pass(client):
    for op, job in (("matmul", dict(a=np.ones((2, 1, 3, 4)), b=np.ones((5, 4, 2)))), ("matmul", dict(a=np.ones(3), b=np.ones(3))),
                    ("matmul", dict(a=np.ones(3), b=np.ones((3, 2)), params={"transpose_a": True})),
                    ("solve", dict(a=np.stack([np.eye(3)] * 2), b=np.ones(3))), ("distance", dict(x=np.ones((3, 2)))),
                    ("matmul", dict(a=np.ones((2, 3)), b=np.ones(3), c=1.0)), ("lstsq", dict(a=np.ones((2, 3, 2)), b=np.ones(3))),
                    ("lstsq", dict(a=np.ones((2, 3)), b=np.ones((4, 2, 1)))), ("distance", dict(x=np.ones((3, 2)), w=np.ones(2))),
                    ("distance", dict(x=np.ones((1, 3, 2)), y=np.ones((2, 3, 2)))), ("cholesky", dict(a=np.stack([np.eye(2)] * 2))),
                    ("regression", dict(x=RNG.standard_normal((2, 5, 2)), y=np.ones((2, 5)), sample_weight=np.ones(5))),
                    ("regression", dict(x=RNG.standard_normal((2, 5, 2)), y=np.ones((2, 5))))):
        client.run(op, **job)


def test_kinds_of_errors(client):
    with pytest.raises(blasd.NotFound):
        client.job("a" + "0" * 40)
    for ask, code, field in ((lambda: client.run("matmul", {"speed": 11}, a=np.eye(2), b=np.eye(2)), "unknown_parameter", "params.speed"),
                             (lambda: client.matmul(np.ones((2, 3)), np.ones((2, 3))), "shape_mismatch", "inputs.b")):
        with pytest.raises(blasd.InvalidInput) as caught:
            ask()
        error = caught.value
        assert (error.code, error.field) == (code, field) and error.status in (400, 422) and not error.retry and error.advice
        assert field in str(error)
    for code, status, kind in (("queue_full", 429, blasd.QueueFull), ("draining", 503, blasd.Unavailable),
                               ("nobody_knows", 503, blasd.Unavailable), ("nobody_knows", 0, blasd.Error),
                               ("forbidden_host", 403, blasd.Forbidden), ("cancelled", 409, blasd.Cancelled),
                               ("job_ended", 409, blasd.Conflict), ("poisoned", 500, blasd.JobFailed),
                               ("not_converged", 0, blasd.NumericalError)):
        assert type(blasd.Error(code, "", status=status)) is kind


def test_numpys_signatures(default):
    a, b = RNG.standard_normal((3, 5, 5)), RNG.standard_normal((3, 5, 2))
    assert np.allclose(blasd.linalg.matmul(a, b), a @ b) and blasd.linalg.matmul([1, 2], [3, 4]) == 11
    assert np.allclose(blasd.linalg.solve(a, b), np.linalg.solve(a, b))
    assert np.allclose(blasd.linalg.inv(a), np.linalg.inv(a)) and np.allclose(blasd.linalg.inv(a[0]), np.linalg.inv(a[0]))
    with pytest.raises(np.linalg.LinAlgError):
        blasd.linalg.inv(np.ones((2, 3)))
    for rows, columns in ((9, 4), (4, 9), (5, 5)):
        left, right = RNG.standard_normal((rows, columns)), RNG.standard_normal((rows, 2))
        for side in (right, right[:, 0]):
            ours, theirs = blasd.linalg.lstsq(left, side), np.linalg.lstsq(left, side, rcond=None)
            assert ours.rank == theirs[2]
            for mine, other in zip((ours.x, ours.residuals, ours.s), (theirs[0], theirs[1], theirs[3])):
                assert mine.shape == other.shape and np.allclose(mine, other)


def test_numpys_decompositions(default):
    a, s = RNG.standard_normal((2, 5, 3)), RNG.standard_normal((2, 4, 4))
    s = s + s.swapaxes(1, 2)
    w, v = blasd.linalg.eigh(s)
    assert np.allclose(w, np.linalg.eigh(s)[0]) and np.allclose(s @ v, v * w[:, None])
    assert np.allclose(blasd.linalg.eigh(np.triu(s), UPLO="U").eigenvalues, w)
    assert np.allclose(blasd.linalg.eigvalsh(np.tril(s)), w)
    for full in (True, False):
        ours, theirs = blasd.linalg.svd(a, full_matrices=full), np.linalg.svd(a, full_matrices=full)
        assert [x.shape for x in ours] == [x.shape for x in theirs] and np.allclose(ours.S, theirs[1])
        assert np.allclose(ours.U[..., :3] * ours.S[:, None] @ ours.Vh[:, :3], a)
    assert np.allclose(blasd.linalg.svd(a, compute_uv=False), np.linalg.svd(a, compute_uv=False))
    assert np.allclose(blasd.linalg.svdvals(a[0]), np.linalg.svd(a[0], compute_uv=False))
    for mode in ("reduced", "complete"):
        for mine, other in zip(blasd.linalg.qr(a[0], mode), np.linalg.qr(a[0], mode)):
            assert np.allclose(mine, other)
    assert np.allclose(blasd.linalg.qr(a[0], "r"), np.linalg.qr(a[0], "r"))
    definite = s @ s + np.eye(4)
    assert np.allclose(blasd.linalg.cholesky(definite), np.linalg.cholesky(definite))
    assert np.allclose(blasd.linalg.cholesky(definite, upper=True), np.linalg.cholesky(definite).swapaxes(1, 2))
    with pytest.raises(blasd.InvalidInput, match="UPLO"):
        blasd.linalg.eigh(np.eye(2), UPLO="X")


ONES = np.ones((2, 2))
IMPOSSIBLE = [("solve", (ONES, np.ones(2)), {}, "singular_matrix"), ("inv", (np.zeros((2, 2)),), {}, "singular_matrix"),
              ("cholesky", (-np.eye(2),), {}, "not_positive_definite"), ("client.cholesky", (-np.eye(2),), {}, "not_positive_definite"),
              ("client.solve", (ONES, np.ones(2)), {}, "singular_matrix"),
              ("client.solve", (-np.eye(2), np.ones(2)), {"assume_a": "positive_definite"}, "not_positive_definite")]


@pytest.mark.parametrize("call, given, options, code", IMPOSSIBLE)
def test_what_numbers_allow_no_result_is_numpys_error_and_the_jobs(client, default, call, given, options, code):
    of, name = (client, call.partition(".")[2]) if "." in call else (blasd.linalg, call)
    with pytest.raises(np.linalg.LinAlgError) as caught:
        getattr(of, name)(*given, **options)
    error = caught.value
    kind = blasd.SingularMatrix if code == "singular_matrix" else blasd.NotPositiveDefinite
    assert type(error) is kind and isinstance(error, blasd.NumericalError) and error.code == code and error.job["state"] == "failed"
    assert code == "singular_matrix" or "order 1 " in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == str(error) and again.code == code


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4), (2, 0, 3), (3, 2, 5, 2)])
def test_pseudoinverses_norms_and_determinants(default, shape, dtype):
    a = (RNG.standard_normal(shape) * 9).astype(dtype)
    a[..., -1:] = a[..., :1]  # of less than full rank
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == "f4" else {}
    for options in ({}, {"rcond": 0.3}, {"hermitian": False}, {"rcond": np.full(shape[:-2], 0.3)}):
        mine, other = (of.pinv(a, **{"rcond": 1e-6 if dtype == "f4" else 1e-12, **options}) for of in (blasd.linalg, np.linalg))
        assert mine.shape == other.shape and mine.dtype == other.dtype and np.allclose(mine, other, **close)
    for order in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        for axis in (None, (0, 1), (-1, 0), 0) if a.size else ((-2, -1),):
            for keepdims in (False, True):
                calls = [lambda of=of: of.norm(a, order, axis, keepdims) for of in (blasd.linalg, np.linalg)]
                try:
                    other = calls[1]()
                except ValueError as error:
                    with pytest.raises(ValueError, match=re.escape(str(error))):
                        calls[0]()
                    continue
                assert np.shape(calls[0]()) == np.shape(other) and np.allclose(calls[0](), other, **close), (order, axis)
    if a.ndim == 2:
        assert np.allclose(blasd.linalg.pinv(a, 1e-6), scipy.linalg.pinv(a, rtol=1e-6), **close)
        assert np.allclose(blasd.linalg.norm(a, 2), scipy.linalg.norm(a, 2), **close)
    square = a[..., :shape[-1], :] if shape[-2] >= shape[-1] else a[..., :shape[-2]]
    square = square + 5 * np.eye(square.shape[-1], dtype=dtype)
    mine = blasd.linalg.det(square)
    assert np.allclose(mine, np.linalg.det(square), **close) and (a.ndim > 2 or np.isclose(mine, scipy.linalg.det(square), **close))


def test_pseudoinverses_and_determinants_that_are_none(default):
    for of in (blasd.linalg, np.linalg):
        for wrong in (lambda: of.pinv(np.ones(3)), lambda: of.det(np.ones((2, 3))), lambda: of.pinv([[np.nan, 1], [1, 2]])):
            with pytest.raises(ValueError if wrong is None else (np.linalg.LinAlgError, blasd.InvalidInput)):
                wrong()
        with pytest.raises(TypeError if "rtol" not in inspect.signature(np.linalg.pinv).parameters and of is np.linalg else ValueError):
            of.pinv(np.eye(2), rcond=0.1, rtol=0.1)
    with pytest.raises(blasd.InputError, match="masked"):
        blasd.linalg.norm(np.ma.masked_greater(np.eye(2), 0.5), 2)


def test_scipys_signatures(default):
    ours, theirs = blasd.spatial.distance, scipy.spatial.distance
    x, y, w = RNG.standard_normal((7, 3)), RNG.standard_normal((5, 3)), np.array([1.0, 2, 3])
    for metric, options in (("euclidean", {}), ("cityblock", {}), ("minkowski", {"p": 3, "w": w}), ("cosine", {}),
                            ("seuclidean", {"V": w}), ("mahalanobis", {"VI": np.eye(3) * 2}), ("sqeuclidean", {"w": w})):
        assert np.allclose(ours.cdist(x, y, metric, **options), theirs.cdist(x, y, metric, **options))
        assert np.allclose(ours.pdist(x, metric, **options), theirs.pdist(x, metric, **options))
    out = np.empty((7, 5))
    assert ours.cdist(x, y, out=out) is out and np.allclose(out, theirs.cdist(x, y))
    condensed = theirs.pdist(x)
    assert np.array_equal(ours.squareform(condensed), theirs.squareform(condensed))
    assert np.array_equal(ours.squareform(ours.squareform(condensed)), condensed)
    for bad in (np.ones(4), np.ones((2, 3)), np.arange(4.0).reshape(2, 2), np.ones((2, 2, 2))):
        with pytest.raises(ValueError):
            ours.squareform(bad)
    for wrong in ((x[0], y), (x, y[:, :2])):
        with pytest.raises(ValueError):
            ours.cdist(*wrong)
    with pytest.raises(TypeError):
        ours.cdist(x, y, lambda u, v: 0)


def test_results_are_shown(client):
    x = RNG.standard_normal((50, 2))
    fit = client.regression(x, x @ [1.0, 2.0] + 3 + RNG.standard_normal(50) / 10)
    text = str(fit)
    assert "R-squared" in text and text.splitlines()[-4].split()[0] == "const" and "x2" in text
    assert "height" in fit.summary(["weight", "height"]) and isinstance(fit, blasd.RegressionResult)
    assert "coef: float64[2]" in repr(fit) and "<table>" in fit._repr_html_()
    assert "[0.025" in text and "ols, " in text
    frame = pandas.DataFrame({"age": x[:, 0], 7: x[:, 1]})
    for named in (client.regression(frame, x[:, 0] * 2 + x[:, 1] ** 2), client.run("regression", x=frame, y=x[:, 1] ** 2),
                  next(client.map("regression", [{"x": frame, "y": x[:, 1] ** 2}]))):
        assert [line.split()[0] for line in str(named).splitlines() if line[:3] in ("age", "7  ")] == ["age", "7"]
    assert fit.names is None
    ridge = client.regression(x, x[:, 0], method="ridge")
    assert "const" in str(ridge) and f"ridge, {ridge.execution['method']}" in str(ridge) and "ols" not in str(ridge)
    half = {"x": x, "y": fit["coef"] @ x.T + RNG.standard_normal(50), "params": {"level": 0.5}}
    job = client.submit("regression", **half)
    for one in (client.run("regression", **half), next(client.map("regression", [half])), job.result(), pickle.loads(pickle.dumps(job)).result()):
        assert "[0.25" in str(one) and "0.75]" in str(one)
    later = str(client.job(job.id).result())  # nothing of the request is known here
    assert "[low" in later and "0.975" not in later and "ols" not in later and "qr" in later
    stack = client.regression(RNG.standard_normal((2, 9, 2)), RNG.standard_normal((2, 9)))
    with pytest.raises(ValueError):
        stack.summary()
    assert "coef" in str(stack)


def test_decompositions_of_both_clients(client):
    a, b = RNG.standard_normal((6, 3)), RNG.standard_normal(6)
    x = client.lstsq(a, b, timeout=60).x
    assert client.eigh(a.T @ a, priority="high").eigenvalues.shape == (3,)

    async def all_of_them(one):
        return await asyncio.gather(one.lstsq(a, b), one.svd(a), one.qr(a), one.cholesky(a.T @ a), one.eigvalsh(a.T @ a))
    fit, values, qr, factor, eigenvalues = on_a_loop(client.url, all_of_them)
    assert np.array_equal(fit.x, x) and np.allclose(values.S**2, eigenvalues[::-1])
    assert np.allclose(abs(qr.R.T), abs(factor))


@pytest.mark.full
@pytest.mark.parametrize("which", ["the system's", "the newest"])
def test_numpy_scipy_and_scikit_learn(which, service, request):
    """Their signatures and attributes are ours, and scikit-learn's check_estimator passes."""
    python = sys.executable
    if which == "the newest":
        python = request.getfixturevalue("venv")("science") / "bin/python"
    else:
        pytest.importorskip("sklearn")
    done = subprocess.run([python, ROOT / "tests/integration/clients/science.py", service.url], capture_output=True, text=True,
                          timeout=600, env=OWN, check=False)
    assert done.returncode == 0 and done.stdout == "right\n", done.stderr[-3000:]
