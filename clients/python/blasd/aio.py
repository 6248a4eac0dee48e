"""`AsyncClient`: the same calls for asyncio, hundreds of jobs in flight on one event loop."""
from __future__ import annotations

import asyncio
import collections
import contextlib
import math
import os
import ssl
import time
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from . import named
from .arrays import Array
from .bars import JobBar, JobsBar
from .calls import Calls, Labels, Options, Progress, Talk, at_least_one, mapping
from .errors import Error, JobFailed
from .graphs import AsyncGraph, Steps
from .jobs import AsyncJob
from .operations import AsyncOperations
from .protocol import GRACE, Answer, Request, Settings, Sleep, backoff, merged, problem_of
from .results import Result
from .split import Place, Split
from .tensors import AsyncTensors, Tensor
from .transport import readable

T = TypeVar("T")
_HEAD_MOST = 1 << 17  # bytes of an answer's head
_WRITTEN = 1 << 20  # bytes handed to a connection at a time


class _Broken(OSError):
    """The connection ended before the answer."""


class _Chunks:
    """A body that comes in chunks (RFC 9112, 7.1), as a proxy may send one; the service tells lengths."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.rest = bytearray()  # what came and is not read yet
        self._left = 0  # bytes of the chunk that are to come
        self._line = self._size

    def feed(self, data: Any) -> bool:
        """Whether the body is complete; ValueError if it is not valid."""
        self.rest += data
        while True:
            if self._left > 0:
                part = self.rest[:self._left]
                self.body += part
                del self.rest[:len(part)]
                self._left -= len(part)
                if self._left > 0:
                    return False
            end = self.rest.find(b"\r\n")
            if end < 0:
                if len(self.rest) > _HEAD_MOST:
                    raise ValueError("a line that does not end")
                return False
            line = bytes(self.rest[:end])
            del self.rest[:end + 2]
            if self._line(line):
                return True

    def _size(self, line: bytes) -> bool:
        size = line.partition(b";")[0].strip()
        if not size or size.strip(b"0123456789abcdefABCDEF"):
            raise ValueError("no chunk's size")
        self._left = int(size, 16)
        self._line = self._after if self._left > 0 else self._trailer
        return False

    def _after(self, line: bytes) -> bool:
        if line:
            raise ValueError("a chunk longer than its size")
        self._line = self._size
        return False

    def _trailer(self, line: bytes) -> bool:
        return not line


class _Connection(asyncio.BufferedProtocol):
    """One HTTP/1.1 connection: a body of a length that is told is received where it stays, in memory of its own."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.closed = False
        self.answer: asyncio.Future[tuple[int, dict[str, str], memoryview]] | None = None
        self._head = bytearray()
        self._room = bytearray(1 << 16)
        self._status, self._headers = 0, {}  # type: tuple[int, dict[str, str]]
        self._body: memoryview | None = None
        self._at = 0
        self._chunks: _Chunks | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._moved = 0.0  # when bytes last went either way, on the loop's clock
        self._unsent = 0  # bytes that the transport had left to send when it was last looked at
        self._overdue: asyncio.TimerHandle | None = None
        self._tunnels = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=1 << 20)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._writable.set()
        if self.answer is not None and not self.answer.done():
            if self._body is not None and self._headers.get("content-length") is None and error is None:
                self._finish(self._body[:self._at])  # the end is the body's end
            else:
                self.answer.set_exception(error if isinstance(error, OSError) else
                                          _Broken("the connection ended before the answer"))

    def is_usable(self) -> bool:
        """Whether it may carry a request. What came, or the end of it, the loop may not have seen yet, where the program kept
        it from looking."""
        if not self.closed and readable(self.transport.get_extra_info("socket")):
            self.closed = True
            self.transport.abort()
        return not self.closed

    async def exchange(self, head: bytes, pieces: Iterable[Any], patience: float | None,
                       write: Callable[[Any, bytes], None] | None = None) -> tuple[int, dict[str, str], memoryview]:
        """A request and its answer; TimeoutError after `patience` seconds in which no byte went either way. `write` is given
        the transport and the head, to be written within the next turn of the loop."""
        loop = asyncio.get_running_loop()
        self.answer = loop.create_future()
        self._head.clear()
        self._body = self._chunks = None
        self._moved = loop.time()
        if patience is not None:
            self._overdue = loop.call_later(patience / 4, self._look, loop, patience)
        try:
            if write is None:
                self.transport.write(head)
            else:
                write(self.transport, head)
            whole = await self._send(pieces, self.answer)
            answered = await self.answer
            if not whole or self.transport.get_write_buffer_size() > 0:  # it would be taken for the next request
                self.closed = True
                self.transport.abort()
            return answered
        finally:
            if self._overdue is not None:
                self._overdue.cancel()
            if not self.answer.cancel() and not self.answer.cancelled():
                self.answer.exception()  # of who was interrupted nobody takes it, and asyncio would write of that

    async def _send(self, pieces: Iterable[Any], answer: asyncio.Future[Any]) -> bool:
        """Whether all of them were handed over before there was an answer."""
        for piece in pieces:
            view = memoryview(piece)
            for at in range(0, len(view), _WRITTEN):  # so that a large array is not copied as a whole
                if self.closed or answer.done():  # refused before it was all sent
                    return False
                self.transport.write(view[at:at + _WRITTEN])
                await self._writable.wait()
                self._moved = asyncio.get_running_loop().time()
        return True

    def _look(self, loop: asyncio.AbstractEventLoop, patience: float) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent:  # of what was handed over some has left
            self._unsent, self._moved = unsent, loop.time()
        left = self._moved + patience - loop.time()
        if left > 0:
            self._overdue = loop.call_later(min(left, patience / 4), self._look, loop, patience)
        elif self.answer is not None and not self.answer.done():
            self.answer.set_exception(TimeoutError())
            self.transport.abort()
            self.closed = True

    async def tunnel(self, settings: Settings, context: ssl.SSLContext) -> None:
        """Through the proxy at the other end to the service, and TLS with that."""
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        lines = [f"CONNECT {host}:{settings.port} HTTP/1.1", f"Host: {host}:{settings.port}",
                 *(f"{name}: {value}" for name, value in settings.proxy_headers.items())]
        self._tunnels = True
        status, _, _ = await self.exchange(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"), (), None)
        self._tunnels = False
        if status // 100 != 2:
            raise OSError(f"Tunnel connection failed: {status}")
        loop = asyncio.get_running_loop()
        self.connection_made(await loop.start_tls(self.transport, self, context, server_hostname=settings.host))

    # --- receiving --------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> Any:
        return self._room if self._body is None else self._body[self._at:]

    def buffer_updated(self, count: int) -> None:
        self._moved = asyncio.get_running_loop().time()
        if self._chunks is not None:
            self._take_chunks(memoryview(self._room)[:count])
        elif self._body is None:
            self._head += memoryview(self._room)[:count]
            self._take_head()
        else:
            self._at += count
            self._grow_or_finish()

    def _take_head(self) -> None:
        while self._body is None:
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                if len(self._head) > _HEAD_MOST:
                    self._fail("the answer's head does not end")
                return
            lines = bytes(self._head[:end]).decode("latin-1").split("\r\n")
            rest = bytes(self._head[end + 4:])
            self._head.clear()
            try:
                version, status = lines[0].split()[:2]
                self._status = int(status)
            except ValueError:
                return self._fail("the answer is not HTTP")
            self._headers = {} if version != "HTTP/1.0" else {"connection": "close"}  # unless it says otherwise
            for line in lines[1:]:
                name, _, value = line.partition(":")
                self._headers[name.strip().lower()] = value.strip()
            if 100 <= self._status < 200:
                self._head += rest
                continue
            if self._tunnels:  # from here on bytes are those of TLS
                return self._finish(memoryview(b""))
            length = self._headers.get("content-length")
            if "chunked" in self._headers.get("transfer-encoding", "").lower():
                self._chunks = _Chunks()
                return self._take_chunks(rest)
            self._body = np.empty(int(length) if length is not None else 1 << 16, np.uint8).data
            self._body[:len(rest)] = rest
            self._at = len(rest)
            self._grow_or_finish()

    def _take_chunks(self, data: Any) -> None:
        assert self._chunks is not None
        try:
            if not self._chunks.feed(data):
                return
        except ValueError as error:
            return self._fail(f"the answer's chunks are not HTTP: {error}")
        body, rest = self._chunks.body, self._chunks.rest
        self._chunks = None
        if rest:  # it would be taken for the next answer
            self.transport.close()
            self.closed = True
        self._finish(memoryview(body))

    def _grow_or_finish(self) -> None:
        assert self._body is not None
        if self._at < len(self._body):
            return
        if self._headers.get("content-length") is not None:
            self._finish(self._body)
        else:
            larger = np.empty(2 * len(self._body) + 1, np.uint8).data
            larger[:self._at] = self._body[:self._at]
            self._body = larger

    def _finish(self, body: memoryview) -> None:
        self._body = None
        self._writable.set()  # who was refused waits no longer to send the rest
        if "close" in self._headers.get("connection", "").lower():
            self.transport.close()
            self.closed = True
        if self.answer is not None and not self.answer.done():
            self.answer.set_result((self._status, self._headers, body))

    def _fail(self, text: str) -> None:
        self.transport.close()
        self.closed = True
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(_Broken(text))


async def _within(seconds: float | None, work: Coroutine[Any, Any, T], undo: Callable[[T], object]) -> T:
    """asyncio.wait_for that loses no cancellation, as that of Python 3.11 and before does where the work ends just then;
    `undo` is given a result that nobody takes any more."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            raise asyncio.TimeoutError
        return task.result()
    except BaseException:
        task.cancel()
        task.add_done_callback(lambda one: one.cancelled() or one.exception() is not None or undo(one.result()))
        raise


def _abandon(process: int, loop: asyncio.AbstractEventLoop, idle: collections.deque[_Connection]) -> None:
    """Ends the connections of a pool that is garbage, in its loop, where that goes on. A fork's own loop is the parent's."""
    if idle and process == os.getpid() and not loop.is_closed():
        with contextlib.suppress(RuntimeError):  # it was closed just now
            loop.call_soon_threadsafe(lambda: [connection.transport.abort() for connection in idle])


class AsyncPool:
    """Idle connections of one event loop in one process, at most `most` in all. Made within that loop."""

    def __init__(self, settings: Settings, most: int) -> None:
        self.settings = settings
        self._idle: collections.deque[_Connection] = collections.deque()
        self._room = asyncio.Semaphore(most)
        self._tls: ssl.SSLContext | None = None
        self._unsent: list[tuple[Any, bytes]] = []
        self._process, self._loop = os.getpid(), asyncio.get_running_loop()
        weakref.finalize(self, _abandon, self._process, self._loop, self._idle).atexit = False

    def is_mine(self) -> bool:
        """Whether the caller is in that loop and process: a fork's own end of a connection is the parent's."""
        return self._process == os.getpid() and self._loop is asyncio.get_running_loop()

    def _write_together(self, transport: Any, text: bytes) -> None:
        """Small requests that one turn of the loop makes leave one after the other at its end: the service takes together
        what is there together, and between making two of them it would have taken the first."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._send)
        self._unsent.append((transport, text))

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        for transport, text in unsent:
            if not transport.is_closing():
                transport.write(text)

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().transport.abort()

    async def _connect(self) -> _Connection:
        settings, loop = self.settings, asyncio.get_running_loop()
        if settings.socket_path is not None:
            return (await loop.create_unix_connection(_Connection, settings.socket_path))[1]
        host, port = settings.proxy or (settings.host, settings.port)
        if settings.proxy is None or self._tls is None:
            return (await loop.create_connection(_Connection, host, port, ssl=self._tls))[1]
        connection = (await loop.create_connection(_Connection, host, port))[1]
        try:
            await connection.tunnel(settings, self._tls)
        except BaseException:
            connection.transport.abort()
            raise
        return connection

    async def carry(self, request: Request) -> Answer:
        """As transport.Pool.carry."""
        settings = self.settings
        self._tls = self._tls or settings.tls()
        lines = [f"{name}: {value}" for name, value in merged(settings.headers, request.headers).items()]
        if any(c in line for line in lines for c in "\r\n\0") or any(c <= " " or c == "\x7f" for c in request.path):
            raise ValueError("a header or an id has a line break, a space or a control character in it")
        head = "".join(f"{line}\r\n" for line in lines)
        text = (f"{request.method} {settings.target(request.path)} HTTP/1.1\r\n{head}"
                f"Content-Length: {request.length}\r\n\r\n").encode("latin-1")
        small = request.length < 65536
        if small:
            text += b"".join(request.pieces)
        pieces = () if small else request.pieces
        again = request.safe
        if self._room.locked() and request.end != math.inf:  # the wait for a connection is part of the time given, too
            try:
                await _within(max(0.0, request.end - time.monotonic()) + GRACE, self._room.acquire(),
                              lambda _acquired: self._room.release())
            except asyncio.TimeoutError as error:
                raise Error("timeout", f"{settings.url}: no connection was free in time", retry=True) from error
        else:
            await self._room.acquire()
        try:
            while True:
                connection = None
                kept = False
                try:
                    while self._idle and not kept:
                        connection = self._idle.pop()
                        kept = connection.is_usable()
                    if not kept:
                        connection = None
                        made = await _within(settings.patience_to_connect(request), self._connect(), lambda late: late.transport.abort())
                        connection = made
                    assert connection is not None
                    status, headers, body = await connection.exchange(text, pieces, settings.patience(request),
                                                                         self._write_together if small else None)
                    break
                except (OSError, asyncio.TimeoutError) as error:
                    if connection is not None and connection.transport is not None:
                        connection.transport.abort()
                    broken = isinstance(error, (_Broken, ConnectionResetError, BrokenPipeError))
                    if not (kept and again and broken):
                        cause = TimeoutError() if isinstance(error, asyncio.TimeoutError) else error
                        raise settings.lost(request, cause, connection is not None) from cause
                    again = False
                except BaseException:
                    if connection is not None and connection.transport is not None:
                        connection.transport.abort()
                    raise
            if not connection.closed:
                self._idle.append(connection)
        finally:
            self._room.release()
        if status in (200, 201, 202, 206):
            return Answer(status, headers, body)
        raise problem_of(status, headers, bytes(body))


class AsyncClient(AsyncOperations):
    """Jobs from asyncio. The arguments and methods are those of Client, to be awaited. In another event loop, or a
    forked process, it makes connections anew. connections: most at a time; further requests wait for one.

        async with blasd.AsyncClient() as client:
            c = await client.matmul(a, b)
    """

    def __init__(self, url: str | None = None, timeout: float | None = 60.0, share: bool = False, *,
                 api_key: str | None = None, retries: int = 0, headers: Mapping[str, str] | None = None,
                 verify: bool | str = True, cert: str | tuple[str, str] | None = None,
                 connections: int = 64) -> None:
        settings = Settings(url, timeout, api_key, headers, verify, cert, retries)
        self.url = settings.url
        self._calls = Calls(settings)
        self._wants_share = share
        self._connections = connections
        self._pool: AsyncPool | None = None
        self.tensors = AsyncTensors(self)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_pool": None}

    def __repr__(self) -> str:
        return f"<blasd.AsyncClient {self.url}>"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections; the client may be used again."""
        pool, self._pool = self._pool, None
        if pool is not None and pool.is_mine():
            await pool.close()

    async def _find_directory(self) -> None:
        if self._wants_share:
            self._wants_share = False
            try:
                await self._do(self._calls.find_directory())
            except BaseException:  # whoever asks next hears of it, too
                self._wants_share = True
                raise

    async def _do(self, talk: Talk[T]) -> T:
        pool = self._pool
        if pool is None or not pool.is_mine():
            pool = self._pool = AsyncPool(self._calls.settings, self._connections)
        await self._find_directory()
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = talk.send(value) if error is None else talk.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            value, error = None, None
            try:
                if isinstance(step, Sleep):
                    await asyncio.sleep(step.seconds)
                else:
                    value = await pool.carry(step)
            except BaseException as caught:
                error = caught

    async def run(self, op: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = 3600.0,
                  progress: bool | Progress = False, priority: str | None = None, deadline_ms: int | None = None,
                  device: str | None = None, idempotency_key: str | None = None, labels: Labels | None = None,
                  out: Array | Mapping[str, Array] | None = None, keep: Iterable[str] = (),
                  results: Iterable[str] | None = None, notify: str | None = None, digest: bool = False, **inputs: Any) -> Result:
        """Runs one job and returns its Result; cancelled, it cancels the job. See Client.run."""
        options = Options(priority, deadline_ms, device, idempotency_key, labels, keep, results, notify, digest)
        with JobBar(progress, op) as show:
            return await self._do(self._calls.run(op, params, inputs, options, timeout, show, out))

    async def submit(self, op: str, params: Mapping[str, Any] | None = None, *, priority: str | None = None,
                     deadline_ms: int | None = None, device: str | None = None,
                     idempotency_key: str | None = None, labels: Labels | None = None, keep: Iterable[str] = (),
                     results: Iterable[str] | None = None, notify: str | None = None, digest: bool = False, **inputs: Any) -> AsyncJob:
        """Queues a job and returns it at once."""
        options = Options(priority, deadline_ms, device, idempotency_key, labels, keep, results, notify, digest)
        arrays = self._calls.checked(op, params, inputs)
        document = await self._do(self._calls.submit(op, params, arrays, options, 0))
        assert not isinstance(document, Result)
        return AsyncJob(self, document, params or {})

    async def _again(self, op: str, attempts: int, options: Mapping[str, Any], job: Any) -> Result:
        """As `run`, up to `attempts` times where the job failed for the service's sake."""
        for attempt in range(attempts - 1):
            try:
                return await self.run(op, **{**options, **mapping("jobs", job)})
            except Error as error:
                if not error.retry and not isinstance(error, JobFailed):
                    raise
                await asyncio.sleep(backoff(attempt, error))
        return await self.run(op, **{**options, **mapping("jobs", job)})

    async def map(self, op: str, jobs: Iterable[Mapping[str, Any]], *, in_flight: int = 64,
                  progress: bool = False, attempts: int = 1, **options: Any) -> AsyncIterator[Result]:
        """The Results of many jobs in order, `in_flight` of them at a time. See Client.map."""
        at_least_one(in_flight)
        waiting: collections.deque[asyncio.Task[Result]] = collections.deque()
        source = iter(jobs)
        bar = JobsBar(progress, op, jobs)
        try:
            while True:
                while len(waiting) < in_flight and (job := next(source, None)) is not None:
                    waiting.append(asyncio.ensure_future(self._again(op, attempts, options, job)))
                if not waiting:
                    return
                result = await waiting[0]
                waiting.popleft()
                bar.step()
                yield result
        finally:
            bar.__exit__()
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def split(self, op: str, *, rows: int | None = None, in_flight: int | None = None, out: Place = None,
                    progress: bool = False, **given: Any) -> Array:
        """One large job as blocks for all workers. See Client.split."""
        workers = len(await self.devices())
        blocks = Split(op, rows, workers, out, given)
        stored: dict[str, Tensor] = {}
        try:
            for name, array in blocks.arrays.items():
                stored[name] = await self.tensors.put(array)
            async for result in self.map(op, blocks.jobs(stored), in_flight=in_flight or 2 * workers or 1, progress=progress, attempts=3,
                                         **blocks.options):
                blocks.place(result)
        finally:
            for tensor in stored.values():
                with contextlib.suppress(Error):
                    await self.tensors.delete(tensor)
        placed: Array = blocks.out
        return placed

    def graph(self, *, timeout: float | None = 3600.0, progress: bool | Progress = False, priority: str | None = None,
              deadline_ms: int | None = None, device: str | None = None, idempotency_key: str | None = None,
              labels: Labels | None = None, notify: str | None = None) -> AsyncGraph:
        """Records steps that feed each other: `async with client.graph() as g:`. See Client.graph."""
        return AsyncGraph(self, Options(priority, deadline_ms, device, idempotency_key, labels, notify=notify), timeout, progress)

    async def _graph(self, steps: Steps, options: Options, timeout: float | None, progress: bool | Progress) -> Result:
        arrays, texts = steps.request()
        with JobBar(progress, "graph") as show:
            return await self._do(self._calls.run("graph", None, arrays, options, timeout, show, None, texts))

    async def _named(self, op: str, inputs: dict[str, Any], params: dict[str, Any], **options: Any) -> Any:
        job = named.job_of(op, inputs, params, options)
        return named.value_of(op, await self.run(op, job.params, **job.options, **job.inputs), job)

    async def shared(self, **specs: Any) -> Any:
        """See Client.shared."""
        await self._find_directory()
        return self._calls.shared(specs)

    async def job(self, job_id: str) -> AsyncJob:
        """The job with this id."""
        return AsyncJob(self, await self._do(self._calls.refresh(job_id)))

    async def jobs(self, state: str | None = None, limit: int | None = 100, op: str | None = None,
                   since: Any = None, before: Any = None, label: str | None = None) -> list[AsyncJob]:
        """See Client.jobs."""
        documents = await self._do(self._calls.listed("/jobs", limit, state=state, op=op, since=since, before=before, label=label))
        return [AsyncJob(self, document) for document in documents]

    async def forget(self, job_id: str) -> None:
        """See Client.forget."""
        await self._do(self._calls.forget(job_id))

    async def cancel_all(self, state: str | None = None, op: str | None = None, label: str | Sequence[str] | None = None,
                         since: Any = None, before: Any = None) -> int:
        """See Client.cancel_all."""
        return await self._do(self._calls.cancel_all(label, state=state, op=op, since=since, before=before))

    async def ops(self) -> list[dict[str, Any]]:
        """The operations with their inputs, parameters and outputs."""
        return list((await self._do(self._calls.json("GET", "/ops", ops=list)))["ops"])

    async def devices(self) -> list[dict[str, Any]]:
        """The workers that are alive and their devices."""
        return list((await self._do(self._calls.json("GET", "/devices", devices=list)))["devices"])

    async def ready(self) -> bool:
        """Whether the service accepts and runs jobs."""
        return await self._do(self._calls.ready())


__all__ = ["AsyncClient", "Error"]
