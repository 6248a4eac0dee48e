"""Judges certify, of solve and of ols: are the error bounds that it gives true, and how near are they to the rounding
of x, or coef? Every bound is held to the exact solution, which Arb encloses (python-flint), for 100,000 systems and as
many designs, drawn anew from a seed.

usage: python bench/accuracy/certify.py solve|ols URL [SYSTEMS [SEED]]
prints a table in Markdown; docs/accuracy.md has both

Needs the Python client (PYTHONPATH=clients/python), NumPy and python-flint. Exit status 1: a bound was violated.
"""
import sys
import warnings

import blasd
import flint
import numpy as np

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24}
SIZES = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 30]  # most systems are small
LARGE = [48, 65, 100, 150]
BITS = (320, 2400)  # precisions to try


def normal(random, count, n):
    return random.standard_normal((count, n, n))


def conditioned(low, high):
    """Singular values from 1 down to 10^-k, k uniform."""
    def make(random, count, n):
        u, v = (np.linalg.qr(normal(random, count, n))[0] for _ in range(2))
        fall = random.uniform(low, high, (count, 1)) * np.linspace(0, 1, n)
        return u * 10.0**-fall[:, None, :] @ v
    return make


def graded(rows, columns, make=normal):
    """Rows and columns times 2^k, k up to so many either way."""
    def scaled(random, count, n):
        power = random.integers(-rows, rows + 1, (count, n, 1)) + random.integers(-columns, columns + 1, (count, 1, n))
        return np.ldexp(make(random, count, n), power)
    return scaled


def hilbert(random, count, n):
    n = min(n, 10)  # condition 1e13
    i = np.arange(n)
    return 1 / (i[:, None] + i + 1 + random.uniform(0, 1, (count, 1, 1)))


def vandermonde(random, count, n):
    return random.uniform(-1, 1, (count, n, 1)) ** np.arange(n)


def integers(random, count, n):
    return random.integers(-1, 2, (count, n, n)).astype(float)


def positive(random, count, n):
    a = conditioned(0, 6)(random, count, n)
    a = a @ a.transpose(0, 2, 1)
    return (a + a.transpose(0, 2, 1)) / 2


def symmetric(random, count, n):
    a = conditioned(0, 14)(random, count, n)
    return (a + a.transpose(0, 2, 1)) / 2


def triangular(random, count, n):
    return np.tril(normal(random, count, n))


# name, share, matrices, sizes, parameters, dtype, right-hand sides
KINDS = [
    ("random", 18, normal, SIZES, {}, "float64", 1),
    ("condition 1 to 1e14", 24, conditioned(0, 14), SIZES, {}, "float64", 1),
    ("condition 1e12 to 1e14", 10, conditioned(12, 14), SIZES, {}, "float64", 1),
    ("condition 1e15 to 1e18", 4, conditioned(15, 18), SIZES, {}, "float64", 1),
    ("rows of 2^-100 to 2^100", 4, graded(100, 0), SIZES, {}, "float64", 1),
    ("columns of 2^-100 to 2^100", 4, graded(0, 100), SIZES, {}, "float64", 1),
    ("rows and columns, condition to 1e14", 5, graded(40, 40, conditioned(0, 14)), SIZES, {}, "float64", 1),
    ("2^-1040 to 2^1000, subnormals among them", 3, graded(500, 520), SIZES, {}, "float64", 1),
    ("like Hilbert's", 5, hilbert, SIZES, {}, "float64", 1),
    ("Vandermonde's", 4, vandermonde, SIZES, {}, "float64", 1),
    ("-1, 0 and 1: many are singular", 4, integers, SIZES, {}, "float64", 1),
    ("positive_definite, condition to 1e12", 4, positive, SIZES, {"assume_a": "positive_definite"}, "float64", 1),
    ("symmetric", 3, symmetric, SIZES, {"assume_a": "symmetric"}, "float64", 1),
    ("lower_triangular", 2, triangular, SIZES, {"assume_a": "lower_triangular"}, "float64", 1),
    ("three right-hand sides, transposed", 2, conditioned(0, 14), SIZES, {"transposed": True}, "float64", 3),
    ("not refined", 2, conditioned(0, 10), SIZES, {"refinement": "none"}, "float64", 1),
    ("float32, condition to 1e6", 4, conditioned(0, 6), SIZES, {}, "float32", 1),
    ("n of 48 to 150, condition to 1e13", .5, conditioned(0, 13), LARGE, {}, "float64", 1),
]


