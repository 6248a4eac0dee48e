"""`blasd up` and the pieces apart: start, guard against doubles, restart, external Redis, both blob stores."""
import ctypes
import mmap
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
from service import BLASD, Service, children, command_line, wait_for

SMALL = {"a": np.eye(2), "b": np.ones((2, 2))}


def refused(*options, timeout=30):
    done = subprocess.run([BLASD, *options], capture_output=True, timeout=timeout, text=True)
    assert done.returncode not in (0, None) and done.stdout == ""
    return done.stderr


def test_the_parts_show_by_name(service):
    for name, pattern in (("redis", r"redis-server"), ("api", r"blasd api"), ("worker", r"blasd worker")):
        assert re.match(pattern, command_line(service.part(name)))


def test_a_second_service_over_the_same_data_is_refused(service):
    assert "data" in refused("up", "--listen", "127.0.0.1:0", "--data", str(service.folder / "data"))


def test_a_second_service_on_the_same_port_is_refused(service, tmp_path):
    message = refused("up", "--listen", f"127.0.0.1:{service.port}", "--data", str(tmp_path / "data"))
    assert "in use" in message


def test_a_restarted_front_end_keeps_its_port(make_service):
    service = make_service()
    for _ in range(3):
        service.kill("api")
        service.wait_ready()
        assert service.run("matmul", SMALL)[1]["state"] == "succeeded"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_told_and_leaves_nothing_running(make_service, signum):
    service = make_service()
    parts = [service.part(n) for n in ("redis", "api", "worker")]
    assert service.stop(signum=signum) == 0
    assert not any(command_line(p) for p in parts)


ODD = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
os.close(0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_what_its_starter_ignored_blocked_or_closed_is_no_matter(tmp_path):
    """Else a part that dies is never replaced, and the service not ended; sockets lie where standard input should be."""
    service = Service(tmp_path / "service")
    service.program = [sys.executable, "-c", ODD, BLASD]
    service.start()
    try:
        killed = service.kill("worker")
        wait_for(lambda: service.part("worker") not in (None, killed))
        assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    finally:
        service.stop()


def test_a_part_that_cannot_start_anew_for_now_ends_no_service(make_service, tmp_path):
    """Its options are wrong while a file that they name is away; the others go on, and so does it once that is back."""
    headers, away = tmp_path / "headers", tmp_path / "away"
    headers.write_text("Authorization: Bearer x\n")
    headers.chmod(0o600)
    service = make_service("--otlp", "http://127.0.0.1:9", "--otlp-headers", headers)
    headers.rename(away)
    killed = service.kill("worker")
    wait_for(lambda: f"process {killed}" in service.log_text() and "ended with status 2" in service.log_text())
    assert service.request("GET", "/health/live").status == 200
    away.rename(headers)
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"


@pytest.mark.first
def test_a_restart_keeps_results_and_instance(make_service):
    service = make_service()
    job = service.post("matmul", {"a": np.arange(40000.0).reshape(200, 200), "b": np.eye(200)},
                       form="safetensors").json()
    port = service.port
    service.stop()
    service.start(f"127.0.0.1:{port}")
    assert service.port == port
    got = service.request("GET", f"/jobs/{job['id']}/outputs/c", headers={"Accept": "application/x-npy"}).npy()
    assert np.array_equal(got, np.arange(40000.0).reshape(200, 200))


@pytest.mark.parametrize("options,word", [
    (("up", "--nonsense"), "nonsense"), (("up", "--listen", "nowhere:x"), "HOST:PORT"), (("up", "extra"), "extra"),
    (("up", "--limit", "queue_jobs=none"), "queue_jobs"), (("up", "--limit", "what=1"), "limit"),
    (("up", "--workers", "many"), "workers"), (("fly",), "fly"), (("worker",), "redis"), (("api",), "redis"),
    (("worker", "--device", "cuda:99", "--redis", "unix:/nonexistent/sock"), "cuda")])
def test_bad_options_are_explained(options, word, tmp_path):
    if options[0] == "up":
        options += ("--data", str(tmp_path / "data"))
    assert word in refused(*options)


@pytest.mark.parametrize("options,word", [
    (("--queue", "a b"), "queue's name"), (("--queue", 'x"'), "queue's name"), (("--queue", ""), "queue's name"),
    (("--outgoing-hosts", ""), "no host"), (("--outgoing-hosts", " , "), "no host"),
    (("--outgoing-hosts", "a.example", "--outgoing-ca", "{tmp}/none.pem"), "none.pem"),
    (("--outgoing-hosts", "a.example", "--webhook-secrets", "{tmp}/none"), "{tmp}/none: No such file"),
    (("--allow-host", "https://a.example"), "--allow-host"), (("--allow-host", "a.example:8443"), "--allow-host"),
    (("--allow-host", "*.a.example"), "--allow-host"), (("--allow-host", ""), "--allow-host"),
    (("--allow-origin", "a.example"), "--allow-origin"), (("--allow-origin", "https://a.example/"), "--allow-origin")])
def test_what_could_never_work_is_said_before_anything_starts(options, word, tmp_path):
    """Rather than by a part that ends again and again, or by each request that is refused."""
    options = [one.replace("{tmp}", str(tmp_path)) for one in options]
    said = refused("up", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), *options)
    assert word.replace("{tmp}", str(tmp_path)) in said and "redis" not in said.lower() and "process" not in said, said


