"""The Python client's connections: what is raised, patience, what is sent again, connections that have ended."""
import asyncio
import builtins
import concurrent.futures
import contextlib
import email.utils
import gc
import logging
import pickle
import select
import socket
import struct
import threading
import time

import blasd
import blasd.protocol
import numpy as np
import pytest
from callers import CALLERS, ONE, SLOW, both, by_client, on_a_loop
from pretender import DOCUMENT, OPS, QUEUED, Listener, Pretender, answer, context_of, document, nowhere, raw, silent, succeeded
from test_tls import Authority

# --- what is raised ---------------------------------------------------------------------------------------------------


def test_errors_are_pythons_kinds_too(client):
    """So that what takes any future, or any connection, takes these."""
    job = client.submit("regression", **SLOW)
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


@both
def test_a_service_that_is_not_there(call, tmp_path):
    """It may be asked again, for it took no job."""
    url = nowhere()
    for ask in (lambda c: c.ops(), lambda c: c.run("matmul", **ONE), lambda c: c.submit("matmul", **ONE)):
        with pytest.raises(builtins.ConnectionError) as caught:
            call(url, ask)
        error = caught.value
        assert isinstance(error, blasd.ConnectionError) and error.code == "connection_failed" and error.retry and url in str(error)
        assert error.advice == ""
    assert call(url, lambda c: c.ready()) is False
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as others:
        for _ in range(3):  # its backlog is full: no further connection gets through
            other = others.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        for url in (f"unix:{tmp_path}/none", f"http://127.0.0.1:{full.getsockname()[1]}"):
            with pytest.raises((blasd.ConnectionError, blasd.Timeout)) as caught:
                call(url, lambda c: c.run("matmul", **ONE), timeout=0.5)
            assert caught.value.advice == "", url


def test_a_timeout_of_python_3_9_is_one(monkeypatch):
    """There a socket's is no TimeoutError."""
    class Old(OSError):
        pass
    monkeypatch.setattr(blasd.protocol.socket, "timeout", Old)
    settings = blasd.Client("http://127.0.0.1:1")._calls.settings
    assert isinstance(settings.lost(blasd.protocol.Request("GET", "/ops"), Old("timed out"), True), blasd.Timeout)


@both
def test_nothing_is_smuggled_into_a_request(call, service):
    """An id or a key that comes from somebody else ends no line of the request."""
    for text in ("x HTTP/1.1\r\nHost: a\r\n\r\nGET /ops", "a\nb", "a b\r\n"):
        for ask in (lambda c: c.job(text), lambda c: c.submit("matmul", **ONE, idempotency_key=text + "\r\n")):
            with pytest.raises(ValueError):
                call(service.url, ask)
    for bad in ({"X": "a\r\nb"}, {"X\n": "a"}):
        with pytest.raises(ValueError):
            blasd.Client(service.url, headers=bad)


def test_urls(service):
    assert blasd.Client(service.url + "/").ready() and blasd.Client(service.url.replace("http", "HTTP")).ready()
    for url in ("127.0.0.1:8080", "ftp://127.0.0.1", "http://", "http://127.0.0.1:port", "http://127.0.0.1:8080/?a=b",
                "http://127.0.0.1/#x", "ftp://user:pw@127.0.0.1", "unix:"):
        with pytest.raises(ValueError) as caught:
            blasd.Client(url)
        assert "pw" not in str(caught.value)


# --- patience ---------------------------------------------------------------------------------------------------------


def waits(url, patience, **time_given):
    """Every way to wait for a job at a URL, each to be called."""
    def of_map(client):
        return next(client.map("matmul", [ONE], **time_given))
    job = blasd.Job(blasd.Client(url, timeout=patience), {**QUEUED, "state": "running"})
    return [lambda: job.result(*time_given.values()), lambda: by_client(url, of_map, timeout=patience),
            *[lambda call=call: call(url, lambda c: c.run("matmul", **time_given, **ONE), timeout=patience) for call in CALLERS]]


