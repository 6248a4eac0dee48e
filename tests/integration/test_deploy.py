"""deploy/kubernetes and deploy/slurm: valid, of one piece, and what they start runs with the options they name."""
import contextlib
import json
import os
import pathlib
import re
import shlex
import socket
import stat
import subprocess

import numpy as np
import pytest
import yaml
from service import BLASD, ROOT, Service, children, command_line, wait_for
from test_redis import client, ready_line, server  # noqa: F401  (a fixture)

pytestmark = pytest.mark.full

FOLDER = ROOT / "deploy/kubernetes"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")
DOCUMENTS = [one for path in FILES for one in yaml.safe_load_all(path.read_text())]
CUSTOM = {"ScaledObject", "TriggerAuthentication"}  # of KEDA
SLURM = ROOT / "deploy/slurm/blasd.sbatch"


def of_kind(*kinds):
    return [one for one in DOCUMENTS if one["kind"] in kinds]


def named(kind, name):
    return next(one for one in of_kind(kind) if one["metadata"]["name"] == name)


WORKLOADS = of_kind("Deployment", "StatefulSet")
NAMES = [one["metadata"]["name"] for one in WORKLOADS]


def pod(workload):
    return workload["spec"]["template"]["spec"]


def container(workload):
    return pod(workload)["containers"][0]


def ours():
    return [one for one in WORKLOADS if container(one)["image"].startswith("blasd")]


