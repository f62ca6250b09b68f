"""Half transductive ranking by reconstruction: a nonlinear LSI without labels, a free vector for each document.

    γ Σ_k ‖V v_k − φ(y_k)‖² + Σ_{k≠l} max(0, 1 − v_kᵀWφ(y_k) + v_kᵀWφ(y_l))        Bai et al. 2010, eq. 1

The first term makes v_k a code from which V reconstructs the document. The second makes W map the document's words to
its own code and not to that of another document, so that W maps a new query to the codes of similar documents. Only
training needs V.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fullrank.encoding import Float32, Int64, Rows
from fullrank_trainer.compiled import compiled
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.linear.kernels import add_row
from fullrank_trainer.systems.linear.margin import best_rate
from fullrank_trainer.systems.transductive.factored import (
    FactoredMatrix,
    gradient_step,
    must_fold,
    squared_error,
)
from fullrank_trainer.systems.transductive.half_transductive import STEP, HalfTransductiveLearner
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import Arrays, FittedModel
from fullrank_trainer.training.loop import TrainingRun


@compiled()
def _document(  # type: ignore[no-untyped-def]
    k, other, x, W, vectors, T, M, inverse, G, gamma, rate, update
):
    """Take the step of a document k and another document l; return (loss, growth).

    V   −= 2λγ (V v_k − φ_k) v_kᵀ
    v_k −= 2λγ Vᵀ(V v_k − φ_k)
    W   += λ v_k (φ_k − φ_l)ᵀ       v_k += λ W(φ_k − φ_l)         if the hinge is positive

    All products use the values before the step.
    """
    size = W.shape[1]
    a, b = x[0][k], x[0][k + 1]
    v = vectors[k].copy()
    Gv, Vf = np.zeros(size), np.zeros(size)
    error = squared_error(x[1][a:b], x[2][a:b], v, T, M, G, Gv, Vf)
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
        growth, c = gradient_step(
            x[1][a:b], x[2][a:b], v, 2 * rate * gamma, T, M, inverse, G, Gv, Vf
        )  # fmt: skip
        for n in range(size):
            vectors[k, n] -= np.float32(c * (Gv[n] - Vf[n]))
    if margin > 0:
        step = np.float32(rate)
        for n in range(size):
            vectors[k, n] += step * difference[n]
        for p in range(a, b):
            add_row(W[x[1][p]], v, step * x[2][p])
        for p in range(x[0][other], x[0][other + 1]):
            add_row(W[x[1][p]], v, -step * x[2][p])
    return loss, growth


@compiled()
def reconstruction_sgd(  # type: ignore[no-untyped-def]
    start, first, second, x, W, vectors, T, M, inverse, G, gamma, rate, losses, update
):
    """Take the steps of (first, second), int64 (T,), from ``start`` on; return the place after the last one.

    The kernel stops early when M must be folded into T.
    """
    for t in range(start, len(first)):
        losses[t], growth = _document(
            first[t], second[t], x, W, vectors, T, M, inverse, G, gamma, rate, update
        )  # fmt: skip
        if must_fold(growth):
            return t + 1
    return len(first)


def run(
    x: Rows,
    W: Float32,
    vectors: Float32,
    V: FactoredMatrix,
    drawn: tuple[Int64, Int64],
    gamma: float,
    rate: float,
    *,
    update: bool = True,
) -> Float32:
    """Take the steps of some pairs of documents in place, in order: a step changes all of V.

    Args:
        x: φ, (documents, words).
        W: float32 (words, N).
        vectors: float32 (documents, N), v_k.
        V: the decoder.
        drawn: rows of documents, and of another document for each.
        gamma: weight of the first term.
        rate: λ.
        update: False only measures.

    Returns:
        The loss of each pair before its step, float32.
    """
    losses = np.zeros(len(drawn[0]), np.float32)
    rows = (x.indptr, x.indices, x.values)
    place = 0
    while place < len(losses):
        place = reconstruction_sgd(
            place, *drawn, rows, W, vectors, V.T, V.M, V.inverse, V.G, gamma, rate, losses, update
        )  # fmt: skip
        if place < len(losses):
            V.fold()
    return losses


def sample(documents: int, count: int, rng: np.random.Generator) -> tuple[Int64, Int64]:
    """Draw ``count`` documents, each equally often up to one, and another document for each."""
    rounds = [rng.permutation(documents) for _ in range(-(-count // documents))]
    first = np.concatenate(rounds)[:count]
    second = rng.integers(0, documents - 1, count)
    return first, second + (second >= first)


def decoder(x: Rows, vectors: Float32) -> Float32:
    """Return the V that reconstructs best: Σ φ_k v_kᵀ (Σ v_k v_kᵀ)⁻¹, (words, N)."""
    codes = vectors.astype(np.float64)
    inverse = np.linalg.pinv(codes.T @ codes, hermitian=True)
    return np.ascontiguousarray(x.csr().T @ (codes @ inverse).astype(np.float32))


class ReconstructionLearner(HalfTransductiveLearner):
    """Learns both terms over all documents; only the MAP that chooses the epoch uses labels."""

    def __init__(self, features: Features, recipe: Recipe, rng: np.random.Generator) -> None:
        super().__init__(features, recipe, rng)
        self.per_epoch = recipe.train.triples or len(self.x)
        self.V = FactoredMatrix.of(decoder(self.x, self.vectors))

    def prepare(self) -> None:
        """Choose the rate with the least loss over a trial from the same start."""
        drawn = sample(len(self.x), self.train.trial, self.rng)

        def losses_of(rate: float) -> Float32:
            return run(
                self.x, self.W.copy(), self.vectors.copy(), self.V.copy(), drawn,
                self.settings.gamma, rate,
            )  # fmt: skip

        self.rate[0] = best_rate(self.train.rates, losses_of)

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """Take one pass over the documents at a fixed rate."""
        first, second = sample(len(self.x), self.per_epoch, self.rng)
        for start in range(0, self.per_epoch, STEP):
            part = (first[start : start + STEP], second[start : start + STEP])
            losses = run(
                self.x, self.W, self.vectors, self.V, part,
                self.settings.gamma, float(self.rate[0]),
            )  # fmt: skip
            yield len(losses), float(losses.mean())

    def state(self) -> Arrays:
        """Return the chosen rate, and V."""
        return {**super().state(), **vars(self.V)}


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a reconstruction recipe."""
    features = context.features(recipe.model)
    rng = np.random.default_rng(context.seed)
    return ReconstructionLearner(features, recipe, rng).fitted(run)
