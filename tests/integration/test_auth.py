"""Keys as a user meets them: made with `blasd keys`, shown with curl and from Python, refused, revoked while the service runs."""
import json
import os
import pathlib
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import time

import numpy as np
import pytest
from service import BLASD, ROOT, Service

PRODUCT = json.dumps({"op": "matmul", "inputs": {"a": [[1, 2], [3, 4]], "b": [[5, 6], [7, 8]]}})
ROLES = ("metrics", "read", "user", "admin")


def keys(*words, file=None, check=True, env=None):
    """`blasd keys …`; what it printed."""
    words = [str(w) for w in words] + (["--file", str(file)] if file else [])
    done = subprocess.run([BLASD, "keys", *words], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **(env or {})})
    if check:
        assert done.returncode == 0, done.stderr
        return done.stdout
    return done


def test_a_new_user_of_the_machine_can_make_a_key():
    """Who has not even ~/.config."""
    home = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    someone = {"user": 65534} if os.getuid() == 0 else {}  # root's keys lie in /etc
    try:
        program = shutil.copy(BLASD, home / "blasd")
        home.chmod(0o755)
        (home / "at").mkdir()
        if someone:
            os.chown(home / "at", someone["user"], -1)
        env = {name: value for name, value in os.environ.items() if name not in ("XDG_CONFIG_HOME", "BLASD_KEYS")}
        done = subprocess.run([program, "keys", "add", "alice"], capture_output=True, text=True, timeout=60,
                              env={**env, "HOME": str(home / "at")}, **someone)
        assert done.returncode == 0, done.stderr
        made = home / "at/.config/blasd/keys.json"
        assert stat.S_IMODE(made.stat().st_mode) == 0o600 and stat.S_IMODE(made.parent.stat().st_mode) == 0o700
    finally:
        shutil.rmtree(home)


