"""What a client says to the service, as talks: generators that yield a Request or a Sleep and are given the Answer.

Both clients drive the same ones (`client.py`, `aio.py`), so they cannot differ.
"""
from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, Union

import numpy as np

from . import safetensors
from .arrays import Array, columns_of, inputs_of
from .errors import Error, InputError
from .protocol import BINARY, Answer, Request, Settings, Sleep, backoff, bad_answer, new_key, plain
from .results import RegressionResult, Result, result_of
from .shapes import check_shapes, output_shape
from .tensors import Reference, Tensor, split

log = logging.getLogger("blasd")
T = TypeVar("T")
Document = dict[str, Any]
Talk = Generator[Union[Request, Sleep], Any, T]
Progress = Callable[[str, float], None]

Watch = Callable[[Document], None]
Labels = Mapping[str, str]

FINAL = ("succeeded", "failed", "cancelled", "expired")
_JOB: dict[str, Any] = {"id": str, "state": str}  # what a job's document has, if nothing else
LONGEST_WAIT = 20.0  # seconds that one request holds its connection
RETRY_S = 10.0  # seconds in which a front end that restarts is back


class Options:
    """The members of a job other than its inputs and parameters."""

    def __init__(self, priority: str | None = None, deadline_ms: int | None = None, device: str | None = None,
                 idempotency_key: str | None = None, labels: Labels | None = None, keep: Iterable[str] = (),
                 results: Iterable[str] | None = None, notify: str | None = None, digest: bool = False) -> None:
        self.fields = {name: str(value) for name, value in (("priority", priority), ("deadline_ms", deadline_ms),
                                                             ("device", device), ("notify", notify)) if value is not None}
        if labels:
            self.fields["labels"] = labels_text(mapping("labels", labels))
        kept = _names("keep", keep)
        if kept:
            self.fields["keep"] = json.dumps(kept)
        if results is not None:
            self.fields["results"] = json.dumps(_names("results", results))
        if digest:
            self.fields["digest"] = "true"
        self.idempotency_key = None if idempotency_key is None else key_text(idempotency_key)


def _names(field: str, names: Any) -> list[str]:
    """Names of outputs; a string is one, not as many as it has letters."""
    listed: list[Any] = [names] if isinstance(names, str) else list(names) if isinstance(names, Iterable) else [names]
    for name in listed:
        if not isinstance(name, str):
            raise InputError(field, f"names of outputs, or one name, not {name!r}", "invalid_field")
    return listed