def sides(random, a, k, dtype):
    """Random, graded, or such that x is known to be of ones: there b - A x cancels."""
    b = random.standard_normal((*a.shape[:2], k))
    third = len(a) // 3
    b[:third] = np.ldexp(b[:third], random.integers(-60, 60, b[:third].shape))
    b[third:2 * third] = a[third:2 * third].sum(2, keepdims=True)
    return b.astype(dtype)


def balls(array):
    return flint.arb_mat(*array.shape, array.ravel().tolist())


def enclosure(system):
    """x as balls that hold the exact solution; None: the matrix is singular, or too near to it to tell."""
    for bits in BITS:
        flint.ctx.prec = bits
        try:
            matrix, side = system()
            return matrix.solve(side).entries()
        except ZeroDivisionError:
            pass
    return None


def violated(system, x, bound):
    """How many bounds are not seen to be true. One that is finite says that the matrix is not singular, too."""
    finite = np.isfinite(bound)
    if not finite.any():
        return 0
    exact = enclosure(system)
    exact = exact and exact[-x.size:]  # an intercept comes first
    if exact is None:
        return int(finite.sum())
    count = 0
    for ball, value, radius, known in zip(exact, x.ravel().tolist(), bound.ravel().tolist(), finite.ravel()):
        if known and not abs(ball - flint.arb(value)) <= flint.arb(radius):
            count += 1
    return count


