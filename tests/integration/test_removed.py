"""What left the contract is refused, and the refusal names what to use."""
import json
import subprocess

import numpy as np
import pytest
from service import BLASD, TYPES, multipart, npy, safetensors

PUT = {"c": "https://store.example/c.npy?X-Amz-Signature=secret"}
SMALL = {"a": [[1, 2], [3, 4]], "b": [[1, 0], [0, 1]]}
ARRAYS = {"a": np.eye(2), "b": np.eye(2)}
JOB = json.dumps({"op": "matmul", "inputs": SMALL})
GRAPH = {"steps": {"p": {"op": "matmul", "inputs": {"a": {"input": "a"}, "b": {"input": "b"}}}}, "inputs": SMALL}
QUERY = "put=%7B%22c%22%3A%22https%3A%2F%2Fstore.example%2Fc.npy%3FX-Amz-Signature%3Dsecret%22%7D"

PUTS = {
    "json": ("/jobs", json.dumps({"op": "matmul", "inputs": SMALL, "put": PUT}), "json"),
    "of another kind": ("/jobs?wait=5", json.dumps({"put": 1, "op": "matmul", "inputs": SMALL}), "json"),
    "query": (f"/jobs?{QUERY}", JOB, "json"),
    "form": ("/jobs", multipart({"op": "matmul", "put": json.dumps(PUT), **{name: npy(array) for name, array in ARRAYS.items()}}), "multipart"),
    "safetensors": ("/jobs", safetensors(ARRAYS, op="matmul", put=json.dumps(PUT)), "safetensors"),
    "graph": ("/graphs", json.dumps({**GRAPH, "put": PUT}), "json"),
    "graph's query": (f"/graphs?{QUERY}", json.dumps(GRAPH), "json"),
}


@pytest.mark.parametrize("how", PUTS)
def test_put(service, how):
    path, body, kind = PUTS[how]
    answer = service.request("POST", path, body, {"Content-Type": TYPES[kind]})
    problem = answer.json()
    assert (answer.status, problem["code"], problem["field"]) == (400, "feature_removed", "put"), answer.body
    assert "GET /jobs/ID/outputs/NAME" in problem["detail"] and "notify" in problem["detail"] and b"secret" not in answer.body


OPTIONS = {
    ("meter",): "{QUEUE}:ended",
    ("meter", "--to", "redis"): "{QUEUE}:ended",
    ("run", "--put", "c=https://store.example/c.npy", "matmul"): "blasd result",
    ("submit", "--put", "c=https://store.example/c.npy", "matmul"): "blasd result",
    ("up", "--puts"): "GET /jobs/ID/outputs/NAME",
    ("api", "--puts"): "GET /jobs/ID/outputs/NAME",
    ("notify", "--puts"): "GET /jobs/ID/outputs/NAME",
}


@pytest.mark.parametrize("words", OPTIONS, ids=" ".join)
def test_options(words):
    ran = subprocess.run([BLASD, *words], capture_output=True, text=True, timeout=30)
    what = next((word for word in words if word.startswith("--put")), "meter")
    assert ran.returncode == 2 and f"{what} was removed" in ran.stderr and OPTIONS[words] in ran.stderr, ran.stderr


@pytest.mark.parametrize("path", ["/usage", "/usage?since=2026-01-01T00:00:00Z"])
def test_routes(service, path):
    answer = service.request("GET", path)
    assert answer.status == 404 and answer.json()["code"] == "route_not_found" and "{QUEUE}:ended" in answer.json()["detail"], answer.body
