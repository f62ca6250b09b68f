"""How well each document that was shown fits its query by its text, learned from clicks on other queries.

Most queries are searched once or twice a week, so their own clicks hardly tell an answer from a mistake. Words do:
clicks on other queries teach which words of documents answer which words of queries. The queries are cut into two
halves. A translation model learns from the clicks on one half and ranks all documents for the queries of the other, and
the other way round (cross-fitting). So ranks tell nothing that the model learned from the same clicks, and can help to
explain them (`mixture`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank.storage.encoding import Int64
from fullrank_trainer.clicks.join import Bool, Votes
from fullrank_trainer.clicks.mixture import Propensities
from fullrank_trainer.clicks.weights import MIN_WEIGHT, has_only_clicks, weigh
from fullrank_trainer.collection import Collection, Query, read_collection
from fullrank_trainer.collection.pairs import Pairs, falls_into
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import TrainingRun

_RECIPE = "word-translation"
_OVERRIDES = (
    "expanded=400", "damped=true", "length=0.75", "stem=english", "lambda1=0.2", "lambda2=0.3"
)  # fmt: skip
_SALT = b"halves"
_BATCH_SCORES = 1 << 23  # in memory: 32 MiB
_MOST_SCORES = 1 << 32  # in all; queries beyond that, the last in the log, get no ranks


def rank_by_text(
    votes: Votes,
    propensities: Propensities,
    corpus: Path,
    scratch: Path,
    reporter: Reporter,
    *,
    learned: Votes | None = None,
    seed: int = 1,
) -> Votes:
    """Return the votes with the rank of each document by its text.

    The votes stay as they are if a half has no click to learn from, or if the log has clicks alone, so that no click
    needs an explanation.

    Args:
        scratch: folder for large arrays, in files without a name.
        learned: those of the votes whose clicks teach; None: all.

    Raises:
        CollectionError: the corpus cannot be read.
        TrainingError: no document has text.
    """
    if has_only_clicks(votes):
        return votes
    collection = _collection(votes if learned is None else learned, propensities, corpus)
    second = np.array([falls_into(text, 0.5, _SALT) for text in votes.queries], np.bool_)
    asked = np.unique(votes.query)[: max(1, _MOST_SCORES // len(collection.documents))]
    row_of = collection.document_ids.rows
    document = np.array([row_of.get(id, -1) for id in votes.documents], np.int64)[votes.document]
    found = np.full(len(votes), -1, np.int64)
    context = TrainingContext(collection, reporter, seed, len(os.sched_getaffinity(0)), scratch)
    for half in (~second, second):
        fitted = _fit_without(context, half, scratch)
        if fitted is None:
            return votes
        queries = asked[half[asked]]
        with reporter.stage("rank by text", len(queries)) as stage:
            _rank(fitted, queries, votes.query, document, found, stage.advance)
    return replace(votes, text_rank=found)


def _collection(votes: Votes, propensities: Propensities, corpus: Path) -> Collection:
    collection = read_collection(corpus)
    known = collection.document_ids.rows
    judged = weigh(votes, propensities, "mixture", least=MIN_WEIGHT)
    rows = np.array([known.get(id, -1) for id in votes.documents], np.int64)[judged.document]
    judged, rows = judged.take(rows >= 0), rows[rows >= 0]
    asked, starts = np.unique(judged.query, return_index=True)
    ones = np.ones(len(rows), np.int32)
    pairs = Pairs(asked, np.append(starts, len(rows)), rows, ones, judged.weight)
    return replace(
        collection,
        queries=[Query(str(row), text) for row, text in enumerate(votes.queries)],
        has_mates=False,
        splits=("train",),
        judgements={"train": pairs},
    )


def _fit_without(context: TrainingContext, half: Bool, scratch: Path) -> FittedModel | None:
    corpus = context.corpus
    pairs = corpus.pairs.where(~half[corpus.pairs.owners])
    if not len(pairs):
        return None
    other = context.with_corpus(replace(corpus, pairs=pairs, cache={}))
    recipe = load_recipe(_RECIPE).override(_OVERRIDES)
    checkpoint = scratch / "rank-by-text.npz"
    run = TrainingRun(recipe, None, context.seed, "", context.reporter, checkpoint, False)
    return other.fit(recipe, run)


def _rank(
    fitted: FittedModel,
    queries: Int64,
    query: Int64,
    document: Int64,
    found: Int64,
    advance: Callable[[int], None],
) -> None:
    """Set the ranks of the votes on some queries; ``document`` is −1 for a document that the collection lacks."""
    retriever = Retriever(fitted.documents, fitted.model.scorer(fitted.documents))
    order = np.argsort(query, kind="stable")
    order = order[document[order] >= 0]
    starts, ends = (np.searchsorted(query[order], queries, side) for side in ("left", "right"))
    size = max(1, _BATCH_SCORES // len(fitted.documents))
    for first in range(0, len(queries), size):
        batch = slice(first, first + size)
        scores = retriever.scores(fitted.encode(queries[batch]))
        for line, start, end in zip(scores, starts[batch], ends[batch], strict=True):
            rows = order[start:end]
            ascending = np.sort(line)
            better = np.searchsorted(ascending, line[document[rows]], side="right")
            found[rows] = len(line) - better
        advance(len(scores))
