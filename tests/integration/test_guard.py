"""What a worker behind a guard can say to Redis, and what it knows: with keys each worker has one."""
import array
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess

import numpy as np
import pytest
from service import BLASD, TYPES, Redis, Service, children, command_line, wait_for

TAG = "{q}"


def with_keys(folder, *options):
    """A service that lets in who shows its one key, and that key."""
    folder.mkdir(exist_ok=True)
    made = subprocess.run([BLASD, "keys", "add", "me", "--role", "admin", "--file", folder / "keys.json"], check=True,
                          capture_output=True, text=True, timeout=60)
    service = Service(folder / "service", "--keys", folder / "keys.json", *options)
    service.headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
    return service


@pytest.fixture
def guarded(tmp_path):
    made = []

    def make(*options):
        made.append(with_keys(tmp_path / f"guarded{len(made)}", *options))
        return made[-1].start()
    yield make
    for one in made:
        one.stop(check=False)


def parts(service, name):
    """The processes of that name beneath the service."""
    found, left = [], [service.process.pid]
    while left:
        for pid in children(left.pop()):
            left.append(pid)
            if command_line(pid).startswith(f"blasd {name} "):
                found.append(pid)
    return found


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def memory_of(pid):
    """All that the process could change, and so could have written something into."""
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            first, last = (int(end, 16) for end in span.split("-"))
            if rights.startswith("rw") and last - first < 1 << 28 and "[vvar" not in line:
                memory.seek(first)
                try:
                    yield memory.read(last - first)
                except OSError:
                    pass


def works(service):
    rng = np.random.default_rng(3)
    a = rng.random((200, 200))
    assert np.allclose(service.run("matmul", {"a": np.eye(2), "b": np.full((2, 2), 3.0)})[0]["c"], 3)
    assert np.allclose(service.run("matmul", {"a": a, "b": a}, form="safetensors")[0]["c"], a @ a)
    assert service.run("solve", {"a": a, "b": a[0]}, form="safetensors")[1]["state"] == "succeeded"


@pytest.mark.parametrize("options", [(), ("--blobs", "redis"), ("--queues", "3", "--workers", "2")])
def test_all_is_done_behind_guards(guarded, options):
    service = guarded(*options)
    works(service)
    a = np.arange(40000.0).reshape(200, 200) / 1e4

    def ended(path, document):
        answer = service.request("POST", f"{path}?wait=30", json.dumps(document), {"Content-Type": "application/json"})
        assert answer.status == 200, answer.body[:500]
        return answer.json()
    kept = ended("/jobs", {"op": "matmul", "inputs": {"a": a.tolist(), "b": {"eye": 200}}, "keep": ["c"]})
    tensor = {"tensor": kept["outputs"]["c"]["tensor"]["id"]}
    again = ended("/jobs", {"op": "matmul", "inputs": {"a": tensor, "b": a.tolist()}})
    result = service.request("GET", f"/jobs/{again['id']}/result", headers={"Accept": TYPES["safetensors"]})
    assert np.allclose(result.safetensors()[0]["c"], a @ a)
    graph = ended("/graphs", {"steps": {"g": {"op": "matmul", "inputs": {"a": tensor, "b": {"eye": 200}}},
                                        "h": {"op": "matmul", "inputs": {"a": {"step": "g", "output": "c"}, "b": {"eye": 200}}}},
                              "results": ["h"]})
    assert graph["state"] == "succeeded", graph
    assert len(parts(service, "guard")) == len(parts(service, "worker")) > 0
    assert "sent Redis" not in service.log_text()


def test_without_keys_there_is_none(make_service):
    service = make_service()
    works(service)
    assert parts(service, "worker") and not parts(service, "guard")


@pytest.mark.skipif(os.getuid() != 0, reason="reads the memory of other processes")
def test_a_worker_does_not_know_the_password(guarded):
    service = guarded()
    works(service)
    address = (service.folder / "data" / "redis.url").read_text().strip()
    password = re.fullmatch(r"unix://:([0-9a-f]{32})@/\S+", address)[1].encode()
    (worker,), (guard,), (front,) = parts(service, "worker"), parts(service, "guard"), parts(service, "api")

    def knows(pid):
        told = pathlib.Path(f"/proc/{pid}/environ").read_bytes() + pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        return password in told or any(password in piece for piece in memory_of(pid))
    assert knows(front) and knows(guard)
    assert not knows(worker)
    nobody = Redis(service, own=False)
    for words in (["SET", "{blasd}:x", "1"], ["HGETALL", "{blasd}:pending"], ["FCALL", "blasd_6_refs", "1", "{blasd}", "1 1"]):
        with pytest.raises(AssertionError, match="NOAUTH"):
            nobody(*words)


def test_they_end_together(guarded):
    service = guarded()
    works(service)
    (worker,), (guard,) = parts(service, "worker"), parts(service, "guard")
    os.kill(guard, signal.SIGTERM)  # as a manager of services sends to all processes
    works(service)
    assert parts(service, "guard") == [guard]
    os.kill(guard, signal.SIGKILL)
    wait_for(lambda: not alive(worker))
    works(service)
    (worker,), (guard,) = parts(service, "worker"), parts(service, "guard")
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: not alive(guard))
    works(service)
    (guard,) = parts(service, "guard")
    service.stop()
    wait_for(lambda: not alive(guard))


