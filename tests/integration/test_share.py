"""Operands and results in files of the blob directory, handed over by name: `blasd up --share`."""
import fcntl
import http.server
import json
import os
import secrets
import struct
import subprocess
import threading
import time

import blasd
import numpy as np
import pytest
from service import BLASD, CODES, TYPES, folder_of, wait_for

RNG = np.random.default_rng(23)


def file_bytes(arrays, pad=64, gaps=True):
    """A safetensors file whose tensors begin at multiples of `pad` bytes."""
    header, data = {}, b""
    for name, array in arrays.items():
        array = np.asarray(array)
        data += b"\0" * (-len(data) % 64 if gaps else 0)
        header[name] = {"dtype": CODES[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % pad)
    return struct.pack("<Q", len(text)) + text + data


class Put:
    """A file of ours in the directory, with the lock that keeps it."""

    def __init__(self, folder, content, name=None, lock=True):
        self.name = name or secrets.token_hex(16)
        self.path = folder / f"{self.name}.put"
        self.file = open(self.path, "x+b")
        fcntl.flock(self.file, fcntl.LOCK_SH)  # while it is empty: the sweep leaves new empty files alone
        self.file.write(content)
        self.file.flush()
        if not lock:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.path.unlink(missing_ok=True)


def hand_in(service, name, op="matmul", query="&wait=30", headers=None, **more):
    return service.request("POST", f"/jobs?op={op}{query}",
                           headers={"Body-File": name, "Prefer": "share", **(headers or {})}, **more)


def blobs(folder, suffix):
    return sorted(path.name for path in folder.glob(f"*{suffix}"))


def taken(folder):
    """The jobs' own names of files that were handed in."""
    return [path for path in folder.glob("*.in") if path.exists() and path.stat().st_mode & 0o1000]


def mapped(folder, output):
    blob = output["blob"]
    assert blob["bytes"] == np.prod(output["shape"]) * np.dtype(output["dtype"]).itemsize
    return np.memmap(folder / blob["name"], output["dtype"], "r", blob["offset"], tuple(output["shape"]))


def test_a_file_is_a_body(sharing):
    folder = folder_of(sharing)
    a, b = RNG.standard_normal((301, 203)), RNG.standard_normal((203, 155)).astype("f4")  # neither a multiple of 64 bytes
    with Put(folder, file_bytes({"a": a, "b": b})) as put:
        answer = hand_in(sharing, put.name)
        assert answer.status == 200 and answer.headers["Preference-Applied"] == "share", answer.body
        job = answer.json()
        assert job["state"] == "succeeded"
        np.testing.assert_allclose(mapped(folder, job["outputs"]["c"]), a @ b)
        # the file still is the client's, and may serve again, for another job as well
        again = hand_in(sharing, put.name, query="&wait=30&params=" + '{"alpha":2}').json()
        np.testing.assert_allclose(mapped(folder, again["outputs"]["c"]), 2 * (a @ b))
        assert put.path.stat().st_nlink == 1 or again["state"] == "succeeded"
        wait_for(lambda: put.path.stat().st_nlink == 1)  # the jobs' own names for it are gone
    document = sharing.request("GET", f"/jobs/{job['id']}").json()
    assert "blob" not in document["outputs"]["c"]  # it was not asked for
    document = sharing.request("GET", f"/jobs/{job['id']}", headers={"Prefer": "share"}).json()
    assert document["outputs"]["c"]["blob"] == job["outputs"]["c"]["blob"]
    fetched = sharing.request("GET", f"/jobs/{job['id']}/outputs/c", headers={"Accept": TYPES["npy"]}).npy()
    np.testing.assert_allclose(fetched, a @ b)
    assert sharing.request("DELETE", f"/jobs/{job['id']}?forget=1").status == 200
    wait_for(lambda: not (folder / job["outputs"]["c"]["blob"]["name"]).exists())


def test_all_that_holds_for_bodies(sharing):
    """The same checks of values, shapes and parameters; nothing is left behind."""
    folder = folder_of(sharing)
    good = RNG.standard_normal((400, 400))
    bad = good.copy()
    bad[399, 399] = np.nan
    cases = [({"a": bad, "b": good}, "solve", 422, "not_finite"),
             ({"a": good, "b": good[:100]}, "matmul", 422, "shape_mismatch"),
             ({"a": good, "nonsense": good}, "matmul", 422, "unknown_input"),
             ({"a": good}, "matmul", 422, "missing_input"),
             ({"a": good, "b": good}, "nonsense", 422, "unknown_operation")]
    for arrays, op, status, code in cases:
        with Put(folder, file_bytes(arrays)) as put:
            answer = hand_in(sharing, put.name, op)
            assert (answer.status, answer.json()["code"]) == (status, code)
            assert put.path.exists() and put.path.stat().st_nlink == 1
    flags = np.ones(10000, np.uint8)
    flags[-1] = 7
    content = file_bytes({"a": good, "b": flags.view(bool)})
    with Put(folder, content) as put:
        assert hand_in(sharing, put.name).json()["code"] == "invalid_tensor"
    assert not taken(folder)


def test_every_dtype_and_empty_tensors(sharing):
    folder = folder_of(sharing)
    for dtype in ("f8", "f4", "f2", "i8", "u2", "i1", "?"):
        a = RNG.integers(0, 2, (70, 33)).astype(dtype)
        with Put(folder, file_bytes({"a": a, "b": np.ones((33, 9))})) as put:
            job = hand_in(sharing, put.name, headers={"Accept": TYPES["safetensors"]})
            np.testing.assert_allclose(job.safetensors()[0]["c"], a.astype("f8") @ np.ones((33, 9)))
    with Put(folder, file_bytes({"a": np.zeros((0, 3)), "b": np.ones((3, 2))})) as put:
        assert hand_in(sharing, put.name).json()["outputs"]["c"]["shape"] == [0, 2]


def test_large_values_are_all_looked_at(sharing):
    """More than one turn of the loop reads at a time, several files at once, small jobs in between."""
    folder = folder_of(sharing)
    a = np.ones((1, 4_000_000), "f4")
    bad = a.copy()
    bad[0, -1] = np.inf
    with Put(folder, file_bytes({"a": np.ones((2, 1)), "b": a})) as fine, \
            Put(folder, file_bytes({"y": a[0], "x": bad.T})) as put:
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(hand_in(sharing, put.name, "regression")))
                   for _ in range(6)]
        threads += [threading.Thread(target=lambda: answers.append(hand_in(sharing, fine.name))) for _ in range(6)]
        for thread in threads:
            thread.start()
        assert sharing.run("matmul", {"a": np.eye(3), "b": np.ones((3, 3))})[1]["state"] == "succeeded"
        for thread in threads:
            thread.join()
    assert sorted(answer.status for answer in answers) == [200] * 6 + [422] * 6
    assert {answer.json()["code"] for answer in answers if answer.status == 422} == {"not_finite"}


