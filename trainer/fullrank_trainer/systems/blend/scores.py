"""The scores of all parts of a blend for validation queries, so that weights are tried without ranking again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numba
import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float32, Int64
from fullrank.measures import Estimate, Float64, estimates, ranking_measures
from fullrank.models.mixed import NO_LIFT, Lift
from fullrank.retrieval import Retriever
from fullrank_trainer.evaluation.evaluate import DEPTH, Judgement, ranked_grades, relative_weights
from fullrank_trainer.systems.blend import kernels
from fullrank_trainer.systems.ragged import ragged
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.memory import ArrayFiles
from fullrank_trainer.training.validation import Validation

# Scores of one part: 64 MiB, unless these are the scores of too few queries to compare weights.
_CELLS, _FEWEST_QUERIES = 1 << 24, 200
_BATCH = 128  # queries that are scored at once


@dataclass(frozen=True, eq=False)
class PartScores:
    """What each part of a blend gives every document for some queries.

    Attributes:
        valid: the queries.
        parts: float32 (parts, queries, documents); -inf for a document that is no candidate.
        unjudged: bool (documents,), those without a judgement in training.
        lexical: bool (parts,), those without a dense part.
    """

    valid: Validation
    parts: Float32
    unjudged: npt.NDArray[np.bool_]
    lexical: npt.NDArray[np.bool_]

    @staticmethod
    def empty(
        valid: Validation, parts: int, unjudged: npt.NDArray[np.bool_], files: ArrayFiles
    ) -> PartScores:
        """Make room for the scores of all documents for evenly spread queries."""
        valid = valid.spread(most_queries(len(unjudged)))
        scores = files.zeros((parts, len(valid.rows), len(unjudged)))
        return PartScores(valid, scores, unjudged, np.zeros(parts, np.bool_))

    def score(self, part: int, fitted: FittedModel) -> None:
        """Set the scores of one part."""
        self.lexical[part] = not fitted.model.n_dense
        _score(fitted, self.valid, self.parts[part])

    def of_other(self, fitted: FittedModel) -> PartScores:
        """Return the scores of a single other model for the same queries."""
        other = replace(self, parts=np.empty_like(self.parts[:1]), lexical=np.zeros(1, np.bool_))
        other.score(0, fitted)
        return other

    def of_queries(self, place: slice, split: str) -> PartScores:
        """Return the scores for neighbouring queries, under the name of another split."""
        return replace(self, valid=self.valid.part(place, split), parts=self.parts[:, place])

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

    def total(self, query: int, weights: Float64, lift: Lift = NO_LIFT) -> Float32:
        """Return the blended scores of one query, float32 (documents,); unjudged documents have the lift."""
        found = np.zeros(self.parts.shape[2], np.float32)
        lifted = self._lifted(weights, lift)
        # A part without weight is left out: 0 · -inf is no number.
        for part in np.flatnonzero(weights).tolist():
            factors = np.where(self.unjudged, lifted[part], weights[part]).astype(np.float32)
            found += factors * self.parts[part, query]
        if lift.added:
            found[self.unjudged] += np.float32(lift.added)
        return found

    def _lifted(self, weights: Float64, lift: Lift) -> Float64:
        """Return the weights of the parts in the score of an unjudged document, float64 (parts,)."""
        return np.where(self.lexical, weights * lift.factor, weights)

    def average_precision(self, weights: Float64, lift: Lift = NO_LIFT) -> Float64:
        """Return the average precision of each query, float64 (queries,). Equal scores rank a document last.

        Of queries with weights, it is multiplied by their relative weight.
        """
        relevant = [judgement.relevant for judgement in self.judgements]
        found = np.empty(len(relevant))
        used = np.flatnonzero(weights)
        w = weights[used].astype(np.float32)
        lifted = self._lifted(weights, lift)[used].astype(np.float32)
        added = np.float32(lift.added)
        kernels.average_precision(
            self.parts, used, w, lifted, added, self.unjudged, *ragged(relevant), found
        )
        query_weights = relative_weights(self.judgements)
        return found if query_weights is None else found * query_weights

    def measures(self, weights: Float64, lift: Lift = NO_LIFT) -> Mapping[str, Estimate]:
        """Return all measures of the rankings, with standard errors."""
        values: dict[str, list[float]] = {}
        for query, judgement in enumerate(self.judgements):
            scores = self.total(query, weights, lift)
            order = _top(scores, DEPTH)
            grades = ranked_grades(order, judgement)
            for name, value in ranking_measures(grades, judgement.grades).items():
                values.setdefault(name, []).append(value)
        return estimates(
            {name: np.array(line) for name, line in values.items()},
            relative_weights(self.judgements),
        )


def most_queries(documents: int) -> int:
    """Return for how many queries the scores of all documents are kept."""
    return max(_FEWEST_QUERIES, _CELLS // max(1, documents))


def _score(fitted: FittedModel, valid: Validation, out: Float32) -> None:
    """Score all documents by a model, into float32 (queries, documents)."""
    retriever = Retriever(fitted.documents, fitted.model.scorer(fitted.documents))
    starts = range(0, len(valid.rows), _BATCH)
    encoded = [valid.encode(fitted, slice(start, start + _BATCH)) for start in starts]
    with ThreadPoolExecutor(numba.get_num_threads()) as pool:
        for start, batch in zip(starts, pool.map(retriever.scores, encoded), strict=True):
            out[start : start + len(batch)] = batch
    for line, judgement in zip(out, valid.judgements, strict=True):
        line[judgement.left_out(len(line))] = -np.inf


def _top(scores: Float32, count: int) -> Int64:
    """Return the candidates of the ``count`` highest scores, best first; of equal scores the first document."""
    rows = np.flatnonzero(np.isfinite(scores))
    if len(rows) > count:
        rows = rows[scores[rows] >= np.partition(scores[rows], -count)[-count]]
    return rows[np.argsort(-scores[rows], kind="stable")[:count]]


def _spread(scores: Iterable[Float32]) -> float:
    lines = [float(np.std(line[np.isfinite(line)])) for line in scores]
    return float(np.mean(lines)) or 1.0
