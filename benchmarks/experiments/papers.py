"""Experiments of the papers: train their models on our collections and test what they claim.

    python -m benchmarks.experiments.papers [EXPERIMENT...] [--only COLLECTION,...] [--systems NAME,...]
        [--queries N] [--seconds S] [--set key=value]... [--seed 1] [--out DIR] [--fresh] [--json | --markdown]
    python -m benchmarks.experiments.papers verdicts [--out DIR] [--json | --markdown]

benchmarks.experiments.papers_tables declares the experiments: documents, studies, keywords, cross_language,
clickthrough; default all of them, then the verdicts. `verdicts` reads
out/*/findings.json and trains nothing: a statement is reproduced if all of its tests agree, not reproduced if none
does, else in part.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments.claims import (
    FAILED,
    REPRODUCED,
    STATEMENTS,
    UNTESTED,
    compare,
    findings_table,
)
from benchmarks.experiments.papers_tables import EXPERIMENTS, MARGINS, Part
from benchmarks.harness.lab import RESULTS, Lab, collection_folder, parser
from benchmarks.harness.report import Table, print_tables, results_table, show
from benchmarks.harness.store import Result, write_json

_SIGNS = {">": "beats", "≥": "equals", "≈": "alike"}
Finding = Mapping[str, Any]


def checks_of(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Read lines `claim: better > worse | worse`, with >, ≥ or ≈; yield (claim, better, worse, rule)."""
    for line in filter(None, map(str.strip, text.splitlines())):
        claim, _, rest = line.partition(": ")
        (sign,) = [sign for sign in _SIGNS if f" {sign} " in rest]
        better, _, others = rest.partition(f" {sign} ")
        for worse in others.split(" | "):
            yield claim, better, worse, _SIGNS[sign]


def run_part(lab: Lab, part: Part) -> tuple[Table, list[Finding]]:
    """Measure the systems of a part that --systems names; return its table and findings."""
    results: dict[str, Result] = {}
    missing: dict[str, str] = {}
    for task, system in part.runs:
        results |= lab.run(task, [system], part.measures.get(system.name))
        if reason := lab.missing.get((task.name, system.name)):
            missing[system.name] = reason
    systems = [system for _, system in part.runs]
    table = results_table(part.title, systems, results, missing, measures=part.shown)
    found: list[Finding] = [
        compare(
            claim, part.title, results, better, worse, measure,
            rule=rule, margin=MARGINS.get(claim, {}).get(measure, 0.0),
        )
        for claim, better, worse, rule in checks_of(part.checks)
        for measure in part.tested
    ]  # fmt: skip
    return table, found


def run(name: str, words: Sequence[str]) -> None:
    """Run an experiment, print its tables and keep its findings."""
    experiment = EXPERIMENTS[name]
    options = parser(
        __doc__,
        collections=experiment.collections,
        seconds=experiment.seconds,
        queries=experiment.queries,
        default=experiment.usual,
    )
    given = options.parse_args(words)
    folders = {only: collection_folder(only) for only in given.only}
    with Lab(name, given) as lab:
        parts = [
            run_part(lab, part)
            for only, folder in folders.items()
            for part in experiment.parts(lab, only, folder)
        ]
        found = [finding for _, findings in parts for finding in findings]
        keep(lab.store.folder / "findings.json", found, fresh=given.fresh)
        shown = [findings_table(found)] if any(f["verdict"] != UNTESTED for f in found) else []
        lab.tell([*(table for table, _ in parts), *shown], findings=found)


def keep(path: Path, found: Sequence[Finding], *, fresh: bool) -> None:
    """Merge findings into a file; those of systems that did not run now stay."""

    def place(finding: Finding) -> tuple[str, ...]:
        return tuple(str(finding[key]) for key in ("claim", "where", "tested", "measure"))

    kept = {} if fresh else {place(one): one for one in read_findings(path)}
    for one in found:
        if one["verdict"] != UNTESTED or place(one) not in kept:
            kept[place(one)] = one
    write_json(path, {"findings": list(kept.values())})


def read_findings(path: Path) -> list[Finding]:
    """Read the stored findings of an experiment; empty without results."""
    try:
        found: list[Finding] = json.loads(path.read_text("utf-8"))["findings"]
    except (OSError, ValueError, KeyError):
        return []
    return found


def summarise(found: Sequence[Finding]) -> list[dict[str, Any]]:
    """Summarise findings, each with its experiment, in one entry per statement, in the order of STATEMENTS."""
    lines = []
    for claim, statement in STATEMENTS.items():
        tests = [one for one in found if one["claim"] == claim and one["verdict"] != UNTESTED]
        failed = [one for one in tests if one["verdict"] != REPRODUCED]
        verdict = "in part" if failed else REPRODUCED
        if len(failed) == len(tests):
            verdict = FAILED if tests else UNTESTED
        lines.append(
            {
                "claim": claim,
                "statement": statement,
                "verdict": verdict,
                "reproduced": len(tests) - len(failed),
                "tests": len(tests),
                "experiments": sorted({one["experiment"] for one in tests}),
                "failed": [
                    f"{one['tested']} on {one['where']} ({one['measure']})" for one in failed
                ],
            }
        )
    return lines


def verdicts(words: Sequence[str]) -> None:
    """Read the findings of all experiments and print a line for each statement."""
    options = argparse.ArgumentParser(description="verdicts on the papers' claims")
    form = options.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--markdown", action="store_true")
    options.add_argument("--out", type=Path, default=RESULTS, help="folder of the experiments")
    given = options.parse_args(words)
    found = [
        {"experiment": path.parent.name, **finding}
        for path in sorted(given.out.glob("*/findings.json"))
        for finding in read_findings(path)
    ]
    lines = summarise(found)
    if given.json:
        show({"benchmark": "verdicts", "statements": lines, "findings": found}, True)
        return
    rows = [
        [
            line["statement"],
            line["verdict"],
            f"{line['reproduced']} of {line['tests']}" if line["tests"] else "–",
            ", ".join(line["experiments"]) or "–",
        ]
        for line in lines
    ]
    headings = ["statement", "verdict", "tests", "experiments"]
    print_tables([Table("What the papers found", headings, rows, left=2)], given.markdown)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the named experiments, or all and the verdicts."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    names = []
    while words and not words[0].startswith("-"):
        names.append(words.pop(0))
    for name in names:
        if name not in (*EXPERIMENTS, "verdicts"):
            sys.exit(f"no experiment {name!r}; there are: {', '.join(EXPERIMENTS)}, verdicts")
    for name in names or EXPERIMENTS:
        if name == "verdicts":
            verdicts(words)
        else:
            run(name, words)
    if not names:
        verdicts([])


if __name__ == "__main__":
    main()
