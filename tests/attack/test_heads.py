"""Heads of requests as bytes on the wire: what could mean one thing to us and another to whoever stands before us is refused,
and everything else is answered.

Some of it libmicrohttpd 1.0 refuses before we see it, with a page of its own; 0.9.75 leaves it all to the service.
"""
import json
import socket

import pytest
from service import TYPES

HOST = b"Host: localhost\r\n"
LIVE = b"GET /health/live HTTP/1.1\r\n"
BODY = b'{"op":"matmul","inputs":{"a":[[1]],"b":[[2]]}}'
POST = b"POST /jobs?wait=20 HTTP/1.1\r\n" + HOST


LAST = LIVE + HOST + b"Connection: close\r\n\r\n"


def answers(service, data):
    """All that comes back until the service closes, as [(status, headers, body)], but for `100 Continue`."""
    out, found = b"", []
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as sock:
        try:
            sock.sendall(data)
            while piece := sock.recv(65536):
                out += piece
        except ConnectionError:  # it has closed with bytes of ours unread
            pass
    while out:
        head, _, out = out.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:])}
        length = int(headers.get("content-length", 0))
        if lines[0].split()[1] != "100":
            found.append((int(lines[0].split()[1]), headers, out[:length]))
        out = out[length:]
    return found


def served(service, data):
    """The answers to that, after which the connection still serves."""
    found = answers(service, data + LAST)
    assert found and found[-1][0] == 200 and b"live" in found[-1][2], found
    return found[:-1]


def refused(service, data, status=400):
    """The problem of the one answer, which refuses and closes: nothing behind it is a request. None: a page that
    libmicrohttpd has made."""
    found = answers(service, data + LAST)
    assert [one[0] for one in found] == [status], found
    if b"<html>" in found[0][2]:
        return None
    assert found[0][1]["content-type"] == "application/problem+json", found
    return json.loads(found[0][2])


FOLDED = [
    b"GET /ops/matmul HTTP/1.1\r\nHost: localhost\r\n .evil.example\r\n\r\n",
    b"GET /ops/matmul HTTP/1.1\r\nHost: evil.example\r\n \r\n\r\n",
    LIVE + HOST + b"Origin: https://evil.example\r\n\tx\r\n\r\n",
    LIVE + HOST + b"X-A: b\r\n c\r\n\r\n",
    LIVE + b"X-A: b\r\n" + HOST + b" c\r\n\r\n",
    LIVE + b" folded: at once\r\n" + HOST + b"\r\n",
    POST + b"Transfer-: chunked\r\n Encoding\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    POST + b"Content-: %d\r\n Length\r\n\r\n" % len(BODY) + BODY,
    POST + b"X: 1\r\nContent-: %d\r\n\t Length\r\nY: 2\r\n\r\n" % len(BODY) + BODY,
]
LINES = [
    b"GET /health/live HTTP/1.1\nHost: localhost\n\n",
    b"GET /health/live HTTP/1.1\nHost: localhost\r\n\r\n",
    LIVE + b"Host: localhost\nX: y\r\n\r\n",
    LIVE + b"X: y\n" + HOST + b"\r\n",
    LIVE + b"X:\n" + HOST + b"\r\n",
    LIVE + HOST + b"X: y\n\r\n",
    LIVE + HOST + b"\n",
    LIVE + HOST + b"X:\r\n\n",
    LIVE + HOST + b"X: y\rContent-Length: 3\r\n\r\n",
    LIVE + b"Host: localhost\rX: y\r\n\r\n",
    POST + b"Content-Length: %d\n\r\n" % len(BODY) + BODY,
]
NAMES = [
    LIVE + HOST + b"X : y\r\n\r\n",
    LIVE + HOST + b"X y: z\r\n\r\n",
    LIVE + HOST + b": z\r\n\r\n",
    LIVE + HOST + b"X(a): z\r\n\r\n",
    LIVE + HOST + b"X\xe9: z\r\n\r\n",
    LIVE + HOST + b"no colon\r\n\r\n",
]


