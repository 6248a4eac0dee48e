"""Whatever the factors are, a product is right or warned of: drawn by hypothesis over dtypes, shapes, scales, alpha, beta and c, each
element against exact rationals and held to the bound that kernels/matmul/README.md gives."""
from fractions import Fraction

import blasd
import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")
from drawn import bounded  # noqa: E402  (there only where hypothesis is)
from hypothesis import strategies as draw  # noqa: E402

BOUNDED = bounded(80)
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11}
SUM = {"float64": "float64", "float32": "float32", "float16": "float32", "complex128": "float64", "complex64": "float32"}
SIZES = draw.sampled_from([0, 1, 1, 2, 3, 5, 8, 17])


@pytest.fixture(scope="module")
def client(service):
    return blasd.Client(service.url)




@draw.composite
def arrays(take, shape, dtype):
    """Numbers near one scale, or spread over all that the dtype has, with zeros among them."""
    real = {"complex128": "float64", "complex64": "float32"}.get(dtype, dtype)
    least, most = np.frexp(np.finfo(real).tiny)[1], np.frexp(np.finfo(real).max)[1]
    middle = take(draw.integers(int(least), int(most) - 4))
    spread = take(draw.sampled_from([1, 8, 40, 2000]))
    random = np.random.default_rng(take(draw.integers(0, 2**32)))

    def numbers():
        power = np.clip(middle + random.integers(-spread, spread + 1, shape), least - 8, most - 4)
        values = np.ldexp(random.uniform(0.5, 1, shape) * random.choice([-1, 1], shape), power)
        return np.where(random.random(shape) < 0.1, 0, values).astype(real)
    if dtype != real:
        result = np.empty(shape, dtype)
        result.real, result.imag = numbers(), numbers()
        return result
    return numbers()


@draw.composite
def products(take):
    dtype = take(draw.sampled_from(["float64", "float64", "float32", "float32", "float16", "complex128", "complex64"]))
    m, k, n = take(SIZES), take(SIZES), take(SIZES)
    transpose = take(draw.booleans()), take(draw.booleans())
    a = take(arrays((k, m) if transpose[0] else (m, k), dtype))
    b = take(arrays((n, k) if transpose[1] else (k, n), dtype))
    params = {"transpose_a": transpose[0], "transpose_b": transpose[1]}
    factor = draw.one_of(draw.sampled_from([0.0, 1.0, -1.0, 2.5]),
                         draw.floats(-1e300, 1e300, allow_nan=False, allow_subnormal=False))
    if take(draw.booleans()):
        # what would bring the product back
        largest = [float(np.abs(x).max(initial=0)) for x in (a, b)]
        power = -sum(int(np.frexp(x)[1]) for x in largest) + take(draw.integers(-8, 8))
        params["alpha"] = 0.7 * 2.0**int(np.clip(power, -1020, 1020))
    else:
        params["alpha"] = take(factor)
    c = None
    if take(draw.booleans()):
        c = take(arrays(take(draw.sampled_from([(m, n), (n,), ()])), dtype))
        params["beta"] = take(factor)
    return dtype, a, b, c, params


def parts(array):
    """Real and imaginary parts as exact rationals."""
    return [np.array([Fraction(float(v)) for v in x.ravel()], object).reshape(x.shape) for x in (array.real, array.imag)]


def dot(a, b):
    return np.dot(a, b) if a.shape[1] else np.full((a.shape[0], b.shape[1]), Fraction(0), object)


def exactly(a, b, c, params):
    """Parts of the exact result, and the sizes that bound their errors."""
    alpha, beta = Fraction(params["alpha"]), Fraction(params.get("beta", 0))
    ar, ai = (x.T if params["transpose_a"] else x for x in parts(a))
    br, bi = (x.T if params["transpose_b"] else x for x in parts(b))
    cr, ci = parts(c) if c is not None else (Fraction(0), Fraction(0))
    values = (alpha * (dot(ar, br) - dot(ai, bi)) + beta * cr, alpha * (dot(ar, bi) + dot(ai, br)) + beta * ci)
    size = dot(abs(ar) + abs(ai), abs(br) + abs(bi)) * abs(alpha)
    return values, (size + abs(beta * cr), size + abs(beta * ci)), ar.shape[1]


