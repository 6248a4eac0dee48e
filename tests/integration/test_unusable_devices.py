"""Cards, drivers and builds that cannot be used are said by name, with what to do: in `blasd devices`, in the log of `up`
and in GET /devices. The card is the stand-in that the CUDA backend's own tests use, told to be an old one."""
import ctypes
import json
import os
import shutil
import subprocess

import pytest
import service as harness
from service import Service

STANDIN = harness.BLASD.parent / "standin"
try:
    ctypes.CDLL("libcuda.so.1")
    HAS_DRIVER = True
except OSError:
    HAS_DRIVER = False
without_driver = pytest.mark.skipif(HAS_DRIVER, reason="this machine has an NVIDIA driver")
OLD_CARD = {"BLASD_STANDIN_CARD": "7.5"}
OLD_DRIVER = {"BLASD_STANDIN_DRIVER": "35 11040"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with blasd and the stand-in, without a driver's library."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for file in (harness.BLASD, STANDIN / "blasd_cuda.so"):
        shutil.copy2(file, folder)
    monkeypatch.setattr(harness, "BLASD", folder / "blasd")
    return folder


def add_driver(folder):
    shutil.copy2(STANDIN / "libcuda.so.1", folder)


def environment(folder, more=()):
    return {"LD_LIBRARY_PATH": str(folder), **dict(more)}


def devices(folder, *options, env=()):
    done = subprocess.run([folder / "blasd", "devices", *options], env={**os.environ, **environment(folder, env)},
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def unusable(folder, env=()):
    """{device: why}, as each form of `blasd devices` has it."""
    rows = json.loads(devices(folder, "--json", env=env))
    found = {row["device"]: row["unusable"] for row in rows if "unusable" in row}
    assert [row["device"] for row in rows if "unusable" not in row] == ["cpu:0"]
    text, ids = devices(folder, env=env), devices(folder, "--ids", env=env).splitlines()
    for device, why in found.items():
        assert f"{device} cannot be used: {why}" in text
        assert f"# {device}: {why}" in ids
    assert [line for line in ids if not line.startswith("#")] == ["cpu:0"]
    return found


def check_service(tmp_path, folder, env, device, *words):
    """`up` serves with the CPU, and says of the card why it does not."""
    service = Service(tmp_path / "service", env=environment(folder, env)).start()
    try:
        answer = service.request("GET", "/devices").json()
        assert [d["device"] for d in answer["devices"]] == ["cpu:0"]
        assert [u["device"] for u in answer["unusable"]] == [device]
        for word in words:
            assert word in answer["unusable"][0]["reason"]
        assert f"no worker for {device}: {answer['unusable'][0]['reason']}" in service.log_text()
    finally:
        service.stop(check=False)


def test_a_card_that_is_too_old(tmp_path, folder):
    add_driver(folder)
    found = unusable(folder, OLD_CARD)
    assert list(found) == ["cuda:0"]
    assert "compute capability 7.5" in found["cuda:0"] and "8.0 or later" in found["cuda:0"]
    check_service(tmp_path, folder, OLD_CARD, "cuda:0", "compute capability 7.5", "8.0 or later")


def test_a_driver_that_is_too_old(tmp_path, folder):
    add_driver(folder)
    assert "too old" in unusable(folder, OLD_DRIVER)["cuda"]
    check_service(tmp_path, folder, OLD_DRIVER, "cuda", "CUDA up to 11.4", "built with CUDA 13.0", "update the driver")


@without_driver
def test_no_driver(tmp_path, folder):
    assert "libcuda.so.1" in unusable(folder)["cuda"]
    check_service(tmp_path, folder, {}, "cuda", "no NVIDIA driver", "install it", "--gpus all")


def test_a_backend_of_another_toolkit(tmp_path, folder):
    """It wants libraries that are not here."""
    add_driver(folder)
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", folder / "libcublas.so.99", "-Wl,-soname,libcublas.so.99"],
                   check=True)
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", folder / "blasd_cuda.so", "-Wl,--no-as-needed",
                    "-x", "none", folder / "libcublas.so.99"], check=True)
    (folder / "libcublas.so.99").unlink()
    assert "libcublas.so.99" in unusable(folder)["cuda"]
    check_service(tmp_path, folder, {}, "cuda", "cannot load blasd_cuda.so", "another CUDA toolkit", "libcublas.so.99")


def test_a_driver_without_the_backend(folder):
    add_driver(folder)
    (folder / "blasd_cuda.so").unlink()
    assert "has an NVIDIA driver" in unusable(folder)["cuda"]


@without_driver
def test_a_machine_without_any_of_it(tmp_path, folder):
    (folder / "blasd_cuda.so").unlink()
    assert unusable(folder) == {}
    service = Service(tmp_path / "service", env=environment(folder)).start()
    try:
        assert service.request("GET", "/devices").json()["unusable"] == []
    finally:
        service.stop(check=False)


def test_a_worker_for_it_ends_with_the_reason(folder):
    add_driver(folder)
    for env, word in ((OLD_CARD, "compute capability 7.5"), (OLD_DRIVER, "driver is too old")):
        done = subprocess.run([folder / "blasd", "worker", "--device", "cuda:0", "--redis", "redis://127.0.0.1:1"],
                              env={**os.environ, **environment(folder, env)}, capture_output=True, text=True, timeout=120)
        assert done.returncode == 1 and word in done.stderr
