"""The Python client beside one call after the other: asyncio, futures, many jobs in flight, and others' signatures."""
import asyncio
import concurrent.futures
import importlib.util
import inspect
import json
import logging
import os
import pickle
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import tracemalloc
import types

import blasd
import blasd.default
import blasd.linalg
import blasd.spatial.distance
import numpy as np
import pytest
import scipy.spatial.distance
from service import ROOT, wait_for
from test_python_client import Listener, answer

RNG = np.random.default_rng(21)
OWN = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python")}  # of programs beside the tests


def slow(service):
    """Inputs of a job of some seconds."""
    return {"x": RNG.standard_normal((40, 30)), "y": RNG.standard_normal(40),
            "params": {"method": "gd", "iterations": 20_000_000, "learning_rate": 1e-6}}


# --- asyncio ----------------------------------------------------------------------------------------------------------


def test_hundreds_of_jobs_on_one_loop(service):
    async def main():
        async with blasd.AsyncClient(service.url) as client:
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
    assert asyncio.run(main())["c"].flags.writeable


def test_errors_and_cancels_on_a_loop(service):
    async def main():
        async with blasd.AsyncClient(service.url) as client:
            with pytest.raises(blasd.SingularMatrix):
                await client.solve(np.ones((2, 2)), np.ones(2))
            with pytest.raises(blasd.InputError):
                await client.matmul(np.ones((2, 3)), np.ones((2, 3)))
            job = slow(service)
            task = asyncio.ensure_future(client.run("regression", **job))
            while not [j for j in await client.jobs(state="running") if j.document["op"] == "regression"]:
                await asyncio.sleep(0.05)
            found = [j for j in await client.jobs(state="running") if j.document["op"] == "regression"]
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for j in found:
                await j.wait(60)
            assert [j.state for j in found] == ["cancelled"] * len(found)
            with pytest.raises(blasd.Timeout):
                await client.run("regression", timeout=0.2, **slow(service))
            queued = await client.submit("regression", **slow(service))
            assert await queued.cancel() is True and queued.state == "cancelled"
    asyncio.run(main())


def test_a_loop_and_a_service_that_is_away():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

    async def main():
        async with blasd.AsyncClient(url) as client:
            with pytest.raises(blasd.ConnectionError):
                await client.ops()
            assert await client.ready() is False
    asyncio.run(main())


