"""Numba kernels of the softmax loss: its gradient over a batch of candidates.

As in ``kernels``, results do not depend on the number of threads, and each kernel has a numpy twin in the tests.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from fullrank.encoding import Float32, Int64
from fullrank_trainer.compiled import compiled

# Parts of the columns, for the threads.
_PARTS = 16

# Of e^x = 2ⁿ e^r with n = round(x / ln 2), |r| ≤ ln 2 / 2. ln 2 has two parts, so that n · ln 2 loses nothing; the
# polynomial of e^r is that of the Cephes library. A sum with _ROUND is rounded to an integer, which its last bits hold.
_LOG2_E = np.float32(1.44269504088896341)
_LN_2, _LN_2_REST = np.float32(0.693359375), np.float32(-2.12194440e-4)
_TERMS = tuple(
    map(
        np.float32,
        (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5),
    )
)
_ROUND = np.float32(3 << 22)
_LEAST_EXPONENT = np.float32(-87)


@compiled()
def exponential(x):  # type: ignore[no-untyped-def]
    """Compute e^x of a float32 up to 0, within 2 units in the last place; 0 below −87.

    Unlike np.exp, which is a call for each number, a loop over it is compiled to vector instructions.
    """
    y = _LEAST_EXPONENT if x < _LEAST_EXPONENT else x
    rounded = y * _LOG2_E + _ROUND
    n = rounded - _ROUND
    r = y - n * _LN_2
    r = r - n * _LN_2_REST
    p = _TERMS[0]
    for k in range(1, 6):
        p = p * r + _TERMS[k]
    p = p * r * r + r + np.float32(1)
    # The exponent of 2ⁿ; the shift drops the bits of _ROUND.
    bits = np.float32(rounded).view(np.int32)
    power = np.int32((bits + np.int32(127)) << np.int32(23)).view(np.float32)
    return np.float32(0) if x < _LEAST_EXPONENT else p * power


@compiled(fastmath={"reassoc"})
def _sum(row):  # type: ignore[no-untyped-def]
    """Add up a row, in an order that suits vector instructions."""
    total = np.float32(0)
    for c in range(row.shape[0]):
        total += row[c]
    return total


@compiled(parallel=True)
def softmax_gradient(
    S: Float32,
    bias: Float32,
    positive_indptr: Int64,
    positives: Int64,
    masked_indptr: Int64,
    masked: Int64,
    weights: Float32,
    losses: Float32,
) -> None:
    """Turn scores S (B, C), to which the bias (C,) is added, into ∂L/∂f of the mean over queries, in place.

    losses[i] = −mean_p log P(p). Without biases there is no entry.

    L = Σ_p w_p −log P(p), where w_p are the ``weights`` of the positives; without weights (0,) they are |P|^−½, and
    with them the mean is weighted. The columns of row i in ``masked`` are no negatives (-1: not a candidate); they
    include its ``positives``.
    """
    for i in prange(S.shape[0]):
        row = S[i]
        if len(bias):
            for c in range(row.shape[0]):
                row[c] += bias[c]
        first, last = positive_indptr[i], positive_indptr[i + 1]
        kept = np.empty(last - first, np.float32)
        for k in range(last - first):
            kept[k] = row[positives[first + k]]
        for k in range(masked_indptr[i], masked_indptr[i + 1]):
            if masked[k] >= 0:
                row[masked[k]] = -np.inf
        top = max(row.max(), kept.max())
        for c in range(row.shape[0]):
            row[c] = exponential(row[c] - top)
        for k in range(len(kept)):
            kept[k] = exponential(kept[k] - top)
        negatives = _sum(row)
        inverse = np.float32(0)
        loss = np.float32(0)
        total = np.float32(0)
        share = np.ones(len(kept), np.float32)
        scale = np.float32(1) / np.sqrt(np.float32(len(kept)))
        if len(weights):
            share, scale = weights[first:last], np.float32(1)
        for k in range(len(kept)):
            z = kept[k] + negatives + np.float32(1e-30)
            inverse += share[k] / z
            loss -= share[k] * np.log(kept[k] / z + np.float32(1e-30))
            total += share[k]
        queries = np.float32(S.shape[0])
        factor = scale * inverse / queries
        for c in range(row.shape[0]):
            row[c] *= factor
        for k in range(len(kept)):
            z = kept[k] + negatives + np.float32(1e-30)
            row[positives[first + k]] = scale * share[k] * (kept[k] / z - np.float32(1)) / queries
        losses[i] = loss / total


@compiled(parallel=True)
def column_sums(G: Float32, out: Float32) -> None:
    """Compute out[c] = Σ_i G_ic; G (B, C)."""
    columns = G.shape[1]
    for part in prange(_PARTS):
        first, last = part * columns // _PARTS, (part + 1) * columns // _PARTS
        out[first:last] = 0
        for i in range(G.shape[0]):
            for c in range(first, last):
                out[c] += G[i, c]
