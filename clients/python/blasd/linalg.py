"""NumPy's own signatures, computed by the service of `blasd.default`: matmul, solve, inv, lstsq."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .arrays import Array
from .default import client

__all__ = ["LstsqResult", "inv", "lstsq", "matmul", "solve"]


def matmul(x1: Any, x2: Any, /, out: Array | None = None) -> Any:
    """As numpy.matmul: the product of matrices, of stacks of them and of vectors."""
    result = client().matmul(x1, x2, out=out)
    return result if out is not None or result.ndim else result[()]


def solve(a: Any, b: Any) -> Array:
    """As numpy.linalg.solve; numpy.linalg.LinAlgError where a matrix is singular. b is one vector where it has one
    dimension (NumPy 2's rule)."""
    from .errors import SingularMatrix
    try:
        return client().solve(a, b)
    except SingularMatrix as error:
        raise np.linalg.LinAlgError(str(error)) from error


def inv(a: Any) -> Array:
    """As numpy.linalg.inv: a matrix or a stack of them. Solve in place of multiplying by it."""
    a = np.asarray(a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise np.linalg.LinAlgError("the last two dimensions of the array must be square")
    dtype = np.float32 if a.dtype in (np.float32, np.complex64) else np.float64
    return solve(a, np.eye(a.shape[-1], dtype=dtype) if a.ndim == 2 else
                 np.broadcast_to(np.eye(a.shape[-1], dtype=dtype), a.shape))


class LstsqResult(NamedTuple):
    """What numpy.linalg.lstsq returns."""

    x: Array
    residuals: Array
    rank: int
    s: Array


def lstsq(a: Any, b: Any) -> LstsqResult:
    """As numpy.linalg.lstsq, for one matrix: the x of least norm that minimises |b - a x|, the squared residuals (empty
    where the rank is below the columns' number, or there are no more rows than columns), the rank and singular values.
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim != 2 or b.ndim not in (1, 2):
        raise np.linalg.LinAlgError("a must have two dimensions, b one or two")
    fit = client().regression(a, b, fit_intercept=False)
    coef, ssr, rank = fit["coef"], np.atleast_1d(fit["ssr"]), int(fit["rank"])
    if b.ndim == 2:
        coef = np.ascontiguousarray(coef.T)
    if rank < a.shape[1] or a.shape[0] <= a.shape[1]:
        ssr = np.empty(0)
    return LstsqResult(coef, ssr, rank, fit["singular_values"])