def mapping(field: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(field, f"must be a mapping by name, not the {type(given).__name__} {repr(given)[:60]}", "invalid_field")
    return given


def key_text(key: str) -> str:
    """A key as a header value; an invalid key fails here, before a body is sent."""
    if re.fullmatch("[ -~]{1,128}", str(key)) is None:
        raise InputError("idempotency_key", f"a key is 1 to 128 printable ASCII characters, not {key!r}", "invalid_field")
    return str(key)


def labels_text(labels: Labels) -> str:
    """Labels as a request has them; an invalid label fails here, because a comma in a label would make two."""
    for name, value in labels.items():
        if not isinstance(name, str) or re.fullmatch("[A-Za-z0-9._/-]{1,63}", name) is None:
            raise InputError("labels", f"a label's name is 1 to 63 letters, digits and ._-/, not {name!r}", "invalid_field")
        if not isinstance(value, str) or re.fullmatch("[A-Za-z0-9._/:@+-]{0,63}", value) is None:
            raise InputError("labels", f"the value of the label '{name}' is not a string of up to 63 letters, digits and "
                                       f"._-/:@+: {value!r}", "invalid_field")
    return ",".join(f"{name}={value}" for name, value in labels.items())


def watching(progress: Progress | None) -> Watch | None:
    """The function that tells `progress` of a job."""
    if progress is None:
        return None
    told = progress
    return lambda document: told(document["state"], document["progress"])


class Calls:
    """The talks. `share` is a shared.Directory where tensors go through shared memory."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.share: Any = None

    # --- one request ------------------------------------------------------------------------------------------------

    def ask(self, request: Request) -> Talk[Answer]:
        """A request, again with pauses as often as `retries` says, where that does no harm and may help."""
        attempt = 0
        while True:
            try:
                answer: Answer = yield request
                return answer
            except Error as error:
                unsent = error.status in (429, 503) or isinstance(error.__cause__, ConnectionRefusedError)
                if attempt >= self.settings.retries or not error.retry or not (unsent or request.safe):
                    raise
                pause = backoff(attempt, error)
                if time.monotonic() + pause >= request.end:
                    raise
                log.info("%s %s: %s; again in %.2f s", request.method, request.path, error.code, pause)
                yield Sleep(pause)
                attempt += 1

    def json(self, method: str, path: str, wait: float = 0.0, end: float = math.inf, body: Document | None = None,
             **needs: type) -> Talk[Any]:
        """The document of the answer, with members of these names and types."""
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.share is not None:
            headers["Prefer"] = "share"
        pieces = [] if body is None else [memoryview(json.dumps(body).encode())]
        answer = yield from self.ask(Request(method, path, headers, pieces, wait=wait, end=end))
        return answer.json(**needs)

    # --- jobs -------------------------------------------------------------------------------------------------------

    def run(self, op: str, params: Mapping[str, Any] | None, inputs: Mapping[str, Any], options: Options,
            timeout: float | None, watch: Watch | None = None,
            out: Array | Mapping[str, Array] | None = None, graph: Mapping[str, str] | None = None) -> Talk[Result]:
        """A job from its submission to its result; the job is cancelled when the time is over. graph: its steps and
        results as JSON texts, where it is one."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        arrays = self.checked(op, params, inputs)
        check_places(out, output_shape(op, known(arrays), params or {}) if isinstance(out, np.ndarray) else None)
        key = self._key_of(options)
        document: Document
        while True:
            wait = max(0.001, min(end - time.monotonic(), self._longest_wait(watch)))
            try:
                answer = yield from self.submit(op, params, arrays, options, wait, graph=graph, end=end, key=key)
                break
            except Error as error:
                # a full queue says when to come back; anything else is for the caller: the job may have been taken
                pause = max(error.retry_after or 0.0, 0.1)
                if error.retry_after is None or error.status not in (429, 503) or time.monotonic() + pause >= end:
                    raise
                log.info("%s: %s; again in %g s", op, error.code, pause)
                yield Sleep(pause)
            except GeneratorExit:  # nobody drives a talk that is closed
                raise
            except BaseException:  # under a key the service goes on with a job whose connection ends: which one is it?
                if key is not None:
                    with contextlib.suppress(Error):
                        answer = yield from self.submit(op, params, arrays, options, 0, graph=graph, end=time.monotonic(), key=key)
                        if not isinstance(answer, Result) and answer["state"] not in FINAL:
                            yield self._cancelling(answer)
                raise
        if isinstance(answer, Result):
            return into(_named(answer, inputs), out)
        document = answer
        try:
            document = yield from self.wait(document, max(0.0, end - time.monotonic()), watch)
            if document["state"] not in FINAL:
                raise Error("timeout", f"the job did not end within {timeout} s and was cancelled", retry=True,
                            job=document)
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                with contextlib.suppress(Error):
                    yield self._cancelling(document)
            raise
        result = yield from self.result(document, params or {})
        return into(_named(result, inputs), out)

    def _cancelling(self, document: Document) -> Request:
        return Request("DELETE", f"/jobs/{document['id']}", {"Accept": "application/json"}, end=time.monotonic())

    def checked(self, op: str, params: Mapping[str, Any] | None, inputs: Mapping[str, Any]) -> dict[str, Any]:
        sent, others = split(inputs)
        arrays: dict[str, Any] = {**inputs_of(sent), **others}
        check_shapes(op, known(arrays), mapping("params", params or {}))
        return arrays

    def _key_of(self, options: Options) -> str | None:
        """The key of a job, however often and in whatever ways it is sent."""
        return options.idempotency_key or (new_key() if self.settings.retries > 0 else None)

    def submit(self, op: str, params: Mapping[str, Any] | None, arrays: dict[str, Any], options: Options,
               wait: float, by_file: bool = True, graph: Mapping[str, str] | None = None,
               end: float = math.inf, key: str | None = None) -> Talk[Result | Document]:
        """A Result where the job has succeeded within the wait, else its document. key: that of a job that may have been
        sent before."""
        metadata = {**({"op": op} if graph is None else graph), **options.fields}
        if params:
            metadata["params"] = json.dumps({name: plain(name, value) for name, value in params.items()})
        sent, others = split(arrays)
        if others:
            metadata["inputs"] = json.dumps({name: value.as_input() for name, value in others.items()})
        query = {"wait": f"{wait:.3f}"} if wait > 0 else {}
        headers = {"Content-Type": BINARY}
        key = key or self._key_of(options)
        if key is not None:
            headers["Idempotency-Key"] = key
        file = self._file_of(sent) if by_file and not others and graph is None else None
        pieces: Iterable[Any] = ()
        if file is None:
            pieces = safetensors.pack(sent, metadata)
            headers["Accept"] = f"{BINARY}, application/json;q=0.5"
        else:  # the file has tensors alone, for it may serve again
            query = {**metadata, **query}
            headers.update({"Accept": "application/json", "Body-File": file.name, "Prefer": "share"})
        path = ("/jobs" if graph is None else "/graphs") + ("?" + urllib.parse.urlencode(query) if query else "")
        try:
            answer = yield from self.ask(Request("POST", path, headers, list(pieces), wait, end))
        except Error as error:
            if file is None or error.code not in ("sharing_off", "body_file_refused"):
                raise
            if file.temporary:
                self.share = None
            again: Result | Document = yield from self.submit(op, params, arrays, options, wait, False, end=end, key=key)
            return again
        finally:
            if file is not None and file.temporary:
                file.close()
        if answer.binary:
            return _result(answer, params or {})
        document: Document = answer.json(**_JOB)
        log.debug("%s %s %s", op, document["id"], document["state"])
        if wait > 0 and document["state"] in FINAL and (file is not None or document["state"] != "succeeded"):
            result = yield from self.result(document, params or {})
            return result
        return document

    def wait(self, document: Document, timeout: float | None, watch: Watch | None = None) -> Talk[Document]:
        """Waits until the job has ended or the time is over; returns the last job document."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        step = self._longest_wait(watch)
        while document["state"] not in FINAL:
            left = min(step, end - time.monotonic())
            if left <= 0:
                break
            document = yield from self.look(document["id"], left, end)
            if watch is not None:
                watch(document)
        return document

    def _longest_wait(self, watch: Watch | None) -> float:
        return self.settings.longest_wait(LONGEST_WAIT if watch is None else 0.5)

    def look(self, job_id: str, wait: float, end: float) -> Talk[Document]:
        """The job after `wait` seconds or its end."""
        document: Document = yield from self._patiently(lambda: self.refresh(job_id, wait, end), end)
        return document

    def _patiently(self, ask: Callable[[], Talk[T]], end: float = math.inf) -> Talk[T]:
        """A service that cannot answer now is asked again for some seconds, and not after `end`: the job is safe meanwhile."""
        until = min(end, time.monotonic() + RETRY_S)
        while True:
            try:
                told = yield from ask()
                return told
            except Error as error:
                if not error.retry or time.monotonic() + 0.25 >= until:
                    raise
                yield Sleep(0.25)

    def refresh(self, job_id: str, wait: float = 0.0, end: float = math.inf) -> Talk[Document]:
        query = f"?wait={wait:.3f}" if wait > 0 else ""
        document: Document = yield from self.json("GET", f"/jobs/{checked_id(job_id)}{query}", wait, end, **_JOB)
        return document

    def refresh_after(self, job_id: str, wait: float) -> Talk[Document]:
        """The job after its end or `wait` seconds, in turns: the service refuses a wait that is too long for one request."""
        end = time.monotonic() + wait
        while True:
            asked = time.monotonic()
            document = yield from self.refresh(job_id, min(max(0.0, end - asked), LONGEST_WAIT))
            now = time.monotonic()
            if document["state"] in FINAL or now >= end:
                return document
            if now < asked + 0.1:  # as a service answers that shuts down
                yield Sleep(min(0.1, end - now))

    def result(self, document: Document, params: Mapping[str, Any] | None = None) -> Talk[Result]:
        """The outputs of a job that has ended: mapped where they can be, else fetched. Raises what it failed with. params: those
        of the request, {} included; None: not known here."""
        if document["state"] != "succeeded":
            state = document["state"]
            problem = document.get("error") or {"code": state, "detail": f"the job is {state}"}
            raise Error.from_problem(problem, job=document)
        arrays = None if self.share is None else self.share.map_outputs(document)
        if arrays is not None:
            return Result.of(arrays, document, params)
        request = Request("GET", f"/jobs/{document['id']}/result", {"Accept": BINARY})
        try:
            answer = yield from self._patiently(lambda: self.ask(request))
            return _result(answer, params)
        except Error as error:  # who has been waiting can come back for it
            error.job = error.job or document
            raise

    def cancel(self, job_id: str) -> Talk[Document | None]:
        """The document of the job, cancelled; None where it had ended before."""
        try:
            document: Document = yield from self.json("DELETE", f"/jobs/{checked_id(job_id)}", **_JOB)
            return document
        except Error as error:
            if error.code != "job_ended":
                raise
            return None

    def forget(self, job_id: str) -> Talk[None]:
        yield from self.json("DELETE", f"/jobs/{checked_id(job_id)}?forget=1")

    def cancel_all(self, labels: str | Sequence[str] | None, **filters: Any) -> Talk[int]:
        """How many jobs were cancelled, page by page."""
        named = [labels] if isinstance(labels, str) else labels or []
        pairs = [*((name, value) for name, value in filters.items() if value is not None), *(("label", label) for label in named)]
        cancelled, cursor = 0, None
        page: Document
        while True:
            text = urllib.parse.urlencode(pairs if cursor is None else [*pairs, ("cursor", cursor)])
            page = yield from self.json("DELETE", f"/jobs?{text}", cancelled=int)
            cancelled += int(page["cancelled"])
            cursor = page.get("cursor")
            if cursor is None:
                return cancelled

    # --- tensors ----------------------------------------------------------------------------------------------------

    def put_tensor(self, value: Any, life_s: int | None, sha256: bool) -> Talk[Tensor]:
        if isinstance(value, Reference):
            raise InputError("tensor", "it lies at the service already")
        pieces = safetensors.pack(inputs_of({"tensor": value}), {})
        said = {name: value for name, value in (("life_s", life_s), ("sha256", 1 if sha256 else None)) if value is not None}
        path = "/tensors" + ("?" + urllib.parse.urlencode(said) if said else "")
        answer = yield from self.ask(Request("POST", path, {"Content-Type": BINARY, "Accept": "application/json"},
                                             list(pieces)))
        with _reading(answer):
            document = answer.json()
            return Tensor(document["tensors"]["tensor"] if "tensors" in document else document)

    def of_tensor(self, method: str, tensor_id: str, body: Document | None = None) -> Talk[Document]:
        document: Document = yield from self.json(method, f"/tensors/{checked_id(tensor_id)}", body=body, id=str)
        return document

    def get_tensor(self, tensor_id: str) -> Talk[Array]:
        answer = yield from self.ask(Request("GET", f"/tensors/{checked_id(tensor_id)}", {"Accept": BINARY}))
        with _reading(answer):
            arrays, _ = safetensors.unpack(answer.body)
            return arrays[tensor_id]

    def listed(self, path: str, limit: int | None, **filters: Any) -> Talk[list[Document]]:
        """The documents of a list, "/jobs" or "/tensors", page by page."""
        member, listed = path[1:], list[Document]()
        cursor = None
        while limit is None or len(listed) < limit:
            query = {**filters, "cursor": cursor, "limit": None if limit is None else min(limit - len(listed), 100)}
            text = urllib.parse.urlencode({name: value for name, value in query.items() if value is not None})
            page = yield from self.json("GET", f"{path}?{text}", 0.0, math.inf, None, **{member: list})
            listed += page[member]
            cursor = page.get("cursor")
            if cursor is None:
                break
        return listed

    def ready(self) -> Talk[bool]:
        try:
            yield from self.json("GET", "/health/ready")
            return True
        except Error:
            return False

    # --- shared memory ----------------------------------------------------------------------------------------------

    def find_directory(self) -> Talk[None]:
        from . import shared  # needs what only Unix has
        told = yield from self.json("GET", "/share", directory=str)
        path = told["directory"]
        # with the mark of a blob store in it: the service's word alone would let it choose any directory of ours
        mark = os.path.join(path, ".store")
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK) or os.path.islink(mark) or not os.path.isfile(mark):
            raise Error("sharing_off", f"the service's directory {path} cannot be used from here: it is another "
                                       "machine's, or another user's")
        self.share = shared.Directory(path, told.get("prefix", ""))

    def shared(self, specs: Mapping[str, Any]) -> Any:
        if self.share is None:
            raise ValueError("make the client with share=True")
        # in the order of bytes that the service reads, whichever is asked for: what is put there is converted
        return self.share.shared({name: (np.dtype(dtype).newbyteorder("<"), tuple(shape)) for name, (shape, dtype) in specs.items()})

    def _file_of(self, arrays: dict[str, Array]) -> Any:
        """The file that the inputs lie in, or were copied into; None: they are sent."""
        share = self.share
        try:
            return None if share is None else share.file_of(arrays)
        except OSError:  # the store is full, or is there no more
            return None


@contextlib.contextmanager
def _reading(answer: Answer) -> Iterator[None]:
    """The error if the content does not match its declared type."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        raise bad_answer(answer) from error


def _result(answer: Answer, params: Mapping[str, Any] | None) -> Result:
    with _reading(answer):
        return result_of(answer.body, params)


def _named(result: Result, inputs: Mapping[str, Any]) -> Result:
    """A fit knows the names of its features."""
    if isinstance(result, RegressionResult):
        result.names = columns_of(inputs.get("x"))
    return result


def checked_id(text: str) -> str:
    """An id, which goes into a path as it is."""
    if re.fullmatch("[A-Za-z0-9_-]{1,64}", text) is None:
        raise InputError("id", f"{text!r} is not the id of a job or a tensor", "invalid_field")
    return text


def at_least_one(in_flight: int) -> None:
    if in_flight < 1:  # none would ever be sent
        raise ValueError(f"in_flight must be at least 1, not {in_flight!r}")


def known(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Those whose shapes are known here: of a reference the service alone knows it."""
    return {name: value for name, value in arrays.items() if not isinstance(value, Reference)}


def check_places(out: Any, shape: tuple[int, ...] | None) -> None:
    """What no result can be written to fails before anything is sent. shape: that of the first output, where it is known."""
    for place in () if out is None else out.values() if isinstance(out, Mapping) else (out,):
        if not isinstance(place, np.ndarray):
            raise InputError("out", f"a {type(place).__name__} is not a NumPy array", "invalid_field")
        if not place.flags.writeable:
            raise InputError("out", "the array is read-only", "invalid_field")
    if isinstance(out, np.ndarray) and shape is not None and out.shape != shape:
        raise InputError("out", f"it has shape {out.shape}, the result will have {shape}", "invalid_field")


def into(result: Result, out: Array | Mapping[str, Array] | None) -> Result:
    """The result with `out` in the place of its first output (an array), or of those it names."""
    if out is None:
        return result
    places = out if isinstance(out, Mapping) else {next(iter(result), "to be sent"): out}
    for name, place in places.items():
        value = result.get(name)
        if value is None:
            raise _unwritten(result, f"the job has no output {name}; it has {', '.join(result)}")
        if place.shape != value.shape or not np.can_cast(value.dtype, place.dtype, "same_kind"):
            raise _unwritten(result, f"it has shape {place.shape} and dtype {place.dtype}, {name} has {value.shape} and {value.dtype}")
        place[...] = value
        result[name] = place
    return result


def _unwritten(result: Result, detail: str) -> Error:
    """The error has the job, whose result can still be fetched."""
    error = InputError("out", detail, "invalid_field")
    error.job = result.job
    return error
