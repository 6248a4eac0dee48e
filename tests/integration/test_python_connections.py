"""The Python client's connections and their ends: proxies, patience, what a future raises, the newest of its neighbours."""
import asyncio
import base64
import builtins
import concurrent.futures
import contextlib
import email.utils
import os
import pickle
import select
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

import blasd
import blasd.protocol
import numpy as np
import pytest
from service import ROOT
from test_python_client import Listener, answer
from test_tls import Authority


def both(url, *arguments, **options):
    """What GET /ops gives each client, or raises."""
    def ask():
        return blasd.Client(url, *arguments, **options).ops()

    async def ask_on_a_loop():
        async with blasd.AsyncClient(url, *arguments, **options) as client:
            return await client.ops()
    return ask, lambda: asyncio.run(ask_on_a_loop())


# --- what is raised ---------------------------------------------------------------------------------------------------


def test_errors_are_pythons_kinds_too(client):
    """So that what takes any future, or any connection, takes these."""
    job = client.submit("regression", x=np.ones((40, 1)), y=np.arange(40.0), params={"method": "gd", "iterations": 20_000_000,
                                                                                      "learning_rate": 1e-6})
    with pytest.raises(TimeoutError) as caught:
        job.result(0.05)
    for one in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert isinstance(one, (blasd.Timeout, concurrent.futures.TimeoutError)) and isinstance(one, asyncio.TimeoutError)
        assert str(one) == caught.value.args[0] and job.id in str(one) and one.retry and one.errno is None
    job.cancel()
    with pytest.raises(concurrent.futures.CancelledError, match="cancelled"):
        job.result()
    assert isinstance(job.exception(), blasd.Cancelled)
    for wrong in (lambda: client.matmul(np.eye(2), np.eye(3)), lambda: client.distance(np.eye(2), metric="none")):
        with pytest.raises(ValueError, match="inputs.b|params.metric") as caught:
            wrong()
        assert isinstance(pickle.loads(pickle.dumps(caught.value)), blasd.InvalidInput)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    for ask in both(url):
        with pytest.raises(builtins.ConnectionError) as caught:
            ask()
        assert isinstance(caught.value, blasd.ConnectionError) and url in str(caught.value)


def test_a_timeout_of_python_3_9_is_one(monkeypatch):
    """There a socket's is no TimeoutError."""
    class Old(OSError):
        pass
    monkeypatch.setattr(blasd.protocol.socket, "timeout", Old)
    settings = blasd.Client("http://127.0.0.1:1")._calls.settings
    assert isinstance(settings.lost(blasd.protocol.Request("GET", "/ops"), Old("timed out"), True), blasd.Timeout)


def test_what_cannot_be_meant_is_refused_before_anything_is_sent(client, monkeypatch):
    one = {"a": [[1.0]], "b": [[1.0]]}
    fixed = np.empty((1, 1))
    fixed.flags.writeable = False
    monkeypatch.setattr(client._pool, "carry", lambda request: pytest.fail("it was sent"))
    for out in ([1], fixed, {"c": 1.0}):
        with pytest.raises(blasd.InputError, match="out"):
            client.run("matmul", out=out, **one)
    for count in (0, -1):
        with pytest.raises(ValueError, match="in_flight"):
            list(client.map("matmul", [one], in_flight=count))

        async def main(count=count):
            async with blasd.AsyncClient(client.url) as other:
                return [result async for result in other.map("matmul", [one], in_flight=count)]
        with pytest.raises(ValueError, match="in_flight"):
            asyncio.run(main())
    for ask in (*both("https://127.0.0.1:1", verify="/nowhere/ca.pem"), *both("https://127.0.0.1:1", cert="/nowhere/ca.pem")):
        with pytest.raises(FileNotFoundError, match="/nowhere/ca.pem"):
            ask()


