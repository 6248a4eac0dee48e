"""`device: auto` with two classes of devices: which job goes where, as figures and queue say. The card is the stand-in that
the CUDA backend's own tests use, built as a backend; what it and the CPU take is written into the files that keep it."""
import json
import math
import os
import signal
import subprocess
import time

import numpy as np
import pytest
import service as harness
from service import children, command_line, wait_for

# The CPU starts at once and takes long; the card takes 5 ms to start and is fast, so they say. Operations, us alone, us of
# each further one.
CPU = {"copy_gbytes_s": 10, "curves": {op: {"float64": [[100, 1, 1], [1e6, 1e6, 1e6]]} for op in ("matmul", "solve")}}
CARD = {"copy_gbytes_s": 10, "curves": {"matmul": {"float64": [[100, 5e3, 10], [1e6, 5.1e3, 20]]}}}

SMALL = {"a": np.eye(2), "b": np.ones((2, 2))}
LARGE = {"a": np.eye(96), "b": np.ones((96, 96))}  # 1.8e6 operations: 1.8 s here, 9 ms there


# Runs a command where /dev has a card's file, so that its worker is confined as it is on a machine with one.
IN_A_CARDS_DEV = ["unshare", "-rm", "sh", "-ec", """
mkdir "$1"; mount --rbind /dev "$1"; mount -t tmpfs dev /dev
for i in null zero full random urandom; do touch /dev/$i; mount --bind "$1/$i" /dev/$i; done
mkdir /dev/shm; mount --bind "$1/shm" /dev/shm
touch /dev/nvidiactl
shift; exec "$@"
""", "sh"]


