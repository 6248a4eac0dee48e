"""NumPy from PyPI in a process of its own, with the OpenBLAS that its wheel brings: no server, one caller.

    peer_numpy.py        first line out: {"numpy", "blas"}; then for each line in, {"op", "n", "dtype", "seconds", "pause"}, a line
                         {"ms": [of each call]}

Operands are those of the service (problems.py of this folder); results are compared by whoever asked, by a sum. Between two calls
it sleeps `pause` seconds, as a worker does between two jobs of a client that asks for one after the other.
"""
import ctypes
import json
import re
import sys
import time

import numpy as np
from problems import operands


def loaded_blas():
    """The name and kernels that the OpenBLAS in this process tells; wheels put a prefix and a suffix to its functions."""
    with open("/proc/self/maps") as maps:
        paths = sorted(set(re.findall(r"(/\S*openblas\S*\.so\S*)", maps.read())))
    for path in paths:
        library = ctypes.CDLL(path)
        for prefix, suffix in (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", "")):
            try:
                config, core = (getattr(library, f"{prefix}openblas_get_{what}{suffix}") for what in ("config", "corename"))
            except AttributeError:
                continue
            config.restype = core.restype = ctypes.c_char_p
            return " ".join(config().decode().split()[:2]) + ", kernels for " + core().decode()
    return "no OpenBLAS"


def main():
    print(json.dumps({"numpy": np.__version__, "blas": loaded_blas()}), flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        a, b = operands(ask["op"], ask["n"], ask["dtype"])
        call = np.matmul if ask["op"] == "matmul" else np.linalg.solve
        times, end = [], time.perf_counter() + ask["seconds"]
        while len(times) < 3 or time.perf_counter() < end:
            begin = time.perf_counter()
            result = call(a, b)
            times.append((time.perf_counter() - begin) * 1e3)
            time.sleep(ask["pause"])
        print(json.dumps({"ms": times, "sum": float(np.abs(result).sum())}), flush=True)


if __name__ == "__main__":
    main()
