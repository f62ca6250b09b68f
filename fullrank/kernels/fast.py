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
from fullrank.kernels.products import code_product, code_shift
from fullrank.kernels.scan import LEVELS, keep_from, minus
from fullrank.kernels.select import about_kth_largest, push

# Stands for a sum of exactly zero, so that zero means: not read.
_READ = np.float32(np.finfo(np.float32).tiny)
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
        depth: Entries to read of a word of the signatures; other lists are read in full.
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
    largest = 0.0
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
def nearest_cells(near: Float32, nprobe: int, slack: float) -> Mask:
    """Choose the nprobe cells with the largest u · centre, and those that score lower by at most `slack`."""
    least = np.float32(np.inf)
    if nprobe > 0:
        least = minus(np.float64(about_kth_largest(near, nprobe)), slack)
    chosen = np.empty(len(near), np.bool_)
    for cell in range(len(near)):
        chosen[cell] = near[cell] >= least
    return chosen


@helper
def slots_to_estimate(
    near: Float32,
    chosen: Mask,
    starts: Int64,
    cell_of: UInt16,
    read: Int64,
    scores: Float32,
    rows: Int32,
    deleted: Mask,
    sparse: int,
) -> Int64:
    """Return the slots of the chosen cells, and of the others the `sparse` best of those read.

    Those are the best by what was read of them and a share of u · (centre of their cell).
    """
    outside, estimates = np.empty(len(read), np.int64), np.empty(len(read), np.float32)
    size = 0
    for i in range(len(read)):
        slot, home = read[i], int(cell_of[read[i]])
        check_inside(home, len(near))
        if not chosen[home] and not (len(deleted) and deleted[rows[slot]]):
            outside[size] = slot
            estimates[size] = scores[slot] + _CENTRE_WEIGHT * near[home]
            size += 1
    if size > sparse:
        least = about_kth_largest(estimates[:size], sparse)
        size = keep_from(outside, estimates, size, least)
    count = size
    for cell in range(len(near)):
        if chosen[cell]:
            check_inside(starts[cell], len(rows) + 1)
            check_inside(starts[cell + 1], len(rows) + 1)
            count += max(starts[cell + 1] - starts[cell], 0)
    found = np.empty(count, np.int64)
    found[:size] = outside[:size]
    for cell in range(len(near)):
        if chosen[cell]:
            for inside in range(starts[cell], starts[cell + 1]):
                if not (len(deleted) and deleted[rows[inside]]):
                    found[size] = inside
                    size += 1
    return found[:size]


@kernel(
    array("int64"),
    array("int32"), array("float32"), INT64, FLOAT64, INT64, FLOAT64, INT64, INT64,
    array("int64"), array("int32"), array("uint8"),
    array("int64"), array("int32"), array("uint8"), array("float32", 2),
    array("int32"), array("float64"), array("uint8", 2),
    array("int8"), FLOAT32, array("int8", 2), array("float32"), array("float32"),
    array("int8", 2), array("float32"), array("int64"), array("uint16"),
    array("int32"), array("boolean"), array("int64"),
    output("float32"),
)  # fmt: skip
def best_estimated(
    words: Int32,
    weights: Float32,
    depth: int,
    floor: float,
    nprobe: int,
    slack: float,
    sparse: int,
    rescored: int,
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
    starts: Int64,
    cell_of: UInt16,
    rows: Int32,
    deleted: Mask,
    asked: Int64,
    scores: Float32,
) -> Int64:
    """Return the `rescored` candidates with the best estimates, as slots in no order.

    The estimate of a document is û·v̂ + Σ impacts read + Σ of its signature's words + b.

    Args:
        words, weights, depth, floor: As read_heads.
        nprobe, slack: As nearest_cells.
        sparse: How many of the slots read outside these cells are estimated.
        rescored: How many candidates to return.
        head_indptr, head_slots, head_impacts, indptr, slots, impacts, limits, signed, rest: As read_heads.
        signatures: uint8 (n, ⌈signed / 8⌉).
        code, scale, codes, scales, bias: As scan_slots.
        centres, centre_scales: int8 (C, N), float32 (C,), of the cells.
        starts: int64 (C + 1,), the slots of cell c are starts[c]..starts[c + 1].
        cell_of: uint16 (n,), the cell of each slot.
        rows, deleted: As scan_slots.
        asked: Slots to estimate in place of any others; empty for none.
        scores: float32 (n,), zero before and afterwards.

    Raises:
        IndexError: A list has a slot or a cell that does not exist.
    """
    shift = code_shift(code)
    read, bits, values = read_heads(
        words, weights, depth, floor, head_indptr, head_slots, head_impacts,
        indptr, slots, impacts, limits, signed, rest, scores,
    )  # fmt: skip
    pool = asked
    if len(asked) == 0:
        near = np.empty(len(centres), np.float32)
        for cell in range(len(centres)):
            near[cell] = code_product(code, shift, centres, cell) * scale * centre_scales[cell]
        chosen = nearest_cells(near, nprobe, slack)
        pool = slots_to_estimate(near, chosen, starts, cell_of, read, scores, rows, deleted, sparse)
    most = np.float32(0)
    for k in range(len(bits)):
        most += max(values[k], np.float32(0))
    best, found = np.empty(rescored, np.float32), np.empty(rescored, np.int64)
    size = 0
    for i in range(len(pool)):
        slot = pool[i]
        check_inside(slot, len(scores))
        product = code_product(code, shift, codes, slot) * scale
        estimate = product * scales[slot] + bias[slot] + scores[slot]
        if size < rescored or estimate + most > best[0]:
            for k in range(len(bits)):
                if signatures[slot, bits[k] >> 3] >> (bits[k] & 7) & 1:
                    estimate += values[k]
            if size < rescored or estimate > best[0]:
                size = push(best, found, size, estimate, slot)
    for i in range(len(read)):
        scores[read[i]] = 0
    return found[:size]
