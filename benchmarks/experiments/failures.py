"""Queries that a bundle fails: what was wanted, what came first, and how the two scores differ.

    python -m benchmarks.experiments.failures BUNDLE COLLECTION [--split test] [--count 20] [--below 10] [--markdown]

A query fails if none of its relevant documents is among the first ``--below``. The failures shown are evenly spread
over all of them, in the order of the queries. Links of train and valid are no candidates.

rank        of the best relevant document
clicks      judged training queries that led to it; 0: nobody clicked it yet
shared      words of the query that the document has
difference  the score of the first document minus that of the wanted one, by part: dense, lexical, bias
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.report import Table, print_tables, show
from fullrank.bundle import Bundle, open_bundle
from fullrank.models.contract import Model
from fullrank.retrieval import Ranking
from fullrank.storage.documents import field_text
from fullrank.storage.encoding import Int64
from fullrank.text.words import words
from fullrank_trainer.collection import Collection, read_collection, relevant
from fullrank_trainer.evaluation.evaluate import Judgement, evenly_spread, judge, query_texts
from fullrank_trainer.features.corpus import text_fields

_SHOWN = 60  # characters of a text in the table


@dataclass(frozen=True)
class Failure:
    """One failed query; see the module for the figures."""

    query: str
    wanted: str
    rank: int
    clicks: int
    shared: int
    first: str
    difference: tuple[float, float, float]

    def cells(self) -> list[str]:
        """Return the row of the table."""
        dense, lexical, bias = (f"{value:+.2f}" for value in self.difference)
        figures = [str(self.rank), str(self.clicks), str(self.shared), dense, lexical, bias]
        return [_short(self.query), _short(self.wanted), *figures, _short(self.first)]


def failures(
    bundle: Bundle, collection: Collection, split: str, below: int
) -> tuple[list[Failure], int]:
    """Return the failed queries of a split, and the number of all its queries."""
    others = [name for name in ("train", "valid") if name in collection.splits and name != split]
    ids = list(bundle.documents.ids)
    judgements, _ = judge(collection, split, others, rows={id: i for i, id in enumerate(ids)})
    is_linked = collection.documents_are_queries
    model = bundle.model.for_documents if is_linked else bundle.model
    texts = query_texts(collection, bundle.model, [judgement.query for judgement in judgements])
    sources = text_fields(collection)
    documents = {d.id: field_text(d.fields, sources) for d in collection.documents}
    clicks = Counter[str]()
    if "train" in collection.splits:
        clicks.update(d for grades in collection.qrels("train").values() for d in relevant(grades))
    found = []
    for judgement, text in zip(judgements, texts, strict=True):
        if below and len(_places(_rank(bundle, model, judgement, text, below), judgement)):
            continue
        ranking = _rank(bundle, model, judgement, text, len(ids))
        place = int(_places(ranking, judgement)[0])
        wanted, first = (ids[int(ranking.rows[i])] for i in (place, 0))
        parts = (ranking.dense, ranking.lexical, ranking.bias)
        dense, lexical, bias = (float(part[0] - part[place]) for part in parts)
        shared = len(set(words(documents[wanted])).intersection(words(text)))
        differences = (dense, lexical, bias)
        found.append(Failure(text, wanted, place + 1, clicks[wanted], shared, first, differences))
    return found, len(judgements)


def _rank(bundle: Bundle, model: Model, judgement: Judgement, text: str, limit: int) -> Ranking:
    deleted = np.zeros(len(bundle.encoded), np.bool_)
    deleted[judgement.excluded] = True
    query = model.encode_queries([text])
    return bundle.retriever.search(query, limit, deleted=deleted)[0]


def _places(ranking: Ranking, judgement: Judgement) -> Int64:
    """Return the places of the relevant documents in a ranking, ascending."""
    return np.flatnonzero(np.isin(ranking.rows, judgement.relevant))


def table(chosen: Sequence[Failure], failed: int, queries: int, below: int) -> Table:
    """Return the table of the chosen failures."""
    return Table(
        f"{len(chosen)} of {failed} failed queries ({queries} in all, none of the first {below} relevant)",
        ["query", "wanted", "rank", "clicks", "shared", "dense", "lexical", "bias", "first"],
        [failure.cells() for failure in chosen],
        left=2,
    )


def _short(text: str) -> str:
    plain = " ".join(text.split()).replace("|", "/")
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 1] + "…"


def main(arguments: Sequence[str] | None = None) -> None:
    """Find the failed queries and print some of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--below", type=int, default=10)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one line of JSON")
    form.add_argument("--markdown", action="store_true", help="a table for the documentation")
    options = parser.parse_args(arguments)
    collection = read_collection(options.collection)
    found, queries = failures(open_bundle(options.bundle), collection, options.split, options.below)
    chosen = [found[i] for i in evenly_spread(len(found), options.count).tolist()]
    made = table(chosen, len(found), queries, options.below)
    if options.json:
        result: dict[str, Any] = {"queries": queries, "failed": len(found)}
        show({**result, "failures": [asdict(failure) for failure in chosen]}, as_json=True)
    else:
        print_tables([made], options.markdown)


if __name__ == "__main__":
    main()
