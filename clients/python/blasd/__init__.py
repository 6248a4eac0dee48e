"""Client for blasd, a BLAS daemon: NumPy arrays in, NumPy arrays out, over HTTP."""
from .aio import AsyncClient
from .arrays import JobWarning
from .client import Client
from .errors import (
                     Cancelled,
                     Conflict,
                     ConnectionError,
                     Error,
                     Forbidden,
                     InputError,
                     InvalidInput,
                     JobFailed,
                     NotFound,
                     NotPositiveDefinite,
                     NumericalError,
                     QueueFull,
                     SingularMatrix,
                     Timeout,
                     Unavailable,
)
from .graphs import AsyncGraph, Graph, Step
from .groups import groupby
from .jobs import AsyncJob, Job
from .results import RegressionResult, Result
from .rules import Rule, arange, eye, full, linspace, random
from .service import Service, serve
from .tensors import URL, Output, Reference, Tensor

__all__ = ["URL", "AsyncClient", "AsyncGraph", "AsyncJob", "Cancelled", "Client", "Conflict", "ConnectionError", "Error",
           "Forbidden", "Graph", "InputError", "InvalidInput", "Job", "JobFailed", "JobWarning", "NotFound", "NotPositiveDefinite",
           "NumericalError", "Output", "QueueFull", "Reference", "RegressionResult", "Result", "Rule", "Service", "SingularMatrix",
           "Step", "Tensor", "Timeout", "Unavailable", "arange", "eye", "full", "groupby", "linspace", "random", "serve"]
__version__ = "0.3.0"  # as in the file VERSION