def options_of(command):
    text = subprocess.run([BLASD, command, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--[a-z-]+", text))


def check_words(words):
    """A command line of blasd: its command, its options and its limits are there."""
    known = options_of(words[0])
    limits = (ROOT / "docs/limits.md").read_text()
    for at, word in enumerate(words):
        if word.startswith("--"):
            assert word in known, (words[0], word)
        if word == "--limit":
            assert f"| `{words[at + 1].split('=')[0]}` |" in limits, words[at + 1]


def test_kubernetes_takes_them(venv):
    """kubernetes-validate, strict: no field that the API does not have."""
    tool = venv("kubernetes") / "bin/kubernetes-validate"
    for path in FILES:
        if not {one["kind"] for one in yaml.safe_load_all(path.read_text())} & CUSTOM:
            done = subprocess.run([tool, "--strict", path], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr


def test_checkov_finds_nothing(venv):
    """What it would have otherwise and is meant so says why, where it is."""
    done = subprocess.run([venv("checkov") / "bin/checkov", "--directory", FOLDER, "--framework", "kubernetes", "--output", "json", "--quiet",
                           "--skip-download"], capture_output=True, text=True, timeout=600, check=False)
    said = json.loads(done.stdout)
    found = [f"{one['check_id']} {one['check_name']}: {one['resource']}" for one in said["results"]["failed_checks"]]
    assert done.returncode == 0 and found == [] and said["summary"]["parsing_errors"] == 0, found
    assert said["summary"]["resource_count"] >= len(of_kind("Deployment", "StatefulSet", "Service")), said["summary"]


def test_the_kustomization_is_whole():
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert sorted(kustomization["resources"]) == [path.name for path in FILES]
    version = (ROOT / "VERSION").read_text().strip()
    images = {f"{one['name']}:{version}" for one in kustomization["images"]}
    assert {container(one)["image"] for one in ours()} == images
    assert {one["newTag"] for one in kustomization["images"]} == {version}
    for one in DOCUMENTS:
        assert one["kind"] == "Namespace" or one["metadata"]["namespace"] == kustomization["namespace"]


@pytest.mark.parametrize("workload", WORKLOADS, ids=NAMES)
def test_what_a_pod_may(workload):
    spec, one = pod(workload), container(workload)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
    assert one["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                      "capabilities": {"drop": ["ALL"]}}
    assert {"cpu", "memory"} <= set(one["resources"]["limits"]) and {"cpu", "memory"} <= set(one["resources"]["requests"])
    claims = [claim["metadata"] for claim in workload["spec"].get("volumeClaimTemplates", ())]
    volumes = {volume["name"] for volume in [*spec.get("volumes", ()), *claims]}
    assert {mount["name"] for mount in one["volumeMounts"]} == volumes
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("workload", ours(), ids=lambda one: one["metadata"]["name"])
def test_options_are_there(workload):
    check_words(container(workload)["args"])


def test_workers_have_time_to_end():
    for workload in ours():
        words = container(workload)["args"]
        spec, limits = pod(workload), dict(re.findall(r"(\w+)=(\d+)", " ".join(words)))
        if words[0] == "worker":
            assert spec["terminationGracePeriodSeconds"] > int(limits["drain_s"])
            assert "lifecycle" not in container(workload)  # a SIGTERM of its own would make the next one the second
        else:
            pause = int(container(workload)["lifecycle"]["preStop"]["exec"]["command"][1])
            assert spec["terminationGracePeriodSeconds"] > pause + 10
            assert workload["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    card = named("Deployment", "blasd-worker-cuda")
    assert container(card)["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert container(card)["args"][container(card)["args"].index("--device") + 1] == "cuda:0"


def selects(selector, labels):
    for one in selector.get("matchExpressions", ()):
        assert one["operator"] == "In"
        if labels.get(one["key"]) not in one["values"]:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()


def test_selectors_find_pods():
    labels = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in WORKLOADS}
    found = lambda selector: {name for name, one in labels.items() if selects(selector, one)}
    policies = {one["metadata"]["name"]: found(one["spec"]["podSelector"]) for one in of_kind("NetworkPolicy")}
    workers = {"blasd-worker-cpu", "blasd-worker-cuda"}
    assert policies == {"blasd-default": set(NAMES), "blasd-redis": {"blasd-redis"}, "blasd-api": {"blasd-api"},
                        "blasd-to-redis": {"blasd-api"} | workers}
    assert found(named("NetworkPolicy", "blasd-redis")["spec"]["ingress"][0]["from"][0]["podSelector"]) == {"blasd-api"} | workers
    for service, name in (("blasd", "blasd-api"), ("blasd-redis", "blasd-redis")):
        assert found({"matchLabels": named("Service", service)["spec"]["selector"]}) == {name}
    assert found(named("PodDisruptionBudget", "blasd-api")["spec"]["selector"]) == {"blasd-api"}
    scaled = of_kind("ScaledObject")
    assert {one["spec"]["scaleTargetRef"]["name"] for one in scaled} == workers
    for one in scaled:  # what sets the count is one thing alone
        assert "replicas" not in named("Deployment", one["spec"]["scaleTargetRef"]["name"])["spec"]
        assert one["spec"]["minReplicaCount"] == 0


def test_secrets_are_those_of_the_documentation():
    text = json.dumps(DOCUMENTS)
    document = (ROOT / "docs/kubernetes.md").read_text()
    for name in ("redis-password", "redis-url", "worker-redis-url", "users.acl", "metrics-key", "keys.json"):
        assert f'"key": "{name}"' in text
        assert re.search(rf"--from-(file|literal)={re.escape(name)}=", document), name


def mounted(folder, name, text):
    """A file of a Secret as a kubelet mounts it: links, readable by the group."""
    (folder / "..now").mkdir(parents=True, exist_ok=True)
    (folder / "..now" / name).write_text(text)
    (folder / "..now" / name).chmod(0o440)
    if not (folder / "..data").is_symlink():
        (folder / "..data").symlink_to("..now")
    (folder / name).symlink_to(f"..data/{name}")
    return folder / name


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec "$@"'


def read_only_root(folder):
    """What a command begins with to see all but that folder read-only; nothing where a user may not do that here."""
    begin = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", READ_ONLY, folder]
    try:
        done = subprocess.run([*begin, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return []
    return begin if done.returncode == 0 else []


def test_they_start_probe_and_scale(server, tmp_path):  # noqa: F811
    """Front end and worker by the manifests' own words, on a read-only root; the probe as it stands; what KEDA would read."""
    server.up()
    (tmp_path / "state").mkdir()
    begin = [*read_only_root(tmp_path / "state"), BLASD]
    file = tmp_path / "keys.json"
    secret = {role: subprocess.run([BLASD, "keys", "add", role, "--role", role, "--file", file], capture_output=True, text=True,
                                   check=True).stdout.strip() for role in ("user", "metrics")}
    here = {"0.0.0.0:8080": "127.0.0.1:0", "/var/lib/blasd": str(tmp_path / "state"),
            "file:/etc/blasd/redis/redis-url": f"file:{mounted(tmp_path / 'redis-url-folder', 'redis-url', server.url)}",
            "/etc/blasd/keys/keys.json": str(mounted(tmp_path / "keys", "keys.json", file.read_text()))}
    words = lambda name: [here.get(word, word) for word in container(named("Deployment", name))["args"]]
    service = client(server, server.start([*begin, *words("blasd-api")], stdout=subprocess.PIPE))
    probe = container(named("Deployment", "blasd-api"))["readinessProbe"]["exec"]["command"]
    ready = lambda key: subprocess.run([word.replace("/8080", f"/{service.port}") for word in probe], check=False,
                                       env={**os.environ, "METRICS_KEY": key}, capture_output=True).returncode
    wait_for(lambda: ready(secret["metrics"]) == 0, "no worker is needed")
    assert ready("") == 0, "readiness needs no key"

    def wanted(name):
        trigger = named("ScaledObject", f"blasd-worker-{name}")["spec"]["triggers"][0]["metadata"]
        host, path = re.fullmatch(r"http://([^/]+)(/.*)", trigger["url"]).groups()
        answer = service.request("GET", path, headers={"Host": host, "Authorization": f"Bearer {secret['metrics']}"})
        assert answer.status == 200, answer.body
        value = answer.json()
        for part in trigger["valueLocation"].split("."):
            value = value[part]
        return value

    assert (wanted("cpu"), wanted("cuda")) == (0, 0)
    service.headers = {"Authorization": f"Bearer {secret['user']}"}
    job = service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}, wait=0).json()["id"]
    wait_for(lambda: wanted("cpu") == 1)
    worker = server.start([*begin, *words("blasd-worker-cpu")], stdout=subprocess.PIPE)
    wait_for(lambda: service.request("GET", f"/jobs/{job}").json()["state"] == "succeeded")
    wait_for(lambda: wanted("cpu") == 0)
    worker.terminate()
    assert worker.wait(60) == 0


def size(text):
    """Bytes of 8Gi, of Kubernetes; of 5gb, of Redis; of 2G, of a limit."""
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]*)", text).groups()
    return int(number) << {"m": 20, "g": 30}[unit[0].lower()]


def test_what_is_kept_fits_the_memory_of_redis():
    """Tensors lie there. A Redis that is killed for its memory would read all of its file again, and be killed again."""
    redis = named("StatefulSet", "blasd-redis")
    words = container(redis)["args"]
    most = size(words[words.index("--maxmemory") + 1])
    assert most <= size(container(redis)["resources"]["limits"]["memory"]) * 3 // 4  # the rest is for rewriting its file
    told = {one["metadata"]["name"]: dict(re.findall(r"(\w+_bytes)=(\w+)", " ".join(container(one)["args"]))) for one in ours()}
    one, *others = told.values()
    assert set(one) == {"queue_bytes", "record_bytes", "tensor_bytes"} and all(other == one for other in others), told
    assert sum(map(size, one.values())) < most
    # the file: twice what is in it, the next one, and what comes meanwhile
    claim = redis["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"]
    assert size(claim) >= 4 * most


GROUP = 'mount -t tmpfs none /sys/fs/cgroup && echo 1073741824 > /sys/fs/cgroup/memory.max && exec "$@"'


def test_shares_are_of_what_a_container_may_have(server):  # noqa: F811
    """Not of the node's memory, of which its group has a part."""
    begin = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", GROUP, "sh"]
    if subprocess.run([*begin, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mounts here")
    server.up()
    service = client(server, server.start([*begin, BLASD, "api", "--listen", "127.0.0.1:0", "--redis", server.url, "--blobs", "redis",
                                           "--limit", "ready_workers=0"], stdout=subprocess.PIPE))
    metrics = dict(re.findall(r"^(\w+_bytes_limit) (\d+)$", service.request("GET", "/metrics").body.decode(), re.MULTILINE))
    assert int(metrics["blasd_queue_bytes_limit"]) == 512 << 20
    assert int(metrics["blasd_intake_bytes_limit"]) <= 512 << 20


# --- make demo ---------------------------------------------------------------------------------------------------------


def test_the_demo_needs_no_proxy(tmp_path):
    """Where packages come through one it stands in the environment, and knows nothing of this machine's loopback."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    away = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run([ROOT / "deploy/demo.sh"], env={**os.environ, "BLASD": str(BLASD), "TMPDIR": str(folder), **away}, cwd=tmp_path,
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(folder.iterdir()) == []


# --- Slurm -------------------------------------------------------------------------------------------------------------


# As Slurm's: a signal goes to all processes of the step.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
set -m
"$@" &
trap 'kill -TERM -- -$!' TERM
while kill -0 $! 2>/dev/null; do wait $!; done
"""


@pytest.fixture
def allocation(tmp_path):
    """The batch script over one machine: `srun` runs its command here."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "srun").write_text(SRUN)
    (tools / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    (tools / "id").write_text("#!/bin/sh\necho 'someone@physics.example'\n")  # as of a directory's users
    for tool in tools.iterdir():
        tool.chmod(0o755)
    redis, port = free_ports(2)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "BLASD": str(BLASD),
           "BLASD_HOST": "localhost", "BLASD_PORT": str(port), "BLASD_REDIS_PORT": str(redis)}
    # loopback alone, for a test
    script = SLURM.read_text().replace("0.0.0.0:$port", "127.0.0.1:$port").replace("port $redis_port\n", "port $redis_port\nbind 127.0.0.1\n")
    folder = tmp_path / 'a "folder"'
    folder.mkdir()
    process = subprocess.Popen(["bash", "-c", script], cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
    yield process, port, folder / "blasd-7"
    process.terminate()
    process.wait(120)
    process.stdout.close()


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def test_slurm_runs_a_job_and_ends(allocation):
    process, port, folder = allocation
    assert f"http://localhost:{port}" in process.stdout.readline()
    wait_for(lambda: "ready" in (folder / "api.ready").read_text() if (folder / "api.ready").exists() else False)
    service = Service(folder)
    service.port, service.headers = port, {"Authorization": f"Bearer {(folder / 'key').read_text().strip()}"}
    wait_for(lambda: service.request("GET", "/health/ready").status == 200)
    assert service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}).json()["state"] == "succeeded"
    memory = int(re.search(r"^maxmemory (\d+)mb$", (folder / "redis.conf").read_text(), re.MULTILINE)[1]) << 20
    assert 0 < memory <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    parts = [pid for pid in children(process.pid) if "blasd api" in command_line(pid)]
    told = dict(word.split("=", 1) for word in pathlib.Path(f"/proc/{parts[0]}/environ").read_text().split("\0") if word.startswith("BLASD_"))
    kept = [int(told[f"BLASD_{name}_BYTES"].removesuffix("M")) << 20 for name in ("QUEUE", "RECORD", "TENSOR")]
    assert min(kept) > 0 and sum(kept) < memory, kept  # results that found no room would keep what is queued from ending
    for name in ("key", "keys.json", "password", "redis-url", "worker-password", "worker-redis-url", "redis.conf"):
        assert (folder / name).stat().st_mode & 0o077 == 0, name
    process.terminate()
    assert process.wait(120) == 0
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(folder) not in running, running


def below(pid):
    """Pids of all that a process has started, and so on."""
    return [one for child in children(pid) for one in (child, *below(child))]


def test_slurm_replaces_a_worker(allocation):
    """One ends by itself where a computation does not stop, or a device fails; nobody else would start another."""
    process, port, folder = allocation
    workers = lambda: [pid for pid in below(process.pid) if "blasd worker" in command_line(pid)]
    ready = lambda: "blasd worker" in (folder / f"worker-{socket.gethostname()}-cpu:0.log").read_text()
    wait_for(lambda: (folder / f"worker-{socket.gethostname()}-cpu:0.log").exists() and ready())
    first, = wait_for(workers)
    os.kill(first, 9)
    wait_for(lambda: workers() not in ([], [first]))
    wait_for(lambda: (folder / "key").exists())
    service = Service(folder)
    service.port, service.headers = port, {"Authorization": f"Bearer {(folder / 'key').read_text().strip()}"}
    wait_for(lambda: service.request("GET", "/health/ready").status == 200)
    assert service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}).json()["state"] == "succeeded"
    process.terminate()
    assert process.wait(120) == 0
    assert str(folder) not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_slurm_options_are_there():
    text = SLURM.read_text().replace("\\\n", " ")
    commands = re.findall(r'(?<!\()"\$blasd" ((?:api|worker) [^>&\n]*)', text)
    assert [one.split()[0] for one in commands] == ["api", "worker"]
    for one in commands:
        check_words(one.split())


# --- the first key, as the image and the compose file start ------------------------------------------------------------


def image_words():
    """What the image runs: its entry point and, by default, these words."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    entry, command = (json.loads(re.search(rf"^{name} (\[.*\])$", text, re.MULTILINE)[1]) for name in ("ENTRYPOINT", "CMD"))
    return entry + command


def compose_words():
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return image_words()[:1] + shlex.split(services["api"]["command"])


def test_the_compose_file_asks_no_worker_for_health_and_lets_it_end():
    """The image's check asks a front end; ten seconds, which are usual, are fewer than drain_s."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    ours = {name: one for name, one in services.items() if name != "redis"}
    assert set(ours) == {"api", "worker-cpu", "worker-gpu"}
    for name, one in ours.items():
        assert (one.get("healthcheck") == {"disable": True}) == one["command"].startswith("worker"), name
        assert int(one["stop_grace_period"].removesuffix("s")) > 20 + 10, name


def test_the_image_knows_authorities():
    """Those that certificates are checked against: of a provider of tokens, a Redis, a collector, a receiver of webhooks."""
    last = (ROOT / "Dockerfile").read_text().replace("\\\n", "").rsplit("\nFROM ", 1)[1]
    assert "ca-certificates" in re.search(r"apt-get install ([^&]*)", last)[1].split()


@pytest.mark.parametrize("words", [image_words(), compose_words()], ids=["image", "compose"])
def test_the_first_start_makes_a_key(words, server, tmp_path):  # noqa: F811
    """The very words, with this folder for the container's: a key at the first start, printed once; none at the second."""
    assert words[0] == "blasd" and "--first-key" in words and "0.0.0.0:8080" in words
    places = {"0.0.0.0:8080": "0.0.0.0:0", "blasd": str(BLASD), "redis://redis:6379": server.up().url}
    words = [places.get(word, word).replace("/var/lib/blasd", f"{tmp_path}/var").replace("dir:/blobs", f"dir:{tmp_path}/blobs") for word in words]
    (tmp_path / "var").mkdir(mode=0o700)
    (tmp_path / "blobs").mkdir(mode=0o700)

    def start():
        """(what it printed, the status of /ops without a key, and a function that asks with one)"""
        with open(tmp_path / "printed", "w+b") as printed:
            process = server.start(words, stdout=subprocess.PIPE, stderr=printed)
            line = ready_line(process, 60)
            assert line and line.startswith("ready http://"), (tmp_path / "printed").read_text()
            url = f"http://127.0.0.1:{line.strip().rsplit(':', 1)[1]}/ops"
            try:
                def ask(*headers):
                    done = subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", *headers, url], capture_output=True, text=True, check=True)
                    return int(done.stdout)
                yield ask, lambda: (tmp_path / "printed").read_text()
            finally:
                process.terminate()
                rest = process.stdout.read().decode()
                assert process.wait(60) == 0 and rest == "", rest
    shape = r"blasd_[0-9a-f]{10}_[A-Za-z0-9_-]{43}"
    for ask, printed in start():
        found = re.findall(shape, printed())
        assert len(found) == 1 and "not shown again" in printed()
        assert ask() == 401 and ask("-H", f"Authorization: Bearer {found[0]}") == 200
    file = tmp_path / "var/keys.json"
    made = file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and found[0].split("_", 2)[2].encode() not in made
    for ask, printed in start():
        assert not re.search(shape, printed()) and file.read_bytes() == made
        assert ask() == 401 and ask("-H", f"Authorization: Bearer {found[0]}") == 200
