"""Regression on hard cases, through the service: NIST's certified sets, exact rational arithmetic, closed forms of
the distributions, optimality conditions of the penalised methods, and gradient descent step by step."""
import ast
import fractions
import math

import blasd
import numpy as np
import pytest
from scipy import stats
from service import ROOT

LONG = np.longdouble


@pytest.fixture
def client(service):
    return blasd.Client(service.url)


def error(got, expected):
    """The worst relative error; absolute where 0 is expected."""
    got, expected = np.asarray(got, LONG), np.asarray(expected, LONG)
    assert got.shape == expected.shape, (got.shape, expected.shape)
    return float(np.max(np.abs(got - expected) / np.where(expected == 0, 1, np.abs(expected)), initial=0))


def design(x, intercept):
    return np.concatenate([np.ones((len(x), 1)), x], 1) if intercept else x


def coefficients(fit, intercept):
    return np.r_[fit["intercept"], fit["coef"]] if intercept else fit["coef"]


# --- certified sets -----------------------------------------------------------------------------------------------


def certified():
    """The sets of tests/unit/kernels/nist_data.h."""
    text = (ROOT / "tests" / "unit" / "kernels" / "nist_data.h").read_text()
    table = text[text.index("nist_sets[] = ") + len("nist_sets[] = "):]
    table = table[:table.index("};") + 1].replace("{", "[").replace("}", "]")
    for name, _, degree, intercept, coef, errors, deviation, r2, points in ast.literal_eval(table):
        points = np.array(points, float)
        x = np.cumprod(np.repeat(points[:, 1:], degree, 1), 1)  # products are exact where ** may not be
        yield name, bool(intercept), coef, errors, deviation, r2, x, points[:, 0]


def exact_fit(x, y, intercept):
    """Coefficients, standard errors, ssr, r2 and F of the data as they are, in rational arithmetic."""
    rows = [[fractions.Fraction(v) for v in row] for row in design(x, intercept).tolist()]
    y = [fractions.Fraction(v) for v in y.tolist()]
    n, q = len(rows), len(rows[0])
    system = [[sum(r[i] * r[j] for r in rows) for j in range(q)] + [fractions.Fraction(i == j) for j in range(q)] +
              [sum(r[i] * v for r, v in zip(rows, y))] for i in range(q)]
    for i in range(q):  # the Gram matrix is positive definite: no pivoting
        system[i] = [v / system[i][i] for v in system[i]]
        for j in range(q):
            if j != i:
                factor = system[j][i]
                system[j] = [a - factor * b for a, b in zip(system[j], system[i])]
    coef = [row[-1] for row in system]
    ssr = sum((v - sum(b * a for b, a in zip(coef, row))) ** 2 for row, v in zip(rows, y))
    mean = sum(y) / n if intercept else 0
    tss = sum((v - mean) ** 2 for v in y)
    errors = [math.sqrt(float(ssr / (n - q) * system[i][q + i])) for i in range(q)]
    f = (tss - ssr) / (q - intercept) / (ssr / (n - q)) if ssr else math.inf
    return [float(b) for b in coef], errors, float(ssr), float(1 - ssr / tss), float(f)


@pytest.mark.parametrize("form", ["json", "safetensors", "multipart"])
def test_certified_sets(service, form):
    for name, intercept, coef, errors, deviation, r2, x, y in certified():
        fit, _ = service.run("regression", {"x": x, "y": y}, {"fit_intercept": intercept}, form=form)
        tolerance = 1e-7 if name == "Filip" else 1e-9
        q = x.shape[1] + intercept
        coef, errors = coef[:q], np.array(errors[:q])
        assert error(coefficients(fit, intercept), coef) <= tolerance, name
        assert error(fit["stderr"], errors) <= tolerance, name
        assert error(fit["r2"], r2) <= tolerance, name
        assert error(fit["ssr"], deviation**2 * (len(y) - q)) <= tolerance, name
        assert fit["df_resid"] == len(y) - q and fit["rank"] == q, name
        exact = exact_fit(x, y, intercept)
        assert error(coefficients(fit, intercept), exact[0]) <= 1e-13, name
        if exact[2] > 1e-20:
            assert error(fit["stderr"], exact[1]) <= 1e-12 and error(fit["ssr"], exact[2]) <= 1e-12, name
            assert error(fit["fvalue"], exact[4]) <= 1e-9, name


