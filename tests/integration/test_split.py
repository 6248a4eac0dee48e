"""One large job as blocks for many workers: the bits of one job alone, also when a worker is killed in mid-work."""
import json
import os
import signal
import subprocess
import threading

import blasd
import numpy as np
import pytest
from callers import both
from service import BLASD, children, command_line, wait_for

RNG = np.random.default_rng(45)
X = RNG.standard_normal((301, 20))
SQUARE = RNG.standard_normal((90, 90)) + 9 * np.eye(90)
CASES = [("distance", {"x": X}, {}), ("distance", {"x": X, "y": X[:50]}, {"metric": "cityblock"}), ("distance", {"x": X.astype("f4")}, {}),
         ("distance", {"x": X, "V": np.ones(20)}, {"metric": "seuclidean"}), ("matmul", {"a": X, "b": X.T.copy()}, {}),
         ("matmul", {"a": X, "b": RNG.standard_normal((301, 64)), "c": np.ones((20, 1))}, {"transpose_a": True, "alpha": 2}),
         ("matmul", {"a": X, "b": X[0], "c": X[:, 0].copy()}, {}), ("matmul", {"a": X, "b": X[:20], "c": X}, {}),
         ("solve", {"a": SQUARE, "b": RNG.standard_normal((90, 77))}, {})]


@both
@pytest.mark.parametrize("op, inputs, params", CASES)
def test_blocks_are_one_job(call, service, client, tmp_path, op, inputs, params):
    whole = next(iter(client.run(op, params, **inputs).values()))
    before = len(client.tensors.list(None))
    for rows in (64, 301, 1000, None):
        got = call(service.url, lambda c: c.split(op, rows=rows, **inputs, **params))
        np.testing.assert_allclose(got, whole, rtol=1e-12 if whole.dtype == "f8" else 1e-5)
        assert got.dtype == whole.dtype and (op == "matmul" or np.array_equal(got, whole)), "bit for bit"
    path = tmp_path / "whole.npy"
    stored = {name: client.tensors.put(value) for name, value in inputs.items()}
    file = call(service.url, lambda c: c.split(op, rows=64, out=path, **stored, **params))
    assert isinstance(file, np.memmap) and np.allclose(np.load(path), whole)
    place = np.empty_like(whole)
    assert call(service.url, lambda c: c.split(op, rows=50, in_flight=1, out=place, **stored, **params)) is place and np.allclose(place, whole)
    for tensor in stored.values():
        client.tensors.delete(tensor)
    assert len(client.tensors.list(None)) == before


@pytest.mark.parametrize("op, given, words", [
    ("svd", {"a": X}, "op: 'svd'"), ("distance", {"x": X, "output": "topk"}, "params.output"), ("distance", {"y": X}, "inputs.x"),
    ("distance", {"x": X, "metric": "seuclidean"}, "inputs.V"), ("matmul", {"a": X[0], "b": X}, "inputs.a"), ("solve", {"a": SQUARE, "b": X[0]}, "inputs.b"),
    ("solve", {"a": SQUARE, "b": blasd.eye(90)}, "inputs.b"), ("matmul", {"a": X, "b": X.T, "keep": ["c"]}, "keep"),
    ("matmul", {"a": X, "b": X.T, "rows": 0}, "rows"), ("matmul", {"a": X, "b": X.T, "out": np.empty(3)}, "out")])
def test_what_has_no_blocks(client, op, given, words):
    before = len(client.tensors.list(None))
    with pytest.raises(ValueError, match=words):
        client.split(op, **given)
    assert len(client.tensors.list(None)) == before


def test_a_worker_that_is_killed_costs_no_block(make_service):
    """Three workers, of which one is killed with blocks in hand: the bits are those of one job alone."""
    service = make_service("--workers", "3")
    wait_for(lambda: len(service.request("GET", "/devices").json()["devices"]) == 3, "the workers")
    with blasd.Client(service.url) as client:
        x = RNG.standard_normal((2400, 300))
        whole = client.distance(x, metric="canberra")
        stored, got = client.tensors.put(x), []
        asking = threading.Thread(target=lambda: got.append(client.split("distance", x=stored, rows=100, metric="canberra", labels={"by": "split"})))
        asking.start()
        wait_for(lambda: len(client.jobs(state="running", label="by=split")) >= 3, "all are at work")
        workers = [pid for pid in children(service.process.pid) if command_line(pid).startswith("blasd worker")]
        os.kill(workers[0], signal.SIGKILL)
        asking.join(300)
        assert len(got) == 1 and np.array_equal(got[0], whole)
        jobs = client.jobs(limit=None, label="by=split")
        assert len(jobs) >= 24 and any(job.document["execution"]["attempts"] > 1 for job in jobs if job.state == "succeeded")