def test_an_answer_that_never_comes():
    """A lost connection never hangs past its timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(blasd.Timeout):
            blasd.Client(url, timeout=0.3).ops()

        async def main():
            async with blasd.AsyncClient(url, timeout=0.3) as client:
                await client.ops()
        with pytest.raises(blasd.Timeout):
            asyncio.run(main())


def test_nothing_is_smuggled_into_a_request(service, client):
    """An id or a key that comes from somebody else ends no line of the request, in either client."""
    bad = ("x HTTP/1.1\r\nHost: a\r\n\r\nGET /ops", "a\nb", "a b\r\n")

    async def main():
        async with blasd.AsyncClient(service.url) as one:
            for text in bad:
                with pytest.raises(ValueError):
                    await one.job(text)
                with pytest.raises(ValueError):
                    await one.submit("matmul", a=[[1.0]], b=[[1.0]], idempotency_key=text + "\r\n")
            assert await one.ready()
    asyncio.run(main())
    for text in bad:
        with pytest.raises((ValueError, blasd.Error)):
            client.job(text)
        with pytest.raises((ValueError, blasd.Error)):
            client.submit("matmul", a=[[1.0]], b=[[1.0]], idempotency_key=text + "\r\n")


# --- futures ----------------------------------------------------------------------------------------------------------


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


def signatures(kind):
    return {name: list(inspect.signature(getattr(kind, name)).parameters) for name in dir(kind) if not name.startswith("_")}


def test_both_clients_have_the_same_methods():
    ours, theirs = signatures(blasd.Client), signatures(blasd.AsyncClient)
    assert ours.keys() == theirs.keys()
    for name, parameters in ours.items():
        assert sorted(parameters) == sorted(theirs[name]), name


def test_methods_have_the_parameters_of_their_operations(client):
    """By name, for each operation that the service has; a new one has its methods as soon as its descriptor is there."""
    for op in client.ops():
        given = inspect.signature(getattr(blasd.Client, op["name"])).parameters
        named = [one["name"] for one in op["inputs"] + op["params"]]
        assert set(named) <= set(given) and list(given)[1:1 + len(op["inputs"])] == named[:len(op["inputs"])], op["name"]
        text = inspect.getdoc(getattr(blasd.Client, op["name"]))
        assert all(f"\n{name}: " in text for name in named), op["name"]
    options = set(inspect.signature(blasd.Client.run).parameters) - {"self", "op", "params", "inputs"}
    assert options == set(blasd.named.OPTIONS), "what run takes a method hands on"
    spec = importlib.util.spec_from_file_location("generate", ROOT / "clients" / "python" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    new = {"name": "spread", "summary": "x, spread", "doc": "One.\nTwo.",
           "inputs": [{"name": "x", "doc": "Numbers.", "shape": "(n,)", "optional": False, "dtypes": ["float64"],
                       "min_rank": 1, "max_rank": 1}],
           "params": [{"name": "how", "type": "choice", "doc": "The way.", "choices": ["far", "near"], "default": "far"}]}
    made = types.ModuleType("blasd.operations_made")
    exec(generate.text_of([*json.loads((ROOT / "api" / "operations.json").read_text())["ops"], new]), made.__dict__)
    asked = []
    instance = made.Operations()
    instance._named = lambda op, inputs, params, **options: asked.append((op, inputs, params, options["timeout"], options["more"]))
    instance.spread([1.0], how="near", timeout=5, more=1)
    assert asked == [("spread", {"x": [1.0]}, {"how": "near"}, 5, 1)]
    assert inspect.iscoroutinefunction(made.AsyncOperations.spread)


def test_arrays_of_an_async_client_in_shared_memory(sharing):
    async def main():
        async with blasd.AsyncClient(sharing.url, share=True) as client:
            arrays = await client.shared(a=((3, 3), "float64"), b=((3, 3), "float64"))
            arrays["a"][...], arrays["b"][...] = 2, np.eye(3)
            assert np.array_equal((await client.run("matmul", **arrays))["c"], arrays["a"])
        async with blasd.AsyncClient(sharing.url) as client:
            with pytest.raises(ValueError, match="share=True"):
                await client.shared(a=((3, 3), "float64"))
    asyncio.run(main())


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

client = blasd.Client(sys.argv[1])
job = {"x": np.random.rand(40, 30), "y": np.random.rand(40),
       "params": {"method": "gd", "iterations": 20_000_000, "learning_rate": 1e-6}, "labels": {"by": sys.argv[2]}}
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


@pytest.mark.parametrize("way, jobs", [("run", 1), ("map", 3)])
def test_ctrl_c_cancels(client, service, way, jobs):
    program = subprocess.Popen([sys.executable, "-c", INTERRUPTED, service.url, way], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
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


# --- what a client is told --------------------------------------------------------------------------------------------


def test_out(client, monkeypatch):
    a = RNG.standard_normal((5, 4))
    place = np.empty((5, 5))
    assert client.matmul(a, a.T, out=place) is place and np.allclose(place, a @ a.T)
    coef = np.empty(3)
    fit = client.regression(a[:, :3], a[:, 3], out={"coef": coef})
    assert fit["coef"] is coef and np.array_equal(coef, client.regression(a[:, :3], a[:, 3])["coef"])
    for wrong in (np.empty((5, 5), "i4"), {"c": np.empty((5, 4))}):
        with pytest.raises(blasd.InputError, match="out") as caught:
            client.matmul(a, a.T, out=wrong)
        assert np.allclose(client.job(caught.value.job["id"]).result()["c"], a @ a.T), "the result is not lost"
    turned = np.empty((5, 5), order="F")
    assert client.matmul(a, a.T, out=turned) is turned and np.allclose(turned, a @ a.T)
    stack, x = np.stack([np.eye(5)] * 3), RNG.standard_normal((5, 2))
    places = [("matmul", {"a": stack, "b": x}, (3, 5, 2)), ("matmul", {"a": x, "b": stack[0], "params": {"transpose_a": True}}, (2, 5)),
              ("matmul", {"a": x[:, 0], "b": stack}, (3, 5)), ("solve", {"a": stack, "b": x[:, 0]}, (3, 5)),
              ("solve", {"a": stack, "b": x}, (3, 5, 2)), ("matmul", {"a": x[:, 0], "b": x[:, 0]}, ()), ("cholesky", {"a": stack}, (3, 5, 5))]
    for op, job, shape in places:
        client.run(op, out=np.empty(shape), **job)
    monkeypatch.setattr(client._pool, "carry", lambda request: pytest.fail("it was sent"))
    for op, job, shape in places:
        with pytest.raises(blasd.InputError, match="out"):
            client.run(op, out=np.empty((1, *shape)), **job)
    monkeypatch.undo()
    with pytest.raises(blasd.InputError, match="no output"):
        client.run("matmul", a=a, b=a.T, out={"d": place})


def test_fortran_order_is_not_copied(client, monkeypatch):
    sent = []
    monkeypatch.setattr(client._pool, "carry", lambda request, carry=client._pool.carry: (
        sent.append(request), carry(request))[1])
    a, b = np.asfortranarray(RNG.standard_normal((300, 200))), np.asfortranarray(RNG.standard_normal((200, 250)))
    assert np.allclose(client.matmul(a, b), a @ b)
    for piece, array in zip(sent[-1].pieces[1:], (a, b)):
        assert np.shares_memory(np.frombuffer(piece, np.uint8), array)
    square = np.asfortranarray(RNG.standard_normal((200, 200)))
    assert np.allclose(square @ client.solve(square, np.ones(200)), 1)
    assert np.allclose(client.matmul(square, square, transpose_a=True), square.T @ square)


def test_operands_are_not_copied(client, service):
    """8 MiB go from the array's own memory: what Python allocates meanwhile is the answer's, once."""
    a, b, v = RNG.standard_normal((1024, 1024)), RNG.standard_normal((1024, 512)), np.ones(1024)
    client.matmul(a, v)
    tracemalloc.start()
    try:
        client.matmul(a, v)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.reset_peak()
        result = client.matmul(a, b)
        assert tracemalloc.get_traced_memory()[1] < result.nbytes + (1 << 20)
    finally:
        tracemalloc.stop()

    async def main():
        async with blasd.AsyncClient(service.url) as one:
            await one.matmul(a, v)
            tracemalloc.start()
            try:
                await one.matmul(a, v)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
    assert asyncio.run(main()) < 4 << 20  # what the loop holds for a socket that takes no more


TRACED = """
import os, sys
import numpy as np
import blasd

