"""`make reproduce` prints every figure of the README's table of results."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import reproduce
from benchmarks.data import build
from benchmarks.reproduce import CELLS, COLUMNS, MEASURES, Step

ROOT = Path(__file__).resolve().parents[3]
HEADINGS = {
    "MiniLM, fine-tuned": "fine-tuned MiniLM",
    "MiniLM + BM25 with clicked text": "MiniLM fused with BM25 with clicked text",
    **{column: column for column in COLUMNS},
}
"""Heading of the README → column of the benchmark."""
COLD = ", pages that nobody clicked"


def readme_cells() -> set[tuple[str, str]]:
    """Row and heading of every cell with a figure, in the table whose first column is the collection."""
    blocks = (ROOT / "README.md").read_text().split("\n\n")
    [table] = [block for block in blocks if block.startswith("| collection |")]
    headings, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
    )
    return {
        (name.replace(COLD, " cold").partition(":")[0], heading)
        for name, *cells in rows
        for heading, cell in zip(headings[1:], cells, strict=True)
        if any(map(str.isdigit, cell))
    }


def test_every_figure_of_the_readme_has_a_command() -> None:
    cells = readme_cells()
    assert len(cells) >= 10
    without = {cell for cell in cells if (cell[0], HEADINGS.get(cell[1], "?")) not in CELLS}
    assert not without, "benchmarks/reproduce.py prints no such row or column"


def test_every_row_can_be_built() -> None:
    assert {row.split("/")[0].removesuffix(" cold") for row in MEASURES} <= set(build.SOURCES)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The commands that ran; each prints what its benchmark would."""
    for name in ("tldr/en", "debian"):
        (tmp_path / "data" / name).mkdir(parents=True)
    monkeypatch.setenv("FULLRANK_DATA", str(tmp_path / "data"))
    found: list[list[str]] = []

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        found.append(command)
        line = {"value": 0.4, "standard_error": 0.01, "bm25s": 0.2, "bm25s_standard_error": 0.02}
        row = command[command.index("--only") + 1] if "--only" in command else ""
        if row:
            return SimpleNamespace(stdout=json.dumps({"collections": {row: line}}), returncode=1)
        systems = command[command.index("--systems") + 1].split(",")
        lines = [{"system": s, "split": "test", "mrr": 0.3, "mrr_error": 0.005} for s in systems]
        return SimpleNamespace(stdout="\n".join(map(json.dumps, lines)), returncode=0)

    monkeypatch.setattr("benchmarks.reproduce.subprocess.run", run)
    return found


def test_the_table_is_printed_and_finished_commands_are_kept(
    runs: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--rows", "tldr/en,debian", "--out", str(tmp_path / "out")]
    reproduce.main(given)
    printed = capsys.readouterr().out
    plain, clicked = "0.300 ± 0.005", "0.300 ± 0.005"
    assert f"| tldr/en (MRR) | {plain} | {clicked} | not run | not run | 0.400 ± 0.010 |" in printed
    assert "| debian (MAP) | 0.200 ± 0.020 | – | – | – | 0.400 ± 0.010 |" in printed
    assert "`python -m benchmarks.performance.quality --json --only debian`" in printed
    assert len(runs) == 3
    assert all(command[0] == sys.executable for command in runs)
    reproduce.main([*given, "--minilm", "minilm/bin/python"])
    assert [command[0] for command in runs[3:]] == ["minilm/bin/python"] * 2
    assert "not run" not in capsys.readouterr().out


def test_rows_without_data_are_left_out(
    runs: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A source that is out of reach costs its own rows alone."""
    data = Path(os.environ["FULLRANK_DATA"])
    monkeypatch.setattr(reproduce, "find_data_folder", lambda: None)
    monkeypatch.setattr(reproduce, "BUILT", data)

    def refused(names: list[str], out: Path) -> None:
        assert out == data
        if names == ["wikispeedia"]:
            raise build.DownloadError("out of reach")

    monkeypatch.setattr(reproduce, "build", refused)
    reproduce.main(["--rows", "wikispeedia,debian", "--out", str(tmp_path / "out")])
    printed = capsys.readouterr()
    assert "| wikispeedia (MAP) | no data | – | – | – | no data |" in printed.out
    assert "| debian (MAP) | 0.200 ± 0.020 |" in printed.out
    assert "wikispeedia  reason out of reach" in printed.err
    assert len(runs) == 1


def test_a_failed_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, runs: list[list[str]], tmp_path: Path
) -> None:
    failed = SimpleNamespace(stdout="", returncode=3)
    monkeypatch.setattr("benchmarks.reproduce.subprocess.run", lambda *_, **__: failed)
    with pytest.raises(
        SystemExit, match=r"^python -m benchmarks\.performance\.quality .*: exit code 3$"
    ):
        reproduce.main(["--rows", "debian", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="no row 'shop'; there are: tldr/en"):
        reproduce.main(["--rows", "shop"])


def test_the_options_of_the_commands_exist() -> None:
    """Each command of the plan is understood by its module."""
    from benchmarks.peers import bm25, fusion, minilm
    from benchmarks.peers.protocol import parser
    from benchmarks.performance import quality

    for row in MEASURES:
        for step in reproduce.steps(row, Path("work")):
            check(step, {m.__name__: m for m in (bm25, fusion, minilm, quality)}, parser)


def check(step: Step, modules: dict[str, Any], parser: Any) -> None:
    module = modules[step.module]
    if step.module.endswith("quality"):
        assert step.row in module.FLOORS
        assert module.FLOORS[step.row].metric == MEASURES[step.row]
        return
    options = (
        modules["benchmarks.peers.minilm"].options()
        if step.needs_minilm
        else parser(module.__doc__)
    )
    if step.module.endswith("fusion"):
        options.add_argument("--tuned", action="store_true")
    given = options.parse_args(list(step.arguments))
    assert given.splits == "test"
    assert given.cold == step.row.endswith(" cold")
