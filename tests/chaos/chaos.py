#!/usr/bin/env python3
"""Kills, stops, freezes and fills a service under load, and proves from all that its clients heard that nothing was lost.

    tests/chaos/chaos.py [--seconds 60 | --kills 10000] [--seed N] [--workers 3] [--rate 250] [--faults kill-api,…] [--keep DIR]

Prints its seed; the same one draws the same jobs and faults. (How they meet is up to the machine.) A run has four parts: the
load alone, which says what there is when all is well; faults that may lose nothing; the load alone again, after which memory,
descriptors, files and keys must be what they were; faults that take what Redis held with them (--lossy SHARE of the run, 0 for
none). Two tenants send, each with a key, and look now and then for each other's jobs. Needs build/blasd, and build/tests/unit/queue/redis_clock.so for jumps of the clock; full disks need a user that may mount.
Exit status: 0 all held, 1 something did not, which the last lines say; the history lies in --keep, or is kept then, too.
"""
import argparse
import fcntl
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]

import check  # noqa: E402
import faults  # noqa: E402
import load  # noqa: E402
from service import BLASD, Redis, Service  # noqa: E402

# attempts: a job that many killed workers had begun may be given up, which is honest, and not what is looked for here.
# record_async_s: beyond any jump of the clock
LIMITS = ("attempts=100", "lease_ms=1000", "record_async_s=2592000", "record_sync_s=86400", "silence_s=10")


class History:
    """Every event, written as it is heard, and given to the checker."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")
        self.lock = threading.Lock()
        self.checker = check.Checker()

    def note(self, e, **fields):
        with self.lock:
            event = {"e": e, "t": time.monotonic(), **fields}
            self.file.write(json.dumps(event) + "\n")
            self.checker.take(event)


def resident(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def processes(service):
    """{part: [pid]}, the supervisor among them."""
    found = {"blasd up": [service.process.pid]}
    for pid, part in sorted(faults.pids(service).items()):
        found.setdefault(part, []).append(pid)
    return found


def usage(service):
    """{part: (descriptors, bytes)}, the most of any such process."""
    return {part: (max(map(descriptors, pids)), max(map(resident, pids))) for part, pids in processes(service).items()}


def keys(redis):
    """What Redis holds, without what names one job, process or moment, and without what is empty."""
    found, cursor = set(), "0"
    while True:
        cursor, page = redis("SCAN", cursor, "COUNT", "1000")
        found |= {key.decode(errors="replace") for key in page}
        if cursor == b"0":
            break
    short = {re.match(r"(\{[^}]*\})?:?[^:]*", key).group() for key in found}
    return sorted(short)


def unused(path):
    """Whether nobody holds the file: a segment that its owner goes on writing is held."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:
        return False


def blobs(service):
    """Files of jobs in the blob store: none, once they are forgotten."""
    for pid in faults.pids(service):
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                folder = pathlib.Path(os.readlink(link))
            except OSError:
                continue
            if (folder / ".store").exists():
                return sorted(path.name for path in folder.iterdir() if path.suffix in (".in", ".out", ".put")
                          or (path.suffix == ".seg" and unused(path)))
    raise AssertionError("no process holds the blob store's directory: nobody can say what is left there")


