"""Tenants over HTTP: nobody reads, lists, changes or counts another's jobs, or finds his bytes in memory that is used again."""
import json
import select
import socket
import subprocess
import time

import numpy as np
import pytest
from service import BLASD, TYPES, Service, safetensors

# No service computes this by itself: as a double it is about 6.5e+170, and its bytes are these.
PATTERN = b"\xa7\x5e\x91\xc3\x6b\xd4\x61\x63"
SECRET = float(np.frombuffer(PATTERN, "<f8")[0])


class As:
    """The service as one tenant sees it."""

    def __init__(self, service, secret):
        self.service, self.secret = service, secret

    def request(self, method, path, body=None, headers=None, **more):
        return self.service.request(method, path, body, {"Authorization": f"Bearer {self.secret}", **(headers or {})}, **more)

    def submit(self, op, inputs, query="", accept=None, headers=None, **metadata):
        body = safetensors(inputs, op=op, **metadata)
        head = {"Content-Type": TYPES["safetensors"], **({"Accept": TYPES[accept]} if accept else {}), **(headers or {})}
        return self.request("POST", f"/jobs{query}", body, head)


def keys(folder, **tenants):
    """Makes a key for each, and the options of `up`; tenants by name: {"tenant": …, "role": …, …}."""
    file, secrets = folder / "keys", {}
    for name, options in tenants.items():
        words = [word for option, value in options.items() for word in (f"--{option.replace('_', '-')}", str(value))]
        made = subprocess.run([BLASD, "keys", "add", name, *words, "--file", file], capture_output=True, text=True, timeout=60)
        assert made.returncode == 0, made.stderr
        secrets[name] = made.stdout.strip()
    return file, secrets


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Ann and Ben, of two tenants, at one service."""
    folder = tmp_path_factory.mktemp("tenants")
    file, secrets = keys(folder, ann={"tenant": "ann"}, ben={"tenant": "ben"})
    service = Service(folder / "service", "--keys", file).start()
    yield As(service, secrets["ann"]), As(service, secrets["ben"])
    service.stop()


def wait_for(one, job, *states):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        document = one.request("GET", f"/jobs/{job}?wait=5").json()
        if document["state"] in states:
            return document
    raise AssertionError(document)


def same_refusal(one, other, method, path, never):
    """Another's job is refused as one that never was, but for its name."""
    answers = [one.request(method, path.replace("ID", which)) for which in (other, never)]
    bodies = [answer.body.decode().replace(which, "ID") for answer, which in zip(answers, (other, never))]
    assert [answer.status for answer in answers] == [404, 404], bodies
    assert bodies[0] == bodies[1]
    heads = [{name: value for name, value in answer.headers.items() if name not in ("Date", "Request-Id")}
             for answer in answers]
    assert {k: v for k, v in heads[0].items()} == {k: v for k, v in heads[1].items()}


@pytest.mark.first
@pytest.mark.parametrize("how", ["?wait=30", "", "small", "large"])
def test_anothers_job_is_one_that_never_was(two, how):
    ann, ben = two
    size = {"small": 2, "large": 300}.get(how, 40)
    a = np.full((size, size), 3.0)
    answer = ann.submit("matmul", {"a": a, "b": a}, how if how.startswith("?") else "?wait=30")
    job = answer.json()["id"]
    never = job[:9] + "0123456789abcdef" * 2
    for method, path in [("GET", "/jobs/ID"), ("GET", "/jobs/ID?wait=1"), ("GET", "/jobs/ID/result"), ("GET", "/jobs/ID/outputs/c"),
                         ("DELETE", "/jobs/ID"), ("DELETE", "/jobs/ID?forget=1")]:
        same_refusal(ben, job, method, path, never)
    assert ann.request("GET", f"/jobs/{job}").json()["state"] == "succeeded"
    assert job in [one["id"] for one in ann.request("GET", "/jobs?limit=100").json()["jobs"]]
    assert job not in ben.request("GET", "/jobs?limit=100").body.decode()
    assert ann.request("DELETE", f"/jobs/{job}?forget=1").status == 200


