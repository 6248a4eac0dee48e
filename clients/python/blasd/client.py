"""Jobs, results and errors. `Client` is where to start."""
import base64
import copyreg
import http.client
import json
import math
import os
import select
import threading
import time
import urllib.parse

import numpy as np

from . import safetensors
from .arrays import inputs_of, warn

_FINAL = ("succeeded", "failed", "cancelled", "expired")
_BINARY = "application/x-safetensors"
_LONGEST_WAIT = 20.0  # seconds that one request holds its connection
_PATIENCE = 10.0  # seconds in which a front end that restarts is back


class Error(Exception):
    """Something went wrong, in the service's words: a problem document, or a job that failed.

    code: stable name, e.g. "shape_mismatch"; "connection_failed" and "timeout" are the client's own.
    status: HTTP status, 0 where there was no answer. field: the member at fault, or "".
    detail, advice: text for people. retry: whether the same request may succeed later.
    job: the job document where there is one.
    """

    def __init__(self, code, detail, *, status=0, field="", title="", advice="", retry=False, retry_after=None,
                 job=None):
        super().__init__(": ".join(part for part in (field, title, detail) if part) + (f". {advice}" if advice else ""))
        self.code, self.status, self.field, self.detail = code, status, field, detail
        self.title, self.advice, self.retry, self.retry_after, self.job = title, advice, retry, retry_after, job

    def __reduce__(self):  # its text and its attributes: what __init__ takes is not what made it
        return copyreg.__newobj__, (type(self), *self.args), vars(self)

    @classmethod
    def _from_problem(cls, problem, retry_after=None, job=None):
        return cls(problem.get("code", "bad_answer"), problem.get("detail", ""), status=problem.get("status", 0),
                   field=problem.get("field", ""), title=problem.get("title", ""), advice=problem.get("advice", ""),
                   retry=problem.get("retry", False), retry_after=retry_after, job=job)


class Result(dict):
    """The outputs of a job by name, each a NumPy array, and the account of how they came about.

    job: the whole job document. timing: milliseconds by part. execution: device, method, batch_size, …
    warnings: what to know of the result, as texts; each is shown as a JobWarning too.
    """

    def __init__(self, arrays, job):
        super().__init__(arrays)
        self.job = job
        self.timing = job["timing"]
        self.execution = job["execution"]
        self.warnings = job["execution"].get("warnings", [])
        for text in self.warnings:
            warn(text)