def test_no_timeout(service):
    """None, as everywhere: for a request, and for a job."""
    with blasd.Client(service.url, timeout=None) as client:
        assert client.matmul([[2.0]], [[3.0]], timeout=None) == 6 and client.url in repr(client)

    async def main():
        async with blasd.AsyncClient(service.url, timeout=None) as client:
            assert client.url in repr(client)
            return await client.matmul([[2.0]], [[3.0]], timeout=None)
    assert asyncio.run(main()) == 6


# --- patience ---------------------------------------------------------------------------------------------------------


def test_a_time_that_is_over_is_not_waited_beyond(monkeypatch):
    """A service that says nothing: not as long as the client would bear silence, but for the time that the job was given."""
    monkeypatch.setattr(blasd.protocol, "GRACE", 0.2)
    one = {"a": [[1.0]], "b": [[1.0]]}

    async def on_a_loop(call):
        async with blasd.AsyncClient(url, timeout=100_000) as client:
            return await call(client)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with blasd.Client(url, timeout=100_000) as client:
            job = blasd.Job(client, {"id": "x", "state": "running", "progress": 0, "op": "matmul"})
            for wait in (lambda: job.result(0.1), lambda: client.run("matmul", timeout=0.1, **one),
                         lambda: next(client.map("matmul", [one], timeout=0.1)),
                         lambda: asyncio.run(on_a_loop(lambda other: other.run("matmul", timeout=0.1, **one)))):
                with pytest.raises(blasd.Timeout):
                    wait()


def test_silence_is_borne_for_the_clients_time(monkeypatch):
    """Also where the service was asked to wait for a job's end: it is asked for half of that time at most."""
    monkeypatch.setattr(blasd.calls, "RETRY_S", 0)
    one = {"a": [[1.0]], "b": [[1.0]]}

    async def on_a_loop():
        async with blasd.AsyncClient(url, timeout=0.5) as client:
            return await client.run("matmul", **one)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with blasd.Client(url, timeout=0.5) as client:
            job = blasd.Job(client, {"id": "x", "state": "running", "progress": 0, "op": "matmul"})
            for wait in (job.result, lambda: client.run("matmul", **one), lambda: next(client.map("matmul", [one])),
                         lambda: asyncio.run(on_a_loop())):
                with pytest.raises(blasd.Timeout, match=r"no answer within 0\.5 s"):
                    wait()
            with pytest.raises(blasd.Timeout, match=r"no answer within 1\.25 s"):
                job.refresh(wait=1)  # who says it himself means it
    settings = blasd.Client(timeout=60)._calls.settings
    assert settings.patience(blasd.protocol.Request("GET", "/", wait=blasd.calls.LONGEST_WAIT)) == 60
    assert blasd.Client(timeout=None)._calls.settings.patience(blasd.protocol.Request("GET", "/", wait=5)) is None


def test_a_service_that_was_not_reached_took_no_job(tmp_path, monkeypatch):
    """Nobody is told that it may have."""
    one = {"a": [[1.0]], "b": [[1.0]]}

    async def on_a_loop(url):
        async with blasd.AsyncClient(url, timeout=0.5) as client:
            return await client.run("matmul", **one)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as others:
        for _ in range(3):  # its backlog is full: nobody else gets through
            other = others.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        for url in (f"unix:{tmp_path}/none", f"http://127.0.0.1:{full.getsockname()[1]}"):
            for ask in (lambda url=url: blasd.Client(url, timeout=0.5).run("matmul", **one), lambda url=url: asyncio.run(on_a_loop(url))):
                with pytest.raises((blasd.ConnectionError, blasd.Timeout)) as caught:
                    ask()
                assert caught.value.advice == "", url


