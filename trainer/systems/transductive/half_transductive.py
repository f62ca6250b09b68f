"""Supervised half transductive ranking: f(x, y_i) = v_iᵀWφ(x), a free vector per document.

    γ Σ max(0, 1 − k(x, y_p) + k(x, y_n)) + Σ max(0, 1 − f(x, y_p) + f(x, y_n))        Bai et al. 2010, eq. 6

    k(x, y) = φ(y)ᵀWᵀWφ(x)        over triples (x, y_p, y_n): y_p is judged relevant to x, y_n is not

With an exact-match part, I on unit tf-idf vectors, φ(x)·φ(y) is added to both f and k.
"""

from __future__ import annotations

from collections.abc import Iterator

import numba
import numpy as np
from numba import njit, prange

from fullrank.encoding import Float32, Int64
from fullrank.errors import TrainingError
from fullrank.features import Rows
from trainer.features.data import Features
from trainer.recipes.recipe import Recipe
from trainer.systems.linear.kernels import add_row, dot_sparse
from trainer.systems.linear.margin import best_rate, sample
from trainer.systems.transductive.learner import STEP, ItemsLearner
from trainer.training.fitted import Fitted
from trainer.training.loop import Run
from trainer.workshop import Workshop


@njit(nogil=True, cache=True)
def _triple(  # type: ignore[no-untyped-def]
    q, p, n, xq, xd, s, zp, zi, zv, D, W, items, gamma, rate, update
):
    """One triple (x, y_p, y_n): its loss, and its step.

    With u = Wφ(x), δ = φ(y_p) − φ(y_n):

    k's hinge positive   W += λγ (Wδ φ(x)ᵀ + u δᵀ)          both parts of the derivative: W stands on both sides of k
    f's hinge positive   W += λ (v_p − v_n) φ(x)ᵀ       v_p += λ u       v_n −= λ u

    all from the values before the step.
    """
    size = W.shape[1]
    si, sv = s[1][s[0][q] : s[0][q + 1]], s[2][s[0][q] : s[0][q + 1]]
    exact = 0.0
    for f in range(len(zp)):
        ip, ix, vx = zp[f], zi[f], zv[f]
        exact += dot_sparse(si, sv, ix[ip[p] : ip[p + 1]], vx[ip[p] : ip[p + 1]], D[f])
        exact -= dot_sparse(si, sv, ix[ip[n] : ip[n + 1]], vx[ip[n] : ip[n + 1]], D[f])
    u = np.zeros(size, np.float32)
    for e in range(xq[0][q], xq[0][q + 1]):
        add_row(u, W[xq[1][e]], xq[2][e])
    difference = items[p] - items[n]
    margin = 1.0 - exact
    for m in range(size):
        margin -= difference[m] * u[m]
    functional = np.zeros(size, np.float32)  # Wδ
    margin_k = 0.0
    if gamma > 0:
        for e in range(xd[0][p], xd[0][p + 1]):
            add_row(functional, W[xd[1][e]], xd[2][e])
        for e in range(xd[0][n], xd[0][n + 1]):
            add_row(functional, W[xd[1][e]], -xd[2][e])
        margin_k = 1.0 - exact
        for m in range(size):
            margin_k -= functional[m] * u[m]
    loss = gamma * max(0.0, margin_k) + max(0.0, margin)
    if not update or loss <= 0:
        return loss
    step = np.float32(rate)
    back = np.zeros(size, np.float32)  # what the row of every word of x moves along
    if margin_k > 0:
        add_row(back, functional, np.float32(gamma))
        for e in range(xd[0][p], xd[0][p + 1]):
            add_row(W[xd[1][e]], u, step * np.float32(gamma) * xd[2][e])
        for e in range(xd[0][n], xd[0][n + 1]):
            add_row(W[xd[1][e]], u, -step * np.float32(gamma) * xd[2][e])
    if margin > 0:
        add_row(back, difference, np.float32(1))
        add_row(items[p], u, step)
        add_row(items[n], u, -step)
    for e in range(xq[0][q], xq[0][q + 1]):
        add_row(W[xq[1][e]], back, step * xq[2][e])
    return loss


@njit(parallel=True, nogil=True, cache=True)
def supervised_sgd(  # type: ignore[no-untyped-def]
    queries, positives, negatives, shards, xq, xd, s, zp, zi, zv, D, W, items, gamma, rate,
    losses, update,
):  # fmt: skip
    """Stochastic gradient over triples, int64 (T,); losses float32 (T,).

    Arguments as the margin loss's ``margin_sgd`` has them; xd is φ of the documents over the rows of W. Shard i takes
    every ``shards``-th triple, without locks: only one shard gives the same bits twice.
    """
    for i in prange(shards):
        for t in range(i, len(queries), shards):
            losses[t] = _triple(
                queries[t], positives[t], negatives[t], xq, xd, s, zp, zi, zv,
                D, W, items, gamma, rate, update,
            )  # fmt: skip


class SupervisedLearner(ItemsLearner):
    """The two hinges over the judged pairs of the training split."""

    def __init__(self, features: Features, recipe: Recipe, rng: np.random.Generator) -> None:
        super().__init__(features, recipe, rng)
        self.per_epoch = recipe.train.triples or len(features.pairs)
        self._D = np.ones((len(features.z), features.s.width), np.float32)

    def prepare(self) -> None:
        """Choose the rate: the least loss over a trial from the same start."""
        triples = self.draw(self.train.trial)
        self.rate[0] = best_rate(
            self.train.rates, lambda rate: self.run(triples, self.W.copy(), self.items.copy(), rate)
        )

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """One pass over the judged pairs; the rate is fixed."""
        triples = self.draw(self.per_epoch)
        for start in range(0, self.per_epoch, STEP):
            part = tuple(column[start : start + STEP] for column in triples)
            losses = self.run(part, self.W, self.items, float(self.rate[0]))
            yield len(losses), float(losses.mean())

    def draw(self, count: int) -> tuple[Int64, ...]:
        """Triples (query, relevant, not judged)."""
        return sample(self.features.pairs, self.features, count, self.rng)

    def run(
        self,
        triples: tuple[Int64, ...],
        W: Float32,
        items: Float32,
        rate: float,
        *,
        update: bool = True,
    ) -> Float32:
        """The steps of some triples, in place; returns each loss before its step."""
        features = self.features
        losses = np.zeros(len(triples[0]), np.float32)
        shards = min(numba.get_num_threads(), max(1, len(losses)))
        queries, positives, negatives = triples
        supervised_sgd(
            queries, positives, negatives, shards,
            _csr(features.xq), _csr(self.x), _csr(features.s),
            tuple(z.indptr for z in features.z),
            tuple(z.indices for z in features.z),
            tuple(z.values for z in features.z),
            self._D, W, items, self.settings.gamma, rate, losses, update,
        )  # fmt: skip
        return losses


def _csr(rows: Rows) -> tuple[Int64, np.ndarray, Float32]:
    return rows.indptr, rows.indices, rows.values


def fit(workshop: Workshop, recipe: Recipe, run: Run) -> Fitted:
    """The model of a supervised recipe. Raises TrainingError where no pair is judged."""
    features = workshop.features(recipe.model)
    if not len(features.pairs):
        raise TrainingError("the training split has no judged pair; nothing can be learned")
    rng = np.random.default_rng(workshop.seed)
    return SupervisedLearner(features, recipe, rng).fitted(run)
