"""What the Python client must not get wrong in silence: which output is which, what is asked once, what is told at the end."""
import asyncio
import concurrent.futures
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import threading

import blasd
import blasd.default
import blasd.linalg
import blasd.spatial.distance
import numpy as np
import pytest
import scipy.spatial.distance
from blasd.spatial import distance as ours
from pretender import DOCUMENT, Pretender, context_of, document, succeeded
from service import BLASD, ROOT, wait_for
from test_python_client import Listener, answer
from test_tls import Authority

RNG = np.random.default_rng(31)
QUEUED = {"id": "x", "state": "queued", "progress": 0, "op": "matmul"}


# --- which output is which --------------------------------------------------------------------------------------------


def test_the_first_output_is_the_operations_first(client, sharing):
    """Their bytes travel in another order: those with the largest elements first."""
    a, b = np.eye(3, dtype="f4") * 2, np.ones(3, "f4")
    assert list(client.run("solve", a=a, b=b))[0] == "x"
    place = np.empty(3, "f4")
    assert client.solve(a, b, out=place) is place and (place == 0.5).all()
    near = np.empty((3, 1), "f4")
    assert client.distance(a, output="topk", k=1, out=near)["d"] is near and np.allclose(near, 8**0.5)
    large = np.eye(700, dtype="f4") * 2
    assert (blasd.Client(sharing.url, share=True).solve(large, large, out=np.empty_like(large)) == np.eye(700)).all()


def test_the_value_of_a_step_is_its_first_output(client):
    a = np.diag([1.0, 2.0]).astype("f4")
    with client.graph() as g:
        x = g.solve(a, np.ones(2, "f4"))
        e = g.eigh(a)
        g.results(x["rcond"], x, e["eigenvectors"])
    assert np.allclose(x.value, [1, 0.5]) and x["rcond"].value == 0.5 and e["eigenvectors"].value.shape == (2, 2)
    with pytest.raises(blasd.Error, match="eigh2 is not among the results"):
        _ = e.value


def test_parts_by_name_are_not_counted(client):
    """For Python they would have no end."""
    job = client.submit("eigh", a=np.eye(2))
    with client.graph() as g:
        step = g.eigh(np.eye(2))
    for one in (job, step):
        with pytest.raises(TypeError, match="not iterable"):
            _values, _vectors = one


def test_which_outputs_are_sent_is_up_to_whoever_says_so(client):
    a = np.eye(3)
    kept = client.matmul(a, a * 2, keep=["c"])
    assert (client.tensors.get(kept.tensors["c"]) == 2 * a).all() and list(client.svd(a, results=["S"])) == ["S"]
    x = RNG.standard_normal((9, 2))
    for results in (["r2"], ["coef"], ["coef", "intercept", "stderr"]):
        assert results[-1] in str(client.regression(x, x[:, 0], results=results))
    with pytest.raises(blasd.InputError, match="no output"):
        client.run("matmul", a=a, b=a, keep=["c"], out=np.empty((3, 3)))


def test_least_squares_of_what_is_not_here(client):
    a, b = RNG.standard_normal((5, 2)), RNG.standard_normal(5)
    product = client.submit("matmul", a=np.eye(5), b=a)
    product.result()
    tensor = client.tensors.put(a)
    theirs = np.linalg.lstsq(a, b, rcond=None)
    for matrix in (product["c"], tensor, tensor[:5], a.tolist()):
        ours = client.lstsq(matrix, b)
        assert np.allclose(ours.x, theirs[0]) and np.allclose(ours.residuals, theirs[1]) and ours.rank == 2
    assert client.lstsq(tensor[:2], b[:2]).residuals.size == 0


def test_what_is_put_in_place_of_shared_arrays(sharing):
    """They are other arrays, so they are sent."""
    client = blasd.Client(sharing.url, share=True)
    shared = client.shared(a=((3, 3), "f8"), b=((3, 3), "f8"))
    shared["a"] = np.eye(3) * 2
    shared["b"][...] = np.eye(3)
    assert (client.run("matmul", **shared)["c"] == 2 * np.eye(3)).all()


# --- before anything is sent ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [">f8", ">i4", "=f4", ">c16", "?"])
def test_shared_arrays_in_any_order_of_bytes_hold_what_is_put_there(sharing, dtype):
    with blasd.Client(sharing.url, share=True) as client:
        arrays = client.shared(a=((2, 2), dtype), b=((2, 2), dtype))
        arrays["a"][...], arrays["b"][...] = [[1, 0], [3, 4]], np.eye(2)
        expected = np.array([[1, 0], [3, 4]], dtype).astype("f8" if dtype != ">c16" else dtype)
        assert np.array_equal(client.run("matmul", **arrays)["c"], expected)


