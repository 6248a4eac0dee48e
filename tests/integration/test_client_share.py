"""Operands and results in shared memory through `blasd run --share` and the C client."""
import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import blasd
import numpy as np
import pytest
from service import BLASD, ROOT, Service, folder_of, wait_for

RNG = np.random.default_rng(29)
PROBE, EXAMPLE = BLASD.parent / "share_probe", BLASD.parent / "share_example"
NOBODY = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user too")


def named(folder, suffix):
    return sorted(path.name for path in folder.glob(f"*{suffix}"))


def handed_in(folder):
    """Files of clients that jobs use: nothing else has the sticky bit."""
    found = []
    for path in folder.glob("*.in"):
        with contextlib.suppress(FileNotFoundError):
            found += [path] if path.stat().st_mode & 0o1000 else []
    return found


def received_bytes(service):
    lines = service.request("GET", "/metrics").body.decode().split("\n")
    return [line for line in lines if line.startswith("blasd_http_received_bytes_total")]


def save(folder, **arrays):
    """As arguments of `blasd run`."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return [f"{name}={folder}/{name}.npy" for name in arrays]


def command(service, *arguments, share=True):
    return [BLASD, "run", *(["--share"] if share else []), "--url", service.url, *map(str, arguments)]


def run(service, *arguments, status=0, share=True, **more):
    done = subprocess.run(command(service, *arguments, share=share), capture_output=True, text=True, timeout=120, **more)
    assert done.returncode == status, done.stderr
    return done


def start(service, *arguments, **more):
    return subprocess.Popen(command(service, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def finish(process, status=0):
    out, err = process.communicate(timeout=120)
    assert process.returncode == status, err
    return out, err


def probe(service, what, status=0, **more):
    done = subprocess.run([PROBE, what], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "BLASD_URL": service.url}, **more)
    assert done.returncode == status, (done.stdout, done.stderr)
    return (done.stdout if status == 0 else done.stderr).split("\n")[:-1]


# --- where it works ---------------------------------------------------------------------------------------------------


def test_a_product_from_files(sharing, tmp_path):
    folder = folder_of(sharing)
    a, b = RNG.standard_normal((401, 400)), RNG.standard_normal((400, 403)).astype("f4")
    files = save(tmp_path, a=a, b=b)
    before = received_bytes(sharing)
    with sharing.worker_held():
        running = start(sharing, "matmul", *files, "-o", tmp_path / "c.npy")
        wait_for(lambda: handed_in(folder))
    finish(running)
    assert received_bytes(sharing) == before
    c = np.load(tmp_path / "c.npy")
    assert c.dtype == np.float64 and c.shape == (401, 403)
    np.testing.assert_allclose(c, a @ b)
    assert '"blob"' in run(sharing, "matmul", *files, "--json").stdout
    assert received_bytes(sharing) == before
    assert '"blob"' not in run(sharing, "matmul", *files, "--json", share=False).stdout
    assert received_bytes(sharing) != before
    wait_for(lambda: not handed_in(folder))
    assert not named(folder, ".put")


def test_files_of_every_kind(sharing, tmp_path):
    """Copied where they lie as they are needed, sent where not; small ones are sent. The answer is the same."""
    whole = RNG.integers(0, 100, (420, 420))
    eye = 2.0 * np.eye(420)
    for array in (whole.astype("f8"), whole.astype("f4"), whole.astype("f2"), whole, whole.astype("u1"), whole > 50,
                  np.asfortranarray(whole.astype("f8")), whole.astype(">f8"), whole.astype("f8")[:3]):
        run(sharing, "matmul", *save(tmp_path, a=array, b=eye), "-o", tmp_path / "c.npy")
        np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), 2 * np.asarray(array, "f8"))
    points = RNG.standard_normal((70000, 3))
    run(sharing, "distance", *save(tmp_path, x=points, y=points[:5]), "output=argmin", "-o", f"index={tmp_path}/i.npy",
        "-o", f"d={tmp_path}/d.npy")
    index, d = np.load(tmp_path / "i.npy"), np.load(tmp_path / "d.npy")
    distances = np.linalg.norm(points[:, None] - points[None, :5], axis=2)
    assert index.dtype == np.int64
    np.testing.assert_array_equal(index, distances.argmin(1))
    np.testing.assert_allclose(d, distances.min(1), atol=1e-7)
    with open(tmp_path / "v2.npy", "wb") as file:  # a header of version 2.0
        np.lib.format.write_array(file, whole.astype("f8"), version=(2, 0))
    run(sharing, "matmul", f"a={tmp_path}/v2.npy", save(tmp_path, b=eye)[0], "-o", tmp_path / "c.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), 2 * whole)


def test_errors_are_as_ever(sharing, tmp_path):
    good = RNG.standard_normal((400, 400))
    bad = good.copy()
    bad[399, 399] = np.nan
    assert "inputs.a" in run(sharing, "solve", *save(tmp_path, a=bad, b=good), status=1).stderr
    assert "Singular matrix" in run(sharing, "solve", *save(tmp_path, a=0 * good, b=good), status=1).stderr
    assert "inputs" in run(sharing, "matmul", *save(tmp_path, a=good, b=good[:7]), status=1).stderr
    assert "speed" in run(sharing, "matmul", *save(tmp_path, a=good, b=good), "speed=3&op=solve", status=1).stderr
    assert "no output 'nonsense'" in run(sharing, "matmul", *save(tmp_path, a=good, b=good), "-o",
                                         f"nonsense={tmp_path}/n.npy", status=2).stderr
    files = save(tmp_path, a=good, b=good)
    os.truncate(tmp_path / "a.npy", 100000)
    assert "npy" in run(sharing, "matmul", *files, status=1).stderr
    (tmp_path / "a.npy").write_bytes(b"no array" * 200000)
    assert "npy" in run(sharing, "matmul", *files, status=1).stderr
    assert not named(folder_of(sharing), ".put")


def test_parameters_travel_in_the_query(sharing, tmp_path):
    files = save(tmp_path, a=2 * np.eye(400), b=np.eye(400))
    run(sharing, "matmul", *files, "alpha=-1.5", "transpose_a=true", "-p", "high", "-d", "cpu", "--deadline-ms", "60000",
        "-o", tmp_path / "c.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), -3 * np.eye(400))
    key = ["--idempotency-key", "once and for all & ever", "--json", "-q"]
    ids = {run(sharing, "matmul", *files, *key).stdout.split('"id":"')[1].split('"')[0] for _ in range(2)}
    assert len(ids) == 1


def test_the_c_client(sharing):
    assert probe(sharing, "in-place") == ["mapped right"] * 3
    assert probe(sharing, "copies") == ["mapped right"]
    assert probe(sharing, "later") == ["mapped right"]
    assert probe(sharing, "forks") == ["each its own", "mapped right"]
    assert probe(sharing, "refusals") == ["invalid_tensor", "no_space", "invalid_request"]
    assert probe(sharing, "unshared", status=1)[0].startswith("sharing_off")
    done = subprocess.run([EXAMPLE, sharing.url], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "mapped: c[1][0] = 2560\n" * 3, done
    folder = folder_of(sharing)
    assert not named(folder, ".put")
    wait_for(lambda: not handed_in(folder))


# --- where it does not ------------------------------------------------------------------------------------------------


def test_a_service_that_does_not_share(service, tmp_path):
    a = RNG.standard_normal((400, 400))
    done = run(service, "matmul", *save(tmp_path, a=a, b=a), status=1)
    assert "--share" in done.stderr and "without --share the arrays are sent" in done.stderr
    assert probe(service, "copies", status=1)[0].startswith("sharing_off")
    done = subprocess.run([EXAMPLE, service.url], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "sharing_off" in done.stdout and "received: c[1][0] = 2560" in done.stdout
    done = subprocess.run([BLASD, "run", "--share", "--url", "http://127.0.0.1:9", "matmul", f"a={tmp_path}/a.npy"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 4 and "127.0.0.1:9" in done.stderr


def test_a_service_that_shares_no_more(make_service, tmp_path):
    service = make_service("--share")
    with subprocess.Popen([PROBE, "between"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "BLASD_URL": service.url}) as client:
        assert client.stdout.readline() == "mapped right\n"
        a = np.eye(500)
        python = blasd.Client(service.url, share=True)
        shared = python.shared(a=(a.shape, "f8"), b=(a.shape, "f8"))
        for name in shared:
            shared[name][...] = a
        assert "blob" in python.run("matmul", **shared).job["outputs"]["c"]
        service.stop()
        service.options = ()
        service.start(f"127.0.0.1:{service.port}")
        out, _ = client.communicate("\n", timeout=60)
    assert client.returncode == 0 and out == "received right\n"
    for inputs in (shared, {"a": a, "b": a}, {"a": a, "b": a}):
        np.testing.assert_array_equal(python.run("matmul", **inputs)["c"], a)


@contextlib.contextmanager
def open_folder(owner):
    """A folder that everybody may read, with the programs in it."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="blasd-users."))
    try:
        for program in (BLASD, PROBE):
            shutil.copy(program, folder)
        os.chown(folder, owner, owner)
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)


