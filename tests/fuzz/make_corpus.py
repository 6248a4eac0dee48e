#!/usr/bin/env python3
"""Writes the seed corpus of the fuzzers of the way in. NumPy writes the .npy files, so that the
readers meet what it really sends."""
import gzip
import io
import json
import pathlib
import struct
import zlib

import numpy as np

HERE = pathlib.Path(__file__).parent / "corpus"


def write(folder, name, data):
    path = HERE / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)


def json_seeds():
    tensors = {
        "lists": "[[1,2.5],[-3e2,1e-400]]",
        "scalar": "42",
        "bools": "[true,false]",
        "nonfinite": '["NaN","Infinity","-Infinity"]',
        "empty": "[[],[]]",
        "deep": "[[[[[[[[7]]]]]]]]",
        "ragged": "[[1,2],[3]]",
        "float32": '{"dtype":"float32","shape":[2,2],"data":[1,2,3,4]}',
        "late_dtype": '{"data":[1,2,3],"shape":[3],"dtype":"int64"}',
        "half": '{"dtype":"float16","data":[65504,5.96e-8,1.00048828125]}',
        "uint64": '{"dtype":"uint64","data":[18446744073709551615,1e3,2.0]}',
        "base64": '{"dtype":"float64","shape":[1],"base64":"AAAAAAAA8D8="}',
        "late_base64": '{"base64":"AQID\\/w==","shape":[4],"dtype":"uint8"}',
        "range": '{"dtype":"int8","data":[128]}',
        "spaces": " [ 1 ,\n\t2 ] ",
    }
    for name, text in tensors.items():
        write("intake_json", name, '{"op":"mix","inputs":{"a":%s},"params":{"k":3}}' % text)
    write("intake_json", "members",
          '{"inputs":{"b":[1],"a":[2]},"op":"mix","priority":"high","deadline_ms":5,"device":"cpu",'
          '"params":{"alpha":0.5,"transpose_a":true,"mode":"bf16","p":"Infinity","free":"NaN"}}')
    write("intake_json", "values", '{"op":"mix","inputs":{"a":[1],"b":[1],"w":[[0,-0.0],[1,-2]],'
          '"s":{"dtype":"int8","data":[1,0,-1]}}}')
    for name, text in (("eye", '{"eye":3,"dtype":"int8"}'), ("full", '{"full":[2,3],"value":[1,-2],"dtype":"complex64"}'),
                       ("arange", '{"arange":[1,-2,-0.3],"dtype":"float16"}'), ("linspace", '{"linspace":[0,255,7],"dtype":"uint8"}'),
                       ("random", '{"random":"normal","seed":18446744073709551615,"shape":[3,2]}')):
        write("intake_json", f"rule_{name}", '{"op":"mix","inputs":{"a":%s,"w":%s,"s":{"full":[1],"value":0}}}' % (text, text))
    write("intake_json", "big_integer", '{"op":"mix","inputs":{"a":[1]},"params":{"free":18446744073709551616}}')
    write("intake_json", "escapes", '{"\\u006fp":"mix","inputs":{"\\u0061":[1]}}')
    write("intake_json", "broken", '{"op":"mix","inputs":{"a":[1,2')
    write("intake_json", "long", '{"op":"mix","inputs":{"a":[%s]}}' % ",".join(
        "[%d,%d]" % (i % 7, i % 10) for i in range(2100)))


