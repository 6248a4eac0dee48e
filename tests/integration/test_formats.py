"""Three ways in, three ways out, one meaning."""
import base64
import json

import numpy as np
import pytest
from service import TYPES, multipart, npy, safetensors

A, B = np.array([[1.5, -2.0], [0.25, 4.0]]), np.array([[3.0, 0.5], [1.0, -1.0]])


@pytest.mark.first
@pytest.mark.parametrize("form", ["json", "safetensors", "multipart"])
@pytest.mark.parametrize("accept", ["json", "safetensors", "npy"])
def test_every_form_in_and_out(service, form, accept):
    answer = service.post("matmul", {"a": A, "b": B}, form=form, accept=accept)
    assert answer.status == 200 and answer.headers["Content-Type"] == TYPES[accept]
    got = {"json": lambda: answer.json()["outputs"]["c"]["data"], "safetensors": lambda: answer.safetensors()[0]["c"],
           "npy": answer.npy}[accept]()
    assert np.array_equal(np.array(got), A @ B)


@pytest.mark.parametrize("form", ["json", "safetensors", "multipart"])
@pytest.mark.parametrize("accept", ["json", "safetensors", "npy"])
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_complex_systems_in_every_form(service, form, accept, dtype):
    a, x = np.array([[2j, 1], [-1, 4 - 1j]], dtype), np.array([[1 - 2j], [0.5j]], dtype)
    inputs = {"a": a, "b": a @ x}
    wanted = "safetensors" if accept == "safetensors" else "json"  # .npy is for one output
    if form == "json":  # an element is a list of its two parts
        body = {"op": "solve", "inputs": {name: {"dtype": dtype, "shape": list(v.shape), "data": np.stack(
            [v.real, v.imag], -1).reshape(-1, 2).tolist()} for name, v in inputs.items()}}
        answer = service.request("POST", "/jobs?wait=30", json.dumps(body),
                                 {"Content-Type": TYPES[form], "Accept": TYPES[wanted]})
    else:
        answer = service.post("solve", inputs, form=form, accept=wanted)
    assert answer.status == 200, answer.body
    if accept == "npy":
        answer = service.request("GET", answer.json()["outputs"]["x"]["href"], headers={"Accept": TYPES["npy"]})
    if accept == "json":
        output = answer.json()["outputs"]["x"]
        assert output["dtype"] == dtype and output["shape"] == [2, 1]
        got = np.array(output["data"]) @ [1, 1j]
    else:
        got = answer.safetensors()[0]["x"] if accept == "safetensors" else answer.npy()
        assert got.dtype == dtype
    assert np.abs(got - x).max() < 1e-6 if dtype == "complex64" else np.array_equal(got, x)


def test_one_output_in_every_format(service):
    job = service.post("solve", {"a": A, "b": B}).json()
    href = job["outputs"]["x"]["href"]
    expected = np.linalg.solve(A, B)
    assert href == f"/jobs/{job['id']}/outputs/x"
    as_json = service.request("GET", href, headers={"Accept": "application/json"}).json()
    as_npy = service.request("GET", href, headers={"Accept": TYPES["npy"]}).npy()
    as_safetensors = service.request("GET", href, headers={"Accept": TYPES["safetensors"]}).safetensors()[0]["x"]
    assert np.allclose(as_npy, expected) and np.array_equal(as_npy, as_safetensors)
    assert np.array_equal(as_npy, np.array(as_json["data"]))
    assert as_json["name"] == "x" and as_json["dtype"] == "float64" and as_json["shape"] == [2, 2]


def test_large_outputs_carry_a_link_and_come_whole(service):
    a = np.random.default_rng(1).standard_normal((300, 300))
    job = service.post("matmul", {"a": a, "b": np.eye(300)}, form="safetensors").json()
    assert "data" not in job["outputs"]["c"]
    got = service.request("GET", job["outputs"]["c"]["href"], headers={"Accept": TYPES["npy"]}).npy()
    assert np.array_equal(got, a)
    text = service.request("GET", job["outputs"]["c"]["href"]).json()
    assert np.array_equal(np.array(text["data"]), a)  # shortest digits that read back the same
    whole = service.request("GET", f"/jobs/{job['id']}/result").json()
    assert np.array_equal(np.array(whole["outputs"]["c"]["data"]), a)


