"""Jobs of the Python client that are under way: futures, map, bars of progress, Ctrl-C."""
import asyncio
import concurrent.futures
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import types

import blasd
import numpy as np
import pytest
from service import ROOT, wait_for

RNG = np.random.default_rng(21)
OWN = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python")}  # of programs beside the tests


def slow(service):
    """Inputs of a job of some seconds."""
    return {"x": RNG.standard_normal((40, 30)), "y": RNG.standard_normal(40),
            "params": {"method": "gd", "iterations": 20_000_000, "learning_rate": 1e-6}}


def test_jobs_are_futures(client):
    a = RNG.standard_normal((4, 4))
    jobs = [client.submit("matmul", a=a, b=a * i) for i in range(30)]
    done, not_done = concurrent.futures.wait(jobs, timeout=60)
    assert len(done) == 30 and not not_done
    assert all(np.allclose(job.result()["c"], i * (a @ a)) for i, job in enumerate(jobs))
    jobs = [client.submit("matmul", a=a, b=a * i) for i in range(30)]
    assert {job.id for job in concurrent.futures.as_completed(jobs, timeout=60)} == {job.id for job in jobs}
    called = threading.Event()
    job = client.submit("matmul", a=a, b=a)
    job.add_done_callback(lambda one: called.set() if one is job else None)
    assert called.wait(60) and job.done() and job.exception() is None and job.timing["total_ms"] > 0
    bad = client.submit("solve", a=np.ones((2, 2)), b=np.ones(2))
    concurrent.futures.wait([bad], timeout=60)
    assert isinstance(bad.exception(), blasd.SingularMatrix) and not bad.cancelled()
    with pytest.raises(blasd.SingularMatrix):
        bad.result(60)
    assert job.id in repr(job) and "succeeded" in job._repr_html_()


def test_a_future_is_cancelled(client, service):
    job = client.submit("regression", **slow(service))
    with pytest.raises(blasd.Timeout):
        job.result(0.1)
    assert job.cancel() is True and job.cancelled() and job.done()
    with pytest.raises(blasd.Cancelled):
        job.result()
    copy = pickle.loads(pickle.dumps(job))
    assert copy.id == job.id and copy.cancelled()


def test_who_waits_for_a_failure_is_told_of_it(client, service):
    """concurrent.futures.FIRST_EXCEPTION, and asyncio's futures around a job."""
    running = client.submit("regression", **slow(service))
    bad = client.submit("solve", a=np.ones((2, 2)), b=np.ones(2))
    done, left = concurrent.futures.wait([running, bad], timeout=600, return_when=concurrent.futures.FIRST_EXCEPTION)
    assert done == {bad} and left == {running}
    cancelling = threading.Thread(target=running.cancel)
    cancelling.start()
    done, left = concurrent.futures.wait([running], timeout=600, return_when=concurrent.futures.FIRST_EXCEPTION)
    cancelling.join()
    assert done == {running} and running.cancelled()
    late = client.submit("regression", **slow(service))
    with pytest.raises(blasd.Timeout, match="after 0.1 s"):
        late.exception(0.1)
    assert late.cancel() and isinstance(late.exception(), blasd.Cancelled)

    async def main():
        job = await asyncio.to_thread(client.submit, "matmul", a=[[2.0]], b=[[3.0]])
        return (await asyncio.wrap_future(job))["c"]
    assert asyncio.run(main()) == 6


def test_map_keeps_order_and_bounds(client):
    taken = []

    def jobs():
        for i in range(200):
            taken.append(i)
            yield {"a": [[1.0]], "b": [[float(i)]]}
    results = client.map("matmul", jobs(), in_flight=8)
    for i, result in enumerate(results):
        assert result["c"][0, 0] == i and len(taken) <= i + 9
    with pytest.raises(blasd.SingularMatrix):
        list(client.map("solve", [{"a": np.full((2, 2), i), "b": np.ones(2)} for i in range(3)]))
    assert list(client.map("matmul", [])) == []


class Bar:
    """What tqdm is here."""
    made: list = []

    def __init__(self, **options):
        self.options, self.n, self.steps, self.closed = options, 0, 0, False
        Bar.made.append(self)

    def update(self, count):
        self.steps += count

    def set_postfix_str(self, text, refresh=True):
        self.postfix = text

    def refresh(self):
        self.steps += 1

    def close(self):
        self.closed = True


def test_bars_of_progress(client, service, monkeypatch):
    """By tqdm, where one is asked for; nothing without tqdm, and nothing is printed otherwise."""
    def run(progress):
        done = client.run("regression", progress=progress, **{**slow(service), "params": {"method": "gd", "iterations": 2_000_000,
                                                                                           "learning_rate": 1e-6}})
        many = list(client.map("matmul", [{"a": [[1.0]], "b": [[float(i)]]} for i in range(7)], progress=bool(progress)))

        async def main():
            async with blasd.AsyncClient(service.url) as one:
                await one.matmul(np.eye(2), np.eye(2), progress=progress)
                return [r async for r in one.map("matmul", [{"a": [[1.0]], "b": [[1.0]]}] * 5, progress=bool(progress))]
        return done, many, asyncio.run(main())
    monkeypatch.setitem(sys.modules, "tqdm", None)
    run(True)
    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=Bar))
    run(False)
    assert Bar.made == []
    run(True)
    one, many, async_one, async_many = Bar.made
    assert one.options["total"] == 1.0 and one.options["desc"] == "regression" and one.n == 1.0
    assert (many.options["total"], many.steps) == (7, 7) and (async_many.options["total"], async_many.steps) == (5, 5)
    assert all(bar.closed for bar in Bar.made) and async_one.options["desc"] == "matmul"
    told = []
    client.matmul(np.eye(2), np.eye(2), progress=lambda state, fraction: told.append((state, fraction)))
    assert all(0 <= fraction <= 1 for _, fraction in told)


