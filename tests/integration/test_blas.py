"""The BLAS underneath: a library that takes the processor for an older one gets the kernels that suit it, wrong ones are
left out, the choice is remembered and told, and `--blas` names another library. What the processor is does not matter:
a shim lets OpenBLAS take it for a Prescott (blas_shim.c), and what may be chosen then is read off /proc/cpuinfo."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest
import service as harness

HERE = pathlib.Path(__file__).resolve().parent
FLAGS = set(next((line.split(":")[1].split() for line in open("/proc/cpuinfo") if line.startswith("flags")), []))
AVX512 = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}
SUITABLE = [name for name, needs in (("SkylakeX", {"avx", "avx2", "fma"} | AVX512), ("Haswell", {"avx", "avx2", "fma"}),
                                     ("Zen", {"avx", "avx2", "fma"}), ("Sandybridge", {"avx"})) if needs <= FLAGS]
OWN = {"OPENBLAS_CORETYPE", "BLASD_BLAS", "BLASD_BLAS_CHOSEN", "LD_PRELOAD"}  # of whoever runs the tests
some = pytest.mark.skipif(not SUITABLE, reason="a processor without AVX has but one choice")


def build(folder, source, *options):
    out = folder / f"{source}{len(list(folder.glob('*.so')))}.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-D_GNU_SOURCE", HERE / f"{source}.c", "-o", out, *options, "-ldl"], check=True)
    return out


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    return build(tmp_path_factory.mktemp("shim"), "blas_shim")


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in OWN:
        monkeypatch.delenv(name, raising=False)


def openblas():
    """The file that blasd is linked with."""
    text = subprocess.run(["ldd", harness.BLASD], capture_output=True, text=True, check=True).stdout
    path = re.search(r"libopenblas\S* => (\S+)", text).group(1)
    return pathlib.Path(path).resolve()


def mistaken(shim, **more):
    return {"LD_PRELOAD": str(shim), "BLAS_SHIM_DEFAULT": "Prescott", **more}


def devices(*options, timeout=120, **env):
    """`blasd devices --json`: (the CPU, its messages)"""
    done = subprocess.run([harness.BLASD, "devices", "--json", *options], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    return next(d for d in json.loads(done.stdout) if d.get("class") == "cpu"), done.stderr


def trials(log):
    return [line.split()[1] for line in log.read_text().splitlines()] if log.exists() else []


def blas_of(service):
    return next(d for d in service.request("GET", "/devices").json()["devices"] if d["class"] == "cpu")["blas"]


# --- which kernels ------------------------------------------------------------------------------------------------


@some
def test_a_mistaken_processor_gets_kernels_that_suit_it(shim, tmp_path):
    log = tmp_path / "log"
    found, _ = devices(**mistaken(shim, BLAS_SHIM_LOG=str(log)))
    assert found["blas"]["core"] in SUITABLE and found["blas"]["chosen_by"] == "measured"
    assert found["blas"]["library"].startswith("OpenBLAS 0.")
    tried = trials(log)  # each by itself, what the library chose among them; then the process started anew
    assert sorted(tried[:-1]) == sorted([*SUITABLE, "Prescott"]) and tried[-1] == found["blas"]["core"]


@some
def test_what_is_known_is_not_tried(tmp_path, shim):
    """Whatever this processor is, kernels that use all of it are the library's own choice."""
    log = tmp_path / "log"
    found, _ = devices(**mistaken(shim, BLAS_SHIM_DEFAULT=SUITABLE[0], BLAS_SHIM_LOG=str(log)))
    assert found["blas"] == {"library": found["blas"]["library"], "core": SUITABLE[0], "chosen_by": "library"}
    assert trials(log) == []


def test_the_operators_word_stands(shim):
    found, messages = devices(**mistaken(shim, OPENBLAS_CORETYPE="Prescott"))
    assert (found["blas"]["core"], found["blas"]["chosen_by"]) == ("Prescott", "operator") and messages == ""
    found, messages = devices(**mistaken(shim, OPENBLAS_CORETYPE="NoSuchCore"))
    assert found["blas"]["chosen_by"] == "library" and "OPENBLAS_CORETYPE=NoSuchCore" in messages


@some
@pytest.mark.parametrize("fault", ["crash", "wrong", "unsolved", "silent"])
def test_kernels_with_a_fault_are_left_out(shim, fault):
    faults = ",".join(f"{name}={fault}" for name in SUITABLE[:-1])
    found, messages = devices(**mistaken(shim, BLAS_SHIM_FAULTS=faults))
    assert found["blas"]["core"] in (SUITABLE[-1], "Prescott") and found["blas"]["chosen_by"] == "measured"
    if fault != "silent":
        assert all(f"kernels for {name} are left out" in messages for name in SUITABLE[:-1])
    faults = ",".join(f"{name}={fault}" for name in SUITABLE)
    found, _ = devices(**mistaken(shim, BLAS_SHIM_FAULTS=faults))
    assert found["blas"] == {"library": found["blas"]["library"], "core": "Prescott", "chosen_by": "measured"}


