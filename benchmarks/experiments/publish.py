"""Write what the experiments have kept into docs/results.md: tables, findings, plots, machine and settings.

    python -m benchmarks.experiments.publish [EXPERIMENT ...] [--out DIR] [--docs DIR]

Reads out/<experiment>/summary.json, which every experiment's last run leaves there, and replaces what stands between
``<!-- begin EXPERIMENT -->`` and ``<!-- end EXPERIMENT -->``; the ``findings`` block gets the summary of all. Plots are
copied to docs/plots/. Runs nothing, and leaves the block of an experiment that has not run as it is.
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

DOCS = Path(__file__).resolve().parents[1] / "docs"


def conditions(summary: Mapping[str, Any]) -> str:
    """Where and with what an experiment ran, in one paragraph."""
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
    """The Markdown of an experiment, None where it has not run. Copies its plots."""
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the blocks that are asked for, by default all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the experiments")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of results.md")
    given = parser.parse_args(arguments)

    page = given.docs / "results.md"
    text = page.read_text("utf-8")
    there = re.findall(r"<!-- begin (\w+) -->", text)
    for experiment in given.experiments or there:
        if experiment not in there:
            sys.exit(f"{page} has no block {experiment!r}; there are: {', '.join(there)}")
        filled = block(experiment, given.out, given.docs)
        if filled is None:
            print(f"{experiment}: has not run", file=sys.stderr)
            continue
        begin, end = f"<!-- begin {experiment} -->", f"<!-- end {experiment} -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            sys.exit(f"{page}: no {end}")
        text = f"{before}{begin}\n\n{filled}\n\n{end}{after}"
        print(f"{experiment}: filled", file=sys.stderr)
    page.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
