"""Measure a model on the validation split during and after training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Encoded, Int64
from fullrank.measures import RANKING_MEASURES, Estimate, estimates
from fullrank.retrieval import Retriever
from fullrank_trainer.collection import Collection
from fullrank_trainer.evaluation.evaluate import (
    DEPTH,
    Judgement,
    evenly_chosen,
    evenly_spread,
    judge,
    measure_rankings,
    measures_of,
    rank_in_batches,
    relative_weights,
)
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.training.fitted import FittedModel

_ALL = slice(None)
CALIBRATING = 200
"""Queries that choose the evidence that a document needs to be found; training never learns them."""


@dataclass(frozen=True, eq=False)
class Validation:
    """Queries of the validation split.

    Attributes:
        split: its name.
        rows: int64 (queries,), their rows.
        judgements: of each query.
        texts: of typed queries, which have no rows; None: the rows are those of the collection.
    """

    split: str
    rows: Int64
    judgements: list[Judgement]
    texts: list[str] | None = None

    def spread(self, limit: int) -> Validation:
        """Return at most ``limit`` of the queries, evenly spread; 0 keeps all."""
        chosen = evenly_spread(len(self.judgements), limit)
        texts = None if self.texts is None else evenly_chosen(self.texts, limit)
        judgements = evenly_chosen(self.judgements, limit)
        return Validation(self.split, self.rows[chosen], judgements, texts)

    def part(self, place: slice, split: str) -> Validation:
        """Return neighbouring queries as those of another split."""
        texts = None if self.texts is None else self.texts[place]
        return Validation(split, self.rows[place], self.judgements[place], texts)

    def encode(self, fitted: FittedModel, chosen: slice = _ALL) -> Encoded:
        """Encode some of the queries by a model."""
        if self.texts is None:
            return fitted.encode(self.rows[chosen])
        return fitted.model.encode_queries(self.texts[chosen])

    def measure(
        self, documents: Encoded, queries: Encoded, *, depth: int = DEPTH
    ) -> dict[str, Estimate]:
        """Return means and standard errors over the queries; the rank loss is left out.

        Args:
            documents: the encoded corpus.
            queries: the encoded queries, one a judgement.
            depth: documents ranked per query.
        """
        return self._measure(Retriever(documents), queries, depth, with_rank_loss=False)

    def measure_blocks(
        self, blocks: Iterable[Encoded], queries: Encoded, *, depth: int
    ) -> dict[str, Estimate]:
        """Return what ``measure`` returns, from documents that are never in memory all at once.

        Args:
            blocks: the encoded corpus, block after block.
            queries, depth: see ``measure``.
        """
        ranked = _rank_blocks(blocks, queries, self.judgements, depth)
        values = {name: np.zeros(len(ranked)) for name in RANKING_MEASURES}
        for i, (rows, judgement) in enumerate(zip(ranked, self.judgements, strict=True)):
            for name, value in measures_of(rows, judgement).items():
                values[name][i] = value
        return estimates(values, relative_weights(self.judgements))

    def measure_fitted(self, fitted: FittedModel) -> dict[str, Estimate]:
        """Return all measures of a fitted model, ranked by the code that serves."""
        documents = fitted.documents
        retriever = Retriever(documents, fitted.model.scorer(documents))
        return self._measure(retriever, self.encode(fitted), DEPTH, with_rank_loss=True)

    def _measure(
        self, retriever: Retriever, queries: Encoded, depth: int, *, with_rank_loss: bool
    ) -> dict[str, Estimate]:
        values = measure_rankings(
            retriever,
            queries,
            self.judgements,
            documents=len(retriever.documents),
            depth=depth,
            with_rank_loss=with_rank_loss,
        )
        return estimates(values, relative_weights(self.judgements))


def _rank_blocks(
    blocks: Iterable[Encoded], queries: Encoded, judgements: Sequence[Judgement], depth: int
) -> list[Int64]:
    """Return the rows of the best documents of each query, best first, ties by row."""
    rows = [np.zeros(0, np.int64) for _ in judgements]
    scores = [np.zeros(0) for _ in judgements]
    first = 0
    for documents in blocks:
        retriever, count = Retriever(documents), len(documents)
        batches = rank_in_batches(retriever, queries, judgements, count, depth, first)
        for i, (found, _, _) in enumerate(batches):
            both = np.append(rows[i], first + found.rows), np.append(scores[i], found.scores)
            best = np.lexsort((both[0], -both[1]))[:depth]
            rows[i], scores[i] = both[0][best], both[1][best]
        first += count
    return rows


def validation(corpus: Corpus, limit: int, split: str = "valid") -> Validation | None:
    """Choose validation queries. Links of the training split are no candidates; documents clicked in training are.

    Args:
        corpus: the collection.
        limit: most queries, evenly spread; 0 for all.
        split: of the queries.

    Returns:
        The queries; None if the collection lacks the split.
    """
    collection: Collection = corpus.collection
    if split not in collection.splits:
        return None
    are_clicks = split in collection.weights
    exclude = [name for name in ("train",) if name in collection.splits and not are_clicks]
    judgements, _ = judge(collection, split, exclude)
    return validation_of(corpus, split, judgements).spread(limit)


def validation_of(corpus: Corpus, split: str, judgements: list[Judgement]) -> Validation:
    """Return the validation of some judgements."""
    place = corpus.query_ids.rows
    rows = np.array([place[judgement.query] for judgement in judgements], np.int64)
    return Validation(split, rows, judgements)
