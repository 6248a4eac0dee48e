"""Small jobs that come at once share entries of the queue: cancelled, given up and cut off one by one, with workers
and front ends that die meanwhile, each ends once and right, and nothing is left behind."""
import contextlib
import json
import random
import re
import socket
import struct
import threading
import time

import numpy as np
from service import Redis, TYPES, nested, wait_for

KINDS = 5


def job_of(i):
    """(op, inputs, output, its value) of the i-th job, of one of a few kinds that cannot run together."""
    x, n = float(i % 500), (2, 3, 4)[i % 3]
    if i % KINDS == 3:
        return "distance", {"x": np.array([[0.0, x], [0.0, 0.0]])}, "d", [[0.0, x], [x, 0.0]]
    if i % KINDS == 4:
        return "solve", {"a": np.eye(n) * 2, "b": np.full(n, 2 * x)}, "x", [x] * n
    return "matmul", {"a": np.full((n, n), x), "b": np.eye(n)}, "c", [[x] * n] * n


def request_of(i, wait):
    op, inputs, _, _ = job_of(i)
    body = json.dumps({"op": op, "inputs": {name: nested(value) for name, value in inputs.items()},
                       "priority": "low" if i % 7 == 0 else "normal"}).encode()
    path = f"/jobs?wait={wait}" if wait else "/jobs"
    return (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {TYPES['json']}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode() + body


def connect(service):
    sock = socket.create_connection(("127.0.0.1", service.port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def answer_of(sock):
    """(status, document) of the answer, or None where the connection was cut off before it."""
    data = b""
    with contextlib.suppress(ConnectionError), sock:
        while more := sock.recv(1 << 16):
            data += more
    head, _, body = data.partition(b"\r\n\r\n")
    try:
        return int(head.split()[1]), json.loads(body)
    except (IndexError, ValueError):
        return None


def send_at_once(service, jobs, wait):
    """Sends all jobs in one turn of the front end; wait(i) says for how long each waits. Returns {i: connection}."""
    socks = {i: connect(service) for i in jobs}
    with service.held("api"):
        for i, sock in socks.items():
            sock.sendall(request_of(i, wait(i)))
    return socks


def expect_right(i, job):
    assert job["state"] == "succeeded", job
    _, _, name, value = job_of(i)
    assert np.allclose(job["outputs"][name]["data"], value, rtol=1e-12, atol=1e-12), (i, job)


def expect_nothing_left(service, seconds=20):
    """All counts are zero again, and no batch entry is remembered as opened."""
    redis = Redis(service)
    end, left = time.monotonic() + seconds, None
    while time.monotonic() < end:
        counts = struct.unpack_from("<6d", redis("HGET", "{blasd}:state", "numbers") or bytes(48))  # jobs, bytes, results, those that wait
        left = [redis("EXISTS", "{blasd}:" + key) for key in ("pending", "opened", "lines")]
        if not any(left) and not any(counts):
            break
        time.sleep(0.2)
    assert not any(left) and not any(counts), (left, redis("HGETALL", "{blasd}:state"))
    refs = redis("HVALS", "{blasd}:refs")
    assert all(int(value) > 0 for value in refs), refs
    redis.close()


def names_pending(service):
    redis = Redis(service)
    names = [name.decode() for name in redis("HKEYS", "{blasd}:pending") if not name.startswith(b"=")]
    redis.close()
    return names


def ids_pending(service):
    return [job["id"] for job in service.list_jobs("state=queued")]


def test_jobs_that_come_at_once_are_told_apart(make_service):
    service = make_service()
    with service.worker_held():
        later = send_at_once(service, range(100), lambda i: 0)
        ids = {}
        for i, sock in later.items():
            status, job = answer_of(sock)
            assert status == 202 and job["state"] == "queued"
            ids[i] = job["id"]
        assert len(set(ids.values())) == 100
        waiting = send_at_once(service, range(100, 200), lambda i: 30)
        wait_for(lambda: len(ids_pending(service)) >= 200)
        entries = [name for name in names_pending(service) if len(name) == 29]
        assert entries, "no jobs shared an entry"
        assert sorted(set(ids_pending(service)) & set(ids.values())) == sorted(ids.values())
        for i in range(0, 100, 9):
            answer = service.request("DELETE", f"/jobs/{ids[i]}")
            assert answer.status == 200 and answer.json()["state"] == "cancelled"
        for i in range(100, 200, 10):
            waiting.pop(i).close()  # its client has gone
        assert service.request("GET", f"/jobs/{entries[0]}").status == 404
        assert service.request("GET", f"/jobs/{entries[0]}000000000000").status == 404
    for i, sock in waiting.items():
        status, job = answer_of(sock)
        assert status == 200
        expect_right(i, job)
    for i, job_id in ids.items():
        job = service.request("GET", f"/jobs/{job_id}?wait=30").json()
        if i % 9 == 0:
            assert job["state"] == "cancelled"
        else:
            expect_right(i, job)
    expect_nothing_left(service)


def test_a_damaged_batch_entry_stops_no_other_job(make_service):
    service = make_service()
    redis = Redis(service)
    with service.worker_held():
        for sock in send_at_once(service, range(60), lambda i: 0).values():
            assert answer_of(sock)[0] == 202
        entries = [name for name in redis("HKEYS", "{blasd}:pending") if len(name) == 29]
        assert len(entries) >= 3
        damages = (lambda frame: frame[:-5], lambda frame: b"", lambda frame: b"\xff" * 50 + frame)
        for name, damage in zip(entries, damages):
            redis("HSET", "{blasd}:pending", b"=" + name, damage(redis("HGET", "{blasd}:pending", b"=" + name)))
        socks = send_at_once(service, range(60, 120), lambda i: 30)
    for i, sock in socks.items():
        status, job = answer_of(sock)
        assert status == 200
        expect_right(i, job)
    redis.close()
    expect_nothing_left(service)


class Rough:
    """Bursts of jobs at a service whose parts die, each burst seen through by what was acknowledged of it."""

    def __init__(self, service, seed):
        self.service, self.random = service, random.Random(seed)
        self.ids, self.cancelled, self.next = {}, set(), 0

    def ask(self, method, path):
        """As a careful client does: again and again while a front end is away."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError, ValueError, IndexError):
                answer = self.service.request(method, path, timeout=40, check=False)
                if answer.status != 503:
                    return answer
            time.sleep(0.05)
        raise AssertionError(f"{method} {path}: no answer")

    def burst(self, count):
        jobs = range(self.next, self.next + count)
        self.next += count
        waits = {i: self.random.choice((0, 0, 20)) for i in jobs}
        try:
            socks = send_at_once(self.service, jobs, lambda i: waits[i])
        except (OSError, AssertionError):
            return  # the front end died: nothing was acknowledged
        for i in jobs:
            if waits[i] and self.random.random() < 0.1:
                socks.pop(i).close()
        for i, sock in socks.items():
            got = answer_of(sock)
            if got is None or got[0] in (429, 503):
                continue
            status, job = got
            assert status in (200, 202), got
            self.ids[i] = job["id"]
            if status == 200:
                expect_right(i, job)
            elif self.random.random() < 0.1:
                self.cancelled.add(i)
                self.ask("DELETE", f"/jobs/{job['id']}")

    def see_through(self):
        for i, job_id in self.ids.items():
            answer = self.ask("GET", f"/jobs/{job_id}?wait=30")
            if i in self.cancelled and answer.status == 404:
                continue  # it had ended before, and was forgotten
            assert answer.status == 200, (i, job_id, answer.status, answer.body)
            job = answer.json()
            if i not in self.cancelled or job["state"] == "succeeded":
                expect_right(i, job)
            else:
                assert job["state"] == "cancelled", job
            again = self.ask("GET", f"/jobs/{job_id}").json()
            assert again == job  # what has ended stays as it was


def test_nothing_is_lost_where_parts_die(make_service):
    service = make_service("--limit", "attempts=50")
    rough = Rough(service, 3)
    stop, kills = threading.Event(), []

    def killer():
        while not stop.wait(0.35) and len(kills) < 12:
            victim = ("worker", "api", "redis")[len(kills) % 3]
            if service.part(victim) is not None:
                kills.append(service.kill(victim))
    thread = threading.Thread(target=killer)
    thread.start()
    try:
        start = time.monotonic()
        while len(kills) < 12 or len(rough.ids) < 300:
            assert time.monotonic() - start < 120
            rough.burst(120)
    finally:
        stop.set()
        thread.join()
    service.wait_ready()
    rough.see_through()
    expect_nothing_left(service)


def test_who_is_let_in_again_shares_no_entry_with_who_was_before(make_service):
    """Of jobs that came at once some found no room after all, and wait for it again. Those that are then let in at different times are
    entries of their own, though they were of one entry before."""
    cost = 3 * 8 * 8 * 8
    service = make_service("--workers", "1", "--limit", "ready_workers=0", "--limit", "queue_jobs=7", "--limit", "queue_bytes=1M",
                           "--limit", "queue_wait_ms=60000")  # no worker comes for a card: all stay queued
    redis, limits, numbers = Redis(service), "3 1000000000 60 600 100000 100000000000 10000 1000000000 1000000000 1000 3600", iter(range(1, 100))

    def fill(*costs):
        """Takes a place in the queue for each of these, as another front end might."""
        ids = [f"a{int(time.time()):08x}{next(numbers):032x}" for _ in costs]
        words = [word for name, bytes_ in zip(ids, costs) for word in (name, "frame", "8", bytes_, "", "\t\tmatmul\tanonymous")]
        assert set(redis("FCALL", "blasd_7_submit", 1, "{blasd}", limits, "other", f"{next(numbers):016}", *words)[3:]) == {0}
        return ids

    def free(*ids):
        redis("FCALL", "blasd_7_cancel", 1, "{blasd}", limits, "anonymous", "0", *ids)

    def calls():
        return int(re.search(rb"cmdstat_fcall:calls=(\d+)", redis("INFO", "commandstats"))[1])

    def pending():
        return {job["id"] for job in service.list_jobs("state=queued") if job["op"] == "matmul" and int(job["id"][9:], 16) > 1000}
    large, *small = fill((1 << 20) - 2 * cost - 1200, 1, 1, 1, 1, 1, 1)
    wait_for(lambda: service.metrics()["blasd_queue_jobs"] == 7)
    time.sleep(1.5)  # the front end has seen it
    body = json.dumps({"op": "matmul", "device": "cuda", "inputs": {name: np.ones((8, 8)).tolist() for name in "ab"}}).encode()
    head = (f"POST /jobs?wait=60 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {TYPES['json']}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n").encode()
    socks = [connect(service) for _ in range(6)]
    for sock in socks:
        sock.sendall(head + body)
    time.sleep(1)
    assert not pending()
    free(*small)  # six of them have room by number, and are let in at once: not all have by bytes
    first = wait_for(pending)
    assert 0 < len(first) < 6, first
    asked = calls()
    time.sleep(1)
    assert calls() - asked < 100  # the others do not ask on end
    fillers = fill(*[1] * (6 - len(first)))
    wait_for(lambda: service.metrics()["blasd_queue_jobs"] == 7)
    time.sleep(1.5)
    free(large, fillers.pop())  # and then two at a time
    while len(first) < 6:
        first = wait_for(lambda: (found := pending()) > first and len(found) >= min(len(first) + 2, 6) and found, seconds=30)
        free(*[fillers.pop() for _ in range(min(2, len(fillers)))])
    free(*pending())
    assert [answer_of(sock)[1]["state"] for sock in socks] == ["cancelled"] * 6
    free(*fillers)
    expect_nothing_left(service)