def test_keys_are_revoked_behind_a_link(tmp_path):
    """The service may have been given the file, and the operator the link."""
    file, link = tmp_path / "real" / "keys.json", tmp_path / "keys.json"
    file.parent.mkdir()
    keys("add", "alice", file=file)
    link.symlink_to(file)
    keys("add", "bob", file=link)
    keys("revoke", "alice", file=link)
    assert link.is_symlink() and [key["name"] for key in json.loads(file.read_text())["keys"]] == ["bob"]


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A service with a key of each role; its `keys` by role."""
    folder = tmp_path_factory.mktemp("guarded")
    file = folder / "keys.json"
    made = {role: keys("add", f"the-{role}", "--role", role, "--tenant", "lab", file=file).strip() for role in ROLES}
    service = Service(folder, "--keys", str(file)).start()
    service.keys, service.file = made, file
    yield service
    service.stop()


@pytest.fixture(scope="module")
def teased(tmp_path_factory):
    """One whose address shows wrong keys."""
    folder = tmp_path_factory.mktemp("teased")
    key = keys("add", "alice", file=folder / "keys.json").strip()
    service = Service(folder, "--keys", str(folder / "keys.json")).start()
    service.keys = {"user": key}
    yield service
    service.stop()


def until_status(service, status, key, path="/ops", seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = service.request("GET", path, headers=bearer(key))
        if answer.status == status:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"{path} is still {answer.status}, not {status}")


def test_a_key_is_printed_alone_and_once(tmp_path):
    file = tmp_path / "keys.json"
    secret = keys("add", "alice", file=file)
    assert re.fullmatch(r"blasd_[0-9a-f]{10}_[A-Za-z0-9_-]{43}\n", secret)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert secret.strip() not in text and secret.strip().split("_", 2)[2] not in text
    assert "$blake2b$" in text
    listed = keys("list", file=file)
    assert "alice" in listed and secret[:16] in listed and secret.strip() not in listed
    assert keys("add", "bob", file=file) != secret
    refused = keys("add", "alice", file=file, check=False)
    assert refused.returncode == 1 and "already" in refused.stderr and refused.stdout == ""
    assert keys("revoke", "alice", file=file) == ""
    assert "alice" not in keys("list", file=file) and "bob" in keys("list", file=file)
    gone = keys("revoke", "alice", file=file, check=False)
    assert gone.returncode == 1 and "alice" in gone.stderr


@pytest.mark.parametrize("words, said", [
    (("add",), "NAME"), (("add", "a/b"), "letters"), (("add", "x" * 32), "letters"), (("drop", "a"), "revoke"), ((), "add"),
    (("add", "a", "b"), "options"), (("list", "a"), "list"), (("list", "--role", "user"), "list"),
    (("add", "a", "--role", "root"), "admin, user"), (("add", "a", "--ops", "matmul,nonesuch"), "nonesuch"),
    (("add", "a", "--ops", ""), "operations"), (("add", "a", "--expires", "2001-01-01"), "future"),
    (("add", "a", "--expires", "soon"), "2027"), (("add", "a", "--max-jobs", "0"), "whole number"),
    (("add", "a", "--max-jobs", "1K"), "whole number"), (("add", "a", "--max-bytes", "1X"), "500M"),
    (("add", "a", "--tenant", "a b"), "letters"), (("add", "a", "--max-priority", "urgent"), "normal"),
    (("add", "a", "--certificate", "ro\udcff"), "UTF-8"),
    (("add", "a", "--weight", "9999"), "whole number"), (("add", "a", "--nonsense"), "nonsense")])
def test_what_cannot_be_meant_is_refused(tmp_path, words, said):
    done = keys(*words, file=tmp_path / "keys.json", check=False)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""
    assert not (tmp_path / "keys.json").exists()


def test_where_the_file_is_when_nobody_says(tmp_path):
    env = {"BLASD_KEYS": str(tmp_path / "mine.json")}
    keys("add", "alice", env=env)
    assert (tmp_path / "mine.json").exists() and "alice" in keys("list", env=env)


def test_two_at_a_time_lose_none(tmp_path):
    file = tmp_path / "keys.json"
    both = [subprocess.Popen([BLASD, "keys", "add", f"k{i}", "--file", file], stdout=subprocess.DEVNULL) for i in range(8)]
    assert [p.wait(60) for p in both] == [0] * 8
    assert len(json.loads(file.read_text())["keys"]) == 8


@pytest.mark.first
def test_without_a_key(guarded):
    for path in ("/jobs", "/ops", "/devices", "/metrics", "/jobs/x", "/nothing", "/events"):
        answer = guarded.request("GET", path, check=path != "/nothing")
        assert answer.status == 401, path
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.json()["code"] == "unauthorized"
    assert guarded.request("POST", "/jobs", PRODUCT).status == 401
    assert guarded.request("DELETE", "/ops").status == 401  # a key first, then the method
    assert guarded.request("GET", "/health/live").status == 200


def test_a_large_body_is_not_read_for_it(guarded):
    answer = guarded.request("POST", "/jobs", b"[" * (8 << 20))
    assert answer.status == 401 and answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("shown", ["", "Bearer", "Bearer ", "Basic YWxpY2U6eA==", "Bearer x", "Bearer blasd_", "Token {key}",
                                   "Bearer {key}x", "Bearer {short}", "Bearer {key} x", "{key}"])
def test_what_is_no_key(teased, shown):
    key = teased.keys["user"]
    header = shown.format(key=key, short=key[:-1])
    answer = teased.request("GET", "/ops", headers={"Authorization": header})
    assert answer.status in (401, 429), answer.body  # the address has to wait after some


def routes():
    """(path, method, who may) of the table of routes."""
    text = (ROOT / "src" / "http" / "routes.c").read_text()
    table = text[text.index("const struct http_route http_routes[]"):]
    table = table[:table.index("{NULL")]
    rows = re.findall(r'\{"(/[^"]*)",([^"]*)\},', table)
    macro = text[text.index("#define MODEL_ROUTES(path)"):text.index("const struct http_route")].replace("\\", " ")
    of_model = re.findall(r'\{\s*path(?: "([^"]*)")?,([^}]*)\}', macro)
    assert len(of_model) == 5
    rows += [(model + path, row) for model in re.findall(r'MODEL_ROUTES\("([^"]*)"\)', table) for path, row in of_model]
    for path, row in rows:
        methods, *_rest, who = (part.strip() for part in row.split(","))
        for method in (["GET", "HEAD"] if methods == "READ" else methods.replace("HTTP_", "").replace(" ", "").split("|")):
            yield path, method, who


MAY = {"WRITES": {"user", "admin"}, "READS": {"read", "user", "admin"}, "ANY_KEY": set(ROLES),
       "WATCHES": {"metrics", "admin"}, "ANY_KEY | HTTP_SIGN_IN": set(ROLES), "HTTP_OPEN": set(ROLES)}


@pytest.mark.parametrize("role", [None, *ROLES])
def test_every_route_has_its_roles(guarded, role):
    walked = 0
    for path, method, who in routes():
        real = re.sub(r"\{[a-z]+\}", "x", path)
        if path == "/events" and role in MAY[who]:  # an answer without an end: test_events.py reads it
            continue
        answer = guarded.request(method, real, PRODUCT if (path, method) == ("/jobs", "POST") else None,
                                 bearer(guarded.keys[role]) if role else {})
        if who == "HTTP_OPEN":
            assert answer.status == (404 if "errors" in path else 200), (method, path)
        elif role is None:
            assert answer.status == 401, (method, path)
        elif role in MAY[who]:
            assert answer.status != 401, (method, path)
            assert answer.status != 403 or method == "HEAD" or answer.json().get("code") != "forbidden", (method, path)
        else:
            assert answer.status == 403, (method, path, answer.body)
        walked += 1
    assert walked >= 60


def challenged(answer):
    return (answer.status, answer.headers.get("WWW-Authenticate")) == (401, 'Bearer realm="blasd"')


def test_the_door_has_few_exceptions(guarded):
    """Whatever the path, the method and what else is wrong: 401 with WWW-Authenticate, but for what tells of no work."""
    open_to_all = {re.sub(r"\{[a-z]+\}", "x", path) for path, _, who in routes() if who == "HTTP_OPEN"}
    assert open_to_all == {"/health/live", "/health/ready", "/version", "/openapi.json", "/docs", "/docs/style.css", "/errors/x"}
    paths = {re.sub(r"\{[a-z]+\}", "x", path) for path, _, _ in routes()} - open_to_all
    paths |= {"/nothing", "/console/app.js", "/console/style.css", "/console/", "/favicon.ico", "/health/live/", "/health", "//", "/v3", "/v2/nothing", "/docs/x",
              "/jobs/x/y/z", "/?x=1", "/jobs?limit=nonsense"}
    assert len(paths) > 40
    for path in sorted(paths):
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"):
            answer = guarded.request(method, path, check=False)
            assert challenged(answer), (method, path, answer.status)
    for path in sorted(open_to_all - {"/errors/x"}):
        for method in ("POST", "DELETE", "OPTIONS"):  # nor are those open to more than reading
            assert challenged(guarded.request(method, path, check=False)) or method == "OPTIONS", (path, method)
        for method in ("GET", "HEAD"):
            assert guarded.request(method, path).status == 200


def test_signing_in_is_the_one_page(guarded):
    """The body of its 401 is the page, for a browser shows no key for one; with a key it is the same with 200."""
    page = guarded.request("GET", "/", headers=bearer(guarded.keys["read"]))
    assert page.status == 200 and "WWW-Authenticate" not in page.headers and page.body.startswith(b"<!DOCTYPE html>")
    for headers in ({}, {"Accept": "application/json"}, {"Authorization": "Basic YWxpY2U6eA=="}):
        refused = guarded.request("GET", "/", headers=headers)
        assert challenged(refused) and refused.body == page.body
        assert refused.headers["Content-Type"] == "text/html; charset=utf-8"
        assert refused.headers["Content-Security-Policy"] == page.headers["Content-Security-Policy"]
    assert guarded.request("POST", "/").json()["code"] == "unauthorized"
    metrics = guarded.request("GET", "/metrics", headers=bearer(guarded.keys["metrics"])).body.decode()
    assert re.search(r'blasd_http_requests_total\{route="/",method="GET",status="401"\} [1-9]', metrics)


def test_what_others_do_is_not_told(guarded):
    """Not even as sums: a tenant could tell when, and how long, others compute."""
    for path in ("/v2/models/stats", "/v2/models/matmul/stats", "/v2/models/matmul/versions/1/stats", "/metrics"):
        got = {role: guarded.request("GET", path, headers=bearer(guarded.keys[role])).status for role in ROLES}
        assert got == {role: 200 if role in ("metrics", "admin") else 403 for role in ROLES}, path


def test_curl(guarded):
    done = subprocess.run(["curl", "-sS", "-H", f"Authorization: Bearer {guarded.keys['user']}",
                           f"{guarded.url}/jobs?wait=20", "-d", PRODUCT], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["outputs"]["c"]["data"] == [[19, 22], [43, 50]]


def test_python(guarded, monkeypatch):
    import blasd
    a = np.random.default_rng(1).random((40, 40))
    with blasd.Client(guarded.url, api_key=guarded.keys["user"]) as client:
        np.testing.assert_allclose(client.matmul(a, a), a @ a)
    monkeypatch.setenv("BLASD_API_KEY", guarded.keys["user"])
    with blasd.Client(guarded.url) as client:
        np.testing.assert_allclose(client.matmul(a, a), a @ a)
    with blasd.Client(guarded.url, api_key=guarded.keys["read"]) as client, pytest.raises(blasd.Forbidden) as refused:
        client.matmul(a, a)
    assert refused.value.code == "forbidden"


def test_scopes_and_limits_of_a_key(guarded):
    narrow = keys("add", "narrow", "--ops", "solve", "--max-priority", "low", "--max-job-seconds", 60, file=guarded.file).strip()
    until_status(guarded, 200, narrow)
    try:
        def send(**members):
            return guarded.request("POST", "/jobs?wait=20", json.dumps({**json.loads(PRODUCT), **members}), bearer(narrow))
        refused = send(priority="low")
        assert refused.status == 403 and refused.json()["field"] == "op" and "matmul" in refused.json()["detail"]
        inputs = {"a": [[2.0]], "b": [4.0]}
        assert send(op="solve", inputs=inputs, priority="normal").json()["field"] == "priority"
        assert send(op="solve", inputs=inputs, priority="high").status == 403
        done = send(op="solve", inputs=inputs, priority="low")
        assert done.status == 200 and done.json()["outputs"]["x"]["data"] == [2.0]
        assert "RateLimit" not in done.headers
        unsaid = send(op="solve", inputs=inputs)  # as clients do that know nothing of the key
        assert unsaid.status == 200 and unsaid.json()["priority"] == "low"
        default = {"parameters": {"priority": 0}, "inputs": [{"name": n, "datatype": "FP64", "shape": s, "data": [2]} for n, s in (("a", [1, 1]), ("b", [1]))]}
        answer = guarded.request("POST", "/v2/models/solve/infer", json.dumps(default), bearer(narrow))  # Triton's 0 is: unsaid
        assert answer.status == 200, answer.body
    finally:
        keys("revoke", "narrow", file=guarded.file)


def test_jobs_a_second(guarded):
    slow = keys("add", "slow", "--max-jobs-per-second", 1, file=guarded.file).strip()
    until_status(guarded, 200, slow)
    try:
        first = guarded.request("POST", "/jobs?wait=20", PRODUCT, bearer(slow))
        assert first.status == 200 and first.headers["RateLimit-Policy"] == '"jobs";q=1;w=1'
        for _ in range(200):  # one of two that come within a second
            answer = guarded.request("POST", "/jobs?wait=20", PRODUCT, bearer(slow))
            if answer.status == 429:
                break
        assert answer.status == 429 and answer.json()["code"] == "rate_limited", answer.body
        assert int(answer.headers["Retry-After"]) >= 1 and ";r=0;" in answer.headers["RateLimit"]
        assert guarded.request("GET", "/ops", headers=bearer(slow)).status == 200  # it asks the queue for nothing
    finally:
        keys("revoke", "slow", file=guarded.file)


def test_revoked_and_added_while_it_runs(guarded):
    brief = keys("add", "brief", file=guarded.file).strip()
    until_status(guarded, 200, brief)
    job = guarded.request("POST", "/jobs", PRODUCT, bearer(brief)).json()["id"]
    assert guarded.request("GET", f"/jobs/{job}?wait=20", headers=bearer(brief)).json()["state"] == "succeeded"
    keys("revoke", "brief", file=guarded.file)
    until_status(guarded, 401, brief)
    assert guarded.request("GET", f"/jobs/{job}", headers=bearer(brief)).status in (401, 429)
    assert guarded.request("GET", "/ops", headers=bearer(guarded.keys["user"])).status == 200


def test_each_change_of_a_key_has_a_line(guarded):
    """Who may come in, and no longer, is in the log: by name, never by what opens the door."""
    def wait_for_line(text):
        end = time.monotonic() + 30
        while text not in guarded.log_text() and time.monotonic() < end:
            time.sleep(0.05)
        assert text in guarded.log_text()

    before = guarded.log_text().count("info: key ")
    secret = keys("add", "told", "--tenant", "t1", "--role", "read", file=guarded.file).strip()
    wait_for_line("info: key added: key=told tenant=t1 role=read\n")
    document = json.loads(guarded.file.read_text())
    next(k for k in document["keys"] if k["name"] == "told")["limits"] = {"jobs": 5}
    guarded.file.write_text(json.dumps(document))
    wait_for_line("info: key changed: key=told tenant=t1 role=read\n")
    keys("revoke", "told", file=guarded.file)
    wait_for_line("info: key revoked: key=told tenant=t1 role=read\n")
    text = guarded.log_text()
    assert text.count("info: key ") == before + 3, "nothing is said of the others"
    assert secret not in text and secret.split("_", 2)[2] not in text


def test_an_expired_key(guarded):
    old = keys("add", "old", "--expires", "1d", file=guarded.file).strip()
    until_status(guarded, 200, old)
    document = json.loads(guarded.file.read_text())
    entry = next(k for k in document["keys"] if k["name"] == "old")
    entry["expires"] = "2020-01-01T00:00:00Z"
    guarded.file.write_text(json.dumps(document))
    answer = until_status(guarded, 401, old)
    assert "expired" in answer.json()["detail"]
    assert "expired" in keys("list", file=guarded.file)
    keys("revoke", "old", file=guarded.file)


def test_a_damaged_file_changes_nothing(guarded):
    text = guarded.file.read_text()
    guarded.file.write_text(text[:-20])
    end = time.monotonic() + 30
    while "cannot be read" not in guarded.log_text() and time.monotonic() < end:
        time.sleep(0.05)
    assert "cannot be read" in guarded.log_text()
    assert guarded.request("GET", "/ops", headers=bearer(guarded.keys["user"])).status == 200
    guarded.file.write_text(text)


def test_guessing_a_key_on_a_unix_socket(tmp_path):
    """It waits as well, and neither a key that was shown before nor one that never was is held up by it."""
    file, path = tmp_path / "keys.json", tmp_path / "s"
    good, fresh = keys("add", "alice", file=file).strip(), keys("add", "bob", file=file).strip()
    process = subprocess.Popen([BLASD, "up", "--listen", f"unix:{path}", "--keys", file, "--data", tmp_path / "data"], stdout=subprocess.PIPE)

    def status(key):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(30)
            sock.connect(str(path))
            sock.sendall(f"GET /ops HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n".encode())
            return int(sock.recv(65536).split()[1])
    try:
        assert process.stdout.readline().startswith(b"ready ")
        assert status(good) == 200
        for which in (good, fresh):
            guessed = [status(which[:-5] + f"{tries:05}") for tries in range(100)]
            assert guessed[0] == 401 and guessed.count(429) > 50, guessed
            assert status(good) == 200 and status(fresh if which == fresh else good) == 200
    finally:
        process.terminate()
        process.wait(60)


def test_guessing_waits_and_does_not_lock_others_out(tmp_path):
    file = tmp_path / "keys.json"
    good = keys("add", "alice", file=file).strip()
    service = Service(tmp_path, "--keys", str(file)).start()
    try:
        assert service.request("GET", "/ops", headers=bearer(good)).status == 200
        for tries in range(1, 41):
            answer = service.request("GET", "/ops", headers=bearer(good[:-4] + f"{tries:04}"))
            if answer.status == 429:
                break
            assert answer.status == 401
        assert tries > 5 and answer.json()["code"] == "too_many_failures" and int(answer.headers["Retry-After"]) >= 1
        assert service.request("GET", "/ops", headers=bearer(good)).status == 200
        assert service.request("GET", "/health/live").status == 200
        log = service.log_text()
        assert "unauthorized" in log and good not in log and good[17:] not in log
    finally:
        service.stop()


def test_a_page_of_an_allowed_origin(tmp_path):
    """A browser asks without a key first, and then sends it."""
    file = tmp_path / "keys.json"
    good = keys("add", "alice", file=file).strip()
    service = Service(tmp_path, "--keys", str(file), "--allow-origin", "https://lab.example").start()
    try:
        asked = service.request("OPTIONS", "/jobs", headers={"Origin": "https://lab.example", "Access-Control-Request-Method": "POST"},
                                check=False)
        # all that the API knows but for Body-File, which is for who shares the machine
        allowed = asked.headers["Access-Control-Allow-Headers"].split(", ")
        assert asked.status == 204 and {"Authorization", "Range", "Content-Encoding",
                                        "Inference-Header-Content-Length", "Idempotency-Key", "Prefer"} <= set(allowed)
        done = service.request("POST", "/jobs?wait=20", PRODUCT, {"Origin": "https://lab.example", **bearer(good)})
        assert done.status == 200
        assert "Content-Range" in done.headers["Access-Control-Expose-Headers"].split(", ")
        assert service.request("OPTIONS", "/jobs", check=False).status == 401
    finally:
        service.stop()


# --- what is listened on ------------------------------------------------------------------------------------------


def start_refused(*options, env=None):
    done = subprocess.run([BLASD, "up", *options], capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})
    assert done.returncode == 1 and done.stdout == "", done.stdout
    return done.stderr


def test_nothing_is_open_to_others_by_chance(tmp_path):
    data, file = ("--data", str(tmp_path / "data")), tmp_path / "keys.json"
    keys("add", "alice", file=file)
    for listen in ("0.0.0.0:0", "[::]:0", ":0"):
        said = start_refused("--listen", listen, *data)
        assert "blasd keys add" in said and "--insecure-no-keys" in said
        said = start_refused("--listen", listen, "--keys", str(file), *data)
        assert "--tls-cert" in said and "--insecure-no-tls" in said


@pytest.mark.parametrize("options, said", [
    (("--keys", "{tmp}/none.json"), "none.json"), (("--first-key",), "--keys"), (("--tls-cert", "x"), "--tls-key"),
    (("--tls-client-ca", "x"), "--tls-cert"), (("--tls-cert", "{tmp}/no.pem", "--tls-key", "{tmp}/no.pem"), "no.pem")])
def test_options_that_do_not_fit(tmp_path, options, said):
    options = [o.format(tmp=tmp_path) for o in options]
    assert said in start_refused("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), *options)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_keys_that_are_not_roots(tmp_path):
    """A service of root's reads them once, and nothing of a key that is revoked then."""
    file = tmp_path / "keys.json"
    keys("add", "alice", file=file)
    os.chown(file, 1234, 1234)
    said = start_refused("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--keys", str(file))
    assert "gives up" in said and "keys.json" in said


