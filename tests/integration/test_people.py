"""What people and their tools see: pages, one output in one request, parts of outputs, compressed pages."""
import gzip
import html.parser
import io
import json

import numpy as np
import pytest
from service import API, TYPES, multipart, nested, npy, safetensors

RNG = np.random.default_rng(11)


class Page(html.parser.HTMLParser):
    """What a browser would fetch, and where links go."""

    def __init__(self, text):
        super().__init__()
        self.fetched, self.links, self.ids, self.open, self.text = [], [], set(), [], ""
        self.feed(text)
        assert self.open == [], "tags that are not closed"

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        assert tag not in ("script", "iframe", "form", "img", "object") and not any(n.startswith("on") for n in attrs)
        assert "style" not in attrs
        if tag == "link":
            self.fetched.append(attrs["href"])
        if tag == "a":
            self.links.append(attrs["href"])
        if "id" in attrs:
            self.ids.add(attrs["id"])
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def page_of(service, path):
    answer = service.request("GET", path, headers={"Accept": "text/html,*/*;q=0.8"})
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy and "http" not in policy
    return Page(answer.body.decode("ascii"))


def test_the_api_as_a_page(service):
    page = page_of(service, "/docs")
    assert page.fetched == ["/docs/style.css"]
    assert service.request("GET", "/docs/style.css").headers["Content-Type"] == "text/css"
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids, link
        else:
            assert service.request("GET", link).status == 200
    for path, item in API.document["paths"].items():
        assert path in page.text
        assert {operation["operationId"] for method, operation in item.items() if method != "parameters"} <= page.ids
    for name in API.document["components"]["schemas"]:
        assert f"schema-{name}" in page.ids


def test_each_error_has_a_page(service):
    for code, entry in API.errors.items():
        text = " ".join(page_of(service, f"/errors/{code}").text.split())
        assert code in text and str(entry["status"]) in text and " ".join(entry["advice"].split()) in text
    problem = service.post("matmul", {"a": np.eye(2), "b": np.eye(3)}).json()
    assert service.request("GET", problem["type"]).status == 200
    for nothing in ("nothing", "ok", "internal-error", "x" * 80):
        assert service.request("GET", f"/errors/{nothing}").status == 404


# --- one request, one array ---------------------------------------------------------------------------------------

A = RNG.random((6, 3))


@pytest.mark.parametrize("op, inputs, output", [
    ("matmul", {"a": A, "b": A.T}, "c"), ("solve", {"a": A.T @ A, "b": A[:3]}, "x"), ("distance", {"x": A}, "d"),
    ("regression", {"x": A, "y": A[:, 0] + 1}, "coef")])
def test_the_main_output_as_an_array(service, op, inputs, output):
    answer = service.post(op, inputs, accept="npy")
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/x-npy", answer.body
    arrays, job = service.run(op, inputs)
    np.testing.assert_array_equal(answer.npy(), arrays[output])
    for path in (f"/jobs/{job['id']}", f"/jobs/{job['id']}/result"):
        np.testing.assert_array_equal(service.request("GET", path, headers={"Accept": TYPES["npy"]}).npy(), arrays[output])


def test_no_array_where_there_is_none(make_service):
    """Who takes an array alone, as `curl -f -o x.npy` does, is told by the status; who takes JSON, too, by the document."""
    service = make_service()
    singular = {"a": np.zeros((2, 2)), "b": np.ones(2)}
    answer = service.post("solve", singular, accept="npy")
    assert answer.status == 422 and answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] == "singular_matrix"
    assert service.request("GET", answer.headers["Location"]).json()["error"]["code"] == "singular_matrix"
    refused = service.post("solve", {"a": np.zeros((2, 3)), "b": np.ones(2)}, accept="npy")
    assert refused.status == 422 and "Location" not in refused.headers and refused.headers["Request-Id"]
    job = service.post("solve", singular).json()
    for path in (f"/jobs/{job['id']}", f"/jobs/{job['id']}?wait=1", f"/jobs/{job['id']}/result"):
        assert service.request("GET", path, headers={"Accept": TYPES["npy"]}).status == 422
    for accept in (f"{TYPES['npy']}, {TYPES['json']};q=0.5", f"{TYPES['npy']}, */*;q=0.1"):
        document = service.request("GET", f"/jobs/{job['id']}", headers={"Accept": accept})
        assert document.status == 200 and document.json()["state"] == "failed"
    with service.worker_held():
        waits = service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}, wait=0.1, accept="npy")
        assert waits.status == 202 and waits.json()["state"] in ("queued", "running")
        path = f"/jobs/{waits.json()['id']}"
        assert service.request("GET", path, headers={"Accept": TYPES["npy"]}).json()["state"] in ("queued", "running")
        assert service.request("DELETE", path).json()["state"] == "cancelled"
    gone = service.request("GET", path, headers={"Accept": TYPES["npy"]})
    assert gone.status == 409 and gone.json()["code"] == "cancelled"