class Run:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.rng = random.Random(arguments.seed)
        self.history = History(folder / "history.jsonl")
        self.note = self.history.note
        self.clock = faults.Clock(folder)
        options = [word for limit in LIMITS for word in ("--limit", limit)]
        self.keys, file = [], folder / "keys.json"
        file.unlink(missing_ok=True)
        for number in range(arguments.tenants if arguments.tenants > 1 else 0):
            made = subprocess.run([BLASD, "keys", "add", f"tenant-{number}", "--file", file], check=True, capture_output=True)
            self.keys.append(made.stdout.decode().strip())
        if self.keys:
            options += ["--keys", str(file)]
        self.service = Service(folder / "service", "--workers", str(arguments.workers), *options, *arguments.option,
                               env=self.clock.environment())
        self.service.headers = self.tenants()[0]
        self.disk = faults.Disk.mount(self.service, arguments.disk) if arguments.disk else None
        self.stories = []

    def tenants(self):
        """Those who send, as headers of theirs; each sees only its own jobs."""
        return [{"Authorization": f"Bearer {key}"} for key in self.keys] or [{}]

    def begin(self):
        self.service.start()
        self.load = load.Load(self.service.port, self.rng, self.tenants(), self.note, self.arguments.threads,
                              self.arguments.rate, kinds=load.GRAPHS if self.arguments.graphs else None,
                              chains=self.arguments.chains)
        self.faults = faults.Faults(self.service, self.rng, self.note, self.clock, self.disk)

    def calm(self, seconds):
        """The load alone; all of it is seen to an end, and forgotten."""
        self.load.start()
        time.sleep(seconds)
        self.settle(self.load.stop())

    def settle(self, stories):
        self.service.wait_ready(120)
        left = load.settle(stories, self.service.port, self.load.tenants, self.note, 120)
        for story in left:
            print(f"has not ended: {story.key} {story.id}")
        # those with an id have been acknowledged, and the checker sees that they have no end
        self.note("left", what="jobs that nobody takes", names=[story.key for story in left if story.id is None])

    def break_things(self, seconds, kills, lossy=False):
        self.load.start()
        start = said = time.monotonic()
        while (self.faults.kills < kills) if kills else time.monotonic() < start + seconds:
            if time.monotonic() - said > 60:
                said = time.monotonic()
                counts = self.history.checker.counts
                print(f"{self.faults.kills} kills, {counts['ack']} acknowledged, {counts['problems']} problems", flush=True)
            time.sleep(self.rng.uniform(0, 2 * self.arguments.pause))
            self.faults.one(None if lossy else self.arguments.faults, lossy)
            if self.load.failures:
                break
        self.settle(self.load.stop())

    def totals(self):
        """What Redis counted: {op: (submitted, ended)}."""
        redis = Redis(self.service)
        words = [word.decode("latin-1") for word in redis("HGETALL", "{blasd}:state")]  # `numbers` is no text
        redis.close()
        counted = {}
        for name, value in zip(words[::2], words[1::2]):
            if " " not in name:
                continue
            op, what = name.split(" ", 1)
            submitted, ended = counted.get(op, (0, 0))
            one = (int(value), 0) if what == "submitted" else (0, int(value))
            counted[op] = (submitted + one[0], ended + one[1])
        return counted

    def note_totals(self):
        counted = self.totals()
        for op in sorted({*counted, *self.history.checker.submitted}):  # one that Redis knows nothing of, too
            submitted, ended = counted.get(op, (0, 0))
            self.note("totals", op=op, submitted=submitted, ended=ended)

    def held(self):
        """Redis' keys, but for those that come and go by time: that somebody has swept the store."""
        redis = Redis(self.service)
        found = keys(redis)
        redis.close()
        return [key for key in found if ":sweeping" not in key]

    def compare(self, before, keys_before):
        """What there is now beside what there was."""
        # What was to expire has, and with their buckets the references of forgotten records to segments (batch_entries.lua).
        self.clock.set(self.clock.ahead + 40 * 24 * faults.HOUR)
        end = time.monotonic() + 90
        while (left := blobs(self.service)) and time.monotonic() < end:  # swept now and then
            time.sleep(0.5)
        self.note("left", what="files", names=left)
        more = set()
        while time.monotonic() < end:
            more = set(self.held()) - set(keys_before)
            if not more:
                break
            time.sleep(0.5)
        self.note("left", what="keys", names=sorted(more))
        after, grown = usage(self.service), []
        for part, (fds, size) in after.items():
            print(f"{part}: {before[part][0]} descriptors, {before[part][1] >> 20} MiB; then {fds}, {size >> 20} MiB")
            if fds > before[part][0] + 8:
                grown.append(f"{part}: descriptors {before[part][0]} to {fds}")
            if part != "redis-server" and size > before[part][1] * 1.5 + (64 << 20):
                grown.append(f"{part}: bytes {before[part][1]} to {size}")
        self.note("left", what="descriptors and memory", names=grown)

    def run(self):
        arguments = self.arguments
        self.begin()
        self.calm(arguments.calm)
        before, keys_before = usage(self.service), self.held()
        begin = time.monotonic()
        self.break_things(arguments.seconds, arguments.kills)
        seconds = time.monotonic() - begin
        self.calm(arguments.calm)
        self.note_totals()
        self.compare(before, keys_before)
        if arguments.lossy:
            self.break_things(max(2.0, arguments.lossy * seconds), 0, lossy=True)
        self.service.stop()

    def close(self):
        if self.service.process is not None:
            self.service.stop(check=False)
        if self.disk is not None:  # what lay there explains a failure
            shutil.copytree(self.disk.at, self.folder / "disk", ignore=shutil.ignore_patterns("*.sock"), dirs_exist_ok=True)
            self.disk.unmount()
        self.history.file.close()


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60, help="of faults that may lose nothing")
    parser.add_argument("--kills", type=int, default=0, help="in place of --seconds: so many processes by SIGKILL")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--calm", type=float, default=3, help="seconds of load alone, before and after")
    parser.add_argument("--lossy", type=float, default=0.15, help="share of that time for faults that lose what Redis held")
    parser.add_argument("--pause", type=float, default=0.3, help="seconds between two faults, on average")
    parser.add_argument("--faults", type=lambda text: text.split(","), default=None)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--tenants", type=int, default=2, help="1: without keys")
    parser.add_argument("--threads", type=int, default=12)
    parser.add_argument("--rate", type=float, default=250, help="jobs a second, at most")
    parser.add_argument("--graphs", action="store_true", help="no other jobs than graphs")
    parser.add_argument("--chains", type=float, default=0.1, help="share of stories whose jobs wait for each other")
    parser.add_argument("--disk", type=int, default=0, help="MiB of a disk that somebody fills; needs a user that may mount")
    parser.add_argument("--option", action="append", default=[], help="a further word for `blasd up`")
    parser.add_argument("--keep", type=pathlib.Path, default=None, help="where the history and the log are to lie")
    return parser.parse_args(words)


def main(words=None):
    """The number of things that did not hold."""
    arguments = parse(words)
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(1 << 32)
    folder = arguments.keep or pathlib.Path(tempfile.mkdtemp(prefix="blasd-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {arguments.seed}, in {folder}", flush=True)
    shutil.rmtree(folder / "service", ignore_errors=True)
    run = Run(arguments, folder)
    try:
        run.run()
        problems = run.history.checker.end()
    except BaseException:
        print(f"see {folder}")
        raise
    finally:
        run.close()
    print("\n".join(problems), end="\n" if problems else "")
    counts = run.history.checker.counts
    print(f"{run.faults.kills} processes killed; " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    print(f"{len(run.history.checker.jobs)} acknowledged jobs, {len(problems)} problems")
    if not problems and arguments.keep is None:
        shutil.rmtree(folder)
    return len(problems)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
