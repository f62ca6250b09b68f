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
    Reads,
    Slack,
    Tables,
)
from fullrank.kernels.products import code_product, code_shift
from fullrank.kernels.scan import LEVELS, lists_of, minus, plan_words, scan_slots
from fullrank.kernels.select import push

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
# So many entries of lists take less time than the scores of the candidates that they rule out: of a scan of all
# documents, and of a search for a known score.
_CHEAP_ENTRIES, _CHEAP_OF_FEW = 8192, 4096


@helper
def _first_below(widths: Float64, most: float) -> int:
    """Return the first place whose width is at most this; the last one is 0."""
    place = 0
    while place < len(widths) - 1 and not widths[place] <= most:
        place += 1
    return place


@helper
def _with_short_lists(planned: Int32, indptr: Int64, added: int, cheap: int) -> int:
    """Return how many words to add: more than `added` while these others have at most `cheap` entries together."""
    n_entries = 0
    while added < len(planned):
        n_entries += indptr[planned[added] + 1] - indptr[planned[added]]
        if n_entries > cheap:
            break
        added += 1
    return added


@kernel(
    several(types.boolean, array("int64"), array("float32"), FLOAT64, FLOAT64),
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
) -> tuple[bool, Int64, Float32, float, float]:
    """Find the rows that may be among the best `wanted` with evidence.

    Args:
        words, weights: The query's words in any order, int32 and float32 (m,).
        most_left_out: The largest contribution of words left out, as a share of that of all words.

    Returns:
        Whether the bounds hold; if not, all rows may be. The rows; their g; how far the score may be below and above g.
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
        return False, nothing, no_scores, error, error
    added = _first_below(widths, max(2 * query_error, most_left_out * widths[0]))
    added = _with_short_lists(planned, postings.indptr, added, _CHEAP_ENTRIES)
    while True:
        most = max(MIN_REFINED, MAX_CANDIDATES_PER_HIT * limits.wanted)
        if added == len(planned):
            most = len(rows)
        off = errors[added] + rounded
        slack = Slack(over, error, off, below[added], above[added])
        found, scores, too_many = scan_slots(
            tables, query, planned[:added], s[:added], deleted, limits, slack, most
        )
        if not too_many:
            off += error
            may_be = rows[found].astype(np.int64)
            return True, may_be, scores, off - below[added], off + above[added]
        added = max(min(added + 1, len(planned)), _first_below(widths, widths[added] / 2))


# The rows that may reach a known score, found without a look at most documents.
#
# Words are read in the order of their plan, until the others together are too light: a document without a word that is
# read has at most
#
#     above of the others + ‖u‖ max ‖v‖ + max |b| < the known score
#
# So only the documents of the lists read may reach it (MaxScore, Turtle and Flood 1995). The signature of each and then
# its code lower its bound.

# Reading more entries than one for so many documents takes longer than the bounds of all.
_WORTH_READING = 2


@helper
def read_lists(tables: Tables, words: Int32, weights: Float64, scores: Float32) -> Int32:
    """Add up the lists of words, int32 and float64 (m,), and return the slots read, each once.

    Args:
        scores: float32 (n,), zero before; not zero afterwards where a slot was read.
    """
    slots, impacts, limits = tables.postings.slots, tables.postings.impacts, tables.postings.limits
    place, stop = lists_of(tables.postings.indptr, len(slots), words)
    found, size = np.empty(np.sum(stop - place), np.int32), 0
    for i in range(len(words)):
        low = np.float64(limits[words[i], 0])
        step = (np.float64(limits[words[i], 1]) - low) / LEVELS * weights[i]
        low *= weights[i]
        for p in range(place[i], stop[i]):
            if p + _AHEAD < stop[i]:
                prefetch(scores, slots[p + _AHEAD])
            slot = slots[p]
            check_inside(slot, len(scores))
            score = scores[slot]
            found[size] = slot
            size += score == 0
            score += np.float32(low + step * impacts[p])
            scores[slot] = score if score != 0 else _READ
    return found[:size]


@helper
def rows_of(tables: Tables, found: Int64, uppers: Float64, least: float) -> Int64:
    """Return the rows of the slots whose score may reach one."""
    rows, kept, size = tables.cells.rows, np.empty(len(found), np.int64), 0
    for i in range(len(found)):
        kept[size] = rows[found[i]]
        size += uppers[i] >= least
    return kept[:size]


@kernel(FLOAT64, array("float32", 2), array("int32"), array("float32"))
def most_of_words(limits: Float32, words: Int32, weights: Float32) -> float:
    """Return the most that a document may have of the words of a query; limits: as of ``Postings``."""
    most = 0.0
    for i in range(len(words)):
        check_inside(words[i], len(limits))
        weight = np.float64(weights[i])
        most += max(limits[words[i], 0] * weight, limits[words[i], 1] * weight, 0.0)
    return most


@kernel(
    several(types.boolean, array("int64")),
    TABLES, QUERY, array("int32"), array("float32"), array("boolean"), LIMITS, INT64,
    output("float32"),
)  # fmt: skip
def rows_reaching_score(
    tables: Tables,
    query: CodedQuery,
    words: Int32,
    weights: Float32,
    deleted: Mask,
    limits: Limits,
    most: int,
    scores: Float32,
) -> tuple[bool, Int64]:
    """Find the rows that may be among the best `wanted` with evidence and reach the score `limits.least`.

    Args:
        most: Give up where more rows than this may.
        scores: float32 (n,), zero before and afterwards.

    Returns:
        Whether they were found, which takes words that decide much; and the rows, in no order.
    """
    postings, lists, nothing = tables.postings, tables.shortlists, np.empty(0, np.int64)
    rows, codes, scales, bias = (
        tables.cells.rows,
        tables.codes.codes,
        tables.codes.scales,
        tables.codes.bias,
    )
    largest_bias, signed, signatures = tables.codes.largest_bias, lists.signed, lists.signatures
    planned, s, below, above, errors = plan_words(postings.indptr, postings.limits, words, weights)
    largest = query.size + largest_bias + above[0] - below[0]
    rounded = rounding_in_kernel(len(planned) + _ROUNDINGS, largest)
    others = query.length * tables.outline.longest + largest_bias + rounded
    if not others < limits.least:
        return False, nothing
    added = _first_below(above, limits.least - others)
    added = _with_short_lists(planned, postings.indptr, added, _CHEAP_OF_FEW)
    n_entries = 0
    for i in range(added):
        n_entries += postings.indptr[planned[i] + 1] - postings.indptr[planned[i]]
    if n_entries > max(len(rows) // _WORTH_READING, _CHEAP_OF_FEW):
        return False, nothing
    read = read_lists(tables, planned[:added], s[:added], scores)
    off = errors[added] + rounded
    reached = minus(limits.least, others + off + above[added])
    found, sums, count = np.empty(len(read), np.int64), np.empty(len(read), np.float32), 0
    for i in range(len(read)):
        slot = read[i]
        found[count], sums[count] = slot, scores[slot]
        # Without a branch: which of them reach it cannot be predicted.
        count += scores[slot] >= reached
        scores[slot] = 0
    # Signatures tell which documents have a word that was not read; one without a signature may be in any.
    bits, values, n_bits = np.empty(len(planned), np.int64), np.empty(len(planned)), 0
    anywhere = off
    for i in range(added, len(planned)):
        bit, value = np.searchsorted(signed, planned[i]), above[i] - above[i + 1]
        if bit < len(signed) and signed[bit] == planned[i]:
            bits[n_bits], values[n_bits] = bit, value
            n_bits += 1
        else:
            anywhere += value
    uppers, size = np.empty(count), 0
    for i in range(count):
        if i + _AHEAD < count:
            prefetch_row(signatures, found[i + _AHEAD], 64)
        slot, upper = found[i], sums[i] + anywhere
        for k in range(n_bits):
            if signatures[slot, bits[k] >> 3] >> (bits[k] & 7) & 1:
                upper += values[k]
        if upper + others >= limits.least and not (len(deleted) and deleted[rows[slot]]):
            found[size], sums[size], uppers[size] = slot, sums[i], upper
            size += 1
    code, scale, shift = query.code, np.float32(query.scale), code_shift(query.code)
    count, n_best, error = 0, 0, query.error + rounded
    best, best_slots = np.empty(limits.wanted), np.empty(limits.wanted, np.int64)
    for i in range(size):
        if i + _AHEAD < size:
            prefetch_row(codes, found[i + _AHEAD], 64)
        slot, lower = found[i], sums[i] - off + below[added]
        product = np.float64(code_product(code, shift, codes, slot) * scale * scales[slot])
        upper = uppers[i] + product + bias[slot] + error
        if upper >= limits.least:
            found[count], uppers[count] = slot, upper
            count += 1
            if product - error >= limits.dense or lower >= limits.lexical:
                n_best = push(best, best_slots, n_best, lower + product + bias[slot] - error, slot)
    worst = max(limits.least, best[0]) if n_best == limits.wanted else limits.least
    chosen = rows_of(tables, found[:count], uppers[:count], worst)
    return (True, chosen) if len(chosen) <= most else (False, nothing)
