"""Directories that other local users may reach: what they plant there is neither used nor followed, and locks nobody out."""
import os
import pathlib
import stat
import subprocess

import pytest
from service import BLASD, Service, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be another user")
OTHER = 12345


def works(service):
    assert service.post("matmul", {"a": [[2.0]], "b": [[3.0]]}, wait=20).json()["state"] == "succeeded"


@pytest.mark.parametrize("kind", ["directory", "link", "file"])
def test_the_place_of_blobs_is_taken_while_it_is_stopped(make_service, kind):
    service = make_service()
    place = pathlib.Path("/dev/shm/blasd-" + (service.folder / "data" / "instance").read_text()[:16].strip())
    service.stop()
    subprocess.run(["rm", "-rf", place], check=True)
    {"directory": place.mkdir, "link": lambda: place.symlink_to("/tmp"), "file": place.touch}[kind]()
    os.chown(place, OTHER, OTHER, follow_symlinks=False)
    try:
        service.start()
        works(service)
        assert f"{place} belongs to another user" in service.log_text() and "--blobs" in service.log_text()
        assert kind != "directory" or not list(place.iterdir())
    finally:
        service.stop(check=False)
        subprocess.run(["rm", "-rf", place], check=True)


@pytest.mark.parametrize("name", ["appendonlydir", "redis.conf", "blobs"])
@pytest.mark.parametrize("closed", [False, True])
def test_a_link_in_a_data_directory_that_was_open(tmp_path, name, closed):
    data, elsewhere = tmp_path / "one" / "data", tmp_path / "elsewhere"
    data.mkdir(parents=True)
    elsewhere.mkdir()
    (data / "instance").write_text("0123456789abcdef")
    (data / name).symlink_to(elsewhere)
    os.chown(data / name, OTHER, OTHER, follow_symlinks=False)
    data.chmod(0o700 if closed else 0o777)
    done = subprocess.run([BLASD, "up", "--listen", "127.0.0.1:0", "--data", data], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and name in done.stderr and "chmod 700" in done.stderr, done.stderr
    assert not list(elsewhere.iterdir())


def test_what_redis_writes_is_for_its_user_alone(make_service):
    service = make_service()
    works(service)
    for path in [*(service.folder / "data").rglob("*")]:
        if path.is_file():
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_ready_says_that_blobs_cannot_be_written(tmp_path):
    at = tmp_path / "blobs"
    at.mkdir(mode=0o700)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "blasd-test", at], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(done.stderr)
    service = Service(tmp_path / "service", "--blobs", f"dir:{at}")

    def ready():
        return service.request("GET", "/health/ready", check=False).status
    try:
        service.start()
        wait_for(lambda: ready() == 200)
        with open(at / "stranger", "wb", buffering=0) as file, pytest.raises(OSError):
            while file.write(b"x" * 65536):
                pass
        wait_for(lambda: ready() == 503)
        assert service.request("GET", "/health/ready", check=False).json()["code"] == "no_space"
        (at / "stranger").unlink()
        wait_for(lambda: ready() == 200)
        subprocess.run(["mount", "-o", "remount,ro", at], check=True)
        wait_for(lambda: ready() == 503)
        subprocess.run(["mount", "-o", "remount,rw", at], check=True)
        wait_for(lambda: ready() == 200)
        works(service)
    finally:
        service.stop(check=False)
        subprocess.run(["umount", at], check=False)
