#!/usr/bin/python3
"""blasd's regression next to numpy.linalg.lstsq and scikit-learn's LinearRegression (where it can be
imported), in turns in one run.

usage: bench_regression_peers.py PATH-TO-bench_regression
The peers are timed in this process with the BLAS threads they choose, blasd by the program
bench_regression, which this starts between their turns. blasd also computes all statistics and
refines the solution; the peers give coefficients. The median of the turns counts.
"""

import re
import statistics
import subprocess
import sys
import time

import numpy as np

try:
    from sklearn.linear_model import LinearRegression
except ImportError:
    LinearRegression = None

CASES = [(100000, 50), (1000000, 2), (20000, 200)]
TURNS = 5


def timed(call):
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def blasd_ms(program, n, p):
    text = subprocess.run([program, "ols", str(n), str(p), "1"], check=True, text=True,
                          capture_output=True, timeout=300).stdout
    return float(re.search(r"blasd ([0-9.]+) ms", text).group(1))


def main():
    random = np.random.default_rng(1)
    for n, p in CASES:
        x = random.normal(size=(n, p))
        y = x @ random.normal(size=p) + random.normal(size=n)
        times = {"blasd": [], "NumPy lstsq": []}
        if LinearRegression is not None:
            times["scikit-learn"] = []
        for _ in range(TURNS):
            times["blasd"].append(blasd_ms(sys.argv[1], n, p))
            times["NumPy lstsq"].append(
                timed(lambda: np.linalg.lstsq(np.c_[np.ones(n), x], y, rcond=None)))
            if LinearRegression is not None:
                times["scikit-learn"].append(timed(lambda: LinearRegression().fit(x, y)))
        text = ", ".join(f"{name} {statistics.median(t):.1f} ms" for name, t in times.items())
        print(f"regression ols float64 {n} x {p}: {text}", flush=True)


if __name__ == "__main__":
    main()
