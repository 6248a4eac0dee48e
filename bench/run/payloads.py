"""What is sent: one problem, worded for each subject, with the answer it must give.

Operands of products are small whole numbers, so that every library gives the same bits and answers can be compared
byte by byte; what is not exact is compared within a tolerance. Files lie in one scratch directory.
"""
import json
import struct

import numpy as np

CODES = {"float32": "F32", "float64": "F64"}


def safetensors(arrays, **metadata):
    header, at = {"__metadata__": metadata}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": CODES[array.dtype.name], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors aligned, as the format's own writer does
    return b"".join([struct.pack("<Q", len(text)), text, *(a.tobytes() for a in arrays.values())])


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def whole(array):
    """Nested lists of ints where all are whole: as blasd writes numbers."""
    return array.astype(int).tolist()


class Payload:
    """One problem. `answer` is the name of the output that is compared."""

    def __init__(self, scratch, name, op, inputs, answer, expected, kind="json", weight=1, exact=True, wait=60):
        self.scratch, self.name, self.op, self.inputs, self.weight = scratch, name, op, inputs, weight
        self.answer, self.expected, self.kind, self.exact, self.wait = answer, expected, kind, exact, wait
        self.bytes = sum(a.nbytes for a in inputs.values()) + expected.nbytes

    def _file(self, suffix, make):
        path = self.scratch / f"{self.name}.{suffix}"
        if not path.exists():
            path.write_bytes(make())
        return str(path)

    def _json_body(self):
        return self._file("json", lambda: compact(
            {"op": self.op, "inputs": {k: v.tolist() for k, v in self.inputs.items()}}).encode())

    def referring(self, kept):
        """The same, but for the inputs that the service keeps: `kept` has their ids."""
        return Referring(self, kept)

    def _safetensors_body(self):
        return self._file("safetensors", lambda: safetensors(self.inputs, op=self.op))

    def _raw_body(self):
        return self._file("raw", lambda: b"".join(v.tobytes() for v in self.inputs.values()))

    def _tail(self):
        out = {"tail": self._file("answer", self.expected.tobytes)}
        if not self.exact:
            out.update(tail_float=self.expected.itemsize, tolerance=1e-3 if self.expected.itemsize == 4 else 1e-9)
        return out

    def _entry(self, path, body, **more):
        return dict({"name": self.name, "weight": self.weight, "path": path, "body": body}, **more)

    def for_blasd(self, query=None):
        query = f"?wait={self.wait}" if query is None else query
        if self.kind == "json":
            text = f'"data":{compact(whole(self.expected))}' if self.exact else '"state":"succeeded"'
            return self._entry("/jobs" + query, self._json_body(), headers={"Content-Type": "application/json"},
                               contains=text)
        body = self._safetensors_body()
        headers = {"Content-Type": "application/x-safetensors"}
        if not query:  # submitted, not waited for
            return self._entry("/jobs", body, headers=headers)
        headers["Accept"] = "application/x-npy"
        return self._entry("/jobs" + query, body, headers=headers, **self._tail())

    def for_blasd_submit(self):
        entry = self.for_blasd("")
        entry.pop("contains", None)
        return dict(entry, status=202)

    def for_plain_c(self):
        if self.op != "matmul":
            return None
        if self.kind == "json":
            return self._entry("/json", self._json_body(), contains=compact({"c": self.expected.astype(float).tolist()}))
        (m, k), n = self.inputs["a"].shape, self.inputs["b"].shape[1]
        return self._entry(f"/binary?m={m}&k={k}&n={n}", self._raw_body(), **self._tail())

    def for_fastapi(self):
        headers = {"Content-Type": "application/json"}
        if self.kind == "json":
            text = compact({self.answer: self.expected.astype(float).tolist()}) if self.exact else f'"{self.answer}"'
            return self._entry("/json", self._json_body(), headers=headers, contains=text)
        first = next(iter(self.inputs.values()))
        shapes = ",".join("x".join(map(str, a.shape)) for a in self.inputs.values())
        return self._entry(f"/binary?op={self.op}&dtype={first.dtype.name}&shapes={shapes}", self._raw_body(),
                           **self._tail())

    def for_celery(self):
        if self.kind != "json" or self.op != "matmul":
            return None
        return self._entry("/jobs", self._json_body(), status=202)

    def for_triton(self):
        if self.op != "matmul":
            return None
        code = {"float32": "FP32", "float64": "FP64"}[self.expected.dtype.name]
        model = {"float32": "matmul32", "float64": "matmul64"}[self.expected.dtype.name]
        path = f"/v2/models/{model}/infer"
        if self.kind == "json":
            inputs = [{"name": k, "shape": [1, *v.shape], "datatype": code, "data": v.ravel().tolist()}
                      for k, v in self.inputs.items()]
            body = self._file("triton.json", lambda: compact({"inputs": inputs}).encode())
            return self._entry(path, body, headers={"Content-Type": "application/json"},
                               contains=f'"data":{compact(self.expected.astype(float).ravel().tolist())}')
        inputs = [{"name": k, "shape": [1, *v.shape], "datatype": code, "parameters": {"binary_data_size": v.nbytes}}
                  for k, v in self.inputs.items()]
        head = compact({"inputs": inputs, "outputs": [{"name": "c", "parameters": {"binary_data": True}}]}).encode()
        body = self._file("triton.binary", lambda: head + b"".join(v.tobytes() for v in self.inputs.values()))
        return self._entry(path, body, headers={"Content-Type": "application/octet-stream",
                                                "Inference-Header-Content-Length": str(len(head))}, **self._tail())