def test_files_that_are_not_taken(sharing, tmp_path):
    folder = folder_of(sharing)
    content = file_bytes({"a": np.ones((100, 100)), "b": np.ones((100, 100))})

    def refused(name, status, code, text, field="Body-File"):
        answer = hand_in(sharing, name)
        problem = answer.json()
        assert (answer.status, problem["code"], problem.get("field", "")) == (status, code, field), problem
        assert text in problem["detail"]
        assert not taken(folder)

    wait_for(lambda: not taken(folder))  # of earlier jobs
    for name in ("", "x", "../" + "0" * 29, "0" * 31, "0" * 33, "G" * 32, "0" * 31 + "/"):
        refused(name, 400, "malformed_query", "32 digits")
    refused("0" * 32, 422, "body_file_refused", "there is no file")
    name = secrets.token_hex(16)
    path = folder / f"{name}.put"
    for make, text in ((lambda: path.symlink_to(tmp_path / "elsewhere"), "symbolic link"),
                       (lambda: path.symlink_to(folder / ".store"), "symbolic link"),
                       (lambda: os.mkfifo(path), "not an ordinary file"),
                       (lambda: path.mkdir(), "not an ordinary file")):
        make()
        refused(name, 422, "body_file_refused", text)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    with Put(folder, content) as put:  # a hole would be filled while a kernel reads it
        put.file.truncate(1 << 24)
        refused(put.name, 422, "body_file_refused", "holes")
    with Put(folder, content, lock=False) as put:
        fcntl.flock(put.file, fcntl.LOCK_EX)
        refused(put.name, 422, "body_file_refused", "locked")
    if os.geteuid() == 0:
        with Put(folder, content) as put:
            os.chown(put.path, 12345, 12345)
            refused(put.name, 422, "body_file_refused", "belongs to user 12345")
    with Put(folder, file_bytes({"a": np.ones(3), "b": np.ones(3)}, gaps=False)) as put:
        refused(put.name, 422, "body_file_refused", "not a multiple of 64", "inputs")
    with Put(folder, file_bytes({"a": np.ones(8)}, pad=8).replace(b"{", b"{ ", 1)) as put:
        assert hand_in(sharing, put.name).status in (400, 422)
    with Put(folder, b"") as put:
        refused(put.name, 400, "malformed_safetensors", "ends inside the header", "")
    with Put(folder, content[:-8]) as put:
        refused(put.name, 400, "malformed_safetensors", "the body has", "")
    with Put(folder, content + b"\0" * 64) as put:
        refused(put.name, 400, "malformed_safetensors", "the body has", "")
    os.link(folder / ".store", path)  # another file of the directory, under a second name
    refused(name, 400, "malformed_safetensors", "the first eight bytes", "")
    path.unlink()


