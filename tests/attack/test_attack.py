"""What hostile or broken clients do, and a Redis or blob store that somebody has put a hand into."""
import json
import os
import pathlib
import socket
import subprocess
import time

import numpy as np
import pytest
from service import Redis, TYPES, children, multipart, npy, safetensors, wait_for

BODY = b'{"op":"matmul","inputs":{"a":[[1]],"b":[[2]]}}'
HOST = b"Host: localhost\r\n"


def raw(service, data, timeout=10):
    """Sends bytes and reads until the server closes; (answer, whether it did close)."""
    out = b""
    with socket.create_connection(("127.0.0.1", service.port), timeout=timeout) as sock:
        try:
            sock.sendall(data)
            while True:
                piece = sock.recv(65536)
                if not piece:
                    return out, True
                out += piece
        except socket.timeout:
            return out, False
        except OSError:  # reset: it has closed with bytes of ours unread
            return out, True


def works(service):
    answer = service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}, wait=20)
    assert answer.json()["state"] == "succeeded", answer.body


def cpu_ticks(pid):
    return sum(int(n) for n in pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])


# --- where a body ends ----------------------------------------------------------------------------------------------


def refused(service, headers):
    """The answer to a job with these headers: one, a 400, after which the connection is closed."""
    answer, closed = raw(service, b"POST /jobs?wait=5 HTTP/1.1\r\n" + HOST + headers + b"\r\n" + BODY)
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1 and closed, answer[:300]
    works(service)
    return answer


def test_a_body_of_two_lengths_is_refused_and_closed(service):
    assert b'"malformed_query"' in refused(service, b"Content-Length: 10\r\nContent-Length: %d\r\n" % len(BODY))


@pytest.mark.parametrize("headers", [
    b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(BODY),
    b"Transfer-Encoding: chunked\r\nContent-Length: %d\r\n" % len(BODY),
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Content-Length : %d\r\n" % len(BODY),
])
def test_a_body_of_unknown_length_is_refused_and_closed(service, headers):
    """libmicrohttpd 1.0 refuses these with a page of its own; 0.9 leaves that to the service."""
    answer = refused(service, headers)
    assert b'"malformed_query"' in answer or b"<html>" in answer, answer[:300]


def test_a_compressed_body_is_refused_by_name(service):
    for path, coding in (("/jobs", "br"), ("/jobs", "gzip, gzip"), ("/tensors", "gzip")):
        answer = service.request("POST", path, b"\x1f\x8b", {"Content-Type": TYPES["json"], "Content-Encoding": coding})
        assert answer.status == 415 and answer.json()["field"] == "Content-Encoding"


