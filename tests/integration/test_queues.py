"""Several queues (--queues): what is spread over them, what stays together, and what goes on while one of them is away."""
import contextlib
import http.client
import json
import os
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
from service import BLASD, TYPES, Redis, multipart, npy, until, wait_for
from test_cluster import Cluster, begin, make  # noqa: F401 (a fixture)
from test_redis import client

JSON = {"Content-Type": TYPES["json"]}
THREE = ("--queues", "3")
TAGS = ("{blasd}", "{blasd:1}", "{blasd:2}")


def queue_of(ident):
    """The number of the queue that an id says."""
    return int(ident[9:11], 16)


def totals(ask, what):
    return sum(int(ask(tag)("HGET", f"{tag}:totals", f"matmul {what}") or 0) for tag in TAGS)


def body(value, **more):
    return json.dumps({"op": "matmul", "inputs": {"a": [[float(value)]], "b": [[2.0]]}, **more})


def post(service, value, path="/jobs?wait=30", headers=None, **more):
    return service.request("POST", path, body(value, **more), {**JSON, **(headers or {})}, timeout=90)


# --- one Redis ------------------------------------------------------------------------------------------------------


def test_jobs_are_spread_and_what_belongs_together_is_not(make_service):
    service = make_service(*THREE)
    assert {queue_of(post(service, i).json()["id"]) for i in range(12)} == {0, 1, 2}  # in turn
    later = {queue_of(post(service, i, "/jobs").json()["id"]) for i in range(6)}
    keyed = {queue_of(post(service, i, headers={"Idempotency-Key": str(i)}).json()["id"]) for i in range(6)}
    tensors = {queue_of(service.request("POST", "/tensors", npy(np.ones(3)), {"Content-Type": TYPES["npy"]}).json()["id"])
               for _ in range(3)}
    assert later == keyed == tensors and len(later) == 1  # the tenant's home
    one, two = (post(service, 7, path, {"Idempotency-Key": "again"}).json()["id"] for path in ("/jobs", "/jobs?wait=30"))
    assert one == two


def test_who_counts_otherwise_is_refused(make_service):
    service = make_service(*THREE)
    url = f"file:{service.folder}/data/redis.url"
    blobs = f"dir:{store_of(service)}"
    for count in (1, 2, 4):
        for command in ("api", "worker"):
            more = ("--listen", "127.0.0.1:0") if command == "api" else ("--measured", "none")
            ended = subprocess.run([BLASD, command, "--redis", url, "--blobs", blobs, "--queues", str(count), *more],
                                   capture_output=True, text=True, timeout=60)
            assert ended.returncode == 1 and f"counts {count} queues, but the deployment has 3" in ended.stderr, ended.stderr
            assert "--queues 3" in ended.stderr
    service.stop()
    service.options = ("--workers", "1", "--queues", "1")  # what is queued there would not be found
    with pytest.raises(AssertionError, match="counts 1 queues, but the deployment has 3"):
        service.start()


