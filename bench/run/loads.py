"""The loads, one function each: what is sent to whom, and what is read off. `LOADS` names them in order.

A function returns {"title", "trials", "values"}: the turns, and the figures that goals are held against.
"""
import re
import subprocess

import clients
import numpy as np
import payloads
import processes
import shared
import subjects as s
import watched
import wheel
from measure import of, ratios, say, spread

GIB, MIB = 1 << 30, 1 << 20


def median(trials, subject, what=lambda t: t["rate"]):
    value = spread(of(trials, subject, what))
    return value and value["median"]


def latency(which):
    return lambda trial: trial["result"]["latency_ms"][which]


def closed(bench, connections, requests, **more):
    return dict({"connections": connections, "seconds": bench.seconds, "warmup": min(1, bench.seconds / 4),
                 "requests": requests}, **more)


def spec_for(bench, connections, jobs, **more):
    """A closed loop of payloads, each in the subject's own words."""
    def spec(subject):
        requests = [r for r in (subject.request(p) for p in jobs) if r is not None]
        if not requests:
            return None
        if isinstance(subject, s.Celery):
            return submit_spec(bench, subject, connections, requests, 200 if bench.quick else 1000)
        return closed(bench, connections, requests, **more)
    return spec


def submit_spec(bench, subject, connections, requests, count, window=None, **poll):
    return {"connections": connections, "count": count, "requests": requests, "timeout": 120,
            "poll": dict(subject.poll, window=window or connections, **dict({"interval_ms": 5, "most_interval_ms": 100}, **poll))}


# --- 1: small JSON jobs -----------------------------------------------------------------------------------------------


def small_json(bench, connections):
    job = payloads.product(bench.scratch, "json4", 4, "float64", "json")
    who = [s.Blasd(bench.build), s.FastApi(bench.build), s.FastApi(bench.build, 2)]
    if connections == 256:
        who.append(s.FastApi(bench.build, json="stdlib"))
    who += [s.Celery(bench.build), s.Triton(bench.build), s.PlainC(bench.build)]
    trials = bench.turns(who, spec_for(bench, connections, [job]))
    values = {"rate": median(trials, "blasd"), "p50": median(trials, "blasd", latency("p50")),
              "p99": median(trials, "blasd", latency("p99")),
              "reads_per_job": median(trials, "blasd", lambda t: t["redis"]["reads_per_job"])}
    return {"title": f"JSON 4 x 4, synchronous, {connections} connections", "trials": trials, "values": values}


def doors(bench):
    """What keys, and TLS, cost a small job: in turns with the service without."""
    job = payloads.product(bench.scratch, "json4", 4, "float64", "json")
    who = [s.Blasd(bench.build), s.BlasdKeys(bench.build), s.BlasdTls(bench.build)]

    def spec(subject):
        return closed(bench, 256, [subject.request(job)], tls=isinstance(subject, s.BlasdTls))
    trials = bench.turns(who, spec)
    plain, values = median(trials, "blasd"), {}
    for name in ("keys", "tls"):
        rate = median(trials, f"blasd-{name}")
        values[name] = rate / plain if rate and plain else None
    return {"title": "JSON 4 x 4, 256 connections: without keys, with keys, with TLS", "trials": trials, "values": values}


def switched_on(bench):
    """What each thing that an operator can switch on costs a small job, and all of them together."""
    job = payloads.product(bench.scratch, "json4", 4, "float64", "json")
    trials = bench.turns(watched.all_of_them(bench.build), spec_for(bench, 256, [job]))
    values = {name: ratios(trials, f"blasd-{name}").get("blasd") for name in (*watched.Watched.WHAT, "all")}
    return {"title": "JSON 4 x 4, 256 connections: with nothing switched on, with each, with all", "trials": trials, "values": values}


def open_pages(bench):
    """A hundred people look on: what that costs who sends jobs, and what the pages are told."""
    job = payloads.product(bench.scratch, "json4", 4, "float64", "json")
    who = [s.Blasd(bench.build), watched.Watched(bench.build, "pages", ("page",), 100)]
    trials = bench.turns(who, spec_for(bench, 256, [job]))
    return {"title": "JSON 4 x 4, 256 connections: no page open, and 100", "trials": trials,
            "values": {"pages": ratios(trials, "blasd-pages").get("blasd"), "p99": median(trials, "blasd-pages", latency("p99")),
                       "events_a_page": median(trials, "blasd-pages", lambda t: t["events"] / t["pages"]),
                       "ended": sum(t["ended"] for t in trials if t["subject"] == "blasd-pages")}}


