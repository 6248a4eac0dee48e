"""A job gives the same bits, or the same problem, by whatever way it comes and goes, and in whatever company it runs:
as safetensors, JSON, a form, a step of a graph, from kept tensors and into them. And a graph gives what its steps give one
by one. Jobs of all operations are drawn; a seed of one's own: BLASD_TEST_SEED=n."""
import concurrent.futures
import json
import os

import numpy as np
import pytest
from service import ENDED, TYPES, npy, safetensors, wait_for

SEED = int(os.environ.get("BLASD_TEST_SEED", "20"))
DEVICE = os.environ.get("BLASD_TEST_DEVICE")
WHERE = {"device": DEVICE} if DEVICE else {}  # as tests/gpu/run.sh has it
SAFETENSORS = {"Content-Type": TYPES["safetensors"], "Accept": TYPES["safetensors"]}
METRICS = ["euclidean", "sqeuclidean", "cityblock", "chebyshev", "minkowski", "cosine", "correlation", "canberra", "braycurtis",
           "jensenshannon", "seuclidean", "mahalanobis", "hamming", "jaccard", "dice", "rogerstanimoto", "yule"]


# --- what is drawn ------------------------------------------------------------------------------------------------


def finite(inputs):
    return {n: np.nan_to_num(a, posinf=1, neginf=1) if a.dtype.kind == "f" else a for n, a in inputs.items()}


class Draw:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def one(self, *these):
        return these[int(self.random.integers(len(these)))]

    def chance(self, p):
        return self.random.random() < p

    def size(self):
        return int(self.random.choice([1, 2, 3, 4, 7, 12, 20]))

    def array(self, *shape):
        """Of some dtype; now and then with one element that is not a number, or far from the others."""
        dtype = self.one("float64", "float64", "float32", "int64", "int8", "bool")
        values = self.random.standard_normal(shape) * 10.0**self.random.integers(-3, 4)
        if dtype == "bool":
            return values > 0
        if dtype.startswith("int"):
            return np.clip(values, -100, 100).astype(dtype)
        if self.chance(0.08) and values.size:
            values.flat[int(self.random.integers(values.size))] = self.one(np.nan, np.inf, -np.inf, 1e30, -0.0)
        return values.astype(dtype)

    def square(self, n, *batch):
        a = self.array(*batch, n, n)
        if self.chance(0.1):
            a[..., -1, :] = a[..., 0, :]  # singular
        if self.chance(0.5):
            a = (a.astype(float) @ np.swapaxes(a, -1, -2).astype(float) + np.eye(n)) if np.all(np.isfinite(a)) else a
        return a

    def batch(self):
        return (self.size(),) if self.chance(0.2) else ()

    def matmul(self):
        m, k, n = self.size(), self.size(), self.size()
        params = {"transpose_a": self.chance(0.3), "transpose_b": self.chance(0.3)}
        batch = self.batch()
        inputs = {"a": self.array(*batch, *((k, m) if params["transpose_a"] else (m, k))),
                  "b": self.array(*((n, k) if params["transpose_b"] else (k, n)))}
        if self.chance(0.3):
            inputs["c"], params["beta"] = self.array(m, n), self.one(0, 1, -0.5)
        if self.chance(0.3):
            params["alpha"] = self.one(0, 1e-9, -2.5)
        return inputs, params

    def solve(self):
        n, batch = self.size(), self.batch()
        params = {"assume_a": self.one("general", "general", "symmetric", "positive_definite", "lower_triangular"),
                  "transposed": self.chance(0.2), "certify": self.chance(0.1)}
        return {"a": self.square(n, *batch), "b": self.array(n) if self.chance(0.5) else self.array(n, self.size())}, params

    def distance(self):
        m, n, k = self.size(), self.size(), self.size()
        inputs = {"x": self.array(m, k)}
        params = {"metric": self.one(*METRICS), "output": self.one("full", "full", "argmin", "topk", "within", "condensed"),
                  "k": self.one(1, 2, 3), "radius": self.one(0.5, 3, 100)}
        if params["output"] != "condensed" and self.chance(0.6):
            inputs["y"] = self.array(n, k)
        if self.chance(0.2):
            inputs["w"] = np.abs(self.array(k))
        return inputs, params

    def regression(self):
        n, p = self.one(5, 20, 60), self.one(1, 2, 4)
        method = self.one("ols", "ols", "ridge", "lasso", "elastic_net", "gd")
        params = {"method": method, "fit_intercept": self.chance(0.7), "residuals": self.chance(0.3)}
        if method == "gd":
            params.update(iterations=20, learning_rate=self.one(1e-3, 1e-6))
        inputs = {"x": self.array(n, p), "y": self.array(n)}
        if self.chance(0.2):
            inputs["sample_weight"] = np.abs(self.array(n))
        return inputs, params

    def lstsq(self):
        m, n = self.size(), self.size()
        return {"a": self.array(m, n), "b": self.array(m) if self.chance(0.5) else self.array(m, 2)}, {}

    def eigh(self):
        return {"a": self.square(self.size(), *self.batch())}, {"vectors": self.chance(0.7), "uplo": self.one("lower", "upper")}

    def cholesky(self):
        return {"a": self.square(self.size(), *self.batch())}, {"upper": self.chance(0.3)}

    def qr(self):
        return {"a": self.array(self.size(), self.size())}, {"mode": self.one("reduced", "complete", "r")}

    def svd(self):
        return {"a": self.array(self.size(), self.size())}, {"compute_uv": self.chance(0.7)}

    def job(self):
        op = self.one("matmul", "solve", "distance", "regression", "lstsq", "eigh", "cholesky", "qr", "svd")
        inputs, params = getattr(self, op)()
        if self.chance(0.08):  # a shape that fits no more
            name = self.one(*inputs)  # and nothing else is wrong: what is seen first differs
            inputs = finite(inputs)
            inputs[name] = np.ones([self.size() for _ in range(int(self.random.integers(0, 4)))])
        return op, inputs, params


