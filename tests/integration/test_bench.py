"""The measuring itself: what the machine's figures look like, and that a run of the bench stores them with its turns.
No figure is held against another: how fast anything is here is not for a test to say."""
import json
import math
import os
import pathlib
import subprocess
import sys

import pytest
from service import ROOT

pytestmark = pytest.mark.full

PROGRAM = ROOT / "build" / "bench" / "machine" / "bench_machine"
TWO_CORES = {"pipe_two_cores_us", "pipe_two_cores_p99_us", "pipe_two_cores_awake_us", "pipe_two_cores_awake_p99_us",
             "tcp_two_cores_us", "tcp_two_cores_p99_us", "tcp_stream_gb_s", "sgemm_all_cores_gflops"}
ALWAYS = {"pipe_one_core_us", "pipe_one_core_p99_us", "tcp_one_core_us", "tcp_one_core_p99_us", "copy_gb_s", "fresh_page_us",
          "system_call_ns", "sgemm_one_core_gflops"}


def run(*options, **how):
    return subprocess.run([str(PROGRAM), *options], capture_output=True, text=True, timeout=120, **how)


def figures_of(done, rounds):
    """What was printed, after a look at all that holds on any machine."""
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["rounds"] == rounds and report["seconds"] > 0
    assert all(0 <= report[share] <= 1 for share in ("idle_share", "others_share", "steal_share")), report
    for name, figure in report["figures"].items():
        if figure is None:
            assert name.replace("_p99", "") in report["left_out"], f"{name} is missing without a reason"
            continue
        assert figure["what"] and figure["unit"] in ("us", "ns", "GB/s", "GFLOP/s"), name
        assert len(figure["rounds"]) == rounds and all(math.isfinite(v) and v > 0 for v in figure["rounds"]), (name, figure)
        assert min(figure["rounds"]) == figure["least"] <= figure["median"] <= figure["most"] == max(figure["rounds"]), name
    for name in report["figures"]:
        if name.endswith("_p99_us") and report["figures"][name]:
            median, high = report["figures"][name.replace("_p99", "")], report["figures"][name]
            assert all(m <= h for m, h in zip(median["rounds"], high["rounds"])), name
    return report


def test_every_figure_is_a_positive_number_or_has_a_reason():
    before = set(pathlib.Path("/tmp").glob("bench_machine.*"))
    report = figures_of(run("--quick"), 2)
    assert all(report["figures"][name] for name in ALWAYS)
    assert set(report["figures"]) >= ALWAYS | TWO_CORES | {"redis_ping_us", "redis_ping_poll_us", "fresh_tmpfs_page_us"}
    assert report["figures"]["redis_ping_us"] and report["figures"]["redis_ping_poll_us"], report["left_out"]  # the service needs one, so it is here
    assert set(pathlib.Path("/tmp").glob("bench_machine.*")) <= before, "its Redis' directory is left behind"


def test_one_core_alone_has_no_figures_of_two():
    core = min(os.sched_getaffinity(0))
    report = figures_of(run("--rounds", "1", "--quick", preexec_fn=lambda: os.sched_setaffinity(0, {core})), 1)
    assert report["cores"] == 1 and report["pair"] == [core]
    assert {name for name in TWO_CORES if report["figures"][name] is not None} == set()
    assert all(report["figures"][name] for name in ALWAYS)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_two_cores_have_figures_of_two():
    report = figures_of(run("--quick"), 2)
    if len(report["pair"]) == 2:  # and are not two threads of one
        assert len(set(report["pair"])) == 2 and set(report["pair"]) <= os.sched_getaffinity(0)
        assert all(report["figures"][name] for name in TWO_CORES if "awake" not in name), report["left_out"]


def test_without_redis_the_rest_is_measured(tmp_path):
    report = figures_of(run("--quick", env={"PATH": str(tmp_path)}), 2)
    assert report["figures"]["redis_ping_us"] is None and "redis-server" in report["left_out"]["redis_ping_us"]
    assert all(report["figures"][name] for name in ALWAYS)


