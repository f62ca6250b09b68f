"""Verdicts on the papers' claims: the findings of all experiments in one list.

    python -m benchmarks.experiments.findings [--all] [--out DIR] [--json | --markdown]

Reads out/*/findings.json and trains nothing. A statement is reproduced if all its tests agree, not reproduced if none
does, else reproduced in part. ``--all`` prints every test.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.claims import FAILED, REPRODUCED, STATEMENTS, UNTESTED, findings_table
from benchmarks.harness.lab import RESULTS, read_findings
from benchmarks.harness.report import show
from benchmarks.harness.tables import Table, console


def gather(folder: Path) -> list[dict[str, Any]]:
    """Read the findings of all experiments, each with the name of its experiment."""
    return [
        {"experiment": path.parent.name, **finding}
        for path in sorted(folder.glob("*/findings.json"))
        for finding in read_findings(path)
    ]


def summarise(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Summarise the findings in one entry per statement, in the order of STATEMENTS."""
    lines = []
    for claim, statement in STATEMENTS.items():
        tests = [one for one in found if one["claim"] == claim and one["verdict"] != UNTESTED]
        held = [one for one in tests if one["verdict"] == REPRODUCED]
        verdict = "in part"
        if len(held) == len(tests):
            verdict = REPRODUCED if tests else UNTESTED
        elif not held:
            verdict = FAILED
        lines.append(
            {
                "claim": claim,
                "statement": statement,
                "verdict": verdict,
                "reproduced": len(held),
                "tests": len(tests),
                "experiments": sorted({one["experiment"] for one in tests}),
                "failed": [
                    f"{one['tested']} on {one['where']} ({one['measure']})"
                    for one in tests
                    if one["verdict"] != REPRODUCED
                ],
            }
        )
    return lines


def summary_table(lines: Sequence[Mapping[str, Any]]) -> Table:
    """Return the summary as a table."""
    rows = [
        [
            line["statement"],
            line["verdict"],
            f"{line['reproduced']} of {line['tests']}" if line["tests"] else "–",
            ", ".join(line["experiments"]) or "–",
            "; ".join(line["failed"]) or "–",
        ]
        for line in lines
    ]
    headings = ["statement", "verdict", "tests", "experiments", "where it does not hold"]
    return Table("What the papers found", headings, rows, left=2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the findings and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--markdown", action="store_true")
    parser.add_argument("--all", action="store_true", help="every test, not only the summary")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the experiments")
    given = parser.parse_args(arguments)

    found = gather(given.out)
    lines = summarise(found)
    if given.json:
        show({"benchmark": "findings", "statements": lines, "findings": found}, True)
        return
    tables = [summary_table(lines)]
    if given.all:
        for experiment in sorted({one["experiment"] for one in found}):
            tested = [one for one in found if one["experiment"] == experiment]
            tables.append(findings_table(tested, f"Tests of {experiment}"))
    if given.markdown:
        print("\n\n".join(table.markdown() for table in tables))
    else:
        screen = console()
        for table in tables:
            table.show(screen)


if __name__ == "__main__":
    main()
