"""The candidates of the exact mode, found in one pass (fullrank.retrieval.candidates says how)."""

from __future__ import annotations

import numpy as np
from numba import types

from fullrank.kernels.arrays import (
    Float32,
    Float64,
    Int32,
    Int64,
    Mask,
    prefetch,
    rounding_in_kernel,
)
from fullrank.kernels.compiler import FLOAT64, INT64, array, check_inside, helper, kernel, several
from fullrank.kernels.index import (
    LIMITS,
    QUERY,
    TABLES,
    CodedQuery,
    Limits,
    Reads,
    Slack,
    Tables,
)
from fullrank.kernels.scan import LEVELS, plan_words, scan_slots

# What the posting lists of a query's words add to the documents, of frequent words the heads of their lists only.


# Stands for a sum of exactly zero, so that zero means: not read.
_READ = np.float32(np.finfo(np.float32).tiny)
# A word of the signatures is read in full where at most one document in _WHOLE has it, and where it adds to each at
# least this share of the largest contribution of any word.
_WHOLE, _HEAVY = 8, 0.2
# How many slots ahead memory is prefetched.
_AHEAD = 32


@helper
def read_heads(
    tables: Tables, words: Int32, weights: Float32, reads: Reads, scores: Float32
) -> tuple[Int32, Int64, Float32]:
    """Add up the heads of the lists of a query's words, int32 and float32 (m,).

    Args:
        scores: float32 (n,), zero before; not zero afterwards where a slot was read.

    Returns:
        The slots read, each once; the signature bits of words read in part; what each bit adds to an estimate. A head's
        contribution leaves that out, so that a document gets the sum of both.
    """
    lists, postings, rest = tables.shortlists, tables.postings, reads.rest
    head_indptr, head_slots, head_impacts = lists.indptr, lists.slots, lists.impacts
    indptr, slots, impacts, limits = (
        postings.indptr,
        postings.slots,
        postings.impacts,
        postings.limits,
    )
    signed, depth = lists.signed, reads.depth
    count = len(words)
    start, stop = np.empty(count, np.int64), np.empty(count, np.int64)
    from_heads, cut = np.empty(count, np.bool_), np.empty(count, np.bool_)
    base, step = np.empty(count, np.float64), np.empty(count, np.float64)
    bits, values = np.empty(count, np.int64), np.empty(count, np.float32)
    n_bits = n_entries = 0
    largest = most = 0.0
    for i in range(count):
        low = np.float64(limits[words[i], 0]) * weights[i]
        most = max(most, low, np.float64(limits[words[i], 1]) * weights[i])
    for i in range(count):
        word, weight = words[i], np.float64(weights[i])
        low = np.float64(limits[word, 0]) * weight
        step[i] = (np.float64(limits[word, 1]) - np.float64(limits[word, 0])) * weight / LEVELS
        start[i], stop[i] = head_indptr[word], head_indptr[word + 1]
        from_heads[i] = start[i] < stop[i]
        bit = np.searchsorted(signed, word)
        is_signed = bit < len(signed) and signed[bit] == word
        if is_signed:
            stop[i] = min(stop[i], start[i] + depth)
        in_part = is_signed and stop[i] - start[i] < indptr[word + 1] - indptr[word]
        base[i] = low
        if in_part:
            is_rare = _WHOLE * (indptr[word + 1] - indptr[word]) <= len(scores)
            if is_rare and low + step[i] * rest[bit] >= _HEAVY * most:
                in_part, from_heads[i] = False, False
        if in_part:
            value = low + step[i] * rest[bit]
            bits[n_bits], values[n_bits] = bit, np.float32(value)
            n_bits += 1
            base[i] = low - value
        largest = max(largest, base[i] + LEVELS * max(step[i], 0.0))
        # A floor needs contributions that descend along the list.
        cut[i] = in_part and step[i] > 0 and limits[word, 1] > 0
        if not from_heads[i]:
            start[i], stop[i] = indptr[word], indptr[word + 1]
        n_entries += stop[i] - start[i]
    least = reads.floor * largest
    found = np.empty(n_entries, np.int32)
    size = 0
    for i in range(count):
        list_slots = head_slots if from_heads[i] else slots
        list_impacts = head_impacts if from_heads[i] else impacts
        check_inside(start[i], len(list_slots) + 1)
        check_inside(stop[i], len(list_slots) + 1)
        for p in range(start[i], stop[i]):
            value = base[i] + step[i] * list_impacts[p]
            if cut[i] and least > 0 and value < least:
                break
            if p + _AHEAD < stop[i]:
                prefetch(scores, list_slots[p + _AHEAD])
            slot = list_slots[p]
            check_inside(slot, len(scores))
            score = scores[slot]
            # Without a branch: whether a slot was read before cannot be predicted.
            found[size] = slot
            size += score == 0
            score += np.float32(value)
            scores[slot] = score if score != 0 else _READ
    return found[:size], bits[:n_bits], values[:n_bits]