def test_names_and_numbers(make_service):
    for words, says in ((("--queues", "0"), "from 1 to 16"), (("--queues", "17"), "from 1 to 16"), (("--queue", "a:1"), "no colon")):
        ended = subprocess.run([BLASD, "api", "--redis", "unix:/tmp/none", *words], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 2 and says in ended.stderr, ended.stderr


def test_all_queues_together_hold_what_is_promised(make_service):
    """The limit is that of all: none is refused before, and none is taken beyond."""
    service = make_service(*THREE, "--limit", "queue_jobs=10", "--limit", "queue_wait_ms=0")
    with service.worker_held():
        answers = [post(service, i, "/jobs") for i in range(14)]
        assert [a.status for a in answers] == [202] * 10 + [429] * 4
        assert answers[-1].json()["code"] == "queue_full"
        assert {queue_of(a.json()["id"]) for a in answers[:10]} == {0, 1, 2}  # beyond its home
        metrics = service.metrics()
        assert metrics["blasd_queue_jobs"] == 10 and metrics["blasd_queue_jobs_limit"] == 10
    for answer in answers[:10]:
        assert until(service, answer.json()["id"], ("succeeded",))


def test_a_queue_that_takes_no_jobs_is_passed_over(make_service):
    service = make_service(*THREE)
    redis = Redis(service)
    home = queue_of(post(service, 0, "/jobs").json()["id"])
    redis("SET", f"{TAGS[home]}:refused", "a full disk")
    wait_for(lambda: (answer := post(service, 1, "/jobs")).status == 202 and queue_of(answer.json()["id"]) != home)
    assert {queue_of(post(service, i).json()["id"]) for i in range(6)} == {0, 1, 2} - {home}
    wait_for(lambda: service.request("GET", "/health/ready").status == 200)  # the others may not have told of the worker yet
    keyed = post(service, 1, headers={"Idempotency-Key": "k"})  # which may be at home alone
    assert keyed.status in (503, 507) and "a full disk" in keyed.json()["detail"], keyed.body
    redis("DEL", f"{TAGS[home]}:refused")
    wait_for(lambda: queue_of(post(service, 1, "/jobs").json()["id"]) == home)
    redis.close()


def test_a_worker_that_one_queue_knows_serves_all(make_service):
    """A worker registers with one after the other, and a front end hears of it once a second from each."""
    service = make_service(*THREE)
    redis = Redis(service)
    with service.worker_held():
        redis("DEL", "{blasd:1}:workers")
        time.sleep(1.5)  # until the front end has asked
        assert int(redis("HLEN", "{blasd:1}:workers") or 0) == 0
        jobs = [post(service, i, "/jobs", device="cpu") for i in range(3)]
        waited = [service.request("POST", "/jobs?wait=0.1", body(i, device="cpu"), JSON) for i in range(6)]
        assert {a.status for a in jobs + waited} == {202}, [a.body for a in jobs + waited]
        assert 1 in {queue_of(a.json()["id"]) for a in waited}
    for answer in jobs + waited:
        assert until(service, answer.json()["id"], ("succeeded",))
    redis.close()


def ends(redis, tag):
    """When jobs of the queue ended, in ms on Redis' clock."""
    return [int(entry[0].split(b"-")[0]) for entry in redis("XRANGE", f"{tag}:ended", "-", "+")]


def test_a_job_of_high_priority_waits_for_a_claim_of_another_queue_and_no_more(make_service):
    """Whatever waits in one queue, a worker that is at it looks at the others between two claims."""
    service = make_service(*THREE, "--limit", "claim_jobs=2", "--limit", "ended_jobs=100000")
    redis = Redis(service)
    left = lambda queue: int(redis("HGET", f"{TAGS[queue]}:count", "jobs") or 0)  # noqa: E731
    home = queue_of(post(service, 0, "/jobs").json()["id"])
    some = npy(np.ones((300, 300)))  # some milliseconds
    form = multipart({"op": "matmul", "priority": "low", "a": some, "b": some})
    for tag in TAGS:
        redis("DEL", f"{tag}:ended")
    for count in (100, 200, 400, 800):  # of too few none is left once it is seen that it has begun
        with service.worker_held():
            for _ in range(count):
                assert service.request("POST", "/jobs", form, {"Content-Type": TYPES["multipart"]}).status == 202
        wait_for(lambda: left(home) < count - 4)  # it is at these, and has found the others empty
        with service.worker_held():
            before = left(home)
            answers = [post(service, i, "/jobs?wait=0.05", priority="high") for i in range(3)]
            assert {answer.status for answer in answers} == {202}
        wait_for(lambda: not any(map(left, range(3))), seconds=300)
        if before > 40:
            break
    assert before > 40
    queues = {queue_of(answer.json()["id"]) for answer in answers} - {home}
    assert queues
    for queue in queues:
        (high,) = ends(redis, TAGS[queue])[-1:]
        behind = sum(low > high for low in ends(redis, TAGS[home]))  # turns of two at the most
        assert behind > before / 4, f"{behind} turns: {before} jobs of low priority waited in another queue"
    redis.close()


def test_a_job_that_refers_goes_where_that_lies(make_service):
    service = make_service(*THREE)
    n = 300  # too large to be copied
    a = np.arange(n * n, dtype=float).reshape(n, n) % 7
    made = [service.post("matmul", {"a": a, "b": np.eye(n)}, form="safetensors").json()["id"] for _ in range(3)]
    assert {queue_of(job) for job in made} == {0, 1, 2}
    for job in made:
        used = service.request("POST", "/jobs?wait=30", json.dumps({"op": "matmul", "inputs": {
            "a": {"job": job, "output": "c"}, "b": {"eye": n}}}), JSON).json()
        assert used["state"] == "succeeded" and queue_of(used["id"]) == queue_of(job)
        got = service.request("GET", f"/jobs/{used['id']}/outputs/c", headers={"Accept": TYPES["npy"]})
        np.testing.assert_array_equal(got.npy(), a)
    apart = service.request("POST", "/jobs?wait=30", json.dumps({"op": "matmul", "inputs": {
        "a": {"job": made[0], "output": "c"}, "b": {"job": made[1], "output": "c"}}}), JSON)
    assert apart.status == 422 and apart.json()["code"] == "invalid_reference" and "another queue" in apart.json()["detail"]
    small = [post(service, value).json()["id"] for value in (3, 4, 5)]
    assert len({queue_of(job) for job in small}) > 1
    near = service.request("POST", "/jobs?wait=30", json.dumps({"op": "matmul", "inputs": {
        "a": {"job": small[0], "output": "c"}, "b": {"job": small[1], "output": "c"}}}), JSON).json()
    assert near["outputs"]["c"]["data"] == [[48.0]]


def test_inputs_in_a_file_follow_the_job_to_another_queue(make_service):
    """A large body is in a blob before it is known what else the job refers to."""
    service = make_service(*THREE)
    n = 400
    big = np.arange(n * n, dtype=float).reshape(n, n) % 5
    tensor = service.request("POST", "/tensors", npy(np.eye(n)), {"Content-Type": TYPES["npy"]}).json()["id"]
    for _ in range(6):  # in turn: at least some begin in another queue than the tensor's
        form = {"op": "matmul", "a": npy(big), "inputs": json.dumps({"b": {"tensor": tensor}})}
        answer = service.request("POST", "/jobs?wait=60", multipart(form), {"Content-Type": TYPES["multipart"], "Accept": TYPES["npy"]})
        assert answer.status == 200, answer.body
        np.testing.assert_array_equal(answer.npy(), big)
    wait_for(lambda: not [name for name in os.listdir(store_of(service)) if name.endswith(".in") and not name.startswith(tensor)])


def test_blobs_that_are_keys_of_their_queue(make_service):
    service = make_service(*THREE, "--blobs", "redis")
    n = 400
    big = np.arange(n * n, dtype=float).reshape(n, n) % 5
    tensor = service.request("POST", "/tensors", npy(np.eye(n)), {"Content-Type": TYPES["npy"]}).json()["id"]
    queues = set()
    for _ in range(4):
        plain = service.post("matmul", {"a": big, "b": np.eye(n)}, form="safetensors").json()
        assert plain["state"] == "succeeded"
        queues.add(queue_of(plain["id"]))
        got = service.request("GET", f"/jobs/{plain['id']}/outputs/c", headers={"Accept": TYPES["npy"]})
        np.testing.assert_array_equal(got.npy(), big)
        form = {"op": "matmul", "a": npy(big), "inputs": json.dumps({"b": {"tensor": tensor}})}
        answer = service.request("POST", "/jobs?wait=60", multipart(form), {"Content-Type": TYPES["multipart"], "Accept": TYPES["npy"]})
        np.testing.assert_array_equal(answer.npy(), big)
    assert queues == {0, 1, 2}


def store_of(service):
    for pid in [service.part("worker")]:
        for link in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                folder = os.readlink(f"/proc/{pid}/fd/{link}")
                if os.path.exists(os.path.join(folder, ".store")):
                    return folder
    raise AssertionError("no store")


# --- a Redis for each ------------------------------------------------------------------------------------------------


class Masters(Cluster):
    """Three masters, each with the slot of one queue."""

    def __init__(self, make):
        super().__init__(make, node_timeout_ms=3000, full_coverage="no")
        self.slots = {tag: self.nodes[0].ask("CLUSTER", "KEYSLOT", tag) for tag in TAGS}
        for node, tag in zip(self.nodes, TAGS):
            self.slot = self.slots[tag]
            if wait_for(self.owner) is not node:
                self.move(node)
        self.by_tag = {tag: node for node, tag in zip(self.nodes, TAGS)}

    def ask(self, tag):
        return self.by_tag[tag].ask

    def carry(self, tag, target):
        self.slot = self.slots[tag]
        self.move(target)
        self.by_tag[tag] = target


class Mixed:
    """Clients of several tenants, whose homes are all queues: half of them send jobs with keys until these are acknowledged, half
    wait for jobs without, which may be taken though the answer is that nobody knows."""

    def __init__(self, service, headers):
        self.service, self.acked, self.unsure, self.wrong, self.stopping = service, [], 0, [], False
        self.waited = 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=send, args=(who,), daemon=True) for who in headers
                        for send in (self.send_keyed, self.send_waiting)]
        for thread in self.threads:
            thread.start()

    def note(self, job, value, who, waited):
        with self.lock:
            self.acked.append((job, value, who))
            self.waited += waited

    def send_keyed(self, who):
        i = 0
        while not self.stopping:
            while True:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    answer = post(self.service, i, "/jobs", {**who, "Idempotency-Key": str(i)})
                    if answer.status in (200, 202):
                        break
                    if answer.status not in (429, 503):
                        self.wrong.append(answer.body)
                        return
                time.sleep(0.02)
            self.note(answer.json()["id"], 2.0 * i, who, 0)
            i += 1

    def send_waiting(self, who):
        i = 0
        while not self.stopping:
            try:
                answer = post(self.service, i, headers=who)
            except (OSError, http.client.HTTPException):
                answer = None
            if answer is not None and answer.status in (200, 202):
                self.note(answer.json()["id"], 2.0 * i, who, 1)
            elif answer is None or answer.status == 503:
                with self.lock:
                    self.unsure += 1
            elif answer.status != 429:
                self.wrong.append(answer.body)
                return
            i += 1

    def more(self, count, waited=False):
        """Waits until so many more jobs have been acknowledged."""
        def so_far():
            return self.waited if waited else len(self.acked)
        most = so_far() + count
        wait_for(lambda: self.wrong or so_far() >= most)

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join(120)
        assert not self.wrong, self.wrong

    def check(self, ask):
        """Every acknowledged job has ended once and right; of the others no more than may have been taken."""
        def document(job, who):
            answer = self.service.request("GET", f"/jobs/{job}", headers=who)
            if answer.status == 503 or answer.json().get("state") in ("queued", "running"):
                return None
            return answer
        for job, value, who in self.acked:
            answer = wait_for(lambda: document(job, who), job)
            assert answer.status == 200, (job, answer.body)
            assert answer.json()["state"] == "succeeded" and answer.json()["outputs"]["c"]["data"] == [[value]], answer.body
        assert len({job for job, _, _ in self.acked}) == len(self.acked)
        wait_for(lambda: totals(ask, "submitted") == totals(ask, "succeeded"))
        assert len(self.acked) <= totals(ask, "submitted") <= len(self.acked) + self.unsure


