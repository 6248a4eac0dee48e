"""Whatever a matrix is, what eigh, svd, qr and cholesky say of their results holds: drawn by hypothesis over scales, graded
rows and columns, ranks and shapes, and held to exact rational arithmetic; eigenvalues and singular values to mpmath's."""
from fractions import Fraction

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")
mpmath = pytest.importorskip("mpmath")
from drawn import bounded  # noqa: E402  (there only where hypothesis is)
from hypothesis import strategies as draw  # noqa: E402

BOUNDED = bounded(60)
KINDS = ["plain", "graded rows", "graded columns", "low rank", "equal values", "single", "integers", "triangle",
         "below the range"]


@draw.composite
def matrices(draws, square):
    random = np.random.default_rng(draws(draw.integers(0, 2**32)))
    m = draws(draw.integers(1, 8))
    n = m if square else draws(draw.integers(1, 8))
    kind, far = draws(draw.sampled_from(KINDS)), draws(draw.integers(-290, 290))
    a = random.standard_normal((m, n))
    grade = abs(far) / 2
    if kind == "graded rows":
        a *= 10.0 ** random.uniform(-grade, grade, (m, 1))
    elif kind == "graded columns":
        a *= 10.0 ** random.uniform(-grade, grade, n)
    elif kind == "low rank":
        a = np.outer(a[:, 0], a[0])
    elif kind == "equal values":
        a = np.eye(m, n) + draws(draw.sampled_from([0, 1e-15, 1e-8])) * a
    elif kind == "integers":
        a = np.round(3 * a)
    elif kind == "triangle":
        a = np.triu(a)
    if kind in ("plain", "low rank", "equal values", "triangle"):
        a *= 10.0**far
    if kind == "below the range":
        single = draws(draw.booleans())
        return (a * 10.0 ** random.uniform(-44, -37)).astype("float32") if single else a * 1e-160 * 10.0 ** random.uniform(-162, -147)
    return a.astype("float32") if kind == "single" else a


def step(a):
    """Between the numbers of a's dtype that are nearest to 0: what a value may be off where it is stored."""
    return float(np.nextafter(a.dtype.type(0), a.dtype.type(1)))


def rounded(a):
    """Whether that is more than the rounding of a's largest element."""
    return 0 < np.abs(a).max() < 64 * step(a) / np.finfo(a.dtype).eps


def exact(a):
    return [[Fraction(float(v)) for v in row] for row in a]


def product(a, b):
    columns = list(zip(*b)) if b else []
    return [[sum((p * q for p, q in zip(row, column)), Fraction(0)) for column in columns] for row in a]


def norm2(rows):
    """The square of the Frobenius norm."""
    return sum((v * v for row in rows for v in row), Fraction(0))


def less(a, b):
    return [[p - q for p, q in zip(r, s)] for r, s in zip(a, b)]


def transposed(a):
    return [list(column) for column in zip(*a)]


def one(n):
    return [[Fraction(i == j) for j in range(n)] for i in range(n)]


def holds(square, said, size=Fraction(1)):
    """sqrt(square) <= said sqrt(size)."""
    return square <= Fraction(float(said)) ** 2 * size


@hypothesis.given(matrices(square=True))
@BOUNDED
def test_eigenvectors_are_as_good_as_they_say(service, a):
    a = np.tril(a) + np.tril(a, -1).T
    got, job = service.run("eigh", {"a": a}, form="safetensors")
    rows, v = exact(a), exact(got["eigenvectors"])
    w = [Fraction(float(x)) for x in got["eigenvalues"]]
    size, n = norm2(rows), len(a)
    unit = 2.0**-24 if a.dtype == "float32" else 2.0**-53
    assert job["execution"]["warnings"] == [] or rounded(a)
    assert holds(norm2(less(product(rows, v), [[x * y for x, y in zip(row, w)] for row in v])), got["residual"], size)
    assert holds(norm2(less(product(transposed(v), v), one(n))), got["orthogonality"])
    assert max(got["residual"], got["orthogonality"]) <= 16 * (n + 1) * unit or rounded(a)
    assert got["orthogonality"] <= 16 * (n + 1) * unit
    with mpmath.workdps(700):
        truth = sorted(mpmath.eigsy(mpmath.matrix(a.tolist()), eigvals_only=True))
        most = mpmath.sqrt(mpmath.mpf(size.numerator) / size.denominator) * 16 * (n + 1) * unit + step(a)
        assert all(abs(mpmath.mpf(float(p)) - q) <= most for p, q in zip(got["eigenvalues"], truth))


@hypothesis.given(matrices(square=False), draw.booleans())
@BOUNDED
def test_singular_vectors_are_as_good_as_they_say(service, a, full):
    got, job = service.run("svd", {"a": a}, {"full_matrices": full}, form="safetensors")
    rows, u, vh, k = exact(a), exact(got["U"]), exact(got["Vh"]), min(a.shape)
    s = [Fraction(float(x)) for x in got["S"]]
    assert job["execution"]["warnings"] == [] or rounded(a)
    assert list(got["S"]) == sorted(got["S"], reverse=True)
    assert all(x >= 0 for x in s)
    left = [[x * y for x, y in zip(row[:k], s)] for row in u]
    assert holds(norm2(less(rows, product(left, vh[:k]))), got["residual"], norm2(rows))
    tall = transposed(u)[:k], transposed(vh)
    assert holds(norm2(less(product(tall[0], u), one(len(u[0]))[:k])), got["orthogonality"])
    assert holds(norm2(less(product(vh[:k], tall[1]), one(len(vh))[:k])), got["orthogonality"])
    with mpmath.workdps(60):
        big = max(map(abs, a.flat))
        truth = mpmath.svd_r(mpmath.matrix(a.tolist()) / (mpmath.mpf(float(big)) or 1), compute_uv=False)
        unit = 2.0**-24 if a.dtype == "float32" else 2.0**-53
        for p, q in zip(got["S"], truth):
            most = 16 * sum(a.shape) * unit * max(truth) + step(a) / (mpmath.mpf(float(big)) or 1)
            assert abs(mpmath.mpf(float(p)) / (mpmath.mpf(float(big)) or 1) - q) <= most