def test_queued_and_running_jobs_are_hidden_too(two):
    ann, ben = two
    a = np.full((1200, 1200), 1.0)
    jobs = [ann.submit("solve", {"a": np.eye(1200) * 2, "b": a}).json()["id"] for _ in range(6)]
    try:
        for job in jobs:
            never = job[:9] + "0123456789abcdef" * 2
            for method in ("GET", "DELETE"):
                same_refusal(ben, job, method, "/jobs/ID", never)
        for state in ("queued", "running", "succeeded", "cancelled"):
            assert ben.request("GET", f"/jobs?state={state}").json()["jobs"] == []
    finally:
        for job in jobs:
            ann.request("DELETE", f"/jobs/{job}")
    for job in jobs:
        assert wait_for(ann, job, "succeeded", "cancelled")
        ann.request("DELETE", f"/jobs/{job}?forget=1")


def test_an_idempotency_key_is_ones_own(two):
    a = np.full((3, 3), 1.0)
    ids = [one.submit("matmul", {"a": a, "b": a * (1 + number)}, "?wait=30", headers={"Idempotency-Key": "same"}).json()["id"]
           for number, one in enumerate(two)]
    assert ids[0] != ids[1]
    for number, one in enumerate(two):
        again = one.submit("matmul", {"a": a, "b": a * (1 + number)}, "?wait=30", headers={"Idempotency-Key": "same"})
        assert again.json()["id"] == ids[number]


def test_who_ran_beside_it_is_nobodys_business(two):
    """Jobs of two tenants that could run as one do not: batch_size tells of one's own."""
    ann, ben = two
    a = np.full((4, 4), 2.0)
    with ann.service.worker_held():
        mine = [ann.submit("matmul", {"a": a, "b": a}).json()["id"] for _ in range(3)]
        theirs = [ben.submit("matmul", {"a": a, "b": a}).json()["id"] for _ in range(20)]
    for one, jobs in ((ann, mine), (ben, theirs)):
        for job in jobs:
            document = wait_for(one, job, "succeeded")
            assert document["execution"]["batch_size"] <= len(jobs)


def test_what_workers_do_is_not_told_to_everybody(tmp_path):
    file, secrets = keys(tmp_path, ann={"tenant": "ann"}, reader={"tenant": "ann", "role": "read"},
                         watcher={"role": "metrics"}, admin={"role": "admin"})
    service = Service(tmp_path / "service", "--keys", file).start()
    try:
        ones = {name: As(service, secret) for name, secret in secrets.items()}
        ones["ann"].submit("matmul", {"a": np.eye(3), "b": np.eye(3)}, "?wait=30")
        seen = {name: one.request("GET", "/devices").json() for name, one in ones.items()}
        for name, document in seen.items():
            told = name in ("watcher", "admin")
            assert ("queue" in document) == told
            for device in document["devices"]:
                for work in ("jobs", "failed", "batches", "running", "busy_s", "busy_share", "jobs_per_s", "memory_free_bytes"):
                    assert (work in device) == told, (name, work)
        assert ones["watcher"].request("GET", "/metrics").status == 200
        for name in ("ann", "reader"):
            assert ones[name].request("GET", "/metrics").status == 403
    finally:
        service.stop(check=False)


def test_a_dry_run_counts_nobody_elses_jobs(tmp_path):
    """What it predicts of the queue tells neither how many jobs others have nor how long these take."""
    file, secrets = keys(tmp_path, ann={"tenant": "ann"}, ben={"tenant": "ben"}, admin={"role": "admin"})
    service = Service(tmp_path / "service", "--keys", file).start()
    try:
        ones = {name: As(service, secret) for name, secret in secrets.items()}
        job = json.dumps({"op": "matmul", "inputs": {"a": [[1]], "b": [[2]]}})

        def queue_ms(name):
            answer = ones[name].request("POST", "/jobs?dry_run=1", job)
            assert answer.status == 200, answer.body
            return answer.json()["predicted"]["queue_ms"]

        assert ones["ann"].request("POST", "/jobs?wait=30", job).status == 200
        with service.worker_held():
            for _ in range(3):
                assert ones["ann"].request("POST", "/jobs", job).status == 202
            assert queue_ms("ben") == 0
            assert queue_ms("ann") > 0
            assert queue_ms("admin") > 0  # who may see it in /metrics, too
            assert ones["ben"].request("POST", "/jobs", job).status == 202
            of_one = queue_ms("ben")
            assert 0 < of_one < queue_ms("ann")
            assert ones["ben"].request("POST", "/graphs", json.dumps(
                {"steps": {"s": {"op": "matmul", "inputs": {"a": [[1]], "b": [[2]]}}}, "results": ["s"]})).status == 202
            assert queue_ms("ben") > of_one
    finally:
        service.stop(check=False)


