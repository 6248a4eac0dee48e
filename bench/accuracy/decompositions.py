"""Worst cases of eigh, svd, qr, cholesky and lstsq beside NumPy and SciPy, in one run, against mpmath in 60 digits and more.

usage: python bench/accuracy/decompositions.py URL      prints a table in Markdown; docs/accuracy.md has one

eigh, svd: the largest error of a value over the largest value. cholesky: of an element over the root of its row's diagonal
element. qr: the largest column of a - Q R over that column. lstsq: of an element of x over the largest. Needs the Python
client (PYTHONPATH=clients/python), NumPy, SciPy and mpmath.
"""
import mpmath
import numpy as np
import scipy
import scipy.linalg
import table

mpmath.mp.dps = 60


def symmetric(random, n):
    a = random.standard_normal((n, n))
    return a + a.T


def definite(random, n):
    a = random.standard_normal((n, n))
    return a @ a.T + n * np.eye(n)


def grades(random, n, far):
    return 2.0 ** np.round(random.uniform(-far, far, n))


def cases():
    random = np.random.default_rng(20)
    for n in (3, 30):
        yield f"eigh, random, n = {n}", ("eigh", symmetric(random, n))
    yield "eigh, float32, n = 30", ("eigh", symmetric(random, 30).astype("f4"))
    yield "eigh, elements of 1e300", ("eigh", symmetric(random, 20) * 1e300)
    yield "eigh, elements of 1e-310", ("eigh", symmetric(random, 20) * 1e-310)
    yield "eigh, float32, elements of 1e38", ("eigh", (symmetric(random, 20) * 1e37).astype("f4"))
    i = np.arange(21)
    yield "eigh, Wilkinson 21", ("eigh", np.diag(abs(i - 10.0)) + np.eye(21, k=1) + np.eye(21, k=-1))
    yield "svd, random, 40 x 20", ("svd", random.standard_normal((40, 20)))
    yield "svd, float32, 40 x 20", ("svd", random.standard_normal((40, 20)).astype("f4"))
    yield "svd, elements of 1e305", ("svd", random.standard_normal((20, 20)) * 1e305)
    i = np.arange(1, 13)
    yield "svd, Hilbert, n = 12", ("svd", 1 / (i[:, None] + i - 1.0))
    yield "svd, a row of 1e8", ("svd", random.standard_normal((20, 10)) * np.where(np.arange(20) == 7, 1e8, 1)[:, None])
    yield "qr, random, 40 x 20", ("qr", random.standard_normal((40, 20)))
    yield "qr, float32, 40 x 20", ("qr", random.standard_normal((40, 20)).astype("f4"))
    yield "qr, columns of 1e-300 to 1e300", ("qr", random.standard_normal((40, 20)) * grades(random, 20, 996))
    yield "qr, elements of 1e307", ("qr", random.standard_normal((20, 20)) * 1e307)
    yield "qr, elements of 1e-310", ("qr", random.standard_normal((20, 20)) * 1e-310)
    yield "cholesky, random, n = 30", ("cholesky", definite(random, 30))
    yield "cholesky, float32, n = 30", ("cholesky", definite(random, 30).astype("f4"))
    d = grades(random, 30, 490)
    yield "cholesky, diagonal of 1e-295 to 1e295", ("cholesky", definite(random, 30) * d[:, None] * d)
    yield "cholesky, elements of 1e-310", ("cholesky", np.array([[4.0, 2, 1], [2, 3, 1], [1, 1, 2]]) * 2.0**-1030)
    b = random.standard_normal(40)
    yield "lstsq, random, 40 x 10", ("lstsq", random.standard_normal((40, 10)), b)
    yield "lstsq, wide, 10 x 40", ("lstsq", random.standard_normal((10, 40)), b[:10])
    yield "lstsq, rank 5 of 10", ("lstsq", random.standard_normal((40, 5)) @ random.standard_normal((5, 10)), b)
    yield "lstsq, float32, 40 x 10", ("lstsq", random.standard_normal((40, 10)).astype("f4"), b.astype("f4"))
    yield "lstsq, a of 1e305, b of 1e300", ("lstsq", random.standard_normal((40, 10)) * 1e305, b * 1e300)
    yield "lstsq, a of 1e-200, b of 1e-300", ("lstsq", random.standard_normal((40, 10)) * 1e-200, b * 1e-300)
    yield "lstsq, condition 1e6", ("lstsq", random.standard_normal((40, 10)) * 10.0 ** -np.linspace(0, 6, 10), b)


def peer(lib, **solve):
    def call(problem):
        op, a = problem[:2]
        if op == "eigh":
            return np.asarray(lib.eigh(a)[0])
        if op == "svd":
            return np.asarray(lib.svd(a)[1])
        if op == "qr":
            return np.concatenate(lib.qr(a, mode="economic" if lib is scipy.linalg else "reduced"))
        if op == "cholesky":
            return np.asarray(lib.cholesky(a, **solve))
        return np.asarray(lib.lstsq(a, problem[2], **({"rcond": None} if lib is np.linalg else {}))[0])
    return call


def peers(client):
    yield "blasd", peer(client)
    yield f"NumPy {np.__version__}", peer(np.linalg)
    yield f"SciPy {scipy.__version__}", peer(scipy.linalg, lower=True)


def big(array):
    return mpmath.matrix([[mpmath.mpf(float(v)) for v in row] for row in np.atleast_2d(array)])


def values_off(got, truth):
    return max(abs(mpmath.mpf(float(p)) - q) for p, q in zip(got, truth)) / max(abs(q) for q in truth)


def worst(problem, got):
    op, a = problem[0], big(problem[1])
    size = mpmath.mpf(float(abs(problem[1]).max()))
    if op == "eigh":
        return float(values_off(got, [v * size for v in sorted(mpmath.eigsy(a / size, eigvals_only=True))]))
    if op == "svd":
        return float(values_off(got, [v * size for v in mpmath.svd_r(a / size, compute_uv=False)]))
    if op == "cholesky":
        d = [mpmath.sqrt(a[i, i]) for i in range(a.rows)]
        truth = mpmath.cholesky(mpmath.matrix(a.rows, a.cols) + mpmath.matrix([[a[i, j] / d[i] / d[j] for j in range(a.cols)]
                                                                               for i in range(a.rows)]))
        return float(max(abs(mpmath.mpf(float(got[i, j])) / d[i] - truth[i, j]) for i in range(a.rows) for j in range(i + 1)))
    if op == "qr":
        q, r = big(got[:a.rows]), big(got[a.rows:])
        off = a - q * r
        return float(max(mpmath.norm(off[:, j]) / mpmath.norm(a[:, j]) for j in range(a.cols)))
    u, s, v = mpmath.svd_r(a / size)
    rank = sum(1 for value in s if value > s[0] * mpmath.mpf(10) ** -9)
    b = [mpmath.mpf(float(x)) for x in problem[2]]
    x = [mpmath.mpf(0)] * a.cols
    for i in range(rank):
        part = mpmath.fsum(u[k, i] * b[k] for k in range(a.rows)) / s[i] / size
        x = [p + v[i, j] * part for j, p in enumerate(x)]
    return float(values_off(got, x))


if __name__ == "__main__":
    table.show(peers, cases, worst)
