"""Numba kernels of expectation maximisation for topic models over pairs of texts.

Three layers: one row; one pair of texts; all pairs, or all words, in parallel. One thread computes a pair or a word
in a fixed order, so results do not depend on the number of threads. Arrays are C-contiguous: indptr int64, indices
int32, the rest float64, because late EM steps gain less than the resolution of float32.

A side is a pair's query or its document: words w with counts n_w, topic-word probabilities φ_wz (words by rows), and a
topic vector θ̃ that may be tilted. Its log-likelihood and its expected topic counts are

    s_w = Σ_z φ_wz θ̃_z        L = Σ_w n_w ln s_w        N_z = Σ_w n_w p(z|w),   p(z|w) = φ_wz θ̃_z / s_w
"""

from __future__ import annotations

import numpy as np
from numba import prange

from fullrank.encoding import Float64
from fullrank_trainer.compiled import compiled

_SMALLEST = 1e-300  # less than any probability under a prior above 1
_MAX_HALVINGS = 30


@compiled(fastmath=True)
def _dot(a: Float64, b: Float64) -> float:
    """Return a·b."""
    total = 0.0
    for z in range(a.shape[0]):
        total += a[z] * b[z]
    return total


@compiled(fastmath=True)
def _add_row(out: Float64, row: Float64, weight: float) -> None:
    """Update out += weight · row."""
    for z in range(out.shape[0]):
        out[z] += weight * row[z]


@compiled()
def _tilt(theta: Float64, multipliers: Float64, scale: float, out: Float64) -> None:
    """Compute θ̃_z = θ_z exp(scale · λ_z)."""
    for z in range(len(theta)):
        out[z] = theta[z] * np.exp(scale * multipliers[z])


@compiled()
def _likelihood(  # type: ignore[no-untyped-def]
    words, counts, phi, tilted, shares
):
    """Return L of one side; shares[w] = n_w / s_w."""
    total = 0.0
    for e in range(len(words)):
        s = max(_dot(phi[words[e]], tilted), _SMALLEST)
        shares[e] = counts[e] / s
        total += counts[e] * np.log(s)
    return total


@compiled()
def _expected(  # type: ignore[no-untyped-def]
    words, shares, phi, tilted, out
):
    """Compute out_z = N_z of one side."""
    out[:] = 0.0
    for e in range(len(words)):
        _add_row(out, phi[words[e]], shares[e])
    for z in range(len(out)):
        out[z] *= tilted[z]


@compiled()
def _gap(  # type: ignore[no-untyped-def]
    expected_q, expected_d, q_size, d_size, gradient
):
    """Compute gradient_z = N_z^q / |Q| − N_z^d / |D|; return the sum of its absolute values."""
    total = 0.0
    for z in range(len(gradient)):
        gradient[z] = expected_q[z] / q_size - expected_d[z] / d_size
        total += abs(gradient[z])
    return total


