"""Write the stored results of the experiments into docs/results/, one page per experiment.

    python -m benchmarks.experiments.publish [EXPERIMENT ...] [--out DIR] [--docs DIR]

Reads out/<experiment>/summary.json, which the last run of each experiment wrote, and replaces the text between
``<!-- begin EXPERIMENT -->`` and ``<!-- end EXPERIMENT -->`` of docs/results/<experiment>.md with the tables, findings,
machine and settings. The page ``findings`` gets the verdicts of all experiments. Plots go to docs/results/plots/.
Trains and measures nothing, and leaves the page of an experiment without results unchanged.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments.findings import gather, summarise, summary_table
from benchmarks.harness.claims import findings_table
from benchmarks.harness.lab import RESULTS
from benchmarks.harness.tables import Table

DOCS = Path(__file__).resolve().parents[2] / "docs" / "results"
BEGIN = re.compile(r"<!-- begin (\w+) -->")


def conditions(summary: Mapping[str, Any]) -> str:
    """Describe the machine and the settings of an experiment in one paragraph."""
    machine, settings = summary["machine"], summary["settings"]
    versions = ", ".join(
        f"{name} {version}" for name, version in machine["versions"].items() if name != "fullrank"
    )
    queries = f"at most {settings['queries']:,}" if settings["queries"] else "all"
    limit = f"at most {settings['seconds']:g} s a fit" if settings["seconds"] else "no time limit"
    changed = f", {', '.join(settings['overrides'])}" if settings["overrides"] else ""
    return (
        f"Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"Python {machine['python']}, {versions}. Settings: {queries} test queries, "
        f"seed {settings['seed']}, {limit}{changed}."
    )


def block(experiment: str, out: Path, docs: Path) -> str | None:
    """Return the Markdown of an experiment, None without results. Copy its plots."""
    if experiment == "findings":
        found = gather(out)
        return summary_table(summarise(found)).markdown() if found else None
    try:
        summary = json.loads((out / experiment / "summary.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    parts = [conditions(summary)]
    parts += [Table(**table).markdown() for table in summary["tables"]]
    if summary["findings"]:
        parts.append(findings_table(summary["findings"]).markdown())
    for plot in map(Path, summary["plots"]):
        name = plot.name if plot.parent == out / experiment else f"{plot.parent.name}-{plot.name}"
        target = docs / "plots" / f"{experiment}-{name}"
        if plot.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(plot, target)
            parts.append(f"![{experiment}: {Path(name).stem}](plots/{target.name})")
    return "\n\n".join(parts)


def replace_block(page: Path, experiment: str, markdown: str) -> None:
    """Replace the generated block of a page; exit if its end marker is missing."""
    begin, end = f"<!-- begin {experiment} -->", f"<!-- end {experiment} -->"
    before, _, rest = page.read_text("utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"{page}: the marker {end} is missing; add it below {begin}")
    page.write_text(f"{before}{begin}\n\n{markdown}\n\n{end}{after}", "utf-8")


def pages_with_blocks(docs: Path) -> dict[str, Path]:
    """Map each experiment to its page: those pages that hold a block of their own name."""
    return {
        page.stem: page
        for page in sorted(docs.glob("*.md"))
        if page.stem in BEGIN.findall(page.read_text("utf-8"))
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the pages of the named experiments, by default of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the experiments")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the pages")
    given = parser.parse_args(arguments)

    pages = pages_with_blocks(given.docs)
    for experiment in given.experiments or pages:
        if experiment not in pages:
            sys.exit(f"{given.docs} has no page {experiment!r}; pages: {', '.join(pages)}")
        filled = block(experiment, given.out, given.docs)
        if filled is None:
            print(f"{experiment}: no results", file=sys.stderr)
            continue
        replace_block(pages[experiment], experiment, filled)
        print(f"{experiment}: published", file=sys.stderr)


if __name__ == "__main__":
    main()