class Job:
    """A job that was submitted. `document` is what the service last said of it."""

    def __init__(self, client, document):
        self._client = client
        self.document = document
        self.id = document["id"]

    state = property(lambda self: self.document["state"], doc="queued, running, succeeded, failed, cancelled, expired")
    progress = property(lambda self: self.document["progress"], doc="0 to 1")
    ended = property(lambda self: self.state in _FINAL)

    def refresh(self, wait=0.0):
        """Asks for the job as it stands, after waiting up to `wait` seconds for its end. Returns the job."""
        query = f"?wait={wait:.3f}" if wait > 0 else ""
        self.document = self._client._json("GET", f"/jobs/{self.id}{query}", timeout=wait)
        return self

    def wait(self, timeout=None, progress=None):
        """Waits for the end, `timeout` seconds at most (None: as long as it takes). Returns whether it has ended.

        progress: a function of (state, fraction), called twice a second or so.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        step = _LONGEST_WAIT if progress is None else 0.5
        while not self.ended:
            left = min(step, end - time.monotonic())
            if left <= 0:
                return False
            self._look(left, min(end, time.monotonic() + _PATIENCE))
            if progress is not None:
                progress(self.state, self.progress)
        return True

    def _look(self, wait, end):
        """A refresh that asks again, until `end`, a service that cannot answer now: the job is safe meanwhile."""
        while True:
            try:
                return self.refresh(wait)
            except Error as error:
                if not error.retry or time.monotonic() + 0.25 >= end:
                    raise
                time.sleep(0.25)

    def result(self, timeout=None):
        """Waits, then returns the outputs as a Result. Raises Error where the job failed or has not ended in time."""
        if not self.wait(timeout):
            raise Error("timeout", f"the job {self.id} has not ended after {timeout} s", retry=True, job=self.document)
        if self.state != "succeeded":
            problem = self.document.get("error") or {"code": self.state, "detail": f"the job is {self.state}"}
            raise Error._from_problem(problem, job=self.document)
        return self._client._outputs(self.document)

    def cancel(self):
        """Cancels the job, which must not have ended (Error `job_ended`). Returns the job."""
        self.document = self._client._json("DELETE", f"/jobs/{self.id}")
        return self

    def __repr__(self):
        return f"<blasd.Job {self.id} {self.document['op']} {self.state}>"


def _result(body):
    arrays, metadata = safetensors.unpack(body)
    return Result(arrays, json.loads(metadata["job"]))


class Client:
    """A connection to a service. Threads and forked processes may share one: each has a connection of its own
    underneath. A pickled one connects anew where it is unpickled.

    url: where the service is; default: the environment variable BLASD_URL, else http://127.0.0.1:8080. With
    user:password@ before the host (what is special in them as %40) they are sent, for a proxy that asks for them.
    timeout: seconds without any answer after which a request is given up.
    share: the service runs on this machine as this user, started with --share: large inputs and results go through
    shared memory instead of the connection. Raises Error where that is not so. Inputs that no file can be made for
    (the store is full), or that the service does not take (it was started anew, without --share), are sent after all.

    A job is never sent a second time where the service may have taken it, unless it has an idempotency_key.
    """

    def __init__(self, url=None, timeout=60.0, share=False):
        url = url or os.environ.get("BLASD_URL", "http://127.0.0.1:8080")
        parts = urllib.parse.urlsplit(url)
        user, at, host = parts.netloc.rpartition("@")
        self.url, self.timeout = parts._replace(netloc=host).geturl(), timeout
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{self.url!r} is not a URL like http://HOST:PORT")
        self._connection_type = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._prefix = parts.hostname, parts.port, parts.path.rstrip("/")
        self._authorization = {}
        if at:
            secret = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
            self._authorization = {"Authorization": f"Basic {secret}"}
        self._local = threading.local()
        self._share, self._prefer = None, {}
        if share:
            self._share, self._prefer = self._find_directory(), {"Prefer": "share"}

    def __getstate__(self):
        return {**vars(self), "_local": None}

    def __setstate__(self, state):
        vars(self).update(state, _local=threading.local())

    # --- operations -------------------------------------------------------------------------------------------

    def run(self, op, params=None, *, timeout=3600.0, progress=False, priority=None, deadline_ms=None, device=None,
            idempotency_key=None, **inputs):
        """Runs one job and returns its Result.

        inputs: arrays by name: what np.asarray makes an array of numbers of; TypeError says why it is not. params: dict.
        timeout: seconds; the job is cancelled when they are over. progress: True shows a tqdm bar. Raises Error.
        """
        end = time.monotonic() + timeout
        inputs = inputs_of(inputs)
        with _bar(progress, op) as show:
            while True:
                try:
                    wait = max(0.001, min(end - time.monotonic(), 0.5 if show else _LONGEST_WAIT))
                    answer = self._submit(op, inputs, params, wait, priority, deadline_ms, device, idempotency_key)
                    break
                except Error as error:
                    # a full queue says when to come back; anything else is for the caller
                    pause = error.retry_after
                    if pause is None or time.monotonic() + pause >= end:
                        raise
                    time.sleep(pause)
            if isinstance(answer, Result):
                return answer
            try:
                if not answer.wait(max(0.0, end - time.monotonic()), show):
                    raise Error("timeout", f"the job did not end within {timeout} s and was cancelled", retry=True,
                                job=answer.document)
            except BaseException:
                _quietly(answer.cancel)
                raise
            return answer.result()

    def submit(self, op, params=None, *, priority=None, deadline_ms=None, device=None, idempotency_key=None, **inputs):
        """Queues a job and returns it as a Job at once. See run for the arguments."""
        return self._submit(op, inputs_of(inputs), params, 0, priority, deadline_ms, device, idempotency_key)

    def matmul(self, a, b, c=None, **params):
        """The matrix product a @ b, or alpha * a @ b + beta * c. Returns an array. Parameters: see ops()."""
        return self.run("matmul", params, **_given(a=a, b=b, c=c))["c"]

    def solve(self, a, b, **params):
        """x with a @ x = b, for one system or a stack of them. Returns an array."""
        return self.run("solve", params, a=a, b=b)["x"]

    def distance(self, x, y=None, *, w=None, V=None, VI=None, **params):
        """Distances between the rows of x, or from the rows of x to those of y. Returns an array, or the Result
        where the output asked for has an index beside the distances (argmin, topk, within)."""
        result = self.run("distance", params, **_given(x=x, y=y, w=w, V=V, VI=VI))
        return result if "index" in result else result["d"]

    def regression(self, x, y, sample_weight=None, **params):
        """Fits y = x @ coef + intercept. Returns the Result: coef, intercept and the statistics."""
        return self.run("regression", params, **_given(x=x, y=y, sample_weight=sample_weight))

    # --- jobs and service -------------------------------------------------------------------------------------

    def shared(self, **specs):
        """New arrays in memory that is shared with the service, as a dict by name; their values are zeros.

        specs: shape and dtype by name, such as a=((1000, 500), "float32"). Given as inputs, all of them under these
        names, they are not copied. Needs share=True.
        """
        if self._share is None:
            raise ValueError("make the client with share=True")
        kinds = {name: (np.dtype(dtype), tuple(shape)) for name, (shape, dtype) in specs.items()}
        return self._share.shared(kinds)

    def job(self, job_id):
        """The Job with this id."""
        return Job(self, self._json("GET", f"/jobs/{job_id}"))

    def jobs(self, state=None, limit=100, op=None, since=None, before=None):
        """A list of up to `limit` Jobs, all where that is None: those that have not ended first, then the newest.
        `since` and `before` are times, as `created_at` in job documents or in seconds since 1970."""
        listed, cursor = [], None
        while limit is None or len(listed) < limit:
            query = {"state": state, "op": op, "since": since, "before": before, "cursor": cursor,
                     "limit": None if limit is None else min(limit - len(listed), 100)}
            query = urllib.parse.urlencode({k: v for k, v in query.items() if v is not None})
            page = self._json("GET", f"/jobs?{query}")
            listed += [Job(self, document) for document in page["jobs"]]
            cursor = page.get("cursor")
            if cursor is None:
                break
        return listed

    def forget(self, job_id):
        """Forgets a job that has ended, with its tensors; cancels it where it has not. Mapped results stay readable;
        where the arrays are gone already, the next result takes their memory."""
        self._json("DELETE", f"/jobs/{job_id}?forget=1")

    def ops(self):
        """What can be asked: a list of operations with their inputs, parameters and outputs."""
        return self._json("GET", "/ops")["ops"]

    def devices(self):
        """The workers that are alive and their devices."""
        return self._json("GET", "/devices")["devices"]

    def ready(self):
        """Whether the service accepts and runs jobs."""
        try:
            self._json("GET", "/health/ready")
            return True
        except Error:
            return False

    # --- HTTP -------------------------------------------------------------------------------------------------

    def _submit(self, op, inputs, params, wait, priority, deadline_ms, device, idempotency_key, by_file=True):
        """Returns a Result where the job has succeeded within the wait, else a Job."""
        metadata = {"op": op}
        for name, value in (("priority", priority), ("deadline_ms", deadline_ms), ("device", device)):
            if value is not None:
                metadata[name] = str(value)
        if params:
            metadata["params"] = json.dumps({name: _plain(value) for name, value in params.items()})
        query = {"wait": f"{wait:.3f}"} if wait > 0 else {}
        headers = {"Content-Type": _BINARY} if idempotency_key is None else {
            "Content-Type": _BINARY, "Idempotency-Key": idempotency_key}
        file = self._file_of(inputs) if by_file else None
        if file is None:
            pieces = safetensors.pack(inputs, metadata)
            headers["Accept"] = f"{_BINARY}, application/json;q=0.5"
        else:  # the file has tensors alone, for it may serve again
            pieces, query = (), {**metadata, **query}
            headers |= {"Accept": "application/json", "Body-File": file.name, **self._prefer}
        headers["Content-Length"] = str(sum(len(piece) for piece in pieces))
        path = "/jobs?" + urllib.parse.urlencode(query) if query else "/jobs"
        try:
            status, answer_headers, body = self._request("POST", path, pieces, headers, wait)
        except Error as error:
            if file is None or error.code not in ("sharing_off", "body_file_refused"):
                raise
            if file.temporary:
                self._share, self._prefer = None, {}
            return self._submit(op, inputs, params, wait, priority, deadline_ms, device, idempotency_key, False)
        finally:
            if file is not None and file.temporary:
                file.close()
        if answer_headers.get("Content-Type", "").startswith(_BINARY):
            return _result(body)
        job = Job(self, json.loads(bytes(body)))
        if file is not None and job.state == "succeeded" and wait > 0:
            return self._outputs(job.document)
        if wait > 0 and job.ended and job.state != "succeeded":
            job.result()  # raises what the job failed with
        return job

    def _file_of(self, inputs):
        """The file that the inputs lie in, or were copied into; None: they are sent."""
        try:
            share = self._share
            return None if share is None else share.file_of(inputs)
        except OSError:  # the store is full, or is there no more
            return None

    def _outputs(self, document):
        """The Result of a job that has succeeded: mapped where it can be, else fetched."""
        share = self._share
        arrays = None if share is None else share.map_outputs(document)
        if arrays is not None:
            return Result(arrays, document)
        return _result(self._request("GET", f"/jobs/{document['id']}/result", headers={"Accept": _BINARY})[2])

    def _find_directory(self):
        from . import shared  # needs what only Unix has
        path = self._json("GET", "/share")["directory"]
        # with the mark of a blob store in it: the service's word alone would let it choose any directory of ours
        mark = os.path.join(path, ".store")
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK) or os.path.islink(mark) or not os.path.isfile(mark):
            raise Error("sharing_off", f"the service's directory {path} cannot be used from here: it is another "
                                       "machine's, or another user's")
        return shared.Directory(path)

    def _json(self, method, path, timeout=0.0):
        headers = {"Accept": "application/json", **self._prefer}
        return json.loads(bytes(self._request(method, path, headers=headers, wait=timeout)[2]))

    def _connect(self):
        """This thread's connection. One that a fork brought along is the parent's; one that has something to say
        before it was asked has been closed by the service: neither is used."""
        mine = self._local
        if getattr(mine, "pid", None) != os.getpid():
            self._drop()
            mine.connection = self._connection_type(self._host, self._port, timeout=self.timeout, blocksize=1 << 20)
            mine.pid = os.getpid()
        if mine.connection.sock is not None and _readable(mine.connection.sock):
            mine.connection.close()
        return mine.connection

    def _request(self, method, path, pieces=(), headers=None, wait=0.0):
        """One request. Returns (status, headers, body) of a good answer; raises Error otherwise.

        Where a kept connection breaks before an answer has come, the service may have taken what was sent: only what
        does no harm a second time is sent again, once, over a new one.
        """
        again = method != "POST" or "Idempotency-Key" in headers
        while True:
            connection = self._connect()
            again = again and connection.sock is not None
            try:
                self._send(connection, method, path, pieces, headers, wait)
                response = connection.getresponse()
                again = False
                body = _read(response)
                break
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                broken = isinstance(error, (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError))
                if not (again and broken):
                    raise self._lost(method, error) from error
                again = False
            except BaseException:  # an interrupted exchange leaves the connection in no state to be used again
                self._drop()
                raise
        if response.status in (200, 202):
            return response.status, response.headers, body
        raise _problem(response, body)

    def _lost(self, method, error):
        taken = method == "POST" and not isinstance(error, ConnectionRefusedError)
        return Error("connection_failed", f"{self.url}: {error}", retry=True,
                     advice="The service may have taken the job: under an idempotency_key it is safe to send it again"
                     if taken else "")

    def _send(self, connection, method, path, pieces, headers, wait):
        if connection.sock is None:
            connection.connect()
        connection.sock.settimeout(self.timeout + wait)
        connection.putrequest(method, self._prefix + path, skip_accept_encoding=True)
        for name, value in {**self._authorization, **(headers or {})}.items():
            connection.putheader(name, value)
        small = b"".join(pieces) if sum(len(p) for p in pieces) < 65536 else b""
        connection.endheaders(small or None)
        if not small:
            for piece in pieces:
                connection.sock.sendall(piece)

    def _drop(self):
        """Closes this process' end of the connection."""
        if hasattr(self._local, "connection"):
            self._local.connection.close()


