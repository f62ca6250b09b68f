"""Approximate scores of all documents from int8 codes and 8-bit impacts, and bounds on their error."""

from __future__ import annotations

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
from fullrank.kernels.groups import GROUP, group_products
from fullrank.kernels.prefetch import prefetch_row
from fullrank.kernels.products import code_product, code_shift, sum_shift
from fullrank.kernels.select import push
from fullrank.kernels.sorting import stable_order

# Of 8-bit impacts.
LEVELS = 255
# Codes are asked for so many slots before they are read.
_AHEAD = 8
# Scores of this many slots stay in the first cache.
_BLOCK = 2048
# A slot & this is its place in the block; whatever a damaged file holds, it is a place in the block.
_IN_BLOCK = np.uint64(_BLOCK - 1)
# Three roundings of the float32 look-up of an impact, and one to spare.
_ROUNDING = 4 * 2.0**-24


@helper
def minus(score: float, slack: float) -> np.float32:
    """Return score − slack, rounded down."""
    return np.float32(np.nextafter(np.float32(score - slack), np.float32(-np.inf)))


@helper
def keep_from(slots: Int64, scores: Float32, count: int, threshold: np.float32) -> int:
    """Move the slots that reach the threshold to the front; return how many do."""
    size = 0
    for i in range(count):
        if scores[i] >= threshold:
            slots[size], scores[size] = slots[i], scores[i]
            size += 1
    return size


@helper
def word_tables(
    indptr: Int64, entries: int, limits: Float32, words: Int32, weights: Float64
) -> tuple[Float32, Int64, Int64]:
    """Return s_w t̂_w of each word for each impact, float32 (m, 256), and where its list begins and ends.

    Raises:
        IndexError: A list ends outside the file.
    """
    tables = np.empty((len(words), LEVELS + 1), np.float32)
    place, stop = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    for i in range(len(words)):
        word = words[i]
        low = np.float64(limits[word, 0])
        step = (np.float64(limits[word, 1]) - low) / LEVELS
        for level in range(LEVELS + 1):
            tables[i, level] = np.float32((low + step * level) * weights[i])
        place[i], stop[i] = indptr[word], indptr[word + 1]
        check_inside(place[i], entries + 1)
        check_inside(stop[i], entries + 1)
    return tables, place, stop


@helper
def add_block(
    tables: Float32,
    place: Int64,
    stop: Int64,
    slots: Int32,
    impacts: UInt8,
    end: int,
    sums: Float32,
) -> None:
    """Set the sums of a block to what the words add to its slots; move each list on to ``end``."""
    if len(place):
        sums[:] = 0
    for i in range(len(place)):
        # Unsigned numbers need no check for places counted from the end, which doubles the speed.
        word, p, last = np.uint64(i), np.uint64(place[i]), np.uint64(stop[i])
        while p < last and slots[p] < end:
            sums[np.uint64(slots[p]) & _IN_BLOCK] += tables[word, np.uint64(impacts[p])]
            p += np.uint64(1)
        place[i] = p


