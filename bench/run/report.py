"""From turns to tables: rates with medians and spread, ratios, goals, processor time by layer, host facts."""
import json
import os
import pathlib
import platform
import subprocess

from measure import load_average, of, ratios, spread

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# (load, what, comparison, goal, how to read it off the load's report)
GOALS = [
    ("json-256", "jobs a second", ">=", 30000, lambda r: r["values"]["rate"]),
    ("json-256", "times FastAPI with Celery", ">=", 50, lambda r: peer(r, "celery")),
    ("json-256", "times FastAPI inline, one process (goal 3)", ">=", 2, lambda r: peer(r, "fastapi")),
    ("json-256", "p99, ms", "<", 20, lambda r: r["values"]["p99"]),
    ("json-256", "Redis reads a job", "<", 0.2, lambda r: r["values"]["reads_per_job"]),
    ("json-1", "p50, ms", "<", 0.35, lambda r: r["values"]["p50"]),
    ("binary-64", "jobs a second", ">=", 20000, lambda r: r["values"]["rate"]),
    ("binary-1024", "times the plain C server", ">=", 1, lambda r: peer(r, "plain-c")),
    ("binary-4096", "of the direct call", ">=", 0.85, lambda r: peer(r, "direct")),
    ("binary-4096-shared", "of the direct call", ">=", 0.95, lambda r: peer(r, "direct")),
    ("async", "jobs lost or failed", "<=", 0, lambda r: r["values"]["lost"]),
    ("mixed", "wrong answers", "<=", 0, lambda r: r["values"]["wrong"]),
    ("beside-thin", "small jobs' p99, ms", "<", 50, lambda r: r["values"]["p99"]),
    ("beside-thick", "small jobs' p99, ms", "<", 50, lambda r: r["values"]["p99"]),
    ("open", "share of the best rate at twice the capacity", ">=", 0.9, lambda r: r["values"]["twice_share"]),
    ("open", "refusals without Retry-After", "<=", 0, lambda r: r["values"]["refused"] - r["values"]["retry_after"]),
    ("burst", "of 1,024 served", ">=", 1024, lambda r: r["values"]["served"]),
    ("receive", "of the bare sink's rate", ">=", 0.6, lambda r: r["values"]["gb_per_s"] / r["values"]["sink_gb_per_s"]),
    ("memory", "peak over inputs and outputs, little arithmetic", "<", 1.3, lambda r: r["values"]["share_thin"]),
    ("memory", "peak over inputs and outputs, a large product", "<", 1.3, lambda r: r["values"].get("share_thick")),
    ("json-numbers", "in, times jansson", ">=", 10, lambda r: r["values"].get("in_ratio")),
    ("json-numbers", "out, times jansson", ">=", 6, lambda r: r["values"].get("out_ratio")),
]


def peer(report, name):
    found = ratios(report["trials"]).get(name)
    return found and found["median"]


def goals(reports):
    out = []
    for load, what, comparison, goal, read in GOALS:
        if load not in reports:
            continue
        try:
            value = read(reports[load])
        except (KeyError, TypeError, ZeroDivisionError):
            value = None
        met = None if value is None else {">=": value >= goal, "<": value < goal, "<=": value <= goal}[comparison]
        out.append({"load": load, "what": what, "comparison": comparison, "goal": goal, "value": value, "met": met})
    return out


# --- text -------------------------------------------------------------------------------------------------------------


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


def spread_text(value):
    return f"{number(value['median'])} [{number(value['least'])} .. {number(value['most'])}]" if value else "-"


def rates_table(reports):
    lines = []
    for name, report in reports.items():
        if not report["trials"]:
            continue
        lines.append(f"{name}: {report['title']}")
        lines.append(f"  {'':16} {'a second':>32} {'p50 ms':>9} {'p99 ms':>9} {'p99.9 ms':>9}   blasd is so many times as fast")
        against = ratios(report["trials"])
        for subject in dict.fromkeys(t["subject"] for t in report["trials"]):
            trials = [t for t in report["trials"] if t["subject"] == subject]
            columns = [number(spread([t["result"]["latency_ms"][q] for t in trials])["median"]) if trials[0]["result"] else "-"
                       for q in ("p50", "p99", "p999")]
            lines.append(f"  {subject:16} {spread_text(spread(of(trials, subject))):>32} {columns[0]:>9} {columns[1]:>9} "
                         f"{columns[2]:>9}   {spread_text(against[subject]) if subject in against else ''}")
        lines += ["  " + ", ".join(f"{k} {number(v)}" for k, v in report["values"].items()), ""]
    return lines


