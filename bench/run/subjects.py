"""What is measured: the service and its peers. Each starts real processes, and words a payload as its own request.

A subject's `request(payload)` gives one entry of the load generator's `requests`, or None where it cannot serve it.
"""
import contextlib
import io
import json
import os
import pathlib
import time
import urllib.request

import numpy as np
import processes

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PEERS = ROOT / "bench" / "peers"


class Subject:
    name = ""
    server = None

    def __init__(self, build):
        self.build = pathlib.Path(build)

    def start(self):
        raise NotImplementedError

    def stop(self):
        if self.server:
            self.server.stop()
            self.server = None

    @property
    def port(self):
        return self.server.port

    def pids(self):
        """[(layer, pid)] of everything that works for it."""
        return [(self.name, pid) for pid in self.server.pids()]

    def cpu(self):
        total = {}
        for layer, pid in self.pids():
            user, system = processes.cpu_seconds(pid)
            old = total.get(layer, (0.0, 0.0))
            total[layer] = (old[0] + user, old[1] + system)
        return total

    def redis(self):
        return {}

    @contextlib.contextmanager
    def beside(self):
        """Something goes on while it is driven. Gives a function that says, once that is over, what came of it."""
        yield dict

    poll = None  # how submitted jobs are asked for, where it has jobs


class Blasd(Subject):
    name = "blasd"
    poll = {"ended": '"state":"succeeded"', "failed": '"state":"failed"'}

    def __init__(self, build, *options, env=None):
        """`env`: the whole environment, where it is not this process' own."""
        super().__init__(build)
        self.options, self.blobs, self.env = options, "", env

    def start(self):
        self.data = processes.scratch()
        self.server = processes.Server([self.build / "blasd", "up", "--listen", "127.0.0.1:0", "--data", self.data,
                                        "--log-level", "warn", *self.options], whole_env=self.env)
        self.roles = []
        for pid in self.server.pids():
            command = processes.command_of(pid)
            role = next((r for r in ("redis-server", "blasd api", "blasd worker") if r in command), "blasd up")
            self.roles.append((role, pid))
        for role, pid in self.roles:  # the private Redis' socket and the blob store, from what the parts were told
            if role == "blasd api":
                env = dict(part.split("=", 1) for part in
                           pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0") if "=" in part)
                login, _, self.socket = env.get("BLASD_REDIS", "").replace("unix:", "").rpartition("@")
                self.password = login.rpartition(":")[2]
                self.blobs = env.get("BLASD_BLOBS", "").replace("dir:", "")

    def stop(self):
        super().stop()
        processes.forget(self.data)
        if self.blobs:  # it outlives the service on purpose; this one's data directory is gone
            processes.forget(self.blobs)
        self.blobs = ""

    def pids(self):
        return self.roles

    def redis(self):
        return processes.redis_info(self.socket, self.password)

    def request(self, payload):
        return payload.for_blasd()


class BlasdKept(Blasd):
    """It keeps the left factor of each product; jobs refer to it."""
    name = "blasd-kept"

    def start(self):
        super().start()
        self.kept = {}

    def request(self, payload):
        if payload.name not in self.kept:
            file = io.BytesIO()
            np.save(file, payload.inputs["a"])
            question = urllib.request.Request(f"http://127.0.0.1:{self.port}/tensors", file.getvalue(),
                                              {"Content-Type": "application/x-npy"})
            with urllib.request.urlopen(question, timeout=60) as answer:
                self.kept[payload.name] = json.load(answer)["id"]
        return payload.referring({"a": self.kept[payload.name]}).for_blasd()


class BlasdKeys(Blasd):
    """Behind keys: each request shows one."""
    name = "blasd-keys"

    def start(self):
        self.folder = pathlib.Path(processes.scratch())
        file = self.folder / "keys.json"
        made = processes.subprocess.run([self.build / "blasd", "keys", "add", "bench", "--file", file], check=True,
                                        capture_output=True, text=True)
        self.headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
        self.options = ("--keys", file)
        super().start()

    def stop(self):
        super().stop()
        processes.forget(self.folder)

    def request(self, payload):
        entry = payload.for_blasd()
        return dict(entry, headers={**entry.get("headers", {}), **self.headers})


class BlasdTls(Blasd):
    """With TLS, on connections that are kept."""
    name = "blasd-tls"

    def start(self):
        self.folder = pathlib.Path(processes.scratch())
        cert, key = self.folder / "cert.pem", self.folder / "key.pem"
        processes.subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                                  "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", cert], check=True,
                                 capture_output=True)
        self.options = ("--tls-cert", cert, "--tls-key", key)
        super().start()

    def stop(self):
        super().stop()
        processes.forget(self.folder)


