"""Which documents have the evidence that a query asks for, from an index."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fullrank.kernels.arrays import (
    Float32,
    Float64,
    Int32,
    Int64,
    Mask,
    UInt8,
    prefetch_row,
    rounding_in_kernel,
)
from fullrank.kernels.compiler import (
    FLOAT64,
    INT64,
    array,
    check_inside,
    helper,
    kernel,
    output,
    several,
)
from fullrank.kernels.index import (
    LIMITS,
    QUERY,
    TABLES,
    CodedQuery,
    Limits,
    Slack,
    Tables,
    read_only,
    record,
)
from fullrank.kernels.products import code_product, code_shift
from fullrank.kernels.scan import (
    BLOCK,
    add_block,
    lists_of,
    plan_words,
    read_block,
    thresholds,
    word_tables,
)
from fullrank.kernels.select import RANKED, in_order, push

# Which words of a query each document has, as bits, the first word lowest.


@kernel(
    output("int64"),
    array("int64"), array("int32"), array("int32"), array("int32"), array("int64"), INT64,
)  # fmt: skip
def words_had(
    indptr: Int64, entries: Int32, rows: Int32, features: Int32, words: Int64, count: int
) -> Int64:
    """Return the bits of each document, int64 (count,).

    Args:
        indptr, entries: Posting lists by feature.
        rows: int32 (count,), the document of each entry; empty where an entry is a document.
        words: int64 (m,), the word of each feature.

    Raises:
        IndexError: A list ends outside the file, or has an entry that does not exist.
    """
    bits = np.zeros(count, np.int64)
    place, stop = lists_of(indptr, len(entries), features)
    for i in range(len(features)):
        for p in range(place[i], stop[i]):
            row = entries[p]
            if len(rows):
                check_inside(row, len(rows))
                row = rows[row]
            check_inside(row, count)
            bits[row] |= np.int64(1) << words[i]
    return bits


@helper
def _weigh(bits: int, weights: Float64) -> float:
    weight = 0.0
    for word in range(len(weights)):
        if bits >> word & 1:
            weight += weights[word]
    return weight


@kernel(several(INT64, INT64), array("int64"), array("float64"), array("boolean"), array("boolean"))
def choose_words(bits: Int64, weights: Float64, removed: Mask, deleted: Mask) -> tuple[int, int]:
    """Return the words that documents have, and those of the document whose words weigh most.

    Args:
        removed, deleted: bool (n,), documents without a say in the first and in the second; empty: all have one.
    """
    present = best = 0
    most, mask = 0.0, (1 << len(weights)) - 1
    for row in range(len(bits)):
        own = bits[row] & mask
        if not (len(removed) and removed[row]):
            present |= own
        if own | best != best and not (len(deleted) and deleted[row]):
            weight = _weigh(own, weights)
            if weight > most:
                best, most = own, weight
    return present, best


@kernel(output("boolean"), array("int64"), array("float64"), INT64, FLOAT64, array("boolean"))
def lack_words(bits: Int64, weights: Float64, wanted: int, least: float, deleted: Mask) -> Mask:
    """Return bool (n,), True for documents that are deleted or lack words.

    Args:
        bits: int64 (n,); a document with a bit beyond those of the weights lacks none.
        wanted: The words to have; 0: words that weigh at least ``least``.
    """
    lacks = np.empty(len(bits), np.bool_)
    for row in range(len(bits)):
        own = bits[row]
        if own >> len(weights):
            has = True
        elif wanted:
            has = own == wanted
        else:
            has = own != 0 and _weigh(own, weights) >= least
        lacks[row] = not has or (len(deleted) > 0 and deleted[row])
    return lacks


# Roundings of a part of a score and of its floor in float32, at most.
_ROUNDINGS = 12
# Lists are read until the words that are left add at most this share of the floor of s·t.
_LEFT_OUT = 0.25
# Codes are asked for so many slots before they are read.
_AHEAD = 8


@helper
def _without(words: Int32, weights: Float32, features: Int32) -> tuple[Int32, Float32]:
    """Remove features from the words of a query; return the words that are left, and their weights."""
    kept, size = np.empty(len(words), np.int64), 0
    for i in range(len(words)):
        is_feature = False
        for feature in features:
            is_feature |= words[i] == feature
        kept[size] = i
        size += not is_feature
    return words[kept[:size]], weights[kept[:size]]


@kernel(
    several(array("int64"), array("int64")),
    TABLES, QUERY, array("int32"), array("float32"), array("boolean"), LIMITS, INT64,
)  # fmt: skip
def slots_with_evidence(
    tables: Tables,
    query: CodedQuery,
    words: Int32,
    weights: Float32,
    deleted: Mask,
    limits: Limits,
    most: int,
) -> tuple[Int64, Int64]:
    """Find all slots that have evidence; stop where more than `most` do for certain.

    The lists of the features come first. The outlines bound u·v of the other slots from above, and the codes of the few
    whose bound reaches the floor decide. The other words are read only if their largest contributions together reach
    the floor of s·t.

    Args:
        words, weights: The query's words in any order, int32 and float32 (m,).

    Returns:
        The slots that have evidence for certain, and those that may; each once, in no order.

    Raises:
        IndexError: A list ends outside the file, or has a slot that does not exist.
    """
    rows, codes, scales = tables.cells.rows, tables.codes.codes, tables.codes.scales
    postings, count = tables.postings, len(scales)
    certain, open_ones = np.empty(count + 1, np.int64), np.empty(count, np.int64)
    n_certain = n_open = 0
    marked = np.zeros(count, np.bool_)
    place, stop = lists_of(postings.indptr, len(postings.slots), limits.features)
    for i in range(len(place)):
        for p in range(place[i], stop[i]):
            slot = postings.slots[p]
            check_inside(slot, count)
            certain[n_certain] = slot
            is_left = not (len(deleted) and deleted[rows[slot]])
            # Without a branch: whether it was in another list cannot be predicted.
            n_certain += is_left & ~marked[slot]
            marked[slot] = True
        if n_certain > most:
            return certain[:n_certain], open_ones[:0]
    others, s = _without(words, weights, limits.features)
    plan = plan_words(postings.indptr, postings.limits, others, s)
    n_words = 0
    while n_words < len(plan.words) and plan.above[n_words] > _LEFT_OUT * limits.lexical:
        n_words += 1
    off = plan.errors[n_words] + rounding_in_kernel(
        n_words + _ROUNDINGS, plan.above[0] - plan.below[0]
    )
    rounded = rounding_in_kernel(_ROUNDINGS, query.size)
    slack = Slack(
        query.outline_error + rounded, query.error + rounded, off, plan.below[n_words], plan.above[n_words]
    )  # fmt: skip
    if not max(slack.outline_error, slack.error, off) < np.inf:
        for slot in range(count):
            open_ones[n_open] = slot
            n_open += not (marked[slot] or (len(deleted) and deleted[rows[slot]]))
        return certain[:n_certain], open_ones[:n_open]
    at = thresholds(limits, slack)
    bound, near, far = at.bound, at.near, at.far
    lexical_near, lexical_far = at.lexical_near, at.lexical_far
    if plan.above[0] + off < limits.lexical:
        n_words, lexical_near, lexical_far = 0, np.float32(np.inf), np.float32(np.inf)
        if not limits.dense < np.inf:
            return certain[:n_certain], open_ones[:0]
    code, scale, shift = query.code, np.float32(query.scale), code_shift(query.code)
    added, place, stop = word_tables(postings, plan.words[:n_words], plan.weights[:n_words])
    products, bounds = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.float32)
    sums, reaching = np.zeros(BLOCK, np.float32), np.empty(BLOCK, np.int64)
    for start in range(0, count, BLOCK):
        end = min(start + BLOCK, count)
        read_block(query, tables.outline, start, end, products, bounds)
        add_block(added, place, stop, postings, end, sums)
        n_reaching = 0
        for j in range(end - start):
            reaching[n_reaching] = j
            may_be = (bounds[j] >= bound) | (sums[j] >= lexical_near)
            n_reaching += may_be & ~marked[start + j]
        for i in range(n_reaching):
            if i + _AHEAD < n_reaching:
                prefetch_row(codes, start + reaching[i + _AHEAD], 64)
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


@helper
def is_in_lists(slot: int, place: Int64, stop: Int64, slots: Int32) -> bool:
    """Return whether a slot is in one of some ascending lists."""
    for k in range(len(place)):
        low, high = place[k], stop[k]
        while low < high:
            middle = (low + high) // 2
            if slots[middle] < slot:
                low = middle + 1
            else:
                high = middle
        if low < stop[k] and slots[low] == slot:
            return True
    return False


@helper
def mark_lists(indptr: Int64, slots: Int32, words: Int32, value: np.uint8, marked: UInt8) -> None:
    """Set the mark of each slot in the lists of some words."""
    place, stop = lists_of(indptr, len(slots), words)
    for k in range(len(words)):
        for p in range(place[k], stop[k]):
            check_inside(slots[p], len(marked))
            marked[slots[p]] = value


class Evidence(NamedTuple):
    """What a document needs to be found, as kernels take it: any of these will do.

    Attributes:
        dense, lexical, score: The u·v, the s·t or the score that it reaches.
        indptr, slots, words: Its slot is in the list of one of the words; the list of word w is
            slots[indptr[w]:indptr[w + 1]], ascending.
        slot_of: int32 (n,), the slot of each row; empty where a row is its slot.
    """

    dense: float
    lexical: float
    score: float
    indptr: Int64
    slots: Int32
    words: Int32
    slot_of: Int32


_NO_SLOTS: Int32 = np.zeros(0, np.int32)
NOTHING_NEEDED = read_only(
    Evidence(
        -math.inf, -math.inf, -math.inf, np.zeros(1, np.int64), _NO_SLOTS, _NO_SLOTS, _NO_SLOTS
    )
)
EVIDENCE = record(
    Evidence,
    FLOAT64, FLOAT64, FLOAT64, array("int64"), array("int32"), array("int32"), array("int32"),
)  # fmt: skip
REACHED = several(RANKED, INT64)
"""The type of what ``in_order`` returns, and of how many documents have evidence."""


@kernel(
    REACHED,
    array("int64"), array("float64"), array("float64"), array("float64"), EVIDENCE, INT64, INT64,
    INT64,
)  # fmt: skip
def reaching_in_order(
    rows: Int64,
    dense: Float64,
    lexical: Float64,
    bias: Float64,
    evidence: Evidence,
    offset: int,
    limit: int,
    is_counted: int,
) -> tuple[tuple[Int64, Float64, Float64, Float64, Float64], int]:
    """Order the documents that have evidence, and count them; the other arguments are those of ``in_order``.

    Args:
        is_counted: 0: documents that others keep from these places need not be counted, which takes longer.
    """
    slots, slot_of, wanted = evidence.slots, evidence.slot_of, offset + limit
    place, stop = lists_of(evidence.indptr, len(slots), evidence.words)
    kept, size = np.empty(len(rows), np.int64), 0
    best, places, n_best = np.empty(wanted), np.empty(wanted, np.int64), 0
    for i in range(len(rows)):
        score = dense[i] + lexical[i] + bias[i]
        if n_best == wanted and score < best[0] and not is_counted:
            continue
        has = dense[i] >= evidence.dense or lexical[i] >= evidence.lexical
        has = has or score >= evidence.score
        if not has and len(place):
            slot = int(slot_of[rows[i]]) if len(slot_of) else int(rows[i])
            has = is_in_lists(slot, place, stop, slots)
        kept[size] = i
        size += has
        if has and (n_best < wanted or score > best[0]):
            n_best = push(best, places, n_best, score, i)
    kept = kept[:size]
    return in_order(rows[kept], dense[kept], lexical[kept], bias[kept], offset, limit), size
