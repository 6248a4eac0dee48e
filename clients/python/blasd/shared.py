"""Tensors in memory shared with a service on this machine: nothing is sent, and nothing copied that lies there already.

A file NAME.put in the service's blob directory holds a header (safetensors, like a body) and the arrays, each at a
multiple of 64 bytes. `Body-File: NAME` hands it in. This end holds a lock on it for as long as it is used, so that the
service does not sweep it away. Results come as names of files, which are mapped. docs/sharing.md has the rules.
"""
from __future__ import annotations

import fcntl
import json
import math
import mmap
import os
import secrets
import struct
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import safetensors
from .arrays import Array

Spec = tuple[np.dtype[Any], tuple[int, ...]]

_LEAST = 1 << 20  # bytes of inputs from which copying them into a file beats sending them


def _aligned(count: int) -> int:
    return (count + 63) // 64 * 64


class File:
    """One file of ours in the directory; closed and removed when nothing refers to it any more.

    A mapping, and so every array in it, keeps the file's bytes (and the lock) beyond that.
    """

    def __init__(self, directory: str, prefix: str = "", temporary: bool = False) -> None:
        self.temporary = temporary  # made for one request; what is queued then has a name of its own for it
        self.name = prefix + secrets.token_hex(16)[len(prefix):]
        self._path = os.path.join(directory, self.name + ".put")
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.close = weakref.finalize(self, _remove, self._fd, self._path, os.getpid())
        fcntl.flock(self._fd, fcntl.LOCK_SH)
        owner = os.stat(directory).st_uid
        if owner != os.geteuid():  # the service takes files of its own user alone: root gives it to that user
            os.fchown(self._fd, owner, -1)

    def lay_out(self, specs: Mapping[str, Spec]) -> dict[str, Array]:
        """To be called once: writes the header for arrays of these (dtype, shape) by name; returns the arrays, zeros."""
        header, places, at = {}, {}, 0
        for name, (dtype, shape) in specs.items():
            at = _aligned(at)
            count = math.prod(shape)
            header[name] = {"dtype": safetensors.code(name, dtype), "shape": list(shape),
                            "data_offsets": [at, at + count * dtype.itemsize]}
            places[name] = (at, dtype, shape, count)
            at += count * dtype.itemsize
        text = json.dumps(header).encode()
        text += b" " * (-(len(text) + 8) % 64)
        begin = len(text) + 8
        os.posix_fallocate(self._fd, 0, begin + at)  # a full store is an error here, not a bus error later
        view = mmap.mmap(self._fd, begin + at)
        view[:begin] = struct.pack("<Q", len(text)) + text
        return {name: _array(view, begin + at, dtype, shape, count)
                for name, (at, dtype, shape, count) in places.items()}


def _remove(fd: int, path: str, owner: int) -> None:
    os.close(fd)
    if os.getpid() != owner:  # a fork's own end of it: the file is the parent's
        return
    try:
        os.unlink(path)
    except OSError:
        pass


def _array(buffer: mmap.mmap, offset: int, dtype: np.dtype[Any], shape: Sequence[int], count: int) -> Array:
    if count == 0:
        return np.empty(shape, dtype)
    return np.frombuffer(buffer, dtype, count, offset).reshape(shape)


class Shared(dict[str, Array]):
    """Arrays by name that lie in one file, to be filled in place: `Client.shared` makes it.

    The arrays, all of them under their names, are inputs that no copy is made of. They may be changed once the job
    has ended, and used again for the next one; what is changed sooner spoils that job's result.
    """

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self, file: File, specs: Mapping[str, Spec]) -> None:
        self.file = file
        self._laid = file.lay_out(specs)
        super().__init__(self._laid)

    def __reduce__(self) -> Any:  # in another process they are copies
        return dict, (dict(self),)

    def __eq__(self, other: object) -> bool:
        return self is other

    def holds(self, inputs: Mapping[str, Array]) -> bool:
        """Whether these are all of the arrays themselves, not views, copies or replacements."""
        return inputs.keys() == self._laid.keys() and all(inputs[name] is laid for name, laid in self._laid.items())

    def close(self) -> None:
        """Removes the file's name; its memory goes once the arrays are gone."""
        self.file.close()


class Directory:
    """The service's directory, and what of ours lies in it."""

    def __init__(self, path: str, prefix: str = "") -> None:
        self.path, self.prefix = path, prefix  # of the names of files: so the service knows whose they are
        # by the names of their files; used without a lock, which a fork might find taken for good
        self._live = weakref.WeakValueDictionary[str, Shared]()

    def __reduce__(self) -> Any:
        return Directory, (self.path, self.prefix)

    def shared(self, specs: Mapping[str, Spec]) -> Shared:
        made = Shared(File(self.path, self.prefix), specs)
        self._live[made.file.name] = made
        return made

    def file_of(self, inputs: Mapping[str, Array]) -> File | None:
        """The File that holds the inputs, copied there where they do not lie in one; None: they are better sent."""
        for reference in self._live.valuerefs():
            shared = reference()
            if shared is not None and shared.holds(inputs):
                return shared.file
        if sum(array.nbytes for array in inputs.values()) < _LEAST:
            return None
        arrays = {name: a.astype(a.dtype.newbyteorder("<"), copy=False) for name, a in inputs.items()}
        file = File(self.path, self.prefix, temporary=True)
        try:
            for name, place in file.lay_out({name: (a.dtype, a.shape) for name, a in arrays.items()}).items():
                place[...] = arrays[name]
            return file
        except BaseException:
            file.close()
            raise

    def map_outputs(self, document: Mapping[str, Any]) -> dict[str, Array] | None:
        """The outputs of a job as arrays where they lie; None where they do not lie in a file. A page that is written to
        becomes a copy, so that the file stays as it is."""
        outputs = document["outputs"]
        if not outputs or not all("blob" in output for output in outputs.values()):
            return None
        try:
            view = self._map(next(iter(outputs.values()))["blob"]["name"])
        except OSError:
            return None
        arrays = {}
        for name, output in outputs.items():
            if output["dtype"] == "bfloat16":
                return None
            shape = output["shape"]
            arrays[name] = _array(view, output["blob"]["offset"], np.dtype(output["dtype"]), shape, math.prod(shape))
        return arrays

    def _map(self, name: str) -> mmap.mmap:
        path = os.path.join(self.path, name)
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)  # the mapping holds it from here on
            if not os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False)):
                raise FileNotFoundError(path)  # it was removed, and may be another job's by now
            return mmap.mmap(fd, 0, access=mmap.ACCESS_COPY)
        finally:
            os.close(fd)
