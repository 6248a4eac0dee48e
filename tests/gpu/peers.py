"""What PyTorch and CuPy take for the cases of the benchmarks, where this machine has them: one line of
JSON a case, operands on the device, medians of CUDA events. Prints nothing where neither is there.
Distances come first, and no case takes long: the part that runs this ends after some time."""
import json
import statistics
import time

SECONDS = 1.0  # of a case, about; what takes longer is timed once


def torch_rows(wanted):
    try:
        import torch
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)

    def normal(*shape, dtype=torch.float32):
        return torch.randn(*shape, device="cuda", dtype=dtype)

    def systems(count, n, dtype):
        a = normal(count, n, n, dtype=dtype) + n * torch.eye(n, device="cuda", dtype=dtype)
        b = normal(count, n, 1, dtype=dtype)
        return lambda: torch.linalg.solve(a, b)

    def product(*shape, dtype):
        a, b = normal(*shape[0], dtype=dtype), normal(*shape[1], dtype=dtype)
        return lambda: torch.matmul(a, b)

    def cdist(n, k, dtype=torch.float32, p=2.0):
        x = normal(n, k, dtype=dtype)
        return lambda: torch.cdist(x, x, p=p)

    def nearest(n, k, neighbours):
        x = normal(n, k)
        return lambda: torch.topk(torch.cdist(x, x), neighbours, largest=False)

    def lstsq(n, p, dtype, batch=()):
        x, y = normal(*batch, n, p, dtype=dtype), normal(*batch, n, 1, dtype=dtype)
        return lambda: torch.linalg.lstsq(x, y)

    def descent(n, p, steps, dtype):
        x, y = normal(n, p, dtype=dtype), normal(n, 1, dtype=dtype)

        def run():
            b = torch.zeros(p, 1, device="cuda", dtype=dtype)
            for _ in range(steps):
                b -= 1e-3 * 2 / n * (x.T @ (x @ b - y))
        return run

    f32, f64 = torch.float32, torch.float64
    cases = [
        ("distance", "4096 points, 3 dimensions, float32", lambda: cdist(4096, 3)),
        ("distance", "27000 points, 3 dimensions, float32", lambda: cdist(27000, 3)),
        ("distance", "4096 points, 256 dimensions, float32", lambda: cdist(4096, 256)),
        ("distance", "4096 points, 3 dimensions, float64", lambda: cdist(4096, 3, f64)),
        ("distance", "4096 points, 256 dimensions, float64", lambda: cdist(4096, 256, f64)),
        ("distance", "4096 points, 3 dimensions, cityblock, float32", lambda: cdist(4096, 3, f32, 1.0)),
        ("distance", "10 nearest of 27000 points, 3 dimensions, float32", lambda: nearest(27000, 3, 10)),
        ("distance", "10 nearest of 4096 points, 256 dimensions, float32", lambda: nearest(4096, 256, 10)),
        ("matmul", "n=4096 float32", lambda: product((4096, 4096), (4096, 4096), dtype=f32)),
        ("matmul", "n=4096 float64", lambda: product((4096, 4096), (4096, 4096), dtype=f64)),
        ("matmul", "1000 of 64x64 float32", lambda: product((1000, 64, 64), (1000, 64, 64), dtype=f32)),
        ("matmul", "1000 of 64x64 float64", lambda: product((1000, 64, 64), (1000, 64, 64), dtype=f64)),
        ("solve", "10000 of 8x8 float64", lambda: systems(10000, 8, f64)),
        ("solve", "1000 of 32x32 float64", lambda: systems(1000, 32, f64)),
        ("solve", "1000 of 128x128 float64", lambda: systems(1000, 128, f64)),
        ("solve", "1024 of 256x256 float64", lambda: systems(1024, 256, f64)),
        ("solve", "10000 of 8x8 float32", lambda: systems(10000, 8, f32)),
        ("solve", "1000 of 32x32 float32", lambda: systems(1000, 32, f32)),
        ("solve", "1000 of 128x128 float32", lambda: systems(1000, 128, f32)),
        ("solve", "1024 of 256x256 float32", lambda: systems(1024, 256, f32)),
        ("solve", "one of 16384 float64", lambda: systems(1, 16384, f64)),
        ("regression", "1000000 x 50 float32", lambda: lstsq(1000000, 50, f32)),
        ("regression", "1000000 x 50 float64", lambda: lstsq(1000000, 50, f64)),
        ("regression", "10000 of 100 x 8 float64", lambda: lstsq(100, 8, f64, (10000,))),
        ("regression", "1000000 x 50 float64, gd 10000 steps", lambda: descent(1000000, 50, 10000, f64)),
    ]

    def event():
        return torch.cuda.Event(enable_timing=True)

    for op, name, make in (case for case in cases if wanted(case[0])):
        try:
            run = make()
            times = []
            began = time.monotonic()
            for round_number in range(12):
                if times and time.monotonic() - began > SECONDS:
                    break
                start, end = event(), event()
                start.record()
                run()
                end.record()
                end.synchronize()
                slow = time.monotonic() - began > SECONDS
                if round_number > (0 if slow else 1):
                    times.append(start.elapsed_time(end) * 1000)
            print(json.dumps({"op": op, "case": name, "direct": "PyTorch " + torch.__version__,
                              "direct_us": round(statistics.median(times), 2)}), flush=True)
        except RuntimeError as error:
            print(f"PyTorch, {op}, {name}: {str(error)[:200]}", flush=True)
        torch.cuda.empty_cache()


