"""Jobs of the Python client that are under way: futures, map, hundreds on one event loop, bars of progress, Ctrl-C, the end."""
import asyncio
import concurrent.futures
import gc
import os
import pathlib
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
from callers import ONE, OWN, SLOW, on_a_loop, program
from pretender import QUEUED, Listener, answer
from service import BLASD, wait_for

RNG = np.random.default_rng(21)


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


def test_a_future_is_cancelled(client):
    job = client.submit("regression", **SLOW)
    with pytest.raises(blasd.Timeout):
        job.result(0.1)
    with pytest.raises(blasd.Timeout, match="after 0.1 s"):
        job.exception(0.1)
    assert job.cancel() is True and job.cancelled() and job.done() and isinstance(job.exception(), blasd.Cancelled)
    with pytest.raises(blasd.Cancelled):
        job.result()
    copy = pickle.loads(pickle.dumps(job))
    assert copy.id == job.id and copy.cancelled()


def test_who_waits_for_a_failure_is_told_of_it(client):
    """concurrent.futures.FIRST_EXCEPTION, and asyncio's futures around a job."""
    running = client.submit("regression", **SLOW)
    bad = client.submit("solve", a=np.ones((2, 2)), b=np.ones(2))
    done, left = concurrent.futures.wait([running, bad], timeout=600, return_when=concurrent.futures.FIRST_EXCEPTION)
    assert done == {bad} and left == {running}
    cancelling = threading.Thread(target=running.cancel)
    cancelling.start()
    done, left = concurrent.futures.wait([running], timeout=600, return_when=concurrent.futures.FIRST_EXCEPTION)
    cancelling.join()
    assert done == {running} and running.cancelled()

    async def main():
        job = await asyncio.to_thread(client.submit, "matmul", a=[[2.0]], b=[[3.0]])
        return (await asyncio.wrap_future(job))["c"]
    assert asyncio.run(main()) == 6


def test_a_time_of_0_asks_once(client):
    def ended():
        job = client.submit("matmul", a=np.eye(2), b=np.eye(2))
        client.job(job.id).wait(60)
        return job
    job, later = ended(), ended()
    assert not job.ended and job.wait(0)
    assert (later.result(timeout=0)["c"] == np.eye(2)).all()

    async def result(one):
        job = await one.submit("matmul", a=np.eye(2), b=np.eye(2))
        await (await one.job(job.id)).wait(60)
        return await job.result(0)
    assert (on_a_loop(client.url, result)["c"] == np.eye(2)).all()


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


# --- on an event loop -------------------------------------------------------------------------------------------------


def test_hundreds_of_jobs_on_one_loop(service):
    async def main(client):
        a = RNG.standard_normal((6, 6))
        results = await asyncio.gather(*[client.matmul(a, a * i) for i in range(300)])
        assert all(np.allclose(c, i * (a @ a)) for i, c in enumerate(results))
        jobs = [await client.submit("matmul", a=a, b=a * i) for i in range(20)]
        assert all([np.allclose((await job)["c"], i * (a @ a)) for i, job in enumerate(jobs)])
        big = RNG.standard_normal((1500, 1500))
        assert np.array_equal(await client.matmul(big, np.eye(1500)), big)
        assert (await client.regression(a, a[:, 0]))["coef"].shape == (6,)
        assert (await client.distance(a)).shape == (6, 6) and (await client.solve(a, a)).shape == (6, 6)
        assert await client.ready() and len(await client.ops()) >= 4 and await client.devices()
        assert [job.id for job in await client.jobs(limit=3)] and (await client.job(jobs[0].id)).state == "succeeded"
        got = [r["c"][0, 0] async for r in client.map("matmul", ({"a": [[1.0]], "b": [[float(i)]]} for i in range(100)))]
        assert got == list(range(100))
        return await client.run("matmul", a=a, b=a)
    assert on_a_loop(service.url, main)["c"].flags.writeable


def test_errors_and_cancels_on_a_loop(service):
    async def main(client):
        with pytest.raises(blasd.SingularMatrix):
            await client.solve(np.ones((2, 2)), np.ones(2))
        with pytest.raises(blasd.InputError):
            await client.matmul(np.ones((2, 3)), np.ones((2, 3)))
        task = asyncio.ensure_future(client.run("regression", **SLOW, labels={"by": "loop"}))
        while not (found := await client.jobs(state="running", label="by=loop")):
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for job in found:
            await job.wait(60)
        assert [job.state for job in found] == ["cancelled"]
        with pytest.raises(blasd.Timeout):
            await client.run("regression", timeout=0.2, **SLOW)
        queued = await client.submit("regression", **SLOW)
        assert await queued.cancel() is True and queued.state == "cancelled"
    on_a_loop(service.url, main)


def test_small_requests_of_one_turn_leave_together(service, monkeypatch):
    """So that the service, which takes together what is there together, calls Redis once for many of them."""
    sizes, send = [], blasd.aio.AsyncPool._send
    monkeypatch.setattr(blasd.aio.AsyncPool, "_send", lambda pool: (sizes.append(len(pool._unsent)), send(pool))[1])

    async def main(client):
        for _ in range(2):  # the first time it connects
            sizes.clear()
            products = await asyncio.gather(*[client.matmul([[2.0]], [[float(i)]]) for i in range(16)])
        return products
    assert [c[0, 0] for c in on_a_loop(service.url, main)] == [2.0 * i for i in range(16)] and sizes == [16]


