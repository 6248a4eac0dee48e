"""Inputs that the service makes by a rule: nothing of them travels, however large they are.

    client.matmul(blasd.random.normal((4096, 4096), seed=7), blasd.eye(4096))

The same rule makes the same elements on every device. eye, full, arange and linspace make what NumPy's do, of float64
where no dtype is given; random numbers are the service's own (docs/rules.md).
"""
from __future__ import annotations

import math
import types
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .errors import InputError

__all__ = ["Rule", "arange", "eye", "full", "linspace", "random"]


class Rule:
    """An input by rule: has a shape, ndim and dtype, and no elements."""

    def __init__(self, members: Mapping[str, Any], shape: tuple[int, ...], dtype: Any) -> None:
        self._members = dict(members)
        self.shape = shape
        self.ndim = len(shape)
        self.dtype: Any = _dtype(dtype)

    def as_input(self) -> dict[str, Any]:
        """What stands for it in a job's JSON."""
        return {**self._members, "dtype": self.dtype.name}

    def __repr__(self) -> str:
        return f"Rule({self.as_input()})"


def _dtype(dtype: Any) -> Any:
    if dtype == "bfloat16":  # NumPy knows it only beside ml_dtypes
        return types.SimpleNamespace(name="bfloat16")
    return np.dtype(np.float64 if dtype is None else dtype)


def _number(value: Any) -> Any:
    """As JSON writes it, the service's way."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, complex):
        return [_number(value.real), _number(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _shape(shape: Any) -> tuple[int, ...]:
    lengths = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    return tuple(int(length) for length in lengths)


def eye(n: int, dtype: Any = None) -> Rule:
    """The identity of n rows."""
    return Rule({"eye": int(n)}, (int(n), int(n)), dtype)


def full(shape: Any, value: Any, dtype: Any = None) -> Rule:
    """`value` throughout."""
    lengths = _shape(shape)
    return Rule({"full": list(lengths), "value": _number(value)}, lengths, dtype)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: Any = None) -> Rule:
    """numpy.arange, of float64 where no dtype is given."""
    if stop is None:
        start, stop = 0, start
    numbers = [_number(start), _number(stop), _number(step)]
    try:
        count = max(0, math.ceil((numbers[1] - numbers[0]) / numbers[2]))
    except (ArithmeticError, TypeError, ValueError) as error:
        raise InputError("arange", f"invalid arange of {numbers}: {error}") from error
    return Rule({"arange": numbers}, (count,), dtype)


def linspace(start: float, stop: float, num: int = 50, dtype: Any = None) -> Rule:
    """numpy.linspace, its end included."""
    return Rule({"linspace": [_number(start), _number(stop), int(num)]}, (int(num),), dtype)


def _random(kind: str, shape: Any, seed: int, dtype: Any) -> Rule:
    lengths = _shape(shape)
    return Rule({"random": kind, "seed": int(seed), "shape": list(lengths)}, lengths, dtype)


class random:
    """Random numbers; the same seed, shape and dtype make the same ones."""

    @staticmethod
    def uniform(shape: Any, *, seed: int, dtype: Any = None) -> Rule:
        """From 0 to 1, which is not among them."""
        return _random("uniform", shape, seed, dtype)

    @staticmethod
    def normal(shape: Any, *, seed: int, dtype: Any = None) -> Rule:
        """Of mean 0 and variance 1."""
        return _random("normal", shape, seed, dtype)