# --- what stays at the service, and what goes there as one ---------------------------------------------------------------


def stored_factor(bench):
    """One factor for 1,000 products: kept by the service, beside sent each time. The other has 16 columns, so that there is
    something to gain; the arithmetic is 34 million operations."""
    rng = np.random.default_rng(22)
    a, b = payloads.small_whole(rng, 1024, 1024, dtype="float32"), payloads.small_whole(rng, 1024, 16, dtype="float32")
    job = payloads.Payload(bench.scratch, "stored", "matmul", {"a": a, "b": b}, "c", a @ b, kind="binary")

    def spec(subject):
        return {"connections": 4, "count": 200 if bench.quick else 1000, "requests": [subject.request(job)], "timeout": 60}
    trials = bench.turns([s.BlasdKept(bench.build), s.Blasd(bench.build)], spec)
    return {"title": "1024 x 1024 by 1024 x 16 float32 over TCP, 4 connections: the large factor kept, and sent each time",
            "trials": trials, "values": {"kept": ratios(trials, "blasd-kept").get("blasd")}}


def reference(bench):
    """What a reference costs a small job: the same product with one factor sent and with it kept."""
    job = payloads.product(bench.scratch, "json4", 4, "float64", "json")
    trials = bench.turns([s.BlasdKept(bench.build), s.Blasd(bench.build)], spec_for(bench, 256, [job]))
    return {"title": "JSON 4 x 4, 256 connections: one factor kept, and both sent", "trials": trials,
            "values": {"cost": ratios(trials).get("blasd-kept")}}


def graph(bench):
    """200 steps of power iteration as one graph beside the loop in C, which has its matrix in memory: with the matrix kept by the
    service, and with it sent."""
    n, steps, trials = 1024, 200, []
    problem = payloads.PowerIteration(bench.scratch, n, steps)
    direct = s.Direct(bench.build, n, dtype="float64", program=("power_iteration", steps))
    running = bench.start([s.BlasdKept(bench.build), s.Blasd(bench.build)])
    try:
        specs = {one.name: {"connections": 1, "count": 3 if bench.quick else 20, "requests": [one.request(problem)], "timeout": 120}
                 for one in running}
        for one in running:
            bench.load(dict(specs[one.name], port=one.port))
        for number in range(bench.rounds):
            for one in running:
                record = bench.turn(one, specs[one.name])
                trials.append(dict(record, round=number))
                say(f"  {one.name}: {record['rate']:.4g}/s, p50 {record['result']['latency_ms']['p50']:.4g} ms")
            trials.append(bench.direct(direct, number))
    finally:
        for one in running:
            one.stop()
    kept, sent = (ratios(trials, "direct").get(name) for name in ("blasd-kept", "blasd"))
    return {"title": f"power iteration of {steps} steps at n = {n} as one graph, its matrix kept, and sent; direct: the loop in C with OpenBLAS",
            "trials": trials, "values": {"time": kept, "time_sent": sent}}


# --- 2, 3: binary ---------------------------------------------------------------------------------------------------


def binary_64(bench):
    job = payloads.product(bench.scratch, "binary64", 64)
    who = [s.Blasd(bench.build), s.FastApi(bench.build), s.FastApi(bench.build, 2), s.Triton(bench.build),
           s.PlainC(bench.build)]
    trials = bench.turns(who, spec_for(bench, 256, [job]))
    return {"title": "binary 64 x 64 float32, 256 connections", "trials": trials,
            "values": {"rate": median(trials, "blasd"), "p99": median(trials, "blasd", latency("p99"))}}


