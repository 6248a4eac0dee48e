"""What jobs used that have ended: the log, the metrics and the stream say what the job documents say."""
import ast
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
from service import Redis, safetensors, TYPES, wait_for
from test_tenants import keys

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "ended.md"


def redis_url(service):
    return (service.folder / "data" / "redis.url").read_text().strip()


def entries(service):
    redis = Redis(service)
    rows = [entry[1] for entry in redis("XRANGE", "{blasd}:ended", "-", "+")]
    redis.close()
    return [{name.decode(): value.decode() for name, value in zip(row[::2], row[1::2], strict=True)} for row in rows]


def some_jobs(service, count, headers=None):
    """Documents of jobs that have ended in many ways: alone, as batch entries, failed, expired, cancelled."""
    ids, headers = [], {"Content-Type": TYPES["safetensors"], **(headers or {})}
    a = np.random.default_rng(count).random((24, 24))
    for i in range(count):
        op, inputs = ("solve", {"a": np.zeros((3, 3)), "b": np.ones(3)}) if i % 7 == 3 else ("matmul", {"a": a, "b": a})
        wait, late = "?wait=30" if i % 5 == 0 else "", {"deadline_ms": "1"} if i % 9 == 8 else {}
        answer = service.request("POST", "/jobs" + wait, safetensors(inputs, op=op, labels=f"run={i}", **late), headers)
        assert answer.status in (200, 202), answer.body
        ids.append(answer.json()["id"])
        if i % 11 == 6:
            service.request("DELETE", f"/jobs/{ids[-1]}", headers=headers, check=False)

    def ended(job):
        document = service.request("GET", f"/jobs/{job}", headers=headers).json()
        return document["state"] not in ("queued", "running") and document
    return [wait_for(lambda: ended(job)) for job in ids]  # noqa: B023


def us_of(document):
    """What the job used of its device, of a batch its share."""
    execution, timing = document["execution"], document["timing"]
    if execution["device"] is None:
        return 0
    return sum(timing[f"{part}_ms"] for part in ("upload", "compute", "download")) * 1e3 / max(execution["batch_size"] or 1, 1)


def test_the_stream_has_each_job_once(make_service, tmp_path):
    """Also of two tenants, and what stands there is the document's; the program of the documentation adds it up."""
    file, secrets = keys(tmp_path, ann={"tenant": "ann"}, ben={"tenant": "ben"})
    service = make_service("--keys", file, "--limit", "ended_jobs=1000")
    made = {tenant: some_jobs(service, 40, {"Authorization": f"Bearer {key}"}) for tenant, key in secrets.items()}
    told = entries(service)
    assert len(told) == len({row["id"] for row in told}) == 80
    rows = {row["id"]: row for row in told}
    for tenant, documents in made.items():
        for job in documents:
            row, execution = rows[job["id"]], job["execution"]
            error = job["error"]["code"] if job["state"] != "succeeded" else ""
            assert (row["tenant"], row["op"], row["state"], row["code"]) == (tenant, job["op"], job["state"], error)
            assert row["labels"] == "run=" + job["labels"]["run"] and row["device"] == (execution["device"] or "")
            if row["device"]:
                assert (float(row["flops"]), int(row["bytes"])) == (execution["flops"] or 0, execution["bytes"] or 0)
            assert abs(int(row["device_us"]) - us_of(job)) <= 2 and int(row["created_us"]) <= int(row["finished_us"])
    code = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.S)[1]
    env = {**os.environ, "BLASD_REDIS": redis_url(service)}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    sums = ast.literal_eval(ran.stdout or "0")
    assert ran.returncode == 0 and set(sums) == set(made), ran.stderr
    for tenant, documents in made.items():
        assert abs(sums[tenant] - sum(us_of(job) for job in documents) / 1e6) < 1e-4


def test_the_stream_has_a_bound_and_is_off_else(make_service):
    service = make_service("--limit", "ended_jobs=50")
    some_jobs(service, 300)
    assert 0 < len(entries(service)) <= 150  # about so many: whole nodes of 100 go
    service.stop()
    service = make_service()
    some_jobs(service, 3)
    redis = Redis(service)
    assert not redis("EXISTS", "{blasd}:ended")
    redis.close()


def test_the_log_and_the_metrics(make_service, tmp_path):
    file, secrets = keys(tmp_path, ann={"tenant": "ann"}, ben={"tenant": "ben"}, watch={"role": "metrics"})
    watch = secrets.pop("watch")
    service = make_service("--keys", file, "--audit", "--metrics-tenants", "--price", "cpu=3.6/h,currency=EUR", "--log", "json")
    made = {tenant: some_jobs(service, 40, {"Authorization": f"Bearer {key}"}) for tenant, key in secrets.items()}
    ids = {job["id"]: (tenant, job) for tenant, documents in made.items() for job in documents}

    def lines():
        told = [json.loads(line) for line in (service.folder / "log").read_text().splitlines() if line.startswith("{")]
        return [line for line in told if line["message"] in {f"job {state}" for state in ("succeeded", "failed", "cancelled", "expired")}]
    wait_for(lambda: {line["id"] for line in lines()} == set(ids))
    assert len(lines()) == len(ids)
    for line in lines():
        tenant, job = ids[line["id"]]
        assert (line["message"], line["tenant"], line["op"]) == (f"job {job['state']}", tenant, job["op"])
        if job["state"] not in ("succeeded", "failed"):
            continue
        assert abs(line["device_seconds"] * 1e6 - us_of(job)) <= 2 and line["energy_joules"] >= 0
        assert (line["flops"], line["bytes"]) == (job["execution"]["flops"] or 0, job["execution"]["bytes"] or 0)
        assert line["cost"] == job["cost"]["amount"] and line["currency"] == "EUR"

    def total(name, tenant):
        text = service.request("GET", "/metrics", headers={"Authorization": f"Bearer {watch}"}).body.decode()
        return sum(float(value) for value in re.findall(rf'^{name}{{tenant="{tenant}",worker="[^"]*"}} (\S+)$', text, re.M))
    for tenant, documents in made.items():
        ran = [job for job in documents if job["state"] in ("succeeded", "failed")]
        wait_for(lambda: total("blasd_tenant_ended_jobs_total", tenant) == len(ran))  # noqa: B023
        assert abs(total("blasd_tenant_device_seconds_total", tenant) - sum(map(us_of, ran)) / 1e6) < 1e-3
