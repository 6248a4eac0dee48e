"""Tensors that are kept, and the jobs that refer to them: by every form, at the limits, while processes die."""
import hashlib
import json
import os
import pathlib

import blasd
import numpy as np
import pytest
from service import API, BOUNDARY, TYPES, Redis, multipart, nested, npy, safetensors, until, wait_for
from test_batch_entries import answer_of, connect, expect_nothing_left, names_pending
from test_tenants import As, keys

RNG = np.random.default_rng(22)


def put(service, array, query=""):
    answer = service.request("POST", f"/tensors{query}", npy(np.asarray(array)), {"Content-Type": TYPES["npy"]})
    assert answer.status == 201, answer.body
    return answer.json()


def run(service, op, inputs, wait=30, **members):
    """A JSON job whose inputs are arrays or references."""
    body = {"op": op, "inputs": {k: v if isinstance(v, dict) else nested(v) for k, v in inputs.items()}, **members}
    return service.request("POST", f"/jobs?wait={wait}" if wait else "/jobs", json.dumps(body),
                           {"Content-Type": TYPES["json"]}, timeout=60 + wait)


def result(answer, name):
    assert answer.status == 200 and answer.json()["state"] == "succeeded", answer.body[:2000]
    return np.array(answer.json()["outputs"][name]["data"])


def problem(answer, status, code, field=None):
    assert answer.status == status, answer.body
    assert answer.json()["code"] == code, answer.body
    if field is not None:
        assert answer.json()["field"] == field, answer.body
    return answer.json()["detail"]


def files(service):
    """The files of the store that hold tensors."""
    for link in pathlib.Path(f"/proc/{service.part('worker')}/fd").iterdir():
        target = pathlib.Path(os.readlink(link))
        if (target / ".store").exists():
            return sorted(p.name for p in target.iterdir() if p.name.startswith("t"))
    raise AssertionError("the worker has no store open")


# --- kept, read, prolonged, forgotten ---------------------------------------------------------------------------------


@pytest.mark.parametrize("array", [
    RNG.standard_normal((3, 4)), np.float32(2.5), np.zeros((0, 5)), np.arange(7, dtype="int16"),
    np.array([True, False]), RNG.standard_normal((300, 300)), np.array([1 + 2j])], ids=lambda a: f"{a.dtype}{a.shape}")
def test_what_is_put_is_what_is_got(service, array):
    made = service.request("POST", "/tensors", npy(array), {"Content-Type": TYPES["npy"]})
    tensor = made.json()
    assert made.status == 201 and made.headers["Location"] == f"/tensors/{tensor['id']}"
    assert (tensor["dtype"], tensor["shape"], tensor["bytes"]) == (array.dtype.name, list(array.shape), array.nbytes)
    path = f"/tensors/{tensor['id']}"
    assert service.request("GET", path).json()["shape"] == list(array.shape)
    got = service.request("GET", path, headers={"Accept": TYPES["npy"]})
    np.testing.assert_array_equal(got.npy(), array)
    part = service.request("GET", path, headers={"Accept": TYPES["npy"], "Range": "bytes=3-9"})
    assert part.status == 206 and part.body == got.body[3:10]
    assert service.request("GET", path, headers={"Accept": TYPES["safetensors"]}).body.endswith(array.tobytes())
    assert service.request("DELETE", path).status == 200
    problem(service.request("GET", path), 410, "tensor_expired")
    problem(service.request("DELETE", path), 410, "tensor_expired")


def test_the_sum_of_what_is_kept(service):
    """Of the bytes that lie there: the same however they came, and in whatever pieces; told for as long as it is kept."""
    a = RNG.standard_normal((700, 300)).astype("float32")
    sum_of = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in (("a", a), ("empty", a[:0]))}
    one = put(service, a, "?sha256=1")
    assert one["sha256"] == sum_of["a"]
    assert put(service, a.astype(">f4"), "?sha256=1&life_s=60")["sha256"] == sum_of["a"]
    path = f"/tensors/{one['id']}"
    assert service.request("GET", path).json()["sha256"] == sum_of["a"]
    assert service.request("PATCH", path, '{"life_s": 9}', {"Content-Type": TYPES["json"]}).json()["sha256"] == sum_of["a"]
    assert service.request("DELETE", path).json()["sha256"] == sum_of["a"]
    bodies = {TYPES["json"]: json.dumps({"tensors": {name: {"dtype": "float32", "shape": array.shape, "data": array.ravel().tolist()}
                                                    for name, array in (("a", a), ("empty", a[:0]))}}),
              TYPES["safetensors"]: safetensors({"a": a, "empty": a[:0]}),
              f"multipart/form-data; boundary={BOUNDARY}": multipart({"a": npy(a), "empty": npy(a[:0])})}
    for kind, body in bodies.items():
        made = service.request("POST", "/tensors?sha256=1", body, {"Content-Type": kind}).json()["tensors"]
        assert {name: tensor["sha256"] for name, tensor in made.items()} == sum_of, kind
    assert "sha256" not in put(service, a) and "sha256" not in put(service, a, "?sha256=0")
    kept = service.request("POST", "/jobs?wait=30", json.dumps({"op": "matmul", "keep": ["c"], "params": {"transpose_a": True},
                           "inputs": {"a": {"tensor": put(service, a, "?sha256=1")["id"]}, "b": {"eye": 700, "dtype": "float32"}}}),
                           {"Content-Type": TYPES["json"]})
    assert kept.json()["state"] == "succeeded"
    problem(service.request("POST", "/tensors?sha256=yes", npy(a), {"Content-Type": TYPES["npy"]}), 400, "malformed_query", "sha256")


