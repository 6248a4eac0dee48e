"""What a chaos run does to a service: each fault is begun, lasts, and is repaired; the service must do the rest.

Weights say how often each comes. Lossy ones take what Redis held with it, by definition: after them an honest "there is no such
job" is right, and they come in a part of the run of their own.
"""
import contextlib
import mmap
import os
import pathlib
import signal
import struct
import subprocess
import time

from service import BLASD, Redis, children, command_line

MIB = 1 << 20
HOUR = 3600


def pids(service):
    """{pid: part} of what lives below the supervisor."""
    found = {}
    for pid in children(service.process.pid):
        line = command_line(pid)
        for part in ("redis-server", "blasd api", "blasd worker"):
            if line.startswith(part):
                found[pid] = part
    return found


def stands_still(pid):
    """Whether a process that was sent SIGSTOP has come to a stop, and is there."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()[0]
        except OSError:
            return False
        if state in "TZX":
            return state == "T"
        time.sleep(0.001)
    raise AssertionError(f"process {pid} does not stop")


class Clock:
    """Of a redis-server that is started with `environment`: it can be moved (tests/unit/queue/redis_clock.c)."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "clock"
        self.path.write_bytes(bytes(8))
        with open(self.path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 8)
        self.ahead = 0

    def environment(self):
        library = BLASD.parent / "tests/unit/queue/redis_clock.so"
        return {"LD_PRELOAD": str(library), "BLASD_TEST_CLOCK": str(self.path)} if library.exists() else {}

    def move(self, seconds):
        self.set(min(max(self.ahead + seconds, 0), 20 * HOUR))  # results are kept for longer than that

    def set(self, seconds):
        self.ahead = seconds
        self.map[:] = struct.pack("<q", int(self.ahead * 1e6))


class Disk:
    """A small file system at the data directory, which somebody else can fill; None where nothing may be mounted."""

    @classmethod
    def mount(cls, service, mib):
        at = service.folder / "data"
        at.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "blasd-test", at],
                              capture_output=True, check=False)
        return cls(at) if done.returncode == 0 else None

    def __init__(self, at):
        self.at, self.path = at, at / "somebody-elses"

    def fill(self):
        with open(self.path, "ab", buffering=0) as file:
            for size in (MIB, 4096, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * size) == size:
                        pass

    def empty(self):
        self.path.unlink(missing_ok=True)

    def unmount(self):
        subprocess.run(["umount", "-l", self.at], capture_output=True, check=False)


