"""Bad input: a clear error that names the field, and a service that stays up."""
import json
import socket
import struct

import numpy as np
import pytest
from service import API, BOUNDARY, TYPES, multipart, npy, safetensors

EYE = [[1, 0], [0, 1]]


def text(**members):
    return json.dumps(members)


def matmul(a, b=EYE, **members):
    return text(op="matmul", inputs={"a": a, "b": b}, **members)


def tensor(**members):
    return matmul(members)


def npy_with(header, data=b"\0" * 32):
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def raw_safetensors(header, data=b"", length=None):
    return struct.pack("<Q", len(header) if length is None else length) + header + data


GOOD_NPY = npy(np.eye(2))
HEADER = '{"a":{"dtype":"F64","shape":[2,2],"data_offsets":[%d,%d]},"b":{"dtype":"F64","shape":[2,2],"data_offsets":[%d,%d]}}'

JSON_CASES = [
    # body, status, code, field
    ("", 400, "malformed_json", ""),
    ("{", 400, "malformed_json", ""),
    ("[]", 400, "malformed_json", ""),
    ("null", 400, "malformed_json", ""),
    ('{"op":"matmul","inputs":{"a":[[1,2],[3', 400, "malformed_json", ""),
    ('{"op":"matmul","inputs":{"a":[[1,2],[3,4]]}}x', 400, "malformed_json", ""),
    ('{"op":"matmul","inputs":{"a":[[NaN]],"b":[[1]]}}', 400, "malformed_json", ""),
    ('{"op":"matmul","inputs":{"a":[[01]],"b":[[1]]}}', 400, "malformed_json", ""),
    ('{"op":"matmul","inputs":{"a":[[1,]],"b":[[1]]}}', 400, "malformed_json", ""),
    ('{"op":"mat\xff"}'.encode("latin-1"), 400, "malformed_json", ""),
    ("[" * 100000, 400, "malformed_json", ""),
    (matmul("deep").replace('"deep"', "[" * 5000 + "1" + "]" * 5000), 422, "invalid_tensor", "inputs.a"),
    (text(inputs={"a": EYE}), 422, "missing_field", "op"),
    (text(op=3, inputs={}), 422, "invalid_field", "op"),
    (text(op="matmull", inputs={"a": EYE, "b": EYE}), 422, "unknown_operation", "op"),
    (matmul(EYE, speed="fast"), 422, "unknown_field", "speed"),
    (matmul(EYE, params={"alhpa": 2}), 422, "unknown_parameter", "params.alhpa"),
    (matmul(EYE, params=[1]), 422, "invalid_field", "params"),
    (text(op="distance", inputs={"x": EYE}, params={"metric": "manhattan"}), 422, "invalid_parameter",
     "params.metric"),
    (text(op="distance", inputs={"x": EYE}, params={"metric": 3}), 422, "invalid_parameter", "params.metric"),
    (text(op="matmul", inputs={"a": EYE}), 422, "missing_input", "inputs.b"),
    (text(op="matmul", inputs={"a": EYE, "b": EYE, "q": EYE}), 422, "unknown_input", "inputs.q"),
    (matmul([[1, 2], [3]]), 422, "invalid_tensor", "inputs.a"),
    (matmul([[1, 2], 3]), 422, "invalid_tensor", "inputs.a"),
    (matmul([["one"]]), 422, "invalid_tensor", "inputs.a"),
    (matmul([[None]]), 422, "invalid_tensor", "inputs.a"),
    (matmul("text"), 422, "invalid_tensor", "inputs.a"),
    (tensor(dtype="float128", shape=[1], data=[1]), 422, "unsupported_dtype", "inputs.a"),
    (tensor(dtype="float64", shape=[2, 2], data=[1, 2, 3]), 422, "invalid_tensor", "inputs.a"),
    (tensor(dtype="float64", shape=[-1, 2], data=[]), 422, "invalid_tensor", "inputs.a"),
    (tensor(dtype="float64", shape=[4294967296, 4294967296], data=[]), 422, "invalid_tensor", "inputs.a"),
    (tensor(dtype="float64", shape=[1] * 9, data=[1]), 422, "invalid_tensor", "inputs.a"),
    (tensor(dtype="float64", shape=[1], base64="****"), 422, "invalid_tensor", "inputs.a"),
    (tensor(dtype="float64", shape=[1], base64="AAAA"), 422, "invalid_tensor", "inputs.a"),
    (tensor(dtype="int8", shape=[1], data=[128]), 422, "invalid_tensor", "inputs.a"),
    (tensor(dtype="int8", shape=[1], data=[1.5]), 422, "invalid_tensor", "inputs.a"),
    (tensor(dtype="float64", shape=[1]), 422, "invalid_tensor", "inputs.a"),
    (matmul([[1, 2, 3]], EYE), 422, "shape_mismatch", "inputs"),
    (text(op="solve", inputs={"a": [[1, 2, 3], [4, 5, 6]], "b": [1, 2]}), 422, None, "inputs.a"),
    (text(op="solve", inputs={"a": EYE, "b": [1, 2, 3]}), 422, "shape_mismatch", "inputs"),
    (text(op="solve", inputs={"a": [1, 2], "b": [1, 2]}), 422, "invalid_shape", "inputs.a"),
    (text(op="regression", inputs={"x": [[1], ["NaN"]], "y": [1, 2]}), 422, "not_finite", "inputs.x"),
    (text(op="regression", inputs={"x": [[1], [2]], "y": [1, "Infinity"]}), 422, "not_finite", "inputs.y"),
    (text(op="regression", inputs={"x": [[1], [2]], "y": [1, 2, 3]}), 422, "shape_mismatch", "inputs"),
    (matmul(EYE, priority="urgent"), 422, "invalid_field", "priority"),
    (matmul(EYE, deadline_ms=0), 422, "invalid_field", "deadline_ms"),
    (matmul(EYE, deadline_ms="soon"), 422, "invalid_field", "deadline_ms"),
    (matmul(EYE, device="tpu"), 422, "invalid_field", "device"),
    (matmul(EYE, device="cuda"), 422, "no_such_device", "device"),
    ('{"op":"matmul","op":"solve","inputs":{}}', 400, "malformed_json", ""),
]

