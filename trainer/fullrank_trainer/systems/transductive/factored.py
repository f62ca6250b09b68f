"""A matrix V = T M: gradient steps that change every row of V at the cost of a few rows of T.

A stochastic gradient step on ‖V v − φ‖² for one document is

    V ← V − c (V v − φ) vᵀ = V (I − c v vᵀ) + c φ vᵀ

V has one row for each word, tens of thousands, and V v is dense although φ has a few hundred words. But the dense part
only multiplies V from the right. With V = T M and M (N, N), it is a step on M; the rest changes the rows of φ only:

    M ← M (I − c v vᵀ)        T ← T + c φ (vᵀ M⁻¹)        M after the step

M⁻¹ and G = VᵀV get rank-one and rank-two corrections, so a step costs O(N² + |φ| N). The factorisation is that of
Vincent, de Brébisson and Bouthillier 2015. M is folded into T before M⁻¹ grows large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float32, Int32
from fullrank_trainer.compiled import compiled
from fullrank_trainer.systems.linear.kernels import add_row

Float64 = npt.NDArray[np.float64]

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
    """The matrix V = T M.

    Attributes:
        T: float32 (words, N).
        M, inverse: float64 (N, N), M and its inverse.
        G: float64 (N, N), VᵀV.
    """

    T: Float32
    M: Float64
    inverse: Float64
    G: Float64

    @staticmethod
    def of(V: Float32) -> FactoredMatrix:
        """Factor V as T = V, M = I."""
        size = V.shape[1]
        return FactoredMatrix(V, np.eye(size), np.eye(size), _gram(V))

    def step(self, indices: Int32, values: Float32, v: Float32, c: float) -> float:
        """Take one step on ‖V v − φ‖²; return its value before the step."""
        Gv, b = np.zeros(len(v)), np.zeros(len(v))
        error: float = squared_error(indices, values, v, self.T, self.M, self.G, Gv, b)
        growth, _ = gradient_step(
            indices, values, v, c, self.T, self.M, self.inverse, self.G, Gv, b
        )  # fmt: skip
        if must_fold(growth):
            self.fold()
        return error

    def copy(self) -> FactoredMatrix:
        """Return an independent copy."""
        return FactoredMatrix(*(array.copy() for array in vars(self).values()))

    def fold(self) -> None:
        """Fold M into T in place: T ← T M, M ← I, G ← VᵀV."""
        self.T[:] = self.T @ self.M.astype(np.float32)
        self.M[:] = self.inverse[:] = np.eye(len(self.M))
        self.G[:] = _gram(self.T)

    def value(self) -> Float32:
        """Return V, float32 (words, N)."""
        return self.T @ self.M.astype(np.float32)


@compiled()
def must_fold(growth: float) -> bool:
    """Return whether M must be folded into T."""
    return growth > _MAX_GROWTH * _MAX_GROWTH


def _gram(V: Float32) -> Float64:
    return np.asarray(V.T @ V, np.float64)