def test_requests_that_make_no_sense(sharing):
    folder = folder_of(sharing)
    with Put(folder, file_bytes({"a": np.eye(10), "b": np.eye(10)})) as put:
        answer = sharing.request("POST", "/jobs?op=matmul", b"{}", {"Body-File": put.name})
        assert answer.status == 400 and answer.json()["field"] == "Body-File"
        answer = hand_in(sharing, put.name, headers={"Content-Type": "application/json"})
        assert answer.status == 415
        assert sharing.request("POST", "/jobs?op=matmul&wait=9", headers={"Body-File": put.name}).status == 200


def test_limits_hold(make_service):
    service = make_service("--share", "--limit", "body_bytes=1M", "--limit", "queue_bytes=2M")
    folder = folder_of(service)
    assert service.request("GET", "/share").json()["body_bytes"] == 1 << 20
    with Put(folder, file_bytes({"a": np.ones((400, 400)), "b": np.ones((400, 1))})) as put:
        assert hand_in(service, put.name).json()["code"] == "body_too_large"
    half = file_bytes({"a": np.ones((300, 300)), "b": np.ones((300, 1))})
    with Put(folder, half) as put, service.worker_held():
        answers = [hand_in(service, put.name, query="") for _ in range(4)]
        assert [answer.status for answer in answers] == [202, 202, 429, 429]
        assert answers[-1].headers["Retry-After"]
        assert len(taken(folder)) == 2
    for answer in answers[:2]:
        job = service.request("GET", f"/jobs/{answer.json()['id']}?wait=30").json()
        assert job["state"] == "succeeded"


def test_idempotency_deadline_cancel(sharing):
    folder = folder_of(sharing)
    first, second = RNG.standard_normal((2, 300, 300))
    with Put(folder, file_bytes({"a": first, "b": first})) as put, Put(folder, file_bytes({"a": first, "b": second})) as other:
        key = {"Idempotency-Key": secrets.token_hex(8)}
        one = hand_in(sharing, put.name, headers=key).json()
        assert hand_in(sharing, put.name, headers=key).json()["id"] == one["id"]
        answer = hand_in(sharing, other.name, headers=key)
        assert answer.json()["code"] == "idempotency_conflict"
        wait_for(lambda: put.path.stat().st_nlink == other.path.stat().st_nlink == 1)
        with sharing.worker_held():
            late = hand_in(sharing, put.name, query="&deadline_ms=300").json()
            dropped = hand_in(sharing, put.name, query="").json()
            assert put.path.stat().st_nlink == 3
            assert sharing.request("DELETE", f"/jobs/{dropped['id']}").json()["state"] == "cancelled"
            assert sharing.request("GET", f"/jobs/{late['id']}?wait=20").json()["state"] == "expired"
        wait_for(lambda: put.path.stat().st_nlink == 1)


def test_a_client_harms_only_itself(sharing):
    """What it changes or cuts after the answer spoils its own job."""
    folder = folder_of(sharing)
    a = np.eye(600)
    with sharing.worker_held():
        with Put(folder, file_bytes({"a": a, "b": a})) as cut, Put(folder, file_bytes({"a": a, "b": a})) as changed, \
                Put(folder, file_bytes({"a": a, "b": a})) as gone:
            ids = [hand_in(sharing, put.name, query="").json()["id"] for put in (cut, changed, gone)]
            cut.file.truncate(1000)
            changed.file.seek(-a.nbytes, os.SEEK_END)
            changed.file.write(b"\xff" * a.nbytes)
            changed.file.flush()
        # here all three are removed and closed
    jobs = [sharing.request("GET", f"/jobs/{i}?wait=60", headers={"Prefer": "share"}).json() for i in ids]
    assert jobs[0]["state"] == "failed" and jobs[0]["error"]["code"] == "inputs_lost"
    assert jobs[1]["state"] in ("succeeded", "failed")
    assert jobs[2]["state"] == "succeeded"
    np.testing.assert_array_equal(mapped(folder, jobs[2]["outputs"]["c"]), a)


