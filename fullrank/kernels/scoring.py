"""Scores of given documents in float64: u·v and s·t, and their order."""

from __future__ import annotations

import numpy as np
from numba import types

from fullrank.kernels.arrays import Float32, Float64, Int32, Int64, UInt8, prefetch, prefetch_row
from fullrank.kernels.compiler import INT64, array, check_inside, helper, kernel, output
from fullrank.kernels.evidence import EVIDENCE, REACHED, Evidence, reaching_in_order
from fullrank.kernels.index import MATRIX, VECTOR, Matrix, Vector

# Partial sums of a dense product. Their number is fixed, and so is the order in which they are added up.
_LANES = 32
# Memory is asked for so many documents before it is needed: lines of 16 numbers, of at most so many entries.
_AHEAD, _LINE, _ENTRIES = 8, 16, 256
# A power of two. Features of the query are marked modulo it, in bytes that stay in the innermost cache.
_MARKS = 1 << 12


@helper
def _dense_product(u: Float64, v: Float32, sums: Float64) -> float:
    width = len(u)
    whole = width - width % _LANES
    for lane in range(_LANES):
        sums[lane] = 0.0
    for start in range(0, whole, _LANES):
        for lane in range(_LANES):
            sums[lane] += u[start + lane] * v[start + lane]
    for j in range(whole, width):
        sums[j - whole] += u[j] * v[j]
    for lane in range(16):
        sums[lane] += sums[lane + 16]
    for lane in range(8):
        sums[lane] += sums[lane + 8]
    total: float = (sums[0] + sums[4]) + (sums[1] + sums[5])
    total += (sums[2] + sums[6]) + (sums[3] + sums[7])
    return total


@helper
def _marked(indices: Int32, first: int, stop: int, marks: UInt8, width: int, found: Int64) -> int:
    """Write the places of the entries whose feature is marked; return their number.

    Raises:
        IndexError: A feature is not below `width`, or below 0.
    """
    size, largest = 0, np.uint32(0)
    for p in range(first, stop):
        found[size] = p
        size += marks[indices[p] & (_MARKS - 1)]
        largest = max(largest, np.uint32(indices[p]))  # one below 0 is very large
    if first < stop:
        check_inside(int(np.int64(largest)), width)
    return size


@kernel(
    types.void,
    VECTOR, MATRIX, array("int64"), output("float64"), output("float64"), output("float64"),
)  # fmt: skip
def score_rows(
    query: Vector,
    documents: Matrix,
    rows: Int64,
    scratch: Float64,
    dense_scores: Float64,
    sparse_scores: Float64,
) -> None:
    """Write u·v and s·t of each row.

    A product of two float32 numbers is exact in float64, so only the additions round, in an order that depends on the
    document's own row alone. Most words of a document are not in the query; a small table of marks tells which may be.

    Args:
        scratch: float64 (F,), zero before and afterwards.

    Raises:
        IndexError: A document or the query has a feature that does not exist. Then the scratch is not zero.
    """
    words, weights, dense = query.words, query.weights, documents.dense
    indptr, indices, values = documents.indptr, documents.indices, documents.values
    marks = np.zeros(_MARKS, np.uint8)
    for i in range(len(words)):
        check_inside(words[i], len(scratch))
        scratch[words[i]] = weights[i]
        marks[words[i] & (_MARKS - 1)] = 1
    longest = 0
    for i in range(len(rows)):
        check_inside(indptr[rows[i]], len(indices) + 1)
        check_inside(indptr[rows[i] + 1], len(indices) + 1)
        longest = max(longest, indptr[rows[i] + 1] - indptr[rows[i]])
    u, sums, own = query.u.astype(np.float64), np.empty(_LANES), np.empty(longest + 1, np.int64)
    for i in range(len(rows)):
        row = rows[i]
        if i + _AHEAD < len(rows):
            following = rows[i + _AHEAD]
            prefetch_row(dense, following, _LINE)
            first = indptr[following]
            for p in range(first, min(indptr[following + 1], first + _ENTRIES), _LINE):
                prefetch(indices, p)
        size = _marked(indices, indptr[row], indptr[row + 1], marks, len(scratch), own)
        for k in range(size):
            prefetch(values, own[k])
        dense_scores[i] = _dense_product(u, dense[row], sums)
        total = 0.0
        for k in range(size):
            total += scratch[indices[own[k]]] * values[own[k]]
        sparse_scores[i] = total
    for i in range(len(words)):
        scratch[words[i]] = 0


@kernel(
    REACHED,
    VECTOR, MATRIX, array("int64"), array("int64"), output("float64"), EVIDENCE, INT64, INT64, INT64,
)  # fmt: skip
def rank_rows(
    query: Vector,
    documents: Matrix,
    places: Int64,
    rows: Int64,
    scratch: Float64,
    evidence: Evidence,
    offset: int,
    limit: int,
    is_counted: int,
) -> tuple[tuple[Int64, Float64, Float64, Float64, Float64], int]:
    """Score documents as `score_rows` does, and order them as `reaching_in_order` does.

    Args:
        places: Where the documents are in these arrays, int64 (k,).
        rows: Their numbers in the ranking, int64 (k,).
    """
    dense, sparse = np.empty(len(places)), np.empty(len(places))
    score_rows(query, documents, places, scratch, dense, sparse)
    bias = np.empty(len(places))
    for i in range(len(places)):
        bias[i] = documents.bias[places[i]]
    return reaching_in_order(rows, dense, sparse, bias, evidence, offset, limit, is_counted)
