"""The margin loss of the papers: one random negative for each judged pair, hinge at 1, a fixed rate.

    L = Σ max(0, 1 − f(q, d⁺) + f(q, d⁻))            Bai et al. 2009, eq. 8

With ``hardest_of`` = k, d⁻ is the one of k random negatives that scores highest when the triple comes up: later in
training few random ones violate the margin.

Where judgements have weights, a pair is drawn in proportion to its weight, which multiplies its term of the sum in
expectation. A step that is as many times longer would do the same, but the hinge is not smooth: one step of weight 10
goes far past the margin that ten steps stop at.

A trial picks the rate of ``rates`` with the smallest training error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from logging import getLogger
from typing import Protocol

import numba
import numpy as np

from fullrank.encoding import Float32, Float64, Int32, Int64
from fullrank.errors import TrainingError
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.features.pairs import Pairs
from fullrank_trainer.features.phi import Phi
from fullrank_trainer.recipes.settings import TrainSettings
from fullrank_trainer.systems.linear import kernels
from fullrank_trainer.systems.linear.learner import LinearLearner
from fullrank_trainer.systems.linear.parameters import Parameters
from fullrank_trainer.training.fitted import Arrays

_STEP = 5_000  # triples between two progress updates

log = getLogger(__name__)


Triples = tuple[Int32, Int32, Int32]
"""Rows of queries, of relevant documents, of other documents: int32 (T,) each; the last is (T, k) if k > 1."""


class NegativePool(Protocol):
    """The documents to draw negatives from."""

    @property
    def documents(self) -> int:
        """Number of documents."""

    @property
    def mates(self) -> Int64:
        """int64 (queries,): the document that a query is or describes, never a negative; -1 if none."""


class MarginLearner(LinearLearner):
    """The linear family under the margin loss."""

    def __init__(
        self,
        features: Features,
        train: TrainSettings,
        rng: np.random.Generator,
        values: Parameters | None = None,
    ) -> None:
        features = replace(features, xd=Phi(features.xd.composed()))  # a step reads two documents
        super().__init__(features, train, rng, values)
        self.per_epoch = train.triples or len(features.pairs)
        self._rate = np.array(train.rates[:1])

    def step_input(self) -> tuple[Features, Parameters]:
        """Return the features and parameters that the kernel steps on."""
        return self.features, self.values

    def draw(self, count: int) -> Triples:
        """Draw ``count`` triples."""
        pairs, features = self.features.pairs, self.features
        return sample(pairs, features, count, self.rng, self.train.hardest_of)

    def prepare(self) -> None:
        """Try every rate from the same start on the same triples; keep the one with the least error."""
        rates, (features, parameters) = self.train.rates, self.step_input()
        if len(rates) > 1:
            triples = self.draw(self.train.trial)
            self._rate[0] = best_rate(
                rates, lambda rate: run(features, parameters.copy(), triples, rate)
            )

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """Take one pass over the triples at a fixed rate."""
        return one_pass(*self.step_input(), self.draw(self.per_epoch), float(self._rate[0]))

    def state(self) -> Arrays:
        """Return the chosen rate."""
        return {"rate": self._rate}


def best_rate(rates: Sequence[float], losses_of: Callable[[float], Float32]) -> float:
    """Return the rate with the least mean loss over the later half of a trial.

    Args:
        rates: to try.
        losses_of: runs a trial at a rate; returns the loss of each step.
    """
    if len(rates) == 1:
        return rates[0]
    best = (np.inf, rates[0])
    for rate in rates:
        losses = losses_of(rate)
        error = float(losses[len(losses) // 2 :].mean())
        log.info("rate %g: training error %.4f", rate, error)
        if np.isfinite(error) and error < best[0]:
            best = (error, rate)
    return best[1]


def sample(
    pairs: Pairs, pool: NegativePool, count: int, rng: np.random.Generator, choices: int = 1
) -> Triples:
    """Draw triples: a random judged pair, and random documents that are neither judged nor the mate.

    Pairs whose weights are all alike come once each before any comes again.

    Args:
        pairs: the judged pairs.
        pool: the documents to draw negatives from.
        count: number of triples.
        rng: random numbers.
        choices: k, the negatives of each pair; repeats are possible.

    Raises:
        TrainingError: every query judges the whole collection, so there is no negative.
    """
    mates = pool.mates
    starts, documents = pairs.relevant.take(pairs.queries)
    has_other = np.diff(starts) + (mates[pairs.queries] >= 0) < pool.documents
    usable = pairs.queries[has_other]
    if not len(usable):
        raise TrainingError(
            "every document is relevant to every query, so there is no negative to learn from"
        )
    starts, documents = pairs.relevant.take(usable)
    drawn = _drawn(len(documents), _weights(pairs, usable), count, rng)
    # Of tens of millions of pairs each int64 array would take hundreds of megabytes.
    negative = rng.integers(0, pool.documents, count).astype(np.int32)
    owner = np.repeat(np.arange(len(usable), dtype=np.int32), np.diff(starts))[drawn]
    q, positive = usable.astype(np.int32)[owner], documents.astype(np.int32)[drawn]
    del drawn
    for t in kernels.known_negatives(owner, negative, starts, documents, mates[usable]).tolist():
        known = pairs.relevant[int(q[t])]
        while _contains(known, negative[t]) or negative[t] == mates[q[t]]:
            negative[t] = rng.integers(0, pool.documents)
    if choices == 1:
        return q, positive, negative
    more = _more_negatives(pairs, pool, q, choices - 1, rng)
    return q, positive, np.column_stack([negative, more])


def _weights(pairs: Pairs, queries: Int64) -> Float64 | None:
    """Return the weight of each pair of some queries; None if all are alike."""
    if pairs.weights is None:
        return None
    found = pairs.weights.take(queries)[1].astype(np.float64)
    return None if (found == found[0]).all() else found


def _drawn(pairs: int, weights: Float64 | None, count: int, rng: np.random.Generator) -> Int64:
    """Draw ``count`` places of pairs: with weights, each pair comes count · w / Σ w times, rounded up or down."""
    if weights is not None:
        ends = np.cumsum(weights)
        # Systematic sampling: points at equal distances, of which each pair gets those on its stretch.
        points = (rng.random() + np.arange(count)) * (ends[-1] / count)
        return rng.permutation(np.minimum(np.searchsorted(ends, points, "right"), pairs - 1))
    drawn = rng.permutation(pairs)
    if count > pairs:
        drawn = np.concatenate([drawn, rng.integers(0, pairs, count - pairs)])
    return drawn[:count]


def _more_negatives(
    pairs: Pairs, pool: NegativePool, queries: Int32, count: int, rng: np.random.Generator
) -> Int32:
    """Draw ``count`` documents for each query that are neither judged nor its mate, int32 (queries, count)."""
    documents = pool.documents
    known = pairs.relevant.owners * documents + pairs.relevant.entries
    mated = np.flatnonzero(pool.mates >= 0)
    taboo = np.concatenate([known, mated * documents + pool.mates[mated]])
    found = rng.integers(0, documents, (len(queries), count))
    while True:
        redraw = np.isin(queries[:, None].astype(np.int64) * documents + found, taboo)
        if not redraw.any():
            return found.astype(np.int32)
        found[redraw] = rng.integers(0, documents, int(redraw.sum()))


def _contains(ascending: Int64, row: np.int32) -> bool:
    place = int(np.searchsorted(ascending, row))
    return place < len(ascending) and bool(ascending[place] == row)


def one_pass(
    features: Features, parameters: Parameters, triples: Triples, rate: float
) -> Iterator[tuple[int, float]]:
    """Step on all triples in turn; yield (triples, mean hinge) every few thousand."""
    for start in range(0, len(triples[0]), _STEP):
        part = tuple(column[start : start + _STEP] for column in triples)
        losses = run(features, parameters, part, rate)
        yield len(losses), float(losses.mean())


def run(
    features: Features,
    parameters: Parameters,
    triples: tuple[Int32 | Int64, ...],
    rate: float,
    *,
    update: bool = True,
) -> Float32:
    """Take the steps of triples in place.

    Args:
        features, parameters: what the kernel reads and changes.
        triples: see ``Triples``.
        rate: λ.
        update: False only measures.

    Returns:
        The hinge of each triple before its step, float32 (T,).
    """
    queries, positives, negatives = (column.astype(np.int64) for column in triples)
    losses = np.zeros(len(queries), np.float32)
    kernels.margin_sgd(
        queries,
        positives,
        np.ascontiguousarray(negatives if negatives.ndim == 2 else negatives[:, None]),
        min(numba.get_num_threads(), max(1, len(queries))),
        features.xq.arrays,
        features.xd.composed().arrays,
        features.s.arrays,
        tuple(z.indptr for z in features.z),
        tuple(z.indices for z in features.z),
        tuple(z.values for z in features.z),
        parameters.U,
        parameters.V,
        parameters.D,
        parameters.bias,
        bool(len(parameters.V)),
        features.settings.diagonal == "learned",
        features.settings.bias,
        rate,
        losses,
        update,
    )
    return losses
