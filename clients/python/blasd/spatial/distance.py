"""SciPy's own signatures, computed by the service of `blasd.default`: cdist, pdist, squareform."""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays import Array, inputs_of
from ..default import client
from ..named import OPTIONS

__all__ = ["cdist", "pdist", "squareform"]

# SciPy's other names for its metrics, and scikit-learn's
_NAMES = {"chebyshev": "chebychev cheby cheb ch", "cityblock": "cblock cb c manhattan l1", "correlation": "co", "cosine": "cos",
          "euclidean": "euclid eu e l2", "hamming": "matching hamm ha h", "jaccard": "jacc ja j", "jensenshannon": "js",
          "mahalanobis": "mahal mah", "minkowski": "mi m pnorm", "seuclidean": "se s", "sqeuclidean": "sqe sqeuclid sq"}
_SHORT = {short: name for name, others in _NAMES.items() for short in others.split()}


# what a metric takes; the others w alone
_TAKES = {"minkowski": ("p", "w"), "seuclidean": ("V",), "mahalanobis": ("VI",), "jensenshannon": ("base", "w")}


def arguments_of(metric: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """A metric with its options as arguments of `distance`; TypeError for an option that the metric does not have. What `run`
    takes may be among them."""
    if not isinstance(metric, str):
        raise TypeError("metric: give the name of one; the service computes no functions of yours")
    name = _SHORT.get(metric.lower(), metric.lower())
    unknown = set(options) - {*_TAKES.get(name, ("w",)), *OPTIONS}
    if unknown:
        raise TypeError(f"the metric {metric!r} takes no {' and no '.join(sorted(unknown))}")
    return {"metric": name, **{key: value for key, value in options.items() if value is not None}}


def _points(name: str, value: Any) -> Array:
    array = inputs_of({name: value})[name]
    if array.ndim != 2:
        raise ValueError(f"{name} must be a 2-dimensional array.")
    return array


def cdist(XA: Any, XB: Any, metric: str = "euclidean", *, out: Array | None = None, **kwargs: Any) -> Array:
    """As scipy.spatial.distance.cdist: the distance of each row of XA (m, k) to each row of XB (n, k), as (m, n); float32
    where the points are, else float64."""
    a, b = _points("XA", XA), _points("XB", XB)
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"XA and XB must have the same number of columns; they have {a.shape[1]} and {b.shape[1]}.")
    distances: Array = client().distance(a, b, out=out, **arguments_of(metric, kwargs))
    return distances


def pdist(X: Any, metric: str = "euclidean", *, out: Array | None = None, **kwargs: Any) -> Array:
    """As scipy.spatial.distance.pdist: the upper triangle of the distances between the rows of X (m, k), row by row, as
    (m (m - 1) / 2,); float32 where the points are, else float64."""
    distances: Array = client().distance(_points("X", X), out=out, output="condensed", **arguments_of(metric, kwargs))
    return distances


def squareform(X: Any, force: str = "no", checks: bool = True) -> Array:
    """As scipy.spatial.distance.squareform: a condensed vector made a symmetric matrix, or the other way."""
    array = np.ascontiguousarray(X)
    if array.ndim == 1 and force != "tovector":
        size = math.isqrt(2 * array.size) + 1 if array.size else 1
        if size * (size - 1) // 2 != array.size:
            raise ValueError("Incompatible vector size. It must be a binomial coefficient n choose 2 for some integer "
                             "n >= 2.")
        matrix = np.zeros((size, size), array.dtype)
        matrix[np.triu_indices(size, 1)] = array
        both: Array = np.add(matrix, matrix.T)  # of bool: or
        return both
    if array.ndim == 2 and force != "tomatrix":
        if array.shape[0] != array.shape[1]:
            raise ValueError("The matrix argument must be square.")
        if checks and not (np.array_equal(array, array.T) and not array.diagonal().any()):
            raise ValueError("Distance matrix must be symmetric, with zeros on its diagonal.")
        condensed: Array = array[np.triu_indices(array.shape[0], 1)]
        return condensed
    raise ValueError(f"The first argument must be one or two dimensional array. A {array.ndim}-dimensional array is not "
                     "permitted")
