"""Labels: in every form of a request, in every document, in lists, and in each client."""
import asyncio
import json
import subprocess
import urllib.parse

import blasd
import numpy as np
import pytest
from service import BLASD, TYPES
from test_jobs import poll

LABELS = {"project": "thesis", "run": "7"}
TEXT = "run=7,project=thesis"
A = np.array([[2.0, 1.0], [1.0, 3.0]])


def job_of(answer):
    assert answer.status in (200, 202), answer.body
    return answer.json()


def test_every_form_takes_them(service):
    forms = [{"labels": LABELS}, {"form": "safetensors", "query": "labels=" + TEXT}, {"form": "safetensors", "query": "labels=" + urllib.parse.quote(TEXT)},
             {"form": "safetensors", "labels": TEXT}, {"form": "multipart", "labels": TEXT}]
    for form in forms:
        query = form.pop("query", "")
        for wait in (30, 0.001):
            job = job_of(service.post("eigh", {"a": A}, wait=wait, query=query and "&" + query, **form))
            assert job["labels"] == LABELS and list(job["labels"]) == ["project", "run"]
        job = job_of(service.post("eigh", {"a": A}, wait=0, query=query and "?" + query, **form))
        assert job["labels"] == LABELS
        ended = poll(service, job["id"])
        assert ended["labels"] == LABELS and ended["state"] == "succeeded"
        assert service.request("GET", f"/jobs/{job['id']}/result").json()["labels"] == LABELS
        assert service.run("eigh", {"a": A}, query=query and "&" + query, **form)[1]["labels"] == LABELS
    assert "labels" not in job_of(service.post("eigh", {"a": A}))


def test_in_inference_requests(service):
    body = {"inputs": [{"name": "a", "shape": [2, 2], "datatype": "FP64", "data": A.ravel().tolist()}],
            "parameters": {"labels": "from=triton"}}
    assert service.request("POST", "/v2/models/eigh/infer", json.dumps(body), check=False).status == 200
    assert [job["op"] for job in service.list_jobs("label=from=triton")] == ["eigh"]
    body["parameters"]["labels"] = 7
    assert service.request("POST", "/v2/models/eigh/infer", json.dumps(body), check=False).status == 422


@pytest.mark.parametrize("labels, says", [
    ({"run": 7}, "must be a string"), (["run=7"], "an object of strings"), ("run=7", "an object of strings"),
    ({"a b": "1"}, "name"), ({"": "1"}, "name"), ({"run": "a,b"}, "'run'"), ({"run": "x" * 64}, "'run'"),
    ({"run": "\u00e9"}, "'run'"), ({f"l{i}": "1" for i in range(17)}, "at most 16"),
    ({f"l{i}": "x" * 60 for i in range(5)}, "255")])
def test_what_is_none_is_refused(service, labels, says):
    body = json.dumps({"op": "eigh", "inputs": {"a": A.tolist()}, "labels": labels})
    answer = service.request("POST", "/jobs?wait=30", body, {"Content-Type": TYPES["json"]})
    assert answer.status == 422 and answer.json()["code"] == "invalid_field" and answer.json()["field"] == "labels"
    assert says in answer.json()["detail"]


def test_lists_are_narrowed_by_one(make_service):
    service = make_service()
    plain = {"op": "eigh", "inputs": {"a": A.tolist()}}

    def submit(labels, **more):
        body = json.dumps({**plain, **more, **({"labels": labels} if labels else {})})
        return job_of(service.request("POST", "/jobs", body, {"Content-Type": TYPES["json"]}))["id"]
    done = [submit({"run": str(i % 3), "project": "thesis"}) for i in range(60)] + [submit({}) for _ in range(20)]
    done += [submit({"run": "1", "deadline": "no"}, deadline_ms=60_000) for _ in range(4)]
    for job in done:
        poll(service, job)
    failed = job_of(service.request("POST", "/jobs?wait=30", json.dumps({"op": "solve", "labels": {"run": "1"}, "inputs": {
        "a": [[0, 0], [0, 0]], "b": [1, 1]}}), {"Content-Type": TYPES["json"]}))
    assert failed["state"] == "failed" and failed["labels"] == {"run": "1"}
    with service.worker_held():
        waiting = [submit({"run": "1"}) for _ in range(5)]
        names = {query: sorted(job["id"] for job in service.list_jobs(query, 7)) for query in (
            "label=run=1", "label=run=1&state=queued", "label=run=1&op=solve", "label=run=1&state=succeeded", "label=project",
            "label=run=", "label=ru", "label=run=11", "label=deadline&op=eigh", "label=run=1&before=5")}
        cancelled = service.request("DELETE", f"/jobs/{waiting[0]}").json()
        assert cancelled["labels"] == {"run": "1"}
    assert names["label=run=1"] == sorted([*done[1:60:3], *done[80:], failed["id"], *waiting])
    assert names["label=run=1&state=queued"] == sorted(waiting)
    assert names["label=run=1&op=solve"] == [failed["id"]]
    assert names["label=run=1&state=succeeded"] == sorted([*done[1:60:3], *done[80:]])
    assert names["label=project"] == sorted(done[:60])
    assert names["label=deadline&op=eigh"] == sorted(done[80:])
    assert not any(names[query] for query in ("label=run=", "label=ru", "label=run=11", "label=run=1&before=5"))
    for query in ("label=", "label==1", "label=a,b", "label=a%20b"):
        answer = service.request("GET", f"/jobs?{query}")
        assert answer.status == 400 and answer.json()["field"] == "label", query