def small_whole(rng, *shape, dtype="float64"):
    """Whole numbers from 1 to 8: sums of 4096 products stay exact in float32."""
    return rng.integers(1, 9, shape).astype(dtype)


def product(scratch, name, n, dtype="float32", kind="binary", weight=1, columns=None, wait=60):
    rng = np.random.default_rng(n)
    a, b = small_whole(rng, n, n, dtype=dtype), small_whole(rng, n, columns or n, dtype=dtype)
    return Payload(scratch, name, "matmul", {"a": a, "b": b}, "c", a @ b, kind=kind, weight=weight, wait=wait)


def mixed(scratch):
    """Four operations, several shapes, JSON and binary."""
    rng = np.random.default_rng(5)
    out = [product(scratch, "matmul-4-json", 4, "float64", "json", 30), product(scratch, "matmul-16-json", 16, "float64", "json", 10),
           product(scratch, "matmul-64", 64, weight=15), product(scratch, "matmul-256", 256, weight=3)]
    # unit lower triangular with entries of -1, 0 and 1: elimination stays in whole numbers
    low = np.tril(rng.integers(-1, 2, (8, 8)), -1) + np.eye(8)
    x = small_whole(rng, 8)
    out.append(Payload(scratch, "solve-8-json", "solve", {"a": low, "b": low @ x}, "x", x, weight=15))
    a = rng.standard_normal((64, 64)) + 16 * np.eye(64)
    x = small_whole(rng, 64, 1)
    out.append(Payload(scratch, "solve-64", "solve", {"a": a, "b": a @ x}, "x", x, kind="binary", weight=7, exact=False))
    x = small_whole(rng, 16, 3)
    squares = ((x[:, None] - x[None]) ** 2).sum(axis=-1)
    out.append(Distances(scratch, "distance-16x3-json", "distance", {"x": x}, "d", squares, weight=15))
    x = rng.integers(0, 100, (50, 3)).astype(float)
    out.append(Payload(scratch, "regression-50x3-json", "regression", {"x": x, "y": x @ [1.0, 2.0, 3.0] + 4}, "coef",
                       np.array([1.0, 2.0, 3.0]), weight=5, exact=False))
    return out


class Referring(Payload):
    """Inputs that the service keeps are named, and not sent."""

    def __init__(self, payload, kept):
        vars(self).update(vars(payload))
        self.name = "-".join([payload.name, *kept.values()])
        self.sent = {k: v for k, v in payload.inputs.items() if k not in kept}
        self.said = {k: {"tensor": v} for k, v in kept.items()}

    def _json_body(self):
        return self._file("json", lambda: compact(
            {"op": self.op, "inputs": {**self.said, **{k: v.tolist() for k, v in self.sent.items()}}}).encode())

    def _safetensors_body(self):
        return self._file("safetensors", lambda: safetensors(self.sent, op=self.op, inputs=compact(self.said)))


class PowerIteration:
    """As one graph: v = a v, v = v / |v| (the Q of a single column), so many times, and the eigenvalue at the end. `kept`: the
    matrix is a tensor that the service has, of that id."""

    def __init__(self, scratch, n, steps, kept=None):
        self.scratch, self.steps, self.kept, self.name = scratch, steps, kept, f"power-{n}-{steps}"
        self.inputs = {"a": small_whole(np.random.default_rng(n), n, n)}

    def referring(self, kept):
        return PowerIteration(self.scratch, len(self.inputs["a"]), self.steps, kept["a"])

    def _graph(self):
        a = {"tensor": self.kept} if self.kept else {"input": "a"}
        graph, last = {}, {"input": "v"}
        for i in range(self.steps):
            graph[f"w{i}"] = {"op": "matmul", "inputs": {"a": a, "b": last}}
            graph[f"v{i}"] = {"op": "qr", "inputs": {"a": {"step": f"w{i}"}}}
            last = {"step": f"v{i}", "output": "Q"}
        graph["w"] = {"op": "matmul", "inputs": {"a": a, "b": last}}
        graph["value"] = {"op": "matmul", "inputs": {"a": last, "b": {"step": "w"}}, "params": {"transpose_a": True}}
        return graph

    def _value(self):
        a, v = self.inputs["a"], np.ones((len(self.inputs["a"]), 1))
        for _ in range(self.steps):
            v = a @ v
            v /= np.linalg.norm(v)
        return v.T @ a @ v

    def for_blasd(self):
        body = self.scratch / f"{self.name}-{self.kept or 'sent'}.safetensors"
        answer = self.scratch / f"{self.name}.answer"
        if not body.exists():
            sent = {} if self.kept else dict(self.inputs)
            body.write_bytes(safetensors({**sent, "v": np.ones((len(self.inputs["a"]), 1))}, steps=compact(self._graph()),
                                         results=compact(["value"])))
            answer.write_bytes(self._value().tobytes())
        return {"name": "power", "path": "/graphs?wait=120", "body": str(body), "tail": str(answer), "tail_float": 8, "tolerance": 1e-9,
                "headers": {"Content-Type": "application/x-safetensors", "Accept": "application/x-safetensors"}}


class Distances(Payload):
    """Squared distances, as the peer computes them without a square root."""

    def _json_body(self):
        return self._file("json", lambda: compact({"op": self.op, "inputs": {"x": self.inputs["x"].tolist()},
                                                   "params": {"metric": "sqeuclidean"}}).encode())
