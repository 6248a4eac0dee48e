"""How the Python client reaches a service: headers, keys, users, proxies, TLS, sockets of the file system."""
import base64
import os
import pickle
import socket
import socketserver
import threading

import blasd
import numpy as np
import pytest
from callers import CALLERS, both, by_client
from pretender import OPS, Listener, answer, raw
from test_tls import Authority


def once(self, connection):
    return answer(connection, OPS) and False


@pytest.fixture
def proxied(monkeypatch):
    """Sets what the environment names as a proxy, and no exceptions."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return lambda scheme, url: monkeypatch.setenv(f"{scheme}_proxy", url)


@both
def test_headers_keys_and_agents(call, monkeypatch):
    with Listener(once) as listener:
        def head(**options):
            call(listener.url, lambda c: c.ops(), **options)
            return listener.heads[-1]
        said = head(api_key="secret", headers={"X-Team": "physics"})
        assert "Authorization: Bearer secret\r\n" in said and "X-Team: physics\r\n" in said
        assert f"User-Agent: blasd-python/{blasd.__version__} " in said and said.count("Host:") == 1
        monkeypatch.setenv("BLASD_API_KEY", "from-outside")
        assert "Bearer from-outside" in head()
        given = {"authorization": "Bearer mine", "HOST": "blasd.test", "accept": "text/html", "user-agent": "x"}
        lines = head(api_key="secret", headers=given).lower().split("\r\n")
        assert {"authorization: bearer mine", "host: blasd.test", "accept: application/json", "user-agent: x"} <= set(lines)
        names = [line.partition(":")[0] for line in lines[1:] if line]
        assert len(names) == len(set(names)), "of a name in other letters there is one, as HTTP has it"


def test_a_user_in_the_url_is_sent():
    """To a proxy that asks for one; and shown to nobody."""
    with Listener(once) as listener:
        for user, secret in (("user:pw", "user:pw"), ("user", "user"), ("u%40x:p%3Aw", "u@x:p:w"), ("a@b:pw", "a@b:pw")):
            client = blasd.Client(listener.url.replace("//", f"//{user}@"))
            for one in (client, pickle.loads(pickle.dumps(client))):
                assert one.ops() == [] and one.url == listener.url
                assert listener.authorization == "Basic " + base64.b64encode(secret.encode()).decode()
        blasd.Client(listener.url).ops()
        assert listener.authorization is None
    with pytest.raises(blasd.Error) as caught:
        client.ops()
    assert "pw" not in str(caught.value)


class Relay(socketserver.BaseRequestHandler):
    """Hands everything on to the server's `onward`, a port; a Proxy does so once it was asked to."""

    def opened(self):
        return True

    def handle(self):
        if not self.opened():
            return
        with socket.create_connection(("127.0.0.1", self.server.onward)) as onward:
            def pump(source, target):
                try:
                    while (data := source.recv(65536)):
                        target.sendall(data)
                    target.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
            back = threading.Thread(target=pump, args=(onward, self.request), daemon=True)
            back.start()
            pump(self.request, onward)
            back.join()


class Proxy(Relay):
    """Takes CONNECT from whom it knows."""

    def opened(self):
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.request.recv(65536)
        self.server.heads.append(head.decode())
        known = base64.b64encode(b"user:p:w").decode()
        good = f"Proxy-Authorization: Basic {known}\r\n" in head.decode()
        self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n" if good else
                             b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
        return good