def judge(client, random, kind, count):
    """Systems, violated bounds, radii in u |x|, and systems without a proof."""
    _, _, make, sizes, params, dtype, k = kind
    total, wrong, unproven, radii = 0, 0, 0, []
    for n in sizes:
        a = make(random, -(-count // len(sizes)), n).astype(dtype)
        b = sides(random, a, k, dtype)
        for start in range(0, len(a), 500):
            part, right = a[start:start + 500], b[start:start + 500]
            result = client.run("solve", {"certify": True, **params}, a=part, b=right)
            x, bound = np.asarray(result["x"], "float64"), np.asarray(result["error_bound"])
            seen = part.transpose(0, 2, 1) if params.get("transposed") else part
            for i in range(len(part)):
                left, of = seen[i].astype("float64"), right[i].astype("float64")
                wrong += violated(lambda: (balls(left), balls(of)), x[i], bound[i])
            with np.errstate(all="ignore"):
                radius = bound / (UNIT[dtype] * np.abs(x))
            radii.append(radius[np.isfinite(radius) & (np.abs(x) > np.finfo(dtype).tiny)])
            unproven += int((~np.isfinite(bound)).any((1, 2)).sum())
            total += len(part)
    return total, wrong, unproven, np.concatenate(radii)


# ---- ols ----


def designs(low, high, offset=0, power=0):
    """Columns of a condition of 10^low to 10^high, far from 0, in units of their own."""
    def make(random, count, n, p):
        u, v = np.linalg.qr(random.standard_normal((count, n, p)))[0], np.linalg.qr(normal(random, count, p))[0]
        fall = random.uniform(low, high, (count, 1)) * np.linspace(0, 1, p)
        x = u * 10.0**-fall[:, None, :] @ v + offset * (1 + random.random((count, 1, p)))
        return np.ldexp(x, random.integers(-power, power + 1, (count, 1, p)))
    return make


def counts(random, count, n, p):
    return random.integers(-1, 2, (count, n, p)).astype(float)


def polynomials(random, count, n, p):
    return random.uniform(-1, 1, (count, n, 1)) ** np.arange(1, p + 1)


# name, share, designs, parameters, dtype, weighted
FITS = [
    ("random", 16, designs(0, 0.5), {}, "float64", False),
    ("condition 1 to 1e14", 30, designs(0, 14), {}, "float64", False),
    ("condition 1e12 to 1e14", 10, designs(12, 14), {}, "float64", False),
    ("condition 1e15 to 1e17", 4, designs(15, 17), {}, "float64", False),
    ("no intercept, condition 1 to 1e14", 10, designs(0, 14), {"fit_intercept": False}, "float64", False),
    ("weights of 1e-3 to 1e3", 8, designs(0, 10), {}, "float64", True),
    ("far from 0: 1e9", 6, designs(0, 4, 1e9), {}, "float64", False),
    ("columns of 2^-200 to 2^200", 4, designs(0, 8, 0, 200), {}, "float64", False),
    ("powers of a variable", 5, polynomials, {}, "float64", False),
    ("-1, 0 and 1: some are dependent", 4, counts, {}, "float64", False),
    ("float32, condition 1 to 1e5", 3, designs(0, 5), {}, "float32", False),
]
LENGTHS = [(2, 1), (4, 2), (8, 3), (10, 6), (20, 4), (30, 8), (60, 5), (100, 10)]


def normal_equations(x, y, w, intercept):
    """As balls; what Arb makes of them is as exact as its precision."""
    a = np.hstack([np.ones((len(x), 1)), x]) if intercept else x

    def system():
        matrix, side = balls(a), balls(y[:, None])
        left = flint.arb_mat(a.shape[1], len(a), [flint.arb(k) * v for row in a.T.tolist() for k, v in zip(w, row)])
        return left * matrix, left * side
    return system


def judge_fits(client, random, kind, count):
    """As judge: designs, violated bounds, radii in u |coef|, and designs without a proof."""
    _, _, make, params, dtype, weighted = kind
    total, wrong, unproven, radii = 0, 0, 0, []
    for n, p in LENGTHS:
        x = make(random, -(-count // len(LENGTHS)), n, p).astype(dtype)
        y = (x @ random.standard_normal((len(x), p, 1)))[..., 0]
        y += random.standard_normal(y.shape) * 10.0 ** random.uniform(-12, 0, (len(y), 1)) * np.abs(y).max(1)[:, None]
        y = y.astype(dtype)
        w = 10.0 ** random.uniform(-3, 3, y.shape) if weighted else np.ones(y.shape)
        for start in range(0, len(x), 500):
            part = slice(start, start + 500)
            result = client.run("regression", {"certify": True, **params}, x=x[part], y=y[part],
                                **({"sample_weight": w[part]} if weighted else {}))
            coef, bound = np.asarray(result["coef"], "float64"), np.asarray(result["error_bound"])
            for i, (left, right, by) in enumerate(zip(x[part], y[part], w[part])):
                system = normal_equations(left.astype("float64"), right.astype("float64"), by.tolist(),
                                          params.get("fit_intercept", True))
                wrong += violated(system, coef[i], bound[i])
            with np.errstate(all="ignore"):
                radius = bound / (UNIT[dtype] * np.abs(coef))
            radii.append(radius[np.isfinite(radius)])
            unproven += int((~np.isfinite(bound)).any(1).sum())
            total += len(coef)
    return total, wrong, unproven, np.concatenate(radii)


# ---- both ----


def row(name, total, wrong, unproven, radii):
    median, most = np.percentile(radii, (50, 99)) if len(radii) else (np.nan, np.nan)
    print(f"| {name} | {total:,} | {wrong} | {median:.2g} | {most:.2g} | {100 * unproven / total:.2g} % |", flush=True)


def main():
    kinds, way, name = {"solve": (KINDS, judge, "systems | number | bounds violated | median radius, u abs(x)"),
                        "ols": (FITS, judge_fits, "designs | number | bounds violated | median radius, u abs(coef)")}[
                            sys.argv[1]]
    client = blasd.Client(sys.argv[2])
    warnings.simplefilter("ignore")  # of systems without a proof, which are counted here
    systems = int(sys.argv[3]) if len(sys.argv) > 3 else 100000
    random = np.random.default_rng(int(sys.argv[4]) if len(sys.argv) > 4 else 20)
    shares = sum(kind[1] for kind in kinds)
    print(f"| {name} | 99 of 100 below | not_certifiable |")
    print("|---" * 6 + "|")
    results = []
    for kind in kinds:
        results.append(way(client, random, kind, -(-int(systems * kind[1]) // int(shares))))
        row(kind[0], *results[-1])
    row("all", *(sum(r[i] for r in results) for i in range(3)), np.concatenate([r[3] for r in results]))
    return 1 if any(r[1] for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
