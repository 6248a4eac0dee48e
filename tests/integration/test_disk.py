"""A disk that somebody else fills, or that is small: what was acknowledged is there, what cannot be kept is refused."""
import contextlib
import http.client
import os
import shutil
import socket
import subprocess
import threading
import time

import numpy as np
import pytest
from service import BLASD, Redis, Service, wait_for

pytestmark = pytest.mark.full

SMALL = {"a": np.eye(2), "b": np.eye(2)}
MIB = 1 << 20


def run(*words):
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request, tmp_path):
    """Mounts a disk of some MiB at the data directory of a service; skips where nothing may be mounted."""
    mounted = []

    def mount(service, mib=64):
        at = service.folder / "data"
        at.mkdir(parents=True)
        if request.param == "tmpfs":
            done = run("mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "blasd-test", at)
        else:
            if shutil.which("mkfs.ext4", path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
                pytest.skip("mkfs.ext4 is not installed")
            image = tmp_path / "disk.img"
            with open(image, "wb") as file:
                file.truncate(mib * MIB)
            mkfs = shutil.which("mkfs.ext4", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
            assert run(mkfs, "-q", "-m", "0", "-E", "root_owner=%d:%d" % (os.geteuid(), os.getegid()), image).returncode == 0
            done = run("mount", "-o", "loop", image, at)
        if done.returncode != 0:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        mounted.append(at)
        return service
    yield mount
    for at in mounted:
        run("umount", "-l", at)


class Somebody:
    """Somebody else on the same disk."""

    def __init__(self, service):
        self.path = service.folder / "data" / "somebody-elses"

    def fill(self):
        """To the last byte."""
        with open(self.path, "ab", buffering=0) as file:
            for size in (MIB, 4096, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * size) == size:
                        pass

    def go(self):
        self.path.unlink()


def fill_block(path):
    """Notes at the end of an append-only file, to the end of its last block, and none behind that."""
    with open(path, "ab") as file:
        while file.tell() % 4096:
            left = 4096 - file.tell() % 4096
            size = left if left <= 64 else min(64, left - 3)
            file.write(b"#" * (size - 2) + b"\r\n" if size > 2 else b"#" * 64 + b"\r\n")
    os.truncate(path, path.stat().st_size)


def submit(service):
    """The id of an acknowledged job, or the problem."""
    answer = service.post("matmul", SMALL, wait=0)
    if answer.status == 202:
        return answer.json()["id"], None
    assert answer.status == 503 and int(answer.headers["Retry-After"]) > 0, answer.body
    return None, answer.json()


def taken_at_last(service, seconds=60):
    """A job that is refused until there is room."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        job_id, problem = submit(service)
        if job_id:
            return job_id
        time.sleep(0.1)
    raise AssertionError(problem)


def ready_problem(service):
    answer = service.request("GET", "/health/ready")
    return None if answer.status == 200 else answer.json()


def new_redis(service, killed):
    wait_for(lambda: service.part("redis") not in (None, killed))


def all_there(service, ids):
    assert ids
    for job_id in ids:
        end = time.monotonic() + 60
        job = service.request("GET", f"/jobs/{job_id}?wait=60", timeout=90)
        while job.status in (202, 503) and time.monotonic() < end:  # Redis may not have seen yet that there is room
            time.sleep(0.1)
            job = service.request("GET", f"/jobs/{job_id}?wait=60", timeout=90)
        assert job.status == 200 and job.json()["state"] == "succeeded", (job_id, job.body)


@pytest.mark.parametrize("busy,options", [(False, ()), (True, ()), (True, ("--durable",))])
def test_a_full_disk_and_a_killed_redis_lose_nothing(make_service, small_disk, busy, options):
    """Filled by somebody else while jobs are acknowledged, or while none are; then redis-server is killed."""
    service = small_disk(make_service(*options, start=False)).start()
    other, ids, full = Somebody(service), [], threading.Event()
    with service.worker_held():  # of a job that has ended nothing could be lost
        filler = threading.Thread(target=lambda: (other.fill(), full.set()))
        filler.start()
        while busy and not full.is_set():
            ids.append(submit(service)[0])
        filler.join()
        for _ in range(30):  # as many as are taken right after
            ids.append(submit(service)[0])
        killed = service.kill("redis")
        new_redis(service, killed)
    other.go()
    service.wait_ready()
    all_there(service, [job_id for job_id in ids if job_id] or [taken_at_last(service)])


def test_a_full_disk_is_refused_by_name_and_recovers(make_service, small_disk):
    service = small_disk(make_service(start=False)).start()
    other = Somebody(service)
    with service.worker_held():
        before = [submit(service)[0] for _ in range(10)]
        other.fill()
        wait_for(lambda: ready_problem(service) is not None)
        problem = ready_problem(service)
        assert problem["code"] == "disk_full" and "MiB" in problem["detail"], problem
        job_id, problem = submit(service)
        assert job_id is None and problem["code"] == "disk_full", problem
    all_there(service, before)  # what was queued ends all the same, and can be fetched
    assert "disk_reserve_bytes" in service.log_text()
    other.go()
    service.wait_ready()
    assert service.run("matmul", SMALL)[1]["state"] == "succeeded"


def test_a_write_that_failed_costs_no_job_that_comes_after_it(make_service, small_disk):
    """Redis 7.0 may go on behind a gap in its file, which its next start does not read past: so no job is taken until the file is
    written anew."""
    service = small_disk(make_service(start=False)).start()
    redis, other = Redis(service), Somebody(service)
    redis("BGREWRITEAOF")  # a file that Redis has begun itself
    wait_for(lambda: b"aof_rewrite_in_progress:0" in redis("INFO", "persistence"))
    other.fill()
    wait_for(lambda: ready_problem(service) is not None)
    with pytest.raises(AssertionError, match="MISCONF"):
        for n in range(10000):
            redis("SET", f"filling-{n}", os.urandom(3000))
    redis.close()
    other.go()
    ids = [taken_at_last(service), *(submit(service)[0] for _ in range(5))]
    new_redis(service, service.kill("redis"))
    service.wait_ready()
    all_there(service, ids)


def test_a_reserve_that_the_disk_cannot_have_is_refused(make_service, small_disk):
    """Else the disk is filled with what is held for the queue, to the last byte, and no job is ever taken."""
    service = small_disk(make_service(start=False))
    data = service.folder / "data"
    done = subprocess.run(["timeout", "-s", "INT", "5", BLASD, "up", "--listen", "127.0.0.1:0", "--data", data, "--limit", "disk_reserve_bytes=40M"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "disk_reserve_bytes" in done.stderr, done
    assert os.statvfs(data).f_bfree >= os.statvfs(data).f_blocks * 3 // 4 and not (data / "appendonlydir").exists()


@pytest.mark.parametrize("held", [True, False])
def test_a_service_starts_on_a_full_disk(make_service, small_disk, held):
    """It comes up, says what is wrong, and takes jobs once there is room; also where nothing is held for its file, as
    after a version that did not hold any."""
    service = small_disk(make_service(start=False)).start()
    other = Somebody(service)
    with service.worker_held():
        ids = [submit(service)[0] for _ in range(10)]
        service.process.kill()
    service.stop(check=False)
    for file in (service.folder / "data" / "appendonlydir").glob("*.incr.aof"):
        if not held:
            fill_block(file)
    other.fill()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        service.port = probe.getsockname()[1]
    problems = []

    def look():
        while not problems:
            with contextlib.suppress(OSError, http.client.HTTPException):
                problems.append(service.request("GET", "/health/ready", timeout=5).json())
            time.sleep(0.1)
        other.go()
    looker = threading.Thread(target=look)
    looker.start()
    service.start(f"127.0.0.1:{service.port}", timeout=60)
    looker.join()
    assert problems[0].get("code") in ("disk_full", "queue_unavailable"), problems
    assert "disk_reserve_bytes" in service.log_text()
    all_there(service, ids)


def test_a_small_disk_is_never_wedged(make_service, small_disk):
    """The append-only file is rewritten before it has filled the disk: several disks full are written, and taken."""
    service = small_disk(make_service("--limit", "record_sync_s=1", "--limit", "inline_bytes=16M", start=False), 48).start()
    redis = Redis(service)
    least = int(dict(zip(*[iter(redis("CONFIG", "GET", "auto-aof-rewrite-min-size"))] * 2))[b"auto-aof-rewrite-min-size"])
    assert least < 48 * MIB / 2
    def written():
        """Not at once where the rewriting of the file has no processor: then Redis refuses writes for a while."""
        with contextlib.suppress(AssertionError):
            return redis("SET", "filling", os.urandom(MIB // 2)) is not None

    for i in range(400):
        wait_for(written)
        if i % 10 == 0:
            wait_for(lambda: ready_problem(service) is None)
            time.sleep(0.02)
    redis.close()
    all_there(service, [taken_at_last(service)])


def test_what_a_rewrite_that_was_cut_off_left_is_removed(make_service):
    """Its copy, as large as the file itself, is of no use to anybody, and nobody else would ever take it away."""
    service = make_service()
    data, redis = service.folder / "data", Redis(service)
    redis("SET", "filling", os.urandom(4 * MIB))
    redis("BGREWRITEAOF")
    with service.held("redis"):  # its child ends, and it does not hear of that
        wait_for(lambda: list(data.glob("temp-rewriteaof-bg-*.aof")))
        killed = service.kill("redis")
    redis.close()
    new_redis(service, killed)
    service.wait_ready()
    assert list(data.glob("temp-*")) == []
    all_there(service, [taken_at_last(service)])
