"""Shapes and dtypes that cannot fit, found before anything is sent; in the service's words, which checks them all the same."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from .errors import InputError
from .operations import PORTS
from .safetensors import code

Shape = tuple[int, ...]


class Input(Protocol):
    """An array, or a rule that makes one."""

    dtype: Any

    @property
    def shape(self) -> Shape: ...


Arrays = Mapping[str, Input]
Params = Mapping[str, Any]
_MOST = 8  # dimensions of any tensor
_NOT_WELL_FORMED = ("Invalid tensor", "Send nested lists of equal lengths, or dtype, shape and data that agree.")


def check_shapes(op: str, arrays: Arrays, params: Params) -> None:
    """Raises InputError for what the operation could only refuse. What it does not know it lets pass; `arrays` are those
    inputs whose shapes are known here."""
    for name, array in arrays.items():
        code(name, array.dtype)
        if name not in PORTS.get(op, ()):
            continue
        text, least, most, dtypes = PORTS[op][name]
        if array.dtype.name not in dtypes:
            _refuse(name, f"{array.dtype.name} is not among {', '.join(dtypes)}", "unsupported_dtype")
        rank = len(array.shape)
        if rank > _MOST:
            raise InputError(f"inputs.{name}", f"its shape has more than {_MOST} lengths", words=_NOT_WELL_FORMED)
        if not least <= rank <= most:
            _refuse(name, f"its shape is {array.shape}, of {rank} dimensions; {text} has {least} to {most}", "invalid_shape")
    check = _CHECKS.get(op)
    if check is not None:
        check({name: tuple(array.shape) for name, array in arrays.items()}, params)


def output_shape(op: str, arrays: Arrays, params: Params) -> Shape | None:
    """The shape of the first output, of inputs that fit; None where it depends on more than their shapes, as far as is known here."""
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if op == "matmul" and {"a", "b"} <= shapes.keys():
        return _product(shapes, params)
    if op == "solve" and {"a", "b"} <= shapes.keys():
        a, b = shapes["a"], shapes["b"]
        return (*a[:-2], a[-1]) if len(b) == 1 else (*(_joined(a[:-2], b[:-2]) or ()), *b[-2:])
    if op == "cholesky" and "a" in shapes:
        return shapes["a"]
    return None


def _refuse(field: str, detail: str, code: str = "shape_mismatch") -> None:
    raise InputError(f"inputs.{field}", detail, code)


def _joined(*shapes: Shape) -> Shape | None:
    """Leading dimensions as they broadcast; None where they do not."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        return None


def _square(shapes: Mapping[str, Shape], params: Params) -> None:
    if "a" in shapes and shapes["a"][-1] != shapes["a"][-2]:
        _refuse("a", f"the matrices of a must be square; its shape is {shapes['a']}", "invalid_shape")


def _product(shapes: Mapping[str, Shape], params: Params) -> Shape:
    a, b = shapes["a"], shapes["b"]
    flip_a, flip_b = bool(params.get("transpose_a")) and len(a) > 1, bool(params.get("transpose_b")) and len(b) > 1
    inner_a = a[-2 if flip_a else -1]
    inner_b = b[-1 if flip_b or len(b) == 1 else -2]
    if inner_a != inner_b:
        _refuse("b", f"a {a}{' transposed' if flip_a else ''} has rows of {inner_a}, "
                     f"b {b}{' transposed' if flip_b else ''} has columns of {inner_b}")
    batch = _joined(a[:-2], b[:-2])
    if batch is None:
        _refuse("b", f"the batch dimensions of a {a} and b {b} do not broadcast")
    rows = (a[-1 if flip_a else -2],) if len(a) > 1 else ()
    columns = (b[-2 if flip_b else -1],) if len(b) > 1 else ()
    return (*(batch or ()), *rows, *columns)


def _matmul(shapes: Mapping[str, Shape], params: Params) -> None:
    if not {"a", "b"} <= shapes.keys():
        return
    product = _product(shapes, params)
    if "c" in shapes and _joined(shapes["c"], product) != product:
        _refuse("c", f"shape {shapes['c']} does not broadcast to the product's, {product}")


def _right_sides(shapes: Mapping[str, Shape], params: Params) -> None:
    if not {"a", "b"} <= shapes.keys():
        return
    a, b = shapes["a"], shapes["b"]
    vector = len(b) == 1
    if b[-1 if vector else -2] != a[-2]:
        _refuse("b", f"a {a} has {a[-2]} rows, b {b} must have as many" + ("" if vector else " (a vector b has one dimension)"))
    if not vector and _joined(a[:-2], b[:-2]) is None:
        _refuse("b", f"the batch dimensions of a {a} and b {b} do not broadcast")


def _solve(shapes: Mapping[str, Shape], params: Params) -> None:
    _square(shapes, params)
    _right_sides(shapes, params)


def _distance(shapes: Mapping[str, Shape], params: Params) -> None:
    if "x" not in shapes:
        return
    x, y = shapes["x"], shapes.get("y")
    if y is not None and x[-1] != y[-1]:
        _refuse("y", f"its points have {y[-1]} coordinates, those of x have {x[-1]}")
    if y is not None and _joined(x[:-2], y[:-2]) is None:
        _refuse("y", f"its leading dimensions in {y} do not broadcast against those of x in {x}")
    name = {"seuclidean": "V", "mahalanobis": "VI"}.get(params.get("metric", ""), "w")  # others are not of that metric
    if name in shapes and set(shapes[name]) != {x[-1]}:
        _refuse(name, f"{name} has length {shapes[name][-1]} where the points have {x[-1]} coordinates")


def _regression(shapes: Mapping[str, Shape], params: Params) -> None:
    if "x" not in shapes:
        return
    x = shapes["x"]
    batch = x[:-2]
    for name in ("y", "sample_weight"):
        if name not in shapes:
            continue
        shape = shapes[name]
        if name == "y" and len(shape) not in (len(x) - 1, len(x)):
            _refuse("y", f"it has shape {shape}: give it one dimension less than x, or as many for several targets")
        at = len(x) - 2 if name == "y" else len(shape) - 1
        if shape[at] != x[-2]:
            _refuse(name, f"it has {shape[at]} observations where x has {x[-2]}")
        joined = _joined(batch, shape[:at])
        if joined is None:
            _refuse(name, f"its leading dimensions in {shape} do not broadcast against those of x")
        batch = joined or ()


_CHECKS = {"matmul": _matmul, "solve": _solve, "distance": _distance, "regression": _regression, "lstsq": _right_sides,
           "cholesky": _square, "eigh": _square}
