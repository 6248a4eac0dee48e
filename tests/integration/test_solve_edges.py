"""solve where the range or the precision ends, through the service: the answer is right, or a warning says what is
wrong with it. The same through the kernels' own tests, on both backends: tests/unit/kernels/test_solve_edges.c,
test_solve_quality.c."""
from fractions import Fraction

import numpy as np
import pytest

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24}


def run(service, a, b, **params):
    """The outputs and the warnings in one text."""
    got, job = service.run("solve", {"a": a, "b": b}, params, form="safetensors")
    return got, " ".join(job["execution"]["warnings"])


def exact(a, b):
    """The solution in rationals; b is a matrix."""
    rows = [[Fraction(float(v)) for v in (*left, *right)] for left, right in zip(a, b)]
    n = len(rows)
    for j in range(n):
        pivot = max(range(j, n), key=lambda i: abs(rows[i][j]))
        rows[j], rows[pivot] = rows[pivot], rows[j]
        rows[j] = [v / rows[j][j] for v in rows[j]]
        for i in range(n):
            if i != j and rows[i][j] != 0:
                rows[i] = [v - rows[i][j] * w for v, w in zip(rows[i], rows[j])]
    return [row[n:] for row in rows]


def nearly_singular(n, distance, random):
    """Two rows that differ by `distance`: a condition of about its reciprocal."""
    a = random.standard_normal((n, n))
    a[1] = a[0] + distance * random.standard_normal(n)
    return a


@pytest.mark.parametrize("n", [2, 5, 33, 60, 150])
@pytest.mark.parametrize("dtype, high, low", [("float64", 1e300, 1e-20), ("float64", 1e-200, 1e-300),
                                              ("float64", 1e307, 1e-307), ("float32", 1e25, 1e-25)])
def test_small_entries_beside_large_ones(service, n, dtype, high, low):
    b = np.where(np.arange(n) % 2 == 0, high, low).astype(dtype)
    for diagonal in (np.ones(n), 1.0 + np.arange(n) % 7):
        for assume in ("general", "symmetric", "positive_definite", "lower_triangular"):
            got, warnings = run(service, np.diag(diagonal).astype(dtype), b, assume_a=assume)
            far = np.abs(got["x"] / (b / diagonal.astype(dtype)) - 1).max()
            assert far <= 4 * UNIT[dtype] or "smallest elements may have no correct digit" in warnings, (assume, diagonal[:3])


@pytest.mark.parametrize("assume", ["general", "symmetric"])
@pytest.mark.parametrize("power", [30, 100, 230])
def test_blocks_of_all_sizes(service, assume, power):
    """[A, s B; s B', s^k C] and the like: every element of x is right, or a warning says that small ones may not be."""
    random, said = np.random.default_rng(power), 0
    for n, inner in ((2, 1), (3, 2), (5, 3), (9, 5), (14, 8)):
        for scales in ((1, 1), (1, 2), (0, 1), (0, 2)):
            a = random.standard_normal((n, n))
            a = np.triu(a) + np.triu(a, 1).T if assume == "symmetric" else a
            a[:inner, inner:] *= 2.0 ** (-power * scales[0])
            a[inner:, :inner] *= 2.0 ** (-power * scales[0])
            a[inner:, inner:] *= 2.0 ** (-power * scales[1])
            b = random.standard_normal((n, 2))
            got, warnings = run(service, a, b, assume_a=assume)
            if "digit" in warnings:
                said += 1
                continue
            for row, wishes in zip(got["x"], exact(a, b)):
                for x, wish in zip(row, wishes):
                    assert abs(Fraction(float(x)) - wish) <= abs(wish) * Fraction(1, 10**12), (n, scales)
    assert said <= 4  # of twenty