def large(bench, n, connections, count, others):
    job = payloads.product(bench.scratch, f"binary{n}", n, wait=120)
    direct, trials = s.Direct(bench.build, n), []
    who = [s.Blasd(bench.build), *others]
    running = bench.start(who)
    try:
        for number in range(-1, bench.rounds):
            for subject in running:
                spec = {"connections": connections, "count": count if number >= 0 else connections, "timeout": 300,
                        "requests": [subject.request(job)]}
                if number < 0:
                    bench.load(dict(spec, port=subject.port))
                    continue
                record = bench.turn(subject, spec)
                trials.append(dict(record, round=number))
                say(f"  {subject.name}: {record['rate']:.4g}/s")
            if number >= 0:
                trials.append(bench.direct(direct, number))
    finally:
        for subject in running:
            subject.stop()
    return {"title": f"binary {n} x {n} float32, {connections} connections", "trials": trials,
            "values": {"rate": median(trials, "blasd")}}


def binary_1024(bench):
    return large(bench, 1024, 4, 60 if bench.quick else 400,
                 [s.PlainC(bench.build), s.FastApi(bench.build, 1, blas_threads=2), s.FastApi(bench.build, 2),
                  s.Triton(bench.build, blas_threads=2)])


def binary_4096(bench):
    return large(bench, 4096, 2, 4 if bench.quick else 12,
                 [s.PlainC(bench.build, 1, 2), s.FastApi(bench.build, 1, blas_threads=2)])


def binary_4096_shared(bench):
    """Operands that lie in shared memory and are handed in by name, results mapped where they lie."""
    n, count, trials = 4096, 4 if bench.quick else 12, []
    direct = s.Direct(bench.build, n)
    for subject in bench.start([s.Blasd(bench.build, "--share")]):
        try:
            crew = [shared.Caller(subject.port, n, seed) for seed in range(2)]
            shared.drive(crew, 2)
            for number in range(bench.rounds):
                record = bench.turn(subject, None, lambda: shared.drive(crew, count))
                trials.append(dict(record, round=number))
                say(f"  blasd: {record['rate']:.4g}/s, p50 {record['result']['latency_ms']['p50']:.4g} ms; "
                    f"{shared.parts_text(record['result'])}; processor time us {record['cpu_us']}")
                trials.append(bench.direct(direct, number))
        finally:
            subject.stop()
    return {"title": f"{n} x {n} float32 in shared memory, 2 at a time", "trials": trials,
            "values": {"rate": median(trials, "blasd")}}


# --- 4: asynchronous --------------------------------------------------------------------------------------------------


def submit_and_poll(bench):
    job = payloads.product(bench.scratch, "json4", 4, "float64", "json")
    counts = {"blasd": 10000 if bench.quick else 100000, "celery": 300 if bench.quick else 2000}

    def spec(subject):
        request = job.for_blasd_submit() if isinstance(subject, s.Blasd) else subject.request(job)
        return submit_spec(bench, subject, 256, [request], counts[subject.name], window=counts[subject.name],
                           interval_ms=50, most_interval_ms=500)
    trials = bench.turns([s.Blasd(bench.build), s.Celery(bench.build)], spec)
    lost = sum(t["result"]["jobs"]["lost"] + t["result"]["jobs"]["failed"] for t in trials if t["subject"] == "blasd")
    return {"title": f"submit and poll, {counts['blasd']} jobs (Celery: {counts['celery']}), 256 connections",
            "trials": trials, "values": {"rate": median(trials, "blasd"), "lost": lost}}


# --- 5: mixed ---------------------------------------------------------------------------------------------------------


def mixed(bench):
    jobs = payloads.mixed(bench.scratch)
    trials = bench.turns([s.Blasd(bench.build), s.FastApi(bench.build), s.FastApi(bench.build, 2)],
                         spec_for(bench, 64, jobs))
    wrong = sum(t["result"]["wrong"] for t in trials)
    return {"title": "mixed shapes and four operations, JSON and binary, 64 connections", "trials": trials,
            "values": {"rate": median(trials, "blasd"), "p99": median(trials, "blasd", latency("p99")), "wrong": wrong}}


# --- 6: a large job beside small ones -----------------------------------------------------------------------------------


def thin(bench):
    """512 MiB of operands and next to no arithmetic."""
    rng = np.random.default_rng(8)
    a, b = payloads.small_whole(rng, 16384, 8192, dtype="float32"), payloads.small_whole(rng, 8192, 1, dtype="float32")
    return payloads.Payload(bench.scratch, "big-thin", "matmul", {"a": a, "b": b}, "c", (a.astype(np.float64) @ b).astype("float32"),
                            kind="binary", exact=True, wait=120)


