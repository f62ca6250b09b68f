"""Choose the weights of a blend on validation, one weight after another, from the best part alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numba
import numpy as np
import numpy.typing as npt
from numba import prange

from fullrank.measures import Estimate, Float64, estimates, ranking_measures
from fullrank.models.mixed import NO_LIFT, Lift
from fullrank.retrieval import Retriever
from fullrank.storage.encoding import Float32, Int64
from fullrank_trainer.collection.pairs import ragged
from fullrank_trainer.compiled import compiled
from fullrank_trainer.evaluation.evaluate import (
    DEPTH,
    Judgement,
    evenly_chosen,
    ranked_grades,
    relative_weights,
)
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.memory import ArrayFiles
from fullrank_trainer.training.validation import TYPED, Validation, typed_queries

# Weights that are tried for a part, relative to that of the best part, both times the spread of their scores. Small
# ones are for parts that score few documents, and so spread little.
_RATIOS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
# What the lexical scores of unjudged documents are multiplied by, and what is added, in standard deviations of the
# blended scores. A factor also raises documents that match a query badly, so less than nothing may be added beside one.
_FACTORS = (1.0, 1.1, 1.2)
_LEAST_ADDED, _MOST_ADDED, _STEP = -1.0, 1.5, 0.1
# Where typed text forbids a factor: a constant gains less at the same loss, and large ones lose more on test than on
# validation.
_MOST_WITHOUT_FACTOR, _MOST_LOST_WITHOUT_FACTOR = 0.5, 3
_ROUNDS = 4
_LEAST_GAIN = 0.25  # of a part, in standard errors
# γ B spreads so little beside the scores of typed text where biases do not help; without biases γ could not divide.
_LEAST_SPREAD = 0.001
# A kind of typed queries may lose a standard error or this share of the average precision that the first part has.
# Where hardly a query changes, the standard error says nothing.
_MOST_BELOW = 0.03
_FEWEST_OF_KIND = 20  # queries; fewer say nothing about their kind
_SHARES = tuple(0.7**step for step in range(12))


@dataclass(frozen=True, eq=False)
class Quality:
    """The average precision of each query, float64, for one choice of weights; and how much each column counts."""

    warm: Float64
    cold: Float64
    share: float
    known: Float64 = field(default_factory=lambda: np.zeros(0))
    repeated: float = 0.0

    @property
    def value(self) -> float:
        """The mean average precision of the columns, weighted."""
        return sum(weight * float(values.mean()) for weight, values in self._parts())

    def gain(self, other: Quality) -> tuple[float, float]:
        """Return by how much this is better than another on the same queries, and its standard error."""
        gain = variance = 0.0
        for (weight, mine), (_, others) in zip(self._parts(), other._parts(), strict=True):
            difference = mine - others
            gain += weight * float(difference.mean())
            variance += weight**2 * float(difference.var()) / len(difference)
        return gain, variance**0.5

    def _parts(self) -> list[tuple[float, Float64]]:
        shares = (
            (1 - self.repeated) * (1 - self.share),
            self.share,
            self.repeated * (1 - self.share),
        )
        columns = self.warm, self.cold, self.known
        found = [pair for pair in zip(shares, columns, strict=True) if len(pair[1])]
        total = sum(share for share, _ in found)
        return [(share / total, values) for share, values in found]


@dataclass(frozen=True, eq=False)
class Scored:
    """The parts of a blend, scored for warm, cold and known queries (a share ``repeated``); None without any."""

    warm: PartScores | None
    cold: PartScores | None
    share: float
    known: PartScores | None = None
    repeated: float = 0.0
    _measured: dict[tuple[float, ...], Quality] = field(default_factory=dict)

    @property
    def measured(self) -> list[PartScores]:
        """The scores that there are: known, new, cold."""
        columns = (self.known, self.warm, self.cold)
        return [scores for scores in columns if scores is not None]

    def quality(self, weights: Float64, lift: Lift = NO_LIFT) -> Quality:
        """Measure some weights, which count up to a factor, the same ones only once."""
        found = (weights / weights.sum()).round(6)
        key = (*found.tolist(), *lift)
        if key not in self._measured:
            warm, cold, known = (
                np.zeros(0) if scores is None else scores.average_precision(found, lift)
                for scores in (self.warm, self.cold, self.known)
            )
            self._measured[key] = Quality(warm, cold, self.share, known, self.repeated)
        return self._measured[key]

    def spreads(self) -> Float64:
        """Return how far the scores of each part spread, float64 (parts,)."""
        return self.measured[0].spreads()


def choose(scored: Scored) -> Float64:
    """Choose the weights with the best quality, float64 (parts,), which add up to 1.

    It is the first part alone, unless the best is better by more than a standard error.
    """
    spreads = scored.spreads()
    parts = len(spreads)

    def measure(ratios: tuple[float, ...]) -> float:
        return scored.quality(np.array(ratios) / spreads).value

    alone = [tuple(float(i == part) for i in range(parts)) for part in range(parts)]
    best = max(alone, key=measure)
    fixed = best.index(1.0)
    for _ in range(_ROUNDS):
        before = best
        for part in range(parts):
            if part != fixed:
                best = max(
                    [best, *((*best[:part], ratio, *best[part + 1 :]) for ratio in _RATIOS)],
                    key=measure,
                )
        if best == before:
            break
    weights = _prune(scored, np.array(best) / spreads)
    first = np.eye(parts)[0]
    gain, error = scored.quality(weights).gain(scored.quality(first))
    return weights if gain > error else first


def lift_unjudged(
    scored: Scored, weights: Float64, most_lost: float, can_scale: bool = True
) -> Lift:
    """Choose what every document without a judgement gets.

    Training only ever raised the scores of judged documents, so an unjudged one that answers a query just as well ranks
    below them.

    Args:
        most_lost: the largest share of their mean average precision that warm queries may lose.
        can_scale: whether a factor is allowed: typed text meets the scaled documents too. Without one, they may lose
            three times as much, and less is added at most.

    Returns:
        The lift with the best quality that costs cold queries nothing; none unless there are queries of both kinds.
    """
    if scored.warm is None or scored.cold is None:
        return NO_LIFT
    spread = scored.warm.spread(weights)
    plain = scored.quality(weights)
    most_added = _MOST_ADDED if can_scale else _MOST_WITHOUT_FACTOR
    most_lost *= 1 if can_scale else _MOST_LOST_WITHOUT_FACTOR
    least_warm, least_cold = (1 - most_lost) * plain.warm.mean(), plain.cold.mean()
    least_known = (1 - most_lost) * plain.known.sum()
    # A factor could raise a document without clicks above one that people clicked after the same query.
    is_alone = scored.known is None and can_scale
    has_lexical = is_alone and bool(scored.warm.lexical[weights > 0].any())
    tried = [
        Lift(factor, step * _STEP * spread)
        for factor in (_FACTORS if has_lexical else _FACTORS[:1])
        for step in range(
            0 if factor == 1 else round(_LEAST_ADDED / _STEP), round(most_added / _STEP) + 1
        )
    ]
    best, best_value = NO_LIFT, plain.value
    for lift in tried:
        quality = scored.quality(weights, lift)
        allowed = quality.warm.mean() >= least_warm and quality.cold.mean() >= least_cold
        if allowed and quality.known.sum() >= least_known and quality.value > best_value:
            best, best_value = lift, quality.value
    return best


@dataclass(frozen=True, eq=False)
class Typed:
    """Typed queries and the scores of the parts for them, where documents are the queries that judgements are about.

    Typed text and documents meet the same document side, so they share the biases B = Σ_m w_m b_m of the blend of
    documents; the parts f_m are without biases here:

        typed text   Σ_m w'_m f_m + γ B        a document   γ (Σ_m w_m f_m + B)

    γ is chosen with w'; scaling a document's scores does not change their order.

    Attributes:
        scores: of the parts without biases, and of the biases as one more part.
        biases: float64 (parts, documents).
    """

    scores: PartScores
    biases: Float64
    kinds: Sequence[str]

    @staticmethod
    def empty(context: TrainingContext, parts: int) -> Typed | None:
        """Make typed queries and room for the scores of the parts; None if there are too few queries."""
        valid, kinds = typed_queries(context.corpus)
        if valid is None:
            return None
        unjudged = context.corpus.unjudged
        scores = PartScores.empty(valid, parts + 1, unjudged, context.files)
        kinds = evenly_chosen(kinds, len(scores.judgements))
        return Typed(scores, np.zeros((parts, len(unjudged))), kinds)

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of queries of each kind."""
        return Counter(self.kinds)

    def by_kind(self) -> list[PartScores]:
        """Return the scores for the queries of each kind."""
        return [
            self.scores.of_queries(self._place(kind), f"{TYPED} {kind}") for kind in self.counts
        ]

    def score(self, part: int, fitted: FittedModel) -> None:
        """Set the scores of one part."""
        self.biases[part] = fitted.documents.bias
        bare = replace(fitted.documents, bias=np.zeros_like(fitted.documents.bias))
        self.scores.score(part, replace(fitted, documents=bare))

    def choose(self, weights: Float64, lift: Lift) -> tuple[Float64, float]:
        """Choose w' and γ: the first part alone, unless the best is better by more than a standard error.

        The first part gets more weight until no kind of query ranks below it.
        """
        self.scores.parts[-1] = weights @ self.biases + lift.added * self.scores.unjudged
        found = self._fair(choose(Scored(self.scores, None, 0.0)))
        spread = float(np.std(self.scores.parts[-1, 0]))
        least = _LEAST_SPREAD * self.scores.spread(found) / spread if spread else 1.0
        return found[:-1], max(float(found[-1]), least)

    def allowed(self, weights: Float64, lift: Lift, most_lost: float) -> Lift:
        """Return a lift, a half or a quarter of it: the largest that costs typed queries little enough, else none."""
        least = (1 - most_lost) * self._value(weights, NO_LIFT)
        for part in (1.0, 0.5, 0.25):
            found = lift._replace(added=part * lift.added)
            if self._value(weights, found) >= least:
                return found
        return NO_LIFT

    def _value(self, weights: Float64, lift: Lift) -> float:
        found = np.append(*self.choose(weights, lift))
        return float(self.scores.average_precision(found).mean())

    def _fair(self, weights: Float64) -> Float64:
        spreads = self.scores.spreads()
        first: Float64 = np.eye(len(weights))[0]
        alone = self.scores.average_precision(first)
        ratios = weights * spreads / (weights @ spreads)
        for share in _SHARES:
            mixed: Float64 = (share * ratios + (1 - share) * first) / spreads
            mixed /= mixed.sum()
            if not self._loses(self.scores.average_precision(mixed), alone):
                return mixed
        return first

    def _loses(self, found: Float64, alone: Float64) -> bool:
        for kind, count in self.counts.items():
            chosen = self._place(kind)
            lost = (alone - found)[chosen]
            most = max(float(lost.std()) / count**0.5, _MOST_BELOW * float(alone[chosen].mean()))
            if count >= _FEWEST_OF_KIND and lost.mean() > most:
                return True
        return False

    def _place(self, kind: str) -> slice:
        first = self.kinds.index(kind)
        return slice(first, first + self.counts[kind])