@pytest.mark.parametrize("assume", ["symmetric", "hermitian"])
@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32", "complex64"])
def test_symmetric_matrices_of_all_sizes(service, assume, dtype):
    """Rows and columns by the same powers of two: each element of x is right to its last digits."""
    random, narrow = np.random.default_rng(6), dtype in ("float32", "complex64")
    unit, parts = UNIT["float32" if narrow else "float64"], 2 if dtype[0] == "c" else 1
    for n in (2, 3, 7, 12):
        a, b = (random.standard_normal(s) + (1j * random.standard_normal(s) if parts == 2 else 0) for s in ((n, n), (n, 1)))
        turned = a.conj() if assume == "hermitian" else a
        a = np.triu(a, 1) + np.triu(turned, 1).T + np.diag(random.choice([-2, 2], n) * n**0.5)
        a, b = a.astype(dtype), b.astype(dtype)
        whole = np.block([[a.real, -a.imag], [a.imag, a.real]]) if parts == 2 else a
        truth = exact(whole, np.vstack([b.real, b.imag]) if parts == 2 else b)
        grades = 2.0 ** random.integers(-40 if narrow else -400, 40 if narrow else 400, n)
        got, warnings = run(service, (a * grades[:, None] * grades).astype(dtype), (b * grades[:, None]).astype(dtype),
                            assume_a=assume)
        assert warnings == ""
        x = got["x"][:, 0].astype("complex128") * grades
        for i, value in enumerate(x):
            wish = complex(*(float(truth[i + k * n][0]) for k in range(parts)))
            assert abs(value - wish) <= 8 * unit * abs(wish), (n, i, value, wish)


@pytest.mark.parametrize("dtype, b", [("float64", 1e308), ("float32", 1e38)])
def test_a_solution_beyond_the_range(service, dtype, b):
    for n in (1, 2, 20, 50):
        a, right = np.eye(n, dtype=dtype), np.ones(n, dtype)
        a[0, 0], right[0] = 1e-10, b
        got, warnings = run(service, a, right)
        assert np.isinf(got["x"][0]) and np.isinf(got["backward_error"]), n
        assert f"beyond the range of {dtype}" in warnings and "small elements may be lost" in warnings
        assert dtype == "float32" or (got["x"][1:] == 1).all(), n


def test_many_right_hand_sides_are_solved_as_well_as_one(service):
    random = np.random.default_rng(1)
    for n in (8, 24):  # of the lanes and not, with columns enough
        a = nearly_singular(n, 1e-11, random)
        b = random.standard_normal((n, 3))
        truth = np.array([[float(v) for v in row] for row in exact(a, b)])
        for columns in (1, 16, 17, 100, 300):
            got, warnings = run(service, a, np.resize(b.T, (columns, n)).T)
            wish = np.resize(truth.T, (columns, n)).T
            assert np.abs(got["x"] - wish).max() <= 4 * UNIT["float64"] * np.abs(wish).max(), (n, columns)
            assert warnings == ""


@pytest.mark.parametrize("n", [30, 50, 60])
def test_refinement_does_no_harm(service, n):
    """Moler's matrix: its solution has no cancellation, its condition is far beyond 1/eps."""
    i = np.arange(n)
    a = np.minimum.outer(i, i) - 1.0
    a[i, i] = i + 1
    b = (i * 37 % 64 + 1) / 8
    truth = np.array([float(row[0]) for row in exact(a, b[:, None])])
    plain, refined = (run(service, a, b, refinement=r)[0]["x"] for r in ("none", "auto"))
    off = [np.abs(x - truth).max() / np.abs(truth).max() for x in (plain, refined)]
    assert off[1] <= 2 * off[0] + 8 * UNIT["float64"], off


def test_warnings_look_at_x(service):
    random = np.random.default_rng(2)
    for n in (20, 45, 150):
        rows = (random.integers(-99, 99, (n, n)) + 900 * np.eye(n)) * 2.0 ** -np.linspace(0, 340, n).round()[:, None]
        jordan = 0.5 * np.eye(n) + np.eye(n, k=1)
        for a in (rows, jordan) if n < 100 else (rows,):
            got, warnings = run(service, a, random.standard_normal(n))
            assert "digit" not in warnings and (got["rcond"] < 1e-5 or n == 20), warnings
    got, warnings = run(service, 1 / (np.add.outer(np.arange(20), np.arange(20)) + 1.0), np.ones(20))
    assert "may have no correct digit" in warnings
    for columns in (1, 3, 40):  # one that is doubtful among many is said
        a = nearly_singular(50, 1e-16, random)
        assert "may have no correct digit" in run(service, a, random.standard_normal((50, columns)))[1]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("refinement", ["none", "auto"])