def thick(bench):
    """512 MiB of operands, 1.1e12 operations."""
    rng = np.random.default_rng(9)
    a, b = (payloads.small_whole(rng, 8192, 8192, dtype="float32") for _ in "ab")
    return payloads.Payload(bench.scratch, "big-thick", "matmul", {"a": a, "b": b}, "c", a @ b, kind="binary", wait=300)


def beside_one(bench, subject, small, big, seconds):
    """A turn of 2,000 small jobs a second, while a large one after the other is under way."""
    other = bench.start_load({"port": subject.port, "connections": 1, "seconds": seconds + 2, "timeout": 300,
                              "requests": [subject.request(big)]})
    record = bench.turn(subject, {"connections": 128, "seconds": seconds, "warmup": 1, "rate": 2000,
                                  "requests": [subject.request(small)]})
    beside_it = bench.finish_load(other)
    bench.check(subject, beside_it)
    return dict(record, big={k: beside_it[k] for k in ("right", "wrong", "errors", "latency_ms")})


def beside(bench, make, label):
    """The thick one takes tens of seconds a turn: three turns are enough to see whether small jobs stall."""
    small, big = payloads.product(bench.scratch, "json4", 4, "float64", "json"), make(bench)
    blasd, trials = s.Blasd(bench.build), []
    seconds = bench.seconds if bench.quick else max(bench.seconds, 6 if make is thin else 20)
    for subject in bench.start([blasd]):
        try:
            for number in range(bench.rounds if make is thin else min(bench.rounds, 3)):
                record = dict(beside_one(bench, subject, small, big, seconds), round=number)
                trials.append(record)
                say(f"  small p99 {record['result']['latency_ms']['p99']:.4g} ms beside {beside_it['right']} large ones "
                    f"of {beside_it['latency_ms']['p50']:.4g} ms")
        finally:
            subject.stop()
    return {"title": f"2,000 small jobs a second beside 512 MiB jobs, one after the other ({label})", "trials": trials,
            "values": {"p99": median(trials, "blasd", latency("p99")), "p50": median(trials, "blasd", latency("p50")),
                       "large_ms": median(trials, "blasd", lambda t: t["big"]["latency_ms"]["p50"]),
                       "large_jobs": sum(t["big"]["right"] for t in trials),
                       "unsent": sum(t["result"]["unsent"] for t in trials)}}


# --- 7: open loop -------------------------------------------------------------------------------------------------------


def service_us(trial):
    """Processor time of the service for each job that it did, what it refused included."""
    return sum(sum(v) for k, v in trial["cpu_us"].items() if k != "load generator")


def generator_share(trial):
    """Of all processor time that the turn took."""
    return sum(trial["cpu_us"]["load generator"]) / sum(sum(v) for v in trial["cpu_us"].values())


def overload(bench, subject, request, best):
    """Twice what was reached a moment before, on 4,096 connections."""
    with processes.MemoryWatch(subject.pids(), subject.blobs, 1) as memory:  # a look costs 6 to 9 ms of processor time
        record = bench.turn(subject, closed(bench, 4096, request, rate=best * 2, timeout=20,
                                            warmup=min(2, bench.seconds / 2)))  # its connections are opened in that
    r = record["result"]
    return dict(record, share_of_best=record["rate"] / best, memory_start=memory.start_bytes, memory_peak=memory.peak,
                refused=r["statuses"].get("429", 0),
                unlike=sum(n for status, n in r["statuses"].items() if status not in ("200", "429")))


