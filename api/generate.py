#!/usr/bin/env python3
"""Writes api/openapi.json, which the server embeds, from api/openapi.yaml, which people edit.

Both are kept in the repository, so that a build needs no YAML library. `--check` writes nothing and
fails where the two differ.
"""
import json
import pathlib
import sys

import yaml

HERE = pathlib.Path(__file__).resolve().parent


def main():
    with open(HERE / "openapi.yaml", encoding="utf-8") as file:
        document = yaml.safe_load(file)
    text = json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
    target = HERE / "openapi.json"
    if "--check" in sys.argv[1:]:
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            sys.exit("api/openapi.json is not what api/openapi.yaml says: run api/generate.py")
    else:
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
