"""The Open Inference Protocol, judged by clients that others wrote, and at its edges by hand."""
import concurrent.futures
import gzip
import json
import os
import pathlib
import re
import subprocess
import zlib

import numpy as np
import pytest
from service import API, BLASD

CODES = {"float64": "FP64", "float32": "FP32", "float16": "FP16", "int64": "INT64", "int32": "INT32", "int16": "INT16",
         "int8": "INT8", "uint64": "UINT64", "uint32": "UINT32", "uint16": "UINT16", "uint8": "UINT8", "bool": "BOOL"}
DTYPES = {code: name for name, code in CODES.items()}


def tensor(name, array, binary=False):
    """(the tensor's JSON, the bytes that follow)"""
    array = np.asarray(array)
    one = {"name": name, "shape": list(array.shape), "datatype": CODES[array.dtype.name]}
    if binary:
        return {**one, "parameters": {"binary_data_size": array.nbytes}}, array.tobytes()
    return {**one, "data": array.ravel().tolist()}, b""


def body_of(inputs, binary=(), **more):
    tensors = [tensor(name, array, name in binary) for name, array in inputs.items()]
    text = json.dumps({"inputs": [one for one, _ in tensors], **more}).encode()
    tail = b"".join(raw for _, raw in tensors)
    return text + tail, {"Inference-Header-Content-Length": str(len(text))} if binary else {}


def read(answer):
    """(the answer's JSON, its outputs as arrays)"""
    length = answer.headers.get("Inference-Header-Content-Length")
    at = len(answer.body) if length is None else int(length)
    document, arrays = json.loads(answer.body[:at]), {}
    for one in document["outputs"]:
        dtype = DTYPES[one["datatype"]]
        if "data" in one:
            array = np.array(one["data"], dtype)
        else:
            size = one["parameters"]["binary_data_size"]
            array = np.frombuffer(answer.body[at:at + size], dtype)
            at += size
        arrays[one["name"]] = array.reshape(one["shape"])
    assert at == len(answer.body)
    return document, arrays


def infer(service, model, inputs, binary=(), headers=None, path="", **more):
    body, own = body_of(inputs, binary, **more)
    return service.request("POST", f"/v2/models/{model}{path}/infer", body, {**own, **(headers or {})})


RNG = np.random.default_rng(21)
A, B = RNG.random((5, 3)), RNG.random((3, 4))


# --- metadata -----------------------------------------------------------------------------------------------------


def test_server_and_models(service):
    server = service.request("GET", "/v2").json()
    assert server["name"] == "blasd" and "binary_tensor_data" in server["extensions"]
    assert "system_shared_memory" not in server["extensions"]  # without --share
    index = service.request("POST", "/v2/repository/index").json()
    ops = {op["name"]: op for op in service.request("GET", "/ops").json()["ops"]}
    assert [one["name"] for one in index] == list(ops) and all(one["state"] == "READY" for one in index)
    for name, op in ops.items():
        for path in ("", "/versions/1"):
            model = service.request("GET", f"/v2/models/{name}{path}").json()
            config = service.request("GET", f"/v2/models/{name}{path}/config").json()
            assert service.request("GET", f"/v2/models/{name}{path}/ready").status == 200
            assert model["versions"] == ["1"] and config["max_batch_size"] == 0
            for ports, mine, theirs in (("inputs", "input", op["inputs"]), ("outputs", "output", op["outputs"])):
                described = {port["name"]: port for port in theirs}
                assert [port["name"] for port in model[ports]] == [n for n, port in described.items() if not port["optional"] or "required_unless" in port]
                assert [port["name"] for port in model[f"optional_{ports}"]] == [
                    n for n, port in described.items() if port["optional"] and "required_unless" not in port]
                for port in model[ports] + model[f"optional_{ports}"]:
                    assert DTYPES[port["datatype"]] in described[port["name"]]["dtypes"] and set(port["shape"]) <= {-1}
                    assert described[port["name"]]["min_rank"] <= len(port["shape"]) <= described[port["name"]]["max_rank"]
                assert config[mine] == [{"name": port["name"], "data_type": "TYPE_" + port["datatype"], "dims": port["shape"]}
                                        for port in model[ports]]
    matmul = service.request("GET", "/v2/models/matmul").json()
    assert [port["shape"] for port in matmul["inputs"]] == [[-1, -1]] * 2