@pytest.mark.parametrize("key", ["", "€", "schlüssel", "a\nb", "k" * 129])
def test_a_key_that_no_header_holds_is_refused_here(client, monkeypatch, key):
    monkeypatch.setattr(client._pool, "carry", lambda request: pytest.fail("it was sent"))
    for ask in (client.run, client.submit, lambda op, **job: list(client.map(op, [job]))):
        with pytest.raises(blasd.InputError, match="idempotency_key"):
            ask("matmul", a=np.eye(2), b=np.eye(2), idempotency_key=key)


def test_parameters_and_ids_that_cannot_be_said(client):
    a = np.eye(2)
    assert (client.matmul(a, a, alpha=np.array(2.0)) == 2 * a).all()
    with pytest.raises(blasd.InputError, match="params.alpha"):
        client.matmul(a, a, alpha=1j)
    with pytest.raises(blasd.InputError, match="params.alpha"), client.graph() as g:
        g.matmul(a, a, alpha=np.ones(2))
    for ask in (client.job, client.forget, client.tensors.get, client.tensors.delete):
        for text in ("", "a b", "a/b", "a?wait=1"):
            with pytest.raises(blasd.InputError, match="is not the id"):
                ask(text)


def test_what_is_no_mapping_is_named(client):
    """Of `map` above all, whose jobs might have been lists, and so its parameters."""
    a = np.eye(2)
    with client.graph() as graph:
        graph.matmul(a, a)
        for call in (lambda: graph.step("matmul", [{"alpha": 2}], a=a, b=a), lambda: client.run("matmul", [{"alpha": 2}], a=a, b=a),
                     lambda: client.submit("matmul", "alpha", a=a, b=a),
                     lambda: list(client.map("matmul", [{"a": a, "b": a}], params=[{"alpha": 2}])),
                     lambda: list(client.map("matmul", [(a, a)]))):
            with pytest.raises(blasd.InputError, match="must be a mapping by name, not the"):
                call()
    assert next(client.map("matmul", [{"a": a, "b": a}], params={"alpha": 2}))["c"][0, 0] == 2


@pytest.mark.parametrize("call, words", [
    (ours.cdist, {"metric": "euclidean", "p": 2}), (ours.cdist, {"metric": "euclid", "V": [1, 1]}), (ours.cdist, {"metric": "cosine", "speed": 1}),
    (ours.pdist, {"metric": "minkowski", "VI": np.eye(2)}), (ours.pdist, {"metric": "seuclidean", "VI": np.eye(2)}), (ours.pdist, {"metric": 7})])
def test_options_that_a_metric_does_not_have_are_scipys_error(default, call, words):
    points = RNG.standard_normal((2, 5, 2))[:2 if call is ours.cdist else 1]
    for one in (call, getattr(scipy.spatial.distance, call.__name__)):
        with pytest.raises(TypeError):
            one(*points, **words)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_a_negative_rcond_is_numpys(default, dtype):
    """LAPACK's precision, half of the eps of float64: not max(m, n) times eps, which is that of None."""
    for least in (1e-17, 1e-16, 1.2e-16, 2e-16, 3e-16):
        a, b = np.diag([1, 0.5, 0.25, least]).astype(dtype), np.ones(4, dtype)
        assert blasd.linalg.lstsq(a, b, -1).rank == np.linalg.lstsq(a, b, -1)[2]


def test_masks_are_seen_by_linalg_and_spatial(default):
    masked = np.ma.masked_greater(np.eye(2), 0.5)
    for call in (blasd.linalg.inv, blasd.linalg.svdvals, blasd.spatial.distance.pdist,
                 lambda one: blasd.spatial.distance.cdist(np.eye(2), one)):
        with pytest.raises(blasd.InputError, match="2 masked elements"):
            call(masked)


def test_metrics_by_scipys_other_names(default):
    x, y = RNG.random((6, 3)), RNG.random((4, 3))
    ours, theirs = blasd.spatial.distance, scipy.spatial.distance
    for info in theirs._METRIC_INFOS:
        if info.canonical_name in ("jaccard", "dice", "kulsinski"):  # mean another thing since SciPy 1.15
            continue
        for name in info.aka:
            assert np.allclose(ours.cdist(x, y, name), ours.cdist(x, y, info.canonical_name)), name


def test_how_many_pairs_there_are_is_told_as_a_number(client):
    """Also of a job that is looked at later, and by an error that is pickled."""
    x = np.zeros((200, 2))
    pairs = 200 * 199
    job = client.submit("distance", x=x, params={"output": "within", "radius": 1, "max_pairs": 9})
    with pytest.raises(blasd.InvalidInput) as caught:
        client.distance(x, output="within", radius=1, max_pairs=9)
    for error in (caught.value, job.exception(60), pickle.loads(pickle.dumps(caught.value))):
        assert (error.field, error.least) == ("params.max_pairs", pairs)
    assert len(client.distance(x, output="within", radius=1, max_pairs=pairs)["d"]) == pairs
    with pytest.raises(blasd.InvalidInput) as other:
        client.distance(x, output="topk", k=0)
    assert other.value.least is None


