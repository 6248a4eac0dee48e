"""deploy/shards: Debian's nginx spreads keys over deployments, each of which has its keys' jobs alone."""
import json
import re
import shutil
import socket
import subprocess

import numpy as np
import pytest

from service import BLASD, ROOT, TYPES, Service, safetensors, wait_for

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")
CONF = ROOT / "deploy" / "shards" / "blasd.conf"
MAIN = """daemon off; master_process off; pid {at}/pid; error_log {at}/error.log; events {{}}
http {{ access_log off; {temporary} include {at}/blasd.conf; }}
"""
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed: apt-get install nginx-light")


class Proxy(Service):
    """nginx with that file, whose addresses are those of the services."""

    def __init__(self, folder, services):
        super().__init__(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        servers = "\n".join(f"server 127.0.0.1:{one.port} max_fails=0;" for one in services)
        conf, replaced = re.subn(r"(?:    server 10\.0\.0\.\d+:8080 max_fails=0;\n)+", servers + "\n", CONF.read_text())
        conf, listens = re.subn(r"listen 8080;", f"listen 127.0.0.1:{self.port};", conf)
        assert replaced == 1 and listens == 1
        (self.folder / "blasd.conf").write_text(conf)
        temporary = " ".join(f"{name}_temp_path {self.folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (self.folder / "nginx.conf").write_text(MAIN.format(at=self.folder, temporary=temporary))
        log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen([NGINX, "-p", self.folder, "-c", self.folder / "nginx.conf", "-e", self.folder / "error.log"],
                                        stdout=log, stderr=log)
        log.close()
        wait_for(self.listens, seconds=30)

    def listens(self):
        assert self.process.poll() is None, (self.folder / "log").read_text() + (self.folder / "error.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self):
        self.process.terminate()
        assert self.process.wait(30) == 0


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Two deployments with the same keys, and the proxy before them."""
    folder = tmp_path_factory.mktemp("shards")
    keys = [subprocess.run([BLASD, "keys", "add", f"tenant-{n}", "--file", folder / "keys.json"], check=True, capture_output=True,
                           text=True).stdout.strip() for n in range(12)]
    services = [Service(folder / str(n), "--keys", str(folder / "keys.json"), "--workers", "1") for n in range(2)]
    proxy = None
    try:
        for service in services:
            service.start()
        proxy = Proxy(folder / "nginx", services)
        yield proxy, services, [{"Authorization": f"Bearer {key}"} for key in keys]
    finally:
        if proxy:
            proxy.end()
        for service in services:
            service.stop()


def submit(proxy, key, n=2, **headers):
    a = np.arange(float(n * n)).reshape(n, n)
    answer = proxy.request("POST", "/jobs", safetensors({"a": a, "b": np.eye(n)}, op="matmul"),
                           {"Content-Type": TYPES["safetensors"], **key, **headers})
    assert answer.status == 202, answer.body
    return answer.json()["id"], a


def homes(services, key, job):
    """The deployments that know the job."""
    return [n for n, service in enumerate(services) if service.request("GET", f"/jobs/{job}", headers=key).status == 200]


def test_a_key_reaches_one_deployment(shards):
    proxy, services, keys = shards
    found = {}
    for n, key in enumerate(keys):
        jobs = [submit(proxy, key)[0] for _ in range(3)]
        jobs.append(submit(proxy, {"Authorization": key["Authorization"].replace("Bearer ", "bearer  ")})[0])
        at = [homes(services, key, job) for job in jobs]
        assert at == [at[0]] * 4 and len(at[0]) == 1, at
        found[n] = at[0][0]
        listed = proxy.request("GET", "/jobs", headers=key).json()["jobs"]
        assert {job["id"] for job in listed} == set(jobs)
    assert set(found.values()) == {0, 1}, "twelve keys, all at one deployment"


@pytest.mark.parametrize("n", [2, 900])
def test_jobs_are_read_back_through_the_proxy(shards, n):
    proxy, _, keys = shards
    for key in keys[:4]:
        job, a = submit(proxy, key, n)
        wait_for(lambda: proxy.request("GET", f"/jobs/{job}?wait=10", headers=key).json()["state"] == "succeeded")
        result = proxy.request("GET", f"/jobs/{job}/result", headers={**key, "Accept": TYPES["safetensors"]})
        assert result.status == 200 and np.array_equal(result.safetensors()[0]["c"], a)
        assert proxy.request("GET", f"/jobs/{job}", headers=keys[5]).status == 404
    assert proxy.request("GET", "/ops").status == 401


def test_no_other_deployment_takes_the_jobs_of_one_that_is_away(shards):
    proxy, services, keys = shards
    there = {n: homes(services, key, submit(proxy, key)[0])[0] for n, key in enumerate(keys)}
    services[1].stop()
    for n, key in enumerate(keys):
        answer = proxy.request("GET", "/jobs", headers=key)
        assert answer.status == (200 if there[n] == 0 else 503), (n, answer.body)
        if there[n] == 1:
            assert answer.headers["Retry-After"] == "5" and answer.json()["code"] == "queue_unavailable"
            posted = proxy.request("POST", "/jobs", json.dumps({"op": "matmul", "inputs": {"a": [[1]], "b": [[1]]}}),
                                   {"Content-Type": "application/json", **key})
            assert posted.status == 503, posted.body
    services[1].start(listen=f"127.0.0.1:{services[1].port}")
    assert all(homes(services, key, submit(proxy, key)[0]) == [there[n]] for n, key in enumerate(keys))
