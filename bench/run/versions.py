"""Two builds of the service in turns, A B A B, over eight loads: what all that lies between two versions costs.

    python3 bench/run/versions.py BEFORE [--build build] [--only LOAD]… [--rounds 5] [--seconds 4] [--quick]

BEFORE is the build folder of the other version, of which only `blasd` is used; generator and requests are those of this one. The
table has both medians and the ratio of each pair of turns, above 1 where this build does better. Exit 1 where a median is
below 0.9.
"""
import argparse
import pathlib
import signal
import sys

import loads
import payloads
import processes
import subjects as s
from measure import Bench, load_average, ratios, say, settle, spread

LEAST = 0.9


class Before(s.Blasd):
    name = "before"


class Load:
    """What is measured, with the switches of the service for it; `turn` drives a subject once, and gives a record with a `rate`."""

    def __init__(self, what, turn, *options):
        self.what, self.turn, self.options = what, turn, options


def driven(bench, spec):
    return lambda subject: bench.turn(subject, spec(subject))


def closed(bench, connections, *jobs):
    return driven(bench, loads.spec_for(bench, connections, jobs))


def counted(bench, connections, count, request):
    return driven(bench, lambda subject: {"connections": connections, "count": count, "requests": [request(subject)], "timeout": 60})


def beside_a_product(bench, small, big):
    """How many times a second the slowest hundredth of small jobs could be waited for."""
    def turn(subject):
        record = loads.beside_one(bench, subject, small, big, bench.seconds if bench.quick else 20)
        return dict(record, rate=1e3 / record["result"]["latency_ms"]["p99"])
    return turn


def twice_the_capacity(bench, job):
    def turn(subject):
        request = [subject.request(job)]
        best = bench.turn(subject, loads.closed(bench, 256, request))
        return loads.overload(bench, subject, request, best["rate"])
    return turn


def all_of_them(bench):
    json4 = payloads.product(bench.scratch, "json4", 4, "float64", "json")
    product = payloads.product(bench.scratch, "binary1024", 1024, wait=120)
    body = loads.body_of_64_mib(bench)
    return {
        "json-256": Load("jobs/s", closed(bench, 256, json4)),
        "json-1": Load("jobs/s", closed(bench, 1, json4)),
        "binary-64": Load("jobs/s", closed(bench, 256, payloads.product(bench.scratch, "binary64", 64))),
        "binary-1024": Load("jobs/s", counted(bench, 4, 60 if bench.quick else 400, lambda one: one.request(product))),
        "receive": Load("bodies/s", counted(bench, 1, 20 if bench.quick else 100, lambda _: body.for_blasd_submit())),
        "mixed": Load("jobs/s", closed(bench, 64, *payloads.mixed(bench.scratch))),
        "beside": Load("1/p99 (1/s)", beside_a_product(bench, json4, loads.thick(bench))),
        "open": Load("jobs/s", twice_the_capacity(bench, json4), "--limit", "queue_jobs=1024", "--limit", "queue_wait_ms=100"),
    }


def measure(bench, before, load):
    trials, running = [], bench.start([s.Blasd(bench.build, *load.options), Before(before, *load.options)])
    try:
        for number in range(-1, bench.rounds):  # the first is for caches, pools and pages
            for subject in running:
                record = load.turn(subject)
                if number >= 0:
                    trials.append(dict(record, round=number))
                say(f"  {subject.name}: {record['rate']:.5g} {load.what}")
    finally:
        for subject in running:
            subject.stop()
    return trials


def line(name, load, trials):
    both = [spread([t["rate"] for t in trials if t["subject"] == one]) for one in ("before", "blasd")]
    ratio = ratios(trials)["before"]
    shown = [f"{one['median']:.5g} [{one['least']:.5g} .. {one['most']:.5g}]" for one in both]
    return f"{name:12} {load.what:12} {shown[0]:32} {shown[1]:32} {ratio['median']:.3f} [{ratio['least']:.3f} .. {ratio['most']:.3f}]", ratio["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("before", type=pathlib.Path, metavar="BEFORE")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--only", action="append", metavar="LOAD")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    if not chosen.quick:
        settle()
    scratch = pathlib.Path(processes.scratch())
    bench = Bench(chosen.build.resolve(), scratch, chosen.quick, chosen.rounds, chosen.seconds)
    lines, worst = [], LEAST
    try:
        for name, load in all_of_them(bench).items():
            if chosen.only and name not in chosen.only:
                continue
            bench.load_name = name
            say(f"{name} (load average {load_average():.2f})")
            text, ratio = line(name, load, measure(bench, chosen.before.resolve(), load))
            lines.append(text)
            worst = min(worst, ratio)
    finally:
        processes.forget(scratch)
    print(f"{'load':12} {'of what':12} {'before':32} {'now':32} now / before, {bench.rounds} turns")
    print("\n".join(lines))
    return 1 if worst < LEAST else 0


if __name__ == "__main__":
    sys.exit(main())