@helper
def read_block(
    outline: Int8,
    outline_scale: np.float32,
    outlines: UInt8,
    outline_scales: Float32,
    left: np.float32,
    rest: Float32,
    start: int,
    end: int,
    products: Int32,
    bounds: Float32,
) -> None:
    """Set the bounds of a block to (outlines) + ‖p‖ ‖r‖ of its slots; `products` is a buffer."""
    for group in range(start // GROUP, (end + GROUP - 1) // GROUP):
        group_products(outline, outlines, group, products, group * GROUP - start)
    shift = sum_shift(outline)
    # Slices of one length, so that the compiler reads several slots at once.
    own_scales, own_rest = outline_scales[start:end], rest[start:end]
    for j in range(len(own_scales)):
        product = np.float32(np.int32(products[j] - shift)) * outline_scale
        bounds[j] = product * own_scales[j] + left * own_rest[j]


@kernel(
    several(array("int64"), array("float32"), types.boolean),
    array("int8"), FLOAT32, array("uint8", 2), array("float32"), FLOAT32, array("float32"),
    array("int8"), FLOAT32, array("int8", 2), array("float32"), array("float32"),
    array("int64"), array("int32"), array("uint8"), array("float32", 2),
    array("int32"), array("float64"),
    array("int32"), array("boolean"),
    INT64, FLOAT64, FLOAT64, FLOAT64, FLOAT64, INT64,
)  # fmt: skip
def scan_slots(
    outline: Int8,
    outline_scale: np.float32,
    outlines: UInt8,
    outline_scales: Float32,
    left: np.float32,
    rest: Float32,
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
    least: float,
    over: float,
    below: float,
    above: float,
    most: int,
) -> tuple[Int64, Float32, bool]:
    """Find the slots that may be among the best `wanted`, by bounds from outlines and then by codes.

    f ≤ (outlines) + ‖p‖ ‖r‖ + Σ s_w t̂_w + b + over      and      g − below ≤ f ≤ g + above,  g = û·v̂ + Σ s_w t̂_w + b

    It reads all outlines once, a block at a time, and the codes of those whose bound reaches the score asked for: the
    k-th best g − below so far, or `least` if that is more. The scores of a block stay in the first cache, where the
    posting lists add to them.

    Args:
        outline, outline_scale: The query's, int8 (H,), and its scale.
        outlines, outline_scales: Of the slots, uint8 (⌈n / 16⌉, 16 H), in groups, and float32 (n,).
        left, rest: ‖p‖, and ‖r‖ of the slots, float32 (n,).
        code, scale: The query's code, int8 (N,), and its scale.
        codes, scales, bias: Of the slots, int8 (n, N) and float32 (n,) each.
        indptr, slots, impacts, limits: As in Postings.
        words, weights: int32 and float64 (m,), s_w.
        rows: int32 (n,), the document of each slot.
        deleted: bool (n,), by document; empty for none.
        wanted: k.
        least: A score that all wanted documents reach; −∞ if none is known.
        over, below, above: Not negative.
        most: Stop where more slots than this reach the score asked for so far.

    Returns:
        The slots, their g, and whether there are too many; then they are incomplete.

    Raises:
        IndexError: A list ends outside the file.
    """
    count = len(scales)
    shift = code_shift(code)
    tables, place, stop = word_tables(indptr, len(slots), limits, words, weights)
    best, best_slots = np.empty(wanted, np.float32), np.empty(wanted, np.int64)
    kept, kept_scores = np.empty(most + _BLOCK, np.int64), np.empty(most + _BLOCK, np.float32)
    products, bounds = np.empty(_BLOCK, np.int32), np.empty(_BLOCK, np.float32)
    sums, reaching = np.zeros(_BLOCK, np.float32), np.empty(_BLOCK, np.int64)
    size = n_kept = 0
    reached, threshold = minus(least, over), minus(least, above)
    for start in range(0, count, _BLOCK):
        end = min(start + _BLOCK, count)
        read_block(
            outline, outline_scale, outlines, outline_scales, left, rest, start, end, products, bounds
        )  # fmt: skip
        own_bias = bias[start:end]
        for j in range(len(own_bias)):
            bounds[j] += own_bias[j]
        add_block(tables, place, stop, slots, impacts, end, sums)
        n_reaching = 0
        for j in range(end - start):
            # Without a branch: whether a bound reaches the score cannot be predicted.
            reaching[n_reaching] = j
            n_reaching += bounds[j] + sums[j] >= reached
        for i in range(n_reaching):
            if i + _AHEAD < n_reaching:
                prefetch_row(codes, start + reaching[i + _AHEAD], 64)
            j = reaching[i]
            if bounds[j] + sums[j] < reached or (len(deleted) and deleted[rows[start + j]]):
                continue
            product = code_product(code, shift, codes, start + j) * scale
            score = product * scales[start + j] + bias[start + j] + sums[j]
            if not score >= threshold:
                continue
            kept[n_kept], kept_scores[n_kept] = start + j, score
            n_kept += 1
            if size < wanted or score > best[0]:
                size = push(best, best_slots, size, score, start + j)
                if size == wanted:
                    worst = max(least, np.float64(best[0]) - below)
                    reached, threshold = minus(worst, over), minus(worst, above)
        if n_kept > most:
            n_kept = keep_from(kept, kept_scores, n_kept, threshold)
            if n_kept > most:
                return kept[:0], kept_scores[:0], True
    n_kept = keep_from(kept, kept_scores, n_kept, threshold)
    return kept[:n_kept], kept_scores[:n_kept], False


@kernel(
    several(array("int64"), array("int64")),
    array("int8"), FLOAT32, array("uint8", 2), array("float32"), FLOAT32, array("float32"),
    array("int8"), FLOAT32, array("int8", 2), array("float32"),
    array("int64"), array("int32"), array("uint8"), array("float32", 2),
    array("int32"), array("float64"),
    array("int32"), array("boolean"),
    FLOAT64, FLOAT64, FLOAT64, FLOAT64, FLOAT64, INT64,
)  # fmt: skip
def slots_with_evidence(
    outline: Int8,
    outline_scale: np.float32,
    outlines: UInt8,
    outline_scales: Float32,
    left: np.float32,
    rest: Float32,
    code: Int8,
    scale: np.float32,
    codes: Int8,
    scales: Float32,
    indptr: Int64,
    slots: Int32,
    impacts: UInt8,
    limits: Float32,
    words: Int32,
    weights: Float64,
    rows: Int32,
    deleted: Mask,
    dense: float,
    lexical: float,
    over: float,
    error: float,
    off: float,
    most: int,
) -> tuple[Int64, Int64]:
    """Find all slots whose u·v or s·t reaches a floor.

    Outlines bound u·v from above; the codes of the few slots whose bound reaches the floor decide.

    Args:
        dense, lexical: The floors of u·v and of s·t; ∞ for one that nothing reaches.
        over: How far u·v may be above its outline and ‖p‖ ‖r‖.
        error: How far u·v may be from û·v̂.
        off: How far s·t may be from Σ s_w t̂_w.
        most: Stop where more slots than this reach a floor for certain.

    The other arguments are those of ``scan_slots``.

    Returns:
        The slots that reach a floor for certain, and those that may.

    Raises:
        IndexError: A list ends outside the file.
    """
    count = len(scales)
    shift = code_shift(code)
    tables, place, stop = word_tables(indptr, len(slots), limits, words, weights)
    certain, open_ones = np.empty(count, np.int64), np.empty(count, np.int64)
    products, bounds = np.empty(_BLOCK, np.int32), np.empty(_BLOCK, np.float32)
    sums, reaching = np.zeros(_BLOCK, np.float32), np.empty(_BLOCK, np.int64)
    n_certain = n_open = 0
    bound, near, far = minus(dense, over), minus(dense, error), -minus(-dense, error)
    lexical_near, lexical_far = minus(lexical, off), -minus(-lexical, off)
    for start in range(0, count, _BLOCK):
        end = min(start + _BLOCK, count)
        read_block(
            outline, outline_scale, outlines, outline_scales, left, rest, start, end, products, bounds
        )  # fmt: skip
        add_block(tables, place, stop, slots, impacts, end, sums)
        n_reaching = 0
        for j in range(end - start):
            reaching[n_reaching] = j
            n_reaching += (bounds[j] >= bound) | (sums[j] >= lexical_near)
        for i in range(n_reaching):
            j = reaching[i]
            slot = start + j
            if len(deleted) and deleted[rows[slot]]:
                continue
            product = np.float32(-np.inf)
            if sums[j] < lexical_far and bounds[j] >= bound:
                product = code_product(code, shift, codes, slot) * scale * scales[slot]
            if sums[j] >= lexical_far or product >= far:
                certain[n_certain] = slot
                n_certain += 1
            elif sums[j] >= lexical_near or product >= near:
                open_ones[n_open] = slot
                n_open += 1
        if n_certain > most:
            break
    return certain[:n_certain], open_ones[:n_open]


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
