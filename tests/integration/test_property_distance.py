"""Wherever the points lie, distances are right and the nearest are nearest: drawn by hypothesis over metrics, dtypes,
scales, weights, variances and matrices, each entry against decimals of fifty digits."""
import decimal

import blasd
import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")
from drawn import bounded  # noqa: E402  (there only where hypothesis is)
from hypothesis import strategies as draw  # noqa: E402

BOUNDED = bounded(100)
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24}
EXACT = decimal.Context(prec=50, Emax=10**9, Emin=-10**9)
ORDERS = [0.5, 1, 1.5, 2, 3, 4, 7, 20, 50, 300, 1e6, np.inf]
LENGTHS = ["euclidean", "sqeuclidean", "cityblock", "chebyshev", "minkowski", "seuclidean", "mahalanobis"]
RATIOS = ["canberra", "braycurtis", "hamming", "jaccard", "jaccard_legacy", "jensenshannon", "cosine", "correlation"]


@pytest.fixture(scope="module")
def client(service):
    return blasd.Client(service.url)


def decimals(array):
    return [[decimal.Decimal(float(v)) for v in row] for row in np.atleast_2d(array)]


@draw.composite
def points(take):
    """Metric, parameters and inputs: points near one scale, near one point, or of all scales together."""
    metric, dtype = take(draw.sampled_from(LENGTHS + RATIOS)), take(draw.sampled_from(["float64", "float32"]))
    m, n, k = take(draw.integers(1, 4)), take(draw.integers(1, 5)), take(draw.integers(1, 6))
    random = np.random.default_rng(take(draw.integers(0, 2**32)))
    least, most = (-1015, 1020) if dtype == "float64" else (-118, 124)
    middle, spread = take(draw.integers(least, most)), take(draw.sampled_from([0, 3, 60, 2000]))
    signed = metric != "jensenshannon"
    params, inputs = {"metric": metric}, {}

    def numbers(shape, middle=middle, spread=spread, signed=signed):
        power = np.clip(middle + random.integers(-spread, spread + 1, shape), least, most)
        sign = random.choice([-1, 1], shape) if signed else 1
        return np.ldexp(random.uniform(0.5, 1, shape) * sign, power)
    both = numbers((m + n, k))
    if take(draw.booleans()):  # close to one point
        both = both[:1] * (1 + np.ldexp(random.integers(-4, 5, both.shape), -20 if dtype == "float32" else -45))
    both[random.random(both.shape) < 0.15] = 0
    inputs["x"], inputs["y"] = both[:m].astype(dtype), both[m:].astype(dtype)
    inputs["y"][0] = inputs["x"][0]
    if metric == "minkowski":
        params["p"] = take(draw.sampled_from(ORDERS))
    if metric == "seuclidean":
        inputs["V"] = numbers(k, take(draw.integers(-1000, 1000)), take(draw.sampled_from([0, 10, 300])), False) \
            if dtype == "float64" else np.ldexp(random.uniform(0.5, 1, k), random.integers(-200, 200, k))
        inputs["V"] = np.maximum(inputs["V"], 2.0**-1000)
    elif metric == "mahalanobis":
        root = np.tril(random.uniform(-0.3, 0.3, (k, k)), -1) + np.diag(random.uniform(0.7, 1, k))
        scale = np.ldexp(1.0, int(np.clip(-middle + take(draw.integers(-30, 30)), -480, 480)))
        inputs["VI"] = (root @ root.T) * scale**2
    elif metric != "jensenshannon" and take(draw.booleans()):
        inputs["w"] = numbers(k, take(draw.integers(-100, 100)), 3, False).astype(dtype)
        if np.any(inputs["w"] == 0):
            del inputs["w"]
    return params, inputs, dtype


