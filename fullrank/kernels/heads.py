"""What the posting lists of a query's words add to the documents, of frequent words the heads of their lists only."""

from __future__ import annotations

import numpy as np

from fullrank.kernels.arrays import Float32, Float64, Int32, Int64, UInt8
from fullrank.kernels.compiler import check_inside, helper
from fullrank.kernels.prefetch import prefetch
from fullrank.kernels.scan import LEVELS

# Stands for a sum of exactly zero, so that zero means: not read.
_READ = np.float32(np.finfo(np.float32).tiny)
# A word of the signatures is read in full where at most one document in _WHOLE has it, and where it adds to each at
# least this share of the largest contribution of any word.
_WHOLE, _HEAVY = 8, 0.2
# How many slots ahead memory is prefetched.
_AHEAD = 32


@helper
def read_heads(
    words: Int32,
    weights: Float32,
    depth: int,
    floor: float,
    head_indptr: Int64,
    head_slots: Int32,
    head_impacts: UInt8,
    indptr: Int64,
    slots: Int32,
    impacts: UInt8,
    limits: Float32,
    signed: Int32,
    rest: Float64,
    scores: Float32,
) -> tuple[Int32, Int64, Float32]:
    """Add up the heads of the lists of a query's words.

    Args:
        words, weights: The query's words, int32 and float32 (m,).
        depth: Entries to read of a word of the signatures that is frequent or light; other lists are read in full.
        floor: Stop where the word contributes less than this share of the largest contribution of any word.
        head_indptr, head_slots, head_impacts: The short lists (Shortlists).
        indptr, slots, impacts, limits: The postings, for words without a short list.
        signed: The words of the signatures, int32 ascending.
        rest: The mean impact of each behind its head, float64.
        scores: float32 (n,), zero before; not zero afterwards where a slot was read.

    Returns:
        The slots read, each once; the signature bits of words read in part; what each bit adds to an estimate. A head's
        contribution leaves that out, so that a document gets the sum of both.

    Raises:
        IndexError: A list has a slot that does not exist.
    """
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
    least = floor * largest
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
