"""Half transductive ranking by reconstruction: a nonlinear LSI without labels, a free vector for each document.

    γ Σ_k ‖V v_k − φ(y_k)‖² + Σ_{k≠l} max(0, 1 − v_kᵀWφ(y_k) + v_kᵀWφ(y_l))        Bai et al. 2010, eq. 1

The first term makes v_k a code from which V reconstructs the document. The second makes W map the document's words to
its own code and not to that of another document, so that W maps a new query to the codes of similar documents. Only
training needs V.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fullrank.storage.encoding import Float32, Float64, Int64, Rows
from fullrank_trainer.compiled import compiled
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.half_transductive import HalfTransductiveLearner, system
from fullrank_trainer.systems.linear.kernels import add_row
from fullrank_trainer.systems.linear.margin import Drawn
from fullrank_trainer.training.fitted import Arrays

# A matrix V = T M: gradient steps that change every row of V at the cost of a few rows of T.
#
# A stochastic gradient step on ‖V v − φ‖² for one document is
#
#     V ← V − c (V v − φ) vᵀ = V (I − c v vᵀ) + c φ vᵀ
#
# V has one row for each word, tens of thousands, and V v is dense although φ has a few hundred words. But the dense
# part only multiplies V from the right. With V = T M and M (N, N), it is a step on M; the rest changes the rows of φ
# only:
#
#     M ← M (I − c v vᵀ)        T ← T + c φ (vᵀ M⁻¹)        M after the step
#
# M⁻¹ and G = VᵀV get rank-one and rank-two corrections, so a step costs O(N² + |φ| N). The factorisation is that of
# Vincent, de Brébisson and Bouthillier 2015. M is folded into T before M⁻¹ grows large.


_MAX_GROWTH = 30.0  # root mean square growth of a direction under M⁻¹; beyond it M is folded into T


@compiled(fastmath=True)
def squared_error(  # type: ignore[no-untyped-def]
    indices, values, v, T, M, G, Gv, b
):
    """Compute Gv = VᵀV v and b = Vᵀφ, float64 (N,); return ‖V v − φ‖² = vᵀGv − 2 v·b + ‖φ‖²."""
    size = len(v)
    t = np.zeros(size, np.float32)
    squares = 0.0
    for p in range(len(indices)):
        add_row(t, T[indices[p]], values[p])
        squares += values[p] * values[p]
    error = squares
    Gv[:] = b[:] = 0.0
    for m in range(size):
        for n in range(size):
            Gv[n] += v[m] * G[m, n]  # G is symmetric
            b[n] += t[m] * M[m, n]
    for n in range(size):
        error += v[n] * (Gv[n] - 2 * b[n])
    return max(0.0, error)


@compiled(fastmath=True)
def gradient_step(  # type: ignore[no-untyped-def]
    indices, values, v, c, T, M, inverse, G, Gv, b
):
    """Take the step V ← V − c (V v − φ) vᵀ; return the mean square growth under M⁻¹, and the c of the step.

    c‖v‖² = 1 would make M singular, so such a c is moved away from there by a thousandth. The same c must then move v.
    """
    size = len(v)
    length = squares = vGv = vb = 0.0
    for n in range(size):
        length += v[n] * v[n]
        vGv += v[n] * Gv[n]
        vb += v[n] * b[n]
    if abs(1 - c * length) < 1e-3:
        c *= 0.999 if c * length <= 1 else 1.001
    for p in range(len(indices)):
        squares += values[p] * values[p]
    Mv = np.zeros(size)
    back = np.zeros(size)  # vᵀ M⁻¹ after the step = vᵀ M⁻¹ before / (1 − c‖v‖²)
    w = np.empty(size)
    for n in range(size):
        total = 0.0
        for m in range(size):
            total += M[n, m] * v[m]
            back[m] += v[n] * inverse[n, m]
        Mv[n] = total
    growth = 0.0
    for n in range(size):
        back[n] /= 1 - c * length
        # G ← G + v wᵀ + w vᵀ equals (V P + c φ vᵀ)ᵀ(V P + c φ vᵀ) with P = I − c v vᵀ
        w[n] = c * (b[n] - c * vb * v[n] - Gv[n]) + 0.5 * c * c * (vGv + squares) * v[n]
    for n in range(size):
        for m in range(size):
            M[n, m] -= c * Mv[n] * v[m]
            inverse[n, m] += c * v[n] * back[m]
            G[n, m] += v[n] * w[m] + w[n] * v[m]
            growth += inverse[n, m] * inverse[n, m]
    step = back.astype(np.float32)
    for p in range(len(indices)):
        add_row(T[indices[p]], step, np.float32(c * values[p]))
    return growth / size, c


@dataclass(eq=False)
class FactoredMatrix:
    """The matrix V = T M: T, M, its inverse, and G = VᵀV."""

    T: Float32
    M: Float64
    inverse: Float64
    G: Float64

    @staticmethod
    def of(V: Float32) -> FactoredMatrix:
        """Factor V as T = V, M = I."""
        size = V.shape[1]
        return FactoredMatrix(V, np.eye(size), np.eye(size), _gram(V))

    def fold(self) -> None:
        """Fold M into T in place: T ← T M, M ← I, G ← VᵀV."""
        self.T[:] = self.T @ self.M.astype(np.float32)
        self.M[:] = self.inverse[:] = np.eye(len(self.M))
        self.G[:] = _gram(self.T)


@compiled()
def must_fold(growth: float) -> bool:
    """Return whether M must be folded into T."""
    return growth > _MAX_GROWTH * _MAX_GROWTH


def _gram(V: Float32) -> Float64:
    return np.asarray(V.T @ V, np.float64)


@compiled()
def _document(  # type: ignore[no-untyped-def]
    k, other, x, W, vectors, T, M, inverse, G, gamma, rate
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
    start, first, second, x, W, vectors, T, M, inverse, G, gamma, rate, losses
):
    """Take the steps of (first, second), int64 (T,), from ``start`` on; return the place after the last one.

    The kernel stops early when M must be folded into T.
    """
    for t in range(start, len(first)):
        losses[t], growth = _document(
            first[t], second[t], x, W, vectors, T, M, inverse, G, gamma, rate
        )  # fmt: skip
        if must_fold(growth):
            return t + 1
    return len(first)


def run(
    x: Rows, W: Float32, vectors: Float32, V: FactoredMatrix, drawn: Drawn, gamma: float,
    rate: float,
) -> Float32:  # fmt: skip
    """Take the steps of some pairs of documents in place, in order; return the losses before."""
    losses = np.zeros(len(drawn[0]), np.float32)
    place = 0
    while place < len(losses):
        place = reconstruction_sgd(
            place, *drawn, x.arrays, W, vectors, V.T, V.M, V.inverse, V.G, gamma, rate, losses,
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

    def draw(self, count: int) -> Drawn:
        return sample(len(self.x), count, self.rng)

    def step(self, drawn: Drawn, rate: float) -> Float32:
        return run(self.x, self.W, self.vectors, self.V, drawn, self.settings.gamma, rate)

    def state(self) -> Arrays:
        return {**super().state(), **vars(self.V)}


SYSTEM = system("htr-reconstruction", lambda _, *fit: ReconstructionLearner(*fit))
