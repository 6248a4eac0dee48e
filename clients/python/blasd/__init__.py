"""Client for blasd, a BLAS daemon: NumPy arrays in, NumPy arrays out, over HTTP."""
from .arrays import JobWarning
from .client import Client, Error, Job, Result

__all__ = ["Client", "Error", "Job", "JobWarning", "Result"]
__version__ = "0.2.0"  # as in the file VERSION
