"""Measure clicks by what training knew of them, beside BM25 and BM25 with popularity.

    known   the query is one that training has
    new     the query is one that training has not
    cold    the document is one that training has not judged, whatever the query

Each click counts 1 / rank of its document (MRR); the other answers of its query stay candidates.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle import Bundle
from fullrank.measures import Estimate, estimate
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank.storage.encoding import Encoded, Float64
from fullrank_trainer.collection import Collection, relevant
from fullrank_trainer.evaluation.evaluate import (
    DEPTH,
    Judgement,
    Reorder,
    evenly_chosen,
    judge,
    query_texts,
    rank_in_batches,
    reordering,
)
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.systems.memory import BESIDE_BM25, POPULARITY
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.loop import TrainingRun

Bools = npt.NDArray[np.bool_]

COLUMNS = ("known", "new", "cold", "all")
_CHOOSING = 1_000  # training queries whose clicks choose the weight of popularity


@dataclass(frozen=True)
class Column:
    """The clicks of one kind: known, new, cold or all; and their number, or the sum of their weights."""

    name: str
    clicks: float
    mrr: dict[str, Estimate]

    def as_dict(self) -> dict[str, Any]:
        mrr = {system: value.as_dict() for system, value in self.mrr.items()}
        return {"column": self.name, "clicks": self.clicks, "mrr": mrr}


def measure_columns(
    bundle: Bundle,
    collection: Collection,
    split: str,
    exclude_splits: Sequence[str] = (),
    progress: Reporter | None = None,
) -> list[Column]:
    """Measure a bundle and the baselines on the clicks of a split, by column; a column without clicks is left out.

    Returns an empty list if the collection has no split `train`, or if the split has no weights and so no clicks.

    Raises CollectionError, TrainingError.
    """
    if split not in collection.weights or "train" not in collection.splits:
        return []
    rows = {id: row for row, id in enumerate(bundle.documents.ids)}
    judgements, _ = judge(collection, split, exclude_splits, rows=rows)
    texts = query_texts(collection, bundle.model, [judgement.query for judgement in judgements])
    queries = bundle.model.encode_queries(texts)
    second = None if bundle.second_stage is None else reordering(bundle, texts)
    ranks = _reciprocal_ranks(bundle.retriever, queries, judgements, second)
    kinds = _rows_of(*_kinds(collection, judgements, rows))
    clicks = np.concatenate([judgement.weights for judgement in judgements])
    measured = {"bundle": _measured(ranks, clicks, kinds)}
    # Rows of the collection may be others than those of the bundle.
    own, _ = judge(collection, split, exclude_splits)
    own_kinds = _rows_of(*_kinds(collection, own, collection.document_ids.rows))
    own_clicks = np.concatenate([judgement.weights for judgement in own])
    for name, found in _baselines(collection, own, progress or Reporter(quiet=True)).items():
        measured[name] = _measured(found, own_clicks, own_kinds)
    return [
        Column(
            name,
            float(clicks[kinds[name]].sum()),
            {system: found[name] for system, found in measured.items()},
        )
        for name in COLUMNS
        if kinds[name].any()
    ]


def _reciprocal_ranks(
    retriever: Retriever,
    queries: Encoded,
    judgements: Sequence[Judgement],
    reorder: Reorder | None = None,
) -> Float64:
    """Return 1 / rank of each relevant document of each query; 0 below the depth."""
    found: list[float] = []
    count = len(retriever.documents)
    ranked = rank_in_batches(retriever, queries, judgements, count, DEPTH)
    for i, (judgement, (ranking, _, _)) in enumerate(zip(judgements, ranked, strict=True)):
        if reorder is not None:
            ranking = reorder(i, ranking)
        place = {row: rank for rank, row in enumerate(ranking.rows.tolist(), 1)}
        found += [1 / place[row] if row in place else 0.0 for row in judgement.relevant.tolist()]
    return np.array(found)


def _kinds(
    collection: Collection, judgements: Sequence[Judgement], rows: Mapping[str, int]
) -> tuple[Bools, Bools]:
    """Return of each click whether training has its query, and whether it has judged its document."""
    train = {query: relevant(grades) for query, grades in collection.qrels("train").items()}
    judged = {rows[id] for found in train.values() for id in found if id in rows}
    sizes = [len(judgement.relevant) for judgement in judgements]
    is_known = np.repeat([bool(train.get(judgement.query)) for judgement in judgements], sizes)
    documents = np.concatenate([judgement.relevant for judgement in judgements])
    return is_known, np.isin(documents, np.fromiter(judged, np.int64, len(judged)))


def _rows_of(is_known: Bools, is_judged: Bools) -> dict[str, Bools]:
    columns = is_known & is_judged, ~is_known & is_judged, ~is_judged, np.ones_like(is_known)
    return dict(zip(COLUMNS, columns, strict=True))


def _measured(ranks: Float64, clicks: Float64, rows_of: Mapping[str, Bools]) -> dict[str, Estimate]:
    return {
        name: estimate(ranks[rows], clicks[rows] / clicks[rows].mean())
        for name, rows in rows_of.items()
        if rows.any()
    }


def _baselines(
    collection: Collection, judgements: Sequence[Judgement], reporter: Reporter
) -> dict[str, Float64]:
    """Return the reciprocal ranks of BM25, and of BM25 with the popularity that ranks training clicks best."""
    place = collection.query_ids.rows
    with tempfile.TemporaryDirectory() as scratch:
        context = TrainingContext(
            collection, reporter, 1, len(os.sched_getaffinity(0)), Path(scratch)
        )
        bm25, popularity = (
            context.fit(
                recipe,
                TrainingRun(recipe, None, 1, "", reporter, Path(scratch) / "x", False),
            )
            for recipe in (load_recipe("bm25"), POPULARITY)
        )
        scorer = bm25.model.scorer(bm25.documents)

        def ranks(weight: float, judged: Sequence[Judgement]) -> Float64:
            bias = bm25.documents.bias + np.float32(weight) * popularity.documents.bias
            queries = bm25.encode(np.array([place[one.query] for one in judged], np.int64))
            return _reciprocal_ranks(
                Retriever(replace(bm25.documents, bias=bias), scorer), queries, judged
            )

        train = evenly_chosen(judge(collection, "train")[0], _CHOOSING)
        weights = np.concatenate([judgement.weights for judgement in train])
        best = max(BESIDE_BM25, key=lambda weight: float(ranks(weight, train) @ weights))
        return {
            "bm25": ranks(0.0, judgements),
            "bm25 + popularity": ranks(best, judgements),
        }