BINARY_CASES = [
    ("safetensors", b"", 400, "malformed_safetensors", ""),
    ("safetensors", b"1234", 400, "malformed_safetensors", ""),
    ("safetensors", raw_safetensors(b"{}", length=2 ** 63), 400, "malformed_safetensors", ""),
    ("safetensors", raw_safetensors(b"{}", length=100), 400, "malformed_safetensors", ""),
    ("safetensors", raw_safetensors(b"[1]"), 400, "malformed_safetensors", ""),
    ("safetensors", raw_safetensors((HEADER % (0, 32, 32, 64)).encode(), b"\0" * 63), 400, "malformed_safetensors", ""),
    ("safetensors", raw_safetensors((HEADER % (0, 32, 32, 64)).encode(), b"\0" * 65), 400, "malformed_safetensors", ""),
    ("safetensors", raw_safetensors((HEADER % (0, 32, 16, 48)).encode(), b"\0" * 48), 400, "malformed_safetensors", ""),
    ("safetensors", raw_safetensors((HEADER % (0, 32, 40, 72)).encode(), b"\0" * 72), 400, "malformed_safetensors", ""),
    ("safetensors", raw_safetensors((HEADER % (0, 24, 24, 56)).encode(), b"\0" * 56), 400, "malformed_safetensors", ""),
    ("safetensors", raw_safetensors((HEADER % (-8, 24, 24, 56)).encode(), b"\0" * 56), 400, "malformed_safetensors", ""),
    ("safetensors", safetensors({"a": np.eye(2), "b": np.eye(2)}, op="matmul")[:-1], 400, "malformed_safetensors", ""),
    ("safetensors", safetensors({"a": np.eye(2), "b": np.eye(2)}), 422, "missing_field", "op"),
    ("safetensors", safetensors({"a": np.eye(2), "b": np.eye(2)}, op="matmul", params="{"), 422, "invalid_field", "params"),
    ("safetensors", safetensors({"b": np.eye(2)}, op="matmul", inputs='{"a":[[1,2'), 422, "invalid_field", "inputs"),
    ("multipart", multipart({"op": "matmul", "inputs": '{"a":[[1,2', "b": GOOD_NPY}), 422, "invalid_field", "inputs"),
    ("multipart", b"", 400, "malformed_multipart", ""),
    ("multipart", b"no boundary here", 400, "malformed_multipart", ""),
    ("multipart", multipart({"op": "matmul", "a": GOOD_NPY, "b": GOOD_NPY})[:-8], 400, "malformed_multipart", ""),
    ("multipart", multipart({"op": "matmul", "a": GOOD_NPY[:-1], "b": GOOD_NPY}), 400, "malformed_npy", "inputs.a"),
    ("multipart", multipart({"op": "matmul", "a": GOOD_NPY[:20], "b": GOOD_NPY}), 400, "malformed_npy", "inputs.a"),
    ("multipart", multipart({"op": "matmul", "a": GOOD_NPY + b"x", "b": GOOD_NPY}), 400, "malformed_npy", "inputs.a"),
    # large enough for a slice; b is described a little larger than the whole body is
    ("multipart", multipart({"op": "matmul", "a": npy(np.eye(16)), "b": npy_with(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (22, 16), }", np.eye(16).tobytes())}), 422, "invalid_tensor", "inputs"),
    ("multipart", multipart({"op": "matmul", "a": b"PK\x03\x04" + GOOD_NPY, "b": GOOD_NPY}), 400, "malformed_npy", "inputs.a"),
    ("multipart", multipart({"op": "matmul", "b": GOOD_NPY,
                             "a": npy_with("{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }")}),
     422, "unsupported_dtype", "inputs.a"),
    ("multipart", multipart({"op": "matmul", "b": GOOD_NPY,
                             "a": npy_with("{'descr': '<c32', 'fortran_order': False, 'shape': (2, 1), }")}),
     422, "unsupported_dtype", "inputs.a"),
    ("multipart", multipart({"op": "matmul", "b": GOOD_NPY,
                             "a": npy_with("{'descr': '<f8', 'fortran_order': False, 'shape': (-2, 2), }")}),
     400, "malformed_npy", "inputs.a"),
    ("multipart", multipart({"op": "matmul", "b": GOOD_NPY,
                             "a": npy_with("__import__('os').abort()")}), 400, "malformed_npy", "inputs.a"),
    ("multipart", multipart({"op": "matmul", "b": GOOD_NPY,
                             "a": npy_with("{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999, 9999999999), }")}),
     None, None, "inputs.a"),
]


def check(service, body, kind, status, code, field):
    answer = service.request("POST", "/jobs?wait=10", body, {"Content-Type": kind})
    problem = answer.json()
    assert 400 <= answer.status < 500, problem
    assert answer.status == (status or answer.status) and problem["code"] == (code or problem["code"]), problem
    assert problem.get("field", "").startswith(field), problem
    assert len(problem["detail"]) > 8 and problem["advice"]
    good = service.post("matmul", {"a": [[2.0]], "b": [[3.0]]}).json()
    assert good["outputs"]["c"]["data"] == [[6]]


@pytest.mark.parametrize("body,status,code,field", JSON_CASES, ids=range(len(JSON_CASES)))
def test_bad_json(service, body, status, code, field):
    check(service, body, TYPES["json"], status, code, field)


@pytest.mark.parametrize("form,body,status,code,field", BINARY_CASES, ids=range(len(BINARY_CASES)))
def test_bad_blobs(service, form, body, status, code, field):
    check(service, body, TYPES[form], status, code, field)


X, POINTS = np.arange(8.0).reshape(4, 2), np.arange(6.0).reshape(2, 3)
OUT_OF_RANGE = [  # operation, inputs, parameters, field, what the detail says
    ("distance", {"x": POINTS, "w": np.array([1.0, -0.0, -2.0])}, {}, "inputs.w", "(2,) is negative"),
    ("distance", {"x": POINTS, "w": np.array([1, -1, -2], np.int8)}, {"metric": "jaccard"}, "inputs.w",
     "(1,) is negative"),
    ("distance", {"x": POINTS, "V": np.array([1.0, 0.0, -1.0])}, {"metric": "seuclidean"}, "inputs.V", "(1,) is 0"),
    ("distance", {"x": POINTS, "V": np.array([3, 0, 2], np.uint16)}, {"metric": "seuclidean"}, "inputs.V", "(1,) is 0"),
    ("regression", {"x": X, "y": X[:, 0], "sample_weight": np.array([1, 2, -1e-300, 4])}, {}, "inputs.sample_weight",
     "(2,) is negative"),
    ("regression", {"x": X, "y": X[:, 0], "sample_weight": np.float32([1, 2, 3, -4])}, {"method": "ridge"},
     "inputs.sample_weight", "(3,) is negative"),
    ("regression", {"x": np.stack([X] * 3), "y": X[None, :, 0],
                    "sample_weight": np.asfortranarray([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, -1.0]])}, {},
     "inputs.sample_weight", "(2, 3) is negative"),
    ("regression", {"x": X, "y": X[:, 0], "sample_weight": np.array([0, -0.0, 0, 0])}, {}, "inputs.sample_weight",
     "all elements"),
]


@pytest.mark.parametrize("swap", [False, True], ids=["little", "big"])
@pytest.mark.parametrize("form", ["json", "safetensors", "multipart"])
def test_values_outside_their_range_are_refused(service, form, swap):
    jobs = lambda: [line for line in service.request("GET", "/metrics").body.decode().splitlines()
                    if line.startswith("blasd_jobs_total")]
    before = jobs()
    for op, inputs, params, field, detail in OUT_OF_RANGE:
        if swap and form == "multipart":
            inputs = {name: value.astype(value.dtype.newbyteorder(">")) for name, value in inputs.items()}
        answer = service.post(op, inputs, params, form=form)
        problem = answer.json()
        assert (answer.status, problem["code"], problem["field"]) == (422, "out_of_range", field), problem
        assert detail in problem["detail"] and field.split(".")[1] in problem["detail"], problem
    assert before and jobs() == before  # none of them was queued
    for op, inputs, params in (  # zeros and minus zeros are weights like any other
            ("distance", {"x": POINTS, "w": np.array([-0.0, 0.0, 1.0])}, {}),
            ("distance", {"x": POINTS, "w": np.zeros(3)}, {}),
            ("regression", {"x": X[:, :1], "y": X[:, 1], "sample_weight": np.array([1, -0.0, 0, 4])}, {})):
        job = service.post(op, inputs, params, form=form).json()
        assert job["state"] == "succeeded", job


def test_every_truncation_of_a_good_body_is_refused(service):
    bodies = {"json": matmul(EYE).encode(), "safetensors": safetensors({"a": np.eye(2), "b": np.eye(2)}, op="matmul"),
              "multipart": multipart({"op": "matmul", "a": GOOD_NPY, "b": GOOD_NPY})}
    for form, body in bodies.items():
        last = body.rindex(f"--{BOUNDARY}--".encode()) + len(BOUNDARY) + 4 if form == "multipart" else len(body)
        for end in range(0, last, 7):
            answer = service.request("POST", "/jobs?wait=10", body[:end], {"Content-Type": TYPES[form]})
            assert 400 <= answer.status < 500, (form, end, answer.body)


@pytest.mark.parametrize("method,path,status,code", [
    ("GET", "/nothing", 404, "route_not_found"), ("GET", "/jobs/xyz", 404, "job_not_found"),
    ("GET", "/jobs/s" + "0" * 40, 404, "job_not_found"), ("GET", "/jobs/../etc", 404, None),
    ("PUT", "/jobs", 405, "method_not_allowed"), ("DELETE", "/ops", 405, "method_not_allowed"),
    ("GET", "/ops/fft", 404, "unknown_operation"), ("GET", "/jobs?state=lost", 400, "malformed_query"),
    ("GET", "/jobs?limit=0", 400, "malformed_query"), ("GET", "/jobs?limit=x", 400, "malformed_query"),
    ("POST", "/jobs?wait=forever", 400, "malformed_query"), ("POST", "/jobs?wait=-1", 400, "malformed_query"),
    ("POST", "/jobs?wait=nan", 400, "malformed_query"),
])
def test_bad_paths_and_queries(service, method, path, status, code):
    body = matmul(EYE) if method == "POST" else None
    answer = service.request(method, path, body, {"Content-Type": TYPES["json"]} if body else {}, check=False)
    problem = answer.json()
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.status in (status, API.errors[problem["code"]]["status"]) and answer.status == problem["status"]
    if code is not None:
        assert problem["code"] == code or (code == "unknown_operation" and answer.status == 404), problem


def test_a_method_that_a_path_does_not_take(service):
    path = f"/jobs/{'s' + '0' * 40}/outputs/coef"
    answer = service.request("PUT", path, check=False)
    assert answer.status == 405 and answer.headers["Allow"] == "GET, HEAD, OPTIONS"
    assert answer.json()["detail"] == f"{path} does not take PUT"  # the whole id


@pytest.mark.first
def test_an_unknown_content_type(service):
    answer = service.request("POST", "/jobs", b"<xml/>", {"Content-Type": "application/xml"})
    assert answer.status == 415


def test_an_answer_in_a_format_nobody_knows(service):
    job = service.post("matmul", {"a": [[1.0]], "b": [[1.0]]}).json()
    answer = service.request("GET", f"/jobs/{job['id']}/outputs/c", headers={"Accept": "image/png"})
    assert answer.status == 406


def test_a_page_of_another_origin_is_refused(service):
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}):
        answer = service.request("POST", "/jobs", multipart({"op": "matmul", "a": GOOD_NPY, "b": GOOD_NPY}),
                                 {"Content-Type": TYPES["multipart"], **headers})
        assert answer.status == 403, headers
    same = {"Origin": f"http://127.0.0.1:{service.port}", "Content-Type": TYPES["json"]}
    assert service.request("POST", "/jobs", matmul(EYE), same).status == 202


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(make_service):
    service = make_service("--limit", "body_bytes=1M", "--limit", "json_bytes=64K")
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as raw:
        raw.sendall(b"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-safetensors\r\n"
                    b"Content-Length: 1048577\r\nExpect: 100-continue\r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 413 ")
    # without Expect the answer comes at once where much is announced, and after the body where little is
    for kind, size, sent in ((TYPES["safetensors"], 2 ** 20 + 1, 0), (TYPES["json"], 2 ** 16 + 1, 2 ** 16 + 1)):
        with socket.create_connection(("127.0.0.1", service.port), timeout=20) as raw:
            raw.sendall(f"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
                        f"Content-Length: {size}\r\n\r\n".encode() + b" " * sent)
            assert raw.recv(4096).startswith(b"HTTP/1.1 413 ")
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as raw:
        raw.sendall(b"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n" + chunk)
        try:
            raw.sendall(chunk + b"0\r\n\r\n")
        except OSError:
            pass
        assert b" 413 " in raw.recv(4096)[:20]
    assert service.run("matmul", {"a": np.eye(2), "b": np.eye(2)})[1]["state"] == "succeeded"


