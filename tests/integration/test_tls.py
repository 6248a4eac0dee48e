"""TLS as a user meets it: curl and Python against certificates of an authority of our own, renewed while the service runs."""
import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import time

import numpy as np
import pytest
from service import Service
from test_auth import PRODUCT, bearer, keys


def openssl(*words):
    subprocess.run(["openssl", *[str(w) for w in words]], check=True, capture_output=True, timeout=60)


class Authority:
    """A CA in a folder, that signs."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.cert, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign", "-keyout", self.key, "-out", self.cert)

    def sign(self, name, usage="serverAuth", days=2, file=None, until=None):
        """(certificate, key) of `name`; `until`: seconds since 1970."""
        file = file or name
        cert, key, request, more = (self.folder / f"{file}.{end}" for end in ("pem", "key", "csr", "ext"))
        more.write_text(f"subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage={usage}\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", key, "-out", request)
        if until is not None:
            settings = self.folder / "ca.cnf"
            settings.write_text(f"[ca]\ndefault_ca=ours\n[ours]\ndatabase={self.folder}/index\nnew_certs_dir={self.folder}\n"
                                "rand_serial=yes\ndefault_md=sha256\nunique_subject=no\npolicy=any\n[any]\ncommonName=supplied\n")
            (self.folder / "index").write_text("")
            openssl("ca", "-batch", "-notext", "-config", settings, "-in", request, "-cert", self.cert, "-keyfile", self.key,
                    "-extfile", more, "-enddate", time.strftime("%y%m%d%H%M%SZ", time.gmtime(until)), "-out", cert)
            return cert, key
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-days", days,
                "-extfile", more, "-out", cert)
        return cert, key


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module")
def secured(tmp_path_factory, authority):
    """A service with TLS and keys; `cert` and `key` are what it shows."""
    folder = tmp_path_factory.mktemp("secured")
    file, (cert, key) = folder / "keys.json", authority.sign("blasd")
    user = keys("add", "alice", file=file).strip()
    keys("add", "robot", "--certificate", "robot-7", "--role", "read", file=file)
    service = Service(folder, "--keys", str(file), "--tls-cert", str(cert), "--tls-key", str(key),
                      "--tls-client-ca", str(authority.cert), "--loops", "2")
    service.tls = ssl.create_default_context(cafile=authority.cert)
    service.start()
    service.headers = bearer(user)
    service.user, service.cert, service.key = user, cert, key
    yield service
    service.stop()


def test_it_says_so(secured):
    assert secured.url.startswith("https://127.0.0.1:")
    assert secured.request("GET", "/health/live").status == 200


@pytest.mark.first
def test_curl(secured, authority):
    done = subprocess.run(["curl", "-sS", "--cacert", authority.cert, "-H", f"Authorization: Bearer {secured.user}",
                           f"{secured.url}/jobs?wait=20", "-d", PRODUCT], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["outputs"]["c"]["data"] == [[19, 22], [43, 50]], done.stderr
    unknown = subprocess.run(["curl", "-sS", f"{secured.url}/ops"], capture_output=True, text=True, timeout=60)
    assert unknown.returncode == 60 and unknown.stdout == ""


def test_python(secured, authority):
    import blasd
    a = np.random.default_rng(3).random((700, 700))  # 4 MB each way: many records
    with blasd.Client(secured.url, api_key=secured.user, verify=str(authority.cert)) as client:
        np.testing.assert_allclose(client.matmul(a, a), a @ a)
        for _ in range(20):  # one connection
            np.testing.assert_allclose(client.matmul(a[:4, :4], a[:4, :4]), a[:4, :4] @ a[:4, :4])
    with blasd.Client(secured.url, api_key=secured.user) as client, pytest.raises(blasd.ConnectionError):
        client.matmul(a, a)


def test_waits_and_many_connections(secured):
    """What is suspended and resumed, and what lies in GnuTLS unread."""
    body = json.dumps({"op": "matmul", "inputs": {"a": [[1.0] * 60] * 60, "b": [[1.0] * 60] * 60}})
    connections = [http.client.HTTPSConnection("127.0.0.1", secured.port, timeout=60, context=secured.tls) for _ in range(24)]
    for _ in range(4):
        for connection in connections:
            connection.request("POST", "/jobs?wait=30", body, secured.headers)
        for connection in connections:
            answer = connection.getresponse()
            assert answer.status == 200 and json.loads(answer.read())["outputs"]["c"]["data"][0][0] == 60
    for connection in connections:
        connection.close()


def test_pipelined_requests(secured):
    raw = socket.create_connection(("127.0.0.1", secured.port), timeout=60)
    with secured.tls.wrap_socket(raw, server_hostname="localhost") as talk:
        one = f"GET /ops/solve HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secured.user}\r\n\r\n"
        talk.sendall((one * 5).encode())
        for _ in range(5):
            answer = http.client.HTTPResponse(talk)
            answer.begin()
            assert answer.status == 200 and json.loads(answer.read())


class Records:
    """A connection whose records are counted, and can be sent together."""

    def __init__(self, service, version=None):
        context = ssl.create_default_context(cafile=service.authority)
        if version:
            context.minimum_version = context.maximum_version = version
        self.came, self.goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.came, self.goes, server_hostname="localhost")
        self.socket = socket.create_connection(("127.0.0.1", service.port), timeout=60)
        self.reads = []  # lengths of what came at once
        self.each(self.tls.do_handshake)

    def flush(self):
        self.socket.sendall(self.goes.read())

    def each(self, call):
        """Calls until it has what it needs."""
        while True:
            try:
                result = call()
                self.flush()
                return result
            except ssl.SSLWantReadError:
                self.flush()
                bytes_ = self.socket.recv(1 << 20)
                assert bytes_, "the service has closed the connection"
                self.reads.append(len(bytes_))
                self.came.write(bytes_)

    def answer(self):
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.each(lambda: self.tls.read(1 << 16))
        head, _, body = head.partition(b"\r\n\r\n")
        length = int([line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")][0].split(b":")[1])
        while len(body) < length:
            body += self.each(lambda: self.tls.read(1 << 16))
        return int(head.split()[1]), body


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("side", [2, 60, 200])  # less than is read at once, more, and many records
def test_records_that_come_together(secured, authority, version, side):
    """A head and pieces of a body in records of their own, in one packet: each is seen."""
    secured.authority = authority.cert
    talk = Records(secured, version)
    body = json.dumps({"op": "matmul", "inputs": {"a": [[1.0] * side] * side, "b": [[2.0] * side] * side}}).encode()
    head = (f"POST /jobs?wait=30 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            f"Authorization: Bearer {secured.user}\r\n\r\n").encode()
    for _ in range(3):  # and the next request behind it
        for piece in (head, body[:10], body[10:1000], body[1000:]):
            if piece:
                talk.tls.write(piece)
    talk.flush()
    for _ in range(3):
        status, answer = talk.answer()
        assert status == 200 and json.loads(answer)["state"] == "succeeded"
    talk.socket.close()


def test_an_answer_is_sent_at_once(secured, authority):
    """Head and body of a short one come as one packet, so that a client wakes up once."""
    secured.authority = authority.cert
    talk = Records(secured)
    head = f"GET /jobs/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secured.user}\r\n\r\n".encode()
    pieces = []
    for _ in range(20):
        talk.tls.write(head)
        talk.flush()
        talk.reads.clear()
        assert talk.answer()[0] == 404
        pieces.append(len(talk.reads))
    assert pieces == [1] * 20
    talk.socket.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(secured, authority, version):
    context = ssl.create_default_context(cafile=authority.cert)
    context.minimum_version = context.maximum_version = version
    with context.wrap_socket(socket.create_connection(("127.0.0.1", secured.port), timeout=60),
                             server_hostname="localhost") as talk:
        assert talk.version() == {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version]


def test_no_older_version(secured, authority):
    context = ssl.create_default_context(cafile=authority.cert)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(socket.create_connection(("127.0.0.1", secured.port), timeout=60), server_hostname="localhost")


def test_what_is_no_tls(secured):
    with socket.create_connection(("127.0.0.1", secured.port), timeout=60) as talk:
        talk.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            assert b"200" not in talk.recv(100)
        except ConnectionError:
            pass
    assert secured.request("GET", "/ops").status == 200


def test_who_does_not_shake_hands_costs_nothing(secured):
    """Nor who stops in the middle of it: libmicrohttpd would ask for the rest of it without end."""
    api = secured.part("api")

    def ticks():
        fields = pathlib.Path(f"/proc/{api}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
    silent = [socket.create_connection(("127.0.0.1", secured.port), timeout=60) for _ in range(20)]
    for one in silent[:10]:
        one.sendall(b"\x16\x03\x01\x02")
    assert secured.request("GET", "/ops").status == 200
    before = ticks()
    time.sleep(2)
    spent = (ticks() - before) / os.sysconf("SC_CLK_TCK")
    for one in silent:
        one.close()
    assert spent < 0.2, f"{spent} s of processor time in 2 s"


def test_a_refused_large_body_is_answered_within_tls(secured):
    """What is sent past libmicrohttpd goes through the same session."""
    raw = socket.create_connection(("127.0.0.1", secured.port), timeout=60)
    with secured.tls.wrap_socket(raw, server_hostname="localhost") as talk:
        talk.sendall(b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                     + f"Authorization: Bearer {secured.user}\r\n\r\n".encode())
        talk.sendall(b"4\r\n[x]]\r\n")
        chunk = b"%x\r\n" % 65536 + b" " * 65536 + b"\r\n"
        try:
            for _ in range(64):
                talk.sendall(chunk)
        except OSError:
            pass
        answer = talk.recv(65536)
        assert answer.startswith(b"HTTP/1.1 4") and b"problem+json" in answer


def test_client_certificates(secured, authority, tmp_path):
    def ask(cert_and_key, method="GET", path="/jobs", body=None):
        context = ssl.create_default_context(cafile=authority.cert)
        context.load_cert_chain(*cert_and_key)
        talk = http.client.HTTPSConnection("127.0.0.1", secured.port, timeout=60, context=context)
        try:
            talk.request(method, path, body)
            answer = talk.getresponse()
            return answer.status, answer.read()
        finally:
            talk.close()
    robot = authority.sign("robot-7", "clientAuth")
    assert ask(robot)[0] == 200
    assert ask(robot, "POST", "/jobs", PRODUCT)[0] == 403  # a reader's
    assert ask(authority.sign("somebody", "clientAuth"))[0] == 401
    assert ask(authority.sign("robot-7", "serverAuth", file="server-robot"))[0] == 401
    assert ask(Authority(tmp_path, "theirs").sign("robot-7", "clientAuth"))[0] == 401
    import blasd
    with blasd.Client(secured.url, verify=str(authority.cert), cert=tuple(str(p) for p in robot)) as client:
        with pytest.raises(blasd.Forbidden):
            client.matmul(np.eye(2), np.eye(2))


def test_a_client_certificate_ends_on_a_kept_connection(secured, authority):
    for seconds in (5, 20, 80):  # on a machine so busy that it has ended before the first answer a longer one is made
        end = int(time.time()) + seconds
        context = ssl.create_default_context(cafile=authority.cert)
        context.load_cert_chain(*authority.sign("robot-7", "clientAuth", file=f"brief-{seconds}", until=end))
        talk = http.client.HTTPSConnection("127.0.0.1", secured.port, timeout=60, context=context)
        talk.connect()
        kept, statuses = talk.sock, []
        while not statuses or (statuses[-1] == 200 and time.time() < end + 30):
            talk.request("GET", "/jobs")
            answer = talk.getresponse()
            answer.read()
            statuses.append(answer.status)
            time.sleep(0.1)
        assert talk.sock is kept and statuses[-1] == 401, statuses
        talk.close()
        if len(statuses) > 1:
            return
    pytest.fail("no connection was made in time")


def shown(service):
    """The certificate that a new connection is shown."""
    with service.tls.wrap_socket(socket.create_connection(("127.0.0.1", service.port), timeout=60),
                                 server_hostname="localhost") as talk:
        return talk.getpeercert()["serialNumber"]


def test_renewed_on_sighup(secured, authority):
    before = shown(secured)
    kept = http.client.HTTPSConnection("127.0.0.1", secured.port, timeout=60, context=secured.tls)
    kept.request("GET", "/ops", headers=secured.headers)
    assert kept.getresponse().read()
    cert, key = authority.sign("blasd", file="renewed")
    os.replace(cert, secured.cert)
    os.replace(key, secured.key)
    assert shown(secured) == before
    secured.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 30
    while shown(secured) == before and time.monotonic() < end:
        time.sleep(0.05)
    assert shown(secured) != before
    kept.request("GET", "/ops", headers=secured.headers)  # who is connected stays so
    assert kept.getresponse().read()
    kept.close()


def test_a_bad_renewal_changes_nothing(secured, authority):
    before, text = shown(secured), secured.key.read_bytes()
    secured.key.write_bytes(authority.key.read_bytes())  # not of this certificate
    secured.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 30
    while "is not that of the certificate" not in secured.log_text() and time.monotonic() < end:
        time.sleep(0.05)
    assert "is not that of the certificate" in secured.log_text()
    assert shown(secured) == before
    secured.key.write_bytes(text)


def test_a_front_end_that_died_comes_back_with_tls(secured):
    old = secured.kill("api")
    end = time.monotonic() + 30
    while secured.part("api") in (None, old) and time.monotonic() < end:
        time.sleep(0.05)
    secured.wait_ready()
    assert secured.request("POST", "/jobs?wait=20", PRODUCT).status == 200
