"""How the Python client carries a job: arrays without copies, headers, keys, proxies, sockets, what is sent again."""
import asyncio
import logging
import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
import tracemalloc

import blasd
import numpy as np
import pytest
from service import ROOT
from test_python_client import Listener, answer

RNG = np.random.default_rng(21)
OWN = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python")}  # of programs beside the tests


def test_out(client, monkeypatch):
    a = RNG.standard_normal((5, 4))
    place = np.empty((5, 5))
    assert client.matmul(a, a.T, out=place) is place and np.allclose(place, a @ a.T)
    coef = np.empty(3)
    fit = client.regression(a[:, :3], a[:, 3], out={"coef": coef})
    assert fit["coef"] is coef and np.array_equal(coef, client.regression(a[:, :3], a[:, 3])["coef"])
    for wrong in (np.empty((5, 5), "i4"), {"c": np.empty((5, 4))}):
        with pytest.raises(blasd.InputError, match="out") as caught:
            client.matmul(a, a.T, out=wrong)
        assert np.allclose(client.job(caught.value.job["id"]).result()["c"], a @ a.T), "the result is not lost"
    turned = np.empty((5, 5), order="F")
    assert client.matmul(a, a.T, out=turned) is turned and np.allclose(turned, a @ a.T)
    stack, x = np.stack([np.eye(5)] * 3), RNG.standard_normal((5, 2))
    places = [("matmul", {"a": stack, "b": x}, (3, 5, 2)), ("matmul", {"a": x, "b": stack[0], "params": {"transpose_a": True}}, (2, 5)),
              ("matmul", {"a": x[:, 0], "b": stack}, (3, 5)), ("solve", {"a": stack, "b": x[:, 0]}, (3, 5)),
              ("solve", {"a": stack, "b": x}, (3, 5, 2)), ("matmul", {"a": x[:, 0], "b": x[:, 0]}, ()), ("cholesky", {"a": stack}, (3, 5, 5))]
    for op, job, shape in places:
        client.run(op, out=np.empty(shape), **job)
    monkeypatch.setattr(client._pool, "carry", lambda request: pytest.fail("it was sent"))
    for op, job, shape in places:
        with pytest.raises(blasd.InputError, match="out"):
            client.run(op, out=np.empty((1, *shape)), **job)
    monkeypatch.undo()
    with pytest.raises(blasd.InputError, match="no output"):
        client.run("matmul", a=a, b=a.T, out={"d": place})


def test_fortran_order_is_not_copied(client, monkeypatch):
    sent = []
    monkeypatch.setattr(client._pool, "carry", lambda request, carry=client._pool.carry: (
        sent.append(request), carry(request))[1])
    a, b = np.asfortranarray(RNG.standard_normal((300, 200))), np.asfortranarray(RNG.standard_normal((200, 250)))
    assert np.allclose(client.matmul(a, b), a @ b)
    for piece, array in zip(sent[-1].pieces[1:], (a, b)):
        assert np.shares_memory(np.frombuffer(piece, np.uint8), array)
    square = np.asfortranarray(RNG.standard_normal((200, 200)))
    assert np.allclose(square @ client.solve(square, np.ones(200)), 1)
    assert np.allclose(client.matmul(square, square, transpose_a=True), square.T @ square)


def test_operands_are_not_copied(client, service):
    """8 MiB go from the array's own memory: what Python allocates meanwhile is the answer's, once."""
    a, b, v = RNG.standard_normal((1024, 1024)), RNG.standard_normal((1024, 512)), np.ones(1024)
    client.matmul(a, v)
    tracemalloc.start()
    try:
        client.matmul(a, v)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.reset_peak()
        result = client.matmul(a, b)
        assert tracemalloc.get_traced_memory()[1] < result.nbytes + (1 << 20)
    finally:
        tracemalloc.stop()

    async def main():
        async with blasd.AsyncClient(service.url) as one:
            await one.matmul(a, v)
            tracemalloc.start()
            try:
                await one.matmul(a, v)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
    assert asyncio.run(main()) < 4 << 20  # what the loop holds for a socket that takes no more


