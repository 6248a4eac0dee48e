"""tests/gpu/run.sh without a GPU: its parts and what becomes of their results, over programs that stand in for the real
ones; and what else for cards can be checked without one."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["conformance", "answers", "launches", "solve", "distance", "regression", "matmul", "peers", "service", "leaks", "memcheck",
         "synccheck", "racecheck", "ncu"]


def run(*args, **environment):
    return subprocess.run([ROOT / "tests/gpu/run.sh", *args], cwd=ROOT, capture_output=True, text=True, timeout=600,
                          env={**os.environ, **environment})


class Machine:
    """Programs that do what a test says, where run.sh looks for its own."""

    def __init__(self, folder):
        self.build, self.out = folder / "build", folder / "out"
        (self.build / "gpu").mkdir(parents=True)
        self.program("gpu_probe", "echo name=A card; echo units=132; echo copy_gbytes_s=50")

    def program(self, name, body):
        path = self.build / "gpu" / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def run(self, *args, **environment):
        return run("--out", str(self.out), *args, BUILD=str(self.build), BLASD_GPU_BUILT="1", **environment)

    def steps(self):
        return [line.split()[:3] for line in (self.out / "steps").read_text().splitlines()]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_dry_run_names_every_part_in_order_of_worth_and_programs_that_exist():
    done = run("--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert list(dict.fromkeys(words[0] for words in lines)) == PARTS
    for words in lines:
        for word in words[2:]:
            if word.startswith("build/gpu/gpu/"):
                name = word.rsplit("/", 1)[1]
                assert any((ROOT / folder / f"{name}.c").exists() for folder in ("tests/unit/kernels", "tests/gpu")), name
    assert {"memcheck", "synccheck", "racecheck"} <= {words[4] for words in lines if "--tool" in words}


def test_rows_come_one_by_one_and_a_part_can_be_repeated_alone(machine):
    machine.program("gpu_bench_solve", """echo '{"op":"solve","case":"first","compute_us":1}'; echo talk; exit 1""")
    machine.program("gpu_bench_distance", """echo '{"op":"distance","case":"far","compute_us":2}'""")
    done = machine.run("solve", "distance")
    assert done.returncode == 1
    assert machine.steps() == [["solve", "bench", "failed"], ["distance", "bench", "ok"]]
    assert (machine.out / "solve.rows").read_text().count("\n") == 1  # what came before it failed is kept
    machine.program("gpu_bench_solve", """echo '{"op":"solve","case":"second","compute_us":3}'""")
    done = machine.run("solve")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(machine.steps()) == [["distance", "bench", "ok"], ["solve", "bench", "ok"]]
    table = json.loads((machine.out / "table.json").read_text())
    assert table["gpu"] == "A card"
    assert sorted(row["case"] for row in table["rows"]) == ["far", "second"]
    assert "second" in (machine.out / "table.txt").read_text()


def test_a_part_ends_in_time_and_what_is_left_can_be_done_later(machine):
    marks = machine.build / "marks"
    machine.program("gpu_launch", f"""echo $1-$2 >>{marks}; [ $2 != 89 ] || [ -e {marks}.go ] || exec sleep 600""")
    done = machine.run("launches", BLASD_GPU_PART_S="3", BLASD_GPU_JOBS="1")  # each behind the one that does not end
    assert done.returncode == 1
    states = {name: state for _, name, state in machine.steps()}
    assert states["float32-89"] in ("failed", "left") and states["float64-683"] == "left"
    before = [name for name, state in states.items() if state == "ok"]
    (machine.build / "marks.go").touch()
    marks.write_text("")
    done = machine.run("--left", "launches")
    assert done.returncode == 0, done.stdout + done.stderr
    again = marks.read_text().split()
    assert len(again) == 23 - len(before) and not set(before) & set(again)


def test_packed_programs_are_run_only_where_that_is_asked_for(machine):
    """A folder that was packed long ago stands in for no build."""
    names = machine.build / "gpu" / "names"
    names.write_text(f"{machine.build}/gpu/test_one")
    machine.program("test_one", "echo packed")
    said = run("--out", str(machine.out), "--packed", "conformance", BLASD_CARRY=str(machine.build))
    assert said.returncode == 0, said.stdout + said.stderr
    assert machine.steps() == [["conformance", "test_one", "ok"]]
    plain = run("--dry-run", "conformance", BLASD_CARRY=str(machine.build))
    assert "test_one" not in plain.stdout and "test_matmul" in plain.stdout
    none = run("--packed", "conformance", BLASD_CARRY=str(machine.build / "nowhere"))
    assert none.returncode == 1 and "pack.sh" in none.stdout


def test_what_cannot_be_run_is_said():
    done = run("everything")
    assert done.returncode == 1 and "no part everything" in done.stdout


SASS = """
arch = sm_90
\t\tFunction : _Z11solve_smallILi8ELi8EdEvPKi
        /*0000*/                   LDC R1, c[0x0][0x28] ;                 /* 0x00000a0000017b82 */
                                                                          /* 0x000fe40000000800 */
        /*0010*/              @!P0 LDG.E.64 R2, desc[UR4][R2.64] ;        /* 0x0000000402028981 */
        /*0020*/                   {0} R4, [R2] ;                         /* 0x0000000002047980 */
"""


@pytest.mark.parametrize("instruction,status", [("LDS.64", 0), ("LD.E.64", 1), ("LDL.64", 0)])
def test_generic_addresses_in_the_code_of_solve_small_are_found(tmp_path, instruction, status):
    dump = tmp_path / "cuobjdump"
    dump.write_text(f"#!/bin/sh\ncat <<'END'\n{SASS.replace('{0}', instruction)}END\n")
    dump.chmod(0o755)
    done = subprocess.run(["/usr/bin/env", "python3", ROOT / "tests/gpu/machine_code.py", "--cuobjdump", dump, "any"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stdout + done.stderr
    assert "solve_small<8, 8, double>" in done.stdout


def test_a_kernel_that_is_gone_from_the_code_is_missed(tmp_path):
    dump = tmp_path / "cuobjdump"
    dump.write_text("#!/bin/sh\necho 'arch = sm_90'\n")
    dump.chmod(0o755)
    done = subprocess.run(["/usr/bin/env", "python3", ROOT / "tests/gpu/machine_code.py", "--cuobjdump", dump, "any"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "there is no solve_small" in done.stdout


def test_the_page_on_hip_has_every_library_call():
    page = (ROOT / "docs/hip.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    calls = set(re.findall(r"^    X\((\w+)\)", (ROOT / "kernels/cuda/library_parts.h").read_text(), re.M))
    for header in ROOT.glob("kernels/*/library_*.h"):
        calls |= set(re.findall(r"\bint blasd_gpu_(\w+)\(", header.read_text())) if header.parent.name != "cuda" else set()
    assert {"gemm", "syevd", "host_register"} <= calls
    assert "`*_size`" in page  # those that say how much memory a call needs
    assert {call for call in calls if not call.endswith("_size")} <= named