class Apart:
    """redis-server, `blasd api` and `blasd worker`, each started by hand."""

    def __init__(self, folder, blobs, workers=1):
        self.folder, self.processes = folder, []
        self.log = open(folder / "log", "ab")
        self.socket = folder / "redis.sock"
        self.start(["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", folder, "--appendonly", "yes", "--appendfsync", "no",
                    "--save", ""])
        wait_for(self.socket.exists)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        common = ["--redis", f"unix:{self.socket}", "--blobs", blobs]
        self.workers = [self.start([BLASD, "worker", "--device", "cpu:0", *common]) for _ in range(workers)]
        self.start([BLASD, "api", "--listen", f"127.0.0.1:{self.port}", *common])

    def start(self, command):
        process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def client(self):
        """A Service's requests, over these processes."""
        service = Service(self.folder)
        service.port, service.url = self.port, f"http://127.0.0.1:{self.port}"
        service.wait_ready()
        return service

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(20)
        self.log.close()


@pytest.mark.parametrize("kind", ["dir", "redis"])
def test_the_pieces_apart(tmp_path, kind):
    apart = Apart(tmp_path, f"dir:{tmp_path / 'blobs'}" if kind == "dir" else "redis", workers=2)
    try:
        service = apart.client()
        assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
        a = np.random.default_rng(3).standard_normal((700, 700))  # travels as a blob
        arrays, _ = service.run("matmul", {"a": a, "b": np.eye(700)}, form="safetensors")
        assert np.array_equal(arrays["c"], a)
        assert len(service.request("GET", "/devices").json()["devices"]) == 2
        # a worker that dies is noticed by its lapsed lease; the other one goes on
        apart.workers[0].kill()
        assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
        wrong = f"dir:{tmp_path / 'elsewhere'}"
        assert "store" in refused("worker", "--redis", f"unix:{apart.socket}", "--blobs", wrong)
        assert "store" in refused("api", "--listen", "127.0.0.1:0", "--redis", f"unix:{apart.socket}", "--blobs", wrong)
    finally:
        apart.stop()


def test_devices_prints_what_the_machine_offers():
    done = subprocess.run([BLASD, "devices"], capture_output=True, timeout=60, text=True, check=True)
    assert "cpu:0" in done.stdout
    import json
    done = subprocess.run([BLASD, "devices", "--json"], capture_output=True, timeout=60, text=True, check=True)
    assert json.loads(done.stdout)


CORES_DEVICE = "/dev/cpu_dma_latency"


