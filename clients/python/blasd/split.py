"""One large job over many workers: its blocks are jobs on slices of stored tensors."""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Union

import numpy as np

from .arrays import Array, inputs_of
from .errors import InputError
from .named import OPTIONS
from .operations import INPUTS
from .results import Result
from .tensors import Tensor, split

Place = Union[Array, str, "os.PathLike[str]", None]


class _Cut(NamedTuple):
    """How an operation is cut: its inputs by the dimension that the blocks are slices of, and the output's."""

    inputs: Mapping[str, int]
    output: str
    axis: int


def _cut(op: str, params: Mapping[str, Any]) -> _Cut:
    if op == "matmul":
        return _Cut({"a": 1 if params.get("transpose_a") else 0, "c": 0}, "c", 0)
    if op == "solve":
        return _Cut({"b": 1}, "x", 1)
    if op != "distance":
        raise InputError("op", f"{op!r} is not among distance, matmul, solve: of others a block needs the whole", "invalid_field")
    if params.get("output", "full") != "full":
        raise InputError("params.output", f"{params['output']!r} is not made of blocks; 'full' is", "invalid_parameter")
    return _Cut({"x": 0}, "d", 0)


class Split:
    """The blocks of one job. `arrays` are to be stored first; `jobs` gives a block each, whose Results are placed in order."""

    def __init__(self, op: str, rows: int | None, workers: int, out: Place, given: Mapping[str, Any]) -> None:
        inputs = {name: given[name] for name in INPUTS.get(op, ()) if given.get(name) is not None}
        self.options = {name: value for name, value in given.items() if name in OPTIONS}
        self.params = {name: value for name, value in given.items() if name not in inputs and name not in OPTIONS and value is not None}
        self.op, self._cut, self._place = op, _cut(op, self.params), out
        for name in {"out", "keep", "results"} & set(self.options):
            raise InputError(name, "a job in blocks has one output, in one array", "invalid_field")
        first = next(iter(self._cut.inputs))
        if first not in inputs:
            raise InputError(f"inputs.{first}", "it is what the blocks are cut of", "invalid_field")
        if op == "distance":
            _check_metric(self.params, inputs)
            inputs.setdefault("y", inputs["x"])
        sent, self._kept = split(inputs)
        self.arrays = inputs_of({name: value for name, value in sent.items() if name == first or value is not inputs[first]})
        self._same = [name for name, value in sent.items() if name != first and value is inputs[first]]
        self.total = _lengths(first, self.arrays.get(first, self._kept.get(first)))[self._cut.inputs[first]]
        if rows is not None and rows < 1:
            raise ValueError(f"rows must be at least 1, not {rows!r}")
        self.rows = rows or max(1, -(-self.total // (4 * max(1, workers))))
        self._first = first
        self.out: Any = None
        self._at = 0

    def _is_cut(self, name: str, inputs: Mapping[str, Any]) -> bool:
        """The first input is, and a c of matmul that has a row for each of the product's; another one broadcasts over them."""
        if name == self._first or name not in inputs:
            return name in inputs
        lengths: tuple[int, ...] = getattr(inputs[name], "shape", ())
        return len(lengths) == len(getattr(inputs["b"], "shape", (0, 0))) and lengths[:1] == (self.total,)

    def jobs(self, stored: Mapping[str, Tensor]) -> Iterator[dict[str, Any]]:
        """What `run` is to be given for each block."""
        inputs = {**self._kept, **stored, **dict.fromkeys(self._same, stored.get(self._first))}
        for at in range(0, max(self.total, 1), self.rows):
            block = dict(inputs)
            for name, axis in self._cut.inputs.items():
                if self._is_cut(name, inputs):
                    block[name] = block[name][(slice(None),) * axis + (slice(at, min(at + self.rows, self.total)),)]
            yield {**block, "params": self.params, "results": [self._cut.output]}

    def place(self, result: Result) -> None:
        """Writes the next block where it belongs; makes that place with the first one."""
        block = result[self._cut.output]
        axis = self._cut.axis
        if self.out is None:
            self.out = self._made((*block.shape[:axis], self.total, *block.shape[axis + 1:]), block.dtype)
        end = self._at + block.shape[axis]
        self.out[(slice(None),) * axis + (slice(self._at, end),)] = block
        self._at = end

    def _made(self, shape: tuple[int, ...], dtype: Any) -> Array:
        place = self._place
        if place is None:
            return np.empty(shape, dtype)
        if not isinstance(place, np.ndarray):
            made: Array = np.lib.format.open_memmap(os.fspath(place), "w+", dtype, shape)  # type: ignore[no-untyped-call]
            return made
        if place.shape != shape or not np.can_cast(dtype, place.dtype, "same_kind"):
            raise InputError("out", f"it has shape {place.shape} and dtype {place.dtype}, the result has {shape} and {dtype}", "invalid_field")
        return place


def _check_metric(params: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    needed = {"seuclidean": "V", "mahalanobis": "VI"}.get(params.get("metric", ""))
    if needed is not None and needed not in inputs:
        raise InputError(f"inputs.{needed}", f"give it: {params['metric']} would take that of each block", "invalid_field")


def _lengths(name: str, value: Any) -> tuple[int, ...]:
    lengths = value.shape if isinstance(value, (np.ndarray, Tensor)) else ()
    if len(lengths) != 2:
        raise InputError(f"inputs.{name}", "a block is cut of a matrix: give an array or a Tensor of two dimensions", "invalid_shape")
    return tuple(lengths)
