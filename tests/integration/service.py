"""The real service, as a test sees it: processes, HTTP with every answer held to api/openapi.yaml, and data.

A Service starts `blasd up` on a free loopback port with a directory of its own and stops it again; on failure its
log is shown. Requests go through `Service.request`, which fails where the answer is not what the API text says.
"""
import collections
import contextlib
import http.client
import json
import os
import pathlib
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.parse

import jsonschema
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BLASD = pathlib.Path(os.environ.get("BLASD", ROOT / "build" / "blasd"))
sys.path.insert(0, str(ROOT / "clients" / "python"))

# --- the program ---------------------------------------------------------------------------------------------------

SOURCES = ("src/**/*.c", "src/**/*.cc", "src/**/*.lua", "src/**/*.h", "src/http/console/*", "kernels/*/*.c", "kernels/*/*.h", "clients/c/*.c",
           "clients/c/*.h", "clients/cli/*", "api/openapi.json", "api/docs.html", "api/style.css")


def newer_source(program, root=ROOT):
    """A source of the program that was changed after it was built; None where there is none. A header counts where an object was made of it."""
    built = program.stat().st_mtime
    changed = [path.relative_to(root) for form in SOURCES for path in root.glob(form) if path.is_file() and path.stat().st_mtime > built]
    headers = any(path.suffix == ".h" for path in changed) and {word for rules in (program.parent / "obj").glob("[!t]*/**/*.d")
                                                                for word in rules.read_text().split()}
    for path in changed:
        if path.parts[:2] != ("kernels", "cuda") and (path.suffix != ".h" or str(path) in headers):
            return path
    return None


# --- the API text -------------------------------------------------------------------------------------------------


def _as_json_schema(node):
    """OpenAPI 3.0's `nullable` and `exclusiveMinimum` in JSON Schema's words."""
    if isinstance(node, list):
        return [_as_json_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    out = {key: _as_json_schema(value) for key, value in node.items() if key != "nullable"}
    if node.get("nullable") and "type" in out:
        out["type"] = [out["type"], "null"]
    if out.get("exclusiveMinimum") is True:
        out["exclusiveMinimum"] = out.pop("minimum")
    return out


class ApiText:
    """The text of the API, with no member open: finds what it says of a request and checks an answer against it."""

    def __init__(self):
        sys.path.insert(0, str(ROOT / "api"))
        import generate
        self.document = generate.whole(strict=True)
        self.schema = _as_json_schema(self.document)
        self.errors = json.loads((ROOT / "api" / "errors.json").read_text())
        self.seen = collections.Counter()  # (path template, method, status)
        self.validators = {}

    def template_of(self, path):
        if path in self.document["paths"]:
            return path
        for template in self.document["paths"]:
            if re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", template), path):
                return template
        return None

    def resolve(self, node):
        while "$ref" in node:
            target = self.document
            for part in node["$ref"][2:].split("/"):
                target = target[part]
            node = target
        return node

    def parameter(self, path, name, method="get"):
        """The schema of a parameter of the query."""
        return next(one["schema"] for one in map(self.resolve, self.document["paths"][path][method]["parameters"])
                    if one["name"] == name)

    def validate(self, schema, value):
        key = json.dumps(schema, sort_keys=True)
        if key not in self.validators:
            resolver = jsonschema.RefResolver.from_schema(self.schema)
            self.validators[key] = jsonschema.Draft7Validator(_as_json_schema(schema), resolver=resolver)
        self.validators[key].validate(value)

    def check(self, method, path, answer):
        template = self.template_of(path)
        if method == "HEAD":
            method = "GET"
        operation = self.document["paths"].get(template, {}).get(method.lower())
        if operation is None:  # not in the text, so the server must know nothing of it
            assert answer.status in (400, 401, 403, 404, 405, 413, 414, 431, 501), (method, path, answer.status)
            return
        self.seen[template, method.lower(), answer.status] += 1
        described = operation["responses"].get(str(answer.status))
        assert described is not None, f"{method} {path}: {answer.status} is not in openapi.yaml: {answer.body[:500]}"
        described = self.resolve(described)
        for name in described.get("headers", {}):
            if name != "Preference-Applied":
                assert answer.headers.get(name) is not None, f"{method} {path}: no header {name}"
        kind = (answer.headers.get("Content-Type") or "").split(";")[0]
        assert kind in described["content"], f"{method} {path}: {answer.status} {kind} is not in openapi.yaml"
        if kind.endswith("json") and answer.body:
            self.validate(described["content"][kind]["schema"], answer.json())
        if kind == "application/problem+json" and answer.body:
            problem = answer.json()
            entry = self.errors[problem["code"]]
            assert (problem["status"], problem["retry"]) == (answer.status, entry["retry"])


API = ApiText()

# --- requests -----------------------------------------------------------------------------------------------------


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def safetensors(self):
        """(arrays, job document)"""
        length = struct.unpack_from("<Q", self.body)[0]
        header = json.loads(self.body[8:8 + length])
        job = json.loads(header.pop("__metadata__")["job"])
        data, arrays = self.body[8 + length:], {}
        codes = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "BOOL": "?",
                 "C128": "<c16", "C64": "<c8"}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            arrays[name] = np.frombuffer(data[begin:end], codes[entry["dtype"]]).reshape(entry["shape"])
        assert sum(a.nbytes for a in arrays.values()) == len(data)
        return arrays, job

    def npy(self):
        import io
        return np.load(io.BytesIO(self.body), allow_pickle=False)


