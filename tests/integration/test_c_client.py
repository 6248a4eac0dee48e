"""The C client as programs use it: threads, an event loop, retries, keys, TLS; its examples under valgrind."""
import hashlib
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from pretender import DOCUMENT, Pretender, context_of, document, raw, succeeded
from service import BLASD, ROOT, Service
from test_auth import keys
from test_tls import Authority

PROBE = BLASD.parent / "client_probe"
EXAMPLES = sorted(path.stem for path in (ROOT / "clients/c/examples").glob("*.c"))
QUIET = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy") and key != "BLASD_API_KEY"}


def run(program, *arguments, url=None, status=0, before=(), **env):
    done = subprocess.run([*before, program, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          env={**QUIET, **({"BLASD_URL": url} if url else {}), **env})
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def blasd(*arguments, **more):
    return run(BLASD, *arguments, **more)


# --- threads and event loops ------------------------------------------------------------------------------------------


PROBED = [("threads", [], "640 right of 640, child 0\n"), ("graph", [], "1 1\ninvalid_request\nunknown_step results\n"),
          *[("many", words, f"submitted\n{words[0]} right, {words[0]} calls\n") for words in ((500, 64), (40, 1), (5, 0))]]


@pytest.mark.parametrize("what, words, said", PROBED)
def test_threads_graphs_and_jobs_in_one_event_loop(service, what, words, said):
    """A fork takes the client along; each job is right and told once, however few connections they share."""
    assert run(PROBE, what, *words, url=service.url).stdout == said


def test_a_fork_while_another_thread_makes_its_first_request(service, tmp_path):
    drawing = tmp_path / "drawing"
    said = run(PROBE, "forks-early", drawing, url=service.url, LD_PRELOAD=str(BLASD.parent / "slow_seed.so"), BLASD_TEST_SEED=str(drawing))
    assert said.stdout == "40 right of 40, child 0\n"


def tensors_said(path):
    a = np.arange(1.0, 9).reshape(4, 2)
    summed = hashlib.sha256(a.tobytes()).hexdigest()
    return [f"put float64 2 4 64 3600 {summed}", "kept float64 2 2 32 0 -", "15 15 23 23", "1", "reference_not_found inputs.a",
            f"look float64 2 4 64 77 {summed}", f"again float64 2 4 64 78 {summed}", "1 0", "file float64 2 4 64 5 -", "1", "tensor_expired 410"]


@pytest.mark.parametrize("shares", [False, True])
def test_tensors_references_rules_and_dry_runs(service, sharing, tmp_path, shares):
    """Kept, referred to by jobs that keep in turn, looked at, saved, fetched, listed, forgotten. Where files are shared with the
    service, what is referred to is said in a body all the same."""
    path, more = tmp_path / "a.npy", {"PROBE_SHARE": "1"} if shares else {}
    said = run(PROBE, "tensors", path, url=sharing.url if shares else service.url, **more)
    assert said.stdout.splitlines() == tensors_said(path)
    np.testing.assert_array_equal(np.load(path), np.arange(1.0, 9).reshape(4, 2))


@pytest.mark.parametrize("count", [8, 64, 256])
def test_a_turn_is_short_however_much_there_is_to_do(service, count):
    """It sends and tells of a few jobs, and leaves the descriptor readable where more is to be done."""
    counted, judged = run(PROBE, "turns", count, url=service.url).stdout.splitlines()
    assert judged == f"{count} right, {count} calls"
    assert [int(word) <= 4 for word in counted.split()] == [True, True], counted


def test_a_small_job_leaves_in_one_piece():
    """Head, header and arrays: with one call of the system's, and at the end of the turn that has room for it."""
    def serve(connection):
        while (text := connection.recv(1 << 16)):
            head, _, body = text.partition(b"\r\n\r\n")
            pieces.append(len(body) == int(re.search(rb"(?i)content-length: (\d+)", head).group(1)))
            _, headers, answer = succeeded(3.0)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (
                headers["Content-Type"].encode(), len(answer)) + answer)
    pieces = []
    with raw(serve) as url:
        assert run(PROBE, "many", 40, 1, url=url).stdout == "submitted\n1 right, 40 calls\n"
    assert pieces == [True] * 40


