"""Supervised half transductive ranking: f(x, y_i) = v_iᵀWφ(x), a free vector for each document.

    γ Σ max(0, 1 − k(x, y_p) + k(x, y_n)) + Σ max(0, 1 − f(x, y_p) + f(x, y_n))        Bai et al. 2010, eq. 6

    k(x, y) = φ(y)ᵀWᵀWφ(x)        over triples (x, y_p, y_n): y_p is judged relevant to x, y_n is not

With a lexical part, I on unit tf-idf vectors, φ(x)·φ(y) is added to both f and k.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numba
import numpy as np
from numba import prange

from fullrank.encoding import Float32, Int64, Rows
from fullrank.models.linear import LinearModel
from fullrank_trainer.compiled import compiled
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.linear import kernels, lsi
from fullrank_trainer.systems.linear.kernels import add_row, dot_sparse
from fullrank_trainer.systems.linear.margin import best_rate, sample
from fullrank_trainer.systems.linear.parameters import (
    Parameters,
    compile_model,
    encode_corpus,
    encode_judged,
)
from fullrank_trainer.systems.linear.scan import scan_documents, scan_queries
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import Arrays, FittedModel
from fullrank_trainer.training.loop import RestoresInPlace, TrainingRun
from fullrank_trainer.training.validation import Validation

# The base of the half transductive learners: W for all texts, a free vector for each document of the corpus.
#
#     f(x, y_i) = v_iᵀWφ(x) + φ(x)·φ(y_i)        the last term only with a lexical part; v_i and Wφ(x)
#                                                have unit length if the recipe says cosine
#
# The served model is linear: W is the table of queries and of documents, so a document added later gets the vector
# Wφ(y). The documents of the corpus are stored with their v_i.

_DEPTH = 100  # documents per query that the MAP of early stopping reads
STEP = 5_000  # steps between two progress updates


class HalfTransductiveLearner(RestoresInPlace, ABC):
    """Learns f(x, y_i) = v_iᵀWφ(x) under a loss.

    Attributes:
        x: φ of the documents over the rows of W.
        W: float32 (features, N), stored by feature: words of queries, then letter trigrams.
        vectors: float32 (documents, N), v_i.
        rate: float64 (1,), the learning rate.
    """

    per_epoch: int

    def __init__(self, features: Features, recipe: Recipe, rng: np.random.Generator) -> None:
        self.features, self.train, self.settings, self.rng = features, recipe.train, recipe.htr, rng
        self.x = document_features(features)
        self.W, self.vectors = self.start()
        self.rate = np.array(recipe.train.rates[:1])

    def start(self) -> tuple[Float32, Float32]:
        """Return W and v_i at the start, as the setting ``htr.items`` says.

        W ~ Normal(0, init²), and v_i = Wφ(y_i) or Normal(0, init²). With "lsi", W = Bᵀ and v_i = Bᵀφ(y_i) for the
        singular vectors B of the documents, scaled so that the mean of v_iᵀWφ(y_i) is the margin, 1.
        """
        size, init = self.features.settings.dimension, np.float32(self.train.init)
        if self.settings.items == "lsi":
            B = lsi.project(self.features, int(self.rng.integers(1 << 31)))
            W = np.zeros((self.features.xq.width, size), np.float32)
            place = rows_of_documents(self.features.model)
            W[place[place >= 0]] = B[place >= 0]
            vectors = self.embed_documents(W)
            scale = np.float32(np.mean(np.square(vectors).sum(axis=1)) ** -0.5)
            return W * scale, vectors * scale
        W = self.rng.standard_normal((self.features.xq.width, size), np.float32) * init
        if self.settings.items == "random":
            return W, self.rng.standard_normal((len(self.x), size), np.float32) * init
        return W, self.embed_documents(W)

    def embed_documents(self, W: Float32) -> Float32:
        """Return Wφ(y_i) of all documents, float32 (documents, N)."""
        found = np.empty((len(self.x), W.shape[1]), np.float32)
        kernels.embed(self.x.indptr, self.x.indices, self.x.values, W, found)
        return found

    @abstractmethod
    def prepare(self) -> None:
        """See Learner.prepare."""

    @abstractmethod
    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """See Learner.steps."""

    def parameters(self) -> Arrays:
        """Return W and the document vectors."""
        return {"W": self.W, "vectors": self.vectors}

    def state(self) -> Arrays:
        """Return the chosen rate."""
        return {"rate": self.rate}

    def linear(self) -> Parameters:
        """Return the linear parameters that serve: U = W, V the rows of W for words of documents."""
        place = rows_of_documents(self.features.model)
        V = np.where(place[:, None] >= 0, self.W[place], np.float32(0))
        D = np.ones((len(self.features.z), self.features.s.width), np.float32)
        return Parameters(self.W, V, D, np.zeros(self.features.documents, np.float32))

    def measure(self, valid: Validation) -> float:
        """Return the MAP on validation; no model is compiled."""
        linear = self.linear()
        documents = replace(scan_documents(self.features, linear), dense=self.stored_vectors())
        queries = scan_queries(self.features, linear, valid.rows)
        queries = replace(queries, dense=self._scaled(queries.dense))
        return float(valid.measure(documents, queries, depth=_DEPTH)["map"].mean)

    def stored_vectors(self) -> Float32:
        """Return the dense vectors of the corpus, as the bundle stores them."""
        return self._scaled(self.vectors)

    def _scaled(self, dense: Float32) -> Float32:
        """Scale vectors to unit length if the recipe says cosine."""
        return unit_rows(dense) if self.settings.cosine else dense

    def fitted(self, run: TrainingRun) -> FittedModel:
        """Train to the end; return the model of the best epoch."""
        facts = run.learn(self)
        linear = self.linear()
        model = compile_model(self.features, linear)
        model = replace(model, settings={**model.settings, "unit": self.settings.cosine})
        documents = encode_corpus(self.features, model, linear)
        facts["rate"] = float(self.rate[0])
        return FittedModel(
            model,
            replace(documents, dense=self.stored_vectors()),
            partial(encode_judged, self.features, model),
            facts,
        )


def unit_rows(dense: Float32) -> Float32:
    """Divide each row by its norm; zero rows stay zero."""
    norm = np.linalg.norm(dense, axis=1, keepdims=True)
    return np.ascontiguousarray(dense / np.where(norm == 0, 1, norm), np.float32)


def rows_of_documents(model: LinearModel) -> Int64:
    """Return the row of W of each document feature, words then trigrams; -1 if queries lack it."""
    words = model.query.words.rows(model.document.words.words).astype(np.int64)
    letters = len(model.query.words) + np.arange(len(model.document.trigrams))
    return np.concatenate([words, letters])


def document_features(features: Features) -> Rows:
    """Return φ of the documents over the rows of W."""
    place = rows_of_documents(features.model).astype(np.int32)
    return features.xd.composed().remap_columns(place, features.xq.width)


@compiled()
def _triple(  # type: ignore[no-untyped-def]
    q, p, n, xq, xd, s, zp, zi, zv, D, W, vectors, gamma, rate, update
):
    """Take the step of a triple (x, y_p, y_n); return its loss.

    With u = Wφ(x), δ = φ(y_p) − φ(y_n):

    k's hinge positive   W += λγ (Wδ φ(x)ᵀ + u δᵀ)          two terms, because k contains W twice
    f's hinge positive   W += λ (v_p − v_n) φ(x)ᵀ       v_p += λ u       v_n −= λ u

    All products use the values before the step.
    """
    size = W.shape[1]
    si, sv = s[1][s[0][q] : s[0][q + 1]], s[2][s[0][q] : s[0][q + 1]]
    lexical = 0.0
    for f in range(len(zp)):
        ip, ix, vx = zp[f], zi[f], zv[f]
        lexical += dot_sparse(si, sv, ix[ip[p] : ip[p + 1]], vx[ip[p] : ip[p + 1]], D[f])
        lexical -= dot_sparse(si, sv, ix[ip[n] : ip[n + 1]], vx[ip[n] : ip[n + 1]], D[f])
    u = np.zeros(size, np.float32)
    for e in range(xq[0][q], xq[0][q + 1]):
        add_row(u, W[xq[1][e]], xq[2][e])
    difference = vectors[p] - vectors[n]
    margin = 1.0 - lexical
    for m in range(size):
        margin -= difference[m] * u[m]
    functional = np.zeros(size, np.float32)  # Wδ
    margin_k = 0.0
    if gamma > 0:
        for e in range(xd[0][p], xd[0][p + 1]):
            add_row(functional, W[xd[1][e]], xd[2][e])
        for e in range(xd[0][n], xd[0][n + 1]):
            add_row(functional, W[xd[1][e]], -xd[2][e])
        margin_k = 1.0 - lexical
        for m in range(size):
            margin_k -= functional[m] * u[m]
    loss = gamma * max(0.0, margin_k) + max(0.0, margin)
    if not update or loss <= 0:
        return loss
    step = np.float32(rate)
    back = np.zeros(size, np.float32)  # the direction of every row of x
    if margin_k > 0:
        add_row(back, functional, np.float32(gamma))
        for e in range(xd[0][p], xd[0][p + 1]):
            add_row(W[xd[1][e]], u, step * np.float32(gamma) * xd[2][e])
        for e in range(xd[0][n], xd[0][n + 1]):
            add_row(W[xd[1][e]], u, -step * np.float32(gamma) * xd[2][e])
    if margin > 0:
        add_row(back, difference, np.float32(1))
        add_row(vectors[p], u, step)
        add_row(vectors[n], u, -step)
    for e in range(xq[0][q], xq[0][q + 1]):
        add_row(W[xq[1][e]], back, step * xq[2][e])
    return loss


@compiled(parallel=True)
def supervised_sgd(  # type: ignore[no-untyped-def]
    queries, positives, negatives, shards, xq, xd, s, zp, zi, zv, D, W, vectors, gamma, rate,
    losses, update,
):  # fmt: skip
    """Run stochastic gradient descent over triples, int64 (T,); losses float32 (T,).

    Arguments are those of ``margin_sgd``; xd is φ of the documents over the rows of W. Shard i takes every
    ``shards``-th triple. Shards run in parallel without locks, so only one shard gives reproducible bits.
    """
    for i in prange(shards):
        for t in range(i, len(queries), shards):
            losses[t] = _triple(
                queries[t], positives[t], negatives[t], xq, xd, s, zp, zi, zv,
                D, W, vectors, gamma, rate, update,
            )  # fmt: skip


class SupervisedLearner(HalfTransductiveLearner):
    """Learns both hinges over the judged pairs of the training split."""

    def __init__(self, features: Features, recipe: Recipe, rng: np.random.Generator) -> None:
        super().__init__(features, recipe, rng)
        self.per_epoch = recipe.train.triples or len(features.pairs)
        self._D = np.ones((len(features.z), features.s.width), np.float32)

    def prepare(self) -> None:
        """Choose the rate with the least loss over a trial from the same start."""
        triples = self.draw(self.train.trial)
        self.rate[0] = best_rate(
            self.train.rates,
            lambda rate: self.run(triples, self.W.copy(), self.vectors.copy(), rate),
        )

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """Take one pass over the judged pairs at a fixed rate."""
        triples = self.draw(self.per_epoch)
        for start in range(0, self.per_epoch, STEP):
            part = tuple(column[start : start + STEP] for column in triples)
            losses = self.run(part, self.W, self.vectors, float(self.rate[0]))
            yield len(losses), float(losses.mean())

    def draw(self, count: int) -> tuple[Int64, ...]:
        """Draw triples (query, relevant document, other document)."""
        columns = sample(self.features.pairs, self.features, count, self.rng)
        return tuple(column.astype(np.int64) for column in columns)

    def run(
        self,
        triples: tuple[Int64, ...],
        W: Float32,
        vectors: Float32,
        rate: float,
        *,
        update: bool = True,
    ) -> Float32:
        """Take the steps of triples in place; return each loss before its step, float32 (T,)."""
        features = self.features
        losses = np.zeros(len(triples[0]), np.float32)
        shards = min(numba.get_num_threads(), max(1, len(losses)))
        queries, positives, negatives = triples
        supervised_sgd(
            queries, positives, negatives, shards,
            features.xq.arrays, self.x.arrays, features.s.arrays,
            tuple(z.indptr for z in features.z),
            tuple(z.indices for z in features.z),
            tuple(z.values for z in features.z),
            self._D, W, vectors, self.settings.gamma, rate, losses, update,
        )  # fmt: skip
        return losses


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a supervised recipe. Raises TrainingError if no pair is judged."""
    features = context.features(recipe.model)
    features.pairs.require()
    rng = np.random.default_rng(context.seed)
    return SupervisedLearner(features, recipe, rng).fitted(run)