def open_loop(bench):
    """Half and twice what a closed loop of 256 connections reached a moment before. The queue takes 1,024 jobs and
    requests wait 100 ms at most for room in it, so that there is something to refuse. A closed loop on as many
    connections as at twice, whose queue takes them all, may do more: what twice the rate gives is a share of the better
    of the two."""
    job = payloads.product(bench.scratch, "json4", 4, "float64", "json")
    trials, values = [], {}
    crowd = s.Blasd(bench.build)
    for subject in bench.start([s.Blasd(bench.build, "--limit", "queue_jobs=1024", "--limit", "queue_wait_ms=100")]):
        try:
            crowd.start()
            request = [subject.request(job)]
            for each in (subject, crowd):
                bench.turn(each, closed(bench, 256, request))
            for number in range(bench.rounds):
                best = bench.turn(subject, closed(bench, 256, request))
                half = bench.turn(subject, closed(bench, 256, request, rate=best["rate"] / 2))
                twice = overload(bench, subject, request, best["rate"])
                many = bench.turn(crowd, closed(bench, 4096, request, timeout=20))
                twice["share_of_best"] = twice["rate"] / max(best["rate"], many["rate"])
                for record, which in ((best, "capacity"), (half, "half"), (twice, "twice"), (many, "4096-closed")):
                    trials.append(dict(record, round=number, subject=which))
                r = twice["result"]
                say(f"  best {best['rate']:.0f}/s; half: p99 {half['result']['latency_ms']['p99']:.3g} ms; twice: "
                    f"{twice['rate']:.0f}/s and {r['statuses']} in all, p99 of right ones {r['latency_ms']['p99']:.4g} ms, "
                    f"memory {twice['memory_start'] / MIB:.0f} -> {twice['memory_peak'] / MIB:.0f} MiB, "
                    f"{service_us(best):.0f} -> {service_us(twice):.0f} us a job; closed loop of 4,096 {many['rate']:.0f}/s")
        finally:
            subject.stop()
            crowd.stop()
        last = [t for t in trials if t["subject"] == "twice"]
        values = {"half_p50": median(trials, "half", latency("p50")), "half_p99": median(trials, "half", latency("p99")),
                  "twice_share": spread([t["share_of_best"] for t in last])["median"],
                  "service_us_capacity": median(trials, "capacity", service_us), "service_us_twice": median(trials, "twice", service_us),
                  "generator_share_twice": median(trials, "twice", generator_share),
                  "refused": sum(t["refused"] for t in last),
                  "retry_after": sum(t["result"]["retry_after"] for t in last),
                  "errors": sum(t["result"]["errors"] + t["result"]["timeouts"] + t["result"]["wrong"] + t["unlike"] for t in last),
                  "memory_growth_mib": max(t["memory_peak"] - t["memory_start"] for t in last) / MIB}
    return {"title": "open loop at half and twice the capacity (queue_jobs=1024, queue_wait_ms=100, 4,096 connections)",
            "trials": trials, "values": values}


# --- 8: all at once -----------------------------------------------------------------------------------------------------


def burst(bench):
    job = payloads.product(bench.scratch, "json4", 4, "float64", "json")

    def spec(subject):
        return {"connections": 1024, "count": 1024, "requests": [subject.request(job)]}
    trials = bench.turns([s.Blasd(bench.build), s.FastApi(bench.build, 2), s.PlainC(bench.build)], spec)
    mine = [t["result"] for t in trials if t["subject"] == "blasd"]
    return {"title": "1,024 connections arriving at once, one job each", "trials": trials,
            "values": {"served": min(r["right"] for r in mine), "errors": sum(r["errors"] + r["timeouts"] for r in mine),
                       "slowest_ms": max(r["latency_ms"]["max"] for r in mine)}}


# --- bodies, memory, numbers ----------------------------------------------------------------------------------------------


def body_of_64_mib(bench):
    rng = np.random.default_rng(3)
    a, b = payloads.small_whole(rng, 4096, 4096, dtype="float32"), payloads.small_whole(rng, 4096, 1, dtype="float32")
    return payloads.Payload(bench.scratch, "receive", "matmul", {"a": a, "b": b}, "c", a @ b, kind="binary")


