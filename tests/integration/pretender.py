"""A stand-in for the service, where a test wants to see what a client sends, or answer what no service would."""
import contextlib
import http.server
import json
import socket
import socketserver
import ssl
import threading

import numpy as np
from service import safetensors

DOCUMENT = {"id": "s" + "0" * 40, "op": "matmul", "state": "succeeded", "priority": "normal", "device": "cpu", "progress": 1,
            "created_at": "2026-01-01T00:00:00Z", "timing": {}, "execution": {}, "outputs": {}}


def succeeded(c=4.0):
    """An answer to POST /jobs: (status, headers, body)."""
    body = safetensors({"c": np.array([[c]])}, job=json.dumps(DOCUMENT))
    return 200, {"Content-Type": "application/x-safetensors"}, body


def document(value, status=200, **headers):
    kind = "application/json" if status < 400 else "application/problem+json"
    return status, {"Content-Type": kind, **headers}, json.dumps(value).encode()


def context_of(certificate, asks=None):
    """Of a service that shows a certificate, (file, key), and with `asks` takes no client without one of that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(asks)
    return context


class Pretender:
    """`seen` has (method, path, headers, body) of each request; `answer(request, n)` gives what the n-th is told, or
    None, which ends the connection without a word."""

    def __init__(self, answer, path=None, context=None, host="127.0.0.1"):
        outer = self
        self.seen, lock = [], threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = path is None

            def serve(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = self.command, self.path, self.headers, body
                with lock:
                    number = len(outer.seen)
                    outer.seen.append(request)
                answered = answer(request, number)
                if answered is None:
                    self.close_connection = True
                    with contextlib.suppress(OSError):
                        self.connection.shutdown(socket.SHUT_RDWR)
                    return
                status, headers, content = answered
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            do_GET = do_POST = do_DELETE = serve

            def address_string(self):
                return "somewhere"

            def log_message(self, *arguments):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer if path is None else socketserver.UnixStreamServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request, client_address):
                pass  # a client that went away, or did not shake hands

            def get_request(self):
                connection, address = super().get_request()
                if context is not None:
                    connection.settimeout(20)
                    connection = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                return connection, address

        self.server = Server(str(path) if path else (host, 0), Handler)
        scheme = "https" if context else "http"
        self.url = f"unix:{path}" if path else f"{scheme}://{host}:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.server.shutdown()
        self.server.server_close()


class Listener:
    """Takes connections one after the other. `talk(self, connection)` answers each request, and says whether the connection
    goes on; `requests` has (method, idempotency key) of each, `heads` its lines as they came."""

    def __init__(self, talk, certificate=None):
        self.requests, self.heads, self.talk = [], [], talk
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}"
        self.context = context_of(certificate) if certificate else None
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.sock.accept()
                if self.context:
                    connection = self.context.wrap_socket(connection, server_side=True)
            except OSError:
                return
            with connection, connection.makefile("rb") as file, contextlib.suppress(ConnectionError):
                while self.serve(connection, file):
                    pass

    def serve(self, connection, file):
        lines = list(iter(lambda: file.readline().decode().rstrip("\r\n"), ""))
        if not lines:
            return False
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        file.read(int(headers.get("content-length", 0)))
        self.authorization = headers.get("authorization")
        self.heads.append("".join(f"{line}\r\n" for line in lines))
        self.requests.append((lines[0].split()[0], headers.get("idempotency-key")))
        return self.talk(self, connection)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def answer(connection, value, status="200 OK"):
    """Sends a document; true, so that a Listener goes on."""
    body = json.dumps(value).encode()
    connection.sendall(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                       + body)
    return True


OPS = {"ops": []}
QUEUED = {"id": "x", "state": "queued", "progress": 0, "op": "matmul"}


@contextlib.contextmanager
def raw(serve, times=1, context=None):
    """A URL where `serve(connection)` is left alone with each of `times` connections."""
    def run():
        for _ in range(times):
            connection = listener.accept()[0]
            with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) if context else connection as one:
                serve(one)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=run, daemon=True).start()
        yield f"http{'s' if context else ''}://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def silent():
    """A URL where connections are made and nothing is read or said."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def nowhere():
    """A URL where nothing listens."""
    with silent() as url:
        return url