def test_no_more_connections_than_allowed():
    """What waits its turn is sent when one is free."""
    now, most, lock = 0, 0, threading.Lock()

    def answer(request, number):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1
        return succeeded(3.0)
    with Pretender(answer) as pretender:
        said = run(PROBE, "many", 60, 5, url=pretender.url).stdout
        assert said == "submitted\n1 right, 60 calls\n"  # 1 x 3, the others had other factors
        assert len(pretender.seen) == 60 and 1 < most <= 5


def test_jobs_that_are_cancelled_or_given_up(make_service):
    """Whether or not their connection was free, and under a key too, they end once, here and in the service."""
    service = make_service("--limit", "silence_s=600")  # of the worker that is held
    with service.worker_held():
        with subprocess.Popen([PROBE, "ends"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env={**QUIET, "BLASD_URL": service.url}) as probe:
            assert probe.stdout.readline() == "submitted\n"
            end = time.monotonic() + 20
            while len(service.list_jobs("state=queued")) < 2 and time.monotonic() < end:
                time.sleep(0.02)
            out = probe.communicate("\n", timeout=60)[0].splitlines()
        assert probe.returncode == 0
        assert out[0] == "1 1 0"
        assert out[1] == "0 right, 3 calls, 0 cancelled, 1 cancelled, 2 timeout"
        assert out[2] == "0 right, 6 calls, 0 cancelled, 1 cancelled, 2 timeout, 3 cancelled, 4 cancelled, 5 cancelled"
        end = time.monotonic() + 20
        while service.list_jobs("state=queued") and time.monotonic() < end:
            time.sleep(0.02)
        assert not service.list_jobs("state=queued")
        assert all(job["state"] == "cancelled" for job in service.list_jobs())


@pytest.mark.full
def test_a_front_end_that_is_killed_loses_no_job_of_a_loop(make_service):
    """With retries; and none runs twice."""
    service = make_service()
    with service.worker_held():
        probe = subprocess.Popen([PROBE, "many", "200", "32"], stdout=subprocess.PIPE, text=True,
                                 env={**QUIET, "BLASD_URL": service.url, "PROBE_RETRIES": "30"})
        assert probe.stdout.readline() == "submitted\n"
        end = time.monotonic() + 20
        while len(service.list_jobs("state=queued")) < 32 and time.monotonic() < end:
            time.sleep(0.02)
        service.kill("api")
        service.wait_ready()
    assert probe.communicate(timeout=120)[0] == "200 right, 200 calls\n" and probe.returncode == 0
    jobs = service.list_jobs()
    assert len(jobs) == 200 and {job["state"] for job in jobs} == {"succeeded"}


# --- retries ----------------------------------------------------------------------------------------------------------


def test_a_job_sent_again_has_the_key_of_the_first():
    with Pretender(lambda request, number: None if number < 3 else succeeded()) as pretender:
        assert run(PROBE, "once", 60, PROBE_RETRIES="3", url=pretender.url).stdout == "4\n"
    keys = [headers["Idempotency-Key"] for _, _, headers, _ in pretender.seen]
    assert len(keys) >= 4 and len(set(keys)) == 1 and re.fullmatch("[0-9a-f]{32}", keys[0])
    assert len({body for _, _, _, body in pretender.seen}) == 1


def test_without_retries_a_job_is_sent_once():
    with Pretender(lambda request, number: None) as pretender:
        done = run(PROBE, "once", 60, url=pretender.url, status=1)
    assert len(pretender.seen) == 1 and "Idempotency-Key" not in pretender.seen[0][2]
    assert done.stderr.startswith("connection_failed 0") and "may have taken the job" in done.stderr


@pytest.mark.parametrize("status, after, retries, times", [
    (429, "1", 0, 2), (503, "1", 0, 2), (502, "1", 0, 1), (504, "1", 0, 1), *[(status, None, 1, 2) for status in (429, 502, 503, 504)],
    *[(status, None, 0, 1) for status in (429, 502, 503, 504)]])
def test_a_proxy_that_is_busy(status, after, retries, times):
    """Its answer is no problem document. Retry-After of one that had no room is honoured; a job that a gateway may have passed on
    is sent once, whatever it says of when to come back, but for retries."""
    begins = []

    def answer(request, number):
        begins.append(time.monotonic())
        return succeeded() if number > 0 else (status, {"Content-Type": "text/html", **({"Retry-After": after} if after else {})}, b"<html>")
    with Pretender(answer) as pretender:
        done = run(PROBE, "once", 60, url=pretender.url, status=int(times == 1), PROBE_RETRIES=str(retries))
    assert len(begins) == times and (times == 1 or done.stdout == "4\n") and (times == 2 or done.stderr.startswith(f"bad_answer {status}"))
    assert times == 1 or after is None or begins[1] - begins[0] >= 0.99


def test_a_service_that_says_nothing_is_given_up_in_time():
    silent = threading.Event()
    with Pretender(lambda request, number: silent.wait(60) and None) as pretender:
        begin = time.monotonic()
        done = run(PROBE, "once", 1, url=pretender.url, status=1)
        assert done.stderr.startswith("timeout 0") and time.monotonic() - begin < 40  # by itself it would be 60 and more
        silent.set()


def test_who_gives_up_is_told_which_job_goes_on(tmp_path):
    job = "a" + "1" * 40

    def answer(request, number):
        return document({**DOCUMENT, "id": job, "state": "queued"}, 202) if number == 0 else None
    with Pretender(answer) as pretender:
        done = run(PROBE, "once", 60, url=pretender.url, status=1)
    assert done.stderr.startswith("connection_failed") and f"The job {job} goes on" in done.stderr
    assert len(pretender.seen) > 3 and {method for method, *_ in pretender.seen[1:]} == {"GET"}


# --- keys, TLS, sockets, proxies --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module")
def shown(authority):
    """A certificate of localhost and 127.0.0.1, and its key."""
    return authority.sign("service")


def jobs(request, number):
    return document({"jobs": [DOCUMENT]})


def test_the_key_is_sent(tmp_path):
    (tmp_path / "key").write_text("from-a-file\n")
    with Pretender(jobs) as pretender:
        blasd("jobs", "--url", pretender.url)
        blasd("jobs", "--url", pretender.url, BLASD_API_KEY="s3cret")
        blasd("jobs", "--url", pretender.url, "--api-key-file", tmp_path / "key", BLASD_API_KEY="s3cret")
        blasd("jobs", "--url", pretender.url.replace("//", "//me:pw@"), BLASD_API_KEY="s3cret")
        sent = [headers.get_all("Authorization") for _, _, headers, _ in pretender.seen]
        assert sent == [None, ["Bearer s3cret"], ["Bearer from-a-file"], ["Basic bWU6cHc="]]
        assert all(headers["User-Agent"].startswith("blasd-c/") for _, _, headers, _ in pretender.seen)
        done = blasd("jobs", "--url", pretender.url, BLASD_API_KEY="two\nlines", status=2)
        assert "BLASD_API_KEY" in done.stderr and "two" not in done.stderr
        assert len(pretender.seen) == 4


def test_a_key_goes_to_no_other_host():
    """Redirections are not followed."""
    with Pretender(jobs) as other, Pretender(lambda request, number: (307, {"Location": other.url + "/jobs"}, b"")) as first:
        done = blasd("jobs", "--url", first.url, BLASD_API_KEY="s3cret", status=4)
        assert "307" in done.stderr and not other.seen


def test_https_is_verified(authority, shown):
    good = ["--ca", authority.cert]
    with Pretender(jobs, context=context_of(shown)) as pretender:
        assert DOCUMENT["id"] in blasd("jobs", "--url", pretender.url, *good).stdout
        assert DOCUMENT["id"] in blasd("jobs", "--url", pretender.url, "--insecure").stdout
        before = len(pretender.seen)
        done = blasd("jobs", "--url", pretender.url, "--json", status=4)
        assert "certificate" in done.stderr and '"retry":false' in done.stdout
        assert "certificate" in blasd("jobs", "--url", pretender.url, "--ca", shown[1], status=4).stderr
        assert len(pretender.seen) == before
        assert "No such file" in blasd("jobs", "--url", pretender.url, "--ca", "/nonexistent", status=2).stderr
    with Pretender(jobs, context=context_of(shown), host="127.0.0.2") as pretender:  # which it is not for
        assert "127.0.0.2" in blasd("jobs", "--url", pretender.url, *good, status=4).stderr and not pretender.seen


def test_https_with_a_client_certificate(authority, shown):
    with Pretender(jobs, context=context_of(shown, asks=authority.cert)) as pretender:
        arguments = ["jobs", "--url", pretender.url, "--ca", authority.cert]
        blasd(*arguments, status=4)
        assert not pretender.seen
        certificate, key = authority.sign("client", usage="clientAuth")
        assert DOCUMENT["id"] in blasd(*arguments, "--cert", certificate, "--cert-key", key).stdout


def test_large_bodies_over_https(authority, shown, tmp_path):
    np.save(tmp_path / "a.npy", np.ones((1500, 1500)))
    files = [f"a={tmp_path}/a.npy", f"b={tmp_path}/a.npy"]
    with Pretender(lambda request, number: succeeded(), context=context_of(shown)) as pretender:
        done = blasd("run", "--url", pretender.url, "--ca", authority.cert, "matmul", *files, "-q")
        assert done.stdout.split()[-1] == "4" and len(pretender.seen[-1][3]) > 36_000_000


def test_a_connection_of_tls_that_breaks_while_it_is_written_to(authority, shown, tmp_path):
    """Is an error, not a signal that ends the program."""
    np.save(tmp_path / "a.npy", np.ones((1500, 1500)))
    context = context_of(shown)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            connection, _ = listener.accept()
            with context.wrap_socket(connection, server_side=True) as talk:
                talk.recv(1000)
                talk.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        threading.Thread(target=serve, daemon=True).start()
        done = blasd("run", "--url", f"https://127.0.0.1:{listener.getsockname()[1]}", "--ca", authority.cert, "matmul",
                     f"a={tmp_path}/a.npy", f"b={tmp_path}/a.npy", status=4)
    assert "may have taken the job" in done.stderr


def test_a_service_with_keys_and_tls(authority, shown, tmp_path):
    """Threads, a fork and many jobs at once over TLS; what a key may not; a certificate in place of a key."""
    file = tmp_path / "keys.json"
    user = keys("add", "alice", file=file).strip()
    reader = keys("add", "bob", "--tenant", "alice", "--role", "read", file=file).strip()
    keys("add", "robot", "--tenant", "alice", "--certificate", "robot-7", file=file)
    certificate, key = authority.sign("robot-7", usage="clientAuth")
    service = Service(tmp_path, "--keys", str(file), "--tls-cert", str(shown[0]), "--tls-key", str(shown[1]),
                      "--tls-client-ca", str(authority.cert))
    service.start()
    np.save(tmp_path / "a.npy", np.eye(2))
    files = [f"a={tmp_path}/a.npy", f"b={tmp_path}/a.npy"]
    where = ["--url", service.url, "--ca", authority.cert]
    try:
        probe = {"url": service.url, "PROBE_CA": str(authority.cert), "BLASD_API_KEY": user}
        assert run(PROBE, "threads", **probe).stdout == "640 right of 640, child 0\n"
        assert run(PROBE, "forks", **probe).stdout == "80 right of 80, children 0 0\n"
        assert run(PROBE, "many", 200, 16, **probe).stdout == "submitted\n200 right, 200 calls\n"
        job = blasd("submit", *where, "matmul", *files, BLASD_API_KEY=user).stdout.strip()
        assert "c: float64 (2, 2)" in blasd("get", *where, job, "-w", 30, BLASD_API_KEY=reader).stdout
        assert '"code":"forbidden"' in blasd("submit", *where, "--json", "matmul", *files, BLASD_API_KEY=reader, status=1).stdout
        assert '"status":401' in blasd("jobs", *where, "--json", status=1).stdout
        assert "succeeded" in blasd("jobs", *where, "--cert", certificate, "--cert-key", key).stdout
        assert job in blasd("get", *where, job, "--cert", certificate, "--cert-key", key).stdout
    finally:
        service.stop()


def test_a_socket_of_this_machine(tmp_path):
    with Pretender(jobs, path=tmp_path / "socket") as pretender:
        assert DOCUMENT["id"] in blasd("jobs", "--url", pretender.url).stdout
        assert pretender.seen[0][1].startswith("/jobs")
    assert "unix:" in blasd("jobs", "--url", f"unix:{tmp_path}/none", status=4).stderr


def test_proxies_come_from_the_environment():
    with Pretender(jobs) as proxy, Pretender(jobs) as direct:
        blasd("jobs", "--url", "http://blasd.example", http_proxy=proxy.url)
        assert proxy.seen[0][1].startswith("http://blasd.example/jobs")
        blasd("jobs", "--url", direct.url, http_proxy=proxy.url)
        assert len(proxy.seen) == 1 and len(direct.seen) == 1


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "nonsense://x", "file:///etc/passwd", "http://", "http://:80", "unix:",
                                 "http://127.0.0.1:9?x", "http://127.0.0.1:99999", "http://127.0.0.1:x"])
