"""The commands that speak to a running service: what they print for people and for programs, how they end, and `blasd top`."""
import contextlib
import fcntl
import hashlib
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

import numpy as np
import pytest
from pretender import DOCUMENT, Pretender, document, raw, succeeded
from service import BLASD, children, safetensors

NEVER = "s" + "0" * 40
NOWHERE = "http://127.0.0.1:9"


def run(url, *arguments, status=0):
    done = subprocess.run([BLASD, arguments[0], "--url", url, *map(str, arguments[1:])], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == status, done
    return done


@pytest.mark.first
def test_a_job_from_its_submission_to_its_result(service, files, tmp_path):
    job = run(service.url, "submit", "matmul", *files).stdout.strip()
    assert re.fullmatch("[sa][0-9a-f]{40}", job)
    said = run(service.url, "get", job, "--wait", 30).stdout
    assert said.startswith(f"{job}  matmul  succeeded") and "c: float64 (2, 2)" in said and "compute" in said
    assert json.loads(run(service.url, "get", job, "--json").stdout)["id"] == job
    done = run(service.url, "result", job)
    assert done.stdout == "c: float64 (2, 2)\n  8.25 11\n  16.5 22\n" and "compute" in done.stderr
    done = run(service.url, "result", job, "-q", "-o", f"c={tmp_path}/c.npy")
    assert done.stdout == done.stderr == "" and np.load(tmp_path / "c.npy")[1, 1] == 22
    assert run(service.url, "cancel", job, status=1).stderr.count("\n") == 1
    assert "succeeded" in run(service.url, "cancel", "--forget", job).stdout
    assert run(service.url, "get", job, status=1).stdout == ""


def test_every_operation_by_its_names(service, tmp_path):
    """Of the C client and the shell nothing is to be changed for an operation that comes: GET /ops names what it takes."""
    a = np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])  # symmetric and positive definite: good for all
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "v.npy", a[0])
    for op in service.request("GET", "/ops").json()["ops"]:
        inputs = [port for port in op["inputs"] if not port.get("optional") or port["name"] == "a"]  # solve: or a factor
        files = [f"{port['name']}={tmp_path}/{'v' if port.get('max_rank') == 1 else 'a'}.npy" for port in inputs]
        job = json.loads(run(service.url, "run", op["name"], *files, "--json", "-q").stdout)
        shown = run(service.url, "result", job["id"], "-q").stdout
        assert job["outputs"] and all(f"{name}: " in shown for name in job["outputs"]), op["name"]


# --- what stays at the service -----------------------------------------------------------------------------------------


def test_tensors_from_their_coming_to_their_going(service, tmp_path):
    a, b = np.arange(6.0).reshape(2, 3), np.arange(4, dtype="int16")
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    ids = run(service.url, "tensors", "put", tmp_path / "a.npy", tmp_path / "b.npy").stdout.split()
    assert len(ids) == 2 and all(re.fullmatch("t[0-9a-f]{40}", one) for one in ids)
    assert run(service.url, "tensors", "get", ids[0]).stdout == f"{ids[0]}: float64 (2, 3)\n  0 1 2\n  3 4 5\n"
    assert run(service.url, "tensors", "get", ids[1], "-o", tmp_path / "c.npy").stdout == ""
    assert np.array_equal(np.load(tmp_path / "c.npy"), b)
    listed = run(service.url, "tensors", "list").stdout.splitlines()
    rows = {row.split()[0]: row.split()[1:] for row in listed[1:]}  # of one second in no order
    assert listed[0].startswith("ID ") and [rows[one][:2] + rows[one][-1:] for one in ids] == \
        [["float64", "48", "2x3"], ["int16", "8", "4"]]
    [kept] = json.loads(run(service.url, "tensors", "put", "--life", 77, "--sha256", "--json", tmp_path / "a.npy").stdout)["tensors"]
    assert kept["life_s"] == 77 and kept["sha256"] == hashlib.sha256(a.tobytes()).hexdigest() and kept["shape"] == [2, 3]
    assert kept["sha256"] in run(service.url, "tensors", "list").stdout
    assert len(json.loads(run(service.url, "tensors", "list", "-n", 2, "--json").stdout)["tensors"]) == 2
    done = run(service.url, "tensors", "rm", ids[0], "t" + "0" * 40, kept["id"], "--json", status=1)
    gone = json.loads(done.stdout)["tensors"]
    assert [one.get("error", {}).get("code") for one in gone] == [None, "tensor_not_found", None] and done.stderr.count("\n") == 1
    assert "not kept any more" in run(service.url, "tensors", "get", kept["id"], status=1).stderr
    run(service.url, "tensors", "rm", ids[1])