def test_ill_conditioned_designs_of_many_kinds(client):
    """Polynomials far from the origin, nearly equal columns, columns of all sizes: the exact answer of each."""
    random = np.random.default_rng(1)
    for trial in range(12):
        kind, n = trial % 4, int(random.integers(12, 30))
        x = random.integers(-50, 50, (n, 3)).astype(float)
        if kind == 0:
            x = (x[:, :1] / 8 + 1000.0) ** np.arange(1, 4)
        elif kind == 1:
            x[:, 1] = x[:, 0] + x[:, 1] * 2.0**-30
        elif kind == 2:
            x = x * [1e-100, 1.0, 1e100]
        else:
            x = x + 1e8
        y = random.integers(-1000, 1000, n).astype(float)
        fit = client.regression(x, y)
        coef, errors, ssr, r2, f = exact_fit(x, y, True)
        assert error(coefficients(fit, True), coef) <= 1e-9 and error(fit["stderr"], errors) <= 1e-9, (kind, fit)
        assert error(fit["ssr"], ssr) <= 1e-9 and abs(fit["r2"] - r2) <= 1e-9, kind
        assert error(fit["fvalue"], f) <= 1e-7, kind


def test_tall_problems_keep_their_digits(client):
    """Wampler's polynomial, its 21 points many times over: another way through the kernel."""
    t = np.tile(np.arange(21.0), 4000)
    x = t[:, None] ** np.arange(1, 6)
    fit = client.regression(x, 1 + x.sum(1))
    assert error(coefficients(fit, True), np.ones(6)) <= 1e-9


def test_single_precision_rounds_once(client):
    random = np.random.default_rng(2)
    x = random.standard_normal((500, 4)).astype("float32")
    y = (x @ [1, -2, 3, 0.5] + 1 + random.standard_normal(500)).astype("float32")
    single, double = client.regression(x, y), client.regression(x.astype(float), y.astype(float))
    assert single["coef"].dtype == np.float32 and error(single["coef"], double["coef"]) <= 2.0**-24
    assert error(single["stderr"], double["stderr"]) <= 1e-14


# --- statistics ---------------------------------------------------------------------------------------------------


def statistics(x, y, w, intercept, kind):
    """By their definitions (statsmodels'), in long double."""
    a, n = design(x, intercept).astype(LONG), len(y)
    root = np.sqrt(w.astype(LONG))
    wa, wy = a * root[:, None], y * root
    q = wa.shape[1]
    gram = wa.T @ wa
    inverse = np.linalg.inv(gram.astype(float)).astype(LONG)
    for _ in range(3):
        inverse = inverse @ (2 * np.eye(q) - gram @ inverse)
    coef = inverse @ (wa.T @ wy)
    residual = wy - wa @ coef
    leverage = np.einsum("ij,jk,ik->i", wa, inverse, wa)
    ssr, df = residual @ residual, n - q
    middle = {"nonrobust": None, "HC0": residual**2, "HC1": residual**2 * n / df, "HC2": residual**2 / (1 - leverage),
              "HC3": (residual / (1 - leverage)) ** 2}[kind]
    cov = inverse * ssr / df if middle is None else inverse @ (wa.T * middle) @ wa @ inverse
    mean = (w @ y) / w.sum() if intercept else 0
    tss = w @ (y - mean) ** 2
    with np.errstate(divide="ignore"):
        loglik = -LONG(n) / 2 * (np.log(ssr) + 1 + np.log(2 * LONG(math.pi) / n)) + np.log(w.astype(LONG)).sum() / 2
    return {"coef": coef, "stderr": np.sqrt(np.diag(cov)), "ssr": ssr, "tss": tss, "r2": 1 - ssr / tss, "cov": cov,
            "r2_adj": 1 - (n - intercept) / LONG(df) * (ssr / tss), "loglik": loglik, "aic": 2 * q - 2 * loglik,
            "bic": q * np.log(LONG(n)) - 2 * loglik, "residuals": y - a @ coef}


