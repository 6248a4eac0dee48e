"""What the object files and the structs of a folder tell of it: `make lint` runs this over a build and prints
nothing when all holds.

    objects.py BUILD

- No circle of files in any folder of src/ and kernels/: what an object wants (`nm`) another one defines, and that
  one does not want, by way of any others, what the first defines.
- No struct of src/ has more than 24 members. An anonymous struct or union counts by what is in it.

CIRCLES and LARGE name what does not hold yet. They only shrink: an entry that is needed no more is an error.
"""
import collections
import pathlib
import re
import subprocess
import sys

from lint import ROOT, code, tracked

CIRCLES = {}  # folder -> files that are still in a circle
LARGE = set()  # structs with more than MOST_MEMBERS
MOST_MEMBERS = 24


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
    met = set()
    for folder, files in sorted(folders.items()):
        owner = {name: source for source in files for name in defines[source]}
        edges = {s: {owner[n] for n in wants[s] if n in owner and owner[n] != s} for s in files}
        for circle in circles(edges):
            names = {path.name for path in circle}
            allowed = CIRCLES.get(str(folder), set())
            met |= {(str(folder), n) for n in names & allowed}
            if names <= allowed:
                continue
            complain(f"{folder}: {' '.join(sorted(names))} want each other")
            for a in sorted(circle):
                for b in sorted(edges[a] & circle):
                    wanted = sorted(n for n in wants[a] if owner.get(n) == b)
                    complain(f"    {a.name} -> {b.name}: {' '.join(wanted[:4])}")
    for folder, names in CIRCLES.items():
        for name in sorted(n for n in names if (folder, n) not in met):
            complain(f".ci/objects.py: {folder}/{name} is in no circle any more: take it out of CIRCLES")


def closing(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return len(text)


def members(body):
    """How many members the text between the braces of a struct declares."""
    count, at = 0, 0
    while at < len(body):
        match = re.compile(r"\s*(?:struct|union|enum)\s*\w*\s*\{").match(body, at)
        if match:
            end = closing(body, match.end() - 1)
            rest = body[end + 1:body.find(";", end)]
            inner = body[match.end():end]
            count += 1 + rest.count(",") if rest.strip() else (0 if "enum" in match.group() else members(inner))
            at = body.find(";", end) + 1
            continue
        end = body.find(";", at)
        if end < 0:
            break
        flat = body[at:end]
        while re.search(r"\([^()]*\)|\[[^][]*\]", flat):
            flat = re.sub(r"\([^()]*\)|\[[^][]*\]", "", flat)
        count += 1 + flat.count(",") if flat.strip() else 0
        at = end + 1
    return count


def check_structs(complain):
    met = set()
    for path in tracked(".c", ".h"):
        if path.parts[0] != "src":
            continue
        text = code((ROOT / path).read_text())
        text = re.sub(r"^[ \t]*#(?:.*\\\n)*.*", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.M)
        for match in re.finditer(r"\b(?:struct|union)\s*(\w*)\s*\{", text):
            count = members(text[match.end():closing(text, match.end() - 1)])
            if count <= MOST_MEMBERS:
                continue
            met.add(match.group(1))
            if match.group(1) not in LARGE:
                line = text.count("\n", 0, match.start()) + 1
                complain(f"{path}:{line}: struct {match.group(1)} has {count} members (most: {MOST_MEMBERS}); "
                         "embed structs of one concern each")
    for name in sorted(LARGE - met):
        complain(f".ci/objects.py: struct {name} is not large any more: take it out of LARGE")


def main():
    problems = []
    check_circles(sys.argv[1], problems.append)
    check_structs(problems.append)
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
