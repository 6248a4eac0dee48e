"""The load of a chaos run: jobs with a known end, sent and seen through by careful clients, who note all that they hear.

A careful client repeats a request that was not answered, with the same Idempotency-Key; what was acknowledged it asks for
by its id. Everything it hears becomes an event (check.py says which).
"""
import http.client
import json
import threading
import time

import numpy as np
from service import TYPES, safetensors

LATER = (408, 429, 503)  # come again
FINAL = ("succeeded", "failed", "cancelled", "expired")


class Job:
    """What is sent, and how it must end: `code`, failed with it; else succeeded with that output."""

    path = "/jobs"

    def __init__(self, op, inputs, params, output, value, form="json", code=None):
        self.op, self.output, self.value, self.code = op, output, value, code
        self.type = TYPES[form]
        if form == "json":
            self.body = json.dumps({"op": op, "params": params,
                                    "inputs": {name: array.tolist() for name, array in inputs.items()}}).encode()
        else:
            self.body = safetensors(inputs, op=op, params=json.dumps(params))


class Graph(Job):
    """Steps that feed each other; `inputs` are the data beside them."""

    path = "/graphs"

    def __init__(self, steps, inputs, output, value, form="json", code=None):
        self.op, self.output, self.value, self.code = "graph", output, value, code
        self.type = TYPES[form]
        results = [output.split(".")[0]]
        if form == "json":
            self.body = json.dumps({"steps": steps, "results": results,
                                    "inputs": {name: array.tolist() for name, array in inputs.items()}}).encode()
        else:
            self.body = safetensors(inputs, steps=json.dumps(steps), results=json.dumps(results))


class Twice(Job):
    """Twice the output of another job; rejected until that has ended, and for good if it has no result."""

    def __init__(self, job, of):
        self.op, self.output, self.type = "matmul", "c", TYPES["json"]
        self.code, self.value = job.code and "input_failed", job.value * 2
        self.body = json.dumps({"op": "matmul", "inputs": {"a": {"job": of, "output": job.output},
                                                           "b": (2 * np.eye(job.value.shape[-1])).tolist()}}).encode()


def small(rng):
    n = rng.randrange(1, 6)
    a = np.array([[float(rng.randrange(-9, 10)) for _ in range(n)] for _ in range(n)])
    return Job("matmul", {"a": a, "b": np.eye(n) * 2}, {}, "c", a * 2)


def in_segment(rng):
    """Beyond what lies beside the frame, below what is a blob of its own."""
    value = float(rng.randrange(1, 1000))
    return Job("matmul", {"a": np.full((24, 24), value), "b": np.eye(24)}, {}, "c", np.full((24, 24), value), "safetensors")


def batch_blob(rng):
    """Many problems in one file of the blob store."""
    a = np.array([[[float(rng.randrange(-9, 10))]] for _ in range(64)]) * np.ones((64, 40, 40))
    return Job("matmul", {"a": a, "b": np.broadcast_to(np.eye(40), (64, 40, 40)).copy()}, {}, "c", a, "safetensors")


def large(rng):
    n = rng.choice([200, 300])
    a = np.arange(n * n, dtype=float).reshape(n, n) + rng.randrange(1000)
    return Job("matmul", {"a": a, "b": np.eye(n)}, {}, "c", a, "safetensors")


def system(rng):
    d = np.array([float(2 ** rng.randrange(6)) for _ in range(4)])
    x = np.array([float(rng.randrange(1, 99)) for _ in range(4)])
    return Job("solve", {"a": np.diag(d), "b": d * x}, {}, "x", x)


def singular(rng):
    return Job("solve", {"a": np.zeros((3, 3)), "b": np.full(3, 1.0 + rng.randrange(9))}, {}, "x", None, code="singular_matrix")


def singular_for_many(rng):
    """Fails, too; `value` has the shape of what it would have made."""
    return Job("solve", {"a": np.zeros((3, 3)), "b": np.full((3, 3), 1.0 + rng.randrange(9))}, {}, "x", np.zeros((3, 3)),
               code="singular_matrix")


def distances(rng):
    step = float(rng.randrange(1, 9))
    x = np.array([[0.0, 0.0], [3 * step, 4 * step]])
    return Job("distance", {"x": x}, {}, "d", np.array([[0, 5 * step], [5 * step, 0]]))