def test_cut_while_it_is_read_and_computed(make_service):
    """The front end never dies of it; a worker may, and the job then fails for want of its inputs, alone."""
    service = make_service("--share")
    folder = folder_of(service)
    api = service.part("api")
    content = file_bytes({"a": np.ones((1200, 1200)), "b": np.ones((1200, 1200))})
    ends = []
    for i in range(12):
        with Put(folder, content) as put:
            thread = threading.Thread(target=lambda: ends.append(hand_in(service, put.name, timeout=120)))
            thread.start()
            time.sleep(0.004 * i)
            put.file.truncate(70000)
            thread.join()
    for answer in ends:
        assert answer.status in (200, 400, 422), answer.body  # 400: it was cut before it was looked at
        if answer.status == 200 and answer.json()["state"] != "succeeded":
            assert answer.json()["error"]["code"] == "inputs_lost", answer.body
    assert service.part("api") == api
    arrays, _ = service.run("matmul", {"a": np.eye(5), "b": np.ones((5, 5))})
    np.testing.assert_array_equal(arrays["c"], np.ones((5, 5)))


def test_handed_in_files_are_never_another_jobs(sharing):
    """A client may keep its mapping: its file must not come out of the pool of recycled ones."""
    folder = folder_of(sharing)
    content = file_bytes({"a": np.eye(500), "b": np.eye(500)})
    path = folder / f"{secrets.token_hex(16)}.put"
    path.write_bytes(content)
    mine = np.memmap(path, "u1", "r+")  # its descriptor is closed, so no lock is held: the mapping stays
    inode = path.stat().st_ino
    answer = hand_in(sharing, path.stem)
    assert answer.status == 200 and answer.json()["state"] == "succeeded", answer.body
    path.unlink(missing_ok=True)
    for _ in range(5):
        arrays, _ = sharing.run("matmul", {"a": 3 * np.eye(500), "b": np.eye(500)}, form="safetensors")
        assert inode not in [found.stat().st_ino for found in folder.rglob("*") if found.exists()]
        np.testing.assert_array_equal(arrays["c"], 3 * np.eye(500))
    assert bytes(mine[-8:]) == content[-8:]


@pytest.mark.parametrize("part", ["api", "worker"])
def test_jobs_survive_who_dies(make_service, part):
    service = make_service("--share")
    folder = folder_of(service)
    a = RNG.standard_normal((300, 300))
    with Put(folder, file_bytes({"a": a, "b": np.eye(300)})) as put:
        with service.worker_held():
            ids = [hand_in(service, put.name, query="").json()["id"] for _ in range(5)]
            if part == "api":
                service.kill("api")
        if part == "worker":
            service.kill("worker")
        service.wait_ready()
    for job_id in ids:  # the client has removed its name of the file meanwhile
        job = service.request("GET", f"/jobs/{job_id}?wait=60", headers={"Prefer": "share"}, timeout=90).json()
        assert job["state"] == "succeeded", job
        np.testing.assert_array_equal(mapped(folder, job["outputs"]["c"]), a)


def test_what_nobody_holds_is_swept(make_service):
    service = make_service("--share")
    folder = folder_of(service)
    content = file_bytes({"a": np.ones((300, 300)), "b": np.ones((300, 300))})
    orphan = folder / ("a" + secrets.token_hex(20) + ".in")  # as the front end leaves it that dies before it submits
    with Put(folder, content) as kept, Put(folder, content, lock=False) as left:
        left.file.close()
        os.link(left.path, orphan)
        link = folder / f"{secrets.token_hex(16)}.put"
        link.symlink_to("/etc/hostname")
        wait_for(lambda: not left.path.exists() and not orphan.exists() and not link.is_symlink())
        assert kept.path.exists()
        assert hand_in(service, kept.name).json()["state"] == "succeeded"


def test_front_end_killed_while_it_reads(make_service):
    """Whatever it had not yet submitted is no job; its second name for the file goes with the sweep."""
    service = make_service("--share")
    folder = folder_of(service)
    content = file_bytes({"x": np.ones((2_000_000, 4))})
    with Put(folder, content) as put:
        def ask():
            try:
                hand_in(service, put.name, "regression", timeout=20)
            except OSError:
                pass
        for i in range(4):
            thread = threading.Thread(target=ask)
            thread.start()
            time.sleep(0.003 * i)
            service.kill("api")
            thread.join()
            service.wait_ready()
    wait_for(lambda: not blobs(folder, ".in"))


