"""Many fits in one request: rows by the labels of their groups, and frames."""
from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import Array, columns_of, inputs_of
from .errors import InputError
from .results import RegressionResult, Result
from .tensors import Reference

if TYPE_CHECKING:
    from .client import Client

_MISSING = float("nan")  # one label for all that are not equal to themselves


class Grouping:
    """Rows in the order of their groups, the groups in the order in which `by` names them first."""

    def __init__(self, by: Any) -> None:
        labels, starts = _runs(by)
        self.count = len(labels) if starts is None else int(starts[-1])
        numbers: dict[Hashable, int] = {}
        try:
            codes = np.fromiter((numbers.setdefault(label if label == label else _MISSING, len(numbers)) for label in labels),
                                np.int64, len(labels))
        except TypeError as error:
            raise InputError("by", f"labels must be hashable: {error}", "invalid_field") from error
        if starts is not None:
            codes = np.repeat(codes, np.diff(starts))
        self.labels = list(numbers)
        self.splits = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(numbers)))]).astype(np.int64)
        # NumPy sorts 16 bits by counting, and the codes of rows that are in order already are left alone
        few: Array = codes.astype(np.uint16) if len(numbers) < 1 << 16 else codes
        self.order = None if (np.diff(codes) >= 0).all() else np.argsort(few, kind="stable")

    def inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs with their rows in order."""
        for name, value in inputs.items():
            if isinstance(value, Reference):
                raise InputError(f"inputs.{name}", "by sorts rows, so their values must be local: give an array, or row_splits instead of by", "invalid_field")
        arrays = inputs_of(inputs)
        for name, array in arrays.items():
            if array.ndim == 0 or len(array) != self.count:
                raise InputError("by", f"there are {self.count} labels where {name} has shape {array.shape}", "invalid_field")
        ordered = {name: array if self.order is None else array[self.order] for name, array in arrays.items()}
        return {**ordered, "row_splits": self.splits}

    def given_order(self, result: Result) -> Result:
        """The result with the labels, and with its outputs per row if rows were sorted."""
        for name in ("residuals", "fitted") if self.order is not None else ():
            if name in result:
                there = np.empty_like(result[name])
                there[self.order] = result[name]
                result[name] = there
        if isinstance(result, RegressionResult):
            result.groups = self.labels
        return result


def _runs(by: Any) -> tuple[list[Any], Array | None]:
    """The labels; of an array that has a type, one for each run of equal ones, and where these begin and end."""
    if not isinstance(by, (list, tuple)) and hasattr(by, "__array__"):
        by = np.asarray(by)
        if by.ndim != 1:
            raise InputError("by", f"labels have one dimension, not shape {by.shape}", "invalid_field")
        if by.dtype != object and len(by) > 0:
            starts = np.concatenate([[0], np.flatnonzero(by[1:] != by[:-1]) + 1, [len(by)]])
            first = by[starts[:-1]]
            return (list(first) if by.dtype.kind in "mM" else first.tolist()), starts
    if isinstance(by, str) or not isinstance(by, Iterable):
        raise InputError("by", f"it takes a label for each row, not {by!r}", "invalid_field")
    return list(by), None


def groupby(frame: Any, by: str | list[str], y: str, x: str | list[str], *, sample_weight: str | None = None,
            missing: str = "none", client: Client | None = None, **options: Any) -> Any:
    """One regression for each group of rows of a frame, all in one request; a frame of the same library with a row for each.

    by, y, x, sample_weight: names of columns. missing: "drop" leaves rows out in which a value is missing; "none": a group
    that has one has no fit, and info -2. options: as client.regression takes them; client: default: that of set_client.
    Columns: those of `by`, coef_NAME of the intercept and each feature and, of ols, stderr_NAME, t_NAME and p_NAME; r2, n (rows)
    and info. Groups come in the order of their first rows.
    """
    keys: list[str] = [by] if isinstance(by, str) else list(by)
    features: list[str] = [x] if isinstance(x, str) else list(x)
    _check_columns(frame, keys + features + [y] + ([] if sample_weight is None else [sample_weight]))
    values = {"x": np.column_stack([_numbers(frame, name) for name in features]) if features else np.empty((len(frame), 0)),
              "y": _numbers(frame, y)}
    if sample_weight is not None:
        values["sample_weight"] = _numbers(frame, sample_weight)
    labels = [np.asarray(frame[name]) for name in keys]
    if missing == "drop":
        whole = np.isfinite(np.column_stack([values["x"], *[value for name, value in values.items() if name != "x"]])).all(1)
        values, labels = {name: value[whole] for name, value in values.items()}, [column[whole] for column in labels]
    elif missing != "none":
        raise InputError("missing", f"'none' or 'drop', not {missing!r}", "invalid_field")
    one = labels[0] if len(keys) == 1 else list(zip(*(column.tolist() for column in labels)))
    if client is None:
        from .default import client as default_client  # which imports this module

        client = default_client()
    fit = client.regression(values["x"], values["y"], values.get("sample_weight"), by=one, **options)
    return type(frame)(_table(fit, keys, features, one))


def _check_columns(frame: Any, names: list[str]) -> None:
    there = columns_of(frame)
    if there is None:
        raise InputError("frame", f"a frame of pandas or polars, not {type(frame).__name__}", "invalid_field")
    for name in names:
        if name not in there:
            raise InputError("frame", f"it has no column {name!r}", "invalid_field")


def _numbers(frame: Any, name: str) -> Array:
    """A column as float64, missing values as NaN."""
    try:
        column = frame[name].to_numpy()
        return np.array([math.nan if value is None or value != value else value for value in column], np.float64) \
            if column.dtype == object else np.asarray(column, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("frame", f"column {name!r} is not of numbers: {error}", "unsupported_dtype") from error


def _table(fit: Result, keys: list[str], features: list[str], by: Any) -> dict[str, Any]:
    groups = fit.groups if isinstance(fit, RegressionResult) and fit.groups is not None else []
    columns: dict[str, Any] = dict(zip(keys, zip(*groups))) if len(keys) > 1 and groups else {keys[0]: groups}
    columns = {name: list(column) for name, column in columns.items()}
    columns["coef_intercept"] = fit["intercept"]
    for i, name in enumerate(features):
        columns[f"coef_{name}"] = fit["coef"][:, i]
    inner = len(features) - (fit["stderr"].shape[1] if "stderr" in fit else 0)  # -1: the intercept's come first
    for output, short in (("stderr", "stderr"), ("tvalues", "t"), ("pvalues", "p")):
        for i, name in enumerate(["intercept", *features] if inner < 0 else features):
            if output in fit:
                columns[f"{short}_{name}"] = fit[output][:, i]
    return {**columns, "r2": fit["r2"], "n": np.diff(Grouping(by).splits), "info": fit["info"]}