@pytest.mark.parametrize("kind", ["nonrobust", "HC0", "HC1", "HC2", "HC3"])
@pytest.mark.parametrize("intercept", [True, False])
def test_statistics(client, kind, intercept):
    random = np.random.default_rng(3)
    for n, p in ((12, 2), (40, 5), (3000, 15)):
        x = random.standard_normal((n, p)) + 1
        y = x @ random.standard_normal(p) + random.standard_normal(n)
        for weights in (np.ones(n), random.uniform(0.1, 3, n), random.uniform(0.1, 3, n) * (np.arange(n) % 6 > 0)):
            params = {"cov_type": kind, "fit_intercept": intercept, "residuals": True, "cov_params": True}
            fit = client.run("regression", params, x=x, y=y, sample_weight=weights)
            expected = statistics(x, y, weights, intercept, kind)
            assert error(coefficients(fit, intercept), expected["coef"]) <= 1e-10
            assert error(fit["cov_params"], expected["cov"]) <= 1e-8
            for name in ("stderr", "ssr", "tss", "r2", "r2_adj"):
                assert error(fit[name], expected[name]) <= 1e-9, (name, fit[name], expected[name])
            for name in ("loglik", "aic", "bic"):
                same = fit[name] == expected[name]  # infinite where a weight is 0
                assert same or error(fit[name], expected[name]) <= 1e-9, (name, fit[name], expected[name])
            assert np.allclose(fit["residuals"], expected["residuals"].astype(float), rtol=0, atol=1e-11)
            assert np.allclose(fit["fitted"] + fit["residuals"], y, rtol=0, atol=1e-12)


def test_tails_of_t_and_f(client):
    """Closed forms: t with 1 and 2 degrees of freedom, F with 2 features; relative, however far out."""
    random = np.random.default_rng(4)
    for scale in (1e-12, 1e-8, 1e-3, 0.3, 1, 30, 1e4):
        for n, p in ((3, 1), (4, 1), (4, 2), (5, 2), (40, 2), (1000, 2)):
            x = random.standard_normal((n, p))
            fit = client.regression(x, x.sum(1) + scale * random.standard_normal(n))
            t, df = np.abs(fit["tvalues"]).astype(LONG), int(fit["df_resid"])
            if df == 1:
                assert error(fit["pvalues"], 2 / LONG(np.pi) * np.arctan(1 / t.astype(float))) <= 1e-10
            if df == 2:
                root = np.sqrt(2 + t * t)
                assert error(fit["pvalues"], 2 / (root * (root + t))) <= 1e-10
            if p == 2:
                tail = np.exp(-LONG(df) / 2 * np.log1p(2 * LONG(float(fit["fvalue"])) / df))
                assert tail < 1e-305 or error(fit["f_pvalue"], tail) <= 1e-10, (n, scale)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999, 0.999999])
def test_intervals_at_a_level(client, level):
    random = np.random.default_rng(5)
    x, y = random.standard_normal((2, 4))
    fit = client.regression(x[:, None], y, level=level)  # 2 degrees of freedom: t = z sqrt(2 / (1 - z z))
    half = level * math.sqrt(2 / ((1 - level) * (1 + level)))
    coef = coefficients(fit, True)
    assert error(fit["conf_int"][:, 1] - coef, half * fit["stderr"]) <= 1e-9
    assert error(coef - fit["conf_int"][:, 0], half * fit["stderr"]) <= 1e-9


