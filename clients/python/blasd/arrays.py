"""What may be given as an input: what NumPy makes an array of numbers of without a change of value.

What would change on the way (masks, missing values) or is out of reach (sparse matrices, a GPU's memory) is refused by
name, with what to do instead.
"""
from __future__ import annotations

import contextvars
import sys
import types
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .errors import InputError

Array = np.ndarray[Any, Any]


class JobWarning(UserWarning):
    """A warning of the service about a result (`Result.warnings`), or of the client about an input."""


# where set, warnings are kept in it: of a job in flight in another thread than that of whoever takes its result
kept_warnings: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("kept_warnings", default=None)


def warn(text: str) -> None:
    """Warns at the line that called into this package."""
    kept = kept_warnings.get()
    if kept is not None:
        kept.append(text)
        return
    level = 1
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and (frame.f_globals.get("__package__") or "").partition(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, JobWarning, level)


def inputs_of(values: Mapping[str, Any]) -> dict[str, Array]:
    """The inputs as arrays by name; a plain array is the same object."""
    return {name: _array(name, value) for name, value in values.items()}


def _array(name: str, value: Any, where: str = "") -> Array:
    """`where`: which part of the input it is, in words."""
    if type(value) is np.ndarray and value.dtype != object:
        return value
    try:
        array = np.asarray(_plain(name, value, where))
    except InputError:
        raise
    except Exception as error:  # whatever an object's own __array__ raises
        raise InputError(f"inputs.{name}", f"NumPy makes no array of the {type(value).__name__}{where}: {error}") from error
    if array.dtype == object:
        _refuse_missing(name, sum(map(_is_missing, array.flat)), where)
        raise InputError(f"inputs.{name}", f"NumPy makes no array of numbers of the {type(value).__name__}{where}, but one of dtype "
                       "object; give numbers of one dtype, e.g. with astype(float)")
    if isinstance(value, (list, tuple)):
        _look_for_rounding(name, array, value)
    return array


_NUMBERS = {int, float, bool, np.float64, np.float32, np.int64, np.int32, np.bool_}


def _plain(name: str, value: Any, where: str) -> Any:
    """The same in a form that np.asarray converts exactly, or the refusal."""
    if isinstance(value, (list, tuple)):
        if set(map(type, value)) <= _NUMBERS:
            return value
        return [_plain(name, item, where) for item in value]
    kind = type(value)
    pandas = sys.modules.get("pandas")
    if isinstance(value, np.ma.MaskedArray):
        masked = int(np.count_nonzero(np.ma.getmaskarray(value)))  # type: ignore[no-untyped-call]
        if masked:
            raise InputError(f"inputs.{name}", f"{masked} masked element{'s' if masked > 1 else ''}{where}; give them values "
                           "(.filled) or leave them out (.compressed) first")
        return value.data
    if pandas is not None and isinstance(value, pandas.DataFrame):
        kinds = set(value.dtypes)
        if len(kinds) > 1 or any(not isinstance(kind, np.dtype) for kind in kinds):
            return _table(name, zip(value.columns, (value.iloc[:, i] for i in range(value.shape[1]))))
    elif pandas is not None and isinstance(getattr(value, "dtype", None), pandas.api.extensions.ExtensionDtype):
        _refuse_missing(name, int(np.count_nonzero(value.isna())), where)
        return value.to_numpy(getattr(value.dtype, "numpy_dtype", None))
    elif hasattr(value, "get_columns"):  # polars
        return _table(name, ((column.name, column) for column in value.get_columns()))
    elif hasattr(value, "column_names") and hasattr(value, "columns"):  # Arrow
        return _table(name, zip(value.column_names, value.columns))
    elif hasattr(value, "null_count"):  # a column of either
        count = value.null_count
        _refuse_missing(name, int(count() if callable(count) else count), where)
    elif hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        pass
    elif hasattr(value, "toarray") or hasattr(value, "todense"):
        raise InputError(f"inputs.{name}", f"a sparse matrix ({kind.__name__}){where}; send it dense: .toarray()")
    elif hasattr(value, "__cuda_array_interface__"):
        raise InputError(f"inputs.{name}", f"the {kind.__name__}{where} lies in a GPU's memory; copy it to the host first")
    elif hasattr(value, "__dlpack__"):
        if value.__dlpack_device__()[0] not in (1, 3):  # the host's memory, also page-locked
            raise InputError(f"inputs.{name}", f"the {kind.__name__}{where} lies in a device's memory; copy it to the host first")
        return np.from_dlpack(value)
    return value


def columns_of(value: Any) -> list[str] | None:
    """The names of a frame's columns, of pandas, polars or Arrow; None of any other input."""
    names = getattr(value, "column_names", None)
    if names is None and hasattr(value, "columns") and getattr(value, "ndim", 2) == 2:
        names = value.columns
    return None if names is None else [str(name) for name in names]


def _table(name: str, columns: Iterable[tuple[Any, Any]]) -> Array:
    arrays = [_array(name, column, f" in column {label!r}") for label, column in columns]
    table = np.column_stack(arrays)
    _look_for_rounding(name, table, arrays)
    return table


def _refuse_missing(name: str, count: int, where: str) -> None:
    if count:
        raise InputError(f"inputs.{name}", f"{count} missing value{'s' if count > 1 else ''}{where}; fill them in or leave them out "
                       "first (pandas: fillna, dropna)")


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)  # NaN and NaT are not equal to themselves
    except Exception:  # pandas.NA has no truth; an array has too many
        return type(value).__name__ == "NAType"


def _look_for_rounding(name: str, array: Array, parts: Any) -> None:
    """Warns if NumPy converted integers to floats and rounded some."""
    if array.dtype.kind == "f" and (np.abs(array) >= 2.0**53).any() and _too_long(parts):
        warn(f"{name}: integers beyond 2^53 were rounded where NumPy made {array.dtype} of them")


def _too_long(value: Any) -> bool:
    """Whether it has integers that float64 cannot hold."""
    if isinstance(value, (list, tuple)):
        return any(_too_long(item) for item in value if type(item) is not float)
    if isinstance(value, (int, np.integer)):
        return abs(int(value)) > 2**53 and int(float(value)) != value
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.dtype.itemsize < 8:
        return False
    return any(_too_long(item) for item in value[(value > 2**53) | (value < -2**53)].tolist())
