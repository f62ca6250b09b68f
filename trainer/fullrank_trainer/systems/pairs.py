"""Numba kernels of the word-pair models: the margin loss on qᵀWd.

W is a flat table of H weights: W_ij is at (starts[i] + j) mod H. A hash table has starts[i] = iP mod H; a dense
matrix is the table with H = D² and starts[i] = iD, where no two pairs share a weight. One kernel serves both.

Texts are (indptr int64, indices int32, values float32); the table float32. Each kernel has a numpy twin in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp
from numba import prange

from fullrank.errors import TrainingError
from fullrank.models.linear import DenseSide
from fullrank.models.pairs import (
    PRIME,
    PairModel,
    PairRows,
    PairTable,
    text_side,
    window_starts,
)
from fullrank.storage.encoding import Encoded, Float32, Int32, Int64, Rows
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.compiled import compiled
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.features.sides import kept_words, training_frequencies
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.recipes.settings import SIZE, ModelSettings, TrainSettings, require, setting
from fullrank_trainer.recipes.systems import System
from fullrank_trainer.systems.linear.kernels import dot_sparse
from fullrank_trainer.systems.linear.margin import Drawn, TripleLearner, sample
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import Arrays, FittedModel
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.validation import Validation


@compiled()
def _slot(start: int, column: int, slots: int) -> int:
    place = start + column
    while place >= slots:
        place -= slots
    return place


@compiled()
def _score(
    qi: Int32, qv: Float32, di: Int32, dv: Float32, starts: Int64, table: Float32, off_diagonal: bool
) -> float:  # fmt: skip
    """Return Σ_ij q_i W_ij d_j; ``off_diagonal`` leaves out i = j."""
    total = 0.0
    for a in range(len(qi)):
        start = starts[qi[a]]
        row = 0.0
        for b in range(len(di)):
            if not (off_diagonal and di[b] == qi[a]):
                row += table[_slot(start, di[b], len(table))] * dv[b]
        total += qv[a] * row
    return total


@compiled()
def _update(
    qi: Int32, qv: Float32, di: Int32, dv: Float32, starts: Int64, table: Float32, off_diagonal: bool,
    closed: bool, step: float,
) -> None:  # fmt: skip
    """Update W_ij += step · q_i d_j; with ``closed``, weights of zero were removed and stay zero."""
    for a in range(len(qi)):
        start = starts[qi[a]]
        part = step * qv[a]
        for b in range(len(di)):
            slot = _slot(start, di[b], len(table))
            if (off_diagonal and di[b] == qi[a]) or (closed and table[slot] == 0):
                continue
            table[slot] += np.float32(part * dv[b])


@compiled()
def _pair_triple(  # type: ignore[no-untyped-def]
    q, d, n, xq, xd, starts, table, alpha, identity, off_diagonal, closed, rate, always
):
    """Return the hinge max(0, 1 − f(q,d⁺) + f(q,d⁻)) of a triple and, if it is positive, take its step.

    ∂L/∂W = −q(d⁺ − d⁻)ᵀ, hence   W += λ q(d⁺ − d⁻)ᵀ   (Bai et al. 2009, update of eq. 8)
    ∂L/∂α = −q·(d⁺ − d⁻), hence   α += λ q·(d⁺ − d⁻)   if αI is separate from W

    In a hash table a weight gets the sum over the pairs that share it. ``always`` takes the step without a check.
    """
    qi, qv = xq[1][xq[0][q] : xq[0][q + 1]], xq[2][xq[0][q] : xq[0][q + 1]]
    pi, pv = xd[1][xd[0][d] : xd[0][d + 1]], xd[2][xd[0][d] : xd[0][d + 1]]
    ni, nv = xd[1][xd[0][n] : xd[0][n + 1]], xd[2][xd[0][n] : xd[0][n + 1]]
    margin = lexical = 0.0
    if len(identity):
        lexical = dot_sparse(qi, qv, pi, pv, identity) - dot_sparse(qi, qv, ni, nv, identity)
    if not always:
        margin = 1.0 - alpha[0] * lexical
        margin -= _score(qi, qv, pi, pv, starts, table, off_diagonal)
        margin += _score(qi, qv, ni, nv, starts, table, off_diagonal)
        if margin <= 0:
            return 0.0
    _update(qi, qv, pi, pv, starts, table, off_diagonal, closed, rate)
    _update(qi, qv, ni, nv, starts, table, off_diagonal, closed, -rate)
    alpha[0] += rate * lexical
    return margin


@compiled(parallel=True)
def pair_sgd(  # type: ignore[no-untyped-def]
    triples, shards, xq, xd, starts, table, alpha, identity, off_diagonal, closed, rate, always,
    losses,
):  # fmt: skip
    """Run stochastic gradient descent over triples int64 (T, 3) of (q, d⁺, d⁻); losses float32 (T,), alpha (1,)."""
    for i in prange(shards):
        for t in range(i, len(triples), shards):
            losses[t] = _pair_triple(
                triples[t, 0], triples[t, 1], triples[t, 2], xq, xd, starts, table, alpha,
                identity, off_diagonal, closed, rate, always,
            )  # fmt: skip


# Fit word-pair models: f(q, d) = qᵀWd with W dense, sparse or in a hash table, under the margin loss.
#
#     W ← W + λ q(d⁺ − d⁻)ᵀ        if 1 − f(q, d⁺) + f(q, d⁻) > 0            Bai et al. 2009, section 2.3.1
#
# W is its start plus the steps of the triples that violated the margin. W may take gigabytes, so a checkpoint and the
# best epoch store these triples instead, and replay them to restore W.


@dataclass(frozen=True)
class PairSettings:
    """Word pairs: f(q, d) = qᵀWd, W not factored; ``model.words`` limits the vocabulary."""

    # "dense": a weight for every pair of words; "hash": pairs share ``slots`` weights
    store: str = setting("dense", choices=("dense", "hash"))
    # number of weights of "hash"
    slots: int = setting(1_000_000, low=1, high=SIZE)
    # keep the heaviest words of a text; 0: all
    terms: int = setting(60, high=SIZE)
    # "start": W starts as I; "apart": αI is added and α learned (hash only)
    identity: str = setting("start", choices=("start", "apart", "none"))
    # dense: keep W_ii at zero
    zero_diagonal: bool = setting(False)
    # dense: p, the weights that each row of W keeps; 0: all
    keep: int = setting(0, high=SIZE)
    # dense: share of the longest row's weights that each epoch removes until p are left
    removal: float = setting(0.75, low=0.01, high=1)


MAX_WEIGHTS = 1 << 30
"""Most weights of a dense W: 4 GiB, 32,768 words."""
_ROWS = 1 << 7  # of W at once, when the largest weights are chosen


@dataclass(frozen=True, eq=False)
class PairTexts:
    """The input of a fit: unit tf-idf vectors of queries and documents over one vocabulary of D words."""

    side: DenseSide
    sources: list[str]
    xq: Rows
    xd: Rows
    pairs: Pairs
    mates: Int64


def build_texts(corpus: Corpus, model: ModelSettings, terms: int) -> PairTexts:
    """Make the vectors of a collection over the words of documents and training queries. Raises TrainingError."""
    frequencies = training_frequencies(corpus)
    rows = kept_words(frequencies.words, model)
    if not len(rows):
        raise TrainingError("no word is left in the vocabulary; lower model.min_df")
    corpus.pairs.require()
    side = text_side(corpus.vocabulary(rows), frequencies.idf()[np.append(rows, -1)], terms)
    xd = side.features(corpus.counts.words, [corpus.documents], [1.0])[0]
    are_queries = corpus.collection.documents_are_queries
    xq = xd if are_queries else side.features(corpus.counts.words, [corpus.queries], [1.0])[0]
    return PairTexts(side, list(corpus.sources), xq, xd, corpus.pairs, corpus.mates)


class PairLearner(TripleLearner):
    """Learns W under the margin loss; see fullrank_trainer.training.loop.Learner.

    Attributes:
        table: float32 (H,), W_ij at (starts[i] + j) mod H; a dense W is the table with H = D².
        alpha: float64 (1,), α if αI is separate from W, else 0.
        closed: weights were removed, so weights of zero stay zero.
    """

    def __init__(
        self, texts: PairTexts, pairs: PairSettings, train: TrainSettings, rng: np.random.Generator
    ) -> None:
        self.texts, self.pairs, self.train, self.rng = texts, pairs, train, rng
        self.per_epoch = train.triples or len(texts.pairs)
        self.width = len(texts.side.words)
        self.slots = self.width**2 if pairs.store == "dense" else pairs.slots
        if self.slots > MAX_WEIGHTS:
            raise TrainingError(
                f"a dense W over {self.width:,} words has {self.slots:,} weights, more than "
                f"{MAX_WEIGHTS:,} (4 GiB): set model.words to at most "
                f"{math.isqrt(MAX_WEIGHTS):,}, or pairs.store = hash"
            )
        self.prime = self.width if pairs.store == "dense" else PRIME
        self.starts = window_starts(self.width, self.prime, self.slots)
        self.rate = np.array(train.rates[:1])
        self._start()

    def _start(self) -> None:
        """Set W = I, or the table to zero, and forget all violating triples."""
        # The system zeroes new pages when they are first touched, so untouched ones cost no memory.
        self.table = np.zeros(self.slots, np.float32)
        self.alpha = np.array([1.0 if self.pairs.identity == "apart" else 0.0])
        if self.pairs.identity == "start" and not self.pairs.zero_diagonal:
            self.table[(self.starts + np.arange(self.width)) % self.slots] = 1
        self.closed = False
        self._violations: list[Int64] = []
        self._violating: list[Int64] = []

    @property
    def _matrix(self) -> Float32:
        return self.table.reshape(self.width, self.width)

    def draw(self, count: int) -> Drawn:
        texts = self.texts
        columns = sample(texts.pairs, len(texts.xd), texts.mates, count, self.rng)
        return (np.stack(columns, axis=1, dtype=np.int64),)

    def step(self, drawn: Drawn, rate: float) -> Float32:
        """Take the steps of triples, and note those that violated the margin."""
        losses = self.run(drawn[0], rate)
        self._violating.append(drawn[0][losses > 0])
        return losses

    def try_rate(self, drawn: Drawn, rate: float) -> Float32:
        """Take steps, then go back to the start."""
        losses = self.step(drawn, rate)
        self._start()
        return losses

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """Take one pass over the triples at a fixed rate, then remove weights if W is to be sparse."""
        yield from super().steps(done, share)
        self._violations.append(np.concatenate(self._violating))
        self._violating = []
        self._remove()

    def run(self, triples: Int64, rate: float, *, always: bool = False) -> Float32:
        """Take the steps of triples, int64 (T, 3), in place; return each hinge before its step, float32 (T,).

        With ``always`` step whether or not the margin is violated.
        """
        losses = np.zeros(len(triples), np.float32)
        if len(triples):
            apart = self.width if self.pairs.identity == "apart" else 0
            pair_sgd(
                triples, min(numba.get_num_threads(), len(triples)), self.texts.xq.arrays,
                self.texts.xd.arrays, self.starts, self.table, self.alpha, np.ones(apart, np.float32),
                self.pairs.zero_diagonal, self.closed, rate, always, losses,
            )  # fmt: skip
        return losses

    def _remove(self) -> None:
        """Remove the smallest |W_ij| of each row, a share of the longest row at a time, down to ``keep``."""
        keep = self.pairs.keep
        if not keep:
            return
        # Row by row: with an axis, numpy would make a copy of W as booleans.
        longest = max(int(np.count_nonzero(row)) for row in self._matrix)
        if longest > keep or not self.closed:
            limit = max(keep, int(longest * (1 - self.pairs.removal)))
            for block, kept in self._largest(limit):
                block[...] = kept.csr().toarray()
            self.closed = True

    def parameters(self) -> Arrays:
        """Return what W is restored from: the violating triples, their number in each epoch, and λ."""
        none = np.zeros((0, 3), np.int32)
        violations = np.concatenate([none, *self._violations], dtype=np.int32)
        epochs = np.array([len(epoch) for epoch in self._violations], np.int64)
        return {"violations": violations, "epochs": epochs, "rate": self.rate}

    def state(self) -> Arrays:
        return {}

    def restore(self, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Restore W by replaying the violating triples, epoch by epoch."""
        if all(np.array_equal(now, parameters[name]) for name, now in self.parameters().items()):
            return
        self.rate[0] = parameters["rate"][0]
        self._start()
        ends = np.cumsum(parameters["epochs"])
        for start, end in zip(ends - parameters["epochs"], ends, strict=True):
            epoch = parameters["violations"][start:end].astype(np.int64)
            self.run(epoch, self.rate[0], always=True)
            self._violations.append(epoch)
            self._remove()

    def measure(self, valid: Validation) -> float:
        """Return the MAP on validation; a W that is to be sparse is measured as sparse as it will be."""
        store = self._rows() if self.pairs.keep else self._table()
        model = PairModel({"match_terms": 0}, self.texts.side, store)
        queries = model.encode_query_rows(self.texts.xq.take(valid.rows))
        return valid.map_of([Encoded.from_rows(self.texts.xd)], queries)

    def store(self) -> PairRows | PairTable:
        """Return W as it is served."""
        return self._table() if self.pairs.store == "hash" else self._rows()

    def _table(self) -> PairTable:
        return PairTable(self.table, self.prime, float(self.alpha[0]), self.width)

    def _rows(self) -> PairRows:
        return PairRows(Rows.vstack([kept for _, kept in self._largest(self.pairs.keep)]))

    def _largest(self, keep: int) -> Iterator[tuple[Float32, Rows]]:
        """Yield blocks of W, each with the ``keep`` largest |W_ij| of its rows, ties to the first; 0: all."""
        for first in range(0, self.width, _ROWS):
            block = self._matrix[first : first + _ROWS]
            yield block, Rows.from_csr(sp.csr_array(block)).top_entries(keep)


