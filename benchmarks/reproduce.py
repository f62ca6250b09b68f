"""The README's table of results, from nothing: `make reproduce`.

    python -m benchmarks.reproduce [--rows "tldr/en,debian"] [--minilm minilm/bin/python] [--out DIR] [--plan]

Uses the collections of FULLRANK_DATA, or builds what it can reach (benchmarks.data.build). Runs a command of BM25 and
one of Fullrank for each row, and prints the table as Markdown with the command of every figure. `--plan` prints the
commands alone.

The columns of MiniLM need PyTorch, and an hour of processor time a row. They run with --minilm, which names the Python
of an environment that has benchmarks/peers/requirements-minilm.txt, bm25s and Fullrank (see docs/results/peers.md).

What is finished is kept in --out (default out/reproduce), so that a stopped run continues. A command runs again if it
has changed, or the collection has.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.data.build import build
from benchmarks.harness.report import BUILT, NOTHING, Table, find_data_folder
from benchmarks.harness.store import folder_fingerprint, slug, write_json
from fullrank.errors import FullrankError
from fullrank.progress import Reporter

COLUMNS = (
    "BM25",
    "BM25 with clicked text",
    "fine-tuned MiniLM",
    "MiniLM fused with BM25 with clicked text",
    "Fullrank",
)
PLAIN, CLICKED, TUNED, FUSED, OURS = COLUMNS
COLD = " cold"
MEASURES = {
    "tldr/en": "mrr",
    "tldr/ko": "mrr",
    "wikispeedia": "map",
    "debian": "map",
    "tldr/en cold": "mrr",
    "tldr/ko cold": "mrr",
}
"""The rows, and the measure of each."""
WITH_MINILM = ("tldr/en", "tldr/en cold")
_REPOSITORY = Path(__file__).resolve().parents[1]
_NOT_RUN, _NO_DATA = "not run", "no data"


@dataclass(frozen=True)
class Step:
    """A command and the figures that it prints.

    Attributes:
        row: Name of the collection.
        module: Of the benchmark.
        arguments: Of the command.
        systems: Column → the system of the benchmark's output that it shows.
        needs_minilm: Whether it runs in the environment of MiniLM.
    """

    row: str
    module: str
    arguments: tuple[str, ...]
    systems: dict[str, str]
    needs_minilm: bool = False

    @property
    def command(self) -> str:
        """What to type to run it, from the root of the repository."""
        python = "minilm/bin/python" if self.needs_minilm else "python"
        return shlex.join([python, "-m", self.module, *self.arguments])


def steps(row: str, work: Path) -> Iterator[Step]:
    """Yield the commands of a row; those of MiniLM share vectors and a checkpoint in ``work``."""
    name = row.removesuffix(COLD)
    peer = ("--collection", name, *(["--cold"] if row.endswith(COLD) else []))
    quality = ("--json", "--only", row)
    # Whole documents as queries have no clicked text, and benchmarks.performance.quality measures BM25 beside them.
    if name.startswith("tldr"):
        systems = {PLAIN: "bm25s", CLICKED: "bm25s-clicked"}
        chosen = ("--systems", ",".join(systems.values()), "--splits", "test")
        yield Step(row, "benchmarks.peers.bm25", (*peer, *chosen), systems)
        yield Step(row, "benchmarks.performance.quality", quality, {OURS: "value"})
    else:
        systems = {PLAIN: "bm25s", OURS: "value"}
        yield Step(row, "benchmarks.performance.quality", quality, systems)
    if row in WITH_MINILM:
        options = ("--work", str(work), "--hours", "0.75", "--splits", "test")
        tuned = ("--systems", "minilm-tuned", "--set", "valid_minutes=4")
        module = "benchmarks.peers.minilm"
        yield Step(row, module, (*peer, *options, *tuned), {TUNED: "minilm-tuned"}, True)
        fused = ("--tuned", "--systems", "fusion-weighted")
        module = "benchmarks.peers.fusion"
        yield Step(row, module, (*peer, *options, *fused), {FUSED: "fusion-weighted"}, True)


CELLS = {
    (row, column) for row in MEASURES for step in steps(row, Path()) for column in step.systems
}
"""(row, column) of every figure that has a command."""


def figures(step: Step, lines: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Read the figures of a step from the JSON that it printed: column → mean ± standard error."""
    measure = MEASURES[step.row]
    found = {}
    for column, system in step.systems.items():
        if step.module == "benchmarks.performance.quality":
            line = lines[0]["collections"][step.row]
            prefix = "" if system == "value" else f"{system}_"
            mean, error = line[system], line[f"{prefix}standard_error"]
        else:
            [line] = [x for x in lines if (x["system"], x["split"]) == (system, "test")]
            mean, error = line[measure], line[f"{measure}_error"]
        found[column] = f"{mean:.3f} ± {error:.3f}"
    return found