def receive(bench):
    """64 MiB bodies: submitted to the service, and thrown away by the sink."""
    job = body_of_64_mib(bench)

    def spec(subject):
        if isinstance(subject, s.Blasd):
            request = job.for_blasd_submit()
        else:
            request = {"name": "sink", "path": "/sink", "body": job.for_blasd_submit()["body"], "contains": "none"}
        return {"connections": 1, "count": 20 if bench.quick else 100, "requests": [request], "timeout": 60}
    trials = bench.turns([s.Blasd(bench.build), s.PlainC(bench.build, 1)], spec)
    for trial in trials:
        trial["bytes_per_s"] = trial["rate"] * trial["result"]["bytes_out"] / trial["result"]["sent"]
    return {"title": "64 MiB bodies into the blob store, one connection; plain-c: into nothing", "trials": trials,
            "values": {"gb_per_s": median(trials, "blasd", lambda t: t["bytes_per_s"] / 1e9),
                       "sink_gb_per_s": median(trials, "plain-c", lambda t: t["bytes_per_s"] / 1e9)}}


def memory(bench):
    """Peak of all processes' memory and tmpfs above what they had idle, for one 512 MiB job on a fresh service."""
    values, trials = {}, []
    for label, make in (("thin", thin), ("thick", thick)):
        if bench.quick and label == "thick":
            continue
        job, shares = make(bench), []
        for number in range(min(bench.rounds, 3)):
            for subject in bench.start([s.Blasd(bench.build)]):
                try:
                    with processes.MemoryWatch(subject.pids(), subject.blobs) as watch:
                        record = bench.turn(subject, {"connections": 1, "count": 1, "requests": [subject.request(job)],
                                                      "timeout": 300})
                finally:
                    subject.stop()
                share = (watch.peak - watch.start_bytes) / job.bytes
                shares.append(watch.peak / job.bytes)
                trials.append(dict(record, round=number, subject=label, peak=watch.peak, idle=watch.start_bytes,
                                   job_bytes=job.bytes, parts=watch.peak_parts))
                say(f"  {label}: peak {watch.peak / MIB:.0f} MiB (idle {watch.start_bytes / MIB:.0f}) for "
                    f"{job.bytes / MIB:.0f} MiB: {watch.peak / job.bytes:.3f}, growth {share:.3f} "
                    f"{ {k: round(v / MIB) for k, v in watch.peak_parts.items()} } in {watch.samples} looks")
        values[f"share_{label}"] = spread(shares)["median"]
    return {"title": "peak memory for one 512 MiB job, over its inputs and outputs", "trials": trials, "values": values}


def json_numbers(bench):
    """bench/wire's program sets the ways in and out against jansson in one process, in turns. Goals are held against
    its medians for matrices of full doubles, 1024 x 1024."""
    program = bench.build / "bench" / "wire" / "bench_json_numbers"
    title, values = "JSON numbers against jansson, medians (least to most)", {}
    if not program.exists():
        say(f"  {program} is not built")
        return {"title": title, "trials": [], "values": values}
    text = subprocess.run([str(program), "5" if bench.quick else "9"], capture_output=True, text=True, timeout=600,
                          check=True).stdout
    for line in text.splitlines():
        say("  " + line)
    found = re.findall(r"^(in|out) +(\w+) +(\d+) x .*ratio ([\d.]+) \(([\d.]+) to ([\d.]+)\)", text, re.M)
    ratios = {f"{way} {kind} {side}": {"median": float(ratio), "least": float(least), "most": float(most)}
              for way, kind, side, ratio, least, most in found}
    for way in ("in", "out"):
        values[f"{way}_ratio"] = ratios[f"{way} doubles 1024"]["median"]
    return {"title": title, "trials": [], "values": values, "ratios": ratios, "texts": {"numbers": text}}


def numpy_wheel(bench):
    """Products and solves where they are computed, beside NumPy's own wheel in process: from n = 256 on there is no reason
    to be slower. A solve of ours also tells its condition and refines; NumPy's does neither."""
    title, values, ratios, text = "the worker beside NumPy's own wheel in process", {}, {}, ""
    subject, theirs = s.Blasd(bench.build, "--share", *wheel.AWAKE, env=wheel.environment()), None
    for running in bench.start([subject]):
        try:
            theirs = wheel.Wheel(bench.build / "bench-venv-science" / "bin" / "python")
            ours = wheel.Worker(running)
            say(f"  {ours.what}; {theirs.what}")
            figures = wheel.turns(ours, theirs, wheel.SIZES_QUICK if bench.quick else wheel.SIZES, bench.rounds,
                                  bench.seconds / 8)
            ratios, text = wheel.table(figures, (ours.what, theirs.what))
            for op in ("matmul", "solve"):
                values[f"worst_{op}"] = min((r for name, r in ratios.items() if name.startswith(op)), key=lambda r: r["median"])
        finally:
            if theirs:
                theirs.stop()
            running.stop()
    return {"title": title, "trials": [], "values": values, "ratios": ratios, "texts": {"wheel": text}}


