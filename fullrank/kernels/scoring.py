"""Scores of given documents in float64: u·v and s·t, and their order."""

from __future__ import annotations

import numpy as np
from numba import types

from fullrank.kernels.arrays import Float32, Float64, Int32, Int64, prefetch, prefetch_row
from fullrank.kernels.compiler import INT64, array, check_inside, kernel, output
from fullrank.kernels.evidence import EVIDENCE, REACHED, reaching_in_order

# Partial sums of a dense product. Their number is fixed, and so is the order in which they are added up.
_LANES = 32
# Memory is asked for so many documents before it is needed: lines of 16 numbers, of at most so many entries.
_AHEAD, _LINE, _ENTRIES = 8, 16, 64


_QUERY = array("float32"), array("int32"), array("float32")
_DOCUMENTS = array("float32", 2), array("int64"), array("int32"), array("float32")


@kernel(
    types.void,
    *_QUERY, *_DOCUMENTS,
    array("int64"), output("float64"), output("float64"), output("float64"),
)  # fmt: skip
def score_rows(
    u: Float32,
    words: Int32,
    weights: Float32,
    dense: Float32,
    indptr: Int64,
    indices: Int32,
    values: Float32,
    rows: Int64,
    scratch: Float64,
    dense_scores: Float64,
    sparse_scores: Float64,
) -> None:
    """Write u·v and s·t of each row.

    A product of two float32 numbers is exact in float64, so only the additions round, in an order that depends on the
    document's own row alone.

    Args:
        u: float32 (N,).
        words, weights: s, int32 and float32 (m,).
        dense: v of all documents, float32 (n, N).
        indptr, indices, values: t of all documents, as in Rows.
        rows: int64 (k,).
        scratch: float64 (F,), zero before and afterwards.
        dense_scores, sparse_scores: float64 (k,), written.

    Raises:
        IndexError: A document or the query has a feature that does not exist. Then the scratch is not zero.
    """
    for i in range(len(words)):
        check_inside(words[i], len(scratch))
        scratch[words[i]] = weights[i]
    width = len(u)
    query = u.astype(np.float64)
    whole = width - width % _LANES
    sums = np.empty(_LANES)
    for i in range(len(rows)):
        row = rows[i]
        if i + 2 * _AHEAD < len(rows):
            prefetch(indptr, rows[i + 2 * _AHEAD])
        if i + _AHEAD < len(rows):
            following = rows[i + _AHEAD]
            prefetch_row(dense, following, _LINE)
            first = indptr[following]
            for p in range(first, min(indptr[following + 1], first + _ENTRIES), _LINE):
                prefetch(indices, p)
                prefetch(values, p)
        v = dense[row]
        for lane in range(_LANES):
            sums[lane] = 0.0
        for start in range(0, whole, _LANES):
            for lane in range(_LANES):
                sums[lane] += query[start + lane] * v[start + lane]
        for j in range(whole, width):
            sums[j - whole] += query[j] * v[j]
        for lane in range(16):
            sums[lane] += sums[lane + 16]
        for lane in range(8):
            sums[lane] += sums[lane + 8]
        dense_scores[i] = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + (
            (sums[2] + sums[6]) + (sums[3] + sums[7])
        )
        total = 0.0
        check_inside(indptr[row], len(indices) + 1)
        check_inside(indptr[row + 1], len(indices) + 1)
        for p in range(indptr[row], indptr[row + 1]):
            check_inside(indices[p], len(scratch))
            total += scratch[indices[p]] * values[p]
        sparse_scores[i] = total
    for i in range(len(words)):
        scratch[words[i]] = 0


@kernel(
    REACHED,
    *_QUERY, *_DOCUMENTS, array("float32"),
    array("int64"), array("int64"), output("float64"), *EVIDENCE, INT64, INT64,
)  # fmt: skip
def rank_rows(
    u: Float32,
    words: Int32,
    weights: Float32,
    dense: Float32,
    indptr: Int64,
    indices: Int32,
    values: Float32,
    bias: Float32,
    places: Int64,
    rows: Int64,
    scratch: Float64,
    least_dense: float,
    least_lexical: float,
    least: float,
    lists: Int64,
    slots: Int32,
    evident: Int32,
    slot_of: Int32,
    offset: int,
    limit: int,
) -> tuple[tuple[Int64, Float64, Float64, Float64, Float64], int]:
    """Score documents as `score_rows` does, and order them as `reaching_in_order` does.

    Args:
        u, words, weights, dense, indptr, indices, values, scratch: As for `score_rows`.
        bias: b of all documents, float32 (n,).
        places: Where the documents are in these arrays, int64 (k,).
        rows: Their numbers in the ranking, int64 (k,).
        least_dense, least_lexical, least, lists, slots, evident, slot_of: An ``Evidence``.
        offset, limit: As for `in_order`.
    """
    dense_scores, sparse_scores = np.empty(len(places)), np.empty(len(places))
    score_rows(
        u,
        words,
        weights,
        dense,
        indptr,
        indices,
        values,
        places,
        scratch,
        dense_scores,
        sparse_scores,
    )
    own_bias = np.empty(len(places))
    for i in range(len(places)):
        own_bias[i] = bias[places[i]]
    return reaching_in_order(
        rows, dense_scores, sparse_scores, own_bias,
        least_dense, least_lexical, least, lists, slots, evident, slot_of, offset, limit,
    )  # fmt: skip
