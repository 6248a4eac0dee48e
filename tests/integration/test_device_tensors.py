"""Tensors that a device keeps a copy of: their documents say so, and results are what they were. The card is the stand-in that the
CUDA backend's own tests use."""
import json

import numpy as np
from service import wait_for
from test_batch_entries import expect_nothing_left
from test_device_choice import devices


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
