"""Approximate scores of all documents from int8 codes and 8-bit impacts, and bounds on their error."""

from __future__ import annotations

import math

import numpy as np
from numba import types

from fullrank.kernels.arrays import Float32, Float64, Int8, Int32, Int64, Mask, UInt8
from fullrank.kernels.compiler import (
    FLOAT32,
    FLOAT64,
    INT64,
    array,
    check_inside,
    helper,
    kernel,
    output,
    several,
)
from fullrank.kernels.products import code_product, code_shift
from fullrank.kernels.select import push
from fullrank.kernels.sorting import stable_order

# Of 8-bit impacts, and of int8 codes on each side of zero.
LEVELS, CODE_LEVELS = 255, 127
# Scores of this many slots stay in the first cache.
_BLOCK = 2048
# A slot & this is its place in the block; whatever a damaged file holds, it is a place in the block.
_IN_BLOCK = np.uint64(_BLOCK - 1)
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
def below(score: np.float32, slack: float) -> np.float32:
    """Return score − slack, rounded down."""
    return np.float32(np.nextafter(np.float32(np.float64(score) - slack), np.float32(-np.inf)))


@helper
def keep_from(slots: Int64, scores: Float32, count: int, threshold: np.float32) -> int:
    """Move the slots that reach the threshold to the front; return how many do."""
    size = 0
    for i in range(count):
        if scores[i] >= threshold:
            slots[size], scores[size] = slots[i], scores[i]
            size += 1
    return size


@kernel(
    several(array("int64"), array("float32"), types.boolean),
    array("int8"), FLOAT32, array("int8", 2), array("float32"), array("float32"),
    array("int64"), array("int32"), array("uint8"), array("float32", 2),
    array("int32"), array("float64"),
    array("int32"), array("boolean"), INT64, FLOAT64, INT64,
)  # fmt: skip
def scan_slots(
    code: Int8,
    scale: np.float32,
    codes: Int8,
    scales: Float32,
    bias: Float32,
    indptr: Int64,
    slots: Int32,
    impacts: UInt8,
    limits: Float32,
    words: Int32,
    weights: Float64,
    rows: Int32,
    deleted: Mask,
    wanted: int,
    slack: float,
    most: int,
) -> tuple[Int64, Float32, bool]:
    """Find the slots whose approximate score g = û·v̂ + Σ s_w t̂_w + b is less than `slack` below the k-th best.

    It reads all codes once, a block at a time. The scores of a block stay in the first cache, where the posting lists
    add to them.

    Args:
        code, scale: The query's code, int8 (N,), and its scale.
        codes, scales, bias: Of the slots, int8 (n, N) and float32 (n,) each.
        indptr, slots, impacts, limits: As in Postings.
        words, weights: int32 and float64 (m,), s_w.
        rows: int32 (n,), the document of each slot.
        deleted: bool (n,), by document; empty for none.
        wanted: k.
        slack: Not negative.
        most: Stop where more slots than this are within the slack of the k-th best so far.

    Returns:
        The slots, their scores, and whether there are too many; then they are incomplete.

    Raises:
        IndexError: A list ends outside the file.
    """
    count = len(scales)
    shift = code_shift(code)
    tables = np.empty((len(words), LEVELS + 1), np.float32)
    place, stop = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    for i in range(len(words)):
        word = words[i]
        low = np.float64(limits[word, 0])
        step = (np.float64(limits[word, 1]) - low) / LEVELS
        for level in range(LEVELS + 1):
            tables[i, level] = np.float32((low + step * level) * weights[i])
        place[i], stop[i] = indptr[word], indptr[word + 1]
        check_inside(place[i], len(slots) + 1)
        check_inside(stop[i], len(slots) + 1)
    best, best_slots = np.empty(wanted, np.float32), np.empty(wanted, np.int64)
    kept, kept_scores = np.empty(most + _BLOCK, np.int64), np.empty(most + _BLOCK, np.float32)
    scores = np.empty(_BLOCK, np.float32)
    size = n_kept = 0
    threshold = np.float32(-np.inf)
    for start in range(0, count, _BLOCK):
        end = min(start + _BLOCK, count)
        for slot in range(start, end):
            product = code_product(code, shift, codes, slot) * scale
            scores[slot - start] = product * scales[slot] + bias[slot]
        for i in range(len(words)):
            # Unsigned numbers need no check for places counted from the end, which doubles the speed.
            word, p, last = np.uint64(i), np.uint64(place[i]), np.uint64(stop[i])
            while p < last and slots[p] < end:
                scores[np.uint64(slots[p]) & _IN_BLOCK] += tables[word, np.uint64(impacts[p])]
                p += np.uint64(1)
            place[i] = p
        reached = 0
        for j in range(end - start):
            reached += scores[j] >= threshold
        if reached == 0:
            continue
        for j in range(end - start):
            if scores[j] >= threshold and not (len(deleted) and deleted[rows[start + j]]):
                kept[n_kept], kept_scores[n_kept] = start + j, scores[j]
                n_kept += 1
                if size < wanted or scores[j] > best[0]:
                    size = push(best, best_slots, size, scores[j], start + j)
                    if size == wanted:
                        threshold = below(best[0], slack)
        if n_kept > most:
            n_kept = keep_from(kept, kept_scores, n_kept, threshold)
            if n_kept > most:
                return kept[:0], kept_scores[:0], True
    n_kept = keep_from(kept, kept_scores, n_kept, threshold)
    return kept[:n_kept], kept_scores[:n_kept], False


@kernel(
    types.void,
    array("int64"), array("int32"), array("uint8"), array("float32", 2),
    array("int32"), array("float64"), output("float32"),
)  # fmt: skip
def add_impacts(
    indptr: Int64,
    slots: Int32,
    impacts: UInt8,
    limits: Float32,
    words: Int32,
    weights: Float64,
    scores: Float32,
) -> None:
    """Add s_w t̂_wd of some words to the scores of their documents.

    Args:
        indptr, slots, impacts, limits: As in Postings.
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
        check_inside(indptr[word], len(slots) + 1)
        check_inside(indptr[word + 1], len(slots) + 1)
        for p in range(indptr[word], indptr[word + 1]):
            check_inside(slots[p], len(scores))
            scores[slots[p]] += table[impacts[p]]


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
