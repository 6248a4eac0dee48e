"""Tensors that the service keeps, and references to them and to outputs of jobs, which are not sent again."""
from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .arrays import Array
from .errors import InputError
from .rules import Rule

if TYPE_CHECKING:
    from .aio import AsyncClient
    from .calls import Document, Talk
    from .client import Client


def bounds(key: Any) -> list[list[int | None]]:
    """What stands between the brackets of t[:1000] or t[10:20, :], as a job says it. Its bounds are integers of any kind."""
    return [_bound(one) for one in (key if isinstance(key, tuple) else (key,))]


def _bound(one: Any) -> list[int | None]:
    wrong = InputError("slice", f"{one!r} is not a slice with step 1 and bounds counted from the start", "invalid_reference")
    if not isinstance(one, slice):
        raise wrong
    try:
        start, stop, step = (None if n is None else operator.index(n) for n in (one.start, one.stop, one.step))
    except TypeError as error:
        raise wrong from error
    if step not in (None, 1) or (start or 0) < 0 or (stop or 0) < 0:
        raise wrong
    return [start, stop]


class Reference:
    """An input that lies at the service already: a Tensor, an Output of a job, or a part of one of them."""

    def __init__(self, of: Mapping[str, Any], slices: list[list[int | None]] | None = None) -> None:
        self._of = dict(of)
        self._slices = slices

    def as_input(self) -> dict[str, Any]:
        """What stands for it in a job."""
        return self._of if self._slices is None else {**self._of, "slice": self._slices}

    def __getitem__(self, key: Any) -> Reference:
        """A part: slices of step 1 whose bounds count from the begin, such as t[:1000] or t[10:20, :]."""
        if self._slices is not None:
            raise InputError("slice", "a part of a part: slice the tensor itself", "invalid_reference")
        return Reference(self._of, bounds(key))

    def __repr__(self) -> str:
        return f"<blasd.{type(self).__name__} {self.as_input()}>"


class Output(Reference):
    """An output of a job, which may still run: the operation that gets it waits."""

    def __init__(self, job_id: str, name: str) -> None:
        super().__init__({"job": job_id, "output": name})


class URL(Reference):
    """A file that the service fetches, whole: a .npy file, or, with dtype and shape, its bytes."""

    def __init__(self, url: str, *, dtype: str | None = None, shape: Sequence[int] | None = None) -> None:
        said = {"url": url, "dtype": dtype, "shape": None if shape is None else [operator.index(n) for n in shape]}
        super().__init__({name: value for name, value in said.items() if value is not None})

    def __getitem__(self, key: Any) -> Reference:
        """Not there."""
        raise InputError("slice", "a file is fetched whole: put() it and slice that", "invalid_reference")

    def __repr__(self) -> str:
        return f"<blasd.URL {self._of['url'].partition('?')[0]}>"  # what follows may be a signature


class Tensor(Reference):
    """A tensor that the service keeps. It can be given as any input. document: the service's last description of it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__({"tensor": document["id"]})
        self.document = dict(document)

    @property
    def id(self) -> str:
        return str(self.document["id"])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.document["shape"])

    @property
    def dtype(self) -> str:
        """The name of its dtype, which NumPy may not have (bfloat16)."""
        return str(self.document["dtype"])

    @property
    def nbytes(self) -> int:
        return int(self.document["bytes"])

    def __repr__(self) -> str:
        return f"<blasd.Tensor {self.id} {self.dtype}{list(self.shape)}>"


Listed = list[Tensor]  # the classes below have a method of that name


def id_of(tensor: Tensor | str) -> str:
    return tensor.id if isinstance(tensor, Tensor) else str(tensor)


def split(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs that are sent, and those that are said: references and rules."""
    said = {name: value for name, value in inputs.items() if isinstance(value, (Reference, Rule))}
    return {name: value for name, value in inputs.items() if name not in said}, said


class _Calls:
    """The calls, which `do` drives."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def _put(self, array: Any, life_s: int | None, sha256: bool) -> Talk[Tensor]:
        tensor: Tensor = yield from self._client._calls.put_tensor(array, life_s, sha256)
        return tensor

    def _of(self, method: str, tensor: Tensor | str, body: Document | None = None) -> Talk[Tensor]:
        document: Document = yield from self._client._calls.of_tensor(method, id_of(tensor), body)
        return Tensor(document)


class Tensors(_Calls):
    """`client.tensors`."""

    _client: Client

    def put(self, array: Any, life_s: int | None = None, sha256: bool = False) -> Tensor:
        """Has the service keep an array; life_s: seconds from its last use on. sha256: its sum, as of array.tobytes(),
        stands in Tensor.document["sha256"]."""
        return self._client._do(self._put(array, life_s, sha256))

    def get(self, tensor: Tensor | str) -> Array:
        """The array."""
        return self._client._do(self._client._calls.get_tensor(id_of(tensor)))

    def look(self, tensor: Tensor | str) -> Tensor:
        """The tensor with its current description."""
        return self._client._do(self._of("GET", tensor))

    def prolong(self, tensor: Tensor | str, life_s: int) -> Tensor:
        """From now on it lives so many seconds from each use."""
        return self._client._do(self._of("PATCH", tensor, {"life_s": life_s}))

    def delete(self, tensor: Tensor | str) -> None:
        """Forgets it; jobs that refer to it already still find it."""
        self._client._do(self._of("DELETE", tensor))

    def list(self, limit: int | None = 100) -> Listed:
        """Up to `limit` tensors (None: all), the newest first."""
        return [*map(Tensor, self._client._do(self._client._calls.listed("/tensors", limit)))]


class AsyncTensors(_Calls):
    """`client.tensors` of AsyncClient: the same, to be awaited."""

    _client: AsyncClient

    async def put(self, array: Any, life_s: int | None = None, sha256: bool = False) -> Tensor:
        """See Tensors.put."""
        return await self._client._do(self._put(array, life_s, sha256))

    async def get(self, tensor: Tensor | str) -> Array:
        """The array."""
        return await self._client._do(self._client._calls.get_tensor(id_of(tensor)))

    async def look(self, tensor: Tensor | str) -> Tensor:
        """See Tensors.look."""
        return await self._client._do(self._of("GET", tensor))

    async def prolong(self, tensor: Tensor | str, life_s: int) -> Tensor:
        """See Tensors.prolong."""
        return await self._client._do(self._of("PATCH", tensor, {"life_s": life_s}))

    async def delete(self, tensor: Tensor | str) -> None:
        """See Tensors.delete."""
        await self._client._do(self._of("DELETE", tensor))

    async def list(self, limit: int | None = 100) -> Listed:
        """See Tensors.list."""
        return [*map(Tensor, await self._client._do(self._client._calls.listed("/tensors", limit)))]

