"""The scores of all parts of a blend for validation queries, so that weights are tried without ranking again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float32
from fullrank.measures import Estimate, Float64, estimates, ranking_measures
from fullrank.retrieval import Retriever
from trainer.evaluation.evaluate import DEPTH, Judgement, ranked_grades
from trainer.training.fitted import FittedModel
from trainer.training.validation import Validation

CELLS = 1 << 24  # scores of one part in memory: 64 MiB
_BATCH = 128  # queries that are scored at once


@dataclass(frozen=True, eq=False)
class PartScores:
    """What each part of a blend gives every document for some queries.

    Attributes:
        valid: the queries.
        parts: float32 (queries, documents), one a part; -inf for a document that is no candidate.
        unjudged: bool (documents,), those without a judgement in training.
    """

    valid: Validation
    parts: list[Float32]
    unjudged: npt.NDArray[np.bool_]

    @staticmethod
    def of(
        valid: Validation, fitted: Sequence[FittedModel], unjudged: npt.NDArray[np.bool_]
    ) -> PartScores:
        """Score all documents for evenly spread queries, as many as fit into memory."""
        valid = valid.spread(max(1, CELLS // max(1, len(unjudged))))
        return PartScores(valid, [_scores(part, valid) for part in fitted], unjudged)

    def with_parts(self, fitted: Sequence[FittedModel]) -> PartScores:
        """Return the scores of other models for the same queries."""
        return replace(self, parts=[_scores(part, self.valid) for part in fitted])

    @property
    def judgements(self) -> list[Judgement]:
        """The judgements of the queries."""
        return self.valid.judgements

    def spreads(self) -> Float64:
        """Return the mean standard deviation of each part's scores over the documents, float64 (parts,)."""
        return np.array([_spread(scores) for scores in self.parts])

    def spread(self, weights: Float64) -> float:
        """Return the mean standard deviation of the blended scores over the documents."""
        return _spread([self.total(query, weights) for query in range(len(self.judgements))])

    def total(self, query: int, weights: Float64, raised: float = 0.0) -> Float32:
        """Return the blended scores of one query, float32 (documents,); ``raised`` is added to unjudged documents."""
        found = np.zeros(self.parts[0].shape[1], np.float32)
        # A part without weight is left out: 0 · -inf is no number.
        for weight, scores in zip(weights.tolist(), self.parts, strict=True):
            if weight:
                found += np.float32(weight) * scores[query]
        if raised:
            found[self.unjudged] += np.float32(raised)
        return found

    def average_precision(self, weights: Float64, raised: float = 0.0) -> Float64:
        """Return the average precision of each query, float64 (queries,). Equal scores rank a document last."""
        found = np.empty(len(self.judgements))
        for query, judgement in enumerate(self.judgements):
            scores = self.total(query, weights, raised)
            relevant = scores[judgement.relevant]
            ranks = np.sort([np.count_nonzero(scores >= score) for score in relevant])
            found[query] = np.mean(np.arange(1, len(ranks) + 1) / ranks)
        return found

    def measures(self, weights: Float64, raised: float = 0.0) -> Mapping[str, Estimate]:
        """Return all measures of the rankings, with standard errors."""
        values: dict[str, list[float]] = {}
        for query, judgement in enumerate(self.judgements):
            scores = self.total(query, weights, raised)
            order = np.argsort(-scores, kind="stable")[:DEPTH]
            order = order[np.isfinite(scores[order])]
            grades = ranked_grades(order, judgement)
            for name, value in ranking_measures(grades, judgement.grades).items():
                values.setdefault(name, []).append(value)
        return estimates({name: np.array(line) for name, line in values.items()})


def _scores(part: FittedModel, valid: Validation) -> Float32:
    retriever = Retriever(part.documents, part.model.scorer(part.documents))
    found = np.empty((len(valid.rows), len(part.documents)), np.float32)
    for start in range(0, len(valid.rows), _BATCH):
        rows = valid.rows[start : start + _BATCH]
        found[start : start + len(rows)] = retriever.scores(part.encode(rows))
    for line, judgement in zip(found, valid.judgements, strict=True):
        line[judgement.excluded] = -np.inf
    return found


def _spread(scores: Iterable[Float32]) -> float:
    lines = [float(np.std(line[np.isfinite(line)])) for line in scores]
    return float(np.mean(lines)) or 1.0
