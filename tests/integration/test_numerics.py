"""matmul, solve and distance on hard cases, through the service: every answer is held to a bound that follows from
the arithmetic, against long double, and to SciPy."""
import time

import blasd
import numpy as np
import pytest
from scipy.linalg import solve_triangular
from scipy.spatial import distance as spatial

LONG = np.longdouble
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11}


@pytest.fixture
def client(service):
    return blasd.Client(service.url)


def within(got, expected, bound):
    """Whether all entries are within the bound; NaN is not."""
    return bool(np.all(np.abs(np.asarray(got, LONG) - expected) <= bound))


# --- matmul -------------------------------------------------------------------------------------------------------

PRODUCTS = [((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 2, 3), (3,)), ((3,), (5, 3, 4)), ((2, 3), (3, 4)),
            ((5, 1, 2, 3), (4, 3, 6)), ((1, 1), (1, 1)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((0,), (0,)),
            ((4, 0, 3), (3, 2)), ((7, 33, 65), (7, 65, 9)), ((130, 70), (70, 200)), ((3, 2, 0), (0, 4)),
            ((1, 500), (500, 1)), ((60, 1), (1, 60)), ((50, 3, 3), (50, 3, 3))]


def flipped(array, flip):
    return np.ascontiguousarray(np.swapaxes(array, -1, -2)) if flip and array.ndim > 1 else array


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_products(client, dtype):
    random = np.random.default_rng(1)
    for number, (shape_a, shape_b) in enumerate(PRODUCTS):
        a, b = (random.standard_normal(s).astype(dtype) for s in (shape_a, shape_b))
        exact, sizes = a.astype(LONG) @ b.astype(LONG), np.abs(a).astype(LONG) @ np.abs(b).astype(LONG)
        for alpha, beta, c_shape in ((1, 1, None), (-2.5, 3, exact.shape), (0.5, 1, exact.shape[-1:]), (0, 1, ()),
                                     (2, 0, exact.shape)):
            params = {"alpha": alpha, "transpose_a": bool(number % 2), "transpose_b": bool(number % 3)}
            inputs = {"a": flipped(a, number % 2), "b": flipped(b, number % 3)}
            c = 0
            if c_shape is not None:
                inputs["c"] = c = np.asarray(random.standard_normal(c_shape)).astype(dtype)
                params["beta"] = beta
            got = client.run("matmul", params, **inputs)["c"]
            u, k = UNIT["float64" if dtype == "float64" else "float32"], shape_a[-1]
            expected = alpha * exact + beta * np.asarray(c, LONG)
            bound = (k + 4) * u * (abs(alpha) * sizes + np.abs(beta * np.asarray(c, LONG)))
            if dtype == "float16":
                bound = bound + UNIT["float16"] * np.abs(expected) + 2.0**-25
            assert got.dtype == dtype and got.shape == exact.shape, (shape_a, shape_b, params)
            assert within(got, expected, bound), (shape_a, shape_b, params)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_random_products_err_like_the_root(client, dtype):
    random = np.random.default_rng(2)
    a, b = (random.standard_normal((200, 200)).astype(dtype) for _ in range(2))
    bound = 4 * np.sqrt(200) * UNIT[dtype] * (np.abs(a).astype(float) @ np.abs(b).astype(float))
    assert within(client.matmul(a, b), a.astype(LONG) @ b.astype(LONG), bound)


def test_integers_and_precisions(client):
    random = np.random.default_rng(3)
    for left, right in (("int64", "int8"), ("bool", "bool"), ("float32", "int16"), ("uint64", "float64")):
        a, b = random.integers(0, 2, (20, 300)).astype(left), random.integers(0, 2, (300, 9)).astype(right)
        got = client.matmul(a, b)
        assert got.dtype == np.float64 and np.array_equal(got, a.astype(float) @ b.astype(float))
    a, b = (random.integers(-100, 100, s).astype("float32") for s in ((30, 500), (500, 40)))
    for precision in ("native", "tf32", "bf16", "fp64_emulated"):
        result = client.run("matmul", {"precision": precision}, a=a, b=b)
        assert result.execution["method"]
        if precision == "native" or result.execution["device"].startswith("cpu"):
            assert np.array_equal(result["c"], a.astype(float) @ b.astype(float))


@pytest.mark.parametrize("n", [1, 5, 17, 100, 300])
def test_what_is_not_finite_stays_in_its_row(client, n):
    random = np.random.default_rng(n)
    for value in (np.nan, np.inf):
        a, b = random.standard_normal((2, n, n))
        a[n // 2, 0], b[0] = value, 0  # 0 * Inf is NaN
        for dtype in ("float64", "float32"):
            for params in ({}, {"alpha": 0}):
                c = client.run("matmul", params, a=a.astype(dtype), b=b.astype(dtype))["c"]
                assert np.all(np.isnan(c[n // 2])) and np.all(np.isfinite(np.delete(c, n // 2, 0)))
    c = np.full((n, n), np.nan)
    assert np.all(np.isfinite(client.matmul(b, b, c, beta=0))) and np.all(np.isnan(client.matmul(b, b, c)))


# --- solve --------------------------------------------------------------------------------------------------------


def orthogonal(random, n):
    return np.linalg.qr(random.standard_normal((n, n)))[0]


def symmetric(a):
    return np.triu(a) + np.triu(a, 1).T


def wilkinson(n):
    a = np.eye(n) - np.tril(np.ones((n, n)), -1)
    a[:, -1] = 1
    return a


def hard_systems(random, n):
    """(name, assume_a, matrix), none of them exactly singular in float64."""
    a, falling = random.standard_normal((n, n)), 10.0 ** np.linspace(0, -14, n)
    i = np.arange(n)
    yield "random", "general", a
    yield "rows graded", "general", a * falling[:, None]
    yield "columns graded", "general", a * falling
    yield "both graded", "general", a * falling * falling[:, None]
    yield "huge", "general", a * 1e300
    yield "tiny", "general", a * 1e-300
    yield "rows of all sizes", "general", a * 10.0 ** random.integers(-290, 290, n)[:, None]
    yield "nearly singular", "general", orthogonal(random, n) * np.r_[np.ones(n - 1), 1e-13] @ orthogonal(random, n)
    yield "hilbert", "general", 1 / (i[:, None] + i + 1.0)
    yield "vandermonde", "general", np.linspace(0.1, 2, n)[:, None] ** i
    yield "permutation", "general", np.eye(n)[random.permutation(n)]
    yield "pivots that grow", "general", wilkinson(n)
    yield "symmetric, indefinite", "symmetric", symmetric(a - np.diag(np.diag(a)) * (n > 1))
    yield "symmetric, graded", "symmetric", symmetric(a) * falling * falling[:, None]
    yield "positive definite", "positive_definite", symmetric(a @ a.T + np.eye(n))
    q = orthogonal(random, n)
    yield "barely positive definite", "positive_definite", symmetric(q * np.logspace(0, -12, n) @ q.T)
    triangle = np.tril(a) / np.sqrt(n) + 2 * np.eye(n)
    yield "lower", "lower_triangular", triangle
    yield "upper", "upper_triangular", triangle.T
    last = triangle.copy()
    last[n // 2, n // 2] = 1e-250
    yield "tiny diagonal", "lower_triangular", last


def backward_error(a, x, b):
    a, x, b = a.astype(LONG), x.astype(LONG).reshape(len(a), -1), b.astype(LONG).reshape(len(a), -1)
    bracket = np.abs(a).sum(1).max() * np.abs(x).max(0) + np.abs(b).max(0)
    return float(np.max(np.abs(b - a @ x).max(0) / bracket))


def reciprocal_condition(a):
    """In the 1-norm. By QR, which no matrix makes pivots grow in: numpy.linalg.cond inverts by LU, and what becomes of
    `wilkinson` there depends on the order in which the processor's kernel adds."""
    q, r = np.linalg.qr(a)
    if not np.diag(r).all():
        return 0.0
    inverse = solve_triangular(r, q.T)
    with np.errstate(over="ignore"):
        return 1 / (np.abs(a).sum(0).max() * np.abs(inverse).sum(0).max())


def test_the_condition_that_tests_compare_with():
    assert 130 * reciprocal_condition(wilkinson(130)) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 33, 60, 130])
def test_hard_systems(client, n, dtype):
    random = np.random.default_rng(n)
    u = UNIT[dtype]
    for name, assume, a in hard_systems(random, n):
        with np.errstate(over="ignore", under="ignore"):
            a = a.astype(dtype)
        if dtype == "float32" and name not in ("random", "rows graded", "columns graded", "permutation", "lower",
                                               "pivots that grow", "symmetric, indefinite", "positive definite"):
            continue  # singular or beyond the range once rounded
        for transposed in (False, True):
            b = random.standard_normal((n, 4) if n % 2 else n).astype(dtype)
            result = client.run("solve", {"assume_a": assume, "transposed": transposed}, a=a, b=b)
            error = backward_error(a.T if transposed else a, result["x"], b)
            what = f"{name}, n = {n}, transposed {transposed}: {error / u:.3g} u, {dict(result)}"
            assert result["x"].shape == b.shape and result["x"].dtype == dtype, what
            assert error <= 16 * n * u, what
            assert abs(float(result["backward_error"]) - error) <= u + 0.1 * error, what
            assert result["info"] == 0 and 1 <= result["method"] <= 5 and result["refinement_steps"] >= 0, what
            warned = any("nearly singular" in text for text in result.warnings)
            assert not warned or result["rcond"] < n * 2 * u, what
            if dtype == "float64" and 1e-290 < np.abs(a).max() < 1e290 and name != "tiny diagonal":
                true = reciprocal_condition(a.T if transposed else a)
                assert true < 1e-13 or 0.5 * true <= result["rcond"] <= 10 * true, (what, true)


def test_growth_of_pivots_is_met_by_qr(client):
    random = np.random.default_rng(130)
    x = random.standard_normal(130)
    a = wilkinson(130)
    result = client.run("solve", a=a, b=a @ x)
    assert result["method"] == 5 and np.allclose(result["x"], x, rtol=0, atol=1e-12)
    plain = client.run("solve", {"refinement": "none"}, a=a, b=a @ x)
    assert plain["backward_error"] > 1e-6 and any("backward_error" in text for text in plain.warnings)


BROADCASTS = [((5, 1, 6, 6), (4, 6, 3)), ((4, 6, 6), (6, 2)), ((6, 6), (4, 6, 2)), ((3, 1, 6, 6), (1, 4, 6, 1)),
              ((0, 6, 6), (6, 2)), ((2, 0, 0), (0,)), ((0, 0), (0, 3)), ((6, 6), (6, 0)), ((4, 6, 6), (6,)),
              ((2, 3, 45, 45), (3, 45, 7)), ((300, 3, 3), (300, 3, 1))]


@pytest.mark.parametrize("shapes", BROADCASTS)
def test_systems_broadcast(client, shapes):
    random = np.random.default_rng(4)
    a, b = (random.standard_normal(s) for s in shapes)
    result = client.run("solve", a=a, b=b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2] if b.ndim > 1 else ())
    columns = b[:, None] if b.ndim == 1 else b
    expected = np.linalg.solve(np.broadcast_to(a, (*batch, *a.shape[-2:])),
                               np.broadcast_to(columns, (*batch, *columns.shape[-2:])))
    expected = expected[..., 0] if b.ndim == 1 else expected
    assert result["x"].shape == expected.shape and np.allclose(result["x"], expected, rtol=1e-7, atol=1e-9)
    for name in ("info", "rcond", "backward_error", "refinement_steps", "method"):
        assert result[name].shape == batch


@pytest.mark.parametrize("assume", ["general", "symmetric", "positive_definite", "lower_triangular"])
@pytest.mark.parametrize("n", [2, 8, 33, 100])
def test_singular_alone_and_in_a_batch(client, n, assume):
    random = np.random.default_rng(n)
    bad = np.eye(n)
    bad[n // 2, n // 2] = 0
    good = np.eye(n) + 0.1 * np.tril(random.standard_normal((n, n)))
    good = good if assume == "lower_triangular" else symmetric(good + good.T)
    with pytest.raises(blasd.Error) as caught:
        client.solve(bad, np.ones(n), assume_a=assume)
    assert caught.value.code == "singular_matrix" and str(n // 2 + 1) in caught.value.detail
    result = client.run("solve", {"assume_a": assume if assume != "positive_definite" else "symmetric"},
                        a=np.stack([good, bad, good]), b=np.ones(n))
    assert list(result["info"]) == [0, n // 2 + 1, 0] and result["rcond"][1] == 0 and result["method"][1] == 0
    assert np.all(np.isnan(result["x"][1])) and any("no solution" in text for text in result.warnings)
    for x in result["x"][[0, 2]]:
        assert backward_error(good, x, np.ones(n)) <= 16 * n * UNIT["float64"]


# --- distance -----------------------------------------------------------------------------------------------------

NUMERIC = {"euclidean": {}, "sqeuclidean": {}, "cityblock": {}, "chebyshev": {}, "minkowski": {"p": 3}, "cosine": {},
           "correlation": {}, "canberra": {}, "braycurtis": {}, "jensenshannon": {}, "hamming": {}}
DIRECT = {"euclidean": lambda d: np.sqrt((d**2).sum(-1)), "sqeuclidean": lambda d: (d**2).sum(-1),
          "cityblock": lambda d: np.abs(d).sum(-1), "chebyshev": lambda d: np.abs(d).max(-1)}


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e8])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_distances_do_not_cancel_and_are_symmetric(client, dtype, offset):
    random = np.random.default_rng(5)
    for k in (1, 2, 3, 17, 64, 129):
        x = (random.random((37, k)) + offset).astype(dtype)
        x[5], x[20] = x[17], x[36]
        differences = x.astype(LONG)[:, None] - x.astype(LONG)[None]
        for metric, params in NUMERIC.items():
            result = client.run("distance", {"metric": metric, **params}, x=x)["d"]
            bits = result.view("i8" if dtype == "float64" else "i4")
            assert np.array_equal(bits, bits.T), (metric, k)
            if metric in DIRECT:
                expected = DIRECT[metric](differences)
                assert within(result, expected, (k + 2) * UNIT[dtype] * expected), (metric, k)
            if not np.any(np.isnan(result)):  # correlation of constant rows is
                assert np.all(np.diag(result) == 0) and result[5, 17] == 0 and result[20, 36] == 0, (metric, k)
            condensed = client.run("distance", {"metric": metric, "output": "condensed", **params}, x=x)["d"]
            assert np.array_equal(condensed, result[np.triu_indices(37, 1)], equal_nan=True), (metric, k)


def orders(full, count):
    """The `count` nearest of each row, by index where they tie; NaN is farthest."""
    return np.argsort(np.where(np.isnan(full), np.finfo(float).max, full), 1, kind="stable")[:, :count]


@pytest.mark.parametrize("metric", ["sqeuclidean", "cityblock", "chebyshev", "cosine", "hamming", "dice"])
@pytest.mark.parametrize("alone", [True, False])
def test_reductions_agree_with_the_matrix(client, metric, alone):
    random = np.random.default_rng(6)
    x, y = random.integers(0, 3, (40, 4)), random.integers(0, 3, (23, 4))  # many ties, equal and zero rows
    inputs = {"x": x} if alone else {"x": x, "y": y}
    full = client.run("distance", {"metric": metric}, **inputs)["d"].copy()
    other = full.copy()
    if alone:
        np.fill_diagonal(other, np.inf)  # not its own neighbour
    nearest = client.run("distance", {"metric": metric, "output": "argmin"}, **inputs)
    assert np.array_equal(nearest["index"], orders(other, 1)[:, 0])
    assert np.array_equal(nearest["d"], full[np.arange(40), nearest["index"]], equal_nan=True)
    for k in (1, 5, full.shape[1] - alone):
        top = client.run("distance", {"metric": metric, "output": "topk", "k": k}, **inputs)
        assert np.array_equal(top["index"], orders(other, k))
        assert np.array_equal(top["d"], np.take_along_axis(full, top["index"], 1), equal_nan=True)
    for radius in (0, 1, np.inf):
        near = client.run("distance", {"metric": metric, "output": "within", "radius": radius}, **inputs)
        splits, mask = near["row_splits"], full <= radius
        if alone:
            np.fill_diagonal(mask, False)
        assert np.array_equal(np.diff(splits), mask.sum(1)) and splits[0] == 0
        for i in range(40):
            here = near["index"][splits[i]:splits[i + 1]]
            assert np.array_equal(np.sort(here), np.flatnonzero(mask[i]))
            assert np.array_equal(near["d"][splits[i]:splits[i + 1]], full[i, here])
        assert np.all(near["index"][splits[-1]:] == -1) and np.all(np.isinf(near["d"][splits[-1]:]))


METRICS = [*((m, {}) for m in ("euclidean", "sqeuclidean", "cityblock", "chebyshev", "cosine", "correlation",
                               "canberra", "braycurtis", "seuclidean", "mahalanobis", "hamming", "jensenshannon")),
           *(("minkowski", {"p": p}) for p in (0.5, 1, 1.5, 2, 7, np.inf))]
BOOLEAN = ["jaccard", "dice", "rogerstanimoto", "russellrao", "sokalsneath", "yule", "hamming"]


@pytest.mark.parametrize("metric, params", METRICS)
def test_metrics_are_scipys(client, metric, params):
    random = np.random.default_rng(7)
    for m, n, k in ((7, 9, 2), (30, 21, 5), (20, 30, 64)):
        x, y = random.random((m, k)), random.random((n, k))
        root, given = random.random((k, k)), {}
        y[0], w = x[0], random.uniform(0, 2, k)
        if metric == "seuclidean":
            given = {"V": random.uniform(0.5, 2, k)}
        elif metric == "mahalanobis":
            given = {"VI": root @ root.T + np.eye(k)}
        elif metric != "jensenshannon":
            given = {"w": w}
        for inputs in ({}, given) if metric != "mahalanobis" else (given,):
            expected = spatial.cdist(x, y, metric, **params, **inputs)
            got = client.distance(x, y, metric=metric, **params, **inputs)
            # SciPy's own cosine and correlation cancel: 1 - cos
            assert np.allclose(got, expected, rtol=1e-12, atol=1e-7 if metric == "jensenshannon" else 4e-15), inputs


@pytest.mark.parametrize("metric", BOOLEAN)
def test_boolean_metrics_are_scipys(client, metric):
    random = np.random.default_rng(8)
    x, y, w = random.random((12, 9)) < 0.4, random.random((7, 9)) < 0.5, random.uniform(0, 2, 9)
    x[1] = True
    if metric != "sokalsneath":  # not defined where both are all false
        x[0], y[0] = False, False
    for inputs in ({}, {"w": w}):
        # pair by pair: the compiled yule of SciPy 1.11 to 1.15 takes no weights (scipy/scipy#23110)
        with np.errstate(invalid="ignore"):
            expected = spatial.cdist(x, y, getattr(spatial, metric), **inputs)
        for form in (bool, "float32", "int8"):
            got = client.distance(x.astype(form), y.astype(form), metric=metric, **inputs)
            assert np.allclose(got, expected, rtol=1e-5, atol=1e-6, equal_nan=True), (form, list(inputs))


def test_reductions_where_the_matrix_does_not_fit(make_service):
    service = make_service("--limit", "job_bytes=64M")
    client = blasd.Client(service.url)
    x = np.random.default_rng(9).random((6000, 3))  # 288 MB as a matrix
    with pytest.raises(blasd.Error) as caught:
        client.distance(x)
    assert caught.value.code == "job_too_large" and caught.value.status == 413
    rows = np.arange(0, 6000, 97)
    full = np.sqrt(((x[rows, None] - x[None]) ** 2).sum(-1))
    full[np.arange(len(rows)), rows] = np.inf
    assert np.array_equal(client.distance(x, output="argmin")["index"][rows], full.argmin(1))
    assert np.array_equal(client.distance(x, output="topk", k=6)["index"][rows], orders(full, 6))
    near = client.distance(x, output="within", radius=0.05)
    assert np.array_equal(np.diff(near["row_splits"])[rows], (full <= 0.05).sum(1))


def test_progress_of_a_long_job_moves(client):
    """Gradient descent takes its steps one after the other, so that it is long on any machine."""
    random = np.random.default_rng(10)
    job = client.submit("regression", {"method": "gd", "iterations": 12_000_000, "learning_rate": 1e-3},
                        x=random.random((1000, 30)), y=random.random(1000))
    seen, end = [], time.monotonic() + 120
    while not job.ended and time.monotonic() < end:
        seen.append(job.refresh().progress)
        time.sleep(0.02)
    assert job.state == "succeeded" and seen == sorted(seen)
    assert len({p for p in seen if 0 < p < 1}) >= 2, sorted(set(seen))


@pytest.mark.full
def test_mahalanobis_in_many_dimensions(service):
    """The covariance matrix, which is inverted in parts, against NumPy's inverse of NumPy's."""
    random = np.random.default_rng(1030)
    x, y = random.standard_normal((1, 1030)), random.standard_normal((1100, 1030))
    x *= np.linspace(1, 9, 1030)
    got, _ = service.run("distance", {"x": x, "y": y}, {"metric": "mahalanobis"}, form="safetensors")
    inverse = np.linalg.inv(np.cov(np.vstack((x, y)).T))
    step = x[0] - y[3]
    assert abs(got["d"][0, 3] / np.sqrt(step @ inverse @ step) - 1) <= 1e-9
