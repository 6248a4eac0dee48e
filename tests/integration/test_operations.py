"""The four operations through the whole path, against NumPy and known values."""
import numpy as np
import pytest

RNG = np.random.default_rng(20240607)


def bound(a, b, u):
    """The a-priori bound of a product, entry by entry."""
    return (a.shape[-1] + 2) * u * (np.abs(a) @ np.abs(b)) + np.finfo(float).tiny


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [((2, 3), (3, 4)), ((1, 1), (1, 1)), ((64, 64), (64, 64)), ((5, 7, 3), (5, 3, 2)),
                                   ((300, 517), (517, 129)), ((0, 3), (3, 2)), ((2, 0), (0, 3))])
def test_matmul(service, shape, dtype):
    a, b = (RNG.standard_normal(s).astype(dtype) for s in shape)
    arrays, job = service.run("matmul", {"a": a, "b": b}, form="safetensors")
    expected = a.astype(np.longdouble) @ b.astype(np.longdouble)
    assert arrays["c"].dtype == dtype and arrays["c"].shape == expected.shape
    assert np.all(np.abs(arrays["c"] - expected) <= bound(a.astype(float), b.astype(float), np.finfo(dtype).eps))
    assert job["state"] == "succeeded" and job["execution"]["device"].startswith("cpu")


@pytest.mark.first
def test_matmul_of_integers_is_exact(service):
    a, b = RNG.integers(-50, 50, (33, 70)), RNG.integers(-50, 50, (70, 21))
    for form in ("json", "safetensors", "multipart"):
        arrays, _ = service.run("matmul", {"a": a, "b": b}, form=form)
        assert arrays["c"].dtype == np.float64 and np.array_equal(arrays["c"], a @ b)


def test_matmul_lets_nan_and_infinity_through(service):
    a = np.array([[np.nan, 1.0], [np.inf, 1.0], [1.0, 2.0]])
    answer = service.post("matmul", {"a": a, "b": np.ones((2, 1))})
    assert answer.json()["outputs"]["c"]["data"] == [["NaN"], ["Infinity"], [3.0]]


def backward_error(a, x, b):
    norm = np.linalg.norm
    residual = b.astype(np.longdouble) - a.astype(np.longdouble) @ x.astype(np.longdouble)
    return float(np.max(np.abs(residual)) / (norm(a, np.inf) * norm(x.ravel(), np.inf) + norm(b.ravel(), np.inf)))


@pytest.mark.parametrize("n", [1, 2, 8, 33, 200])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_solve(service, n, dtype):
    a = RNG.standard_normal((n, n)).astype(dtype)
    for b in (RNG.standard_normal(n).astype(dtype), RNG.standard_normal((n, 3)).astype(dtype)):
        arrays, _ = service.run("solve", {"a": a, "b": b}, form="multipart")
        assert arrays["x"].shape == b.shape and arrays["x"].dtype == dtype
        assert backward_error(a, arrays["x"], b) <= 16 * n * np.finfo(dtype).eps


@pytest.mark.first
def test_solve_of_many_systems(service):
    a, b = RNG.standard_normal((50, 8, 8)), RNG.standard_normal((50, 8, 2))
    arrays, _ = service.run("solve", {"a": a, "b": b}, form="safetensors")
    assert np.allclose(arrays["x"], np.linalg.solve(a, b), rtol=1e-9)


@pytest.mark.first
def test_a_singular_system_fails_with_its_pivot(service):
    answer = service.post("solve", {"a": np.array([[1.0, 2.0], [2.0, 4.0]]), "b": np.array([1.0, 2.0])})
    job = answer.json()
    assert answer.status == 200 and job["state"] == "failed"
    assert job["error"]["code"] == "singular_matrix" and "pivot" in job["error"]["detail"]
    for path in (f"/jobs/{job['id']}/result", f"/jobs/{job['id']}/outputs/x"):
        assert service.request("GET", path).status == 422