def test_a_job_whose_result_would_be_absurd_is_refused(service):
    """1e5 x 1 by 1 x 1e5 is 80 GB of result from 1.6 MB of request."""
    answer = service.post("matmul", {"a": np.ones((100000, 1)), "b": np.ones((1, 100000))}, form="safetensors")
    assert answer.status in (413, 429, 503), answer.body


def test_clients_that_leave_in_the_middle(service):
    body = safetensors({"a": np.ones((200, 200)), "b": np.ones((200, 200))}, op="matmul")
    head = (f"POST /jobs?wait=10 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {TYPES['safetensors']}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    for cut in (10, len(head), len(head) + 5, len(head) + 5000, len(head) + len(body)):
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", service.port), timeout=20) as raw:
                raw.sendall((head + body)[:cut])
    assert service.run("matmul", {"a": np.eye(2), "b": np.eye(2)})[1]["state"] == "succeeded"


def test_bytes_that_are_not_http(service):
    for junk in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\0" * 1000, b"A" * 100000,
                 b"POST /jobs HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                 b"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999999999999\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", service.port), timeout=1) as raw:
            try:
                raw.sendall(junk)
                raw.shutdown(socket.SHUT_WR)
                raw.recv(4096)
            except OSError:
                pass
    assert service.run("matmul", {"a": np.eye(2), "b": np.eye(2)})[1]["state"] == "succeeded"
