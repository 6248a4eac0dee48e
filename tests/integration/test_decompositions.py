"""eigh, svd, qr, cholesky and lstsq through the service: every wire form, stacks, both dtypes, SciPy's word on the results,
and what a user is told where there are none. The same through the kernels' own tests, on both backends, at more shapes and
scales: tests/unit/kernels/test_decompositions.c, test_cholesky.c."""
import numpy as np
import pytest
import scipy.linalg
from service import until

U = {"float64": 2.0**-53, "float32": 2.0**-24}
RANDOM = np.random.default_rng(20)


def symmetric(*shape, dtype="float64"):
    a = RANDOM.standard_normal(shape)
    return ((a + a.swapaxes(-1, -2)) / 2).astype(dtype)


def definite(*shape, dtype="float64"):
    a = RANDOM.standard_normal(shape)
    return (a @ a.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


JOBS = {
    "eigh": lambda dtype: {"a": symmetric(7, 7, dtype=dtype)},
    "svd": lambda dtype: {"a": RANDOM.standard_normal((6, 4)).astype(dtype)},
    "qr": lambda dtype: {"a": RANDOM.standard_normal((6, 4)).astype(dtype)},
    "cholesky": lambda dtype: {"a": definite(5, 5, dtype=dtype)},
    "lstsq": lambda dtype: {"a": RANDOM.standard_normal((9, 4)).astype(dtype),
                            "b": RANDOM.standard_normal((9, 2)).astype(dtype)},
}


def check(op, inputs, got, dtype):
    """The outputs against SciPy's, in float64, or by what they are."""
    a, u = inputs["a"].astype("float64"), U[dtype]
    size, most = np.linalg.norm(a), 16 * sum(a.shape[-2:]) * u
    for name in set(got) - {"info", "rank", "residual", "orthogonality", "optimality", "least_eigenvalue"}:
        assert got[name].dtype == dtype, name
    got = {name: array.astype("float64") for name, array in got.items()}
    if op == "eigh":
        assert np.abs(got["eigenvalues"] - scipy.linalg.eigvalsh(a)).max() <= most * size
        assert np.linalg.norm(a @ got["eigenvectors"] - got["eigenvectors"] * got["eigenvalues"]) <= most * size
    elif op == "svd":
        k = min(a.shape)
        assert got["U"].shape == (len(a), len(a)) and got["Vh"].shape == (a.shape[1],) * 2
        assert np.abs(got["S"] - scipy.linalg.svdvals(a)).max() <= most * size
        assert np.linalg.norm(got["U"][:, :k] * got["S"] @ got["Vh"][:k] - a) <= most * size
    elif op == "qr":
        assert np.linalg.norm(got["Q"] @ got["R"] - a) <= most * size
        assert np.abs(got["R"] - scipy.linalg.qr(a, mode="economic")[1]).max() <= 100 * most * size
    elif op == "cholesky":
        assert np.abs(got["L"] - scipy.linalg.cholesky(a, lower=True)).max() <= 10 * most * size
    else:
        wish = scipy.linalg.lstsq(a, inputs["b"].astype("float64"))
        assert np.abs(got["x"] - wish[0]).max() <= 100 * most and got["rank"] == wish[2]
        assert np.abs(got["residuals"] / wish[1] - 1).max() <= 100 * most
        assert np.abs(got["s"] - wish[3]).max() <= most * size


@pytest.mark.parametrize("form", ["json", "safetensors", "multipart"])
@pytest.mark.parametrize("dtype", U)
@pytest.mark.parametrize("op", JOBS)
def test_every_form_and_dtype(service, op, dtype, form):
    inputs = JOBS[op](dtype)
    got, job = service.run(op, inputs, form=form)
    check(op, inputs, got, dtype)
    assert job["execution"]["warnings"] == [] and job["execution"]["method"]


@pytest.mark.parametrize("op", JOBS)
def test_columns_first_and_integers(service, op):
    inputs = {name: np.round(4 * array) for name, array in JOBS[op]("float64").items()}
    if op in ("eigh", "cholesky"):
        inputs["a"] = (inputs["a"] + inputs["a"].T)
    for kind in (np.asfortranarray, lambda x: x.astype("int32"), lambda x: x.astype(">f8")):
        got, _ = service.run(op, {name: kind(array) for name, array in inputs.items()}, form="multipart")
        check(op, inputs, got, "float64")


@pytest.mark.parametrize("op", JOBS)
def test_a_stack_is_each_of_its_matrices(service, op):
    each = [JOBS[op]("float64") for _ in range(6)]
    stack = {name: np.stack([one[name] for one in each]).reshape(2, 3, *each[0][name].shape) for name in each[0]}
    got, _ = service.run(op, stack, form="safetensors")
    for i, one in enumerate(each):
        alone, _ = service.run(op, one, form="safetensors")
        for name, array in alone.items():
            assert np.array_equal(got[name][i // 3, i % 3], array), name


def test_parts_of_it(service):
    a, s = RANDOM.standard_normal((5, 8)), symmetric(6, 6)
    whole = service.run("svd", {"a": a})[0]
    few = service.run("svd", {"a": a}, {"full_matrices": False})[0]
    assert whole["Vh"].shape == (8, 8) and few["Vh"].shape == (5, 8) and few["U"].shape == (5, 5)
    values = service.run("svd", {"a": a}, {"compute_uv": False})[0]
    assert set(values) == {"S"} and np.allclose(values["S"], whole["S"], rtol=1e-14)
    values = service.run("eigh", {"a": s}, {"vectors": False})[0]
    assert set(values) == {"eigenvalues"} and np.allclose(values["eigenvalues"], np.linalg.eigvalsh(s), atol=1e-14)
    complete = service.run("qr", {"a": a.T}, {"mode": "complete"})[0]
    assert complete["Q"].shape == (8, 8) and complete["R"].shape == (8, 5)
    assert set(service.run("qr", {"a": a.T}, {"mode": "r"})[0]) == {"R"}
    upper = service.run("cholesky", {"a": definite(4, 4)}, {"upper": True})[0]["L"]
    assert np.array_equal(upper, np.triu(upper))


def test_what_a_user_is_told(service):
    answer = service.post("cholesky", {"a": np.diag([1.0, -1.0])}).json()
    assert answer["state"] == "failed" and answer["error"]["code"] == "not_positive_definite"
    assert "order 2 " in answer["error"]["detail"]
    got, job = service.run("cholesky", {"a": np.stack([np.eye(2), -np.eye(2)])})
    assert got["info"].tolist() == [0, 1] and np.isnan(got["L"][1]).all() and (got["L"][0] == np.eye(2)).all()
    assert "1 of 2 matrices are not positive definite" in job["execution"]["warnings"][0]
    for op in ("eigh", "cholesky"):
        _, job = service.run(op, {"a": [[2.0, 1.0], [0.0, 2.0]]})
        assert "a is not symmetric: the lower triangle was used" in job["execution"]["warnings"][0]
        assert service.post(op, {"a": np.ones((2, 3))}).json()["code"] == "invalid_shape"
    for op in JOBS:
        inputs = JOBS[op]("float64")
        inputs["a"][1, 0] = np.nan
        problem = service.post(op, inputs).json()
        assert (problem["code"], problem["field"]) == ("not_finite", "inputs.a") and "(1, 0)" in problem["detail"]
    got, job = service.run("lstsq", {"a": np.ones((4, 3)), "b": np.arange(4.0)})
    assert got["rank"] == 1 and np.allclose(got["x"], 0.5) and "1 of 3 singular values" in job["execution"]["warnings"][0]
    assert service.post("lstsq", {"a": np.ones((4, 3)), "b": np.ones(3)}).json()["field"] == "inputs.b"
    got, _ = service.run("lstsq", {"a": np.diag([1.0, 1e-5]), "b": np.ones(2)}, {"rcond": 1e-4})
    assert got["rank"] == 1 and np.allclose(got["x"], [1, 0]) and np.allclose(got["residuals"], 1)


@pytest.mark.parametrize("op", JOBS)
def test_matrices_without_elements(service, op):
    shapes = [(0, 0), (0, 3, 3)] + ([] if op in ("eigh", "cholesky") else [(3, 0), (0, 3)])
    for shape in shapes:
        inputs = {"a": np.ones(shape)}
        if op == "lstsq":
            inputs["b"] = np.ones((*shape[:-1], 2))
        got, _ = service.run(op, inputs, form="safetensors")
        if op == "svd" and shape == (3, 0):
            assert (got["U"] == np.eye(3)).all() and got["S"].shape == (0,) and got["Vh"].shape == (0, 0)
        if op == "qr" and shape == (3, 0):
            assert got["Q"].shape == (3, 0) and got["R"].shape == (0, 0)
        if op == "lstsq" and shape == (0, 3):
            assert got["x"].tolist() == [[0, 0]] * 3 and got["residuals"].tolist() == [0, 0] and got["rank"] == 0


@pytest.mark.parametrize("exponent", [-308, -300, -200, 200, 300, 307])
def test_scales(service, exponent):
    """A matrix at the ends of the range is taken apart as the one near 1 is."""
    for op in JOBS:
        inputs = JOBS[op]("float64")
        inputs["a"] /= np.abs(inputs["a"]).max()
        scale = 2.0 ** int(exponent * 3.32)
        if op == "cholesky":
            scale = 2.0 ** (int(exponent * 3.32) // 2 * 2)
        plain, _ = service.run(op, inputs, form="safetensors")
        far, job = service.run(op, {**inputs, "a": inputs["a"] * scale}, form="safetensors")
        if exponent == -308:  # elements of the far one are subnormal, and rounded
            continue
        power = {"eigenvalues": 1, "S": 1, "R": 1, "s": 1, "L": 0.5, "x": -1}
        for name, array in plain.items():
            if name not in ("residual", "orthogonality", "optimality"):
                assert np.allclose(far[name] / scale ** power.get(name, 0), array, rtol=1e-11, atol=1e-12), (op, name)
        assert job["execution"]["warnings"] == []


@pytest.mark.parametrize("op", ["eigh", "svd"])
def test_a_large_one_is_heard_when_it_is_cancelled(service, op):
    """Or its worker starts again, where the library's call goes on for stop_s: other jobs run either way."""
    a = symmetric(1500, 1500)
    job = service.post(op, {"a": a}, wait=0, form="safetensors").json()
    until(service, job["id"], ("running", "succeeded"))
    assert service.request("DELETE", f"/jobs/{job['id']}").status in (200, 409)  # 409: it was faster
    assert service.post(op, {"a": np.eye(2)}).json()["state"] == "succeeded"
