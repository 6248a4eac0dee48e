"""Exceptions: `Error` and its subclasses. Each has the service's title, detail and advice."""
from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import copyreg
from typing import Any

import numpy as np


class Error(Exception):
    """Something went wrong, in the service's words: a problem document, or a job that failed.

    Making one gives the kind that its code belongs to: `except blasd.QueueFull` and the like.

    code: stable name, e.g. "shape_mismatch"; "connection_failed" and "timeout" are the client's own.
    status: HTTP status, 0 where there was no answer. field: the member at fault, or "".
    detail, advice: text for people. retry: whether the same request may succeed later.
    retry_after: seconds after which the service expects it to. job: the job document where there is one.
    least: what the parameter that `field` names has to be at the least, where the service tells it; else None.
    """

    codes: frozenset[str] = frozenset()
    statuses: frozenset[int] = frozenset()

    def __new__(cls, code: str = "", *rest: Any, **more: Any) -> Any:
        kind = _kind(code, more.get("status", 0)) if cls is Error else cls
        if kind is not cls:
            return kind.__new__(kind, code, *rest)
        made = super().__new__(cls)  # without arguments, for Python's own kinds of OSError make an errno of them
        made.args = (code, *rest)
        return made

    def __init__(self, code: str, detail: str, *, status: int = 0, field: str = "", title: str = "", advice: str = "",
                 retry: bool = False, retry_after: float | None = None, job: dict[str, Any] | None = None,
                 least: int | None = None) -> None:
        self.args = (": ".join(part for part in (field, title, detail) if part) + (f". {advice}" if advice else ""),)
        self.code, self.status, self.field, self.detail = code, status, field, detail
        self.title, self.advice, self.retry, self.retry_after, self.job = title, advice, retry, retry_after, job
        self.least = least

    def __reduce__(self) -> Any:  # its text and its attributes: what __init__ takes is not what made it
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]

    @classmethod
    def from_problem(cls, problem: dict[str, Any], retry_after: float | None = None,
                     job: dict[str, Any] | None = None) -> Error:
        """Of a problem document (RFC 9457) or a job's `error`."""
        return cls(problem.get("code", "bad_answer"), problem.get("detail", ""), status=problem.get("status", 0),
                   field=problem.get("field", ""), title=problem.get("title", ""), advice=problem.get("advice", ""),
                   retry=problem.get("retry", False), retry_after=retry_after, job=job,
                   least=problem.get("least"))


class ConnectionError(Error, builtins.ConnectionError):
    """The service did not answer: the connection was refused or lost. Also a ConnectionError."""

    codes = frozenset({"connection_failed"})


# one class from Python 3.11 on
_TIMES = dict.fromkeys((TimeoutError, concurrent.futures.TimeoutError, asyncio.TimeoutError))


class Timeout(Error, *_TIMES):  # type: ignore[misc]
    """The time given for it was over. Python's TimeoutError, too, as of any future."""

    codes = frozenset({"timeout", "deadline_exceeded", "request_timeout"})


class Unavailable(Error):
    """The service cannot take or end the job at present; later it may."""

    statuses = frozenset({429, 503})


class QueueFull(Unavailable):
    """There are as many jobs or results as the service keeps; `retry_after` says when to come back."""

    codes = frozenset({"queue_full", "results_full"})


class InvalidInput(Error, ValueError):
    """The request is wrong: `field` says where, `advice` what to do. Python's ValueError, too."""

    codes = frozenset({"method_not_allowed", "not_acceptable", "headers_too_large"})
    statuses = frozenset({400, 413, 415, 422})


class NumericalError(Error, np.linalg.LinAlgError):
    """The job could not be computed for what its numbers are. NumPy's LinAlgError, too."""

    codes = frozenset({"not_converged"})


class SingularMatrix(NumericalError):
    """A matrix that has no inverse."""

    codes = frozenset({"singular_matrix"})


class NotPositiveDefinite(NumericalError):
    """A matrix that was said to be positive definite is not."""

    codes = frozenset({"not_positive_definite"})


class NotFound(Error):
    """The job, output or path does not exist, or has expired."""

    statuses = frozenset({404, 410})


class Forbidden(Error):
    """The service does not let this client do that: no key, or one that may not."""

    statuses = frozenset({401, 403})


class Conflict(Error):
    """The job is not in a state for that, or its idempotency key was used for another one."""

    codes = frozenset({"idempotency_conflict"})
    statuses = frozenset({409})


class Cancelled(Error, concurrent.futures.CancelledError):
    """The job was cancelled. concurrent.futures' CancelledError, too."""

    codes = frozenset({"cancelled"})


class JobFailed(Error):
    """The job failed, and not for its numbers: a device or the service gave up."""

    codes = frozenset({"poisoned", "inputs_lost", "device_error", "out_of_memory", "job_too_long"})


class InputError(InvalidInput, TypeError):
    """An input that cannot be sent without a change, found before anything was sent."""

    def __init__(self, field: str, detail: str, code: str = "invalid_tensor", words: tuple[str, str] | None = None) -> None:
        title, advice = _WORDS.get(code, ("", "")) if words is None else words
        super().__init__(code, detail, status=422, field=field, title=title, advice=advice)


# the service's own, as GET /errors and docs/errors.md have them
_WORDS = {
    "shape_mismatch": ("Shapes of the inputs do not match", "See GET /ops for the shapes of each input."),
    "invalid_shape": ("Invalid number of dimensions or length", "See GET /ops for the shapes of each input."),
    "unsupported_dtype": ("Unsupported dtype", "See GET /ops for the dtypes of each input."),
    "invalid_parameter": ("Invalid value of a parameter", "See GET /ops for its type and range."),
}

_KINDS = (ConnectionError, Timeout, QueueFull, Unavailable, InvalidInput, NumericalError, SingularMatrix,
          NotPositiveDefinite, NotFound, Forbidden, Conflict, Cancelled, JobFailed)
_BY_CODE: dict[str, type[Error]] = {code: kind for kind in _KINDS for code in kind.codes}
_BY_STATUS: dict[int, type[Error]] = {status: kind for kind in _KINDS for status in kind.statuses}


def _kind(code: str, status: int) -> type[Error]:
    return _BY_CODE.get(code) or _BY_STATUS.get(status) or Error