class Relays(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A server of one of these, for the time of a block."""
    daemon_threads = True

    def __init__(self, where, handler, onward):
        super().__init__(where, handler)
        self.onward, self.heads = onward, []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *exception):
        self.shutdown()
        self.server_close()


class UnixRelays(Relays):
    address_family = socket.AF_UNIX


@both
def test_a_socket_in_the_file_system(call, service, tmp_path):
    """unix:/PATH, here with a relay to the service behind it."""
    path = str(tmp_path / "blasd.sock")
    with UnixRelays(path, Relay, int(service.url.rsplit(":", 1)[1])):
        assert np.array_equal(call(f"unix:{path}", lambda c: c.matmul(np.eye(3), np.eye(3))), np.eye(3))


def test_https_through_a_proxy_that_asks_who_it_is(tmp_path, proxied):
    """The user in the proxy's URL is told to it alone, and nothing of the request."""
    with Listener(once, Authority(tmp_path, "ours").sign("service")) as service, Relays(("127.0.0.1", 0), Proxy, service.port) as proxy:
        url = f"http://us%65r:p%3Aw@127.0.0.1:{proxy.server_address[1]}"
        proxied("https", url)
        for call in CALLERS:
            assert call("https://blasd.test:8443/x", lambda c: c.ops(), api_key="secret", verify=False) == []
        assert len(proxy.heads) == 2 and all(head.startswith("CONNECT blasd.test:8443 HTTP/1.") for head in proxy.heads)
        assert not any("secret" in head for head in proxy.heads) and service.authorization == "Bearer secret"
        proxied("https", url.replace("p%3Aw", "wrong"))
        for call in CALLERS:
            with pytest.raises(blasd.ConnectionError, match="407"):
                call("https://blasd.test:8443/x", lambda c: c.ops(), verify=False)
        assert len(service.requests) == 2


@both
def test_a_proxy_for_http_that_asks_who_it_is(call, proxied):
    with Listener(once) as listener:
        proxied("http", listener.url.replace("//", "//user:pw@"))
        assert call("http://blasd.test:8080", lambda c: c.ops()) == []
        assert listener.heads[-1].startswith("GET http://blasd.test:8080/ops HTTP/1.1\r\n")
        assert f"Proxy-Authorization: Basic {base64.b64encode(b'user:pw').decode()}\r\n" in listener.heads[-1]
        assert blasd.Client("http://127.0.0.1:1")._calls.settings.proxy_headers == {}


@both
def test_an_address_with_colons_is_told_to_a_proxy_in_brackets(call, proxied):
    heads = []

    def serve(connection):
        heads.append(connection.recv(65536).decode())
        connection.sendall(b"HTTP/1.1 403 Not there\r\nContent-Length: 0\r\n\r\n")
    with raw(serve) as proxy:
        proxied("https", proxy)
        with pytest.raises(blasd.ConnectionError, match="403"):
            call("https://[2001:db8::1]:8443", lambda c: c.ops())
    assert heads[0].startswith("CONNECT [2001:db8::1]:8443 HTTP/1.")


def test_which_proxy_the_environment_names(monkeypatch, proxied):
    with Listener(once) as listener:
        proxied("http", listener.url)
        monkeypatch.setenv("no_proxy", "nothing.test")
        assert by_client("http://blasd.test:8080", lambda c: c.ops()) == []
        monkeypatch.setenv("no_proxy", "blasd.test")
        for url in ("http://blasd.test:8080", "http://127.0.0.1:1"):
            assert blasd.Client(url)._calls.settings.proxy is None
    monkeypatch.delenv("no_proxy")
    for proxy in ("socks5h://127.0.0.1:1080", "SOCKS4://user:pw@127.0.0.1"):
        proxied("http", proxy)
        for kind in (blasd.Client, blasd.AsyncClient):
            with pytest.raises(ValueError, match="(?i)socks.*NO_PROXY") as caught:
                kind("http://blasd.test")
            assert "pw" not in str(caught.value)
            kind("http://127.0.0.1:1")


@both
def test_files_of_tls_that_are_not_there(call):
    for option in ("verify", "cert"):
        with pytest.raises(FileNotFoundError, match="/nowhere/ca.pem"):
            call("https://127.0.0.1:1", lambda c: c.ops(), **{option: os.path.join("/nowhere", "ca.pem")})
