"""The Redis user of workers: what a worker needs, and no other function, command, key or channel."""
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
from service import BLASD, TYPES, Redis, children, command_line, wait_for

ANYBODY = {"auth", "hello", "quit", "reset"}  # Redis asks no user about these


def allowed(queue="blasd"):
    """What `blasd worker --acl` lets a worker do: its functions, its commands."""
    rules = subprocess.run([BLASD, "worker", "--acl", "--queue", queue], capture_output=True, text=True, check=True).stdout.split()
    words = {rule[1:] for rule in rules if rule[0] == "+"}
    functions = {word.partition("|")[2] for word in words if word.startswith("fcall|")}
    return functions, {word for word in words if not word.startswith("fcall|")}


@pytest.fixture
def worker(make_service):
    service = make_service()
    hand = Redis(service, "blasd-worker")
    yield service, hand
    hand.close()


def answer(hand, *words):
    """The text of an error, or None."""
    try:
        hand(*words)
    except AssertionError as error:
        return str(error)
    return None


def test_no_other_function(worker):
    service, hand = worker
    admin = Redis(service)
    admin("FUNCTION", "LOAD", "#!lua name=mine\nredis.register_function('mine_f', function() return 1 end)")
    names = {function[1].decode() for library in admin("FUNCTION", "LIST") for function in library[5]}
    functions, _ = allowed()
    assert functions < names and "mine_f" in names
    for name in names:
        said = answer(hand, "FCALL", name, 1, "{blasd}", "1 1 1 1 1 1 1 1")
        assert (name not in functions) == ("NOPERM" in (said or "")), (name, said)
        assert "NOPERM" in answer(hand, "FCALL", name, 1, "{other}", "1 1 1 1 1 1 1 1"), name
        assert "NOPERM" in answer(hand, "FCALL_RO", name, 1, "{blasd}", "1 1 1 1 1 1 1 1"), name
    admin.close()


def test_no_other_command(worker):
    """Each command that this Redis has, with as many words as it takes."""
    service, hand = worker
    admin = Redis(service)
    _, commands = allowed()
    told = {name.decode(): arity for name, arity, *_ in admin("COMMAND", "INFO", *admin("COMMAND", "LIST"))}
    assert commands < set(told) and "fcall" in told
    for name, arity in told.items():
        parent = name.partition("|")[0]
        contained = any(other.startswith(f"{name}|") for other in told)
        if parent in ANYBODY or name in commands | {"fcall"} or contained:
            continue
        words = name.split("|")
        said = answer(hand, *words, *["1"] * (abs(arity) - len(words)))
        assert re.search("NOPERM|command not allowed", said or ""), (name, said)  # DEBUG and MODULE nobody may
    forbidden = {name.decode() for category in ("admin", "dangerous", "scripting") for name in admin("ACL", "CAT", category)}
    assert commands & forbidden == {"function|list"}
    admin.close()


def test_no_other_key_or_channel(worker):
    service, hand = worker
    assert answer(hand, "GET", "{blasd}:store") is None
    for key in ("others", "{other}:store", "{blasd}store", "blasd", "{blasd", ""):
        for words in (("GET", key), ("SET", key, 1), ("HGETALL", key), ("DEL", key), ("RENAME", "{blasd}:x", key),
                      ("BLMPOP", 1, 2, "{blasd}:wake:me", key, "LEFT"), ("MGET", "{blasd}:store", key)):
            assert "NOPERM" in (answer(hand, *words) or ""), words
    for channel in ("others", "{other}:events", "__keyspace@0__:x"):
        assert "NOPERM" in (answer(hand, "PUBLISH", channel, 1) or ""), channel
    nobody = Redis(service, "")
    for words in (["GET", "{blasd}:store"], ["FCALL", "blasd_7_turn", 1, "{blasd}"], ["PING"]):
        assert "NOAUTH" in answer(nobody, *words)
    nobody.close()
    assert service.run("matmul", {"a": np.eye(2), "b": np.eye(2)})[1]["state"] == "succeeded"