def test_what_is_no_url_of_a_service(url):
    assert "URL" in blasd("jobs", "--url", url, status=2).stderr


# --- memory -----------------------------------------------------------------------------------------------------------

CHECK = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect,possible"]
needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind here")


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_cplusplus_too_and_keep_their_memory_in_order(example, sharing, tmp_path):
    done = subprocess.run(["g++", "-x", "c++", "-std=c++20", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers",
                           f"-I{ROOT}", ROOT / f"clients/c/examples/{example}.c", "-x", "none", f"-L{BLASD.parent}",
                           "-lblasd_client", "-lcurl", "-ljansson", "-pthread", "-o", tmp_path / "program"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = run(tmp_path / "program", sharing.url, before=CHECK if shutil.which("valgrind") else ()).stdout
    words = ["19 22", "43 50", "singular_matrix"] if example == "client_example" else []
    assert said and all(word in said for word in words)


@pytest.mark.parametrize("compiler", [["gcc", "-std=c99"], ["gcc", "-std=c17"], ["g++", "-x", "c++", "-std=c++11"],
                                      ["g++", "-x", "c++", "-std=c++20"]])
def test_the_header_is_plain(compiler, tmp_path):
    (tmp_path / "program.c").write_text('#include "clients/c/blasd_operations.h"\n'
                                        "int main(void) { return !BLASD_VERSION_AT_LEAST(0, 2, 0); }\n")
    done = subprocess.run([*compiler, "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", f"-I{ROOT}",
                           tmp_path / "program.c"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_parameter_of_every_operation_is_sent(tmp_path):
    """By its struct: numbers as JSON has them, in any locale's words; what is NULL is not there."""
    ops = json.loads((ROOT / "api/operations.json").read_text())["ops"]
    values = {"bool": ["true", "false"], "int": ["-3", "9007199254740993"], "float": ["0.1", "INFINITY", "-1e300", "NAN"],
              "choice": ['"full"', '"a\\"\\\\b\\n"']}
    kinds = {"bool": "bool", "int": "int64_t", "float": "double", "choice": "char"}
    body, wish = "", []
    for op in ops:
        for turn in range(4):
            body += f"    {{ struct blasd_{op['name']} job = {{0}}; struct blasd_call call; struct blasd_request request;\n"
            sent = {}
            for port in op["inputs"][:4 - turn]:
                body += f"      job.{port['name']} = &array;\n"
            for param in op["params"][turn:]:
                name, choices = param["name"], values[param["type"]]
                value = choices[turn % len(choices)]
                body += f"      const {kinds[param['type']]} v_{name}{'[]' if param['type'] == 'choice' else ''} = {value};\n"
                body += f"      job.{name} = {'' if param['type'] == 'choice' else '&'}v_{name};\n"
                sent[name] = {"INFINITY": "Infinity", "NAN": "NaN"}.get(value) or json.loads(value)
            body += (f"      request = blasd_{op['name']}_request(&job, &call);\n"
                     '      printf("%s %s", request.op, request.params == NULL ? "{}" : request.params);\n'
                     '      for (int i = 0; i < request.input_count; i++) printf(" %s", request.inputs[i].name);\n      puts(""); }\n')
            wish.append((op["name"], sent, [port["name"] for port in op["inputs"][:4 - turn]]))
    (tmp_path / "program.c").write_text('#include "clients/c/blasd_operations.h"\n#include <locale.h>\n#include <math.h>\n'
                                        "int main(void) {\n    struct blasd_array array = {0};\n"
                                        f'    setlocale(LC_ALL, "");\n{body}    return 0;\n}}\n')
    done = subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", f"-I{ROOT}", tmp_path / "program.c",
                           "-o", tmp_path / "program"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shutil.which("localedef") and subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", tmp_path / "de_DE.UTF-8"], capture_output=True)
    lines = run(tmp_path / "program", LOCPATH=str(tmp_path), LC_ALL="de_DE.UTF-8").stdout.splitlines()
    assert len(lines) == len(wish)
    for line, (name, sent, inputs) in zip(lines, wish):
        op, rest = line.split(" ", 1)
        params, end = json.JSONDecoder().raw_decode(rest)
        assert (op, params, rest[end:].split()) == (name, sent, inputs), line


@pytest.mark.full
@needs_valgrind
def test_memory_where_things_go_wrong(make_service):
    service = make_service()
    assert run(PROBE, "many", 100, 8, url=service.url, before=CHECK).stderr == ""
    with Pretender(lambda request, number: None if number < 3 else succeeded()) as pretender:
        run(PROBE, "once", 60, PROBE_RETRIES="3", url=pretender.url, before=CHECK)
        pretender.seen.clear()
        assert "connection_failed" in run(PROBE, "once", 60, url=pretender.url, before=CHECK, status=1).stderr
    for kind, body in (("json", b""), ("json", b"{"), ("json", b"[]"), ("x-safetensors", b""), ("x-safetensors", b"\0" * 8),
                       ("x-safetensors", b"\xff" * 100), ("x-safetensors", succeeded()[2][:40])):
        with Pretender(lambda request, number: (200, {"Content-Type": f"application/{kind}"}, body)) as pretender:
            done = run(PROBE, "once", 60, url=pretender.url, before=CHECK, status=1)
            assert done.stderr.startswith("bad_answer"), (kind, body)
    with service.worker_held():
        with subprocess.Popen([*CHECK, PROBE, "ends"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env={**QUIET, "BLASD_URL": service.url}) as probe:
            probe.stdout.readline()
            probe.communicate("\n", timeout=120)
        assert probe.returncode == 0


# --- the world around it ----------------------------------------------------------------------------------------------


def test_numbers_are_sent_in_any_locale(tmp_path):
    """A program that has a decimal comma still asks for a wait of 0.5, not 0,5."""
    made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", tmp_path / "de_DE.UTF-8"], capture_output=True) \
        if shutil.which("localedef") else None
    german = {"LOCPATH": str(tmp_path), "LC_ALL": "de_DE.UTF-8"}
    taken = subprocess.run([sys.executable, "-c", "import locale; locale.setlocale(locale.LC_ALL, '')"],
                           env={**os.environ, **german}, capture_output=True)
    if made is None or taken.returncode != 0:
        pytest.skip("no such locale can be made here")
    (tmp_path / "program.c").write_text("""
#include "clients/c/blasd.h"
#include <locale.h>
#include <stdio.h>
int main(void) {
    struct blasd_client *client = blasd_client_new(NULL);
    struct blasd_problem problem;
    struct blasd_reply *reply;
    if (setlocale(LC_ALL, "") == NULL) return 2;
    printf("%.1f", 0.5);
    int code = blasd_client_get(client, "x", 0.5, &reply, &problem);
    blasd_reply_free(reply);
    blasd_client_free(client);
    return code != 0;
}
""")
    subprocess.run(["gcc", f"-I{ROOT}", tmp_path / "program.c", f"-L{BLASD.parent}", "-lblasd_client", "-lcurl", "-ljansson",
                    "-o", tmp_path / "program"], check=True)
    with Pretender(lambda request, number: document(DOCUMENT)) as pretender:
        done = run(tmp_path / "program", url=pretender.url, **german)
        assert done.stdout == "0,5" and pretender.seen[0][1].endswith("wait=0.500")