def holds_cores_awake(pid):
    return any(os.path.realpath(f"/proc/{pid}/fd/{fd}") == CORES_DEVICE for fd in os.listdir(f"/proc/{pid}/fd"))


def latency_asked_for():
    """What all holders together allow idle cores, in microseconds."""
    with open(CORES_DEVICE, "rb", buffering=0) as device:
        return struct.unpack("=i", device.read(4))[0]


def test_cores_may_sleep_unless_the_operator_says_otherwise(make_service):
    service = make_service()
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    assert not any(holds_cores_awake(pid) for pid in (service.process.pid, *children(service.process.pid)))


@pytest.mark.skipif(not os.access(CORES_DEVICE, os.R_OK | os.W_OK), reason="cores cannot be kept awake here")
def test_low_latency_keeps_cores_awake(make_service):
    service = make_service("--low-latency")
    assert holds_cores_awake(service.process.pid)
    assert latency_asked_for() == 0
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"


@pytest.mark.skipif(os.access(CORES_DEVICE, os.W_OK), reason="cores can be kept awake here")
@pytest.mark.parametrize("command", [("up", "--listen", "127.0.0.1:0"), ("api", "--redis", "unix:/nowhere")])
def test_low_latency_that_cannot_be_had_is_said(tmp_path, command):
    options = ["--data", tmp_path / "data"] if command[0] == "up" else []
    done = subprocess.run([BLASD, *command, *options, "--low-latency"], capture_output=True, timeout=60, text=True)
    assert done.returncode == 1 and CORES_DEVICE in done.stderr and "--low-latency" in done.stderr


def processors_of(pid):
    """Those of each thread of the process together."""
    return set().union(*(os.sched_getaffinity(int(thread)) for thread in os.listdir(f"/proc/{pid}/task")))


def test_nobody_is_pinned_unless_asked(make_service):
    service = make_service()
    for name in ("redis", "api", "worker"):
        assert processors_of(service.part(name)) == os.sched_getaffinity(0)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_pinned_parts_have_processors_of_their_own(make_service):
    all_of_them = os.sched_getaffinity(0)
    service = make_service("--pin", "--loops", "1")
    api, worker = processors_of(service.part("api")), processors_of(service.part("worker"))
    assert len(api) == 1 and worker == all_of_them - api
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"


def cached_bytes(path):
    """How much of a file the kernel holds in memory."""
    libc, size = ctypes.CDLL(None, use_errno=True), path.stat().st_size
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with open(path, "rb") as file:
        at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    assert at != ctypes.c_void_p(-1).value and libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), pages) == 0
    libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
    return sum(page & 1 for page in pages) * mmap.PAGESIZE


def file_system_of(path):
    return subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("options", [(), ("--durable",)])
def test_what_redis_wrote_does_not_fill_the_memory(make_service, options):
    """Nobody reads its file again before the next start."""
    service = make_service(*options)
    file, = (service.folder / "data" / "appendonlydir").glob("*.incr.aof")
    if file_system_of(file) == "tmpfs":
        pytest.skip("the directory of this test lies in memory")
    for _ in range(200):
        assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    kept = 3 * 65536  # of the end, which goes when more comes behind it
    assert file.stat().st_size > 2 * kept // 3
    end = time.time() + 30
    while cached_bytes(file) > kept and time.time() < end:
        service.run("matmul", SMALL)
        time.sleep(0.1)
    assert file.stat().st_size > 2 * kept and cached_bytes(file) <= kept


def test_help_names_every_command():
    done = subprocess.run([BLASD, "help"], capture_output=True, timeout=10, text=True, check=True)
    for command in ("up", "api", "worker", "devices", "run"):
        assert command in done.stdout