# --- the ways -----------------------------------------------------------------------------------------------------


def of_arrays(arrays, prefix=""):
    """All NaN are one: JSON has one word for them."""
    def plain(a):
        return np.where(np.isnan(a), np.array(np.nan, a.dtype), a) if a.dtype.kind == "f" else a
    return {name.removeprefix(prefix): (a.dtype.name, a.shape, plain(a).tobytes()) for name, a in arrays.items()}


def of_problem(problem, step="s"):
    """How a problem is known whatever the way: those of a step name the step, too."""
    field = problem.get("field", "")
    return problem["code"], field.removeprefix(f"steps.{step}").removeprefix(".")


def outcome(service, answer, prefix=""):
    """What came of it: arrays by name, or a problem."""
    if answer.status == 202:
        return end_of(service, answer.json()["id"], prefix)
    if answer.headers["Content-Type"] == TYPES["safetensors"]:
        return of_arrays(answer.safetensors()[0], prefix)
    document = answer.json()
    return of_problem(document if answer.status >= 400 else document["error"])


def end_of(service, name, prefix=""):
    wait_for(lambda: service.request("GET", f"/jobs/{name}?wait=30", timeout=90).json()["state"] in ENDED, name)
    document = service.request("GET", f"/jobs/{name}").json()
    if document["state"] != "succeeded":
        return of_problem(document["error"])
    return of_arrays(service.request("GET", f"/jobs/{name}/result", headers=SAFETENSORS).safetensors()[0], prefix)


def difference(found, expected):
    """For who reads of a failure."""
    if not (isinstance(found, dict) and isinstance(expected, dict)):
        return found, expected
    return [(name, found.get(name), expected.get(name)) for name in found | expected if found.get(name) != expected.get(name)]


def sent(service, form, op, inputs, params):
    return outcome(service, service.post(op, inputs, params, form=form, accept="safetensors"))


