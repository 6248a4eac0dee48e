"""Good bodies with something wrong in them: safetensors, .npy in forms, JSON and heads, mutated by a seeded generator. Whatever
comes of one, it is an answer of the contract, no part of the service dies, and the next good job is right.

BLASD_ATTACK_SEED takes another seed; a failure names the one it had, and the number of the mutant.
"""
import json
import os
import random
import socket
import struct

import numpy as np
import pytest
from service import TYPES, multipart, npy, safetensors

SEED = int(os.environ.get("BLASD_ATTACK_SEED", "19"))
A, B = np.arange(6.0).reshape(2, 3), np.arange(6, dtype=np.float32).reshape(3, 2)
STEPS = {"params": '{"alpha":2}'}


def fortran(array):
    return npy(np.asfortranarray(array.astype(">f8")))


GOOD = {
    "json": [json.dumps({"op": "matmul", "inputs": {"a": A.tolist(), "b": B.tolist()}, "params": {"alpha": 2}}).encode(),
             json.dumps({"op": "solve", "inputs": {"a": {"dtype": "float32", "shape": [2, 2], "data": [1, 0, 0, 1]},
                                                   "b": {"dtype": "float64", "shape": [2],
                                                         "base64": "AAAAAAAA8D8AAAAAAADwPw=="}}}).encode()],
    "safetensors": [safetensors({"a": A, "b": B}, op="matmul", **STEPS),
                    safetensors({"x": A.astype(np.float16), "y": np.arange(2, dtype=np.int8)}, op="regression")],
    "multipart": [multipart({"op": "matmul", "a": npy(A), "b": fortran(B), **STEPS}),
                  multipart({"op": "distance", "x": npy(A > 2), "params": '{"metric":"cityblock"}'})],
}
# what parsers of these forms are known to trip over
PIECES = [b"\xff" * 8, b"\0" * 8, struct.pack("<Q", 2 ** 63), struct.pack("<Q", 2 ** 32), b"18446744073709551615", b"-1",
          b"1e999", b"[" * 40, b"]" * 40, b'"', b"\\u0000", b"\\ud800", b"{", b"}", b"[0,0]", b"[9223372036854775807,2]",
          b'"F64"', b'"BF16"', b'"U64"', b"'O'", b"'>f8'", b"'<c16'", b"True", b"False", b"(2,)", b"()", b"\r\n", b"--", b"\x93NUMPY",
          b'"__metadata__":{}', b'"data_offsets":[0,8]', b"null", b"NaN", b"\xc3\x28", b"\xed\xa0\x80", b" " * 64]


