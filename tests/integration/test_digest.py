"""execution.digest: the SHA-256 of each output of a job that asks for it, by every wire form and client."""
import hashlib
import json
import subprocess
from fractions import Fraction

import blasd
import numpy as np
import pytest
from service import BLASD, TYPES

A, B = np.arange(12.0).reshape(3, 4), np.arange(-7.0, 13.0).reshape(4, 5)  # products are whole numbers


def digest(array):
    line = f"{array.dtype} {list(array.shape)}\n"
    return hashlib.sha256(line.encode() + np.ascontiguousarray(array).tobytes()).hexdigest()


WISH = {"c": digest(A @ B)}


def body(**members):
    return {"op": "matmul", "inputs": {"a": A.tolist(), "b": B.tolist()}, **members}


def told(answer):
    assert answer.status == 200, answer.body
    return answer.json()["execution"].get("digest")


@pytest.mark.parametrize("form", ["json", "safetensors", "multipart"])
@pytest.mark.parametrize("asked, wish", [(True, WISH), (False, None), (None, None)])
def test_each_form_of_a_job(service, form, asked, wish):
    members = {} if asked is None else {"digest": asked if form == "json" else json.dumps(asked)}
    answer = service.post("matmul", {"a": A, "b": B}, {"rounding": "correct"}, form=form, **members)
    assert told(answer) == wish


def test_the_query_arrays_and_tensors_that_are_kept(service):
    assert told(service.post("matmul", {"a": A, "b": B}, form="safetensors", query="&digest=true")) == WISH
    both = service.post("solve", {"a": np.eye(3) * 2, "b": np.ones(3)}, digest=True, keep=["x"], results=["error_estimate"])
    assert told(both)["x"] == digest(np.full(3, 0.5))
    answer = service.post("matmul", {"a": A, "b": B}, form="multipart", accept="npy", query="&digest=true")
    done = service.request("GET", "/jobs/" + answer.headers["Job-Id"]) if "Job-Id" in answer.headers else None
    assert np.array_equal(answer.npy(), A @ B) and (done is None or told(done) == WISH)
    large = np.ones((400, 500))  # a result that lies in a file
    assert told(service.post("matmul", {"a": large, "b": large.T}, accept=None, digest=True)) == {"c": digest(large @ large.T)}


def test_dtypes_shapes_and_dry_runs(service):
    for dtype in ("float32", "complex128", "float16"):
        assert told(service.post("matmul", {"a": A.astype(dtype), "b": B.astype(dtype)}, form="safetensors", digest="true")) == {
            "c": digest(A.astype(dtype) @ B.astype(dtype))}
    assert told(service.post("matmul", {"a": np.ones((0, 4)), "b": B}, form="safetensors", digest="true")) == {
        "c": digest(np.ones((0, 5)))}
    answer = service.request("POST", "/jobs?dry_run=true", json.dumps(body(digest=True)), {"Content-Type": TYPES["json"]})
    assert answer.status == 200 and "digest" not in answer.json()


@pytest.mark.parametrize("members", [{"digest": "maybe"}, {"digest": 1}, {"digest": None}])
def test_what_is_no_truth_value(service, members):
    answer = service.request("POST", "/jobs", json.dumps(body(**members)), {"Content-Type": TYPES["json"]})
    assert answer.status == 422 and answer.json()["field"] == "digest"


def test_graphs_have_none(service):
    steps = {"p": {"op": "matmul", "inputs": {"a": A.tolist(), "b": B.tolist()}}}
    answer = service.request("POST", "/graphs", json.dumps({"steps": steps, "digest": True}), {"Content-Type": TYPES["json"]})
    assert answer.status == 422 and answer.json()["code"] == "unknown_field"


def test_inference_and_clients(service, tmp_path):
    inputs = [{"name": n, "datatype": "FP64", "shape": list(v.shape), "data": v.ravel().tolist()} for n, v in (("a", A), ("b", B))]
    answer = service.request("POST", "/v2/models/matmul/infer", json.dumps({"parameters": {"digest": True}, "inputs": inputs}))
    assert answer.status == 200, answer.body
    assert told(service.request("GET", "/jobs/" + answer.json()["parameters"]["job"])) == WISH
    result = blasd.Client(service.url).run("matmul", a=A, b=B, digest=True)
    assert result.job["execution"]["digest"] == WISH
    assert "digest" not in blasd.Client(service.url).run("matmul", a=A, b=B).job["execution"]
    for name, array in (("a", A), ("b", B)):
        np.save(tmp_path / f"{name}.npy", array)
    said = subprocess.run([BLASD, "run", "--url", service.url, "matmul", f"a={tmp_path}/a.npy", f"b={tmp_path}/b.npy", "--digest"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0 and f"sha256 c {WISH['c']}" in said.stdout, said


def test_correct_rounding_has_one_digest_by_each_form_and_in_company(service):
    random = np.random.default_rng(46)
    a, b = random.standard_normal((9, 7)), random.standard_normal((7, 5))
    correct = {"rounding": "correct"}
    forms = [told(service.post("matmul", {"a": a, "b": b}, correct, form=form, digest=True if form == "json" else "true"))
             for form in ("json", "safetensors", "multipart")]
    client = blasd.Client(service.url)
    jobs = [client.submit("matmul", correct, a=a, b=b, digest=True) for _ in range(40)]  # they share batches
    company = [job.result().job["execution"]["digest"] for job in jobs]
    exact = {"c": digest(np.array([[float(sum(Fraction(x) * Fraction(y) for x, y in zip(row, column))) for column in b.T.tolist()]
                                   for row in a.tolist()]))}
    assert all(got == exact for got in forms + company)
