"""NumPy's own signatures, computed by the service of `blasd.default`. A matrix for which there is no result raises
blasd.NumericalError, which is a numpy.linalg.LinAlgError; in a stack its own result is NaN, with a JobWarning, and the
others are as they should be."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .arrays import Array, inputs_of
from .default import client
from .named import EighResult, LstsqResult, QRResult, SVDResult
from .tensors import Tensor

__all__ = [
    "ChoFactor",
    "EighResult",
    "LUFactor",
    "LstsqResult",
    "QRResult",
    "SVDResult",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "det",
    "eigh",
    "eigvalsh",
    "inv",
    "lstsq",
    "lu_factor",
    "lu_solve",
    "matmul",
    "norm",
    "pinv",
    "qr",
    "solve",
    "svd",
    "svdvals",
]
_NoValue: Any = np._NoValue  # type: ignore[attr-defined]  # NumPy's own mark of what was not given


def matmul(x1: Any, x2: Any, /, out: Array | None = None) -> Any:
    """As numpy.matmul: the product of matrices, of stacks of them and of vectors."""
    result = client().matmul(x1, x2, out=out)
    return result if out is not None or result.ndim else result[()]


def solve(a: Any, b: Any) -> Array:
    """As numpy.linalg.solve; numpy.linalg.LinAlgError where a matrix is singular. b is one vector where it has one
    dimension (NumPy 2's rule)."""
    return client().solve(a, b)


class LUFactor(NamedTuple):
    """What lu_factor returns, for lu_solve. lu: a tensor that the service keeps, opaque; piv: None, for the pivots are in it."""

    lu: Tensor
    piv: None = None


class ChoFactor(NamedTuple):
    """What cho_factor returns, for cho_solve. c: a tensor that the service keeps, opaque."""

    c: Tensor
    lower: bool


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> LUFactor:
    """As scipy.linalg.lu_factor, of one square matrix, but that the factors stay at the service, until they have not been used for
    as long as tensors live, or `client().tensors.delete(factors.lu)`. The other arguments change nothing."""
    return LUFactor(client().factor(a, keep="factor").tensors["factor"])


def lu_solve(lu_and_piv: tuple[Tensor, Any], b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True) -> Array:
    """As scipy.linalg.lu_solve: the x of solve(a, b), bit for bit, by the factors of a. With trans 1 or 2 (the transpose of a,
    its conjugate) at the cost of solve itself."""
    if trans not in (0, 1, 2):
        raise ValueError(f"trans is {trans!r}, and must be 0, 1 or 2")
    b = inputs_of({"b": b})["b"]
    x = client().solve(None, b.conj() if trans == 2 else b, lu_and_piv[0], transposed=trans != 0)
    return x.conj() if trans == 2 else x


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> ChoFactor:
    """As scipy.linalg.cho_factor, of one positive definite matrix, of which one triangle is read; the factors stay at the
    service, as those of lu_factor. blasd.NumericalError, a numpy.linalg.LinAlgError, where it is not positive definite."""
    a = inputs_of({"a": a})["a"]
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"the shape of a is {a.shape}: one square matrix is taken")
    half = np.tril(a).conj().T if lower else np.triu(a)
    whole = half + np.triu(half, 1).conj().T
    np.fill_diagonal(whole, whole.diagonal().real)
    return ChoFactor(client().factor(whole, assume_a="positive_definite", keep="factor").tensors["factor"], lower)


def cho_solve(c_and_lower: tuple[Tensor, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Array:
    """As scipy.linalg.cho_solve: the x of a positive definite system, by the factors of its matrix."""
    return client().solve(None, b, c_and_lower[0])


def inv(a: Any) -> Array:
    """As numpy.linalg.inv: a matrix or a stack of them. Use solve instead of multiplying by the inverse."""
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


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = _NoValue) -> Array:
    """As numpy.linalg.pinv: the inverse of a matrix, or of each of a stack, without the singular values of at most rcond times
    the largest; hermitian is there for its signature and changes nothing."""
    a = inputs_of({"a": a})["a"]
    if a.ndim < 2:
        raise np.linalg.LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    if rcond is not None and rtol is not _NoValue:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    *stack, rows, columns = a.shape
    if rcond is None:
        eps = np.finfo(a.dtype if a.dtype.kind == "f" else np.float64).eps
        rcond = 1e-15 if rtol is _NoValue else max(rows, columns) * eps if rtol is None else rtol
    if a.size == 0:
        return np.empty((*stack, columns, rows), a.dtype)
    parts = client().svd(a, False)
    assert isinstance(parts, SVDResult)
    U, S, Vh = parts
    kept = np.asarray(rcond)[..., None] * S.max(axis=-1, keepdims=True) < S
    inverse = np.divide(1, S, where=kept, out=np.zeros_like(S))
    return client().matmul(inverse[..., None] * Vh, U, transpose_a=True, transpose_b=True)


def det(a: Any) -> Any:
    """As numpy.linalg.det, and by it: no operation gives a determinant, and its LU costs no more than to send the matrix."""
    return np.linalg.det(inputs_of({"a": a})["a"])


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """As numpy.linalg.norm. What singular values make, the matrix norms 2, -2 and "nuc", the service computes; what is a sum or
    a maximum of the elements NumPy does."""
    x = inputs_of({"x": x})["x"]
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if len(axes) != 2 or ord not in (2, -2, "nuc") or axes[0] % x.ndim == axes[1] % x.ndim or 0 in x.shape:
        return np.linalg.norm(x, ord, axis, keepdims)
    values = svdvals(np.moveaxis(x, axes, (-2, -1)))
    found = values.max(axis=-1) if ord == 2 else values.min(axis=-1) if ord == -2 else values.sum(axis=-1)
    return np.expand_dims(found, tuple(sorted(one % x.ndim for one in axes))) if keepdims else found[()]
