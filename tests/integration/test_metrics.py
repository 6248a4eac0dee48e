"""GET /metrics: judged by promtool, held to its table, scraped by a real Prometheus that runs the rules and the dashboard."""
import collections
import json
import math
import re
import socket
import subprocess
import urllib.parse
import urllib.request

import numpy as np
import pytest
import yaml
from service import ROOT, wait_for

SMALL = {"a": np.eye(2), "b": np.ones((2, 2))}
RULES = ROOT / "deploy/prometheus/blasd-alerts.yml"
DASHBOARD = ROOT / "deploy/grafana/blasd.json"
SERIES = re.compile(r'([a-z_]+)(?:\{(.*)\})? (\S+)$')


def table():
    """{name: (type, labels)} of docs/metrics.md."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| .*\|$", (ROOT / "docs/metrics.md").read_text(), re.M)
    assert len({name for name, _, _ in rows}) == len(rows) > 40
    return {name: (kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in rows}


def told(text):
    """{name: (type, {label names}, rows)} of a text of metrics, histograms by their own name."""
    found, current = {}, None
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current not in found, f"{current} stands in two places"
            found[current] = (kind, set(), [])
        elif not line.startswith("#"):
            name, labels, value = SERIES.match(line).groups()
            kind, names, rows = found[current]
            assert name == current or (kind == "histogram" and name in (current + "_bucket", current + "_sum", current + "_count")), line
            names.add(tuple(k for k, _ in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "") if k != "le"))
            rows.append((name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")), float(value)))
    return found


def rows_of(service, name, **labels):
    kind_labels_rows = told(service.request("GET", "/metrics").body.decode()).get(name)
    return [] if kind_labels_rows is None else [
        (n, own, value) for n, own, value in kind_labels_rows[2] if all(own.get(k) == v for k, v in labels.items())]


def counted(service, **labels):
    """Jobs in the histogram of phases."""
    return sum(v for n, _, v in rows_of(service, "blasd_job_phase_seconds", phase="total", **labels) if n.endswith("_count"))


def with_ends(folder):
    """A service in which jobs of every kind of end have been, with tenants' figures."""
    from service import Service
    service = Service(folder, "--metrics-tenants").start()
    for wait in (0, 20):
        for _ in range(4):
            service.post("matmul", SMALL, wait=wait)
    service.post("solve", {"a": np.zeros((2, 2)), "b": np.ones(2)})
    service.request("POST", "/jobs", "{", {"Content-Type": "application/json"})
    with service.worker_held():
        assert service.post("matmul", SMALL, wait=10, deadline_ms=100).json()["state"] == "expired"
    wait_for(lambda: counted(service) >= 9, "all jobs are counted", 30)
    return service


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    service = with_ends(tmp_path_factory.mktemp("busy"))
    yield service
    service.stop()


@pytest.fixture
def untouched(tmp_path):
    """The same, to which no test has sent anything more."""
    service = with_ends(tmp_path)
    yield service
    service.stop()