def _readable(sock):
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()  # takes descriptors above 1023 too
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _read(response):
    """The body, in memory of its own that may be written to: arrays are views of it."""
    if response.length is None:
        return bytearray(response.read())
    body = memoryview(np.empty(response.length, np.uint8))
    at = 0
    while at < len(body):
        count = response.readinto(body[at:])
        if count == 0:
            raise http.client.IncompleteRead(bytes(body[:at]), len(body) - at)
        at += count
    response.close()
    return body


def _problem(response, body):
    after = response.headers.get("Retry-After", "")
    retry_after = float(after) if after.isdigit() else None
    try:
        problem = json.loads(bytes(body))
        problem.setdefault("status", response.status)
    except ValueError:
        problem = {"code": "bad_answer", "status": response.status, "detail": bytes(body[:200]).decode("utf-8", "replace")}
    return Error._from_problem(problem, retry_after)


def _given(**inputs):
    """The inputs that are not left out."""
    return {name: value for name, value in inputs.items() if value is not None}


def _plain(value):
    """A parameter as JSON can say it: plain Python numbers, and words for what is no number in JSON."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def _quietly(function):
    try:
        function()
    except Error:
        pass


class _bar:
    """A tqdm bar where one is wanted and tqdm is there; as a context it gives a progress function or None."""

    def __init__(self, wanted, label):
        self.bar = None
        if wanted:
            try:
                import tqdm
                self.bar = tqdm.tqdm(total=1.0, desc=label, bar_format="{desc}: {percentage:3.0f}% |{bar}| {elapsed}")
            except ImportError:
                pass

    def __enter__(self):
        return self._show if self.bar is not None else None

    def _show(self, state, progress):
        self.bar.n = progress
        self.bar.refresh()

    def __exit__(self, *_):
        if self.bar is not None:
            self.bar.close()