@pytest.mark.parametrize("data", FOLDED + LINES + NAMES, ids=range(len(FOLDED + LINES + NAMES)))
def test_a_head_of_two_meanings_is_refused(service, data):
    problem = refused(service, data)
    assert problem is None or problem["code"] == "malformed_query", problem


@pytest.mark.parametrize("headers", [b"", b"X: y\r\n", HOST + HOST, HOST + b"Host: evil.example\r\n"])
def test_one_host_is_wanted(service, headers):
    problem = refused(service, LIVE + headers + b"\r\n")
    assert problem is None or (problem["code"] == "malformed_query" and problem["field"] == "Host"), problem
    assert [one[0] for one in answers(service, b"GET /health/live HTTP/1.0\r\n\r\n")] == [200]  # which knows no Host


@pytest.mark.parametrize("head", [
    LIVE + HOST + b"X:y\r\n\r\n",
    LIVE + HOST + b"X: y \t \r\n\r\n",
    LIVE + HOST + b"X:   y  \t\r\nY:\r\nZ: \r\n\r\n",
    LIVE + HOST + b"Cookie: a=b; c=d\r\nX-1: \xc3\xa9\tx\r\n!#$%&'*+-.^_`|~9: x\r\n\r\n",
    LIVE + HOST + b"Y:\r\n\r\n",
    LIVE + HOST + b"Y: " + b"y" * 9000 + b"\r\n\r\n",
    b"GET /health/live HTTP/1.1\r\nhost:localhost\r\n\r\n",
])
def test_what_is_unusual_and_clear_is_served(service, head):
    assert [one[0] for one in served(service, head + head)] == [200, 200]


def test_space_behind_a_value_is_no_part_of_it(service):
    """One proxy strips it and another does not: the same key is the same job."""
    def post(key, host=b"localhost"):
        return b"POST /jobs?wait=20 HTTP/1.1\r\nHost: " + host + b"\r\nIdempotency-Key: " + key + \
            b"\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
    jobs = [json.loads(body) for status, _, body in served(service, post(b"spaces") + post(b"spaces \t", b"localhost \t"))]
    assert len(jobs) == 2 and jobs[0]["state"] == "succeeded" and jobs[0]["id"] == jobs[1]["id"]


@pytest.mark.parametrize("target", [b"http://localhost/health/live", b"HTTP://LocalHost/health/live?",
                                    b"https://localhost/health/live"])
def test_a_target_may_be_a_whole_url(service, target):
    """As to a proxy; the standard has every server take it."""
    head = b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n"
    assert [(status, b"live" in body) for status, _, body in served(service, head + head)] == [(200, True)] * 2