@pytest.mark.parametrize("after", ["1", "date"])
@pytest.mark.parametrize("status", [429, 503])
def test_a_proxy_that_is_busy_is_asked_again(status, after):
    """Its answer is no problem document, and may name a date."""
    def talk(self, connection):
        if len(self.requests) > 1:
            return answer(connection, {"ops": []})
        when = after if after != "date" else email.utils.formatdate(time.time() + 2, usegmt=True)
        begins.append(time.monotonic())
        connection.sendall(f"HTTP/1.1 {status} Busy\r\nRetry-After: {when}\r\nContent-Type: text/html\r\n"
                           "Content-Length: 13\r\n\r\n<html></html>".encode())
        return True
    begins = []
    for ask in range(2):
        listener = Listener(talk)
        assert both(listener.url, retries=1)[ask]() == []
        assert time.monotonic() - begins[-1] >= 0.9 and len(listener.requests) == 2
        listener.close()


class Clock(asyncio.SelectorEventLoop):
    """A loop on which time passes as a test says."""
    ahead = 0.0

    def time(self):
        return super().time() + self.ahead


def test_an_answer_that_comes_slowly_is_waited_for():
    """The timeout is for silence: a large array may take longer. 55 s before each piece, with 60 s of patience."""
    listener = Listener(lambda self, connection: self.slowly(connection))
    loop = Clock()
    arrived, given_up = threading.Event(), threading.Event()
    body = b'{"ops": []}'

    def slowly(connection):
        pieces = [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", f"Content-Length: {len(body)}\r\n\r\n".encode(),
                  *(body[i:i + 1] for i in range(len(body) - (len(listener.requests) > 1)))]
        for piece in pieces:
            arrived.clear()
            loop.ahead += 55
            connection.sendall(piece)
            assert arrived.wait(60)
        if len(listener.requests) > 1:  # the last byte never comes
            loop.ahead += 70
            loop.call_soon_threadsafe(lambda: None)
            given_up.wait(60)
        return True
    listener.slowly = slowly

    async def main():
        async with blasd.AsyncClient(listener.url) as client:
            first = await client.ops()
            with pytest.raises(blasd.Timeout):
                await client.ops()
            return first
    updated = blasd.aio._Connection.buffer_updated
    try:
        blasd.aio._Connection.buffer_updated = lambda self, count: (updated(self, count), arrived.set())[0]
        assert loop.run_until_complete(main()) == []
    finally:
        blasd.aio._Connection.buffer_updated = updated
        given_up.set()
        listener.close()
        loop.close()


def test_a_body_that_leaves_slowly_is_no_silence(monkeypatch):
    """What is handed to a loop leaves later: a MiB of it may take longer than the timeout."""
    made = blasd.aio._Connection.connection_made

    def narrow(self, transport):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
        made(self, transport)
    monkeypatch.setattr(blasd.aio._Connection, "connection_made", narrow)
    tensor = np.zeros(1 << 18)

    def serve():
        connection, _ = listener.accept()
        with connection:
            left = tensor.nbytes
            while left > 0 and (data := connection.recv(16384)):
                left -= len(data)
                time.sleep(0.05)
            if left <= 0:
                answer(connection, {"id": "t", "shape": [], "dtype": "float64", "bytes": 8}, "201 Created")
                connection.recv(65536)

    async def main(url):
        async with blasd.AsyncClient(url, timeout=1.5) as client:
            return (await client.tensors.put(tensor)).id
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        threading.Thread(target=serve, daemon=True).start()
        assert asyncio.run(main(f"http://127.0.0.1:{listener.getsockname()[1]}")) == "t"


@pytest.mark.parametrize("ending", ["closed", "talks"])
def test_a_connection_that_ended_while_the_loop_was_kept_busy_is_not_used(ending):
    """A program that computes between two jobs keeps its loop from seeing what came meanwhile."""
    def talk(self, connection):
        answer(connection, {"id": "x", "state": "queued", "progress": 0, "op": "matmul"})
        if ending == "talks":
            time.sleep(0.1)
            connection.sendall(b"HTTP/1.1 408 Too late\r\nContent-Length: 0\r\n\r\n")
        return False
    listener = Listener(talk)

    async def main():
        async with blasd.AsyncClient(listener.url) as client:
            for count in range(1, 4):
                assert (await client.submit("matmul", a=[[1.0]], b=[[1.0]])).id == "x"
                sock = client._pool._idle[-1].transport.get_extra_info("socket")
                assert select.select([sock], [], [], 20)[0] and len(listener.requests) == count
    asyncio.run(main())
    listener.close()


