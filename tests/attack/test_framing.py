"""Framing that two readers may take differently, on the wire: one answer, at once, and the connection is closed."""
import json
import socket

import pytest

HEAD = b"POST /jobs?wait=20 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"op":"matmul","inputs":{"a":[[2]],"b":[[3]]}}'
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
CODINGS = [b"chunked ", b"chunked\t", b"chunked \t ", b"chunked,", b"chunked, chunked", b"gzip, chunked", b"identity", b"", b"chunked;q=1", b"xchunked"]
LENGTHS = [b"+5", b"5, 5", b"", b"18446744073709551616", b"-1", b"-0", b"5 5", b"0x5", b"1e3", b"5.0", b"99999999999999999999999999", b"%d " % len(BODY), b"five"]


def answer(service, data):
    out = b""
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as sock:
        sock.sendall(data)
        try:
            while piece := sock.recv(65536):
                out += piece
        except ConnectionResetError:  # it has closed with bytes of ours unread
            pass
    return out


@pytest.mark.parametrize("header", [b"Transfer-Encoding: " + value + b"\r\n\r\n" + CHUNKED for value in CODINGS] +
                         [b"Content-Length: " + value + b"\r\n\r\n" + BODY for value in LENGTHS])
def test_one_answer_says_so(service, header):
    out = answer(service, HEAD + header + b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head, _, body = out.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and out.count(b"HTTP/1.1 ") == 1, out
    assert json.loads(body)["code"] == "malformed_query", out


@pytest.mark.parametrize("header", [b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED, b"Transfer-Encoding:\tChunked\r\n\r\n" + CHUNKED,
                                    b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY, b"Content-Length:000%d\r\n\r\n" % len(BODY) + BODY])
def test_what_is_clear_is_taken(service, header):
    out = answer(service, HEAD + b"Connection: close\r\n" + header)
    assert out.startswith(b"HTTP/1.1 200 ") and out.count(b"HTTP/1.1 ") == 1, out


@pytest.mark.parametrize("body", [BODY[:-1] + b',"%s":%s\0}' % pair for pair in
                                  [(b"deadline_ms", b"1000"), (b"params", b'{"alpha":2'), (b"priority", b'"high"'), (b"keep", b"[]")]] +
                         [BODY.replace(b"2", b"2\0"), BODY + b"\0", BODY.replace(b"2", b"\0002")])
def test_a_zero_byte_is_no_json(service, body):
    body = body.replace(b'"alpha":2\0}', b'"alpha":2\0}}')
    out = service.request("POST", "/jobs?wait=20", body, {"Content-Type": "application/json"}, check=False)
    assert (out.status, out.json()["code"]) == (400, "malformed_json"), out.body


def test_options_of_the_service(service):
    out = answer(service, b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert out.startswith(b"HTTP/1.1 204 ") and b"\r\nAllow: GET, HEAD, POST, DELETE, PATCH, OPTIONS\r\n" in out, out
