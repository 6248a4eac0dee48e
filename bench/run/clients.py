"""Drives services by clients that people use, in place of the load generator: the Python client, and tritonclient from PyPI.

Each gives the figures that the generator gives. Whole numbers are multiplied, so each answer is compared bit by bit.
"""
import json
import pathlib
import resource
import subprocess
import sys
import time

import numpy as np
import processes

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "clients" / "python"))
import blasd


def figures(times, right, wrong, seconds, before):
    """What a turn came to; `times` in seconds, as the program saw them."""
    after = resource.getrusage(resource.RUSAGE_SELF)
    ms = 1e3 * np.array(times or [0.0])
    return {"rate": right / seconds, "right": right, "wrong": wrong, "errors": 0, "timeouts": 0, "aborted": False,
            "seconds": seconds, "cpu_user": after.ru_utime - before.ru_utime, "cpu_system": after.ru_stime - before.ru_stime,
            "latency_ms": {q: float(np.quantile(ms, p)) for q, p in (("p50", .5), ("p99", .99), ("p999", .999), ("max", 1))}}


class Python:
    """The Python client: one job after the other, or `map` with some in flight."""

    def __init__(self, port, job, in_flight):
        self.client, self.job, self.in_flight = blasd.Client(f"http://127.0.0.1:{port}"), job, in_flight

    def one_by_one(self, end):
        while time.perf_counter() < end:
            begin = time.perf_counter()
            yield begin, self.client.run(self.job.op, **self.job.inputs)

    def in_flight_together(self, end):
        """The results come in order: a time is from when a job was taken to when its result could be used."""
        begun = []

        def jobs():
            while time.perf_counter() < end:
                begun.append(time.perf_counter())
                yield self.job.inputs
        for at, result in enumerate(self.client.map(self.job.op, jobs(), in_flight=self.in_flight)):
            yield begun[at], result

    def drive(self, seconds):
        before, start, times, right, wrong = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter(), [], 0, 0
        way = self.one_by_one if self.in_flight == 1 else self.in_flight_together
        for begin, result in way(start + seconds):
            times.append(time.perf_counter() - begin)
            good = np.array_equal(result[self.job.answer], self.job.expected)
            right, wrong = right + good, wrong + (not good)
        return figures(times, right, wrong, time.perf_counter() - start, before)

    def stop(self):
        self.client.close()


class Tritonclient:
    """tritonclient's asyncio client in a process of its own, from its own environment."""

    def __init__(self, build, port, job, model, in_flight, leading=()):
        python = pathlib.Path(build) / "bench-venv-inference" / "bin" / "python"
        if not python.exists():
            raise processes.Failed("tritonclient could not be installed")
        self.command = [str(python), str(ROOT / "bench" / "peers" / "peer_tritonclient.py"), f"127.0.0.1:{port}", model,
                        str(in_flight), ",".join(map(str, leading)), *map(str, job.inputs["a"].shape)]

    def drive(self, seconds):
        done = subprocess.run([*self.command, str(seconds)], capture_output=True, text=True, timeout=seconds + 120, check=False)
        if done.returncode != 0:
            raise processes.Failed(f"tritonclient: {done.stderr.strip()[-300:]}")
        return json.loads(done.stdout)

    def stop(self):
        pass


def per_cpu_second(record):
    """Jobs for each processor second that the service itself spent."""
    spent_us = sum(sum(pair) for layer, pair in record["cpu_us"].items() if layer != "load generator")
    return 1e6 / spent_us if spent_us > 0 else None