def peoples_clients(bench):
    """The service by the generator, by the Python client and by tritonclient; and pytriton by tritonclient. Each sends the same
    products. The Python client is held against the generator by what the service spends on a job: as fast as the generator can, with
    batches to match, and at the client's own rate."""
    job, trials = payloads.product(bench.scratch, "binary64", 64), []
    running = bench.start([s.Blasd(bench.build), s.Triton(bench.build)])
    drivers, ours = [], next((one for one in running if one.name == "blasd"), None)
    if ours is None:
        raise processes.Failed(bench.unavailable["blasd"])
    for subject in running:
        ways = {"tritonclient": lambda port: clients.Tritonclient(bench.build, port, job, "matmul", 64)}
        if subject.name == "triton":
            ways = {"tritonclient-pytriton": lambda port: clients.Tritonclient(bench.build, port, job, "matmul32", 64, (1,))}
        else:
            ways = {"python-64": lambda port: clients.Python(port, job, 64), "blasd-paced": None,
                    "python-1": lambda port: clients.Python(port, job, 1), **ways}
        for name, make in ways.items():
            if make is None:
                drivers.append((name, subject, None))
                continue
            try:
                drivers.append((name, subject, make(subject.port)))
            except processes.Failed as problem:
                bench.unavailable[name] = str(problem)
    try:
        for number in range(-1, bench.rounds):
            pace = 0
            for name, subject, driver in [("blasd", ours, None), *drivers]:
                seconds = bench.seconds if number >= 0 else 0.5
                spec = closed(bench, 64, [subject.request(job)], seconds=seconds, rate=pace if name == "blasd-paced" else 0)
                record = bench.turn(subject, spec, driver and (lambda: driver.drive(seconds)))
                pace = record["rate"] if name == "python-64" else pace
                if number < 0:
                    continue
                trials.append(dict(record, round=number, subject=name))
                say(f"  {name}: {record['rate']:.6g}/s, {clients.per_cpu_second(record) or 0:.6g} for each processor second of the server")
    finally:
        for _, _, driver in drivers:
            if driver is not None:
                driver.stop()
        for subject in running:
            subject.stop()

    def against(mine, theirs, what):
        other = {t["round"]: what(t) for t in trials if t["subject"] == theirs}
        return spread([what(t) / other[t["round"]] for t in trials if t["subject"] == mine and other.get(t["round"]) and what(t)])
    return {"title": "binary 64 x 64 float32 by people's clients, 64 in flight (python-1: one by one; blasd-paced: the generator at python-64's rate)",
            "trials": trials,
            "values": {"python_per_cpu": against("python-64", "blasd", clients.per_cpu_second),
                       "python_per_cpu_paced": against("python-64", "blasd-paced", clients.per_cpu_second),
                       "map_ratio": against("python-64", "python-1", lambda t: t["rate"]),
                       "tritonclient_ratio": against("tritonclient", "tritonclient-pytriton", lambda t: t["rate"])}}


LOADS = {
    "json-1": lambda b: small_json(b, 1), "json-32": lambda b: small_json(b, 32), "json-256": lambda b: small_json(b, 256),
    "keys": doors,
    "watched": switched_on, "pages": open_pages,
    "tensors": stored_factor, "reference": reference, "graph": graph,
    "binary-64": binary_64, "binary-1024": binary_1024, "binary-4096": binary_4096,
    "binary-4096-shared": binary_4096_shared, "async": submit_and_poll,
    "mixed": mixed, "beside-thin": lambda b: beside(b, thin, "matrix by vector"),
    "beside-thick": lambda b: beside(b, thick, "8192 x 8192 product"), "open": open_loop, "burst": burst,
    "receive": receive, "memory": memory, "json-numbers": json_numbers,
    "numpy": numpy_wheel, "clients": peoples_clients,
}
