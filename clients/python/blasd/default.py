"""The client of `blasd.linalg`, `blasd.spatial` and `blasd.sklearn`: one a process, made from the environment."""
from __future__ import annotations

import os
from multiprocessing.reduction import ForkingPickler
from typing import Any

from .client import Client

_client: Client | None = None
_is_own = False  # set by this process' own program


_URL = "BLASD_DEFAULT_URL"  # in the environment of processes that this one starts: where the client that was set leads


def client() -> Client:
    """The default client: of BLASD_URL and BLASD_API_KEY, unless another one was set, here or in the process that started
    this one."""
    global _client
    if _client is None:
        _client = Client(os.environ.get(_URL))
    return _client


def set_client(new: Client | None) -> None:
    """Makes `new` the default client; None: one from the environment, made when it is needed.

    Estimators of blasd.sklearn take it along to worker processes of joblib and multiprocessing. Of functions a process that
    is started from now on knows its URL, and no more: its key is that of BLASD_API_KEY.
    """
    global _client, _is_own
    _client, _is_own = new, new is not None
    if new is None:
        os.environ.pop(_URL, None)
    else:
        os.environ[_URL] = new.url


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
