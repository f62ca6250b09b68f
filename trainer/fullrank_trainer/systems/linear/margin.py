"""The margin loss of the papers: one random negative for each judged pair, hinge at 1, a fixed rate.

    L = Σ max(0, 1 − f(q, d⁺) + f(q, d⁻))            Bai et al. 2009, eq. 8

Where judgements have weights, a pair is drawn in proportion to its weight, which multiplies its term of the sum in
expectation. A step that is as many times longer would do the same, but the hinge is not smooth: one step of weight 10
goes far past the margin that ten steps stop at.

A trial picks the rate of ``rates`` with the smallest training error.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from logging import getLogger
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fullrank.errors import TrainingError
from fullrank.storage.encoding import Float32, Float64, Int32, Int64, Rows
from fullrank.text.features import count_corpus
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.features.composition import Phi
from fullrank_trainer.features.corpus import mate_rows, relevant_pairs
from fullrank_trainer.features.matrices import Features, composed
from fullrank_trainer.recipes.settings import TrainSettings
from fullrank_trainer.systems.linear import kernels
from fullrank_trainer.systems.linear.parameters import LinearLearner, Parameters
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import Arrays
from fullrank_trainer.training.loop import RestoresInPlace

STEP = 5_000  # triples between two progress updates

log = getLogger(__name__)


Drawn = tuple[npt.NDArray[Any], ...]
"""Columns of equal length: of triples, the rows of queries, of relevant documents and of others."""
Triples = tuple[Int32, Int32, Int32]
"""Rows of queries, of relevant documents, of other documents: int32 (T,) each."""


class TripleLearner(RestoresInPlace):
    """Learns by stochastic gradient descent over what each epoch draws, at the rate with the least error in a trial."""

    features: Features
    train: TrainSettings
    rate: Float64

    def draw(self, count: int) -> Drawn:
        """Draw ``count`` triples (query, relevant document, other document), or what ``step`` takes."""
        features = self.features
        return sample(features.pairs, features.documents, features.mates, count, self.rng)

    @abstractmethod
    def step(self, drawn: Drawn, rate: float) -> Float32:
        """Take the steps of what was drawn in place; return each loss before its step, float32."""

    def prepare(self) -> None:
        """Try every rate from the same start on the same triples; keep the one with the least error."""
        if len(self.train.rates) > 1:
            drawn = self.draw(self.train.trial)
            self.rate[0] = best_rate(self.train.rates, lambda rate: self.try_rate(drawn, rate))

    def try_rate(self, drawn: Drawn, rate: float) -> Float32:
        start = [
            {name: array.copy() for name, array in found.items()}
            for found in (self.parameters(), self.state())
        ]
        losses = self.step(drawn, rate)
        self.restore(*start)
        return losses

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """Take one pass over the triples at a fixed rate."""
        drawn = self.draw(self.per_epoch)
        for start in range(0, len(drawn[0]), STEP):
            part = tuple(column[start : start + STEP] for column in drawn)
            losses = self.step(part, float(self.rate[0]))
            yield len(losses), float(losses.mean())

    def state(self) -> Arrays:
        return {"rate": self.rate}


class MarginLearner(TripleLearner, LinearLearner):
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
        self.rate = np.array(train.rates[:1])

    def step(self, drawn: Drawn, rate: float) -> Float32:
        return run(self.features, self.values, drawn, rate)


def best_rate(rates: Sequence[float], losses_of: Callable[[float], Float32]) -> float:
    """Return the rate with the least mean loss over the later half of a trial; ``losses_of`` runs one."""
    best = (np.inf, rates[0])
    for rate in rates:
        losses = losses_of(rate)
        error = float(losses[len(losses) // 2 :].mean())
        log.info("rate %g: training error %.4f", rate, error)
        if np.isfinite(error) and error < best[0]:
            best = (error, rate)
    return best[1]


def sample(pairs: Pairs, pool: int, mates: Int64, count: int, rng: np.random.Generator) -> Triples:
    """Draw triples: a random judged pair, and a random of ``pool`` documents that is neither judged nor the mate.

    Pairs whose weights are all alike come once each before any comes again. Raises TrainingError without a negative.
    """
    starts, documents = pairs.take(pairs.queries)
    has_other = np.diff(starts) + (mates[pairs.queries] >= 0) < pool
    usable = pairs.queries[has_other]
    if not len(usable):
        raise TrainingError(
            "every document is relevant to every query, so there is no negative to learn from"
        )
    starts, documents = pairs.take(usable)
    drawn = _drawn(len(documents), pairs.weights_of(usable), count, rng)
    # Of tens of millions of pairs each int64 array would take hundreds of megabytes.
    owner = np.repeat(np.arange(len(usable), dtype=np.int32), np.diff(starts))[drawn]
    q, positive = usable.astype(np.int32)[owner], documents.astype(np.int32)[drawn]
    del drawn
    negative = rng.integers(0, pool, count).astype(np.int32)
    for t in kernels.known_negatives(owner, negative, starts, documents, mates[usable]).tolist():
        known = pairs[int(q[t])]
        while negative[t] in known or negative[t] == mates[q[t]]:
            negative[t] = rng.integers(0, pool)
    return q, positive, negative


def _drawn(pairs: int, weights: Float32 | None, count: int, rng: np.random.Generator) -> Int64:
    """Draw ``count`` places of pairs: with weights, each pair comes count · w / Σ w times, rounded up or down."""
    if weights is not None and (weights != weights[0]).any():
        ends = np.cumsum(weights, dtype=np.float64)
        # Systematic sampling: points at equal distances, of which each pair gets those on its stretch.
        points = (rng.random() + np.arange(count)) * (ends[-1] / count)
        return rng.permutation(np.minimum(np.searchsorted(ends, points, "right"), pairs - 1))
    drawn = rng.permutation(pairs)
    if count > pairs:
        drawn = np.concatenate([drawn, rng.integers(0, pairs, count - pairs)])
    return drawn[:count]


def run(
    features: Features,
    parameters: Parameters,
    triples: Drawn,
    rate: float,
) -> Float32:
    """Take the steps of triples in place; return each hinge before its step, float32 (T,)."""
    losses, shards, matrices = triple_arguments(features, features.xd.composed(), triples)
    p, settings = parameters, features.settings
    kernels.margin_sgd(
        *(column.astype(np.int64) for column in triples), shards, *matrices,
        p.U, p.V, p.D, p.bias, bool(len(p.V)), settings.diagonal == "learned", settings.bias,
        rate, losses,
    )  # fmt: skip
    return losses


def triple_arguments(
    features: Features, x: Rows, triples: Drawn
) -> tuple[Float32, int, tuple[Any, ...]]:
    """Return what kernels over triples take: losses to write, shards, and the matrices; x is φ of the documents."""
    count, fields = len(triples[0]), zip(*(z.arrays for z in features.z), strict=True)
    matrices = features.xq.arrays, x.arrays, features.s.arrays, *fields
    shards = min(numba.get_num_threads(), max(1, count))
    return np.zeros(count, np.float32), shards, matrices


# Train two tasks that share V: queries in another language, and a monolingual task as regulariser.
#
#     f(q_F, d_E) = q_Fᵀ U_Fᵀ V_E d_E          f(q_E, d_E) = q_Eᵀ V_Eᵀ V_E d_E          Bai et al. 2010, eq. 9, 10
#
# The objective is the sum of both margin losses; gradient steps of the two tasks alternate. With one table [U_F; V_E],
# both tasks are the model UᵀU: the second over the lower rows, the first between upper and lower rows. So the kernel of
# the margin loss runs unchanged on triples that come from the two tasks in turn.


@dataclass(frozen=True, eq=False)
class Task:
    """A monolingual task on the same documents: φ of its queries over the rows of V, their pairs and mates."""

    x: Rows
    pairs: Pairs
    mates: Int64
    fingerprint: str


def second_collection(context: TrainingContext, folder: str | Path) -> Collection:
    """Read a second collection with the same documents. Raises CollectionError, TrainingError."""
    fields = [verdict.name for verdict in context.collection.fields if verdict.is_read]
    collection = read_collection(folder, fields=fields)
    if collection.documents != context.collection.documents:
        raise TrainingError(
            f"train.monolingual: {folder} has other documents than {context.collection.path}"
        )
    if (skipped := collection.report.unknown_remark()) is not None:
        context.reporter.say("warning", f"{folder}: {skipped}")
    return collection


def read_task(context: TrainingContext, folder: str | Path, features: Features) -> Task:
    """Read the second task; links if its documents are its queries. Raises CollectionError, TrainingError."""
    collection, corpus = second_collection(context, folder), context.corpus
    if collection.queries is None:
        words, counts = corpus.counts.words, corpus.documents
    else:
        counted = count_corpus([collection.query_texts], processes=corpus.processes)
        words, counts = counted.words, counted.columns[0]
    pairs = relevant_pairs(collection, "train")
    if not len(pairs):
        raise TrainingError(
            f"train.monolingual: {folder} has no judged pair in its split 'train'; "
            "remove the setting or add judgements"
        )
    side = features.model.document
    x = composed(features.document_composition, side, words, [counts], [1.0])
    if not x.take(pairs.queries).values.any():
        raise TrainingError(f"train.monolingual: no query of {folder} has a word of the documents")
    return Task(x, pairs, mate_rows(collection), collection.fingerprint)


class JointLearner(MarginLearner):
    """The margin loss of two tasks in turn; U and V are the upper and lower rows of one table."""

    def __init__(
        self, features: Features, train: TrainSettings, rng: np.random.Generator, second: Task
    ) -> None:
        super().__init__(features, train, rng)
        self.per_epoch *= 2
        p, upper = self.values, len(self.values.U)
        table = np.concatenate([p.U, p.V])
        self.values = replace(p, U=table[:upper], V=table[upper:])
        self.table = Parameters(table, table, p.D, p.bias)
        self.both, self._second = stack(features, second)

    def step(self, drawn: Drawn, rate: float) -> Float32:
        return run(self.both, self.table, drawn, rate)

    def draw(self, count: int) -> Drawn:
        """Draw ``count`` triples, or one more, from the two tasks in turn."""
        half, both = (count + 1) // 2, self.both
        tasks = [
            sample(pairs, both.documents, both.mates, half, self.rng)
            for pairs in (both.pairs, self._second)
        ]
        queries, positives, negatives = (
            np.stack(columns, axis=1).reshape(-1) for columns in zip(*tasks, strict=True)
        )
        return queries, positives, negatives


def stack(features: Features, second: Task) -> tuple[Features, Pairs]:
    """Stack the queries of both tasks over the rows of [U; V]; also return the second task's pairs, by their new rows.

    The second task's queries have no lexical part.
    """
    first, upper = len(features.xq), features.xq.width
    x = sp.block_diag([features.xq.csr(), second.x.csr()], format="csr")
    xd = features.xd.composed()
    xd = Rows(xd.indptr, xd.indices + np.int32(upper), xd.values, xd.width + upper)
    both = replace(
        features,
        xq=Rows.from_csr(sp.csr_array(x)),
        xd=Phi(xd),
        s=Rows.vstack([features.s, Rows.empty(len(second.x), features.s.width)]),
        mates=np.concatenate([features.mates, second.mates]),
    )
    pairs = second.pairs
    return both, Pairs(pairs.rows + first, pairs.starts, pairs.entries, weights=pairs.weights)