def test_quotas_refuse_their_tenant_alone(tmp_path):
    file, secrets = keys(tmp_path, few={"tenant": "few", "max_jobs": 2}, small={"tenant": "small", "max_bytes": 1000},
                         full={"tenant": "full", "max_stored_bytes": 1}, free={"tenant": "free"})
    service = Service(tmp_path / "service", "--keys", file).start()
    try:
        ones = {name: As(service, secret) for name, secret in secrets.items()}
        a = np.eye(5)

        def refused(one, name, limit, wait=""):
            answer = one.submit("matmul", {"a": a, "b": a}, wait)
            assert answer.status == 429 and answer.json()["code"] == "quota_exceeded", answer.body
            assert answer.headers["RateLimit-Policy"] == f'"{name}";q={limit}'
            assert answer.headers["RateLimit"].startswith(f'"{name}";r=0;t=')
            assert int(answer.headers["Retry-After"]) > 0

        with service.worker_held():
            mine = [ones["few"].submit("matmul", {"a": a, "b": a}).json()["id"] for _ in range(2)]
            refused(ones["few"], "queued-jobs", 2)
            ones["small"].submit("matmul", {"a": a, "b": a})  # 600 bytes
            refused(ones["small"], "queued-bytes", 1000)
            refused(ones["small"], "queued-bytes", 1000, "?wait=1")
            assert ones["free"].submit("matmul", {"a": a, "b": a}).status == 202
        for job in mine:
            wait_for(ones["few"], job, "succeeded")
        assert ones["few"].submit("matmul", {"a": a, "b": a}, "?wait=30").status == 200
        job = ones["full"].submit("matmul", {"a": a, "b": a}, "?wait=30").json()["id"]
        refused(ones["full"], "stored-bytes", 1)
        assert ones["full"].request("DELETE", f"/jobs/{job}?forget=1").status == 200
        assert ones["full"].submit("matmul", {"a": a, "b": a}, "?wait=30").status == 200
    finally:
        service.stop(check=False)


def test_a_file_that_is_shared_is_one_tenants(tmp_path):
    file, secrets = keys(tmp_path, ann={"tenant": "ann"}, ben={"tenant": "ben"})
    service = Service(tmp_path / "service", "--share", "--keys", file).start()
    try:
        ann, ben = (As(service, secrets[name]) for name in ("ann", "ben"))
        told = ann.request("GET", "/share").json()
        assert len(told["prefix"]) == 16 and told["prefix"] != ben.request("GET", "/share").json()["prefix"]
        import blasd
        for one, other in ((ann, ben), (ben, ann)):
            client = blasd.Client(service.url, api_key=one.secret, share=True)
            arrays = client.shared(a=((300, 300), "float64"), b=((300, 300), "float64"))
            arrays["a"][...], arrays["b"][...] = 2, np.eye(300)
            np.testing.assert_array_equal(client.run("matmul", **arrays)["c"], arrays["a"])
            head = {"Body-File": arrays.file.name, "Content-Type": TYPES["safetensors"]}
            answer = other.request("POST", "/jobs?op=matmul&wait=30", headers=head)
            assert answer.status == 422 and answer.json()["code"] == "body_file_refused"
            assert one.request("POST", "/jobs?op=matmul&wait=30", headers=head).status == 200
            client.close()
    finally:
        service.stop(check=False)


# --- hygiene: bytes of one tenant in what another one gets ----------------------------------------------------------