def test_off_unless_asked_for(service, tmp_path):
    assert service.request("GET", "/share").json()["code"] == "sharing_off"
    answer = service.request("POST", "/jobs?op=matmul", headers={"Body-File": "0" * 32})
    assert answer.status == 403 and answer.json()["code"] == "sharing_off"
    a = np.eye(200)
    job = service.request("POST", "/jobs?wait=30", json.dumps({"op": "matmul", "inputs": {"a": a.tolist(), "b": a.tolist()}}),
                          {"Content-Type": TYPES["json"], "Prefer": "share"}).json()
    assert "blob" not in job["outputs"]["c"]
    with pytest.raises(blasd.Error) as caught:
        blasd.Client(service.url, share=True)
    assert caught.value.code == "sharing_off"
    for command in (["up", "--data", tmp_path / "data"], ["api", "--redis", "redis://127.0.0.1:1"]):
        done = subprocess.run([BLASD, *command, "--listen", "127.0.0.1:0", "--share", "--blobs", "redis"], capture_output=True, timeout=60)
        assert done.returncode != 0 and b"directory" in done.stderr


# --- the Python client ------------------------------------------------------------------------------------------------


@pytest.mark.first
def test_python_arrays_in_place(sharing):
    client = blasd.Client(sharing.url, share=True)
    folder = folder_of(sharing)
    shared = client.shared(a=((500, 300), "float32"), b=((300, 400), "float64"))
    assert len(blobs(folder, shared.file.name + ".put")) == 1
    shared["a"][...] = RNG.standard_normal((500, 300))
    shared["b"][...] = RNG.standard_normal((300, 400))
    for _ in range(3):
        result = client.run("matmul", **shared)
        np.testing.assert_allclose(result["c"], shared["a"] @ shared["b"], rtol=1e-5)
        assert result["c"].flags.writeable and "blob" in result.job["outputs"]["c"]
        shared["a"] *= 2  # same memory: no new file
    job = client.submit("matmul", **shared)
    np.testing.assert_allclose(job.result(30)["c"], shared["a"] @ shared["b"], rtol=1e-5)
    array = shared["a"]
    shared.close()
    assert not blobs(folder, shared.file.name + ".put")
    array[0, 0] = 1  # still ours
    with pytest.raises(ValueError, match="share=True"):
        blasd.Client(sharing.url).shared(a=((2, 2), "f8"))


def test_python_any_array(sharing):
    """Copied once where that pays; results outlive their records; small jobs go as ever."""
    client = blasd.Client(sharing.url, share=True)
    folder = folder_of(sharing)
    a, b = RNG.standard_normal((2, 401, 401))
    for form in (a, np.asfortranarray(a), a.astype(">f8"), a[::-1], a.astype("f4"), a > 0):
        result = client.run("matmul", a=form, b=b)
        np.testing.assert_allclose(result["c"], np.asarray(form, "f8") @ b, rtol=1e-4, atol=1e-4)
    client.forget(result.job["id"])
    np.testing.assert_allclose(result["c"], (a > 0) @ b)
    assert np.allclose(client.solve(np.eye(3), np.ones(3)), 1)
    fit = client.regression(a[:, :300], b[0])
    assert set(fit) >= {"coef", "intercept"} and fit["coef"].shape == (300,)
    with pytest.raises(blasd.Error) as caught:
        client.matmul(np.ones((500, 500)), np.ones((300, 500)))
    assert caught.value.code == "shape_mismatch"
    with pytest.raises(TypeError, match="complex256"):
        client.matmul(a.astype(np.clongdouble), b)
    assert not blobs(folder, ".put")


def test_a_directory_without_a_store_in_it_is_not_believed(tmp_path):
    """Else whoever answers for a service could have the client write where it likes."""
    class Liar(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"directory": str(tmp_path)}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Liar) as liar:
        threading.Thread(target=liar.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{liar.server_port}"
            with pytest.raises(blasd.Error) as caught:
                blasd.Client(url, share=True)
            assert caught.value.code == "sharing_off" and str(tmp_path) in str(caught.value)
            np.save(tmp_path / "a.npy", np.eye(2))
            done = subprocess.run([BLASD, "run", "matmul", f"a={tmp_path}/a.npy", f"b={tmp_path}/a.npy", "--share",
                                   "--url", url], capture_output=True, text=True, timeout=60)
            assert done.returncode == 1 and f"directory {tmp_path} cannot be used" in done.stderr
        finally:
            liar.shutdown()
