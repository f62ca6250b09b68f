"""Reconstruction half transductive ranking, a nonlinear LSI: no labels, a free vector per document.

    γ Σ_k ‖V v_k − φ(y_k)‖² + Σ_{k≠l} max(0, 1 − v_kᵀWφ(y_k) + v_kᵀWφ(y_l))        Bai et al. 2010, eq. 1

The first term makes v_k a code that the document can be read from. The second makes W send the document's words to
its own code rather than any other document's, so that a new query's words find the codes of what is like it. V serves
training only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit

from fullrank.encoding import Float32, Int64
from fullrank.features import Rows
from trainer.features.data import Features
from trainer.recipes.recipe import Recipe
from trainer.systems.linear.kernels import add_row
from trainer.systems.linear.margin import best_rate
from trainer.systems.transductive.factored import Factored, descend, grown, recall
from trainer.systems.transductive.learner import STEP, ItemsLearner
from trainer.training.fitted import Fitted
from trainer.training.loop import Arrays, Run
from trainer.workshop import Workshop


@njit(nogil=True, cache=True)
def _document(  # type: ignore[no-untyped-def]
    k, other, x, W, items, T, M, inverse, G, gamma, rate, update
):
    """One document k and another one, l: (loss, growth), and its step.

    V   −= 2λγ (V v_k − φ_k) v_kᵀ
    v_k −= 2λγ Vᵀ(V v_k − φ_k)
    W   += λ v_k (φ_k − φ_l)ᵀ       v_k += λ W(φ_k − φ_l)         where the hinge is positive

    all from the values before the step.
    """
    size = W.shape[1]
    a, b = x[0][k], x[0][k + 1]
    v = items[k].copy()
    Gv, Vf = np.zeros(size), np.zeros(size)
    error = recall(x[1][a:b], x[2][a:b], v, T, M, G, Gv, Vf)
    difference = np.zeros(size, np.float32)
    for p in range(a, b):
        add_row(difference, W[x[1][p]], x[2][p])
    for p in range(x[0][other], x[0][other + 1]):
        add_row(difference, W[x[1][p]], -x[2][p])
    margin = 1.0
    for n in range(size):
        margin -= v[n] * difference[n]
    loss = gamma * error + max(0.0, margin)
    if not update:
        return loss, 0.0
    growth = 0.0
    if gamma > 0:
        c = 2 * rate * gamma
        growth = descend(x[1][a:b], x[2][a:b], v, c, T, M, inverse, G, Gv, Vf)
        for n in range(size):
            items[k, n] -= np.float32(c * (Gv[n] - Vf[n]))
    if margin > 0:
        step = np.float32(rate)
        for n in range(size):
            items[k, n] += step * difference[n]
        for p in range(a, b):
            add_row(W[x[1][p]], v, step * x[2][p])
        for p in range(x[0][other], x[0][other + 1]):
            add_row(W[x[1][p]], v, -step * x[2][p])
    return loss, growth


@njit(nogil=True, cache=True)
def reconstruction_sgd(  # type: ignore[no-untyped-def]
    start, first, second, x, W, items, T, M, inverse, G, gamma, rate, losses, update
):
    """Steps over (first, second), int64 (T,), from place ``start`` on; returns the place after the last one taken.

    Stops early where M is due to be folded into T.
    """
    for t in range(start, len(first)):
        losses[t], growth = _document(
            first[t], second[t], x, W, items, T, M, inverse, G, gamma, rate, update
        )  # fmt: skip
        if grown(growth):
            return t + 1
    return len(first)


def run(
    x: Rows,
    W: Float32,
    items: Float32,
    V: Factored,
    drawn: tuple[Int64, Int64],
    gamma: float,
    rate: float,
    *,
    update: bool = True,
) -> Float32:
    """The steps of some (document, other document), in place; returns each loss before its step.

    x      φ, (m, words)
    W      float32 (words, N), items float32 (m, N): v_k
    Sequential whatever the number of threads: a step moves all of V.
    """
    losses = np.zeros(len(drawn[0]), np.float32)
    rows = (x.indptr, x.indices, x.values)
    place = 0
    while place < len(losses):
        place = reconstruction_sgd(
            place, *drawn, rows, W, items, V.T, V.M, V.inverse, V.G, gamma, rate, losses, update
        )  # fmt: skip
        if place < len(losses):
            V.fold()
    return losses


def sample(documents: int, count: int, rng: np.random.Generator) -> tuple[Int64, Int64]:
    """``count`` documents, every one as often as any other within one, and another document for each."""
    rounds = [rng.permutation(documents) for _ in range(-(-count // documents))]
    first = np.concatenate(rounds)[:count]
    second = rng.integers(0, documents - 1, count)
    return first, second + (second >= first)


def decoder(x: Rows, items: Float32) -> Float32:
    """The V that reconstructs best what is there: Σ φ_k v_kᵀ (Σ v_k v_kᵀ)⁻¹, (words, N)."""
    exact = items.astype(np.float64)
    inverse = np.linalg.pinv(exact.T @ exact, hermitian=True)
    return np.ascontiguousarray(x.csr().T @ (exact @ inverse).astype(np.float32))


class ReconstructionLearner(ItemsLearner):
    """Both terms over all documents; no labels are looked at, but for the MAP that chooses the epoch."""

    def __init__(self, features: Features, recipe: Recipe, rng: np.random.Generator) -> None:
        super().__init__(features, recipe, rng)
        self.per_epoch = recipe.train.triples or len(self.x)
        self.V = Factored.of(decoder(self.x, self.items))

    def prepare(self) -> None:
        """Choose the rate: the least loss over a trial from the same start."""
        drawn = sample(len(self.x), self.train.trial, self.rng)

        def tried(rate: float) -> Float32:
            return run(
                self.x, self.W.copy(), self.items.copy(), self.V.copy(), drawn,
                self.settings.gamma, rate,
            )  # fmt: skip

        self.rate[0] = best_rate(self.train.rates, tried)

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """One pass over the documents; the rate is fixed."""
        first, second = sample(len(self.x), self.per_epoch, self.rng)
        for start in range(0, self.per_epoch, STEP):
            part = (first[start : start + STEP], second[start : start + STEP])
            losses = run(
                self.x, self.W, self.items, self.V, part,
                self.settings.gamma, float(self.rate[0]),
            )  # fmt: skip
            yield len(losses), float(losses.mean())

    def state(self) -> Arrays:
        """The chosen rate, and V."""
        return {**super().state(), **vars(self.V)}


def fit(workshop: Workshop, recipe: Recipe, run: Run) -> Fitted:
    """The model of a reconstruction recipe."""
    features = workshop.features(recipe.model)
    rng = np.random.default_rng(workshop.seed)
    return ReconstructionLearner(features, recipe, rng).fitted(run)