def test_json_tensors_with_dtype_shape_and_data_or_base64(service):
    a = {"dtype": "float32", "shape": [2, 2], "data": [1, 2, 3, 4]}
    b = {"dtype": "float32", "shape": [2, 2], "base64": base64.b64encode(np.array([[5, 6], [7, 8]], "<f4")).decode()}
    body = json.dumps({"op": "matmul", "inputs": {"a": a, "b": b}, "params": {}})
    job = service.request("POST", "/jobs?wait=10", body, {"Content-Type": "application/json"}).json()
    assert job["outputs"]["c"]["dtype"] == "float32"
    assert job["outputs"]["c"]["data"] == [[19, 22], [43, 50]]


def test_curl_sends_json_as_a_form_by_default(service):
    """`curl -d` without a header says application/x-www-form-urlencoded: what is plainly JSON is taken as JSON."""
    body = '{"op":"matmul","inputs":{"a":[[1,2],[3,4]],"b":[[5,6],[7,8]]}}'
    answer = service.request("POST", "/jobs?wait=10", body, {"Content-Type": "application/x-www-form-urlencoded"})
    assert answer.status == 200 and answer.json()["outputs"]["c"]["data"] == [[19, 22], [43, 50]]


def test_op_and_params_in_the_query(service):
    body = safetensors({"x": np.array([[0.0, 0.0], [3.0, 4.0]])})
    path = "/jobs?wait=10&op=distance&params=%7B%22metric%22%3A%22cityblock%22%7D"
    job = service.request("POST", path, body, {"Content-Type": TYPES["safetensors"]}).json()
    assert job["outputs"]["d"]["data"] == [[0, 7], [7, 0]]


@pytest.mark.parametrize("array", [np.asfortranarray(A), A.astype(">f8"), A.astype("<f4"), A.astype(">i2"),
                                   np.asfortranarray(A.astype(">f4")), A > 1, A.astype("u1")],
                         ids=lambda a: f"{a.dtype.str}{'F' if a.flags.f_contiguous and a.ndim > 1 else 'C'}")
def test_npy_in_every_byte_order_and_layout(service, array):
    body = multipart({"op": "matmul", "a": npy(array), "b": npy(B)})
    answer = service.request("POST", "/jobs?wait=10", body,
                             {"Content-Type": TYPES["multipart"], "Accept": TYPES["npy"]})
    assert np.array_equal(answer.npy(), array.astype(float) @ B)


def test_extreme_numbers_survive_json_both_ways(service):
    values = np.array([[5e-324, 1.7976931348623157e308, -0.0, 2.2250738585072014e-308, 0.1, 1 / 3, np.pi * 1e-300,
                        123456789012345678.0]])
    job = service.post("matmul", {"a": values.T, "b": np.ones((1, 1))}).json()
    got = np.array(job["outputs"]["c"]["data"])
    assert np.array_equal(got, values.T + 0.0)


def test_head_and_keep_alive(service):
    import http.client
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    connection.connect()
    socket = connection.sock
    for _ in range(20):
        connection.request("POST", "/jobs?wait=10", '{"op":"matmul","inputs":{"a":[[2]],"b":[[3]]}}',
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert json.loads(response.read())["outputs"]["c"]["data"] == [[6]]
        assert connection.sock is socket
    connection.request("HEAD", "/ops")
    response = connection.getresponse()
    assert response.status == 200 and response.read() == b""
    connection.close()


def test_a_body_in_chunks_and_in_drops(service):
    """Chunked transfer, one byte a chunk, in every format."""
    import http.client
    bodies = {"json": b'{"op":"matmul","inputs":{"a":[[1.25,2]],"b":[[4],[1e1]]}}',
              "safetensors": safetensors({"a": np.array([[1.25, 2]]), "b": np.array([[4.0], [10]])}, op="matmul"),
              "multipart": multipart({"op": "matmul", "a": npy(np.array([[1.25, 2]])), "b": npy(np.array([[4.0], [10]]))})}
    for form, body in bodies.items():
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
        connection.request("POST", "/jobs?wait=10", (bytes([byte]) for byte in body), {"Content-Type": TYPES[form]},
                           encode_chunked=True)
        answer = json.loads(connection.getresponse().read())
        assert answer["outputs"]["c"]["data"] == [[25]], answer
        connection.close()
