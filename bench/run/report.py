"""From turns to tables: rates with medians and spread, ratios, goals, processor time by layer, host facts."""
import json
import os
import pathlib
import platform
import subprocess

import machine
from measure import QUIET, load_average, of, ratios, spread

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def rate(report):
    return spread(of(report["trials"], "blasd"))


def latency(which):
    return lambda report: spread(of(report["trials"], "blasd", lambda t: t["result"]["latency_ms"][which]))


def peer(name):
    return lambda report: ratios(report["trials"]).get(name)


def value(name):
    return lambda report: report["values"].get(name)


def reads(report):
    return spread(of(report["trials"], "blasd", lambda t: t["redis"]["reads_per_job"]))


def of_sink(report):
    sink = {t["round"]: t["bytes_per_s"] for t in report["trials"] if t["subject"] == "plain-c"}
    return spread([t["bytes_per_s"] / sink[t["round"]] for t in report["trials"] if t["subject"] == "blasd" and sink.get(t["round"])])


def twice(what):
    return lambda report: spread(of(report["trials"], "twice", what))


def growth_mib(trial):
    return (trial["memory_peak"] - trial["memory_start"]) / (1 << 20)


# (load, what, comparison, goal, how to read it off the load's report: a number, or the spread of the turns)
GOALS = [
    ("json-256", "jobs a second", ">=", 30000, rate),
    ("json-256", "times FastAPI with Celery", ">=", 50, peer("celery")),
    ("json-256", "times FastAPI inline, one process, at least", ">=", 2, peer("fastapi")),
    ("json-256", "times FastAPI inline, one process, as the goal", ">=", 3, peer("fastapi")),
    ("json-256", "p99, ms", "<", 20, latency("p99")),
    ("json-256", "Redis round trips a job", "<", 0.2, reads),
    ("keys", "with keys, of the rate without", ">=", 0.97, value("keys")),
    ("keys", "with TLS, of the rate without", ">=", 0.75, value("tls")),
    ("watched", "with spans of 1 %, of the rate without", ">=", 0.97, value("spans")),
    ("watched", "with a log of each request", ">=", 0.97, value("access-log")),
    ("watched", "with the stream of ended jobs", ">=", 0.97, value("ended")),
    ("watched", "with webhooks and URLs allowed", ">=", 0.97, value("outgoing")),
    ("watched", "with a scrape of the metrics each second", ">=", 0.97, value("metrics")),
    ("watched", "with a page open", ">=", 0.97, value("page")),
    ("watched", "with all of these", ">=", 0.92, value("all")),
    ("pages", "streams of events that ended", "<=", 0, value("ended")),
    ("tensors", "times the rate with the factor sent", ">=", 1.8, value("kept")),
    ("reference", "time of a job, of one without a reference", "<=", 1.15, value("cost")),
    ("graph", "time, of that of the loop in C, the matrix kept", "<=", 1.15, value("time")),
    ("json-1", "p50, ms", "<", 0.35, latency("p50")),
    ("binary-64", "jobs a second", ">=", 20000, rate),
    ("binary-1024", "times the plain C server", ">=", 1, peer("plain-c")),
    ("binary-4096", "of the direct call", ">=", 0.85, peer("direct")),
    ("binary-4096-shared", "of the direct call", ">=", 0.95, peer("direct")),
    ("async", "jobs lost or failed", "<=", 0, value("lost")),
    ("mixed", "wrong answers", "<=", 0, value("wrong")),
    ("beside-thin", "small jobs' p99, ms", "<", 50, latency("p99")),
    ("beside-thick", "small jobs' p99, ms", "<", 50, latency("p99")),
    ("open", "share of the best rate at twice the capacity", ">=", 0.9, twice(lambda t: t["share_of_best"])),
    ("open", "refused there without Retry-After", "<=", 0, lambda r: r["values"]["refused"] - r["values"]["retry_after"]),
    ("open", "neither served nor refused with 429", "<=", 0, value("errors")),
    ("open", "growth of memory at twice, MiB", "<", 1024, twice(growth_mib)),
    ("burst", "of 1,024 served, in the worst turn", ">=", 1024, value("served")),
    ("receive", "of the bare sink's rate", ">=", 0.6, of_sink),
    ("clients", "Python's map, jobs a processor second of the service, of the generator's", ">=", 0.85, value("python_per_cpu")),
    ("clients", "the same, of the generator's at the client's own rate", ">=", 0.85, value("python_per_cpu_paced")),
    ("clients", "map with 64 in flight, times one by one", ">=", 3, value("map_ratio")),
    ("clients", "tritonclient against us, times against pytriton", ">=", 1, value("tritonclient_ratio")),
    ("memory", "peak over inputs and outputs, little arithmetic", "<", 1.3, value("share_thin")),
    ("memory", "peak over inputs and outputs, a large product", "<", 1.3, value("share_thick")),
    ("json-numbers", "in, times jansson", ">=", 10, value("in_ratio")),
    ("json-numbers", "out, times jansson", ">=", 6, value("out_ratio")),
    ("numpy", "products, of the rate of NumPy's wheel, worst", ">=", 0.9, value("worst_matmul")),
    ("numpy", "solves, of the rate of NumPy's wheel, worst", ">=", 0.9, value("worst_solve")),
]


