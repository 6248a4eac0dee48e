"""Finds circles of files in the object files of a build: `make lint` runs this and prints nothing when there is none.

    objects.py BUILD

In no folder of src/ and kernels/ does a file want (`nm`) what another one defines that wants, by way of any others, what the
first defines. Why: a file is read, tested and replaced together with those below it alone.
"""
import collections
import pathlib
import subprocess
import sys

from lint import ROOT


def symbols(build):
    """For each source of src/ and kernels/ that was built: what it defines, and what it wants."""
    objects = {}
    for path in sorted(pathlib.Path(build).glob("obj/**/*.o")):
        source = path.relative_to(pathlib.Path(build) / "obj").with_suffix("")
        source = pathlib.Path(*source.parts[1:]) if source.parts[0] == "shim" else source
        if source.parts[0] in ("src", "kernels") and (ROOT / source).is_file():
            objects[str(path)] = source
    defines, wants = collections.defaultdict(set), collections.defaultdict(set)
    listing = subprocess.run(["nm", "-A", "--no-demangle", *objects], check=True, capture_output=True, text=True)
    for line in listing.stdout.splitlines():
        path, symbol = line.split(":", 1)
        kind, name = symbol[17:].split(" ")[:2]
        if kind == "U":
            wants[objects[path]].add(name)
        elif kind in "TDBRGSC":
            defines[objects[path]].add(name)
    return defines, wants


def circles(edges):
    """The sets of more than one node that all reach each other."""
    def reach(start):
        seen, todo = set(), [start]
        while todo:
            for other in edges[todo.pop()]:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return seen
    reached = {node: reach(node) for node in list(edges)}
    found = {frozenset(b for b in reached[a] if a in reached[b]) for a in reached}
    return [one for one in found if len(one) > 1]


def check_circles(build, complain):
    defines, wants = symbols(build)
    if not defines:
        complain(f"{build}: no object files of src/ and kernels/")
    folders = collections.defaultdict(set)
    for source in defines:
        folders[source.parent].add(source)
    for folder, files in sorted(folders.items()):
        owner = {name: source for source in files for name in defines[source]}
        edges = {s: {owner[n] for n in wants[s] if n in owner and owner[n] != s} for s in files}
        for circle in circles(edges):
            complain(f"{folder}: {' '.join(sorted(path.name for path in circle))} want each other")
            for a in sorted(circle):
                for b in sorted(edges[a] & circle):
                    wanted = sorted(n for n in wants[a] if owner.get(n) == b)
                    complain(f"    {a.name} -> {b.name}: {' '.join(wanted[:4])}")


def main():
    problems = []
    check_circles(sys.argv[1], problems.append)
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