@BOUNDED
@hypothesis.given(products())
def test_products_are_right_or_warned_of_at_any_scale(client, problem):
    dtype, a, b, c, params = problem
    inputs = {"a": a, "b": b} | ({"c": c} if c is not None else {})
    result = client.run("matmul", params, **inputs)
    hypothesis.note(f"{params} {a} {b} {c} {result['c']} {result.execution['method']}")
    assert result["c"].dtype == dtype
    values, sizes, k = exactly(a, b, c, params)
    warned = result.execution["warning_codes"]
    real = result["c"].real.dtype
    most, tiny, u = Fraction(float(np.finfo(real).max)), Fraction(float(np.finfo(real).smallest_subnormal)), UNIT[SUM[dtype]]
    for got, exact, size in zip((result["c"].real, result["c"].imag), values, sizes):
        for g, e, s in zip(got.ravel(), np.ravel(exact), np.ravel(np.broadcast_to(size, np.shape(exact)))):
            bound = (2 * k + 4) * Fraction(u) * s + Fraction(UNIT[str(real)]) * abs(e)
            bound += tiny * (2 * k + 1)  # products vanish one by one, as in NumPy
            if not np.isfinite(g):
                assert "overflow" in warned, (g, float(e))
            elif abs(Fraction(float(g)) - e) > bound:
                assert "underflow" in warned, (g, float(e))


INTEGERS = ["int64", "uint64", "int64", "uint64", "int32", "int8", "uint16", "bool"]


@BOUNDED
@hypothesis.given(draw.sampled_from(INTEGERS), draw.sampled_from(INTEGERS), SIZES, SIZES, SIZES, draw.integers(0, 2**32),
                  draw.integers(-2**53, 2**53))
def test_integers_are_exact_modulo_two_to_the_64(client, left, right, m, k, n, seed, alpha):
    random = np.random.default_rng(seed)
    a, b = (random.integers(0, 2, shape).astype(bool) if dtype == "bool" else
            random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
            for shape, dtype in (((m, k), left), ((k, n), right)))
    result = client.run("matmul", {"exact": True, "alpha": alpha}, a=a, b=b)
    expected = np.dot(a.astype(object), b.astype(object)) if k else np.zeros((m, n), object)
    signed = "int" in (left[:3], right[:3]) or left == right == "bool"
    assert result["c"].dtype == ("int64" if signed else "uint64")
    most = 2**63 - 1 if signed else 2**64 - 1
    beyond = any(not -most - 1 <= int(exact) * alpha <= most for exact in np.ravel(expected))
    assert all("wrap around" in warning for warning in result.warnings) and (result.warnings or not beyond)
    for got, exact in zip(result["c"].ravel(), np.ravel(expected)):
        assert int(got) % 2**64 == int(exact) * alpha % 2**64
    if left == right and left in ("int64", "uint64") and alpha == 1:
        assert np.array_equal(result["c"], a @ b)


@BOUNDED
@hypothesis.given(draw.sampled_from(["float64", "float32", "complex128"]), SIZES, SIZES, SIZES, draw.integers(0, 2**32))
def test_what_is_not_finite_is_where_numpy_has_it(client, dtype, m, k, n, seed):
    random = np.random.default_rng(seed)
    a, b = (random.choice([0.0, 1.0, 2.0, np.nan, np.inf, -np.inf], s, p=[0.3, 0.5, 0.11, 0.03, 0.03, 0.03]).astype(dtype)
            for s in ((m, k), (k, n)))
    with np.errstate(all="ignore"):
        expected = a @ b
    got = client.matmul(a, b)
    if dtype == "complex128":  # a product of complex numbers that are not finite is NaN or infinite by how it is made
        finite = np.isfinite(expected)
        assert np.array_equal(np.isfinite(got), finite) and np.array_equal(got[finite], expected[finite])
    else:
        assert np.array_equal(got, expected, equal_nan=True)