@compiled()
def _pair(  # type: ignore[no-untyped-def]
    q_words, q_counts, d_words, d_counts, phi_q, phi_d, theta, multipliers, steps, tolerance,
    tilted_q, tilted_d, q_shares, d_shares, expected_q, expected_d,
):  # fmt: skip
    """Take the E-step of one pair; with ``steps`` > 0, project its posteriors to equal topic shares.

    p'(z|q) ∝ φ_qz θ_z exp(−λ_z / |Q|)      p'(z|d) ∝ φ_dz θ_z exp(+λ_z / |D|)

    λ maximises the dual: a constant minus V(λ), the log-likelihood of both sides under the tilted θ.

    −∂V/∂λ_z = N_z^q / |Q| − N_z^d / |D| = g_z          the constraint, zero at the optimum
    ∂²V/∂λ²  ≤ diag(h),  h_z = N_z^q / |Q|² + N_z^d / |D|²  as diag(p') − p' p'ᵀ ≤ diag(p')

    so λ_z += η g_z / h_z is a gradient step scaled by its curvature; η starts at 1 and is halved until V falls.

    Returns:
        V, the number of its evaluations, the number of gradients, and Σ_z |g_z|.
    """
    q_size, d_size = q_counts.sum(), d_counts.sum()
    projected = steps > 0 and q_size > 0 and d_size > 0
    if projected:
        _tilt(theta, multipliers, -1.0 / q_size, tilted_q)
        _tilt(theta, multipliers, 1.0 / d_size, tilted_d)
    else:
        tilted_q[:] = theta
        tilted_d[:] = theta
    V = _likelihood(q_words, q_counts, phi_q, tilted_q, q_shares)
    V += _likelihood(d_words, d_counts, phi_d, tilted_d, d_shares)
    _expected(q_words, q_shares, phi_q, tilted_q, expected_q)
    _expected(d_words, d_shares, phi_d, tilted_d, expected_d)
    if not projected:
        return V, 1, 1, 0.0
    size = len(theta)
    gradient, direction, moved = np.empty(size), np.empty(size), np.empty(size)
    evaluations = gradients = 1
    gap = _gap(expected_q, expected_d, q_size, d_size, gradient)
    for _ in range(steps):
        if gap <= tolerance:
            break
        slope = 0.0
        for z in range(size):
            h = expected_q[z] / q_size**2 + expected_d[z] / d_size**2
            direction[z] = gradient[z] / max(h, _SMALLEST)
            slope += gradient[z] * direction[z]
        rate = 1.0
        for _ in range(_MAX_HALVINGS):
            for z in range(size):
                moved[z] = multipliers[z] + rate * direction[z]
            _tilt(theta, moved, -1.0 / q_size, tilted_q)
            _tilt(theta, moved, 1.0 / d_size, tilted_d)
            reached = _likelihood(q_words, q_counts, phi_q, tilted_q, q_shares)
            reached += _likelihood(d_words, d_counts, phi_d, tilted_d, d_shares)
            evaluations += 1
            # The last term allows for rounding, which hides the true decrease near the optimum.
            if reached <= V - 1e-4 * rate * slope + 1e-13 * abs(V):
                break
            rate *= 0.5
        multipliers[:] = moved
        V = reached
        _expected(q_words, q_shares, phi_q, tilted_q, expected_q)
        _expected(d_words, d_shares, phi_d, tilted_d, expected_d)
        gradients += 1
        gap = _gap(expected_q, expected_d, q_size, d_size, gradient)
    return V, evaluations, gradients, gap


@compiled(parallel=True)
def pairs_step(  # type: ignore[no-untyped-def]
    first, last, q_indptr, q_words, q_counts, d_indptr, d_words, d_counts, phi_q, phi_d, theta, multipliers,
    prior, steps, tolerance, tilted_q, tilted_d, q_shares, d_shares, found,
):  # fmt: skip
    """Take the E-step of pairs first..last and the M-step of their θ: θ_z ∝ N_z^q + N_z^d + α − 1 (``prior``).

    Outputs for ``words_step``: the old θ as tilted_q, tilted_d (pairs, Z), and n_w / s_w as q_shares, d_shares, one an
    entry. found (pairs, 4): V, its evaluations, gradients, and the remaining gap in the constraint.
    """
    for p in prange(first, last):
        size = theta.shape[1]
        expected_q, expected_d = np.empty(size), np.empty(size)
        a, b, c, d = q_indptr[p], q_indptr[p + 1], d_indptr[p], d_indptr[p + 1]
        V, evaluations, gradients, gap = _pair(
            q_words[a:b], q_counts[a:b], d_words[c:d], d_counts[c:d], phi_q, phi_d, theta[p], multipliers[p],
            steps, tolerance, tilted_q[p], tilted_d[p], q_shares[a:b], d_shares[c:d], expected_q, expected_d,
        )  # fmt: skip
        found[p, 0], found[p, 1], found[p, 2], found[p, 3] = V, evaluations, gradients, gap
        total = 0.0
        for z in range(size):
            theta[p, z] = expected_q[z] + expected_d[z] + prior
            total += theta[p, z]
        for z in range(size):
            # Without words and prior the total is zero: keep θ uniform.
            theta[p, z] = theta[p, z] / total if total > 0 else 1.0 / size


@compiled(parallel=True)
def words_step(  # type: ignore[no-untyped-def]
    starts, pairs, entries, shares, tilted, phi, out
):
    """Take the M-step of one side without its prior: out_wz += Σ_pairs n_w p'(z|w) = φ_wz Σ_pairs (n_w / s_w) θ̃_z.

    (starts, pairs, entries): for word w, the pairs that contain it and its place in ``shares`` for each.
    """
    for w in prange(len(starts) - 1):
        total = np.zeros(phi.shape[1])
        for e in range(starts[w], starts[w + 1]):
            _add_row(total, tilted[pairs[e]], shares[entries[e]])
        for z in range(phi.shape[1]):
            out[w, z] += total[z] * phi[w, z]
