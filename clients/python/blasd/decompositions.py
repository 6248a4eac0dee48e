"""What takes matrices apart, by NumPy's names and signatures: one text for `Client`, `AsyncClient` and `blasd.linalg`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .arrays import Array
from .errors import InputError
from .results import Result


class EighResult(NamedTuple):
    """What numpy.linalg.eigh returns."""

    eigenvalues: Array
    eigenvectors: Array


class SVDResult(NamedTuple):
    """What numpy.linalg.svd returns."""

    U: Array
    S: Array
    Vh: Array


class QRResult(NamedTuple):
    """What numpy.linalg.qr returns."""

    Q: Array
    R: Array


class LstsqResult(NamedTuple):
    """What numpy.linalg.lstsq returns."""

    x: Array
    residuals: Array
    rank: Any
    s: Array


class Named(NamedTuple):
    """A job, and what is made of its Result."""

    op: str
    inputs: dict[str, Any]
    params: dict[str, Any]
    unpack: Callable[[Result], Any]


def _triangle(name: str) -> str:
    if name.upper() not in ("L", "U"):
        raise InputError("params.uplo", f"UPLO must be 'L' or 'U', not {name!r}", "invalid_parameter")
    return "lower" if name.upper() == "L" else "upper"


def _svd_of(result: Result) -> Any:
    return SVDResult(result["U"], result["S"], result["Vh"])


def _qr_of(result: Result) -> Any:
    return QRResult(result["Q"], result["R"]) if "Q" in result else result["R"]


def _lstsq_of(result: Result, rows: int) -> LstsqResult:
    rank, residuals, columns = result["rank"], result["residuals"], result["x"].shape[0]
    if rank.ndim:
        return LstsqResult(result["x"], residuals, rank, result["s"])
    shown = np.atleast_1d(residuals) if int(rank) == columns < rows else np.empty(0, residuals.dtype)
    return LstsqResult(result["x"], shown, int(rank), result["s"])


class Decompositions:
    """The methods; whoever has them runs a Named job with the options of `run`, and gives its value or a coroutine of
    it."""

    def _named(self, job: Named, options: dict[str, Any]) -> Any:
        raise NotImplementedError

    def eigh(self, a: Any, UPLO: str = "L", **options: Any) -> Any:
        """As numpy.linalg.eigh: (eigenvalues, eigenvectors) of symmetric matrices. options: see run."""
        return self._named(Named("eigh", {"a": a}, {"uplo": _triangle(UPLO)},
                                 lambda r: EighResult(r["eigenvalues"], r["eigenvectors"])), options)

    def eigvalsh(self, a: Any, UPLO: str = "L", **options: Any) -> Any:
        """As numpy.linalg.eigvalsh: the eigenvalues of symmetric matrices."""
        return self._named(Named("eigh", {"a": a}, {"uplo": _triangle(UPLO), "vectors": False},
                                 lambda r: r["eigenvalues"]), options)

    def svd(self, a: Any, full_matrices: bool = True, compute_uv: bool = True, **options: Any) -> Any:
        """As numpy.linalg.svd: (U, S, Vh), or S alone."""
        params = {"full_matrices": full_matrices, "compute_uv": compute_uv}
        return self._named(Named("svd", {"a": a}, params, _svd_of if compute_uv else lambda r: r["S"]), options)

    def qr(self, a: Any, mode: str = "reduced", **options: Any) -> Any:
        """As numpy.linalg.qr: (Q, R), or R alone with mode "r"."""
        return self._named(Named("qr", {"a": a}, {"mode": mode}, _qr_of), options)

    def cholesky(self, a: Any, *, upper: bool = False, **options: Any) -> Any:
        """As numpy.linalg.cholesky: the lower factor of positive definite matrices, or the upper one."""
        return self._named(Named("cholesky", {"a": a}, {"upper": upper}, lambda r: r["L"]), options)

    def lstsq(self, a: Any, b: Any, rcond: float | None = None, **options: Any) -> Any:
        """As numpy.linalg.lstsq: (x, residuals, rank, s), x of least norm among those that minimise |b - a x|; for stacks,
        too, where residuals are there whatever the rank."""
        params = {} if rcond is None else {"rcond": np.finfo(np.float64).eps if rcond < 0 else float(rcond)}
        return self._named(Named("lstsq", {"a": a, "b": b}, params, lambda r: _lstsq_of(r, np.shape(a)[-2])), options)
