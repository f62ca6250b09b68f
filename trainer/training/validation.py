"""Measure a model on the validation split during and after training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Encoded, Int64
from fullrank.measures import Estimate, estimates
from fullrank.retrieval import Retriever
from trainer.collection import Collection
from trainer.evaluation.evaluate import (
    DEPTH,
    Judgement,
    evenly_spread,
    judge,
    measure_rankings,
    relative_weights,
)
from trainer.features.corpus import Corpus
from trainer.training.fitted import FittedModel

CALIBRATING = 200
"""Queries that choose the evidence that a document needs to be found; training never learns them."""


@dataclass(frozen=True, eq=False)
class Validation:
    """Queries of the validation split.

    Attributes:
        split: its name.
        rows: int64 (queries,), their rows.
        judgements: of each query.
    """

    split: str
    rows: Int64
    judgements: list[Judgement]

    def spread(self, limit: int) -> Validation:
        """Return at most ``limit`` of the queries, evenly spread; 0 keeps all."""
        chosen = evenly_spread(len(self.judgements), limit)
        judgements = [self.judgements[i] for i in chosen.tolist()]
        return Validation(self.split, self.rows[chosen], judgements)

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

    def measure_fitted(self, fitted: FittedModel) -> dict[str, Estimate]:
        """Return all measures of a fitted model, ranked by the code that serves."""
        documents = fitted.documents
        retriever = Retriever(documents, fitted.model.scorer(documents))
        return self._measure(retriever, fitted.encode(self.rows), DEPTH, with_rank_loss=True)

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


def validation(corpus: Corpus, limit: int, split: str = "valid") -> Validation | None:
    """Choose validation queries. Links of the training split are no candidates.

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
    exclude = [name for name in ("train",) if name in collection.splits]
    judgements, _ = judge(collection, split, exclude)
    return validation_of(corpus, split, judgements).spread(limit)


def validation_of(corpus: Corpus, split: str, judgements: list[Judgement]) -> Validation:
    """Return the validation of some judgements."""
    place = corpus.query_ids.rows
    rows = np.array([place[judgement.query] for judgement in judgements], np.int64)
    return Validation(split, rows, judgements)
