"""The Python client in programs of many processes: forks, pools, pickles, clients that nobody closes."""
import asyncio
import concurrent.futures
import contextlib
import copy
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading

import blasd
import numpy as np
import pytest
from callers import program
from pretender import OPS, Pretender, document, succeeded
from service import folder_of

FORK = multiprocessing.get_context("fork")


def in_child(work):
    """Runs `work` in a forked child; returns a function that waits for it and says whether it was right."""
    pid = os.fork()
    if pid == 0:
        status = 1
        signal.alarm(120)  # no child waits for ever
        try:
            work()
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(status)
    return lambda: os.waitpid(pid, 0)[1] == 0


def products(client, number, size=1, count=100):
    """Products whose answers belong to this caller alone."""
    for i in range(count):
        a = np.full((size, size), float(number))
        b = np.full((size, size), float(i))
        assert np.array_equal(client.matmul(a, b), np.full((size, size), size * number * i)), (number, i)


@contextlib.contextmanager
def in_threads(*works):
    """Threads that repeat their work until the block ends; then none may have failed."""
    going, failures = threading.Event(), []

    def repeat(work):
        try:
            while not going.is_set():
                work()
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    [t.start() for t in threads]
    try:
        yield
    finally:
        going.set()
        [t.join() for t in threads]
    assert not failures


@pytest.mark.parametrize("threads, size, numbers", [(0, 1, (2, 3, 5, 7)), (3, 1, (2, 3)), (16, 1, (2,)), (1, 300, (2, 3, 5))])
def test_parent_children_and_threads_use_one_client_at_once(service, sharing, threads, size, numbers):
    """The child has the connections and locks of threads that it has not; large operands have files of each process' own."""
    client = blasd.Client(sharing.url, share=True) if size > 1 else blasd.Client(service.url)
    count = 5 if size > 1 else 20
    products(client, 1, size, 1)
    with in_threads(*[lambda i=i: products(client, 13 + i, size, 2) for i in range(threads)]):
        for _ in range(3):
            children = [in_child(lambda number=number: products(client, number, size, count)) for number in numbers]
            products(client, 11, size, count)
            assert all([wait() for wait in children])


def test_children_of_children(client):
    def generation(number):
        products(client, number, count=20)
        if number < 4:
            wait = in_child(lambda: generation(number + 1))
            products(client, 10 + number, count=20)
            assert wait()
    generation(1)


async def awaited_products(client, number, count=20):
    async def one(i):
        assert np.array_equal(await client.matmul(np.full((1, 1), float(number)), np.full((1, 1), float(i))), [[number * i]])
    for _ in range(count):
        await asyncio.gather(*(one(i) for i in range(8)))


def test_a_fork_of_an_event_loop(service):
    """The child has the connections of a loop that is the parent's."""
    async def parent():
        async with blasd.AsyncClient(service.url) as client:
            await awaited_products(client, 3, 1)
            children = [in_child(lambda number=number: asyncio.run(awaited_products(client, number))) for number in (2, 5, 7)]
            await awaited_products(client, 11)
            assert all([wait() for wait in children])
            await awaited_products(client, 13, 1)
    asyncio.run(parent())


def test_one_event_loop_after_another_and_several_at_once(service):
    client = blasd.AsyncClient(service.url)
    for number in (2, 3):
        asyncio.run(awaited_products(client, number, 1))
    with in_threads(*[lambda number=number: asyncio.run(awaited_products(client, number)) for number in (5, 7, 11)]):
        pass
    asyncio.run(client.close())


def test_a_child_that_ends_leaves_the_parents_arrays(sharing):
    """Whether it ends as programs do or lets the arrays go itself; and it may use them meanwhile."""
    client = blasd.Client(sharing.url, share=True)
    held = {"s": client.shared(a=((300, 300), "f8"), b=((300, 300), "f8"))}
    held["s"]["a"][...], held["s"]["b"][...] = 2, np.eye(300)
    name = f"{held['s'].file.name}.put"

    def use_and_let_go():
        assert client.run("matmul", **held["s"])["c"][5, 5] == 2
        held.clear()
        gc.collect()
    assert in_child(use_and_let_go)()
    child = FORK.Process(target=use_and_let_go)
    child.start()
    child.join()
    assert (folder_of(sharing) / name).exists()
    result = client.run("matmul", **held["s"])
    assert result["c"][0, 0] == 2 and "blob" in result.job["outputs"]["c"]
    held.clear()
    gc.collect()
    assert not (folder_of(sharing) / name).exists()


def test_a_program_that_ends_in_the_child_too(sharing):
    """Both run what Python runs at its end; the parent last."""
    code = ("import blasd, os, sys; c = blasd.Client(share=True); s = c.shared(a=((300, 300), 'f8'), b=((300, 300), 'f8'))\n"
            "if os.fork() == 0: sys.exit(0)\n"
            "os.wait(); print('blob' in c.run('matmul', **s).job['outputs']['c'])")
    done = program(code, BLASD_URL=sharing.url)
    assert done.stdout == "True\n", done
    assert not list(folder_of(sharing).glob("*.put"))


def square(client, i):
    return client.matmul([[float(i)]], [[float(i)]])[0, 0]


