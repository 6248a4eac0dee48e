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
