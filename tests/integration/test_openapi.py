"""Server and text say the same: every route, method and answer of api/openapi.yaml is there, and no other."""
import json
import subprocess
import sys

import jsonschema
import numpy as np
from service import API, ROOT, TYPES, multipart, npy


def test_the_server_gives_the_text_it_is_held_to(service):
    assert service.request("GET", "/openapi.json").json() == json.loads((ROOT / "api/openapi.json").read_text())


def test_the_texts_are_what_people_wrote():
    """api/openapi.json and api/docs.html come from api/openapi.yaml and the operations' descriptors."""
    done = subprocess.run([sys.executable, ROOT / "api/generate.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_text_is_well_formed():
    assert API.document["openapi"].startswith("3.0")

    def references(node):
        if isinstance(node, dict):
            if "$ref" in node:
                yield node["$ref"]
            for value in node.values():
                yield from references(value)
        elif isinstance(node, list):
            for value in node:
                yield from references(value)
    for reference in references(API.document):
        API.resolve({"$ref": reference})
    for schema in API.schema["components"]["schemas"].values():
        jsonschema.Draft7Validator.check_schema(schema)


def test_numbers_have_as_many_bits_as_they_need():
    """Generators of clients take 32 where the text says nothing."""
    kinds = {"integer": "int64", "number": "double"}

    def wrong(node, path):
        if isinstance(node, dict) and isinstance(node.get("type"), str) and node.get("format") != kinds.get(node["type"], node.get("format")):
            yield path
        for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            yield from wrong(value, f"{path}/{key}")
    assert list(wrong(API.document, "")) == []


def test_the_parts_of_a_form_are_described(service):
    """Every input and member by its name: what a form of all that the schema has for a product says is taken."""
    form = API.document["components"]["schemas"]["JobForm"]["properties"]
    assert set(form) == {*(port["name"] for op in service.request("GET", "/ops").json()["ops"] for port in op["inputs"]), "op", "params", "inputs",
                         "priority", "deadline_ms", "device", "labels", "keep", "results", "notify", "digest"}
    body = multipart({"op": "matmul", "params": '{"alpha": 2}', "inputs": '{"b": {"eye": 2}}', "priority": "high", "deadline_ms": "60000", "device": "cpu",
                      "labels": "a=b", "keep": '["c"]', "results": "[]", "a": npy(np.eye(2))})
    answer = service.request("POST", "/jobs?wait=30", body, {"Content-Type": TYPES["multipart"]})
    assert answer.json()["state"] == "succeeded" and answer.json()["labels"] == {"a": "b"}, answer.body
    graph = multipart({"steps": '{"p": {"op": "matmul", "inputs": {"a": {"input": "a"}, "b": {"input": "b"}}}}', "inputs": '{"b": {"eye": 2}}',
                       "results": '["p"]', "priority": "low", "deadline_ms": "60000", "device": "cpu", "labels": "a=b", "a": npy(np.eye(2))})
    answer = service.request("POST", "/graphs?wait=30", graph, {"Content-Type": TYPES["multipart"]})
    assert answer.json()["state"] == "succeeded", answer.body


ONE = {"shape": [1, 1], "datatype": "FP64", "data": [1]}
BODIES = {"jobs": {"op": "matmul", "inputs": {"a": [[1]], "b": [[1]]}},
          "tensors": [[1]],
          "graphs": {"steps": {"p": {"op": "matmul", "inputs": {"a": [[1]], "b": [[1]]}}}},
          "infer": {"inputs": [{"name": "a", **ONE}, {"name": "b", **ONE}]},
          "register": {"key": "/none", "byte_size": 8}}


def test_every_route_is_there(service):
    job = service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}).json()
    graph = service.request("POST", "/graphs?wait=30", json.dumps(BODIES["graphs"]), {"Content-Type": TYPES["json"]}).json()
    tensor = service.request("POST", "/tensors", "[[1]]", {"Content-Type": TYPES["json"]}).json()
    paths = {"{id}": job["id"], "{version}": "1", "{code}": "queue_full"}
    answered = set()
    for template, item in API.document["paths"].items():
        path = template
        name = {"jobs": "c"}.get(template.split("/")[1], "matmul")
        ids = {"/graphs/{id}": {"{id}": graph["id"]}, "/tensors/{id}": {"{id}": tensor["id"]}}.get(template, {})
        for name, value in {**paths, **ids, "{name}": name}.items():
            path = path.replace(name, value)
        for method in ("get", "post", "put", "patch"):
            body = json.dumps(BODIES.get(template.rsplit("/", 1)[1], {})) if method == "post" else None
            if method == "patch" and method in item:
                body = '{"life_s":9}'
            if (template, method) == ("/events", "get"):  # without an end: test_events.py reads it
                answered.add((template, method))
                continue
            answer = service.request(method.upper(), path, body, {"Content-Type": TYPES["json"]} if body else {})
            if method in item:
                off = answer.status in (403, 404) and ("share" in template or "region" in template)  # others have it on
                assert off or answer.status in (200, 201, 202), (method, path, answer.body)
                answered.add((template, method))
            else:
                assert answer.status == 405 and method.upper() not in answer.headers["Allow"], (method, path)
    for kind, one in (("jobs", job), ("graphs", graph)):
        assert service.request("DELETE", f"/{kind}/{one['id']}").status == 409
        assert service.request("DELETE", f"/{kind}/{one['id']}?forget=1").status == 200
        answered.add((f"/{kind}/{{id}}", "delete"))
    assert service.request("DELETE", "/jobs?label=none").json()["cancelled"] == 0
    answered.add(("/jobs", "delete"))
    assert service.request("DELETE", f"/tensors/{tensor['id']}").status == 200
    answered.add(("/tensors/{id}", "delete"))
    described = {(t, m) for t, item in API.document["paths"].items() for m in item if m != "parameters"}
    assert answered == described


def test_operations_and_requests_match_the_schemas(service):
    request = {"op": "matmul", "inputs": {"a": [[1]], "b": {"dtype": "float64", "shape": [1, 1], "data": [1]}},
               "params": {}, "priority": "low", "deadline_ms": 60000, "device": "cpu"}
    API.validate({"$ref": "#/components/schemas/JobRequest"}, request)
    answer = service.request("POST", "/jobs?wait=10", json.dumps(request), {"Content-Type": TYPES["json"]})
    assert answer.status == 200 and answer.json()["state"] == "succeeded"


def test_every_error_of_the_table_has_a_text():
    for code, entry in API.errors.items():
        assert set(entry) == {"status", "retry", "title", "advice"} and 400 <= entry["status"] < 600, code
