"""Numba kernels of training: embedding, its AdaGrad step, and the lexical part over a batch of candidates.

Three layers: one row, all rows in parallel, and the Python functions of ``softmax`` and ``margin`` that call them.
Every reduction runs inside one thread in a fixed order, so results do not depend on the number of threads (except those
of ``margin_sgd``). Each kernel has a numpy twin in the tests. All arrays are C-contiguous; indptr int64, indices int32,
values float32.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from fullrank.kernels.arrays import prefetch_row
from fullrank.storage.encoding import Float32, Int32, Int64
from fullrank_trainer.compiled import compiled

# Parts of the step on a table, numbers in a line of memory, and features that a part takes in a row. Features of one
# kind, such as the frequent ones, lie together, so they are dealt to the parts.
_PARTS, _LINE, _RUN = 16, 16, 32
# How many rows of a sum ahead memory is prefetched.
_AHEAD = 4


@compiled(fastmath=True)
def add_row(out: Float32, row: Float32, weight: np.float32) -> None:
    """Update out += weight · row."""
    for n in range(out.shape[0]):
        out[n] += weight * row[n]


@njit(nogil=True, fastmath=True, inline="always")
def _sum_rows(
    out: Float32, i: int, table: Float32, rows: Int32, weights: Float32, first: int, last: int
) -> None:
    """Compute out[i] = Σ_p weights[p] · table[rows[p]] for p in first..last; four rows at once, as loads take longest.

    The rows that are left over come first, in one pass: most sums have few rows. Those of the next sums are prefetched,
    because rows lie anywhere in a table that is larger than the caches.
    """
    left, size = (last - first) % 4, out.shape[1]
    for p in range(first + _AHEAD, min(first + left + _AHEAD, len(rows))):
        prefetch_row(table, rows[p], _LINE)
    if left == 0:
        for n in range(size):
            out[i, n] = 0
    elif left == 1:
        r0, w0 = rows[first], weights[first]
        for n in range(size):
            out[i, n] = w0 * table[r0, n]
    elif left == 2:
        r0, r1 = rows[first], rows[first + 1]
        w0, w1 = weights[first], weights[first + 1]
        for n in range(size):
            out[i, n] = w0 * table[r0, n] + w1 * table[r1, n]
    else:
        r0, r1, r2 = rows[first], rows[first + 1], rows[first + 2]
        w0, w1, w2 = weights[first], weights[first + 1], weights[first + 2]
        for n in range(size):
            out[i, n] = w0 * table[r0, n] + w1 * table[r1, n] + w2 * table[r2, n]
    for p in range(first + left, last, 4):
        for ahead in range(p + _AHEAD, min(p + 4 + _AHEAD, len(rows))):
            prefetch_row(table, rows[ahead], _LINE)
        r0, r1, r2, r3 = rows[p], rows[p + 1], rows[p + 2], rows[p + 3]
        w0, w1, w2, w3 = weights[p], weights[p + 1], weights[p + 2], weights[p + 3]
        for n in range(size):
            out[i, n] += (
                w0 * table[r0, n] + w1 * table[r1, n] + w2 * table[r2, n] + w3 * table[r3, n]
            )


@compiled(fastmath=True)
def _dot(a: Float32, b: Float32) -> np.float32:
    total = np.float32(0)
    for n in range(a.shape[0]):
        total += a[n] * b[n]
    return total


@compiled(parallel=True)
def embed(indptr: Int64, indices: Int32, values: Float32, table: Float32, out: Float32) -> None:
    """Compute the dense vector of every row x: out[i] = Σ_j x_ij · table[j]; table (F, N), out (B, N)."""
    for i in prange(len(indptr) - 1):
        _sum_rows(out, i, table, indices, values, indptr[i], indptr[i + 1])


@compiled(parallel=True, fastmath=True)
def adagrad_table(
    features: Int64, indptr: Int64, rows: Int32, values: Float32, gradient: Float32, table: Float32,
    squares: Float32, rate: float,
) -> None:  # fmt: skip
    """Take one AdaGrad step on the touched rows of a table, given the batch by feature and ∂L/∂u, (B, N).

    ∂L/∂table[f] = Σ_i x_if ∂L/∂u_i         squares[f] += mean over n of its square
    table[f] −= rate · ∂L/∂table[f] / √squares[f]
    """
    share, size = -(-len(features) // (_PARTS * _RUN)), gradient.shape[1]
    for part in prange(_PARTS):
        g = np.empty((1, size), np.float32)
        for turn in range(share * _RUN):
            t = (turn // _RUN * _PARTS + part) * _RUN + turn % _RUN
            if t >= len(features):
                continue
            f = features[t]
            prefetch_row(table, f, _LINE)
            _sum_rows(g, 0, gradient, rows, values, indptr[t], indptr[t + 1])
            total = np.float32(0)
            for n in range(size):
                total += g[0, n] * g[0, n]
            squares[f] += total / np.float32(size)
            if squares[f] > 0:
                step = np.float32(rate / np.sqrt(squares[f]))
                # A view of the row costs more than the update.
                for n in range(size):
                    table[f, n] -= step * g[0, n]


@compiled(fastmath=True)
def _match_row(
    indices: Int32, values: Float32, starts: Int64, postings: Int32, weights: Float32, row: Int32,
    table: Float32, diagonal: Float32, out: Float32,
) -> None:  # fmt: skip
    for p in range(len(indices)):
        w = indices[p]
        s = values[p] * diagonal[w]
        if row[w] >= 0:
            add_row(out, table[row[w]], s)
            continue
        for e in range(starts[w], starts[w + 1]):
            out[postings[e]] += s * weights[e]


@compiled(parallel=True)
def match(
    indptr: Int64, indices: Int32, values: Float32, starts: Int64, postings: Int32, weights: Float32,
    row: Int32, table: Float32, diagonal: Float32, out: Float32,
) -> None:  # fmt: skip
    """Add lexical scores: out[i, c] += Σ_w s_iw · D_w · z_cw.

    (starts, postings, weights, row, table) are the candidates by word (``postings_of``), whose numbers the words have.
    """
    for i in prange(len(indptr) - 1):
        a, b = indptr[i], indptr[i + 1]
        _match_row(
            indices[a:b], values[a:b], starts, postings, weights, row, table, diagonal, out[i]
        )


@compiled(parallel=True)
def match_gradient(
    indptr: Int64, rows: Int32, values: Float32, starts: Int64, postings: Int32, weights: Float32,
    row: Int32, table: Float32, gradient: Float32, out: Float32,
) -> None:  # fmt: skip
    """Compute out[w] = ∂L/∂D_w = Σ_ic G_ic · s_iw · z_cw.

    (indptr, rows, values) are the queries by word, the others the candidates by word (``postings_of``).
    """
    for w in prange(len(indptr) - 1):
        total = 0.0
        for p in range(indptr[w], indptr[w + 1]):
            g = gradient[rows[p]]
            inner = 0.0
            if row[w] >= 0:
                inner = float(_dot(g, table[row[w]]))
            else:
                for e in range(starts[w], starts[w + 1]):
                    inner += g[postings[e]] * weights[e]
            total += values[p] * inner
        out[w] = total


@compiled()
def known_negatives(
    owner: Int32, negatives: Int32, starts: Int64, known: Int64, mates: Int64
) -> Int64:
    """Return the places t, ascending, whose negative is the mate or in known[starts[owner]:starts[owner + 1]]."""
    found = np.empty(len(owner), np.int64)
    count = 0
    for t in range(len(owner)):
        row, first, last = negatives[t], starts[owner[t]], starts[owner[t] + 1]
        place = first + np.searchsorted(known[first:last], row)
        if row == mates[owner[t]] or (place < last and known[place] == row):
            found[count] = t
            count += 1
    return found[:count].copy()


@compiled()
def dot_sparse(ai: Int32, av: Float32, bi: Int32, bv: Float32, D: Float32) -> float:
    """Return Σ_w a_w D_w b_w of two sparse rows with ascending indices."""
    total = 0.0
    i = j = 0
    while i < len(ai) and j < len(bi):
        if ai[i] == bi[j]:
            total += av[i] * D[ai[i]] * bv[j]
            i += 1
            j += 1
        elif ai[i] < bi[j]:
            i += 1
        else:
            j += 1
    return total


@compiled()
def _update_diagonal(
    ai: Int32, av: Float32, bi: Int32, bv: Float32, step: float, D: Float32
) -> None:
    """Update D_w += step · a_w b_w for words w of both rows."""
    i = j = 0
    while i < len(ai) and j < len(bi):
        if ai[i] == bi[j]:
            D[ai[i]] += np.float32(step * av[i] * bv[j])
            i += 1
            j += 1
        elif ai[i] < bi[j]:
            i += 1
        else:
            j += 1


@compiled()
def _margin_triple(  # type: ignore[no-untyped-def]
    q, d, n, xq, xd, s, zp, zi, zv, U, V, D, bias, latent, learn, biased, rate
):
    """Return the hinge max(0, 1 − f(q,d⁺) + f(q,d⁻)) of a triple and, if it is positive, take its step.

    U += λ V(x⁺ − x⁻) x_qᵀ     V += λ (U x_q)(x⁺ − x⁻)ᵀ     D_f += λ s (z_f⁺ − z_f⁻)     b_{d⁺} += λ, b_{d⁻} −= λ

    Both products use the values before the step. If V is U, both updates change it.
    """
    si, sv = s[1][s[0][q] : s[0][q + 1]], s[2][s[0][q] : s[0][q + 1]]
    margin = 1.0
    for f in range(len(zp)):
        ip, ix, vx = zp[f], zi[f], zv[f]
        margin -= dot_sparse(si, sv, ix[ip[d] : ip[d + 1]], vx[ip[d] : ip[d + 1]], D[f])
        margin += dot_sparse(si, sv, ix[ip[n] : ip[n + 1]], vx[ip[n] : ip[n + 1]], D[f])
    if biased:
        margin += bias[n] - bias[d]
    size = U.shape[1] if latent else 0
    u = np.zeros(size, np.float32)
    v = np.zeros(size, np.float32)
    if latent:
        for p in range(xq[0][q], xq[0][q + 1]):
            add_row(u, U[xq[1][p]], xq[2][p])
        for p in range(xd[0][d], xd[0][d + 1]):
            add_row(v, V[xd[1][p]], xd[2][p])
        for p in range(xd[0][n], xd[0][n + 1]):
            add_row(v, V[xd[1][p]], -xd[2][p])
        for k in range(size):
            margin -= u[k] * v[k]
    if margin <= 0:
        return 0.0
    step = np.float32(rate)
    if latent:
        for p in range(xq[0][q], xq[0][q + 1]):
            add_row(U[xq[1][p]], v, step * xq[2][p])
        for p in range(xd[0][d], xd[0][d + 1]):
            add_row(V[xd[1][p]], u, step * xd[2][p])
        for p in range(xd[0][n], xd[0][n + 1]):
            add_row(V[xd[1][p]], u, -step * xd[2][p])
    if learn:
        for f in range(len(zp)):
            ip, ix, vx = zp[f], zi[f], zv[f]
            _update_diagonal(si, sv, ix[ip[d] : ip[d + 1]], vx[ip[d] : ip[d + 1]], rate, D[f])
            _update_diagonal(si, sv, ix[ip[n] : ip[n + 1]], vx[ip[n] : ip[n + 1]], -rate, D[f])
    if biased:
        bias[d] += step
        bias[n] -= step
    return margin


@compiled(parallel=True)
def margin_sgd(  # type: ignore[no-untyped-def]
    queries, positives, negatives, shards, xq, xd, s, zp, zi, zv, U, V, D, bias, latent, learn, biased,
    rate, losses,
):  # fmt: skip
    """Run stochastic gradient descent over triples: rows of queries, relevant and other documents, int64 (T,).

    losses is float32 (T,). Shard i takes every ``shards``-th triple. Shards run in parallel without locks, because rows
    are sparse and collisions rare; only one shard gives reproducible bits. xq, xd and s are (indptr, indices, values);
    zp, zi and zv are the same for every field (numba does not pass tuples of tuples into threads). V is U if tied.
    """
    for i in prange(shards):
        for t in range(i, len(queries), shards):
            losses[t] = _margin_triple(
                queries[t], positives[t], negatives[t], xq, xd, s, zp, zi, zv,
                U, V, D, bias, latent, learn, biased, rate,
            )  # fmt: skip


# Of e^x = 2ⁿ e^r with n = round(x / ln 2), |r| ≤ ln 2 / 2. ln 2 has two parts, so that n · ln 2 loses nothing; the
# polynomial of e^r is that of the Cephes library. A sum with _ROUND is rounded to an integer, which its last bits hold.
_LOG2_E = np.float32(1.44269504088896341)
_LN_2, _LN_2_REST = np.float32(0.693359375), np.float32(-2.12194440e-4)
_TERMS = tuple(
    np.float32(term)
    for term in (
        1.98756915e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        0.5,
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
    total = np.float32(0)
    for c in range(row.shape[0]):
        total += row[c]
    return total


@compiled(parallel=True)
def softmax_gradient(
    S: Float32, bias: Float32, positive_indptr: Int64, positives: Int64, masked_indptr: Int64,
    masked: Int64, weights: Float32, losses: Float32,
) -> None:  # fmt: skip
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