@needs_root
def test_a_service_of_another_user(sharing):
    with open_folder(NOBODY) as folder:
        files = save(folder, a=np.eye(400), b=np.eye(400))
        for share, status in ((True, 1), (False, 0)):
            done = subprocess.run([folder / "blasd", *command(sharing, "matmul", *files, share=share)[1:]], user=NOBODY,
                                  group=NOBODY, capture_output=True, text=True, timeout=60)
            assert done.returncode == status, done.stderr
            assert share == ("another user's" in done.stderr)


@needs_root
def test_root_may_share_with_anybody(tmp_path):
    """Its files are given to the service's user, for others are refused."""
    with open_folder(NOBODY) as folder:
        service = Service(folder / "service", "--share")
        os.chown(service.folder, NOBODY, NOBODY)
        service.program = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", folder / "blasd"]
        service.start()
        try:
            assert folder_of(service).stat().st_uid == NOBODY
            assert probe(service, "in-place") == ["mapped right"] * 3
            assert probe(service, "copies") == ["mapped right"]
            result = blasd.Client(service.url, share=True).run("matmul", a=np.eye(400), b=2 * np.eye(400))
            assert "blob" in result.job["outputs"]["c"]
        finally:
            service.stop()


def can_mount():
    done = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
    return done.returncode == 0