def test_a_directory_of_others_is_not_closed_to_them(tmp_path):
    """Such as /srv, or /tmp, which nobody but root could use any more."""
    shared = tmp_path / "shared"
    (shared / "somebody-elses").mkdir(parents=True)
    shared.chmod(0o755)
    said = refused("up", "--listen", "127.0.0.1:0", "--data", str(shared), timeout=10)
    assert "somebody-elses" in said and "chmod 700" in said, said
    assert shared.stat().st_mode & 0o777 == 0o755 and os.listdir(shared) == ["somebody-elses"]


def test_a_directory_made_for_it_is_closed(make_service):
    service = make_service(start=False)
    data = service.folder / "data"
    (data / "lost+found").mkdir(parents=True)  # of a disk of its own
    (data / "note").write_text("beside keys, perhaps")
    data.chmod(0o755)
    service.start()
    assert data.stat().st_mode & 0o777 == 0o700
    service.stop()
    data.chmod(0o755)
    service.start()  # its own by now
    assert data.stat().st_mode & 0o777 == 0o700


def test_the_data_directory_is_private(service):
    assert os.stat(service.folder / "data").st_mode & 0o077 == 0


# --- the blob directory that it chose itself ----------------------------------------------------------------------

LARGE = {"a": np.arange(90000.0).reshape(300, 300), "b": np.eye(300)}  # travels as blobs


def blobs_of(service):
    return pathlib.Path("/dev/shm") / f"blasd-{(service.folder / 'data' / 'instance').read_text()[:16]}"


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm")
@pytest.mark.parametrize("made_anew", [False, True])
def test_blobs_that_somebody_removed_have_a_new_directory(make_service, made_anew):
    """As at the logout of a user whose IPC objects systemd removes: else each larger job failed for ever."""
    service = make_service()
    assert service.run("matmul", LARGE)[1]["state"] == "succeeded"
    blobs, parts = blobs_of(service), {name: service.part(name) for name in ("api", "worker", "redis")}
    token = (blobs / ".store").read_bytes()
    gone = blobs.rename(blobs.with_name(blobs.name + "-gone"))
    shutil.rmtree(gone, ignore_errors=True)  # the service may remove a file of it at the same time
    if made_anew:  # by a part that started at just that moment
        blobs.mkdir(0o700)
        (blobs / ".store").write_bytes(token.translate(bytes.maketrans(b"0123456789", b"1234567890")))
    wait_for(lambda: (blobs / ".data").exists())
    wait_for(lambda: all(service.part(name) not in (None, parts[name]) for name in ("api", "worker")))
    service.wait_ready()
    got, job = service.run("matmul", LARGE)
    assert job["state"] == "succeeded" and np.array_equal(got["c"], LARGE["a"])
    assert (blobs / ".store").read_bytes() == token and service.part("redis") == parts["redis"]
    assert service.log_text().count("was removed, and is created again") == 1
    parts = {name: service.part(name) for name in ("api", "worker")}
    (blobs / ".store").unlink()  # as a part that was taken over may
    wait_for((blobs / ".store").exists)
    assert (blobs / ".store").read_bytes() == token and service.run("matmul", LARGE)[1]["state"] == "succeeded"
    assert {name: service.part(name) for name in parts} == parts
    service.stop()
    assert service.start().run("matmul", LARGE)[1]["state"] == "succeeded"


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm")
def test_blobs_of_a_disk_that_is_not_mounted_stay(make_service):
    """Those of a data directory that was removed go at the next start of any service of this user."""
    service = make_service()
    service.post("matmul", LARGE, form="safetensors", wait=0)
    wait_for(lambda: all(job["state"] == "succeeded" for job in service.list_jobs()))
    blobs, data = blobs_of(service), service.folder / "data"
    service.stop()
    assert blobs.exists()
    mark = (blobs / ".data").read_text()
    *lines, device = mark.splitlines()
    assert int(device) == os.stat(data).st_dev
    data.rename(data.with_name("away"))
    (blobs / ".data").write_text("\n".join([*lines, str(int(device) + 1)]) + "\n")
    make_service().stop()
    assert blobs.exists()
    (blobs / ".data").write_text(mark)
    make_service().stop()
    assert not blobs.exists()