# --- what stands between ------------------------------------------------------------------------------------------------


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
    gone = threading.Event()
    listener = Listener(talk)
    for ask in both(listener.url, timeout=5):
        assert ask() == []

    async def main():
        async with blasd.AsyncClient(listener.url) as client:
            assert await client.ops() == [] and not client._pool._idle
    asyncio.run(main())
    listener.close()


PAGES = [(b"text/html", b"<html>Sign in</html>"), (b"application/json", b"[]"), (b"application/json", b'"a word"'), (b"application/json", b""),
         (b"application/x-safetensors", b"\1\0\0\0\0\0\0\0{"), (b"application/x-safetensors", b"\2\0\0\0\0\0\0\0{}"),
         (b"application/x-safetensors", b"<html>")]


@pytest.mark.parametrize("kind, page", PAGES, ids=range(len(PAGES)))
def test_what_cannot_be_read_is_an_error_of_ours(kind, page):
    """As of a proxy that answers itself: 200, and a page to sign in."""
    def talk(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(page)) + page)
        return False
    listener = Listener(talk)
    one = {"a": [[1.0]], "b": [[1.0]]}
    for ask in (lambda c: c.ops(), lambda c: c.run("matmul", **one), lambda c: c.submit("matmul", **one), lambda c: c.job("s" + "0" * 40),
                lambda c: c.tensors.get("t" + "0" * 40), lambda c: c.tensors.put([1.0])):
        with pytest.raises(blasd.Error) as caught:
            ask(blasd.Client(listener.url))
        assert caught.value.code == "bad_answer" and caught.value.status == 200 and not caught.value.retry
    listener.close()


def test_an_answer_of_unknown_length_that_is_cut_off_is_none():
    def talk(self, connection):
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + BODY)
        seen.wait(20)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        return False
    seen = threading.Event()
    listener = Listener(talk)
    updated = blasd.aio._Connection.buffer_updated

    async def main():
        async with blasd.AsyncClient(listener.url) as client:
            with pytest.raises(blasd.ConnectionError):
                await client.ops()
    try:
        blasd.aio._Connection.buffer_updated = lambda self, count: (updated(self, count), seen.set())[0]
        asyncio.run(main())
    finally:
        blasd.aio._Connection.buffer_updated = updated
        listener.close()


# --- proxies ----------------------------------------------------------------------------------------------------------


class Proxy:
    """Takes CONNECT from whom it knows and hands everything on to one place."""

    def __init__(self, onward):
        self.onward, self.heads = onward, []
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://us%65r:p%3Aw@127.0.0.1:{self.sock.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(65536)
        self.heads.append(head.decode())
        known = base64.b64encode(b"user:p:w").decode()
        if f"Proxy-Authorization: Basic {known}\r\n" not in self.heads[-1]:
            connection.sendall(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
            connection.close()
            return
        onward = socket.create_connection(("127.0.0.1", self.onward))
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")

        def pump(source, target):
            try:
                while (data := source.recv(65536)):
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        threading.Thread(target=pump, args=(onward, connection), daemon=True).start()
        pump(connection, onward)

    def close(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


class Secured(Listener):
    """A Listener with TLS."""

    def __init__(self, talk, certificate):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        self.requests, self.talk = [], talk
        self.sock = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)
        self.port = self.sock.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()


def test_https_through_a_proxy_that_asks_who_it_is(tmp_path, monkeypatch):
    """The user in the proxy's URL is told to it alone, and nothing of the request."""
    service = Secured(lambda self, connection: answer(connection, {"ops": []}) and False,
                      Authority(tmp_path, "ours").sign("service"))
    proxy = Proxy(service.port)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("https_proxy", proxy.url)
    for ask in both("https://blasd.test:8443/x", api_key="secret", verify=False):
        assert ask() == []
    assert len(proxy.heads) == 2 and all(head.startswith("CONNECT blasd.test:8443 HTTP/1.") for head in proxy.heads)
    assert not any("secret" in head for head in proxy.heads) and service.authorization == "Bearer secret"
    monkeypatch.setenv("https_proxy", proxy.url.replace("p%3Aw", "wrong"))
    for ask in both("https://blasd.test:8443/x", verify=False):
        with pytest.raises(blasd.ConnectionError, match="407"):
            ask()
    assert len(service.requests) == 2
    proxy.close()
    service.close()


def test_a_proxy_for_http_that_asks_who_it_is(monkeypatch):
    heard = []

    class Hearing(Listener):
        def run(self):
            while True:
                try:
                    connection, _ = self.sock.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(65536).decode())
                    answer(connection, {"ops": []})
    listener = Hearing(None)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", listener.url.replace("//", "//user:pw@"))
    for ask in both("http://blasd.test:8080"):
        assert ask() == []
        assert heard[-1].startswith("GET http://blasd.test:8080/ops HTTP/1.1\r\n")
        assert f"Proxy-Authorization: Basic {base64.b64encode(b'user:pw').decode()}\r\n" in heard[-1]
    assert blasd.Client("http://127.0.0.1:1")._calls.settings.proxy_headers == {}
    listener.close()


