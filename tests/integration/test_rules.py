"""Inputs made by rules, dry runs and prices, as a user sees them; numbers held to NumPy and to Python's integers."""
import base64
import json
import math

import numpy as np
import pytest
from service import TYPES, wait_for


def run(service, op, inputs, params=None, **query):
    text = "&".join(["wait=60", *(f"{name}={value}" for name, value in query.items())])
    body = json.dumps({"op": op, "inputs": inputs, "params": params or {}})
    return service.request("POST", f"/jobs?{text}", body, {"Content-Type": TYPES["json"]}, timeout=90)


PHILOX = {32: (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85),
          64: (0xD2E7470EE14C6C93, 0xCA5A826395121157, 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}


def philox(bits, counter, key):
    """Philox 4 x 32 or 4 x 64 of ten rounds, in Python's integers."""
    first, second, low, high = PHILOX[bits]
    mask, c, k = (1 << bits) - 1, list(counter), list(key)
    for _ in range(10):
        p, q = first * c[0], second * c[2]
        c = [(q >> bits) ^ c[1] ^ k[0], q & mask, (p >> bits) ^ c[3] ^ k[1], p & mask]
        k = [(k[0] + low) & mask, (k[1] + high) & mask]
    return c


def test_the_reference_is_philox():
    """Of 64 bits it is NumPy's, of 32 bits Random123's, by its known answer."""
    generator = np.random.Philox(key=[11, 22], counter=[5, 6, 7, 8])
    assert [int(x) for x in generator.random_raw(4)] == philox(64, (6, 6, 7, 8), (11, 22))
    assert philox(32, (0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344), (0xa4093822, 0x299f31d0)) == [
        0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]


def numbers(seed, count, bits):
    """The integers from which elements are made."""
    key = (seed & 0xffffffff, seed >> 32)
    words = [w for b in range(count // (2 if bits == 64 else 4) + 1) for w in philox(32, (b & 0xffffffff, b >> 32, 0, 0), key)]
    if bits == 64:
        words = [low | high << 32 for low, high in zip(words[::2], words[1::2])]
    return words[:count]


def column(service, rule, dtype="float64"):
    """The n x 1 matrix that a rule makes, times the 1 x 1 matrix 1."""
    one = {"full": [1, 1], "value": 1, "dtype": dtype}
    job = run(service, "matmul", {"a": {**rule, "dtype": dtype}, "b": one}).json()
    assert job["state"] == "succeeded", job
    return np.array(job["outputs"]["c"]["data"], dtype)[:, 0]


def test_uniform(service):
    for seed in (0, 7, 2**64 - 1):
        got = column(service, {"random": "uniform", "seed": seed, "shape": [101, 1]})
        assert got.tolist() == [(x >> 11) * 2.0**-53 for x in numbers(seed, 101, 64)]
    got = column(service, {"random": "uniform", "seed": 5, "shape": [101, 1]}, "float32")
    assert got.tolist() == [(x >> 8) * 2.0**-24 for x in numbers(5, 101, 32)]


def normals(integers, bits):
    out = []
    for x, y in zip(integers[::2], integers[1::2]):
        u, v = ((x >> 64 - 53) + 1, y >> 64 - 53) if bits == 53 else (x + 1, y)
        r = math.sqrt(-2 * math.log(u * 2.0**-bits))
        out += [r * math.cos(2 * math.pi * v * 2.0**-bits), r * math.sin(2 * math.pi * v * 2.0**-bits)]
    return np.array(out)


def test_normal(service):
    got = column(service, {"random": "normal", "seed": 7, "shape": [200, 1]})
    assert np.abs(got - normals(numbers(7, 200, 64), 53)).max() < 1e-14
    got = column(service, {"random": "normal", "seed": 7, "shape": [200, 1]}, "float32")
    assert np.abs(got - normals(numbers(7, 200, 32), 32)).max() < 1e-6


def vector(service, rule, count):
    """The vector that a rule makes, exactly: its product with the identity, which a rule makes, too."""
    job = run(service, "matmul", {"a": {"eye": count}, "b": rule}).json()
    assert job["state"] == "succeeded", job
    return np.array(job["outputs"]["c"]["data"], float)


@pytest.mark.parametrize("rule", [
    {"arange": [0, 1, 0.1]}, {"arange": [1, 1.3, 0.1]}, {"arange": [10, 0, -0.7]}, {"arange": [0.1, 3, 0.3]},
    {"linspace": [0, 1, 7]}, {"linspace": [0.1, -0.3, 50]}, {"linspace": [1, 2, 1]}, {"linspace": [0, 1e-300, 3]}], ids=str)
def test_lines_are_numpys(service, rule):
    want = np.arange(*rule["arange"]) if "arange" in rule else np.linspace(*rule["linspace"])
    assert vector(service, rule, len(want)).tobytes() == want.tobytes()


def test_lines_of_integers_and_empty_ones(service):
    answer = run(service, "matmul", {"a": {"eye": 3, "dtype": "int64"}, "b": {"arange": [5, -1, -2], "dtype": "int64"}})
    assert answer.json()["outputs"]["c"]["data"] == [5, 3, 1]
    answer = run(service, "matmul", {"a": {"eye": 0}, "b": {"arange": [5, 0, 1]}})
    assert answer.json()["outputs"]["c"]["data"] == [] and len(np.arange(5, 0, 1)) == 0


def test_every_operation_takes_rules(service):
    def outputs(op, inputs, params=None):
        job = run(service, op, inputs, params).json()
        assert job["state"] == "succeeded", job
        return {name: np.array(output["data"]) for name, output in job["outputs"].items()}
    normal = {"random": "normal", "seed": 1, "shape": [6, 6]}
    assert np.allclose(outputs("solve", {"a": {"eye": 6}, "b": normal})["x"], outputs("matmul", {"a": {"eye": 6}, "b": normal})["c"])
    assert np.allclose(outputs("distance", {"x": {"eye": 3}})["d"][0], [0, 2**0.5, 2**0.5])
    x = {"random": "uniform", "seed": 3, "shape": [40, 2]}
    fit = outputs("regression", {"x": x, "y": {"full": [40], "value": 3}, "sample_weight": {"linspace": [0, 1, 40]}})
    assert np.allclose(fit["coef"], 0, atol=1e-12) and np.allclose(fit["intercept"], 3)
    assert np.allclose(outputs("cholesky", {"a": {"eye": 4}})["L"], np.eye(4))
    assert np.allclose(outputs("eigh", {"a": {"eye": 4}})["eigenvalues"], 1)
    assert np.allclose(outputs("svd", {"a": {"full": [2, 2], "value": 1}})["S"], [2, 0])
    assert outputs("qr", {"a": normal})["R"].shape == (6, 6)
    assert np.allclose(outputs("lstsq", {"a": {"eye": 3}, "b": {"arange": [0, 3, 1]}})["x"], [0, 1, 2])


def test_the_same_rule_is_the_same_numbers(service):
    """Alone and in a batch, in one job and in the next; another seed is others, also to an Idempotency-Key."""
    job = {"op": "matmul", "inputs": {"a": {"random": "normal", "seed": 4, "shape": [8, 8]}, "b": {"eye": 8}}}
    first = run(service, "matmul", job["inputs"]).json()["outputs"]["c"]["data"]
    assert run(service, "matmul", job["inputs"]).json()["outputs"]["c"]["data"] == first
    headers = {"Content-Type": TYPES["json"], "Idempotency-Key": "a-rule"}
    one = service.request("POST", "/jobs?wait=30", json.dumps(job), headers)
    assert one.json()["outputs"]["c"]["data"] == first
    again = service.request("POST", "/jobs?wait=30", json.dumps(job), headers)
    assert again.json()["id"] == one.json()["id"]
    job["inputs"]["a"]["seed"] = 5
    other = service.request("POST", "/jobs?wait=30", json.dumps(job), headers)
    assert other.status == 422 and other.json()["code"] == "idempotency_conflict"


@pytest.mark.parametrize("rule, code, field", [
    ({"eye": -1}, "invalid_tensor", "inputs.a"),
    ({"random": "normal", "shape": [2, 2]}, "invalid_tensor", "inputs.a"),
    ({"random": "cauchy", "seed": 1, "shape": [2, 2]}, "invalid_tensor", "inputs.a"),
    ({"random": "normal", "seed": 1, "shape": [2, 2], "dtype": "int8"}, "unsupported_dtype", "inputs.a"),
    ({"full": [2, 2]}, "invalid_tensor", "inputs.a"),
    ({"full": [2, 2], "value": "NaN"}, "not_finite", "inputs.a"),
    ({"full": [3, 3], "value": 1}, "shape_mismatch", "inputs.b"),
    ({"eye": 2, "data": [1]}, "invalid_tensor", "inputs.a"),
    ({"zeros": [2]}, "unknown_field", "inputs.a.zeros")], ids=str)
def test_rules_that_are_refused(service, rule, code, field):
    answer = run(service, "solve", {"a": rule, "b": [1, 2]})
    assert (answer.json()["code"], answer.json()["field"]) == (code, field), answer.body


def test_what_is_made_counts_as_memory(make_service):
    service = make_service("--limit", "job_bytes=1000000")
    fits = {"a": {"full": [200, 200], "value": 1}, "b": {"eye": 200}}
    assert run(service, "matmul", fits).json()["state"] == "succeeded"
    answer = run(service, "matmul", {"a": {"full": [400, 400], "value": 1}, "b": {"eye": 400}})
    assert answer.status == 413 and answer.json()["code"] == "job_too_large" and "job_bytes" in answer.json()["detail"]


def test_python_client(service):
    import blasd
    with blasd.Client(service.url) as client:
        a = blasd.random.normal((30, 20), seed=9)
        assert (a.shape, a.ndim, a.dtype) == ((30, 20), 2, np.float64)
        c = client.matmul(a, blasd.eye(20))
        assert np.array_equal(c, client.matmul(np.eye(30), a)) and abs(c.std() - 1) < 0.2
        b = np.arange(20, dtype=np.float32)
        assert np.array_equal(client.matmul(blasd.eye(20, dtype="float32"), b), b)
        assert np.array_equal(client.matmul(blasd.eye(5), blasd.arange(5)), np.arange(5))
        assert np.array_equal(client.matmul(blasd.eye(3), blasd.linspace(0, 1, 3)), [0, 0.5, 1])
        assert np.array_equal(client.solve(blasd.eye(3), blasd.full(3, 1.5)), [1.5] * 3)
        u = client.matmul(blasd.eye(100), blasd.random.uniform((100, 1), seed=0, dtype=np.float32))
        assert 0 <= u.min() and u.max() < 1
        with pytest.raises(blasd.InputError, match="columns of 4"):  # shapes are known before anything is sent
            client.matmul(blasd.eye(3), blasd.eye(4))
        with pytest.raises(blasd.InputError):
            blasd.arange(0, 1, 0)


# --- dry runs -----------------------------------------------------------------------------------------------------


def dry(service, job, **headers):
    return service.request("POST", "/jobs?dry_run=1", json.dumps(job), {"Content-Type": TYPES["json"], **headers})


def predicted(service, job):
    """What a dry run says once the front end knows the worker."""
    return wait_for(lambda: (said := dry(service, job).json())["predicted"]["compute_ms"] is not None and said)


def jobs_listed(service):
    return service.request("GET", "/jobs").json()["jobs"]


def test_a_dry_run(make_service):
    service = make_service()
    job = {"op": "matmul", "inputs": {"a": {"full": [300, 200], "value": 1}, "b": {"random": "normal", "seed": 1, "shape": [200, 100]}}}
    assert dry(service, job).status == 200
    said = predicted(service, job)
    assert said["op"] == "matmul" and said["flops"] == 2 * 300 * 200 * 100
    assert said["bytes"] == 8 * (300 * 200 + 200 * 100 + 300 * 100) <= said["peak_bytes"]
    assert said["outputs"] == {"c": {"dtype": "float64", "shape": [300, 100], "bytes": 240000}}
    assert said["device"] == "cpu" and "only class" in said["why"]
    assert said["predicted"]["queue_ms"] == 0 and said["predicted"]["compute_ms"] > 0
    assert said["predicted"]["upload_ms"] == said["predicted"]["download_ms"] == 0, "memory is where a CPU computes"
    assert said["cost"] is None
    assert jobs_listed(service) == []
    assert dry(service, {**job, "device": "cpu"}).json()["why"] == "the job asks for it"
    absent = dry(service, {**job, "device": "cuda"}).json()  # the job itself would be refused for now
    assert "no worker of that class" in absent["why"] and absent["predicted"]["compute_ms"] is None
    # it tells what the job then says of itself
    ran = run(service, job["op"], job["inputs"]).json()
    assert ran["execution"]["flops"] == said["flops"] and ran["execution"]["bytes"] == said["bytes"]
    assert {name: output["shape"] for name, output in ran["outputs"].items()} == {"c": [300, 100]}
    assert len(jobs_listed(service)) == 1


def test_a_dry_run_knows_of_a_device_what_is_told_of_it(make_service):
    service = make_service()
    job = {"op": "matmul", "inputs": {"a": [[1]], "b": [[2]]}}
    dry(service, job)

    def told():
        return any("cost" in one for one in service.request("GET", "/devices").json()["devices"])
    wait_for(told)
    assert dry(service, job).json()["predicted"]["compute_ms"] is not None


def test_a_dry_run_counts_what_is_converted(service):
    for dtype, more in (("float64", 0), ("int8", 2 * 8), ("int64", 2 * 8)):
        one = {"full": [200, 200], "value": 1, "dtype": dtype}
        step = {"op": "matmul", "inputs": {"a": one, "b": one}}
        said = dry(service, step).json()
        assert said["peak_bytes"] == said["bytes"] + more * 200 * 200, dtype
        graph = service.request("POST", "/graphs?dry_run=1", json.dumps({"steps": {"s": step}}), {"Content-Type": TYPES["json"]}).json()
        assert 0 <= graph["peak_bytes"] - said["peak_bytes"] < 4096, dtype


def test_a_dry_run_counts_parts_that_are_copied(service):
    kept = service.request("POST", "/tensors", json.dumps(np.eye(100).tolist()), {"Content-Type": TYPES["json"]}).json()["id"]
    for part, more in ([[0, 50]], 0), ([[0, 100], [0, 50]], 8 * 100 * 50):  # in one piece, and not
        a = {"tensor": kept, "slice": part}
        n = 50 if more else 100
        said = dry(service, {"op": "matmul", "inputs": {"a": a, "b": {"eye": n}}}).json()
        assert said["peak_bytes"] == said["bytes"] + more, part


def test_a_tiny_graph_makes_no_large_one_too_long(make_service):
    """What graphs take is learnt from those that ran, which may have been nothing but a launch."""
    service = make_service()

    def ask(n, query):
        body = {"steps": {"s": {"op": "matmul", "inputs": {"a": {"full": [n, n], "value": 1}, "b": {"eye": n}}}}, "results": ["s"]}
        return service.request("POST", f"/graphs?{query}", json.dumps(body), {"Content-Type": TYPES["json"]})

    def learnt():
        assert ask(3, "wait=20").json()["state"] == "succeeded"
        return ask(3, "dry_run=1").json()["predicted"]["compute_ms"] is not None
    wait_for(learnt)
    large = ask(6000, "dry_run=1")  # some 4e11 operations
    assert large.status == 200, large.body


def test_a_dry_run_is_checked_as_a_job(service):
    for job in ({"op": "matmul", "inputs": {"a": [[1, 2]], "b": [[1]]}}, {"op": "none", "inputs": {}}, {"op": "solve", "inputs": {"a": {"eye": 2}}},
                {"op": "matmul", "inputs": {"a": {"full": [1000000, 1000000], "value": 1}, "b": {"full": [1000000, 1], "value": 1}}}):
        asked, run_ = dry(service, job), service.request("POST", "/jobs?wait=5", json.dumps(job), {"Content-Type": TYPES["json"]})
        assert asked.status == run_.status >= 400
        assert {**asked.json(), "detail": ""} == {**run_.json(), "detail": ""}
    answer = service.request("POST", "/jobs?dry_run=2", "{}", {"Content-Type": TYPES["json"]})
    assert answer.status == 400 and answer.json()["field"] == "dry_run"
    # bodies of every form, also large ones that lie in a file meanwhile, and a key that is not used up
    big = base64.b64encode(bytes(8 * 400 * 400)).decode()
    job = {"op": "matmul", "inputs": {"a": {"dtype": "float64", "shape": [400, 400], "base64": big}, "b": {"eye": 400}}}
    assert dry(service, job, **{"Idempotency-Key": "dry"}).status == 200
    assert service.request("POST", "/jobs?wait=30", json.dumps(job), {"Content-Type": TYPES["json"], "Idempotency-Key": "dry"}
                           ).json()["state"] == "succeeded"
    form = service.post("matmul", {"a": np.eye(300), "b": np.eye(300)}, wait=0, form="safetensors")
    assert form.status == 202


def test_a_full_queue_takes_dry_runs(make_service):
    service = make_service("--limit", "queue_jobs=1")
    job = {"op": "matmul", "inputs": {"a": [[1]], "b": [[2]]}}
    with service.worker_held():
        assert service.request("POST", "/jobs", json.dumps(job), {"Content-Type": TYPES["json"]}).status == 202
        answer = dry(service, job)
        assert answer.status == 200 and answer.json()["predicted"]["queue_ms"] > 0


# --- prices -------------------------------------------------------------------------------------------------------


def test_prices(make_service):
    service = make_service("--price", "cpu=3.6/h,kwh=0.30,currency=CHF")
    inputs = {"a": {"random": "normal", "seed": 1, "shape": [400, 400]}, "b": {"eye": 400}}
    said = predicted(service, {"op": "matmul", "inputs": inputs})
    assert said["cost"]["currency"] == "CHF" and said["cost"]["per_hour"] == 3.6
    assert math.isclose(said["cost"]["amount"], said["predicted"]["compute_ms"] / 1e3 * 0.001)
    job = run(service, "matmul", inputs).json()
    timing, cost = job["timing"], job["cost"]
    seconds = (timing["upload_ms"] + timing["compute_ms"] + timing["download_ms"]) / 1e3 / job["execution"]["batch_size"]
    assert math.isclose(cost["device_s"], seconds) and math.isclose(cost["amount"], seconds * 0.001)
    assert cost["device"] == "cpu" and cost["currency"] == "CHF"
    assert service.request("GET", f"/jobs/{job['id']}").json()["cost"] == cost
    assert jobs_listed(service)[0]["cost"] == cost
    answer = service.request("POST", "/jobs?wait=30", json.dumps({"op": "matmul", "inputs": inputs}),
                             {"Content-Type": TYPES["json"], "Accept": TYPES["safetensors"]})
    assert answer.safetensors()[1]["cost"]["currency"] == "CHF"
    with service.worker_held():  # what has not begun has cost nothing yet
        assert "cost" not in service.request("POST", "/jobs", json.dumps({"op": "matmul", "inputs": inputs}),
                                             {"Content-Type": TYPES["json"]}).json()


def test_without_prices_there_is_no_cost(service):
    assert "cost" not in run(service, "matmul", {"a": [[1]], "b": [[1]]}).json()


def test_a_price_that_cannot_be_read(tmp_path):
    import subprocess

    from service import BLASD
    for command in (["up", "--data", str(tmp_path)], ["api", "--redis", "unix:/nowhere"]):
        done = subprocess.run([BLASD, *command, "--price", "cpu=1"], capture_output=True, text=True, timeout=30)
        assert done.returncode == 2 and "'cpu=1' does not say for what" in done.stderr, done.stderr
