"""The Python client in programs of every shape: forks, pickles, results that are written to, inputs of other kinds."""
import ast
import asyncio
import base64
import concurrent.futures
import copy
import gc
import json
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import warnings

import blasd
import numpy as np
import pandas
import pytest
import scipy.sparse
from service import ROOT, folder_of

RNG = np.random.default_rng(12)
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def client(service):
    return blasd.Client(service.url)


# --- forks ------------------------------------------------------------------------------------------------------------


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


def products(client, who, size=1, count=100):
    """Products whose answers are those of nobody else."""
    for i in range(count):
        a = np.full((size, size), float(who))
        b = np.full((size, size), float(i))
        assert np.array_equal(client.matmul(a, b), np.full((size, size), size * who * i)), (who, i)


def test_parent_and_children_use_one_client_at_once(client):
    products(client, 1, count=1)
    for _ in range(3):
        children = [in_child(lambda who=who: products(client, who)) for who in (2, 3, 5, 7)]
        products(client, 11)
        assert all([wait() for wait in children])


def test_children_of_children(client):
    def generation(who):
        products(client, who, count=20)
        if who < 4:
            wait = in_child(lambda: generation(who + 1))
            products(client, 10 + who, count=20)
            assert wait()
    generation(1)


def test_a_fork_while_other_threads_ask(client):
    """The child has the connections and locks of threads that it has not."""
    going, failures = threading.Event(), []

    def ask(who):
        try:
            while not going.is_set():
                products(client, who, count=5)
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=ask, args=(who,)) for who in (13, 17, 19)]
    [t.start() for t in threads]
    try:
        for _ in range(5):
            children = [in_child(lambda who=who: products(client, who, count=20)) for who in (2, 3)]
            assert all([wait() for wait in children])
    finally:
        going.set()
        [t.join() for t in threads]
    assert not failures


async def awaited_products(client, who, count=20):
    async def one(i):
        assert np.array_equal(await client.matmul(np.full((1, 1), float(who)), np.full((1, 1), float(i))), [[who * i]])
    for _ in range(count):
        await asyncio.gather(*(one(i) for i in range(8)))


def test_a_fork_of_an_event_loop(service):
    """The child has the connections of a loop that is the parent's."""
    async def parent():
        async with blasd.AsyncClient(service.url) as client:
            await awaited_products(client, 3, 1)
            children = [in_child(lambda who=who: asyncio.run(awaited_products(client, who))) for who in (2, 5, 7)]
            await awaited_products(client, 11)
            assert all([wait() for wait in children])
            await awaited_products(client, 13, 1)
    asyncio.run(parent())


def test_one_event_loop_after_another_and_several_at_once(service):
    client, failures = blasd.AsyncClient(service.url), []
    for who in (2, 3):
        asyncio.run(awaited_products(client, who, 1))

    def ask(who):
        try:
            asyncio.run(awaited_products(client, who))
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=ask, args=(who,)) for who in (5, 7, 11)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures
    asyncio.run(client.close())


def test_a_fork_beside_shared_memory(sharing):
    """Large operands: each process' own files, also while threads of the parent make theirs."""
    client = blasd.Client(sharing.url, share=True)
    products(client, 1, 300, count=2)
    going = threading.Event()

    def ask():
        while not going.is_set():
            products(client, 13, 300, count=2)
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(3):
            children = [in_child(lambda who=who: products(client, who, 300, count=5)) for who in (2, 3, 5)]
            products(client, 7, 300, count=5)
            assert all([wait() for wait in children])
    finally:
        going.set()
        thread.join()


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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={
        **os.environ, "PYTHONPATH": str(ROOT / "clients/python"), "BLASD_URL": sharing.url})
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


def test_clients_and_jobs_are_pickled(client, sharing):
    client.ops()
    other = pickle.loads(pickle.dumps(client))
    assert other.url == client.url and other.timeout == client.timeout and square(other, 4) == 16
    job = pickle.loads(pickle.dumps(client.submit("matmul", a=np.eye(2), b=np.eye(2))))
    assert job.result(60)["c"].tolist() == np.eye(2).tolist()
    shared = pickle.loads(pickle.dumps(blasd.Client(sharing.url, share=True)))
    assert "blob" in shared.run("matmul", a=np.eye(400), b=np.eye(400)).job["outputs"]["c"]


