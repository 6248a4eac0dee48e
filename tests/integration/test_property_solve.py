"""Whatever the system is, solve is right or says that it may not be: drawn by hypothesis over scales, graded rows and
columns, structures and numbers of right-hand sides, and held to exact rational arithmetic."""
from fractions import Fraction

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")
from drawn import bounded  # noqa: E402  (there only where hypothesis is)
from hypothesis import strategies as draw  # noqa: E402
from test_solve_edges import exact  # noqa: E402

BOUNDED = bounded(80)
KINDS = ["plain", "graded rows", "graded columns", "nearly singular", "far right-hand side", "single", "integers"]
STRUCTURES = ["general", "symmetric", "positive_definite", "lower_triangular", "upper_triangular"]


@draw.composite
def systems(draws):
    """a, b, what a is, the kind."""
    n, columns = draws(draw.integers(1, 14)), draws(draw.sampled_from([1, 2, 17]))
    random = np.random.default_rng(draws(draw.integers(0, 2**32)))
    kind, assume = draws(draw.sampled_from(KINDS)), draws(draw.sampled_from(STRUCTURES))
    far = draws(draw.integers(-300, 300))
    a, b = random.standard_normal((n, n)), random.standard_normal((n, columns))
    if kind == "integers":
        a = random.integers(-9, 10, (n, n)) + 0.0
    if kind == "nearly singular" and n > 1:
        a[1] = a[0] * (1 + 10.0 ** -draws(draw.integers(2, 18)) * random.standard_normal(n))
    if assume == "lower_triangular":
        a = np.tril(a) + np.diag(np.where(np.diag(a) == 0, 1.0, 0))
    elif assume == "upper_triangular":
        a = np.triu(a) + np.diag(np.where(np.diag(a) == 0, 1.0, 0))
    elif assume == "symmetric":
        a = np.triu(a) + np.triu(a, 1).T
    elif assume == "positive_definite":
        a = np.triu(a, 1) + np.triu(a, 1).T + np.diag(np.abs(a).sum(0) + np.abs(a).sum(1) + 1)
    grades = 2.0 ** np.round(random.uniform(-abs(far), abs(far), n))
    if kind == "graded rows" and assume in ("general", "lower_triangular", "upper_triangular"):
        a, b = a * grades[:, None], b * grades[:, None]
    elif kind == "graded columns" and assume in ("general", "lower_triangular", "upper_triangular"):
        a = a * grades
    elif kind == "far right-hand side":
        b = b * 2.0 ** draws(draw.integers(-900, 900))
    elif kind == "single":
        a, b = a.astype("float32"), b.astype("float32")
    return a, b, assume, kind


@hypothesis.given(systems(), draw.booleans())
@BOUNDED
def test_solutions_are_right_or_doubtful(service, system, certify):
    a, b, assume, kind = system
    unit = 2.0**-24 if a.dtype == "float32" else 2.0**-53
    try:
        truth = exact(a, b)
    except ZeroDivisionError:
        hypothesis.assume(False)  # singular
    answer = service.post("solve", {"a": a, "b": b}, {"assume_a": assume, "certify": certify}, form="safetensors",
                          accept="safetensors")
    if answer.status != 200:  # a pivot that rounding makes zero
        assert kind == "nearly singular" and "singular" in answer.body.decode(), answer.body
        return
    got, job = answer.safetensors()
    warnings = " ".join(job["execution"]["warnings"])
    hypothesis.note(f"{kind} {assume}: {got}, {warnings}")
    for c in range(b.shape[1]):
        x = [Fraction(float(v)) for v in got["x"][:, c]]
        wish = [row[c] for row in truth]
        r = [Fraction(float(v)) - sum(Fraction(float(p)) * q for p, q in zip(row, x)) for v, row in zip(b[:, c], a)]
        norm = max(sum(abs(Fraction(float(p))) for p in row) for row in a)
        bound = norm * max(map(abs, x)) + Fraction(float(np.abs(b[:, c]).max()))
        assert max(map(abs, r)) <= Fraction(float(got["backward_error"])) * bound
        assert max(map(abs, r)) <= Fraction(3 * unit) * bound
        if "digit" not in warnings:
            most = Fraction(1, 16) if got["rcond"] < 1e5 * unit else Fraction(4 * unit)
            off = max(abs(p - q) for p, q in zip(x, wish))
            assert off <= most * max(map(abs, wish))
        if certify:
            for p, q, e in zip(x, wish, got["error_bound"][:, c]):
                assert np.isinf(e) or abs(p - q) <= Fraction(float(e))
    if certify:
        assert np.isinf(got["error_bound"]).any() == ("not_certifiable" in warnings)


@hypothesis.given(draw.integers(1, 8), draw.sampled_from(["general", "symmetric", "positive_definite", "hermitian",
                                                          "lower_triangular", "upper_triangular"]),
                  draw.sampled_from(["complex128", "complex128", "complex64"]), draw.booleans(),
                  draw.integers(-280, 280), draw.integers(0, 12), draw.integers(0, 2**32))
@BOUNDED
def test_complex_solutions_are_right(service, n, assume, dtype, transposed, far, near, seed):
    """Against the rational solution of the real system of twice the size."""
    random = np.random.default_rng(seed)
    a = random.standard_normal((n, n)) + 1j * random.standard_normal((n, n))
    b = random.standard_normal((n, 2)) + 1j * random.standard_normal((n, 2))
    if n > 1 and dtype == "complex128":
        a[1] = a[0] + 10.0**-near * a[1]
    if assume in ("positive_definite", "hermitian"):
        a = np.triu(a, 1) + np.triu(a, 1).conj().T + np.diag((4 * n if assume[0] == "p" else random.choice([-1, 1])) *
                                                             (1 + np.abs(a.diagonal())))
    elif assume == "symmetric":
        a = np.triu(a) + np.triu(a, 1).T
    elif "triangular" in assume:
        a = np.tril(a) if assume[0] == "l" else np.triu(a)
    if dtype == "complex128":
        a = a * 2.0**far
    a, b = a.astype(dtype), b.astype(dtype)
    unit = 2.0**-24 if dtype == "complex64" else 2.0**-53
    got, job = service.run("solve", {"a": a, "b": b}, {"assume_a": assume, "transposed": transposed, "certify": True},
                           form="safetensors")
    seen = a.T if transposed else a
    wish = exact(np.block([[seen.real, -seen.imag], [seen.imag, seen.real]]), np.vstack([b.real, b.imag]))
    assert got["x"].dtype == dtype and got["rcond"] > 0
    for c in range(2):
        size = max(abs(row[c]) for row in wish)
        for i in range(n):
            off = [abs(Fraction(float(part)) - wish[i + k * n][c])
                   for k, part in enumerate((got["x"][i, c].real, got["x"][i, c].imag))]
            if "digit" not in str(job["execution"]["warnings"]) and got["rcond"] > 1e5 * unit:
                assert max(off) <= Fraction(4 * unit) * size
            assert np.isinf(got["error_bound"][i, c]) or (
                off[0]**2 + off[1]**2 <= Fraction(float(got["error_bound"][i, c]))**2)
