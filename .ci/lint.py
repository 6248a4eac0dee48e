"""The rules of the tree that no compiler checks: `make lint` runs this and prints nothing when all hold. Each with its reason.

- A file includes its own folder or a lower floor: a floor is tested, and replaced, without those above it.
- hiredis, microhttpd, jansson, curl and zlib are known in their own folders: a library can be changed for another in one place.
- Only src/main may exit (and the naive references, which only tests run): what a user sends ends no process.
- Calls that cannot be bounded are banned in src, kernels and clients: they meet a user's bytes.
- Basenames are unique: logs, failures and archives name a file by its basename.
- No file has more than 800 lines: one that does holds more than one concern.
- A source begins with a comment: folders have no other list of what their files are.
- A kernel has __launch_bounds__: without, a compiler may give it more registers than a launch of that many threads can have.
- The clients have the version in VERSION: they are packed apart, and say it to the service.
- The choices of a parameter have one entry for each name of their enum, in its order: one out of place computes another thing.
- docs/architecture.md names functions and files that exist: otherwise a renamed function goes unnoticed.
- Documents and subjects of commits follow the rules of language in CONTRIBUTING.md (words.py).
"""
import collections
import pathlib
import re
import subprocess
import sys

import words

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLOORS = {"base": 0, "core": 1, "wire": 2, "store": 2, "redis": 2, "auth": 2, "trace": 2, "outgoing": 2, "kernels": 2, "queue": 3, "oip": 3, "http": 4,
          "worker": 4, "main": 5}
HEADERS = {  # header -> the only folders that may include it
    r"(hiredis/)?(hiredis|hiredis_ssl|async|read|sds)\.h": {"src/redis", "src/queue"},
    r"openssl/.*": {"src/redis"},
    r"microhttpd\.h": {"src/http"},
    r"jansson\.h": {"src/auth", "src/trace", "src/wire", "src/oip", "src/http", "src/main", "src/worker", "clients/c", "clients/cli"},
    r"gnutls/.*": {"src/http"},
    r"rhonabwy\.h": {"src/auth"},
    r"sodium\.h": {"src/auth", "src/worker"},
    r"curl/.*": {"clients/c", "src/auth", "src/main", "src/outgoing", "src/trace"},
    r"zlib\.h": {"src/http"},
}
BANNED = r"\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|alloca|system|popen|atoi|atof|asctime|ctime)\s*\("
MOST_LINES = 700


def tracked(*endings):
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split("\n")
    return [pathlib.Path(n) for n in names if n.endswith(endings) and (ROOT / n).is_file()]


