"""Which documents have the evidence that a query asks for, from an index."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fullrank.kernels.arrays import Float64, Int32, Int64, Mask, UInt8
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
    SLACK,
    TABLES,
    CodedQuery,
    Limits,
    Slack,
    Tables,
    read_only,
    record,
)
from fullrank.kernels.products import code_product, code_shift
from fullrank.kernels.scan import BLOCK, add_block, lists_of, read_block, thresholds, word_tables
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


@kernel(
    several(array("int64"), array("int64")),
    TABLES, QUERY, array("int32"), array("float64"), array("boolean"), LIMITS, SLACK, INT64,
)  # fmt: skip
def slots_with_evidence(
    tables: Tables,
    query: CodedQuery,
    words: Int32,
    weights: Float64,
    deleted: Mask,
    limits: Limits,
    slack: Slack,
    most: int,
) -> tuple[Int64, Int64]:
    """Find all slots whose u·v or s·t reaches a floor; stop where more than `most` do for certain.

    Outlines bound u·v from above; the codes of the few slots whose bound reaches the floor decide. The arguments are
    those of ``scan_slots``.

    Returns:
        The slots that reach a floor for certain, and those that may.

    Raises:
        IndexError: A list ends outside the file.
    """
    rows, codes, scales = tables.cells.rows, tables.codes.codes, tables.codes.scales
    code, scale, shift = query.code, np.float32(query.scale), code_shift(query.code)
    count, at = len(scales), thresholds(limits, slack)
    bound, near, far = at.bound, at.near, at.far
    lexical_near, lexical_far = at.lexical_near, at.lexical_far
    added, place, stop = word_tables(tables.postings, words, weights)
    certain, open_ones = np.empty(count, np.int64), np.empty(count, np.int64)
    products, bounds = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.float32)
    sums, reaching = np.zeros(BLOCK, np.float32), np.empty(BLOCK, np.int64)
    n_certain = n_open = 0
    for start in range(0, count, BLOCK):
        end = min(start + BLOCK, count)
        read_block(query, tables.outline, start, end, products, bounds)
        add_block(added, place, stop, tables.postings, end, sums)
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