def test_reported_errors_are_bounds(service, dtype, refinement):
    random = np.random.default_rng(3)
    for n in (1, 2, 7, 25, 45):
        for columns in (1, 20):
            a = (random.standard_normal((n, n)) + n * np.eye(n) * (columns == 1)).astype(dtype)
            b = random.standard_normal((n, columns)).astype(dtype)
            got, _ = run(service, a, b, refinement=refinement)
            left, x = [[[Fraction(float(v)) for v in row] for row in m] for m in (a, got["x"])]
            norm, error = max(sum(map(abs, row)) for row in left), 0
            for c in range(columns):
                right = [Fraction(float(v)) for v in b[:, c]]
                r = [v - sum(p * row[c] for p, row in zip(l, x)) for v, l in zip(right, left)]
                error = max(error, max(map(abs, r)) / (norm * max(abs(row[c]) for row in x) + max(map(abs, right))))
            assert float(error) <= got["backward_error"] <= 1.01 * float(error) + UNIT[dtype] / 50, (n, columns)


def test_rcond_is_of_the_matrix(service):
    """Triangular ones of integers, whose inverses are known: the estimate is at least the truth, and near it."""
    for n in (3, 10, 30, 48):
        a = np.eye(n) - np.triu(np.ones((n, n)), 1)
        inverse = np.eye(n)
        for k in range(1, n):
            inverse += 2.0 ** (k - 1) * np.eye(n, k=k)
        truth = 1 / (np.abs(a).sum(0).max() * inverse.sum(0).max())
        for assume in ("general", "upper_triangular"):
            rcond = run(service, a, np.ones(n), assume_a=assume)[0]["rcond"]
            assert truth * (1 - 1e-12) <= rcond <= 3 * truth, (n, assume)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_certified_bounds(service, dtype):
    random, tight, count = np.random.default_rng(4), 0, 0
    for n in (1, 2, 5, 12):
        for distance in (1, 1e-5) if dtype == "float64" and n > 1 else (1,):
            a = (nearly_singular(n, distance, random) if n > 1 else np.array([[3.0]])).astype(dtype)
            b = random.standard_normal((n, 2)).astype(dtype)
            got, warnings = run(service, a, b, certify=True)
            assert "not_certifiable" not in warnings
            assert got["error_bound"].shape == got["x"].shape and got["error_bound"].dtype == "float64"
            for row, wishes, bounds in zip(got["x"], exact(a, b), got["error_bound"]):
                for x, wish, bound in zip(row, wishes, bounds):
                    assert abs(Fraction(float(x)) - wish) <= Fraction(float(bound)), (n, distance)
                    tight += bound <= 8 * UNIT[dtype] * abs(float(wish))
                    count += 1
    assert tight >= 0.7 * count
    got, warnings = run(service, np.arange(1, 10).reshape(3, 3) / 10, np.array([1.0, 2, 4]), certify=True)
    assert np.isinf(got["error_bound"]).all() and "not_certifiable" in warnings
    assert "error_bound" not in run(service, np.eye(2), np.ones(2))[0]


def test_singular_matrices_never_pass_in_silence(service):
    """Beside an x that is far larger; each member of a stack, however many there are."""
    a = np.array([[-13, 16, 8, 0], [-15, 18, 6, 0], [53, -62, -10, 0], [0, 0, 0, 1.0]])
    b = np.array([[1, 1, 1, 1e20]]).T
    got, job = service.run("solve", {"a": a, "b": b}, form="safetensors")
    assert job["execution"]["warning_codes"] == ["near_singular"]
    assert got["info"] == 0 and got["error_estimate"] >= 1
    random = np.random.default_rng(4)
    stack = np.tile(a, (600, 1, 1))
    stack[::7] = random.standard_normal((4, 4)) + 9 * np.eye(4)
    got, job = service.run("solve", {"a": stack, "b": np.tile(b, (600, 1, 1))}, form="safetensors")
    bad = np.arange(600) % 7 != 0
    assert np.array_equal(got["info"], np.where(bad, -1, 0)) and f"{bad.sum()} systems" in job["execution"]["warnings"][0]
    assert np.array_equal(got["error_estimate"] < 1e-15, ~bad)
    for members in (bad, ~bad):
        assert len(np.unique(got["x"][members], axis=0)) == 1
