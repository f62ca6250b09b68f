"""A tall matrix under steps that touch every row, at the cost of the rows that a sparse target names.

A step of stochastic gradient on ‖V v − φ‖² for one item is

    V ← V − c (V v − φ) vᵀ = V (I − c v vᵀ) + c φ vᵀ

V has one row per word, tens of thousands, and V v is dense though φ names a few hundred. But the dense part only
multiplies V from the right. Held as V = T M with M (N, N), it is a step on M, and what is left touches the rows of φ:

    M ← M (I − c v vᵀ)        T ← T + c φ (vᵀ M⁻¹)        M after the step

M⁻¹ and G = VᵀV follow by rank-one and rank-two corrections, so a step costs O(N² + |φ| N) and is the same step. The
factorisation is that of Vincent, de Brébisson and Bouthillier 2015. M is folded into T before M⁻¹ grows large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from fullrank.encoding import Float32, Int32
from trainer.systems.linear.kernels import add_row

Float64 = npt.NDArray[np.float64]

_GROWN = 30.0  # root mean square growth of a direction under M⁻¹, at which M is folded into T


@njit(nogil=True, fastmath=True, cache=True)
def recall(  # type: ignore[no-untyped-def]
    indices, values, v, T, M, G, Gv, b
):
    """Fills Gv = VᵀV v and b = Vᵀφ, float64 (N,); returns ‖V v − φ‖² = vᵀGv − 2 v·b + ‖φ‖²."""
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


@njit(nogil=True, fastmath=True, cache=True)
def descend(  # type: ignore[no-untyped-def]
    indices, values, v, c, T, M, inverse, G, Gv, b
):
    """V ← V − c (V v − φ) vᵀ; returns the mean square growth under M⁻¹.

    c‖v‖² = 1 would make M singular, so a step that long (one half of it is already more than the error along v can
    use) is taken a thousandth shorter.
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
        # G ← G + v wᵀ + w vᵀ, what (V P + c φ vᵀ)ᵀ(V P + c φ vᵀ) comes to with P = I − c v vᵀ
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
    return growth / size


@dataclass(eq=False)
class Factored:
    """V = T M.

    T           float32 (words, N)
    M, inverse  float64 (N, N) and its inverse
    G           float64 (N, N): VᵀV
    """

    T: Float32
    M: Float64
    inverse: Float64
    G: Float64

    @staticmethod
    def of(V: Float32) -> Factored:
        """V itself, M = I."""
        size = V.shape[1]
        return Factored(V, np.eye(size), np.eye(size), _gram(V))

    def step(self, indices: Int32, values: Float32, v: Float32, c: float) -> float:
        """One step on ‖V v − φ‖²; returns that before the step."""
        Gv, b = np.zeros(len(v)), np.zeros(len(v))
        error: float = recall(indices, values, v, self.T, self.M, self.G, Gv, b)
        growth = descend(
            indices, values, v, c, self.T, self.M, self.inverse, self.G, Gv, b
        )  # fmt: skip
        if grown(growth):
            self.fold()
        return error

    def copy(self) -> Factored:
        """An independent copy."""
        return Factored(*(array.copy() for array in vars(self).values()))

    def fold(self) -> None:
        """T ← T M, M ← I, and G as it is, in place."""
        self.T[:] = self.T @ self.M.astype(np.float32)
        self.M[:] = self.inverse[:] = np.eye(len(self.M))
        self.G[:] = _gram(self.T)

    def value(self) -> Float32:
        """V, float32 (words, N)."""
        return self.T @ self.M.astype(np.float32)


@njit(nogil=True, cache=True)
def grown(growth: float) -> bool:
    """Whether M is due to be folded into T."""
    return growth > _GROWN * _GROWN


def _gram(V: Float32) -> Float64:
    return np.asarray(V.T @ V, np.float64)
