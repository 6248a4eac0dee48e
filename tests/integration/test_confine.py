"""What the front end and the workers can still do once they have started: their work, and little else."""
import ctypes
import pathlib
import re
import time

import numpy as np
import pytest
from service import BLASD, Redis, children, command_line, wait_for

SMALL = {"a": np.eye(2), "b": np.full((2, 2), 3.0)}


def landlock():
    """The version of the kernel's Landlock; 0: there is none."""
    return max(0, ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1))


def statuses(service, *parts):
    """{part: [what /proc says of each of its threads]}"""
    found = {}
    for pid in children(service.process.pid):
        name = " ".join(command_line(pid).split()[:2])
        if name in parts:
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                fields = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
                found.setdefault(name, []).append(fields)
    return found


def works(service):
    """What each part does: small jobs, files of the store, what is kept."""
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"
    a = np.random.default_rng(1).random((300, 300))
    assert np.allclose(service.run("matmul", {"a": a, "b": a}, form="safetensors")[0]["c"], a @ a)
    assert service.run("solve", {"a": a, "b": a[0]}, form="safetensors")[1]["state"] == "succeeded"


def test_every_thread_is_confined(make_service, tmp_path):
    (tmp_path / "secrets").touch(0o600)
    (tmp_path / "secrets").write_text("whsec_" + "A" * 32)
    service = make_service("--workers", "2", "--webhook-secrets", tmp_path / "secrets", "--outgoing-hosts", "127.0.0.1")
    works(service)
    parts = {"blasd api", "blasd worker", "blasd notify"}
    found = statuses(service, *parts)
    assert set(found) == parts and "not all threads" not in service.log_text()
    for name, threads in found.items():
        for fields in threads:
            assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2"), (name, fields)
    service.stop()
    assert (service.folder / "data" / "measured" / "cpu.0").exists(), "the worker may write there"


def test_who_asks_for_it_keeps_all_rights(make_service):
    service = make_service("--no-confine")
    works(service)
    for threads in statuses(service, "blasd api", "blasd worker").values():
        assert {fields["Seccomp"] for fields in threads} <= {statuses_of_this_process()}


def statuses_of_this_process():
    return re.search(r"^Seccomp:\t(\d)", pathlib.Path("/proc/self/status").read_text(), re.M).group(1)


@pytest.mark.parametrize("confined", [True, False])
def test_an_intruder_gets_little(make_service, tmp_path, confined):
    """Neither the file of keys, nor a shell, nor what the supervisor knows; and without confinement all of it, so that
    this test could fail."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "keys").write_text("a secret")
    service = make_service(*([] if confined else ["--no-confine"]),
                           env={"LD_PRELOAD": str(BLASD.parent / "inside.so"), "BLASD_TEST_INSIDE": str(inside)})
    works(service)
    (inside / "go").touch()

    def said():
        return set(re.findall(r"^inside (\w+): (\w+) ?(\w*)$", service.log_text(), re.M))
    end = time.monotonic() + 60
    wanted = {("api", "done", ""), ("worker", "done", "")} if confined else set()
    while not (wanted <= said() and len(said()) >= 10):
        assert time.monotonic() < end, service.log_text()
        time.sleep(0.05)
    got = {(part, what): how for part, what, how in said()}
    for part in ("api", "worker"):
        files = "EACCES" if confined and landlock() >= 2 else "worked"
        assert [got[part, what] for what in ("key", "write", "environment")] == [files] * 3, got
        assert got[part, "kill"] == ("EPERM" if confined else "worked"), got
    if confined:
        assert got["api", "exec"] == got["worker", "exec"] == "EPERM" and "inside: a shell" not in service.log_text()
        works(service)
    else:
        wait_for(lambda: "inside: a shell" in service.log_text())


@pytest.mark.parametrize("words", [
    "FLUSHALL", "CONFIG SET dir /tmp", "CONFIG GET *", "REPLICAOF 127.0.0.1 1", "MIGRATE 127.0.0.1 1 {blasd}:store 0 9", "MONITOR", "SHUTDOWN",
    "ACL LIST", "EVAL return(1) 0", "DEBUG SLEEP 0", "CLIENT KILL TYPE normal", "MODULE LOAD /tmp/x.so", "GET others", "SET others 1",
    "PUBLISH others 1", "KEYS *", "BGREWRITEAOF", "CLIENT LIST", "CLIENT PAUSE 1", "FUNCTION FLUSH", "FUNCTION DELETE blasd", "AUTH blasd-up 0"])
def test_who_has_taken_a_part_over_has_the_queue_alone(make_service, words):
    """On the socket of the private Redis, as api and worker are, nothing but the queue's keys can be had: no other key, no file, no
    network, no other connection."""
    service = make_service()
    part, own = Redis(service, "default"), Redis(service)
    with pytest.raises(AssertionError, match="NOPERM|WRONGPASS|not allowed"):
        part(*words.split())
    assert part("GET", "{blasd}:store") == own("GET", "{blasd}:store") != b""
    works(service)
    part.close()
    own.close()


def test_the_password_outlives_the_service(make_service):
    """Where the disk is full the configuration of the start before is used again, and that has to be known then."""
    service = make_service()
    config = service.folder / "data" / "redis.conf"
    line = re.search(r"^user blasd-up on >[0-9a-f]{32} .*$", config.read_text(), re.M).group()
    assert config.stat().st_mode & 0o077 == 0
    service.stop()
    service.start()
    assert line in config.read_text().splitlines()
    service.stop()
    config.write_text(config.read_text().replace(line, "user blasd-up on >short ~* &* +@all"))
    service.start()
    assert Redis(service)("ACL", "WHOAMI") == b"blasd-up" and ">short" not in config.read_text()
