"""Idempotency-Key: the same request, however its body comes, is the same job; any other value in a tensor is another one."""
import io
import json

import numpy as np
import pytest
from service import TYPES, multipart, nested, npy, safetensors


def body_of(form, arrays, spaces=False):
    if form == "json":
        body = {"op": "matmul", "inputs": {name: nested(array) for name, array in arrays.items()}}
        return json.dumps(body, indent=1 if spaces else None)
    if form == "safetensors":
        return safetensors(arrays, op="matmul")

    def file(array):
        if form == "multipart":
            return npy(array)
        out = io.BytesIO()
        np.save(out, np.asfortranarray(array.astype(">f8")))
        return out.getvalue()
    return multipart({"op": "matmul", **{name: file(array) for name, array in arrays.items()}})


def send(service, form, body, key, pieces=None):
    kind = TYPES["multipart" if form.startswith("multipart") else form]
    if pieces:
        raw = body.encode() if isinstance(body, str) else body
        body = iter([raw[at:at + pieces] for at in range(0, len(raw), pieces)])
    return service.request("POST", "/jobs", body, {"Content-Type": kind, "Idempotency-Key": key})


@pytest.mark.parametrize("side", [1, 3, 40, 500])
@pytest.mark.parametrize("form", ["json", "safetensors", "multipart", "multipart-big-endian"])
def test_the_same_key_in_other_pieces(service, form, side):
    rng = np.random.default_rng(side)
    arrays = {"a": rng.random((side, side)), "b": rng.random((side, 1))}
    key = f"{form}-{side}"
    body = body_of(form, arrays)
    first = send(service, form, body, key)
    assert first.status == 202, first.body
    for pieces in (None, 7 if side < 100 else 8191, 100003):
        again = send(service, form, body_of(form, arrays, spaces=True), key, pieces)
        assert again.json()["id"] == first.json()["id"], again.body
    for name, at in (("a", (0, 0)), ("a", (side - 1, side - 1)), ("b", (side // 2, 0))):
        other = {n: array.copy() for n, array in arrays.items()}
        other[name][at] = -other[name][at]
        answer = send(service, form, body_of(form, other), key)
        assert answer.status == 422 and answer.json()["code"] == "idempotency_conflict", answer.body
