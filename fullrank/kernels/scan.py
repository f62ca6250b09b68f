"""Approximate scores of all documents from int8 codes and 8-bit impacts, and bounds on their error."""

from __future__ import annotations

import math

import numpy as np
from numba import types

from fullrank.kernels.arrays import Float32, Float64, Int8, Int32, Int64, UInt8
from fullrank.kernels.compiler import (
    FLOAT32,
    FLOAT64,
    array,
    check_inside,
    helper,
    kernel,
    output,
    several,
)
from fullrank.kernels.sorting import stable_order

# Of 8-bit impacts, and of int8 codes on each side of zero.
LEVELS, CODE_LEVELS = 255, 127
# Three roundings of the float32 look-up of an impact, and one to spare.
_ROUNDING = 4 * 2.0**-24
_LEAST_SCALE = np.finfo(np.float32).tiny


@kernel(
    several(FLOAT64, FLOAT64),
    array("float32", 2), output("int8", 2), output("float32"),
)  # fmt: skip
def code_vectors(vectors: Float32, codes: Int8, scales: Float32) -> tuple[float, float]:
    """Code each row v as a scale times int8: the scale is max |v_j| / 127.

    Args:
        vectors: float32 (B, N).
        codes: int8 (B, N), written.
        scales: float32 (B,), written.

    Returns:
        max ‖v − v̂‖ and max ‖v̂‖ over the rows.
    """
    largest_error = largest_length = 0.0
    for row in range(len(vectors)):
        largest = np.float32(0)
        for j in range(vectors.shape[1]):
            largest = max(largest, abs(vectors[row, j]))
        scale = largest / np.float32(CODE_LEVELS)
        # A subnormal scale has no inverse in float32, so such a vector is coded as zero.
        if scale < _LEAST_SCALE:
            scale = np.float32(0)
        scales[row] = scale
        error = length = 0.0
        for j in range(vectors.shape[1]):
            code = np.float32(0)
            if scale > 0:
                code = np.rint(vectors[row, j] / scale)
                code = min(max(code, np.float32(-CODE_LEVELS)), np.float32(CODE_LEVELS))
            codes[row, j] = np.int8(code)
            decoded = np.float64(code) * np.float64(scale)
            error += (np.float64(vectors[row, j]) - decoded) ** 2
            length += decoded**2
        largest_error = max(largest_error, error)
        largest_length = max(largest_length, length)
    return math.sqrt(largest_error), math.sqrt(largest_length)


@helper
def code_product(code: Int8, codes: Int8, row: int) -> np.float32:
    """Return the product of a code, int8 (N,), and a row of int8 (n, N); N is below 130,000, so 32 bits hold it."""
    product = np.int32(0)
    for j in range(len(code)):
        product = np.int32(product + np.int32(np.int32(code[j]) * np.int32(codes[row, j])))
    return np.float32(product)


@kernel(
    types.void,
    array("int8"), FLOAT32, array("int8", 2), array("float32"), output("float32"),
)  # fmt: skip
def scan_codes(
    code: Int8, scale: np.float32, codes: Int8, scales: Float32, scores: Float32
) -> None:
    """Write the scaled products of a query's code with all codes.

    Args:
        code: int8 (N,).
        scale: Of the query.
        codes: int8 (n, N).
        scales: Of the documents, float32 (n,).
        scores: float32 (n,), written.
    """
    for row in range(len(scores)):
        scores[row] = code_product(code, codes, row) * scale * scales[row]


@kernel(
    types.void,
    array("int64"), array("int32"), array("uint8"), array("float32", 2),
    array("int32"), array("float64"), output("float32"),
)  # fmt: skip
def add_impacts(
    indptr: Int64,
    rows: Int32,
    impacts: UInt8,
    limits: Float32,
    words: Int32,
    weights: Float64,
    scores: Float32,
) -> None:
    """Add s_w t̂_wd of some words to the scores of their documents.

    Args:
        indptr, rows, impacts, limits: As in Postings.
        words: int32 (m,).
        weights: s_w, float64 (m,).
        scores: float32 (n,), updated.

    Raises:
        IndexError: A list has a row that does not exist.
    """
    table = np.empty(LEVELS + 1, np.float32)
    for i in range(len(words)):
        word = words[i]
        low = np.float64(limits[word, 0])
        step = (np.float64(limits[word, 1]) - low) / LEVELS
        for level in range(LEVELS + 1):
            table[level] = np.float32((low + step * level) * weights[i])
        check_inside(indptr[word], len(rows) + 1)
        check_inside(indptr[word + 1], len(rows) + 1)
        for p in range(indptr[word], indptr[word + 1]):
            check_inside(rows[p], len(scores))
            scores[rows[p]] += table[impacts[p]]


@kernel(
    types.void,
    array("int64"), array("int32"), array("float32"),
    array("int32"), array("float32"), output("float32"),
)  # fmt: skip
def add_weights(
    indptr: Int64, rows: Int32, values: Float32, words: Int32, weights: Float32, scores: Float32
) -> None:
    """Add s_w t_wd of some words to the scores of their documents, from postings with float32 weights."""
    for i in range(len(words)):
        for p in range(indptr[words[i]], indptr[words[i] + 1]):
            scores[rows[p]] += weights[i] * values[p]


@kernel(
    several(
        array("int32"), array("float64"), array("float64"), array("float64"), array("float64")
    ),
    array("int64"), array("float32", 2), array("int32"), array("float32"),
)  # fmt: skip
def plan_words(
    indptr: Int64, limits: Float32, words: Int32, weights: Float32
) -> tuple[Int32, Float64, Float64, Float64, Float64]:
    """Order the words of a query that have postings by the width of their contribution per posting, widest first.

    Args:
        indptr, limits: As in Postings.
        words, weights: The query's words, int32 and float32 (m,).

    Returns:
        words, weights, below, above and errors, as in Plan.
    """
    count = 0
    kept = np.empty(len(words), np.int64)
    low, high = np.empty(len(words), np.float64), np.empty(len(words), np.float64)
    width = np.empty(len(words), np.float64)
    for i in range(len(words)):
        entries = indptr[words[i] + 1] - indptr[words[i]]
        if entries > 0:
            one = np.float64(limits[words[i], 0]) * np.float64(weights[i])
            other = np.float64(limits[words[i], 1]) * np.float64(weights[i])
            low[count], high[count] = min(one, other, 0.0), max(one, other, 0.0)
            width[count] = (low[count] - high[count]) / entries
            kept[count] = i
            count += 1
    order = stable_order(width[:count])
    planned, s = np.empty(count, np.int32), np.empty(count, np.float64)
    below, above = np.zeros(count + 1), np.zeros(count + 1)
    errors = np.zeros(count + 1)
    for place in range(count):
        i = kept[order[place]]
        word = planned[place] = words[i]
        s[place] = weights[i]
        size = max(abs(np.float64(limits[word, 0])), abs(np.float64(limits[word, 1])))
        step = (np.float64(limits[word, 1]) - np.float64(limits[word, 0])) / LEVELS
        errors[place + 1] = errors[place] + abs(s[place]) * (step / 2 + _ROUNDING * size)
    for place in range(count - 1, -1, -1):
        below[place] = below[place + 1] + low[order[place]]
        above[place] = above[place + 1] + high[order[place]]
    return planned, s, below, above, errors
