"""How the commands that speak to a service end: exit statuses, pipes whose reader has gone, Ctrl-C and Ctrl-Z."""
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time

import numpy as np
import pytest
from pretender import DOCUMENT, Pretender, document
from service import BLASD

QUIET = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy") and key not in ("BLASD_API_KEY", "BLASD_URL")}
NOWHERE = "http://127.0.0.1:9"
FAILED, USAGE, NOT_ENDED, AWAY = 1, 2, 3, 4


def ended(url, *arguments, **more):
    return subprocess.run([BLASD, arguments[0], "--url", url, *map(str, arguments[1:])], capture_output=True, text=True, timeout=60,
                          env=QUIET, **more)


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(2))
    return [f"a={tmp_path}/a.npy", f"b={tmp_path}/a.npy"]


def commands(files):
    path = files[0].split("=")[1]
    return [["run", "matmul", *files], ["run", "matmul", *files, "--dry-run"], ["submit", "matmul", *files], ["get", "x"], ["result", "x"],
            ["cancel", "x"], ["jobs"], ["tensors", "put", path], ["tensors", "get", "t1"], ["tensors", "rm", "t1"], ["tensors", "list"],
            ["devices"], ["top", "--once"]]


@pytest.mark.parametrize("answer", [None, (502, {}, b"<html>"), (307, {"Location": "http://x/"}, b""), (200, {}, b""),
                                    document({"code": "draining", "title": "It is going away", "retry": True}, 503),
                                    document({"code": "rate_limited", "title": "Too fast", "retry": True}, 429)],
                         ids=["nothing", "502", "307", "empty", "503", "429"])
def test_a_service_that_is_away(answer, files):
    """Whoever asks again later may have better luck; of a job that failed not."""
    for arguments in commands(files):
        if answer is None:
            done = ended(NOWHERE, *arguments)
            assert done.returncode == AWAY and done.stdout == "" and done.stderr.count("\n") == 1 and "127.0.0.1:9" in done.stderr, done
        else:
            with Pretender(lambda request, number: answer) as pretender:
                done = ended(pretender.url, *arguments, *(["-t", "1"] if arguments[0] == "run" else []))
                assert done.returncode == AWAY and done.stderr.count("\n") == 1, (arguments, done)


def test_a_job_that_failed_or_was_refused(files):
    bad = {**DOCUMENT, "state": "failed", "error": {"code": "device_error", "title": "The device gave up", "status": 500, "retry": True}}
    with Pretender(lambda request, number: document(bad)) as pretender:
        for arguments in (["run", "matmul", *files], ["get", "x"], ["result", "x"]):
            assert ended(pretender.url, *arguments).returncode == FAILED, arguments
    for status in (401, 404, 409, 422):
        with Pretender(lambda request, number: document({"code": "no", "title": "No", "status": status}, status)) as pretender:
            for arguments in commands(files):
                assert ended(pretender.url, *arguments).returncode == FAILED, (status, arguments)


@pytest.mark.parametrize("wrong", [["--url", "ftp://x"], ["--ca", "/nonexistent"], ["--api-key-file", "/nonexistent"], ["--cert-key", "/etc/passwd"],
                                   ["--retries", "1000"]], ids=lambda wrong: wrong[0])
def test_a_command_line_that_is_wrong(wrong, files):
    for arguments in commands(files):
        assert ended(NOWHERE, *arguments, *wrong).returncode == USAGE, arguments
    for command in ("get", "cancel"):
        assert ended(NOWHERE, command, "no id").returncode == USAGE


@pytest.mark.parametrize("ignored", [False, True], ids=["usual", "ignored"])
def test_who_reads_no_more_is_told_nothing(ignored):
    """As of `blasd jobs | head -1`; also where whoever starts it ignores SIGPIPE, as Python's own programs and some daemons do."""
    jobs = {"jobs": [{**DOCUMENT, "id": f"s{i:040}"} for i in range(3000)]}
    with Pretender(lambda request, number: document(jobs)) as pretender:
        for arguments in (["jobs", "-n", "3000"], ["jobs", "-n", "3000", "--json"], ["help", "run"]):
            reader, writer = os.pipe()
            os.close(reader)
            env = {**QUIET, "BLASD_URL": pretender.url}
            done = subprocess.run([BLASD, *arguments], stdout=writer, stderr=subprocess.PIPE, env=env, timeout=60,
                                  preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN if ignored else signal.SIG_DFL))
            os.close(writer)
            assert done.stderr == b"" and done.returncode == (128 + signal.SIGPIPE if ignored else -signal.SIGPIPE), (arguments, done)


def test_ctrl_c_is_130_in_a_shell():
    held = {**DOCUMENT, "state": "queued"}

    def answer(request, number):
        with open(f"/proc/{shell.pid}/task/{shell.pid}/children") as children:
            os.kill(int(children.read().split()[0]), signal.SIGINT)
        return document(held, 202)
    with Pretender(answer) as pretender:
        shell = subprocess.Popen(["sh", "-c", f"{BLASD} get x --wait 60 --url {pretender.url}; echo $?"], stdout=subprocess.PIPE, env=QUIET)
        assert shell.communicate(timeout=60)[0] == b"130\n"


# --- Ctrl-Z -------------------------------------------------------------------------------------------------------------


class Shell:
    """bash with control of jobs on a terminal of its own, which runs `script`."""

    def __init__(self, script):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe("bash", ["bash", "--norc", "-mc", script], {**QUIET, "TERM": "xterm"})
        self.screen = ""

    def read(self, wanted, timeout=30):
        """Until `wanted`, a pattern, is on the screen from here on."""
        end = time.monotonic() + timeout
        while (found := re.search(wanted, self.screen, re.S)) is None:
            assert time.monotonic() < end, (wanted, self.screen[-3000:])
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.screen += os.read(self.terminal, 65536).decode(errors="replace")
        self.screen = self.screen[found.end():]
        return found

    def type(self, keys):
        os.write(self.terminal, keys)

    def echoes(self):
        """Whether it is as a shell wants it: lines, and what is typed is shown."""
        flags = termios.tcgetattr(self.terminal)[3]
        return flags & termios.ICANON != 0, flags & termios.ECHO != 0

    def end(self):
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


def test_ctrl_z_leaves_the_terminal_as_it_was_and_fg_takes_it_again():
    with Pretender(lambda request, number: document({"jobs": [], "devices": []})) as pretender:
        shell = Shell(f"{BLASD} top -n 0.2 --url {pretender.url}; echo stopped $?; read line; echo got $line; fg >/dev/null; echo ended $?")
        try:
            shell.read(r"\x1b\[\?1049h.*DEVICE +JOBS.*\x1b\[J")
            assert shell.echoes() == (False, False)
            shell.type(b"\x1a")
            shell.read(r"\x1b\[\?1049l.*stopped 148")
            assert shell.echoes() == (True, True)
            shell.type(b"a line\n")
            shell.read("got a line")
            shell.read(r"\x1b\[\?1049h.*DEVICE +JOBS.*\x1b\[J")
            assert shell.echoes() == (False, False)
            shell.type(b"q")
            shell.read(r"\x1b\[\?1049l.*ended 0")
            assert shell.echoes() == (True, True)
        finally:
            shell.end()