def test_a_time_that_is_over_is_not_waited_beyond(monkeypatch):
    """A service that says nothing: not as long as the client would bear silence, but for the time that the job was given."""
    monkeypatch.setattr(blasd.protocol, "GRACE", 0.2)
    with silent() as url:
        for wait in waits(url, 100_000, timeout=0.1):
            with pytest.raises(blasd.Timeout):
                wait()


def test_silence_is_borne_for_the_clients_time(monkeypatch):
    """Also when the service was asked to wait for a job's end: it is asked for half of that time at most."""
    monkeypatch.setattr(blasd.calls, "RETRY_S", 0)
    with silent() as url:
        for wait in [*waits(url, 0.5), *[lambda call=call: call(url, lambda c: c.ops(), timeout=0.5) for call in CALLERS]]:
            with pytest.raises(blasd.Timeout, match=r"no answer within 0\.5 s"):
                wait()
        with blasd.Client(url, timeout=0.5) as client, pytest.raises(blasd.Timeout, match=r"no answer within 1\.25 s"):
            blasd.Job(client, QUEUED).refresh(wait=1)  # who says it himself means it
    settings = blasd.Client(timeout=60)._calls.settings
    assert settings.patience(blasd.protocol.Request("GET", "/", wait=blasd.calls.LONGEST_WAIT)) == 60
    assert blasd.Client(timeout=None)._calls.settings.patience(blasd.protocol.Request("GET", "/", wait=5)) is None


@both
def test_no_timeout(call, service):
    """None, as everywhere: for a request, and for a job."""
    def ask(client):
        assert client.url in repr(client)
        return client.matmul([[2.0]], [[3.0]], timeout=None)
    assert call(service.url, ask, timeout=None) == 6


class Clock(asyncio.SelectorEventLoop):
    """A loop on which time passes as a test says."""
    ahead = 0.0

    def time(self):
        return super().time() + self.ahead


def heard(monkeypatch, tell):
    """Calls `tell` whenever an AsyncClient has received something."""
    updated = blasd.aio._Connection.buffer_updated
    monkeypatch.setattr(blasd.aio._Connection, "buffer_updated", lambda self, count: (updated(self, count), tell())[0])


def test_an_answer_that_comes_slowly_is_waited_for(monkeypatch):
    """The timeout is for silence: a large array may take longer. 55 s before each piece, with 60 s of patience."""
    loop = Clock()
    arrived, given_up = threading.Event(), threading.Event()
    body = b'{"ops": []}'

    def slowly(self, connection):
        pieces = [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", f"Content-Length: {len(body)}\r\n\r\n".encode(),
                  *(body[i:i + 1] for i in range(len(body) - (len(self.requests) > 1)))]
        for piece in pieces:
            arrived.clear()
            loop.ahead += 55
            connection.sendall(piece)
            assert arrived.wait(60)
        if len(self.requests) > 1:  # the last byte never comes
            loop.ahead += 70
            loop.call_soon_threadsafe(lambda: None)
            given_up.wait(60)
        return True

    async def main():
        async with blasd.AsyncClient(listener.url) as client:
            first = await client.ops()
            with pytest.raises(blasd.Timeout):
                await client.ops()
            return first
    heard(monkeypatch, arrived.set)
    with Listener(slowly) as listener:
        try:
            assert loop.run_until_complete(main()) == []
        finally:
            given_up.set()
            loop.close()


def test_a_body_that_leaves_slowly_is_no_silence(monkeypatch):
    """What is handed to a loop leaves later: a MiB of it may take longer than the timeout."""
    made = blasd.aio._Connection.connection_made

    def narrow(self, transport):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
        made(self, transport)
    monkeypatch.setattr(blasd.aio._Connection, "connection_made", narrow)
    tensor = np.zeros(1 << 18)

    def serve(connection):
        left = tensor.nbytes
        while left > 0 and (data := connection.recv(16384)):
            left -= len(data)
            time.sleep(0.05)
        if left <= 0:
            answer(connection, {"id": "t", "shape": [], "dtype": "float64", "bytes": 8}, "201 Created")
            connection.recv(65536)
    with raw(serve) as url:
        assert on_a_loop(url, lambda c: c.tensors.put(tensor), timeout=1.5).id == "t"


