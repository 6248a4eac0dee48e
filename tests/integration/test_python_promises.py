"""What the Python client must not get wrong in silence: which output is which, where it is written, what is refused unsent."""
import pickle
import re
import shutil
import tracemalloc

import blasd
import blasd.default
import blasd.linalg
import blasd.spatial.distance
import numpy as np
import pytest
import scipy.spatial.distance
from blasd.spatial import distance as ours
from callers import ONE, by_client, never_sent, on_a_loop, program

RNG = np.random.default_rng(31)


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


def test_what_cannot_be_meant_is_refused_before_anything_is_sent(client, monkeypatch):
    fixed = np.empty((1, 1))
    fixed.flags.writeable = False
    never_sent(client, monkeypatch)
    for out in ([1], fixed, {"c": 1.0}):
        with pytest.raises(blasd.InputError, match="out"):
            client.run("matmul", out=out, **ONE)
    for key in ("", "€", "schlüssel", "a\nb", "k" * 129):  # which no header holds
        for ask in (client.run, client.submit, lambda op, **job: list(client.map(op, [job]))):
            with pytest.raises(blasd.InputError, match="idempotency_key"):
                ask("matmul", **ONE, idempotency_key=key)
    for count in (0, -1):
        with pytest.raises(ValueError, match="in_flight"):
            list(client.map("matmul", [ONE], in_flight=count))

        async def in_turns(other, count=count):
            return [result async for result in other.map("matmul", [ONE], in_flight=count)]
        with pytest.raises(ValueError, match="in_flight"):
            on_a_loop(client.url, in_turns)


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



# --- copies -------------------------------------------------------------------------------------------------------------


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
    never_sent(client, monkeypatch)
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


@pytest.mark.parametrize("call, columns, more", [(by_client, 1, 1 << 20), (by_client, 512, 1 << 20), (on_a_loop, 1, 4 << 20)])
def test_operands_are_not_copied(service, call, columns, more):
    """8 MiB go from the array's own memory: what Python allocates meanwhile is the answer's, once, and what a loop holds for a
    socket that takes no more."""
    a, b = RNG.standard_normal((1024, 1024)), RNG.standard_normal((1024, columns))
    call(service.url, lambda c: c.matmul(a, b))
    tracemalloc.start()
    try:
        result = call(service.url, lambda c: c.matmul(a, b))
        assert tracemalloc.get_traced_memory()[1] < result.nbytes + more
    finally:
        tracemalloc.stop()


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
    done = program(TRACED, service.url, before=["strace", "-f", "-o", trace, "-e", f"trace={calls},mmap,access,faccessat,faccessat2",
                                                "-e", f"raw={calls},mmap"])
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
