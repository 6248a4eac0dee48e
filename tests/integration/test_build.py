"""What `make` does: with files that go as well as with files that come."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from service import ROOT, newer_source

pytestmark = pytest.mark.full

MAKE = ["make", "-s", "--no-print-directory"]


def make(folder, *arguments):
    return subprocess.run([*MAKE, *arguments], cwd=folder, capture_output=True, text=True, timeout=600)


def copy_of_the_tree(to):
    """As built, with its times, so that make has nothing to do there; without what tests built."""
    for name in ("Makefile", "VERSION", "mk", "api", "src", "kernels", "clients", "docs"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, to / name)
    for name in ("lib", "gen", "obj/gen", "obj/src", "obj/kernels", "obj/clients"):
        shutil.copytree(ROOT / "build" / name, to / "build" / name)


def operations(folder):
    symbols = subprocess.run(["nm", folder / "build" / "blasd"], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].removeprefix("blasd_op_") for line in symbols.splitlines()
            if line.split()[-2] in "dDrR" and line.split()[-1].startswith("blasd_op_")}


def test_an_operation_whose_folder_is_removed_is_no_longer_served(tmp_path):
    copy_of_the_tree(tmp_path)
    done = make(tmp_path, "NVCC=", "build/blasd")
    assert done.returncode == 0, done.stderr
    before = operations(tmp_path)
    assert {"distance", "matmul", "regression", "solve"} <= before
    shutil.rmtree(tmp_path / "kernels" / "distance")
    done = make(tmp_path, "NVCC=", "build/blasd")
    assert done.returncode == 0, done.stderr
    assert operations(tmp_path) == before - {"distance"}
    os.remove(tmp_path / "build" / "blasd")
    assert make(tmp_path, "-q", "NVCC=", "build/blasd").returncode == 1


def test_a_program_older_than_its_sources_is_not_tested(tmp_path):
    """Of what it is made of alone, and the suite says so in place of testing what was."""
    files = {"src/base/buf.c": True, "src/base/buf.h": True, "src/base/unused.h": False, "kernels/cuda/pool.c": False, "api/openapi.json": True,
             "tests/unit/base/test_buf.c": False, "src/http/console/page.js": True, "build/blasd": False, "build/obj/src/base/buf.c.d": False}
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("build/obj/src/base/buf.c.o: src/base/buf.c src/base/buf.h\n")
        os.utime(tmp_path / name, (1000, 1000))
    assert newer_source(tmp_path / "build/blasd", tmp_path) is None
    for name, counts in files.items():
        os.utime(tmp_path / name, (2000, 2000))
        os.utime(tmp_path / "build/blasd", (1000, 1000))
        assert newer_source(tmp_path / "build/blasd", tmp_path) == (pathlib.Path(name) if counts else None)
        os.utime(tmp_path / name, (1000, 1000))


def test_help_names_targets_that_exist():
    lines = make(ROOT, "help").stdout.splitlines()
    targets = [line.split()[1] for line in lines if line.startswith("make ") and line.split()[1].islower()]
    assert {"demo", "test", "lint", "bench", "clean"} <= set(targets)
    known = make(ROOT, "-npRr", "NVCC=", "help").stdout  # what make has read
    assert not [target for target in targets if f"\n{target}:" not in known]


def suites(*names):
    return subprocess.run([ROOT / "tests" / "run-suites.sh", *names], cwd=ROOT, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "MAKE": "make", "MAKEFLAGS": "NVCC=", "TESTED": "make test"})


def test_a_suite_that_fails_does_not_hide_the_next():
    done = suites("no-such-suite", "help")
    assert done.returncode != 0 and "help: ok: " in done.stdout and done.stdout.endswith("make test: failed: no-such-suite\n"), done.stdout
    beside = suites("help", "--beside", "no-such-suite")
    assert beside.returncode != 0 and "help: ok: " in beside.stdout and beside.stdout.endswith("failed: no-such-suite\n"), beside.stdout
    good = suites("help", "--beside", "help")
    last = make(ROOT, "NVCC=", "help").stdout.splitlines()[-1]
    assert good.returncode == 0 and good.stdout.splitlines() == [f"help: ok: {last}", f"help: ok: {last}", last], good.stdout


THREE_THAT_FAIL = """
import pytest
from service import wait_for

def test_with_much_to_tell(tmp_path):
    (tmp_path / "service0").mkdir()
    lines = [f"t blasd api[1] info: job refused: id={i}" if i % 1000 else f"line {i}" for i in range(100000)]
    (tmp_path / "service0" / "log").write_text("\\n".join(lines))
    print(*range(5000), sep="\\n")
    raise AssertionError("not ended; log:\\n" + "\\n".join(lines))

def test_in_a_helper():
    wait_for(lambda: None, "what never comes", seconds=0)

@pytest.fixture
def broken():
    raise OSError("there is none")

def test_of_a_fixture(broken):
    pass
"""


def test_the_last_lines_name_what_failed_and_where(tmp_path):
    """Behind all logs, of which the ends are shown."""
    (tmp_path / "test_three.py").write_text(THREE_THAT_FAIL)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--tb=short", "-n", "1", "-p", "no:cacheprovider", "-p", "conftest", "-c",
                           ROOT / "tests" / "pytest.ini", "--rootdir", tmp_path, "--basetemp", tmp_path / "temp", tmp_path / "test_three.py"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=600, env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "CI": "1", "PYTEST_ADDOPTS": ""})
    told = done.stdout.splitlines()
    assert done.returncode == 1 and told[-1].startswith("2 failed, 1 error"), done.stdout + done.stderr
    assert told[-8:-1] == [told[-8], "FAILED test_three.py::test_with_much_to_tell", "    line 10: AssertionError: not ended; log:",
                           "FAILED test_three.py::test_in_a_helper", told[-4],
                           "FAILED test_three.py::test_of_a_fixture (setup)", "    line 17: OSError: there is none"]
    assert told[-4].startswith("    line 13, tests/integration/service.py:") and told[-4].endswith(": AssertionError: not within 0 s: what never comes")
    assert "line 99000" in told and "4999" in told and "E   line 99000" in told and len(told) < 250
    assert "[... 999 lines about jobs that were refused]" in told and "job refused" not in done.stdout


def test_a_new_operation_builds_and_passes(tmp_path):
    """`make new-op` writes one folder and a test; nothing else is edited."""
    copy_of_the_tree(tmp_path)
    shutil.copytree(ROOT / "tests" / "unit" / "kernels", tmp_path / "tests" / "unit" / "kernels")
    for wrong in ("", "Upper", "9lives", "a-b", "matmul", "a" * 32):
        assert make(tmp_path, "NVCC=", f"NAME={wrong}", "new-op").returncode != 0, wrong
    done = make(tmp_path, "NVCC=", "NAME=double_it", "new-op")
    assert done.returncode == 0, done.stderr
    tests = ["build/tests/unit/kernels/test_double_it", "build/tests/unit/kernels/test_conformance"]
    done = make(tmp_path, "NVCC=", "WERROR=-Werror", "build/blasd", *tests)
    assert done.returncode == 0, done.stderr
    assert "double_it" in operations(tmp_path)
    for test in tests:
        done = subprocess.run([tmp_path / test], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