def memory_of(pid):
    """All that the process could change, and so could have written something into."""
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            first, last = (int(end, 16) for end in span.split("-"))
            if rights.startswith("rw") and last - first < 1 << 28 and "[vvar" not in line:
                memory.seek(first)
                try:
                    yield memory.read(last - first)
                except OSError:
                    pass


@pytest.mark.skipif(os.getuid() != 0, reason="reads the memory of other processes")
def test_a_worker_knows_its_own_password_alone(worker):
    service, _ = worker
    assert service.run("matmul", {"a": np.eye(2), "b": np.eye(2)})[1]["state"] == "succeeded"
    passwords = dict(re.findall(r"^user (\S+) on >([0-9a-f]{32}) ", (service.folder / "data" / "redis.conf").read_text(), re.M))

    def known(pid):
        pieces = [pathlib.Path(f"/proc/{pid}/environ").read_bytes(), *memory_of(pid)]
        return {user for user, password in passwords.items() if any(password.encode() in piece for piece in pieces)}
    assert known(service.part("worker")) == {"blasd-worker"}
    assert known(service.part("api")) == {"default"}
    for pid in (service.process.pid, *children(service.process.pid)):
        assert not any(password in command_line(pid) for password in passwords.values())


@pytest.mark.parametrize("options", [(), ("--blobs", "redis")])
def test_it_is_enough(make_service, options):
    """Redis notes each refusal: none of what workers do, with blobs in files and in Redis, is among them."""
    service = make_service(*options)
    a = np.random.default_rng(3).random((200, 200))
    assert np.allclose(service.run("matmul", {"a": a, "b": a}, form="safetensors")[0]["c"], a @ a)
    assert service.run("solve", {"a": a, "b": a[0]}, form="safetensors")[1]["state"] == "succeeded"

    def ended(path, document):
        answer = service.request("POST", f"{path}?wait=30", json.dumps(document), {"Content-Type": "application/json"})
        assert answer.status == 200, answer.body[:500]
        return answer.json()
    kept = ended("/jobs", {"op": "matmul", "inputs": {"a": a.tolist(), "b": {"eye": 200}}, "keep": ["c"]})
    tensor = {"tensor": kept["outputs"]["c"]["tensor"]["id"]}
    again = ended("/jobs", {"op": "matmul", "inputs": {"a": tensor, "b": a.tolist()}})
    result = service.request("GET", f"/jobs/{again['id']}/result", headers={"Accept": TYPES["safetensors"]})
    assert np.allclose(result.safetensors()[0]["c"], a @ a)
    graph = ended("/graphs", {"steps": {"g": {"op": "matmul", "inputs": {"a": tensor, "b": {"eye": 200}}},
                                        "h": {"op": "matmul", "inputs": {"a": {"step": "g", "output": "c"}, "b": {"eye": 200}}}},
                              "results": ["h"]})
    assert graph["state"] == "succeeded", graph
    with service.worker_held():
        job = service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}, wait=0).json()["id"]
        service.kill("redis")
        service.wait_ready()
    assert service.request("GET", f"/jobs/{job}?wait=30").json()["state"] == "succeeded"
    service.kill("worker")
    wait_for(lambda: service.post("matmul", {"a": np.eye(2), "b": np.eye(2)}).status == 200)  # 503 while it connects again
    redis = Redis(service)
    refused = {entry[entry.index(b"object") + 1] for entry in redis("ACL", "LOG")}
    assert refused <= {b"info", b"config|get"}  # whether it keeps a file, which a front end may ask
    redis.close()
    assert not re.search("NOPERM|can't run this command", service.log_text() + (service.folder / "data" / "redis.log").read_text())


@pytest.mark.parametrize("words,variables", [(["--guard"], {}), ([], {"BLASD_GUARD": "1"})])
def test_an_option_that_was_removed_is_explained(words, variables):
    done = subprocess.run([BLASD, "worker", "--redis", "unix:/none", *words], capture_output=True, text=True, check=False, timeout=60,
                          env={**os.environ, **variables})
    assert done.returncode == 2 and "blasd worker --acl" in done.stderr