CODES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16",
         "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
         "complex128": "C128", "complex64": "C64"}


def safetensors(arrays, **metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, array in arrays.items():
        array = np.asarray(array)
        header[name] = {"dtype": CODES[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def npy(array):
    import io
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


BOUNDARY = "a-boundary-that-does-not-occur"


def multipart(parts):
    """A form: bytes are files, text is text."""
    out = b""
    for name, value in parts.items():
        out += f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"".encode()
        if isinstance(value, bytes):
            out += f"; filename=\"{name}.npy\"\r\nContent-Type: application/octet-stream".encode()
        else:
            value = value.encode()
        out += b"\r\n\r\n" + value + b"\r\n"
    return out + f"--{BOUNDARY}--\r\n".encode()


TYPES = {"json": "application/json", "safetensors": "application/x-safetensors",
         "multipart": f"multipart/form-data; boundary={BOUNDARY}", "npy": "application/x-npy"}


def nested(array):
    """An array as the JSON the API takes."""
    array = np.asarray(array)
    if array.dtype.kind != "f":
        return array.tolist()

    def one(value):
        if isinstance(value, list):
            return [one(item) for item in value]
        return value if np.isfinite(value) else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
    return one(array.tolist())


# --- processes ----------------------------------------------------------------------------------------------------


def children(pid):
    """Pids of the live children of a process."""
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(p) for p in text.split()]


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Service:
    def __init__(self, folder, *options, env=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.options, self.env = options, env
        self.process, self.url, self.port = None, None, None
        self.program = [BLASD]  # and what may stand before it, such as another user
        self.headers, self.tls = {}, None  # of every request; an ssl.SSLContext

    def start(self, listen="127.0.0.1:0", timeout=60):
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [*self.program, "up", "--listen", listen, "--data", self.folder / "data", *self.options],
            stdout=subprocess.PIPE, stderr=self.log, stdin=subprocess.DEVNULL,
            env={**os.environ, **(self.env or {})})
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        line = self.process.stdout.readline().decode() if ready else ""
        match = re.fullmatch(r"ready (https?://[^:]+:(\d+))\n", line)
        if not match:
            self.stop(check=False)
            raise AssertionError(f"no ready line but {line!r}; log:\n{self.log_text()}")
        self.url, self.port = match.group(1), int(match.group(2))
        return self

    def stop(self, check=True, signum=signal.SIGTERM, timeout=60):
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signum)
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
            check = True
        rest = self.process.stdout.read()
        self.process.stdout.close()
        self.log.close()
        self.process = None
        if check:
            assert status == 0, f"exit status {status}; log:\n{self.log_text()}"
            assert rest == b"", f"more than the ready line on standard output: {rest!r}"
        return status

    def log_text(self):
        return (self.folder / "log").read_text(errors="replace")[-8000:]

    def part(self, name):
        """The pid of a part: redis, api, worker, notify."""
        pattern = {"redis": "redis-server", "api": "blasd api", "worker": "blasd worker", "notify": "blasd notify"}[name]
        for pid in children(self.process.pid):
            if command_line(pid).startswith(pattern):
                return pid
        return None

    def kill(self, name, signum=signal.SIGKILL):
        pid = self.part(name)
        assert pid is not None, f"no {name} among {[command_line(p) for p in children(self.process.pid)]}"
        os.kill(pid, signum)
        return pid

    @contextlib.contextmanager
    def held(self, name):
        """Meanwhile that part does nothing; to be shorter than silence_s, and of a worker than a lease."""
        pid = self.kill(name, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):  # on a slow machine it was replaced
                os.kill(pid, signal.SIGCONT)

    def worker_held(self):
        """Meanwhile jobs stay queued."""
        return self.held("worker")

    def wait_ready(self, timeout=30):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            try:
                if self.request("GET", "/health/ready", timeout=5).status == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.05)
        raise AssertionError(f"not ready after {timeout} s; log:\n{self.log_text()}")

    def request(self, method, path, body=None, headers=None, timeout=60, check=True):
        connection = (http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.tls)
                      if self.tls else http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout))
        try:
            connection.request(method, path, body, {**self.headers, **(headers or {})})
            response = connection.getresponse()
            answer = Answer(response.status, response.headers, response.read())
        finally:
            connection.close()
        if check:
            API.check(method, urllib.parse.urlsplit(path).path, answer)
        return answer

    def list_jobs(self, query="", limit=100):
        """The jobs of all pages of GET /jobs."""
        jobs, cursor = [], ""
        while True:
            page = self.request("GET", f"/jobs?limit={limit}{query and '&' + query}{cursor}").json()
            assert len(page["jobs"]) <= limit
            jobs += page["jobs"]
            if "cursor" not in page:
                return jobs
            cursor = f"&cursor={page['cursor']}"

    def metrics(self):
        """What GET /metrics says: {row with its labels: value}."""
        rows = [line.rsplit(" ", 1) for line in self.request("GET", "/metrics").body.decode().splitlines()
                if not line.startswith("#")]
        return {row: float(value) for row, value in rows}

    def post(self, op, inputs, params=None, wait=30, form="json", accept=None, query="", **members):
        """Submits a job in one of the three forms; inputs are arrays."""
        headers = {"Content-Type": TYPES[form]}
        if accept:
            headers["Accept"] = TYPES[accept]
        if form == "json":
            tensors = {}
            for name, value in inputs.items():
                array = np.asarray(value)
                tensors[name] = nested(array) if array.dtype == np.float64 else {
                    "dtype": array.dtype.name, "shape": list(array.shape), "data": nested(array)}
            body = {"op": op, "inputs": tensors, **members}
            if params is not None:
                body["params"] = params
            body = json.dumps(body)
        else:
            texts = {"op": op, **{k: str(v) for k, v in members.items()}}
            if params is not None:
                texts["params"] = json.dumps(params)
            if form == "safetensors":
                body = safetensors({k: np.asarray(v) for k, v in inputs.items()}, **texts)
            else:
                body = multipart({**texts, **{k: npy(np.asarray(v)) for k, v in inputs.items()}})
        path = "/jobs" + (f"?wait={wait}" if wait else "") + query
        return self.request("POST", path, body, headers, timeout=60 + wait)

    def run(self, op, inputs, params=None, **more):
        """Runs a job that must succeed; returns (arrays, job document)."""
        answer = self.post(op, inputs, params, accept="safetensors", **{"wait": 120, **more})
        if answer.status == 202:  # a machine that has much else to do
            name = answer.json()["id"]
            wait_for(lambda: self.request("GET", f"/jobs/{name}?wait=30", timeout=90).json()["state"] in ENDED, name, seconds=600)
            answer = self.request("GET", f"/jobs/{name}/result", headers={"Accept": TYPES["safetensors"]})
        assert answer.status == 200 and answer.headers["Content-Type"] == TYPES["safetensors"], answer.body[:2000]
        return answer.safetensors()