def test_a_connection_is_waited_for_no_longer_than_the_job_is_given(monkeypatch):
    monkeypatch.setattr(blasd.aio, "GRACE", 0.1)
    held = threading.Event()

    async def main():
        async with blasd.AsyncClient(listener.url, connections=1) as client:
            first = asyncio.ensure_future(client.ops())
            while not listener.requests:
                await asyncio.sleep(0.01)
            with pytest.raises(blasd.Timeout, match="no connection was free"):
                await client.run("matmul", **ONE, timeout=0.1)
            assert not first.done()
            held.set()
            return await first
    with Listener(lambda self, c: held.wait(60) and answer(c, OPS)) as listener:
        assert asyncio.run(main()) == [] and [method for method, _ in listener.requests] == ["GET"]


# --- what is sent again -----------------------------------------------------------------------------------------------


def test_a_job_is_sent_once_unless_it_has_a_key():
    """A connection that breaks before the answer: the job may have been taken."""
    with Listener(lambda self, c: len(self.requests) % 2 == 1 and answer(c, OPS)) as listener:
        client = blasd.Client(listener.url)
        for ask in (client.submit, client.run):
            client.ops()
            with pytest.raises(blasd.Error) as caught:
                ask("matmul", **ONE)
            assert caught.value.code == "connection_failed" and caught.value.retry and "idempotency_key" in caught.value.advice
        assert listener.requests == [("GET", None), ("POST", None)] * 2
    for ask, requests in ((lambda c: c.submit("matmul", **ONE, idempotency_key="k").id == "x", [("POST", "k")] * 2),
                          (lambda c: c.ops() == [], [("GET", None)] * 2)):
        with Listener(lambda self, c: len(self.requests) != 2 and answer(c, {**OPS, **QUEUED})) as listener:
            client = blasd.Client(listener.url)
            assert client.ops() == [] and ask(client) and listener.requests[1:] == requests


@pytest.mark.parametrize("status, times", [(502, 1), (504, 1), (503, 2), (429, 2)])
def test_a_job_that_a_gateway_may_have_passed_on_is_sent_once(status, times):
    """Retry-After or not: only one that was not taken is sent again by itself."""
    def talk(self, connection):
        if len(self.requests) > 1:
            return answer(connection, {"code": "draining", "detail": "", "retry": False}, "503 Busy")
        connection.sendall(f"HTTP/1.1 {status} Gateway\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n".encode())
        return True
    with Listener(talk) as listener, pytest.raises(blasd.Error):
        blasd.Client(listener.url).run("matmul", **ONE)
    assert len(listener.requests) == times