def test_health(service):
    """KServe's client reads the bodies, not the status alone."""
    for path, said in (("/v2/health/live", {"live": True}), ("/v2/health/ready", {"live": True, "ready": True}),
                       ("/v2/models/solve/ready", {"name": "solve", "ready": True}),
                       ("/v2/models/solve/versions/1/ready", {"name": "solve", "ready": True})):
        answer = service.request("GET", path)
        assert answer.status == 200 and said.items() <= answer.json().items() and answer.json()["status"], path


@pytest.mark.parametrize("path", ["/v2/models/nothing", "/v2/models/nothing/config", "/v2/models/nothing/stats",
                                  "/v2/models/nothing/ready", "/v2/models/matmul/versions/2",
                                  "/v2/models/matmul/versions/2/ready", "/v2/nothing", "/v2/models/matmul/infer"])
def test_what_is_not_there_is_an_error_of_its_form(service, path):
    answer = service.request("GET", path)
    assert answer.status in (404, 405) and list(answer.json()) == ["error"]
    assert answer.headers["Content-Type"] == "application/json"


def test_paths_that_only_begin_like_it_have_our_form(service):
    for path in ("/v2x", "/v22/models", "/v"):
        assert service.request("GET", path).json()["code"] == "route_not_found"


# --- inference ----------------------------------------------------------------------------------------------------


@pytest.mark.first
def test_json(service):
    document, arrays = read(infer(service, "matmul", {"a": A, "b": B}, id="number 1"))
    np.testing.assert_allclose(arrays["c"], A @ B, rtol=1e-14)
    assert (document["model_name"], document["model_version"], document["id"]) == ("matmul", "1", "number 1")
    assert document["parameters"]["batch_size"] >= 1 and document["parameters"]["device"].startswith("cpu")
    # the same job as any other, of which there is a document
    job = service.request("GET", f"/jobs/{document['parameters']['job']}").json()
    assert job["op"] == "matmul" and job["state"] == "succeeded"


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int8", "uint64", "uint8", "bool"])
@pytest.mark.parametrize("binary", [False, True])
def test_datatypes(service, dtype, binary):
    a, b = (A * 10).astype(dtype), (B * 10).astype(dtype)
    _, arrays = read(infer(service, "matmul", {"a": a, "b": b}, binary=("a", "b") if binary else (),
                           parameters={"binary_data_output": binary}))
    wide = np.float64 if a.dtype.kind != "f" else dtype
    assert arrays["c"].dtype == wide
    np.testing.assert_allclose(arrays["c"], a.astype(wide) @ b.astype(wide), rtol=1e-2 if dtype == "float16" else 1e-6)


def test_parameters_are_the_operation_s(service):
    parameters = {"alpha": 2, "transpose_a": True}
    _, arrays = read(infer(service, "matmul", {"a": A.T, "b": B}, parameters=parameters))
    np.testing.assert_allclose(arrays["c"], 2 * A @ B, rtol=1e-14)
    _, arrays = read(infer(service, "distance", {"x": A}, parameters={"metric": "cityblock", "output": "topk", "k": 2}))
    assert arrays["d"].shape == (5, 2) and arrays["index"].dtype == np.int64


def test_outputs_in_the_order_and_form_asked_for(service):
    outputs = [{"name": "r2"}, {"name": "coef", "parameters": {"binary_data": True}},
               {"name": "intercept", "parameters": {"binary_data": False}}]
    x, y = RNG.random((30, 2)), RNG.random(30)
    document, arrays = read(infer(service, "regression", {"x": x, "y": y}, outputs=outputs))
    assert [one["name"] for one in document["outputs"]] == ["r2", "coef", "intercept"]
    assert ["data" in one for one in document["outputs"]] == [True, False, True]
    full = service.run("regression", {"x": x, "y": y})[0]
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, full[name])


