"""The blasd service with all it needs: its binary, a redis-server, and their libraries. No Python interface of its own but
`program()`; `blasd.serve()` and the command `blasd` use it."""
import os
import sys

__version__ = "0.3.0"  # as in the file VERSION

_HERE = os.path.dirname(os.path.abspath(__file__))


def program():
    """The path of the binary, and the environment to start it in."""
    env = dict(os.environ)
    env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [os.path.join(_HERE, "lib"), env.get("LD_LIBRARY_PATH")]))
    env["PATH"] = os.pathsep.join([os.path.join(_HERE, "bin"), env.get("PATH", os.defpath)])
    return os.path.join(_HERE, "bin", "blasd"), env


def main():
    """The command `blasd`: becomes the binary."""
    path, env = program()
    os.execve(path, ["blasd", *sys.argv[1:]], env)