def tenants(folder, count):
    """A file of keys, and the headers of each tenant, the last of an admin."""
    file, headers = folder / "keys.json", []
    for n in range(count + 1):
        made = subprocess.run([BLASD, "keys", "add", f"k{n}", "--tenant", f"t{n}", "--role", "user" if n < count else "admin",
                               "--file", file], check=True, capture_output=True)
        headers.append({"Authorization": "Bearer " + made.stdout.decode().strip()})
    return file, headers


@pytest.mark.full
def test_one_master_is_killed_and_one_slot_moved_under_load(make):  # noqa: F811
    cluster = Masters(make)
    file, (*headers, admin) = tenants(cluster.home.folder, 6)
    api = cluster.home.api("--redis", cluster.url, *THREE, "--keys", file, "--limit", "record_sync_s=3600")
    service = client(cluster.home, api)
    service.headers = admin
    workers = [cluster.home.worker("--redis", cluster.url, *THREE, "--measured", "none", "--name", f"w{n}") for n in range(2)]
    service.wait_ready()
    load = Mixed(service, headers)
    load.more(200)
    dead = cluster.by_tag["{blasd:1}"]
    dead.down()
    load.more(20)
    load.more(100, waited=True)  # the others go on
    assert service.request("GET", "/health/ready").status == 200
    assert service.request("GET", "/metrics").status == 200
    assert len(service.request("GET", "/devices").json()["devices"]) == 2
    dead.up(*dead.options)
    load.more(200)
    cluster.carry("{blasd:2}", cluster.by_tag["{blasd}"])
    load.more(200)
    load.stop()
    assert {queue_of(job) for job, _, _ in load.acked} == {0, 1, 2}
    load.check(cluster.ask)
    assert all(totals_of(cluster, tag) > 20 for tag in TAGS)
    assert all(process.poll() is None for process in (api, *workers))
    for process in workers:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.full