def test_an_array_that_npy_cannot_hold(service):
    body = json.dumps({"op": "matmul", "inputs": {name: {"dtype": "bfloat16", "shape": [1, 1], "data": [2]} for name in "ab"}})
    headers = {"Content-Type": TYPES["json"]}
    answer = service.request("POST", "/jobs?wait=10", body, {**headers, "Accept": TYPES["npy"]})
    assert answer.status == 406 and "bfloat16" in answer.json()["detail"]
    job = service.request("POST", "/jobs?wait=10", body, headers).json()
    for path in (f"/jobs/{job['id']}", f"/jobs/{job['id']}/result", job["outputs"]["c"]["href"]):
        assert service.request("GET", path, headers={"Accept": TYPES["npy"]}).status == 406
        for other in ("safetensors", "json"):  # the client's second choice is a choice
            kind = service.request("GET", path, headers={"Accept": f"{TYPES['npy']}, {TYPES[other]};q=0.5"})
            assert (kind.status, kind.headers["Content-Type"]) == (200, TYPES[other])
    accept = f"{TYPES['npy']}, {TYPES['safetensors']};q=0.5"
    arrays = service.request("POST", "/jobs?wait=10", body, {**headers, "Accept": accept})
    assert (arrays.status, arrays.headers["Content-Type"]) == (200, TYPES["safetensors"])
    document = service.request("POST", "/jobs?wait=10", body, {**headers, "Accept": f"{TYPES['npy']}, {TYPES['json']};q=0.5"})
    assert document.status == 200 and document.json()["outputs"]["c"]["data"] == [[4]]


# --- parts of outputs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["npy", "safetensors"])
@pytest.mark.parametrize("side", [2, 100, 700])
def test_ranges(service, form, side):
    job = service.post("matmul", {"a": RNG.random((side, side)), "b": np.eye(side)}, form="safetensors").json()
    path = job["outputs"]["c"]["href"]

    def get(value=None, **more):
        headers = {"Accept": TYPES[form], **more}
        return service.request("GET", path, headers={**headers, **({"Range": value} if value else {})})
    whole = get()
    size = len(whole.body)
    assert whole.status == 200 and whole.headers["Accept-Ranges"] == "bytes"
    for value, first, last in (("bytes=0-0", 0, 0), ("bytes=1-", 1, size - 1), ("bytes=-1", size - 1, size - 1),
                               (f"bytes={size // 2}-{size}", size // 2, size - 1), ("bytes=-99999999", 0, size - 1),
                               ("BYTES=70-99", 70, min(99, size - 1)), (f"bytes={size - 1}-{2**64 - 1}", size - 1, size - 1)):
        part = get(value)
        assert part.status == 206 and part.headers["Content-Range"] == f"bytes {first}-{last}/{size}", value
        assert part.body == whole.body[first:last + 1], value
    for value in (f"bytes={size}-", f"bytes={2**63}-", "bytes=-0"):
        part = get(value)
        assert part.status == 416 and part.headers["Content-Range"] == f"bytes */{size}", value
        assert part.json()["code"] == "range_not_satisfiable"
    for value in ("bytes=0-1,5-6", "bytes=5-4", "bytes=x-", "bytes=-", "items=0-1", "bytes=0", f"bytes=0-{2**64}", "bytes= 0-1"):
        assert get(value).body == whole.body and get(value).status == 200, value
    assert get("bytes=0-1", **{"If-Range": '"x"'}).body == whole.body
    for value in ("bytes=0-1", f"bytes={size}-"):  # RFC 9110, 14.2: of GET alone
        head = service.request("HEAD", path, headers={"Accept": TYPES[form], "Range": value})
        assert head.status == 200 and head.headers["Content-Length"] == str(size), value
    # a download in pieces is the whole
    step = max(1, size // 5)
    assert b"".join(get(f"bytes={at}-{at + step - 1}").body for at in range(0, size, step)) == whole.body


def test_text_has_no_ranges(service):
    job = service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}).json()
    for path in (job["outputs"]["c"]["href"], f"/jobs/{job['id']}/result", f"/jobs/{job['id']}", "/ops"):
        whole, part = service.request("GET", path), service.request("GET", path, headers={"Range": "bytes=0-1"})
        assert part.status == 200 and part.body == whole.body and "Accept-Ranges" not in part.headers


# --- compressed pages ---------------------------------------------------------------------------------------------