def code(text):
    """The text without comments and strings, line by line as it was."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def floor_of(path):
    parts = path.parts
    if parts[0] == "kernels":
        return "kernels"
    return parts[1] if parts[0] == "src" else None


def check_includes(path, text, complain):
    mine = floor_of(path)
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
        if not match:
            continue
        header = match.group(1)
        for pattern, folders in HEADERS.items():
            if re.fullmatch(pattern, header) and path.parts[0] in ("src", "kernels", "clients") \
                    and not any(str(path).startswith(f + "/") for f in folders):
                complain(f"{path}:{number}: only {', '.join(sorted(folders))} may include <{header}>")
        theirs = header.split("/")[0]
        if mine is None or theirs not in FLOORS:
            continue
        if theirs != mine and FLOORS[theirs] >= FLOORS[mine]:
            complain(f"{path}:{number}: {mine} (floor {FLOORS[mine]}) may not include "
                     f"\"{header}\" (floor {FLOORS[theirs]})")


def alike(position, name):
    """PARAM_UPLO and uplo; BLASD_EIGH_VALUES and eigenvalues."""
    words, name = position.split("_"), name.upper()
    return bool(set(words) & set(name.split("_"))) or words[-1] in name


def check_choices(path, text, enums, complain):
    """enums: the names of each. A table without positions may have one entry at most."""
    for match in re.finditer(r"static const char \*const (\w+)\[\] = \{([^}]*)\}", text):
        table, body = match.groups()
        if "#define" in body:  # made by the macro that makes the enum
            continue
        entries = re.findall(r'\[(\w+)\]\s*=\s*"(\w+)"', body)
        positions = [position for position, _ in entries]
        if len(entries) != body.count('"') // 2 and body.count('"') > 2:
            complain(f"{path}: {table} has entries without a position of an enum")
        elif positions and positions not in enums:
            complain(f"{path}: {table} and its enum differ: {', '.join(positions)}")
        for position, name in entries:
            if not alike(position, name):
                complain(f"{path}: {table} has {name} at {position}")


def check_operations(sources, complain):
    for path in (p for p in sources if re.fullmatch(r"kernels/(\w+)/op_\1\.c", str(p))):
        texts = [code((ROOT / p).read_text()) for p in sources if p.parent == path.parent and p.suffix == ".h"] + [code((ROOT / path).read_text())]
        bodies = [body for text in texts for body in re.findall(r"\benum\b[^{};]*\{([^}]*)\}", text)]
        check_choices(path, (ROOT / path).read_text(), [re.findall(r"\w+", body) for body in bodies], complain)


def check_architecture(sources, complain):
    page = pathlib.Path("docs/architecture.md")
    text = (ROOT / page).read_text()
    defined = collections.defaultdict(list)
    for path in sources:
        if path.parts[0] in ("src", "kernels"):
            # a definition begins its line, and its line or the next ones open the body
            for name in re.findall(r"^\w[^;=\n(]*?\b(\w+)\([^;{]*\)\s*\{", code((ROOT / path).read_text()), flags=re.M):
                defined[name].append(str(path))
    for name in sorted(set(re.findall(r"`(\w+)\(\)`", text)) - set(defined)):
        complain(f"{page}: there is no function {name}")
    registered = (ROOT / "src/queue/functions/register.lua").read_text()
    protocol = text[text.index("## The protocol"):text.index("## Glossary")]
    functions = set(re.findall(r"^add\('(\w+)'", registered, flags=re.M))
    told = {name for row in re.findall(r"^\| (`[^|]*) \|", protocol, flags=re.M) for name in re.findall(r"`(\w+)`", row)}
    for name in sorted(told - functions):
        complain(f"{page}: no function {name} is registered in Redis")
    for name in sorted(functions - told):
        complain(f"{page}: the function {name} of Redis is not in the table")
    files = [str(p) for p in tracked(".c", ".lua")]
    for row in re.findall(r"^\|.*\|$", text, flags=re.M):
        named = re.findall(r"`((?:[a-z]+/)?[a-z_]+\.(?:c|lua))`", row)
        for file in named:
            if not any(path.endswith("/" + file) for path in files):
                complain(f"{page}: there is no file {file}")
        for name in re.findall(r"`(\w+)\(\)`", row) if named else ():
            if not any(path.endswith("/" + file) for path in defined.get(name, ()) for file in named):
                complain(f"{page}: {name} is in none of {', '.join(named)}")


def main():
    problems = []
    complain = problems.append
    sources = tracked(".c", ".h", ".def", ".cc", ".cu", ".cuh")
    for path in sources:
        raw = (ROOT / path).read_text()
        text = code(raw)
        check_includes(path, raw, complain)
        for number, line in enumerate(text.split("\n"), 1):
            if path.parts[0] in ("src", "kernels", "clients") and re.search(BANNED, line):
                complain(f"{path}:{number}: banned call: {line.strip()[:60]}")
            if path.parts[0] in ("src", "kernels") and floor_of(path) != "main" \
                    and not path.name.startswith("ref_") and re.search(r"\b(exit|abort)\s*\(", line):
                complain(f"{path}:{number}: only src/main may end the process")
        if path.parts[0] == "kernels" and not path.name.startswith("library_"):
            for match in re.finditer(r"__global__\s+void\s+(?!__launch_bounds__)(\w+)", text):
                complain(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match.group(1)} has no __launch_bounds__")
        if raw.count("\n") > MOST_LINES:
            complain(f"{path}: {raw.count(chr(10))} lines; split it (most: {MOST_LINES})")
        if not re.match(r"\s*(/\*|//)", raw):
            complain(f"{path}:1: a file begins with a comment that says what it is")
    check_architecture(sources, complain)
    check_operations(sources, complain)
    words.check(complain)
    version = (ROOT / "VERSION").read_text().strip()
    header = (ROOT / "clients/c/blasd.h").read_text()
    parts = [re.search(rf"BLASD_VERSION_{part} (\d+)", header).group(1) for part in ("MAJOR", "MINOR", "PATCH")]
    if ".".join(parts) != version:
        complain(f"clients/c/blasd.h: its version is {'.'.join(parts)}, not {version}, as VERSION says")
    package = pathlib.Path("clients/python/blasd/__init__.py")
    if f'__version__ = "{version}"' not in (ROOT / package).read_text():
        complain(f"{package}: __version__ is not {version}, as VERSION says")
    names = collections.Counter(p.name for p in sources)
    for path in sources:
        if names[path.name] > 1:
            complain(f"{path}: the name {path.name} is used {names[path.name]} times")
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