def test_promtool_finds_nothing(busy, prometheus):
    text = busy.request("GET", "/metrics").body
    judged = subprocess.run([prometheus / "promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (judged.returncode, judged.stdout + judged.stderr) == (0, b"")
    broken = subprocess.run([prometheus / "promtool", "check", "metrics"], capture_output=True, check=False,
                            input=b"# HELP blasd_jobs Jobs.\n# TYPE blasd_jobs counter\nblasd_jobs 1\n")
    assert broken.returncode != 0, "promtool would have said so"


def test_what_is_told_is_what_the_table_says(busy):
    said, documented = told(busy.request("GET", "/metrics").body.decode()), table()
    assert set(said) <= set(documented)
    for name, (kind, labels, rows) in said.items():
        assert kind == documented[name][0], name
        assert rows or name.startswith("blasd_tenant_"), name
        assert labels <= {tuple(documented[name][1])}, name
    cards = {name for name in documented if name.startswith("blasd_device_")} - {"blasd_device_busy_ratio"}
    spans = {"blasd_otlp_spans_total", "blasd_worker_otlp_spans_total"}
    assert set(documented) - set(said) <= cards | spans, "documented, and never told"


def test_histograms_add_up(busy):
    said = told(busy.request("GET", "/metrics").body.decode())
    for name, (kind, _, rows) in said.items():
        if kind != "histogram":
            continue
        series = collections.defaultdict(dict)
        for row, labels, value in rows:
            key = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
            series[key][labels.get("le", row.removeprefix(name))] = value
        for key, values in series.items():
            buckets = [(float(le), v) for le, v in values.items() if not le.startswith("_")]
            assert buckets == sorted(buckets) and [v for _, v in buckets] == sorted(v for _, v in buckets), (name, key)
            assert math.isinf(buckets[-1][0]) and buckets[-1][1] == values["_count"], (name, key)
            assert values["_sum"] >= 0


def test_phases_and_batches_of_all_jobs(untouched):
    """Waited for or not, succeeded or failed; the parts are the total."""
    expired = counted(untouched, op="matmul") - 8  # computed in vain, where the worker had been given it
    assert expired in (0, 1) and counted(untouched, op="solve") == 1
    sums = collections.Counter()
    for row, labels, value in rows_of(untouched, "blasd_job_phase_seconds", op="matmul"):
        assert labels["class"] == "cpu" and labels["worker"]
        if row.endswith("_sum"):
            sums[labels["phase"]] += value
    assert set(sums) == {"receive", "queue", "batch_wait", "upload", "compute", "download", "total"}
    assert sums["total"] > 0 and abs(sum(sums.values()) - 2 * sums["total"]) < 1e-4
    batches = {n.removeprefix("blasd_batch_jobs"): v for n, own, v in rows_of(untouched, "blasd_batch_jobs", op="matmul") if "le" not in own}
    # the worker may have had that one and dropped it before it began
    assert batches["_sum"] in (8, 9) and 1 <= batches["_count"] <= 9


def test_ends_problems_redis_and_limits(busy):
    def one(name, **labels):
        (row,) = rows_of(busy, name, **labels)
        return row[2]
    assert one("blasd_jobs_total", op="matmul", state="expired") == 1
    assert one("blasd_job_failures_total", op="solve", code="singular_matrix") == 1
    before = one("blasd_http_problems_total", code="malformed_json"), one("blasd_http_problems_total", code="route_not_found")
    busy.request("POST", "/jobs", "{", {"Content-Type": "application/json"})
    busy.request("GET", "/nowhere")
    assert (one("blasd_http_problems_total", code="malformed_json"), one("blasd_http_problems_total", code="route_not_found")) == (
        before[0] + 1, before[1] + 1)
    assert one("blasd_http_problems_total", code="queue_full") == 0, "there before it happens, so that a rate sees it"
    busy.request("POST", "/tensors", "[1,2]", {"Content-Type": "application/json"})
    assert one("blasd_http_requests_total", route="/tensors", method="POST", status="201") == 1
    calls = [v for n, _, v in rows_of(busy, "blasd_redis_call_seconds") if n.endswith("_count")]
    busy.post("matmul", SMALL)
    assert [v for n, _, v in rows_of(busy, "blasd_redis_call_seconds") if n.endswith("_count")][0] > calls[0]
    assert one("blasd_limit", limit="queue_jobs", unit="jobs") == 200000
    limits = {own["limit"] for _, own, _ in rows_of(busy, "blasd_limit")}
    assert limits == set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/limits.md").read_text(), re.M))


def test_bytes_that_are_sent(make_service):
    """Those of bodies; a HEAD has none, whatever is said to be its length."""
    service = make_service()
    job = service.post("matmul", SMALL).json()
    before = service.request("GET", "/metrics").body
    for path in ("/openapi.json", "/ops", f"/jobs/{job['id']}", f"/jobs/{job['id']}/result", job["outputs"]["c"]["href"]):
        for accept in ("application/json", "application/x-npy"):
            assert service.request("HEAD", path, headers={"Accept": accept}).status == 200
    sent = [told(text.decode())["blasd_http_sent_bytes_total"][2][0][2] for text in (before, service.request("GET", "/metrics").body)]
    assert sent[1] - sent[0] == len(before)


def test_what_waits(make_service):
    service = make_service()

    def one(name, **labels):
        (row,) = rows_of(service, name, **labels)
        return row[2]
    assert one("blasd_queue_oldest_seconds", **{"class": "cpu", "priority": "low"}) == 0
    assert not rows_of(service, "blasd_tenant_waiting_jobs"), "not without --metrics-tenants"
    with service.worker_held():
        ids = [service.post("matmul", SMALL, wait=0, priority="low", device="cpu").json()["id"] for _ in range(3)]
        first = wait_for(lambda: one("blasd_queue_oldest_seconds", **{"class": "cpu", "priority": "low"}), "it waits", 5)
        place = {"class": "cpu", "priority": "low"}
        waiting = one("blasd_queue_waiting_jobs", **place) + one("blasd_queue_claimed_jobs", **place)
        assert waiting == 3 and 0 < first < 60
        service.request("DELETE", f"/jobs/{ids[1]}")
        assert one("blasd_queue_oldest_seconds", **place) > 0, "one that was cancelled is passed over"
    for job in (ids[0], ids[2]):
        assert service.request("GET", f"/jobs/{job}?wait=30").json()["state"] == "succeeded"
    assert one("blasd_queue_oldest_seconds", **place) == 0
    assert one("blasd_results_bytes") > 0


def test_tenants_where_the_operator_allows(busy):
    with busy.worker_held():
        jobs = [busy.post("matmul", SMALL, wait=0).json()["id"] for _ in range(3)]  # an idle worker is given the first
        names = {own["tenant"] for _, own, _ in wait_for(
            lambda: rows_of(busy, "blasd_tenant_waiting_jobs"), "somebody waits", 5)}
        assert names == {"anonymous"}
    for job in jobs:
        busy.request("GET", f"/jobs/{job}?wait=20")


def test_rules_are_right(prometheus):
    for words in (["check", "rules", RULES], ["test", "rules", ROOT / "deploy/prometheus/blasd-alerts.test.yml"],
                  ["check", "config", "--syntax-only", ROOT / "deploy/prometheus/prometheus.yml"]):
        judged = subprocess.run([prometheus / "promtool", *words], capture_output=True, text=True, check=False)
        assert judged.returncode == 0 and "FAIL" not in judged.stdout + judged.stderr, judged.stdout + judged.stderr


def queries():
    """(where, expression) of every rule and every panel."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule.get("alert") or rule["record"], rule["expr"]
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$job", "blasd")


def test_queries_name_what_there_is():
    known = table()
    words = set()
    for where, expression in queries():
        for name in re.findall(r"\b((?:blasd|process)_\w+)", expression):
            base = name if name in known else re.sub(r"_(bucket|sum|count)$", "", name)
            assert base in known, (where, name)
            assert base == name or known[base][0] == "histogram", (where, name)
            words.add(base)
        labels = set(re.findall(r'(\w+)(?:=|!=|=~)"', expression)) - {"job"}
        by = {word for inside in re.findall(r"by \(([^)]*)\)", expression) for word in inside.split(", ")}
        names = {label for base in re.findall(r"\b((?:blasd|process)_\w+)", expression)
                 for label in known.get(base, known.get(re.sub(r"_(bucket|sum|count)$", "", base)))[1]}
        assert labels | by <= names | {"le", "instance"}, where
    silent = set(known) - words - {"blasd_build_info", "blasd_limit", "blasd_tenant_jobs", "blasd_tenant_bytes", "blasd_tenant_results_bytes",
                                   "blasd_tenant_ended_jobs_total", "blasd_tenant_energy_joules_total"}
    assert not silent, f"neither on the dashboard nor in a rule: {silent}"


# Nothing of it happens in this test, or on a machine without a card.
QUIET = {"Failures by code", "Utilisation of cards", "Memory in use", "Power", "Joules a job", "Spans", "Oldest waiting job",
         "Tenants' waiting jobs (--metrics-tenants)", "Tensors evicted"}


def test_a_real_prometheus_runs_them(busy, prometheus, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)],
              "scrape_configs": [{"job_name": "blasd", "static_configs": [{"targets": [f"127.0.0.1:{busy.port}"]}]}]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    server = subprocess.Popen([prometheus / "prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
                               f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=open(tmp_path / "log", "wb"))

    def ask(path, **query):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def value(expression):
        try:
            return ask("query", query=expression)["result"]
        except OSError:
            return []
    try:
        wait_for(lambda: value("up == 1"), "it scrapes the service", 60)
        for _ in range(3):
            busy.post("matmul", SMALL)
            busy.request("POST", "/jobs", "{", {"Content-Type": "application/json"})
        wait_for(lambda: value('count_over_time(up[1m]) > 4') and value("rate(blasd_jobs_total[1m]) > 0") and value("rate(blasd_http_problems_total[1m]) > 0"), "it has seen some", 60)
        empty = {where for where, expression in queries() if not ask("query", query=expression)["result"]}
        alerts = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if "alert" in rule}
        assert empty <= alerts | QUIET, empty - alerts - QUIET
        groups = wait_for(lambda: [g for g in ask("rules")["groups"] if all(r["health"] != "unknown" for r in g["rules"])])
        assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}
        assert not [a for a in ask("alerts")["alerts"] if a["state"] == "firing"]
    finally:
        server.terminate()
        server.wait(30)