def test_the_worker_of_a_card_is_confined_and_its_driver_starts(with_card, tmp_path):
    """The driver opens files under /proc/self/task for writing, and does not start where it may not."""
    tried = subprocess.run([*IN_A_CARDS_DEV, tmp_path / "dev0", "true"], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip("no namespaces for this user here")
    service = with_card()
    service.program = [*IN_A_CARDS_DEV, tmp_path / "dev", harness.BLASD]
    service.start()
    assert service.post("matmul", LARGE, device="cuda").json()["execution"]["device"] == "cuda:0"
    worker = worker_of(service, "cuda:0")
    status = dict(line.split(":\t", 1) for line in open(f"/proc/{worker}/status") if ":\t" in line)
    assert status["NoNewPrivs"].strip() == "1" and int(status["CapEff"], 16) == 0
    assert "files are not confined" not in service.log_text() or "no Landlock" in service.log_text()


def test_a_card_that_starts_slowly_is_there_when_the_service_is_ready(with_card):
    service = with_card(BLASD_STANDIN_OPEN_MS="2500").start()
    assert service.post("matmul", SMALL, device="cuda").json()["execution"]["device"] == "cuda:0"


def devices(service):
    return {d["class"]: d for d in service.request("GET", "/devices").json()["devices"]}


def both(service):
    found = devices(service)
    return found if len(found) == 2 and all("cost" in d for d in found.values()) else None


def worker_of(service, device):
    for pid in children(service.process.pid):
        if command_line(pid).startswith("blasd worker") and f"--device {device} " in command_line(pid) + " ":
            return pid
    return None


def start_with(service, cpu=CPU, card=CARD):
    """Starts twice: figures of ours replace those that the first start leaves behind."""
    service.start()
    wait_for(lambda: both(service), "both devices")
    service.stop()
    for name, cost in (("cpu.0", cpu), ("cuda.0", card)):
        file = service.folder / "data" / "measured" / name
        key, when, _ = file.read_text().split("\n")[:3]
        file.write_text(f"{key}\n{when}\n{json.dumps(cost)}\n")
    service.start()
    found = wait_for(lambda: both(service), "both devices again")
    assert found["cpu"]["cost"]["curves"] == cpu["curves"] and found["cuda"]["cost"]["curves"] == card["curves"]
    wait_for(lambda: submit(service, SMALL)["device"] == "cpu", "the front end has looked at the workers")
    return service


def test_what_jobs_teach_is_known_after_a_new_start(with_card):
    service = with_card().start()
    wait_for(lambda: both(service), "both devices")

    def points():
        return devices(service)["cpu"]["cost"]["curves"].get("matmul")
    assert not points(), "nothing has run"
    ask = json.dumps({"op": "matmul", "inputs": {"a": {"eye": 300}, "b": {"eye": 300}}, "device": "cpu", "results": []})
    answer = service.request("POST", "/jobs?wait=60", ask, {"Content-Type": "application/json"})
    assert answer.status == 200 and answer.json()["state"] == "succeeded", answer.body
    learnt = wait_for(points, "the job has told")
    assert learnt["float64"][0][0] == 2 * 300 ** 3
    service.stop()
    service.start()
    wait_for(lambda: both(service), "both devices known again")
    assert points() == learnt


def sent(service):
    """Jobs queued for the CPU, and for the card."""
    metrics = service.metrics()
    return tuple(metrics[f'blasd_jobs_sent_total{{device="{name}"}}'] for name in ("cpu", "cuda"))


def submit(service, inputs, **members):
    return service.post("matmul", inputs, form="safetensors", wait=0, **members).json()


def ended(service, job, timeout=60):
    job = service.request("GET", f"/jobs/{job['id']}?wait={timeout}", timeout=timeout + 10).json()
    assert job["state"] == "succeeded", job
    return job


def test_size_decides(with_card):
    service = start_with(with_card())
    before = sent(service)
    for _ in range(3):
        small = service.post("matmul", SMALL).json()
        assert (small["device"], small["execution"]["device"]) == ("cpu", "cpu:0")
        large = service.post("matmul", LARGE).json()
        assert (large["device"], large["execution"]["device"]) == ("cuda", "cuda:0")
    assert sent(service) == tuple(count + 3 for count in before)
    # said at once, before anything has run
    assert submit(service, LARGE)["device"] == "cuda" and submit(service, SMALL)["device"] == "cpu"
    # what was asked for is followed whatever is faster
    assert service.post("matmul", SMALL, device="cuda").json()["execution"]["device"] == "cuda:0"
    assert service.post("matmul", LARGE, device="cpu").json()["execution"]["device"] == "cpu:0"
    # an operation that the card's backend has no kernel or no figures for is never sent there
    solve = service.post("solve", {"a": np.eye(64), "b": np.ones(64)}).json()
    if "solve" not in devices(service)["cuda"]["ops"]:
        assert solve["execution"]["device"] == "cpu:0"
    # the same request with the same key is the same job, wherever it would be sent now
    body = harness.safetensors(LARGE, op="matmul")
    headers = {"Content-Type": harness.TYPES["safetensors"], "Idempotency-Key": "once"}
    first = service.request("POST", "/jobs?wait=20", body, headers).json()
    os.kill(worker_of(service, "cuda:0"), signal.SIGKILL)
    again = service.request("POST", "/jobs?wait=20", body, headers).json()
    assert again["id"] == first["id"]


def test_what_waits_decides(with_card):
    service = start_with(with_card("--limit", "lease_ms=120000"))
    cpu = worker_of(service, "cpu:0")
    os.kill(cpu, signal.SIGSTOP)  # its lease lasts; what is sent to it waits
    waiting = [submit(service, LARGE, device="cpu") for _ in range(3)]  # as far as anyone knows, for seconds
    spilled = service.post("matmul", SMALL).json()
    assert (spilled["device"], spilled["execution"]["device"]) == ("cuda", "cuda:0")
    time.sleep(2.5)  # also after the front end has looked again
    assert service.post("matmul", SMALL).json()["device"] == "cuda"
    os.kill(cpu, signal.SIGCONT)
    assert all(ended(service, job)["execution"]["device"] == "cpu:0" for job in waiting)
    wait_for(lambda: service.post("matmul", SMALL).json()["device"] == "cpu", "small jobs go to the CPU again")


def test_a_class_that_dies(with_card):
    service = start_with(with_card("--limit", "lease_ms=2000"))
    card = worker_of(service, "cuda:0")
    os.kill(card, signal.SIGSTOP)
    stranded = [submit(service, LARGE) for _ in range(2)]
    asked_for = submit(service, LARGE, device="cuda", deadline_ms=3600000)
    for job in stranded:  # said at once, and for as long as it waits
        assert job["device"] == "cuda" and service.request("GET", f"/jobs/{job['id']}").json()["device"] == "cuda"
    (service.bin / "blasd_cuda.so").unlink()  # it will not come back
    os.kill(card, signal.SIGKILL)
    wait_for(lambda: "cuda" not in devices(service), "the card is gone")
    for job in stranded:  # sent there unasked, so others may have them
        assert ended(service, job)["execution"]["device"] == "cpu:0"
    assert service.request("GET", f"/jobs/{asked_for['id']}").json()["state"] == "queued"
    large = service.post("matmul", LARGE).json()
    assert large["execution"]["device"] == "cpu:0"
    refused = service.post("matmul", LARGE, device="cuda")
    assert refused.status == 422 and refused.json()["code"] == "no_such_device"


def test_too_large_for_any_machine(make_service):
    service = make_service("--limit", "queue_bytes=1T", "--limit", "job_bytes=1T")
    limit = wait_for(lambda: devices(service)["cpu"].get("host_memory_bytes"), "a memory size")
    time.sleep(1.5)
    n = int(math.sqrt(limit / 8) * 1.05)
    answer = service.post("matmul", {"a": np.ones((n, 1)), "b": np.ones((1, n))}, form="safetensors")
    assert answer.status == 413 and answer.json()["code"] == "job_too_large"
    assert str(limit) in answer.json()["detail"] and "host_memory_bytes" in answer.json()["detail"]


def test_one_class_alone_chooses_nothing(make_service):
    service = make_service()
    assert submit(service, LARGE)["device"] == "auto"
    assert service.post("matmul", LARGE).json()["device"] == "cpu"


def test_damaged_figures_are_passed_over(make_service):
    service = make_service()
    file = service.folder / "data" / "measured" / "cpu.0"
    service.stop()
    text = file.read_text()
    for damage in (text[:200], text.replace("blasd", "other", 1), text.replace("[", "{"), text.replace('"copy_gbytes_s":5', '"copy_gbytes_s":-1'), ""):
        file.write_text(damage)
        service.start()
        assert wait_for(lambda: devices(service)["cpu"].get("cost"), "the figures in GET /devices")["copy_gbytes_s"] == 5
        service.stop()
        assert file.read_text().split("\n")[0] == text.split("\n")[0], "a new file"


def test_a_graph_runs_where_it_is_told_to(with_card):
    """On the card each step is as a job there; what they make for each other passes through this machine's memory."""
    service = with_card().start()
    for device in ("cuda", "cpu"):
        wait_for(lambda: service.post("matmul", SMALL, device=device).status == 200, f"the front end knows of {device}")
    a, b = np.random.default_rng(8).standard_normal((2, 40, 40))
    steps = {"p": {"op": "matmul", "inputs": {"a": {"input": "a"}, "b": {"input": "b"}}},
             "x": {"op": "solve", "inputs": {"a": {"step": "p"}, "b": {"input": "b"}}}}
    for device in ("cuda", "cpu"):
        body = harness.safetensors({"a": a, "b": b}, steps=json.dumps(steps), results='["p","x"]', device=device)
        answer = service.request("POST", "/graphs?wait=60", body, {"Content-Type": harness.TYPES["safetensors"],
                                                                  "Accept": harness.TYPES["safetensors"]})
        arrays, graph = answer.safetensors()
        assert graph["execution"]["device"] == f"{device}:0" == graph["steps"]["x"]["execution"]["device"]
        assert np.allclose(arrays["p.c"], a @ b) and np.allclose(arrays["x.x"], np.linalg.solve(a @ b, b))


@pytest.mark.parametrize("op", ["solve", "distance", "regression"])
def test_jobs_of_any_shape_share_a_batch_on_the_card(with_card, op):
    """No two of these jobs are alike, yet they run together; each has its own answer, the singular one its own error."""
    service = with_card("--limit", "lease_ms=120000").start()
    rng = np.random.default_rng(11)
    sizes = range(3, 23)

    def inputs(n):
        a, b = rng.standard_normal((n, n)) + n * np.eye(n), rng.standard_normal(n)
        if op == "solve":
            return {"a": np.zeros((n, n)) if n == 7 else a, "b": b}
        return {"x": a, "y": a[::-1]} if op == "distance" else {"x": rng.standard_normal((3 * n, n)), "y": np.tile(b, 3)}

    wait_for(lambda: service.post(op, inputs(4), device="cuda").status == 200, "the front end knows of the card")
    card = worker_of(service, "cuda:0")
    for _ in range(5):  # a worker that is slow to wake finds them one by one
        os.kill(card, signal.SIGSTOP)  # what is sent to it gathers
        given = [inputs(n) for n in sizes]
        jobs = [service.post(op, one, form="safetensors", wait=0, device="cuda").json() for one in given]
        os.kill(card, signal.SIGCONT)
        together = []
        for n, one, job in zip(sizes, given, jobs):
            job = service.request("GET", f"/jobs/{job['id']}?wait=60", timeout=70).json()
            if op == "solve" and n == 7:
                assert job["error"]["code"] == "singular_matrix", job
                continue
            assert job["execution"]["device"] == "cuda:0", job
            together.append(job["execution"]["batch_size"])
            answer = np.array(job["outputs"][{"solve": "x", "distance": "d", "regression": "coef"}[op]]["data"])
            if op == "solve":
                assert np.allclose(answer, np.linalg.solve(one["a"], one["b"]))
            elif op == "distance":
                assert np.allclose(answer, np.linalg.norm(one["x"][:, None] - one["y"][None], axis=2))
            else:
                design = np.column_stack([np.ones(3 * n), one["x"]])
                assert np.allclose(answer.ravel(), np.linalg.lstsq(design, one["y"], rcond=None)[0][1:])
        if max(together) > len(jobs) / 2:
            return
    pytest.fail(f"no batch of many: {together}")
