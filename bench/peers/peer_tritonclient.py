"""tritonclient from PyPI as a load: products of two square matrices, some in flight on one event loop.

    peer_tritonclient.py HOST:PORT MODEL IN_FLIGHT LEADING ROWS COLUMNS SECONDS     prints what the generator prints

LEADING: lengths before the matrix's own, with commas between them, as a model that is batched wants ("1"); "" for none.
"""
import asyncio
import json
import resource
import sys
import time

import numpy as np
import tritonclient.http.aio as triton


async def run(url, model, in_flight, shape, seconds):
    rng = np.random.default_rng(5)
    a, b = (rng.integers(1, 9, shape).astype(np.float32) for _ in range(2))
    expected, times, counts = a @ b, [], {"right": 0, "wrong": 0, "errors": 0}
    inputs = [triton.InferInput(name, list(shape), "FP32").set_data_from_numpy(array) for name, array in (("a", a), ("b", b))]
    outputs = [triton.InferRequestedOutput("c")]
    async with triton.InferenceServerClient(url, conn_limit=in_flight) as client:
        await client.infer(model, inputs, outputs=outputs)
        start = time.perf_counter()

        async def one_after_the_other():
            while time.perf_counter() < start + seconds:
                begin = time.perf_counter()
                try:
                    result = await client.infer(model, inputs, outputs=outputs)
                except triton.InferenceServerException:
                    counts["errors"] += 1
                    continue
                times.append(time.perf_counter() - begin)
                counts["right" if np.array_equal(result.as_numpy("c"), expected) else "wrong"] += 1
        await asyncio.gather(*[one_after_the_other() for _ in range(in_flight)])
        spent = time.perf_counter() - start
    used, ms = resource.getrusage(resource.RUSAGE_SELF), 1e3 * np.array(times or [0.0])
    return {"rate": counts["right"] / spent, **counts, "timeouts": 0, "aborted": False, "seconds": spent,
            "cpu_user": used.ru_utime, "cpu_system": used.ru_stime,
            "latency_ms": {q: float(np.quantile(ms, p)) for q, p in (("p50", .5), ("p99", .99), ("p999", .999), ("max", 1))}}


def main():
    url, model, in_flight, leading, rows, columns, seconds = sys.argv[1:]
    shape = (*(int(length) for length in leading.split(",") if length), int(rows), int(columns))
    print(json.dumps(asyncio.run(run(url, model, int(in_flight), shape, float(seconds)))))


if __name__ == "__main__":
    main()