@pytest.mark.parametrize("side", [1, 40, 300, 1500])  # beside the record, in a segment, in a file, sent piece by piece
@pytest.mark.parametrize("binary", [False, True])
def test_sizes(service, side, binary):
    a = RNG.random((side, side)).round(3)
    _, arrays = read(infer(service, "matmul", {"a": a, "b": np.eye(side)}, binary=("a", "b"),
                           parameters={"binary_data_output": binary}))
    np.testing.assert_array_equal(arrays["c"], a)


def test_values_that_json_has_no_numbers_for(service):
    one = {"name": "a", "shape": [1, 3], "datatype": "FP64", "data": ["NaN", "Infinity", "-Infinity"]}
    other = tensor("b", np.eye(3))[0]
    answer = service.request("POST", "/v2/models/matmul/infer", json.dumps({"inputs": [one, other]}))
    assert answer.status == 200 and set(answer.json()["outputs"][0]["data"]) == {"NaN"}


def test_optional_inputs_and_empty_tensors(service):
    _, arrays = read(infer(service, "distance", {"x": A, "y": B.T}))
    assert arrays["d"].shape == (5, 4)
    _, arrays = read(infer(service, "matmul", {"a": np.zeros((0, 3)), "b": B}, binary=("a",),
                           parameters={"binary_data_output": True}))
    assert arrays["c"].shape == (0, 4)


def error_of(answer, status, *words):
    assert answer.status == status, (answer.status, answer.body)
    document = answer.json()
    assert list(document) == ["error"]
    for word in words:
        assert word in document["error"], document
    code = document["error"].split(":")[0]
    assert API.errors[code]["status"] == status
    return document["error"]


def test_errors(service):
    error_of(infer(service, "matmul", {"a": A, "b": A}), 422, "shape_mismatch")
    error_of(infer(service, "matmul", {"a": A}), 422, "missing_input", "inputs.b")
    error_of(infer(service, "matmul", {"a": A, "c": B}), 422, "missing_input")
    error_of(infer(service, "solve", {"a": np.ones((3, 3)), "b": np.ones(3)}), 422, "singular_matrix")
    error_of(infer(service, "matmul", {"a": A, "b": B}, parameters={"alhpa": 2}), 422, "did you mean 'alpha'")
    error_of(infer(service, "matmul", {"a": A, "b": B}, outputs=[{"name": "d"}]), 422, "no output 'd'")
    error_of(infer(service, "distance", {"x": A}, outputs=[{"name": "index"}]), 404, "output_not_found")
    error_of(infer(service, "nothing", {"a": A}), 404, "unknown model 'nothing'")
    error_of(infer(service, "matmul", {"a": A, "b": B}, path="/versions/3"), 404, "no version '3'")
    error_of(service.request("POST", "/v2/models/matmul/infer", b"not json"), 400, "malformed_json")
    error_of(service.request("POST", "/v2/models/matmul/infer", b""), 400, "malformed_json")
    complex_one = {"name": "a", "shape": [1], "datatype": "C64", "data": [1, 0]}
    error_of(service.request("POST", "/v2/models/matmul/infer", json.dumps({"inputs": [complex_one]})), 422,
             "unsupported_dtype")
    for header in ("x", "-1", "1e3", "99999999999999999999", "5000"):
        error_of(infer(service, "matmul", {"a": A, "b": B}, headers={"Inference-Header-Content-Length": header}), 400,
                 "Inference-Header-Content-Length")
    error_of(infer(service, "matmul", {"a": A, "b": B}, headers={"Host": "elsewhere.example"}), 403, "forbidden_host")
    # after all that it still works
    assert infer(service, "matmul", {"a": A, "b": B}).status == 200


def test_the_header_s_length_must_be_the_json_s(service):
    body, headers = body_of({"a": A, "b": B}, binary=("a", "b"))
    length = int(headers["Inference-Header-Content-Length"])
    for wrong in (0, 1, length - 1, length + 1, len(body)):
        answer = service.request("POST", "/v2/models/matmul/infer", body, {"Inference-Header-Content-Length": str(wrong)})
        assert answer.status in (400, 422) and list(answer.json()) == ["error"], wrong