def line(rng):
    slope = float(rng.randrange(-5, 6))
    x = np.arange(8.0).reshape(8, 1)
    return Job("regression", {"x": x, "y": x[:, 0] * slope + 2}, {}, "coef", np.array([slope]))


def doublings(length):
    """Each step is twice the one before it."""
    steps = {"s0": {"op": "matmul", "inputs": {"a": {"input": "a"}, "b": {"input": "two"}}}}
    for i in range(1, length):
        steps[f"s{i}"] = {"op": "matmul", "inputs": {"a": {"step": f"s{i - 1}"}, "b": {"input": "two"}}}
    return steps


def graph(rng):
    n, length = rng.randrange(1, 6), rng.randrange(1, 9)
    a = np.array([[float(rng.randrange(-9, 10)) for _ in range(n)] for _ in range(n)])
    return Graph(doublings(length), {"a": a, "two": np.eye(n) * 2}, f"s{length - 1}.c", a * 2.0 ** length)


def large_graph(rng):
    """Data and a result in files, and some time between the first step and the last."""
    n, length = 200, rng.randrange(2, 30)
    a = np.arange(n * n, dtype=float).reshape(n, n) % 97
    return Graph(doublings(length), {"a": a, "two": np.eye(n) * 2}, f"s{length - 1}.c", a * 2.0 ** length, "safetensors")


def graph_that_fails(rng):
    steps = doublings(3)
    steps["x"] = {"op": "solve", "inputs": {"a": {"step": "s2"}, "b": [1.0 + rng.randrange(9), 0]}}
    return Graph(steps, {"a": np.ones((2, 2)), "two": np.eye(2) * 2}, "x.x", None, code="singular_matrix")


GRAPHS = [(graph, 4), (large_graph, 2), (graph_that_fails, 1)]
FEEDING = [(small, 3), (in_segment, 2), (large, 1), (singular_for_many, 1)]  # what others wait for
KINDS = [(small, 10), (in_segment, 5), (batch_blob, 1), (large, 2), (system, 4), (singular, 1), (distances, 3), (line, 3), *GRAPHS]


class Client:
    """A connection that is made anew when it breaks, and what one tenant says with each request."""

    def __init__(self, port, headers, note, timeout=40):
        self.port, self.headers, self.note, self.timeout = port, headers, note, timeout
        self.connection = None

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, body), or None where no answer came; any answer that no client deserves is noted."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        try:
            self.connection.request(method, path, body, {**self.headers, **(headers or {})})
            response = self.connection.getresponse()
            answer = response.status, response.headers, response.read()
            if response.will_close:
                self.close()
        except (OSError, http.client.HTTPException):
            self.close()
            return None
        if answer[0] >= 500 and answer[0] != 503:
            self.note("crash", status=answer[0], path=path, body=answer[2][:300].decode(errors="replace"))
        return answer

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def code_of(body):
    try:
        return json.loads(body).get("code")
    except ValueError:
        return body[:80].decode(errors="replace")


