"""What is said to the service and how its answers are read, apart from who carries it: no socket is opened here.

`Request` and `Answer` are what travels. The functions that talk (`calls.py`) yield them; `Client` carries them over a
pool of connections and `AsyncClient` over asyncio.
"""
from __future__ import annotations

import base64
import dataclasses
import email.utils
import json
import math
import os
import platform
import secrets
import socket
import ssl
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Union

import numpy as np

from .errors import Error, InputError

BINARY = "application/x-safetensors"
GRACE = 5.0  # seconds that an answer may be late
Piece = Union[bytes, memoryview]
T = TypeVar("T")


@dataclasses.dataclass
class Request:
    """One request. `wait`: seconds that the service may hold it beyond the ordinary. `end`: when, of time.monotonic(), nobody
    waits for the answer any more. `safe`: to be sent again where the connection breaks before the answer, because a second
    time does no harm. `patience`: see Settings.patience."""

    method: str
    path: str
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    pieces: Sequence[Piece] = ()
    wait: float = 0.0
    end: float = math.inf
    patience: float | None = None

    @property
    def length(self) -> int:
        return sum(len(piece) for piece in self.pieces)

    @property
    def safe(self) -> bool:
        return self.method != "POST" or "Idempotency-Key" in self.headers


@dataclasses.dataclass
class Answer:
    """An answer, 200 or 202. `headers` have lower-case names; `body` is writable memory of its own."""

    status: int
    headers: Mapping[str, str]
    body: memoryview

    def json(self, **needs: type) -> dict[str, Any]:
        """The document of the answer; Error if a proxy sent the answer, or if members are missing."""
        try:
            document = json.loads(bytes(self.body))
        except ValueError:
            document = None
        if not isinstance(document, dict) or not all(isinstance(document.get(name), kind) for name, kind in needs.items()):
            raise bad_answer(self)
        return document

    @property
    def binary(self) -> bool:
        return self.headers.get("content-type", "").startswith(BINARY)


@dataclasses.dataclass
class Sleep:
    """A pause that the caller makes."""

    seconds: float


class Settings:
    """Where the service is and how it is spoken to: shared by both clients, and picklable."""

    def __init__(self, given: str | None, timeout: float | None, api_key: str | None, headers: Mapping[str, str] | None,
                 verify: bool | str, cert: str | tuple[str, str] | None, retries: int) -> None:
        url = given or os.environ.get("BLASD_URL") or "http://127.0.0.1:8080"
        self.timeout, self.retries = timeout, retries
        self.verify, self.cert = verify, cert
        self.socket_path: str | None = None
        self.prefix = ""
        self.proxy: tuple[str, int] | None = None
        self.proxy_headers: dict[str, str] = {}
        user = ""
        if url.startswith("unix:"):
            self.url, self.socket_path = url, url[len("unix:"):]
            self.scheme, self.host, self.port = "http", "localhost", 80
            if not self.socket_path:
                raise ValueError(f"{url!r} names no socket: unix:/run/blasd.sock")
        else:
            parts = urllib.parse.urlsplit(url)
            user, _at, host = parts.netloc.rpartition("@")
            self.url = parts._replace(netloc=host).geturl()
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ValueError(f"{self.url!r} is not a URL like http://HOST:PORT")
            self.scheme, self.host, self.prefix = parts.scheme, parts.hostname, parts.path.rstrip("/")
            self.port = parts.port or (443 if self.scheme == "https" else 80)
            self.proxy, self.proxy_headers = _proxy_for(self.scheme, self.host, self.port)
        api_key = api_key or os.environ.get("BLASD_API_KEY")
        ours = {"Host": self._host_header(), "User-Agent": _user_agent()}
        if user and not url.startswith("unix:"):
            ours["Authorization"] = _basic(user)
        elif api_key:
            ours["Authorization"] = f"Bearer {api_key}"
        self.headers = merged(ours, headers or {})
        if self.scheme == "http":  # to the proxy itself; of https it sees nothing but what opens the tunnel
            self.headers.update(self.proxy_headers)
        for name, value in self.headers.items():
            if any(c in f"{name}{value}" for c in "\r\n\0"):
                raise ValueError(f"the header {name!r} has a line break in it")

    def _host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.scheme == "https" else 80)
        return host if usual else f"{host}:{self.port}"

    def tls(self) -> ssl.SSLContext | None:
        """How an https service is checked; None for http."""
        if self.scheme != "https":
            return None
        authority = self.verify if isinstance(self.verify, str) else None
        context = _read(authority, lambda: ssl.create_default_context(cafile=authority))
        if self.verify is False:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.cert is not None:
            certificate, key = (self.cert, None) if isinstance(self.cert, str) else self.cert
            _read(certificate if key is None else f"{certificate}, {key}", lambda: context.load_cert_chain(certificate, key))
        return context

    def target(self, path: str) -> str:
        """The target of the request line: through a proxy, the whole URL of an http service."""
        if self.proxy is not None and self.scheme == "http":
            return f"http://{self._host_header()}{self.prefix}{path}"
        return self.prefix + path

    def patience(self, request: Request) -> float | None:
        """Seconds without a byte either way after which it is given up, from now on; None: never."""
        silence = math.inf if self.timeout is None else self.timeout + max(0.0, request.wait - self.timeout / 2)
        patience = min(silence, max(0.0, request.end - time.monotonic()) + GRACE)
        request.patience = None if patience == math.inf else patience
        return request.patience

    def patience_to_connect(self, request: Request) -> float | None:
        """The same for a connection to be there."""
        patience = self.patience(request)
        return patience if patience is None or self.timeout is None else min(patience, self.timeout)

    def longest_wait(self, most: float) -> float:
        """Seconds that the service may be asked to wait: after half of the time in which it must not be silent it answers."""
        return most if self.timeout is None else min(most, self.timeout / 2)

    def lost(self, request: Request, error: Exception, connected: bool) -> Error:
        """The error for a request that got no answer."""
        text = str(error) or type(error).__name__
        advice = ""
        if connected and not request.safe:
            advice = "The service may have taken the job: under an idempotency_key it is safe to send it again"
        if isinstance(error, (TimeoutError, socket.timeout)):  # one class from Python 3.10 on
            when = "in time" if request.patience is None else f"within {request.patience:.3g} s"
            return Error("timeout", f"{self.url}: no answer {when}", retry=True, advice=advice)
        return Error("connection_failed", f"{self.url}: {text}", retry=True, advice=advice)