def _prune(scored: Scored, weights: Float64) -> Float64:
    """Leave out parts that gain next to nothing, because each costs time in every query. Weights add up to 1."""
    weights = weights / weights.sum()
    quality = scored.quality(weights)
    for part in np.argsort(weights * scored.spreads()).tolist():
        rest = weights.copy()
        rest[part] = 0
        if not weights[part] or not rest.any():
            continue
        rest /= rest.sum()
        gain, error = quality.gain(scored.quality(rest))
        if gain < _LEAST_GAIN * error:
            weights, quality = rest, scored.quality(rest)
    return weights


# Scores of one part: 64 MiB, unless these are the scores of too few queries to compare weights.
_CELLS, _FEWEST_QUERIES = 1 << 24, 200
_BATCH = 128  # queries that are scored at once


@dataclass(frozen=True, eq=False)
class PartScores:
    """What each part of a blend gives every document for some queries.

    Attributes:
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
        found, used = np.empty(len(relevant)), np.flatnonzero(weights)
        both = weights[used], self._lifted(weights, lift)[used]
        average_precision(
            self.parts, used, *(values.astype(np.float32) for values in both), np.float32(lift.added),
            self.unjudged, *ragged(relevant), found,
        )  # fmt: skip
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


@compiled()
def _at_least(scores: Float32, least: np.float32) -> int:
    count = 0
    for score in scores:
        count += score >= least
    return count


@compiled(parallel=True)
def average_precision(
    parts: Float32, used: Int64, weights: Float32, lifted: Float32, added: np.float32,
    unjudged: npt.NDArray[np.bool_], indptr: Int64, relevant: Int64, out: Float64,
) -> None:  # fmt: skip
    """Compute the average precision of each query under blended scores; equal scores rank a document last."""
    for query in prange(len(out)):
        total = np.zeros(parts.shape[2], np.float32)
        for m in range(len(used)):
            scores = parts[used[m], query]
            for d in range(len(total)):
                total[d] += (lifted[m] if unjudged[d] else weights[m]) * scores[d]
        if added != 0:
            for d in range(len(total)):
                if unjudged[d]:
                    total[d] += added
        rows = relevant[indptr[query] : indptr[query + 1]]
        ranks = np.empty(len(rows))
        for k in range(len(rows)):
            ranks[k] = _at_least(total, total[rows[k]])
        ranks.sort()
        precision = 0.0
        for k in range(len(ranks)):
            precision += (k + 1) / ranks[k]
        out[query] = precision / len(ranks)