def test_text_has_a_line_for_each_figure():
    report = figures_of(run("--quick"), 2)
    lines = run("--quick", "--text").stdout.splitlines()
    assert len(lines) == len(report["figures"]) + 1
    for figure in filter(None, report["figures"].values()):
        assert any(line.startswith(figure["what"] + " ") and line.endswith(" " + figure["unit"]) for line in lines), figure


@pytest.mark.parametrize("options", [["--rounds", "5x"], ["--rounds", "0"], ["--rounds", ""], ["--rounds", "-1"], ["--rounds", "101"], ["--rounds"], ["--faster"], ["5"]])
def test_options_it_does_not_know(options):
    done = run(*options)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith("usage: ")


def test_a_run_of_the_bench_says_what_the_machine_did(tmp_path):
    done = subprocess.run([sys.executable, str(ROOT / "bench" / "run"), "--quick", "--only", "burst", "--rounds", "1",
                           "--build", str(ROOT / "build"), "--out", str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    for when in ("before", "after"):
        assert results["machine"][when]["figures"]["pipe_one_core_us"]["median"] > 0, results["machine"]
    trials = results["loads"]["burst"]["trials"]
    assert {"blasd", "plain-c"} <= {trial["subject"] for trial in trials}
    for trial in trials:
        shares = trial["machine"]
        assert 0 <= shares["idle"] and 0 <= shares["steal"] and shares["idle"] + shares["steal"] <= 1.01, trial
    text = (tmp_path / "results.txt").read_text()
    assert "The machine without the service" in text and "All cores during the turns" in text
    assert "pipe round trip, both ends on one core, us" in text


def test_what_stays_at_the_service_is_measured(tmp_path):
    """Both ways of each load give right answers, and a figure that its goal is held against."""
    loads = {"tensors": ("kept", {"blasd", "blasd-kept"}), "reference": ("cost", {"blasd", "blasd-kept"}),
             "graph": ("time", {"blasd", "blasd-kept", "direct"})}
    only = [word for name in loads for word in ("--only", name)]
    for seconds in ("3", "15", "60", "200"):  # a turn in which a busy machine answered nothing has no figure
        done = subprocess.run([sys.executable, str(ROOT / "bench" / "run"), "--quick", *only, "--rounds", "1", "--seconds", seconds,
                               "--build", str(ROOT / "build"), "--out", str(tmp_path)], capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stderr
        results = json.loads((tmp_path / "results.json").read_text())["loads"]
        if all(results[name]["values"].get(value) for name, (value, _) in loads.items()):
            break
    for name, (value, subjects) in loads.items():
        trials = results[name]["trials"]
        assert {trial["subject"] for trial in trials} == subjects
        assert all(t["result"] is None or t["result"]["right"] > 0 and not t["result"]["wrong"] for t in trials), trials
        assert results[name]["values"][value]["median"] > 0


def test_what_can_be_switched_on_is_measured(tmp_path):
    """By itself and together, and each is known to have been on."""
    done = subprocess.run([sys.executable, str(ROOT / "bench" / "run"), "--quick", "--only", "watched", "--only", "pages", "--rounds", "1",
                           "--seconds", "2", "--build", str(ROOT / "build"), "--out", str(tmp_path)], capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stderr
    loads = json.loads((tmp_path / "results.json").read_text())["loads"]
    trials = {trial["subject"]: trial for load in loads.values() for trial in load["trials"]}
    names = ("spans", "access-log", "ended", "outgoing", "metrics", "page", "all")
    assert set(trials) == {"blasd", "blasd-pages", *(f"blasd-{name}" for name in names)}, done.stderr
    assert all(t["result"]["right"] > 0 and not t["result"]["wrong"] for t in trials.values()), trials
    assert set(loads["watched"]["values"]) == set(names) and "pages" in loads["pages"]["values"]
    for name in ("access-log", "all"):
        assert trials[f"blasd-{name}"]["access-log_bytes"] > 100 * trials[f"blasd-{name}"]["result"]["right"]  # a line each
    assert all(trials[f"blasd-{name}"]["scrapes"] > 0 for name in ("metrics", "all"))
    assert [trials[f"blasd-{name}"]["pages"] for name in ("page", "all", "pages")] == [1, 1, 100]
    assert all(t["events"] >= t["pages"] and t["ended"] == 0 for t in trials.values() if "pages" in t)
    assert "spans_bytes" in trials["blasd-spans"]


def test_a_bench_whose_machine_could_not_be_measured_says_why(tmp_path):
    build = tmp_path / "build"
    (build / "bench").mkdir(parents=True)
    for name in ("blasd", "bench/load", "bench/peer_mhd"):
        (build / name).symlink_to(ROOT / "build" / name)
    done = subprocess.run([sys.executable, str(ROOT / "bench" / "run"), "--quick", "--only", "burst", "--rounds", "1",
                           "--build", str(build), "--out", str(tmp_path / "out")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "no figures of before" in (tmp_path / "out" / "results.txt").read_text()
    assert "bench_machine" in json.loads((tmp_path / "out" / "results.json").read_text())["machine"]["after"]["why"]


def test_numpys_wheel_in_process_is_a_subject(tmp_path):
    """With this Python's NumPy in the wheel's place. Who told OpenBLAS which kernels to take told neither of the two."""
    build = tmp_path / "build"
    (build / "bench-venv-science" / "bin").mkdir(parents=True)
    (build / "bench-venv-science" / "bin" / "python").symlink_to(sys.executable)
    (build / "blasd").symlink_to(ROOT / "build" / "blasd")
    (build / "bench").symlink_to(ROOT / "build" / "bench")
    done = subprocess.run([sys.executable, str(ROOT / "bench" / "run"), "--quick", "--only", "numpy", "--rounds", "1", "--seconds", "0.1",
                           "--build", str(build), "--out", str(tmp_path)], capture_output=True, text=True, timeout=300,
                          env=dict(os.environ, OPENBLAS_CORETYPE="Prescott", OPENBLAS_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    cases = {f"{op} {dtype} n = {n}" for op in ("matmul", "solve") for dtype in ("float64", "float32") for n in (256, 300)}
    found = results["loads"]["numpy"]
    assert set(found["ratios"]) == cases and all(ratio["median"] > 0 for ratio in found["ratios"].values())
    goals = {goal["what"]: goal for goal in results["goals"] if goal["load"] == "numpy"}
    assert len(goals) == 2 and all(goal["value"] > 0 and goal["goal"] == 0.9 for goal in goals.values())
    text = (tmp_path / "results.txt").read_text()
    assert all(case in text for case in cases) and "blasd with OpenBLAS 0." in text and "(operator)" not in text


def test_peoples_clients_are_subjects(tmp_path, venv):
    """The Python client beside the generator, and tritonclient; pytriton is left out where it is not installed, with its reason."""
    build = tmp_path / "build"
    build.mkdir()
    (build / "bench-venv-inference").symlink_to(venv("inference"))
    for name in ("blasd", "bench"):
        (build / name).symlink_to(ROOT / "build" / name)
    done = subprocess.run([sys.executable, str(ROOT / "bench" / "run"), "--quick", "--only", "clients", "--rounds", "2", "--seconds", "0.5",
                           "--build", str(build), "--out", str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    trials = results["loads"]["clients"]["trials"]
    assert [trial["subject"] for trial in trials] == ["blasd", "python-64", "blasd-paced", "python-1", "tritonclient"] * 2
    for trial in trials:
        counts = {name: trial["result"][name] for name in ("wrong", "errors", "timeouts")}
        assert trial["result"]["right"] > 0 and not any(counts.values()), (trial["subject"], counts)
        assert {"blasd api", "blasd worker", "redis-server"} <= trial["cpu_us"].keys()
    goals = {goal["what"]: goal for goal in results["goals"] if goal["load"] == "clients"}
    # processor time is told in hundredths of a second: of so short a turn it may be none
    assert len(goals) == 4 and goals["map with 64 in flight, times one by one"]["value"] > 0
    assert goals["tritonclient against us, times against pytriton"]["value"] is None
    assert "pytriton could not be installed" in results["left_out"]["triton"]
    assert "python-64" in (tmp_path / "results.txt").read_text()