class Guard:
    """A guard, and this test in the place of its worker."""

    def __init__(self, redis, *options):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen([BLASD, "guard", "--socket", str(theirs.fileno()), "--worker", "me", "--redis", redis,
                                         "--queue", "q", *options], pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
        theirs.close()

    def ask(self, message, *ends):
        fds = array.array("i", [end.fileno() for end in ends])
        self.socket.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if ends else [])
        for end in ends:
            end.close()

    def connect(self, tag=TAG):
        mine, theirs = socket.socketpair()
        self.ask(struct.pack("66sxxi", tag.encode(), 1000), theirs)
        return Link(mine)

    def end(self):
        self.socket.close()
        said = self.process.stderr.read()
        self.process.stderr.close()
        return self.process.wait(30), said


class Link(Redis):
    def __init__(self, mine):
        self.sock = mine
        mine.settimeout(30)
        self.file = mine.makefile("rb")


@pytest.fixture
def other_redis(tmp_path):
    """A Redis with a password, its address, and a hand in it."""
    sock = tmp_path / "r.sock"
    process = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", sock, "--appendonly", "yes", "--appendfsync", "no", "--dir", tmp_path,
                                "--requirepass", "secret"], stdout=subprocess.DEVNULL)
    mine = socket.socket(socket.AF_UNIX)

    def up():
        try:
            mine.connect(str(sock))
            return True
        except OSError:
            return False
    try:
        wait_for(up)
        hand = Link(mine)
        hand("AUTH", "secret")
        yield f"unix://default:secret@{sock}", hand
    finally:
        process.kill()
        process.wait()


FORBIDDEN = [["FLUSHALL"], ["SET", f"{TAG}:idkey", "x"], ["GET", f"{TAG}:idkey"], ["CONFIG", "SET", "dir", "/tmp"], ["EVAL", "return 1", "0"],
             ["FUNCTION", "LOAD", "REPLACE", "#!lua name=blasd_6\n"], ["FCALL", "blasd_6_submit", "1", TAG, "LIMITS", "f", "1"],
             ["FCALL", "blasd_6_turn", "1", TAG, "1 1 1 1 1 1 1 1", "me", "1", "0", "1", "1", "0", "1", "0"], ["MULTI"], ["PING"],
             ["SET", f"{TAG}:figures:me", '{"ops":NaN}', "PX", "3000"], ["AUTH", "x"]]


def test_nothing_else_passes(other_redis):
    address, hand = other_redis
    guard = Guard(address)
    good = guard.connect()
    assert good.reply() == b"OK"
    assert good("EXISTS", TAG) == 0 and len(good("TIME")) == 2
    assert isinstance(good("FUNCTION", "LIST", "LIBRARYNAME", "blasd_6", "WITHCODE"), list)
    for words in FORBIDDEN:
        link = guard.connect()
        assert link.reply() == b"OK"
        link.sock.sendall(b"*2\r\n$6\r\nEXISTS\r\n$3\r\n{q}\r\n*%d\r\n" % len(words) +
                          b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words) + b"*1\r\n$4\r\nTIME\r\n")
        assert link.file.read() in (b"", b":0\r\n"), words  # the one before it went on
    link = guard.connect()
    assert link.reply() == b"OK"
    link.sock.sendall(b"FLUSHALL\r\n")
    assert link.file.read() == b""
    assert hand("DBSIZE") == 0 and good("EXISTS", TAG) == 0
    status, said = guard.end()
    assert status == 0 and said.count("worker me sent Redis a request that is not its own to send") == len(FORBIDDEN)
    assert said.count("sent Redis what is no request") == 1 and "secret" not in said


def test_it_connects_to_its_queues_alone(other_redis):
    address, _ = other_redis
    guard = Guard(address, "--queues", "2")
    for tag, there in (("{q}", True), ("{q:1}", True), ("{q:2}", False), ("{r}", False), ("", False)):
        link = guard.connect(tag)
        if there:
            assert link.reply() == b"OK" and link("EXISTS", tag) == 0
        else:
            assert link.file.read() == b""
    guard.ask(b"x")
    near, far = socket.socketpair()
    guard.ask(b"short", far)
    assert near.recv(1) == b""
    pairs = [socket.socketpair() for _ in range(2)]
    guard.ask(struct.pack("66sxxi", TAG.encode(), 1000), *[far for _, far in pairs])
    for near, _ in pairs:
        near.settimeout(30)
        assert near.recv(100) == b""
    assert guard.connect().reply() == b"OK"
    assert guard.end()[0] == 0


def test_who_cannot_connect_is_told_why(tmp_path, other_redis):
    address, _ = other_redis
    for redis, why in ((f"unix:{tmp_path}/none.sock", "cannot be reached"), (address.replace("secret", "wrong"), "WRONGPASS")):
        guard = Guard(redis)
        with pytest.raises(AssertionError, match=why):
            guard.connect().reply()
        assert guard.end()[0] == 0


def test_large_requests_pass(other_redis):
    """Of more bytes than buffers of sockets hold, in both directions."""
    address, hand = other_redis
    guard = Guard(address)
    link = guard.connect()
    assert link.reply() == b"OK"
    blob = os.urandom(32 << 20)
    hand("SET", f"{TAG}:blob:s1.in:0", blob)
    assert link("GET", f"{TAG}:blob:s1.in:0") == blob
    assert link("HSET", f"{TAG}:claims:me", "@0", blob) == 1
    assert hand("HGET", f"{TAG}:claims:me", "@0") == blob
    assert guard.end()[0] == 0


def test_redis_reads_its_file_again(guarded):
    """It reads that as its default user, who may do no less than the parts; what he may not is left out of it."""
    service = guarded()
    with service.worker_held():
        job = service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}, wait=0).json()["id"]
        service.kill("redis")
        service.wait_ready()
        assert service.request("GET", f"/jobs/{job}").json()["state"] == "queued"
    assert service.request("GET", f"/jobs/{job}?wait=30").json()["state"] == "succeeded"
    assert "NOPERM" not in (service.folder / "data" / "redis.log").read_text()