class Story:
    """One job from its first request to the end that its client saw."""

    def __init__(self, key, job, tenant, members, cancel):
        self.key, self.job, self.tenant, self.cancel = key, job, tenant, cancel
        self.query = ""
        if job.type == TYPES["json"]:
            if members:
                job.body = json.dumps({**json.loads(job.body), **members}).encode()
        else:
            self.query = "".join(f"&{name}={value}" for name, value in members.items())
        self.deadline = "deadline_ms" in members
        self.id = self.end = self.lost = None

    def post(self, client, wait):
        """Whether it was acknowledged."""
        since = time.monotonic()
        query = f"wait={wait}{self.query}" if wait else self.query[1:]
        answer = client.ask("POST", f"{self.job.path}?{query}", self.job.body,
                            {"Content-Type": self.job.type, "Idempotency-Key": self.key})
        if answer is None:
            client.note("unanswered", key=self.key, waited=wait > 0, since=since)
            return False
        status, _, body = answer
        if status in (200, 202):
            document = json.loads(body)
            self.id = document["id"]
            client.note("ack", key=self.key, id=self.id, op=self.job.op, since=since, tenant=self.tenant,
                        deadline=self.deadline, code=self.job.code)
            self.heard(client, document, since)
            return True
        self.refused(client, status, code_of(body), since)
        return False

    def refused(self, client, status, code, since):
        client.note("refused", key=self.key, status=status, code=code, since=since)
        if status == 410:  # for good: its key leads to a record whose outputs have been swept
            self.lost = code

    def heard(self, client, document, since):
        """A document of the job."""
        state = document["state"]
        value = None
        if state == "succeeded":
            value = self.check(client, document)
            if value is None:
                return
        if state in FINAL:
            self.end = state
        client.note("seen", id=self.id, state=state, since=since, value=value,
                    code=(document.get("error") or {}).get("code"))

    def check(self, client, document):
        """"right", "wrong …", or None where the output could not be fetched now."""
        entry = document["outputs"][self.job.output]
        if "data" in entry:
            got = np.array(entry["data"], float)
        else:
            answer = client.ask("GET", f"/jobs/{self.id}/outputs/{self.job.output}", headers={"Accept": "application/x-npy"})
            if answer is None or answer[0] in LATER:
                return None
            if answer[0] != 200:
                return f"wrong: its output is {answer[0]} {code_of(answer[2])}"
            import io
            got = np.load(io.BytesIO(answer[2]), allow_pickle=False)
        if got.shape == self.job.value.shape and np.max(np.abs(got - self.job.value), initial=0) <= 1e-9:
            return "right"
        return f"wrong: {got.ravel()[:4].tolist()} of shape {got.shape}"

    def look(self, client, wait=0):
        since = time.monotonic()
        answer = client.ask("GET", f"/jobs/{self.id}" + (f"?wait={wait}" if wait else ""))
        if answer is None:
            return
        status, _, body = answer
        if status in (200, 202):
            self.heard(client, json.loads(body), since)
        elif status in (404, 410) or (status == 503 and code_of(body) == "job_lost"):
            self.lost = code_of(body)
            client.note("lost", id=self.id, status=status, code=self.lost, since=since)

    def delete(self, client):
        since = time.monotonic()
        client.note("cancelling", id=self.id)  # it may be heard even where its answer is not
        answer = client.ask("DELETE", f"/jobs/{self.id}")
        if answer is not None and answer[0] == 200:
            self.heard(client, json.loads(answer[2]), since)

    def forget(self, client):
        """Whether it was heard."""
        client.note("forgetting", id=self.id)
        answer = client.ask("DELETE", f"/jobs/{self.id}?forget=1")
        return answer is not None and answer[0] in (200, 404)

    def over(self):
        return self.end is not None or self.lost is not None


class Fed(Story):
    """A job on the output of another one, which is sent before it and may be running still."""

    def __init__(self, first, cancel):
        super().__init__(first.key + "+", first.job, first.tenant, {}, cancel)
        self.first = first

    def post(self, client, wait):
        if self.first.id is None and not self.first.post(client, 0):
            self.lost = self.first.lost  # where it was refused for good there is nothing to refer to
            return False
        if not self.first.over():
            self.first.look(client, wait=1)
        self.job = Twice(self.first.job, self.first.id)
        return super().post(client, wait)

    def refused(self, client, status, code, since):
        client.note("refused", key=self.key, status=status, code=code, since=since, after=self.first.id)
        if status == 422:  # for good: the other one has no result, or is gone
            self.lost = code

    def look(self, client, wait=0):
        if not self.first.over():
            self.first.look(client)
        if self.id is not None and self.lost is None:
            super().look(client, wait)

    def over(self):
        return super().over() and self.first.over()

    def forget(self, client):
        return (self.first.lost is not None or self.first.forget(client)) and super().forget(client)