def test_a_timeout_ends_the_job(make_service):
    service = make_service()
    with service.worker_held():
        error_of(infer(service, "matmul", {"a": A, "b": B}, parameters={"timeout": 200000}), 504, "deadline_exceeded")
    assert infer(service, "matmul", {"a": A, "b": B}, parameters={"timeout": 60_000_000}).status == 200


def test_the_same_limits_as_jobs(make_service):
    service = make_service("--limit", "json_bytes=4096", "--limit", "job_bytes=100000")
    error_of(infer(service, "matmul", {"a": RNG.random((30, 30)), "b": np.eye(30)}), 413, "limit json_bytes")
    error_of(infer(service, "matmul", {"a": RNG.random((90, 90)), "b": np.eye(90)}, binary=("a", "b")), 413,
             "limit job_bytes")
    full = make_service("--limit", "queue_jobs=1", "--limit", "queue_wait_ms=0")
    with full.worker_held():
        assert full.post("matmul", {"a": A, "b": B}, wait=0).status == 202
        answer = infer(full, "matmul", {"a": A, "b": B})
    error_of(answer, 429, "queue_full")
    assert int(answer.headers["Retry-After"]) >= 1


def test_requests_that_wait_for_room_say_the_same_when_they_are_read_again(make_service):
    """Many clients of several loops, none of which knows at once what the others have put into the queue."""
    service = make_service("--loops", "4", "--limit", "queue_jobs=2", "--limit", "queue_wait_ms=60000")
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda _: infer(service, "matmul", {"a": A, "b": B}, id="x", outputs=[{"name": "c"}]),
                                range(400)))
    assert {answer.status for answer in answers} <= {200, 429}
    taken = [answer for answer in answers if answer.status == 200]
    assert taken
    for answer in taken:
        np.testing.assert_allclose(read(answer)[1]["c"], A @ B, rtol=1e-12)


def test_statistics(make_service):
    service = make_service()

    def stats(path="/v2/models/matmul/stats"):
        return service.request("GET", path).json()["model_stats"]
    assert stats()[0]["inference_count"] == 0
    for _ in range(3):
        assert infer(service, "matmul", {"a": A, "b": B}).status == 200
    infer(service, "solve", {"a": np.ones((3, 3)), "b": np.ones(3)})
    one = stats("/v2/models/matmul/versions/1/stats")[0]
    assert (one["name"], one["version"], one["inference_count"], one["execution_count"]) == ("matmul", "1", 3, 3)
    assert all(one["inference_stats"][name]["count"] == 3
               for name in ("success", "queue", "compute_input", "compute_infer", "compute_output"))
    assert one["inference_stats"]["success"]["ns"] > 0 and one["last_inference"] > 1.5e12
    solve = next(model for model in stats("/v2/models/stats") if model["name"] == "solve")
    assert solve["inference_stats"]["fail"]["count"] == 1 and solve["inference_count"] == 0
    assert len(stats("/v2/models/stats")) == len(service.request("GET", "/ops").json()["ops"])


PACK = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("side", [3, 200, 900])
def test_compressed_bodies(service, coding, side):
    a = RNG.integers(0, 9, (side, side)).astype(float)
    body, headers = body_of({"a": a, "b": np.eye(side)}, binary=("a", "b"), parameters={"binary_data_output": True})
    answer = service.request("POST", "/v2/models/matmul/infer", PACK[coding](body),
                             {**headers, "Content-Encoding": coding, "Accept-Encoding": coding}, check=False)
    assert answer.status == 200, answer.body
    assert "Content-Encoding" not in answer.headers  # a proxy may compress answers
    np.testing.assert_array_equal(read(answer)[1]["c"], a)


