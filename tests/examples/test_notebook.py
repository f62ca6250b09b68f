"""The notebook runs from its first cell to its last, and its stored outputs are those of the cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.examples.notebook import run_cells

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"
MAX_BYTES = 200_000


def kinds(outputs: list[dict[str, Any]]) -> list[list[str]]:
    """The kinds of outputs; figures and names depend on the installed numpy and scipy."""
    return [sorted(output.get("data", {"text": ""})) for output in outputs]


@pytest.mark.sweep
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    notebook = json.loads(NOTEBOOK.read_text())
    for cell, outputs in run_cells(notebook):
        assert kinds(outputs) == kinds(cell["outputs"]), "".join(cell["source"])


def test_the_notebook_is_small_and_was_run_in_order() -> None:
    assert NOTEBOOK.stat().st_size < MAX_BYTES
    cells = [c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    plots = [out for cell in cells for out in cell["outputs"] if "data" in out]
    assert len(plots) == 2