def test_every_form_of_body(service):
    a, b = RNG.standard_normal((5, 4)), RNG.integers(-9, 9, (2, 3)).astype("int32")
    bodies = {
        TYPES["json"]: json.dumps({"tensors": {"a": nested(a), "b": {"dtype": "int32", "shape": [2, 3], "data": b.tolist()}}}),
        TYPES["safetensors"]: safetensors({"a": a, "b": b}),
        f"multipart/form-data; boundary={BOUNDARY}": multipart({"a": npy(a), "b": npy(b)})}
    for kind, body in bodies.items():
        answer = service.request("POST", "/tensors", body, {"Content-Type": kind})
        assert answer.status == 201, answer.body
        made = answer.json()["tensors"]
        assert list(made) == ["a", "b"]
        for name, array in (("a", a), ("b", b)):
            got = service.request("GET", f"/tensors/{made[name]['id']}", headers={"Accept": TYPES["npy"]}).npy()
            assert got.dtype == array.dtype
            np.testing.assert_array_equal(got, array)
    one = service.request("POST", "/tensors", "[[1,2],[3,4]]", {"Content-Type": TYPES["json"]}).json()
    assert one["shape"] == [2, 2] and one["dtype"] == "float64"
    for names in (("tensor",), ("tensor", "b"), ("b", "tensor")):  # a name like any other
        body = json.dumps({"tensors": {name: [1, 2] for name in names}})
        made = service.request("POST", "/tensors", body, {"Content-Type": TYPES["json"]}).json()["tensors"]
        assert tuple(made) == names


def test_fortran_order_stays(service):
    a = np.asfortranarray(RNG.standard_normal((6, 3)))
    tensor = put(service, a)
    assert tensor["order"] == "F"
    got = service.request("GET", f"/tensors/{tensor['id']}", headers={"Accept": TYPES["npy"]}).npy()
    assert got.flags.f_contiguous
    np.testing.assert_array_equal(got, a)
    problem(service.request("GET", f"/tensors/{tensor['id']}", headers={"Accept": TYPES["safetensors"]}), 406, "not_acceptable")
    either = service.request("GET", f"/tensors/{tensor['id']}", headers={"Accept": f"{TYPES['safetensors']}, {TYPES['npy']};q=0.5"})
    np.testing.assert_array_equal(either.npy(), a)
    ref = {"tensor": tensor["id"]}
    np.testing.assert_allclose(result(run(service, "matmul", {"a": ref, "b": np.eye(3)}), "c"), a)
    np.testing.assert_allclose(result(run(service, "matmul", {"a": {**ref, "slice": [[1, 4]]}, "b": np.eye(3)}), "c"), a[1:4])
    np.testing.assert_allclose(
        result(run(service, "matmul", {"a": {**ref, "slice": [[None, None], [1, 3]]}, "b": np.eye(2)}), "c"), a[:, 1:3])


@pytest.mark.parametrize(("body", "kind", "status", "code"), [
    (b"", "json", 400, "malformed_json"), (b"{}", "json", 422, "invalid_tensor"), (b"[[1,2],[3]]", "json", 422, "invalid_tensor"),
    (b"[1] 2", "json", 400, "malformed_json"), (b'{"tensors":{}}', "json", 422, "invalid_tensor"),
    (b'{"tensors":{"a":[1]},"op":"matmul"}', "json", 422, "unknown_field"),
    (b'{"tensor":"t' + b"0" * 40 + b'"}', "json", 422, "invalid_tensor"),
    (b"\x93NUMPY\x01\x00", "npy", 400, "malformed_npy"), (npy(np.arange(9.0))[:-1], "npy", 400, "malformed_npy"),
    (safetensors({"a": np.ones(3)})[:-1], "safetensors", 400, "malformed_safetensors"),
    (safetensors({}), "safetensors", 422, "invalid_tensor"),
    (safetensors({f"a{i}": np.ones(1) for i in range(17)}), "safetensors", 422, "unknown_input"),
    (safetensors({f"a{i}": np.ones(1) for i in range(16)}), "safetensors", 201, None)])
def test_bodies_that_are_no_tensors(service, body, kind, status, code):
    answer = service.request("POST", "/tensors", body, {"Content-Type": TYPES[kind]})
    if code is None:
        assert answer.status == status and len(answer.json()["tensors"]) == 16  # as many as may come at once
    else:
        problem(answer, status, code)