def exactly(params, inputs, a, b):
    """The distance of two points, and what its error may be a multiple of u of; None: not a number."""
    metric, k = params["metric"], len(a)
    w = decimals(inputs["w"])[0] if "w" in inputs else [decimal.Decimal(1)] * k
    e = [abs(x - y) for x, y in zip(a, b)]
    p = params.get("p", 2)
    if metric == "chebyshev" or p == np.inf:
        return max(e), 2
    if metric in ("euclidean", "sqeuclidean"):
        squares = sum(v * d * d for v, d in zip(w, e))
        return (squares, k + 5) if metric == "sqeuclidean" else (squares.sqrt(), k + 5)
    if metric == "cityblock" or (metric == "minkowski" and p == 1):
        return sum(v * d for v, d in zip(w, e)), k + 2
    if metric == "minkowski":
        order, largest = decimal.Decimal(p), max(e)
        if largest == 0:
            return largest, 0
        total = sum(v * (d / largest)**order for v, d in zip(w, e) if d)
        return largest * total**(1 / order), 2 * k + 12 + (k + 700) / p
    if metric == "seuclidean":
        return sum(d * d / v for v, d in zip(decimals(inputs["V"])[0], e)).sqrt(), k + 5
    if metric == "mahalanobis":
        matrix, signed = decimals(inputs["VI"]), [x - y for x, y in zip(a, b)]
        return sum(signed[i] * matrix[i][j] * signed[j] for i in range(k) for j in range(k)).sqrt(), 400 * (k + 4)
    if metric == "canberra":
        return sum((v * d / (abs(x) + abs(y)) for v, d, x, y in zip(w, e, a, b) if x or y), decimal.Decimal(0)), 2 * k + 4
    if metric == "braycurtis":
        below = sum(v * abs(x + y) for v, x, y in zip(w, a, b))
        return (sum(v * d for v, d in zip(w, e)) / below if below else None), 2 * k + 8
    if metric == "hamming":
        return sum(v for v, d in zip(w, e) if d) / sum(w), 2 * k + 8
    if metric in ("jaccard", "jaccard_legacy"):
        either = [v for v, x, y in zip(w, a, b) if x or y]
        differ = [v for v, x, y in zip(w, a, b) if (x != y if metric == "jaccard_legacy" else bool(x) != bool(y))]
        return (decimal.Decimal(sum(differ)) / sum(either) if either else decimal.Decimal(0)), 2 * k + 8
    if metric == "jensenshannon":
        totals = sum(a), sum(b)
        if not all(totals):
            return decimal.Decimal("Infinity"), 0
        total = decimal.Decimal(0)
        for x, y in zip(a, b):
            x, y = x / totals[0], y / totals[1]
            total += sum((v * (2 * v / (x + y)).ln() for v in (x, y) if v), decimal.Decimal(0))
        return max(total / 2, decimal.Decimal(0)).sqrt(), None  # absolute
    centre = [decimal.Decimal(0)] * 2
    if metric == "correlation":
        centre = [x[0] if len(set(x)) == 1 else sum(v * t for v, t in zip(w, x)) / sum(w) for x in (a, b)]
    a, b = [x - centre[0] for x in a], [y - centre[1] for y in b]
    lengths = [sum(v * t * t for v, t in zip(w, x)).sqrt() for x in (a, b)]
    if not all(lengths):
        return None, 0
    return sum(v * (x / lengths[0] - y / lengths[1])**2 for v, x, y in zip(w, a, b)) / 2, None


def allowed(exact, factor, u, k):
    if factor is None:  # rows made ready in float64, whatever the points are
        wide = UNIT["float64"]
        return 2 * u * float(exact) + (4 * k + 20) * wide * (float(exact) + float(exact)**0.5) + (8 * k + 32) * wide
    return factor * u * float(exact)


def is_lost(result, inputs):
    """Whether a warning says that digits are lost, as it may only where numbers are of very different sizes."""
    if not any("no correct digit" in warning for warning in result.warnings):
        return False
    sizes = np.frexp(np.concatenate([array[array != 0] for array in map(np.abs, inputs.values())]))[1]
    assert np.ptp(sizes) > (40 if inputs["x"].dtype == np.float32 else 400)
    return True


@BOUNDED
@hypothesis.given(points())
def test_distances_are_right_at_any_scale(client, problem):
    params, inputs, dtype = problem
    result = client.run("distance", params, **inputs)
    d = result["d"]
    hypothesis.note(f"{params} {inputs} {d}")
    hypothesis.assume(not is_lost(result, inputs))
    assert d.dtype == dtype
    info, u = np.finfo(dtype), UNIT[dtype]
    with decimal.localcontext(EXACT):
        for i, a in enumerate(decimals(inputs["x"])):
            for j, b in enumerate(decimals(inputs["y"])):
                exact, factor = exactly(params, inputs, a, b)
                if exact is None:
                    assert np.isnan(d[i, j])
                    continue
                if exact > decimal.Decimal(float(info.max)):
                    assert d[i, j] == np.inf or float(d[i, j]) >= float(info.max) * (1 - 1e-4)
                    continue
                bound = decimal.Decimal(allowed(exact, factor, u, len(a))) + len(a) * decimal.Decimal(float(info.smallest_subnormal))
                got = decimal.Decimal(float(d[i, j]))
                close = exact > decimal.Decimal(float(info.max)) * decimal.Decimal("0.999")
                assert abs(got - exact) <= bound or (close and got.is_infinite()), (i, j, got, exact)