def test_pools(client):
    """Of processes that were forked after the client was used, and of such that were started anew."""
    assert square(client, 3) == 9
    for context in (FORK, multiprocessing.get_context("spawn")):
        with context.Pool(3) as pool:
            answers = pool.starmap_async(square, [(client, i) for i in range(40)]).get(60)
            assert answers == [float(i * i) for i in range(40)]
            assert pool.apply_async(client.matmul, (np.eye(2), np.eye(2))).get(60).tolist() == np.eye(2).tolist()


# --- pickles ----------------------------------------------------------------------------------------------------------


def test_an_error_in_a_child_is_the_parents(client):
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=FORK) as pool:
        with pytest.raises(blasd.Error) as caught:
            pool.submit(client.solve, np.ones((2, 2)), np.ones(2)).result(60)
        assert caught.value.code == "singular_matrix" and caught.value.job["state"] == "failed"
        result = pool.submit(client.run, "matmul", a=np.eye(2), b=np.eye(2)).result(60)
        assert result["c"].tolist() == np.eye(2).tolist() and result.timing["total_ms"] > 0 and result.job["id"]


class OwnError(blasd.Error):
    def __init__(self, reason):
        super().__init__("own", reason, advice="Do.")
        self.reason = reason


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_errors_are_pickled(protocol):
    for error in (blasd.Error("shape_mismatch", "2 is not 3", status=422, field="inputs.a", title="Shapes", advice="Look.",
                              retry=True, retry_after=2.5, job={"id": "x"}), blasd.Error("timeout", ""), OwnError("why")):
        for other in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error), copy.deepcopy(error)):
            assert type(other) is type(error) and str(other) == str(error) and vars(other) == vars(error)
            assert other.args == error.args


def test_clients_jobs_and_shared_arrays_are_pickled(client, sharing):
    """A client is unpickled where nothing is shared, too, as on another machine: then the arrays are sent."""
    client.ops()
    other = pickle.loads(pickle.dumps(client))
    assert other.url == client.url and other.timeout == client.timeout and square(other, 4) == 16
    job = pickle.loads(pickle.dumps(client.submit("matmul", a=np.eye(2), b=np.eye(2))))
    assert job.result(60)["c"].tolist() == np.eye(2).tolist()
    data, folder = pickle.dumps(blasd.Client(sharing.url, share=True)), str(folder_of(sharing)).encode()
    for text, shares in ((data, True), (data.replace(folder, folder[:-4] + b"none"), False)):
        result = pickle.loads(text).run("matmul", a=np.eye(400), b=np.eye(400))
        assert ("blob" in result.job["outputs"]["c"]) == shares and np.array_equal(result["c"], np.eye(400))
    arrays = pickle.loads(data).shared(a=((3, 3), "f4"))
    arrays["a"][...] = 7
    copied = pickle.loads(pickle.dumps(arrays))
    arrays["a"][...] = 8
    assert (copied["a"] == 7).all()


def test_an_async_client_in_use_is_pickled(service):
    async def main():
        async with blasd.AsyncClient(service.url) as client:
            await client.ops()
            job = pickle.loads(pickle.dumps(await client.submit("matmul", a=[[2.0]], b=[[3.0]])))
            async with pickle.loads(pickle.dumps(client)) as other:
                assert other.url == client.url and (await other.ops())
            return (await job)["c"]
    assert asyncio.run(main()) == 6


# --- clients that nobody closes: their connections end with them, and Python has nothing to warn of -----------------------


BEGIN = """
import asyncio, gc, os, pickle, sys
import blasd, blasd.default, blasd.linalg

def sockets():
    gc.collect()
    links = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    return sum(os.readlink(link).startswith("socket:") for link in links if os.path.islink(link))
url = sys.argv[1]
client = blasd.Client(url)
client.ops()
"""

PROGRAMS = {
    "of a client that is dropped": """
assert sockets() == 1
del client
print(sockets())
""",
    "of many": """
for _ in range(20):
    blasd.Client(url).ops()
print(sockets() - 1)
""",
    "of a client that is there at the end": """
other = pickle.loads(pickle.dumps(client))
other.ops()
print(0)
""",
    "of the default client": """
blasd.default.client().ops()
blasd.default.set_client(None)
print(sockets() - 1)
blasd.default.client().ops()
""",
    "of a dropped client in a child": """
if os.fork() == 0:
    del client
    print(sockets(), flush=True)
    os._exit(0)
assert os.wait()[1] == 0
assert client.ops() == [] and sockets() == 1
""",
    "of the parent's in a child that goes on": """
if os.fork() == 0:
    client.ops()
    client.ops()
    print(sockets() - 1, flush=True)
    sys.exit(0)
assert os.wait()[1] == 0
assert client.ops() == []
""",
    "of jobs in flight at the end": """
print(len(list(client.map("matmul", [{"a": [[1.0]], "b": [[1.0]]}] * 3))) - 3)
""",
    "of a dropped AsyncClient": """
async def main():
    client = blasd.AsyncClient(url)
    await client.ops()
    before = sockets()
    del client
    for _ in range(500):
        if sockets() < before:
            break
        await asyncio.sleep(0.02)
    return before - sockets()
print(asyncio.run(main()) - 1)
"""}


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS)
def test_no_connection_stays(code):
    """Python's warnings of what was left open are errors, and so is any other word."""
    with Pretender(lambda request, number: succeeded() if request[0] == "POST" else document(OPS)) as pretender:
        done = program(BEGIN + code, pretender.url, BLASD_URL=pretender.url, PYTHONWARNINGS="error")
        assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", ""), done.stderr
