"""`serve`: a private service for the duration of a program, a notebook or a test."""
from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import weakref
from typing import Any

from .client import Client
from .errors import Error

_TIMEOUT_ = 60.0
_running: weakref.WeakSet[Service] = weakref.WeakSet()


def _let_go() -> None:
    """Closes a fork's copies of the pipes: a service ends with the program that started it, not with the last fork."""
    for service in list(_running):
        service.process.stdin.close()  # type: ignore[union-attr]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class Service:
    """A service that this process started; as a context manager it gives a Client and stops at the end. It ends with this
    process too, even one that is killed, for that closes the pipe which is its standard input.

    url: where it is. process: its supervisor. client(): a Client of it. stop(): ends it and forgets its data.
    """

    def __init__(self, options: tuple[str, ...]) -> None:
        program, env = _program()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the service
        self.process = subprocess.Popen([program, "up", "--listen", "127.0.0.1:0", "--temporary", *options], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                                        start_new_session=True)
        self._owner = os.getpid()
        _running.add(self)
        atexit.register(self._end)
        try:
            self.url = self._ready()
        except BaseException:  # Ctrl-C too, which it does not hear itself
            self.stop()
            raise

    def _ready(self) -> str:
        """Its URL, once it takes jobs."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()  # "ready URL"; nothing where it could not start
        if line.startswith("ready "):
            return line.split()[1]
        self._log.seek(0)
        text = self._log.read()[-2000:].decode("utf-8", "replace")
        raise Error("start_failed", f"the service did not start: {text}")

    def _end(self) -> None:
        """At the end of the program that started it, not of one that a fork made."""
        if os.getpid() == self._owner:
            self.stop()

    def __repr__(self) -> str:
        return f"<blasd.Service {self.url} {'running' if self.process.poll() is None else 'stopped'}>"

    def client(self, **options: Any) -> Client:
        """A Client of this service; options as Client takes them."""
        return Client(self.url, **options)

    def stop(self) -> None:
        """Ends the service, the jobs in it too, and removes its data; so does the end of the program."""
        atexit.unregister(self._end)
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):  # the second one hurries it
            if self.process.poll() is None:
                self.process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(_TIMEOUT_)
        for file in (self.process.stdin, self.process.stdout, self._log):
            if file is not None:
                file.close()

    def __enter__(self) -> Client:
        self._client = self.client()
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self.stop()


def serve(*options: str) -> Service:
    """Starts a service on a free port of loopback and waits until it takes jobs.

        with blasd.serve() as client:
            client.matmul(a, b)

    options: further ones of `blasd up`. The binary is the one that the environment variable BLASD names, that of the
    wheel blasd-server (`make wheels`), or `blasd` on PATH. Raises Error where there is none, or it does not start.
    """
    return Service(options)


def _program() -> tuple[str, dict[str, str]]:
    if "BLASD" in os.environ:
        return os.environ["BLASD"], dict(os.environ)
    try:
        import blasd_server
        path, env = blasd_server.program()
        return str(path), dict(env)
    except ImportError:
        pass
    found = shutil.which("blasd")
    if found is None:
        raise Error("no_service", "blasd is not installed on this machine",
                    advice="Put blasd on PATH, or set BLASD to the path of the binary (docs/deploying.md: how to install it)")
    return found, dict(os.environ)