def test_distributions_are_scipys(client):
    random = np.random.default_rng(6)
    for n, p in ((8, 3), (30, 5), (2000, 7)):
        x = random.standard_normal((n, p))
        fit = client.regression(x, x @ random.uniform(0, 1, p) + random.standard_normal(n), level=0.9)
        df = n - p - 1
        assert error(fit["pvalues"], 2 * stats.t.sf(np.abs(fit["tvalues"]), df)) <= 1e-9
        assert error(fit["f_pvalue"], stats.f.sf(fit["fvalue"], p, df)) <= 1e-9
        half = stats.t.ppf(0.95, df) * fit["stderr"]  # of which older releases know eight digits
        assert error(fit["conf_int"][:, 1] - fit["conf_int"][:, 0], 2 * half) <= 1e-7


def test_scale_of_the_features_changes_no_statistic(client):
    random = np.random.default_rng(7)
    x, y = random.standard_normal((20, 3)), random.standard_normal(20)
    one = client.regression(x, y)
    for scale in (1e300, 1e150, 1e-160, 1e-300):
        fit = client.regression(x * scale, y)
        for name in ("tvalues", "pvalues", "r2", "fvalue", "f_pvalue"):
            assert error(fit[name], one[name]) <= 1e-10, (name, scale)


# --- without a unique answer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [True, False])
def test_the_solution_of_least_norm(client, intercept):
    random = np.random.default_rng(8)
    tall = random.standard_normal((40, 3))
    for x in (np.c_[tall, tall[:, 0] - tall[:, 2]], random.standard_normal((5, 9)), np.zeros((20, 2)),
              random.standard_normal((100, 300)), np.c_[random.standard_normal((20000, 6)), np.zeros(20000)]):
        y = random.standard_normal(len(x))
        fit = client.regression(x, y, fit_intercept=intercept)
        centred = x - x.mean(0) if intercept else x
        expected = np.linalg.lstsq(centred, y - y.mean() if intercept else y, rcond=1e-12)[0]
        assert np.allclose(fit["coef"], expected, rtol=1e-8, atol=1e-11) and fit.warnings
        rank = np.linalg.matrix_rank(centred) + intercept
        assert (fit["rank"], fit["df_resid"], fit["df_model"]) == (rank, len(x) - rank, rank - intercept)


def test_corners(client):
    random = np.random.default_rng(9)
    x, y = random.standard_normal((20, 3)), random.standard_normal(20)
    saturated = client.regression(x[:4], y[:4])
    assert saturated["df_resid"] == 0 and np.all(np.isnan(saturated["stderr"])) and saturated["ssr"] <= 1e-25
    constant = client.regression(x, np.full(20, 2.5))
    assert np.all(constant["coef"] == 0) and constant["intercept"] == 2.5 and constant["ssr"] == 0
    mean = client.regression(np.zeros((5, 0)), np.arange(5.0))
    assert mean["coef"].shape == (0,) and mean["intercept"] == 2 and error(mean["stderr"], [math.sqrt(0.5)]) <= 1e-15
    one = client.regression([[1.0, 2.0]], [3.0], fit_intercept=False)
    assert error(one["coef"], [0.6, 1.2]) <= 1e-15 and one.warnings


@pytest.mark.parametrize("method", ["ols", "ridge", "lasso", "elastic_net", "gd"])
def test_a_batch_is_its_members(client, method):
    random = np.random.default_rng(10)
    x, y = random.standard_normal((3, 2, 30, 4)), random.standard_normal((1, 2, 30, 3))
    w = random.uniform(0.1, 1, (3, 1, 30))
    whole = client.run("regression", {"method": method}, x=x, y=y, sample_weight=w)
    for i, j in np.ndindex(3, 2):
        alone = client.run("regression", {"method": method}, x=x[i, j], y=y[0, j], sample_weight=w[i, 0])
        for name in alone:
            assert np.array_equal(whole[name][i, j], alone[name], equal_nan=True), name
        target = client.run("regression", {"method": method}, x=x[i, j], y=y[0, j, :, 1], sample_weight=w[i, 0])
        assert np.allclose(target["coef"], alone["coef"][1], rtol=1e-12, atol=1e-14)