@both
@pytest.mark.parametrize("status, after, body", [(429, "1", "<html></html>"), (503, "date", "<html></html>"), (503, "1", '{"message": "busy"}')])
def test_a_proxy_that_is_busy_is_asked_again(call, status, after, body):
    """Its answer is no problem document, and may name a date."""
    def talk(self, connection):
        if len(self.requests) > 1:
            return answer(connection, OPS)
        when = after if after != "date" else email.utils.formatdate(time.time() + 2, usegmt=True)
        begins.append(time.monotonic())
        connection.sendall(f"HTTP/1.1 {status} Busy\r\nRetry-After: {when}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        return True
    begins = []
    with Listener(talk) as listener:
        assert call(listener.url, lambda c: c.ops(), retries=1) == []
        assert time.monotonic() - begins[-1] >= 0.9 and len(listener.requests) == 2


BUSY = b"HTTP/1.1 503 Busy\r\nRetry-After: %d\r\nContent-Type: application/problem+json\r\nContent-Length: 52\r\n\r\n" \
       b'{"code":"draining","retry":true,"detail":"not now."}'


@both
@pytest.mark.parametrize("state, turns", [("queued", ["busy", "lost"]), ("cancelled", ["lost", "busy"])])
def test_retries_carry_one_key_and_heed_retry_after(call, state, turns, caplog):
    """Whether the job was refused first or its answer was lost; then `run` itself waits for room, beyond its retries."""
    def talk(self, connection):
        if len(self.requests) > len(turns):
            return answer(connection, {**QUEUED, "state": state})
        if turns[len(self.requests) - 1] == "lost":
            return False
        connection.sendall(BUSY % (state == "queued"))
        return True
    begin = time.monotonic()
    with Listener(talk) as listener, caplog.at_level(logging.INFO, "blasd"):
        if state == "queued":
            assert call(listener.url, lambda c: c.submit("matmul", **ONE), retries=3).id == "x" and time.monotonic() - begin >= 1
        else:
            with pytest.raises(blasd.Cancelled):
                call(listener.url, lambda c: c.run("matmul", **ONE), retries=1)
    keys = [key for _, key in listener.requests]
    assert len(keys) == 3 and keys[0] and len(set(keys)) == 1
    assert any("draining" in record.getMessage() for record in caplog.records)


def test_a_job_that_went_by_file_has_its_key_when_it_is_sent_after_all(sharing):
    seen = []
    client = blasd.Client(sharing.url, share=True, retries=1)
    carry = client._pool.carry

    def refuse(request):
        if request.method == "POST":
            seen.append(request.headers["Idempotency-Key"])
            if "Body-File" in request.headers:
                raise blasd.Error("sharing_off", "", status=422)
        return carry(request)
    client._pool.carry = refuse
    a = np.eye(512)
    assert (client.matmul(a, a) == a).all() and len(seen) == 2 and len(set(seen)) == 1


@both
def test_a_result_is_asked_for_again_and_is_not_lost(call, monkeypatch):
    """Of a front end that restarts just when the job has ended; and who gives up knows which job it was."""
    def answers(request, number):
        if request[1].endswith("/result"):
            asked.append(number)
            return None if len(asked) < lost else succeeded()
        return document({**DOCUMENT, "state": "queued" if request[0] == "POST" else "succeeded"}, 202 if request[0] == "POST" else 200)

    def ask():
        return call(pretender.url, lambda c: c.run("matmul", a=[[2.0]], b=[[2.0]]))["c"]
    asked, lost = [], 4
    with Pretender(answers) as pretender:
        assert ask() == 4 and [one[0] for one in pretender.seen].count("POST") == 1
        monkeypatch.setattr(blasd.calls, "RETRY_S", 0.5)
        asked, lost = [], 1000
        with pytest.raises(blasd.ConnectionError) as caught:
            ask()
        assert caught.value.job["id"] == DOCUMENT["id"]


# --- connections that have ended --------------------------------------------------------------------------------------


def test_a_connection_that_was_closed_meanwhile_is_not_used():
    """So that a kept connection costs no job its answer when the service closes it or starts anew."""
    with Listener(lambda self, c: answer(c, QUEUED) and False) as listener:
        client = blasd.Client(listener.url)
        for _ in range(3):
            assert client.submit("matmul", **ONE).id == "x"
            connection = client._pool._idle[-1][1]
            connection.sock.settimeout(5)
            assert connection.sock.recv(1, socket.MSG_PEEK) == b""  # the end has come
        assert len(listener.requests) == 3


@pytest.mark.parametrize("ending", ["closed", "talks"])
def test_a_connection_that_ended_while_the_loop_was_kept_busy_is_not_used(ending):
    """A program that computes between two jobs keeps its loop from seeing what came meanwhile."""
    def talk(self, connection):
        answer(connection, QUEUED)
        if ending == "talks":
            time.sleep(0.1)
            connection.sendall(b"HTTP/1.1 408 Too late\r\nContent-Length: 0\r\n\r\n")
        return False

    async def main():
        async with blasd.AsyncClient(listener.url) as client:
            for count in range(1, 4):
                assert (await client.submit("matmul", **ONE)).id == "x"
                sock = client._pool._idle[-1].transport.get_extra_info("socket")
                assert select.select([sock], [], [], 20)[0] and len(listener.requests) == count
    with Listener(talk) as listener:
        asyncio.run(main())


def test_an_answer_of_unknown_length_that_is_cut_off_is_none(monkeypatch):
    def talk(self, connection):
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}")
        seen.wait(20)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        return False
    seen = threading.Event()
    heard(monkeypatch, seen.set)
    with Listener(talk) as listener, pytest.raises(blasd.ConnectionError):
        on_a_loop(listener.url, lambda c: c.ops())