def test_a_zero_byte_does_not_end_a_path(service):
    assert service.request("GET", "/ops%00x", check=False).status == 404
    assert service.request("GET", "/ops%00", check=False).status == 404
    # libmicrohttpd 1.0 closes the connection without a word
    version = subprocess.run(["pkg-config", "--modversion", "libmicrohttpd"], capture_output=True, text=True, check=True)
    silent = not version.stdout.startswith("0.")
    for target in (b"/ops\0", b"/ops\0x", b"/jobs\0?limit=1", b"/ops\0HTTP/1.1", b"/ops\0 HTTP/1.1"):
        answer, closed = raw(service, b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n")
        assert closed and (answer.startswith(b"HTTP/1.1 4") or (silent and not answer)), (target, answer)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_chunk_header_without_end_costs_no_processor(make_service, leaves):
    service = make_service()
    data = (b"POST /jobs HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n2e;" + b"a" * 200000)
    if leaves:
        with socket.create_connection(("127.0.0.1", service.port)) as sock:
            sock.setblocking(False)
            sock.send(data)
            time.sleep(0.1)
    else:
        answer, closed = raw(service, data)
        assert closed
        # libmicrohttpd 1.0 ends the connection itself, and without a word; 0.9 would spin, so the service ends it
        assert answer == b"" or (answer.startswith(b"HTTP/1.1 431 ") and b'"headers_too_large"' in answer), answer[:300]
    time.sleep(3)
    before = cpu_ticks(service.part("api"))
    time.sleep(1)
    assert cpu_ticks(service.part("api")) - before < 30, "the front end spins"
    works(service)


# --- forms of sending -----------------------------------------------------------------------------------------------


def test_what_curl_calls_a_form_may_be_as_dense_as_json(service):
    """`curl -d` names the body a form; two bytes of its text, `1,`, become eight of a tensor."""
    body = json.dumps({"op": "matmul", "inputs": {"a": [[1] * 3000], "b": [[1]] * 3000}}, separators=(",", ":"))
    answer = service.request("POST", "/jobs?wait=20", body, {"Content-Type": "application/x-www-form-urlencoded"})
    assert answer.status == 200 and answer.json()["outputs"]["c"]["data"] == [[3000]], answer.body[:500]


def test_an_empty_tensor_first_of_all(service):
    for a, b, status in (("[]", "[]", 200), ("[[[[]]]]", "[[1]]", 422)):
        body = '{"op":"matmul","inputs":{"a":%s,"b":%s}}' % (a, b)
        answer = service.request("POST", "/jobs?wait=20", body, {"Content-Type": TYPES["json"]})
        assert answer.status == status, answer.body
    works(service)


def test_a_long_list_of_choices_is_cut_between_two(service):
    answer = service.post("distance", {"x": np.eye(2)}, {"metric": "nonsense"})
    detail = answer.json()["detail"]
    assert answer.status == 422 and '", ..., not "nonsense"' in detail, detail


# --- too much -------------------------------------------------------------------------------------------------------


def test_a_job_larger_than_the_whole_queue_is_not_told_to_come_again(make_service):
    service = make_service("--limit", "queue_bytes=1M")
    column = np.ones((1000, 1))
    answer = service.post("matmul", {"a": column, "b": column.T}, form="safetensors")
    assert answer.status == 413 and answer.json()["code"] == "job_too_large", answer.body
    assert "queue_bytes" in answer.json()["detail"] and answer.json()["retry"] is False
    square = np.ones((500, 500))
    answer = service.post("matmul", {"a": square, "b": square}, form="safetensors")
    assert answer.status == 413 and answer.json()["code"] == "body_too_large", answer.body
    works(service)


def test_no_room_in_the_blob_store_says_when_to_come_again(make_service):
    """The refusal comes in mid-body, where it is written by hand: it must have the headers of any other."""
    service = make_service("--limit", "intake_bytes=1M")
    body = safetensors({"a": np.ones((300, 300)), "b": np.ones((300, 300))}, op="matmul")
    half = len(body) // 2
    answer = service.request("POST", "/jobs", iter([body[:half], body[half:]]), {"Content-Type": TYPES["safetensors"]})
    assert answer.status == 503 and answer.json()["code"] == "no_space", answer.body
    assert int(answer.headers["Retry-After"]) >= 1
    works(service)


# --- a hand in the stores -------------------------------------------------------------------------------------------


def submit(service, count=1):
    return [service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}, wait=0).json()["id"] for _ in range(count)]


def stopped(service):
    """The worker, held still for as long as the block lasts."""
    class Held:
        def __enter__(self):
            self.pid = service.part("worker")
            os.kill(self.pid, 19)

        def __exit__(self, *_):
            os.kill(self.pid, 18)
    return Held()


def test_damaged_records_spoil_no_list(make_service):
    service = make_service()
    good, bad = submit(service, 2)
    for one in (good, bad):
        assert service.request("GET", f"/jobs/{one}?wait=20").json()["state"] == "succeeded"
    redis = Redis(service)
    head = redis("GET", f"{{blasd}}:record:{bad}").split(b"\n", 1)[0]
    redis("SET", f"{{blasd}}:record:{bad}", head + b"\n" + b"\xff" * 40)
    answer = service.request("GET", "/jobs")
    assert answer.status == 200 and [job["id"] for job in answer.json()["jobs"]] == [good]
    assert service.request("GET", f"/jobs/{bad}", check=False).status == 500
    redis.close()
    works(service)


def test_damaged_metas_and_lists_stop_no_other_job(make_service):
    service = make_service()
    redis = Redis(service)
    with stopped(service):
        ids = submit(service, 6)
        for one, meta in zip(ids, (b"", b"x", b"99 1-1 0 0 0\t\t\t", b"1 bad 0 0 0\t\tmatmul\tanonymous",
                                   b"0" * 1000, b"1 0-0 1e400 nan -5\tch\tnope\t")):
            redis("HSET", "{blasd}:pending", one, meta)
        for one in (b"", b"x", b"s" * 41, ids[0].encode() + b" 1 2", b"\xff" * 9):
            redis("LPUSH", "{blasd}:wait:any:normal:anonymous", one)
        redis("HSET", "{blasd}:lines", "2 anonymous", "-7")
    works(service)
    assert service.request("GET", "/jobs").status == 200
    for one in ids:
        assert service.request("GET", f"/jobs/{one}?wait=20").status == 200
        assert service.request("DELETE", f"/jobs/{one}?forget=1").status == 200
    redis.close()
    works(service)