def test_neighbours_within_a_radius_and_scikit_learns_names(default):
    neighbors = pytest.importorskip("sklearn.neighbors")
    import blasd.sklearn as ours
    x = np.zeros((300, 2))
    for options in ({}, {"p": 1}, {"p": 3}, {"p": np.inf}, {"metric": "l2"}, {"metric": "seuclidean", "metric_params": {"V": [1.0, 2.0]}}):
        mine, other = ours.NearestNeighbors(**options).fit(x), neighbors.NearestNeighbors(algorithm="brute", **options).fit(x)
        assert mine.effective_metric_ == other.effective_metric_, options
        assert mine.effective_metric_params_ == other.effective_metric_params_
    found = ours.NearestNeighbors(radius=1.0).fit(x).radius_neighbors(return_distance=False)
    assert [len(one) for one in found] == [299] * 300


# --- asked once, and not for ever -------------------------------------------------------------------------------------


def test_a_time_of_0_asks_once(client):
    job = client.submit("matmul", a=np.eye(2), b=np.eye(2))
    client.job(job.id).wait(60)
    assert not job.ended and job.wait(0)
    job = client.job(job.id)
    later = client.submit("matmul", a=np.eye(2), b=np.eye(2))
    client.job(later.id).wait(60)
    assert (later.result(timeout=0)["c"] == np.eye(2)).all()

    async def main():
        async with blasd.AsyncClient(client.url) as one:
            job = await one.submit("matmul", a=np.eye(2), b=np.eye(2))
            await (await one.job(job.id)).wait(60)
            return await job.result(0)
    assert (asyncio.run(main())["c"] == np.eye(2)).all()


@pytest.mark.parametrize("status, times", [(502, 1), (504, 1), (503, 2), (429, 2)])
def test_a_job_that_a_gateway_may_have_passed_on_is_sent_once(status, times):
    """Retry-After or not: only one that was not taken is sent again by itself."""
    def talk(self, connection):
        if len(self.requests) > 1:
            return answer(connection, {"code": "draining", "detail": "", "retry": False}, "503 Busy")
        connection.sendall(f"HTTP/1.1 {status} Gateway\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n".encode())
        return True
    listener = Listener(talk)
    with pytest.raises(blasd.Error):
        blasd.Client(listener.url).run("matmul", a=[[1.0]], b=[[1.0]])
    assert len(listener.requests) == times
    listener.close()


@pytest.mark.parametrize("on_a_loop", [False, True])
def test_a_result_is_asked_for_again_and_is_not_lost(on_a_loop, monkeypatch):
    """Of a front end that restarts just when the job has ended; and who gives up knows which job it was."""
    def answers(request, number):
        if request[1].endswith("/result"):
            asked.append(number)
            return None if len(asked) < lost else succeeded()
        return document({**DOCUMENT, "state": "queued" if request[0] == "POST" else "succeeded"}, 202 if request[0] == "POST" else 200)

    async def run(url):
        async with blasd.AsyncClient(url) as client:
            return (await client.run("matmul", a=[[2.0]], b=[[2.0]]))["c"]

    def ask(url):
        return asyncio.run(run(url)) if on_a_loop else blasd.Client(url).run("matmul", a=[[2.0]], b=[[2.0]])["c"]
    asked, lost = [], 4
    with Pretender(answers) as pretender:
        assert ask(pretender.url) == 4 and [one[0] for one in pretender.seen].count("POST") == 1
        monkeypatch.setattr(blasd.calls, "RETRY_S", 0.5)
        asked, lost = [], 1000
        with pytest.raises(blasd.ConnectionError) as caught:
            ask(pretender.url)
        assert caught.value.job["id"] == DOCUMENT["id"]


def test_a_gateways_own_json_is_no_problem_document():
    listener = Listener(lambda self, c: answer(c, {"message": "busy"}, "503 Busy") if len(self.requests) == 1 else answer(c, {"ops": []}))
    assert blasd.Client(listener.url, retries=1).ops() == [] and len(listener.requests) == 2
    listener.close()


