"""What holds for every route: codes, status, booleans, null for what is not known, filters, Request-Id, and many jobs cancelled at once."""
import json
import re
import subprocess
import urllib.parse

import numpy as np
import pytest
from callers import on_a_loop
from service import BLASD, TYPES, safetensors, until, wait_for

SMALL = {"a": np.eye(2), "b": np.eye(2)}
PLAIN = {"op": "matmul", "inputs": {"a": [[1]], "b": [[1]]}}
JSON = {"Content-Type": TYPES["json"]}
SINGULAR = {"op": "solve", "inputs": {"a": [[0, 0], [0, 0]], "b": [1, 1]}}

# method, path, body, Accept -> status, code or state, field. {done}: a job that has succeeded; {failed}: one that failed.
CASES = [
    ("GET", "/jobs?op=nosuch", None, None, 400, "malformed_query", "op"),
    ("GET", "/graphs?op=matmul", None, None, 400, "malformed_query", "op"),
    ("GET", "/events?op=nosuch", None, None, 400, "malformed_query", "op"),
    ("GET", "/jobs?limit=100000", None, None, 200, None, None),
    ("GET", "/tensors?limit=100000", None, None, 200, None, None),
    ("GET", "/jobs?limit=0", None, None, 400, "malformed_query", "limit"),
    *(("GET", "/jobs?since=" + urllib.parse.quote(when), None, None, 200, None, None)
      for when in ("2026-01-31", "2026-01-31T12:00:00Z", "2026-01-31t12:00:00.5z", "2026-01-31T12:00:00+05:30", "2026-01-31T12:00:00-08:00", "1795455123.5")),
    ("GET", "/jobs?since=2026-01-31T12:00:00+01:00", None, None, 200, None, None),  # an unescaped plus
    *(("GET", "/jobs?since=" + urllib.parse.quote(when), None, None, 400, "malformed_query", "since")
      for when in ("2026-02-30", "2026-01-31T12:00", "2026-01-31T12:00:00", "2026-01-31T12:00:00+1:00", "2026-01-31T12:00:00+24:00", "2026-01-31 12:00:00Z", "today")),
    *(("POST", f"/jobs?dry_run={yes}", PLAIN, None, 200, None, None) for yes in ("1", "true")),
    *(("POST", f"/jobs?wait=30&dry_run={no}", PLAIN, None, 200, "succeeded", None) for no in ("0", "false")),
    ("POST", "/jobs?dry_run=yes", PLAIN, None, 400, "malformed_query", "dry_run"),
    ("POST", "/tensors?sha256=true", [[1]], None, 201, None, None),
    ("DELETE", "/jobs/{done}?forget=false", None, None, 409, "job_ended", None),
    *(("POST", "/jobs?wait=30", {"op": "regression", "inputs": {"x": [[1], [2], [4]], "y": [1, 2, 3]}, "params": {"fit_intercept": value}}, None, 200, "succeeded", None)
      for value in (True, 1, False, 0)),
    *(("POST", "/jobs", {"op": "regression", "inputs": {"x": [[1], [2], [4]], "y": [1, 2, 3]}, "params": {"fit_intercept": value}}, None, 422, "invalid_parameter", "params.fit_intercept")
      for value in (2, 0.5, "true")),
    ("POST", "/jobs", {"inputs": {}}, None, 422, "missing_field", "op"),
    ("POST", "/jobs", {"op": "matmul", "inputs": {"a": [[1]]}}, None, 422, "missing_input", "inputs.b"),
    ("POST", "/jobs", "", None, 400, "malformed_json", None),
    *(("POST", f"/jobs?{name}={value}", PLAIN, None, 400, "malformed_query", name)
      for name, value in (("op", "matmul"), ("params", "{}"), ("priority", "low"), ("deadline_ms", "5000"), ("device", "cpu"), ("labels", "a=b"), ("keep", "c"), ("results", "c"))),
    ("POST", "/graphs?priority=low", {"steps": {}}, None, 400, "malformed_query", "priority"),
    ("POST", "/jobs?wait=30", SINGULAR, "npy", 422, "singular_matrix", None),
    ("GET", "/jobs/{failed}", None, "npy", 422, "singular_matrix", None),
    ("GET", "/jobs/{failed}/result", None, None, 422, "singular_matrix", None),
    ("GET", "/version", None, None, 200, None, None),
    ("GET", "/graphs", None, None, 200, None, None),
    ("DELETE", "/jobs", None, None, 400, "malformed_query", None),
    ("DELETE", "/jobs?limit=5", None, None, 400, "malformed_query", None),
    ("DELETE", "/jobs?state=succeeded", None, None, 400, "malformed_query", "state"),
    ("DELETE", "/jobs?op=nosuch", None, None, 400, "malformed_query", "op"),
    ("DELETE", "/jobs?label=nobody=here", None, None, 200, None, None),
]


@pytest.fixture(scope="module")
def ended(service):
    return {"done": service.post("matmul", SMALL).json()["id"],
            "failed": service.request("POST", "/jobs?wait=30", json.dumps(SINGULAR), JSON).json()["id"]}


