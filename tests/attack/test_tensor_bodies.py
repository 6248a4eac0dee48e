"""Bodies of POST /tensors that name tensors without their bytes: nothing is kept of them, and nothing of others is read."""
import json

import numpy as np
import pytest
from service import TYPES, multipart, npy, safetensors

FORMS = {"a rule": {"eye": 3}, "a large rule": {"full": [30000000], "value": 1}, "a URL": {"url": "https://a.example/x"},
         "a tensor": {"tensor": "t" + "0" * 40}, "an output": {"job": "a" + "0" * 40, "output": "c"}}


def put(service, body, form):
    return service.request("POST", "/tensors", body, {"Content-Type": TYPES[form]})


@pytest.mark.parametrize("what", FORMS)
@pytest.mark.parametrize("beside", [{}, {"a": np.arange(5.0)}], ids=["alone", "beside bytes"])
def test_a_tensor_without_bytes_is_refused(service, what, beside):
    """In a form, in metadata, and as JSON; the front end goes on."""
    def kept():
        return [one["id"] for one in service.request("GET", "/tensors").json()["tensors"]]
    api, text, before = service.part("api"), json.dumps({"b": FORMS[what]}), kept()
    for body, form in [(multipart({**{n: npy(a) for n, a in beside.items()}, "inputs": text}), "multipart"),
                       (safetensors(beside, inputs=text), "safetensors"), (json.dumps(FORMS[what]), "json"),
                       (json.dumps({"tensors": {**{n: a.tolist() for n, a in beside.items()}, "b": FORMS[what]}}), "json")]:
        answer = put(service, body, form)
        assert answer.status == 422 and answer.json()["code"] in ("invalid_tensor", "unknown_field"), (form, answer.body)
    assert service.part("api") == api and kept() == before


@pytest.mark.parametrize("a", [np.zeros(0), np.zeros((0, 3)), np.array(7.0)], ids=["empty", "two lengths", "a number"])
def test_an_empty_one_is_kept(service, a):
    for body, form in [(multipart({"a": npy(a)}), "multipart"), (safetensors({"a": a}), "safetensors"), (json.dumps(a.tolist()), "json")]:
        answer = put(service, body, form)
        assert answer.status == 201, answer.body
        document = answer.json()
        document = document.get("tensors", {"a": document})["a"]
        assert document["bytes"] == a.nbytes
        assert service.request("DELETE", f"/tensors/{document['id']}").status == 200


def test_nothing_of_others_is_read(service):
    """The file of a tensor served another one before, which was longer than what came with this one."""
    pattern, n = float(np.frombuffer(b"\xa7\x5e\x91\xc3\x6b\xd4\x61\x63", "<f8")[0]), 400000
    longer = json.dumps({"b": {"full": [n], "value": 1}})
    for _ in range(3):
        other = put(service, npy(np.full(n, pattern)), "npy").json()["id"]
        service.request("DELETE", f"/tensors/{other}")
        answer = put(service, multipart({"inputs": longer, "a": npy(np.zeros(n - 50000))}), "multipart")
        for document in answer.json().get("tensors", {}).values():
            kept = service.request("GET", f"/tensors/{document['id']}", headers={"Accept": TYPES["npy"]}).npy()
            assert not (kept == pattern).any()