def mark(one, side):
    """Leaves the pattern in requests, in memory and in files of that size, as inputs and as outputs."""
    a = np.full((side, side), SECRET)
    for _ in range(4):
        body = one.submit("matmul", {"a": a, "b": np.eye(side)}, "?wait=30", accept="safetensors").body
        assert PATTERN in body  # it is there to be found
        text = json.dumps({"op": "matmul", "inputs": {"a": a[:30, :30].tolist(), "b": np.eye(min(side, 30)).tolist()}})
        assert one.request("POST", "/jobs?wait=30", text, {"Content-Type": "application/json"}).status == 200
    for _ in range(3):
        job = one.submit("solve", {"a": np.eye(side), "b": a}).json()["id"]
        wait_for(one, job, "succeeded")
        assert one.request("DELETE", f"/jobs/{job}?forget=1").status == 200  # its files are used again


HUNTED = [  # (op, inputs by side, params): outputs of every kind, whole, empty, short, and those of failures
    ("matmul", lambda n: {"a": np.ones((n, n)), "b": np.ones((n, n))}, {}),
    ("matmul", lambda n: {"a": np.ones((n, 0)), "b": np.ones((0, n))}, {}),
    ("matmul", lambda n: {"a": np.ones((0, n)), "b": np.ones((n, n))}, {}),
    ("matmul", lambda n: {"a": np.ones((n, n), np.float32), "b": np.ones((n, 1), np.float32)}, {}),
    ("solve", lambda n: {"a": np.eye(n) * 2, "b": np.ones((n, n))}, {}),
    ("solve", lambda n: {"a": np.zeros((n, n)), "b": np.ones((n, n))}, {}),
    ("solve", lambda n: {"a": np.stack([np.eye(n), np.zeros((n, n))]), "b": np.ones((2, n, 1))}, {}),
    ("distance", lambda n: {"x": np.ones((n, 3)), "y": np.ones((n, 3))}, {}),
    ("distance", lambda n: {"x": np.arange(3.0 * n).reshape(n, 3)}, {"output": "condensed"}),
    ("distance", lambda n: {"x": np.arange(3.0 * n).reshape(n, 3)}, {"output": "topk", "k": 2}),
    ("distance", lambda n: {"x": np.arange(3.0 * n).reshape(n, 3)}, {"output": "within", "radius": 6.0}),
    ("distance", lambda n: {"x": np.full((n, 3), np.nan)}, {}),
    ("regression", lambda n: {"x": np.arange(2.0 * n).reshape(n, 2) % 7, "y": np.arange(1.0 * n)}, {"residuals": True}),
    ("regression", lambda n: {"x": np.arange(2.0 * n).reshape(n, 2) % 7, "y": np.arange(1.0 * n)},
     {"method": "lasso", "alpha": 0.1}),
]


def hunt(one, side):
    """Whatever the answer is, the pattern is not in it."""
    for op, inputs, params in HUNTED:
        for accept in ("safetensors", "json"):
            answer = one.submit(op, inputs(side), "?wait=30", accept=accept, params=json.dumps(params))
            assert PATTERN not in answer.body, (op, side, params)
            assert repr(SECRET).encode() not in answer.body and b"%.6e" % SECRET not in answer.body, (op, side, params)
            if answer.status != 200:
                continue
            document = answer.json() if answer.headers["Content-Type"] == TYPES["json"] else answer.safetensors()[1]
            job = document["id"]
            for path in (f"/jobs/{job}/result", *(f"/jobs/{job}/outputs/{name}" for name in ("c", "x", "d", "coef", "indices"))):
                for form in ("npy", "safetensors"):
                    got = one.request("GET", path, headers={"Accept": TYPES[form]}, check=False).body
                    assert PATTERN not in got, (op, side, params, path)
            assert one.request("DELETE", f"/jobs/{job}?forget=1").status in (200, 404)


@pytest.mark.parametrize("side", [5, 60, 260])  # beside the frame, in segments, in files of their own
def test_no_byte_of_another_is_found(two, side):
    ann, ben = two
    for _ in range(2):
        mark(ann, side)
        hunt(ben, side)


