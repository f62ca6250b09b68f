"""Text folding: queries that write a word in another way than the document does, in 32 languages.

    python -m benchmarks.experiments.folding [--split test] [--json | --markdown]

The collection `folding_set` was written for this measurement: short documents, and queries with one right answer each,
by language and by phenomenon. Queries of the phenomenon "exact" ask for one of two words that differ in an accent only.
The split `valid` may be looked at to choose settings, the split `test` not.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.peers import bm25s_measures
from benchmarks.harness.report import show
from benchmarks.harness.tables import Table, console
from fullrank.measures import Float64
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.judgement import Judgement, judge
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.train import Trainer

FOLDER = Path(__file__).parent / "folding_set"
DEPTH = 10
SYSTEMS = ("bm25s", "bm25 without folding", "bm25")

Found = Mapping[str, Sequence[int]]
"""System → the rank of the answer of each query, from 1; 0: not among the first DEPTH."""


def facts_of_queries() -> dict[str, dict[str, str]]:
    """Return query id → its line: text, language, phenomenon."""
    lines = (FOLDER / "queries.jsonl").read_text("utf-8").splitlines()
    return {line["_id"]: line for line in map(json.loads, lines)}


def measure(split: str) -> tuple[list[Judgement], Found]:
    """Rank the queries of a split by every system."""
    collection = read_collection(FOLDER)
    judgements, _ = judge(collection, split, [])
    peer = bm25s_measures(collection, judgements, depth=DEPTH, threads=1)
    trainer = Trainer(collection, Reporter(quiet=True), Path(), "folding", 1, 1, False)
    return judgements, {
        "bm25s": _ranks(peer["mrr"]),
        "bm25 without folding": _fullrank(
            trainer,
            judgements,
            ["spelling=0", "title=1", "title_forms=false", "folded=0", "plurals=0"],
        ),
        "bm25": _fullrank(trainer, judgements, ["spelling=0", "title=1", "title_forms=false"]),
    }


def _ranks(reciprocal: Float64) -> list[int]:
    return [round(1 / value) if value else 0 for value in reciprocal.tolist()]


def _fullrank(trainer: Trainer, judgements: Sequence[Judgement], changes: list[str]) -> list[int]:
    """Rank by the recipe bm25 with changes, through the code that serves."""
    fitted = trainer.fit(load_recipe("bm25").override(changes), 0, 0.0).fitted
    retriever = Retriever(fitted.documents, fitted.model.scorer(fitted.documents))
    facts = facts_of_queries()
    queries = fitted.model.encode_queries([facts[j.query]["text"] for j in judgements])
    ranks = []
    for judgement, ranking in zip(judgements, retriever.search(queries, DEPTH), strict=True):
        # A document without any word of the query is not found, although it has a rank.
        found = ranking.rows[ranking.scores > 0].tolist()
        [answer] = judgement.relevant.tolist()
        ranks.append(found.index(answer) + 1 if answer in found else 0)
    return ranks


def table(title: str, key: str, judgements: Sequence[Judgement], found: Found) -> Table:
    """Make a table of the answers found, and of those found first, by a fact of the queries; "all" is last."""
    facts = facts_of_queries()
    groups: dict[str, list[int]] = {}
    for i, judgement in enumerate(judgements):
        groups.setdefault(facts[judgement.query][key], []).append(i)
    rows = [
        [name, str(len(places)), *_cells(found, places)] for name, places in sorted(groups.items())
    ]
    rows.append(["all", str(len(judgements)), *_cells(found, range(len(judgements)))])
    return Table(title, [key, "queries", *SYSTEMS], rows)


def _cells(found: Found, places: Sequence[int]) -> list[str]:
    """Return "found@10 / found first" of each system, in percent."""
    cells = []
    for system in SYSTEMS:
        ranks = [found[system][i] for i in places]
        shares = [sum(map(bool, ranks)), sum(rank == 1 for rank in ranks)]
        cells.append(" / ".join(f"{100 * share / len(ranks):.0f}" for share in shares))
    return cells


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--split", choices=("valid", "test"), default="test")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args(arguments)
    judgements, found = measure(options.split)
    title = f"Answers found among the first {DEPTH} / first, %, split {options.split}, by"
    tables = [table(f"{title} {key}", key, judgements, found) for key in ("phenomenon", "language")]
    if options.json:
        result: dict[str, Any] = {"split": options.split, "ranks": dict(found)}
        show({**result, "tables": [one.as_dict() for one in tables]}, as_json=True)
    elif options.markdown:
        print("\n\n".join(one.markdown() for one in tables))
    else:
        for one in tables:
            one.show(console())


if __name__ == "__main__":
    main()
