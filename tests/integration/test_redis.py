"""A Redis of one's own (`--redis`): away, refusing, forgetful, emptied; and its password, which nobody else reads."""
import contextlib
import json
import os
import pathlib
import re
import select
import signal
import struct
import subprocess

import numpy as np
import pytest
from service import BLASD, Redis, Service, wait_for

SMALL = {"a": np.eye(2), "b": np.eye(2)}
SECRET = "s3cr3t-of-the-test"
WORKER_SECRET = "s3cr3t-of-workers"


class Server:
    """A redis-server in a folder of its own; as a `service` it takes a hand of service.Redis."""

    def __init__(self, folder):
        self.folder, self.processes = pathlib.Path(folder), []
        (self.folder / "data").mkdir(parents=True)
        self.socket = self.folder / "data" / "redis.sock"
        self.url = f"unix:{self.socket}"
        self.log = open(self.folder / "log", "ab")

    def up(self, *options):
        if "--appendonly" not in options:
            options += ("--appendonly", "yes")
        if "--appendfsync" not in options:  # else a slow disk keeps writes back, which are lost with the process
            options += ("--appendfsync", "no")
        self.redis = self.start(["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.folder,
                                 "--save", "", *options])
        wait_for(lambda: b"PONG" in self.ping())
        return self

    def ping(self):
        with contextlib.suppress(OSError, StopIteration):
            hand = Redis(self)
            try:
                hand.sock.sendall(b"PING\r\n")
                line = hand.file.readline()
                return b"PONG" if line.startswith((b"+PONG", b"-NOAUTH")) else b""
            finally:
                hand.close()
        return b""

    def down(self):
        self.redis.kill()
        self.redis.wait()
        self.processes.remove(self.redis)

    def ask(self, *words, password=None):
        hand = Redis(self)
        try:
            if password:
                hand("AUTH", password)
            return hand(*words)
        finally:
            hand.close()

    def start(self, command, env=None, stdout=None, stderr=None):
        process = subprocess.Popen(command, stdout=stdout or self.log, stderr=stderr or self.log, stdin=subprocess.DEVNULL,
                                   env={**os.environ, **(env or {})})
        self.processes.append(process)
        return process

    def api(self, *options, env=None):
        """`blasd api`; its standard output is a pipe."""
        return self.start([BLASD, "api", "--listen", "127.0.0.1:0", *options], env, subprocess.PIPE)

    def worker(self, *options, env=None):
        return self.start([BLASD, "worker", *options], env, subprocess.PIPE)

    def log_text(self):
        return (self.folder / "log").read_text(errors="replace")

    def close(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        self.log.close()


@pytest.fixture
def server(tmp_path):
    one = Server(tmp_path / "redis")
    yield one
    one.close()


def ready_line(process, seconds):
    """The line, or None where none came."""
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline().decode() if ready else None


def client(server, process, seconds=60):
    """A Service's requests, over an api that says where it is."""
    line = ready_line(process, seconds)
    assert line and line.startswith("ready http://"), (line, server.log_text())
    service = Service(server.folder)
    service.url = line.split()[1]
    service.port = int(service.url.rsplit(":", 1)[1])
    return service


def refusal(service):
    answer = service.request("GET", "/health/ready")
    return None if answer.status == 200 else answer.json()


def test_an_api_without_redis_waits_and_says_so(server):
    api = server.api("--redis", server.url)
    wait_for(lambda: "no job can be taken: Redis cannot be reached" in server.log_text())
    assert ready_line(api, 3) is None
    assert server.log_text().count("no job can be taken") == 1  # and again only after some time
    server.up()
    service = client(server, api)
    server.worker("--redis", server.url)
    service.wait_ready()
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    server.down()
    wait_for(lambda: server.log_text().count("no job can be taken") == 2)
    server.up()
    wait_for(lambda: "jobs are taken again" in server.log_text())
    api.send_signal(signal.SIGTERM)
    assert api.wait(30) == 0
    assert api.stdout.read() == b""


@pytest.mark.parametrize("part", ["api", "worker"])
def test_a_part_without_redis_ends_when_told(server, part):
    process = server.api("--redis", server.url) if part == "api" else server.worker("--redis", server.url)
    wait_for(lambda: "Redis cannot be reached" in server.log_text())
    assert ready_line(process, 1) is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


@pytest.mark.parametrize("refuse,allow,word", [
    (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "OOM"),
    (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "READONLY"),
    (("CONFIG", "SET", "min-replicas-to-write", "1"), ("CONFIG", "SET", "min-replicas-to-write", "0"), "NOREPLICAS"),
    (("HSET", "{blasd}:state", "refused", "99999999999 a full disk"), ("HDEL", "{blasd}:state", "refused"), "a full disk")])
def test_ready_says_no_while_submits_are_refused(server, refuse, allow, word):
    server.up()
    service = client(server, server.api("--redis", server.url))
    server.worker("--redis", server.url)
    service.wait_ready()
    server.ask(*refuse)
    wait_for(lambda: refusal(service))
    problem = refusal(service)
    assert word in problem["detail"], problem
    answer = service.post("matmul", SMALL, wait=0)
    assert answer.status == 503 and word in answer.json()["detail"], answer.body
    assert answer.headers["Retry-After"]
    server.ask(*allow)
    service.wait_ready()
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"


def test_failover(server, tmp_path):
    """The address leads to the replica from now on, which has been promoted; the old master serves on, and refuses."""
    other = Server(tmp_path / "other")
    address = tmp_path / "now"
    try:
        import socket
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server.up("--port", str(port), "--bind", "127.0.0.1")
        other.up("--replicaof", "127.0.0.1", str(port))
        address.symlink_to(server.socket)
        service = client(server, server.api("--redis", f"unix:{address}"))
        worker = server.worker("--redis", f"unix:{address}", "--measured", "none")
        service.wait_ready()
        ended = [service.post("matmul", SMALL, wait=0).json()["id"] for _ in range(20)]
        wait_for(lambda: all(service.request("GET", f"/jobs/{i}").json()["state"] == "succeeded" for i in ended))
        worker.send_signal(signal.SIGSTOP)
        waiting = [service.post("matmul", SMALL, wait=0).json()["id"] for _ in range(20)]
        wait_for(lambda: struct.unpack_from("<d", other.ask("HGET", "{blasd}:state", "numbers") or bytes(8)) == (20,))
        assert other.ask("REPLICAOF", "NO", "ONE") == b"OK"
        address.unlink()
        address.symlink_to(other.socket)
        server.ask("REPLICAOF", "127.0.0.1", "1")
        worker.send_signal(signal.SIGCONT)
        wait_for(lambda: all(service.request("GET", f"/jobs/{i}").json().get("state") == "succeeded" for i in waiting))
        wait_for(lambda: service.request("GET", "/health/ready").status == 200)
        assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
        assert all(service.request("GET", f"/jobs/{i}").json()["state"] == "succeeded" for i in ended)
        assert other.ask("HGET", "{blasd}:state", "matmul succeeded") == b"41"  # each once
        assert worker.poll() is None
    finally:
        other.close()


FORGETFUL = [(("--appendonly", "no"), "appendonly"), (("--appendfsync", "everysec"), "everysec"),
             (("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"), "maxmemory-policy"),
             (("--maxmemory", "1gb", "--maxmemory-policy", "volatile-ttl"), "maxmemory-policy")]


@pytest.mark.parametrize("options,word", FORGETFUL)
@pytest.mark.parametrize("part", ["up", "api", "worker"])
def test_a_redis_that_may_lose_jobs_is_refused(server, tmp_path, part, options, word):
    server.up(*options)
    command = [BLASD, part, "--redis", server.url]
    command += ["--listen", "127.0.0.1:0"] if part != "worker" else []
    command += ["--data", tmp_path / "data"] if part == "up" else []
    done = subprocess.run(command, capture_output=True, timeout=60, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert word in done.stderr and "--redis-may-lose-jobs" in done.stderr


def test_a_redis_that_may_lose_jobs_is_taken_where_that_is_said(server, tmp_path):
    server.up("--appendonly", "no", "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
    service = Service(tmp_path / "up", "--redis", server.url, "--redis-may-lose-jobs").start()
    try:
        assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    finally:
        service.stop()


@pytest.mark.parametrize("options", [(), ("--maxmemory", "1gb"), ("--maxmemory-policy", "allkeys-lru")])
def test_a_redis_that_keeps_everything_is_taken(server, options):
    server.up(*options)  # a policy counts only where there is a bound
    client(server, server.api("--redis", server.url))


def test_a_redis_that_comes_back_forgetful_gets_no_jobs(server):
    server.up()
    service = client(server, server.api("--redis", server.url))
    server.down()
    server.up("--appendonly", "no")
    wait_for(lambda: "appendonly" in (refusal(service) or {"detail": ""})["detail"])
    assert service.post("matmul", SMALL, wait=0).status == 503
    server.ask("CONFIG", "SET", "appendonly", "yes")
    wait_for(lambda: service.post("matmul", SMALL, wait=0).status == 202)


def test_where_redis_may_not_be_asked_that_is_a_warning(server):
    server.up()
    server.ask("ACL", "SETUSER", "limited", "on", ">word", "~*", "&*", "+@all", "-info", "-config")
    server.ask("CONFIG", "SET", "port", "0")
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server.ask("CONFIG", "SET", "port", str(port))
    api = server.api(env={"BLASD_REDIS": f"redis://limited:word@127.0.0.1:{port}"})
    client(server, api)
    assert "INFO" in server.log_text()


def least_rights():
    """What docs/deploying.md has an operator give the service's user of Redis."""
    text = (pathlib.Path(__file__).parents[2] / "docs" / "deploying.md").read_text()
    line = next(line for line in text.splitlines() if line.strip().startswith("ACL SETUSER blasd "))
    return line.split()


def make_worker_user(server):
    """By the command that docs/deploying.md tells."""
    text = (pathlib.Path(__file__).parents[2] / "docs" / "deploying.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith("redis-cli ACL SETUSER blasd-worker "))
    done = subprocess.run(["sh", "-c", line.replace("redis-cli", f"redis-cli -s '{server.socket}'").replace("$(blasd", f"$('{BLASD}'")],
                          env={**os.environ, "WORKER_PASSWORD": WORKER_SECRET}, capture_output=True, text=True, check=False)
    assert done.stdout == "OK\n", done


def test_up_gives_workers_the_address_that_is_for_them(server, tmp_path):
    server.up()
    make_worker_user(server)
    address = f"unix://blasd-worker:{WORKER_SECRET}@{server.socket}"
    service = Service(tmp_path / "up", "--redis", server.url, env={"BLASD_WORKER_REDIS": address}).start()
    try:
        assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
        users = {line.split("user=")[1].split()[0] for line in server.ask("CLIENT", "LIST").decode().splitlines()}
        assert users == {"default", "blasd-worker"}
        told = pathlib.Path(f"/proc/{service.part('worker')}/environ").read_text()
        assert f"BLASD_REDIS={address}\0" in told
    finally:
        service.stop()


@pytest.mark.parametrize("more", [[], ["-info"]], ids=["as_told", "without_info"])
def test_a_user_with_the_least_rights_is_enough(server, more):
    """For all that a service does: small jobs, blobs, tensors, lists, cancelling, the stream of ended jobs, the sweep."""
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server.up("--port", str(port))
    words = [f">{SECRET}" if word == ">PASSWORD" else word for word in least_rights()]
    assert server.ask(*words, *more) == b"OK"
    make_worker_user(server)
    env = {"BLASD_REDIS": f"redis://blasd:{SECRET}@127.0.0.1:{port}"}
    limits = "--limit", "ended_jobs=100"  # the deployment's are those of the first that comes
    server.worker("--measured", "none", *limits, env={"BLASD_REDIS": f"redis://blasd-worker:{WORKER_SECRET}@127.0.0.1:{port}"})
    wait_for(lambda: "start the front end" in server.log_text())  # which may load the functions
    service = client(server, server.api("--limit", "inline_bytes=1000", *limits, env=env))
    service.wait_ready()
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    large = {"a": np.ones((300, 300)), "b": np.eye(300)}
    job = service.post("matmul", large, wait=60, form="safetensors").json()
    assert job["state"] == "succeeded", (job, server.log_text())
    tensor = service.request("POST", "/tensors", "[[1,2],[3,4]]", {"Content-Type": "application/json"})
    assert tensor.status == 201, tensor.body
    refers = {"op": "matmul", "inputs": {"a": {"tensor": tensor.json()["id"]}, "b": [[1], [1]]}}
    assert service.request("POST", "/jobs?wait=60", json.dumps(refers),
                           {"Content-Type": "application/json"}).json()["outputs"]["c"]["data"] == [[3], [7]]
    assert len(service.request("GET", "/jobs").json()["jobs"]) == 3
    assert service.request("DELETE", f"/jobs/{job['id']}?forget=1").status == 200
    wait_for(lambda: server.ask("HLEN", "{blasd}:blobs") == 1)  # the tensor's: the sweep has taken the rest
    assert server.ask("XLEN", "{blasd}:ended") == 3
    assert not re.search(f"{SECRET}|{WORKER_SECRET}|NOPERM|can't run", server.log_text())
    for command in (["FLUSHALL"], ["CONFIG", "GET", "*"], ["GET", "others"]):  # and it is not more than that
        hand = Redis(server)
        try:
            assert hand("AUTH", "blasd", SECRET) == b"OK"
            with pytest.raises(AssertionError, match="NOPERM"):
                hand(*command)
        finally:
            hand.close()


def test_what_redis_answers_is_told(server):
    """The user that the service has is gone, or lost a right: ready, a POST and the log say so, and all goes on with a new one."""
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server.up("--port", str(port))
    words = [f">{SECRET}" if word == ">PASSWORD" else word for word in least_rights()]
    assert server.ask(*words) == b"OK"
    env = {"BLASD_REDIS": f"redis://blasd:{SECRET}@127.0.0.1:{port}"}
    service = client(server, server.api(env=env))
    server.worker("--measured", "none", env=env)
    service.wait_ready()
    for change, says in ((("ACL", "DELUSER", "blasd"), "WRONGPASS"), (("ACL", "SETUSER", "blasd", "-fcall"), "NOPERM")):
        server.ask(*change)

        def told():
            answers = [service.request("GET", "/health/ready", check=False),
                       service.request("POST", "/jobs", json.dumps({"op": "matmul", "inputs": {"a": [[1]], "b": [[1]]}}), {"Content-Type": "application/json"}, check=False)]
            return all((one.status, one.json().get("code")) == (503, "queue_unavailable") and says in one.json()["detail"] for one in answers)
        wait_for(told)
        wait_for(lambda: f"no job can be taken: Redis answered: {says}" in server.log_text())
        server.ask("ACL", "DELUSER", "blasd")
        assert server.ask(*words) == b"OK"
        service.wait_ready()
        assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    assert server.log_text().count("WRONGPASS") < 12, server.log_text()


def command_lines(pid):
    """Of a process and all below it."""
    pids, lines = [pid], []
    while pids:
        at = pids.pop()
        with contextlib.suppress(OSError, StopIteration):
            lines.append(pathlib.Path(f"/proc/{at}/cmdline").read_bytes())
            pids += [int(p) for p in pathlib.Path(f"/proc/{at}/task/{at}/children").read_text().split()]
    return lines


@pytest.mark.parametrize("how", ["separate", "equals", "environment", "file"])
def test_a_password_shows_in_no_list_of_processes_and_no_log(server, tmp_path, how):
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server.up("--requirepass", SECRET, "--port", str(port))
    url = f"redis://:{SECRET}@127.0.0.1:{port}"
    (tmp_path / "address").write_text(url + "\n")
    options, env = {"separate": (["--redis", url], {}), "equals": ([f"--redis={url}"], {}),
                    "environment": ([], {"BLASD_REDIS": url}),
                    "file": (["--redis", f"file:{tmp_path / 'address'}"], {})}[how]
    service = Service(tmp_path / "up", *options, "--blobs", "redis", "--log-level", "debug", env=env).start()
    try:
        api = server.api(*options, "--log-level", "debug", env=env)
        worker = server.worker(*options, "--log-level", "debug", env=env)
        client(server, api)
        assert ready_line(worker, 60)
        assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
        lines = [line for pid in (service.process.pid, api.pid, worker.pid) for line in command_lines(pid)]
        assert len(lines) >= 5 and all(lines)
        assert not [line for line in lines if SECRET.encode() in line]
        server.down()
        wait_for(lambda: "no job can be taken" in server.log_text())
        assert SECRET not in server.log_text() and SECRET not in service.log_text()
    finally:
        service.stop(check=False)


def test_a_password_outlives_a_start_anew(server):
    """A worker that is to compute with another library starts itself again, by its command line."""
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server.up("--requirepass", SECRET, "--port", str(port))
    libraries = subprocess.run(["ldd", BLASD], capture_output=True, text=True, check=True).stdout
    library = next(line.split()[2] for line in libraries.splitlines() if "openblas" in line)
    worker = server.worker("--redis", f"redis://:{SECRET}@127.0.0.1:{port}", "--blas", library)
    assert ready_line(worker, 60), server.log_text()
    assert SECRET.encode() not in pathlib.Path(f"/proc/{worker.pid}/cmdline").read_bytes()


@pytest.mark.parametrize("url", [f"redis://:{SECRET}@nowhere:x", f"rediss://u:{SECRET}@h:x", f"redis:{SECRET}@h"])
def test_a_password_in_a_wrong_address_is_not_told(url):
    done = subprocess.run([BLASD, "api", "--listen", "127.0.0.1:0", "--redis", url], capture_output=True, timeout=60, text=True)
    assert done.returncode != 0 and "redis://" in done.stderr and SECRET not in done.stderr + done.stdout


def test_an_address_file_that_is_not_there_is_explained(tmp_path):
    done = subprocess.run([BLASD, "api", "--redis", f"file:{tmp_path / 'none'}"], capture_output=True, timeout=60, text=True)
    assert done.returncode == 2 and "none" in done.stderr


@pytest.mark.parametrize("how", ["flushed", "functions", "new"])
def test_a_redis_emptied_under_way_is_told_and_mended(server, how):
    """Who waits for a job that went hears of it, and everybody goes on."""
    import concurrent.futures
    server.up()
    service = client(server, server.api("--redis", server.url))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(service.post, "matmul", SMALL, wait=50) for _ in range(4)]  # nobody works yet
        wait_for(lambda: server.ask("HLEN", "{blasd}:pending") >= 1)
        wait_for(lambda: len(service.request("GET", "/jobs?state=queued").json()["jobs"]) == 4)
        if how == "flushed":
            server.ask("FLUSHALL")
        elif how == "functions":
            server.ask("FUNCTION", "FLUSH")
        else:
            server.down()
            for file in (server.folder / "appendonlydir").iterdir():
                file.unlink()
            server.up()
        worker = server.worker("--redis", server.url)
        answers = [one.result() for one in waiting]
    for answer in answers:
        if how == "functions":  # which takes no job
            assert answer.status == 200 and answer.json()["state"] == "succeeded"
            continue
        problem = answer.json()
        assert answer.status == 503 and problem["code"] == "job_lost" and problem["retry"], problem
        assert "appendonly" in problem["advice"] and answer.headers["Retry-After"]
    assert ready_line(worker, 60)
    service.wait_ready()
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"


def test_a_worker_goes_on_over_an_emptied_redis(server):
    server.up()
    service = client(server, server.api("--redis", server.url))
    worker = server.worker("--redis", server.url)
    for empty in (("FLUSHALL",), ("FUNCTION", "FLUSH"), ("FLUSHALL",)):
        service.wait_ready()
        assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
        server.ask(*empty)
        wait_for(lambda: service.post("matmul", SMALL, wait=20).status == 200)
    assert worker.poll() is None
