"""A Redis of one's own over TLS, where this build's hiredis has it; where not, that is said and nothing travels in the clear."""
import select
import socket
import subprocess
import time

import pytest
from service import BLASD
from test_auth import PRODUCT
from test_tls import Authority


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def has_tls():
    done = subprocess.run([BLASD, "api", "--listen", "127.0.0.1:0", "--redis", "rediss://h:x"], capture_output=True, text=True)
    return "no TLS for Redis" not in done.stderr


@pytest.fixture
def redis(tmp_path):
    authority = Authority(tmp_path, "ours")
    cert, key = authority.sign("redis")
    port = free_port()
    server = subprocess.Popen(["redis-server", "--port", "0", "--tls-port", str(port), "--tls-cert-file", cert, "--tls-key-file", key,
                               "--tls-ca-cert-file", authority.cert, "--tls-auth-clients", "no", "--appendonly", "yes", "--appendfsync", "no",
                               "--dir", tmp_path, "--bind", "127.0.0.1", "--requirepass", "secret"], stdout=subprocess.DEVNULL)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            break
        except OSError:
            time.sleep(0.05)
    yield port, authority
    server.terminate()
    server.wait(30)


def up(tmp_path, name, url, ca=None):
    import os
    return subprocess.Popen([BLASD, "up", "--listen", "127.0.0.1:0", "--data", tmp_path / name, "--redis", url, "--blobs", "redis"],
                            stdout=subprocess.PIPE, stderr=open(tmp_path / f"{name}.log", "wb"),
                            env={**os.environ, **({"BLASD_REDIS_CA": str(ca)} if ca else {})})


def ready(process, seconds):
    return process.stdout.readline().decode() if select.select([process.stdout], [], [], seconds)[0] else ""


@pytest.mark.skipif(not has_tls(), reason="this build's hiredis has no TLS")
def test_jobs_go_through(tmp_path, redis):
    port, authority = redis
    process = up(tmp_path, "good", f"rediss://:secret@localhost:{port}", authority.cert)
    try:
        line = ready(process, 60)
        assert line.startswith("ready "), (tmp_path / "good.log").read_text()
        done = subprocess.run(["curl", "-sS", line.split()[1] + "/jobs?wait=20", "-d", PRODUCT], capture_output=True, text=True)
        assert '"data":[[19,22],[43,50]]' in done.stdout
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.skipif(not has_tls(), reason="this build's hiredis has no TLS")
def test_a_certificate_that_is_not_trusted_is_refused(tmp_path, redis):
    port, _authority = redis
    process = up(tmp_path, "unknown", f"rediss://:secret@localhost:{port}")
    try:
        end = time.monotonic() + 60
        while "certificate" not in (tmp_path / "unknown.log").read_text() and time.monotonic() < end:
            time.sleep(0.1)
        assert "certificate" in (tmp_path / "unknown.log").read_text()
        assert ready(process, 0) == ""
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.skipif(has_tls(), reason="this build's hiredis has TLS")
def test_without_it_that_is_said():
    done = subprocess.run([BLASD, "api", "--listen", "127.0.0.1:0", "--redis", "rediss://:secret@h"], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode != 0 and "no TLS for Redis" in done.stderr and "secret" not in done.stderr