def test_shared_memory_on_a_loop(service, sharing):
    async def product(client):
        arrays = await client.shared(a=((3, 3), "float64"), b=((3, 3), "float64"))
        arrays["a"][...], arrays["b"][...] = 2, np.eye(3)
        return np.array_equal((await client.run("matmul", **arrays))["c"], arrays["a"])
    assert on_a_loop(sharing.url, product, share=True)
    with pytest.raises(ValueError, match="share=True"):
        on_a_loop(sharing.url, product)

    async def refused(client):
        for _ in range(2):  # each time
            with pytest.raises(blasd.Error) as caught:
                await client.matmul([[1.0]], [[1.0]])
            assert caught.value.code == "sharing_off"
    on_a_loop(service.url, refused, share=True)


# --- bars -------------------------------------------------------------------------------------------------------------


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


def test_bars_of_progress(client, monkeypatch):
    """By tqdm, where one is asked for; nothing without tqdm, and nothing is printed otherwise."""
    def run(progress):
        client.run("regression", progress=progress, **{**SLOW, "params": {**SLOW["params"], "iterations": 2_000_000}})
        list(client.map("matmul", [{"a": [[1.0]], "b": [[float(i)]]} for i in range(7)], progress=bool(progress)))

        async def main(one):
            await one.matmul(np.eye(2), np.eye(2), progress=progress)
            return [r async for r in one.map("matmul", [ONE] * 5, progress=bool(progress))]
        on_a_loop(client.url, main)
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


# --- programs that end ------------------------------------------------------------------------------------------------


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


def test_a_program_that_ends_leaves_no_job(client):
    done = program(INTERRUPTED, client.url, "ends", PYTHONWARNINGS="ignore")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    wait_for(lambda: sorted(job.state for job in client.jobs(label="by=ends")) == ["cancelled", "cancelled", "succeeded"], "they are cancelled")


@pytest.mark.parametrize("ways, jobs", [(["run"], 1), (["map"], 3), (["run", "retried"], 1), (["map", "retried"], 3), (["later"], 3)])
def test_ctrl_c_cancels(client, ways, jobs):
    """Also where jobs have keys, with which the service goes on with them though the connection ends, and jobs of long ago."""
    label = f"by={'-'.join(ways)}"
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, client.url, *ways], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=OWN)
    try:
        wait_for(lambda: process.poll() is not None or (len(client.jobs(label=label)) == jobs and
                                                        client.jobs(label=label, state="running")), "they run")
        if ways == ["later"]:
            time.sleep(0.5)  # so that all are asked for by their ids
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert ways == ["later"] or said == ("interrupted\n", "") and process.returncode == 0
    wait_for(lambda: {job.state for job in client.jobs(label=label)} == {"cancelled"}, "they are cancelled")


def test_who_waits_for_a_job_is_told_when_its_client_closes():
    """The job goes on; nobody is left to tell of its end."""
    with Listener(lambda self, c: answer(c, QUEUED) and False) as listener:  # one at a time, so none may stay open
        client = blasd.Client(listener.url)
        job, told = client.submit("matmul", **ONE), threading.Event()
        job.add_done_callback(lambda one: told.set())
        client.close()
        assert told.wait(60)
        done, _ = concurrent.futures.wait([job], timeout=60)
        assert done == {job} and not job.done()


def new_threads(before):
    return [thread for thread in threading.enumerate() if thread.name == "blasd" and thread not in before]


def test_a_client_that_nobody_closes_leaves_no_thread(service):
    before = threading.enumerate()
    clients = [blasd.Client(service.url) for _ in range(3)]
    for one in clients:
        assert len(list(one.map("matmul", [ONE] * 3))) == 3
    jobs = [one.submit("matmul", **ONE) for one in clients]
    assert len(concurrent.futures.wait(jobs, 60).done) == 3 and len(new_threads(before)) == 3
    del clients, one, jobs
    gc.collect()
    wait_for(lambda: not new_threads(before), "they end")


def test_threads_that_begin_at_once_share_one_thread_for_what_is_in_flight(client):
    begin, before = threading.Barrier(8), threading.enumerate()

    def ask():
        begin.wait()
        return len(list(client.map("matmul", [ONE])))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert [one.result(60) for one in [pool.submit(ask) for _ in range(8)]] == [1] * 8
    assert len(new_threads(before)) == 1


# --- a service of one's own -------------------------------------------------------------------------------------------


PROGRAM = """
import os, signal, sys, time, blasd
service = blasd.serve()
children = open(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read().split()
print(service.process.pid, *children, flush=True)
if sys.argv[1] == "forks":
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    assert service.process.poll() is None
if sys.argv[1].startswith("is killed"):
    service.client().run("eigh", a=[[2.0, 0.0], [0.0, 1.0]], keep=["eigenvectors"])
    if sys.argv[1].endswith("with a fork"):
        if os.fork() == 0:
            time.sleep(600)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("way", ["ends", "forks", "is killed", "is killed with a fork"])
def test_a_service_of_ones_own_ends_with_the_program(tmp_path, way):
    """All its processes, its directory and what it has in /dev/shm, even where nothing of the program can run at its end."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM, way], stdout=subprocess.PIPE, text=True,
                          env={**OWN, "BLASD": str(BLASD), "TMPDIR": str(tmp_path)}, start_new_session=True) as process:
        pids = process.stdout.readline().split()
        assert len(pids) == 4
        process.wait(600)
        wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "the end of its processes")
        if way.endswith("fork"):
            os.killpg(process.pid, signal.SIGKILL)
    assert os.listdir(tmp_path) == []
    assert not [mark for mark in pathlib.Path("/dev/shm").glob("blasd-*/.data") if str(tmp_path) in mark.read_text()]


def test_what_is_no_service_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("BLASD", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        blasd.serve()
    assert os.listdir(tmp_path) == []
