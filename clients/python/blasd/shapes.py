"""Shapes that cannot fit, found before anything is sent; in the service's words, which checks them all the same."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .arrays import Array
from .errors import InputError
from .safetensors import code

Arrays = Mapping[str, Array]


def check_shapes(op: str, arrays: Arrays, params: Mapping[str, Any]) -> None:
    """Raises InputError for what the operation could only refuse. What it does not know it lets pass."""
    for name, array in arrays.items():
        code(name, array.dtype)
    check = _CHECKS.get(op)
    if check is not None:
        check(arrays, params)


def _text(array: Array) -> str:
    return str(array.shape)


def _refuse(field: str, detail: str, code: str = "shape_mismatch") -> None:
    raise InputError(f"inputs.{field}", detail, code)


def _leading_fit(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or x == 1 or y == 1 for x, y in zip(a[::-1], b[::-1]))


def _matmul(arrays: Arrays, params: Mapping[str, Any]) -> None:
    if not {"a", "b"} <= arrays.keys() or arrays["a"].ndim == 0 or arrays["b"].ndim == 0:
        return
    a, b = arrays["a"], arrays["b"]
    flip_a, flip_b = bool(params.get("transpose_a")) and a.ndim > 1, bool(params.get("transpose_b")) and b.ndim > 1
    inner_a = a.shape[-2 if flip_a else -1]
    inner_b = b.shape[-1 if flip_b or b.ndim == 1 else -2]
    if inner_a != inner_b:
        _refuse("b", f"a {_text(a)}{' transposed' if flip_a else ''} has rows of {inner_a}, "
                     f"b {_text(b)}{' transposed' if flip_b else ''} has columns of {inner_b}")
    if not _leading_fit(a.shape[:-2], b.shape[:-2]):
        _refuse("b", f"the batch dimensions of a {_text(a)} and b {_text(b)} do not broadcast")


def _solve(arrays: Arrays, params: Mapping[str, Any]) -> None:
    if not {"a", "b"} <= arrays.keys() or arrays["a"].ndim < 2 or arrays["b"].ndim == 0:
        return
    a, b = arrays["a"], arrays["b"]
    if a.shape[-1] != a.shape[-2]:
        _refuse("a", f"the matrices of a must be square; its shape is {_text(a)}", "invalid_shape")
    vector = b.ndim == 1
    if b.shape[-1 if vector else -2] != a.shape[-1]:
        _refuse("b", f"a {_text(a)} has {a.shape[-1]} rows, b {_text(b)} must have as many"
                     + ("" if vector else " (a vector b has one dimension)"))
    if not vector and not _leading_fit(a.shape[:-2], b.shape[:-2]):
        _refuse("b", f"the batch dimensions of a {_text(a)} and b {_text(b)} do not broadcast")


def _distance(arrays: Arrays, params: Mapping[str, Any]) -> None:
    if not {"x", "y"} <= arrays.keys() or arrays["x"].ndim < 2 or arrays["y"].ndim < 2:
        return
    x, y = arrays["x"], arrays["y"]
    if x.shape[-1] != y.shape[-1]:
        _refuse("y", f"its points have {y.shape[-1]} coordinates, those of x have {x.shape[-1]}")


def _regression(arrays: Arrays, params: Mapping[str, Any]) -> None:
    if not {"x", "y"} <= arrays.keys() or arrays["x"].ndim < 2 or arrays["y"].ndim < 1:
        return
    x, y = arrays["x"], arrays["y"]
    if y.ndim not in (x.ndim - 1, x.ndim):
        _refuse("y", f"it has shape {_text(y)}: give it one dimension less than x, or as many for several targets")
    length = y.shape[-2 if y.ndim == x.ndim else -1]
    if length != x.shape[-2]:
        _refuse("y", f"it has {length} observations where x has {x.shape[-2]}")


_CHECKS = {"matmul": _matmul, "solve": _solve, "distance": _distance, "regression": _regression}