INTERRUPTED = """
import sys
import numpy as np
import blasd

client = blasd.Client(sys.argv[1], retries=int(sys.argv[3:] == ["retried"]))
job = {"x": np.random.rand(40, 30), "y": np.random.rand(40),
       "params": {"method": "gd", "iterations": 20_000_000, "learning_rate": 1e-6}, "labels": {"by": "-".join(sys.argv[2:])}}
try:
    if sys.argv[2] == "run":
        client.run("regression", **job)
    elif sys.argv[2] == "map":
        list(client.map("regression", [job] * 3, in_flight=3))
    else:
        blasd.calls.LONGEST_WAIT = 0.1  # the connection's end tells the service no more that nobody waits
        if sys.argv[2] == "ends":
            for result in client.map("regression", [{**job, "params": {"method": "gd", "iterations": 1}}, job, job]):
                client.jobs()[0].wait(0.5)
                raise SystemExit
        list(client.map("regression", [job] * 3, in_flight=3))
except KeyboardInterrupt:
    if sys.argv[2] == "later":
        raise
    print("interrupted")
"""


def test_a_program_that_ends_leaves_no_job(client, service):
    program = subprocess.run([sys.executable, "-W", "ignore", "-c", INTERRUPTED, service.url, "ends"], capture_output=True, text=True, env=OWN,
                             timeout=600, check=False)
    assert (program.returncode, program.stdout, program.stderr) == (0, "", "")
    wait_for(lambda: sorted(job.state for job in client.jobs(label="by=ends")) == ["cancelled", "cancelled", "succeeded"], "they are cancelled")


def test_ctrl_c_cancels_jobs_of_long_ago(client, service):
    program = subprocess.Popen([sys.executable, "-c", INTERRUPTED, service.url, "later"], stderr=subprocess.PIPE, env=OWN)
    try:
        wait_for(lambda: program.poll() is not None or (len(client.jobs(label="by=later")) == 3 and
                                                        client.jobs(label="by=later", state="running")), "they run")
        time.sleep(0.5)  # so that all are asked for by their ids
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=60)
    finally:
        program.kill()
    wait_for(lambda: {job.state for job in client.jobs(label="by=later")} == {"cancelled"}, "they are cancelled")


@pytest.mark.parametrize("ways, jobs", [(["run"], 1), (["map"], 3), (["run", "retried"], 1), (["map", "retried"], 3)])
def test_ctrl_c_cancels(client, service, ways, jobs):
    """Also where jobs have keys, with which the service goes on with them though the connection ends."""
    way = "-".join(ways)
    program = subprocess.Popen([sys.executable, "-c", INTERRUPTED, service.url, *ways], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=OWN)
    try:
        wait_for(lambda: program.poll() is not None or (len(client.jobs(label=f"by={way}")) == jobs and
                                                        client.jobs(label=f"by={way}", state="running")), "they run")
        program.send_signal(signal.SIGINT)
        said = program.communicate(timeout=60)
    finally:
        program.kill()
    assert said == ("interrupted\n", "") and program.returncode == 0
    wait_for(lambda: {job.state for job in client.jobs(label=f"by={way}")} == {"cancelled"}, "they are cancelled")


def threads_of_clients():
    return [thread for thread in threading.enumerate() if thread.name == "blasd" and thread.is_alive()]


def test_a_client_that_nobody_closes_leaves_no_thread(service):
    before = len(threads_of_clients())
    clients = [blasd.Client(service.url) for _ in range(3)]
    for one in clients:
        assert len(list(one.map("matmul", [{"a": np.eye(2), "b": np.eye(2)}] * 3))) == 3
    jobs = [one.submit("matmul", a=np.eye(2), b=np.eye(2)) for one in clients]
    assert len(concurrent.futures.wait(jobs, 60).done) == 3 and len(threads_of_clients()) == before + 3
    del clients, one, jobs
    gc.collect()
    wait_for(lambda: len(threads_of_clients()) == before, "they end")


def test_threads_that_begin_at_once_share_one_thread_for_what_is_in_flight(service):
    with blasd.Client(service.url) as client:
        begin, before = threading.Barrier(8), len(threads_of_clients())

        def ask():
            begin.wait()
            return len(list(client.map("matmul", [{"a": np.eye(2), "b": np.eye(2)}])))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert [one.result(60) for one in [pool.submit(ask) for _ in range(8)]] == [1] * 8
        assert len(threads_of_clients()) == before + 1
