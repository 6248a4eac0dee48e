"""Regression where double precision ends, through the service: the answer is right, or a warning says what is wrong
with it. The same through a kernel's own tests, on both backends: tests/unit/kernels/test_regression_edges.c."""
import fractions

import numpy as np
import pytest


def run(service, x, y, **params):
    """The outputs and the warnings."""
    fit, job = service.run("regression", {"x": x, "y": y}, params, form="safetensors")
    return fit, job["execution"]["warnings"]


def test_a_constant_beside_the_intercept(service):
    x = np.c_[np.ones(90_000), np.arange(90_000) % 1000 / 8]
    fit, warnings = run(service, x, 2 * x[:, 1] + 1)
    assert fit["rank"] == 2 and np.allclose(fit["coef"], [0, 2], rtol=1e-14, atol=1e-14)
    assert "least norm" in warnings[0] and "rank 2 of 3" in warnings[0]
    random = np.random.default_rng(1)
    for n, p in ((200_000, 2), (10_000, 10), (5_000, 15)):
        for column in (0, p - 1):
            x = random.standard_normal((n, p))
            x[:, column] = random.standard_normal() * 100
            fit, warnings = run(service, x, x.sum(1) + 0.01 * random.standard_normal(n))
            expected = np.ones(p)
            expected[column] = 0
            assert fit["rank"] == p and len(warnings) == 1, (n, p)
            assert np.abs(fit["coef"] - expected).max() < 0.01, (n, p)


@pytest.mark.parametrize("mean", [0, 1e3, 1e4, 1e7, 1e12])
def test_wide_problems_have_at_most_n_dimensions(service, mean):
    random = np.random.default_rng(2)
    x = np.round(random.standard_normal((50, 400)) * 1024) / 1024  # numbers that stay what they are beside the mean
    y = random.standard_normal(50)
    fit, warnings = run(service, x + mean, y)
    expected = np.linalg.lstsq(x - x.mean(0), y - y.mean(), rcond=None)[0]
    assert fit["rank"] == 50 and fit["df_resid"] == 0
    assert np.abs(fit["coef"] - expected).max() <= 1e-12 * np.abs(expected).max()
    assert "degrees of freedom" in warnings[0]


@pytest.mark.parametrize("method", ["ols", "ridge", "lasso", "elastic_net"])
@pytest.mark.parametrize("power", [44, 48, 50])
def test_features_far_from_zero(service, method, power):
    t = np.arange(200_000) % 1000.0
    alpha = {} if method == "ols" else {"alpha": 3.0}
    fit, _ = run(service, (2.0**power + t)[:, None], 3 * t, method=method, **alpha)
    near, _ = run(service, t[:, None], 3 * t, method=method, **alpha)
    assert abs(fit["coef"][0] / near["coef"][0] - 1) <= 1e-12 and abs(fit["r2"] - near["r2"]) <= 1e-12
    if method == "ols":
        assert abs(fit["coef"][0] - 3) <= 1e-15 * 3
        offset = fractions.Fraction(2) ** power  # in float64 the product would round
        assert abs(fractions.Fraction(float(fit["intercept"])) + 3 * offset) <= offset * fractions.Fraction(3, 2**53)


@pytest.mark.parametrize("n, p", [(9, 20), (12, 27)])
def test_ridge_of_features_of_all_sizes(service, n, p):
    """More of them than observations, some far above their penalty and some far below: X'(y - Xb) = alpha b is solved in
    rationals, and each coefficient is right beside what its feature may say of y."""
    random = np.random.default_rng(n)
    for intercept, alpha in ((True, 2.0**9), (False, 2.0**-12), (True, 2.0**15)):
        x = random.standard_normal((n, p)) * 2.0 ** random.integers(-160, 160, p)
        y = random.standard_normal(n)
        fit, _ = run(service, x, y, method="ridge", alpha=alpha, fit_intercept=intercept)
        rows = np.vectorize(fractions.Fraction, otypes=[object])(x)
        target = np.vectorize(fractions.Fraction, otypes=[object])(y)
        if intercept:
            rows, target = rows - rows.sum(0) / fractions.Fraction(n), target - target.sum() / fractions.Fraction(n)
        # b = X'(XX' + alpha)^-1 y, which has n unknowns
        system = rows @ rows.T + np.diag([fractions.Fraction(alpha)] * n)
        truth = rows.T @ rational_solution(system, target[:, None])[:, 0]
        sizes = [fractions.Fraction(float(k)) for k in np.ptp(x, 0)]
        largest = max(abs(c) * k for c, k in zip(truth, sizes))
        for got, wish, k in zip(fit["coef"], truth, sizes):
            spare = max(abs(wish), largest / k) * fractions.Fraction(1, 10**9)
            assert abs(fractions.Fraction(float(got)) - wish) <= spare, (intercept, alpha)