def validate(recipe: Recipe) -> None:
    pairs = recipe.own
    require(
        pairs.store == "dense" or not (pairs.keep or pairs.zero_diagonal),
        "pairs.keep and pairs.zero_diagonal need pairs.store = dense",
    )
    require(
        pairs.store == "hash" or pairs.identity != "apart",
        "pairs.identity = apart needs pairs.store = hash: W has its own diagonal",
    )
    require(recipe.train.loss == "margin", "word pairs are trained with train.loss = margin")


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a recipe of word pairs. Raises TrainingError if there is nothing to learn from, or W would be too large."""
    pairs, model = recipe.own, recipe.model
    key = ("pairs", model.words, model.min_df, pairs.terms)
    texts = context.cached(key, lambda: build_texts(context.corpus, model, pairs.terms))
    rng = np.random.default_rng(context.seed)
    learner = PairLearner(texts, pairs, recipe.train, rng)
    facts = run.learn(learner)
    settings = {
        "fields": [["all", texts.sources]],
        "query_fields": texts.sources,
        "match_terms": model.match_terms,
    }
    compiled = PairModel(settings, texts.side, learner.store())
    facts |= {"rate": float(learner.rate[0]), "alpha": float(learner.alpha[0])}

    def encode(rows: Int64) -> Encoded:
        return compiled.encode_query_rows(texts.xq.take(rows))

    return FittedModel(compiled, Encoded.from_rows(texts.xd), encode, facts)


SYSTEM = System("pairs", fit, validate, "pairs", PairSettings)
