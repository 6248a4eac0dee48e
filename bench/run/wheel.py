"""The service's worker beside NumPy's own wheel in process: what a product or a solve takes where it is computed.

A job's operands lie in shared memory, and of its time only `compute_ms` counts, which the worker tells; NumPy's calls are
timed around the call. Each picks its own kernels for the processor: what tells OpenBLAS which is taken from both.

A worker rests between two jobs of one client for as long as answer and question take, and a core that has rested, the more so
of a guest, is slower at first: NumPy at n = 256 takes 1.4 to 1.6 times as long after half a millisecond of sleep as it does in a loop. So NumPy
rests between its calls for as long as the worker did. Its second thread does not: idle threads of OpenBLAS spin, ours sleep, and on
a guest that halts a core which sleeps that is what would be compared. So the service runs with --low-latency, which keeps all
cores from halting, for both; where this user may not ask for that, what is compared is said to be without it.
"""
import json
import os
import pathlib
import select
import statistics
import subprocess
import sys
import time

import processes
from measure import say, spread

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path += [str(ROOT / "clients" / "python"), str(ROOT / "bench" / "peers")]
import blasd  # noqa: E402
from problems import operands  # noqa: E402

SIZES, SIZES_QUICK = (256, 512, 1024, 2048), (256, 300)
OWN_CHOICE = ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "BLASD_BLAS")
AWAKE = ("--low-latency",) if os.access("/dev/cpu_dma_latency", os.W_OK) else ()
CALM_S = 0.1  # idle threads of OpenBLAS spin for some 30 ms, on cores that the next one needs


def environment():
    return {name: value for name, value in os.environ.items() if name not in OWN_CHOICE}


class Wheel:
    """NumPy in a child that stays."""

    def __init__(self, python):
        if not python.exists():
            raise processes.Failed(f"NumPy from PyPI could not be installed ({python})")
        self.process = subprocess.Popen([str(python), str(ROOT / "bench" / "peers" / "peer_numpy.py")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment())
        try:
            facts = self.answer()
        except processes.Failed:
            self.stop()
            raise
        self.what = f"NumPy {facts['numpy']} with {facts['blas']}"

    def answer(self):
        readable, _, _ = select.select([self.process.stdout], [], [], 300)
        line = self.process.stdout.readline() if readable else ""
        if not line:
            raise processes.Failed("NumPy in process ended or hangs")
        return json.loads(line)

    def turn(self, op, dtype, n, seconds, pause):
        self.process.stdin.write(json.dumps({"op": op, "n": n, "dtype": dtype, "seconds": seconds, "pause": pause}) + "\n")
        self.process.stdin.flush()
        got = self.answer()
        return got["ms"], got["sum"]

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Worker:
    """The service, asked by the Python client for one job after the other."""

    def __init__(self, subject):
        self.client = blasd.Client(f"http://127.0.0.1:{subject.port}", timeout=300, share=True)
        blas = next(d for d in self.client.devices() if d["class"] == "cpu")["blas"]
        self.what = f"blasd with {blas['library']}, kernels for {blas['core']} ({blas['chosen_by']}), cores {'kept awake' if AWAKE else 'free to halt'}"

    def turn(self, op, dtype, n, seconds):
        a, b = operands(op, n, dtype)
        shared = self.client.shared(a=(a.shape, dtype), b=(b.shape, dtype))
        shared["a"][...], shared["b"][...] = a, b
        times, total, begin = [], 0.0, time.perf_counter()
        end = begin + seconds
        while len(times) < 3 or time.perf_counter() < end:
            result = self.client.run(op, device="cpu", **shared)
            times.append(result.timing["compute_ms"])
            job = result.job["id"]
            if len(times) == 3:
                total = float(abs(result["c" if op == "matmul" else "x"]).sum())
            del result
            self.client.forget(job)
        took = time.perf_counter() - begin
        return times, total, max(0, took - sum(times) / 1e3) / len(times)


def turns(ours, theirs, sizes, rounds, seconds):
    """{case: {"blasd": [ms a round], "numpy": [...]}}, A B A B; the median of a turn's calls counts."""
    figures = {}
    for case in [(op, dtype, n) for op in ("matmul", "solve") for dtype in ("float64", "float32") for n in sizes]:
        figures[case] = {"blasd": [], "numpy": []}
        for number in range(-1, rounds):
            sums, times, seconds_now = {}, {}, seconds if number >= 0 else 0
            time.sleep(CALM_S)
            times["blasd"], sums["blasd"], pause = ours.turn(*case, seconds_now)
            time.sleep(CALM_S)
            times["numpy"], sums["numpy"] = theirs.turn(*case, seconds_now, pause)
            if number >= 0:
                for name, of_turn in times.items():
                    figures[case][name].append(statistics.median(of_turn))
            tolerance = 1e-9 if case[1] == "float64" else 1e-2
            if not abs(sums["blasd"] - sums["numpy"]) <= tolerance * abs(sums["numpy"]):
                raise processes.Failed(f"{case}: the results differ: {sums}")
        pair = figures[case]
        say(f"  {' '.join(map(str, case))}: blasd {statistics.median(pair['blasd']):.4g} ms, NumPy {statistics.median(pair['numpy']):.4g} ms")
    return figures


def table(figures, what):
    lines = ["Computing alone, NumPy's own wheel in process beside the service's worker (compute_ms): " + "; ".join(what), "",
             f"  {'':26} {'blasd ms':>10} {'NumPy ms':>10}   blasd is so many times as fast"]
    ratios = {}
    for case, pair in figures.items():
        name = f"{case[0]} {case[1]} n = {case[2]}"
        ratios[name] = spread([theirs / mine for mine, theirs in zip(pair["blasd"], pair["numpy"])])
        middle = {side: statistics.median(times) for side, times in pair.items()}
        lines.append(f"  {name:26} {middle['blasd']:>10.4g} {middle['numpy']:>10.4g}   {ratios[name]['median']:.3f} "
                     f"[{ratios[name]['least']:.3f} .. {ratios[name]['most']:.3f}]")
    return ratios, "\n".join(lines) + "\n"