def mutate(rng, body):
    """One to four changes."""
    body = bytearray(body)
    for _ in range(rng.randrange(1, 5)):
        at, length = rng.randrange(len(body) + 1), rng.randrange(1, 17)
        kind = rng.randrange(7)
        if kind == 0 and body:
            body[min(at, len(body) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del body[at:at + length]
        elif kind == 2:
            body[at:at] = rng.choice(PIECES)
        elif kind == 3:
            body[at:at + length] = rng.choice(PIECES)
        elif kind == 4:
            body[at:at] = body[max(0, at - length):at]
        elif kind == 5:
            del body[at:]
        else:
            body[at:at + length] = rng.randbytes(length)
    return bytes(body)


# tensors that are kept, graphs, inferences; and inputs that come without bytes
NOWHERE = {"t": {"tensor": "t" + "0" * 40}, "o": {"job": "a" + "0" * 40, "output": "c"}, "u": {"url": "https://a.example/x"}, "e": {"eye": 3}}
STEP = {"op": "matmul", "inputs": {"a": {"input": "x"}, "b": B.tolist()}}
GRAPH = {"steps": {"one": STEP, "two": {"op": "solve", "inputs": {"a": {"step": "one", "output": "c"}, "b": {"eye": 2}}}}, "results": ["two.x", "one"]}
ROUTES = {
    "tensors in JSON": ("/tensors", "json", [json.dumps(x).encode() for x in [A.tolist(), {"tensors": {"a": A.tolist(), **NOWHERE}}, *NOWHERE.values()]]),
    "tensors in safetensors": ("/tensors?sha256=1", "safetensors", [safetensors({"a": A, "b": B}), safetensors({"a": A}, inputs=json.dumps(NOWHERE))]),
    "tensors in a form": ("/tensors", "multipart", [multipart({"a": npy(A), "b": fortran(B)}),
                                                    multipart({"inputs": json.dumps({"e": {"eye": 3}}), "a": npy(A)})]),
    "a .npy file": ("/tensors", "npy", [npy(A), fortran(B)]),
    "a graph": ("/graphs?wait=20", "json", [json.dumps({**GRAPH, "inputs": {"x": x}}).encode() for x in [A.tolist(), {"eye": 3}, NOWHERE["t"]]]),
    "a graph in safetensors": ("/graphs?wait=20", "safetensors", [safetensors({"x": A}, steps=json.dumps(GRAPH["steps"]))]),
    "references": ("/jobs?wait=20", "json", [json.dumps({"op": "matmul", "inputs": {"a": {**x, "slice": [[0, 2], [None, 1]], "dtype": "float64"}, "b": B.tolist()},
                                                         "keep": ["c"]}).encode() for x in NOWHERE.values()]),
    "an inference": ("/v2/models/matmul/infer", "json", [json.dumps({"inputs": [
        {"name": n, "shape": list(x.shape), "datatype": "FP64", "data": x.tolist()} for n, x in {"a": A, "b": B}.items()]}).encode()]),
}


def parts(service):
    return {name: service.part(name) for name in ("api", "worker", "redis")}


def right(service):
    out, _ = service.run("matmul", {"a": A, "b": B.astype(float)})
    assert np.array_equal(out["c"], A @ B)


@pytest.mark.parametrize("form", GOOD)
def test_mutated_bodies(service, form, scale):
    rng, before = random.Random(f"{SEED} {form}"), parts(service)
    seen = {}
    for number in range(200 * scale):
        body = mutate(rng, rng.choice(GOOD[form]))
        answer = service.request("POST", "/jobs?wait=20", body, {"Content-Type": TYPES[form]})
        assert answer.status in (200, 400, 413, 415, 422), (SEED, number, answer.status, answer.body[:300], body)
        seen[answer.status] = seen.get(answer.status, 0) + 1
        if answer.status == 200:
            job = answer.json()
            assert job["state"] == "succeeded" or job["error"]["status"] == 422, (SEED, number, job, body)
    assert seen.get(400, 0) + seen.get(422, 0) > 0 and parts(service) == before, seen
    right(service)


@pytest.mark.parametrize("what", ROUTES)
def test_mutated_bodies_of_other_routes(service, what, scale):
    path, form, good = ROUTES[what]
    rng, before = random.Random(f"{SEED} {what}"), parts(service)
    for number in range(50 * scale):
        body = rng.choice(good)
        body = mutate(rng, body) if number >= len(good) else good[number]
        answer = service.request("POST", path, body, {"Content-Type": TYPES[form]}, check=number < len(good))
        assert answer.status in (200, 201, 400, 404, 413, 415, 422), (SEED, number, answer.status, answer.body[:300], body)
    assert parts(service) == before
    right(service)


HEAD = (b"POST /jobs?wait=5 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
        b"Idempotency-Key: a-key\r\nPrefer: wait=5\r\nContent-Length: %d\r\nConnection: close\r\n\r\n")
TOKENS = [b"\r\n", b"\n", b" ", b"\t", b":", b"\0", b"%00", b"%zz", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 0\r\n", b"HTTP/0.9",
          b"HTTP/9.9", b"\r\n\r\n", b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\n", b"9" * 30, b"/..", b"?" * 9, b"&" * 90, b"\xff",
          b"X: " + b"y" * 5000 + b"\r\n"]


def test_mutated_heads(make_service, scale):
    """An answer, or a connection that is closed when its time is up: never one that hangs, never a part that dies."""
    service = make_service("--limit", "connection_idle_s=1", "--limit", "request_s=1")
    rng, before = random.Random(f"{SEED} heads"), parts(service)
    body = b'{"op":"matmul","inputs":{"a":[[1]],"b":[[2]]}}'
    for number in range(150 * scale):
        head = bytearray(HEAD % len(body))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(head) + 1)
            head[at:at + rng.choice([0, 0, 1, 3, 12])] = rng.choice(TOKENS)
        answer = b""
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as sock:
            try:
                sock.sendall(bytes(head) + body)
                sock.shutdown(socket.SHUT_WR)
                while piece := sock.recv(65536):
                    answer += piece
            except ConnectionError:
                pass
        assert b"HTTP/1.1 5" not in answer or b" 503 " in answer or b" 501 " in answer or b" 505 " in answer, \
            (SEED, number, bytes(head), answer[:300])
    assert parts(service) == before
    right(service)
