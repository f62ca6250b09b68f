"""Numba kernels of the word-pair models: the margin loss on qᵀWd.

W is a flat table of H weights: W_ij is at (starts[i] + j) mod H. A hash table has starts[i] = iP mod H; a dense
matrix is the table with H = D² and starts[i] = iD, where no two pairs share a weight. One kernel serves both.

Texts are (indptr int64, indices int32, values float32); the table float32. Each kernel has a numpy twin in the tests.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from fullrank.encoding import Float32, Int32, Int64
from fullrank_trainer.compiled import compiled


@compiled()
def _slot(start: int, column: int, slots: int) -> int:
    """Return (start + column) mod slots."""
    place = start + column
    while place >= slots:
        place -= slots
    return place


@compiled()
def _score(
    qi: Int32,
    qv: Float32,
    di: Int32,
    dv: Float32,
    starts: Int64,
    table: Float32,
    off_diagonal: bool,
) -> float:
    """Return Σ_ij q_i W_ij d_j; ``off_diagonal`` leaves out i = j."""
    total = 0.0
    for a in range(len(qi)):
        start = starts[qi[a]]
        row = 0.0
        for b in range(len(di)):
            if not (off_diagonal and di[b] == qi[a]):
                row += table[_slot(start, di[b], len(table))] * dv[b]
        total += qv[a] * row
    return total


@compiled()
def _overlap(qi: Int32, qv: Float32, di: Int32, dv: Float32) -> float:
    """Return q·d of two rows with ascending indices."""
    total = 0.0
    a = b = 0
    while a < len(qi) and b < len(di):
        if qi[a] == di[b]:
            total += qv[a] * dv[b]
            a += 1
            b += 1
        elif qi[a] < di[b]:
            a += 1
        else:
            b += 1
    return total


@compiled()
def _update(
    qi: Int32, qv: Float32, di: Int32, dv: Float32, starts: Int64, table: Float32, off_diagonal: bool,
    closed: bool, step: float,
) -> None:  # fmt: skip
    """Update W_ij += step · q_i d_j; with ``closed``, weights of zero were removed and stay zero."""
    for a in range(len(qi)):
        start = starts[qi[a]]
        part = step * qv[a]
        for b in range(len(di)):
            slot = _slot(start, di[b], len(table))
            if (off_diagonal and di[b] == qi[a]) or (closed and table[slot] == 0):
                continue
            table[slot] += np.float32(part * dv[b])


@compiled()
def _pair_triple(  # type: ignore[no-untyped-def]
    q, d, n, xq, xd, starts, table, alpha, apart, off_diagonal, closed, rate, update, always
):
    """Return the hinge max(0, 1 − f(q,d⁺) + f(q,d⁻)) of a triple and, if it is positive, take its step.

    ∂L/∂W = −q(d⁺ − d⁻)ᵀ, hence   W += λ q(d⁺ − d⁻)ᵀ   (Bai et al. 2009, update of eq. 8)
    ∂L/∂α = −q·(d⁺ − d⁻), hence   α += λ q·(d⁺ − d⁻)   if αI is separate from W

    In a hash table a weight gets the sum over the pairs that share it. ``always`` takes the step without a check.
    """
    qi, qv = xq[1][xq[0][q] : xq[0][q + 1]], xq[2][xq[0][q] : xq[0][q + 1]]
    pi, pv = xd[1][xd[0][d] : xd[0][d + 1]], xd[2][xd[0][d] : xd[0][d + 1]]
    ni, nv = xd[1][xd[0][n] : xd[0][n + 1]], xd[2][xd[0][n] : xd[0][n + 1]]
    lexical = _overlap(qi, qv, pi, pv) - _overlap(qi, qv, ni, nv) if apart else 0.0
    margin = 0.0
    if not always:
        margin = 1.0 - alpha[0] * lexical
        margin -= _score(qi, qv, pi, pv, starts, table, off_diagonal)
        margin += _score(qi, qv, ni, nv, starts, table, off_diagonal)
        if margin <= 0 or not update:
            return max(0.0, margin)
    _update(qi, qv, pi, pv, starts, table, off_diagonal, closed, rate)
    _update(qi, qv, ni, nv, starts, table, off_diagonal, closed, -rate)
    alpha[0] += rate * lexical
    return margin


@compiled(parallel=True)
def pair_sgd(  # type: ignore[no-untyped-def]
    triples, shards, xq, xd, starts, table, alpha, apart, off_diagonal, closed, rate, update, always,
    losses,
):  # fmt: skip
    """Run stochastic gradient descent over triples int64 (T, 3) of (q, d⁺, d⁻); losses float32 (T,).

    Shard i takes every ``shards``-th triple. Shards run in parallel without locks, so only one shard gives reproducible
    bits. xq, xd are (indptr, indices, values); alpha float64 (1,).
    """
    for i in prange(shards):
        for t in range(i, len(triples), shards):
            losses[t] = _pair_triple(
                triples[t, 0], triples[t, 1], triples[t, 2], xq, xd, starts, table, alpha,
                apart, off_diagonal, closed, rate, update, always,
            )  # fmt: skip


@compiled()
def _nonzero(row: Float32) -> int:
    """Count the non-zero weights of a row."""
    count = 0
    for j in range(len(row)):
        count += row[j] != 0
    return count


@compiled()
def _least_kept(row: Float32, keep: int) -> tuple[float, int]:
    """Return the smallest |w| among the ``keep`` largest of a row, and how many weights equal to it to keep."""
    count = _nonzero(row)
    if keep == 0 or count <= keep:
        return 0.0, len(row)
    sizes = np.empty(count, np.float32)
    place = 0
    for j in range(len(row)):
        if row[j] != 0:
            sizes[place] = abs(row[j])
            place += 1
    sizes = np.partition(sizes, count - keep)
    least, ties = sizes[count - keep], 0
    for place in range(count - keep, count):
        ties += sizes[place] == least
    return least, ties


@compiled(parallel=True)
def count_kept(W: Float32, keep: int, counts: Int64) -> None:
    """Count the non-zero weights of each row of W (D, D) into counts, at most ``keep`` (0: all)."""
    for i in prange(len(W)):
        nonzero = _nonzero(W[i])
        counts[i] = min(nonzero, keep) if keep else nonzero


@compiled(parallel=True)
def fill_kept(W: Float32, keep: int, indptr: Int64, indices: Int32, values: Float32) -> None:
    """Copy the ``keep`` largest |W_ij| of every row (0: all), columns ascending, ties to the first.

    ``indptr`` comes from ``count_kept``.
    """
    for i in prange(len(W)):
        row = W[i]
        least, ties = _least_kept(row, keep)
        place = indptr[i]
        for j in range(len(row)):
            size = abs(row[j])
            if size == 0 or size < least or (size == least and ties == 0):
                continue
            if size == least:
                ties -= 1
            indices[place] = j
            values[place] = row[j]
            place += 1


@compiled(parallel=True)
def remove_smallest(W: Float32, keep: int) -> None:
    """Set all but the ``keep`` largest |W_ij| of every row to zero; ties go to the first."""
    for i in prange(len(W)):
        row = W[i]
        least, ties = _least_kept(row, keep)
        if least == 0:
            continue
        for j in range(len(row)):
            size = abs(row[j])
            if size < least or (size == least and ties == 0):
                row[j] = 0
            elif size == least:
                ties -= 1
