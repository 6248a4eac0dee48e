"""The client of `blasd.linalg`, `blasd.spatial` and `blasd.sklearn`: one a process, made from the environment."""
from __future__ import annotations

from .client import Client

_client: Client | None = None


def client() -> Client:
    """The default client: of BLASD_URL and BLASD_API_KEY, unless another one was set."""
    global _client
    if _client is None:
        _client = Client()
    return _client


def set_client(new: Client | None) -> None:
    """Makes `new` the default client; None: one from the environment, made when it is needed."""
    global _client
    _client = new
