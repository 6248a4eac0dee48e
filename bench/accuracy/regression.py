"""Regression's worst cases beside NumPy, SciPy, scikit-learn and statsmodels, in one run: how far the slopes are from
the exact ones (rational arithmetic), relative to the largest of them.

usage: python bench/accuracy/regression.py URL      prints a table in Markdown; docs/accuracy.md has one

Needs the Python client (PYTHONPATH=clients/python), NumPy and SciPy; scikit-learn and statsmodels where they are there.
bench/peers/make-venv.sh science DIR makes an environment with all of them.
"""
import fractions
import sys
import warnings

import blasd
import numpy as np
import scipy
import scipy.linalg

try:
    import sklearn
    from sklearn.linear_model import LinearRegression
except ImportError:
    sklearn = None
try:
    import statsmodels
    import statsmodels.api
except ImportError:
    statsmodels = None

EXACT = fractions.Fraction


def exact_slopes(x, y):
    """Of the centred normal equations; of features that depend on each other, the solution of least norm."""
    n, p = x.shape
    columns = [[EXACT(float(v)) for v in x[:, j]] for j in range(p)] + [[EXACT(float(v)) for v in y]]
    for j, column in enumerate(columns):
        mean = sum(column) / n
        columns[j] = [v - mean for v in column]
    if n <= p:  # x'(xx')^+ y: the first rows, whose differences are independent
        rows = [[column[i] for column in columns] for i in range(n - 1)]
        system = [[sum(a * b for a, b in zip(r[:p], s[:p])) for s in rows] + [r[p]] for r in rows]
        u = eliminate(system)
        return [sum(c * r[j] for c, r in zip(u, rows)) for j in range(p)]
    return eliminate([[sum(a * b for a, b in zip(columns[i], columns[j])) for j in range(p + 1)] for i in range(p)])


def eliminate(system):
    """Of a semidefinite system: 0 where a pivot is."""
    for i in range(len(system)):
        if system[i][i] == 0:
            continue
        system[i] = [v / system[i][i] for v in system[i]]
        for j in range(len(system)):
            if j != i and system[j][i] != 0:
                factor = system[j][i]
                system[j] = [a - factor * b for a, b in zip(system[j], system[i])]
    return [row[-1] for row in system]


def cases():
    """Name, x, y, and how many times the rows are to be repeated (which changes no slope)."""
    random = np.random.default_rng(20)
    t = np.arange(1000.0)
    yield "two features near 0", random.standard_normal((40, 2)), random.standard_normal(40), 1
    yield "the same, 200,000 rows", random.standard_normal((40, 2)), random.standard_normal(40), 5000
    yield "a constant next to the intercept, 90,000 rows", np.c_[np.ones(1000), t / 8], 2 * t / 8 + 1, 90
    x = np.c_[random.standard_normal((40, 9)), np.full(40, 0.1)]
    yield "a constant feature, 10,000 x 10", x, x.sum(1) + random.standard_normal(40), 250
    for power in (44, 48, 50):
        yield f"2^{power} + i % 1000, 200,000 rows", 2.0**power + t[:, None], 3 * t + np.sin(t), 200
    for mean in (0, 1e4, 1e8):
        x = random.standard_normal((20, 200)) + mean
        yield f"wide, 20 x 200, means of {mean:g}", x, random.standard_normal(20), 1
    x = random.standard_normal((30, 4))
    x[:, 3] = x[:, 0] * (1 + 1e-7 * random.standard_normal(30))
    yield "two features equal to 7 digits", x, random.standard_normal(30), 1
    yield "the same, 100,000 rows", x, random.standard_normal(30), 3334
    yield "units of 1e-150 to 1e150", random.standard_normal((30, 4)) * [1e-150, 1e-5, 1, 1e150], random.standard_normal(30), 1
    rows = 10.0 ** random.integers(-8, 8, 30)
    yield "rows of 1e-8 to 1e8", random.standard_normal((30, 3)) * rows[:, None], random.standard_normal(30) * rows, 1
    x = (random.standard_normal((40, 1)) / 8 + 100) ** np.arange(1, 5)
    yield "powers 1 to 4 of 100 +- 0.1", x, random.standard_normal(40), 1


def peers(client):
    """Name and a function from x, y to slopes."""
    yield f"blasd {blasd.__version__}" if hasattr(blasd, "__version__") else "blasd", \
        lambda x, y: client.regression(x, y)["coef"]
    yield f"NumPy {np.__version__}", lambda x, y: np.linalg.lstsq(np.c_[np.ones(len(x)), x], y, rcond=None)[0][1:]
    yield f"SciPy {scipy.__version__}", \
        lambda x, y: scipy.linalg.lstsq(x - x.mean(0), y - y.mean(), lapack_driver="gelsy")[0]
    if sklearn is not None:
        yield f"scikit-learn {sklearn.__version__}", lambda x, y: LinearRegression().fit(x, y).coef_
    if statsmodels is not None:
        yield f"statsmodels {statsmodels.__version__}", \
            lambda x, y: statsmodels.api.OLS(y, np.c_[np.ones(len(x)), x]).fit().params[1:]


def main():
    client = blasd.Client(sys.argv[1])
    warnings.simplefilter("ignore")
    columns = list(peers(client))
    print("| case | " + " | ".join(name for name, _ in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name, x, y, copies in cases():
        expected = exact_slopes(x, y)
        units = [EXACT(float(v)) for v in np.abs(x).max(0)]  # errors in features' own units
        size = max(abs(b) * k for b, k in zip(expected, units))
        cells = []
        for _, slopes in columns:
            try:
                got = slopes(np.tile(x, (copies, 1)), np.tile(y, copies))
                worst = max(abs(EXACT(float(g)) - b) * k for g, b, k in zip(got, expected, units)) / size
                cells.append(f"{float(worst):.0e}")
            except (ValueError, OverflowError, np.linalg.LinAlgError) as error:
                cells.append(type(error).__name__)
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
