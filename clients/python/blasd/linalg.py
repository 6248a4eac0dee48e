"""NumPy's own signatures, computed by the service of `blasd.default`. A matrix for which there is no result raises
blasd.NumericalError, which is a numpy.linalg.LinAlgError; in a stack its own result is NaN, with a JobWarning, and the
others are as they should be."""
from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import Array, inputs_of
from .default import client
from .named import EighResult, LstsqResult, QRResult, SVDResult

__all__ = ["EighResult", "LstsqResult", "QRResult", "SVDResult", "cholesky", "eigh", "eigvalsh", "inv", "lstsq", "matmul", "qr",
           "solve", "svd", "svdvals"]


def matmul(x1: Any, x2: Any, /, out: Array | None = None) -> Any:
    """As numpy.matmul: the product of matrices, of stacks of them and of vectors."""
    result = client().matmul(x1, x2, out=out)
    return result if out is not None or result.ndim else result[()]


def solve(a: Any, b: Any) -> Array:
    """As numpy.linalg.solve; numpy.linalg.LinAlgError where a matrix is singular. b is one vector where it has one
    dimension (NumPy 2's rule)."""
    return client().solve(a, b)


def inv(a: Any) -> Array:
    """As numpy.linalg.inv: a matrix or a stack of them. Solve in place of multiplying by it."""
    a = inputs_of({"a": a})["a"]
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise np.linalg.LinAlgError("the last two dimensions of the array must be square")
    dtype = np.float32 if a.dtype in (np.float32, np.complex64) else np.float64
    return solve(a, np.eye(a.shape[-1], dtype=dtype) if a.ndim == 2 else
                 np.broadcast_to(np.eye(a.shape[-1], dtype=dtype), a.shape))


def eigh(a: Any, UPLO: str = "L") -> EighResult:
    """As numpy.linalg.eigh, for real symmetric matrices or stacks of them."""
    return client().eigh(a, UPLO)


def eigvalsh(a: Any, UPLO: str = "L") -> Array:
    """As numpy.linalg.eigvalsh."""
    return client().eigvalsh(a, UPLO)


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> SVDResult | Array:
    """As numpy.linalg.svd; hermitian is there for its signature and changes nothing."""
    return client().svd(a, full_matrices, compute_uv)


def svdvals(x: Any, /) -> Array:
    """As numpy.linalg.svdvals."""
    values = client().svd(x, False, False)
    assert not isinstance(values, SVDResult)
    return values


def qr(a: Any, mode: str = "reduced") -> QRResult | Array:
    """As numpy.linalg.qr, for the modes reduced, complete and r."""
    return client().qr(a, mode)


def cholesky(a: Any, /, *, upper: bool = False) -> Array:
    """As numpy.linalg.cholesky; numpy.linalg.LinAlgError where a matrix is not positive definite."""
    return client().cholesky(a, upper=upper)


def lstsq(a: Any, b: Any, rcond: float | None = None) -> LstsqResult:
    """As numpy.linalg.lstsq: the x of least norm that minimises |b - a x|, the squared residuals (empty where the rank is
    below the columns' number, or there are no more rows than columns), the rank and singular values; for stacks, too."""
    return client().lstsq(a, b, rcond)