# --- penalties and descent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(50, 5), (20, 40), (1000, 30)])
@pytest.mark.parametrize("intercept", [True, False])
def test_penalised_solutions_are_optimal(client, shape, intercept):
    random = np.random.default_rng(shape[0])
    n, p = shape
    x = random.standard_normal(shape) + 1
    y = x[:, :3] @ [1.0, -2, 0.5] + random.standard_normal(n) + 3
    for w in (np.ones(n), random.uniform(0.1, 2, n)):
        for method, alpha, l1 in (("ridge", 1e-6, 0), ("ridge", 10.0, 0), ("lasso", 0.05, 1), ("lasso", 1e3, 1),
                                  ("elastic_net", 0.1, 0.3)):
            params = {"method": method, "alpha": alpha, "fit_intercept": intercept}
            if method == "elastic_net":
                params["l1_ratio"] = l1
            fit = client.run("regression", params, x=x, y=y, sample_weight=w)
            b = fit["coef"].astype(LONG)
            residual = (y - x @ b - float(fit["intercept"])) * w
            total = 1 if method == "ridge" else w.sum()
            slope = x.T @ residual / total - alpha * (1 if method == "ridge" else 1 - l1) * b
            limit = alpha * l1  # |slope| <= limit where b is 0, slope = limit sign(b) elsewhere
            close = 1e-7 * np.abs(x.T @ (w * y)).max() / total
            assert np.all(np.abs(slope[b == 0]) <= limit + close), (params, slope)
            assert np.all(np.abs(slope - limit * np.sign(b))[b != 0] <= close), (params, slope)
            assert not intercept or abs(residual.sum()) <= 1e-9 * w.sum(), params
            assert alpha < 1e3 or np.all(b == 0)


@pytest.mark.parametrize("rate", [1e-4, 0.05, 0.4, 3.0])
def test_descent_takes_the_same_steps(client, rate):
    random = np.random.default_rng(11)
    for n, p, intercept in ((50, 3, True), (200, 8, False), (10, 40, True)):
        x, y = random.standard_normal((n, p)) + 0.5, random.standard_normal((n, 2)) + 1
        a, b = design(x, intercept).astype(LONG), np.zeros((p + intercept, 2), LONG)
        for iterations in range(41):
            if iterations in (0, 1, 2, 7, 40):
                fit = client.regression(x, y, method="gd", learning_rate=rate, iterations=iterations,
                                        fit_intercept=intercept)
                got = np.c_[fit["intercept"], fit["coef"]] if intercept else fit["coef"]
                assert np.max(np.abs(got - b.T)) <= 1e-11 * max(float(np.abs(b).max()), 1e-300), (n, p, iterations)
            b = b - rate * 2 / n * (a.T @ (a @ b - y))


def test_descent_that_diverges_says_so(client):
    x = np.random.default_rng(12).standard_normal((30, 3))
    fit = client.regression(x, x.sum(1), method="gd", learning_rate=50.0, iterations=2000)
    assert not np.all(np.isfinite(fit["coef"])) and any("diverged" in text for text in fit.warnings)


# --- what is refused ----------------------------------------------------------------------------------------------