def test_an_address_with_colons_is_told_to_a_proxy_in_brackets(monkeypatch):
    heads = []

    def serve():
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                heads.append(connection.recv(65536).decode())
                connection.sendall(b"HTTP/1.1 403 Not there\r\nContent-Length: 0\r\n\r\n")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{listener.getsockname()[1]}")
        for ask in both("https://[2001:db8::1]:8443"):
            with pytest.raises(blasd.ConnectionError, match="403"):
                ask()
    assert len(heads) == 2 and all(head.startswith("CONNECT [2001:db8::1]:8443 HTTP/1.") for head in heads)


@pytest.mark.parametrize("proxy", ["socks5h://127.0.0.1:1080", "SOCKS4://user:pw@127.0.0.1"])
def test_a_proxy_that_speaks_no_http_is_refused(proxy, monkeypatch):
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", proxy)
    for kind in (blasd.Client, blasd.AsyncClient):
        with pytest.raises(ValueError, match="(?i)socks.*NO_PROXY") as caught:
            kind("http://blasd.test")
        assert "pw" not in str(caught.value)
        kind("http://127.0.0.1:1")


# --- the newest of what stands beside it ------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("which", ["the system's", "the newest"])
def test_numpy_scipy_and_scikit_learn(which, service, request):
    """Their signatures and attributes are ours, and scikit-learn's check_estimator passes."""
    python = sys.executable
    if which == "the newest":
        python = request.getfixturevalue("venv")("science") / "bin/python"
    else:
        pytest.importorskip("sklearn")
    done = subprocess.run([python, ROOT / "tests/integration/clients/science.py", service.url], capture_output=True, text=True,
                          timeout=600, env={**os.environ, "PYTHONPATH": str(ROOT / "clients/python")}, check=False)
    assert done.returncode == 0 and done.stdout == "right\n", done.stderr[-3000:]


def test_small_requests_of_one_turn_leave_together(service, monkeypatch):
    """So that the service, which takes together what is there together, calls Redis once for many of them."""
    sizes, send = [], blasd.aio.AsyncPool._send
    monkeypatch.setattr(blasd.aio.AsyncPool, "_send", lambda pool: (sizes.append(len(pool._unsent)), send(pool))[1])

    async def main():
        async with blasd.AsyncClient(service.url) as client:
            await asyncio.gather(*[client.matmul([[2.0]], [[float(i)]]) for i in range(16)])  # connects
            sizes.clear()
            return await asyncio.gather(*[client.matmul([[2.0]], [[float(i)]]) for i in range(16)])
    assert [c[0, 0] for c in asyncio.run(main())] == [2.0 * i for i in range(16)] and sizes == [16]