@pytest.mark.parametrize(("body", "kind", "code", "field", "detail"), [
    (npy(np.arange(9.0))[:-1], "npy", "malformed_npy", "tensor", "the .npy file of tensor is truncated"),
    (b"PK\x03\x04 of savez", "npy", "malformed_npy", "tensor", "does not begin as .npy files do"),
    (b"", "npy", "malformed_npy", "tensor", "ends inside its header"),
    (b"[[1,2],[3]]", "json", "invalid_tensor", "tensor[1]", "tensor[1] has 1 elements"),
    (b'{"tensors":{"a":["x"]}}', "json", "invalid_tensor", "a[0]", "a[0] is a string"),
    (safetensors({f"a{i}": np.ones(1) for i in range(17)}), "safetensors", "unknown_input", "a16", "at most 16 come in one request"),
    (b"1,2", "text/csv", "unsupported_media_type", "Content-Type", "application/x-npy")])
def test_errors_name_what_the_request_names(service, body, kind, code, field, detail):
    answer = service.request("POST", "/tensors", body, {"Content-Type": TYPES.get(kind, kind)})
    said = problem(answer, API.errors[code]["status"], code, field)
    assert detail in said and "inputs." not in said, said


def test_life(make_service):
    service = make_service("--limit", "tensor_life_most_s=100", "--limit", "tensor_life_s=50")
    assert put(service, np.eye(2))["life_s"] == 50
    short, longer = put(service, np.eye(2), "?life_s=1"), put(service, np.eye(2), "?life_s=1")
    path = f"/tensors/{longer['id']}"
    assert service.request("PATCH", path, b'{"life_s":100}', {"Content-Type": TYPES["json"]}).json()["life_s"] == 100
    wait_for(lambda: service.request("GET", f"/tensors/{short['id']}").status == 410)
    assert service.request("GET", path).status == 200
    wait_for(lambda: not any(name.startswith(short["id"]) for name in files(service)))
    problem(service.request("PATCH", path, b'{"life_s":101}', {"Content-Type": TYPES["json"]}), 422, "invalid_field")
    problem(service.request("PATCH", path + "?life_s=9"), 400, "malformed_query")
    for body in (b"", b"{}", b"[]", b'{"life_s":0}', b'{"life_s":"9"}', b'{"life_s":9,"x":1}'):
        answer = service.request("PATCH", path, body, {"Content-Type": TYPES["json"]})
        assert answer.status in (400, 422), answer.body
    problem(service.request("POST", "/tensors?life_s=101", npy(np.eye(2)), {"Content-Type": TYPES["npy"]}), 400, "malformed_query")


def test_pages_hold_each_once_and_the_newest_first(make_service):
    """Also where many were made in the same second, one of them by a job, and one is deleted between two pages."""
    service = make_service()
    ids = [put(service, np.full(3, i))["id"] for i in range(24)]
    ids.append(run(service, "matmul", {"a": np.eye(2), "b": np.eye(2)}, keep=["c"]).json()["outputs"]["c"]["tensor"]["id"])
    seen, cursor = [], ""
    while True:
        page = service.request("GET", f"/tensors?limit=10{cursor}").json()
        seen += [tensor["id"] for tensor in page["tensors"]]
        if "cursor" not in page:
            break
        if len(seen) == 10:
            assert service.request("DELETE", f"/tensors/{seen[-1]}").status == 200  # the one that the cursor is at
        API.validate(API.parameter("/tensors", "cursor"), page["cursor"])
        cursor = f"&cursor={page['cursor']}"
    assert seen == ids[::-1]
    for cursor in ("x", "1", ids[0] + "0", "1" * 16 + ids[0] + "0"):
        problem(service.request("GET", f"/tensors?cursor={cursor}"), 400, "malformed_query")


# --- references -------------------------------------------------------------------------------------------------------


@pytest.mark.first
@pytest.mark.parametrize("n", [3, 60, 250])
def test_a_job_on_what_is_kept(service, n):
    a, b = RNG.standard_normal((2, n, n))
    tensor = put(service, a)
    ref = {"tensor": tensor["id"]}
    for inputs, want in (({"a": ref, "b": b}, a @ b), ({"a": b, "b": ref}, b @ a), ({"a": ref, "b": ref}, a @ a)):
        answer = run(service, "matmul", inputs)
        assert answer.status == 200 and answer.json()["state"] == "succeeded", answer.body[:500]
        got = service.request("GET", f"/jobs/{answer.json()['id']}/outputs/c", headers={"Accept": TYPES["npy"]}).npy()
        np.testing.assert_allclose(got, want, atol=1e-9)


