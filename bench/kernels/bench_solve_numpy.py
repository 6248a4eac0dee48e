#!/usr/bin/python3
"""blasd's solve next to numpy.linalg.solve on stacks of small systems, in turns in one run.

usage: bench_solve_numpy.py PATH-TO-bench_solve
NumPy is timed in this process, blasd by the program bench_solve, which this starts between NumPy's
turns. NumPy runs with one BLAS thread, which is its faster way for small systems (both are printed
by running this with OPENBLAS_NUM_THREADS set to another number). The median of the turns counts.
"""

import os
import re
import statistics
import subprocess
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np  # noqa: E402  (the number of threads is read when it loads)

CASES = [(8, 10000), (32, 1000), (4, 10000), (16, 2000)]
TURNS = 7


def numpy_ms(a, b):
    times = []
    for _ in range(5):
        start = time.perf_counter()
        np.linalg.solve(a, b)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def blasd_ms(program, n, count):
    text = subprocess.run([program, str(n), str(count), "1", "float64"], check=True, text=True,
                          capture_output=True, timeout=120).stdout
    return float(re.search(r"blasd ([0-9.]+) ms", text).group(1))


def main():
    program = sys.argv[1]
    random = np.random.default_rng(1)
    for n, count in CASES:
        a = random.uniform(-1, 1, (count, n, n))
        b = random.uniform(-1, 1, (count, n, 1))
        theirs, ours = [], []
        for _ in range(TURNS):
            theirs.append(numpy_ms(a, b))
            ours.append(blasd_ms(program, n, count))
        theirs, ours = statistics.median(theirs), statistics.median(ours)
        print(f"solve float64 {count} of {n} x {n}: blasd {ours:.2f} ms, NumPy {theirs:.2f} ms, "
              f"{theirs / ours:.1f} times as fast")


if __name__ == "__main__":
    main()