class PlainC(Subject):
    """libmicrohttpd with the computation in the handler, no queue."""
    name = "plain-c"

    def __init__(self, build, loops=2, blas_threads=1):
        super().__init__(build)
        self.loops, self.blas_threads = loops, blas_threads

    def start(self):
        self.server = processes.Server([self.build / "bench" / "peer_mhd", "--loops", self.loops,
                                        "--blas-threads", self.blas_threads])

    def request(self, payload):
        return payload.for_plain_c()


class FastApi(Subject):
    def __init__(self, build, processes_=1, json="orjson", blas_threads=1):
        super().__init__(build)
        self.count, self.json, self.blas_threads = processes_, json, blas_threads
        self.name = "fastapi" + ("-2" if processes_ == 2 else "") + ("-stdlib" if json == "stdlib" else "")

    def start(self):
        python = self.build / "bench-venv" / "bin" / "python"
        if not python.exists():
            raise processes.Failed("its virtual environment could not be made")
        self.server = processes.Server([python, PEERS / "peer_fastapi.py", "--processes", self.count, "--json", self.json],
                                       env={"OPENBLAS_NUM_THREADS": str(self.blas_threads)})

    def request(self, payload):
        return payload.for_fastapi()


class Celery(Subject):
    """FastAPI, Redis and a Celery worker (solo pool): submit and poll."""
    name = "celery"
    poll = {"ended": '"state":"succeeded"', "failed": '"state":"failed"'}

    def __init__(self, build, processes_=1):
        super().__init__(build)
        self.count = processes_

    def start(self):
        bin_dir = self.build / "bench-venv" / "bin"
        if not bin_dir.exists():
            raise processes.Failed("its virtual environment could not be made")
        self.data = processes.scratch()
        self.redis_server, self.socket = processes.start_redis(self.data)
        self.worker = None
        env = {"BENCH_BROKER": f"redis+socket://{self.socket}", "BENCH_BACKEND": f"redis+socket://{self.socket}?virtual_host=1",
               "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(PEERS)}
        try:
            self.worker = processes.subprocess.Popen(
                [str(bin_dir / "celery"), "-A", "peer_celery_tasks", "worker", "--pool", "solo", "--without-gossip",
                 "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"],
                env=dict(os.environ, **env), cwd=self.data, stdout=processes.subprocess.DEVNULL,
                stderr=processes.subprocess.DEVNULL, start_new_session=True)
            self.server = processes.Server([bin_dir / "python", PEERS / "peer_celery_api.py", "--processes", self.count], env=env)
        except BaseException:
            self.stop()
            raise
        time.sleep(2)  # the worker says nothing when it is ready; the first run is a warm-up in any case

    def stop(self):
        super().stop()
        for process in (self.worker, self.redis_server):
            if process:
                process.terminate()
                try:
                    process.wait(10)
                except processes.subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        processes.forget(self.data)

    def pids(self):
        return [("fastapi", pid) for pid in self.server.pids()] + [("celery worker", self.worker.pid),
                                                                   ("redis-server", self.redis_server.pid)]

    def redis(self):
        return processes.redis_info(self.socket)

    def request(self, payload):
        return payload.for_celery()


class Triton(Subject):
    name = "triton"

    def __init__(self, build, blas_threads=1):
        super().__init__(build)
        self.blas_threads = blas_threads

    def start(self):
        python = self.build / "bench-venv-triton" / "bin" / "python"
        if not python.exists():
            raise processes.Failed("nvidia-pytriton could not be installed")
        self.server = processes.Server([python, PEERS / "peer_triton.py"], seconds=90,
                                       env={"OPENBLAS_NUM_THREADS": str(self.blas_threads)})

    def request(self, payload):
        return payload.for_triton()


class Direct:
    """The library's function in a process of its own: no server, one number. Or another program that takes the like."""
    name = "direct"

    def __init__(self, build, n, threads=2, dtype="float32", program=("direct_blas",)):
        self.command = [str(pathlib.Path(build) / "bench" / program[0]), str(n), *map(str, program[1:])]
        self.threads, self.dtype = threads, dtype

    def start(self):
        pass

    def stop(self):
        pass
