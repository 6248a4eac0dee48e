"""What both clients make of answers that are not the service's: of a proxy that redirects, signs in or is broken."""
import os
import socket
import subprocess
import threading
import urllib.parse

import blasd
import numpy as np
import pytest
from callers import by_client, on_a_loop
from pretender import DOCUMENT, Listener, Pretender, document, succeeded
from service import BLASD

PROBE = BLASD.parent / "client_probe"
QUIET = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy") and key != "BLASD_API_KEY"}
ONE = {"a": np.array([[2.0]]), "b": np.array([[2.0]])}
HTML = b"<html><title>502 Bad Gateway</title></html>"


def probe(pretender, *arguments, status=0, **env):
    done = subprocess.run([PROBE, *map(str, arguments)], capture_output=True, text=True, timeout=100,
                          env={**QUIET, "BLASD_URL": pretender.url, **env})
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def by_python(pretender, ask=lambda client: client.run("matmul", **ONE)):
    with blasd.Client(pretender.url) as client, pytest.raises(blasd.Error) as caught:
        ask(client)
    return caught.value


ANSWERS = [
    ((307, {"Location": "https://elsewhere.example:8443/blasd/jobs?wait=1"}, b""), ("307", "https://elsewhere.example:8443/blasd/jobs", "not followed")),
    ((302, {"Location": "/sign-in?to=jobs", "Content-Type": "text/html"}, b"<html>Moved</html>"), ("302", "/sign-in", "not followed")),
    ((301, {}, b""), ("HTTP 301", "nothing more")),
    ((200, {}, b""), ("empty", "proxy")),
    ((200, {"Content-Type": "application/json"}, b""), ("empty", "proxy")),
    ((200, {"Content-Type": "text/html"}, HTML), ("not the service's", "502 Bad Gateway")),
    ((200, {"Content-Type": "application/json"}, b"{}"), ("not the service's", "{}")),
    ((204, {}, b""), ("HTTP 204", "nothing more")),
    ((403, {}, b""), ("HTTP 403", "nothing more")),
    ((500, {"Content-Type": "text/html"}, HTML), ("HTTP 500", "not in the service's words", "502 Bad Gateway")),
    ((502, {"Content-Type": "text/html"}, HTML), ("HTTP 502", "not in the service's words", "502 Bad Gateway"))]


@pytest.mark.parametrize("answer, words", ANSWERS, ids=[f"{answer[0]}-{len(answer[2])}" for answer, _ in ANSWERS])
def test_what_is_not_the_services_own(answer, words):
    with Pretender(lambda request, number: answer) as pretender:
        said = probe(pretender, "once", 5, status=1)
        assert said.startswith("bad_answer") and all(word in said for word in words), said
        error = by_python(pretender)
        assert error.code == "bad_answer" and error.status == answer[0] and all(word in str(error) for word in words), str(error)
        assert error.retry == (answer[0] == 502)


def test_a_redirection_does_not_tell_the_password():
    with Pretender(lambda request, number: (307, {"Location": "/other"}, b"")) as pretender:
        class Of:
            url = pretender.url.replace("//", "//me:s3cret@")
        for said in (probe(Of, "once", 5, status=1), str(by_python(Of))):
            assert "/other" in said and "s3cret" not in said


@pytest.mark.parametrize("ask", [
    lambda c: c.ops(), lambda c: c.devices(), lambda c: c.jobs(), lambda c: c.job("s" + "0" * 40), lambda c: c.submit("matmul", **ONE),
    lambda c: c.tensors.put([1.0]), lambda c: c.tensors.look("t" + "0" * 40), lambda c: c.tensors.get("t" + "0" * 40), lambda c: c.tensors.list(),
    lambda c: blasd.Client(c.url, share=True)], ids=range(10))
@pytest.mark.parametrize("body", [b"{}", b'{"jobs":7,"tensors":7,"ops":7,"devices":7,"id":7,"directory":7}', b'{"status":"ok"}'])
def test_documents_of_something_else(ask, body):
    with Pretender(lambda request, number: (200, {"Content-Type": "application/json"}, body)) as pretender:
        assert by_python(pretender, ask).code == "bad_answer"


def wait_of(path):
    return float(urllib.parse.parse_qs(urllib.parse.urlsplit(path).query).get("wait", ["0"])[0])


def test_a_long_wait_is_made_of_short_ones():
    """The service refuses one of more than 300 s."""
    def answer(request, number):
        method, path, _, _ = request
        if wait_of(path) > 300:
            return document({"code": "invalid_field", "field": "wait", "title": "too long"}, 400)
        if path.endswith("/result"):
            return succeeded()
        seen = sum(other == method for other, *_ in pretender.seen)
        return document({**DOCUMENT, "state": "succeeded" if method == "GET" and seen >= 3 else "queued"}, 202)
    with Pretender(answer) as pretender:
        assert probe(pretender, "waits", 1e6) == "succeeded\nsucceeded 4\n"
    with Pretender(answer) as pretender, blasd.Client(pretender.url) as client:
        job = client.job(DOCUMENT["id"])
        assert not job.ended and job.refresh(wait=1e6).state == "succeeded"
        assert len(pretender.seen) == 3


