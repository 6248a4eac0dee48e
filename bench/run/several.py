"""The service on a Redis Cluster of three masters, with one queue and with three, a queue on each. Each has a cluster of its own."""
import pathlib
import socket
import subprocess
import time

import processes
import subjects as s

MASTERS = 3


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


class Masters:
    """Three servers in cluster mode, files as `blasd up` has its own Redis keep them."""

    def __init__(self):
        self.folder = pathlib.Path(processes.scratch())
        self.servers, self.ports, buses = [], free_ports(MASTERS), free_ports(MASTERS)
        try:
            for n, (port, bus) in enumerate(zip(self.ports, buses)):
                (self.folder / str(n)).mkdir()
                self.servers.append(subprocess.Popen(
                    ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", self.socket(n), "--dir", self.folder / str(n),
                     "--appendonly", "yes", "--appendfsync", "no", "--save", "", "--cluster-enabled", "yes", "--cluster-port", str(bus)],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True))
            for n in range(MASTERS):
                self.until(lambda: "PONG" in self.ask(n, "PING"))
                self.ask(n, "CLUSTER", "SET-CONFIG-EPOCH", str(n + 1))
            slots = [int(self.ask(0, "CLUSTER", "KEYSLOT", tag)) for tag in ("{blasd:1}", "{blasd:2}")]
            for n, slot in enumerate(slots):
                self.ask(n + 1, "CLUSTER", "ADDSLOTS", str(slot))
            ends = sorted([-1, *slots, 16384])
            self.ask(0, "CLUSTER", "ADDSLOTSRANGE", *(str(at) for a, b in zip(ends, ends[1:]) if b - a > 1 for at in (a + 1, b - 1)))
            for port, bus in list(zip(self.ports, buses))[1:]:
                self.ask(0, "CLUSTER", "MEET", "127.0.0.1", str(port), str(bus))
            for n in range(MASTERS):
                self.until(lambda: "cluster_state:ok" in self.ask(n, "CLUSTER", "INFO"))
        except BaseException:
            self.stop()
            raise
        self.url = "redis://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def socket(self, n):
        return str(self.folder / str(n) / "r.sock")

    def ask(self, n, *words):
        return subprocess.run(["redis-cli", "-s", self.socket(n), *words], capture_output=True, text=True, timeout=10).stdout.strip()

    @staticmethod
    def until(what):
        end = time.monotonic() + 30
        while not what():
            if time.monotonic() > end:
                raise processes.Failed("the cluster of redis-servers did not get ready")
            time.sleep(0.05)

    def stop(self):
        for server in self.servers:
            server.kill()
            server.wait()
        processes.forget(self.folder)


class BlasdCluster(s.Blasd):
    """Front end and workers of `blasd up` with the Redis of others."""

    def __init__(self, build, queues):
        super().__init__(build)
        self.queues, self.masters = queues, None
        self.name = f"blasd-queues-{queues}"

    def start(self):
        self.masters = Masters()
        self.options = ("--redis", self.masters.url, "--queues", str(self.queues))
        super().start()
        self.roles += [("redis-server", server.pid) for server in self.masters.servers]

    def stop(self):
        super().stop()
        if self.masters:
            self.masters.stop()

    def redis(self):
        total = {}
        for n in range(MASTERS):
            for name, value in processes.redis_info(self.masters.socket(n)).items():
                total[name] = total.get(name, 0) + value
        return total
