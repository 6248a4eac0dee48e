"""tritonclient's asyncio client as it comes from PyPI; run by test_inference_protocol.py."""
import asyncio
import sys

import numpy as np
import tritonclient.http.aio as triton
from tritonclient.utils import InferenceServerException


def given(name, array, binary=True):
    one = triton.InferInput(name, array.shape, "FP64")
    one.set_data_from_numpy(array, binary_data=binary)
    return one


async def main():
    rng = np.random.default_rng(8)
    async with triton.InferenceServerClient(sys.argv[1]) as client:
        assert await client.is_server_live() and await client.is_server_ready()
        assert await client.is_model_ready("matmul")
        assert (await client.get_server_metadata())["name"] == "blasd"
        assert (await client.get_model_metadata("matmul"))["versions"] == ["1"]
        assert (await client.get_model_config("matmul"))["max_batch_size"] == 0
        assert len(await client.get_model_repository_index()) >= 4
        # the client asks for gzip in each request, and unpacks inferences alone
        assert len((await client.get_inference_statistics())["model_stats"]) >= 4
        a, b = rng.random((64, 20, 20)), rng.random((64, 20, 3))
        results = await asyncio.gather(*(client.infer("matmul", [given("a", x, i % 2 == 0), given("b", y)], request_id=str(i))
                                         for i, (x, y) in enumerate(zip(a, b))))
        for i, result in enumerate(results):
            assert result.get_response()["id"] == str(i)
            np.testing.assert_allclose(result.as_numpy("c"), a[i] @ b[i])
        for request in ("gzip", "deflate"):
            result = await client.infer("matmul", [given("a", a[0]), given("b", b[0])],
                                        request_compression_algorithm=request, response_compression_algorithm=request)
            np.testing.assert_allclose(result.as_numpy("c"), a[0] @ b[0])
        try:
            await client.infer("matmul", [given("a", a[0]), given("b", b[0].T)])
        except InferenceServerException as error:
            assert "shape_mismatch" in error.message()
        else:
            raise AssertionError("shapes that do not fit were taken")
        stats = await client.get_inference_statistics("matmul")
        assert stats["model_stats"][0]["inference_count"] >= 64


asyncio.run(main())