def test_the_first_key(tmp_path):
    """As the image starts: reachable by others, on purpose without TLS, with a key that is printed once."""
    file = tmp_path / "keys.json"
    service = Service(tmp_path, "--keys", str(file), "--first-key", "--insecure-no-tls")
    try:
        service.start(listen="0.0.0.0:0")
        found = re.findall(r"blasd_[0-9a-f]{10}_[A-Za-z0-9_-]{43}", service.log_text())
        assert len(found) == 1
        assert service.request("POST", "/jobs?wait=20", PRODUCT, bearer(found[0])).status == 200
        assert service.request("GET", "/metrics", headers=bearer(found[0])).status == 200
        service.stop()
        service.start(listen="0.0.0.0:0")
        assert re.findall(r"blasd_[0-9a-f]{10}_[A-Za-z0-9_-]{43}", service.log_text()) == found
        assert service.request("GET", "/ops", headers=bearer(found[0])).status == 200
    finally:
        service.stop()


def test_a_unix_socket(tmp_path):
    import blasd
    import select
    path = tmp_path / "blasd.sock"
    process = subprocess.Popen([BLASD, "up", "--listen", f"unix:{path}", "--loops", "2", "--data", tmp_path / "data"],
                               stdout=subprocess.PIPE, stderr=open(tmp_path / "log", "wb"))
    try:
        assert select.select([process.stdout], [], [], 60)[0], (tmp_path / "log").read_text()
        assert process.stdout.readline().decode() == f"ready unix:{path}\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with blasd.Client(f"unix:{path}") as client:
            np.testing.assert_allclose(client.matmul(np.eye(3), np.eye(3)), np.eye(3))
        done = subprocess.run(["curl", "-sS", "--unix-socket", str(path), "http://localhost/jobs?wait=20", "-d", PRODUCT],
                              capture_output=True, text=True, timeout=60)
        assert json.loads(done.stdout)["state"] == "succeeded"
        second = start_refused("--listen", f"unix:{path}", "--data", str(tmp_path / "other"))
        assert "another service" in second and path.exists()
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()
    assert not path.exists()


def test_a_unix_socket_left_behind(tmp_path):
    import socket
    path = tmp_path / "blasd.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    file = tmp_path / "keys.json"
    keys("add", "alice", file=file)
    process = subprocess.Popen([BLASD, "up", "--listen", f"unix:{path}", "--keys", file, "--data", tmp_path / "data"],
                               stdout=subprocess.PIPE, stderr=open(tmp_path / "log", "wb"))
    try:
        assert process.stdout.readline().decode() == f"ready unix:{path}\n", (tmp_path / "log").read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o666  # keys decide
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()
    not_a_socket = tmp_path / "precious"
    not_a_socket.write_text("x")
    assert "cannot listen" in start_refused("--listen", f"unix:{not_a_socket}", "--data", str(tmp_path / "data"))
    assert not_a_socket.read_text() == "x"
