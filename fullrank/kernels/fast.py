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
from fullrank.kernels.evidence import mark_lists
from fullrank.kernels.heads import read_heads
from fullrank.kernels.pools import (
    DISTANCES,
    far_enough,
    likely_slots,
    mark,
    not_done,
    slots_in,
    slots_of_cells,
    slots_reaching,
    unread_marked,
)
from fullrank.kernels.prefetch import prefetch, prefetch_row
from fullrank.kernels.products import code_product, code_shift
from fullrank.kernels.select import about_kth_largest, kth_largest, push

# How many slots ahead memory is prefetched.
_AHEAD = 32
# So many slots of cells are estimated together: more share the wait for memory, fewer know better estimates.
_TOGETHER = 128
# Cells that are estimated before the others.
_NEXT = 64


@helper
def largest_sum(values: Float32) -> np.float32:
    """Return the most that some of the values add up to."""
    total = np.float32(0)
    for k in range(len(values)):
        total += max(values[k], np.float32(0))
    return total


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
    marked: UInt8,
    dense: float,
    lexical: float,
    scores: Float32,
    best: Float32,
    found: Int64,
    size: int,
) -> int:
    """Estimate the scores of slots, and put the best with evidence into a heap; return its size."""
    most = largest_sum(values)
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
                if product >= dense or rest >= lexical or marked[slot]:
                    size = push(best, found, size, score, slot)
    return size


@helper
def kth_estimate(best: Float32, size: int, wanted: int, known: float) -> np.float32:
    """Return the k-th best estimate so far, or the known score if that is more."""
    least = np.float32(known)
    return max(least, kth_largest(best[:size], wanted)) if size >= wanted else least


@helper
def estimate_cells(
    chosen: Mask,
    starts: Int64,
    near: Float32,
    centre_bias: Float32,
    steps: Float32,
    distances: UInt8,
    rows: Int32,
    deleted: Mask,
    least: np.float32,
    code: Int8,
    shift: np.int32,
    scale: np.float32,
    codes: Int8,
    scales: Float32,
    bias: Float32,
    signatures: UInt8,
    bits: Int64,
    values: Float32,
    marked: UInt8,
    dense: float,
    lexical: float,
    scores: Float32,
    best: Float32,
    found: Int64,
    size: int,
) -> int:
    """Estimate the slots of the chosen cells that by their distance may be among the best with evidence.

    Where u·v can be no evidence, these are the marked ones: what was read of the others is estimated already.

    Returns:
        The heap's size.
    """
    pool = np.empty(slots_in(chosen, starts, len(rows)), np.int64)
    waiting, last = 0, len(chosen) - 1
    for cell in range(len(chosen)):
        if chosen[cell]:
            first, step = starts[cell], steps[cell]
            stop = far_enough(first, starts[cell + 1], distances, near[cell], step, least)
            product = near[cell] - centre_bias[cell]
            may_suffice = far_enough(first, stop, distances, product, step, dense)
            for slot in range(first, may_suffice):
                pool[waiting] = slot
                waiting += 1
            waiting = unread_marked(may_suffice, stop, marked, scores, pool, waiting)
        if waiting >= _TOGETHER or (cell == last and waiting):
            waiting = not_done(pool, waiting, scores, rows, deleted)
            size = estimate(
                pool[:waiting], code, shift, scale, codes, scales, bias, signatures, bits, values,
                marked, dense, lexical, scores, best, found, size,
            )  # fmt: skip
            waiting = 0
    return size