def test_compressed_bodies_that_are_wrong(make_service):
    service = make_service("--limit", "json_bytes=1M", "--limit", "body_bytes=2M")
    body, _ = body_of({"a": A, "b": B})
    for packed, coding in ((gzip.compress(body)[:-9], "gzip"), (gzip.compress(body) + b"x", "gzip"), (body, "gzip"),
                           (b"", "gzip"), (zlib.compress(body), "gzip"), (gzip.compress(body), "deflate")):
        answer = service.request("POST", "/v2/models/matmul/infer", packed, {"Content-Encoding": coding})
        assert answer.status == 400 and list(answer.json()) == ["error"], (packed[:20], coding)
    bomb = gzip.compress(b" " * (1 << 26))
    error_of(service.request("POST", "/v2/models/matmul/infer", bomb, {"Content-Encoding": "gzip"}), 413, "body_too_large")
    answer = service.request("POST", "/v2/models/matmul/infer", body, {"Content-Encoding": "br"})
    assert answer.status == 415 and list(answer.json()) == ["error"]
    assert service.request("POST", "/v2/repository/index", gzip.compress(body), {"Content-Encoding": "gzip"}).status == 415


def test_the_same_keys_as_jobs(make_service, tmp_path):
    file = tmp_path / "keys"
    words = [BLASD, "keys", "add", "one", "--file", file]
    secret = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    service = make_service("--keys", str(file))
    for method, path in (("GET", "/v2"), ("GET", "/v2/models/matmul"), ("POST", "/v2/models/matmul/infer")):
        answer = service.request(method, path)
        error_of(answer, 401, "")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    headers = {"Authorization": f"Bearer {secret}"}
    assert service.request("GET", "/v2", headers=headers).status == 200
    _, arrays = read(infer(service, "matmul", {"a": A, "b": B}, headers=headers))
    np.testing.assert_allclose(arrays["c"], A @ B)


def test_regions_of_shared_memory_are_refused(service):
    """Each old use names what to use."""
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 32}
    a = {"name": "a", "shape": [2, 2], "datatype": "FP64"}
    for path in ("systemsharedmemory/status", "systemsharedmemory/region/r/register", "cudasharedmemory/unregister"):
        error_of(service.request("POST", f"/v2/{path}", "{}"), 404, "Body-File")
    for request in ({"inputs": [{**a, "parameters": region}]},
                    {"inputs": [{**a, "data": [1, 2, 3, 4]}], "outputs": [{"name": "c", "parameters": region}]}):
        error_of(service.request("POST", "/v2/models/matmul/infer", json.dumps(request)), 422, "Body-File")


# --- clients that others wrote ------------------------------------------------------------------------------------


def run_client(venv, service, name):
    script = pathlib.Path(__file__).parent / "clients" / name
    done = subprocess.run([venv("inference") / "bin/python", script, f"127.0.0.1:{service.port}"], capture_output=True,
                          text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.mark.parametrize("name", ["triton_sync.py", "triton_aio.py"])
def test_tritonclient(venv, service, name):
    run_client(venv, service, name)


@pytest.mark.parametrize("options", [
    ["-m", "matmul", "--shape", "a:16,16", "--shape", "b:16,16", "--concurrency-range", "4"],
    ["-m", "solve", "--shape", "a:8,8", "--shape", "b:8,1", "--request-rate-range", "50"]], ids=["concurrency", "rate"])
def test_perf_analyzer(venv, service, options, tmp_path):
    folder = venv("perf")
    found = sorted(folder.glob("lib/python3*/site-packages/nvidia/*/lib"))
    for library in (one for path in found for one in path.glob("libcudart.so.*")):
        (tmp_path / "libcudart.so").symlink_to(library)  # by which name it is opened for shared memory
        break
    libraries = ":".join(map(str, [*found, tmp_path]))
    before = service.request("GET", "/v2/models/stats").json()["model_stats"]
    done = subprocess.run([folder / "bin/perf_analyzer", "-u", f"127.0.0.1:{service.port}", "-i", "http",
                           "--measurement-mode", "count_windows", "--measurement-request-count", "50",
                           "--stability-percentage", "999", "--max-trials", "3", *options],
                          capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "LD_LIBRARY_PATH": libraries})
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4000:]
    rates = [float(rate) for rate in re.findall(r"[Tt]hroughput: ([\d.]+) infer/sec", said)]
    assert rates and min(rates) > 0, said[-4000:]
    after = service.request("GET", "/v2/models/stats").json()["model_stats"]
    model = options[1]
    count = {when: next(one["inference_count"] for one in stats if one["name"] == model)
             for when, stats in (("before", before), ("after", after))}
    assert count["after"] >= count["before"] + 50
