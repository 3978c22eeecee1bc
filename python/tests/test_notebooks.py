"""The notebooks of docs/notebooks run from top to bottom, and what they assert holds. With NOTEBOOKS, they are written there as they ran."""

from __future__ import annotations

import os
import pathlib

import nbclient
import nbformat
import pytest

HERE = pathlib.Path(__file__).resolve().parents[2] / "docs/notebooks"
NOTEBOOKS = sorted(path.name for path in HERE.glob("*.ipynb"))


def test_there_are_notebooks_and_they_have_no_outputs():
    assert len(NOTEBOOKS) >= 5
    for name in NOTEBOOKS:
        cells = nbformat.read(HERE / name, as_version=4).cells
        assert not any(cell.get("outputs") for cell in cells), f"{name}: clear its outputs; they are made where it is run"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, monkeypatch, tmp_path):
    command = pathlib.Path(os.environ.get("WIRERATE", "wirerate"))
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    # The kernel is that of this environment, and keeps nothing at home.
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(HERE / name, as_version=4)
    nbclient.NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(HERE)}}).execute()
    pictures = [output for cell in notebook.cells for output in cell.get("outputs", []) if "image/png" in output.get("data", {})]
    assert pictures, "it has no picture"
    if to := os.environ.get("NOTEBOOKS"):
        pathlib.Path(to).mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, pathlib.Path(to) / name)
