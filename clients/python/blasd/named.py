"""Conversions of arguments and results for operations.py: NumPy's names in, NumPy's shapes out."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from .arrays import Array, inputs_of
from .errors import InputError
from .groups import Grouping
from .results import Result
from .tensors import Reference

if TYPE_CHECKING:
    from .calls import Labels, Progress


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


Words = dict[str, Any]



class Options(TypedDict, total=False):
    """Arguments of `run` other than inputs and parameters, which every method passes on."""

    timeout: float | None
    progress: bool | Progress
    priority: str | None
    deadline_ms: int | None
    device: str | None
    idempotency_key: str | None
    labels: Labels | None
    notify: str | None
    out: Array | Mapping[str, Array] | None
    keep: str | Iterable[str]
    results: str | Iterable[str] | None
    digest: bool


OPTIONS = tuple(Options.__annotations__)


class Named(NamedTuple):
    """A job: what to call `run` with."""

    inputs: Words
    params: Words
    options: Words
    grouping: Grouping | None = None  # of a regression with labels


def job_of(op: str, inputs: Words, params: Words, given: Mapping[str, Any]) -> Named:
    """given: options, and parameters that this client does not know."""
    params = {**params, **{name: value for name, value in given.items() if name not in OPTIONS}}
    if op in _BEFORE:
        inputs, params = _BEFORE[op](inputs, params)
    by = params.pop("by", None) if op == "regression" else None
    grouping = None if by is None else Grouping(by)
    inputs = inputs if grouping is None else grouping.inputs(inputs)
    return Named(inputs, params, {name: value for name, value in given.items() if name in OPTIONS}, grouping)


def value_of(op: str, result: Result, job: Named) -> Any:
    """The return value of the method; the Result if the call says which outputs are sent or kept."""
    if job.grouping is not None:
        return job.grouping.given_order(result)
    if not {"keep", "results"}.isdisjoint(job.options):
        return result
    return _AFTER[op](result, job) if op in _AFTER else result


# --- before ---------------------------------------------------------------------------------------------------------------


def _flipped(value: Any) -> Array | None:
    """The transpose of a large matrix in Fortran order, which needs no copy and lies in the wire's order; else None."""
    if type(value) is np.ndarray and value.ndim == 2 and value.nbytes > 1 << 16 and value.flags.f_contiguous and \
            not value.flags.c_contiguous:
        return value.T
    return None


def _flip(inputs: Words, params: Words, name: str, param: str) -> tuple[Words, Words]:
    flipped = _flipped(inputs.get(name))
    if flipped is None:
        return inputs, params
    return {**inputs, name: flipped}, {**params, param: not params.get(param, False)}


def _matmul(inputs: Words, params: Words) -> tuple[Words, Words]:
    return _flip(*_flip(inputs, params, "a", "transpose_a"), "b", "transpose_b")


def _solve(inputs: Words, params: Words) -> tuple[Words, Words]:
    return _flip(inputs, params, "a", "transposed") if params.get("assume_a", "general") == "general" else (inputs, params)


def _eigh(inputs: Words, params: Words) -> tuple[Words, Words]:
    letter = params.pop("UPLO", None)
    if letter is None:
        return inputs, params
    if not isinstance(letter, str) or letter.upper() not in ("L", "U"):
        raise InputError("params.uplo", f"UPLO must be 'L' or 'U', not {letter!r}", "invalid_parameter")
    return inputs, {**params, "uplo": "lower" if letter.upper() == "L" else "upper"}


def _lstsq(inputs: Words, params: Words) -> tuple[Words, Words]:
    if params.get("rcond", 0) < 0:  # NumPy's word for the precision of the machine: LAPACK's of float64, whatever a is of
        params = {**params, "rcond": 2.0**-53}
    return inputs, params


_BEFORE: dict[str, Callable[[Words, Words], tuple[Words, Words]]] = {
    "matmul": _matmul, "solve": _solve, "eigh": _eigh, "lstsq": _lstsq}

# --- after ----------------------------------------------------------------------------------------------------------------


def _rows(inputs: Words) -> float:
    """Of a or, where only the service knows it, of b; of neither: taken for more than there are columns."""
    for name in ("a", "b"):
        value = inputs[name]
        if isinstance(value, Reference) and not hasattr(value, "shape"):
            continue
        shape = value.shape if hasattr(value, "shape") else inputs_of({name: value})[name].shape
        return int(shape[-2] if len(shape) > 1 else shape[0])
    return math.inf


def _lstsq_of(result: Result, job: Named) -> LstsqResult:
    rank, residuals, columns = result["rank"], result["residuals"], result["x"].shape[0]
    if rank.ndim:
        return LstsqResult(result["x"], residuals, rank, result["s"])
    shown = np.atleast_1d(residuals) if int(rank) == columns < _rows(job.inputs) else np.empty(0, residuals.dtype)
    return LstsqResult(result["x"], shown, int(rank), result["s"])


_AFTER: dict[str, Callable[[Result, Named], Any]] = {
    "matmul": lambda r, _: r["c"],
    "solve": lambda r, _: r["x"],
    "distance": lambda r, _: r if "index" in r else r["d"],
    "eigh": lambda r, _: EighResult(r["eigenvalues"], r["eigenvectors"]) if "eigenvectors" in r else r["eigenvalues"],
    "svd": lambda r, _: SVDResult(r["U"], r["S"], r["Vh"]) if "U" in r else r["S"],
    "qr": lambda r, _: QRResult(r["Q"], r["R"]) if "Q" in r else r["R"],
    "cholesky": lambda r, _: r["L"],
    "lstsq": _lstsq_of,
}
