"""`Client`: jobs from a program that waits for them. Where to start."""
from __future__ import annotations

import asyncio
import atexit
import collections
import concurrent.futures
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from . import named
from .arrays import Array, kept_warnings, warn
from .bars import JobBar, JobsBar
from .calls import Calls, Labels, Options, Progress, Talk, at_least_one
from .errors import Error
from .graphs import Graph, Steps
from .jobs import Job
from .operations import Operations
from .protocol import GRACE, Settings, Sleep
from .results import Result
from .split import Place, Split
from .tensors import Tensor, Tensors
from .transport import Pool

T = TypeVar("T")
_starting = threading.Lock()  # of a client's thread, which is one; a fork's own is free


def _after_fork() -> None:
    global _starting
    _starting = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Client(Operations):
    """Connections to a service. Threads and forked processes may share one. A pickled one connects anew where it is
    unpickled. As a context manager it closes its connections at the end.

    url: where the service is; default: the environment variable BLASD_URL, else http://127.0.0.1:8080. unix:/PATH is a
    socket. With user:password@ before the host (what is special in them as %40) they are sent, for a proxy that asks.
    timeout: seconds in which no byte goes either way after which a request is given up; None: never.
    share: the service runs on this machine as this user, started with --share: large inputs and results go through
    shared memory instead of the connection. Raises Error where that is not so. Inputs that no file can be made for
    (the store is full), or that the service does not take (it was started anew, without --share), are sent after all.
    api_key: sent as `Authorization: Bearer`; default: the environment variable BLASD_API_KEY.
    retries: how often a request is sent again, with growing pauses and after the time that the service names. 0: a
    request goes once (but `run` waits for room in a full queue). More: jobs carry an idempotency key of their own, so
    that one that is sent again never runs twice.
    headers: further headers of every request. verify: False trusts any certificate, a path names the CA's file.
    cert: a client certificate, (certificate file, key file) or one file with both.
    Proxies come from the environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY). What happens is logged under "blasd".

    A job is never sent a second time where the service may have taken it, unless it has an idempotency key.
    """

    def __init__(self, url: str | None = None, timeout: float | None = 60.0, share: bool = False, *,
                 api_key: str | None = None, retries: int = 0, headers: Mapping[str, str] | None = None,
                 verify: bool | str = True, cert: str | tuple[str, str] | None = None) -> None:
        settings = Settings(url, timeout, api_key, headers, verify, cert, retries)
        self.url, self.timeout = settings.url, timeout
        self._calls = Calls(settings)
        self._pool = Pool(settings)
        self._background: _Background | None = None
        self.tensors = Tensors(self)
        if share:
            self._do(self._calls.find_directory())

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_background": None}

    def __repr__(self) -> str:
        return f"<blasd.Client {self.url}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; the client may be used again. Jobs go on, but their callbacks and concurrent.futures are
        told now: nobody watches them any more, and `result` asks the service."""
        self._pool.close()
        background, self._background = self._background, None
        if background is not None:
            background.close()

    def _do(self, talk: Talk[T]) -> T:
        """Drives a talk over a connection of the pool."""
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
                    time.sleep(step.seconds)
                else:
                    value = self._pool.carry(step)
            except BaseException as caught:  # an interrupt too: the talk may have a job to cancel
                error = caught

    # --- operations -------------------------------------------------------------------------------------------------

    def run(self, op: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = 3600.0,
            progress: bool | Progress = False, priority: str | None = None, deadline_ms: int | None = None,
            device: str | None = None, idempotency_key: str | None = None, labels: Labels | None = None,
            out: Array | Mapping[str, Array] | None = None, keep: Iterable[str] = (),
            results: Iterable[str] | None = None, notify: str | None = None, digest: bool = False, **inputs: Any) -> Result:
        """Runs one job and returns its Result.

        inputs: arrays by name, or what lies at the service: a Tensor, a Job's output(NAME), a slice of either. keep: a
        name or names of outputs that the service keeps as tensors, in `Result.tensors`, in place of sending them.
        results: a name or names of the outputs that are sent; default: all that are not kept. Arrays: what np.asarray
        makes an array of numbers of; InputError (a TypeError) says why it is not. params: dict. timeout: seconds, None
        for no end; the job is cancelled when they are over, and on Ctrl-C. progress: True shows
        a tqdm bar; a function is called with (state, fraction). out: an array for the first output, or arrays by name,
        which the results are written to. labels: strings by name, to find the job by. notify: a URL
        that is told of its end (docs/webhooks.md). digest: a SHA-256 of each output, in `Result.job["execution"]["digest"]`
        (docs/rounding.md). Raises Error.
        """
        options = Options(priority, deadline_ms, device, idempotency_key, labels, keep, results, notify, digest)
        with JobBar(progress, op) as show:
            return self._do(self._calls.run(op, params, inputs, options, timeout, show, out))

    def submit(self, op: str, params: Mapping[str, Any] | None = None, *, priority: str | None = None,
               deadline_ms: int | None = None, device: str | None = None, idempotency_key: str | None = None,
               labels: Labels | None = None, keep: Iterable[str] = (), results: Iterable[str] | None = None,
               notify: str | None = None, digest: bool = False, **inputs: Any) -> Job:
        """Queues a job and returns it as a Job, which is a future, at once. See run for the arguments."""
        options = Options(priority, deadline_ms, device, idempotency_key, labels, keep, results, notify, digest)
        arrays = self._calls.checked(op, params, inputs)
        document = self._do(self._calls.submit(op, params, arrays, options, 0))
        assert not isinstance(document, Result)
        return Job(self, document, params or {})

    def map(self, op: str, jobs: Iterable[Mapping[str, Any]], *, in_flight: int = 64, progress: bool = False,
            attempts: int = 1, **options: Any) -> Iterator[Result]:
        """The Results of many jobs in order, `in_flight` of them at a time; what `run` takes may be given too.

        jobs: dicts of inputs (and `params`, and whatever `run` takes): `({"a": a, "b": b} for a, b in pairs)`. What `map`
        itself is given, as `params`, is that of each job that does not have its own.
        progress: True shows a tqdm bar of the jobs. attempts: how often a job is sent that fails for the service's sake, and not
        for its numbers. The first job that fails raises; those in flight are cancelled, as they are when the iterator is
        closed.
        """
        at_least_one(in_flight)
        with JobsBar(progress, op, jobs) as bar:
            for result in self._in_background().map(op, jobs, in_flight, attempts, options):
                bar.step()
                yield result

    def split(self, op: str, *, rows: int | None = None, in_flight: int | None = None, out: Place = None, progress: bool = False,
              **given: Any) -> Array:
        """One large job as blocks for all workers: distance and matmul by rows of x and a, solve by right-hand sides.

            stored = client.tensors.put(x)
            client.split("distance", x=stored, rows=2000, metric="cityblock", out="d.npy")

        Inputs, parameters and options are those of the operation's method; matrices alone are cut. Arrays are stored at the
        service meanwhile, each once. rows: of a block; default: four blocks for each worker. in_flight: blocks at a time;
        default: two for each worker. A block that fails for the service's sake is sent again. out: an array that the result is
        written to, or the path of a .npy file, which is written through a memory map and returned as one. Each block is an
        ordinary job. The bits of a distance matrix and of a solution are those of one job; a product's last bits may differ.
        """
        workers = len(self.devices())
        blocks = Split(op, rows, workers, out, given)
        stored: dict[str, Tensor] = {}
        try:
            for name, array in blocks.arrays.items():
                stored[name] = self.tensors.put(array)
            for result in self.map(op, blocks.jobs(stored), in_flight=in_flight or 2 * workers or 1, progress=progress, attempts=3,
                                   **blocks.options):
                blocks.place(result)
        finally:
            for tensor in stored.values():
                with contextlib.suppress(Error):
                    self.tensors.delete(tensor)
        placed: Array = blocks.out
        return placed

    def graph(self, *, timeout: float | None = 3600.0, progress: bool | Progress = False, priority: str | None = None,
              deadline_ms: int | None = None, device: str | None = None, idempotency_key: str | None = None,
              labels: Labels | None = None, notify: str | None = None) -> Graph:
        """Records steps that feed each other, and runs them as one job where the block ends:

            with client.graph() as g:
                c = g.matmul(a, b)
                x = g.solve(c, d)
            x.value, g.result["solve1.x"]

        See Graph, and run for the arguments.
        """
        return Graph(self, Options(priority, deadline_ms, device, idempotency_key, labels, notify=notify), timeout, progress)

    def _graph(self, steps: Steps, options: Options, timeout: float | None, progress: bool | Progress) -> Result:
        arrays, texts = steps.request()
        with JobBar(progress, "graph") as show:
            return self._do(self._calls.run("graph", None, arrays, options, timeout, show, None, texts))

    def _named(self, op: str, inputs: dict[str, Any], params: dict[str, Any], **options: Any) -> Any:
        job = named.job_of(op, inputs, params, options)
        return named.value_of(op, self.run(op, job.params, **job.options, **job.inputs), job)

    # --- jobs and service -------------------------------------------------------------------------------------------

    def shared(self, **specs: Any) -> Any:
        """New arrays in memory that is shared with the service, as a dict by name; their values are zeros.

        specs: shape and dtype by name, such as a=((1000, 500), "float32"). Given as inputs, all of them under these
        names, they are not copied. Needs share=True.
        """
        return self._calls.shared(specs)

    def job(self, job_id: str) -> Job:
        """The Job with this id."""
        return Job(self, self._do(self._calls.refresh(job_id)))

    def jobs(self, state: str | None = None, limit: int | None = 100, op: str | None = None, since: Any = None,
             before: Any = None, label: str | None = None) -> list[Job]:
        """A list of up to `limit` Jobs, all where that is None: those that have not ended first, then, roughly, the newest.
        `since` and `before` are times, as `created_at` in job documents or in seconds since 1970; `label` is
        "NAME=VALUE", or "NAME" for any value."""
        documents = self._do(self._calls.listed("/jobs", limit, state=state, op=op, since=since, before=before, label=label))
        return [Job(self, document) for document in documents]

    def forget(self, job_id: str) -> None:
        """Forgets a job with its tensors; one that has not ended is cancelled first. Mapped results stay readable;
        where the arrays are gone already, the next result takes their memory."""
        self._do(self._calls.forget(job_id))

    def cancel_all(self, state: str | None = None, op: str | None = None, label: str | Sequence[str] | None = None,
                   since: Any = None, before: Any = None) -> int:
        """Cancels the jobs that have not ended and that `jobs` with these filters would list; returns how many. At least
        one filter is needed; of several labels a job has all."""
        return self._do(self._calls.cancel_all(label, state=state, op=op, since=since, before=before))

    def ops(self) -> list[dict[str, Any]]:
        """A list of operations with their inputs, parameters and outputs."""
        return list(self._do(self._calls.json("GET", "/ops", ops=list))["ops"])

    def devices(self) -> list[dict[str, Any]]:
        """The workers that are alive and their devices."""
        return list(self._do(self._calls.json("GET", "/devices", devices=list))["devices"])

    def ready(self) -> bool:
        """Whether the service accepts and runs jobs."""
        return self._do(self._calls.ready())

    # --- the thread for jobs in flight --------------------------------------------------------------------------------

    def _in_background(self) -> _Background:
        with _starting:
            background = self._background
            if background is None or background.owner != os.getpid():
                background = self._background = _Background(self._calls)
                weakref.finalize(self, background.stop).atexit = False  # whose end is its own
            return background

    def _watch(self, job: Job) -> None:
        """Tells the job of its end."""
        self._in_background().watch(job)


class _Background:
    """A thread with an event loop, for jobs that are in flight while the program does something else."""

    def __init__(self, calls: Calls) -> None:
        from .aio import AsyncClient
        self.owner = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.client = AsyncClient.__new__(AsyncClient)
        self.client.__dict__.update(url=calls.settings.url, _calls=calls, _wants_share=False, _connections=64, _pool=None)
        self._in_flight: set[asyncio.Task[Any]] = set()
        self._watching: set[asyncio.Task[Any]] = set()
        threading.Thread(target=self._run, name="blasd", daemon=True).start()
        atexit.register(self._cancel, self._in_flight)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(self.client.close())
        self.loop.close()

    def close(self) -> None:
        if self.owner == os.getpid():
            self._cancel(self._in_flight)
            self._cancel(self._watching)
            self.stop()

    def stop(self) -> None:
        """Ends the thread, and its connections with it. Waits for nothing, so that it may be called wherever a client that
        nobody closed is found to be garbage: then nothing is in flight, for that holds its client."""
        if self.owner == os.getpid() and not self.loop.is_closed():
            atexit.unregister(self._cancel)
            self.loop.call_soon_threadsafe(self.loop.stop)

    def watch(self, job: Job) -> None:
        async def look() -> None:
            task = asyncio.current_task()
            assert task is not None
            self._watching.add(task)
            try:
                end = await self.client._do(self.client._calls.wait(job.document, None))
            except BaseException:  # the service is gone, or the client closed: whoever waits hears it from result()
                job._settle(lost=True)
                return
            finally:
                self._watching.discard(task)
            job._told(end)
        asyncio.run_coroutine_threadsafe(look(), self.loop)

    def map(self, op: str, jobs: Iterable[Mapping[str, Any]], in_flight: int, attempts: int,
            options: Mapping[str, Any]) -> Iterator[Result]:
        waiting: collections.deque[concurrent.futures.Future[tuple[Result, list[str]]]] = collections.deque()
        source = iter(jobs)
        mine: set[asyncio.Task[Any]] = set()

        async def run(job: Mapping[str, Any]) -> tuple[Result, list[str]]:
            task = asyncio.current_task()
            assert task is not None
            texts: list[str] = []
            kept_warnings.set(texts)
            mine.add(task)
            self._in_flight.add(task)
            try:
                return await self.client._again(op, attempts, options, job), texts
            finally:
                mine.discard(task)
                self._in_flight.discard(task)
        try:
            while True:
                while len(waiting) < in_flight and (job := next(source, None)) is not None:
                    waiting.append(asyncio.run_coroutine_threadsafe(run(job), self.loop))
                if not waiting:
                    return
                result, texts = waiting[0].result()
                waiting.popleft()
                for text in texts:
                    warn(text)
                yield result
        finally:
            if waiting:
                self._cancel(mine)

    def _cancel(self, tasks: set[asyncio.Task[Any]]) -> None:
        """Cancels the jobs in flight; returns when the service has answered, or after some seconds."""
        async def cancel() -> None:
            left = list(tasks)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=GRACE)
        # at the interpreter's end the loop runs no more, and has nothing in flight
        if self.owner == os.getpid() and not self.loop.is_closed() and not sys.is_finalizing():
            with contextlib.suppress(concurrent.futures.TimeoutError):
                asyncio.run_coroutine_threadsafe(cancel(), self.loop).result(2 * GRACE)