def test_tensors_that_are_kept_are_told_though_one_is_not(files, tmp_path):
    """Or nobody could use or forget them. A file that is not there is found before any is sent."""
    def answer(request, number):
        if number % 2:
            return document({"code": "tenant_full", "detail": "no room", "retry": False}, 422)
        return document({"tensors": {"tensor": {"id": "t1", "dtype": "float64", "shape": [2, 2], "bytes": 32}}}, 201)
    paths = [one.split("=")[1] for one in files]
    with Pretender(answer) as pretender:
        assert run(pretender.url, "tensors", "put", *paths, status=1).stdout == "t1\n"
        told = json.loads(run(pretender.url, "tensors", "put", *paths, "--json", status=1).stdout)
        assert [one["id"] for one in told["tensors"]] == ["t1"] and told["error"]["code"] == "tenant_full"
        assert len(pretender.seen) == 4
        assert run(pretender.url, "tensors", "put", paths[0], tmp_path / "none.npy", status=2).stdout == ""
        assert len(pretender.seen) == 4


def test_inputs_that_are_no_files(service, files, tmp_path):
    """A tensor, a part of it, an output of a job that was kept, and rules."""
    a = np.array([[1.5, 2], [3, 4]])
    [tensor] = run(service.url, "tensors", "put", tmp_path / "a.npy").stdout.split()

    def product(*inputs, name="c"):
        run(service.url, "run", "matmul", *inputs, "-q", "-o", f"{name}={tmp_path}/out.npy")
        return np.load(tmp_path / "out.npy")
    assert np.array_equal(product(f"a=tensor:{tensor}", files[1]), a @ a)
    assert np.array_equal(product(f"a=tensor:{tensor}[1:,:]", "b=eye:2"), a[1:])
    assert np.array_equal(product("a=full:2x3:1.5", "b=full:3x1:2@float32"), np.full((2, 1), 9.0))
    assert np.array_equal(product("a=arange:0:3:1", "b=linspace:0:1:3"), 2.5)
    assert product("a=random:normal:2x3:7", "b=random:uniform:3x2:8@float32").shape == (2, 2)
    done = run(service.url, "run", "matmul", f"a=tensor:{tensor}", f"b=tensor:{tensor}", "--keep", "c", "-q")
    kept = re.fullmatch(r"  c: float64 \(2, 2\), kept as (tensor:t[0-9a-f]{40})\n", done.stdout).group(1)
    job = run(service.url, "submit", "matmul", f"a={kept}", "b=eye:2", "-k", "c").stdout.strip()
    assert "kept as tensor:t" in run(service.url, "get", job, "--wait", 30).stdout
    assert np.array_equal(product(f"a=job:{job}/c[0:1,:]", "b=eye:2"), (a @ a)[:1])


@pytest.mark.parametrize("wrong", ["job:s1", "tensor:t1[0:1", "tensor:t1[0]", "tensor:t1[a:b]", "tensor:t1[]", "eye:x", "eye:", "eye:1:2",
                                   "full:2x:1", "full:2:x", "full:2", "arange:0:1", "random:normal:2x2", "linspace:0:1:2:3"])
def test_inputs_written_wrongly(wrong):
    """Are told so before anything is sent."""
    done = run(NOWHERE, "run", "matmul", f"a={wrong}", "b=eye:2", status=2)
    assert wrong in done.stderr and "is not an input" in done.stderr


