"""What rules cost a search that none of them is for, and one that they change.

    python -m benchmarks.performance.rules BUNDLE --collection DIR [--rules 10000] [--queries 400]

The rules are made of the training queries: a third each for the whole query, for two of its words in a row and for its
first letters. Each query of the test split is matched and searched in turn. The result has medians in µs: to match the
query with all rules and with one rule, to encode and search it, and to encode it with a synonym of its first word. Set
OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1: a service asks with one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.report import show
from fullrank import open_bundle
from fullrank.encoding import Encoded
from fullrank.models.contract import Model
from fullrank.models.widening import widen
from fullrank.rules.matching import RuleIndex
from fullrank.rules.rule import Rule, read_rule
from fullrank.rules.synonyms import Replaced, features_of, replaced
from fullrank.text.words import words
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import evenly_spread, query_texts
from fullrank_trainer.evaluation.judgement import judge

_WARM_UP = 20


def rules_of(texts: Sequence[str], count: int) -> list[Rule]:
    """Make rules of queries, repeated if there are too few."""
    found = []
    for number in range(count):
        text = texts[number % len(texts)]
        parts = words(text)
        query = (
            {"is": f"{text} {number}"},
            {"contains": f"{' '.join(parts[:2])} {number}"},
            {"prefix": text[: 20 + number % 20]},
        )[number % 3]
        found.append(read_rule(f"r{number}", {"query": query, "hide": ["x"]}))
    return found


def widened(model: Model, query: Encoded, several: Sequence[Replaced]) -> None:
    """Add synonyms to a query."""
    widen(query, features_of(model, several))


def timed(work: Callable[..., object], *given: Any) -> float:
    """Return the seconds that some work takes."""
    began = time.perf_counter()
    work(*given)
    return time.perf_counter() - began


def main(arguments: Sequence[str] | None = None) -> None:
    """Time queries and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--collection", type=Path, required=True)
    parser.add_argument("--rules", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=400)
    given = parser.parse_args(arguments)

    collection = read_collection(given.collection)
    bundle = open_bundle(given.bundle)
    texts = {}
    for split in ("train", "test"):
        judgements, _ = judge(collection, split)
        chosen = evenly_spread(len(judgements), given.rules if split == "train" else given.queries)
        ids = [judgements[i].query for i in chosen.tolist()]
        texts[split] = query_texts(collection, bundle.model, ids)
    rules = rules_of(texts["train"], given.rules)
    many, one = RuleIndex(rules), RuleIndex(rules[:1])
    taken, found = [], 0
    for number, text in enumerate([*texts["test"][:_WARM_UP], *texts["test"]]):
        first = words(text)[:1] or ["x"]
        synonyms = replaced(text, [[first[0], "television"]])
        query = bundle.model.encode_queries([text])
        row = [
            timed(many.matching, text, 0.0),
            timed(one.matching, text, 0.0),
            timed(bundle.model.encode_queries, [text]),
            timed(bundle.retriever.search, query, 10),
            timed(widened, bundle.model, query, synonyms),
        ]
        if number >= _WARM_UP:
            taken.append(row)
            found += len(many.matching(text, 0.0))
    seconds = np.array(taken)
    median = np.median(seconds, axis=0) * 1e6
    share = np.median(seconds[:, 0] / seconds[:, 2:4].sum(axis=1))
    names = ("match_all", "match_one", "encode", "search", "synonym")
    show(
        {name: round(float(value), 1) for name, value in zip(names, median, strict=True)}
        | {
            "share": round(float(share), 4),
            "rules_a_query": round(found / len(taken), 3),
            "rules": len(many),
        },
        True,
    )


if __name__ == "__main__":
    main()