def test_an_async_client_in_use_is_pickled(service):
    async def main():
        async with blasd.AsyncClient(service.url) as client:
            await client.ops()
            job = pickle.loads(pickle.dumps(await client.submit("matmul", a=[[2.0]], b=[[3.0]])))
            async with pickle.loads(pickle.dumps(client)) as other:
                assert other.url == client.url and (await other.ops())
            return (await job)["c"]
    assert asyncio.run(main()) == 6


def test_a_client_is_unpickled_where_nothing_is_shared(client, sharing, monkeypatch):
    """On another machine, say: the arrays are sent."""
    data = pickle.dumps(blasd.Client(sharing.url, share=True))
    folder = str(folder_of(sharing))
    data = data.replace(folder.encode(), folder[:-4].encode() + b"none")
    other = pickle.loads(data)
    result = other.run("matmul", a=np.eye(400), b=np.eye(400))
    assert "blob" not in result.job["outputs"]["c"] and np.array_equal(result["c"], np.eye(400))


def test_shared_arrays_are_pickled_as_copies(sharing):
    shared = blasd.Client(sharing.url, share=True).shared(a=((3, 3), "f4"))
    shared["a"][...] = 7
    other = pickle.loads(pickle.dumps(shared))
    shared["a"][...] = 8
    assert (other["a"] == 7).all()


# --- results ----------------------------------------------------------------------------------------------------------


def test_results_are_written_to(client, sharing):
    small, large = np.eye(3), np.eye(500)
    for one in (client, blasd.Client(sharing.url, share=True)):
        for a in (small, large, small.astype("f2"), small > 0):
            c = one.matmul(a, a)
            assert c.flags.writeable and c.flags.aligned
            c += 1
            assert c[0, 0] == 2 and c[0, 1] == 1
        d = one.distance(large, output="topk", k=2)
        d["index"][0, 0], d["d"][0, 0] = 7, 7.5
        job = one.submit("matmul", a=large, b=large)
        c = job.result(60)["c"]
        c[...] = 5
        assert np.array_equal(job.result(60)["c"], large), "the service's own is as it was"
    assert one.matmul(np.zeros((0, 3)), np.ones((3, 2))).flags.writeable


def test_large_results_are_not_copied(client):
    """What is received is what the array lies in: nothing of its size is made beside it."""
    code = ("import blasd, numpy as np, resource, sys; c = blasd.Client(sys.argv[1])\n"
            "a = np.ones((1, 6000)); c.matmul(a, a.T)\n"
            "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; r = c.matmul(a.T, a)\n"
            "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / r.nbytes)")
    done = subprocess.run([sys.executable, "-c", code, client.url], capture_output=True, text=True, check=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "clients/python")})
    assert float(done.stdout) < 1.5


# --- inputs that are no plain arrays -----------------------------------------------------------------------------------


def refusal(client, a, b=None):
    with pytest.raises((TypeError, ValueError)) as caught:
        client.matmul(a, np.ones((2, 2)) if b is None else b)
    return str(caught.value)


def test_masked_arrays(client):
    masked = np.ma.array([[1.0, 2], [3, 4]], mask=[[0, 1], [0, 1]])
    for form in (masked, [masked[0], masked[1]], (list(masked[0]), [3.0, 4.0]), np.ma.array([[1, 2], [3, 4]], mask=True)):
        assert "a: " in refusal(client, form) and "mask" in refusal(client, form) and "filled" in refusal(client, form)
    for whole in (np.ma.array([[1.0, 2], [3, 4]]), np.ma.array([[1.0, 2], [3, 4]], mask=[[0, 0], [0, 0]])):
        assert client.matmul(whole, np.eye(2)).tolist() == [[1, 2], [3, 4]]


