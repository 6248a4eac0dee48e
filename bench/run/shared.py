"""Drives a service on this machine through shared memory, with the Python client, and checks what comes back.

The load generator sends bodies; here there is none. A job takes most of a second, of which this end spends a
millisecond or two, so that Python does.
"""
import pathlib
import resource
import sys
import threading
import time

import numpy as np
import payloads

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "clients" / "python"))
import blasd  # noqa: E402

STEP = 256  # of this many rows one is compared


class Caller:
    """One thread: sends its product again and again, one after the other."""

    def __init__(self, port, n, seed):
        rng = np.random.default_rng(seed)
        self.client = blasd.Client(f"http://127.0.0.1:{port}", timeout=300, share=True)
        self.operands = self.client.shared(a=((n, n), "float32"), b=((n, n), "float32"))
        for array in self.operands.values():
            array[...] = payloads.small_whole(rng, n, n, dtype="float32")
        self.expected = self.operands["a"][::STEP] @ self.operands["b"]

    def run(self, count):
        for _ in range(count):
            begin = time.perf_counter()
            try:
                result = self.client.run("matmul", **self.operands)
            except blasd.Error:
                self.errors += 1
                continue
            right = np.array_equal(result["c"][::STEP], self.expected)
            self.times.append((time.perf_counter() - begin) * 1e3)
            self.parts.append(result.timing)
            self.wrong += not right
            job_id = result.job["id"]
            del result  # so that the next one gets its memory
            self.client.forget(job_id)


def drive(crew, count):
    """`count` jobs in all. -> the figures that the load generator gives, as far as they make sense here."""
    for caller in crew:
        caller.times, caller.parts, caller.wrong, caller.errors = [], [], 0, 0
    threads = [threading.Thread(target=caller.run, args=(count // len(crew),)) for caller in crew]
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    times = [t for caller in crew for t in caller.times] or [0.0]
    wrong = sum(caller.wrong for caller in crew)
    parts = [part for caller in crew for part in caller.parts]
    return {"rate": (len(parts) - wrong) / seconds, "right": len(parts) - wrong, "wrong": wrong,
            "errors": sum(caller.errors for caller in crew), "timeouts": 0, "aborted": False, "seconds": seconds,
            "cpu_user": after.ru_utime - before.ru_utime, "cpu_system": after.ru_stime - before.ru_stime,
            "latency_ms": {q: float(np.quantile(times, p)) for q, p in (("p50", .5), ("p99", .99), ("p999", .999),
                                                                        ("max", 1))},
            "parts_ms": {name: float(np.median([part[name] for part in parts])) for name in (parts[0] if parts else {})}}


def parts_text(result):
    return ", ".join(f"{name[:-3]} {ms:.3g}" for name, ms in result["parts_ms"].items() if ms >= 0.01)