def test_pages_are_compressed(service):
    """They are when the program is built; what is made for a request goes as it is."""
    takes = {"Accept-Encoding": "gzip, deflate"}
    for path in ("/openapi.json", "/docs", "/docs/style.css", "/"):
        plain, packed = service.request("GET", path), service.request("GET", path, headers=takes, check=False)
        assert packed.headers["Content-Encoding"] == "gzip" and "Content-Encoding" not in plain.headers
        assert packed.headers["Content-Type"] == plain.headers["Content-Type"]
        assert "Accept-Encoding" in packed.headers["Vary"] and "Accept-Encoding" in plain.headers["Vary"]
        assert len(packed.body) < len(plain.body) and gzip.decompress(packed.body) == plain.body
    headers = {"Content-Type": TYPES["json"], **takes}
    body = json.dumps({"op": "matmul", "inputs": {"a": nested(RNG.random((40, 3))), "b": nested(RNG.random((3, 40)))}})
    job = service.request("POST", "/jobs?wait=10", body, headers)
    for answer in (job, service.request("GET", "/ops", headers=takes), service.request("GET", "/jobs/x", headers=takes),
                   service.request("GET", job.json()["outputs"]["c"]["href"], headers=takes)):
        assert "Content-Encoding" not in answer.headers and answer.json()


@pytest.mark.parametrize("form", ["json", "safetensors", "multipart"])
@pytest.mark.parametrize("side", [3, 300])
def test_compressed_bodies(service, form, side):
    a = RNG.integers(0, 9, (side, side)).astype(float)
    b = np.eye(side)
    body = {"json": json.dumps({"op": "matmul", "inputs": {"a": nested(a), "b": nested(b)}}).encode(),
            "safetensors": safetensors({"a": a, "b": b}, op="matmul"),
            "multipart": multipart({"op": "matmul", "a": npy(a), "b": npy(b)})}[form]
    headers = {"Content-Type": TYPES[form], "Content-Encoding": "gzip", "Accept": TYPES["npy"]}
    answer = service.request("POST", "/jobs?wait=20", gzip.compress(body), headers)
    assert answer.status == 200, answer.body
    np.testing.assert_array_equal(np.load(io.BytesIO(answer.body)), a)


def test_no_cache_keeps_what_is_read(service):
    """Documents change, results are for who may read them; what has a tag may be kept by its reader and asked for again."""
    job = service.run("matmul", {"a": np.eye(2), "b": np.eye(2)})[1]["id"]
    for path in ("/jobs", f"/jobs/{job}", "/devices", "/metrics", "/stats", "/ops"):
        assert service.request("GET", path).headers.get_all("Cache-Control") == ["no-store"], path
    for path in (f"/jobs/{job}/outputs/c", "/docs", "/openapi.json"):
        assert service.request("GET", path).headers.get_all("Cache-Control") == ["private, no-cache"], path
    assert service.request("GET", "/jobs/none").headers["Cache-Control"] == "no-store"
    assert service.request("GET", "/", headers={"Accept": "text/html"}).headers["Cache-Control"] in ("no-cache", "no-store")


def test_tags(service):
    """Each representation has a tag of its own: a client that has it is told so, and resumes with it."""
    job = service.run("matmul", {"a": np.ones((300, 2)), "b": np.ones((2, 300))})[1]["id"]
    other = service.run("matmul", {"a": np.ones((2, 2)), "b": np.eye(2)})[1]["id"]
    tensor = service.request("POST", "/tensors", npy(np.ones((40, 40))), {"Content-Type": TYPES["npy"]}).json()["id"]
    made = {}
    for path in (f"/jobs/{job}/outputs/c", f"/jobs/{other}/outputs/c", f"/tensors/{tensor}", "/docs", "/openapi.json", "/docs/style.css"):
        for accept in ({"Accept": TYPES[form]} for form in ("npy", "safetensors", "json")) if path.startswith(("/jobs", "/tensors")) else ({},):
            for coding in ("identity", "gzip"):
                headers = {**accept, "Accept-Encoding": coding}
                answer = service.request("GET", path, headers=headers, check=False)
                if path.startswith("/tensors") and accept["Accept"] == TYPES["json"]:  # its document
                    continue
                tag = answer.headers["ETag"]
                assert answer.status == 200 and tag[0] == tag[-1] == '"', answer.headers
                assert not accept or "Accept" in ",".join(answer.headers.get_all("Vary")).split(","), answer.headers
                assert made.setdefault(tag, answer.body) == answer.body, "two representations have one tag"
                for held in (tag, f'"x", {tag}', f"W/{tag}", "*"):
                    for method in ("GET", "HEAD"):
                        same = service.request(method, path, headers={**headers, "If-None-Match": held, "Range": "bytes=0-1"}, check=False)
                        assert (same.status, same.headers["ETag"], same.body) == (304, tag, b""), (held, same.headers)
                assert service.request("GET", path, headers={**headers, "If-None-Match": '"x"'}, check=False).status == 200
                if "Accept-Ranges" in answer.headers:
                    for held, status in ((tag, 206), (f"W/{tag}", 200), ('"x"', 200), ("Sat, 28 Nov 2026 00:00:00 GMT", 200)):
                        assert service.request("GET", path, headers={**headers, "If-Range": held, "Range": "bytes=0-1"}, check=False).status == status, held
    assert len(made) >= 12
    assert service.request("GET", f"/jobs/{job}/outputs/nosuch", headers={"If-None-Match": "*"}, check=False).status == 404
    assert service.request("GET", f"/jobs/{job}").headers.get("ETag") is None
