"""matmul's worst cases beside NumPy and SciPy's BLAS, in one run: the largest error of an element of
alpha a b + beta c over the size of what it is made of, |alpha| |a||b| + |beta c|, against Arb (python-flint).

usage: python bench/accuracy/matmul.py URL      prints a table in Markdown; docs/accuracy.md has one

Needs the Python client (PYTHONPATH=clients/python), NumPy, SciPy and python-flint.
"""
import flint
import numpy as np
import scipy
import scipy.linalg
import table


def cases():
    """Name; a, b, c or None, parameters."""
    random = np.random.default_rng(20)

    def normal(*shape, dtype="f8", scale=1.0):
        return (random.standard_normal(shape) * scale).astype(dtype)
    for dtype in ("float64", "float32", "float16"):
        yield f"random, {dtype}, 100 x 100 x 100", (normal(100, 100, dtype=dtype), normal(100, 100, dtype=dtype), None, {})
    for dtype in ("float64", "float32", "float16"):
        yield f"depth 30,000, {dtype}", (random.random((2, 30000)).astype(dtype), random.random((30000, 2)).astype(dtype) / 100, None, {})
    yield "alpha and beta, c of 1e300", (normal(8, 8, scale=1e150), normal(8, 8, scale=1e150), normal(8, 8, scale=1e300), {"alpha": 2.5, "beta": -3.0})
    yield "complex64, random", (normal(50, 50) + 1j * normal(50, 50)).astype("c8"), (normal(50, 50) + 1j * normal(50, 50)).astype("c8")
    yield "int64 of 2^31, exact", (random.integers(-2**31, 2**31, (8, 1)), random.integers(-2**31, 2**31, (1, 8)), None, {"exact": True})


def normalised():
    """All problems as four things."""
    for name, *problem in cases():
        yield name, problem[0] if len(problem) == 1 else (*problem, None, {})


def peers(client):
    yield "blasd", lambda problem: client.matmul(*problem[:3], **problem[3])
    yield f"NumPy {np.__version__}", by_numpy
    yield f"SciPy {scipy.__version__} BLAS", by_blas


def by_numpy(problem):
    a, b, c, params = problem
    product = a @ b
    if "alpha" in params:
        product = product.dtype.type(params["alpha"]) * product
    return product if c is None else product + params["beta"] * c


def by_blas(problem):
    a, b, c, params = problem
    if a.dtype.char not in "fdFD":
        return None
    gemm = scipy.linalg.get_blas_funcs("gemm", (a, b))
    alpha = params.get("alpha", 1)
    return gemm(alpha, a, b) if c is None else gemm(alpha, a, b, params["beta"], c)


def balls(array):
    values = array.tolist()
    return flint.acb_mat([[flint.acb(flint.arb(v.real), flint.arb(v.imag)) if isinstance(v, complex) else flint.acb(flint.arb(v))
                           for v in row] for row in values])


def sizes(array):
    return flint.arb_mat([[abs(flint.acb(v) if isinstance(v, complex) else flint.arb(v)) for v in row] for row in array.tolist()])


def worst(problem, got):
    a, b, c, params = problem
    flint.ctx.prec = 600
    alpha = flint.arb(params.get("alpha", 1))
    exact, size = balls(a) * balls(b) * flint.acb(alpha), sizes(a) * sizes(b) * abs(alpha)
    if c is not None:
        beta = flint.arb(params["beta"])
        exact, size = exact + balls(c) * flint.acb(beta), size + sizes(c) * abs(beta)
    return np.max([float(abs(e - g) / s) for e, g, s in zip(exact.entries(), balls(got).entries(), size.entries())])


if __name__ == "__main__":
    table.show(peers, normalised, worst)