@BOUNDED
@hypothesis.given(points(), draw.integers(1, 4), draw.booleans())
def test_the_nearest_are_those_of_the_matrix(client, problem, neighbours, alone):
    params, inputs, dtype = problem
    if alone:
        inputs = {name: value for name, value in inputs.items() if name != "y"} | {"x": np.vstack([inputs["x"], inputs["y"]])}
    result = client.run("distance", params, **inputs)
    full = result["d"]
    hypothesis.assume(not is_lost(result, inputs))
    m, n = full.shape
    near = client.run("distance", params | {"output": "topk", "k": min(neighbours, n - alone)}, **inputs)
    first = client.run("distance", params | {"output": "argmin"}, **inputs)
    hypothesis.note(f"{params} {inputs} {full} {near} {first}")
    radius = float(np.nanmedian(full)) if np.isfinite(full).any() else 0.0
    radius = 1e30 if not np.isfinite(radius) else radius
    within = client.run("distance", params | {"output": "within", "radius": radius}, **inputs)
    for i in range(m):
        others = [j for j in range(n) if not (alone and j == i)]
        assert len(set(near["index"][i])) == near["index"].shape[1] and first["index"][i] == near["index"][i][0]
        # float64 decides, float32 is what is shown: equal ones there may come in any order
        order = sorted(others, key=lambda j: (np.isnan(full[i, j]), full[i, j]))
        for place, j in enumerate(near["index"][i]):
            assert j in others and np.array_equal(near["d"][i][place], full[i, j], equal_nan=True)
            assert np.array_equal(full[i, j], full[i, order[place]], equal_nan=True)
        part = slice(*within["row_splits"][i:i + 2])
        inside = [j for j in others if full[i, j] <= radius]
        listed = list(within["index"][part])
        edge = [j for j in set(inside) ^ set(listed) if full[i, j] != np.asarray(radius, full.dtype)]
        assert not edge and listed == sorted(listed) and np.array_equal(within["d"][part], full[i, listed])


def test_points_of_any_scale_one_after_the_other(client):
    """The cases in which wrong answers were first seen."""
    random = np.random.default_rng(5)
    base = random.standard_normal((6, 3))
    for dtype, scales in (("float32", (1e-20, 1e20, 1e-30, 1e30)), ("float64", (1e-154, 1e154, 1e155, 1e-200, 1e300))):
        for scale in scales:
            x = (base * scale).astype(dtype)
            for metric in ("seuclidean", "mahalanobis"):
                expected = client.distance((x.astype("f8") / scale), metric=metric)
                result = client.run("distance", {"metric": metric}, x=x)
                got = result["d"]
                assert not result.warnings
                assert np.allclose(got, expected, rtol=1e-6 if dtype == "float32" else 1e-9, atol=0), (dtype, scale, metric)
                near = client.run("distance", {"metric": metric, "output": "argmin"}, x=x)["index"]
                assert np.array_equal(near, np.argmin(expected + np.diag([np.inf] * 6), 1))
    for dtype, p, scale in (("float32", 20, 1e-3), ("float32", 3, 1e13), ("float32", 4, 1e-12), ("float64", 50, 1e-8)):
        x = (base * scale).astype(dtype)
        expected = np.sum((np.abs(x[:, None] - x[None]) / scale).astype("f8")**p, -1)**(1 / p) * scale
        assert np.allclose(client.distance(x, metric="minkowski", p=p), expected, rtol=1e-5, atol=0), (dtype, p, scale)


def test_weights_that_round_make_no_distance_negative(client):
    random = np.random.default_rng(6)
    for k in (3, 8, 33, 100):
        for _ in range(20):
            x, w = random.uniform(1, 2, (4, k)), random.uniform(0.1, 2, k) * 10.0 ** random.uniform(-5, 5)
            for metric in ("russellrao", "yule", "rogerstanimoto", "sokalsneath", "jaccard", "dice"):
                d = client.run("distance", {"metric": metric}, x=x, w=w)["d"]
                assert (d >= 0).all() and (d <= (1 if metric != "yule" else 2)).all(), (metric, d)