def test_pandas_missing_values(client):
    whole = pandas.DataFrame({"u": [1.0, 2.0], "v": [3, 4]})
    assert client.matmul(whole, np.eye(2)).tolist() == [[1, 3], [2, 4]]
    assert client.matmul(whole.T, np.eye(2)).tolist() == [[1, 2], [3, 4]]
    assert client.matmul(np.eye(2), whole["u"]).tolist() == [1, 2]
    for dtype in ("Int64", "UInt8", "Int16", "Float32", "boolean"):
        column = pandas.Series([1, 0], dtype=dtype)
        assert client.matmul(np.eye(2), column).tolist() == [1, 0]
        assert client.matmul(np.eye(2), column.array).tolist() == [1, 0]
        assert client.matmul(pandas.DataFrame({"u": column, "v": [0.5, 2]}), np.eye(2)).tolist() == [[1, 0.5], [0, 2]]
        missing = pandas.Series([1, None], dtype=dtype)
        for form in (missing, missing.array, pandas.DataFrame({"u": [1.0, 2], "v": missing})):
            text = refusal(client, form)
            assert "a: " in text and "1 missing value" in text and "fillna" in text and "dropna" in text
        assert "v" in refusal(client, pandas.DataFrame({"u": [1.0, 2], "v": missing}))
    for form in (pandas.Series([1, pandas.NA]), pandas.Series([1, None], dtype=object), [[1, pandas.NA], [2, 3]],
                 pandas.DataFrame({"u": [1, pandas.NA], "v": [1, 2]}), np.array([[1, None], [2, 3]]), [[1, None], [2, 3]],
                 pandas.Series(["1", "2"]), pandas.Series(["x", None], dtype="category")):
        assert "a: " in refusal(client, form)
    for dates in (pandas.Series(pandas.to_datetime(["2020-01-01", None])), pandas.to_timedelta([1, None]),
                  pandas.DataFrame({"u": pandas.to_datetime(["2020-01-01", "2020-01-02"])}), np.array(["NaT"], "M8[s]")):
        assert "a: " in refusal(client, dates)
    assert np.isnan(client.matmul(pandas.Series([np.nan, 1.0]), np.eye(2))).all(), "a float's NaN is a value"


class OnlyDlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnDevice(OnlyDlpack):
    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **options):
        raise BufferError("that is on a device")


class CudaArray:
    __cuda_array_interface__ = {"shape": (2, 2), "typestr": "<f8", "data": (4096, False), "version": 3}


class Nulls:
    """As a column of Arrow or polars: __array__ makes NaN of what is missing."""
    null_count = 1

    def __array__(self, dtype=None, copy=None):
        return np.array([[1.0, np.nan], [2, 3]])


class NullsByCall(Nulls):
    def null_count(self):
        return 2


def test_other_kinds_of_arrays(client):
    a = np.array([[1.0, 2], [3, 4]])
    assert client.matmul(OnlyDlpack(a), np.eye(2)).tolist() == a.tolist()
    assert client.matmul(OnlyDlpack(a.astype("f4")), np.eye(2, dtype="f4")).dtype == np.float32
    for form, words in ((OnDevice(a), "device"), (CudaArray(), "GPU"), (Nulls(), "1 missing"), (NullsByCall(), "2 missing"),
                        (scipy.sparse.eye(2), "toarray"), (scipy.sparse.csr_matrix(a), "sparse"),
                        ((x for x in a), "generator"), ({1: 2}, "dict"), ([2**70], "object"), ("abc", "dtype"),
                        ([[1, 2], [3]], ""), (np.array([b"a"]), "dtype"), (a.astype(np.clongdouble), "complex256"), (object(), "object"),
                        (a.astype(np.longdouble), "float128"), ([OnDevice(a)], ""), ([scipy.sparse.eye(2)], "")):
        text = refusal(client, form)
        assert text.startswith("inputs.a: ") and words in text, text


def test_the_buffer_protocol(client):
    """What offers its memory, of the standard library and of Arrow."""
    import array
    import ctypes
    flat = array.array("d", [1.0, 2, 3, 4])
    assert client.matmul(np.eye(4), flat).tolist() == [1, 2, 3, 4]
    assert client.matmul(memoryview(flat).cast("B").cast("d", (2, 2)), np.eye(2)).tolist() == [[1, 2], [3, 4]]
    assert client.matmul(((ctypes.c_float * 2) * 2)((1, 2), (3, 4)), np.eye(2, dtype="f4")).dtype == np.float32
    assert client.matmul(range(2), [[1.0, 0], [0, 1]]).tolist() == [0, 1]