def wait_for(what, why="", seconds=120):
    """What it gives, once that is something."""
    end = time.monotonic() + seconds
    while not (got := what()):
        assert time.monotonic() < end, f"not within {seconds} s: {why or what}"
        time.sleep(0.05)
    return got


ENDED = ("succeeded", "failed", "cancelled", "expired")

# A job that no processor is done with within a minute, nor predicted to need job_s for: op, inputs, parameters.
LONG = ("regression", {"x": np.random.default_rng(7).standard_normal((50, 9)), "y": np.arange(50.0)},
        {"method": "gd", "iterations": 5 * 10 ** 8, "learning_rate": 1e-9})


def until(service, job_id, states, seconds=240):
    """The job, once it is in one of the states; it may not end in another."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        job = service.request("GET", f"/jobs/{job_id}").json()
        if job["state"] in states:
            return job
        assert job["state"] not in ENDED, job
        time.sleep(0.02)
    raise AssertionError(f"{job_id} is not {states} but {job['state']}")


class Redis:
    """A hand in the service's own Redis: just enough of the protocol to send bytes as they are."""

    def __init__(self, service, user="blasd-up"):
        """`user`: of the private Redis, `blasd-up`, who may do anything, `default`, as its parts, or `blasd-worker`; "": none."""
        path = next((service.folder / "data").glob("*.sock"))
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(path))
        self.file = self.sock.makefile("rb")
        config = service.folder / "data" / "redis.conf"
        if user and config.exists():
            self("AUTH", user, re.search(rf"^user {user} on >(\S+)", config.read_text(), re.MULTILINE)[1])

    def __call__(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.sock.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        kind, value = line[:1], line[1:-2]
        if kind in b"+-:":
            assert kind != b"-", value
            return value if kind == b"+" else int(value)
        if int(value) < 0:
            return None
        if kind == b"$":
            return self.file.read(int(value) + 2)[:-2]
        return [self.reply() for _ in range(int(value))]

    def close(self):
        self.file.close()
        self.sock.close()


def folder_of(service):
    """Where a service that was started with --share takes files."""
    return pathlib.Path(service.request("GET", "/share").json()["directory"])
