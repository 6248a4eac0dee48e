"""Starting and stopping what is measured, and what its processes cost: processor time, memory, Redis commands."""
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time

TICK = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """Something could not be started; the text says why."""


class Server:
    """A program that prints `ready http://HOST:PORT`, or what else `ready` finds; it gets a session of its own and is ended
    with all it started."""

    def __init__(self, command, env=None, seconds=60, cwd=None, whole_env=None, ready=rb"ready https?://[^:\s]+:(\d+)"):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log", prefix="blasd-bench-")
        full = dict(os.environ if whole_env is None else whole_env, **(env or {}))
        self.process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=self.log,
                                        stdin=subprocess.DEVNULL, env=full, cwd=cwd, start_new_session=True)
        try:
            self.port = self._wait_ready(seconds, ready)
        except Failed:
            self.stop()
            raise

    def _wait_ready(self, seconds, ready):
        end, text = time.monotonic() + seconds, b""
        while time.monotonic() < end:
            readable, _, _ = select.select([self.process.stdout], [], [], 0.2)
            if readable:
                piece = os.read(self.process.stdout.fileno(), 65536)
                if not piece:
                    break
                text += piece
                match = re.search(ready, text)
                if match:
                    threading.Thread(target=self._drain, daemon=True).start()
                    return int(match.group(1)) if match.groups() else None
        raise Failed(f"{self.process.args[0]} did not get ready: {self.tail()}")

    def _drain(self):
        try:
            while os.read(self.process.stdout.fileno(), 65536):
                pass
        except (OSError, ValueError):
            pass

    def tail(self):
        self.log.flush()
        text = pathlib.Path(self.log.name).read_text(errors="replace") if os.path.exists(self.log.name) else ""
        return " | ".join(text.strip().split("\n")[-3:])

    def pids(self):
        return descendants(self.process.pid)

    def stop(self, seconds=15):
        started = descendants(self.process.pid)
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid, birth in started.items():  # what it left behind, and only that
            if born(pid) == birth:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
        self.process.stdout.close()
        self.log.close()


def start_redis(directory):
    """A redis-server as `blasd up` runs its own: unix socket, append-only file, no fsync by itself."""
    path = f"{directory}/r.sock"
    process = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", path, "--dir", directory, "--appendonly", "yes",
         "--appendfsync", "no", "--save", "", "--logfile", f"{directory}/redis.log"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    for _ in range(100):
        if os.path.exists(path):
            return process, path
        time.sleep(0.05)
    process.kill()
    raise Failed("redis-server did not start")


# --- /proc ----------------------------------------------------------------------------------------------------------


def _stat(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            text = file.read()
    except OSError:
        return None
    return text[text.rindex(")") + 2:].split()


def born(pid):
    fields = _stat(pid)
    return fields and fields[19]


def descendants(pid):
    """{pid: birth} of a process and all below it."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(name)
            if fields:
                parents[int(name)] = (int(fields[1]), fields[19])
    found = {pid: parents[pid][1]} if pid in parents else {}
    grown = True
    while grown:
        grown = False
        for child, (parent, birth) in parents.items():
            if parent in found and child not in found:
                found[child] = birth
                grown = True
    return found


def cpu_seconds(pid):
    """(user, system) of one process, its ended threads included."""
    fields = _stat(pid)
    return (int(fields[11]) / TICK, int(fields[12]) / TICK) if fields else (0.0, 0.0)


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def private_pss(pid):
    """Proportional memory of a process in bytes without its share of tmpfs, which is counted where it lies."""
    total = {}
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in ("Pss", "Pss_Shmem"):
                    total[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError):
        return 0
    return total.get("Pss", 0) - total.get("Pss_Shmem", 0)


def tree_bytes(directory):
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_blocks * 512
            except OSError:
                pass
    return total


class MemoryWatch:
    """The largest sum of processes' memory and tmpfs, looked at every `interval` seconds or as often as it can. A look
    holds up what the processes do with their memory, so beside a load that is timed it should be rare."""

    def __init__(self, pids, directory, interval=0.01):
        self.pids, self.directory, self.peak, self.samples, self.interval = pids, directory, 0, 0, interval
        self.peak_parts = {}
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.start_bytes = self._measure()[0]

    def _measure(self):
        parts = {"tmpfs": tree_bytes(self.directory) if self.directory else 0}
        for name, pid in self.pids:
            parts[name] = parts.get(name, 0) + private_pss(pid)
        return sum(parts.values()), parts

    def _run(self):
        while not self.ending.is_set():
            total, parts = self._measure()
            self.samples += 1
            if total > self.peak:
                self.peak, self.peak_parts = total, parts
            time.sleep(self.interval)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.thread.join()


# --- Redis ----------------------------------------------------------------------------------------------------------


def redis_info(socket_path, password=""):
    """{field: value} of INFO stats and commandstats, numbers where they are numbers."""
    answer = subprocess.run(["redis-cli", "-s", socket_path, "INFO", "all"], capture_output=True, text=True, timeout=10,
                            env={**os.environ, **({"REDISCLI_AUTH": password} if password else {})})
    info = {}
    for line in answer.stdout.split("\n"):
        name, colon, value = line.strip().partition(":")
        if not colon:
            continue
        if name.startswith("cmdstat_"):
            fields = dict(part.split("=") for part in value.split(","))
            info[name] = int(fields["calls"])
            info["usec_" + name[8:]] = int(fields["usec"])
        elif name in ("total_commands_processed", "total_reads_processed", "total_writes_processed"):
            info[name] = int(value)
    return info


def scratch(prefix="blasd-bench-"):
    return tempfile.mkdtemp(prefix=prefix)


def forget(directory):
    shutil.rmtree(directory, ignore_errors=True)
