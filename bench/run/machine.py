"""What the machine itself does, before the first load and after the last (bench/machine), and what its cores did in each
turn. Rates and latencies are worth no more than these: where they differ between two runs, the host did.
"""
import json
import subprocess


def look(build, quick=False):
    """-> what bench_machine printed, or {"why": …} where it could not be run."""
    program = build / "bench" / "machine" / "bench_machine"
    try:
        done = subprocess.run([str(program), *(["--quick"] if quick else [])], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            return {"why": done.stderr.strip() or f"it ended with {done.returncode}"}
        return json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as problem:
        return {"why": str(problem)}


def ticks():
    """Time of all cores since the start, in ticks: (all of it, idle, stolen: the host ran something else)."""
    with open("/proc/stat") as file:
        part = [int(field) for field in file.readline().split()[1:9]]  # user nice system idle iowait irq softirq steal
    return sum(part), part[3] + part[4], part[7]


def shares(before, after):
    """Of all cores' time between two looks at the ticks, the idle and the stolen share."""
    whole = after[0] - before[0]
    return {"idle": round((after[1] - before[1]) / whole, 4), "steal": round((after[2] - before[2]) / whole, 4)} if whole else None


def text(looks, number, spread_text):
    """The lines of both looks side by side."""
    lines = ["The machine without the service, before the first load and after the last: medians [least .. most] of its rounds", ""]
    lines += [f"  no figures of {when}: {found['why']}" for when, found in looks.items() if "why" in found]
    good = {when: found for when, found in looks.items() if "figures" in found}
    if not good:
        return lines + [""]
    lines.append(f"  {'':52} " + " ".join(f"{when:>28}" for when in good))
    for name in next(iter(good.values()))["figures"]:
        figures = [found["figures"][name] for found in good.values()]
        known = next((figure for figure in figures if figure), None)
        if known:
            lines.append(f"  {known['what'] + ', ' + known['unit']:52} " + " ".join(f"{spread_text(f):>28}" for f in figures))
    for what, key in (("idle", "idle_share"), ("other work", "others_share"), ("stolen by the host", "steal_share")):
        label = f"of all cores' time meanwhile: {what}, %"
        lines.append(f"  {label:52} " + " ".join(f"{number(100 * found[key]):>28}" for found in good.values()))
    without = {name: why for found in good.values() for name, why in found["left_out"].items()}
    return lines + [f"  not measured: {name}: {why}" for name, why in without.items()] + [""]


def turns_text(reports, spread, spread_text):
    """A line for each load: how much of all cores' time was idle and how much the host took, turn by turn."""
    lines = ["All cores during the turns, everything that ran included: medians [least .. most], %", "",
             f"  {'':22} {'idle':>24} {'stolen by the host':>24}"]
    for name, report in reports.items():
        found = [t["machine"] for t in report["trials"] if t.get("machine")]
        if found:
            cells = [spread_text(spread([100 * turn[key] for turn in found])) for key in ("idle", "steal")]
            lines.append(f"  {name:22} {cells[0]:>24} {cells[1]:>24}")
    return lines + [""]
