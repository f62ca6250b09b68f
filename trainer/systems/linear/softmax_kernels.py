"""Numba kernels of the softmax loss: its gradient over a batch of candidates.

As in ``kernels``, results do not depend on the number of threads, and each kernel has a numpy twin in the tests.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from fullrank.encoding import Float32, Int64

# Parts of the columns, for the threads.
_PARTS = 16


@njit(parallel=True, nogil=True, cache=True)
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
            row[c] = np.exp(row[c] - top)
        for k in range(len(kept)):
            kept[k] = np.exp(kept[k] - top)
        negatives = np.float32(0)
        for c in range(row.shape[0]):
            negatives += row[c]
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
        for c in range(row.shape[0]):
            row[c] = row[c] * (scale * inverse) / queries
        for k in range(len(kept)):
            z = kept[k] + negatives + np.float32(1e-30)
            row[positives[first + k]] = scale * share[k] * (kept[k] / z - np.float32(1)) / queries
        losses[i] = loss / total


@njit(parallel=True, nogil=True, cache=True)
def column_sums(G: Float32, out: Float32) -> None:
    """Compute out[c] = Σ_i G_ic; G (B, C)."""
    columns = G.shape[1]
    for part in prange(_PARTS):
        first, last = part * columns // _PARTS, (part + 1) * columns // _PARTS
        out[first:last] = 0
        for i in range(G.shape[0]):
            for c in range(first, last):
                out[c] += G[i, c]