def test_what_is_given_up_while_it_is_sent_leaves_no_word():
    """asyncio writes of errors that nobody took; here they are of answers that nobody waits for."""
    said = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: said.append(context))
        with socket.create_server(("127.0.0.1", 0)) as deaf:  # reads nothing
            async with blasd.AsyncClient(f"http://127.0.0.1:{deaf.getsockname()[1]}") as client:
                job = asyncio.ensure_future(client.matmul(np.zeros((2000, 2000)), np.zeros((2000, 2000))))
                taken, _ = await asyncio.to_thread(deaf.accept)
                with taken:
                    await asyncio.to_thread(taken.recv, 1, socket.MSG_PEEK)
                    job.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await job
        gc.collect()
    asyncio.run(main())
    gc.collect()
    assert said == []


def test_a_cancellation_while_it_connects_is_not_lost(service, monkeypatch):
    """In the very turn of the loop in which the connection is there."""
    connect = blasd.aio.AsyncPool._connect

    async def and_cancel(pool):
        connection = await connect(pool)
        made.append(connection)
        task.cancel()
        return connection

    async def main():
        nonlocal task
        async with blasd.AsyncClient(service.url) as client:
            task = asyncio.ensure_future(client.ops())
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)
    made, task = [], None
    monkeypatch.setattr(blasd.aio.AsyncPool, "_connect", and_cancel)
    asyncio.run(main())
    assert made[0].transport.is_closing()


REFUSED = b'{"code": "body_too_large", "status": 413, "detail": "", "retry": false}'


@pytest.mark.parametrize("call, secured", [(by_client, False), (by_client, True), (on_a_loop, False)])
def test_a_refusal_is_heard_though_the_body_was_not_taken(call, secured, tmp_path):
    """The end of the connection, over TLS an error of another kind, is not all that there is to say."""
    def serve(connection):
        connection.recv(1000)  # takes the head alone
        connection.sendall(b"HTTP/1.1 413 Large\r\nContent-Length: %d\r\n\r\n" % len(REFUSED) + REFUSED)
        held.wait(0.5)  # so that the client writes when it ends
    held = threading.Event()
    context = context_of(Authority(tmp_path, "ours").sign("service")) if secured else None
    with raw(serve, context=context) as url, pytest.raises(blasd.InvalidInput) as caught:
        call(url, lambda c: c.tensors.put(np.zeros(20_000_000)), verify=not secured)
    assert caught.value.code == "body_too_large"


def test_a_connection_on_which_a_body_was_cut_short_serves_no_other_request():
    """What is still owed of the body would be taken for the next request."""
    connections = []

    def serve(connection):
        connections.append(connection)
        connection.recv(1000)
        if len(connections) == 1:
            connection.sendall(b"HTTP/1.1 413 Large\r\nContent-Length: %d\r\n\r\n" % len(REFUSED) + REFUSED)
            connections.append(connection.dup())  # stays open
        else:
            answer(connection, OPS)

    async def main():
        async with blasd.AsyncClient(url) as client:
            with pytest.raises(blasd.InvalidInput):
                await client.tensors.put(np.zeros(20_000_000))
            return await asyncio.wait_for(client.ops(), 60)
    with raw(serve, 2) as url:
        assert asyncio.run(main()) == [] and len(connections) == 3
    connections[1].close()
