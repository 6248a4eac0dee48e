"""Tensors that a device keeps a copy of: their documents say so, and results are what they were. The card is the stand-in that the
CUDA backend's own tests use."""
import json
import os
import signal
import threading

import numpy as np
import pytest
from service import Redis, wait_for
from test_batch_entries import expect_nothing_left
from test_device_choice import devices, worker_of


def put(service, array):
    answer = service.request("POST", "/tensors", json.dumps(array.tolist()), {"Content-Type": "application/json"})
    assert answer.status == 201, answer.json()
    return answer.json()


def ask(service, a, b, device="cuda"):
    job = {"op": "matmul", "device": device, "inputs": {"a": a, "b": b}}
    answer = service.request("POST", "/jobs?wait=30", json.dumps(job), {"Content-Type": "application/json"})
    return answer.json() if answer.status == 200 else {"state": "refused"}


def product(service, a, b, device="cuda"):
    answer = ask(service, a, b, device)
    assert answer["state"] == "succeeded", answer
    return np.array(answer["outputs"]["c"]["data"])


def location(service, tensor):
    return service.request("GET", f"/tensors/{tensor['id']}").json()["location"]


def test_a_tensor_that_jobs_use_is_on_the_device(with_card):
    service = with_card()
    service.start()
    wait_for(lambda: len(devices(service)) == 2, "both devices")
    wait_for(lambda: ask(service, [[2]], [[3]])["state"] == "succeeded", "the front end has looked at them")
    a = np.random.default_rng(5).integers(-9, 9, (128, 128)).astype(float)
    used, other, small = put(service, a), put(service, a + 1), put(service, a[:4, :4])
    assert used["location"] == "host"
    for _ in range(3):
        assert np.array_equal(product(service, {"tensor": used["id"]}, a[:, :3].tolist()), a @ a[:, :3])
        product(service, {"tensor": small["id"]}, a[:4, :2].tolist())
        product(service, {"tensor": other["id"]}, a[:, :3].tolist(), "cpu")
    wait_for(lambda: location(service, used) == "cuda:0", "the device has told of it")
    assert location(service, other) == "host" and location(service, small) == "host"
    listed = {t["id"]: t["location"] for t in service.request("GET", "/tensors").json()["tensors"]}
    assert listed == {used["id"]: "cuda:0", other["id"]: "host", small["id"]: "host"}
    # a part of it, turned round: other elements at the same place
    for part, of in (([[0, 128], [0, 100]], a[:, :100]), ([[0, 100], [0, 128]], a[:100]), ([[0, 128], [28, 128]], a[:, 28:])):
        reference, b = {"tensor": used["id"], "slice": part}, a[:of.shape[1], :2]
        for _ in range(2):
            assert np.array_equal(product(service, reference, b.tolist()), of @ b)
    # once it is gone the copy is nobody's
    assert service.request("DELETE", f"/tensors/{used['id']}").status == 200
    refused = {"op": "matmul", "inputs": {"a": {"tensor": used["id"]}, "b": [[1]]}}
    answer = service.request("POST", "/jobs", json.dumps(refused), {"Content-Type": "application/json"})
    assert answer.json()["code"] == "reference_not_found"


def test_jobs_go_to_the_card_that_has_their_tensor(with_card, monkeypatch):
    monkeypatch.setenv("BLASD_STANDIN_CARDS", "2")
    service = with_card()
    service.start()
    redis = Redis(service)
    cards = lambda: {d["id"] for d in service.request("GET", "/devices").json()["devices"] if d["class"] == "cuda"}  # noqa: E731
    wait_for(lambda: cards() == {"cuda:0", "cuda:1"}, "both cards")
    wait_for(lambda: ask(service, [[2]], [[3]])["state"] == "succeeded", "the front end has looked at them")
    a = np.random.default_rng(7).integers(-9, 9, (500, 500)).astype(float)  # 2 MB: 0.2 ms

    def card_of(tensor):
        """The card that a job on it ran on, of two that had nothing to do."""
        wait_for(lambda: redis("HLEN", "{blasd}:idle") == 3, "all workers wait")
        job = ask(service, {"tensor": tensor["id"]}, a[:, :2].tolist())
        assert job["state"] == "succeeded" and np.array_equal(np.array(job["outputs"]["c"]["data"]), a @ a[:, :2]), job
        return job["execution"]["device"]

    has = {}  # card: a tensor that this card alone has used
    while len(has) < 2:
        tensor = put(service, a)
        card = card_of(tensor)
        wait_for(lambda: location(service, tensor) == card, "the card has told of it")
        has.setdefault(card, tensor)
    order = ["cuda:0", "cuda:0", "cuda:1", "cuda:1", "cuda:0", "cuda:1", "cuda:1", "cuda:1", "cuda:0", "cuda:0"]
    assert [card_of(has[card]) for card in order] == order
    # a worker that dies takes nothing along: its jobs go to the other, or to it once it is back
    for _ in range(3):
        os.kill(wait_for(lambda: worker_of(service, "cuda:1"), "a worker"), signal.SIGKILL)
        assert product(service, {"tensor": has["cuda:1"]["id"]}, a[:, :3].tolist()).shape == (500, 3)
    expect_nothing_left(service)


