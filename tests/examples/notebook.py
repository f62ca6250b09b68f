"""Run the cells of a notebook as Jupyter would, in one namespace, and store what they print and plot.

    python -m tests.examples.notebook examples/notebook.ipynb

runs it anew and keeps its outputs.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib


def run_cells(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Run each cell of code; yield it and its outputs, in the notebook's own format."""
    matplotlib.use("agg")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            yield cell, _run("".join(cell["source"]), namespace)


def _run(source: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    from matplotlib import pyplot

    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(ast.parse(source), "<cell>", "exec"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    for number in pyplot.get_fignums():
        picture = io.BytesIO()
        pyplot.figure(number).savefig(picture, format="png", dpi=80, metadata={"Software": None})
        data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    pyplot.close("all")
    return outputs


def rewrite(path: Path) -> None:
    """Run a notebook and replace its outputs."""
    notebook = json.loads(path.read_text())
    for number, (cell, outputs) in enumerate(run_cells(notebook), 1):
        cell["execution_count"], cell["outputs"] = number, outputs
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]))