def test_a_whole_url_with_a_query_or_without_a_path(service):
    jobs, root = served(service, b"".join(
        b"GET http://localhost" + rest + b" HTTP/1.1\r\n" + HOST + b"\r\n" for rest in (b"/jobs?limit=1", b"")))
    path, = served(service, b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
    assert jobs[0] == 200 and "jobs" in json.loads(jobs[2])
    assert (root[0], root[1]["content-type"]) == (path[0], path[1]["content-type"])


@pytest.mark.parametrize("authority", [b"evil.example", b"localhost:1", b"localhos", b"localhost.", b"a@localhost", b""])
def test_a_whole_url_for_another_host_is_refused(service, authority):
    problem = refused(service, b"GET http://" + authority + b"/health/live HTTP/1.1\r\n" + HOST + b"\r\n")
    assert problem is None or (problem["code"], problem["field"]) == ("malformed_query", "Host"), problem


def test_pages_of_other_sites_read_nothing(service):
    def get(path="/jobs", **headers):
        return service.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()},
                               check=False)
    for site in ("cross-site", "same-site"):
        for mode, dest in (("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe"), ("no-cors", "script")):
            answer = get(Sec_Fetch_Site=site, Sec_Fetch_Mode=mode, Sec_Fetch_Dest=dest)
            assert answer.status == 403 and answer.json()["code"] == "forbidden_origin", answer.body
        assert get(Sec_Fetch_Site=site).status == 403
        # who follows a link comes here himself, and the page that had it sees nothing of this
        assert get(Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document").status == 200
    for site in ("same-origin", "none"):
        assert get(Sec_Fetch_Site=site, Sec_Fetch_Mode="cors").status == 200


def test_pages_that_are_allowed_may_read(make_service):
    service = make_service("--allow-origin", "https://app.example")
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    answer = service.request("GET", "/jobs", headers={**headers, "Origin": "https://app.example"})
    assert answer.status == 200 and answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
    assert service.request("GET", "/jobs", headers=headers, check=False).status == 403


EXPECTS = b"Expect: 100-continue\r\n"


@pytest.mark.parametrize("path, status", [(b"/health/live", 200), (b"/ops", 200), (b"/jobs", 200), (b"/nothing", 404)])
def test_expect_without_a_body(service, path, status):
    """Also where the next request lies behind it."""
    get = b"GET " + path + b" HTTP/1.1\r\n" + HOST
    assert [one[0] for one in served(service, get + EXPECTS + b"\r\n")] == [status]
    assert [one[0] for one in served(service, (get + EXPECTS + b"\r\n") * 3 + get + b"\r\n")] == [status] * 4


def test_expect_with_a_body(service):
    found = served(service, POST + EXPECTS + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
    assert [one[0] for one in found] == [200], found


def test_expect_before_a_wait(service):
    """The answer comes later than the next request."""
    with service.worker_held():
        one = json.loads(service.request("POST", "/jobs", BODY, {"Content-Type": TYPES["json"]}).body)["id"].encode()
        found = served(service, b"GET /jobs/" + one + b"?wait=1 HTTP/1.1\r\n" + HOST + EXPECTS + b"\r\n")
        assert [one[0] for one in found] == [200], found


@pytest.mark.parametrize("count", [65, 200, 500, 2000])
@pytest.mark.parametrize("post", [False, True])
def test_too_many_query_parameters(service, count, post):
    query = b"&".join(b"a%d=1" % i for i in range(count))
    start, length = (b"POST", b"Content-Length: 2\r\n\r\n{}") if post else (b"GET", b"\r\n")
    problem = refused(service, start + b" /jobs?" + query + b" HTTP/1.1\r\n" + HOST + length)
    assert problem["code"] == "malformed_query" and str(count) in problem["detail"], problem
    assert served(service, b"") == []


@pytest.mark.parametrize("values, kind", [
    (["application/x-npy", "application/json;q=0.5"], "npy"),
    (["application/json;q=0.5", "application/x-npy"], "npy"),
    (["text/html", "application/x-safetensors"], "safetensors"),
    (["application/x-npy;q=0.1, application/json;q=0.2", "application/x-safetensors;q=0.3"], "safetensors"),
    (["", "application/x-npy"], "npy"),
    (["text/html", "text/plain"], None),
])
def test_a_repeated_accept_is_one_list(service, values, kind):
    accept = b"".join(b"Accept: %s\r\n" % value.encode() for value in values)
    found = served(service, POST + accept + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
    status, headers, _ = found[0]
    assert (status, headers["content-type"]) == ((200, TYPES[kind]) if kind else (406, "application/problem+json")), found


@pytest.mark.parametrize("headers, field", [
    (b"Content-Type: application/json\r\nContent-Type: application/x-safetensors\r\n", "Content-Type"),
    (b"Idempotency-Key: a\r\nIdempotency-Key: a\r\n", "Idempotency-Key"),
    (b"Origin: http://localhost\r\nOrigin: http://evil.example\r\n", "Origin"),
    (b"Content-Length: %d\r\n" % len(BODY), "Content-Length"),
])
def test_what_may_stand_there_once(service, headers, field):
    problem = refused(service, POST + headers + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
    assert problem is None or problem["field"] == field, problem


@pytest.mark.parametrize("query", ["wait=1e1", "wait=5e-324", "wait=0", "wait=2.5E%2B0",
                                   "wait=0." + "0" * 60 + "1"])
def test_what_the_text_allows_is_taken(service, query):
    answer = service.request("POST", f"/jobs?{query}", BODY, {"Content-Type": TYPES["json"]})
    assert answer.status in (200, 202), answer.body
    job = answer.json()["id"]
    assert service.request("GET", f"/jobs/{job}?wait=1e1").json()["state"] == "succeeded"