class Load:
    """Threads, each a client of one tenant, that send stories until they are told to stop."""

    def __init__(self, port, rng, tenants, note, threads=12, rate=250.0, kept=0.1, kinds=None, chains=0.1):
        """`kept`: the share of jobs that are forgotten at the end only. `kinds`: of jobs, with their weights. `chains`: the
        share of stories whose jobs wait for each other."""
        self.kinds, self.chains = kinds or KINDS, chains
        self.port, self.tenants, self.note, self.rate, self.kept = port, tenants, note, rate / threads, kept
        self.seeds = [rng.getrandbits(64) for _ in range(threads)]
        self.stopping, self.threads, self.open = threading.Event(), [], []
        self.lock = threading.Lock()
        self.failures = []
        self.round = 0

    def start(self):
        import random
        self.stopping.clear()
        self.round += 1
        self.threads = [threading.Thread(target=self.run, args=(number, random.Random(seed + self.round)), daemon=True)
                        for number, seed in enumerate(self.seeds)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        """The stories that have not ended for their clients."""
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        if self.failures:
            raise self.failures[0]
        with self.lock:
            left, self.open = self.open, []
        return left

    def run(self, number, rng):
        tenant = number % len(self.tenants)
        client = Client(self.port, self.tenants[tenant], self.note)
        count, known = 0, None
        try:
            while not self.stopping.is_set():
                began = time.monotonic()
                story = self.make(rng, f"{self.round}-{number}-{count}", tenant)
                count += 1
                self.note("submit", key=story.key, op=story.job.op)
                if not self.see_through(story, client, rng):
                    with self.lock:
                        self.open.append(story)
                elif story.lost is not None or rng.random() < self.kept or not story.forget(client):
                    with self.lock:
                        self.open.append(story)
                if known is not None and len(self.tenants) > 1:  # nobody else's job is to be seen
                    other = Client(self.port, self.tenants[(tenant + 1) % len(self.tenants)], self.note)
                    answer = other.ask("GET", f"/jobs/{known}")
                    other.close()
                    if answer is not None and answer[0] not in LATER:
                        self.note("foreign", id=known, status=answer[0])
                known = story.id
                self.stopping.wait(max(0.0, 1 / self.rate - (time.monotonic() - began)))
        except Exception as failure:  # a mistake of this program, or an answer of no known form
            self.failures.append(failure)
        finally:
            client.close()

    def make(self, rng, key, tenant):
        kind = rng.choices([kind for kind, _ in self.kinds], [weight for _, weight in self.kinds])[0]
        members = {}
        if rng.random() < 0.05:
            members["deadline_ms"] = rng.choice([1, 50, 2000])
        if rng.random() < 0.2:
            members["priority"] = rng.choice(["high", "low"])
        story = Story(key, kind(rng), tenant, members, rng.random() < 0.06)
        if not self.chains or rng.random() > self.chains:
            return story
        kind = rng.choices([kind for kind, _ in FEEDING], [weight for _, weight in FEEDING])[0]
        story = Story(key, kind(rng), tenant, {}, False)
        for _ in range(rng.randrange(1, 5)):
            story = Fed(story, False)
        story.cancel = rng.random() < 0.1
        return story

    def see_through(self, story, client, rng):
        """Whether an end was seen."""
        wait = rng.choice([0, 0, 5])
        while not story.post(client, wait) and story.lost is None:
            if self.stopping.wait(0.02 + 0.05 * rng.random()):
                return False
        if story.cancel and story.id is not None:
            story.delete(client)
        elif rng.random() < 0.15 and story.id is not None and not story.over():  # the same again: the same job
            story.post(client, 0)
        while not story.over():
            if self.stopping.is_set():
                return False
            story.look(client, 5)
            if not story.over():
                self.stopping.wait(0.02)
        if rng.random() < 0.3 and story.lost is None:  # what has ended stays so
            story.look(client)
        return True


def settle(stories, port, tenants, note, seconds):
    """Sees all of them to an end, each a second time, and forgets them. -> those that have not ended."""
    left, end = list(stories), time.monotonic() + seconds
    clients = [Client(port, headers, note) for headers in tenants]
    while left and time.monotonic() < end:
        again = []
        for story in left:
            client = clients[story.tenant]
            if story.id is None and story.lost is None and not story.post(client, 0):
                again.append(story)
                continue
            if not story.over():
                story.look(client, 1)
            if story.over() and story.lost is None:
                story.look(client)
            if not story.over() or (story.lost is None and not story.forget(client)):
                again.append(story)
        left = again
        if left:
            time.sleep(0.05)
    for client in clients:
        client.close()
    return left