def cupy_rows(wanted):
    try:
        import cupy
        from cupyx.profiler import benchmark
        if cupy.cuda.runtime.getDeviceCount() < 1:
            return
    except Exception:  # a CuPy without a driver fails in ways of its own
        return

    def normal(*shape, dtype="float32"):
        return cupy.random.standard_normal(shape).astype(dtype)

    def systems(count, n, dtype):
        a = normal(count, n, n, dtype=dtype) + n * cupy.eye(n, dtype=dtype)
        b = normal(count, n, 1, dtype=dtype)
        return lambda: cupy.linalg.solve(a, b)

    def cdist(n, k, metric="euclidean"):
        from cupyx.scipy.spatial.distance import cdist as scipy_cdist
        x = normal(n, k)
        return lambda: scipy_cdist(x, x, metric)

    def lstsq(n, p, dtype):
        x, y = normal(n, p, dtype=dtype), normal(n, dtype=dtype)
        return lambda: cupy.linalg.lstsq(x, y, rcond=None)

    cases = [
        ("distance", "4096 points, 3 dimensions, float32", lambda: cdist(4096, 3)),
        ("distance", "27000 points, 3 dimensions, float32", lambda: cdist(27000, 3)),
        ("distance", "4096 points, 256 dimensions, float32", lambda: cdist(4096, 256)),
        ("distance", "4096 points, 3 dimensions, cityblock, float32", lambda: cdist(4096, 3, "cityblock")),
        ("distance", "4096 points, 16 dimensions, canberra, float32", lambda: cdist(4096, 16, "canberra")),
        ("solve", "10000 of 8x8 float64", lambda: systems(10000, 8, "float64")),
        ("solve", "1000 of 32x32 float64", lambda: systems(1000, 32, "float64")),
        ("solve", "1000 of 128x128 float64", lambda: systems(1000, 128, "float64")),
        ("solve", "1024 of 256x256 float64", lambda: systems(1024, 256, "float64")),
        ("solve", "one of 16384 float64", lambda: systems(1, 16384, "float64")),
        ("regression", "1000000 x 50 float32", lambda: lstsq(1000000, 50, "float32")),
        ("regression", "1000000 x 50 float64", lambda: lstsq(1000000, 50, "float64")),
    ]
    for op, name, make in (case for case in cases if wanted(case[0])):
        try:
            result = benchmark(make(), n_repeat=10, n_warmup=1, max_duration=SECONDS)
            us = statistics.median(result.gpu_times[0].tolist()) * 1e6
            print(json.dumps({"op": op, "case": name, "direct": "CuPy " + cupy.__version__,
                              "direct_us": round(us, 2)}), flush=True)
        except Exception as error:  # one case that a version lacks is no reason to stop
            print(f"CuPy, {op}, {name}: {str(error)[:200]}", flush=True)


if __name__ == "__main__":
    for rows in torch_rows, cupy_rows:
        rows(lambda op: op == "distance")
    for rows in torch_rows, cupy_rows:
        rows(lambda op: op != "distance")
