"""Approximate scores of all documents from int8 codes and 8-bit impacts, and bounds on their error."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from fullrank.kernels.arrays import Float32, Float64, Int32, Int64, Mask, prefetch_row, stable_order
from fullrank.kernels.compiler import INT64, array, check_inside, helper, kernel, output, several
from fullrank.kernels.index import (
    LIMITS,
    QUERY,
    SLACK,
    TABLES,
    CodedQuery,
    Limits,
    Outline,
    Postings,
    Slack,
    Tables,
    record,
)
from fullrank.kernels.products import GROUP, code_product, code_shift, group_products, sum_shift
from fullrank.kernels.select import push

# Of 8-bit impacts.
LEVELS = 255
# Codes are asked for so many slots before they are read.
_AHEAD = 8
# Scores of this many slots stay in the first cache.
BLOCK = 2048
# The compiler compares so many slots at once.
_LANES = 32
# A slot & this is its place in the block; whatever a damaged file holds, it is a place in the block.
_IN_BLOCK = np.uint64(BLOCK - 1)
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
def lists_of(indptr: Int64, entries: int, words: Int32) -> tuple[Int64, Int64]:
    """Return where the list of each word begins and ends."""
    place, stop = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    for i in range(len(words)):
        place[i], stop[i] = indptr[words[i]], indptr[words[i] + 1]
        check_inside(place[i], entries + 1)
        check_inside(stop[i], entries + 1)
    return place, stop


@helper
def word_tables(postings: Postings, words: Int32, weights: Float64) -> tuple[Float32, Int64, Int64]:
    """Return s_w t̂_w of each word for each impact, float32 (m, 256), and where its list begins and ends."""
    tables, limits = np.empty((len(words), LEVELS + 1), np.float32), postings.limits
    for i in range(len(words)):
        low = np.float64(limits[words[i], 0])
        step = (np.float64(limits[words[i], 1]) - low) / LEVELS
        for level in range(LEVELS + 1):
            tables[i, level] = np.float32((low + step * level) * weights[i])
    place, stop = lists_of(postings.indptr, len(postings.slots), words)
    return tables, place, stop


@helper
def add_block(
    tables: Float32, place: Int64, stop: Int64, postings: Postings, end: int, sums: Float32
) -> None:
    """Set the sums of a block to what the words add to its slots; move each list on to ``end``."""
    slots, impacts = postings.slots, postings.impacts
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
def mark_block(place: Int64, stop: Int64, slots: Int32, end: int, marks: Mask) -> None:
    """Mark the slots of a block that are in a list; move each list on to ``end``."""
    if len(place):
        marks[:] = False
    for i in range(len(place)):
        p = place[i]
        while p < stop[i] and slots[p] < end:
            marks[np.uint64(slots[p]) & _IN_BLOCK] = True
            p += 1
        place[i] = p


@helper
def read_block(
    query: CodedQuery, outlines: Outline, start: int, end: int, products: Int32, bounds: Float32
) -> None:
    """Set the bounds of a block to (outlines) + ‖p‖ ‖r‖ of its slots; `products` is a buffer."""
    outline, codes = query.outline, outlines.codes
    for group in range(start // GROUP, (end + GROUP - 1) // GROUP):
        group_products(outline, codes, group, products, group * GROUP - start)
    shift, scale, left = sum_shift(outline), np.float32(query.outline_scale), np.float32(query.left)
    # Slices of one length, so that the compiler reads several slots at once.
    own_scales, own_rest = outlines.scales[start:end], outlines.rest[start:end]
    for j in range(len(own_scales)):
        product = np.float32(np.int32(products[j] - shift)) * scale
        bounds[j] = product * own_scales[j] + left * own_rest[j]


@helper
def places_reaching(
    least: np.float32, bounds: Float32, bias: Float32, sums: Float32, found: Int64
) -> int:
    """Find the places of a block whose bound + b + sum reaches a score; write them and return how many they are."""
    size, whole = 0, len(bias) - len(bias) % _LANES
    for begin in range(0, whole, _LANES):
        # Most of a block reaches nothing, and the compiler compares several places at once.
        n_above = 0
        for lane in range(_LANES):
            place = np.uint64(begin + lane)
            n_above += bounds[place] + bias[place] + sums[place] >= least
        if n_above == 0:
            continue
        for j in range(begin, begin + _LANES):
            # Without a branch: which of them reach it cannot be predicted.
            found[size] = j
            size += bounds[j] + bias[j] + sums[j] >= least
    for j in range(whole, len(bias)):
        found[size] = j
        size += bounds[j] + bias[j] + sums[j] >= least
    return size


class Thresholds(NamedTuple):
    """From where on a slot may have evidence (bound, near, lexical_near), and has it for certain."""

    bound: np.float32
    near: np.float32
    far: np.float32
    lexical_near: np.float32
    lexical_far: np.float32


@helper
def thresholds(limits: Limits, slack: Slack) -> Thresholds:
    """Return the thresholds of the floors under these bounds."""
    return Thresholds(
        minus(limits.dense, slack.outline_error),
        minus(limits.dense, slack.error),
        -minus(-limits.dense, slack.error),
        minus(limits.lexical, slack.off + slack.left_above),
        -minus(-limits.lexical, slack.off - slack.left_below),
    )


@kernel(
    several(array("int64"), array("float32"), types.boolean),
    TABLES, QUERY, array("int32"), array("float64"), array("boolean"), LIMITS, SLACK, INT64,
)  # fmt: skip
def scan_slots(
    tables: Tables,
    query: CodedQuery,
    words: Int32,
    weights: Float64,
    deleted: Mask,
    limits: Limits,
    slack: Slack,
    most: int,
) -> tuple[Int64, Float32, bool]:
    """Find the slots that may be among the best `wanted` with evidence, by bounds from outlines and then by codes.

    It reads all outlines once, a block at a time, and the codes of those whose bound reaches the score asked for: the
    k-th best score so far that a slot with evidence has for certain, or `least` if that is more. The scores of a block
    stay in the first cache, where the posting lists add to them.

    Args:
        most: Stop where more slots than this reach the score asked for so far.

    Returns:
        The slots, their û·v̂ + Σ s_w t̂_w + b, and whether there are too many; then they are incomplete.

    Raises:
        IndexError: A list ends outside the file.
    """
    postings, rows, bias = tables.postings, tables.cells.rows, tables.codes.bias
    codes, scales = tables.codes.codes, tables.codes.scales
    code, scale, shift = query.code, np.float32(query.scale), code_shift(query.code)
    count, wanted = len(scales), limits.wanted
    added, place, stop = word_tables(postings, words, weights)
    mark_place, mark_stop = lists_of(postings.indptr, len(postings.slots), limits.features)
    best, best_slots = np.empty(wanted, np.float32), np.empty(wanted, np.int64)
    kept, kept_scores = np.empty(most + BLOCK, np.int64), np.empty(most + BLOCK, np.float32)
    products, reaching = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.int64)
    marks, sums = np.zeros(BLOCK, np.bool_), np.zeros(BLOCK, np.float32)
    bounds, at = np.empty(BLOCK, np.float32), thresholds(limits, slack)
    size = n_kept = 0
    over = slack.outline_error + slack.off + slack.left_above
    above = slack.error + slack.off + slack.left_above
    below = slack.error + slack.off - slack.left_below
    reached, threshold = minus(limits.least, over), minus(limits.least, above)
    bound, near, far = at.bound, at.near, at.far
    lexical_near, lexical_far = at.lexical_near, at.lexical_far
    for start in range(0, count, BLOCK):
        end = min(start + BLOCK, count)
        read_block(query, tables.outline, start, end, products, bounds)
        own_bias = bias[start:end]
        add_block(added, place, stop, postings, end, sums)
        mark_block(mark_place, mark_stop, postings.slots, end, marks)
        n_reaching = places_reaching(reached, bounds, own_bias, sums, reaching)
        for i in range(n_reaching):
            if i + _AHEAD < n_reaching:
                prefetch_row(codes, start + reaching[i + _AHEAD], 64)
            j = reaching[i]
            if not (marks[j] or sums[j] >= lexical_near or bounds[j] >= bound):
                continue
            if bounds[j] + own_bias[j] + sums[j] < reached:
                continue
            if len(deleted) and deleted[rows[start + j]]:
                continue
            product = code_product(code, shift, codes, start + j) * scale * scales[start + j]
            score = product + own_bias[j] + sums[j]
            if not score >= threshold:
                continue
            is_certain = marks[j] or sums[j] >= lexical_far or product >= far
            if not (is_certain or sums[j] >= lexical_near or product >= near):
                continue
            kept[n_kept], kept_scores[n_kept] = start + j, score
            n_kept += 1
            if is_certain and (size < wanted or score > best[0]):
                size = push(best, best_slots, size, score, start + j)
                if size == wanted:
                    worst = max(limits.least, np.float64(best[0]) - below)
                    reached, threshold = minus(worst, over), minus(worst, above)
        if n_kept > most:
            n_kept = keep_from(kept, kept_scores, n_kept, threshold)
            if n_kept > most:
                return kept[:0], kept_scores[:0], True
    n_kept = keep_from(kept, kept_scores, n_kept, threshold)
    return kept[:n_kept], kept_scores[:n_kept], False


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


class Plan(NamedTuple):
    """The words of one query that have postings, in the order to add them.

    Attributes:
        words: int32 (m,).
        weights: float64 (m,), s_w.
        below: float64 (m + 1,), the least that the words from i on can contribute; 0 at m.
        above: float64 (m + 1,), the most.
        errors: float64 (m + 1,), Σ |s_w| step_w / 2 of the first i words: the largest error of what they contribute.
    """

    words: Int32
    weights: Float64
    below: Float64
    above: Float64
    errors: Float64


@kernel(
    record(Plan, output("int32"), *[output("float64")] * 4),
    array("int64"), array("float32", 2), array("int32"), array("float32"),
)  # fmt: skip
def plan_words(indptr: Int64, limits: Float32, words: Int32, weights: Float32) -> Plan:
    """Order the words of a query that have postings by the width of their contribution per posting, widest first."""
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
    return Plan(planned, s, below, above, errors)
