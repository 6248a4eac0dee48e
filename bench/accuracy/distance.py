"""Distances' worst cases beside SciPy and scikit-learn, in one run: the largest error of an entry over that entry,
against 400 digits (mpmath).

usage: python bench/accuracy/distance.py URL      prints a table in Markdown; docs/accuracy.md has one

Needs the Python client (PYTHONPATH=clients/python), NumPy, SciPy and mpmath; scikit-learn where it is there.
"""
import mpmath
import numpy as np
import scipy
import scipy.spatial.distance
import table

try:
    import sklearn
    import sklearn.metrics
except ImportError:
    sklearn = None

HERE = {"cityblock": "manhattan"}  # scikit-learn's own implementations; its others are SciPy's
OWN = ("euclidean", "cosine", "cityblock")


def cases():
    """Name; metric, x, y, more."""
    random = np.random.default_rng(20)

    def pair(dtype="f8", scale=1.0, offset=0.0, k=6):
        return tuple((random.standard_normal((5, k)) * scale + offset).astype(dtype) for _ in range(2))

    def positive(scale):
        return tuple(np.abs(points) for points in pair(scale=scale))
    yield "euclidean, near 0", ("euclidean", *pair(k=100), {})
    yield "euclidean, around 1e8", ("euclidean", *pair(offset=1e8), {})
    yield "euclidean, float32, around 1e4", ("euclidean", *pair("f4", offset=1e4), {})
    yield "euclidean, 1e-200", ("euclidean", *pair(scale=1e-200), {})
    yield "euclidean, 1e200", ("euclidean", *pair(scale=1e200), {})
    yield "sqeuclidean, float32, around 1e4", ("sqeuclidean", *pair("f4", offset=1e4), {})
    yield "cosine, angles of 1e-6", ("cosine", *pair(scale=1e-6, offset=1), {})
    yield "cosine, 1e-200", ("cosine", *pair(scale=1e-200), {})
    yield "correlation, around 1e8", ("correlation", *pair(offset=1e8), {})
    yield "cityblock, around 1e8", ("cityblock", *pair(offset=1e8), {})
    yield "seuclidean, float32, 1e-25", ("seuclidean", *pair("f4", 1e-25), {"V": np.full(6, 1e-50)})
    yield "seuclidean, 1e200", ("seuclidean", *pair(scale=1e200), {"V": np.full(6, 1e300)})
    yield "mahalanobis, 1e-170", ("mahalanobis", *pair(scale=1e-170), {"VI": np.diag(np.full(6, 1e300))})
    yield "mahalanobis, 1e160", ("mahalanobis", *pair(scale=1e160), {"VI": np.diag(np.full(6, 1e-300))})
    yield "minkowski, p = 50, 1e-8", ("minkowski", *pair(scale=1e-8), {"p": 50})
    yield "minkowski, p = 4, float32, 1e-12", ("minkowski", *pair("f4", 1e-12), {"p": 4})
    yield "minkowski, p = 300, 1e3", ("minkowski", *pair(scale=1e3), {"p": 300})
    yield "canberra, 1e308", ("canberra", *positive(5e307), {})
    yield "braycurtis, 1e308", ("braycurtis", *positive(5e307), {})
    x = np.abs(random.standard_normal((5, 6)))
    yield "jensenshannon, rows equal to 6 digits", ("jensenshannon", x, x[::-1][[0]] * (1 + 1e-6 * random.standard_normal((5, 6))), {})
    yield "cosine, float32, angles of 1e-5", ("cosine", *pair("f4", scale=1e-5, offset=1), {})
    yield "jensenshannon, float32, rows equal to 4 digits", (
        "jensenshannon", *pair("f4", scale=1e-4, offset=1), {})


def peers(client):
    yield "blasd", lambda problem: client.distance(*problem[1:3], metric=problem[0], **problem[3])
    yield f"SciPy {scipy.__version__}", \
        lambda problem: scipy.spatial.distance.cdist(*problem[1:3], problem[0], **problem[3])
    if sklearn is not None:
        yield f"scikit-learn {sklearn.__version__}", \
            lambda problem: sklearn.metrics.pairwise_distances(*problem[1:3], HERE.get(problem[0], problem[0])) \
            if problem[0] in OWN else None


def exactly(metric, a, b, more):
    """By the definition, without a thought for range."""
    a, b = ([mpmath.mpf(float(v)) for v in point] for point in (a, b))
    if metric == "jensenshannon":
        a, b = ([v / mpmath.fsum(point) for v in point] for point in (a, b))
        return mpmath.sqrt(sum(v * mpmath.log(2 * v / (x + y)) for x, y in zip(a, b) for v in (x, y)) / 2)
    if metric == "correlation":
        a, b = ([v - mpmath.fsum(point) / len(point) for v in point] for point in (a, b))
    if metric in ("cosine", "correlation"):
        return 1 - mpmath.fdot(a, b) / mpmath.sqrt(mpmath.fdot(a, a) * mpmath.fdot(b, b))
    e = [abs(x - y) for x, y in zip(a, b)]
    if metric == "canberra":
        return mpmath.fsum(d / (abs(x) + abs(y)) for d, x, y in zip(e, a, b))
    if metric == "braycurtis":
        return mpmath.fsum(e) / mpmath.fsum(abs(x + y) for x, y in zip(a, b))
    weights = [1] * len(e)
    if metric == "seuclidean":
        weights = [1 / mpmath.mpf(float(v)) for v in more["V"]]
    if metric == "mahalanobis":  # diagonal ones alone
        weights = [mpmath.mpf(float(v)) for v in np.diag(more["VI"])]
    p = {"cityblock": 1, "minkowski": more.get("p")}.get(metric, 2)
    total = mpmath.fsum(w * d**p for w, d in zip(weights, e))
    return total if metric == "sqeuclidean" else total ** (1 / mpmath.mpf(p))


def worst(problem, got):
    metric, x, y, more = problem
    mpmath.mp.dps = 400
    errors = [0.0]
    for i, a in enumerate(x):
        for j, b in enumerate(y):
            exact = exactly(metric, a, b, more)
            errors.append(float(abs(mpmath.mpf(float(got[i, j])) - exact) / exact))
    return max(errors)


if __name__ == "__main__":
    table.show(peers, cases, worst)