def test_jobs_with_the_same_ones_share_a_batch(make_service):
    """Their labels keep no two apart, and each has its own in its record."""
    service = make_service()

    async def main(labels):
        async with blasd.AsyncClient(service.url) as client:
            return await asyncio.gather(*[client.run("matmul", a=A, b=A * i, labels=labels(i)) for i in range(100)])
    same = asyncio.run(main(lambda i: {"sweep": "one"}))
    assert all(result.job["labels"] == {"sweep": "one"} for result in same)
    own = asyncio.run(main(lambda i: {"i": str(i)}))
    assert [result.job["labels"] for result in own] == [{"i": str(i)} for i in range(100)]
    assert all(np.array_equal(result["c"], A @ (A * i)) for i, result in enumerate(own))


def test_one_key_is_another_request_with_other_labels(service):
    def submit(labels):
        body = json.dumps({"op": "eigh", "inputs": {"a": A.tolist()}, "labels": labels})
        return service.request("POST", "/jobs?wait=30", body, {"Content-Type": TYPES["json"], "Idempotency-Key": "of-labels"})
    first = job_of(submit({"run": "1", "x": "y"}))
    assert job_of(submit({"x": "y", "run": "1"}))["id"] == first["id"]
    assert submit({"run": "2"}).json()["code"] == "idempotency_conflict"
    assert submit({}).json()["code"] == "idempotency_conflict"


def test_python(service):
    with blasd.Client(service.url) as client:
        assert client.run("eigh", a=A, labels=LABELS).job["labels"] == LABELS
        assert client.matmul(A, A, labels={"python-by": "name"}).shape == (2, 2)
        assert client.eigvalsh(A, labels={"python-by": "decomposition"}).shape == (2,)
        job = client.submit("eigh", a=A, labels={"python-by": "submit"})
        assert job.labels == {"python-by": "submit"} and client.job(job.id).labels == {"python-by": "submit"}
        assert [found.id for found in client.jobs(label="python-by=submit")] == [job.id]
        assert {tuple(found.labels.values()) for found in client.jobs(label="python-by")} == {("name",), ("decomposition",), ("submit",)}
        assert [r.job["labels"]["i"] for r in client.map("matmul", ({"a": A, "b": A, "labels": {"i": str(i)}} for i in range(5)))] \
            == list("01234")
        for wrong in ({"run": 7}, {"a b": "1"}, {"a": "1,b=2"}, {"a": "x" * 64}):
            with pytest.raises(blasd.InputError) as caught:
                client.submit("eigh", a=A, labels=wrong)
            assert caught.value.field == "labels" and caught.value.code == "invalid_field"
        with pytest.raises(blasd.InvalidInput):
            client.jobs(label="=")


def test_the_command_line(service, tmp_path):
    np.save(tmp_path / "a.npy", A)

    def run(*words, status=0):
        done = subprocess.run([BLASD, *words, "--url", service.url], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == status, done
        return done
    job = run("submit", "eigh", f"a={tmp_path}/a.npy", "--label", "from=shell", "--label", "run=7").stdout.strip()
    assert "  label from=shell\n  label run=7\n" in run("get", job, "--wait", "30").stdout
    listed = json.loads(run("jobs", "--label", "from=shell", "--json").stdout)["jobs"]
    assert [one["id"] for one in listed] == [job] and listed[0]["labels"] == {"from": "shell", "run": "7"}
    done = run("run", "eigh", f"a={tmp_path}/a.npy", "--label", "a b", status=1)
    assert "label" in done.stderr
    assert "too long" in run("run", "eigh", f"a={tmp_path}/a.npy", "--label", "x" * 600, status=2).stderr