def as_json(service, op, inputs, params):
    """Read as JSON, too: every number as it is written there is the number. Large outputs stand elsewhere."""
    answer = service.post(op, inputs, params)
    document = answer.json()
    if answer.status >= 400 or document["state"] != "succeeded":
        return of_problem(document if answer.status >= 400 else document["error"])

    def read(one):
        if "data" not in one:
            return service.request("GET", one["href"], headers={"Accept": TYPES["npy"]}).npy()
        return np.array(one["data"], one["dtype"]).reshape(one["shape"])
    return of_arrays({name: read(one) for name, one in document["outputs"].items()})


def as_step(service, op, inputs, params, expected):
    """All outputs of it, where it is known which there are."""
    step = {"op": op, "inputs": {name: {"input": name} for name in inputs}, "params": params}
    texts = {"steps": json.dumps({"s": step}), **WHERE}
    if isinstance(expected, dict):
        texts["results"] = json.dumps([f"s.{name}" for name in expected])
    return outcome(service, service.request("POST", "/graphs?wait=30", safetensors(inputs, **texts), SAFETENSORS), "s.")


def kept(service, array):
    answer = service.request("POST", "/tensors", npy(array), {"Content-Type": TYPES["npy"]})
    assert answer.status == 201, answer.body
    return answer.json()["id"]


def by_tensors(service, op, inputs, params, expected):
    """From tensors into tensors."""
    ids = {name: kept(service, array) for name, array in inputs.items()}
    body = {"op": op, "params": params, "inputs": {name: {"tensor": one} for name, one in ids.items()}, **WHERE}
    if isinstance(expected, dict):
        body["keep"] = list(expected)
    answer = service.request("POST", "/jobs?wait=30", json.dumps(body), {"Content-Type": TYPES["json"]})
    document = answer.json()
    if answer.status == 202:
        document = service.request("GET", f"/jobs/{document['id']}?wait=300", timeout=400).json()
    if answer.status >= 400 or document["state"] != "succeeded":
        return of_problem(document if answer.status >= 400 else document["error"])
    return of_arrays({name: service.request("GET", f"/tensors/{one['tensor']['id']}", headers={"Accept": TYPES["npy"]}).npy()
                      for name, one in document["outputs"].items()})


def dry(service, op, inputs, params):
    texts = {"op": op, "params": json.dumps(params), **WHERE}
    answer = service.request("POST", "/jobs?dry_run=1", safetensors(inputs, **texts), SAFETENSORS | {"Accept": TYPES["json"]})
    return of_problem(answer.json()) if answer.status >= 400 else answer.json()["outputs"]


@pytest.mark.parametrize("part", range(4))
def test_every_way_gives_the_same(service, part):
    drawn = Draw((SEED, part))
    ends = {"right": 0, "wrong": 0}
    for _ in range(40):
        op, inputs, params = drawn.job()
        expected = sent(service, "safetensors", op, inputs, params)
        ends["right" if isinstance(expected, dict) else "wrong"] += 1
        ways = {"json": sent(service, "json", op, inputs, params), "form": sent(service, "multipart", op, inputs, params),
                "read as json": as_json(service, op, inputs, params),
                "step": as_step(service, op, inputs, params, expected),
                "tensors": by_tensors(service, op, inputs, params, expected)}
        for way, found in ways.items():
            if way == "tensors" and found != expected and expected[0] == "not_finite":  # values are looked at last then
                expected = sent(service, "safetensors", op, finite(inputs), params)
                assert not isinstance(expected, dict)
            assert found == expected, (way, op, params, *difference(found, expected), inputs)
        told = dry(service, op, inputs, params)
        if isinstance(expected, dict):
            assert isinstance(told, dict) and set(expected) <= set(told), (op, params, told)
        elif not isinstance(told, dict):
            assert told == expected
    assert min(ends.values()) >= 3, ends


# --- company ------------------------------------------------------------------------------------------------------


def test_company_changes_no_bit(make_service):
    service, drawn = make_service(), Draw((SEED, 98))
    jobs = [drawn.job() for _ in range(60)]
    jobs = [job for job in jobs for _ in range(3)]
    drawn.random.shuffle(jobs)
    ids = []
    with service.worker_held():
        for op, inputs, params in jobs:
            answer = service.post(op, inputs, params, form="safetensors", wait=0)
            ids.append(answer.json()["id"] if answer.status == 202 else None)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda name: name and end_of(service, name), ids))
    assert sum(isinstance(one, dict) for one in together) > len(jobs) // 2
    for (op, inputs, params), found in zip(jobs, together):
        if found is not None:
            assert found == sent(service, "safetensors", op, inputs, params), (op, params)


