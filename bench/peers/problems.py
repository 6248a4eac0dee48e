"""The operands that the service and NumPy in process are given, the same bits in both."""
import numpy as np


def operands(op, n, dtype):
    """(a, b): a product of two n x n matrices, or a system of n unknowns with one right-hand side."""
    rng = np.random.default_rng(n)
    a = rng.uniform(-1, 1, (n, n)).astype(dtype)
    return a, rng.uniform(-1, 1, (n, n) if op == "matmul" else n).astype(dtype)
