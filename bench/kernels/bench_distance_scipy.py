#!/usr/bin/python3
"""blasd's distance next to scipy.spatial.distance.cdist, in turns in one run.

usage: bench_distance_scipy.py PATH-TO-bench_distance
SciPy (one thread, as it always runs) is timed in this process, blasd by the program bench_distance,
which this starts between SciPy's turns and which uses the machine's cores. The median of the turns
counts.
"""

import re
import statistics
import subprocess
import sys
import time

import numpy as np
from scipy.spatial.distance import cdist

CASES = [("euclidean", 4096, 3), ("euclidean", 4096, 128), ("cityblock", 4096, 32),
         ("chebyshev", 4096, 32), ("cosine", 4096, 128), ("canberra", 2048, 32),
         ("jensenshannon", 1024, 16)]
TURNS = 5


def scipy_ms(x, y, metric):
    start = time.perf_counter()
    cdist(x, y, metric)
    return (time.perf_counter() - start) * 1e3


def blasd_ms(program, metric, m, k):
    text = subprocess.run([program, metric, str(m), str(m), str(k), "float64", "full"], check=True,
                          text=True, capture_output=True, timeout=300).stdout
    return float(re.search(r"blasd ([0-9.]+) ms", text).group(1))


def main():
    random = np.random.default_rng(1)
    for metric, m, k in CASES:
        x, y = random.uniform(0, 1, (2, m, k))
        theirs, ours = [], []
        for _ in range(TURNS):
            theirs.append(scipy_ms(x, y, metric))
            ours.append(blasd_ms(sys.argv[1], metric, m, k))
        theirs, ours = statistics.median(theirs), statistics.median(ours)
        print(f"distance {metric} float64 {m} x {m}, k {k}: blasd {ours:.1f} ms, SciPy "
              f"{theirs:.1f} ms, {theirs / ours:.1f} times as fast", flush=True)


if __name__ == "__main__":
    main()