@pytest.mark.parametrize(("method", "path", "body", "accept", "status", "word", "field"), CASES)
def test_what_is_asked_is_answered_so(service, ended, method, path, body, accept, status, word, field):
    headers = {**(JSON if body is not None else {}), **({"Accept": TYPES[accept]} if accept else {})}
    answer = service.request(method, path.replace("{done}", ended["done"]).replace("{failed}", ended["failed"]), body if body in (None, "") else json.dumps(body), headers)
    assert answer.status == status, answer.body
    said = answer.json()
    assert word is None or word in (said.get("code"), said.get("state")), said
    assert (field is None or said.get("field") == field) and ("code" in said) == (status >= 400)


def test_each_request_has_an_id(service, ended):
    paths = ("/jobs", f"/jobs/{ended['done']}", "/ops", "/nothing", "/docs", "/health/live", "/metrics", "/v2", "/jobs/x")
    ids = [service.request("GET", path).headers["Request-Id"] for path in paths for _ in range(2)]
    assert len(set(ids)) == len(ids) and all(re.fullmatch("[0-9a-f]{20}", one) for one in ids)
    job = service.post("matmul", SMALL)
    assert job.headers["Request-Id"] == job.json()["id"]


def test_what_is_not_known_is_null(make_service):
    service = make_service()
    with service.worker_held():
        queued = service.post("matmul", SMALL, wait=0).json()
        for job in (queued, service.request("GET", f"/jobs/{queued['id']}").json(), service.request("GET", "/jobs").json()["jobs"][0]):
            assert [name for name, value in job["timing"].items() if value is not None] == ["receive_ms"]
            assert (job["execution"]["batch_size"], job["execution"]["flops"], job["execution"]["bytes"]) == (None, None, None)
    done = service.request("GET", f"/jobs/{queued['id']}?wait=30").json()
    assert done["created_at"] == queued["created_at"] and None not in done["timing"].values() and done["execution"]["batch_size"] >= 1


def test_a_job_that_runs_is_forgotten(make_service):
    """GET answers 200 whether the job has ended or not; forget cancels first."""
    service = make_service()
    with service.worker_held():
        ids = [service.post("matmul", SMALL, wait=0).json()["id"] for _ in range(2)]
        assert service.request("GET", f"/jobs/{ids[0]}?wait=0.01").status == 200
        for one, word in zip(ids, ("1", "true")):
            assert service.request("DELETE", f"/jobs/{one}?forget={word}").json()["state"] == "cancelled"
            assert service.request("GET", f"/jobs/{one}").status == 404
    slow = service.post("svd", {"a": np.random.default_rng(1).standard_normal((1500, 1500))}, form="safetensors", wait=0).json()["id"]
    until(service, slow, ("running",))
    assert service.request("DELETE", f"/jobs/{slow}?forget=1").json()["state"] == "cancelled"
    assert service.request("GET", f"/jobs/{slow}").status == 404


def submit(service, count, **members):
    return [service.request("POST", "/jobs", json.dumps({**PLAIN, **members}), JSON).json()["id"] for _ in range(count)]


def test_many_are_cancelled(make_service):
    service = make_service()
    with service.worker_held():
        mine, others = submit(service, 7, labels={"run": "1", "of": "me"}), submit(service, 3, labels={"run": "1", "of": "you"})
        plain, graph = submit(service, 2), service.request("POST", "/graphs", json.dumps({"steps": {"p": PLAIN}, "labels": {"run": "1"}}), JSON).json()["id"]
        assert {job["id"] for job in service.list_jobs("label=run=1&label=of=me", 5)} == set(mine)
        assert [job["id"] for job in service.request("GET", "/graphs?label=run").json()["graphs"]] == [graph]
        cancelled, cursor, requests = 0, "", 0
        while cursor is not None:
            page = service.request("DELETE", f"/jobs?state=queued&label=run=1&label=of=me&limit=5{cursor}").json()
            cancelled, requests = cancelled + page["cancelled"], requests + 1
            cursor = f"&cursor={page['cursor']}" if "cursor" in page else None
        assert cancelled == 7 and requests < 40
        states = {one: service.request("GET", f"/jobs/{one}").json()["state"] for one in (*mine, *others, *plain, graph)}
        assert {one for one, state in states.items() if state == "cancelled"} == set(mine)
        import blasd
        with blasd.Client(service.url) as client:
            assert client.cancel_all(label=["run=1", "of=you"]) == 3 and client.cancel_all(op="graph") == 1
            with pytest.raises(blasd.Error):
                client.cancel_all()
        ways = {"async": lambda label: on_a_loop(service.url, lambda client: client.cancel_all(state="queued", label=label)),
                "command": lambda label: json.loads(subprocess.run(
                    [BLASD, "cancel", "--url", service.url, "--state", "queued", "--label", label, "--json"],
                    check=True, capture_output=True, text=True, timeout=60).stdout)["cancelled"]}
        for way, cancel in ways.items():
            ours = submit(service, 3, labels={"by": way})
            assert cancel(f"by={way}") == 3, way
            assert {service.request("GET", f"/jobs/{one}").json()["state"] for one in ours} == {"cancelled"}
    for one in plain:
        assert wait_for(lambda one=one: service.request("GET", f"/jobs/{one}?wait=9").json()["state"] == "succeeded")


def test_the_query_says_what_other_bodies_cannot(service):
    answer = service.request("POST", "/jobs?wait=30&op=matmul&labels=a=b&params=" + urllib.parse.quote('{"alpha": 2}'),
                             safetensors(SMALL), {"Content-Type": TYPES["safetensors"]})
    assert answer.json()["labels"] == {"a": "b"} and answer.json()["outputs"]["c"]["data"] == [[2, 0], [0, 2]]