def test_damaged_frames_fail_alone(make_service):
    service = make_service()
    redis = Redis(service)
    with stopped(service):
        submit(service, 1)  # this one is handed to the idle worker, those behind it wait in the list
        ids = submit(service, 5)
        for number, one in enumerate(ids):
            frame = redis("HGET", "{blasd}:pending", b"=" + one.encode())
            redis("HSET", "{blasd}:pending", b"=" + one.encode(), [b"", b"\0" * 4, frame[:30], frame[:-8], frame][number])
    states = [service.request("GET", f"/jobs/{one}?wait=20").json()["state"] for one in ids]
    assert states == ["failed"] * 4 + ["succeeded"]
    redis.close()
    works(service)


def blob_folder(service):
    worker = service.part("worker")
    for fd in pathlib.Path(f"/proc/{worker}/fd").iterdir():
        target = os.readlink(fd)
        if (pathlib.Path(target) / ".store").exists():
            return pathlib.Path(target)
    raise AssertionError("no blob directory")


def change(path, how):
    if how == "short":
        os.truncate(path, 4096)
        return
    os.unlink(path)
    if how == "folder":
        os.mkdir(path)
    elif how == "link":
        os.symlink("/dev/zero", path)
    elif how == "fifo":
        os.mkfifo(path)


@pytest.mark.parametrize("how", ["short", "gone", "folder", "link", "fifo"])
def test_changed_blobs_are_lost_and_no_more(service, how):
    body = safetensors({"a": np.ones((200, 200)), "b": np.ones((200, 200))}, op="matmul")
    headers = {"Content-Type": TYPES["safetensors"]}
    with stopped(service):
        one = service.request("POST", "/jobs", body, headers).json()["id"]
        change(blob_folder(service) / f"{one}.in", how)
    job = service.request("GET", f"/jobs/{one}?wait=20").json()
    assert job["state"] == "failed" and job["error"]["code"] == "inputs_lost", job
    one = service.request("POST", "/jobs?wait=20", body, headers).json()["id"]
    path = blob_folder(service) / f"{one}.out"
    change(path, how)
    assert service.request("GET", f"/jobs/{one}/outputs/c").status == 410
    assert service.request("DELETE", f"/jobs/{one}?forget=1").status == 200
    if path.is_dir():
        path.rmdir()
    elif path.is_symlink() or path.exists():
        path.unlink()
    works(service)


# --- many at once ---------------------------------------------------------------------------------------------------


def test_connections_opened_and_dropped_leave_nothing_behind(make_service):
    service = make_service()
    works(service)
    api = service.part("api")
    before = len(os.listdir(f"/proc/{api}/fd"))
    full = b"POST /jobs?wait=60 HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    for data in (b"", b"GET / HTTP/1.1\r\nX: ", full[:-5], full, full * 10):
        sockets = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(300)]
        for sock in sockets:
            sock.sendall(data)
        works(service)
        for number, sock in enumerate(sockets):
            if number % 2:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
            sock.close()
    wait_for(lambda: len(os.listdir(f"/proc/{api}/fd")) <= before)
    works(service)
    assert service.part("api") == api
    for pid in children(service.process.pid):
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        assert state != "Z", "a zombie"


# --- the clients ----------------------------------------------------------------------------------------------------


def test_the_example_compiles_as_its_comment_says(service, tmp_path):
    from service import BLASD, ROOT
    source = ROOT / "clients" / "c" / "examples" / "client_example.c"
    command = next(line for line in source.read_text().splitlines() if " cc " in line).strip(" *")
    command = command.replace("-Lbuild", f"-L{BLASD.parent}") + f" -o {tmp_path / 'example'}"
    subprocess.run(command, shell=True, check=True, cwd=ROOT)
    out = subprocess.run([tmp_path / "example", service.url], check=True, capture_output=True, text=True).stdout
    assert out.startswith("19 22\n43 50\n") and "exactly zero" in out


def test_run_prints_no_sign_before_nan(service, tmp_path):
    from service import BLASD
    np.save(tmp_path / "a.npy", np.array([[-np.nan, np.nan]]))
    np.save(tmp_path / "b.npy", np.ones((2, 1)))
    done = subprocess.run([BLASD, "run", "matmul", f"a={tmp_path / 'a.npy'}", f"b={tmp_path / 'b.npy'}", "-u",
                           service.url, "-q"], check=True, capture_output=True, text=True)
    assert done.stdout.split()[-1] == "nan"


def test_a_form_of_many_parts(service):
    parts = {"op": "matmul", "a": npy(np.eye(2)), "b": npy(np.eye(2))}
    many = {**{f"p{i}": "x" for i in range(2000)}, **parts}
    answer = service.request("POST", "/jobs", multipart(many), {"Content-Type": TYPES["multipart"]})
    assert answer.status == 422 and answer.json()["field"] == "p0"
    works(service)