with blasd.Client(sys.argv[1]) as client:
    a, one = np.random.rand(1024, 1024), np.ones((1024, 1))
    client.matmul(a[:8], one)
    for b in (one, a):
        os.access("/begin", 0)
        result = client.matmul(a, b)
        os.access("/end", 0)
        print(a.ctypes.data, b.ctypes.data, b.nbytes, result.ctypes.data, result.nbytes)
        assert np.allclose(result, a @ b)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace")
def test_the_kernel_takes_operands_where_they_lie(service, tmp_path):
    """Counted by strace: what is sent leaves from the arrays' own memory, what is received arrives where the result stays."""
    trace = tmp_path / "trace"
    calls = "sendto,write,recvfrom,read"
    done = subprocess.run(["strace", "-f", "-o", trace, "-e", f"trace={calls},mmap,access,faccessat,faccessat2", "-e", f"raw={calls},mmap",
                           sys.executable, "-c", TRACED, service.url], capture_output=True, text=True, timeout=300, check=False, env=OWN)
    if done.returncode != 0 and "ptrace" in done.stderr:
        pytest.skip(f"this system lets nobody trace: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    spans = re.findall(r"/begin.*?\n(.*?)\n[^\n]*/end", trace.read_text(), re.S)
    facts = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert len(spans) == len(facts) == 2
    for span, (a, b, b_bytes, result, result_bytes) in zip(spans, facts):
        moved = {"out": [], "in": []}
        for name, rest, count in re.findall(r"(sendto|write|recvfrom|read)\((.*?)\) += (0x[0-9a-f]+|-?\d+)", span):
            if int(count, 0) > 0:
                moved["out" if name in ("sendto", "write") else "in"].append((int(rest.split(", ")[1], 0), int(count, 0)))

        def within(way, begin, size):
            return sum(count for at, count in moved[way] if begin <= at < begin + size)
        operands = within("out", a, 8 << 20) + (within("out", b, b_bytes) if b != a else 0)
        sent = sum(count for _, count in moved["out"])
        assert sent - operands < 65536, "bytes left from somewhere else than the operands"
        assert operands >= (8 << 20) * (2 if b == a else 1)
        elsewhere = sum(count for _, count in moved["in"]) - within("in", result - 4096, result_bytes + 8192)
        assert elsewhere < 70_000, "bytes arrived somewhere else than in the result"
        large = [size for size in (int(size, 0) for size in re.findall(r"mmap\(0, (0x[0-9a-f]+),", span)) if size > 1 << 20]
        assert len(large) <= (1 if result_bytes > 1 << 20 else 0), f"{len(large)} pieces of memory for one result"


BAD = [("matmul", dict(a=np.ones((2, 3)), b=np.ones((2, 3)))), ("matmul", dict(a=np.ones((2, 3, 3)), b=np.ones((3, 3, 3)))),
       ("matmul", dict(a=np.ones((2, 3)), b=np.ones((2, 3)), params={"transpose_b": True, "transpose_a": True})),
       ("matmul", dict(a=np.ones(3), b=np.ones(4))), ("solve", dict(a=np.ones((2, 3)), b=np.ones(2))),
       ("solve", dict(a=np.eye(3), b=np.ones(2))), ("solve", dict(a=np.eye(3), b=np.ones((2, 2)))),
       ("solve", dict(a=np.ones((2, 3, 3)), b=np.ones((4, 3, 1)))), ("distance", dict(x=np.ones((3, 2)), y=np.ones((3, 4)))),
       ("regression", dict(x=np.ones((5, 2)), y=np.ones(4))), ("regression", dict(x=np.ones((5, 2)), y=np.ones((4, 2)))),
       ("regression", dict(x=np.ones((5, 2)), y=np.ones((1, 5, 2, 2)))), ("matmul", dict(a=np.ones(()), b=np.ones(1))),
       ("matmul", dict(a=np.eye(2), b=np.eye(2), c=np.eye(3))), ("matmul", dict(a=np.ones(2), b=np.ones((2, 3)), c=np.ones((1, 3)))),
       ("cholesky", dict(a=np.ones((2, 3)))), ("cholesky", dict(a=np.ones(3))), ("eigh", dict(a=np.ones((4, 2, 3)))),
       ("eigh", dict(a=1j * np.eye(2))), ("svd", dict(a=np.ones(3))), ("qr", dict(a=np.ones((1,) * 9))),
       ("lstsq", dict(a=np.ones((3, 2)), b=np.ones(4))), ("lstsq", dict(a=np.ones((3, 2)), b=np.ones((4, 1)))),
       ("lstsq", dict(a=np.ones((2, 3, 2)), b=np.ones((3, 3, 1)))), ("distance", dict(x=np.ones(3))),
       ("distance", dict(x=np.ones((2, 3, 2)), y=np.ones((3, 3, 2)))), ("distance", dict(x=np.ones((3, 2)), w=np.ones(3))),
       ("distance", dict(x=np.ones((3, 2)), V=np.ones(1), params={"metric": "seuclidean"})),
       ("distance", dict(x=np.ones((3, 2)), VI=np.ones((2, 3)), params={"metric": "mahalanobis"})),
       ("regression", dict(x=np.ones(5), y=np.ones(5))), ("regression", dict(x=np.ones((5, 2)), y=np.ones(5), sample_weight=np.ones(4))),
       ("regression", dict(x=np.ones((2, 5, 2)), y=np.ones((3, 5)))), ("regression", dict(x=np.ones((5, 2), complex), y=np.ones(5))),
       ("regression", dict(x=np.ones((2, 5, 2)), y=np.ones((2, 5)), sample_weight=np.ones((3, 5))))]


@pytest.mark.parametrize("op, job", BAD)
def test_wrong_shapes_fail_here_in_the_services_words(client, monkeypatch, op, job):
    with pytest.raises(blasd.InputError) as here:
        client.run(op, **job)
    monkeypatch.setattr("blasd.calls.check_shapes", lambda *_: None)
    with pytest.raises(blasd.InvalidInput) as there:
        client.run(op, **job)
    for name in ("code", "status", "field", "title", "detail", "advice"):
        assert getattr(here.value, name) == getattr(there.value, name)


def test_shapes_that_fit_pass(client):
    for op, job in (("matmul", dict(a=np.ones((2, 1, 3, 4)), b=np.ones((5, 4, 2)))), ("matmul", dict(a=np.ones(3), b=np.ones(3))),
                    ("matmul", dict(a=np.ones(3), b=np.ones((3, 2)), params={"transpose_a": True})),
                    ("solve", dict(a=np.stack([np.eye(3)] * 2), b=np.ones(3))), ("distance", dict(x=np.ones((3, 2)))),
                    ("matmul", dict(a=np.ones((2, 3)), b=np.ones(3), c=1.0)), ("lstsq", dict(a=np.ones((2, 3, 2)), b=np.ones(3))),
                    ("lstsq", dict(a=np.ones((2, 3)), b=np.ones((4, 2, 1)))), ("distance", dict(x=np.ones((3, 2)), w=np.ones(2))),
                    ("distance", dict(x=np.ones((1, 3, 2)), y=np.ones((2, 3, 2)))), ("cholesky", dict(a=np.stack([np.eye(2)] * 2))),
                    ("regression", dict(x=RNG.standard_normal((2, 5, 2)), y=np.ones((2, 5)), sample_weight=np.ones(5))),
                    ("regression", dict(x=RNG.standard_normal((2, 5, 2)), y=np.ones((2, 5))))):
        client.run(op, **job)


def test_kinds_of_errors(client):
    with pytest.raises(blasd.NotFound):
        client.job("a" + "0" * 40)
    with pytest.raises(blasd.NotPositiveDefinite) as caught:
        client.solve(-np.eye(2), np.ones(2), assume_a="positive_definite")
    assert isinstance(caught.value, blasd.NumericalError)
    with pytest.raises(blasd.InvalidInput):
        client.run("matmul", {"speed": 11}, a=np.eye(2), b=np.eye(2))
    for code, status, kind in (("queue_full", 429, blasd.QueueFull), ("draining", 503, blasd.Unavailable),
                               ("nobody_knows", 503, blasd.Unavailable), ("nobody_knows", 0, blasd.Error),
                               ("forbidden_host", 403, blasd.Forbidden), ("cancelled", 409, blasd.Cancelled),
                               ("job_ended", 409, blasd.Conflict), ("poisoned", 500, blasd.JobFailed)):
        assert type(blasd.Error(code, "", status=status)) is kind


def test_headers_keys_and_agents():
    heard = []

    def talk(self, connection):
        return answer(connection, {"ops": []}) and False

    class Hearing(Listener):
        def run(self):
            while True:
                try:
                    connection, _ = self.sock.accept()
                except OSError:
                    return
                with connection:
                    text = b""
                    while b"\r\n\r\n" not in text:
                        text += connection.recv(65536)
                    heard.append(text.decode())
                    talk(self, connection)
    listener = Hearing(talk)
    blasd.Client(listener.url, api_key="secret", headers={"X-Team": "physics"}).ops()
    assert "Authorization: Bearer secret\r\n" in heard[-1] and "X-Team: physics\r\n" in heard[-1]
    assert f"User-Agent: blasd-python/{blasd.__version__} " in heard[-1] and heard[-1].count("Host:") == 1

    async def main():
        async with blasd.AsyncClient(listener.url, api_key="other") as client:
            await client.ops()
    asyncio.run(main())
    assert "Authorization: Bearer other\r\n" in heard[-1]
    os.environ["BLASD_API_KEY"] = "from-outside"
    try:
        blasd.Client(listener.url).ops()
    finally:
        del os.environ["BLASD_API_KEY"]
    assert "Bearer from-outside" in heard[-1]
    listener.close()
    for bad in ({"X": "a\r\nb"}, {"X\n": "a"}):
        with pytest.raises(ValueError):
            blasd.Client(listener.url, headers=bad)


def test_proxies_come_from_the_environment(monkeypatch):
    listener = Listener(lambda self, c: answer(c, {"ops": []}) and False)
    monkeypatch.setenv("http_proxy", listener.url)
    monkeypatch.setenv("no_proxy", "nothing.test")
    assert blasd.Client("http://blasd.test:8080").ops() == []
    monkeypatch.setenv("no_proxy", "blasd.test")
    assert blasd.Client("http://blasd.test:8080")._calls.settings.proxy is None
    assert blasd.Client("http://127.0.0.1:1")._calls.settings.proxy is None
    listener.close()


def test_a_socket_in_the_file_system(service, tmp_path):
    """unix:/PATH, here with a relay to the service behind it."""
    port = int(service.url.rsplit(":", 1)[1])

    class Relay(socketserver.BaseRequestHandler):
        def handle(self):
            with socket.create_connection(("127.0.0.1", port)) as onward:
                def pump(source, target):
                    while (data := source.recv(65536)):
                        target.sendall(data)
                    try:
                        target.shutdown(socket.SHUT_WR)
                    except OSError:
                        pass
                back = threading.Thread(target=pump, args=(onward, self.request), daemon=True)
                back.start()
                pump(self.request, onward)
                back.join()

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True
    path = str(tmp_path / "blasd.sock")
    with Server(path, Relay) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with blasd.Client(f"unix:{path}") as client:
            assert np.array_equal(client.matmul(np.eye(3), np.eye(3)), np.eye(3))

        async def main():
            async with blasd.AsyncClient(f"unix:{path}") as client:
                return await client.matmul(np.eye(3), np.eye(3))
        assert np.array_equal(asyncio.run(main()), np.eye(3))
        server.shutdown()
    with pytest.raises(ValueError):
        blasd.Client("unix:")


def test_retries_carry_one_key_and_heed_retry_after(caplog):
    """The first answer of the service: it is full, come back in a second; the second: none at all."""
    def talk(self, connection):
        if len(self.requests) == 1:
            connection.sendall(b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Type: application/problem+json\r\n"
                               b"Content-Length: 52\r\n\r\n" + b'{"code":"draining","retry":true,"detail":"not now."}  '[:52])
            return True
        if len(self.requests) == 2:
            return False
        return answer(connection, {"id": "x", "state": "queued", "progress": 0, "op": "matmul"})
    listener = Listener(talk)
    begin = time.monotonic()
    with caplog.at_level(logging.INFO, "blasd"):
        job = blasd.Client(listener.url, retries=3).submit("matmul", a=[[1.0]], b=[[1.0]])
    assert job.id == "x" and time.monotonic() - begin >= 1
    keys = [key for _, key in listener.requests]
    assert len(keys) == 3 and keys[0] and len(set(keys)) == 1
    assert any("draining" in record.getMessage() for record in caplog.records)
    listener.close()


# --- others' signatures -----------------------------------------------------------------------------------------------


def test_numpys_signatures(default):
    a, b = RNG.standard_normal((3, 5, 5)), RNG.standard_normal((3, 5, 2))
    assert np.allclose(blasd.linalg.matmul(a, b), a @ b) and blasd.linalg.matmul([1, 2], [3, 4]) == 11
    assert np.allclose(blasd.linalg.solve(a, b), np.linalg.solve(a, b))
    assert np.allclose(blasd.linalg.inv(a), np.linalg.inv(a)) and np.allclose(blasd.linalg.inv(a[0]), np.linalg.inv(a[0]))
    with pytest.raises(np.linalg.LinAlgError):
        blasd.linalg.solve(np.ones((2, 2)), np.ones(2))
    with pytest.raises(np.linalg.LinAlgError):
        blasd.linalg.inv(np.ones((2, 3)))
    for rows, columns in ((9, 4), (4, 9), (5, 5)):
        left, right = RNG.standard_normal((rows, columns)), RNG.standard_normal((rows, 2))
        for side in (right, right[:, 0]):
            ours, theirs = blasd.linalg.lstsq(left, side), np.linalg.lstsq(left, side, rcond=None)
            assert ours.rank == theirs[2]
            for mine, other in zip((ours.x, ours.residuals, ours.s), (theirs[0], theirs[1], theirs[3])):
                assert mine.shape == other.shape and np.allclose(mine, other)


def test_numpys_decompositions(default):
    a, s = RNG.standard_normal((2, 5, 3)), RNG.standard_normal((2, 4, 4))
    s = s + s.swapaxes(1, 2)
    w, v = blasd.linalg.eigh(s)
    assert np.allclose(w, np.linalg.eigh(s)[0]) and np.allclose(s @ v, v * w[:, None])
    assert np.allclose(blasd.linalg.eigh(np.triu(s), UPLO="U").eigenvalues, w)
    assert np.allclose(blasd.linalg.eigvalsh(np.tril(s)), w)
    for full in (True, False):
        ours, theirs = blasd.linalg.svd(a, full_matrices=full), np.linalg.svd(a, full_matrices=full)
        assert [x.shape for x in ours] == [x.shape for x in theirs] and np.allclose(ours.S, theirs[1])
        assert np.allclose(ours.U[..., :3] * ours.S[:, None] @ ours.Vh[:, :3], a)
    assert np.allclose(blasd.linalg.svd(a, compute_uv=False), np.linalg.svd(a, compute_uv=False))
    assert np.allclose(blasd.linalg.svdvals(a[0]), np.linalg.svd(a[0], compute_uv=False))
    for mode in ("reduced", "complete"):
        for mine, other in zip(blasd.linalg.qr(a[0], mode), np.linalg.qr(a[0], mode)):
            assert np.allclose(mine, other)
    assert np.allclose(blasd.linalg.qr(a[0], "r"), np.linalg.qr(a[0], "r"))
    definite = s @ s + np.eye(4)
    assert np.allclose(blasd.linalg.cholesky(definite), np.linalg.cholesky(definite))
    assert np.allclose(blasd.linalg.cholesky(definite, upper=True), np.linalg.cholesky(definite).swapaxes(1, 2))
    with pytest.raises(np.linalg.LinAlgError, match="order 1 "):
        blasd.linalg.cholesky(-np.eye(2))
    with pytest.raises(blasd.InvalidInput, match="UPLO"):
        blasd.linalg.eigh(np.eye(2), UPLO="X")


def test_decompositions_of_both_clients(service):
    a, b = RNG.standard_normal((6, 3)), RNG.standard_normal(6)
    with blasd.Client(service.url) as client:
        x = client.lstsq(a, b, timeout=60).x
        assert client.eigh(a.T @ a, priority="high").eigenvalues.shape == (3,)

    async def all_of_them():
        async with blasd.AsyncClient(service.url) as client:
            return await asyncio.gather(client.lstsq(a, b), client.svd(a), client.qr(a), client.cholesky(a.T @ a),
                                        client.eigvalsh(a.T @ a))
    fit, values, qr, factor, eigenvalues = asyncio.run(all_of_them())
    assert np.array_equal(fit.x, x) and np.allclose(values.S**2, eigenvalues[::-1])
    assert np.allclose(abs(qr.R.T), abs(factor))


def test_scipys_signatures(default):
    ours, theirs = blasd.spatial.distance, scipy.spatial.distance
    x, y, w = RNG.standard_normal((7, 3)), RNG.standard_normal((5, 3)), np.array([1.0, 2, 3])
    for metric, options in (("euclidean", {}), ("cityblock", {}), ("minkowski", {"p": 3, "w": w}), ("cosine", {}),
                            ("seuclidean", {"V": w}), ("mahalanobis", {"VI": np.eye(3) * 2}), ("sqeuclidean", {"w": w})):
        assert np.allclose(ours.cdist(x, y, metric, **options), theirs.cdist(x, y, metric, **options))
        assert np.allclose(ours.pdist(x, metric, **options), theirs.pdist(x, metric, **options))
    out = np.empty((7, 5))
    assert ours.cdist(x, y, out=out) is out and np.allclose(out, theirs.cdist(x, y))
    condensed = theirs.pdist(x)
    assert np.array_equal(ours.squareform(condensed), theirs.squareform(condensed))
    assert np.array_equal(ours.squareform(ours.squareform(condensed)), condensed)
    for bad in (np.ones(4), np.ones((2, 3)), np.arange(4.0).reshape(2, 2), np.ones((2, 2, 2))):
        with pytest.raises(ValueError):
            ours.squareform(bad)
    for wrong in ((x[0], y), (x, y[:, :2])):
        with pytest.raises(ValueError):
            ours.cdist(*wrong)
    with pytest.raises(TypeError):
        ours.cdist(x, y, lambda u, v: 0)


def test_scikit_learns_own_checks(client, default):
    """Its check_estimator, with nothing excused but what it skips itself, and its estimators' answers."""
    pytest.importorskip("sklearn")
    import blasd.sklearn as ours
    import sklearn.linear_model as theirs
    import sklearn.metrics
    import sklearn.neighbors
    from sklearn.utils.estimator_checks import check_estimator
    for estimator in (ours.LinearRegression(), ours.Ridge(), ours.Lasso(), ours.ElasticNet(),
                      ours.GradientDescentRegressor(), ours.NearestNeighbors()):
        check_estimator(estimator)
    X = RNG.standard_normal((60, 4))
    for y in (X @ [1, 2, 3, 0] + 1, X @ RNG.standard_normal((4, 3))):
        for mine, other, names in ((ours.LinearRegression(), theirs.LinearRegression(), ["rank_"]),
                                   (ours.Ridge(2.0), theirs.Ridge(2.0), []),
                                   (ours.Lasso(0.1, tol=1e-9), theirs.Lasso(0.1, tol=1e-9), ["dual_gap_", "n_iter_"]),
                                   (ours.ElasticNet(0.1, tol=1e-9), theirs.ElasticNet(0.1, tol=1e-9), ["n_iter_"])):
            mine.fit(X, y), other.fit(X, y)
            assert np.allclose(mine.coef_, other.coef_, atol=1e-6) and np.shape(mine.coef_) == np.shape(other.coef_)
            assert np.allclose(mine.intercept_, other.intercept_, atol=1e-6)
            assert np.shape(mine.intercept_) == np.shape(other.intercept_) and mine.n_features_in_ == 4
            assert np.allclose(mine.predict(X), other.predict(X), atol=1e-5)
            for name in names:
                assert np.shape(getattr(mine, name)) == np.shape(getattr(other, name)), name
            assert getattr(mine, "rank_", None) == getattr(other, "rank_", None)
    mine, other = ours.NearestNeighbors(n_neighbors=3).fit(X), sklearn.neighbors.NearestNeighbors(n_neighbors=3).fit(X)
    for query in (X[:5], None):
        for a, b in zip(mine.kneighbors(query), other.kneighbors(query)):
            assert np.allclose(a, b)
        for a, b in zip(mine.radius_neighbors(query, 1.5, sort_results=True)[1],
                        other.radius_neighbors(query, 1.5, sort_results=True)[1]):
            assert np.array_equal(a, b)
    many = RNG.standard_normal((2000, 2))
    for radius, most in ((0.01, 64 * 2000), (10.0, 2000 * 2000)):  # as few as there are take no room for all; and all
        mine, other = ours.NearestNeighbors(radius=radius).fit(many), sklearn.neighbors.NearestNeighbors(radius=radius).fit(many)
        for a, b in zip(mine.radius_neighbors(return_distance=False), other.radius_neighbors(return_distance=False)):
            assert sorted(a) == sorted(b)
        newest = max(client.jobs(op="distance"), key=lambda job: job.document["created_at"])
        assert newest.document["outputs"]["index"]["shape"] <= [most]
    assert np.allclose(ours.pairwise_distances(X, metric="l1"), sklearn.metrics.pairwise_distances(X, metric="l1"))


def test_results_are_shown(client):
    x = RNG.standard_normal((50, 2))
    fit = client.regression(x, x @ [1.0, 2.0] + 3 + RNG.standard_normal(50) / 10)
    text = str(fit)
    assert "R-squared" in text and text.splitlines()[-4].split()[0] == "const" and "x2" in text
    assert "height" in fit.summary(["weight", "height"]) and isinstance(fit, blasd.RegressionResult)
    assert "coef: float64[2]" in repr(fit) and "<table>" in fit._repr_html_()
    assert "[0.025" in text and "ols, " in text
    ridge = client.regression(x, x[:, 0], method="ridge")
    assert "const" in str(ridge) and f"ridge, {ridge.execution['method']}" in str(ridge) and "ols" not in str(ridge)
    half = {"x": x, "y": fit["coef"] @ x.T + RNG.standard_normal(50), "params": {"level": 0.5}}
    job = client.submit("regression", **half)
    for one in (client.run("regression", **half), next(client.map("regression", [half])), job.result(), pickle.loads(pickle.dumps(job)).result()):
        assert "[0.25" in str(one) and "0.75]" in str(one)
    later = str(client.job(job.id).result())  # nothing of the request is known here
    assert "[low" in later and "0.975" not in later and "ols" not in later and "qr" in later
    stack = client.regression(RNG.standard_normal((2, 9, 2)), RNG.standard_normal((2, 9)))
    with pytest.raises(ValueError):
        stack.summary()
    assert "coef" in str(stack)
