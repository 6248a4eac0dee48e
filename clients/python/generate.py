#!/usr/bin/env python3
"""Writes blasd/operations.py: the clients' methods, one for each operation, from api/operations.json.

`make generated` runs it; `--check` writes nothing and fails where the file is not what this would write. What NumPy calls
otherwise than the service stands in NUMPY, what is done to arguments and results by hand in blasd/named.py.
"""
from __future__ import annotations

import json
import pathlib
import sys
import textwrap
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE / "blasd" / "operations.py"
WIDTH = 120
TYPES = {"bool": "bool", "int": "int", "float": "float", "choice": "str"}
BY = ("by", "Any",
      ("A label for each row, of any hashable type, as an alternative to row_splits: one fit for each label, in the order of their first rows. The Result has them as `groups`; residuals and fitted come in the order of the rows given."))
UPLO = ("UPLO", "str | None", "uplo by NumPy's word for it, L or U.")
# by method: parameters that NumPy takes by position, then arguments that it has beside (name, type, text); `op` and `fixed`
# where the method is one of another operation; what it returns, unless nothing shorter than Any says it
NUMPY: dict[str, dict[str, Any]] = {
    "eigh": {"type": "EighResult", "more": [UPLO], "text": "As numpy.linalg.eigh: (eigenvalues, eigenvectors)."},
    "eigvalsh": {"op": "eigh", "fixed": {"vectors": False}, "type": "Array", "more": [UPLO], "text": "As numpy.linalg.eigvalsh."},
    "svd": {"type": "SVDResult | Array", "by_place": ["full_matrices", "compute_uv"], "text": "As numpy.linalg.svd: (U, S, Vh), or S alone."},
    "qr": {"type": "QRResult | Array", "by_place": ["mode"], "text": 'As numpy.linalg.qr: (Q, R), or R alone with mode "r".'},
    "cholesky": {"type": "Array", "text": "As numpy.linalg.cholesky."},
    "lstsq": {"type": "LstsqResult", "by_place": ["rcond"], "text": "As numpy.linalg.lstsq: (x, residuals, rank, s); for stacks, too, where "
                                             "residuals are there whatever the rank."},
    "matmul": {"type": "Array", "text": "Returns an array."},
    "solve": {"type": "Array", "text": "Returns an array."},
    "factor": {"type": "Result", "text": "Returns the Result: factor for solve, rcond."},
    "distance": {"text": "Returns an array, or the Result if the output also has an index."},
    "regression": {"type": "RegressionResult", "more": [BY], "text": "Returns the Result, which print shows as a table."},
}
def signature(client: str, name: str, op: dict[str, Any]) -> str:
    """`def NAME(…) -> …:`, in lines that fit."""
    more = NUMPY.get(name, {})
    by_place = more.get("by_place", [])
    params = {param["name"]: f"{TYPES[param['type']]} | None = None" for param in op["params"]
              if param["name"] not in more.get("fixed", {})}
    words = ["self"]
    first = next((i for i, port in enumerate(op["inputs"]) if port["optional"]), len(op["inputs"]))
    words += [f"{port['name']}: Any" + (" = None" if i >= first else "") for i, port in enumerate(op["inputs"])]
    words += [f"{param}: {params.pop(param)}" for param in by_place]
    words += [f"{argument}: {kind} = None" for argument, kind, _ in more.get("more", [])]
    words += ["*"] * bool(params) + [f"{param}: {kind}" for param, kind in params.items()]
    words += ["**options: Unpack[Options]"]
    taken = [word.split(":")[0] for word in words]
    assert len(set(taken)) == len(taken), f"{name}: {taken} has a name twice"
    head = f"    {'async ' if client == 'AsyncClient' else ''}def {name}("
    return wrapped(head, words, f") -> {more.get('type', 'Result' if name not in NUMPY else 'Any')}:")


def wrapped(head: str, words: list[str], tail: str) -> str:
    lines = textwrap.wrap(", ".join(word.replace(" ", "\0") for word in words) + tail.replace(" ", "\0"), WIDTH - len(head),
                          break_long_words=False, break_on_hyphens=False)
    return head + ("\n" + " " * len(head)).join(lines).replace("\0", " ")


def paragraph(text: str, hanging: bool = False) -> list[str]:
    lines = textwrap.wrap(text.replace("\\", "\\\\"), WIDTH - 8, break_long_words=False, break_on_hyphens=False,
                          subsequent_indent="    " if hanging else "")
    return [" " * 8 + line for line in lines]


def described(param: dict[str, Any]) -> str:
    text = f"{param['name']}: {param['doc']}"
    if param["type"] == "choice":
        text += f" One of {', '.join(param['choices'])}."
    preset = param["default"]
    return f"{text} Default: {str(preset).lower() if isinstance(preset, bool) else preset}."


