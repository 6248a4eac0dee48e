#!/usr/bin/python3
"""Many fits in one request over HTTP, compared with a loop of numpy.linalg.lstsq, and with pandas groupby and statsmodels
where these can be imported, in turns in one run.

usage: BLASD=build/blasd bench_groups.py
blasd computes all statistics; lstsq gives coefficients. For each: fits a second by the clock, and fits for a second of
processor time, which is that of the client and of all processes of the service. The median of the turns counts.
"""

import os
import statistics
import sys
import time
import warnings

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../clients/python"))
import blasd  # noqa: E402

try:
    import pandas
    import statsmodels.api
except ImportError:
    statsmodels = None

TURNS = 7
TICK = os.sysconf("SC_CLK_TCK")


def processor_s():
    """Of this process and of those that descend from it, so far."""
    parents, spent = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="latin-1") as file:
                words = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(name)], spent[int(name)] = int(words[1]), int(words[11]) + int(words[12])
    total = 0
    for pid, ticks in spent.items():
        while pid not in (os.getpid(), 0):
            pid = parents.get(pid, 0)
        total += ticks if pid else 0
    return total / TICK


def rates(call, fits, turns=TURNS, again=3):
    """(fits a second, fits for a second of processor time)"""
    clock, spent = [], processor_s()
    for _ in range(turns):
        start = time.perf_counter()
        for _ in range(again):
            call()
        clock.append((time.perf_counter() - start) / again)
    spent = processor_s() - spent
    return fits / statistics.median(clock), fits * turns * again / max(spent, 1 / TICK)


def report(client, name, sizes, features):
    rng = np.random.default_rng(1)
    splits = np.concatenate([[0], np.cumsum(sizes)])
    x = rng.standard_normal((splits[-1], features))
    y = x @ np.arange(1.0, features + 1) + rng.standard_normal(len(x))
    labels = np.repeat(np.arange(len(sizes)), sizes)

    def numpy_loop():
        for start, end in zip(splits, splits[1:]):
            rows = np.column_stack([np.ones(end - start), x[start:end]])
            np.linalg.lstsq(rows, y[start:end], rcond=None)

    def statsmodels_loop():
        frame = pandas.DataFrame(x).assign(y=y, g=labels)
        frame.groupby("g").apply(lambda part: statsmodels.api.OLS(
            part.y, statsmodels.api.add_constant(part[list(range(features))])).fit().pvalues)

    ways = {"blasd": lambda: client.regression(x, y, by=labels), "NumPy lstsq": numpy_loop}
    if statsmodels is not None:
        ways["pandas, statsmodels"] = statsmodels_loop
    told = {way: rates(call, len(sizes), again=1 if "stats" in way else 3) for way, call in ways.items()}
    for way, (clock, processor) in told.items():
        print(f"regression groups {name}, {way}: {clock:.0f} fits/s, {processor:.0f} fits for a second of processor time",
              flush=True)


def main():
    rng = np.random.default_rng(2)
    warnings.simplefilter("ignore")
    with blasd.serve() as client:
        report(client, "5000 of 10 to 59 x 4", rng.integers(10, 60, 5000), 4)
        report(client, "50 of 1000 x 4", np.full(50, 1000), 4)


if __name__ == "__main__":
    main()