TRACED = """
import os, sys
import numpy as np
import blasd

with blasd.Client(sys.argv[1]) as client:
    a, one = np.random.rand(1024, 1024), np.ones((1024, 1))
    client.matmul(a[:8], one)
    for b in (one, a):
        os.access("/begin", 0)
        result = client.matmul(a, b)
        os.access("/end", 0)
        print(a.ctypes.data, b.ctypes.data, b.nbytes, result.ctypes.data, result.nbytes)
        assert np.allclose(result, a @ b)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace")
def test_the_kernel_takes_operands_where_they_lie(service, tmp_path):
    """Counted by strace: what is sent leaves from the arrays' own memory, what is received arrives where the result stays."""
    trace = tmp_path / "trace"
    calls = "sendto,write,recvfrom,read"
    done = subprocess.run(["strace", "-f", "-o", trace, "-e", f"trace={calls},mmap,access,faccessat,faccessat2", "-e", f"raw={calls},mmap",
                           sys.executable, "-c", TRACED, service.url], capture_output=True, text=True, timeout=300, check=False, env=OWN)
    if done.returncode != 0 and "ptrace" in done.stderr:
        pytest.skip(f"this system lets nobody trace: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    spans = re.findall(r"/begin.*?\n(.*?)\n[^\n]*/end", trace.read_text(), re.S)
    facts = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert len(spans) == len(facts) == 2
    for span, (a, b, b_bytes, result, result_bytes) in zip(spans, facts):
        moved = {"out": [], "in": []}
        for name, rest, count in re.findall(r"(sendto|write|recvfrom|read)\((.*?)\) += (0x[0-9a-f]+|-?\d+)", span):
            if int(count, 0) > 0:
                moved["out" if name in ("sendto", "write") else "in"].append((int(rest.split(", ")[1], 0), int(count, 0)))

        def within(way, begin, size):
            return sum(count for at, count in moved[way] if begin <= at < begin + size)
        operands = within("out", a, 8 << 20) + (within("out", b, b_bytes) if b != a else 0)
        sent = sum(count for _, count in moved["out"])
        assert sent - operands < 65536, "bytes left from somewhere else than the operands"
        assert operands >= (8 << 20) * (2 if b == a else 1)
        elsewhere = sum(count for _, count in moved["in"]) - within("in", result - 4096, result_bytes + 8192)
        assert elsewhere < 70_000, "bytes arrived somewhere else than in the result"
        large = [size for size in (int(size, 0) for size in re.findall(r"mmap\(0, (0x[0-9a-f]+),", span)) if size > 1 << 20]
        assert len(large) <= (1 if result_bytes > 1 << 20 else 0), f"{len(large)} pieces of memory for one result"


def test_headers_keys_and_agents():
    heard = []

    def talk(self, connection):
        return answer(connection, {"ops": []}) and False

    class Hearing(Listener):
        def run(self):
            while True:
                try:
                    connection, _ = self.sock.accept()
                except OSError:
                    return
                with connection:
                    text = b""
                    while b"\r\n\r\n" not in text:
                        text += connection.recv(65536)
                    heard.append(text.decode())
                    talk(self, connection)
    listener = Hearing(talk)
    blasd.Client(listener.url, api_key="secret", headers={"X-Team": "physics"}).ops()
    assert "Authorization: Bearer secret\r\n" in heard[-1] and "X-Team: physics\r\n" in heard[-1]
    assert f"User-Agent: blasd-python/{blasd.__version__} " in heard[-1] and heard[-1].count("Host:") == 1

    async def main():
        async with blasd.AsyncClient(listener.url, api_key="other") as client:
            await client.ops()
    asyncio.run(main())
    assert "Authorization: Bearer other\r\n" in heard[-1]
    os.environ["BLASD_API_KEY"] = "from-outside"
    try:
        blasd.Client(listener.url).ops()
    finally:
        del os.environ["BLASD_API_KEY"]
    assert "Bearer from-outside" in heard[-1]
    given = {"authorization": "Bearer mine", "HOST": "blasd.test", "accept": "text/html", "user-agent": "x"}
    blasd.Client(listener.url, api_key="secret", headers=given).ops()
    lines = [line.lower() for line in heard[-1].split("\r\n")]
    assert {"authorization: bearer mine", "host: blasd.test", "accept: application/json", "user-agent: x"} <= set(lines)
    names = [line.partition(":")[0] for line in lines[1:] if line]
    assert len(names) == len(set(names)), "of a name in other letters there is one, as HTTP has it"
    listener.close()
    for bad in ({"X": "a\r\nb"}, {"X\n": "a"}):
        with pytest.raises(ValueError):
            blasd.Client(listener.url, headers=bad)


def test_proxies_come_from_the_environment(monkeypatch):
    listener = Listener(lambda self, c: answer(c, {"ops": []}) and False)
    monkeypatch.setenv("http_proxy", listener.url)
    monkeypatch.setenv("no_proxy", "nothing.test")
    assert blasd.Client("http://blasd.test:8080").ops() == []
    monkeypatch.setenv("no_proxy", "blasd.test")
    assert blasd.Client("http://blasd.test:8080")._calls.settings.proxy is None
    assert blasd.Client("http://127.0.0.1:1")._calls.settings.proxy is None
    listener.close()


def test_a_socket_in_the_file_system(service, tmp_path):
    """unix:/PATH, here with a relay to the service behind it."""
    port = int(service.url.rsplit(":", 1)[1])

    class Relay(socketserver.BaseRequestHandler):
        def handle(self):
            with socket.create_connection(("127.0.0.1", port)) as onward:
                def pump(source, target):
                    while (data := source.recv(65536)):
                        target.sendall(data)
                    try:
                        target.shutdown(socket.SHUT_WR)
                    except OSError:
                        pass
                back = threading.Thread(target=pump, args=(onward, self.request), daemon=True)
                back.start()
                pump(self.request, onward)
                back.join()

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True
    path = str(tmp_path / "blasd.sock")
    with Server(path, Relay) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with blasd.Client(f"unix:{path}") as client:
            assert np.array_equal(client.matmul(np.eye(3), np.eye(3)), np.eye(3))

        async def main():
            async with blasd.AsyncClient(f"unix:{path}") as client:
                return await client.matmul(np.eye(3), np.eye(3))
        assert np.array_equal(asyncio.run(main()), np.eye(3))
        server.shutdown()
    with pytest.raises(ValueError):
        blasd.Client("unix:")


def test_retries_carry_one_key_and_heed_retry_after(caplog):
    """The first answer of the service: it is full, come back in a second; the second: none at all."""
    def talk(self, connection):
        if len(self.requests) == 1:
            connection.sendall(b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Type: application/problem+json\r\n"
                               b"Content-Length: 52\r\n\r\n" + b'{"code":"draining","retry":true,"detail":"not now."}  '[:52])
            return True
        if len(self.requests) == 2:
            return False
        return answer(connection, {"id": "x", "state": "queued", "progress": 0, "op": "matmul"})
    listener = Listener(talk)
    begin = time.monotonic()
    with caplog.at_level(logging.INFO, "blasd"):
        job = blasd.Client(listener.url, retries=3).submit("matmul", a=[[1.0]], b=[[1.0]])
    assert job.id == "x" and time.monotonic() - begin >= 1
    keys = [key for _, key in listener.requests]
    assert len(keys) == 3 and keys[0] and len(set(keys)) == 1
    assert any("draining" in record.getMessage() for record in caplog.records)
    listener.close()


@pytest.mark.parametrize("on_a_loop", [False, True])
def test_a_job_whose_answer_was_lost_has_its_key_when_there_is_room_again(on_a_loop):
    """It may have been taken the first time; then `run` itself waits for room, beyond what it was to try."""
    def talk(self, connection):
        if len(self.requests) == 2:
            connection.sendall(b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n")
            return True
        return len(self.requests) > 1 and answer(connection, {"id": "x", "state": "cancelled", "progress": 0, "op": "matmul"})
    listener = Listener(talk)

    async def run():
        async with blasd.AsyncClient(listener.url, retries=1) as client:
            await client.run("matmul", a=[[1.0]], b=[[1.0]])
    with pytest.raises(blasd.Cancelled):
        asyncio.run(run()) if on_a_loop else blasd.Client(listener.url, retries=1).run("matmul", a=[[1.0]], b=[[1.0]])
    keys = [key for _, key in listener.requests]
    assert len(keys) == 3 and keys[0] and len(set(keys)) == 1
    listener.close()


def test_a_job_that_went_by_file_has_its_key_where_it_is_sent_after_all(sharing):
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
