"""tritonclient's HTTP client as it comes from PyPI, through all that it offers; run by test_inference_protocol.py."""
import sys

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

client = triton.InferenceServerClient(sys.argv[1], concurrency=8)
rng = np.random.default_rng(7)


def given(name, array, binary=True):
    array = np.ascontiguousarray(array)
    one = triton.InferInput(name, array.shape, triton.np_to_triton_dtype(array.dtype))
    one.set_data_from_numpy(array, binary_data=binary)
    return one


def matmul(a, b, binary=True, outputs=None, **more):
    return client.infer("matmul", [given("a", a, binary), given("b", b, binary)], outputs=outputs, **more)


# health and metadata
assert client.is_server_live() and client.is_server_ready()
assert client.is_model_ready("matmul") and client.is_model_ready("matmul", "1")
assert not client.is_model_ready("nothing")
assert client.get_server_metadata()["name"] == "blasd"
assert client.get_model_metadata("solve")["inputs"][0]["name"] == "a"
assert client.get_model_config("solve", "1")["max_batch_size"] == 0
assert {"matmul", "solve", "distance", "regression"} <= {one["name"] for one in client.get_model_repository_index()}

# inference: binary and JSON both ways, dtypes, sizes, ids, parameters
for n in (1, 16, 300):
    for dtype in (np.float64, np.float32, np.int32):
        a, b = (rng.random((n, n)) * 9).astype(dtype), (rng.random((n, n)) * 9).astype(dtype)
        wide = np.float64 if dtype is np.int32 else dtype
        for binary in (True, False) if n < 100 else (True,):
            for out in (True, False):
                outputs = [triton.InferRequestedOutput("c", binary_data=out)]
                result = matmul(a, b, binary, outputs, request_id=f"{n}")
                assert result.get_response()["id"] == f"{n}"
                np.testing.assert_allclose(result.as_numpy("c"), a.astype(wide) @ b.astype(wide), rtol=1e-4)
a, b = rng.random((40, 40)), rng.random((40, 5))
np.testing.assert_allclose(matmul(a, b).as_numpy("c"), a @ b)
np.testing.assert_allclose(matmul(a, b, parameters={"alpha": 0.5}, model_version="1").as_numpy("c"), a @ b / 2)
np.testing.assert_allclose(matmul(a, b, priority=1, timeout=10_000_000).as_numpy("c"), a @ b)
for request in (None, "gzip", "deflate"):
    for response in (None, "gzip", "deflate"):
        result = matmul(a, b, request_compression_algorithm=request, response_compression_algorithm=response)
        np.testing.assert_allclose(result.as_numpy("c"), a @ b)
result = client.infer("solve", [given("a", a), given("b", b)])
np.testing.assert_allclose(a @ result.as_numpy("x"), b, atol=1e-8)
result = client.infer("distance", [given("x", b)], parameters={"output": "argmin"})
assert result.as_numpy("index").dtype == np.int64
x, y = rng.random((50, 3)), rng.random(50)
result = client.infer("regression", [given("x", x), given("y", y)])
wanted = np.linalg.lstsq(np.c_[np.ones(50), x], y, rcond=None)[0]
np.testing.assert_allclose(result.as_numpy("coef"), wanted[1:])

# many at once
pending = [client.async_infer("matmul", [given("a", a + i), given("b", b)]) for i in range(64)]
for i, one in enumerate(pending):
    np.testing.assert_allclose(one.get_result().as_numpy("c"), (a + i) @ b)

# errors have text and status
for call, words in ((lambda: matmul(a, b.T), "shape_mismatch"),
                    (lambda: client.infer("nothing", [given("a", a)]), "unknown model 'nothing'"),
                    (lambda: client.get_model_metadata("matmul", "9"), "no version '9'"),
                    (lambda: matmul(a, b, sequence_id=3), "sequence_id"),
                    (lambda: client.infer("solve", [given("a", np.ones((3, 3))), given("b", np.ones(3))]), "singular")):
    try:
        call()
    except InferenceServerException as error:
        assert words in error.message(), error
    else:
        raise AssertionError(f"no error that says {words}")

# statistics
stats = client.get_inference_statistics("matmul")["model_stats"][0]
assert stats["inference_count"] >= 64 and stats["inference_stats"]["success"]["count"] == stats["inference_count"]
assert len(client.get_inference_statistics()["model_stats"]) >= 4
client.close()
