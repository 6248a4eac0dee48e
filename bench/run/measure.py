"""One run of the benchmark: turns of A B A B with the same generator, and what each turn cost in processor time,
Redis commands and memory."""
import json
import pathlib
import statistics
import subprocess
import sys
import time

import machine
import processes


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Bench:
    def __init__(self, build, scratch, quick=False, rounds=None, seconds=None):
        self.build, self.scratch, self.quick = pathlib.Path(build), pathlib.Path(scratch), quick
        self.rounds = rounds or (2 if quick else 5)
        self.seconds = seconds or (1.5 if quick else 4)
        self.load_name = ""
        self.unavailable = {}  # {peer: why}: could not be started
        self.gave_up = {}      # {"load: peer": why}: was started and served nothing

    # --- the generator ---------------------------------------------------------------------------------------------

    def start_load(self, spec):
        self.specs = getattr(self, "specs", 0) + 1
        path = self.scratch / f"spec-{self.specs}.json"
        path.write_text(json.dumps(spec))
        return subprocess.Popen([str(self.build / "bench" / "load"), str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)

    @staticmethod
    def finish_load(process):
        out, err = process.communicate(timeout=1800)
        if process.returncode != 0:
            raise processes.Failed(f"the load generator: {err.strip()}")
        return json.loads(out)

    def load(self, spec):
        return self.finish_load(self.start_load(spec))

    # --- one turn -----------------------------------------------------------------------------------------------------

    def turn(self, subject, spec, drive=None):
        """Drives a subject once, by the generator or by `drive`, which gives the like. -> what is recorded of it."""
        with subject.beside() as told:
            cpu, redis, ticks = subject.cpu(), subject.redis(), machine.ticks()
            result = drive() if drive else self.load(dict(spec, port=subject.port))
            shares = machine.shares(ticks, machine.ticks())
            after, redis_after = subject.cpu(), subject.redis()
        jobs = result["jobs"]["ended"] if "jobs" in result else result["right"]
        record = {"subject": subject.name, "rate": result["rate"], "result": result, "load_average": load_average(),
                  "machine": shares, **told()}
        if jobs:
            per = 1e6 / jobs
            record["cpu_us"] = {layer: [round((after[layer][i] - cpu.get(layer, (0, 0))[i]) * per, 3) for i in (0, 1)]
                                for layer in after}
            record["cpu_us"]["load generator"] = [round(result["cpu_user"] * per, 3), round(result["cpu_system"] * per, 3)]
        if redis and jobs:
            change = {k: redis_after[k] - redis.get(k, 0) for k in redis_after if redis_after[k] != redis.get(k, 0)}
            record["redis"] = {"reads_per_job": change.get("total_reads_processed", 0) / jobs,
                               "commands_per_job": change.get("total_commands_processed", 0) / jobs,
                               "calls_per_job": {k[8:]: v / jobs for k, v in change.items()
                                                 if k.startswith("cmdstat_") and v / jobs > 1e-4},
                               "usec_per_job": {k[5:]: v / jobs for k, v in change.items()
                                                if k.startswith("usec_") and v / jobs > 0.01}}
        self.check(subject, result)
        return record

    @staticmethod
    def check(subject, result):
        bad = {k: result[k] for k in ("wrong", "errors", "timeouts") if result[k]}
        if bad or result["aborted"]:
            say(f"  {subject.name}: {bad} {result.get('sample', '')[:200]}")

    def has_given_up(self, subject):
        return f"{self.load_name}: {subject.name}" in self.gave_up

    def served_nothing(self, subject, result):
        """Whether a peer had no right answer in its turn: it is left out of this load from then on, and the report says
        so. The service itself is never left out."""
        if subject.name == "blasd" or result["right"] > 0:
            return False
        self.gave_up[f"{self.load_name}: {subject.name}"] = result.get("sample", "no right answer in a whole turn")[:200]
        say(f"  {subject.name} is left out of this load: it served nothing")
        return True

    def start(self, subjects):
        """The subjects that could be started."""
        running = []
        for subject in subjects:
            if subject.name in self.unavailable:
                continue
            try:
                subject.start()
                running.append(subject)
            except (processes.Failed, OSError) as problem:
                self.unavailable[subject.name] = str(problem)
                say(f"  {subject.name} is left out: {problem}")
        return running

    def turns(self, subjects, spec_of, rounds=None, warm=True):
        """A B C A B C …: `spec_of(subject)` gives a specification, or None to leave a subject out."""
        trials, running = [], self.start(subjects)
        try:
            for number in range(-1 if warm else 0, rounds or self.rounds):
                for subject in running:
                    spec = spec_of(subject)
                    if spec is None or self.has_given_up(subject):
                        continue
                    if number < 0:  # caches, pools and pages, not recorded
                        brief = {"seconds": 0.5, "warmup": 0} if "seconds" in spec else \
                            {"count": max(1, spec["count"] // 10)}
                        self.load(dict(spec, port=subject.port, **brief))
                        continue
                    record = self.turn(subject, spec)
                    if self.served_nothing(subject, record["result"]):
                        continue
                    trials.append(dict(record, round=number))
                    say(f"  {subject.name}: {record['rate']:.6g}/s, p50 {record['result']['latency_ms']['p50']:.3g} ms,"
                        f" p99 {record['result']['latency_ms']['p99']:.3g} ms")
        finally:
            for subject in running:
                subject.stop()
        return trials

    def direct(self, subject, number):
        """One turn of the library's function alone. -> its record."""
        ticks = machine.ticks()
        done = subprocess.run([*subject.command, str(self.seconds), str(subject.threads), subject.dtype], check=True,
                              capture_output=True, text=True)
        answer, shares = json.loads(done.stdout), machine.shares(ticks, machine.ticks())
        say(f"  direct: {answer['rate']:.4g}/s ({answer['gflops']} GFLOP/s)")
        return {"subject": subject.name, "round": number, "rate": answer["rate"], "result": None, "machine": shares}


QUIET = 0.7  # a load average above this means that others work on the machine
SETTLE_S = 240


def settle():
    """Waits until what was built or measured before is no longer in the load average; others who go on are not outwaited."""
    end = time.monotonic() + SETTLE_S
    while load_average() > QUIET and time.monotonic() < end:
        time.sleep(5)


def load_average():
    with open("/proc/loadavg") as file:
        return float(file.read().split()[0])


def spread(values):
    values = [v for v in values if v is not None]
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "turns": len(values)} \
        if values else None


def of(trials, subject, what=lambda t: t["rate"]):
    return [what(t) for t in trials if t["subject"] == subject]


def ratios(trials, mine="blasd"):
    """{peer: spread of mine / peer, turn by turn}"""
    out = {}
    for peer in dict.fromkeys(t["subject"] for t in trials):
        if peer == mine:
            continue
        theirs = {t["round"]: t["rate"] for t in trials if t["subject"] == peer}
        pairs = [t["rate"] / theirs[t["round"]] for t in trials
                 if t["subject"] == mine and theirs.get(t["round"])]
        if pairs:
            out[peer] = spread(pairs)
    return out


def sleep_until(moment):
    time.sleep(max(0, moment - time.monotonic()))
