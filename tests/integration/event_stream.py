"""GET /events, read as it comes."""
import collections
import contextlib
import http.client
import json
import queue
import socket
import threading
import time

from service import API

Event = collections.namedtuple("Event", "kind data")


class EventStream:
    """An open stream: `take` waits for events, in their order."""

    def __init__(self, service, query="", headers=None, hello=True):
        self.connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        self.connection.request("GET", f"/events{query}", headers={**service.headers, **(headers or {})})
        self.answer = self.connection.getresponse()
        self.status, self.headers = self.answer.status, self.answer.headers
        self.events, self.seen, self.comments = queue.Queue(), [], 0
        self.thread = threading.Thread(target=self.read, daemon=True)
        if self.status == 200:
            self.thread.start()
            if hello:
                self.hello = self.take(lambda event: event.kind == "hello")

    def read(self):
        kind, data = "message", ""
        try:
            for raw in self.answer:
                line = raw.decode().rstrip("\n")
                if line == "":
                    if data:
                        self.events.put(Event(kind, json.loads(data)))
                    kind, data = "message", ""
                elif line.startswith(":"):
                    self.comments += 1
                else:
                    field, _, value = line.partition(": ")
                    kind = value if field == "event" else kind
                    data += value if field == "data" else ""
        except (OSError, http.client.HTTPException, ValueError):
            pass
        self.events.put(None)  # the end

    def take(self, wanted=lambda event: True, timeout=60):
        """The next event that is wanted; None: the stream has ended."""
        end = time.monotonic() + timeout
        while True:
            event = self.events.get(timeout=max(0.01, end - time.monotonic()))
            if event is None:
                return None
            self.seen.append(event)
            API.validate({"$ref": "#/components/schemas/Event"}, {"event": event.kind, "data": event.data})
            if wanted(event):
                return event

    def job(self, job, state):
        return self.take(lambda event: event.kind == "job" and event.data["id"] == job and event.data["state"] == state)

    def close(self):
        with contextlib.suppress(OSError, AttributeError):  # it may be closed already
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        if self.thread.is_alive():
            self.thread.join(10)
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
