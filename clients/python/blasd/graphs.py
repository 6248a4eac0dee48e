"""Graphs: steps that feed each other, recorded by calling operations, and run as one job."""
from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import Array, inputs_of
from .calls import mapping
from .errors import Error, InputError
from .operations import INPUTS
from .protocol import plain
from .rules import Rule
from .tensors import Reference, bounds

if TYPE_CHECKING:
    from .aio import AsyncClient
    from .calls import Options, Progress
    from .client import Client
    from .results import Result

_INLINE = 1024  # bytes of an array that goes into its step's text: what is smaller needs no place of its own


class Output:
    """An output of a step: an input for others and, once the graph has run, an array, where it is a result."""

    def __init__(self, steps: Steps, step: str, output: str | None) -> None:
        self._steps, self.step, self.output = steps, step, output

    __iter__ = None  # a step has outputs by name, and Python would look for numbered ones without end

    @property
    def value(self) -> Array:
        """The array. Raises Error where the graph has not run, or gave other results."""
        result = self._steps.result
        if result is None:
            raise Error("not_finished", "the graph has not run: it does where its `with` block ends")
        if self.output is None and self._steps._results is not None:  # its first output, if that was named
            labels: list[str] = self._steps._results
        else:
            labels = [name if self.output is not None else name.partition(".")[0] for name in result]
        for label, array in zip(labels, result.values()):
            if label == self.label:
                return array
        raise Error("output_not_found", f"{self.label} is not among the results: {', '.join(result) or 'empty'}; name it with results()")

    @property
    def label(self) -> str:
        return self.step if self.output is None else f"{self.step}.{self.output}"

    def reference(self) -> dict[str, Any]:
        return {"step": self.step} if self.output is None else {"step": self.step, "output": self.output}

    def __getitem__(self, key: Any) -> Output:
        """A part as an input of other steps: slices of step 1 whose bounds count from the begin, such as x[:10, :]."""
        return Part(self, bounds(key))

    def __repr__(self) -> str:
        return f"<blasd.{type(self).__name__} {self.label}>"


class Part(Output):
    """A slice of an output: an input for other steps, and no result."""

    def __init__(self, of: Output, slices: list[list[int | None]]) -> None:
        super().__init__(of._steps, of.step, of.output)
        self._slices = slices

    @property
    def label(self) -> str:
        raise InputError("results", "a part of an output cannot be a result: name the whole output", "invalid_reference")

    def reference(self) -> dict[str, Any]:
        return {**super().reference(), "slice": self._slices}

    def __getitem__(self, key: Any) -> Part:
        raise InputError("slice", "a part of a part: slice the output itself", "invalid_reference")

    def __repr__(self) -> str:
        return f"<blasd.Part {self.reference()}>"


class Step(Output):
    """A step; as an input, its first output, of which step[:10] is a part. step["eigenvectors"] is another one."""

    def __init__(self, steps: Steps, name: str) -> None:
        super().__init__(steps, name, None)

    def __getitem__(self, key: Any) -> Output:
        return Output(self._steps, self.step, key) if isinstance(key, str) else super().__getitem__(key)


class Steps:
    """What was recorded. Operations are methods: `g.matmul(a, b, alpha=2)`, `g.eigh(a)`; inputs are arrays, outputs of other
    steps, what lies at the service (a Tensor, a Job's output(NAME), a slice of either), or rules; parameters go by name.
    Arrays are read where the graph is sent (those of up to 1 KiB where they are given), so leave them as they are until then.
    `name=` names the step."""

    def __init__(self) -> None:
        self.result: Result | None = None
        self._steps: dict[str, dict[str, Any]] = {}
        self._inputs: dict[str, Array | Reference | Rule] = {}
        self._given: dict[int, tuple[Any, str]] = {}  # what was given, so that its id stays its own; its name
        self._results: list[str] | None = None

    def step(self, op: str, params: Mapping[str, Any] | None = None, *, name: str | None = None, **inputs: Any) -> Step:
        """Records a step of any operation."""
        if name is None:
            count = len(self._steps) + 1
            while f"{op}{count}" in self._steps:
                count += 1
            name = f"{op}{count}"
        if name in self._steps:
            raise InputError(f"steps.{name}", f"the graph has a step {name!r} already", "invalid_field")
        step: dict[str, Any] = {"op": op, "inputs": {key: self._input(key, value) for key, value in inputs.items()}}
        if params:
            step["params"] = {key: plain(key, value) for key, value in mapping("params", params).items()}
        self._steps[name] = step
        return Step(self, name)

    def results(self, *outputs: Output) -> None:
        """Says which outputs come back: of a step its first. Without it they are those of the steps that no other reads."""
        self._results = [output.label for output in outputs]

    def __getattr__(self, op: str) -> Any:
        if op not in INPUTS:
            raise AttributeError(f"{type(self).__name__} has no {op!r}; step({op!r}, …) records any operation")

        def record(*inputs: Any, name: str | None = None, **rest: Any) -> Step:
            names = INPUTS[op]
            if len(inputs) > len(names):
                raise TypeError(f"{op} takes {len(names)} inputs, not {len(inputs)}")
            given = {key: value for key, value in zip(names, inputs) if value is not None}
            given.update({key: rest.pop(key) for key in names if rest.get(key) is not None})
            return self.step(op, rest, name=name, **given)
        return record

    def _input(self, name: str, value: Any) -> dict[str, Any]:
        if isinstance(value, Output):
            if value._steps is not self:
                raise InputError(f"inputs.{name}", "a step of another graph", "invalid_field")
            return value.reference()
        if id(value) not in self._given:
            if isinstance(value, (Reference, Rule)):
                return self._beside(value, value)
            array = inputs_of({name: value})[name]
            if array.nbytes <= _INLINE and array.dtype.kind in "fiub" and array.dtype.name != "bfloat16":
                data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
                return {"dtype": array.dtype.name, "shape": list(array.shape), "base64": base64.b64encode(data).decode()}
            return self._beside(value, array)
        return {"input": self._given[id(value)][1]}

    def _beside(self, value: Any, given: Array | Reference | Rule) -> dict[str, Any]:
        """Adds it to the graph's inputs, once for all steps that use the same value."""
        key = f"i{len(self._inputs)}"
        self._inputs[key] = given
        self._given[id(value)] = value, key
        return {"input": key}

    def request(self) -> tuple[dict[str, Array | Reference | Rule], dict[str, str]]:
        """The inputs by name, and the texts that describe their use."""
        texts = {"steps": json.dumps(self._steps, separators=(",", ":"))}
        if self._results is not None:
            texts["results"] = json.dumps(self._results)
        return self._inputs, texts


class Graph(Steps):
    """A graph that runs where its `with` block ends; then `step.value` is an array, and `graph.result` the Result with all
    results by name, `STEP.OUTPUT`, and with `graph.result.job["steps"]` the account of each step."""

    def __init__(self, client: Client, options: Options, timeout: float | None, progress: bool | Progress) -> None:
        super().__init__()
        self._client, self._options, self._timeout, self._progress = client, options, timeout, progress

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.result = self._client._graph(self, self._options, self._timeout, self._progress)


class AsyncGraph(Steps):
    """The same for an AsyncClient: `async with client.graph() as g:`."""

    def __init__(self, client: AsyncClient, options: Options, timeout: float | None, progress: bool | Progress) -> None:
        super().__init__()
        self._client, self._options, self._timeout, self._progress = client, options, timeout, progress

    async def __aenter__(self) -> AsyncGraph:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.result = await self._client._graph(self, self._options, self._timeout, self._progress)
