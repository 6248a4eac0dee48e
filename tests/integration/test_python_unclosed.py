"""Clients that nobody closes: their connections end with them, and Python has nothing to warn of."""
import os
import subprocess
import sys

import pytest
from pretender import Pretender, document, succeeded
from service import ROOT

BEGIN = """
import asyncio, gc, os, pickle, sys
import blasd, blasd.default, blasd.linalg

def sockets():
    gc.collect()
    links = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    return sum(os.readlink(link).startswith("socket:") for link in links if os.path.islink(link))
url = sys.argv[1]
"""


def run(url, program):
    """What the program prints; Python's warnings of what was left open are errors, and so is any other word."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", BEGIN + program, url], capture_output=True, text=True, timeout=100,
                          env={**{k: v for k, v in os.environ.items() if k != "BLASD_DEFAULT_URL"}, "PYTHONPATH": str(ROOT / "clients/python"), "BLASD_URL": url})
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


PROGRAMS = {
    "of a client that is dropped": """
client = blasd.Client(url)
client.ops()
assert sockets() == 1
del client
print(sockets())
""",
    "of many": """
for _ in range(20):
    blasd.Client(url).ops()
print(sockets())
""",
    "of a client that is there at the end": """
client = blasd.Client(url)
client.ops()
other = pickle.loads(pickle.dumps(client))
other.ops()
print(0)
""",
    "of the default client": """
blasd.default.client().ops()
blasd.default.set_client(None)
print(sockets())
blasd.default.client().ops()
""",
    "of a dropped client in a child": """
client = blasd.Client(url)
client.ops()
if os.fork() == 0:
    del client
    print(sockets(), flush=True)
    os._exit(0)
assert os.wait()[1] == 0
assert client.ops() == [] and sockets() == 1
""",
    "of the parent's in a child that goes on": """
client = blasd.Client(url)
client.ops()
if os.fork() == 0:
    client.ops()
    client.ops()
    print(sockets() - 1, flush=True)
    sys.exit(0)
assert os.wait()[1] == 0
assert client.ops() == []
""",
    "of jobs in flight at the end": """
client = blasd.Client(url)
print(len(list(client.map("matmul", [{"a": [[1.0]], "b": [[1.0]]}] * 3))) - 3)
""",
    "of a dropped AsyncClient": """
async def main():
    client = blasd.AsyncClient(url)
    await client.ops()
    before = sockets()
    del client
    for _ in range(500):
        if sockets() < before:
            break
        await asyncio.sleep(0.02)
    return before - sockets()
print(asyncio.run(main()) - 1)
"""}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_no_connection_stays(program):
    with Pretender(lambda request, number: succeeded() if request[0] == "POST" else document({"ops": []})) as pretender:
        assert run(pretender.url, program) == "0\n"