ARRAYS = """
import sys
import numpy as np
import pyarrow
import polars
import blasd

with blasd.Client(sys.argv[1]) as client:
    column = pyarrow.array([1.0, 2.0])
    assert client.matmul(np.eye(2), column).tolist() == [1, 2]
    table = pyarrow.table({"u": [1.0, 3.0], "v": [2.0, 4.0]})
    assert client.matmul(table, np.eye(2)).tolist() == [[1, 2], [3, 4]]
    assert client.matmul(pyarrow.Tensor.from_numpy(np.array([[1.0, 2.0]])), np.eye(2)).tolist() == [[1, 2]]
    frame = polars.DataFrame({"u": [1.0, 3.0], "v": [2.0, 4.0]})
    assert client.matmul(frame, np.eye(2)).tolist() == [[1, 2], [3, 4]]
    assert client.matmul(np.eye(2), frame["u"]).tolist() == [1, 3]
    for missing in (pyarrow.array([1.0, None]), polars.Series([1.0, None])):
        try:
            client.matmul(np.eye(2), missing)
            sys.exit(f"{type(missing)} was taken")
        except blasd.InputError as error:
            assert "1 missing value" in str(error), error
"""


def test_arrow_and_polars(venv, service):
    """As they come from PyPI."""
    done = subprocess.run([venv("arrays") / "bin/python", "-c", ARRAYS, service.url], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "clients/python")}, check=False)
    assert done.returncode == 0, done.stderr


def test_ruff_and_mypy_have_no_finding(venv):
    """The newest of both; mypy strictly, as pyproject.toml says, and all of it is Python 3.9."""
    checks, folder = venv("checks") / "bin", ROOT / "clients/python"
    for words in ([checks / "ruff", "check", "--no-cache", "."], [checks / "mypy", "--cache-dir=/dev/null", "blasd"]):
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    for path in folder.rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 9))
    assert (folder / "blasd/py.typed").exists()


def test_nothing_at_all_is_no_array(client):
    with pytest.raises(TypeError, match="a: 1 missing value"):
        client.run("matmul", a=None, b=np.eye(2))


def test_inputs_of_shared_clients_are_looked_at_too(sharing):
    client = blasd.Client(sharing.url, share=True)
    masked = np.ma.array(np.ones((500, 500)), mask=np.eye(500))
    assert "mask" in refusal(client, masked, np.ones((500, 500)))
    assert "sparse" in refusal(client, scipy.sparse.eye(500), np.ones((500, 500)))


# --- whole numbers ----------------------------------------------------------------------------------------------------

BIG = 2**53


def said(work):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [w for w in caught if w.category is blasd.JobWarning]


def test_integers_that_float64_cannot_hold(client, sharing):
    eye = np.eye(2)
    for one in (client, blasd.Client(sharing.url, share=True)):
        for a in (np.array([[1, BIG + 1], [2, 3]]), [[-BIG - 1, 1], [1, 1]], np.array([[2**64 - 1, 1], [1, 1]], "u8"),
                  [[BIG + 1, 0.5], [1, 1]], np.array([[1, BIG + 1], [2, 3]], ">i8"),
                  pandas.DataFrame({"u": [BIG + 1, 2], "v": [0.5, 1]}), [2**63 + 1, -1], [np.array([BIG + 1, 0]), [0.5, 1]]):
            found = said(lambda: one.matmul(a, eye))
            assert len(found) == 1 and "a" in str(found[0].message) and "2^53" in str(found[0].message)
            assert found[0].filename == __file__, "it points at the line that asked"
        for a in (np.array([[1, BIG], [2, 3]]), [[-BIG, 2**60], [0, 0]], np.array([[2**63, 1], [1, 1]], "u8"),
                  np.full((2, 2), 2**31 - 1, "i4"), [[BIG, 0.5], [1, 1]], np.array([[1e300, 1], [1, 1]])):
            assert not said(lambda: one.matmul(a, eye))
    assert said(lambda: client.distance([[BIG + 1, 2], [1, 2]]))
    assert said(lambda: client.submit("matmul", a=[[BIG + 1]], b=[[1.0]]).result(60))
    large = np.zeros((500, 500), "i8")
    large[499, 499] = BIG + 1
    assert said(lambda: blasd.Client(sharing.url, share=True).matmul(large, np.eye(500)))


