"""Connections of the blocking client: a pool that threads and forked processes may share."""
from __future__ import annotations

import collections
import http
import http.client
import os
import select
import socket
import ssl
import weakref
from typing import Any

import numpy as np

from .protocol import Answer, Request, Settings, merged, problem_of

_BROKEN = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
_ENDED = (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError, ssl.SSLZeroReturnError)  # while something is sent
_SMALL = 65536  # bytes up to which head and body go in one segment
_MOST = 64  # idle connections that are kept
_MOST_SENT = 1 << 24  # bytes of one call: of 2 GiB and more Python 3.9 makes none over TLS


class _Response(http.client.HTTPResponse):
    """An answer behind whatever interim ones there are (1xx): http.client passes over those of 100 alone."""

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        return version, http.HTTPStatus.CONTINUE if 100 < status < 200 else status, reason


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _TlsConnection(http.client.HTTPSConnection):
    _tunnel_host: str | None

    def _tunnel(self) -> None:
        host = self._tunnel_host
        assert host is not None
        if ":" in host:  # an IPv6 address, which Python's own names without brackets before 3.12
            self._tunnel_host = f"[{host}]"
        try:
            super()._tunnel()  # type: ignore[misc]
        finally:
            self._tunnel_host = host


_Idle = collections.deque[tuple[int, http.client.HTTPConnection]]  # with the process that made it


class Pool:
    """Idle connections, each used by one request at a time. They end with it, where nobody closes it.

    A deque's append and pop need no lock, which a fork might find taken for good. A connection that a fork brought
    along is the parent's: the child closes its end and makes its own.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._process = os.getpid()
        self._idle: _Idle = collections.deque()
        self._tls: ssl.SSLContext | None = None
        weakref.finalize(self, _close_all, self._idle)

    def __reduce__(self) -> Any:
        return Pool, (self.settings,)

    def close(self) -> None:
        _close_all(self._idle)

    def _new(self) -> http.client.HTTPConnection:
        connection = self._made()
        connection.response_class = _Response
        return connection

    def _made(self) -> http.client.HTTPConnection:
        settings = self.settings
        if settings.socket_path is not None:
            return _UnixConnection(settings.socket_path, settings.timeout)
        host, port = settings.proxy or (settings.host, settings.port)
        if settings.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=settings.timeout, blocksize=1 << 20)
        self._tls = self._tls or settings.tls()
        connection = _TlsConnection(host, port, timeout=settings.timeout, blocksize=1 << 20, context=self._tls)
        if settings.proxy is not None:
            connection.set_tunnel(settings.host, settings.port, settings.proxy_headers)
        return connection

    def _take(self) -> http.client.HTTPConnection:
        """A connection to use. One that has something to say before it was asked has been closed by the service."""
        if self._process != os.getpid():
            self._process = os.getpid()
            _close_all(self._idle)
        while True:
            try:
                owner, connection = self._idle.pop()
            except IndexError:
                return self._new()
            if owner == os.getpid() and connection.sock is not None and not readable(connection.sock):
                return connection
            connection.close()

    def _give(self, connection: http.client.HTTPConnection) -> None:
        if connection.sock is None or len(self._idle) >= _MOST:
            connection.close()
        else:
            self._idle.append((os.getpid(), connection))

    def carry(self, request: Request) -> Answer:
        """One request and its good answer; raises Error otherwise.

        Where a kept connection breaks before an answer has come, the service may have taken what was sent: only what
        does no harm a second time is sent again, once, over a new one.
        """
        again = request.safe
        while True:
            connection = self._take()
            again = again and connection.sock is not None
            whole, connected = True, False
            try:
                self._connect(connection, request)
                connected = True
                try:
                    self._send(connection, request)
                except _ENDED:  # who refuses a body need not read all of it, and may say why
                    whole = False
                response = connection.getresponse()
                again = False
                body = _read(response)
                break
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if not (again and isinstance(error, _BROKEN)):
                    raise self.settings.lost(request, error, connected) from error
                again = False
            except BaseException:  # an interrupted exchange leaves the connection in no state to be used again
                connection.close()
                raise
        if whole:
            self._give(connection)
        else:
            connection.close()
        headers = {name.lower(): value for name, value in response.headers.items()}
        if response.status in (200, 201, 202):
            return Answer(response.status, headers, body)
        raise problem_of(response.status, headers, bytes(body))

    def _connect(self, connection: http.client.HTTPConnection, request: Request) -> None:
        if connection.sock is None:
            connection.timeout = self.settings.patience_to_connect(request)
            connection.connect()
        sock: socket.socket = connection.sock  # type: ignore[assignment]
        sock.settimeout(self.settings.patience(request))

    def _send(self, connection: http.client.HTTPConnection, request: Request) -> None:
        sock: socket.socket = connection.sock  # type: ignore[assignment]
        connection.putrequest(request.method, self.settings.target(request.path), skip_host=True,
                              skip_accept_encoding=True)
        for name, value in merged(self.settings.headers, request.headers).items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(request.length))
        small = b"".join(request.pieces) if request.length < _SMALL else b""
        connection.endheaders(small or None)
        if not small:
            for piece in request.pieces:
                view = memoryview(piece)
                while len(view) > 0:  # sendall would have the timeout be that of all of it
                    view = view[sock.send(view[:_MOST_SENT]):]


def _close_all(idle: _Idle) -> None:
    while True:
        try:
            idle.pop()[1].close()
        except IndexError:
            return


def readable(sock: Any) -> bool:
    """Whether it has something to say, or has ended."""
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()  # takes descriptors above 1023 too
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _read(response: http.client.HTTPResponse) -> memoryview:
    """The body, in memory of its own that may be written to: arrays are views of it."""
    if response.length is None:
        return memoryview(bytearray(response.read()))
    body = np.empty(response.length, np.uint8).data
    at = 0
    while at < len(body):
        count = response.readinto(body[at:at + (1 << 30)])
        if count == 0:
            raise http.client.IncompleteRead(bytes(body[:at]), len(body) - at)
        at += count
    response.close()
    return body
