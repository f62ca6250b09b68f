"""The candidates of the fast mode, found in one pass (fullrank.retrieval.fast says how)."""

from __future__ import annotations

import numpy as np

from fullrank.kernels.arrays import Float32, Float64, Int8, Int32, Int64, Mask, UInt8, UInt16
from fullrank.kernels.compiler import (
    FLOAT32,
    FLOAT64,
    INT64,
    array,
    check_inside,
    helper,
    kernel,
    output,
)
from fullrank.kernels.evidence import is_in_lists
from fullrank.kernels.prefetch import prefetch, prefetch_row
from fullrank.kernels.products import code_product, code_shift
from fullrank.kernels.scan import LEVELS, keep_from, lists_of
from fullrank.kernels.select import about_kth_largest, kth_largest, push

# Stands for a sum of exactly zero, so that zero means: not read.
_READ = np.float32(np.finfo(np.float32).tiny)
# A word of the signatures is read in full where at most one document in _WHOLE has it, and where it adds to each at
# least this share of the largest contribution of any word.
_WHOLE, _HEAVY = 8, 0.2
# Memory is asked for so many slots before it is needed.
_AHEAD = 32
# Stands for the sum of a slot that is estimated.
_DONE = np.float32(np.inf)
# The weight of a cell's centre as an estimate of u·v. Recall hardly changes between a quarter and one.
_CENTRE_WEIGHT = np.float32(0.5)


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
) -> tuple[Int64, Int64, Float32]:
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
    found = np.empty(n_entries, np.int64)
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
            if score == 0:
                found[size] = slot
                size += 1
            score += np.float32(value)
            scores[slot] = score if score != 0 else _READ
    return found[:size], bits[:n_bits], values[:n_bits]


@helper
def likely_slots(
    near: Float32,
    reach: Float32,
    cell_of: UInt16,
    read: Int64,
    scores: Float32,
    rows: Int32,
    deleted: Mask,
    sparse: int,
) -> tuple[Int64, Int64, Float32]:
    """Return the `sparse` best of the slots read, by what was read of them and a share of their cell's score.

    Returns:
        These slots, all that were read and are not deleted, and what was read of each on top of its cell's reach.
    """
    kept, reaches = np.empty(len(read), np.int64), np.empty(len(read), np.float32)
    estimates = np.empty(len(read), np.float32)
    size = 0
    for i in range(len(read)):
        if i + _AHEAD < len(read):
            prefetch(scores, read[i + _AHEAD])
            prefetch(cell_of, read[i + _AHEAD])
        slot, home = read[i], int(cell_of[read[i]])
        check_inside(home, len(near))
        kept[size] = slot
        estimates[size] = scores[slot] + _CENTRE_WEIGHT * near[home]
        reaches[size] = scores[slot] + reach[home]
        size += not (len(deleted) and deleted[rows[slot]])
    found = kept[:size].copy()
    if size > sparse:
        least = about_kth_largest(estimates[:size], sparse)
        found = found[: keep_from(found, estimates, size, least)]
    return found, kept[:size], reaches[:size]


@helper
def slots_of_cells(
    chosen: Mask, starts: Int64, scores: Float32, rows: Int32, deleted: Mask
) -> Int64:
    """Return the slots of the chosen cells that are not estimated yet."""
    count = 0
    for cell in range(len(chosen)):
        if chosen[cell]:
            check_inside(starts[cell], len(rows) + 1)
            check_inside(starts[cell + 1], len(rows) + 1)
            count += max(starts[cell + 1] - starts[cell], 0)
    found = np.empty(count, np.int64)
    size = 0
    for cell in range(len(chosen)):
        if chosen[cell]:
            for slot in range(starts[cell], starts[cell + 1]):
                found[size] = slot
                is_done = scores[slot] == _DONE
                size += not is_done and not (len(deleted) and deleted[rows[slot]])
    return found[:size]


@helper
def slots_reaching(
    least: np.float32,
    kept: Int64,
    reaches: Float32,
    chosen: Mask,
    cell_of: UInt16,
    scores: Float32,
) -> Int64:
    """Return the slots outside the chosen cells that may reach a score and are not estimated yet."""
    found = np.empty(len(kept), np.int64)
    size = 0
    for i in range(len(kept)):
        if reaches[i] >= least:
            found[size] = kept[i]
            size += scores[kept[i]] != _DONE and not chosen[cell_of[kept[i]]]
    return found[:size]


@helper
def mark(pool: Int64, scores: Float32) -> None:
    """Mark slots as estimated."""
    for i in range(len(pool)):
        scores[pool[i]] = _DONE


@helper
def estimate(
    pool: Int64,
    code: Int8,
    shift: np.int32,
    scale: np.float32,
    codes: Int8,
    scales: Float32,
    bias: Float32,
    signatures: UInt8,
    bits: Int64,
    values: Float32,
    place: Int64,
    stop: Int64,
    slots: Int32,
    dense: float,
    lexical: float,
    scores: Float32,
    best: Float32,
    found: Int64,
    size: int,
) -> int:
    """Estimate the scores of slots, and put the best with evidence into a heap; return its size."""
    most = np.float32(0)
    for k in range(len(bits)):
        most += max(values[k], np.float32(0))
    for i in range(len(pool)):
        if i + _AHEAD < len(pool):
            prefetch_row(codes, pool[i + _AHEAD], 64)
            prefetch(scores, pool[i + _AHEAD])
        slot = pool[i]
        check_inside(slot, len(scores))
        product = code_product(code, shift, codes, slot) * scale * scales[slot]
        score = product + bias[slot] + scores[slot]
        if size < len(best) or score + most > best[0]:
            for k in range(len(bits)):
                if signatures[slot, bits[k] >> 3] >> (bits[k] & 7) & 1:
                    score += values[k]
            if size < len(best) or score > best[0]:
                rest = score - product - bias[slot]
                if product >= dense or rest >= lexical or is_in_lists(slot, place, stop, slots):
                    size = push(best, found, size, score, slot)
    return size