def test_products_of_integers_that_float64_cannot_hold(client):
    for dtype in ("i8", "u8", "i4", "u4"):
        a = np.full((2, 2), 2**27, dtype)
        found = said(lambda: client.matmul(a, a))
        assert len(found) == 1 and "2^53" in str(found[0].message)
        assert not said(lambda: client.matmul(a // 2, a // 2))
        assert not said(lambda: client.matmul(a, a.astype("f8"))), "who sends floats expects floats"
        assert said(lambda: client.matmul(a // 2, a // 2, alpha=3))
        assert said(lambda: client.matmul(a // 2, a // 2, np.full((2, 2), 2**53, "i8")))
        assert not said(lambda: client.matmul(a, a, alpha=0.5))
    for dtype in ("i1", "u1", "i2", "u2", "?"):
        a = np.ones((200, 200), dtype) if dtype == "?" else np.full((200, 200), np.iinfo(dtype).max, dtype)
        assert not said(lambda: client.matmul(a, a))


def test_any_client_is_warned(service):
    job = service.post("matmul", {"a": np.array([[BIG + 1]]), "b": np.array([[1]])}).json()
    assert any("2^53" in text for text in job["execution"]["warnings"])
    quiet = service.post("matmul", {"a": np.array([[BIG - 1]]), "b": np.array([[1]])}).json()
    assert quiet["execution"]["warnings"] == []


def test_other_warnings_are_shown_too(client):
    a = np.array([[1.0, 1], [1, 1 + 2**-52]])
    found = said(lambda: client.solve(a, np.array([1.0, 2])))
    assert found and "singular" in str(found[0].message)


def test_warnings_of_many_jobs_are_shown_where_their_results_are_taken(client):
    """Not in the thread that has them in flight; an input's come with the result, too."""
    jobs = [{"a": [[1.0, 1], [1, 1 + 2**-52]], "b": [1.0, 2]}, {"a": [[2**53 + 1, 0.5], [0, 1]], "b": [1.0, 1]}, {"a": np.eye(2), "b": np.ones(2)}]
    found = said(lambda: list(client.map("solve", jobs)))
    assert {w.filename for w in found} == {__file__} and any("singular" in str(w.message) for w in found)
    assert any("2^53" in str(w.message) for w in found)
    with warnings.catch_warnings():
        warnings.simplefilter("error", blasd.JobWarning)
        with pytest.raises(blasd.JobWarning, match="singular"):
            list(client.map("solve", jobs))


# --- a job is sent once -----------------------------------------------------------------------------------------------


class Listener:
    """Takes connections as the service would, and answers what a test says."""

    def __init__(self, talk):
        self.requests = []
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.sock.getsockname()[1]}"
        self.talk = talk
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                connection, _ = self.sock.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as file:
                while True:
                    line = file.readline().decode()
                    if not line:
                        break
                    headers = {}
                    while (header := file.readline().decode().strip()):
                        headers[header.split(":")[0].lower()] = header.split(":", 1)[1].strip()
                    file.read(int(headers.get("content-length", 0)))
                    self.authorization = headers.get("authorization")
                    self.requests.append((line.split()[0], headers.get("idempotency-key")))
                    if not self.talk(self, connection):
                        break

    def close(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def answer(connection, document, status="200 OK"):
    body = json.dumps(document).encode()
    connection.sendall(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                       + body)
    return True


def test_a_job_without_a_key_is_sent_once():
    """A connection that breaks before the answer: the job may have been taken."""
    listener = Listener(lambda self, c: len(self.requests) % 2 == 1 and answer(c, {"ops": []}))
    client = blasd.Client(listener.url)
    client.ops()
    with pytest.raises(blasd.Error) as caught:
        client.submit("matmul", a=[[1.0]], b=[[1.0]])
    assert listener.requests == [("GET", None), ("POST", None)]
    assert caught.value.code == "connection_failed" and caught.value.retry and "idempotency_key" in caught.value.advice
    client.ops()
    with pytest.raises(blasd.Error):
        client.run("matmul", a=[[1.0]], b=[[1.0]])
    assert [method for method, _ in listener.requests].count("POST") == 2
    listener.close()


def test_a_job_with_a_key_and_a_question_are_sent_again():
    listener = Listener(lambda self, c: len(self.requests) != 2 and answer(
        c, {"ops": [], "id": "x", "state": "queued", "progress": 0, "op": "matmul"}))
    client = blasd.Client(listener.url)
    client.ops()
    assert client.submit("matmul", a=[[1.0]], b=[[1.0]], idempotency_key="k").id == "x"
    assert listener.requests == [("GET", None), ("POST", "k"), ("POST", "k")]
    listener.close()
    listener = Listener(lambda self, c: len(self.requests) != 2 and answer(c, {"ops": []}))
    client = blasd.Client(listener.url)
    assert client.ops() == client.ops() == []
    assert [method for method, _ in listener.requests] == ["GET"] * 3
    listener.close()


def test_a_connection_that_was_closed_meanwhile_is_not_used():
    """So that a kept connection costs no job its answer when the service closes it or starts anew."""
    listener = Listener(lambda self, c: answer(c, {"id": "x", "state": "queued", "progress": 0, "op": "matmul"}) and False)
    client = blasd.Client(listener.url)
    for _ in range(3):
        assert client.submit("matmul", a=[[1.0]], b=[[1.0]]).id == "x"
        connection = client._pool._idle[-1][1]
        connection.sock.settimeout(5)
        assert connection.sock.recv(1, socket.MSG_PEEK) == b""  # the end has come
    assert len(listener.requests) == 3
    listener.close()


def test_an_answer_that_ends_early():
    def talk(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-safetensors\r\nContent-Length: 100\r\n\r\nshort")
        return False
    listener = Listener(talk)
    with pytest.raises(blasd.Error) as caught:
        blasd.Client(listener.url).run("matmul", a=[[1.0]], b=[[1.0]])
    assert caught.value.code == "connection_failed" and len(listener.requests) == 1
    listener.close()


OPS = b'{"ops": [{"name": "matmul"}]}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = [(b"%x\r\n" % len(OPS) + OPS + b"\r\n0\r\n\r\n", True), (b"7;name=value\r\n" + OPS[:7] + b"\r\n" + b"".join(
    b"1\r\n%c\r\n" % c for c in OPS[7:]) + b"000\r\nTrailer: x\r\nOther: y\r\n\r\n", True),
          (b"5\r\n" + OPS[:5] + b"\r\n", False), (b"5\r\n" + OPS[:6] + b"\r\n0\r\n\r\n", False), (b"-1\r\n", False),
          (b"0x5\r\n" + OPS[:5] + b"\r\n0\r\n\r\n", False), (b"\r\n\r\n", False)]


@pytest.mark.parametrize("chunks, right", CHUNKS, ids=range(len(CHUNKS)))
@pytest.mark.parametrize("step", [1, 1000])
def test_a_proxy_that_answers_in_chunks(chunks, right, step):
    """The service tells each answer's length, what stands in front of it need not; in whatever pieces the chunks come."""
    def talk(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for text in (HEAD, chunks):
            for at in range(0, len(text), step):
                connection.sendall(text[at:at + step])
        return right
    listener = Listener(talk)

    async def ask():
        async with blasd.AsyncClient(listener.url) as client:
            return [await client.ops() for _ in range(2)]
    if right:
        assert asyncio.run(ask()) == [[{"name": "matmul"}]] * 2
        assert blasd.Client(listener.url).ops() == [{"name": "matmul"}]
    else:
        with pytest.raises(blasd.ConnectionError):
            asyncio.run(ask())
    listener.close()


def test_urls(service):
    assert blasd.Client(service.url + "/").ready() and blasd.Client(service.url.replace("http", "HTTP")).ready()
    for url in ("127.0.0.1:8080", "ftp://127.0.0.1", "http://", "http://127.0.0.1:port", "http://127.0.0.1:8080/?a=b",
                "http://127.0.0.1/#x", "ftp://user:pw@127.0.0.1"):
        with pytest.raises(ValueError) as caught:
            blasd.Client(url)
        assert "pw" not in str(caught.value)


def test_a_user_in_the_url_is_sent():
    """To a proxy that asks for one; and shown to nobody."""
    listener = Listener(lambda self, c: answer(c, {"ops": []}) and False)
    for user, secret in (("user:pw", "user:pw"), ("user", "user"), ("u%40x:p%3Aw", "u@x:p:w"), ("a@b:pw", "a@b:pw")):
        client = blasd.Client(listener.url.replace("//", f"//{user}@"))
        for one in (client, pickle.loads(pickle.dumps(client))):
            assert one.ops() == [] and one.url == listener.url
            assert listener.authorization == "Basic " + base64.b64encode(secret.encode()).decode()
    blasd.Client(listener.url).ops()
    assert listener.authorization is None
    listener.close()
    with pytest.raises(blasd.Error) as caught:
        client.ops()
    assert "pw" not in str(caught.value)


def test_a_refused_connection_may_be_tried_again():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    for ask in (lambda c: c.ops(), lambda c: c.run("matmul", a=[[1.0]], b=[[1.0]]), lambda c: c.submit("matmul", a=[[1.0]])):
        with pytest.raises(blasd.Error) as caught:
            ask(blasd.Client(url))
        assert caught.value.code == "connection_failed" and caught.value.retry and url in str(caught.value)