def graph_seeds():
    def product(a, b, **more):
        return {"op": "matmul", "inputs": {"a": a, "b": b}, **more}

    def request(name, steps, **more):
        write("graph", name, json.dumps({"steps": steps, **more}, separators=(",", ":")))
    one = [[1, 2], [3, 4]]
    request("two", {"c": product(one, one), "x": {"op": "solve", "inputs": {"a": {"step": "c", "output": "c"}, "b": [1, 2]}}},
            results=["x"])
    request("beside", {"c": product({"input": "a"}, {"input": "a"}), "d": product({"step": "c"}, {"input": "a"})},
            inputs={"a": one}, results=["c.c", "d"], priority="low", deadline_ms=9)
    request("late", {"d": product({"step": "c"}, one), "c": product(one, {"dtype": "float32", "shape": [2, 1], "data": [1, 2]})})
    request("diamond", {"a": product(one, one), "b": product({"step": "a"}, one), "c": product(one, {"step": "a"}),
                        "d": product({"step": "b"}, {"step": "c"}, params={"alpha": 0.5})}, results=[])
    request("cycle", {"a": product({"step": "b"}, one), "b": product({"step": "a"}, one)})
    request("itself", {"a": product({"step": "a"}, one)})
    request("nowhere", {"a": product({"step": "z", "output": "c"}, {"input": "q"})}, results=["a.q"])
    request("svd", {"s": {"op": "svd", "inputs": {"a": one}, "params": {"compute_uv": False}},
                    "e": product({"step": "s", "output": "S"}, [1, 1])})
    write("graph", "parts", json.dumps({"steps": {
        "a": {"op": "matmul", "inputs": {"a": [[1, 2], [3, 4]], "b": {"eye": 2}}},
        "b": {"op": "matmul", "inputs": {"a": {"step": "a", "slice": [[1, None]]},
                                         "b": {"dtype": "float64", "slice": [[None, None], [0, 1]], "step": "a"}}}}}))
    write("graph", "broken", '{"steps":{"a":{"op":"matmul","inputs":{"a":{"step":"b"')
    write("graph", "escaped", '{"st\\u0065ps":{"a":{"op":"matmul"}}}')


def outgoing_seeds():
    hosts = "one.example *.two.example:8443,http://three.example:80+private [::1]:9 10.0.0.7"
    for name, url in {"plain": "https://one.example/a?b=c#d", "below": "https://a.two.example:8443", "private": "HTTP://three.Example",
                      "six": "https://[0:0::1]:9/", "four": "https://10.0.0.7", "escaped": "https://%6fne.example", "user": "https://one.example@x/",
                      "number": "https://167772167/", "other": "https://[::ffff:127.0.0.1]/", "zone": "https://[fe80::1%25eth0]/"}.items():
        write("outgoing", name, hosts + "\n" + url)
    write("outgoing", "wrong", "*.127.0.0.1, a:0")


def reference_seeds():
    def request(name, a, form="", file=b""):
        text = a if isinstance(a, str) else json.dumps(a)
        write("reference", name, b'{"op":"mix","inputs":{"a":%s}}\0%s\0%s' % (text.encode(), form.encode(), file))
    tensor, url = {"tensor": "t" + "0123456789" * 4}, {"url": "https://h/x"}
    request("whole", tensor, "float64 0 2 3")
    request("rows", {**tensor, "slice": [[1, 2]]}, "float32 0 4 3")
    request("columns", {**tensor, "slice": [[None, 3], [1, None]], "dtype": "int16"}, "int16 0 4 3 2")
    request("fortran", {**tensor, "slice": [[0, None], [2, 3]]}, "complex128 1 5 4")
    request("outside", {**tensor, "slice": [[2, 1]]}, "bool 0 7")
    request("large", {**tensor, "slice": [[4611686018427387904, None]]}, "uint8 0 0 1152921504606846975")
    request("output", {"job": "a" + "0123456789" * 4, "output": "c", "slice": [[0, 1]]}, "float16 0 3")
    request("npy", url, file=npy(np.arange(3.0)))
    request("raw", {**url, "dtype": "int32", "shape": [2]}, file=np.arange(2, dtype="i4").tobytes())
    request("broken", '{"tensor":"t0","slice":[[')


