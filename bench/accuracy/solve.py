"""Solve's worst cases beside NumPy and SciPy, in one run: the largest error of an element of x over that element,
against Arb's enclosure of the exact solution (python-flint).

usage: python bench/accuracy/solve.py URL      prints a table in Markdown; docs/accuracy.md has one

Needs the Python client (PYTHONPATH=clients/python), NumPy, SciPy and python-flint.
"""
import flint
import numpy as np
import scipy
import scipy.linalg
import table


def conditioned(random, n, power, complex_too=False):
    def turn():
        real = random.standard_normal((n, n))
        return np.linalg.qr(real + 1j * random.standard_normal((n, n)) if complex_too else real)[0]
    u, v = turn(), turn()
    return u * 10.0**(-power * np.linspace(0, 1, n)) @ v


def cases():
    random = np.random.default_rng(20)
    yield "random, n = 100", (random.standard_normal((100, 100)), random.standard_normal((100, 1)))
    for power in (8, 12, 14):
        yield f"condition 1e{power}, n = 50", (conditioned(random, 50, power), random.standard_normal((50, 1)))
    for k in (16, 17, 200):
        yield f"condition 1e12, {k} right-hand sides", (conditioned(random, 40, 12), random.standard_normal((40, k)))
    i = np.arange(10)
    yield "Hilbert, n = 10", (1 / (i[:, None] + i + 1), np.ones((10, 1)))
    yield "Vandermonde, n = 16", (np.linspace(0.1, 1, 16)[:, None] ** np.arange(16), random.standard_normal((16, 1)))
    a = 2 * np.eye(60) - np.tril(np.ones((60, 60)))
    a[:, -1] = 1
    yield "Wilkinson, growth of 2^59", (a, random.standard_normal((60, 1)))
    yield "Jordan block of 1e-2, n = 60", (np.eye(60) * 1e-2 + np.eye(60, k=1), np.ones((60, 1)))
    i = np.arange(1, 51)
    yield "Moler, n = 50", (np.minimum(i[:, None], i) - 2.0 + 2 * np.eye(50), np.ones((50, 1)))
    yield "rows of 1e-150 to 1e150", (random.standard_normal((30, 30)) * 10.0 ** random.uniform(-150, 150, (30, 1)),
                                      random.standard_normal((30, 1)))
    yield "columns of 1e-75 to 1e75", (random.standard_normal((30, 30)) * 10.0 ** random.uniform(-75, 75, (1, 30)),
                                       random.standard_normal((30, 1)))
    yield "identity, b = [1e300, 1e-20]", (np.eye(2), np.array([[1e300], [1e-20]]))
    yield "identity, float32, b = [1e25, 1e-25]", (np.eye(2, dtype="f4"), np.array([[1e25], [1e-25]], "f4"))
    turned = np.exp(1j * random.uniform(0, 7, (50, 50)))
    yield "complex128, condition 1e12, n = 50", (conditioned(random, 50, 12, True), random.standard_normal((50, 1)) + 0.5j)
    yield "complex128, random, n = 50", (random.standard_normal((50, 50)) * turned, random.standard_normal((50, 1)) + 1j)
    yield "complex64, random, n = 50", ((random.standard_normal((50, 50)) * turned).astype("c8"), np.full((50, 1), 1j, "c8"))
    yield "float32, condition 1e5, n = 50", (conditioned(random, 50, 5).astype("f4"), random.standard_normal((50, 1)).astype("f4"))


def peers(client):
    yield "blasd", lambda problem: client.solve(*problem)
    yield f"NumPy {np.__version__}", lambda problem: np.linalg.solve(*problem)
    yield f"SciPy {scipy.__version__}", lambda problem: scipy.linalg.solve(*problem)


def balls(array):
    return flint.acb_mat(*array.shape, [flint.acb(complex(v)) for v in array.ravel()])


def worst(problem, x):
    flint.ctx.prec = 4000
    exact = balls(problem[0]).solve(balls(problem[1])).entries()
    return np.max([float(abs(ball - flint.acb(complex(v))) / abs(ball)) for ball, v in zip(exact, x.ravel())])


if __name__ == "__main__":
    table.show(peers, cases, worst)