# The scan is repeated with more words while there are more candidates than this per wanted hit, and more than
# MIN_REFINED.
MAX_CANDIDATES_PER_HIT, MIN_REFINED = 8, 1024
# Roundings of a score besides those of its words.
_ROUNDINGS = 8
# So many entries of lists take less time than the scores of the candidates that they rule out.
_CHEAP_ENTRIES = 8192


@helper
def _first_below(widths: Float64, most: float) -> int:
    """Return the first place whose width is at most this; the last one is 0."""
    place = 0
    while place < len(widths) - 1 and not widths[place] <= most:
        place += 1
    return place


@helper
def _with_short_lists(planned: Int32, indptr: Int64, added: int) -> int:
    """Return how many words to add: more than `added` while the lists of the others are short together."""
    n_entries = 0
    while added < len(planned):
        n_entries += indptr[planned[added] + 1] - indptr[planned[added]]
        if n_entries > _CHEAP_ENTRIES:
            break
        added += 1
    return added


@kernel(
    several(
        types.boolean, array("int64"), array("float32"), FLOAT64, FLOAT64, INT64, array("int64")
    ),
    TABLES, QUERY, array("int32"), array("float32"), array("boolean"), LIMITS, FLOAT64,
)  # fmt: skip
def rows_in_reach(
    tables: Tables,
    query: CodedQuery,
    words: Int32,
    weights: Float32,
    deleted: Mask,
    limits: Limits,
    most_left_out: float,
) -> tuple[bool, Int64, Float32, float, float, int, Int64]:
    """Find the rows that may be among the best `wanted` with evidence.

    Args:
        words, weights: The query's words in any order, int32 and float32 (m,).
        most_left_out: The largest contribution of words left out, as a share of that of all words.

    Returns:
        Whether the bounds hold; if not, all rows may be. The rows; their g; how far the score may be below and above
        g. How many slots have evidence for certain, and the rows of the others that may have it.
    """
    rows, size = tables.cells.rows, query.size + tables.codes.largest_bias
    query_error, outline_error = query.error, query.outline_error
    postings = tables.postings
    planned, s, below, above, errors = plan_words(postings.indptr, postings.limits, words, weights)
    widths = above - below
    rounded = rounding_in_kernel(len(planned) + _ROUNDINGS, size + widths[0])
    error, over = query_error + rounded, outline_error + rounded
    nothing, no_scores = np.empty(0, np.int64), np.empty(0, np.float32)
    if not max(error, over) < np.inf:
        return False, nothing, no_scores, error, error, 0, nothing
    added = _first_below(widths, max(2 * query_error, most_left_out * widths[0]))
    added = _with_short_lists(planned, postings.indptr, added)
    if limits.counted >= 0:
        added = len(planned)
    while True:
        most = max(MIN_REFINED, MAX_CANDIDATES_PER_HIT * limits.wanted)
        if added == len(planned):
            most = len(rows)
        off = errors[added] + rounded
        slack = Slack(over, error, off, below[added], above[added])
        found, scores, too_many, n_certain, open_slots = scan_slots(
            tables, query, planned[:added], s[:added], deleted, limits, slack, most
        )
        if not too_many:
            may_be, open_rows = rows[found].astype(np.int64), rows[open_slots].astype(np.int64)
            off += error
            below_g, above_g = off - below[added], off + above[added]
            return True, may_be, scores, below_g, above_g, n_certain, open_rows
        added = max(min(added + 1, len(planned)), _first_below(widths, widths[added] / 2))
