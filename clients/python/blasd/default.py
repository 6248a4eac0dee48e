"""The client of `blasd.linalg`, `blasd.spatial` and `blasd.sklearn`: one a process, made from the environment."""
from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

from .client import Client

_client: Client | None = None
_is_own = False  # set by this process' own program


def client() -> Client:
    """The default client: of BLASD_URL and BLASD_API_KEY, unless another one was set."""
    global _client
    if _client is None:
        _client = Client()
    return _client


def set_client(new: Client | None) -> None:
    """Makes `new` the default client; None: one from the environment, made when it is needed.

    Estimators of blasd.sklearn take it along to worker processes of joblib and multiprocessing. Functions do not: give
    such a worker the client itself, or set BLASD_URL.
    """
    global _client, _is_own
    _client, _is_own = new, new is not None


class Inheritance:
    """A part of what is pickled that brings the default client along to a worker process of joblib or multiprocessing.
    In any other pickle, such as a file, it holds nothing: no URL and no key."""

    def __reduce__(self) -> Any:
        return Inheritance, ()


def for_worker(_: Inheritance) -> Any:
    """What stands for it in a pickle on its way to a worker process."""
    return _inherit, (client(),)


def _inherit(theirs: Client) -> Inheritance:
    """Takes the client of the process that sent it, unless this one has its own."""
    global _client
    if not _is_own and (_client is None or vars(_client._calls.settings) != vars(theirs._calls.settings)):
        _client = theirs
    return Inheritance()


ForkingPickler.register(Inheritance, for_worker)
