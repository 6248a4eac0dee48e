"""The clients against the real service: Python (installed with pip), C, and `blasd run`."""
import concurrent.futures
import os
import re
import subprocess
import sys
import threading
import time

import blasd
import numpy as np
import pytest
from service import BLASD, LONG, ROOT, wait_for

RNG = np.random.default_rng(11)


@pytest.mark.first
def test_operations_by_name(client):
    a, b = RNG.standard_normal((2, 50, 50))
    assert np.allclose(client.matmul(a, b), a @ b)
    assert np.allclose(client.solve(a, b), np.linalg.solve(a, b))
    assert client.distance(a, metric="cityblock")[1, 0] == pytest.approx(np.abs(a[0] - a[1]).sum())
    fit = client.regression(a[:, :3], 2 + a[:, :3] @ [1, 2, 3])
    assert np.allclose(fit["coef"], [1, 2, 3]) and np.allclose(fit["intercept"], 2)
    assert fit.timing["total_ms"] > 0 and fit.execution["batch_size"] >= 1 and fit.job["state"] == "succeeded"


def test_what_numpy_can_hold_travels(client):
    a = RNG.standard_normal((40, 30))
    for form in (a, RNG.standard_normal((1200, 900)).astype("f4"), np.asfortranarray(a), a.astype(">f8"), a[::2, ::3], a.astype("f4"), a.T, a.tolist(), a > 0,
                 (a * 10).astype("i2")):
        form_b = np.ones((np.shape(form)[1], 2))
        assert np.allclose(client.matmul(form, form_b), np.asarray(form) @ form_b, rtol=1e-5, atol=1e-4)
    assert client.matmul(np.zeros((0, 3)), np.ones((3, 2))).shape == (0, 2)
    with pytest.raises(TypeError, match="complex256"):
        client.matmul(a.astype(np.clongdouble), a)


@pytest.mark.first
def test_submit_wait_result_cancel(client):
    job = client.submit("matmul", a=np.eye(3), b=np.ones((3, 3)), priority="low", deadline_ms=60000)
    assert job.wait(20) and job.state == "succeeded" and job.progress == 1
    assert np.array_equal(job.result()["c"], np.ones((3, 3)))
    assert client.job(job.id).state == "succeeded"
    assert job.id in [j.id for j in client.jobs(limit=None)]
    assert job.cancel() is False and job.state == "succeeded"
    client.forget(job.id)
    with pytest.raises(blasd.Error) as caught:
        client.job(job.id)
    assert caught.value.status in (404, 410)


def test_a_timeout_cancels_the_job(make_service):
    client = blasd.Client(make_service().url)
    op, inputs, params = LONG
    with pytest.raises(blasd.Error) as caught:
        client.run(op, params, **inputs, timeout=0.5)
    assert caught.value.code == "timeout"
    wait_for(lambda: client.jobs()[0].state == "cancelled")


def test_a_front_end_that_restarts_does_not_break_a_client(make_service):
    service = make_service()
    client = blasd.Client(service.url)
    assert client.matmul([[2.0]], [[3.0]])[0, 0] == 6
    pid = service.kill("api")
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:  # a job that is sent before it is gone may have been taken
        time.sleep(0.01)
    assert client.matmul([[2.0]], [[4.0]])[0, 0] == 8
    service.kill("api")
    assert client.run("matmul", a=[[2.0]], b=[[5.0]], idempotency_key="k")["c"][0, 0] == 10


@pytest.mark.full
def test_pip_installs_it(tmp_path):
    """In an environment of its own, without a network."""
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "venv"], check=True)
    subprocess.run([tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation",
                    "--no-deps", ROOT / "clients/python"], check=True, cwd=tmp_path)
    done = subprocess.run([tmp_path / "venv/bin/python", "-c", "import blasd; print(blasd.__version__, blasd.__file__)"],
                          check=True, capture_output=True, text=True, cwd=tmp_path)
    assert str(tmp_path / "venv") in done.stdout