def test_a_connection_on_which_a_body_was_cut_short_serves_no_other_request():
    """Refused before it was all sent: what is still owed of it would be taken for the next request."""
    refused = b'{"code": "body_too_large", "status": 413, "detail": "", "retry": false}'
    connections = []

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connections.append(connection)
            if len(connections) == 1:  # takes the head alone
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 413 Large\r\nContent-Length: %d\r\n\r\n" % len(refused) + refused)
            else:
                connection.recv(1000)
                answer(connection, {"ops": []})

    async def main():
        async with blasd.AsyncClient(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            with pytest.raises(blasd.InvalidInput):
                await client.tensors.put(np.zeros(20_000_000))
            return await asyncio.wait_for(client.ops(), 60)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        assert asyncio.run(main()) == [] and len(connections) == 2
        listener.shutdown(socket.SHUT_RDWR)
    for connection in connections:
        connection.close()


def test_a_refusal_is_heard_where_the_body_was_not_taken():
    """The end of the connection, which comes with what was not read, is not all that there is to say."""
    refused = b'{"code": "body_too_large", "status": 413, "detail": "", "retry": false}'

    def serve():
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 413 Large\r\nContent-Length: %d\r\n\r\n" % len(refused) + refused)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(blasd.InvalidInput) as caught:
            blasd.Client(f"http://127.0.0.1:{listener.getsockname()[1]}").tensors.put(np.zeros(20_000_000))
    assert caught.value.code == "body_too_large"


def test_a_refusal_is_heard_over_tls_too(tmp_path):
    """There a connection that ends while it is written to is an error of another kind."""
    refused = b'{"code": "body_too_large", "status": 413, "detail": "", "retry": false}'
    context = context_of(Authority(tmp_path, "ours").sign("service"))

    def serve():
        with context.wrap_socket(listener.accept()[0], server_side=True) as connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 413 Large\r\nContent-Length: %d\r\n\r\n" % len(refused) + refused)
            held.wait(0.5)  # so that the client writes when it ends
    held = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(blasd.InvalidInput) as caught:
            blasd.Client(f"https://127.0.0.1:{listener.getsockname()[1]}", verify=False).tensors.put(np.zeros(20_000_000))
    assert caught.value.code == "body_too_large"


def test_who_waits_for_a_connection_is_not_kept_beyond_his_time(monkeypatch):
    monkeypatch.setattr(blasd.aio, "GRACE", 0.1)
    held = threading.Event()

    async def main():
        async with blasd.AsyncClient(listener.url, connections=1) as client:
            first = asyncio.ensure_future(client.ops())
            while not listener.requests:
                await asyncio.sleep(0.01)
            with pytest.raises(blasd.Timeout, match="no connection was free"):
                await client.run("matmul", a=[[1.0]], b=[[1.0]], timeout=0.1)
            assert not first.done()
            held.set()
            return await first
    listener = Listener(lambda self, c: held.wait(60) and answer(c, {"ops": []}))
    assert asyncio.run(main()) == [] and [method for method, _ in listener.requests] == ["GET"]
    listener.close()


def test_a_cancellation_while_it_connects_is_not_lost(service, monkeypatch):
    """In the very turn of the loop in which the connection is there."""
    connect = blasd.aio.AsyncPool._connect

    async def and_cancel(pool):
        connection = await connect(pool)
        made.append(connection)
        task.cancel()
        return connection

    async def main():
        nonlocal task
        async with blasd.AsyncClient(service.url) as client:
            task = asyncio.ensure_future(client.ops())
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)
    made, task = [], None
    monkeypatch.setattr(blasd.aio.AsyncPool, "_connect", and_cancel)
    asyncio.run(main())
    assert made[0].transport.is_closing()


def test_a_service_that_does_not_share_says_so_each_time(service):
    async def main():
        async with blasd.AsyncClient(service.url, share=True) as client:
            for _ in range(2):
                with pytest.raises(blasd.Error) as caught:
                    await client.matmul([[1.0]], [[1.0]])
                assert caught.value.code == "sharing_off"
    asyncio.run(main())


# --- at the end -------------------------------------------------------------------------------------------------------


def test_who_waits_for_a_job_is_told_when_its_client_closes():
    """The job goes on; nobody is left to tell of its end."""
    listener = Listener(lambda self, c: answer(c, QUEUED) and False)  # one at a time, so none may stay open
    client = blasd.Client(listener.url)
    job, told = client.submit("matmul", a=[[1.0]], b=[[1.0]]), threading.Event()
    job.add_done_callback(lambda one: told.set())
    client.close()
    assert told.wait(60)
    done, _ = concurrent.futures.wait([job], timeout=60)
    assert done == {job} and not job.done()
    listener.close()


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
    env = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python"), "BLASD": str(BLASD), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM, way], stdout=subprocess.PIPE, text=True, env=env,
                          start_new_session=True) as program:
        pids = program.stdout.readline().split()
        assert len(pids) == 4
        program.wait(600)
        wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "the end of its processes")
        if way.endswith("fork"):
            os.killpg(program.pid, signal.SIGKILL)
    assert os.listdir(tmp_path) == []
    assert not [mark for mark in pathlib.Path("/dev/shm").glob("blasd-*/.data") if str(tmp_path) in mark.read_text()]


def test_what_is_no_service_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("BLASD", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        blasd.serve()
    assert os.listdir(tmp_path) == []
