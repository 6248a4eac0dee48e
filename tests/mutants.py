#!/usr/bin/python3
"""Changes one operator of a room's code at a time and says whether the tests notice.

    tests/mutants.py --room queue -n 20                    the room's unit programs
    tests/mutants.py --room queue -n 20 --integration      and, where those do not notice, the tests of `make check`
    tests/mutants.py --room http --integration="not full"  ... or those of a pytest expression over marks

A room is a folder of src, or `kernels`; without --room each of them. What is drawn depends on --seed alone. All of it happens
in a copy of the tree below --work, which is kept for the next time. A mutant that does not compile, or compiles to the same
bytes, is no mutant, and another one is drawn. One line each; at the end the share that was noticed. The exit status is 0
whatever the figures are.
"""
import argparse
import glob
import hashlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
C = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+", "*": "/",
     "/": "*", "%": "/", "+=": "-=", "-=": "+=", "&": "|", "|": "&", "<<": ">>", ">>": "<<"}
LUA = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "==", "and": "or", "or": "and", "+": "-", "-": "+", "*": "/", "/": "*"}
# what is no code: comments, texts, lines of the preprocessor
NO_CODE = {".c": re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.S | re.M),
           ".lua": re.compile(r'--[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')}


def sources(room):
    if room == "kernels":
        return sorted(glob.glob("kernels/*/cpu_*.c", root_dir=ROOT) + glob.glob("kernels/*/op_*.c", root_dir=ROOT))
    return sorted(glob.glob(f"src/{room}/*.c", root_dir=ROOT) + glob.glob(f"src/{room}/functions/*.lua", root_dir=ROOT))


def places(path):
    """[(position, operator, the other one)]: binary operators, which clang-format puts between spaces."""
    text, kind = (ROOT / path).read_text(), pathlib.Path(path).suffix
    others = LUA if kind == ".lua" else C
    bare = NO_CODE[kind].sub(lambda found: re.sub(r"[^\n]", "_", found.group()), text)
    words = "|".join(re.escape(word) for word in sorted(others, key=len, reverse=True))
    return [(found.start(1), found.group(1), others[found.group(1)]) for found in re.finditer(rf"(?<= )({words})(?=[ \n])", bare)]


class Copy:
    """The tree, where it may be changed."""

    def __init__(self, folder, jobs):
        self.folder, self.jobs, self.slowest = folder, jobs, {}
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
        for old in (path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] != "build"):
            if str(old.relative_to(folder)) not in names:
                old.unlink()
        for name in sorted(names):
            from_file, to = ROOT / name, folder / name
            if not to.exists() or to.read_bytes() != from_file.read_bytes():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(from_file, to)

    def make(self, *targets, timeout=1800):
        """Whether it builds."""
        done = subprocess.run(["make", "-s", "--no-print-directory", f"-j{self.jobs}", "NVCC=", *targets], cwd=self.folder, capture_output=True, text=True,
                              timeout=timeout, check=False)
        self.said = done.stdout + done.stderr
        return done.returncode == 0

    def run(self, command, timeout):
        """The exit status, or None: it took longer. Whatever it has started ends with it."""
        environment = {**os.environ, "BLASD_TEST_QUICK": "1"}
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                                   start_new_session=True, env=environment)
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            subprocess.run(["kill", "-9", "--", f"-{process.pid}"], capture_output=True, check=False)
            process.wait()

    def program(self, name):
        """How a unit program ends, within ten times what it takes else."""
        return self.run([self.folder / name], 10 + 10 * self.slowest.get(name, 60))

    def digest(self, path):
        """Of what a source becomes."""
        made = self.folder / ("build/gen/functions_lua.h" if path.endswith(".lua") else f"build/obj/{path}.o")
        return hashlib.sha256(made.read_bytes()).digest()


def unit_programs(room):
    return [f"build/{name.rsplit('.', 1)[0]}" for name in sorted(glob.glob(f"tests/unit/{room}/test_*.c", root_dir=ROOT))]


def object_of(path):
    return "build/gen/functions_lua.h" if path.endswith(".lua") else f"build/obj/{path}.o"


def judge(copy, programs, marks, path):
    """What noticed a mutant that is in place, or None; raises ValueError where it is no mutant."""
    before = copy.digest(path)
    try:
        if not copy.make(object_of(path)) or copy.digest(path) == before:
            raise ValueError("it does not compile, or compiles to the same")
        if not copy.make(*programs, *(["build/blasd"] if marks else [])):
            return "the build"
    except subprocess.TimeoutExpired:
        return "the build"
    for name in list(programs):
        if copy.program(name) != 0:
            programs.remove(name)
            programs.insert(0, name)  # what notices one is likely to notice the next
            return name.rsplit("/", 1)[1]
    if marks and copy.run([sys.executable, "-m", "pytest", "-q", "-x", "-n", str(4 * copy.jobs), "--dist", "loadgroup", "-p", "no:cacheprovider", "-m", marks,
                           "tests/integration"], 1800) != 0:
        return "integration"
    return None


def try_room(copy, room, count, seed, marks):
    programs, drawn = unit_programs(room), random.Random(f"{seed} {room}")
    if not copy.make(*programs, "build/blasd", *(["test-programs"] if marks else [])):
        sys.exit(f"the tree does not build as it is:\n{copy.said[-3000:]}")
    for name in programs:
        start = time.monotonic()
        if copy.program(name) != 0:
            sys.exit(f"{name} fails as it is")
        copy.slowest[name] = time.monotonic() - start
    programs.sort(key=copy.slowest.get)
    every = [(path, *place) for path in sources(room) for place in places(path)]
    drawn.shuffle(every)
    noticed = tried = 0
    for path, at, old, new in every:
        if tried == count:
            break
        file, text = copy.folder / path, (copy.folder / path).read_text()
        file.write_text(text[:at] + new + text[at + len(old):])
        try:
            by = judge(copy, programs, marks, path)
        except ValueError:
            continue
        finally:
            file.write_text(text)
            copy.make(object_of(path))
        tried += 1
        noticed += by is not None
        print(f"{room}: {path}:{text.count(chr(10), 0, at) + 1}: {old} to {new}: {f'noticed by {by}' if by else 'UNNOTICED'}", flush=True)
    print(f"{room}: {noticed} of {tried} noticed ({len(every)} places)", flush=True)
    return noticed, tried


def main():
    rooms = sorted(path.name for path in (ROOT / "src").iterdir() if unit_programs(path.name)) + ["kernels"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", action="append", choices=rooms)
    parser.add_argument("-n", type=int, default=100, help="mutants of each room (100)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--integration", nargs="?", const="first", metavar="MARKS")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "blasd-mutants")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    copy = Copy(asked.work.resolve(), asked.jobs)
    sums = [try_room(copy, room, asked.n, asked.seed, asked.integration) for room in asked.room or rooms]
    print(f"mutants: {sum(a for a, _ in sums)} of {sum(b for _, b in sums)} noticed")


if __name__ == "__main__":
    main()