@some
def test_kernels_that_hang_are_left_out_for_now(make_service, shim):
    """The machine may have been busy, so nothing is remembered."""
    service = make_service(env=mistaken(shim, BLAS_SHIM_FAULTS=f"{SUITABLE[0]}=hang"))
    service.wait_ready()
    assert blas_of(service)["core"] not in (SUITABLE[0], "") and blas_of(service)["chosen_by"] == "measured"
    assert f"kernels for {SUITABLE[0]} are left out: they hang" in service.log_text()
    assert not (service.folder / "data" / "measured" / "blas").exists()


@some
def test_wrong_kernels_of_the_librarys_own_are_left(shim):
    found, messages = devices(**mistaken(shim, BLAS_SHIM_FAULTS="Prescott=wrong"))
    assert found["blas"]["core"] in SUITABLE and "kernels for Prescott are left out" in messages


@some
def test_the_choice_is_remembered_and_told(make_service, shim, tmp_path):
    log = tmp_path / "log"
    service = make_service(env=mistaken(shim, BLAS_SHIM_LOG=str(log)))
    chosen = blas_of(service)
    assert chosen["core"] in SUITABLE and chosen["chosen_by"] == "measured"
    assert f"computing with {chosen['library']}, kernels for {chosen['core']} (measured)" in service.log_text()
    a = np.arange(300 * 300).reshape(300, 300) % 11 - 5.0
    assert np.array_equal(service.run("matmul", {"a": a, "b": a.T}, form="safetensors")[0]["c"], a @ a.T)
    service.kill("worker")  # its successor remembers; so does the next start
    service.wait_ready()
    service.stop()
    count = len(trials(log))
    service.start()
    assert blas_of(service) == {**chosen, "chosen_by": "remembered"}
    assert trials(log)[count:] == [chosen["core"]]
    service.stop()
    # another processor, library or version of it: what is kept says nothing of it
    kept = service.folder / "data" / "measured" / "blas"
    key, when, core = kept.read_text().splitlines()
    assert core == chosen["core"]
    for text in (f"{key} \n{when}\n{core}\n", f"{key}\n{int(when) - 31 * 86400}\n{core}\n", f"{key}\n{when}\nNoSuchCore\n", f"{key}\n",
                 "", "\0" * 3000):
        kept.write_text(text)
        service.start()
        assert blas_of(service)["chosen_by"] == "measured", text
        service.stop()
        assert kept.read_text().splitlines()[0] == key


# --- another library ----------------------------------------------------------------------------------------------


def test_another_library_is_taken(make_service, tmp_path):
    mine = tmp_path / "mine.so"
    shutil.copy(openblas(), mine)
    service = make_service("--blas", str(mine))
    assert blas_of(service)["library"].startswith("OpenBLAS 0.") and f", {mine}\n" in service.log_text()
    a = np.random.default_rng(1).standard_normal((200, 200))
    x = service.run("solve", {"a": a, "b": a.sum(1)}, form="safetensors")[0]["x"]
    assert np.allclose(x, 1, rtol=1e-9)
    maps = pathlib.Path(f"/proc/{service.part('worker')}/maps").read_text()
    assert str(mine) in maps
    service.kill("worker")
    service.wait_ready()
    assert blas_of(service)["library"].startswith("OpenBLAS 0.")
    found, messages = devices("--blas", str(mine))
    assert found["blas"]["library"].startswith("OpenBLAS 0.") and messages == ""
    found, messages = devices(BLASD_BLAS=str(mine))
    assert found["blas"]["library"].startswith("OpenBLAS 0.") and messages == ""


@some
def test_another_library_may_be_mistaken_too(shim, tmp_path):
    mine = tmp_path / "my-openblas.so"
    shutil.copy(openblas(), mine)
    found, _ = devices("--blas", str(mine), **mistaken(shim))
    assert found["blas"]["core"] in SUITABLE and found["blas"]["chosen_by"] == "measured"


@pytest.mark.parametrize("how, says", [(["-DWRONG"], "its products or solves are wrong"), ([], "its products or solves are wrong"),
                                       (["-DCRASH"], "with it crashes"), (["-DHANG"], "with it hangs"),
                                       (["-DLACKING"], "it has no dgetrf_")])
def test_a_library_with_a_fault_is_refused(tmp_path, how, says):
    fake = build(tmp_path, "fake_blas", *how)
    done = subprocess.run([harness.BLASD, "devices", "--blas", fake], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stdout == "" and f"--blas {fake}: " in done.stderr and says in done.stderr


def test_what_is_no_library_is_refused(tmp_path):
    text, spaced = tmp_path / "text.so", tmp_path / "a b.so"
    text.write_text("no library" * 20)
    shutil.copy(openblas(), spaced)
    for path, says in ((text, "header"), (tmp_path / "absent.so", "No such file"), (spaced, "no colon and no space"), (tmp_path, "")):
        done = subprocess.run([harness.BLASD, "devices", "--blas", path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and f"--blas {path}: " in done.stderr and says in done.stderr, done.stderr


def test_a_service_does_not_start_with_a_library_that_is_wrong(make_service, tmp_path):
    fake = build(tmp_path, "fake_blas", "-DWRONG")
    with pytest.raises(AssertionError, match=f"(?s)--blas {re.escape(str(fake))}: its products or solves are wrong.*does not start"):
        make_service("--blas", str(fake))