EYE = np.eye(3)
REFUSED = [  # operation, inputs, parameters, code, field
    ("matmul", {"a": EYE, "b": EYE[:2]}, {}, "shape_mismatch", "inputs.b"),
    ("matmul", {"a": EYE, "b": EYE, "c": np.ones((2, 2))}, {}, "shape_mismatch", "inputs.c"),
    ("matmul", {"a": EYE, "b": EYE}, {"beta": 2}, "missing_input", "inputs.c"),
    ("matmul", {"a": EYE, "b": EYE}, {"alpha": "NaN"}, "invalid_parameter", "params.alpha"),
    ("matmul", {"a": EYE, "b": EYE}, {"precision": "fp8"}, "invalid_parameter", "params.precision"),
    ("solve", {"a": EYE[:2], "b": EYE[0]}, {}, "invalid_shape", "inputs.a"),
    ("solve", {"a": EYE, "b": EYE[:2]}, {}, "shape_mismatch", "inputs.b"),
    ("solve", {"a": EYE * np.nan, "b": EYE}, {}, "not_finite", "inputs.a"),
    ("solve", {"a": EYE, "b": EYE}, {"assume_a": "banded"}, "invalid_parameter", "params.assume_a"),
    ("distance", {"x": EYE, "y": EYE[:, :2]}, {}, "shape_mismatch", "inputs.y"),
    ("distance", {"x": EYE}, {"metric": "manhattan"}, "invalid_parameter", "params.metric"),
    ("distance", {"x": EYE}, {"metric": "minkowski", "p": 0}, "invalid_parameter", "params.p"),
    ("distance", {"x": EYE}, {"p": 3}, "invalid_parameter", "params.p"),
    ("distance", {"x": EYE}, {"output": "topk", "k": 3}, "invalid_parameter", "params.k"),
    ("distance", {"x": EYE}, {"output": "within"}, "invalid_parameter", "params.radius"),
    ("distance", {"x": EYE, "y": EYE}, {"output": "condensed"}, "invalid_parameter", "params.output"),
    ("distance", {"x": EYE, "V": EYE[0]}, {}, "unknown_input", "inputs.V"),
    ("distance", {"x": EYE, "w": np.ones(2)}, {}, "shape_mismatch", "inputs.w"),
    ("distance", {"x": EYE}, {"metric": "mahalanobis"}, "missing_input", "inputs.VI"),
    ("regression", {"x": EYE, "y": EYE[0, :2]}, {}, "shape_mismatch", "inputs.y"),
    ("regression", {"x": EYE, "y": np.array([1, np.inf, 2])}, {}, "not_finite", "inputs.y"),
    ("regression", {"x": EYE[:0], "y": EYE[0, :0]}, {}, "invalid_shape", "inputs.x"),
    ("regression", {"x": EYE, "y": EYE[0]}, {"level": 1}, "invalid_parameter", "params.level"),
    ("regression", {"x": EYE, "y": EYE[0]}, {"alpha": 1}, "invalid_parameter", "params.alpha"),
    ("regression", {"x": EYE, "y": EYE[0]}, {"method": "ridge", "alpha": -1}, "invalid_parameter", "params.alpha"),
    ("regression", {"x": EYE, "y": EYE[0]}, {"method": "gd", "iterations": -1}, "invalid_parameter",
     "params.iterations"),
    ("regression", {"x": EYE, "y": EYE[0]}, {"cov_type": "HC4"}, "invalid_parameter", "params.cov_type"),
]


@pytest.mark.parametrize("op, inputs, params, code, field", REFUSED)
def test_bad_input_is_refused_before_anything_is_queued(service, op, inputs, params, code, field):
    answer = service.post(op, inputs, params)
    problem = answer.json()
    assert (answer.status, problem["code"], problem["field"]) == (422, code, field) and problem["detail"]


def test_what_only_the_numbers_show(service):
    """Faults in the data alone fail their job and harm no worker."""
    worker = service.part("worker")
    for op, inputs, params, code in (
            ("distance", {"x": np.ones((9, 3))}, {"metric": "mahalanobis"}, "singular_matrix"),
            ("regression", {"x": np.stack([EYE, EYE]), "y": EYE[:1], "sample_weight": EYE[1:] * 0 + [[1], [0]]}, {},
             "out_of_range"),
            ("distance", {"x": np.ones((200, 2))}, {"output": "within", "radius": 1, "max_pairs": 9},
             "invalid_parameter")):
        job = service.post(op, inputs, params).json()
        assert job["state"] == "failed" and job["error"]["code"] == code and job["error"]["detail"]
    assert service.part("worker") == worker