@pytest.mark.parametrize("words", """get|get a b|result|cancel|jobs x|jobs -n few|jobs -n 0.5|run matmul --deadline-ms 0.5|get no/id|
    jobs --retries 1000000000000|top x|get x --wait soon|submit|submit matmul|submit -o x|top --nonsense|devices x|tensors put|tensors get|
    tensors rm|tensors list x|tensors get a b|tensors push a.npy|tensors|tensors put nowhere.npy|tensors put --life 0 a.npy""".split("|"))
def test_the_command_line_is_wrong(words):
    done = run(NOWHERE, *words.split(), status=2)
    assert done.stdout == "" and done.stderr


def test_what_a_job_would_do(service, files):
    said = run(service.url, "run", "matmul", *files, "--dry-run").stdout
    assert said.startswith("on cpu: ") and "c: float64 (2, 2)" in said and "predicted: " in said
    document = json.loads(run(service.url, "run", "matmul", "a=eye:3000", "b=eye:3000", "-n", "--json").stdout)
    assert document["outputs"]["c"]["shape"] == [3000, 3000] and "predicted" in document
    assert "shape" in run(service.url, "run", "matmul", "a=eye:3", "b=eye:4", "-n", status=1).stderr


def test_a_job_that_fails(service, files, tmp_path):
    np.save(tmp_path / "zero.npy", np.zeros((2, 2)))
    job = run(service.url, "submit", "solve", f"a={tmp_path}/zero.npy", files[1]).stdout.strip()
    assert "Singular matrix" in run(service.url, "get", job, "-w", 30, status=1).stdout
    done = run(service.url, "result", job, "--json", status=1)
    assert json.loads(done.stdout)["error"]["code"] == "singular_matrix" and "Singular matrix" in done.stderr


def test_a_job_that_has_not_ended(make_service, files):
    service = make_service()
    with service.worker_held():
        jobs = [run(service.url, "submit", "matmul", *files, "-p", priority).stdout.strip() for priority in ("high", "low")]
        assert "queued" in run(service.url, "get", jobs[0], status=3).stdout
        assert run(service.url, "result", jobs[0], "-w", "0.1", status=3).stderr == "blasd result: the job is queued\n"
        listed = run(service.url, "jobs", "--state", "queued").stdout.splitlines()
        assert listed[0].startswith("ID ") and {line.split()[0] for line in listed[1:]} == set(jobs)
        assert run(service.url, "jobs", "--state", "succeeded").stdout.count("\n") == 1
        devices = run(service.url, "devices").stdout
        assert "2 jobs" in devices and "cpu:0" in devices and " high " in devices and " low " in devices
        done = run(service.url, "cancel", jobs[0], NEVER, jobs[1], "--json", status=1)
        ended = json.loads(done.stdout)["jobs"]
        assert [job.get("state") for job in ended] == ["cancelled", None, "cancelled"] and ended[1]["id"] == NEVER
        assert ended[1]["error"]["code"] == "job_not_found" and done.stderr.count("\n") == 1
    assert json.loads(run(service.url, "get", jobs[0], "--json", status=1).stdout)["state"] == "cancelled"


def test_a_wait_that_is_answered_early_goes_on():
    """As a front end that shuts down answers those who wait."""
    def answer(request, number):
        return document({**DOCUMENT, "state": "running" if number < 8 else "succeeded"}, 202 if number < 8 else 200)
    with Pretender(answer) as pretender:
        run(pretender.url, "get", "x", "--wait", 90)
        assert len(pretender.seen) == 9