def at_once(service, body, count, wait=30):
    """Sends the same job many times in one turn of the front end; its connections."""
    head = (f"POST /jobs?wait={wait} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {TYPES['json']}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode()
    socks = [connect(service) for _ in range(count)]
    with service.held("api"):
        for sock in socks:
            sock.sendall(head + body)
    return socks


def test_small_jobs_on_a_small_tensor_share_entries_and_hold_it(make_service):
    """They run as one batch, and what queued jobs refer to stays; once it is deleted the next one is refused."""
    service = make_service("--limit", "tensors=1")
    a, b = RNG.standard_normal((2, 4, 4))
    tensor = put(service, a)
    body = json.dumps({"op": "matmul", "inputs": {"a": {"tensor": tensor["id"]}, "b": b.tolist()}}).encode()
    redis = Redis(service)
    with service.worker_held():
        socks = at_once(service, body, 60)
        wait_for(lambda: sum(1 for job in service.list_jobs("state=queued")) == 60)
        entries = [name for name in names_pending(service) if len(name) == 29]
        assert entries, "no jobs shared an entry"
        metas = [redis("HGET", "{blasd}:pending", name) for name in names_pending(service)]
        assert {meta.split(b"\t")[4] for meta in metas} == {f"{tensor['id']}.in".encode()}
        problem(service.request("POST", "/tensors", npy(b), {"Content-Type": TYPES["npy"]}), 429, "tensors_full")
        cancelled = service.list_jobs("state=queued")[0]["id"]
        assert service.request("DELETE", f"/jobs/{cancelled}").status == 200
        assert service.request("DELETE", f"/tensors/{tensor['id']}").status == 200
        detail = problem(run(service, "matmul", {"a": {"tensor": tensor["id"]}, "b": b}), 422, "reference_not_found", "inputs.a")
        assert "not kept any more" in detail
    states = [answer_of(sock)[1] for sock in socks]
    for job in states:
        if job["id"] == cancelled:
            assert job["state"] == "cancelled"
        else:
            np.testing.assert_allclose(job["outputs"]["c"]["data"], a @ b)
    assert max(job["execution"]["batch_size"] or 0 for job in states) > 1
    expect_nothing_left(service)
    wait_for(lambda: not files(service), "the store is as it was")
    assert redis("EXISTS", "{blasd}:refs") == 0
    redis.close()


def test_more_jobs_on_a_tensor_at_once_than_one_call_takes(make_service):
    """One reply tells of the tensor for all of them, and what it sets going fills calls while it is heard."""
    service = make_service()
    a, b = RNG.standard_normal((2, 4, 4))
    front_end = service.part("api")
    body = json.dumps({"op": "matmul", "inputs": {"a": {"tensor": put(service, a)["id"]}, "b": b.tolist()}}).encode()
    for sock in at_once(service, body, 300):
        np.testing.assert_allclose(answer_of(sock)[1]["outputs"]["c"]["data"], a @ b)
    assert service.part("api") == front_end


def test_jobs_on_several_small_tensors_at_once(service):
    """What one turn asks about tensors is one call: each is answered for itself, what is not there among them."""
    arrays = RNG.standard_normal((5, 3, 3))
    ids = [put(service, array)["id"] for array in arrays]
    gone = put(service, np.eye(3))["id"]
    assert service.request("DELETE", f"/tensors/{gone}").status == 200
    ids += [gone, GONE]
    bodies = [json.dumps({"op": "matmul", "inputs": {"a": {"tensor": ids[i % 7]}, "b": {"tensor": ids[i // 7]}}}) for i in range(49)]
    socks = [connect(service) for _ in bodies]
    with service.held("api"):
        for sock, body in zip(socks, bodies):
            sock.sendall((f"POST /jobs?wait=30 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {TYPES['json']}\r\n"
                          f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}").encode())
    for i, sock in enumerate(socks):
        status, answer = answer_of(sock)
        a, b = i % 7, i // 7
        if a < 5 and b < 5:
            np.testing.assert_allclose(answer["outputs"]["c"]["data"], arrays[a] @ arrays[b])
        else:
            assert (status, answer["code"]) == (422, "reference_not_found"), answer
            assert answer["field"] in {f"inputs.{name}" for name, at in (("a", a), ("b", b)) if at >= 5}


@pytest.mark.parametrize("n", [1, 45, 46])
def test_either_side_of_what_is_copied(service, n):
    """16,200 bytes and 16,928: whichever way a tensor goes, parts, orders and dtypes of it are the same."""
    a = RNG.standard_normal((n, n))
    for array in (a, np.asfortranarray(a), a.astype("float32"), (a * 9).astype("int16")):
        ref = {"tensor": put(service, array)["id"]}
        want = array.astype("float64")
        for _ in range(2):
            np.testing.assert_allclose(result(run(service, "matmul", {"a": ref, "b": np.eye(n)}), "c"), want, rtol=1e-6)
        part = result(run(service, "matmul", {"a": {**ref, "slice": [[None, None], [n // 3, n - n // 4]]}, "b": np.eye(n)[:n - n // 4 - n // 3]}), "c")
        np.testing.assert_allclose(part[:, :n - n // 4 - n // 3], want[:, n // 3:n - n // 4], rtol=1e-6)


def test_other_dtypes_are_converted(service):
    a = RNG.integers(-9, 9, (4, 4)).astype("int32")
    np.testing.assert_array_equal(result(run(service, "matmul", {"a": {"tensor": put(service, a)["id"]}, "b": np.eye(4)}), "c"), a)


@pytest.mark.parametrize("cut", [np.s_[2:7], np.s_[0:8, :], np.s_[:, 1:4], np.s_[3:9, 2:5], np.s_[5:6, 0:5], np.s_[4:4]])
def test_slices(service, cut):
    a = RNG.standard_normal((10, 5))
    cuts = cut if isinstance(cut, tuple) else (cut,)
    ref = {"tensor": put(service, a)["id"], "slice": [[c.start, c.stop] for c in cuts]}
    want = a[cut]
    np.testing.assert_allclose(result(run(service, "matmul", {"a": ref, "b": np.eye(want.shape[1])}), "c").reshape(want.shape), want)


@pytest.mark.parametrize("n", [4, 60, 250])
def test_outputs_of_a_job_that_has_ended(service, n):
    """They lie in the record, in a segment, in a blob of their own."""
    a, b = RNG.standard_normal((2, n, n))
    for wait in (0, 30):
        first = until(service, run(service, "matmul", {"a": a, "b": b}, wait=wait).json()["id"], ("succeeded",))
        ref = {"job": first["id"], "output": "c"}
        second = run(service, "matmul", {"a": ref, "b": np.eye(n)})
        assert second.json()["state"] == "succeeded", second.body[:500]
        got = service.request("GET", f"/jobs/{second.json()['id']}/outputs/c", headers={"Accept": TYPES["npy"]}).npy()
        np.testing.assert_allclose(got, a @ b, atol=1e-9)
        part = run(service, "matmul", {"a": {**ref, "slice": [[1, 3], [0, 2]]}, "b": np.eye(2)})
        np.testing.assert_allclose(result(part, "c"), (a @ b)[1:3, :2], atol=1e-9)


def test_references_in_binary_forms(service):
    a, b = RNG.standard_normal((2, 6, 6))
    refs = json.dumps({"a": {"tensor": put(service, a)["id"]}})
    for kind, body in (("safetensors", safetensors({"b": b}, op="matmul", inputs=refs)),
                       ("multipart", multipart({"op": "matmul", "inputs": refs, "b": npy(b)})),
                       ("multipart", multipart({"b": npy(b), "inputs": refs, "op": "matmul"}))):
        answer = service.request("POST", "/jobs?wait=30", body, {"Content-Type": TYPES[kind]})
        np.testing.assert_allclose(result(answer, "c"), a @ b, atol=1e-9)
    both = json.dumps({"a": json.loads(refs)["a"], "b": json.loads(refs)["a"]})
    answer = service.request("POST", "/jobs?wait=30", safetensors({}, op="matmul", inputs=both), {"Content-Type": TYPES["safetensors"]})
    np.testing.assert_allclose(result(answer, "c"), a @ a, atol=1e-9)
    twice = safetensors({"a": a, "b": b}, op="matmul", inputs=refs)
    problem(service.request("POST", "/jobs?wait=30", twice, {"Content-Type": TYPES["safetensors"]}), 422, "invalid_field")


GONE = "t692fa1b0" + "0" * 32


@pytest.mark.parametrize(("ref", "status", "code"), [
    ({"tensor": GONE}, 422, "reference_not_found"), ({"tensor": "x"}, 422, "reference_not_found"),
    ({"tensor": 3}, 422, "invalid_reference"), ({"tensor": GONE, "job": GONE}, 422, "reference_not_found"),
    ({"job": "s" + "0" * 40, "output": "c"}, 422, "reference_not_found"),
    ({"job": "s" + "0" * 40}, 422, "invalid_reference"), ({"output": "c"}, 422, "invalid_reference"),
    ({"slice": [[0, 1]]}, 422, "invalid_reference"), ({"tensor": GONE, "shape": [2]}, 422, "invalid_reference"),
    ({"tensor": GONE, "slice": [0, 1]}, 422, "invalid_reference"),
    ({"tensor": GONE, "slice": [[0, -1]]}, 422, "invalid_reference"),
    ({"tensor": GONE, "slice": [[0]]}, 422, "invalid_reference"), ({"tensor": GONE, "slice": 7}, 422, "invalid_reference"),
    ({"tensor": GONE, "slice": [[0, 1]] * 9}, 422, "invalid_reference")])
def test_references_to_nothing(service, ref, status, code):
    problem(run(service, "matmul", {"a": ref, "b": np.eye(2)}), status, code, "inputs.a")


def test_references_that_do_not_fit(service):
    ref = {"tensor": put(service, np.ones((4, 3)))["id"]}
    for more, code in (({"slice": [[0, 5]]}, "invalid_reference"), ({"slice": [[3, 2]]}, "invalid_reference"),
                       ({"slice": [[0, 1]] * 3}, "invalid_reference"), ({"dtype": "float32"}, "invalid_reference")):
        problem(run(service, "matmul", {"a": {**ref, **more}, "b": np.eye(3)}), 422, code, "inputs.a")
    problem(run(service, "matmul", {"a": ref, "b": np.eye(4)}), 422, "shape_mismatch")
    job = run(service, "matmul", {"a": np.eye(2), "b": np.eye(2)}).json()["id"]
    problem(run(service, "matmul", {"a": {"job": job, "output": "x"}, "b": np.eye(2)}), 422, "unknown_output", "inputs.a")
    failed = run(service, "solve", {"a": np.zeros((2, 2)), "b": np.ones(2)}).json()
    assert failed["state"] == "failed"
    problem(run(service, "matmul", {"a": {"job": failed["id"], "output": "x"}, "b": np.eye(2)}), 422, "input_failed", "inputs.a")


def test_values_that_an_operation_refuses_are_found_when_it_runs(service):
    ref = {"tensor": put(service, np.array([[1, np.nan], [0, 1]]))["id"]}
    job = run(service, "solve", {"a": ref, "b": np.ones(2)}).json()
    assert job["state"] == "failed"
    assert (job["error"]["code"], job["error"]["field"]) == ("not_finite", "inputs.a")


# --- outputs that are kept --------------------------------------------------------------------------------------------


def test_outputs_become_tensors(service):
    a, b = RNG.standard_normal((2, 5, 5))
    job = run(service, "matmul", {"a": a, "b": b}, keep=["c"]).json()
    tensor = job["outputs"]["c"]["tensor"]
    assert "data" not in job["outputs"]["c"] and "href" not in job["outputs"]["c"]
    got = service.request("GET", f"/tensors/{tensor['id']}", headers={"Accept": TYPES["npy"]}).npy()
    np.testing.assert_allclose(got, a @ b)
    np.testing.assert_allclose(result(run(service, "matmul", {"a": {"tensor": tensor["id"]}, "b": np.eye(5)}), "c"), a @ b)
    again = run(service, "matmul", {"a": {"job": job["id"], "output": "c"}, "b": np.eye(5)})
    np.testing.assert_allclose(result(again, "c"), a @ b)
    problem(service.request("GET", f"/jobs/{job['id']}/outputs/c"), 404, "output_not_found")


@pytest.mark.parametrize("n", [4, 300])
def test_what_is_sent_and_what_is_kept(service, n):
    x, y = RNG.standard_normal((2 * n, 3)), RNG.standard_normal(2 * n)
    both = run(service, "regression", {"x": x, "y": y}, keep=["coef"], results=["coef", "intercept"]).json()
    outputs = both["outputs"]
    assert {name for name, output in outputs.items() if "href" in output} == {"coef", "intercept"}
    got = service.request("GET", f"/tensors/{outputs['coef']['tensor']['id']}", headers={"Accept": TYPES["npy"]}).npy()
    np.testing.assert_array_equal(got, outputs["coef"]["data"])
    arrays, _ = service.request("GET", f"/jobs/{both['id']}/result", headers={"Accept": TYPES["safetensors"]}).safetensors()
    assert set(arrays) == {"coef", "intercept"}
    none = run(service, "regression", {"x": x, "y": y}, results=[]).json()
    assert none["outputs"] and not any("href" in output or "data" in output for output in none["outputs"].values())
    form = multipart({"op": "matmul", "keep": "c", "a": npy(x), "b": npy(np.eye(3))})
    kept = service.request("POST", "/jobs?wait=30", form, {"Content-Type": TYPES["multipart"]}).json()
    assert "tensor" in kept["outputs"]["c"]


@pytest.mark.parametrize("members", [{"keep": ["c"]}, {"results": []}])
def test_an_array_of_a_job_that_sends_none(service, members):
    body = json.dumps({"op": "matmul", "inputs": {"a": [[2]], "b": [[3]]}, "labels": {"sends": "nothing"}, **members})
    jobs = lambda: len(service.list_jobs("label=sends=nothing"))
    before, headers = jobs(), {"Content-Type": TYPES["json"]}
    array = service.request("POST", "/jobs?wait=30", body, {**headers, "Accept": TYPES["npy"]})
    assert "no output is sent" in problem(array, 406, "not_acceptable", "Accept") and jobs() == before
    either = service.request("POST", "/jobs?wait=30", body, {**headers, "Accept": f"{TYPES['npy']}, {TYPES['json']};q=0.5"})
    assert either.status == 200 and either.json()["state"] == "succeeded"
    path = f"/jobs/{either.json()['id']}"
    assert "sends no output" in problem(service.request("GET", path, headers={"Accept": TYPES["npy"]}), 406, "not_acceptable")
    assert "sends no output 'c'" in problem(service.request("GET", f"{path}/outputs/c"), 404, "output_not_found")


@pytest.mark.parametrize(("members", "code"), [
    ({"keep": ["x"]}, "unknown_output"), ({"results": ["x"]}, "unknown_output"), ({"keep": "c"}, None),
    ({"keep": 3}, "invalid_field"), ({"results": [1]}, "invalid_field"), ({"keep": {"c": 1}}, "invalid_field")])
def test_names_of_outputs(service, members, code):
    answer = run(service, "matmul", {"a": np.eye(2), "b": np.eye(2)}, **members)
    if code is None:
        code = "invalid_field"
    problem(answer, 422, code)


def test_a_kept_output_of_an_idempotent_request(service):
    headers = {"Content-Type": TYPES["json"], "Idempotency-Key": "kept-once"}
    body = json.dumps({"op": "matmul", "inputs": {"a": [[2.0]], "b": [[3.0]]}, "keep": ["c"]})
    one, two = (service.request("POST", "/jobs?wait=30", body, headers).json() for _ in range(2))
    assert one["id"] == two["id"] and one["outputs"] == two["outputs"]


# --- room -------------------------------------------------------------------------------------------------------------

MIB = 1 << 20


def test_the_one_not_used_for_longest_makes_way(make_service):
    service = make_service("--limit", "tensor_bytes=4M")
    first, second, third, fourth = (put(service, np.full(MIB // 8, float(i))) for i in range(4))
    service.request("GET", f"/tensors/{first['id']}", headers={"Accept": TYPES["npy"]})  # a use
    fifth = put(service, np.zeros(MIB // 8))
    statuses = [service.request("GET", f"/tensors/{t['id']}").status for t in (first, second, third, fourth, fifth)]
    assert statuses == [200, 410, 200, 200, 200]
    whole = put(service, np.zeros(4 * MIB // 8))  # at the limit
    assert service.request("GET", f"/tensors/{whole['id']}").status == 200
    assert service.request("GET", f"/tensors/{fifth['id']}").status == 410
    one_more = service.request("POST", "/tensors", npy(np.zeros(4 * MIB // 8 + 1)), {"Content-Type": TYPES["npy"]})
    problem(one_more, 413, "tensor_too_large")
    wait_for(lambda: files(service) == [f"{whole['id']}.in"])


def test_as_many_as_may_be(make_service):
    service = make_service("--limit", "tensors=3")
    made = [put(service, np.ones(2)) for _ in range(4)]
    assert [service.request("GET", f"/tensors/{t['id']}").status for t in made] == [410, 200, 200, 200]


def test_what_queued_jobs_refer_to_stays(make_service):
    service = make_service("--limit", "tensor_bytes=2M", "--limit", "tensor_life_s=1")
    a = np.full((1, MIB // 8), 2.0)
    with service.worker_held():
        one, two = put(service, a), put(service, a + 1)
        jobs = [run(service, "matmul", {"a": {"tensor": t["id"]}, "b": {"tensor": t["id"]}}, params={"transpose_b": True}, wait=0).json()["id"]
                for t in (one, two)]
        more = service.request("POST", "/tensors", npy(a), {"Content-Type": TYPES["npy"]})
        problem(more, 429, "tensors_full")
        assert service.request("DELETE", f"/tensors/{two['id']}").status == 200  # its bytes stay
        problem(run(service, "matmul", {"a": {"tensor": two["id"]}, "b": np.eye(2)}, wait=0), 422, "reference_not_found")
    for job, value in zip(jobs, (2.0, 3.0)):
        document = until(service, job, ("succeeded",))
        assert document["outputs"]["c"]["data"] == [[value * value * MIB / 8]]
    wait_for(lambda: not files(service), "the store is as it was")


def test_outputs_of_a_forgotten_job_stay_for_who_refers_to_them(make_service):
    service = make_service()
    n = 250
    a = RNG.standard_normal((n, n))
    first = until(service, service.post("matmul", {"a": a, "b": np.eye(n)}, wait=0, form="safetensors").json()["id"], ("succeeded",))
    with service.worker_held():
        second = run(service, "matmul", {"a": {"job": first["id"], "output": "c"}, "b": np.eye(n)}, wait=0).json()["id"]
        assert service.request("DELETE", f"/jobs/{first['id']}?forget=1").status == 200
    until(service, second, ("succeeded",))
    got = service.request("GET", f"/jobs/{second}/outputs/c", headers={"Accept": TYPES["npy"]}).npy()
    np.testing.assert_allclose(got, a)


# --- tenants ----------------------------------------------------------------------------------------------------------


def test_anothers_tensor_is_not_there(make_service, tmp_path):
    file, secrets = keys(tmp_path, ann={"tenant": "ann"}, ben={"tenant": "ben"})
    service = make_service("--keys", file, start=False)
    service.headers = {"Authorization": f"Bearer {secrets['ann']}"}
    service.start()
    ann, ben = As(service, secrets["ann"]), As(service, secrets["ben"])
    tensor = put(service, np.eye(2))
    path = f"/tensors/{tensor['id']}"
    for method in ("GET", "DELETE"):
        never = ben.request(method, f"/tensors/{GONE}").json()
        got = ben.request(method, path)
        assert (got.status, got.json()["code"]) == (404, never["code"]) == (404, "tensor_not_found")
    assert ben.request("PATCH", path, '{"life_s": 9}').status == 404
    assert ben.request("GET", "/tensors").json()["tensors"] == []
    body = json.dumps({"op": "matmul", "inputs": {"a": {"tensor": tensor["id"]}, "b": [[1, 0], [0, 1]]}})
    assert ann.request("POST", "/jobs?wait=30", body, {"Content-Type": TYPES["json"]}).json()["state"] == "succeeded"
    problem(ben.request("POST", "/jobs", body, {"Content-Type": TYPES["json"]}), 422, "reference_not_found", "inputs.a")
    assert ann.request("GET", path).status == 200


def test_what_a_tenants_tensors_may_come_to(make_service, tmp_path):
    """At the limit, and one element past it; its own make way, and nobody else's."""
    file, secrets = keys(tmp_path, ann={"tenant": "ann", "max_stored_bytes": 800}, ben={"tenant": "ben"})
    service = make_service("--keys", file, start=False)
    service.headers = {"Authorization": f"Bearer {secrets['ann']}"}
    service.start()
    ann, ben = As(service, secrets["ann"]), As(service, secrets["ben"])
    others, first = put(ben, np.zeros(200)), put(ann, np.zeros(60))
    whole = put(ann, np.zeros(100))
    statuses = [who.request("GET", f"/tensors/{tensor['id']}").status for who, tensor in ((ann, first), (ann, whole), (ben, others))]
    assert statuses == [410, 200, 200]
    detail = problem(ann.request("POST", "/tensors", npy(np.zeros(101)), {"Content-Type": TYPES["npy"]}), 413, "tensor_too_large")
    assert "800 bytes" in detail
    refused = [line for line in service.log_text().splitlines() if "tensors refused: " in line]
    assert len(refused) == 1 and "code=tensor_too_large status=413 op=- tenant=ann key=ann client=127.0.0.1:" in refused[0]


# --- while processes die ----------------------------------------------------------------------------------------------


def ended(service, job):
    """The job once it has ended; None while it has not, or while Redis comes back."""
    answer = service.request("GET", f"/jobs/{job}")
    assert answer.status in (200, 503), answer.body
    document = answer.json()
    return document if answer.status == 200 and document["finished_at"] else None


def test_references_outlive_every_process(make_service):
    """Queued jobs, some on tensors that are deleted meanwhile, end right once; then nothing is left behind."""
    service = make_service()
    n = 200
    arrays = RNG.standard_normal((6, n, n))
    tensors = [put(service, a) for a in arrays]
    jobs = []
    for part in ("worker", "api", "redis", "worker"):
        with service.worker_held():
            jobs = [run(service, "matmul", {"a": {"tensor": t["id"]}, "b": {"tensor": tensors[0]["id"]}}, wait=0, keep=["c"],
                        results=["c"]).json()["id"] for t in tensors]
            service.kill(part)
        service.wait_ready()
        for job, a in zip(jobs, arrays):
            document = wait_for(lambda job=job: ended(service, job))
            assert document["state"] == "succeeded", document
            kept = document["outputs"]["c"]["tensor"]["id"]
            got = service.request("GET", f"/tensors/{kept}", headers={"Accept": TYPES["npy"]}).npy()
            np.testing.assert_allclose(got, a @ arrays[0], atol=1e-9)
            assert service.request("DELETE", f"/tensors/{kept}").status == 200
    for tensor in tensors:
        assert service.request("DELETE", f"/tensors/{tensor['id']}").status == 200
    wait_for(lambda: not files(service), "the store is as it was")
    redis = Redis(service)
    left = {name for name in redis("KEYS", "*") if any(word in name for word in (b":tensor", b":refs"))}
    redis.close()
    assert not left, left


# --- the Python client ------------------------------------------------------------------------------------------------


def test_the_python_client(service):
    client = blasd.Client(service.url)
    a, b = RNG.standard_normal((2, 40, 40))
    tensor = client.tensors.put(a)
    assert (tensor.shape, tensor.dtype, tensor.nbytes) == ((40, 40), "float64", a.nbytes)
    assert "sha256" not in tensor.document
    summed = client.tensors.put(a, life_s=60, sha256=True)
    assert summed.document["sha256"] == hashlib.sha256(a.tobytes()).hexdigest() and summed.document["life_s"] == 60
    np.testing.assert_array_equal(client.tensors.get(tensor), a)
    np.testing.assert_allclose(client.matmul(tensor, b), a @ b)
    np.testing.assert_allclose(client.matmul(tensor[:10], b), a[:10] @ b)
    np.testing.assert_allclose(client.matmul(tensor[:, 5:9], b[5:9]), a[:, 5:9] @ b[5:9])
    gram = client.run("matmul", {"transpose_a": True}, a=tensor, b=tensor, keep=["c"])
    assert not gram and isinstance(gram.tensors["c"], blasd.Tensor)
    x = client.solve(gram.tensors["c"], np.ones(40))
    np.testing.assert_allclose(a.T @ a @ x, np.ones(40), atol=1e-6)
    job = client.submit("matmul", a=tensor, b=b)
    job.wait()
    np.testing.assert_allclose(client.matmul(job.output("c"), np.eye(40)), a @ b)
    assert tensor.id in {one.id for one in client.tensors.list()}
    assert client.tensors.prolong(tensor, 77).document["life_s"] == 77
    client.tensors.delete(tensor)
    with pytest.raises(blasd.NotFound):
        client.tensors.look(tensor)
    with pytest.raises(blasd.InvalidInput, match="inputs.a"):
        client.matmul(tensor, b)
    with pytest.raises(blasd.InputError):
        tensor[::2]
    client.close()


def test_metrics_tell_of_tensors(make_service):
    service = make_service()
    put(service, np.zeros(100))
    wait_for(lambda: service.metrics().get("blasd_tensors") == 1)
    assert service.metrics()["blasd_tensor_bytes"] == 800