@pytest.mark.parametrize("side", [5, 60, 260])
def test_a_body_that_ends_early_shows_nothing(two, side):
    """Of a body with less in it than its header says no job is made, so no memory of others' becomes an input."""
    ann, ben = two
    mark(ann, side)
    whole = safetensors({"a": np.ones((side, side)), "b": np.eye(side)}, op="matmul")
    for cut in (8 * side, 8, 1):
        answer = ben.request("POST", "/jobs?wait=30", whole[:-cut], {"Content-Type": TYPES["safetensors"]})
        assert answer.status in (400, 422) and PATTERN not in answer.body
    text = json.dumps({"op": "matmul", "inputs": {"a": {"dtype": "float64", "shape": [side, side], "data": [1.0] * (side * side - 1)},
                                                  "b": [[1.0]]}})
    answer = ben.request("POST", "/jobs?wait=30", text, {"Content-Type": "application/json"})
    assert answer.status == 422 and PATTERN not in answer.body


def test_bodies_of_one_tenant_leave_room_for_those_of_others(tmp_path):
    """Ann announces bodies that never come, as many as she may; Ben's is taken."""
    file, secrets = keys(tmp_path, ann={"tenant": "ann"}, ben={"tenant": "ben"})
    service = Service(tmp_path / "service", "--keys", file, "--limit", "intake_bytes=64M", "--limit", "body_bytes=64M").start()
    head = (f"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: {TYPES['safetensors']}\r\n"
            f"Content-Length: {4 << 20}\r\nAuthorization: Bearer {secrets['ann']}\r\n\r\n").encode()
    held = []
    try:
        for _ in range(40):
            held.append(socket.create_connection(("127.0.0.1", service.port), timeout=60))
            held[-1].sendall(head + b"x")
        answered, _, _ = select.select(held, [], [], 60)
        refused = answered[0].recv(4096)
        assert b"no_space" in refused and b"limit intake_bytes" in refused
        a = np.eye(700)  # 7.8 MB for both
        ben = As(service, secrets["ben"])
        assert ben.submit("matmul", {"a": a, "b": a}, "?wait=30").json()["state"] == "succeeded"
    finally:
        for one in held:
            one.close()
        service.stop()


def test_an_admin_reaches_jobs_of_all_tenants_by_id(tmp_path):
    """To look, to fetch and to cancel; its own list stays its own, and other roles reach what they did."""
    file, secrets = keys(tmp_path, ann={"tenant": "ann"}, ben={"tenant": "ben"}, watcher={"role": "metrics"}, root={"role": "admin", "tenant": "ops"})
    service = Service(tmp_path / "service", "--keys", file).start()
    try:
        ones = {name: As(service, secret) for name, secret in secrets.items()}
        ann, root = ones["ann"], ones["root"]
        job = json.dumps({"op": "matmul", "inputs": {"a": [[1]], "b": [[2]]}})
        graph = json.dumps({"steps": {"s": {"op": "matmul", "inputs": {"a": [[1]], "b": [[2]]}}}, "results": ["s"]})
        done = ann.request("POST", "/jobs?wait=30", job).json()["id"]
        assert root.request("GET", f"/jobs/{done}").json() == ann.request("GET", f"/jobs/{done}").json()
        assert root.request("GET", f"/jobs/{done}/outputs/c", headers={"Accept": "application/x-npy"}).status == 200
        with service.worker_held():
            for path, body in (("/jobs", job), ("/graphs", graph)):
                made = ann.request("POST", path, body)
                assert made.status == 202, made.body
                made = f"{path}/{made.json()['id']}"
                for name in ("ben", "watcher"):
                    assert ones[name].request("DELETE", made).status in (403, 404)
                assert root.request("GET", made).json()["state"] == "queued"
                assert root.request("DELETE", made).json()["state"] == "cancelled"
                assert ann.request("GET", made).json()["state"] == "cancelled"
        assert root.request("GET", "/jobs").json()["jobs"] == []
        assert root.request("GET", f"/jobs/{done[:-1]}{'0' if done[-1] != '0' else '1'}").status == 404
    finally:
        service.stop(check=False)