@pytest.mark.parametrize("key", [[], ["--idempotency-key", "k"]])
def test_a_signal_is_heard_while_a_service_says_nothing(files, key):
    """The connection ends, and with it the job; under a key it is asked for and cancelled."""
    def answer(request, number):
        if number == 0:
            asked.set()
            over.wait(60)
        return document({**DOCUMENT, "state": "queued" if request[0] == "POST" else "cancelled"}, 202 if request[0] == "POST" else 200)
    asked, over = threading.Event(), threading.Event()
    with Pretender(answer) as pretender:
        process = subprocess.Popen([BLASD, "run", "--url", pretender.url, "matmul", *files, *key], stderr=subprocess.PIPE, text=True)
        assert asked.wait(30)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=40)[1]  # of itself it would be 60 and more
        over.set()
    assert process.returncode == 128 + signal.SIGTERM and said == "blasd run: the job was cancelled\n"
    assert [method for method, *_ in pretender.seen] == (["POST", "POST", "DELETE"] if key else ["POST"])


def test_what_is_not_http_is_not_blamed_on_the_url():
    def serve(connection):
        connection.recv(65536)
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    with raw(serve) as url:
        said = run(url, "jobs", "--json", status=4)
    assert json.loads(said.stdout)["error"]["code"] == "connection_failed" and "is not a URL" not in said.stderr


def test_what_cannot_be_printed_is_no_success(service, files):
    job = run(service.url, "submit", "matmul", *files).stdout.strip()
    run(service.url, "get", job, "-w", 30)
    for arguments in (["get", job], ["result", job, "-q"], ["jobs"], ["top"], ["devices"], ["run", "matmul", *files, "-q"],
                      ["submit", "matmul", *files], ["cancel", "--forget", job]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([BLASD, arguments[0], "--url", service.url, *arguments[1:]], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=60)
        assert done.returncode == 1 and "No space left" in done.stderr, done


def test_retries(files):
    with Pretender(lambda request, number: None if number < 2 else succeeded()) as pretender:
        assert run(pretender.url, "run", "matmul", *files, "-q", "--retries", 5).stdout.split()[-1] == "4"
        assert len({headers["Idempotency-Key"] for _, _, headers, _ in pretender.seen}) == 1


def test_lists_have_pages_and_filters():
    pages = []

    def answer(request, number):
        pages.append(request[1])
        job = {**DOCUMENT, "id": f"s{number:040x}"}
        return document({"jobs": [job] * 100, **({"cursor": "a/b"} if number < 3 else {})})
    with Pretender(answer) as pretender:
        jobs = json.loads(run(pretender.url, "jobs", "--json", "-n", 250, "--op", "a&b", "--state", "failed").stdout)["jobs"]
    assert len(jobs) == 300 and len(pages) == 3
    assert pages[0] == "/jobs?op=a%26b&state=failed&limit=100"
    assert pages[2].endswith("&limit=50&cursor=a%2Fb")


def test_errors_are_one_line_and_one_document(service, files):
    for arguments in (["get", NEVER], ["result", NEVER], ["get", "../ops"], ["run", "nonsense", *files],
                      ["submit", "nonsense", *files], ["jobs", "--state", "nonsense"]):
        done = run(service.url, *arguments, "--json", status=2 if "../ops" in arguments else 1)
        error = json.loads(done.stdout)["error"]
        assert error["code"] and error["message"] and done.stderr.count("\n") == 1, done


@pytest.mark.parametrize("command, option, instead", [("up", "--notice-file=/x", "SIGTERM"), ("worker", "--notice-url", "SIGTERM"),
                                                      ("api", "--queues=3", "deploy/shards"), ("worker", "BLASD_QUEUES=3", "deploy/shards")])
def test_removed_options_name_the_replacement(command, option, instead):
    name, _, value = option.partition("=")
    variable = name.startswith("BLASD_")
    done = subprocess.run([BLASD, command, *([] if variable else [option])], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, **({name: value} if variable else {})})
    name = "--" + name.removeprefix("BLASD_").lower() if variable else name
    assert done.returncode == 2 and f"{name} was removed" in done.stderr and instead in done.stderr, done.stderr