def goals(reports):
    """Each goal with its figure: the median of the turns, with the least and the most where there are turns."""
    out = []
    for load, what, comparison, goal, read in GOALS:
        try:
            found = read(reports[load]) if load in reports else None
        except (KeyError, TypeError, ZeroDivisionError):
            found = None
        turns = found if isinstance(found, dict) else None
        figure = turns["median"] if turns else found
        met = None if figure is None else {">=": figure >= goal, "<": figure < goal, "<=": figure <= goal}[comparison]
        out.append({"load": load, "what": what, "comparison": comparison, "goal": goal, "value": figure, "turns": turns, "met": met})
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
        lines += ["  " + ", ".join(f"{k} {number(v['median'] if isinstance(v, dict) else v)}" for k, v in report["values"].items()), ""]
    return lines


LAYERS = ("blasd api", "redis-server", "blasd worker", "blasd up", "load generator")


def layers_table(reports):
    """A row for each load and turn of the service: where a job's processor time goes."""
    lines = ["Processor time a job by layer, microseconds, user + system, medians; a refused request counts with the jobs that were done",
             "", f"  {'':22} {'front end':>14} {'Redis':>14} {'worker':>14} {'supervisor':>12} {'service':>9} {'generator':>14}"
             f" {'Redis trips':>12} {'commands':>9}"]
    for name, report in reports.items():
        for subject in ("blasd", "capacity", "half", "twice", "4096-closed"):
            mine = [t for t in report["trials"] if t["subject"] == subject and t.get("cpu_us")]
            if not mine:
                continue
            times = {layer: [spread([t["cpu_us"].get(layer, (0, 0))[i] for t in mine])["median"] for i in (0, 1)] for layer in LAYERS}
            cells = {layer: f"{number(u)} + {number(s)}" for layer, (u, s) in times.items()}
            trips = [spread([t["redis"][k] for t in mine])["median"] for k in ("reads_per_job", "commands_per_job")]
            service = sum(sum(v) for k, v in times.items() if k != "load generator")
            lines.append(f"  {name + ('' if subject == 'blasd' else ' ' + subject):22} {cells['blasd api']:>14} {cells['redis-server']:>14} "
                         f"{cells['blasd worker']:>14} {cells['blasd up']:>12} {number(service):>9} {cells['load generator']:>14} "
                         f"{number(trips[0]):>12} {number(trips[1]):>9}")
    return lines + [""] + peers_table(reports)


def peers_table(reports):
    lines = ["The same of the peers, all their processes; beside it the generator's", ""]
    for name, report in reports.items():
        for subject in dict.fromkeys(t["subject"] for t in report["trials"]):
            mine = [t for t in report["trials"] if t["subject"] == subject and t.get("cpu_us") and "blasd api" not in t["cpu_us"]]
            if mine:
                whole = spread([sum(sum(v) for k, v in t["cpu_us"].items() if k != "load generator") for t in mine])
                generator = spread([sum(t["cpu_us"]["load generator"]) for t in mine])
                lines.append(f"  {name:14} {subject:16} {number(whole['median']):>10} {number(generator['median']):>10}")
    return lines + [""] if len(lines) > 2 else []


def goals_table(reports):
    lines = ["Goals: the median of the turns [least .. most] against the goal", ""]
    for goal in goals(reports):
        if goal["load"] not in reports and len(reports) < 3:
            continue  # a look at one load
        state = {True: "met", False: "NOT MET", None: "not measured"}[goal["met"]]
        turns = goal["turns"]
        range_ = f"[{number(turns['least'])} .. {number(turns['most'])}]" if turns and turns["turns"] > 1 else ""
        lines.append(f"  {goal['load']:18} {goal['what']:48} {number(goal['value']):>9} {range_:22} goal {goal['comparison']:>2} "
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
                 "  (the machine was busy with other work: these figures are noise)" if facts["load_average"] > QUIET else ""),
             f"{results['rounds']} turns of {results['seconds']} s each, A B A B; medians [least .. most]; {results['minutes']} minutes in all",
             ""]
    if results["left_out"]:
        lines += ["Left out:", *(f"  {name}: {why}" for name, why in results["left_out"].items()), ""]
    lines += machine.text(results["machine"], number, spread_text)
    lines += goals_table(results["loads"]) + rates_table(results["loads"]) + layers_table(results["loads"])
    lines += machine.turns_text(results["loads"], spread, spread_text)
    for report in results["loads"].values():
        for program in report.get("texts", {}).values():
            lines += [line for line in program.rstrip().split("\n")] + [""]
    return "\n".join(lines)


def lines(value, depth=3, indent=""):
    """JSON with a line for each turn, not for each number."""
    inner = indent + " "
    if depth == 0 or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value)
    if isinstance(value, dict):
        rows = [f"{inner}{json.dumps(key)}: {lines(one, depth - 1, inner)}" for key, one in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    return "[\n" + ",\n".join(f"{inner}{json.dumps(one)}" for one in value) + f"\n{indent}]"


def write(results, directory, plot_python):
    directory.mkdir(parents=True, exist_ok=True)
    results["goals"] = goals(results["loads"])
    (directory / "results.json").write_text(lines(results, 4) + "\n")
    (directory / "results.txt").write_text(text(results) + "\n")
    here = pathlib.Path(__file__).resolve().parent
    done = subprocess.run([plot_python, str(here / "plot.py"), str(directory / "results.json"), str(directory / "results.png")],
                          capture_output=True, text=True)
    return done.returncode == 0, done.stderr.strip().split("\n")[-1]