def run(service, *arguments, status=0):
    done = subprocess.run([BLASD, "run", "--url", service.url, *map(str, arguments)], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == status, done.stderr
    return done


@pytest.mark.first
def test_blasd_run(service, tmp_path):
    a, b = RNG.standard_normal((2, 30, 30))
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", np.asfortranarray(b))
    files = [f"a={tmp_path}/a.npy", f"b={tmp_path}/b.npy"]
    done = run(service, "matmul", *files, "-o", tmp_path / "c.npy")
    assert np.allclose(np.load(tmp_path / "c.npy"), a @ b) and "compute" in done.stderr
    run(service, "solve", *files, "-o", f"x={tmp_path}/x.npy", "-q")
    assert np.allclose(np.load(tmp_path / "x.npy"), np.linalg.solve(a, b))
    np.save(tmp_path / "x.npy", np.array([[0.0, 0], [3, 4]]))
    done = run(service, "distance", f"x={tmp_path}/x.npy", "metric=cityblock")
    assert "d: float64 (2, 2)" in done.stdout and "0 7" in done.stdout
    assert '"state":"succeeded"' in run(service, "distance", f"x={tmp_path}/x.npy", "--json").stdout


@pytest.mark.parametrize("op, files, more, status, words", [
    ("solve", "ab", [], 1, "Singular matrix"), ("matmul", "a", [], 1, "inputs.b"), ("matmul", "ab", ["speed=3"], 1, "speed"),
    ("matmul", "", ["a=/nonexistent.npy"], 2, "cannot be read"), (None, "", [], 2, "usage"),
    ("matmul", "ab", ["--deadline-ms", "soon"], 2, "milliseconds"), ("matmul", "a", ["--url", "http://127.0.0.1:9"], 4, "127.0.0.1:9")])
def test_blasd_run_explains_what_went_wrong(service, tmp_path, op, files, more, status, words):
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    assert words in run(service, *[op] * bool(op), *[f"{name}={tmp_path}/a.npy" for name in files], *more, status=status).stderr


def test_a_full_queue_is_waited_out(make_service, tmp_path):
    """By the program and by the Python client; without time to wait the queue's answer is the client's."""
    service = make_service("--limit", "queue_jobs=4")
    client = blasd.Client(service.url)
    for _ in range(4):
        client.submit("matmul", a=np.ones((1800, 1800)), b=np.ones((1800, 1800)))
    np.save(tmp_path / "a.npy", np.array([[3.0]]))
    arguments = ["matmul", f"a={tmp_path}/a.npy", f"b={tmp_path}/a.npy", "-q"]
    with service.worker_held():
        assert "Queue full" in run(service, *arguments, "-t", "3", status=4).stderr
    running = [subprocess.Popen([BLASD, "run", "--url", service.url, *arguments], stdout=subprocess.PIPE, text=True)
               for _ in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert [c[0, 0] for c in pool.map(lambda i: client.matmul([[float(i)]], [[2.0]]), range(8))] == [2.0 * i for i in range(8)]
    for one in running:
        assert one.communicate(timeout=120)[0].split()[-1] == "9"


def test_a_front_end_that_restarts_loses_nobody_who_waits(make_service, tmp_path):
    """Neither the program nor the Python client gives the job up."""
    service = make_service()
    np.save(tmp_path / "a.npy", np.array([[3.0]]))
    answers = []

    def ask():
        client = blasd.Client(service.url)
        answers.append(client.submit("matmul", a=[[3.0]], b=[[4.0]]).result(60)["c"][0, 0])
    with service.worker_held():
        running = subprocess.Popen([BLASD, "run", "--url", service.url, "matmul", f"a={tmp_path}/a.npy",
                                    f"b={tmp_path}/a.npy"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        thread = threading.Thread(target=ask)
        thread.start()
        end = time.monotonic() + 20
        while len(blasd.Client(service.url).jobs(state="queued")) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.7)  # its first request is over, it looks again and again
        service.kill("api")
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0 and out.split()[-1] == "9", err
    thread.join(60)
    assert answers == [12.0]


def test_under_one_key_a_job_runs_once(service, client, tmp_path):
    np.save(tmp_path / "a.npy", np.array([[3.0]]))
    arguments = ["matmul", f"a={tmp_path}/a.npy", f"b={tmp_path}/a.npy", "--json", "-q", "--idempotency-key"]
    ids = [run(service, *arguments, key).stdout.split('"id":"')[1].split('"')[0] for key in ("red", "red", "green")]
    assert ids[0] == ids[1] != ids[2]
    jobs = [client.run("matmul", a=[[3.0]], b=[[5.0]], idempotency_key="blue").job["id"] for _ in range(2)]
    assert jobs[0] == jobs[1]


def test_blasd_run_takes_priorities_and_deadlines(make_service, tmp_path):
    service = make_service()
    np.save(tmp_path / "a.npy", np.array([[3.0]]))
    arguments = ["matmul", f"a={tmp_path}/a.npy", f"b={tmp_path}/a.npy"]
    assert '"priority":"high"' in run(service, *arguments, "--json", "-p", "high").stdout
    with service.worker_held():
        assert "deadline" in run(service, *arguments, "--deadline-ms", "300", status=1).stderr


@pytest.mark.full
def test_wheels_of_client_and_service(tmp_path):
    """`make wheels`; installed without anything else, they serve: blasd.serve() and the command blasd."""
    subprocess.run([ROOT / "deploy/wheels/build.sh", BLASD, tmp_path / "wheels"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "PYTHON": sys.executable})
    python = tmp_path / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "venv"], check=True)
    wheels = sorted((tmp_path / "wheels").iterdir())
    assert len(wheels) == 2 and "py3-none-any" in wheels[0].name and "py3-none-manylinux" in wheels[1].name
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", *wheels], check=True)
    code = ("import blasd, numpy as np\n"
            "with blasd.serve('--log-level', 'info') as client:\n"
            "    assert np.array_equal(client.matmul(np.eye(3), np.eye(3)), np.eye(3)); print(client.url)\n"
            "try: client.ops()\n"
            "except blasd.ConnectionError: print('gone')\n"
            "try: blasd.serve('--no-such-option')\n"
            "except blasd.Error as error: print(error)\n")
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "BLASD")}
    said = subprocess.run([python, "-c", code], env=env, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert said.returncode == 0 and "gone" in said.stdout and "no-such-option" in said.stdout, said
    version = subprocess.run([tmp_path / "venv/bin/blasd", "--version"], env=env, capture_output=True, text=True, check=True)
    assert (ROOT / "VERSION").read_text().strip() in version.stdout
    libraries = subprocess.run(["ldd", next((tmp_path / "venv").glob("lib/*/site-packages/blasd_server/bin/blasd"))],
                               env={**env, "LD_LIBRARY_PATH": str(next((tmp_path / "venv").glob("lib/*/site-packages/blasd_server/lib")))},
                               capture_output=True, text=True, check=True).stdout
    outside = [line for line in libraries.splitlines() if "=> /" in line and "blasd_server" not in line]
    assert all(re.search(r"lib(c|m|dl|pthread|rt|resolv)\.so", line) for line in outside), outside
