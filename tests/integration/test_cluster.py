"""A Redis Cluster, Sentinel, replicas: the queue is found, and found again after a failover or when its slot is moved, while
jobs come; and what is acknowledged is on replicas where that is asked for (limit wait_replicas)."""
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time

import numpy as np
import pytest
from service import BLASD, wait_for
from test_redis import SECRET, SMALL, Server, client, least_rights, refusal
from test_redis_tls import has_tls
from test_tls import Authority

JSON = {"Content-Type": "application/json"}


def free_ports(count):
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture
def make(tmp_path):
    """make(NAME) gives a Server, which is ended with the test."""
    with contextlib.ExitStack() as all_of_them:
        def one(name):
            server = Server(tmp_path / name)
            all_of_them.callback(server.close)
            return server
        yield one


class Cluster:
    """Masters that share the slots, each with as many replicas; `home` is where api and workers belong."""

    def __init__(self, make, masters=3, replicas=0, node_timeout_ms=15000, more=(), full_coverage="yes"):
        count = masters * (1 + replicas)
        self.ports, buses = free_ports(count), free_ports(count)
        self.home, self.nodes = make("home"), [make(f"node{i}") for i in range(count)]
        for node, port, bus in zip(self.nodes, self.ports, buses):
            node.port = port
            node.options = ("--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", str(bus),
                            "--cluster-node-timeout", str(node_timeout_ms), "--cluster-replica-validity-factor", "0",
                            "--cluster-require-full-coverage", full_coverage, *more)
            if more:
                node.options = ("--tls-port", *node.options[1:])
            node.up(*node.options)
            node.id = node.ask("CLUSTER", "MYID").decode()
        for i, node in enumerate(self.nodes[:masters]):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            node.ask("CLUSTER", "ADDSLOTSRANGE", 16384 * i // masters, 16384 * (i + 1) // masters - 1)
        for port, bus in list(zip(self.ports, buses))[1:]:
            self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", port, bus)
        wait_for(lambda: all((text := node.ask("CLUSTER", "NODES")).count(b"connected") == count and b"disconnected" not in text
                             for node in self.nodes))
        for i, node in enumerate(self.nodes[masters:]):
            master = self.nodes[i % masters]
            wait_for(lambda: master.id.encode() in node.ask("CLUSTER", "NODES"))
            node.ask("CLUSTER", "REPLICATE", master.id)
        wait_for(lambda: all(b"cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in self.nodes))
        wait_for(lambda: all(b"master_link_status:down" not in node.ask("INFO") for node in self.nodes))
        self.slot = self.nodes[0].ask("CLUSTER", "KEYSLOT", "{blasd}")
        self.url = "redis://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def alive(self):
        return [node for node in self.nodes if node.redis.poll() is None]

    def owner(self):
        """Of the queue's slot, as all nodes see it that live; None while they disagree."""
        said = set()
        for node in self.alive():
            for first, last, master, *_ in node.ask("CLUSTER", "SLOTS"):
                if first <= self.slot <= last:
                    said.add(master[2])
        found = [node for node in self.alive() if said == {node.id.encode()}]
        return found[0] if found else None

    def move(self, target=None):
        """The queue's slot to that master, or to another one; returns it."""
        source = wait_for(self.owner)
        target = target or next(node for node in self.alive() if node is not source and node.ask("ROLE")[0] == b"master")
        target.ask("CLUSTER", "SETSLOT", self.slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", self.slot, "MIGRATING", target.id)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, 100):
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 10000, "KEYS", *keys)
        for node in (target, source, *self.alive()):
            if node.ask("ROLE")[0] == b"master":
                node.ask("CLUSTER", "SETSLOT", self.slot, "NODE", target.id)
        return target


class Load:
    """Clients that send jobs with keys, each until it is acknowledged."""

    def __init__(self, service, home, threads=4):
        self.service, self.home, self.acked, self.wrong, self.stopping = service, home, {}, [], False
        self.threads = [threading.Thread(target=self.send, args=(n,)) for n in range(threads)]
        for thread in self.threads:
            thread.start()

    def send(self, n):
        i = 0
        while not self.stopping:
            key, body = f"{n}-{i}", json.dumps({"op": "matmul", "inputs": {"a": [[float(i)]], "b": [[2.0]]}})
            while True:  # also when it is to stop: what was sent once is to be acknowledged
                with contextlib.suppress(OSError, http.client.HTTPException):
                    answer = self.service.request("POST", "/jobs", body, {**JSON, "Idempotency-Key": key})
                    if answer.status in (200, 202):  # 200: it was taken before, and has ended
                        break
                    if answer.status not in (429, 503):
                        self.wrong.append(answer.body)
                        return
                time.sleep(0.02)
            self.acked[key] = (answer.json()["id"], 2.0 * i)
            i += 1

    def more(self, count):
        """Waits until so many more jobs have been acknowledged."""
        most = len(self.acked) + count
        wait_for(lambda: self.wrong or len(self.acked) >= most)

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join(120)
        assert not self.wrong, self.wrong

    def check(self, redis):
        """Every acknowledged job has ended once and right, and there have been no others."""
        for key, (job, value) in self.acked.items():
            try:
                answer = wait_for(lambda: self.done(job))
            except AssertionError:
                undone = [one for one, _ in self.acked.values() if self.done(one) is None]
                raise AssertionError(f"{len(undone)} of {len(self.acked)} have not ended: {self.service.request('GET', f'/jobs/{job}').body}; "
                                     f"workers: {redis.ask('HGETALL', '{blasd}:workers')}; log:\n{self.home.log_text()}") from None
            assert answer.status == 200, (key, job, answer.body)
            document = answer.json()
            assert document["state"] == "succeeded" and document["outputs"]["c"]["data"] == [[value]], document
        for what in ("submitted", "succeeded"):
            assert int(redis.ask("HGET", "{blasd}:state", f"matmul {what}")) == len(self.acked), what

    def done(self, job):
        answer = self.service.request("GET", f"/jobs/{job}")
        return None if answer.status == 503 or answer.json().get("state") in ("queued", "running") else answer


def begin(home, url, *options, env=None):
    """Front end and worker; they stay the same processes to the end."""
    api = home.api(*(["--redis", url] if url else []), *options, env=env)
    service = client(home, api)
    worker = home.worker(*(["--redis", url] if url else []), "--measured", "none", *options, env=env)
    service.wait_ready()
    return service, (api, worker)


def test_jobs_flow_on_a_cluster_for_a_user_with_the_least_rights(make):
    """From any one of its addresses, or all; each part of the service, small jobs, blobs, waits."""
    cluster = Cluster(make)
    words = [f">{SECRET}" if word == ">PASSWORD" else word for word in least_rights()]
    for node in cluster.nodes:
        assert node.ask(*words) == b"OK"
    urls = [f"redis://blasd:{SECRET}@127.0.0.1:{port}" for port in cluster.ports]
    urls.append(cluster.url.replace("redis://", f"redis://blasd:{SECRET}@"))
    for n, url in enumerate(urls):
        service, processes = begin(cluster.home, None, "--limit", "inline_bytes=1000", env={"BLASD_REDIS": url})
        assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
        if n == len(urls) - 1:
            large = {"a": np.ones((300, 300)), "b": np.eye(300)}
            assert service.post("matmul", large, wait=60, form="safetensors").json()["state"] == "succeeded"
        for process in processes:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    owner = cluster.owner()
    assert owner.ask("HGET", "{blasd}:state", "matmul succeeded") == b"5"
    assert all(node is owner or node.ask("DBSIZE") == 0 for node in cluster.nodes)
    assert "NOPERM" not in cluster.home.log_text() and SECRET not in cluster.home.log_text()


@pytest.mark.skipif(not has_tls(), reason="this build's hiredis has no TLS")
def test_a_cluster_over_tls_that_tells_names(make, tmp_path):
    """It announces host names, for which its certificate is valid; and the slot is moved."""
    authority = Authority(tmp_path, "ours")
    cert, key = authority.sign("redis", usage="serverAuth,clientAuth")
    cluster = Cluster(make, more=("--tls-cluster", "yes", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file",
                                  authority.cert, "--tls-auth-clients", "no", "--tls-replication", "yes", "--cluster-announce-hostname",
                                  "localhost", "--cluster-preferred-endpoint-type", "hostname"))
    url = "rediss://" + ",".join(f"127.0.0.1:{port}" for port in cluster.ports)
    service, processes = begin(cluster.home, url, env={"BLASD_REDIS_CA": str(authority.cert)})
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    cluster.move()
    wait_for(lambda: service.request("GET", "/health/ready").status == 200)
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    assert all(process.poll() is None for process in processes)


def test_the_slot_is_moved_under_load(make):
    cluster = Cluster(make)
    service, processes = begin(cluster.home, cluster.url)
    load = Load(service, cluster.home)
    for _ in range(3):
        load.more(60)
        target = cluster.move()
        load.more(60)
        assert wait_for(cluster.owner) is target
    load.stop()
    load.check(target)
    assert all(process.poll() is None for process in processes)
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"  # the end is heard, too


def test_a_master_is_killed_under_load_and_what_was_acknowledged_is_there(make):
    cluster = Cluster(make, replicas=1, node_timeout_ms=3000)
    service, processes = begin(cluster.home, cluster.url, "--limit", "wait_replicas=1")
    load = Load(service, cluster.home)
    load.more(100)
    old = wait_for(cluster.owner)
    old.down()
    new = wait_for(cluster.owner)
    assert new is not old
    # its own replica is gone: it can acknowledge nothing until there is one
    wait_for(lambda: "wait_replicas" in (refusal(service) or {"detail": ""})["detail"])
    old.up(*old.options)
    load.more(100)
    load.stop()
    load.check(wait_for(cluster.owner))
    assert all(process.poll() is None for process in processes)
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"


def start_sentinel(make, name, port, master_port, password):
    sentinel = make(name)
    conf = sentinel.folder / "sentinel.conf"
    conf.write_text(f"port {port}\nbind 127.0.0.1\ndir {sentinel.folder}\n"
                    f"sentinel monitor jobs 127.0.0.1 {master_port} 2\nsentinel auth-pass jobs {password}\n"
                    "sentinel down-after-milliseconds jobs 2000\nsentinel failover-timeout jobs 10000\n"
                    f"unixsocket {sentinel.socket}\n")
    sentinel.redis = sentinel.start(["redis-server", conf, "--sentinel"])
    wait_for(lambda: b"PONG" in sentinel.ping())
    return sentinel


def test_a_failover_by_sentinel_under_load(make):
    ports = free_ports(5)
    home, servers = make("home"), [make("a"), make("b"), make("c")]
    secret = ("--requirepass", SECRET, "--masterauth", SECRET, "--bind", "127.0.0.1")
    servers[0].up("--port", str(ports[0]), *secret)
    extra = free_ports(2)
    for server, port in zip(servers[1:], extra):
        server.up("--port", str(port), *secret, "--replicaof", "127.0.0.1", str(ports[0]))
    by_port = dict(zip([ports[0], *extra], servers))
    sentinels = [start_sentinel(make, f"s{n}", ports[2 + n], ports[0], SECRET) for n in range(3)]

    def known(sentinel):
        words = sentinel.ask("SENTINEL", "MASTER", "jobs")
        state = dict(zip(words[::2], words[1::2]))
        return state[b"num-slaves"] == b"2" and state[b"num-other-sentinels"] == b"2"
    wait_for(lambda: all(known(sentinel) for sentinel in sentinels))
    url = f"redis+sentinel://:{SECRET}@" + ",".join(f"127.0.0.1:{port}" for port in ports[2:]) + "/jobs"
    service, processes = begin(home, None, "--limit", "wait_replicas=1", env={"BLASD_REDIS": url})
    load = Load(service, home)
    load.more(100)
    sentinels[0].down()  # and one of them with it
    servers[0].down()
    load.more(100)
    load.stop()
    said = {tuple(sentinel.ask("SENTINEL", "get-master-addr-by-name", "jobs")) for sentinel in sentinels[1:]}
    assert len(said) == 1
    master = by_port[int(said.pop()[1])]
    assert master is not servers[0]

    class Hand:
        @staticmethod
        def ask(*words):
            return master.ask(*words, password=SECRET)
    load.check(Hand)
    assert all(process.poll() is None for process in processes)
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    assert SECRET not in home.log_text()


def test_sentinels_that_know_no_such_master(make):
    port, master = free_ports(2)
    home = make("home")
    start_sentinel(make, "sentinel", port, master, "any")
    home.api("--redis", f"redis+sentinel://127.0.0.1:{port}/others")
    wait_for(lambda: "knows no master by the name of others" in home.log_text())


def test_of_plain_replicas_the_master_is_found(make):
    """Addresses of which any leads to a server: the ones that are away, or replicas, are passed over."""
    gone, first, second = free_ports(3)
    home, one, other = make("home"), make("one"), make("other")
    one.up("--port", str(first), "--bind", "127.0.0.1")
    other.up("--port", str(second), "--bind", "127.0.0.1", "--replicaof", "127.0.0.1", str(first))
    service, processes = begin(home, f"redis://127.0.0.1:{gone},127.0.0.1:{second},127.0.0.1:{first}")
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    wait_for(lambda: other.ask("HGET", "{blasd}:state", "matmul succeeded") == b"1")
    one.down()
    other.ask("REPLICAOF", "NO", "ONE")
    wait_for(lambda: service.request("GET", "/health/ready").status == 200)
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    assert all(process.poll() is None for process in processes)


def test_what_replicas_have_not_is_not_acknowledged(make):
    """wait_replicas: 503 while they do not answer, and nothing lost or doubled by that."""
    (port,) = free_ports(1)
    home, master, replica = make("home"), make("master"), make("replica")
    master.up("--port", str(port), "--bind", "127.0.0.1")
    replica.up("--replicaof", "127.0.0.1", str(port))
    wait_for(lambda: b"state=online" in master.ask("INFO"))
    service, _ = begin(home, master.url, "--limit", "wait_replicas=1", "--limit", "wait_replicas_ms=200")
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    body = json.dumps({"op": "matmul", "inputs": {"a": [[1.0]], "b": [[2.0]]}})

    def post(key):
        return service.request("POST", "/jobs", body, {**JSON, "Idempotency-Key": key})
    os.kill(replica.redis.pid, signal.SIGSTOP)
    refused = post("one")
    assert refused.status == 503 and refused.json()["code"] == "queue_unavailable" and refused.headers["Retry-After"]
    assert "wait_replicas" in refused.json()["detail"], refused.body
    wait_for(lambda: "wait_replicas" in (refusal(service) or {"detail": ""})["detail"])
    tensor = service.request("POST", "/tensors", "[[1,2],[3,4]]", JSON)
    assert tensor.status == 503, tensor.body
    os.kill(replica.redis.pid, signal.SIGCONT)
    service.wait_ready()
    job = wait_for(lambda: (answer := post("one")).status in (200, 202) and answer).json()["id"]
    wait_for(lambda: service.request("GET", f"/jobs/{job}").json()["state"] == "succeeded")
    assert post("one").json()["id"] == job
    assert replica.ask("HGET", "{blasd}:state", "matmul submitted") == b"2"


class Gate:
    """A way to a server on which, once it is shut, nothing gets through and nothing is closed."""

    def __init__(self, port):
        self.to, self.open, self.sockets = port, threading.Event(), []
        self.open.set()
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = self.door.getsockname()[1]
        threading.Thread(target=self.let_in, daemon=True).start()

    def let_in(self):
        with contextlib.suppress(OSError):
            while True:
                ours = self.door.accept()[0]
                self.sockets += (ours, theirs := socket.create_connection(("127.0.0.1", self.to)))
                for way in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=self.carry, args=way, daemon=True).start()

    def carry(self, one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                self.open.wait()
                other.sendall(data)

    def close(self):
        for one in (self.door, *self.sockets):
            one.close()


def test_a_replica_that_lacks_the_end_of_a_job_takes_over(make):
    """What the worker has ended, as it heard, has not ended there: it runs again, though that worker lives."""
    first, second = free_ports(2)
    home, one, other = make("home"), make("one"), make("other")
    one.up("--port", str(first), "--bind", "127.0.0.1")
    with contextlib.closing(Gate(first)) as gate:
        other.up("--port", str(second), "--bind", "127.0.0.1", "--replicaof", "127.0.0.1", str(gate.port))
        wait_for(lambda: b"state=online" in one.ask("INFO"))
        service, processes = begin(home, f"redis://127.0.0.1:{first},127.0.0.1:{second}", "--limit", "lease_ms=60000")
        assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
        wait_for(lambda: one.ask("HGET", "{blasd}:state", "idle"))
        os.kill(processes[1].pid, signal.SIGSTOP)
        job = service.post("matmul", SMALL, wait=0).json()["id"]
        (worker,) = one.ask("HKEYS", "{blasd}:workers")
        claims = b"{blasd}:claims:" + worker
        wait_for(lambda: any(job.startswith(name.decode()) for name in one.ask("HKEYS", claims)))
        wait_for(lambda: one.ask("HGETALL", claims) == other.ask("HGETALL", claims) and other.ask("HLEN", "{blasd}:pending") == 2)
        gate.open.clear()
        os.kill(processes[1].pid, signal.SIGCONT)
        wait_for(lambda: service.request("GET", f"/jobs/{job}").json()["state"] == "succeeded")
        one.down()
        assert other.ask("HLEN", "{blasd}:pending") == 2
        other.ask("REPLICAOF", "NO", "ONE")
        wait_for(lambda: service.request("GET", f"/jobs/{job}").json().get("state") == "succeeded", "it ends again")
    assert other.ask("HLEN", "{blasd}:pending") == 0
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    assert all(process.poll() is None for process in processes)


def test_a_replica_that_lacks_the_last_things_takes_over(make, tmp_path):
    """Each line of the table in docs/reliability.md of what becomes of what a replica has not read, but for the end of a job."""
    first, second = free_ports(2)
    home, one, other = make("home"), make("one"), make("other")
    one.up("--port", str(first), "--bind", "127.0.0.1")
    told = lambda redis: [entry[1][1].decode() for entry in redis.ask("XRANGE", "{blasd}:ended", "-", "+")]  # noqa: E731
    with contextlib.closing(Gate(first)) as gate, contextlib.ExitStack() as ends:
        other.up("--port", str(second), "--bind", "127.0.0.1", "--replicaof", "127.0.0.1", str(gate.port))
        wait_for(lambda: b"state=online" in one.ask("INFO"))
        url = f"redis://127.0.0.1:{second},127.0.0.1:{first}"  # what is to write passes over the first one
        service, processes = begin(home, url, "--limit", "lease_ms=60000", "--limit", "ended_jobs=100")
        ask = lambda method, path, body=None: service.request(method, path, body, JSON)  # noqa: E731
        state = lambda job: ask("GET", f"/jobs/{job}").json().get("state")  # noqa: E731
        forgotten = service.post("matmul", SMALL, wait=0).json()["id"]
        wait_for(lambda: state(forgotten) == "succeeded")
        tensor = ask("POST", "/tensors?life_s=100", "[[1,2],[3,4]]").json()
        os.kill(processes[1].pid, signal.SIGSTOP)
        again, cancelled = (service.post("matmul", SMALL, wait=0).json()["id"] for _ in range(2))
        wait_for(lambda: other.ask("HLEN", "{blasd}:pending") == 4)
        wait_for(lambda: one.ask("LLEN", "{blasd}:wake:" + one.ask("HKEYS", "{blasd}:workers")[0].decode()) ==
                 other.ask("LLEN", "{blasd}:wake:" + other.ask("HKEYS", "{blasd}:workers")[0].decode()))
        gate.open.clear()
        assert ask("DELETE", f"/jobs/{cancelled}").json()["state"] == "cancelled"
        assert ask("DELETE", f"/jobs/{forgotten}?forget=1").status == 200 and ask("GET", f"/jobs/{forgotten}").status == 404
        longer = ask("PATCH", f"/tensors/{tensor['id']}", '{"life_s":5000}').json()
        assert longer["expires_at"] > tensor["expires_at"]
        os.kill(processes[1].pid, signal.SIGCONT)
        wait_for(lambda: again in told(one))
        os.kill(processes[1].pid, signal.SIGSTOP)
        lost, put = service.post("matmul", SMALL, wait=0), ask("POST", "/tensors", "[[5,6],[7,8]]")
        assert lost.status == 202 and put.status == 201
        answers = []
        waiter = threading.Thread(target=lambda: answers.append(service.post("matmul", SMALL, wait=50)))
        waiter.start()
        wait_for(lambda: one.ask("HLEN", "{blasd}:pending") == 4)
        one.down()
        other.ask("REPLICAOF", "NO", "ONE")
        os.kill(processes[1].pid, signal.SIGCONT)
        for job in (again, cancelled):
            wait_for(lambda: state(job) == "succeeded", "it runs, again or after all")  # noqa: B023
        waiter.join()
        assert answers[0].status == 503 and answers[0].json()["code"] == "job_lost", answers[0].body
        assert ask("GET", f"/jobs/{lost.json()['id']}").status == 404
        assert ask("GET", f"/tensors/{put.json()['id']}").json()["code"] == "tensor_expired"
        assert state(forgotten) == "succeeded"
        assert ask("GET", f"/tensors/{tensor['id']}").json()["expires_at"] < longer["expires_at"]
        wait_for(lambda: sorted(told(other)) == sorted((forgotten, again, cancelled)), "the replica had not read their first ends")
    assert all(process.poll() is None for process in processes)