# --- of any proxy, to the Python client --------------------------------------------------------------------------------


OPERATIONS = b'{"ops": [{"name": "matmul"}]}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = [(b"%x\r\n" % len(OPERATIONS) + OPERATIONS + b"\r\n0\r\n\r\n", True), (b"7;name=value\r\n" + OPERATIONS[:7] + b"\r\n" + b"".join(
    b"1\r\n%c\r\n" % c for c in OPERATIONS[7:]) + b"000\r\nTrailer: x\r\nOther: y\r\n\r\n", True),
          (b"5\r\n" + OPERATIONS[:5] + b"\r\n", False), (b"5\r\n" + OPERATIONS[:6] + b"\r\n0\r\n\r\n", False), (b"-1\r\n", False),
          (b"0x5\r\n" + OPERATIONS[:5] + b"\r\n0\r\n\r\n", False), (b"\r\n\r\n", False)]


@pytest.mark.parametrize("chunks, right", CHUNKS, ids=range(len(CHUNKS)))
@pytest.mark.parametrize("step", [1, 1000])
def test_a_proxy_that_answers_in_chunks(chunks, right, step):
    """The service tells each answer's length, what stands in front of it need not; in whatever pieces the chunks come."""
    def talk(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for text in (HEAD, chunks):
            for at in range(0, len(text), step):
                connection.sendall(text[at:at + step])
        return right

    async def twice(client):
        return [await client.ops() for _ in range(2)]
    with Listener(talk) as listener:
        if right:
            assert on_a_loop(listener.url, twice) == [[{"name": "matmul"}]] * 2
            assert blasd.Client(listener.url).ops() == [{"name": "matmul"}]
        else:
            with pytest.raises(blasd.ConnectionError):
                on_a_loop(listener.url, twice)


BODY = b'{"ops": []}'
WAYS = [b"HTTP/1.0 200 OK\r\nContent-Length: 11\r\n\r\n" + BODY, b"HTTP/1.0 200 OK\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nConnection: keep-alive, Close\r\n\r\nb\r\n" + BODY + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 103 Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 11\r\n\r\n" + BODY]


@pytest.mark.parametrize("way", WAYS, ids=["length", "until it ends", "chunks", "hints"])
def test_answers_as_proxies_write_them(way):
    """Those of HTTP/1.0 end the connection, when they like: it serves no further job."""
    def talk(self, connection):
        connection.sendall(way)
        if b"0 200 OK\r\n\r\n" not in way:
            gone.wait(0.3)
        return False

    async def not_kept(client):
        assert await client.ops() == [] and not client._pool._idle
    gone = threading.Event()
    with Listener(talk) as listener:
        assert by_client(listener.url, lambda c: c.ops(), timeout=5) == []
        on_a_loop(listener.url, not_kept, timeout=5)


PAGES = [(b"text/html", b"<html>Sign in</html>"), (b"application/json", b"[]"), (b"application/json", b'"a word"'), (b"application/json", b""),
         (b"application/x-safetensors", b"\1\0\0\0\0\0\0\0{"), (b"application/x-safetensors", b"\2\0\0\0\0\0\0\0{}"),
         (b"application/x-safetensors", b"<html>")]


@pytest.mark.parametrize("kind, page", PAGES, ids=range(len(PAGES)))
def test_what_cannot_be_read_is_an_error_of_ours(kind, page):
    """As of a proxy that answers itself: 200, and a page to sign in."""
    def talk(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(page)) + page)
        return False
    with Listener(talk) as listener:
        for ask in (lambda c: c.ops(), lambda c: c.run("matmul", **ONE), lambda c: c.submit("matmul", **ONE), lambda c: c.job("s" + "0" * 40),
                    lambda c: c.tensors.get("t" + "0" * 40), lambda c: c.tensors.put([1.0])):
            with pytest.raises(blasd.Error) as caught:
                ask(blasd.Client(listener.url))
            assert caught.value.code == "bad_answer" and caught.value.status == 200 and not caught.value.retry


def test_an_answer_that_ends_early():
    def talk(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-safetensors\r\nContent-Length: 100\r\n\r\nshort")
        return False
    with Listener(talk) as listener, pytest.raises(blasd.Error) as caught:
        blasd.Client(listener.url).run("matmul", **ONE)
    assert caught.value.code == "connection_failed" and len(listener.requests) == 1
