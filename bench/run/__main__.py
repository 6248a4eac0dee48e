"""`make bench`: drives the service and its peers with one load generator and reports what it cost.

    python3 bench/run [--only LOAD]… [--quick] [--rounds N] [--seconds S] [--minutes M]
                     [--build DIR] [--out DIR] [--list]

Read next: loads.py (what is sent), subjects.py (to whom), measure.py (how a turn is measured), machine.py
(what the machine does by itself), report.py.
"""
import argparse
import datetime
import pathlib
import signal
import sys
import time

import loads
import machine
import processes
import report
from measure import Bench, load_average, say, settle

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def options():
    parser = argparse.ArgumentParser(prog="bench/run", description="Measures the service against its peers.")
    parser.add_argument("--only", action="append", metavar="LOAD", help="one load; may be repeated (see --list)")
    parser.add_argument("--quick", action="store_true", help="short turns: shows that it works, not how fast it is")
    parser.add_argument("--rounds", type=int, help="turns of each subject")
    parser.add_argument("--seconds", type=float, help="length of a turn")
    parser.add_argument("--minutes", type=float, default=40, help="no load is begun later than this (40); the report names them")
    parser.add_argument("--build", default="build", help="where blasd and the benchmark's programs are")
    parser.add_argument("--out", help="where results go; bench/results, or BUILD/bench/results with --quick")
    parser.add_argument("--list", action="store_true", help="names the loads")
    chosen = parser.parse_args()
    for name in chosen.only or []:
        if name not in loads.LOADS:
            parser.error(f"there is no load '{name}'; there are {', '.join(loads.LOADS)}")
    return chosen


def look(build, quick):
    say("the machine")
    return machine.look(build, quick)


def main():
    chosen = options()
    if chosen.list:
        print("\n".join(loads.LOADS))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    if not chosen.quick:
        settle()
    build = pathlib.Path(chosen.build).resolve()
    out = pathlib.Path(chosen.out) if chosen.out else build / "bench" / "results" if chosen.quick else ROOT / "bench" / "results"
    scratch = pathlib.Path(processes.scratch())
    bench = Bench(build, scratch, chosen.quick, chosen.rounds, chosen.seconds)
    results = {"when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "host": report.host(build),
               "rounds": bench.rounds, "seconds": bench.seconds, "quick": chosen.quick, "loads": {}, "left_out": {}}
    failed, begun = False, time.monotonic()
    results["machine"] = {"before": look(build, chosen.quick)}
    try:
        for name, measure in loads.LOADS.items():
            if chosen.only and name not in chosen.only:
                continue
            started = time.monotonic()
            if started - begun > chosen.minutes * 60:
                results["left_out"][name] = f"the {chosen.minutes:g} minutes were over (--minutes)"
                say(f"{name} is not begun: the time is over")
                continue
            bench.load_name = name
            say(f"{name} (load average {load_average():.2f})")
            try:
                results["loads"][name] = dict(measure(bench), seconds=round(time.monotonic() - started, 1))
            except processes.Failed as problem:
                say(f"  {name} failed: {problem}")
                results["left_out"][name] = f"it failed: {problem}"
                failed = True
            for path in scratch.glob("*"):
                path.unlink()
        results["machine"]["after"] = look(build, chosen.quick)
    finally:
        processes.forget(scratch)
    results["left_out"].update(bench.unavailable, **bench.gave_up)
    results["minutes"] = round((time.monotonic() - begun) / 60, 1)
    venv = build / "bench-venv" / "bin" / "python"
    drawn, why = report.write(results, out, str(venv) if venv.exists() else sys.executable)
    print(report.text(results))
    say(f"written: {out}/results.json, results.txt" + (", results.png" if drawn else f"; no plot: {why}"))
    return 1 if failed or not results["loads"] else 0


if __name__ == "__main__":
    sys.exit(main())
