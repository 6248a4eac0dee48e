"""Jobs that were submitted: `Job` is a concurrent.futures.Future, `AsyncJob` is awaited."""
from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

from .calls import FINAL, Document, Progress, watching
from .errors import Error, Timeout
from .results import Result, job_html, standing
from .tensors import Output

if TYPE_CHECKING:
    from .aio import AsyncClient
    from .client import Client


class _Said:
    """The attributes of both kinds of job. `document` is the last job document that was received."""

    document: Document
    __iter__ = None  # a job has parts by name, and Python would look for numbered ones without end

    @property
    def id(self) -> str:
        return str(self.document["id"])

    @property
    def state(self) -> str:
        """queued, running, succeeded, failed, cancelled or expired, as the service last said."""
        return str(self.document["state"])

    @property
    def progress(self) -> float:
        """0 to 1."""
        return float(self.document["progress"])

    @property
    def remaining(self) -> float | None:
        """Seconds that it will yet take, as far as the service can tell while it runs; else None."""
        ms = self.document.get("remaining_ms")
        return None if ms is None else ms / 1000

    @property
    def timing(self) -> dict[str, float]:
        """Milliseconds by part, as far as it has come."""
        return dict(self.document.get("timing") or {})

    def output(self, name: str) -> Output:
        """One of its outputs, to be an input of another job once this one has ended."""
        return Output(self.id, name)

    def __getitem__(self, name: str) -> Output:
        """The same: client.submit("solve", a=job["c"], b=y)."""
        return self.output(name)

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.document.get("labels") or {})

    @property
    def ended(self) -> bool:
        return self.state in FINAL

    def __repr__(self) -> str:
        return f"<blasd.{type(self).__name__} {self.id} {self.document['op']} {' '.join(standing(self.document))}>"

    def _repr_html_(self) -> str:
        return job_html(self.document)


class _Waiters(list[Any]):
    """The list in which concurrent.futures.wait and as_completed leave word: from then on the job is watched."""

    def __init__(self, watch: Callable[[], None]) -> None:
        super().__init__()
        self._watch = watch

    def append(self, waiter: Any) -> None:
        super().append(waiter)
        self._watch()


class Job(_Said, concurrent.futures.Future[Any]):
    """A job that was submitted, as a future: `result(timeout)`, `done()`, `cancel()`, `add_done_callback`, and
    concurrent.futures.wait and as_completed.

    Nothing watches it until it is asked for: `wait` and `result` ask the service themselves, a callback or
    concurrent.futures make a thread of the client's watch it.
    """

    def __init__(self, client: Client, document: Document, params: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._client = client
        self._params = params
        self.document = document
        self._watched = False
        self._waiters: list[Any] = _Waiters(self._watch)
        self._settle()

    def __reduce__(self) -> Any:
        return Job, (self._client, self.document, self._params)

    def refresh(self, wait: float = 0.0) -> Job:
        """Asks for the job as it stands, after waiting up to `wait` seconds, however many, for its end. Returns the job."""
        return self._told(self._client._do(self._client._calls.refresh_after(self.id, wait)))

    def wait(self, timeout: float | None = None, progress: Progress | None = None) -> bool:
        """Waits for the end, `timeout` seconds at most (None: as long as it takes; 0: asks once). Returns whether it has ended.

        progress: a function of (state, fraction), called twice a second or so.
        """
        if timeout is not None and timeout <= 0 and not self.ended:
            self.refresh()
        self._told(self._client._do(self._client._calls.wait(self.document, timeout, watching(progress))))
        return self.ended

    def result(self, timeout: float | None = None) -> Result:
        """Waits, then returns the outputs. Raises Error where the job failed, Timeout where it has not ended in time."""
        if not self.wait(timeout):
            raise self._late(timeout)
        return self._client._do(self._client._calls.result(self.document, self._params))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `result` would raise of a job that failed; None of one that succeeded, whose outputs are not fetched."""
        if not self.wait(timeout):
            raise self._late(timeout)
        try:
            if self.state != "succeeded":
                self.result()
        except Error as error:
            return error
        return None

    def _late(self, timeout: float | None) -> Timeout:
        return Timeout("timeout", f"the job {self.id} has not ended after {timeout} s", retry=True, job=self.document)

    def done(self) -> bool:
        """Whether it has ended; asks the service."""
        if not self.ended:
            self.refresh()
        return self.ended

    def running(self) -> bool:
        return not self.done() and self.state == "running"

    def cancelled(self) -> bool:
        return self.state == "cancelled"

    def cancel(self) -> bool:
        """Cancels the job. Returns whether it is cancelled now: a job that had ended otherwise stays as it is."""
        if not self.ended:
            document = self._client._do(self._client._calls.cancel(self.id))
            if document is None:
                self.refresh()
            else:
                self._told(document)
        return self.cancelled()

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None:
        """Calls fn(job) at its end, from a thread of the client's; at once where it has ended."""
        super().add_done_callback(fn)
        self._watch()

    def _watch(self) -> None:
        if not self._watched and not self.ended:
            self._watched = True
            self._client._watch(self)

    def _told(self, document: Document) -> Job:
        self.document = document
        self._settle()
        return self

    def _settle(self, lost: bool = False) -> None:
        """Tells, once, those that wait by way of concurrent.futures: it has ended, or the client cannot ask for it any
        more. `result` and `exception` say which."""
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # they were told before
            if self.state in ("succeeded", "cancelled"):
                super().set_result(None)
            elif self.ended or lost:
                super().set_exception(Error(self.state, "the job did not succeed"))


class AsyncJob(_Said):
    """A job that an AsyncClient submitted. `await job` gives its result."""

    def __init__(self, client: AsyncClient, document: Document, params: Mapping[str, Any] | None = None) -> None:
        self._client = client
        self._params = params
        self.document = document

    def __await__(self) -> Generator[Any, None, Result]:
        return self.result().__await__()

    async def refresh(self, wait: float = 0.0) -> AsyncJob:
        """Asks for the job as it stands, after waiting up to `wait` seconds, however many, for its end. Returns the job."""
        self.document = await self._client._do(self._client._calls.refresh_after(self.id, wait))
        return self

    async def wait(self, timeout: float | None = None, progress: Progress | None = None) -> bool:
        """Waits for the end, `timeout` seconds at most. Returns whether it has ended."""
        if timeout is not None and timeout <= 0 and not self.ended:
            await self.refresh()
        self.document = await self._client._do(self._client._calls.wait(self.document, timeout, watching(progress)))
        return self.ended

    async def result(self, timeout: float | None = None) -> Result:
        """Waits, then returns the outputs. Raises Error where the job failed, Timeout where it has not ended in time."""
        if not await self.wait(timeout):
            raise Timeout("timeout", f"the job {self.id} has not ended after {timeout} s", retry=True, job=self.document)
        return await self._client._do(self._client._calls.result(self.document, self._params))

    async def cancel(self) -> bool:
        """Cancels the job. Returns whether it is cancelled now."""
        document = None if self.ended else await self._client._do(self._client._calls.cancel(self.id))
        if document is not None:
            self.document = document
        elif not self.ended:
            await self.refresh()
        return self.state == "cancelled"
