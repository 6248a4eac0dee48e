"""Judges solve's certify: are the error bounds that it gives true, and how near are they to the rounding of x? Every
bound is held to the exact solution, which Arb encloses (python-flint), for 100,000 systems drawn anew from a seed.

usage: python bench/accuracy/certify.py URL [SYSTEMS [SEED]]    prints a table in Markdown; docs/accuracy.md has one

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


def enclosure(a, b):
    """x as balls that hold the exact solution; None: the matrix is singular, or too near to it to tell."""
    n, k = b.shape
    matrix = flint.arb_mat(n, n, a.ravel().tolist())
    side = flint.arb_mat(n, k, b.ravel().tolist())
    for bits in BITS:
        flint.ctx.prec = bits
        try:
            return matrix.solve(side).entries()
        except ZeroDivisionError:
            pass
    return None


def violated(a, b, x, bound):
    """How many bounds are not seen to be true. One that is finite says that the matrix is not singular, too."""
    finite = np.isfinite(bound)
    if not finite.any():
        return 0
    exact = enclosure(a, b)
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
                wrong += violated(seen[i].astype("float64"), right[i].astype("float64"), x[i], bound[i])
            with np.errstate(all="ignore"):
                radius = bound / (UNIT[dtype] * np.abs(x))
            radii.append(radius[np.isfinite(radius) & (np.abs(x) > np.finfo(dtype).tiny)])
            unproven += int((~np.isfinite(bound)).any((1, 2)).sum())
            total += len(part)
    return total, wrong, unproven, np.concatenate(radii)


def row(name, total, wrong, unproven, radii):
    median, most = np.percentile(radii, (50, 99)) if len(radii) else (np.nan, np.nan)
    print(f"| {name} | {total:,} | {wrong} | {median:.2g} | {most:.2g} | {100 * unproven / total:.2g} % |", flush=True)


def main():
    client = blasd.Client(sys.argv[1])
    warnings.simplefilter("ignore")  # of systems without a proof, which are counted here
    systems = int(sys.argv[2]) if len(sys.argv) > 2 else 100000
    random = np.random.default_rng(int(sys.argv[3]) if len(sys.argv) > 3 else 20)
    shares = sum(kind[1] for kind in KINDS)
    print("| systems | number | bounds violated | median radius, u abs(x) | 99 of 100 below | not_certifiable |")
    print("|---" * 6 + "|")
    results = []
    for kind in KINDS:
        results.append(judge(client, random, kind, -(-int(systems * kind[1]) // int(shares))))
        row(kind[0], *results[-1])
    row("all", *(sum(r[i] for r in results) for i in range(3)), np.concatenate([r[3] for r in results]))
    return 1 if any(r[1] for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