@both
def test_a_block_that_fails_for_the_services_sake_is_sent_again(call, monkeypatch, service):
    refused = []
    run = blasd.AsyncClient.run

    async def sometimes(self, op, params=None, **given):
        if op == "matmul" and len(refused) < 4 and len(refused) % 2 == 0:
            refused.append(given)
            raise blasd.Error("device_error", "it gave up", status=500)
        refused.append(None)
        return await run(self, op, params, **given)
    monkeypatch.setattr(blasd.AsyncClient, "run", sometimes)
    monkeypatch.setattr(blasd.aio, "backoff", lambda attempt, error: 0)
    assert np.allclose(call(service.url, lambda c: c.split("matmul", a=X, b=X[:20], rows=100, in_flight=1)), X @ X[:20])
    refused.clear()
    monkeypatch.setattr(blasd.AsyncClient, "run", lambda self, *args, **given: run(self, "solve", a=np.ones((2, 2)), b=np.ones(2)))
    with pytest.raises(blasd.SingularMatrix):
        call(service.url, lambda c: c.split("matmul", a=X, b=X[:20]))


# --- blasd run --split ------------------------------------------------------------------------------------------------


def command(service, op, inputs, folder, *words, status=0):
    """`blasd run` of arrays as files; `out.npy` in the folder."""
    for name, value in inputs.items():
        np.save(folder / f"{name}.npy", value)
    done = subprocess.run([BLASD, "run", "--url", service.url, op, *[f"{name}={folder}/{name}.npy" for name in inputs], *map(str, words)],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done
    return done


@pytest.mark.parametrize("count", [1, 7, 1000])
@pytest.mark.parametrize("op, inputs, params", CASES)
def test_the_command_makes_one_file_of_blocks(service, client, tmp_path, op, inputs, params, count):
    whole = next(iter(client.run(op, params, **inputs).values()))
    before = len(client.tensors.list(None))
    words = [f"{name}={json.dumps(value)}" for name, value in params.items()]
    inputs = {name: np.asfortranarray(value) if name in "by" else value for name, value in inputs.items()}
    said = command(service, op, inputs, tmp_path, *words, "--split", count, "-o", tmp_path / "out.npy", "--json").stdout
    got = np.load(tmp_path / "out.npy")
    assert got.dtype == whole.dtype and np.allclose(got, whole) and (op != "distance" or np.array_equal(got, whole))
    assert json.loads(said)["blocks"] == min(count, whole.shape[op == "solve"])
    assert len(client.tensors.list(None)) == before


def test_the_command_takes_what_is_stored(service, client, tmp_path):
    stored = client.tensors.put(X)
    out = tmp_path / "out.npy"
    command(service, "distance", {}, tmp_path, f"x=tensor:{stored.id}", "--split", 5, "-o", f"d={out}", "-q")
    assert np.array_equal(np.load(out), client.distance(X)) and client.tensors.look(stored).id == stored.id
    command(service, "matmul", {}, tmp_path, f"a=tensor:{stored.id}", "b=eye:20", "--split", 5, "-o", out, "-q")
    assert np.array_equal(np.load(out), X)


@pytest.mark.parametrize("op, inputs, words, status", [
    ("svd", {"a": X}, ["-o", "OUT"], 2), ("distance", {"x": X}, ["output=topk", "-o", "OUT"], 2), ("distance", {"x": X}, [], 2),
    ("distance", {"x": X}, ["metric=seuclidean", "-o", "OUT"], 2), ("matmul", {"a": X[0], "b": X[0]}, ["-o", "OUT"], 2),
    ("matmul", {"a": X, "b": X.T}, ["-o", "OUT", "--keep", "c"], 2), ("solve", {"a": SQUARE, "b": SQUARE}, ["-o", "rcond=OUT"], 2),
    ("matmul", {"b": X}, ["a=eye:301", "-o", "OUT"], 2), ("matmul", {"a": X, "b": X}, ["-o", "OUT"], 1),
    ("solve", {"a": SQUARE * 0, "b": SQUARE}, ["-o", "OUT"], 1), ("matmul", {"a": X, "b": X.T}, ["-o", "/dev/full"], 1)])
def test_what_the_command_refuses_leaves_nothing(service, client, tmp_path, op, inputs, words, status):
    before = len(client.tensors.list(None))
    done = command(service, op, inputs, tmp_path, *[word.replace("OUT", str(tmp_path / "out.npy")) for word in words], "--split", 3, status=status)
    assert done.stderr and not (tmp_path / "out.npy").exists() and os.path.exists("/dev/full")
    assert len(client.tensors.list(None)) == before


def test_ctrl_c_cancels_the_blocks(make_service, tmp_path):
    service = make_service()
    np.save(tmp_path / "x.npy", X)
    with service.worker_held():
        running = subprocess.Popen([BLASD, "run", "--url", service.url, "distance", f"x={tmp_path}/x.npy", "--split", "40", "-o", tmp_path / "out.npy"])
        wait_for(lambda: len(service.list_jobs("state=queued")) == 16, "so many are in flight")
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 128 + signal.SIGINT
        wait_for(lambda: {job["state"] for job in service.list_jobs()} == {"cancelled"}, "they are cancelled")
    assert not (tmp_path / "out.npy").exists() and not service.request("GET", "/tensors").json()["tensors"]
