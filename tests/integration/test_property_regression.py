"""Whatever the data are, regression is right or says that it may not be: drawn by hypothesis over scales, offsets,
graded rows and columns, duplicates, weights and shapes, and held to exact rational arithmetic."""
import fractions

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")
from drawn import bounded  # noqa: E402  (there only where hypothesis is)
from hypothesis import strategies as draw  # noqa: E402

BOUNDED = bounded(60)
EXACT = fractions.Fraction
SHAPES = ["plain", "offset", "graded columns", "graded rows", "nearly equal", "single", "weights", "integers"]


@draw.composite
def problems(draws):
    """x, y, weights or None, whether there is an intercept, copies of the rows, the kind."""
    n, p = draws(draw.integers(1, 24)), draws(draw.integers(1, 5))
    random = np.random.default_rng(draws(draw.integers(0, 2**32)))
    kind, far = draws(draw.sampled_from(SHAPES)), draws(draw.integers(-60, 60))
    x, w = random.standard_normal((n, p)), None
    y = x.sum(1) + random.standard_normal(n)
    if kind == "offset":
        x = x * 10.0 ** random.integers(-3, 3, p) + 10.0 ** random.integers(0, 13, p)
        y = y + 10.0 ** random.integers(0, 13)
    elif kind == "graded columns":
        x = x * 10.0 ** np.linspace(-far, far, p)
    elif kind == "graded rows":
        rows = 10.0 ** random.integers(-12, 12, n)
        x, y = x * rows[:, None], y * rows
    elif kind == "nearly equal":
        x[:, -1] = x[:, 0] * (1 + 1e-6 * random.standard_normal(n))
    elif kind == "single":
        x, y = x.astype("float32"), y.astype("float32")
    elif kind == "weights":
        w = 10.0 ** random.uniform(-9, 9, n) * random.integers(0, 2, n)
        w[0] = 1
    elif kind == "integers":
        x, y = random.integers(-3, 4, (n, p)).astype(float), random.integers(-9, 10, n).astype(float)
    if draws(draw.booleans()) and p > 1:
        x[:, draws(draw.integers(1, p - 1))] = x[:, 0]  # twice the same feature
    if draws(draw.booleans()):
        x[:, 0] = x[0, 0]  # one that does not vary
    if kind != "single":
        y = y * 2.0**far
    copies = draws(draw.sampled_from([1, 1, 1, 1_000_000 // (n * (p + 1) * (p + 2)) + 2]))
    return x, y, w, draws(draw.booleans()), copies, kind


def exact_least_squares(x, y, w, intercept):
    """(coefficients, or None where they are not unique; sum of squares; rank), all exact."""
    rows = [[EXACT(1)] * intercept + [EXACT(float(v)) for v in row] for row in x]
    target = [EXACT(float(v)) for v in y]
    weights = [EXACT(1)] * len(rows) if w is None else [EXACT(float(v)) for v in w]
    q = len(rows[0])
    system = [[sum(k * r[i] * r[j] for k, r in zip(weights, rows)) for j in range(q)] +
              [sum(k * r[i] * v for k, r, v in zip(weights, rows, target))] for i in range(q)]
    pivots = []
    for i in range(q):
        if system[i][i] == 0:  # semidefinite: then its row and column are 0 too
            continue
        pivots.append(i)
        system[i] = [v / system[i][i] for v in system[i]]
        for j in range(q):
            if j != i and system[j][i] != 0:
                factor = system[j][i]
                system[j] = [a - factor * b for a, b in zip(system[j], system[i])]
    b = [system[i][q] if i in pivots else EXACT(0) for i in range(q)]
    left = [v - sum(c * a for c, a in zip(b, row)) for v, row in zip(target, rows)]
    return b, sum(k * v * v for k, v in zip(weights, left)), len(pivots)


def squares_left(x, y, w, intercept, fit):
    """The sum of squares of the coefficients that were given, exact, the intercept being the best for them."""
    weights = [EXACT(1)] * len(y) if w is None else [EXACT(float(v)) for v in w]
    b = [EXACT(float(v)) for v in fit["coef"]]
    left = [EXACT(float(v)) - sum(c * EXACT(float(a)) for c, a in zip(b, row)) for v, row in zip(y, x)]
    mean = sum(k * v for k, v in zip(weights, left)) / sum(weights) if intercept else 0
    return sum(k * (v - mean) ** 2 for k, v in zip(weights, left))


@hypothesis.given(problems())
@BOUNDED
def test_least_squares_are_least(service, problem):
    x, y, w, intercept, copies, kind = problem
    inputs = {"x": np.tile(x, (copies, 1)), "y": np.tile(y, copies)}
    if w is not None:
        inputs["sample_weight"] = np.tile(w, copies)
    fit, job = service.run("regression", inputs, {"fit_intercept": intercept, "certify": True}, form="safetensors")
    b, least, rank = exact_least_squares(x, y, w, intercept)
    warnings = " ".join(job["execution"]["warnings"])
    q = x.shape[1] + intercept
    hypothesis.note(f"{kind}: {fit}, {warnings}")
    assert fit["rank"] <= min(rank, len(y) * copies)  # may be less: what rounding cannot tell from dependent
    if fit["rank"] < q:
        assert "least norm" in warnings
    if fit["rank"] == q and kind != "single":
        got = [fit["intercept"]] * intercept + list(fit["coef"])
        size = [EXACT(1)] * intercept + [EXACT(float(v)) for v in np.abs(x).max(0)]
        most = max(abs(c) * k for c, k in zip(b, size))  # the largest part that a feature has in y
        for value, expected, k in zip(got, b, size):
            spare = abs(expected) * EXACT(1, 10**12) + most / k * EXACT(1, 10**17)
            assert abs(EXACT(float(value)) - expected) <= spare or "condition" in warnings
        whole = sum(EXACT(float(v)) ** 2 for v in y) * EXACT(float(1 if w is None else w.max()))
        spare = least * EXACT(1, 10**9) + whole * EXACT(1, 10**28)
        assert abs(EXACT(float(fit["ssr"])) / copies - least) <= spare or "condition" in warnings
    if fit["rank"] == rank and kind != "single":  # of no more residual than the best has and rounding explains
        part = max(np.abs(y)) + sum(np.abs(fit["coef"]) * np.abs(x).max(0))
        rounding = (EXACT(float(part)) / 2**44) ** 2 * len(y) * EXACT(float(1 if w is None else w.max()))
        assert squares_left(x, y, w, intercept, fit) <= least * (1 + EXACT(1, 10**6)) + rounding
    proven = np.isfinite(fit["error_bound"])
    assert proven.all() or "not_certifiable" in warnings
    assert rank == q or not proven.any()
    for value, expected, bound in zip(fit["coef"][proven], np.array(b[int(intercept):])[proven], fit["error_bound"][proven]):
        assert abs(EXACT(float(value)) - expected) <= EXACT(float(bound))
    if len(y) * copies <= fit["rank"]:
        assert fit["df_resid"] <= 0 and "degrees of freedom" in warnings


@hypothesis.given(problems(), draw.sampled_from(["ridge", "lasso", "elastic_net"]), draw.floats(1e-6, 1e6))
@BOUNDED
def test_penalised_fits_are_optimal(service, problem, method, alpha):
    """The gradient at the coefficients is what the penalty wants, in the arithmetic of rationals."""
    x, y, w, intercept, copies, kind = problem
    hypothesis.assume(kind in ("plain", "offset", "integers", "nearly equal"))
    y = y / 2.0 ** np.frexp(np.abs(y).max())[1]  # penalties are tied to y's unit
    inputs = {"x": np.tile(x, (copies, 1)), "y": np.tile(y, copies)}
    params = {"method": method, "alpha": alpha, "fit_intercept": intercept}
    fit, job = service.run("regression", inputs, params, form="safetensors")
    hypothesis.note(f"{kind}: {fit}, {job['execution']['warnings']}")
    rows, target = np.vectorize(EXACT, otypes=[object])(x.astype(float)), [EXACT(float(v)) for v in y]
    b = [EXACT(float(v)) for v in fit["coef"]]
    if intercept:
        rows = rows - rows.sum(0) / EXACT(len(y))
        target = [v - sum(target) / EXACT(len(y)) for v in target]
    left = [v - sum(c * a for c, a in zip(b, row)) for v, row in zip(target, rows)]
    slopes = [sum(a * r for a, r in zip(rows[:, j], left)) for j in range(len(b))]
    squares = [sum(a * a for a in rows[:, j]) for j in range(len(b))]
    total = sum(v * v for v in target)
    for j, (slope, c) in enumerate(zip(slopes, b)):
        slope *= copies
        if method == "ridge":
            wanted, more = EXACT(alpha) * c, 0
        else:
            share = EXACT(1) if method == "lasso" else EXACT(1, 2)
            n = len(y) * copies
            wanted = EXACT(alpha) * n * ((1 - share) * c + share * (1 if c > 0 else -1 if c < 0 else 0))
            more = EXACT(alpha) * n * share if c == 0 else 0
        # a coefficient's rounding moves the slope by its column's squares; tol is 1e-10 of the squares of y
        noise = float(squares[j]) ** 0.5 * float(total) ** 0.5 * copies
        assert float(max(abs(slope - wanted) - more, 0)) <= 1e-4 * noise + 1e-300, (j, method)


def exact_ridge(x, y, w, intercept, alpha):
    """Its coefficients, the data less their means."""
    weights = [EXACT(1)] * len(y) if w is None else [EXACT(float(v)) for v in w]
    columns = [[EXACT(float(v)) for v in column] for column in [*x.T, y]]
    if intercept:
        means = [sum(k * v for k, v in zip(weights, column)) / sum(weights) for column in columns]
        columns = [[v - mean for v in column] for column, mean in zip(columns, means)]
    q = len(columns) - 1
    system = [[sum(k * a * b for k, a, b in zip(weights, columns[i], columns[j])) + (alpha if i == j else 0)
               for j in range(q + 1)] for i in range(q)]
    for i in range(q):  # positive definite
        system[i] = [v / system[i][i] for v in system[i]]
        for j in range(q):
            if j != i:
                system[j] = [a - system[j][i] * b for a, b in zip(system[j], system[i])]
    return [row[q] for row in system]


@hypothesis.given(problems(), draw.integers(-6, 6), draw.integers(0, 15), draw.booleans(), draw.booleans())
@BOUNDED
def test_ridge_is_right_for_features_of_all_sizes(service, problem, alpha, sizes, twice, net):
    x, y, w, intercept, copies, kind = problem
    p = x.shape[1]
    x = x * (10.0 ** np.linspace(0, sizes, p)[np.argsort(np.abs(x[0]))]).astype(x.dtype)
    if twice:
        x[:, -1] = x[:, 0]
    inputs = {"x": np.tile(x, (copies, 1)), "y": np.tile(np.stack([y, y[::-1]], 1), (copies, 1))}
    if w is not None:
        inputs["sample_weight"] = np.tile(w, copies)
    params = {"method": "ridge", "alpha": 10.0**alpha, "fit_intercept": intercept}
    if net and w is None:  # the same penalty by another name
        params |= {"method": "elastic_net", "l1_ratio": 0, "alpha": 10.0**alpha / (copies * len(y))}
    fit, job = service.run("regression", inputs, params, form="safetensors")
    hypothesis.note(f"{kind}: {fit}, {job['execution']}")
    warnings = " ".join(job["execution"]["warnings"])
    part, least = (1e-6, 1e-37) if kind == "single" else (1e-13, 1e-307)
    for target, got in zip((y, y[::-1]), np.atleast_2d(fit["coef"])):
        wanted = exact_ridge(x, target, w, intercept, EXACT(10.0**alpha) / copies)
        size = [EXACT(float(v)) or EXACT(1) for v in np.abs(x).max(0)]
        most = max(abs(c) * k for c, k in zip(wanted, size))  # the largest part that a feature has in y
        for value, expected, k in zip(got, wanted, size):
            # large problems have 31 digits to work in, which do not see what is small beside others to the last
            spare = abs(expected) * EXACT(part) + EXACT(least) + (copies > 1) * most / k * EXACT(1, 10**22)
            assert not np.isfinite(value) or abs(EXACT(float(value)) - expected) <= spare or "condition" in warnings
            assert np.isfinite(value) or "beyond the range" in warnings


@hypothesis.given(problems(), draw.sampled_from(["ridge", "lasso", "elastic_net"]), draw.floats(1e-4, 1e2), draw.integers(-900, 900),
                  draw.integers(-450, 450))
@BOUNDED
def test_penalised_fits_know_no_units(service, problem, method, alpha, far, size):
    """y by one power of two, x by another, and the penalty with them: the same coefficients, times powers of two."""
    x, y, w, intercept, _, kind = problem
    hypothesis.assume(kind in ("plain", "offset", "integers", "weights"))
    y = y / 2.0 ** np.frexp(np.abs(y).max())[1]
    far = {"ridge": far, "lasso": max(-450, min(450, far)), "elastic_net": size}[method]
    more = {} if w is None else {"sample_weight": w}
    fits = []
    for up, out in ((0, 0), (far, size)):
        params = {"method": method, "fit_intercept": intercept,
                  "alpha": alpha * 2.0 ** (out + (out if method == "ridge" else up))}
        fits.append(service.run("regression", {"x": x * 2.0**out, "y": y * 2.0**up, **more}, params, form="safetensors")[0])
    hypothesis.note(f"{kind}: {fits}")
    with np.errstate(over="ignore"):
        scaled = np.ldexp(fits[0]["coef"], far - size)
    hypothesis.assume(np.all(np.isfinite(scaled)) and np.all((scaled == 0) | (np.abs(scaled) > 1e-290)))
    np.testing.assert_array_equal(fits[1]["coef"], scaled)
    np.testing.assert_array_equal(fits[1]["r2"], fits[0]["r2"])
