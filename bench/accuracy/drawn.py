"""The worst of many problems drawn at random, beside the peers in one run: kinds as tests/integration/test_property_*.py draw them,
errors as the other scripts here measure them.

usage: python bench/accuracy/drawn.py URL [NUMBER [TABLE]]      prints tables in Markdown; docs/accuracy.md has them, of 100 a kind

Needs all that regression.py, solve.py, distance.py, matmul.py and decompositions.py need.
"""
import sys
import warnings

import blasd
import decompositions
import distance
import matmul
import numpy as np
import regression
import solve
import table


def powers(random, far, shape):
    """Powers of two as grades, from 2^-far to 2^far."""
    return 2.0 ** np.round(random.uniform(-far, far, shape))


def systems():
    def square(random):
        n = int(random.integers(2, 15))
        return random.standard_normal((n, n)), random.standard_normal((n, 2))

    def rows(random):
        a, b = square(random)
        by = powers(random, 300, (len(a), 1))
        return a * by, b * by

    def columns(random):
        a, b = square(random)
        return a * powers(random, 300, len(a)), b

    def near(random):
        a, b = square(random)
        a[1] = a[0] * (1 + 10.0 ** -random.uniform(2, 14) * random.standard_normal(len(a)))
        return a, b

    def arrow(random):
        a, b = square(random)
        d = np.diag(powers(random, 40, len(a)))
        d[0], d[:, 0] = a[0], a[:, 0]
        return d, b
    yield "random", square
    yield "graded rows", rows
    yield "graded columns", columns
    yield "two rows equal to 2 to 14 digits", near
    yield "a graded diagonal below a first row and column", arrow
    yield "float32", lambda random: tuple(part.astype("f4") for part in square(random))


def points():
    def pair(metric, more=lambda random, k: {}, sign=True):
        def draw(random):
            k = int(random.integers(3, 8))
            by, near = 2.0 ** random.uniform(-900, 900), random.random() < 0.5
            both = random.standard_normal((7, k))
            both = (1 + both * 1e-6 if near else both) * by
            both = both if sign else np.abs(both)
            return metric, both[:3], both[3:], more(random, k)
        return draw
    for metric in ("euclidean", "cityblock", "cosine", "correlation", "canberra", "braycurtis"):
        yield metric, pair(metric)
    yield "minkowski, p of 1.5 to 50", pair("minkowski", lambda random, k: {"p": float(random.choice([1.5, 3, 7, 50]))})
    yield "seuclidean", pair("seuclidean", lambda random, k: {"V": powers(random, 300, k)})
    yield "jensenshannon", pair("jensenshannon", sign=False)


def products():
    def draw(dtype, far):
        def one(random):
            m, k, n = random.integers(1, 30, 3)
            p, q = (float(np.round(random.uniform(-far, far))) for _ in range(2))
            a, b = (random.standard_normal((m, k)) * 2**p).astype(dtype), (random.standard_normal((k, n)) * 2**q).astype(dtype)
            return a, b, None, {}
        return one
    yield "float64", draw("f8", 60)
    yield "float32", draw("f4", 30)
    yield "float16", draw("f2", 3)


def designs():
    def draw(shift, grade, near):
        def one(random):
            n, p = int(random.integers(8, 40)), int(random.integers(2, 5))
            x = random.standard_normal((n, p))
            if near:
                x[:, 1] = x[:, 0] * (1 + 10.0 ** -random.uniform(2, 9) * random.standard_normal(n))
            x = x * powers(random, grade, p) + (10.0 ** random.uniform(2, 12) if shift else 0)
            return x, random.standard_normal(n)
        return one
    yield "random", draw(False, 0, False)
    yield "offsets of 1e2 to 1e12", draw(True, 0, False)
    yield "graded columns", draw(False, 400, False)
    yield "two features equal to 2 to 9 digits", draw(False, 0, True)


def penalised():
    def draw(kind):
        def one(random):
            n, p = int(random.integers(12, 30)), int(random.integers(2, 7))
            if kind == "few":
                n, p = p, n // 2
            x = random.standard_normal((n, p)) * (10.0 ** random.uniform(0, 15, p) if kind != "plain" else 1)
            if kind != "plain":
                x[:, -1] = x[:, 0] if kind != "large" else x[:, -1]
            y = x.sum(1) + random.standard_normal(n) if kind == "large" else random.standard_normal(n)
            return x, y, 10.0 ** random.uniform(-4, 4)
        return one
    yield "random", draw("plain")
    yield "sizes of 1 to 1e15, y by the largest", draw("large")
    yield "sizes of 1 to 1e15, one twice", draw("twice")
    yield "the same, more features than observations", draw("few")