PYTHON_IN_A_FULL_STORE = """
import blasd, numpy as np
client = blasd.Client(share=True)
try:
    client.shared(a=((500, 500), "f8"), b=((500, 500), "f8"))
except OSError:
    print("OSError")
try:
    client.run("matmul", a=np.eye(500), b=np.eye(500), timeout=2)
except blasd.Error as error:
    print(error.code)
"""


@pytest.mark.skipif(os.geteuid() != 0 or not can_mount(), reason="needs to mount a small tmpfs")
def test_a_full_store(tmp_path):
    """Arrays in place cannot be made; copies are sent after all, and the service takes them once there is room."""
    small = tmp_path / "small"
    small.mkdir()
    service = Service(tmp_path / "service", "--share", "--blobs", f"dir:{small}/blobs")
    mount = f"mount -t tmpfs -o size=32m none {small} && exec \"$@\""
    service.program = ["unshare", "-m", "sh", "-c", mount, "sh", BLASD]
    service.start()
    try:
        inside = ["nsenter", "-m", "-t", str(service.process.pid)]
        subprocess.run([*inside, "fallocate", "-l", "30M", small / "filler"], check=True)
        env = {**os.environ, "BLASD_URL": service.url}
        done = subprocess.run([*inside, PROBE, "in-place"], capture_output=True, text=True, env=env, timeout=60)
        assert done.returncode == 1 and done.stderr.startswith("no_space"), done
        files = save(tmp_path, a=RNG.standard_normal((500, 500)), b=np.eye(500))
        done = subprocess.run([*inside, *command(service, "matmul", *files, "-t", "2")], capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == 4 and "no room" in done.stderr, done
        done = subprocess.run([*inside, sys.executable, "-c", PYTHON_IN_A_FULL_STORE], capture_output=True, text=True,
                              env={**env, "PYTHONPATH": str(ROOT / "clients/python")}, timeout=60)
        assert done.stdout.split() == ["OSError", "no_space"], done
        blobs = [*inside, "find", small / "blobs", "-name", "*.put"]
        assert subprocess.run(blobs, capture_output=True, check=True).stdout == b""
        running = subprocess.Popen([*inside, *command(service, "matmul", *files, "-o", tmp_path / "c.npy")],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(2)  # it is told to come again after a second
        assert running.poll() is None
        subprocess.run([*inside, "rm", small / "filler"], check=True)
        finish(running)
        np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), np.load(tmp_path / "a.npy"))
    finally:
        service.stop()


