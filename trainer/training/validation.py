"""Measure a model on the validation split during and after training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullrank.encoding import Encoded, Int64
from fullrank.measures import Estimate, estimates
from fullrank.retrieval import Retriever
from trainer.collection import Collection
from trainer.evaluation.evaluate import DEPTH, Judgement, judge, measure_rankings
from trainer.features.corpus import Corpus
from trainer.training.fitted import FittedModel


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
        return estimates(values)


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
    if limit and len(judgements) > limit:
        chosen = np.linspace(0, len(judgements) - 1, limit).round().astype(int)
        judgements = [judgements[i] for i in chosen.tolist()]
    place = {query: row for row, query in enumerate(corpus.query_ids)}
    rows = np.array([place[judgement.query] for judgement in judgements], np.int64)
    return Validation(split, rows, judgements)


@dataclass(frozen=True)
class ResultRow:
    """One line of the table that every training prints and stores.

    Attributes:
        system: the recipe.
        split: on which it was measured.
        queries: their number.
        measures: mean and standard error of each measure.
    """

    system: str
    split: str
    queries: int
    measures: Mapping[str, Estimate]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form: system, split, queries, each measure, and ``<measure>_se``."""
        line: dict[str, Any] = {
            "system": self.system, "split": self.split, "queries": self.queries
        }  # fmt: skip
        for name, estimate in self.measures.items():
            line[name] = estimate.mean
            line[f"{name}_se"] = estimate.standard_error
        return line