# --- graphs -------------------------------------------------------------------------------------------------------


def random_graph(drawn):
    """Steps as (name, op, inputs, params), whose inputs are arrays or (step, output, slice or None) of one before."""
    n, steps = drawn.one(2, 3, 5), []
    makers = {"matmul": "c", "cholesky": "L", "solve": "x", "qr": "R", "eigh": "eigenvectors"}

    def operand():
        if not steps or drawn.chance(0.4):
            return drawn.random.standard_normal((n, n)) + n * np.eye(n)
        name, op, _, _ = drawn.one(*steps)
        return name, makers[op], drawn.one(None, None, [[0, n], [0, n]])
    for i in range(drawn.one(2, 3, 6)):
        op = drawn.one("matmul", "matmul", "solve", "qr", "eigh", "cholesky")
        inputs = {"a": operand(), "b": operand()} if op in ("matmul", "solve") else {"a": operand()}
        if op in ("matmul", "solve") and drawn.chance(0.2) and not isinstance(inputs["b"], np.ndarray):
            inputs["b"] = (*inputs["b"][:2], [[0, n], [0, int(drawn.random.integers(1, n + 1))]])
            if op == "matmul":
                inputs["c"] = np.zeros((n, inputs["b"][2][1][1]))
        wide = inputs.get("b")
        if isinstance(wide, tuple) and wide[2] is not None and wide[2][1][1] != n:
            op_last = (f"n{i}", op, inputs, {})
            steps.append(op_last)
            break  # what it makes is not square
        steps.append((f"n{i}", op, inputs, {}))
    return steps, makers


def one_by_one(service, steps):
    """The outcome of each step, given what the others made; None where one of those has failed."""
    done = {}
    for name, op, inputs, params in steps:
        arrays = {}
        for key, given in inputs.items():
            if isinstance(given, tuple):
                step, output, cut = given
                if not isinstance(done[step], dict):
                    arrays = None
                    break
                dtype, shape, data = done[step][output]
                given = np.frombuffer(data, dtype).reshape(shape)
                given = given[tuple(slice(*part) for part in cut)] if cut else given
            arrays[key] = np.ascontiguousarray(given)
        done[name] = None if arrays is None else sent(service, "safetensors", op, arrays, params)
    return done


def as_graph(service, steps, results):
    given, told = {}, {}
    for name, op, inputs, params in steps:
        refer = {}
        for key, value in inputs.items():
            if isinstance(value, tuple):
                refer[key] = {"step": value[0], "output": value[1], **({"slice": value[2]} if value[2] else {})}
            else:
                given[f"{name}{key}"] = value
                refer[key] = {"input": f"{name}{key}"}
        told[name] = {"op": op, "inputs": refer, "params": params}
    return service.request("POST", "/graphs?wait=60", safetensors(given, steps=json.dumps(told), results=json.dumps(results),
                                                                 **WHERE),
                           SAFETENSORS, timeout=120)


def test_a_graph_gives_what_its_steps_give(service):
    drawn, failed = Draw((SEED, 99)), 0
    for _ in range(60):
        steps, makers = random_graph(drawn)
        alone = one_by_one(service, steps)
        answer = as_graph(service, steps, [f"{name}.{makers[op]}" for name, op, _, _ in steps])
        wrong = {name: found for name, found in alone.items() if isinstance(found, tuple)}
        if not wrong:
            expected = {f"{name}.{makers[op]}": alone[name][makers[op]] for name, op, _, _ in steps}
            assert outcome(service, answer) == expected, steps
            continue
        failed += 1
        error = answer.json()["error"]
        assert any(of_problem(error, name) == found for name, found in wrong.items()), (error, wrong)
    assert failed < 50