class Faults:
    def __init__(self, service, rng, note, clock, disk):
        self.service, self.rng, self.note, self.clock, self.disk = service, rng, note, clock, disk
        self.kills = 0
        self.weights = {"kill-worker": 8, "kill-api": 5, "kill-redis": 5, "kill-many": 3, "kill-all": 1, "stop-worker": 2,
                        "stop-api": 1, "stop-redis": 2, "stop-all": 1, "torn-file": 1}
        if clock.environment():
            self.weights["move-clock"] = 2
        if disk is not None:
            self.weights["full-disk"] = 1
        self.lossy = {"flush": 2, "functions": 1, "cut-file": 2}

    def one(self, kinds=None, lossy=False):
        """Does one of them; whatever it needs to go on afterwards has been done when this returns."""
        weights = {kind: weight for kind, weight in (self.lossy if lossy else self.weights).items()
                   if not kinds or kind in kinds}
        kind = self.rng.choices(list(weights), list(weights.values()))[0]
        before = self.kills
        self.note("fault", kind=kind, lossy=lossy)
        getattr(self, kind.replace("-", "_"))()
        self.note("repaired", kind=kind, lossy=lossy, kills=self.kills - before)
        return kind

    def send(self, signum, *parts, most=99):
        """To `most` of those parts, by chance; -> the pids."""
        there = [pid for pid, part in pids(self.service).items() if part in parts]
        self.rng.shuffle(there)
        sent = []
        for pid in there[:most]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)
                sent.append(pid)
        if signum == signal.SIGKILL:
            self.kills += len(sent)
        return sent

    ALL = ("redis-server", "blasd api", "blasd worker")

    def kill_worker(self):
        self.send(signal.SIGKILL, "blasd worker", most=1)

    def kill_api(self):
        self.send(signal.SIGKILL, "blasd api")

    def kill_redis(self):
        self.send(signal.SIGKILL, "redis-server")

    def kill_many(self):
        self.send(signal.SIGKILL, *self.ALL, most=self.rng.randrange(2, 8))

    def kill_all(self):
        """The supervisor, with which all its children go, and a new one over the same directory."""
        self.kills += 1 + len(pids(self.service))
        self.down()
        self.up()

    def down(self):
        parts = children(self.service.process.pid)
        self.service.process.kill()
        self.service.stop(check=False)
        end = time.monotonic() + 20
        while any(command_line(pid) for pid in parts):
            assert time.monotonic() < end, "children outlive their supervisor"
            time.sleep(0.01)

    def up(self):
        self.service.start(f"127.0.0.1:{self.service.port}", timeout=120)

    def stop(self, *parts, most=99):
        """For less than silence_s, and often for more than a lease."""
        stopped = self.send(signal.SIGSTOP, *parts, most=most)
        time.sleep(self.rng.choice([0.05, 0.3, 1.5]))
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def stop_worker(self):
        self.stop("blasd worker", most=self.rng.randrange(1, 4))

    def stop_api(self):
        self.stop("blasd api")

    def stop_redis(self):
        self.stop("redis-server")

    def stop_all(self):
        self.service.process.send_signal(signal.SIGSTOP)
        self.stop(*self.ALL)
        self.service.process.send_signal(signal.SIGCONT)

    def move_clock(self):
        self.clock.move(self.rng.choice([-30, -HOUR, 5, 30, HOUR, 6 * HOUR]))

    def full_disk(self):
        self.disk.fill()
        if self.rng.random() < 0.5:
            self.kill_redis()
        time.sleep(self.rng.choice([0.2, 1.0]))
        self.disk.empty()

    def newest_file(self):
        return max((self.service.folder / "data" / "appendonlydir").glob("*.incr.aof"), key=os.path.getmtime, default=None)

    def torn_file(self):
        """Half a command behind the last one: what a Redis leaves that is killed while it writes. That it has been, by this kill or
        one just before, would leave two such ends, which nothing does: so it stands still, between two writes, when it is killed."""
        between_writes = any(map(stands_still, self.send(signal.SIGSTOP, "redis-server")))
        self.kills += 1 + len(pids(self.service))
        self.down()
        path = self.newest_file()
        if path is not None and between_writes:
            with open(path, "ab") as file:
                file.write(b"*1\r\n$5\r\nMULTI\r\n*4\r\n$4\r\nHSET\r\n$15\r\n{blasd}:pend"[:self.rng.randrange(1, 50)])
        self.up()

    # --- lossy ---

    def ask_redis(self, *words):
        end = time.monotonic() + 60
        while True:
            try:
                redis = Redis(self.service)
                redis(*words)
                redis.close()
                return
            except (OSError, StopIteration, AssertionError, ValueError, IndexError):
                assert time.monotonic() < end, f"Redis does not do {words}"
                time.sleep(0.05)

    def flush(self):
        self.ask_redis("FLUSHALL")

    def functions(self):
        self.ask_redis("FUNCTION", "FLUSH")

    def cut_file(self):
        """Bytes that were acknowledged go: where the file is cut, its end is half a command again."""
        self.kills += 1 + len(pids(self.service))
        self.down()
        path = self.newest_file()
        if path is not None:
            os.truncate(path, self.rng.randrange(path.stat().st_size // 2, path.stat().st_size + 1))
        self.up()