def layers_table(reports):
    lines = ["Processor time a job by layer, microseconds (user + system), and Redis' part", ""]
    for name, report in reports.items():
        trials = [t for t in report["trials"] if t.get("cpu_us")]
        for subject in dict.fromkeys(t["subject"] for t in trials):
            mine = [t for t in trials if t["subject"] == subject]
            if name not in ("json-1", "json-256", "binary-64", "async", "binary-1024", "binary-4096-shared", "mixed"):
                continue
            parts = []
            for layer in mine[0]["cpu_us"]:
                user, system = (spread([t["cpu_us"][layer][i] for t in mine if layer in t["cpu_us"]])["median"] for i in (0, 1))
                if user + system >= 0.05:
                    parts.append(f"{layer} {number(user)} + {number(system)}")
            lines.append(f"  {name:12} {subject:15} " + ", ".join(parts))
            if "redis" in mine[0]:
                redis = mine[-1]["redis"]
                calls = ", ".join(f"{k} {v:.3g}" for k, v in sorted(redis["calls_per_job"].items(), key=lambda x: -x[1])[:8])
                lines.append(f"  {'':28} Redis: {redis['reads_per_job']:.3g} reads and {redis['commands_per_job']:.3g} "
                             f"commands a job ({calls})")
    return lines + [""]


def goals_table(reports):
    lines = ["Goals", ""]
    for goal in goals(reports):
        state = {True: "met", False: "MISSED", None: "not measured"}[goal["met"]]
        lines.append(f"  {goal['load']:18} {goal['what']:48} {number(goal['value']):>10}   goal {goal['comparison']} "
                     f"{number(goal['goal']):>7}   {state}")
    return lines + [""]


# --- the host ------------------------------------------------------------------------------------------------------------


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def host(build):
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = next(int(line.split()[1]) // 1024 for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    venv = pathlib.Path(build) / "bench-venv" / "bin" / "pip"
    names = ("fastapi", "uvicorn", "uvloop", "httptools", "orjson", "numpy", "celery", "redis")
    packages = {k: v for k, _, v in (line.partition("==") for line in output(str(venv), "list", "--format=freeze").split("\n"))
                if k in names}
    triton = output(str(pathlib.Path(build) / "bench-venv-triton" / "bin" / "pip"), "list", "--format=freeze")
    packages.update({k: v for k, _, v in (line.partition("==") for line in triton.split("\n")) if k == "nvidia-pytriton"})
    system = next((line.split("=", 1)[1].strip('"\n') for line in open("/etc/os-release") if line.startswith("PRETTY_NAME")), "?")
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "memory_mib": memory, "system": system,
            "kernel": platform.release(), "python": platform.python_version(),
            "redis": output("redis-server", "--version").split(" sha")[0], "gcc": output("gcc", "-dumpfullversion"),
            "libraries": {n: output("pkg-config", "--modversion", n) for n in ("libmicrohttpd", "hiredis", "jansson", "openblas")},
            "packages": packages, "commit": output("git", "rev-parse", "--short", "HEAD"),
            "changed_files": len(output("git", "status", "--porcelain", "--", "src", "kernels").split("\n"))
            if output("git", "status", "--porcelain", "--", "src", "kernels") else 0, "load_average": load_average()}


def text(results):
    facts = results["host"]
    lines = [f"blasd {facts['commit']}" + (f" with {facts['changed_files']} changed files" if facts["changed_files"] else "") +
             f", {results['when']}", f"{facts['cpu']}, {facts['cores']} cores shared by everything, the load generator included; "
             f"{facts['memory_mib']} MiB, {facts['system']}, Linux {facts['kernel']}",
             "load average before: " + f"{facts['load_average']:.2f}" + (
                 "  (the machine was busy with other work: these figures are noise)" if facts["load_average"] > 0.7 else ""),
             f"{results['rounds']} turns of {results['seconds']} s each, A B A B; medians [least .. most]", ""]
    for name, why in results["unavailable"].items():
        lines.append(f"{name} could not be measured: {why}")
    lines += rates_table(results["loads"]) + goals_table(results["loads"]) + layers_table(results["loads"])
    for report in results["loads"].values():
        for program in report.get("texts", {}).values():
            lines += [line for line in program.rstrip().split("\n")] + [""]
    return "\n".join(lines)


def write(results, directory, plot_python):
    directory.mkdir(parents=True, exist_ok=True)
    results["goals"] = goals(results["loads"])
    (directory / "results.json").write_text(json.dumps(results, indent=1))
    (directory / "results.txt").write_text(text(results) + "\n")
    here = pathlib.Path(__file__).resolve().parent
    done = subprocess.run([plot_python, str(here / "plot.py"), str(directory / "results.json"), str(directory / "results.png")],
                          capture_output=True, text=True)
    return done.returncode == 0, done.stderr.strip().split("\n")[-1]