def docstring(client: str, name: str, op: dict[str, Any]) -> list[str]:
    if client == "AsyncClient":
        return [f'        """See Client.{name}."""']
    more = NUMPY.get(name, {})
    lines = paragraph(f'"""{op["summary"]}. {more.get("text", "Returns the Result.")}') + [""]
    for part in op["doc"].split("\n"):
        lines += paragraph(part)
    lines.append("")
    for port in op["inputs"]:
        lines += paragraph(f"{port['name']}: {port['doc']} Shape {port['shape']}.", True)
    for param in op["params"]:
        if param["name"] not in more.get("fixed", {}):
            lines += paragraph(described(param), True)
    for argument, _, text in more.get("more", []):
        lines += paragraph(f"{argument}: {text}", True)
    return lines + ["", "        options: as run takes them.", '        """']


def body(client: str, name: str, op: dict[str, Any]) -> list[str]:
    more = NUMPY.get(name, {})
    fixed = more.get("fixed", {})
    inputs = ", ".join(f"{port['name']}={port['name']}" for port in op["inputs"])
    params = ", ".join([f"{param['name']}={fixed.get(param['name'], param['name'])}" for param in op["params"]] +
                       [f"{argument}={argument}" for argument, _, _ in more.get("more", [])])
    wait = "await " if client == "AsyncClient" else ""
    kind = more.get("type", "Result" if name not in NUMPY else None)
    head = f"        value: {kind} = {wait}self._named(" if kind else f"        return {wait}self._named("
    words = [f'"{more.get("op", name)}"', *f"given({inputs})".split(", "), *f"given({params})".split(", "),
             "**options"]
    return [wrapped(head, words, ")"), *(["        return value"] if kind else [])]


def method(client: str, name: str, op: dict[str, Any]) -> str:
    return "\n".join([signature(client, name, op), *docstring(client, name, op), *body(client, name, op)])


HEAD = '''"""The methods of both clients, one for each operation. Generated by ../generate.py from the operations' descriptors: do not
edit; `make generated` writes it anew. What is done by hand to arguments and results stands in named.py."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .arrays import Array

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .named import EighResult, LstsqResult, Options, QRResult, SVDResult
    from .results import RegressionResult, Result

# what inputs may be made of
'''

PORTS = '''# the inputs of the operations, in the order in which they may be given without their names: the shape in words, the least and
# the most dimensions, and the dtypes
PORTS: dict[str, dict[str, tuple[str, int, int, tuple[str, ...]]]] = {
'''

CLASS = '''

class {name}:
    """The methods of {client} for single operations."""

    {wait}def _named(self, op: str, inputs: dict[str, Any], params: dict[str, Any], **options: Any) -> Any:
        raise NotImplementedError

'''


def text_of(ops: list[dict[str, Any]]) -> str:
    by_name = {op["name"]: op for op in ops}
    methods = {name: NUMPY.get(name, {}).get("op", name) for name in sorted({*by_name, *NUMPY})}
    kinds = dict.fromkeys(tuple(port["dtypes"]) for op in ops for port in op["inputs"])
    names = {kind: f"_KIND{number}" for number, kind in enumerate(kinds, 1)}
    text = HEAD + "".join(wrapped(f"{name} = (", [json.dumps(dtype) for dtype in kind], ",)") + "\n" for kind, name in names.items())
    text += PORTS
    for name, op in by_name.items():
        ports = [f"{json.dumps(port['name'])}: ({json.dumps(port['shape'])}, {port['min_rank']}, {port['max_rank']}, "
                 f"{names[tuple(port['dtypes'])]})" for port in op["inputs"]]
        text += wrapped(f"    {json.dumps(name)}: {{", ports, "},") + "\n"
    text += "}\nINPUTS: dict[str, tuple[str, ...]] = {op: tuple(ports) for op, ports in PORTS.items()}\n"
    text += '''

def given(**values: Any) -> dict[str, Any]:
    """The arguments that are given."""
    return {name: value for name, value in values.items() if value is not None}
'''
    for name, client, wait in (("Operations", "Client", ""), ("AsyncOperations", "AsyncClient", "async ")):
        text += CLASS.format(name=name, client=client, wait=wait)
        text += "\n\n".join(method(client, one, by_name[op]) for one, op in methods.items() if op in by_name) + "\n"
    return text


def main() -> None:
    ops = json.loads((HERE.parent.parent / "api" / "operations.json").read_text(encoding="utf-8"))["ops"]
    text = text_of(ops)
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        sys.exit("clients/python/blasd/operations.py is not what api/operations.json says: run make generated")


if __name__ == "__main__":
    main()
