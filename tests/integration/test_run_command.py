"""`blasd run` at its edges: how it prints every dtype, and what it says before anything is sent."""
import json
import os
import re
import shutil
import subprocess
import tempfile

import numpy as np
import pytest
from pretender import DOCUMENT, Pretender
from service import BLASD, CODES, safetensors


def run(url, *arguments, status=0, **more):
    done = subprocess.run([BLASD, "run", "--url", url, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          **more)
    assert done.returncode == status, done
    return done


@pytest.fixture
def pretender():
    """In the service's place: answers every job with `body`."""
    with Pretender(lambda request, number: (200, {"Content-Type": "application/x-safetensors"}, one.body)) as one:
        yield one


def printed(pretender, files, body):
    pretender.body = body
    lines = run(pretender.url, "matmul", *files, "-q").stdout.split("\n")
    return lines[0], " ".join(lines[1:]).split()


@pytest.mark.parametrize("dtype", sorted(name for name in CODES if np.dtype(name).kind != "c"))
def test_every_dtype_is_printed_by_value(pretender, files, dtype):
    """What is printed reads back as what was sent, to the last bit."""
    kind = np.dtype(dtype).kind
    rng = np.random.default_rng(3)
    if kind == "f":
        bits = rng.integers(0, 256, (7, 2, np.dtype(dtype).itemsize), "u1")
        values = bits.view(dtype)[..., 0]
        values[0] = 0.5, -2
        values[1] = np.inf, np.nan
    elif kind == "b":
        values = np.array([[True, False], [False, True]])
    else:
        info = np.iinfo(dtype)
        values = rng.integers(info.min, info.max, (7, 2), dtype, endpoint=True)
        values[0] = info.min, info.max
    head, words = printed(pretender, files, safetensors({"c": values}, job=json.dumps(DOCUMENT)))
    assert head == f"c: {dtype} ({len(values)}, 2)"
    if kind == "b":
        assert words == ["true", "false", "false", "true"]
    elif kind == "f":
        np.testing.assert_array_equal(np.array(words, dtype).reshape(values.shape), values)
    else:
        assert [int(word) for word in words] == values.ravel().tolist()


def test_bfloat16_is_printed_by_value(pretender, files):
    values = np.random.default_rng(4).standard_normal(30) * 10.0 ** np.arange(-15, 15)
    bits = values.astype("f4").view("u4") >> 16
    body = safetensors({"c": bits.astype("u2")}, job=json.dumps(DOCUMENT)).replace(b'"U16"', b'"BF16"', 1)
    length = int.from_bytes(body[:8], "little") + 1
    head, words = printed(pretender, files, length.to_bytes(8, "little") + body[8:])
    assert head == "c: bfloat16 (30)"
    read = np.array(words, "f8").astype("f4").view("u4")
    np.testing.assert_array_equal((read + 0x7fff + (read >> 16 & 1)) >> 16, bits)


def test_shapes_without_rows(pretender, files):
    for values, words in ((np.array(2.5), ["2.5"]), (np.zeros((0, 3)), []), (np.zeros((3, 0)), []), (np.zeros(101), [])):
        assert printed(pretender, files, safetensors({"c": values}, job=json.dumps(DOCUMENT)))[1] == words


def test_halves_of_a_real_service(service, tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 2), "f2"))
    done = run(service.url, "matmul", f"a={tmp_path}/a.npy", f"b={tmp_path}/a.npy", "-q")
    assert done.stdout == "c: float16 (2, 2)\n  2 2\n  2 2\n"


# --- what is said before anything is sent -------------------------------------------------------------------------------

NOWHERE = "http://127.0.0.1:9"


def test_a_file_that_cannot_be_read(tmp_path):
    for path, reason in (("/nonexistent.npy", "No such file"), (tmp_path / "d.npy", "directory")):
        (tmp_path / "d.npy").mkdir(exist_ok=True)
        done = run(NOWHERE, "matmul", f"a={path}", status=2)
        assert done.stderr.count("\n") == 1 and str(path) in done.stderr and reason in done.stderr