# --- who dies ---------------------------------------------------------------------------------------------------------


def test_what_a_killed_client_leaves_is_swept(sharing, tmp_path):
    folder = folder_of(sharing)
    with subprocess.Popen([PROBE, "hold"], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "BLASD_URL": sharing.url}) as holder:
        assert holder.stdout.readline() == "held\n"
        assert len(named(folder, ".put")) == 1
        holder.kill()
    with sharing.worker_held():
        running = start(sharing, "matmul", *save(tmp_path, a=np.eye(500), b=np.eye(500)))
        wait_for(lambda: handed_in(folder))
        running.kill()
        finish(running, -signal.SIGKILL)
    wait_for(lambda: not named(folder, ".put") and not handed_in(folder))  # its job is cancelled, or done


def test_killed_while_it_copies(sharing, tmp_path):
    """At any moment between making the file and handing it in."""
    folder = folder_of(sharing)
    files = save(tmp_path, a=np.ones((3000, 1000)), b=np.ones((1000, 1)))
    for i in range(10):
        running = start(sharing, "matmul", *files, "-q")
        time.sleep(0.003 * i)
        running.kill()
        running.communicate()
    wait_for(lambda: not named(folder, ".put") and not handed_in(folder))


def test_interrupted_it_cancels_the_job(make_service, tmp_path):
    service = make_service("--share")
    files = save(tmp_path, a=np.eye(400), b=np.eye(400))
    with service.worker_held():
        for signum in (signal.SIGINT, signal.SIGTERM):
            running = start(service, "matmul", *files)
            wait_for(lambda: service.request("GET", "/jobs?state=queued").json()["jobs"])
            running.send_signal(signum)
            assert "cancelled" in finish(running, 128 + signum)[1]
            wait_for(lambda: not service.request("GET", "/jobs?state=queued").json()["jobs"])
    assert not named(folder_of(service), ".put")


def test_a_mapped_result_stays_as_it_is(sharing):
    """Its memory is not another job's while the client holds it, though the job is forgotten."""
    folder = folder_of(sharing)
    with subprocess.Popen([PROBE, "keep"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "BLASD_URL": sharing.url}) as client:
        job_id = client.stdout.readline().strip()
        with open(folder / f"{job_id}.out", "rb") as file:
            with pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            assert sharing.request("DELETE", f"/jobs/{job_id}?forget=1").status == 200
            for i in range(8):
                sharing.run("matmul", {"a": i * np.ones((500, 500)), "b": np.ones((500, 500))}, form="safetensors")
            assert client.communicate("\n", timeout=60)[0] == "mapped right\n"
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it has let go of it
    assert client.returncode == 0