@pytest.mark.parametrize("command", ["run", "submit", "get", "result", "cancel", "jobs", "top"])
def test_help_tells_options_and_exit_statuses(command):
    said = subprocess.run([BLASD, "help", command], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"usage: blasd {command} ") and "--json" in said and "Exit status: 0 " in said
    assert max(map(len, said.splitlines())) <= 100


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_process_of_a_container_ends_when_told(number):
    """Which the system itself does not see to: `docker stop` of a client that waits took ten seconds."""
    if subprocess.run(["unshare", "-rpf", "true"], capture_output=True).returncode != 0:
        pytest.skip("no namespaces here")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        outer = subprocess.Popen(["unshare", "-rpf", "--kill-child", BLASD, "jobs", "--url", url],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            peer, _ = mute.accept()
            peer.recv(1)
            child, = children(outer.pid)
            os.kill(child, number)
            assert outer.wait(30) == 128 + number
            peer.close()
        finally:
            outer.kill()
            outer.wait()


def test_nothing_of_the_service_commands_the_terminal(files):
    """Names and texts that a service sends are shown without what a terminal would obey."""
    evil = {**DOCUMENT, "op": "\x1b[2Jop", "state": "failed", "error": {"title": "\x1b]0;x\x07", "detail": "\u009b1m"}}
    with Pretender(lambda request, number: document({"jobs": [evil]} if "?" in request[1] else evil)) as pretender:
        for arguments, status in ((["jobs"], 0), (["get", "x"], 1), (["result", "x"], 1)):
            done = run(pretender.url, *arguments, status=status)
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.stdout + done.stderr)
    name = "\x1b[2J\u009b1m"
    told = {**DOCUMENT, "id": name, "outputs": {name: {"dtype": "float64", "shape": [1]}}}
    arrays = 200, {"Content-Type": "application/x-safetensors"}, safetensors({name: np.ones(1)}, job=json.dumps(told))

    def answer(request, number):
        if "wait=" in request[1] or request[1].endswith("/result"):
            return arrays
        return document({**told, "state": name if request[0] != "GET" else "queued" if "q" in request[1] else "succeeded"})
    with Pretender(answer) as pretender:
        for arguments, status in ((["run", "matmul", *files], 0), (["run", "matmul", *files, "-o", "/dev/full"], 1), (["submit", "matmul", *files], 0),
                                  (["cancel", "x"], 0), (["result", "x"], 0), (["result", "q"], 3)):
            done = run(pretender.url, *arguments, status=status)
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.stdout + done.stderr)


# --- progress and top, on a terminal ------------------------------------------------------------------------------------


