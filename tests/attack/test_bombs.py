"""Small requests that would be large to read: each is answered in the contract's words, and nothing is kept of it."""
import json
import pathlib
import struct

import numpy as np
import pytest
from service import BOUNDARY, TYPES, npy, safetensors


def resident(service):
    return int(pathlib.Path(f"/proc/{service.part('api')}/statm").read_text().split()[1]) * 4096


def ask(service, body, form="json"):
    answer = service.request("POST", "/jobs?wait=20", body, {"Content-Type": TYPES[form]}, timeout=120)
    assert answer.status in (200, 400, 413, 422), answer.body[:500]
    return answer


def matmul(a):
    return b'{"op":"matmul","inputs":{"a":%s,"b":[[1]]}}' % a


BOMBS = {
    "depth of a tensor": lambda n: matmul(b"[" * n + b"1" + b"]" * n),
    "depth that never ends": lambda n: b"[" * n,
    "depth of params": lambda n: b'{"op":"matmul","params":' + b'{"a":' * n + b"1" + b"}" * n + b"}",
    "depth in what is unknown": lambda n: b'{"x":' + b"[" * n + b"]" * n + b"}",
    "digits of a number": lambda n: matmul(b"[[" + b"9" * n + b"]]"),
    "digits after the point": lambda n: matmul(b"[[0." + b"0" * n + b"1]]"),
    "an exponent": lambda n: matmul(b"[[1e" + b"9" * n + b"]]"),
    "empty lists": lambda n: matmul(b"[" + b"[]," * n + b"[]]"),
    "ragged lists": lambda n: matmul(b"[" + b"[1]," * n + b"[1,2]]"),
    "members": lambda n: b"{" + b",".join(b'"k%d":0' % i for i in range(n // 4)) + b"}",
    "one member again and again": lambda n: b"{" + b'"op":"matmul",' * (n // 8) + b'"op":"matmul"}',
    "parameters": lambda n: b'{"op":"matmul","params":{' + b",".join(b'"k%d":0' % i for i in range(n // 4)) + b"}}",
    "escapes": lambda n: b'{"op":"' + b"\\u0041" * n + b'"}',
    "white space": lambda n: matmul(b" " * n + b"[[1]]"),
    "a base64 text": lambda n: matmul(b'{"dtype":"float64","shape":[%d],"base64":"%s"}' % (n, b"A" * n)),
    "a shape without data": lambda n: matmul(b'{"dtype":"float64","shape":[%d,%d],"data":[]}' % (n * 10 ** 6, n * 10 ** 6)),
    "a shape of many sizes": lambda n: matmul(b'{"dtype":"float64","shape":[%s],"data":[1]}' % b",".join([b"1"] * n)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_json(service, bomb, scale):
    before = service.part("api")
    for _ in range(3):
        ask(service, BOMBS[bomb](20000 * scale))
    assert service.part("api") == before
    assert service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}).json()["state"] == "succeeded"


def test_nothing_is_kept_of_them(make_service, scale):
    service = make_service()
    for bomb in BOMBS.values():
        ask(service, bomb(20000))
    before = resident(service)
    for _ in range(10 * scale):
        for bomb in BOMBS.values():
            ask(service, bomb(20000))
    assert resident(service) < before + (16 << 20)


def header(text, length=None, data=b""):
    return struct.pack("<Q", len(text) if length is None else length) + text + data


ENTRY = b'"a":{"dtype":"F64","shape":%s,"data_offsets":%s}'


@pytest.mark.parametrize("body", [
    header(b"{}", 2 ** 63), header(b"{}", 2 ** 64 - 1), header(b"{}", 2 ** 40), header(b"", 0), b"\1", b"",
    header(b"{" + ENTRY % (b"[9223372036854775807,9223372036854775807]", b"[0,8]") + b"}", data=b"\0" * 8),
    header(b"{" + ENTRY % (b"[0,9223372036854775807]", b"[0,0]") + b"}"),
    header(b"{" + ENTRY % (b"[1]", b"[8,0]") + b"}", data=b"\0" * 8),
    header(b"{" + ENTRY % (b"[1]", b"[0,18446744073709551615]") + b"}", data=b"\0" * 8),
    header(b"{" + ENTRY % (b"[1]", b"[-8,0]") + b"}", data=b"\0" * 8),
    header(b"{" + ENTRY % (b"[1]", b"[0,8]") + b"," + ENTRY % (b"[1]", b"[0,8]") + b"}", data=b"\0" * 8),
    header(b"{" + ENTRY % (b"[1]", b"[0,8]") + b',"b":{"dtype":"F64","shape":[1],"data_offsets":[4,12]}}', data=b"\0" * 12),
    header(b"[" * 5000), header(b'{"__metadata__":{"op":' + b"[" * 3000), header(b"{" + b'"a":0,' * 3000 + b'"a":0}'),
    header(b'{"__metadata__":{"op":"matmul","params":"' + b"[" * 3000 + b'"}}'),
], ids=range(17))
def test_safetensors(service, body):
    assert ask(service, body, "safetensors").status in (400, 413, 422)


def array(text, data=b"\0" * 64, version=1, length=None):
    fmt = "<H" if version == 1 else "<I"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(fmt, len(text) if length is None else length) + text + data


DICT = b"{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n"


@pytest.mark.parametrize("file", [
    b"", b"\x93NUMPY", array(b"", length=65535), array(b"x" * 70000, version=2, length=2 ** 31), array(b"(" * 5000),
    array(DICT % (b"<f8", b"(9223372036854775807, 2)")), array(DICT % (b"<f8", b"(-1,)")),
    array(DICT % (b"<f8", b"(" + b"1, " * 5000 + b")")), array(DICT % (b"|O", b"(1,)")), array(DICT % (b"<f9999999", b"(1,)")),
    array(DICT % (b"<f8", b"(2, 2)"), data=b""), array(DICT % (b"<f8", b"(0x7fffffff, 1)")),
    array(b"{'descr': [('a', '<f8')] * 9, 'shape': ()}"), array(b"__import__('os').abort()"),
    array(DICT % (b"<U1000000000", b"(1000000000,)")), array(DICT % (b"<f8", b"()"), data=b"\0" * 7),
], ids=range(16))
def test_npy(service, file):
    body = (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="op"\r\n\r\nmatmul\r\n--{BOUNDARY}\r\n'
            'Content-Disposition: form-data; name="a"; filename="a.npy"\r\n\r\n').encode() + file
    body += f"\r\n--{BOUNDARY}--\r\n".encode()
    assert ask(service, body, "multipart").status in (400, 413, 422)


def test_small_inputs_with_large_results_are_refused(service):
    """Four columns of nothing give any number of zeros."""
    thin = {"dtype": "float64", "shape": [10 ** 6, 0], "data": []}
    wide = {"dtype": "float64", "shape": [0, 10 ** 6], "data": []}
    body = json.dumps({"op": "matmul", "inputs": {"a": thin, "b": wide}})
    answer = service.request("POST", "/jobs?wait=20", body, {"Content-Type": TYPES["json"]})
    assert answer.status in (413, 422), answer.body


def test_a_form_in_a_form_and_compressed_arrays(service):
    import io
    import zipfile
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.npy", npy(np.zeros((1000, 1000))))
    for file in (out.getvalue(), safetensors({"a": np.eye(2)})):
        body = (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\n').encode() + file
        assert ask(service, body + f"\r\n--{BOUNDARY}--\r\n".encode(), "multipart").status in (400, 422)
