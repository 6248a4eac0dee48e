"""What a greedy tenant costs the others: nine that send a job a second, alone and beside 100,000 queued jobs of a tenth's.

    python3 bench/queue/tenants.py [--seconds 20] [--greedy 100000] [--blasd build/blasd] [--rounds 2]

Starts the service with a key for each tenant. Turns of the nine alone and of the nine beside the backlog, for each kind of
job and of what is before them: a job that runs ends before another's begins. The table has the median and the 99th percentile of how long the nine
waited for their answers, in ms, the ratio of the two percentiles, and how many of the greedy tenant's jobs were left at the end of the turn: it must be some, or
there was nobody to wait for. Exit 1 where a ratio is above 2 or an answer was not 200.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

POLITE = 9


def descent(iterations):
    return {"op": "regression", "inputs": {"x": [[i * j % 7 / 7 - 0.5 for j in range(4)] for i in range(12)],
                                           "y": [i % 3 / 3 for i in range(12)]},
            "params": {"method": "gd", "iterations": iterations}}


PRODUCT, LASTING, LONG = "4 x 4 product", "0.7 ms", "1.4 ms"  # as they take alone here
JOBS = {PRODUCT: {"op": "matmul", "inputs": {"a": [[1.5] * 4] * 4, "b": [[2.0] * 4] * 4}},
        LASTING: descent(10000), LONG: descent(20000)}
TURNS = ((PRODUCT, LASTING), (PRODUCT, LONG), (LONG, LONG))  # what the nine send, what the greedy one has queued


class Service:
    def __init__(self, program):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="blasd-tenants-"))
        keys = self.folder / "keys"
        self.keys = [subprocess.run([program, "keys", "add", name, "--tenant", name, "--file", keys], check=True,
                                    stdout=subprocess.PIPE, text=True).stdout.strip()
                     for name in ["greedy", *(f"polite{i}" for i in range(POLITE))]]
        self.process = subprocess.Popen([program, "up", "--listen", "127.0.0.1:0", "--data", self.folder / "data",
                                         "--keys", keys, "--limit", "queue_jobs=1000000"],
                                        stdout=subprocess.PIPE, stderr=open(self.folder / "log", "w"), text=True)
        line = self.process.stdout.readline().split()
        if len(line) != 2:
            raise SystemExit((self.folder / "log").read_text())
        self.port = int(line[1].rpartition(":")[2])
        self.wait_for_worker()

    def wait_for_worker(self):
        """At its first start it tries its library's kernels for some seconds, then times them: that is no tenant's doing."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            connection.request("GET", "/devices", headers={"Authorization": f"Bearer {self.keys[0]}"})
            devices = json.loads(connection.getresponse().read()).get("devices", [])
            connection.close()
            if devices and all("cost" in device for device in devices):
                return
            time.sleep(0.1)
        raise SystemExit("no worker after a minute")

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def fill(service, body, count):
    """Queues jobs over one connection, many requests on their way at a time; returns how many were taken."""
    request = (f"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {service.keys[0]}\r\n"
               f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body
    with socket.create_connection(("127.0.0.1", service.port)) as connection:
        taken = answered = sent = 0
        rest = b""
        while answered < count:
            while sent < count and sent - answered < 256:
                n = min(64, count - sent)
                connection.sendall(request * n)
                sent += n
            rest += connection.recv(1 << 20)
            last = rest.rfind(b"HTTP/1.1 ")
            whole, rest = rest[:last], rest[last:]
            if sent == count and answered + whole.count(b"HTTP/1.1 ") == count - 1 and rest.count(b"\r\n\r\n"):
                whole, rest = whole + rest, b""
            answered += whole.count(b"HTTP/1.1 ")
            taken += whole.count(b"HTTP/1.1 202 ")
    return taken


def polite(service, key, body, until, waits, wrong):
    """A job a second, at times of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    due = time.monotonic() + random.random()
    while due < until:
        time.sleep(max(0, due - time.monotonic()))
        began = time.perf_counter()
        connection.request("POST", "/jobs?wait=60", body, {"Content-Type": "application/json",
                                                           "Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        document = json.loads(answer.read())
        waits.append((time.perf_counter() - began) * 1e3)
        if answer.status != 200 or document["state"] != "succeeded":
            wrong.append(document)
        due += 1
    connection.close()


def turn(service, body, seconds):
    waits, wrong, until = [], [], time.monotonic() + seconds
    threads = [threading.Thread(target=polite, args=(service, key, body, until, waits, wrong))
               for key in service.keys[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return waits, wrong


def left(service):
    """How many jobs the greedy tenant has waiting, by its own list: more than a page or not."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.request("GET", "/jobs?state=queued&limit=100", headers={"Authorization": f"Bearer {service.keys[0]}"})
    jobs = json.loads(connection.getresponse().read())["jobs"]
    connection.close()
    return len(jobs)


def p99(waits):
    return sorted(waits)[max(0, -(-len(waits) * 99 // 100) - 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--greedy", type=int, default=100000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--blasd", default="build/blasd")
    options = parser.parse_args()
    good = True
    print(f"{'the nine send':14} {'before them':12} {'round':5} {'alone p50':>10} {'p99':>8} {'beside p50':>11} {'p99':>8} {'ratio':>6}  left")
    for sent, queued in TURNS:
        body = json.dumps(JOBS[sent]).encode()
        for number in range(options.rounds):
            service = Service(os.path.abspath(options.blasd))
            try:
                turn(service, body, 3)
                alone, wrong = turn(service, body, options.seconds)
                taken = fill(service, json.dumps(JOBS[queued]).encode(), options.greedy)
                turn(service, body, 2)
                beside, more = turn(service, body, options.seconds)
                ratio, waiting = p99(beside) / p99(alone), left(service)
                good = good and ratio <= 2 and not wrong and not more and waiting > 0 and taken == options.greedy
                print(f"{sent:14} {queued:12} {number + 1:5} {statistics.median(alone):10.2f} {p99(alone):8.2f} "
                      f"{statistics.median(beside):11.2f} {p99(beside):8.2f} {ratio:6.2f}  "
                      f"{'100 or more' if waiting >= 100 else waiting} of {taken}"
                      f"{'' if not (wrong or more) else f', {len(wrong) + len(more)} wrong'}", flush=True)
            finally:
                service.close()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