def test_an_output_that_cannot_be_written(tmp_path, files):
    (tmp_path / "d").mkdir()
    for output, reason in ((tmp_path / "none/c.npy", "No such file"), (f"c={tmp_path}/none/c.npy", "No such file"),
                           (tmp_path / "d", "directory"), (tmp_path / "a.npy/c.npy", "directory"), ("c=", "output"),
                           ("=c.npy", "output"), ("c" * 64 + "=c.npy", "output")):
        done = run(NOWHERE, "matmul", *files, "-o", output, status=2)
        assert done.stderr.count("\n") == 1 and reason in done.stderr
    done = run(NOWHERE, "matmul", *files, *["-o", tmp_path / "c.npy"] * 17, status=2)
    assert "more than 16 outputs" in done.stderr
    assert not (tmp_path / "c.npy").exists()


def test_an_output_that_cannot_be_written_after_all(service, files):
    """The disk was full: where the results are is told."""
    done = run(service.url, "matmul", *files, "-o", "/dev/full", status=1)
    [job] = re.findall("blasd result ([sa][0-9a-f]{40})", done.stderr)
    assert "No space left" in done.stderr
    assert subprocess.run([BLASD, "result", "--url", service.url, job, "-q"], capture_output=True, timeout=60).returncode == 0


def test_an_output_that_the_operation_has_not(service, tmp_path, files):
    def jobs():
        return len(service.request("GET", "/jobs?limit=100").json()["jobs"])
    before = jobs()
    done = run(service.url, "solve", *files, "-o", f"y={tmp_path}/y.npy", status=2)
    assert "no output 'y'" in done.stderr and "it has x" in done.stderr and jobs() == before
    assert not (tmp_path / "y.npy").exists()
    run(service.url, "matmul", *files, "-o", f"c={tmp_path}/c.npy", "-q")
    assert np.load(tmp_path / "c.npy").shape == (2, 2)
    assert "Unknown operation" in run(service.url, "matmull", *files, "-o", f"c={tmp_path}/c.npy", status=1).stderr


def test_the_first_output_is_the_operations_first(service, tmp_path):
    """Not that whose bytes come first, which are those of the largest elements."""
    files = [f"{name}={tmp_path}/{name}.npy" for name in "ab"]
    np.save(tmp_path / "a.npy", np.eye(3, dtype="f4") * 2)
    np.save(tmp_path / "b.npy", np.ones(3, "f4"))
    run(service.url, "solve", *files, "-q", "-o", f"{tmp_path}/x.npy")
    assert (np.load(tmp_path / "x.npy") == np.full(3, 0.5, "f4")).all()
    assert run(service.url, "solve", *files, "-q").stdout.startswith("x: float32 (3)")


def test_usage_only_where_it_helps(files):
    assert run(NOWHERE, status=2).stderr.startswith("usage")
    for arguments in (["matmul", *files, "--nonsense"], ["matmul", *files, "-t", "soon"], ["matmul"], ["matmul", "x"]):
        assert run(NOWHERE, *arguments, status=2).stderr.count("\n") <= 2
    assert run(NOWHERE, "--help").stdout.startswith("usage")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user too")
def test_files_of_others(files):
    """Said with the reason, too."""
    with tempfile.TemporaryDirectory(prefix="blasd-users.") as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(BLASD, folder)
        shutil.copy(files[0][2:], f"{folder}/a.npy")
        for mode, more in ((0o600, []), (0o644, ["-o", f"{folder}/c.npy"])):
            os.chmod(f"{folder}/a.npy", mode)
            done = subprocess.run([program, "run", "--url", NOWHERE, "matmul", f"a={folder}/a.npy", *more], user=12345,
                                  capture_output=True, text=True, timeout=60)
            assert done.returncode == 2 and "Permission denied" in done.stderr


def test_problems_read_as_sentences(make_service, tmp_path, files):
    service = make_service()
    with service.worker_held():
        done = run(service.url, "matmul", *files, "--deadline-ms", "200", status=1)
    assert "deadline passed" in done.stderr and ".." not in done.stderr and ": ." not in done.stderr