def rational_solution(a, b):
    """Gauss-Jordan; a may be of rationals already."""
    n, rows = len(a), np.concatenate([a, b], axis=1)
    for j in range(n):
        pivot = next(i for i in range(j, n) if rows[i, j] != 0)
        rows[[j, pivot]] = rows[[pivot, j]]
        rows[j] = rows[j] / rows[j, j]
        for i in range(n):
            if i != j:
                rows[i] = rows[i] - rows[i, j] * rows[j]
    return rows[:, n:]


def test_what_rcond_leaves(service):
    random = np.random.default_rng(3)
    for n in (6, 30, 20_000):
        celsius = 1000 + random.uniform(-1, 1, n)
        x, y = np.c_[celsius, celsius * 1.8 + 32], 4.2 * celsius + random.normal(0, 0.01, n)
        centred = x - x.mean(0)
        expected = np.linalg.lstsq(centred, y - y.mean(), rcond=1e-10)[0]
        fit, warnings = run(service, x, y)
        assert fit["cond"] > 1e16 and len(warnings) == 1, n
        assert "condition number" in warnings[0] or "rank 2 of 3" in warnings[0]
        fit, warnings = run(service, x, y, rcond=1e-10)
        assert fit["rank"] == 2 and np.allclose(fit["coef"], expected, rtol=1e-9), n
        assert "rank 2 of 3" in warnings[0]
    x = random.standard_normal((40, 12)) @ np.diag(10.0 ** -np.arange(12)) @ random.standard_normal((12, 12))
    y = random.standard_normal(40)
    for rcond in (1e-3, 1e-6, 1e-9):  # no gap: SciPy's very solution
        expected, _, rank, values = np.linalg.lstsq(x, y, rcond=rcond)
        fit, warnings = run(service, x, y, rcond=rcond, fit_intercept=False)
        assert fit["rank"] == rank and np.abs(fit["coef"] - expected).max() <= 1e-5 * np.abs(expected).max()
        assert f"kept to {values[rank - 1]:.3g}, dropped from {values[rank]:.3g}" in warnings[0]


def test_descents_tell_how_they_ended(service):
    x, y = np.array([[1.0], [2.0], [3.0]]), np.array([1.0, 2.0, 3.0])
    fit, warnings = run(service, x, y, method="gd", learning_rate=0.5, iterations=50)
    assert fit["converged"] == 0 and fit["gradient_norm"] > 1e30
    assert any("diverged" in text for text in warnings) and any("r2 is negative" in text for text in warnings)
    fit, warnings = run(service, x, y, method="gd", learning_rate=0.1, iterations=3000)
    assert fit["converged"] == 1 and fit["gradient_norm"] < 1e-12 and warnings == []
    fit, _ = run(service, x, y, method="gd", learning_rate=0.1, iterations=2)
    design = np.c_[np.ones(3), x]
    gradient = 2 / 3 * design.T @ (design @ np.r_[fit["intercept"], fit["coef"]] - y)
    assert fit["converged"] == 0 and abs(fit["gradient_norm"] / np.linalg.norm(gradient) - 1) < 1e-12


def test_fits_without_degrees_of_freedom(service):
    random = np.random.default_rng(4)
    x, y = random.standard_normal((5, 4)), random.standard_normal(5)
    fit, warnings = run(service, x, y)
    assert fit["df_resid"] == 0 and np.isnan(fit["stderr"]).all() and "degrees of freedom" in warnings[0]
    fit, warnings = run(service, random.standard_normal((50, 4)), random.standard_normal(50))
    assert warnings == []


def test_answers_beyond_float32(service):
    x = np.array([[1e-30], [2e-30], [4e-30]], "float32")
    fit, warnings = run(service, x, np.array([1e20, 2e20, 5e20], "float32"))
    assert np.isinf(fit["coef"][0]) and any("range of float32" in text for text in warnings)