def oip_seeds():
    def tensor(name="a", shape=(2,), datatype="FP64", **more):
        return {"name": name, "shape": list(shape), "datatype": datatype, **more}

    def request(name, inputs, tail=None, **more):
        text = json.dumps({"inputs": inputs, **more}).encode()
        write("oip", name, struct.pack("<H", 0xffff if tail is None else len(text)) + text + (tail or b""))
    request("flat", [tensor(data=[1, 2])])
    request("nested", [tensor(shape=(2, 1), data=[[1], [2]]), tensor("b", (1,), "INT8", data=[-1])])
    request("mismatch", [tensor(shape=(2, 2), data=[[1], [2]])])
    request("bools", [tensor(datatype="BOOL", data=[True, False])])
    request("parameters", [tensor(data=[1, 2])], id="x", parameters={
        "k": 3, "alpha": 0.5, "mode": "tf32", "priority": 1, "timeout": 5000, "device": "cpu", "binary_data_output": True},
        outputs=[{"name": "c", "parameters": {"binary_data": True}}])
    request("binary", [tensor(parameters={"binary_data_size": 16}), tensor("b", (3,), "INT16", data=[1, 2, 3]),
                       tensor("V", (1,), "FP32", parameters={"binary_data_size": 4})],
            np.array([1.5, np.nan]).tobytes() + np.float32(2).tobytes())
    request("short", [tensor(parameters={"binary_data_size": 16})], b"12345678")
    request("shared", [tensor(parameters={"shared_memory_region": "r", "shared_memory_byte_size": 16,
                                          "shared_memory_offset": 64})])
    write("oip", "twice", b'\xff\xff{"inputs":[{"name":"a","data":[1],"data":[2]}]}')
    write("oip", "behind", b'\xff\xff{"inputs":[{"data":[1] 2,"name":"a","shape":[1],"datatype":"FP64"}]}')
    write("oip", "escaped", b'\xff\xff{"inp\\u0075ts":[{"d\\u0061ta":[1],"name":"a","shape":[1],"datatype":"FP64"}]}')


def safetensors(tensors, metadata, align=1):
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        data += b"\0" * (-len(data) % align)
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    items = dict(sorted(header.items(), reverse=True))
    items["__metadata__"] = metadata
    text = json.dumps(items).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def safetensors_seeds():
    a = np.arange(6.0).reshape(2, 3)
    whole = safetensors({"a": ("F64", a), "b": ("F32", a.T.copy().astype("f4"))},
                        {"op": "mix", "params": '{"k":3}', "format": "np"})
    write("intake_safetensors", "plain", whole)
    write("intake_safetensors", "truncated", whole[:-5])
    write("intake_safetensors", "longer", whole + b"x")
    write("intake_safetensors", "kinds",
          safetensors({"a": ("BOOL", np.array([True, False])), "b": ("I64", np.arange(3)),
                       "V": ("F16", np.array([1, np.inf], "f2"))},
                      {"op": "mix", "priority": "low", "deadline_ms": "9", "params.k": "7"}))
    write("intake_safetensors", "values",
          safetensors({"w": ("F16", np.array([0, -0.0, -1], "f2")), "s": ("F64", np.array([2.0, 0, -1])),
                       "a": ("I8", np.array([-1], "i1"))}, {"op": "mix"}))
    write("intake_safetensors", "gaps",
          safetensors({"a": ("F64", a), "b": ("F32", np.ones(5, "f4")), "w": ("F64", np.ones(1))}, {"op": "mix"}, 64))
    write("intake_safetensors", "empty", safetensors({"a": ("U8", np.zeros((0, 4), "u1"))},
                                                     {"op": "plain"}))


def npy(array):
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def multipart(parts):
    body = b""
    for name, value in parts:
        if isinstance(value, str):
            body += b'--XX\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (
                name.encode(), value.encode())
        else:
            body += (b'--XX\r\nContent-Disposition: form-data; name="%s"; filename="%s.npy"\r\n'
                     b"Content-Type: application/octet-stream\r\n\r\n%s\r\n" % (
                         name.encode(), name.encode(), value))
    return body + b"--XX--\r\n"


def multipart_seeds():
    a = np.arange(6.0).reshape(2, 3)
    arrays = {
        "float64": a, "fortran": np.asfortranarray(a), "big_endian": a.astype(">f8"),
        "half": a.astype("f2"), "int16": a.astype(">i2"), "bool": a > 2, "scalar": np.array(7.0),
        "empty": np.zeros((0, 3)), "nan": np.array([1, np.nan]), "object": np.array([None]),
        "complex": a * 1j, "string": np.array(["x"]),
        "structured": np.zeros(2, [("x", "f8"), ("y", "i4")]),
    }
    for name, array in arrays.items():
        write("intake_multipart", name, multipart([("op", "mix"), ("a", npy(array))]))
    write("intake_multipart", "members",
          multipart([("a", npy(a)), ("b", npy(a)), ("op", "mix"), ("params", '{"k":4}'),
                     ("params.alpha", "2"), ("priority", "high"), ("deadline_ms", "5"),
                     ("device", "cpu")]))
    write("intake_multipart", "values",
          multipart([("op", "mix"), ("w", npy(np.array([0, -0.0, -3], ">f4"))),
                     ("s", npy(np.array([3, 0, -1], ">i2")))]))
    write("intake_multipart", "truncated", multipart([("op", "mix"), ("a", npy(a))])[:-40])
    write("intake_multipart", "near", multipart([("op", "mix"), ("a", npy(np.frombuffer(
        b"\r\n--X\r\n--\r\r\n--XY", "u1")))]))