def merged(headers: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Both; of one name, however its letters are written, that of the others."""
    names = {name.lower() for name in others}
    return {**{name: value for name, value in headers.items() if name.lower() not in names}, **others}


def _user_agent() -> str:
    from . import __version__
    return f"blasd-python/{__version__} Python/{platform.python_version()} NumPy/{np.__version__}"


def _basic(user: str) -> str:
    """The header's value for USER:PASSWORD as a URL has them."""
    return f"Basic {base64.b64encode(urllib.parse.unquote(user).encode()).decode()}"


def _read(path: str | None, load: Callable[[], T]) -> T:
    """The call, with the file's name in errors."""
    try:
        return load()
    except OSError as error:
        error.filename = path
        raise


def _proxy_for(scheme: str, host: str, port: int) -> tuple[tuple[str, int] | None, dict[str, str]]:
    """The proxy that the environment names for it (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), never one for loopback, and what
    it is told of the user in its URL."""
    proxy = urllib.request.getproxies().get(scheme)
    if not proxy or host in ("localhost", "::1") or host.startswith("127.") or \
            urllib.request.proxy_bypass(f"{host}:{port}"):
        return None, {}
    parts = urllib.parse.urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    if parts.scheme.startswith("socks"):
        raise ValueError(f"the environment names a {parts.scheme} proxy for {scheme}, which this client does not speak with: give one "
                         f"of HTTP, or name {host} in NO_PROXY")
    user, at, _host = parts.netloc.rpartition("@")
    if not parts.hostname:
        return None, {}
    return (parts.hostname, parts.port or 8080), {"Proxy-Authorization": _basic(user)} if at else {}


def bad_answer(answer: Answer) -> Error:
    """Of an answer that cannot be read."""
    if len(answer.body) == 0:
        detail = "the answer is empty, as of a proxy before the service"
    elif answer.binary:
        detail = "the service's answer could not be read"
    else:
        detail = f"the answer is not the service's, but begins with: {_shown(answer.body)}"
    return Error("bad_answer", detail, status=answer.status)


def _shown(body: bytes | memoryview) -> str:
    return bytes(body[:200]).decode("utf-8", "replace")


def problem_of(status: int, headers: Mapping[str, str], body: bytes) -> Error:
    """The error of an answer; an answer that is not a problem document comes from a proxy."""
    try:
        problem = json.loads(body)
        problem["code"] = str(problem["code"])
        problem.setdefault("status", status)
    except (ValueError, TypeError, KeyError):
        problem = {"code": "bad_answer", "status": status, "detail": _not_ours(status, headers, body),
                   "retry": status in (429, 502, 503, 504)}
    return Error.from_problem(problem, _seconds(headers.get("retry-after", "")))


def _not_ours(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """The error text for an answer that comes from a proxy."""
    to = headers.get("location", "")
    if 300 <= status < 400 and to:  # where no key is to go
        return f"HTTP {status} leads to {_without_secrets(to)}, and redirections are not followed. If the service is there, give the " \
               "client its URL"
    if not body:
        return f"HTTP {status} and nothing more, as of a proxy before the service"
    return f"HTTP {status}, and not in the service's words: {_shown(body)}"


def _without_secrets(url: str) -> str:
    """Without a user, and without a query, which may be a signature."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return "what is no URL"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _seconds(after: str) -> float | None:
    """Retry-After, which is a number of seconds or, of some proxies, a date."""
    if after.isdigit():
        return float(after)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(after).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def plain(name: str, value: Any) -> Any:
    """A parameter as JSON: plain Python numbers, and words for NaN and infinities."""
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if not isinstance(value, (bool, int, float, str, list, tuple, dict, type(None))):
        raise InputError(f"params.{name}", f"{name} cannot be a {type(value).__name__}", "invalid_parameter")
    return value


def new_key() -> str:
    """A key for a job that may have to be sent twice."""
    return secrets.token_hex(16)


def backoff(attempt: int, error: Error) -> float:
    """Seconds before the next attempt: Retry-After, else 0.1, 0.2, 0.4 … up to 5, with jitter."""
    wait = min(5.0, 0.1 * 2.0**attempt)
    jitter = 1 + secrets.randbelow(1000) / 4000
    return max(error.retry_after or 0.0, wait * jitter)


assert sys.version_info >= (3, 9)
