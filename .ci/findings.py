#!/usr/bin/env python3
"""clang-tidy's findings from standard input, but those of the list of exceptions; fails where one is left, or one of the list is not found."""
import re
import sys
from pathlib import Path

FINDING = re.compile(r"^(?:\./)?(\S+?):\d+:\d+: (?:warning|error): .*\[([\w.-]+)")
EXCEPTION = re.compile(r"^([^#\s]\S*) (\S+): \S")


def main(listed, lines):
    here = f"{Path.cwd()}/"
    exceptions = {found.groups() for line in Path(listed).read_text().splitlines() if (found := EXCEPTION.match(line))}
    met, left = set(), []
    for line in lines:
        found = FINDING.match(line.removeprefix(here))
        if not found:
            continue
        if found.groups() in exceptions:
            met.add(found.groups())
        elif line not in left:
            left.append(line)
    sys.stdout.writelines(left)
    stale = sorted(exceptions - met)
    for path, check in stale:
        print(f"{listed}: {path} {check}: no longer found")
    return 1 if left or stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.stdin))