def ridges(client):
    yield f"blasd {blasd.__version__}" if hasattr(blasd, "__version__") else "blasd", \
        lambda x, y, alpha: client.regression(x, y, method="ridge", alpha=alpha, fit_intercept=False)["coef"]
    yield f"NumPy {np.__version__}", lambda x, y, alpha: np.linalg.lstsq(
        np.vstack([x, np.sqrt(alpha) * np.eye(x.shape[1])]), np.append(y, np.zeros(x.shape[1])), rcond=None)[0]
    if regression.sklearn is not None:
        from sklearn.linear_model import Ridge
        yield f"scikit-learn {regression.sklearn.__version__}", \
            lambda x, y, alpha: Ridge(alpha=alpha, fit_intercept=False).fit(x, y).coef_


def each_off(problem, got):
    """Of each coefficient, against itself."""
    x, y, alpha = problem
    columns = [[regression.EXACT(float(v)) for v in column] for column in [*x.T, y]]
    wanted = regression.eliminate([[sum(a * b for a, b in zip(columns[i], columns[j])) + (regression.EXACT(alpha) if i == j else 0)
                                    for j in range(len(columns))] for i in range(len(columns) - 1)])
    return float(max(abs((regression.EXACT(float(g)) - b) / b) for g, b in zip(got, wanted)))


def matrices():
    def draw(op, far, dtype="f8"):
        def one(random):
            n = int(random.integers(2, 12))
            m = n if op in ("eigh", "cholesky") else int(random.integers(n, 16))
            a = random.standard_normal((m, n))
            if op == "eigh":
                a = a + a.T
            if op == "cholesky":
                d = powers(random, far, n)
                return op, ((a @ a.T + n * np.eye(n)) * d[:, None] * d).astype(dtype)
            a = a * 2.0 ** random.uniform(-far, far)
            return (op, a.astype(dtype), random.standard_normal(m).astype(dtype)) if op == "lstsq" else (op, a.astype(dtype))
        return one
    for op, far in (("eigh", 1000), ("svd", 1000), ("qr", 1000), ("cholesky", 480), ("lstsq", 900)):
        yield f"{op}, of all sizes", draw(op, far)
        yield f"{op}, float32", draw(op, 10, "f4")


def slopes_off(problem, got):
    x, y = problem
    expected, units = regression.exact_slopes(x, y), [regression.EXACT(float(v)) for v in np.abs(x).max(0)]
    size = max(abs(b) * k for b, k in zip(expected, units))
    return float(max(abs(regression.EXACT(float(g)) - b) * k for g, b, k in zip(got, expected, units)) / size)


def by_pair(peers):
    return lambda client: ((name, lambda problem, call=call: call(*problem)) for name, call in peers(client))


TABLES = {"Regression": (by_pair(regression.peers), designs, slopes_off),
          "Ridge": (by_pair(ridges), penalised, each_off), "Solve": (solve.peers, systems, solve.worst),
          "Distance": (distance.peers, points, distance.worst), "Matmul": (matmul.peers, products, matmul.worst),
          "Eigenvalues, singular values, factors, least squares": (decompositions.peers, matrices, decompositions.worst)}


def show(title, peers, draws, worst, number):
    columns = list(peers(blasd.Client(sys.argv[1])))
    print(f"\n{title}\n\n| drawn | " + " | ".join(name for name, _ in columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    for name, draw in draws():
        random = np.random.default_rng(20)
        problems = [draw(random) for _ in range(number)]
        cells = []
        for _, call in columns:
            most = 0.0
            for problem in problems:
                answer = table.answer_of(call, problem)
                said = table.said(answer)
                most = max(most, worst(problem, np.asarray(answer))) if said is None else np.inf if said == "not finite" else said
                if isinstance(most, str):
                    break
            cells.append(most if isinstance(most, str) else table.cell(most))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for title, (peers, draws, worst) in TABLES.items():
        if title not in sys.argv[3:] and len(sys.argv) > 3:
            continue
        show(title, peers, draws, worst, int(sys.argv[2]) if len(sys.argv) > 2 else 100)