def test_a_singular_member_does_not_fail_its_batch(service):
    a = np.stack([np.eye(3), np.zeros((3, 3)), 2 * np.eye(3)])
    arrays, job = service.run("solve", {"a": a, "b": np.ones((3, 3, 1))})
    assert job["state"] == "succeeded"
    assert np.array_equal(arrays["x"][0], np.ones((3, 1))) and np.array_equal(arrays["x"][2], np.full((3, 1), 0.5))
    assert np.all(np.isnan(arrays["x"][1]))


METRICS = {
    "euclidean": lambda u, v: np.sqrt(np.sum((u - v) ** 2)),
    "sqeuclidean": lambda u, v: np.sum((u - v) ** 2),
    "cityblock": lambda u, v: np.sum(np.abs(u - v)),
    "chebyshev": lambda u, v: np.max(np.abs(u - v)),
    "cosine": lambda u, v: 1 - np.dot(u, v) / np.sqrt(np.dot(u, u) * np.dot(v, v)),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_distance(service, metric, dtype):
    x = RNG.standard_normal((23, 5)).astype(dtype)
    y = RNG.standard_normal((11, 5)).astype(dtype)
    for inputs, other in (({"x": x}, x), ({"x": x, "y": y}, y)):
        arrays, _ = service.run("distance", inputs, {"metric": metric})
        expected = np.array([[METRICS[metric](u, v) for v in other.astype(np.longdouble)]
                             for u in x.astype(np.longdouble)])
        assert arrays["d"].dtype == dtype
        assert np.all(np.abs(arrays["d"] - expected) <= 40 * np.finfo(dtype).eps * np.maximum(expected, 1))
        if other is x:
            assert np.array_equal(arrays["d"], arrays["d"].T) and np.all(np.diag(arrays["d"]) == 0)


@pytest.mark.first
def test_distance_does_not_cancel(service):
    x = np.array([[512695], [512804]], np.float32)
    arrays, _ = service.run("distance", {"x": x}, form="safetensors")
    assert np.array_equal(arrays["d"], [[0, 109], [109, 0]])


def test_regression_finds_an_exact_line(service):
    x = RNG.standard_normal((40, 3))
    arrays, _ = service.run("regression", {"x": x, "y": 7 + x @ [1.0, -2.0, 0.5]})
    assert np.allclose(arrays["coef"], [1, -2, 0.5], rtol=1e-12, atol=1e-13)
    assert np.allclose(arrays["intercept"], 7, rtol=1e-13)


@pytest.mark.first
def test_regression_on_wampler1(service):
    """Certified: y = 1 + x + x^2 + x^3 + x^4 + x^5, x = 0 to 20: nine digits of each coefficient at least."""
    t = np.arange(21.0)
    x = np.stack([t ** k for k in range(1, 6)], axis=1)
    arrays, _ = service.run("regression", {"x": x, "y": 1 + x.sum(axis=1)})
    assert np.all(np.abs(arrays["coef"] - 1) <= 1e-9) and np.all(np.abs(arrays["intercept"] - 1) <= 1e-9)


@pytest.mark.first
def test_compatible_jobs_run_as_one_call(service):
    """Jobs queued together, of one shape, leave together."""
    import concurrent.futures
    a, b = RNG.standard_normal((2, 16, 16))
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        # a long job keeps the worker busy while the small ones gather
        big = pool.submit(service.run, "matmul", {"a": np.ones((1500, 1500)), "b": np.ones((1500, 1500))},
                          form="safetensors")
        jobs = list(pool.map(lambda _: service.run("matmul", {"a": a, "b": b}, form="safetensors"), range(200)))
        big.result()
    assert max(job["execution"]["batch_size"] for _, job in jobs) > 1
    assert all(np.array_equal(arrays["c"], jobs[0][0]["c"]) for arrays, _ in jobs)


def test_the_timing_adds_up(service):
    _, job = service.run("matmul", {"a": np.ones((200, 200)), "b": np.ones((200, 200))}, form="safetensors")
    timing = job["timing"]
    parts = sum(v for k, v in timing.items() if k != "total_ms")
    assert all(v >= 0 for v in timing.values()) and timing["compute_ms"] > 0
    assert parts <= timing["total_ms"] + 0.01
    assert job["execution"]["bytes"] == 3 * 200 * 200 * 8 and job["execution"]["flops"] == 2 * 200 ** 3