def run_step(step: Step, python: str, data: Path, out: Path, report: Reporter) -> dict[str, str]:
    """Return the figures of a step, from an earlier run if nothing has changed. Exit if the command fails."""
    columns = "-".join(step.systems)
    file = out / f"{slug(f'{step.row} {columns}')}.json"
    key = [step.command, folder_fingerprint(data / step.row.removesuffix(COLD))]
    kept = json.loads(file.read_text()) if file.exists() else {}
    if kept.get("key") != key:
        report.log("run", command=step.command)
        command = [python, "-m", step.module, *step.arguments]
        environment = os.environ | {"FULLRANK_DATA": str(data)}
        done = subprocess.run(
            command, env=environment, cwd=_REPOSITORY, stdout=subprocess.PIPE, text=True
        )
        # The benchmark of quality exits with 1 if a figure is below its bar; it has printed all figures then.
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines or done.returncode > 1:
            sys.exit(f"{step.command}: exit code {done.returncode}")
        kept = {"key": key, "figures": figures(step, lines), "printed": lines}
        write_json(file, kept)
    found: dict[str, str] = kept["figures"]
    return found


def build_if_possible(name: str, report: Reporter) -> None:
    """Build a collection, or say why not; the rows of the others are measured all the same."""
    try:
        build([name], BUILT)
    except (FullrankError, OSError) as error:
        report.log("not built", collection=name, reason=str(error))


def table(found: dict[tuple[str, str], str], rows: Sequence[str], work: Path) -> str:
    """Return the table and the commands as Markdown."""
    lines = [
        [f"{row} ({MEASURES[row].upper()})", *(found.get((row, c), NOTHING) for c in COLUMNS)]
        for row in rows
    ]
    commands = [
        [row, ", ".join(step.systems), f"`{step.command}`"]
        for row in rows
        for step in steps(row, work)
    ]
    tables = (
        Table("Test splits, all documents as candidates", ["collection", *COLUMNS], lines),
        Table("Commands", ["collection", "columns", "command"], commands),
    )
    return "\n\n".join(each.markdown() for each in tables)


def main(arguments: Sequence[str] | None = None) -> None:
    """Build missing collections, run unfinished steps, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", help=f"comma-separated; default all: {', '.join(MEASURES)}")
    parser.add_argument("--minilm", metavar="PYTHON", help="of an environment that has MiniLM")
    parser.add_argument("--out", type=Path, default=_REPOSITORY / "out" / "reproduce")
    parser.add_argument("--plan", action="store_true", help="print the commands, run nothing")
    given = parser.parse_args(arguments)
    rows = given.rows.split(",") if given.rows else list(MEASURES)
    for row in rows:
        if row not in MEASURES:
            sys.exit(f"no row {row!r}; there are: {', '.join(MEASURES)}")
    # The commands run in the repository, and are printed so.
    work = Path(os.path.relpath(given.out.resolve() / "minilm", _REPOSITORY))
    planned = [step for row in rows for step in steps(row, work)]
    found = dict.fromkeys(((s.row, c) for s in planned for c in s.systems), _NOT_RUN)
    if not given.plan:
        data = find_data_folder() or BUILT
        with Reporter() as report:
            for name in dict.fromkeys(row.split("/")[0].removesuffix(COLD) for row in rows):
                if data == BUILT:
                    build_if_possible(name, report)
            for step in planned:
                if not (data / step.row.removesuffix(COLD)).is_dir():
                    found.update(dict.fromkeys(((step.row, c) for c in step.systems), _NO_DATA))
                elif given.minilm or not step.needs_minilm:
                    python = given.minilm if step.needs_minilm else sys.executable
                    for column, figure in run_step(step, python, data, given.out, report).items():
                        found[step.row, column] = figure
    print(table(found, rows, work))


if __name__ == "__main__":
    main()
