"""Cases for rounding correct, which numbers of a fixed generator make, and their exact answers by whole numbers."""
import hashlib
import random
from fractions import Fraction
from math import isqrt

import numpy as np

FORMATS = {"float64": (53, -1074, 1024), "float32": (24, -149, 128), "float16": (11, -24, 16)}


def nearest(value, dtype="float64", root=False, low=False):
    """The number of `dtype` nearest to a fraction, or to its square root; ties to even. `low`: a zero is -0."""
    digits, least, most = FORMATS[dtype]
    if value == 0:
        return -0.0 if low else 0.0
    size = abs(value)
    power = size.numerator.bit_length() - size.denominator.bit_length()  # size is in (2^(power-1), 2^(power+1))
    last = max((power // 2 if root else power) - digits - 3, least - 3)  # three digits more than are kept, at least
    scaled = size / Fraction(2) ** (2 * last if root else last)
    whole = isqrt(scaled.numerator // scaled.denominator) if root else scaled.numerator // scaled.denominator
    more = Fraction(whole) ** (2 if root else 1) != scaled
    drop = max(whole.bit_length() - digits, least - last)
    kept, rest = whole >> drop, whole & ((1 << drop) - 1)
    half = 1 << (drop - 1)
    kept += rest > half or (rest == half and (more or kept & 1))
    if kept.bit_length() + drop + last > most:
        return float("inf") if value > 0 else float("-inf")
    result = float(Fraction(kept) * Fraction(2) ** (drop + last))
    return result if value > 0 else -result


class Numbers:
    """Numbers of a fixed sequence: the same with each release of Python and NumPy."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def array(self, shape, low=0, high=0, dtype="float64", digits=53):
        """Of 2^low to 2^high in size, with so many digits at the most."""
        count = int(np.prod(shape, dtype=int))
        values = [self.one(low, high, digits) for _ in range(count)]
        with np.errstate(over="ignore"):
            return np.array(values, "float64").reshape(shape).astype(dtype)

    def one(self, low, high, digits=53):
        mantissa = self.random.getrandbits(digits) | 1
        exponent = self.random.randint(low, high)
        sign = self.random.choice((1, -1))
        return sign * float(Fraction(mantissa) * Fraction(2) ** (exponent - digits))

    def pick(self, *choices):
        return self.random.choice(choices)


def digest(arrays):
    """One SHA-256 of dtype, shape and bytes of arrays."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(f"{array.dtype}{array.shape}".encode())
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()


def products():
    """a, b, params, c."""
    numbers = Numbers(46)
    for number in range(120):
        m, k, n = (numbers.pick(1, 2, 3, 5, 9, 17) for _ in range(3))
        kind = numbers.pick("plain", "wide", "tiny", "huge", "cancel", "tie", "single", "half", "subnormal", "far")
        low, high = {"plain": (0, 0), "wide": (-60, 60), "tiny": (-545, -520), "huge": (505, 512), "cancel": (0, 0),
                     "tie": (0, 3), "single": (-3, 3), "half": (-3, 3), "subnormal": (-1074, -1000),
                     "far": (-900, 0)}[kind]
        dtype = {"single": "float32", "half": "float16"}.get(kind, "float64")
        digits = {"tie": 27, "half": 11, "single": 24}.get(kind, 53)
        stack = numbers.pick((), (), (2,))
        a, b = (numbers.array(s, low, high, dtype, digits) for s in (stack + (m, k), (k, n)))
        if kind == "subnormal":
            b = numbers.array((k, n), -60, 1000)
        if kind == "cancel" and k > 1:  # sums whose large terms leave nothing but what is below them
            a[..., 1] = -a[..., 0]
            b[1] = b[0] * (1 + 2.0**-52 * numbers.pick(0, 1))
        params, c = {}, None
        if number % 4 == 0:
            c, params = numbers.array((m, n), low, high, dtype, digits), {"alpha": -2.5, "beta": 3.0}
        yield a, b, params, c


def product_of(a, b, params, c, dtype):
    """Each element's nearest number, for finite inputs."""
    alpha, beta = Fraction(params.get("alpha", 1)), Fraction(params.get("beta", 1))
    if a.ndim == 3:
        return np.stack([product_of(each, b, params, c, dtype) for each in a])
    rows, columns = ([[Fraction(float(v)) for v in line] for line in matrix] for matrix in (a, b.T))
    out = [[nearest(alpha * sum((p * q for p, q in zip(row, column)), Fraction(0))
                    + (beta * Fraction(float(c[i, j])) if c is not None else 0), dtype)
            for j, column in enumerate(columns)] for i, row in enumerate(rows)]
    with np.errstate(over="ignore"):
        return np.array(out).astype(dtype)


METRICS = "euclidean", "sqeuclidean", "cityblock", "chebyshev"


def points():
    """x, y (None: x alone), the metric."""
    numbers = Numbers(47)
    for number in range(160):
        m, n, k = numbers.pick(1, 2, 5, 9), numbers.pick(1, 3, 7), numbers.pick(1, 2, 3, 8, 20)
        kind = numbers.pick("plain", "wide", "tiny", "huge", "near", "grid", "single", "half", "subnormal")
        low, high = {"wide": (-300, 300), "tiny": (-545, -520), "huge": (505, 512), "grid": (0, 4),
                     "subnormal": (-1074, -1050)}.get(kind, (0, 1))
        dtype = {"single": "float32", "half": "float16"}.get(kind, "float64")
        digits = {"grid": 4, "half": 11, "single": 24}.get(kind, 53)
        x, y = numbers.array((m, k), low, high, dtype, digits), numbers.array((n, k), low, high, dtype, digits)
        if kind == "near":
            y = x[np.arange(n) % m] * (1 + 2.0**-50 * numbers.array((n, k), 0, 3, digits=5))
        yield x, None if number % 5 == 0 else y, METRICS[number % 4]


def distances_of(x, y, metric):
    dtype = str(x.dtype)
    rows, columns = ([[Fraction(float(v)) for v in line] for line in matrix] for matrix in (x, x if y is None else y))

    def one(row, column):
        far = [abs(p - q) for p, q in zip(row, column)]
        if metric == "chebyshev":
            return nearest(max(far), dtype)
        return nearest(sum(far) if metric == "cityblock" else sum(f * f for f in far), dtype, metric == "euclidean")
    with np.errstate(over="ignore"):
        return np.array([[one(row, column) for column in columns] for row in rows]).astype(dtype)


def whole_solution(a, b):
    """The exact solution, by fractions; None: a is singular."""
    n = len(a)
    rows = [[Fraction(v) for v in [*line, *right]] for line, right in zip(*(m if isinstance(m, list) else m.tolist()
                                                                           for m in (a, b)))]
    for k in range(n):
        pivot = next((i for i in range(k, n) if rows[i][k] != 0), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        for i in range(n):
            if i != k and rows[i][k] != 0:
                factor = rows[i][k] / rows[k][k]
                rows[i] = [p - factor * q for p, q in zip(rows[i], rows[k])]
    return [[value / rows[i][i] for value in rows[i][n:]] for i in range(n)]


def systems():
    """a, b."""
    numbers = Numbers(48)
    for number in range(150):
        n, columns = numbers.pick(1, 2, 3, 4, 6, 8, 11), numbers.pick(1, 1, 3)
        kind = numbers.pick("plain", "graded", "integers", "near", "nearer", "single", "ties", "far", "hilbert")
        dtype = "float32" if kind == "single" else "float64"
        a, b = numbers.array((n, n), 0, 2, dtype, 24), numbers.array((n, columns), 0, 2, dtype, 24)
        if kind in ("plain", "near", "nearer"):
            a, b = numbers.array((n, n), 0, 2), numbers.array((n, columns), 0, 2)
        if kind == "graded":
            rows, columns_ = (numbers.array(shape, 0, 7, digits=6).round() for shape in ((n, 1), (1, n)))
            a = a * 2.0**rows * 2.0**columns_
        if kind in ("integers", "ties"):
            a, b = numbers.array((n, n), 0, 3, digits=3).round(), numbers.array((n, columns), 0, 3, digits=3).round()
        if kind == "ties":  # half a last place of a solution decides
            a = np.triu(a, 1) + np.diag(2.0 ** np.arange(n))
            b = numbers.array((n, columns), 53, 54, digits=53)
        if kind in ("near", "nearer") and n > 1:
            a[1] = a[0] * (1 + 2.0 ** (-20 if kind == "near" else -48) * numbers.array((n,), 0, 3, digits=4))
        if kind == "far":
            b = b * 2.0 ** numbers.pick(-1000, -500, 900)
        if kind == "hilbert":
            a = 1 / (np.arange(n)[:, None] + np.arange(n) + 1.0)
        yield a, b


def fits():
    """x, y of full rank, whether there is an intercept."""
    numbers = Numbers(49)
    for number in range(60):
        p, t = numbers.pick(1, 2, 3, 5), numbers.pick(1, 1, 2)
        n = p + 2 + numbers.pick(0, 1, 4, 20)
        kind = numbers.pick("plain", "integers", "far", "single", "exact", "graded")
        dtype = "float32" if kind == "single" else "float64"
        x, y = numbers.array((n, p), 0, 1, dtype, 24), numbers.array((n, t), 0, 1, dtype, 24)
        if kind == "integers":
            x = numbers.array((n, p), 0, 5, digits=5).round()
        if kind == "far":
            x = x + 2.0**30
        if kind == "exact":
            y = np.repeat(x.sum(1, keepdims=True), t, 1)
        if kind == "graded":
            x, y = x * 2.0 ** numbers.pick(-150, 150), y * 2.0**-200
        yield x, y, number % 3 > 0


def fit_of(x, y, intercept):
    """Coefficients, a line for each target; None: not of full rank. Then the sums: residuals', total, r2."""
    columns = [[Fraction(float(v)) for v in column] for column in x.T]
    if intercept:
        columns.insert(0, [Fraction(1)] * len(x))
    targets = [[Fraction(float(v)) for v in column] for column in y.T]

    def product(a, b):
        return sum((p * q for p, q in zip(a, b)), Fraction(0))
    solved = whole_solution([[product(a, b) for b in columns] for a in columns],
                            [[product(a, b) for b in targets] for a in columns])
    if solved is None:
        return None
    coef = [[row[target] for row in solved] for target in range(len(targets))]
    ssr, tss = [], []
    for line, target in zip(coef, targets):
        left = [v - sum(b * column[i] for b, column in zip(line, columns)) for i, v in enumerate(target)]
        mean = sum(target) / len(target) if intercept else 0
        ssr.append(product(left, left))
        tss.append(sum((v - mean) ** 2 for v in target))
    return coef, ssr, tss, [None if all_ == 0 else 1 - rest / all_ for rest, all_ in zip(ssr, tss)]


def same(got, wish):
    """Whether all elements have the same bits."""
    return got.dtype == wish.dtype and got.shape == wish.shape and got.tobytes() == wish.tobytes()
