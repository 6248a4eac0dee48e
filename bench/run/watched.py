"""The service with what its operator can switch on, and what goes on beside its turns: pages that are open, a Prometheus
that scrapes. Each is a subject beside the one that has nothing on."""
import contextlib
import http.client
import http.server
import os
import pathlib
import selectors
import socket
import threading
import time

import processes
import subjects as s


class Collector:
    """Takes all spans, at once."""

    def __init__(self):
        self.bytes, outer = 0, self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                outer.bytes += len(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Pages:
    """So many streams of GET /events, read as fast as they come, in one thread; what is in them is counted and thrown away."""

    def __init__(self, port, count):
        self.port, self.count, self.bytes, self.events, self.cpu_s, self.ended = port, count, 0, 0, 0.0, 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self):
        self.selector = selectors.DefaultSelector()
        for _ in range(self.count):
            stream = socket.create_connection(("127.0.0.1", self.port))
            stream.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            if b" 200 " not in stream.recv(64):
                raise processes.Failed("a stream of events was refused")
            stream.setblocking(False)
            self.selector.register(stream, selectors.EVENT_READ)
        self.thread.start()
        return self

    def _read(self):
        into = bytearray(1 << 20)
        while not self.over.is_set():
            for key, _ in self.selector.select(0.1):
                got = key.fileobj.recv_into(into)
                self.bytes += got
                self.events += into.count(b"\ndata: ", 0, got)
                if got == 0:
                    self.ended += 1
                    self.selector.unregister(key.fileobj)
                    key.fileobj.close()
        self.cpu_s = time.thread_time()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()

    def told(self):
        return {"pages": self.count, "events": self.events, "bytes": self.bytes, "ended": self.ended, "readers_cpu_s": self.cpu_s}


class Scraper:
    """GET /metrics once a second, which is more often than any Prometheus asks."""

    def __init__(self, port):
        self.port, self.scrapes, self.over = port, 0, threading.Event()
        self.thread = threading.Thread(target=self._scrape, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def _scrape(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while True:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            if answer.status == 200 and b"blasd_jobs_total" in answer.read():
                self.scrapes += 1
            if self.over.wait(1):
                break
        connection.close()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def told(self):
        return {"scrapes": self.scrapes}


class Watched(s.Blasd):
    """What of WHAT is on. A turn's record has what came of it: bytes of spans and log so far, events, scrapes."""

    WHAT = ("spans", "access-log", "ended", "outgoing", "metrics", "page")

    def __init__(self, build, name, on, pages=1):
        super().__init__(build)
        self.name, self.on, self.pages, self.others = f"blasd-{name}", on, pages, []

    def start(self):
        options, self.folder, self.others = [], pathlib.Path(processes.scratch()), []
        if "spans" in self.on:
            self.collector = Collector()
            self.others.append(self.collector)
            options += ["--otlp", self.collector.url]
        if "access-log" in self.on:
            options += ["--access-log", "--log", "json", "--log-level", "info"]
        if "outgoing" in self.on:  # that jobs may have webhooks and inputs by URL; these have none
            secrets = self.folder / "secrets"
            secrets.write_text("whsec_" + "A" * 32 + "\n")
            os.chmod(secrets, 0o600)
            options += ["--outgoing-hosts", "http://127.0.0.1:9", "--webhook-secrets", secrets]
        if "ended" in self.on:
            options += ["--limit", "ended_jobs=100000"]
        self.options = tuple(options)
        super().start()

    def stop(self):
        for one in self.others:
            one.stop()
        super().stop()
        processes.forget(self.folder)

    @contextlib.contextmanager
    def beside(self):
        with contextlib.ExitStack() as held:
            going = [held.enter_context(one) for one in
                     ([Pages(self.port, self.pages)] if "page" in self.on else []) + ([Scraper(self.port)] if "metrics" in self.on else [])]
            yield lambda: {name: value for told in (self.so_far(), *(one.told() for one in going)) for name, value in told.items()}

    def so_far(self):
        ways = {"spans": lambda: self.collector.bytes, "access-log": lambda: os.path.getsize(self.server.log.name)}
        return {f"{name}_bytes": ways[name]() for name in ways if name in self.on}


def all_of_them(build):
    """Nothing, each by itself, and all."""
    return [s.Blasd(build), *(Watched(build, name, (name,)) for name in Watched.WHAT), Watched(build, "all", Watched.WHAT)]