def test_one_master_stands_still_under_load(make):  # noqa: F811
    """It closes nothing and answers nothing; whoever spoke to it gives up after some seconds."""
    cluster = Masters(make)
    file, (*headers, admin) = tenants(cluster.home.folder, 4)
    api = cluster.home.api("--redis", cluster.url, *THREE, "--keys", file, "--limit", "record_sync_s=3600")
    service = client(cluster.home, api)
    service.headers = admin
    worker = cluster.home.worker("--redis", cluster.url, *THREE, "--measured", "none")
    service.wait_ready()
    load = Mixed(service, headers)
    load.more(100)
    still = cluster.by_tag["{blasd:2}"].redis.pid
    os.kill(still, signal.SIGSTOP)
    load.more(100, waited=True)
    wait_for(lambda: service.request("GET", "/metrics").status == 200)
    load.more(100, waited=True)
    os.kill(still, signal.SIGCONT)
    load.more(100)
    load.stop()
    load.check(cluster.ask)
    assert all(process.poll() is None for process in (api, worker))


def totals_of(cluster, tag):
    return int(cluster.ask(tag)("HGET", f"{tag}:totals", "matmul succeeded") or 0)


def test_a_worker_begins_with_the_queues_that_it_reaches(make):  # noqa: F811
    cluster = Masters(make)
    dead = cluster.by_tag["{blasd}"]
    dead.down()
    wait_for(lambda: b"cluster_state:ok" in cluster.by_tag["{blasd:1}"].ask("CLUSTER", "INFO"))
    service, processes = begin(cluster.home, cluster.url, *THREE)
    for i in range(20):
        answer = post(service, i)
        assert answer.status == 200 and answer.json()["state"] == "succeeded", answer.body
    dead.up(*dead.options)
    wait_for(lambda: queue_of(post(service, 1).json()["id"]) == 0)
    assert all(process.poll() is None for process in processes)
