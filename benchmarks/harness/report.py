"""What a benchmark reports: machine and versions beside every figure; tables for a terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import rich.table
from rich.console import Console

from benchmarks.harness.store import Result, System
from fullrank.measures import Estimate

_REPOSITORY = Path(__file__).resolve().parents[2]
SHARED, BUILT = _REPOSITORY.parent / "shared" / "data", _REPOSITORY / "out" / "data"
"""Where the collections are without FULLRANK_DATA: beside the repository, or where benchmarks.data.build writes."""


def find_data_folder() -> Path | None:
    """Return the folder of the collections: FULLRANK_DATA, else ../shared/data, else out/data."""
    given = os.environ.get("FULLRANK_DATA")
    places = [Path(given)] if given else [SHARED, BUILT]
    return next((place for place in places if place.is_dir()), None)


def data_folder() -> Path:
    """Return the folder of the collections; exit if there is none."""
    folder = find_data_folder()
    if folder is None:
        place = os.environ.get("FULLRANK_DATA") or SHARED
        sys.exit(
            f"no collections at {place}: set FULLRANK_DATA, or python -m benchmarks.data.build"
        )
    return folder


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """Describe processor, usable cores, memory, system, Python and versions of the named packages."""
    return {
        "processor": _cpuinfo("model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_at_start": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
    }


def _cpuinfo(field: str) -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    found = (line.split(":", 1)[1].strip() for line in lines if line.startswith(field))
    return next(found, None)


def seconds(call: Callable[[], object]) -> float:
    """Measure the wall time of one call in seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def numbers(text: str) -> list[int]:
    """Read integers with commas between them, as an option of a command. Raises ValueError."""
    return [int(part) for part in text.split(",")]


def show(result: Mapping[str, Any], as_json: bool) -> None:
    """Print a result as one JSON object, indented unless ``as_json``."""
    print(json.dumps(result, ensure_ascii=False, indent=None if as_json else 2))


NAMES = {
    "rank_loss": "rank loss %",
    "map": "MAP",
    "p@10": "P@10",
    "mrr": "MRR",
    "ndcg@1": "NDCG@1",
    "ndcg@3": "NDCG@3",
    "ndcg@10": "NDCG@10",
    "recall@100": "R@100",
}
SHOWN = ("rank_loss", "map", "p@10")
_PERCENT = ("rank_loss",)
NOTHING = "–"
NOT_THERE = "not there"
"""Why a system whose recipe does not exist is missing."""


@dataclass(frozen=True)
class Table:
    """Headings and rows of text. The first ``left`` columns and the last are words, the others figures."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    left: int = 1

    def show(self, console: Console) -> None:
        """Print the table to a terminal."""
        shown = rich.table.Table(title=self.title, title_style="", title_justify="left")
        for i, heading in enumerate(self.headings):
            words = i < self.left or i == len(self.headings) - 1
            shown.add_column(heading, justify="left" if words else "right")
        for row in self.rows:
            shown.add_row(*row)
        console.print(shown, markup=False)
        for note in self.notes:
            console.print(note, markup=False)

    def markdown(self) -> str:
        """Return title, table and notes as Markdown."""
        lines = [f"### {self.title}", "", _line(self.headings), _line(["---"] * len(self.headings))]
        lines += [_line(row) for row in self.rows]
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "title": self.title,
            "headings": list(self.headings),
            "rows": [list(row) for row in self.rows],
            "notes": list(self.notes),
            "left": self.left,
        }


def print_tables(tables: Sequence[Table], as_markdown: bool) -> None:
    """Print tables as Markdown, or to the terminal."""
    if as_markdown:
        print("\n\n".join(table.markdown() for table in tables))
        return
    screen = Console(highlight=False)
    if not screen.is_terminal:  # wide enough for any table
        screen = Console(highlight=False, width=220)
    for table in tables:
        table.show(screen)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def scale(measure: str) -> float:
    """Return the factor with which a measure is shown: rank loss is in percent."""
    return 100.0 if measure in _PERCENT else 1.0


def figure(value: Estimate | None, measure: str) -> str:
    """Format mean ± standard error."""
    if value is None:
        return NOTHING
    digits = 2 if measure in _PERCENT else 3
    mean, error = value.mean * scale(measure), value.standard_error * scale(measure)
    if np.isnan(error):
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def paper_figure(paper: Mapping[str, float], measure: str) -> str:
    """Format the figure of the paper, if there is one; stored as a fraction, shown in the measure's unit."""
    if measure not in paper:
        return NOTHING
    value = paper[measure] * scale(measure)
    return f"{value:.3g}" if measure in _PERCENT else f"{value:.3f}"


def settled(result: Result) -> str:
    """Describe the settings of a model in a few words."""
    model, train = result.facts["settings"]["model"], result.facts["settings"]["train"]
    words = []
    if model["latent"] != "none":
        words.append(f"N = {model['dimension']}")
    if model["latent"] == "lsi" and model["match"] != "none":
        words.append(f"α = {model['alpha']:g}")
    elif trials := result.facts["training"].get("trials"):
        words.append(max(trials, key=lambda trial: trial["map"])["overrides"].replace(",", ", "))
    training = result.facts["training"]
    if "best_epoch" in training:
        best, epochs = training["best_epoch"], len(training["history"])
        rising = best == epochs < train["epochs"]
        words.append(f"epoch {best} of {epochs}" + (", still rising" if rising else ""))
    return ", ".join(words) or NOTHING


def results_table(
    title: str,
    systems: Sequence[System],
    results: Mapping[str, Result],
    missing: Mapping[str, str],
    *,
    measures: Sequence[str] = SHOWN,
    paper: str = "paper",
) -> Table:
    """Return a row for each system in ``results`` or, with its reason, in ``missing``.

    paper  heading of the paper's figures; a measure that it does not report has no such column
    """
    headings = ["system", "W", *_headings(measures, systems, paper), "seconds", "settings"]
    rows, notes = [], []
    for system in systems:
        result = results.get(system.name)
        reason = missing.get(system.name)
        if result is None and reason is None:
            continue
        cells = [system.name, system.formula or NOTHING]
        for measure in measures:
            cells.append(figure(result.estimate(measure) if result else None, measure))
            if any(measure in s.paper for s in systems):
                cells.append(paper_figure(system.paper, measure))
        if result is None:
            cells += [NOTHING, NOT_THERE if reason == NOT_THERE else "failed"]
            notes += [] if reason == NOT_THERE else [f"{system.name}: {reason}"]
        else:
            cells += [f"{result.facts['fit_seconds']:.0f}", settled(result)]
        rows.append(cells)
    some = next(iter(results.values()), None)
    sizes = ""
    if some is not None:
        measured, total = some.facts["queries"], some.facts["queries_in_split"]
        sizes = f": {measured:,} of {total:,} queries, {some.facts['documents']:,} documents"
    return Table(title + sizes, headings, rows, notes, left=2)


def _headings(measures: Sequence[str], systems: Sequence[System], paper: str) -> list[str]:
    found = []
    for measure in measures:
        found.append(NAMES.get(measure, measure))
        if any(measure in system.paper for system in systems):
            found.append(paper)
    return found
