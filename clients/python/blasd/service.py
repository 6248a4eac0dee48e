"""`serve`: a service of one's own for the time of a program, a notebook or a test."""
from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from typing import Any

from .client import Client
from .errors import Error

_TIMEOUT_ = 60.0


class Service:
    """A service that this process started; as a context manager it gives a Client and stops at the end.

    url: where it is. process: its supervisor. client(): a Client of it. stop(): ends it and forgets its data.
    """

    def __init__(self, options: tuple[str, ...]) -> None:
        program, env = _program()
        self._directory = tempfile.mkdtemp(prefix="blasd-")
        self._log = open(os.path.join(self._directory, "log"), "w+b")  # noqa: SIM115 - as long as the service
        try:
            self.process = subprocess.Popen([program, "up", "--listen", "127.0.0.1:0", "--data", f"{self._directory}/data",
                                             *options], env=env, stdout=subprocess.PIPE, stderr=self._log,
                                            stdin=subprocess.DEVNULL, start_new_session=True)
        except BaseException:
            self._forget_data()
            raise
        self._owner = os.getpid()
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

    def _forget_data(self) -> None:
        self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __repr__(self) -> str:
        return f"<blasd.Service {self.url} {'running' if self.process.poll() is None else 'stopped'}>"

    def client(self, **options: Any) -> Client:
        """A Client of this service; options as Client takes them."""
        return Client(self.url, **options)

    def stop(self) -> None:
        """Ends the service, the jobs in it too, and removes its data; so does the end of the program."""
        atexit.unregister(self._end)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_TIMEOUT_)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._forget_data()

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

    options: further ones of `blasd up`. The binary is that of the package blasd-server, or the environment variable
    BLASD, or `blasd` on PATH. Raises Error where there is none, or it does not start.
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
        raise Error("no_service", "there is no blasd on this machine",
                    advice="pip install blasd-server, or set BLASD to the path of the binary")
    return found, dict(os.environ)
