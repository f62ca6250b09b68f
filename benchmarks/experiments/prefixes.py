"""What matching the last word by prefix gains while people type, and costs when they have finished.

    python -m benchmarks.experiments.prefixes BUNDLE [--collection tldr/en] [--split valid] [--queries 500] [--json]

The bundle was trained on the collection. Each query of the split is asked whole and with the last one, two and three
letters of its last word missing (words that would lose all their letters are left out). The result has the MRR for each
number of missing letters, without and with completions of the last word, and the median milliseconds that the first
completions of a word take (they are then remembered).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.lab import collection_folder
from benchmarks.harness.report import show
from fullrank.bundle import Bundle, open_bundle
from fullrank.complete.prefixes import Prefixes, last_word
from fullrank.measures import reciprocal_rank
from fullrank.models.widening import widen
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import evenly_spread, query_texts
from fullrank_trainer.evaluation.judgement import Judgement, judge

_DEPTH, _MISSING = 100, (0, 1, 2, 3)


def cut(text: str, missing: int) -> str | None:
    """Return a query without the last letters of its last word; None if it has no others."""
    text = text.rstrip()
    if not missing:
        return text
    last = text.split()[-1]
    return text[:-missing] if len(last) > missing else None


def measured(
    bundle: Bundle, asked: Sequence[tuple[str, Judgement]], missing: int
) -> dict[str, Any]:
    """Return the MRR without and with completions."""
    found: dict[str, list[float]] = {"none": [], "last": []}
    for text, judgement in asked:
        typed = cut(text, missing)
        if typed is None:
            continue
        query = bundle.encode(typed)
        for name, used in (
            ("none", query),
            ("last", widen(query, bundle.prefixes.of(typed)).encoded),
        ):
            out = judgement.left_out(len(bundle.documents))
            [ranking] = bundle.retriever.search(used, _DEPTH, deleted=out)
            grades = np.isin(ranking.rows, judgement.relevant).astype(np.int64)
            found[name].append(reciprocal_rank(grades))
    return {
        "missing": missing,
        "queries": len(found["none"]),
        **{name: round(float(np.mean(values)), 4) for name, values in found.items()},
    }


def milliseconds(bundle: Bundle, texts: Sequence[str]) -> float:
    """Return the median time of the first completions of a word, of queries that get any."""
    fresh = Prefixes(bundle.model, bundle.known_words)
    taken = []
    for text in {last_word(text): text for text in texts}.values():
        began = time.perf_counter()
        found = fresh.of(text)
        if found:
            taken.append(time.perf_counter() - began)
    return round(float(np.median(taken)) * 1e3, 3)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print one line for each number of missing letters."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--collection", default="tldr/en")
    parser.add_argument("--split", default="valid")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--json", action="store_true", help="JSON lines")
    given = parser.parse_args(arguments)
    bundle = open_bundle(given.bundle)
    collection = read_collection(collection_folder(given.collection))
    judgements, _ = judge(collection, given.split, ("train",))
    kept = [judgements[i] for i in evenly_spread(len(judgements), given.queries)]
    texts = query_texts(collection, bundle.model, [judgement.query for judgement in kept])
    asked = list(zip(texts, kept, strict=True))
    for missing in _MISSING:
        show(measured(bundle, asked, missing), given.json)
    show({"new_completions_ms": milliseconds(bundle, texts)}, given.json)


if __name__ == "__main__":
    main()
