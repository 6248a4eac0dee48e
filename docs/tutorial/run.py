"""Runs the notebooks against the service of BLASD_URL and keeps them with their outputs, and their plots as files:

    BLASD_TUTORIAL=full python3 docs/tutorial/run.py [--keep] [NOTEBOOK]…

Needs nbclient, ipykernel, matplotlib and SciPy, and the blasd package on PYTHONPATH or installed. Without --keep nothing is
written: what fails is shown, and is the exit status.
"""
import argparse
import base64
import json
import pathlib
import sys

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HERE = pathlib.Path(__file__).resolve().parent


def execute(path, seconds):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=seconds, kernel_name="python3", resources={"metadata": {"path": str(HERE)}},
                   record_timing=False).execute()
    return notebook


def plots(notebook):
    """The plots of a notebook, as PNG."""
    return [base64.b64decode(output["data"]["image/png"]) for cell in notebook.cells if cell.cell_type == "code"
            for output in cell.outputs if "image/png" in output.get("data", {})]


def keep(path, notebook):
    """Without what tells of the machine: versions, and what libraries say on standard error, with their paths; the plots
    beside it."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.metadata = {}
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                         "language_info": {"name": "python"}}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    for number, image in enumerate(plots(notebook), 1):
        (HERE / "plots").mkdir(exist_ok=True)
        (HERE / "plots" / f"{path.stem}-{number}.png").write_bytes(image)


def main():
    parser = argparse.ArgumentParser(description="Runs the notebooks of the tutorial.")
    parser.add_argument("notebooks", nargs="*", help="some of them; all where none is named")
    parser.add_argument("--keep", action="store_true", help="writes the notebooks with their outputs, and their plots")
    parser.add_argument("--seconds", type=int, default=1800, help="for each cell (1800)")
    chosen = parser.parse_args()
    failed = False
    for path in [HERE / pathlib.Path(name).name for name in chosen.notebooks] or sorted(HERE.glob("*.ipynb")):
        try:
            notebook = execute(path, chosen.seconds)
        except CellExecutionError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            failed = True
            continue
        print(f"{path.name}: {len(plots(notebook))} plots")
        if chosen.keep:
            keep(path, notebook)
    sys.exit(failed)


if __name__ == "__main__":
    main()
