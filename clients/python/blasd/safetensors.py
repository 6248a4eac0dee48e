"""Reading and writing safetensors, the binary form in which tensors travel.

A file is eight bytes (the header's length, little-endian), a JSON header, and the tensors' bytes.
"""
from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from .arrays import Array
from .errors import InputError

_CODES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
          "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
          "bool": "BOOL", "complex64": "C64", "complex128": "C128"}
_NAMES = {code: name for name, code in _CODES.items()}


def code(name: str, dtype: np.dtype[Any]) -> str:
    """The format's name of a dtype; TypeError, with the array's name, where it has none."""
    if dtype.name not in _CODES:
        raise InputError(f"inputs.{name}", f"dtype {dtype} is not supported; use one of {', '.join(_CODES)}", "unsupported_dtype")
    return _CODES[dtype.name]


def pack(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """Returns the file as a list of bytes-like pieces; the arrays' own memory is not copied.

    arrays: dict of name -> array. metadata: dict of text.
    """
    header: dict[str, Any] = {"__metadata__": metadata}
    pieces: list[bytes | memoryview] = []
    at = 0
    for name, array in arrays.items():
        kind = code(name, array.dtype)
        shape = list(array.shape)
        # rank 0 survives ascontiguousarray only through the shape taken before
        array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + array.nbytes]}
        pieces.append(array.reshape(-1).view(np.uint8).data)
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return [struct.pack("<Q", len(text)) + text, *pieces]


def unpack(body: bytes | memoryview) -> tuple[dict[str, Array], dict[str, str]]:
    """Returns (arrays, metadata) of a file; the arrays are views of `body`."""
    body = memoryview(body)
    if len(body) < 8:
        raise ValueError("the answer ends before its header")
    length = struct.unpack_from("<Q", body)[0]
    if length > len(body) - 8:
        raise ValueError("the answer ends inside its header")
    header = json.loads(bytes(body[8:8 + length]))
    metadata = header.pop("__metadata__", {})
    data = body[8 + length:]
    return {name: _read(entry, data) for name, entry in header.items()}, metadata


def _read(entry: dict[str, Any], data: memoryview) -> Array:
    begin, end = entry["data_offsets"]
    piece = data[begin:end]
    if entry["dtype"] == "BF16":
        return _bfloat16(np.frombuffer(piece, "<u2")).reshape(entry["shape"])
    return np.frombuffer(piece, np.dtype(_NAMES[entry["dtype"]]).newbyteorder("<")).reshape(entry["shape"])


def _bfloat16(bits: Array) -> Array:
    try:
        import ml_dtypes
        return bits.view(ml_dtypes.bfloat16)
    except ImportError:
        return (bits.astype(np.uint32) << 16).view(np.float32)
