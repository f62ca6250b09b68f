"""Numba kernels of training: embedding, its gradient with AdaGrad, and the sparse part over a batch of candidates.

Three layers, innermost first: one row, all rows in parallel, and the plain functions in ``trainer.step`` that call them.
Every reduction runs inside one thread in a fixed order, so results do not depend on the number of threads. Each kernel has
a numpy twin in the tests. All arrays are C-contiguous; indptr int64, indices int32, values float32.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from fullrank.encoding import Float32, Int32, Int64


@njit(nogil=True, fastmath=True, cache=True)
def _add_row(out: Float32, row: Float32, weight: np.float32) -> None:
    for n in range(out.shape[0]):
        out[n] += weight * row[n]


@njit(parallel=True, nogil=True, cache=True)
def embed(indptr: Int64, indices: Int32, values: Float32, table: Float32, out: Float32) -> None:
    """out[i] = Σ_j x_ij · table[j]: the dense vector U x of every row x; table (F, N), out (B, N)."""
    for i in prange(len(indptr) - 1):
        out[i, :] = 0
        for p in range(indptr[i], indptr[i + 1]):
            _add_row(out[i], table[indices[p]], values[p])


@njit(parallel=True, nogil=True, cache=True)
def adagrad_table(
    features: Int32,
    indptr: Int64,
    rows: Int32,
    values: Float32,
    gradient: Float32,
    table: Float32,
    squares: Float32,
    rate: float,
) -> None:
    """One AdaGrad step on the touched rows of a table.

    ∂L/∂table[f] = Σ_i x_if ∂L/∂u_i         squares[f] += mean over n of its square
    table[f] −= rate · ∂L/∂table[f] / √squares[f]

    features (T,) are the touched rows; (indptr, rows, values) the batch transposed: for feature t, which texts hold it and
    how strongly; gradient (B, N) is ∂L/∂u.
    """
    for t in prange(len(features)):
        f = features[t]
        g = np.zeros(gradient.shape[1], np.float32)
        for p in range(indptr[t], indptr[t + 1]):
            _add_row(g, gradient[rows[p]], values[p])
        total = np.float32(0)
        for n in range(g.shape[0]):
            total += g[n] * g[n]
        squares[f] += total / np.float32(g.shape[0])
        if squares[f] > 0:
            _add_row(table[f], g, np.float32(-rate / np.sqrt(squares[f])))


@njit(nogil=True, fastmath=True, cache=True)
def _match_row(
    indices: Int32, values: Float32, starts: Int64, postings: Int32, weights: Float32, diagonal: Float32, out: Float32
) -> None:
    for p in range(len(indices)):
        w = indices[p]
        s = values[p] * diagonal[w]
        for e in range(starts[w], starts[w + 1]):
            out[postings[e]] += s * weights[e]


@njit(parallel=True, nogil=True, cache=True)
def match(
    indptr: Int64,
    indices: Int32,
    values: Float32,
    starts: Int64,
    postings: Int32,
    weights: Float32,
    diagonal: Float32,
    out: Float32,
) -> None:
    """out[i, c] += Σ_w s_iw · D_w · z_cw over the candidates' postings (starts, postings, weights) by word."""
    for i in prange(len(indptr) - 1):
        a, b = indptr[i], indptr[i + 1]
        _match_row(indices[a:b], values[a:b], starts, postings, weights, diagonal, out[i])


@njit(parallel=True, nogil=True, cache=True)
def match_gradient(
    touched: Int32,
    indptr: Int64,
    rows: Int32,
    values: Float32,
    starts: Int64,
    postings: Int32,
    weights: Float32,
    gradient: Float32,
    out: Float32,
) -> None:
    """out[t] = ∂L/∂D_w = Σ_ic G_ic · s_iw · z_cw for each touched word w; (indptr, rows, values) are the queries by word."""
    for t in prange(len(touched)):
        w = touched[t]
        total = 0.0
        for p in range(indptr[t], indptr[t + 1]):
            row = gradient[rows[p]]
            inner = 0.0
            for e in range(starts[w], starts[w + 1]):
                inner += row[postings[e]] * weights[e]
            total += values[p] * inner
        out[t] = total