@kernel(
    array("int64"),
    array("int32"), array("float32"), INT64, FLOAT64, INT64, FLOAT64, INT64, INT64, INT64, FLOAT64,
    array("int64"), array("int32"), array("uint8"),
    array("int64"), array("int32"), array("uint8"), array("float32", 2),
    array("int32"), array("float64"), array("uint8", 2),
    array("int8"), FLOAT32, array("int8", 2), array("float32"), array("float32"),
    array("int8", 2), array("float32"), array("float32"), array("float32"), array("int64"), array("uint16"),
    array("uint8"),
    array("int32"), array("boolean"), array("int64"),
    array("int32"), FLOAT64, FLOAT64, output("uint8"), output("float32"),
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
    longest: Float32,
    starts: Int64,
    cell_of: UInt16,
    distances: UInt8,
    rows: Int32,
    deleted: Mask,
    asked: Int64,
    features: Int32,
    dense: float,
    lexical: float,
    marked: UInt8,
    scores: Float32,
) -> Int64:
    """Return at most `rescored` candidates with evidence, those with the best estimates, as slots in no order.

    The estimate of a document is û·v̂ + Σ impacts read + Σ of its signature's words + b. A document of a cell may reach
    u · centre + the mean b + spread · its distance from the centre, and the impacts read on top.

    Args:
        words, weights, depth, floor: As read_heads.
        nprobe: How many of the nearest cells are estimated in any case.
        spread: A share of the distance, times ‖u‖.
        sparse: How many of the slots read are estimated first.
        rescored: How many candidates to return.
        wanted: k.
        known: A score that all wanted documents reach; −∞ if none is known.
        head_indptr, head_slots, head_impacts, indptr, slots, impacts, limits, signed, rest: As read_heads.
        signatures: uint8 (n, ⌈signed / 8⌉).
        code, scale, codes, scales, bias: As scan_slots.
        centres, centre_scales: int8 (C, N), float32 (C,), of the cells.
        centre_bias, longest: float32 (C,), the mean b of a cell, and its largest ‖v − centre‖.
        starts: int64 (C + 1,), the slots of cell c are starts[c]..starts[c + 1].
        cell_of: uint16 (n,), the cell of each slot.
        distances: uint8 (n,), ‖v − centre‖ in 255ths of the longest of the cell, which descend within a cell.
        rows, deleted: As scan_slots.
        asked: Slots to estimate in place of any others; empty for none.
        features, dense, lexical: As scan_slots. Estimates of u·v and s·t decide here.
        marked: uint8 (n,), zero before and afterwards.
        scores: float32 (n,), zero before and afterwards.

    Raises:
        IndexError: A list has a slot or a cell that does not exist.
    """
    shift = code_shift(code)
    read, bits, values = read_heads(
        words, weights, depth, floor, head_indptr, head_slots, head_impacts,
        indptr, slots, impacts, limits, signed, rest, scores,
    )  # fmt: skip
    # Of many slots that are estimated, a mark tells sooner than a search in the lists.
    mark_lists(indptr, slots, features, np.uint8(1), marked)
    best, found = np.empty(rescored, np.float32), np.empty(rescored, np.int64)
    size = 0
    near, reach = np.empty(len(centres), np.float32), np.empty(len(centres), np.float32)
    steps = np.empty(len(centres), np.float32)
    chosen = np.zeros(len(centres), np.bool_)
    opened = np.zeros(len(centres), np.bool_)
    pool, reaches, nearest = asked, near, np.float32(0)
    if len(asked) == 0:
        for cell in range(len(centres)):
            product = code_product(code, shift, centres, cell) * scale
            near[cell] = product * centre_scales[cell] + centre_bias[cell]
            steps[cell] = np.float32(spread / DISTANCES) * longest[cell]
            reach[cell] = near[cell] + steps[cell] * np.float32(DISTANCES)
        pool, reaches = likely_slots(
            near, steps, cell_of, distances, read, scores, rows, deleted, sparse
        )
        nearest = about_kth_largest(near, max(nprobe, 1))
    # The likely slots, the nearest cells, then the other slots that may reach the k-th best estimate so far.
    for turn in range(3):
        if turn == 1:
            if len(asked):
                break
            mark(pool, scores)
            for cell in range(len(near)):
                chosen[cell] = nprobe > 0 and near[cell] >= nearest
            pool = slots_of_cells(chosen, starts, scores, rows, deleted)
        elif turn == 2:
            least = kth_estimate(best, size, wanted, known)
            pool = slots_reaching(least, read, reaches, chosen, cell_of, scores, rows, deleted)
        size = estimate(
            pool, code, shift, scale, codes, scales, bias, signatures, bits, values,
            marked, dense, lexical, scores, best, found, size,
        )  # fmt: skip
    # Then the other cells that may: some near ones, because they raise that estimate, and all.
    if len(asked) == 0:
        mark(pool, scores)
        for nearest in (about_kth_largest(near, min(_NEXT, len(near))), np.float32(-np.inf)):
            least = kth_estimate(best, size, wanted, known)
            for cell in range(len(near)):
                opened[cell] = not chosen[cell] and near[cell] >= nearest and reach[cell] >= least
                chosen[cell] |= opened[cell]
            size = estimate_cells(
                opened, starts, near, centre_bias, steps, distances, rows, deleted, least,
                code, shift, scale, codes, scales, bias, signatures, bits, values,
                marked, dense, lexical, scores, best, found, size,
            )  # fmt: skip
    for i in range(len(read)):
        scores[read[i]] = 0
    mark_lists(indptr, slots, features, np.uint8(0), marked)
    return found[:size]
