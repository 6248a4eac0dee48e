"""The Python client as tests call it: both kinds of client in the same words, and programs of its own."""
import asyncio
import os
import subprocess
import sys

import blasd
import numpy as np
import pytest
from service import ROOT

ONE = {"a": [[1.0]], "b": [[1.0]]}
# of programs beside the tests
OWN = {**{name: value for name, value in os.environ.items() if name != "BLASD_DEFAULT_URL"}, "PYTHONPATH": str(ROOT / "clients/python")}
# inputs of a job of many seconds
SLOW = {"x": np.random.default_rng(21).standard_normal((40, 30)), "y": np.arange(40.0) % 7,
        "params": {"method": "gd", "iterations": 20_000_000, "learning_rate": 1e-6}}


def by_client(url, ask, **options):
    """What `ask` gives of a Client."""
    with blasd.Client(url, **options) as client:
        return ask(client)


def on_a_loop(url, ask, **options):
    """The same of an AsyncClient, whose call it awaits."""
    async def main():
        async with blasd.AsyncClient(url, **options) as client:
            return await ask(client)
    return asyncio.run(main())


CALLERS = by_client, on_a_loop
both = pytest.mark.parametrize("call", CALLERS)


def program(code, *arguments, before=(), **env):
    """A Python program that has the client; what it came to."""
    return subprocess.run([*before, sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          env={**OWN, **env}, check=False)


def never_sent(client, monkeypatch):
    monkeypatch.setattr(client._pool, "carry", lambda request: pytest.fail("it was sent"))