@hypothesis.given(matrices(square=False), draw.sampled_from(["reduced", "complete"]))
@BOUNDED
def test_orthogonal_factors_are_as_good_as_they_say(service, a, mode):
    got, job = service.run("qr", {"a": a}, {"mode": mode}, form="safetensors")
    q, r, k = exact(got["Q"]), exact(got["R"]), min(a.shape)
    unit = Fraction(2) ** (-24 if a.dtype == "float32" else -53)
    assert job["execution"]["warnings"] == [] or rounded(a)
    assert np.array_equal(got["R"], np.triu(got["R"]))
    off = transposed(less(exact(a), product(q, r)))
    for column, rest in zip(transposed(exact(a)), off):  # each column by itself, however it is scaled
        most = (16 * sum(a.shape) * unit) ** 2 * sum(v * v for v in column) + 2 * k * Fraction(step(a)) ** 2
        assert sum(v * v for v in rest) <= most
    assert holds(norm2(less(product(transposed(q)[:k], q), one(len(q[0]))[:k])), got["orthogonality"])
    assert got["orthogonality"] <= 16 * (sum(a.shape) + 1) * float(unit)


@hypothesis.given(matrices(square=True))
@BOUNDED
def test_factors_of_definite_matrices(service, a):
    rows = exact(a)
    grown = product(rows, transposed(rows))
    for i, row in enumerate(grown):  # definite also where rounding takes something away
        row[i] *= 1 + Fraction(len(a), 100)
    sizes = [float(row[i]) if 1e-290 < row[i] < Fraction(10)**290 else 0 for i, row in enumerate(grown)]
    hypothesis.assume(all(sizes))
    a = np.array([[float(v) for v in row] for row in grown], dtype=a.dtype)
    hypothesis.assume(np.isfinite(a).all() and (np.diag(a) > 0).all())
    answer = service.post("cholesky", {"a": a}, form="safetensors", accept="safetensors")
    if answer.status != 200:  # the rounded matrix is not definite: so says mpmath
        with mpmath.workdps(400):
            low = np.tril(a).astype(float)
            d = [mpmath.sqrt(mpmath.mpf(low[i, i])) for i in range(len(a))]
            scaled = mpmath.matrix([[mpmath.mpf(low[max(i, j), min(i, j)]) / d[i] / d[j] for j in range(len(a))]
                                    for i in range(len(a))])
            assert min(mpmath.eigsy(scaled, eigvals_only=True)) < 20 * len(a) * 2.0**-24
        return
    got, _ = answer.safetensors()
    unit = Fraction(2) ** (-24 if a.dtype == "float32" else -53)
    factor = exact(got["L"])
    for i, row in enumerate(less(exact(a), product(factor, transposed(factor)))):
        for j, v in enumerate(row[:i + 1]):
            assert v * v <= (8 * (len(a) + 2) * unit) ** 2 * Fraction(float(a[i, i])) * Fraction(float(a[j, j]))


@hypothesis.given(matrices(square=False), draw.integers(1, 3), draw.integers(-200, 200))
@BOUNDED
def test_least_squares_are_as_good_as_they_say(service, a, columns, far):
    single = a.dtype == "float32"
    b = np.random.default_rng(abs(far)).standard_normal((len(a), columns)) * (1 if single else 10.0**far)
    b = b.astype(a.dtype)
    got, job = service.run("lstsq", {"a": a, "b": b}, form="safetensors")
    if not all(np.isfinite(got[name]).all() for name in ("x", "residuals")):
        assert "beyond the range" in " ".join(job["execution"]["warnings"])
        return
    unit, k = Fraction(2) ** (-24 if single else -53), min(a.shape)
    rows, x, right = exact(a), exact(got["x"]), exact(b)
    rest = less(right, product(rows, x))
    rcond = Fraction(max(a.shape)) * 2 * unit
    small = (np.abs(got["x"]) < np.finfo(a.dtype).tiny).any()  # what is rounded there is counted, and said
    said = " ".join(job["execution"]["warnings"])
    assert got["optimality"] <= 16 * (sum(a.shape) + 1) * float(unit) + float(rcond) or (small and "see optimality" in said)
    for r, s, t in zip(transposed(rest), transposed(x), transposed(right)):
        slope = norm2(product(transposed(rows), [[v] for v in r]))
        size, length, side = (Fraction(float(mpmath.sqrt(mpmath.mpf(n.numerator) / n.denominator)) if 0 < n else 0)
                              for n in (norm2(rows), norm2([s]), norm2([t])))
        assert holds(slope, got["optimality"] * (1 + 1e-12), (size * (size * length + side)) ** 2)
    small = [v for v in got["s"] if v <= rcond * Fraction(float(got["s"][0]))]
    assert got["rank"] == k - len(small)
    assert bool(small) == ("rank-deficient" in " ".join(job["execution"]["warnings"]))
