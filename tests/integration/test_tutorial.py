"""The tutorial's notebooks: they run as they stand in the repository, with small sizes (all with BLASD_TUTORIAL=full)."""
import json
import os
import pathlib
import re
import subprocess

import pytest
from service import ROOT

pytestmark = pytest.mark.full

FOLDER = ROOT / "docs/tutorial"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def cells(name):
    return json.loads((FOLDER / name).read_text())["cells"]


def source(cell):
    return "".join(cell["source"])


def test_there_is_one_for_each_case():
    assert [name.split("-")[1].removesuffix(".ipynb") for name in NOTEBOOKS] == ["products", "systems", "distances", "regression"]
    listed = re.findall(r"\]\((\d-\w+\.ipynb)\)", (FOLDER / "README.md").read_text())
    assert listed == NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(venv, service, name):
    python = venv("tutorial") / "bin/python"
    env = {**os.environ, "BLASD_URL": service.url, "PYTHONPATH": str(ROOT / "clients/python"), "MPLCONFIGDIR": str(service.folder)}
    done = subprocess.run([python, FOLDER / "run.py", name], env=env, capture_output=True, text=True, timeout=2000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = sum("plt.show()" in source(cell) for cell in cells(name))
    assert done.stdout == f"{name}: {shown} plots\n" and shown >= 2


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_with_its_outputs(name):
    """With all outputs and plots, small ones, and nothing that tells of the machine that it ran on."""
    text = (FOLDER / name).read_text()
    assert len(text) < 400_000
    for word in ("/tmp", "/home/", "/root/", str(pathlib.Path.home()), "site-packages", str(ROOT), "Traceback"):
        assert word == "/" or word not in text, word
    images = 0
    for number, cell in enumerate(code := [cell for cell in cells(name) if cell["cell_type"] == "code"], 1):
        assert cell["execution_count"] == number and set(cell["metadata"]) == set()
        kinds = [kind for output in cell["outputs"] for kind in output.get("data", {})]
        assert not any(output["output_type"] == "error" or output.get("name") == "stderr" for output in cell["outputs"])
        assert ("image/png" in kinds) == ("plt.show()" in source(cell)), source(cell)
        images += kinds.count("image/png")
    files = sorted(path.name for path in (FOLDER / "plots").glob(f"{name.removesuffix('.ipynb')}-*.png"))
    assert len(files) == images and all((FOLDER / "plots" / one).stat().st_size < 80_000 for one in files)
    assert "Where the bus was empty" in text and "print_account" in source(code[-1])