@kernel(
    array("int64"),
    array("int32"), array("float32"), INT64, FLOAT64, INT64, FLOAT64, INT64, INT64, INT64, FLOAT64,
    array("int64"), array("int32"), array("uint8"),
    array("int64"), array("int32"), array("uint8"), array("float32", 2),
    array("int32"), array("float64"), array("uint8", 2),
    array("int8"), FLOAT32, array("int8", 2), array("float32"), array("float32"),
    array("int8", 2), array("float32"), array("float32"), array("float32"), array("int64"), array("uint16"),
    array("int32"), array("boolean"), array("int64"),
    array("int32"), FLOAT64, FLOAT64, output("float32"),
)  # fmt: skip
def best_estimated(
    words: Int32,
    weights: Float32,
    depth: int,
    floor: float,
    nprobe: int,
    spread: float,
    sparse: int,
    rescored: int,
    wanted: int,
    known: float,
    head_indptr: Int64,
    head_slots: Int32,
    head_impacts: UInt8,
    indptr: Int64,
    slots: Int32,
    impacts: UInt8,
    limits: Float32,
    signed: Int32,
    rest: Float64,
    signatures: UInt8,
    code: Int8,
    scale: np.float32,
    codes: Int8,
    scales: Float32,
    bias: Float32,
    centres: Int8,
    centre_scales: Float32,
    centre_bias: Float32,
    radius: Float32,
    starts: Int64,
    cell_of: UInt16,
    rows: Int32,
    deleted: Mask,
    asked: Int64,
    features: Int32,
    dense: float,
    lexical: float,
    scores: Float32,
) -> Int64:
    """Return the `rescored` candidates with evidence and the best estimates, as slots in no order.

    The estimate of a document is û·v̂ + Σ impacts read + Σ of its signature's words + b. A document of a cell may reach
    u · centre + the mean b + spread · the radius, and the impacts read on top.

    Args:
        words, weights, depth, floor: As read_heads.
        nprobe: How many of the nearest cells are estimated in any case.
        spread: A share of the radius, times ‖u‖.
        sparse: How many of the slots read are estimated first.
        rescored: How many candidates to return.
        wanted: k.
        known: A score that all wanted documents reach; −∞ if none is known.
        head_indptr, head_slots, head_impacts, indptr, slots, impacts, limits, signed, rest: As read_heads.
        signatures: uint8 (n, ⌈signed / 8⌉).
        code, scale, codes, scales, bias: As scan_slots.
        centres, centre_scales: int8 (C, N), float32 (C,), of the cells.
        centre_bias, radius: float32 (C,), the mean b of a cell, and the root of its mean ‖v − centre‖².
        starts: int64 (C + 1,), the slots of cell c are starts[c]..starts[c + 1].
        cell_of: uint16 (n,), the cell of each slot.
        rows, deleted: As scan_slots.
        asked: Slots to estimate in place of any others; empty for none.
        features, dense, lexical: As scan_slots. Estimates of u·v and s·t decide here.
        scores: float32 (n,), zero before and afterwards.

    Raises:
        IndexError: A list has a slot or a cell that does not exist.
    """
    shift = code_shift(code)
    read, bits, values = read_heads(
        words, weights, depth, floor, head_indptr, head_slots, head_impacts,
        indptr, slots, impacts, limits, signed, rest, scores,
    )  # fmt: skip
    place, stop = lists_of(indptr, len(slots), features)
    best, found = np.empty(rescored, np.float32), np.empty(rescored, np.int64)
    size = 0
    near, reach = np.empty(len(centres), np.float32), np.empty(len(centres), np.float32)
    chosen = np.zeros(len(centres), np.bool_)
    pool, kept, reaches = asked, asked, near
    if len(asked) == 0:
        for cell in range(len(centres)):
            product = code_product(code, shift, centres, cell) * scale
            near[cell] = product * centre_scales[cell] + centre_bias[cell]
            reach[cell] = near[cell] + np.float32(spread) * radius[cell]
        pool, kept, reaches = likely_slots(
            near, reach, cell_of, read, scores, rows, deleted, sparse
        )
    # The likely slots, the nearest cells, then the other slots and cells that may reach the k-th best estimate so far.
    for turn in range(4):
        least = np.float32(-np.inf)
        if turn == 1:
            if len(asked):
                break
            mark(pool, scores)
            if nprobe > 0:
                least = about_kth_largest(near, nprobe)
            for cell in range(len(near)):
                chosen[cell] = nprobe > 0 and near[cell] >= least
            pool = slots_of_cells(chosen, starts, scores, rows, deleted)
        elif turn > 1:
            if size >= wanted:
                least = kth_largest(best[:size], wanted)
            least = max(least, np.float32(known))
            if turn == 2:
                pool = slots_reaching(least, kept, reaches, chosen, cell_of, scores)
            else:
                mark(pool, scores)
                for cell in range(len(near)):
                    chosen[cell] = not chosen[cell] and reach[cell] >= least
                pool = slots_of_cells(chosen, starts, scores, rows, deleted)
        size = estimate(
            pool, code, shift, scale, codes, scales, bias, signatures, bits, values,
            place, stop, slots, dense, lexical, scores, best, found, size,
        )  # fmt: skip
    for i in range(len(read)):
        scores[read[i]] = 0
    return found[:size]