@pytest.mark.parametrize("end", ["killed", "silent", "late"])
def test_jobs_that_wait_for_a_card_that_does_not_come(with_card, monkeypatch, end):  # noqa: F811
    """The worker they were left to is killed, is taken for dead, or does nothing while its lease lasts."""
    monkeypatch.setenv("BLASD_STANDIN_CARDS", "2")
    service = with_card("--limit", "lease_ms=600000", "--limit", "silence_s=3600").start()
    redis = Redis(service)
    a = np.random.default_rng(8).integers(-9, 9, (300, 300)).astype(float)

    def send():
        job = {"op": "matmul", "device": "cuda", "inputs": {"a": {"tensor": tensor["id"]}, "b": a[:, :3].tolist()}}
        return service.request("POST", "/jobs", json.dumps(job), {"Content-Type": "application/json"}).json()["id"]

    def ended(job):
        job = service.request("GET", f"/jobs/{job}?wait=60", timeout=70).json()
        assert job["state"] == "succeeded" and np.array_equal(np.array(job["outputs"]["c"]["data"]), a @ a[:, :3]), job
        return job["execution"]["device"]

    def plain():
        return ask(service, [[2]], [[3]])["execution"]["device"]

    wait_for(lambda: redis("HLEN", "{blasd}:idle") == 3, "all workers wait")
    wait_for(lambda: ask(service, [[2]], [[3]])["state"] == "succeeded", "the front end has looked at the cards")
    tensor = put(service, a)
    near = ended(send())
    far = {"cuda:0": "cuda:1", "cuda:1": "cuda:0"}[near]
    wait_for(lambda: location(service, tensor) == near, "the card has told of it")
    wait_for(lambda: redis("HLEN", "{blasd}:idle") == 3, "all workers wait")
    worker, other = worker_of(service, near), worker_of(service, far)
    os.kill(worker, signal.SIGSTOP)
    in_hand = send()  # it waited for one: nobody else is given that while its lease lasts
    wait_for(lambda: redis("HLEN", "{blasd}:idle") == 2, "it has one in hand")
    os.kill(other, signal.SIGSTOP)
    thread = threading.Thread(target=plain)
    thread.start()
    wait_for(lambda: redis("HLEN", "{blasd}:idle") == 1, "the other one has one in hand, too")
    jobs = [send() for _ in range(12)]
    # to copy the tensor takes 20 ms, or years: for whoever claims these, no request sees it
    size, rest = redis("HGET", "{blasd}:tensors", tensor["id"]).decode().split(" ", 1)
    redis("HSET", "{blasd}:tensors", tensor["id"], f"{2 * 10 ** 8 if end == 'late' else 10 ** 15} {rest}")
    os.kill(other, signal.SIGCONT)
    thread.join()
    assert plain() == far  # it waits for nothing
    if end != "late":
        assert all(redis("HEXISTS", "{blasd}:passed", job) for job in jobs), "they are left to it"
        assert {service.request("GET", f"/jobs/{job}").json()["state"] for job in jobs} == {"queued"}
    if end == "killed":
        os.kill(worker, signal.SIGKILL)
        assert {ended(job) for job in [in_hand, *jobs]} <= {near, far}
    elif end == "silent":
        _, name, _ = redis("HGET", "{blasd}:tensor_copies", tensor["id"]).decode().split(" ")
        redis("DEL", "{blasd}:lease:" + name)
        assert {ended(job) for job in [in_hand, *jobs]} == {far}
        os.kill(worker, signal.SIGCONT)
    else:
        assert {ended(job) for job in jobs} == {far}
        os.kill(worker, signal.SIGCONT)
        assert ended(in_hand) == near
    redis("HSET", "{blasd}:tensors", tensor["id"], f"{size} {rest}")
    expect_nothing_left(service)
    assert not redis("EXISTS", "{blasd}:passed")


def test_what_steps_make_stays_on_the_card(with_card):
    """Power iteration on a tensor that is kept: it goes up once, and nothing comes down but the last step's vector."""
    service = with_card()
    service.start()
    wait_for(lambda: len(devices(service)) == 2, "both devices")
    wait_for(lambda: ask(service, [[2]], [[3]])["state"] == "succeeded", "the front end has looked at them")
    rng = np.random.default_rng(9)
    a = rng.integers(1, 9, (160, 160)).astype(float)
    kept = put(service, a)
    steps, last, v = {}, {"input": "v"}, np.ones((160, 1))
    for i in range(12):
        steps[f"w{i}"] = {"op": "matmul", "inputs": {"a": {"tensor": kept["id"]}, "b": last}}
        steps[f"v{i}"] = {"op": "qr", "inputs": {"a": {"step": f"w{i}"}}}
        last = {"step": f"v{i}", "output": "Q"}
        v = a @ v / np.linalg.norm(a @ v)
    graph = {"device": "cuda", "inputs": {"v": np.ones((160, 1)).tolist()}, "steps": steps, "results": ["v11.Q"]}
    answer = service.request("POST", "/graphs?wait=60", json.dumps(graph), {"Content-Type": "application/json"})
    job = answer.json()
    assert answer.status == 200 and job["state"] == "succeeded", job
    assert np.allclose(np.abs(job["outputs"]["v11.Q"]["data"]), v, rtol=1e-12)
    timing = {name: step["timing"] for name, step in job["steps"].items()}
    vector = 160 * 8
    assert timing["w0"]["upload_bytes"] >= a.nbytes
    for name, t in timing.items():  # else tables, what was seen of values, and figures
        assert name == "w0" or t["upload_bytes"] < vector, (name, t)
        assert name == "v11" or t["download_bytes"] < vector, (name, t)
    assert timing["v11"]["download_bytes"] >= vector
    # the tensor stays for the jobs that follow; of the graph nothing does
    wait_for(lambda: location(service, kept) == "cuda:0", "the device has told of it")
    graph["device"] = "cpu"
    job = service.request("POST", "/graphs?wait=60", json.dumps(graph), {"Content-Type": "application/json"}).json()
    assert all("upload_bytes" not in step["timing"] for step in job["steps"].values()), job
    expect_nothing_left(service)