def request_seeds():
    write("request", "plain", "HTTP/1.1\nHost: localhost:8080\nContent-Length: 46\nAccept: application/json;q=0.5, */*\n"
          "Content-Type: application/json\nIdempotency-Key: \"a key\"\nPrefer: wait=5, respond-async\n?wait=2.5\n?op=matmul")
    write("request", "browser", "HTTP/1.1\nHost: [::1]:80\nOrigin: http://[::1]:80\nSec-Fetch-Site: cross-site\n"
          "Sec-Fetch-Mode: navigate\nSec-Fetch-Dest: document\nExpect: 100-continue\nTransfer-Encoding: chunked")
    write("request", "list", "HTTP/1.1\nHost: allowed.example.\n?state=queued\n?limit=100\n?cursor=s00\n?since=2026-01-02T03:04:05.678Z\n"
          "?before=1767322800\n?forget=1\n?deadline_ms=5\n?priority=high\n?device=cpu\nBody-File: 00")


def text_seeds():
    write("texts", "cost", '{"copy_gbytes_s":9.5,"launch_us":1.2,"curves":{"matmul":{"float64":[[1020,1.3,0.2],[9e9,5,1]]}}}')
    for name, text in {"tcp": "redis://us%40er:pa%3Ass@[::1]:6379/3", "unix": "unix:/run/redis.sock", "limit": "body_bytes=4G",
                       "accept": "text/html;q=0.3, application/x-npy;q=1.000, */*;q=0", "id": "s" + "0" * 40,
                       "name": "queue.1-a_b"}.items():
        write("texts", name, text)


def client_seeds():
    document = {"id": "s1", "state": "succeeded", "progress": 1, "outputs": {
        "c": {"dtype": "float64", "shape": [2, 2], "data": [[1, 2], [3, "NaN"]], "href": "/jobs/s1/outputs/c"}}}
    write("client", "json", json.dumps(document))
    write("client", "problem", '{"code":"shape_mismatch","detail":"no","field":"inputs.a","retry":false,"status":422}')
    write("client", "tensors", safetensors({"c": ("F64", np.eye(2)), "i": ("I64", np.arange(3))}, {"job": json.dumps(document)}))


def tensor_body_seeds():
    """The first byte says how it comes: as it is, by gzip, by deflate."""
    bodies = {"list": b"[[1,2],[3,4]]", "typed": b'{"dtype":"float32","shape":[2],"data":[1,"NaN"]}',
              "many": b'{"tensors":{"a":[1,2],"b":{"dtype":"uint8","shape":[3],"base64":"AQID"}}}', "rule": b'{"eye":3}',
              "npy": npy(np.arange(6.0).reshape(2, 3)), "fortran": npy(np.asfortranarray(np.ones((3, 2), ">f4"))),
              "zero": b'[1,\0]', "behind": b"[1] [2]", "empty": b""}
    for name, body in bodies.items():
        write("tensor_body", name, b"0" + body)
        write("tensor_body", f"{name}.gz", b"1" + gzip.compress(body, mtime=0))
        write("tensor_body", f"{name}.z", b"2" + zlib.compress(body))
    write("tensor_body", "two.gz", b"1" + gzip.compress(b"[1,", mtime=0) + gzip.compress(b"2]", mtime=0))
    write("tensor_body", "cut.gz", b"1" + gzip.compress(bodies["npy"], mtime=0)[:-9])
    write("tensor_body", "bomb.z", b"2" + zlib.compress(bytes(3 << 20), 9))


json_seeds()
tensor_body_seeds()
safetensors_seeds()
multipart_seeds()
request_seeds()
text_seeds()
client_seeds()
oip_seeds()
graph_seeds()
outgoing_seeds()
reference_seeds()