class Terminal:
    """A command on a terminal of its own; `screen` has all that it wrote."""

    def __init__(self, *arguments, rows=40, columns=150):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave, self.screen = slave, ""
        self.process = subprocess.Popen([BLASD, *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True)

    def read(self, wanted, timeout=30):
        """Until `wanted`, a pattern, is on a screen drawn from now on; returns it."""
        self.screen, end = "", time.monotonic() + timeout
        while not re.search(wanted, self.screen, re.S):
            assert time.monotonic() < end, (wanted, self.screen[-3000:])
            if select.select([self.master], [], [], 0.1)[0]:
                self.screen += os.read(self.master, 65536).decode(errors="replace")
        return self.screen

    def type(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            if self.process.poll() is None:
                self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal():
    made = []

    def make(*arguments, **more):
        made.append(Terminal(*arguments, **more))
        return made[-1]
    yield make
    for one in made:
        one.end()


def test_top_shows_and_cancels(make_service, files, terminal):
    service = make_service()
    with service.worker_held():
        first = run(service.url, "submit", "matmul", *files).stdout.strip()
        second = run(service.url, "submit", "solve", *files).stdout.strip()
        top = terminal("top", "--url", service.url, "-n", "0.2")
        screen = top.read(rf"{first}.*\x1b\[J")
        assert "2 jobs" in screen and "cpu:0" in screen and second in screen
        top.type("c")
        top.read("no job is chosen")
        top.type("\x1b[B")  # down: the first of the list, the newest
        top.read(rf"\x1b\[7m> {second}")
        top.type("j")
        top.read(rf"> {first}")
        top.type("kc")
        top.read(f"cancel {second}\\? y")
        top.type("n")
        top.read(r"blasd top\r\n\x1b\[K\r\n")
        assert {job["state"] for job in service.list_jobs()} == {"queued"}
        top.type("cy")
        top.read(f"{second} is cancelled")
        assert {job["id"]: job["state"] for job in service.list_jobs()} == {first: "queued", second: "cancelled"}
        top.type("q")
        top.read(r"\x1b\[\?1049l")
        assert top.process.wait(20) == 0
        assert termios.tcgetattr(top.slave) == top.before


def test_top_fits_its_terminal_and_outlives_the_service(make_service, terminal):
    service = make_service()
    top = terminal("top", "--url", service.url, "-n", "0.1", rows=12, columns=40)
    screen = top.read(r"cpu:0.*\x1b\[J").split("\x1b[H")[-1]
    lines = re.sub(r"\x1b\[\??[0-9;]*[A-Za-z]", "", screen).split("\r\n")
    assert len(lines) <= 12 and max(map(len, lines)) <= 40
    service.stop()
    top.read("blasd top: .*127.0.0.1")
    top.process.send_signal(signal.SIGINT)
    top.read(r"\x1b\[\?1049l")
    assert top.process.wait(20) == 128 + signal.SIGINT
    assert termios.tcgetattr(top.slave) == top.before


def test_top_shows_how_far_jobs_are_on_eighty_columns(make_service, files, terminal):
    """Ids give way; which job is meant is asked with all of its id."""
    service = make_service()
    job = run(service.url, "submit", "matmul", *files).stdout.strip()
    assert run(service.url, "get", job, "--wait", "60").returncode == 0
    total = service.request("GET", f"/jobs/{job}").json()["timing"]["total_ms"]
    top = terminal("top", "--url", service.url, "-n", "0.2", columns=80)
    screen = top.read(rf"\.\.{job[-16:]} .*\x1b\[J")
    assert re.search(rf"  ID +OP .* DONE +TOTAL ms\r\n.*{job[-16:]} matmul +succeeded .* cpu:0 +100% +{total:.3f}\r?\n?", screen, re.S)
    top.type("jc")
    top.read(f"cancel {job}\\? y")


def test_how_busy_a_device_is_now(terminal):
    """busy_share is of the last seconds, at every look, however long the worker lives."""
    def answer(request, number):
        if not request[1].startswith("/devices"):
            return document({"jobs": []})
        looks.append(number)
        return document({"devices": [{"worker": "w", "device": "cpu:0", "device_name": "x", "jobs": 10 * len(looks), "batches": len(looks),
                                      "uptime_s": 1000 + len(looks), "busy_share": 0.5 if len(looks) < 3 else 0.25}]})
    looks = []
    with Pretender(answer) as pretender:
        assert re.search(r"^cpu:0 .* 50% ", run(pretender.url, "devices").stdout, re.M)
        top = terminal("top", "--url", pretender.url, "-n", "0.2")
        shares = re.findall(r"cpu:0 .* (\d+)% ", top.read(r"(cpu:0 .*){4}\x1b\[J"))
    assert shares[:3] == ["50", "25", "25"]


def test_top_without_a_terminal(service):
    said = run(service.url, "top").stdout
    assert "cpu:0" in said and "\x1b" not in said
    assert set(json.loads(run(service.url, "top", "--json").stdout)) == {"devices", "jobs"}


def test_a_bar_where_standard_error_is_a_terminal(make_service, files, terminal):
    service = make_service()
    with service.worker_held():
        shown = terminal("run", "--url", service.url, "matmul", *files)
        shown.read(r"\rqueued +\[\.{30}\]   0 %")
        shown.type("\x03")  # no signal without a controlling terminal: nothing of it is lost either way
        shown.process.send_signal(signal.SIGINT)
        shown.read("the job was cancelled")
        assert shown.process.wait(20) == 128 + signal.SIGINT
    assert {job["state"] for job in service.list_jobs()} == {"cancelled"}
