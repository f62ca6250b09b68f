"""The candidates of the fast mode, found in one pass (fullrank.retrieval.candidates says how)."""

from __future__ import annotations

import numpy as np

from fullrank.kernels.arrays import (
    Float32,
    Float64,
    Int8,
    Int32,
    Int64,
    Mask,
    UInt8,
    UInt16,
    prefetch,
    prefetch_row,
)
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
from fullrank.kernels.exact import read_heads
from fullrank.kernels.products import code_product, code_shift
from fullrank.kernels.scan import keep_from
from fullrank.kernels.select import about_kth_largest, kth_largest, push

# Slots to estimate: those read that are likely, those of chosen cells, and those that may reach a score.

DONE = np.float32(np.inf)
"""Stands for the sum of a slot that is estimated."""

DISTANCES = 255
"""Steps of the distance of a document from the centre of its cell."""

# How many slots ahead memory is prefetched.
_AHEAD = 32
# The weight of a cell's centre as an estimate of u·v. Recall hardly changes between a quarter and one.
_CENTRE_WEIGHT = np.float32(0.5)
# Slots that wait for the choice of the likely ones, on top of twice their number.
_ROOM = 128


@helper
def likely_slots(
    near: Float32,
    steps: Float32,
    cell_of: UInt16,
    distances: UInt8,
    read: Int32,
    scores: Float32,
    rows: Int32,
    deleted: Mask,
    sparse: int,
) -> tuple[Int64, Float32]:
    """Return the `sparse` best of the slots read, by what was read of them and a share of their cell's score.

    Args:
        near: What a document at the centre of each cell has, float32 (C,).
        steps: What each step of its distance from the centre may add, float32 (C,).
        cell_of, distances: Of the slots, uint16 and uint8 (n,).
        read: Slots.
        scores: What was read of each slot, float32 (n,).
        rows, deleted: As scan_slots.
        sparse: How many; some more may be returned, because they tie, or nearly do.

    Returns:
        These slots, and the most that each slot read may have, float32 (read,).
    """
    reaches = np.empty(len(read), np.float32)
    room = 2 * sparse + _ROOM
    found, estimates = np.empty(room, np.int64), np.empty(room, np.float32)
    n_found = 0
    least = np.float32(-np.inf)
    for i in range(len(read)):
        if i + _AHEAD < len(read):
            prefetch(scores, read[i + _AHEAD])
            prefetch(cell_of, read[i + _AHEAD])
            prefetch(distances, read[i + _AHEAD])
        slot = read[i]
        home = int(cell_of[slot])
        check_inside(home, len(near))
        score = scores[slot]
        reaches[i] = score + near[home] + steps[home] * distances[slot]
        estimate = score + _CENTRE_WEIGHT * near[home]
        if not estimate >= least:
            continue
        if len(deleted) and deleted[rows[slot]]:
            continue
        found[n_found], estimates[n_found] = slot, estimate
        n_found += 1
        if n_found == room:
            least = about_kth_largest(estimates, sparse)
            # Where very many tie, the last ones are left out.
            n_found = min(keep_from(found, estimates, room, least), room - 1)
    if n_found > sparse:
        least = about_kth_largest(estimates[:n_found], sparse)
        n_found = keep_from(found, estimates, n_found, least)
    return found[:n_found], reaches


@helper
def slots_in(chosen: Mask, starts: Int64, slots: int) -> int:
    """Return how many slots the chosen cells have.

    Raises:
        IndexError: A cell begins or ends at a slot that does not exist.
    """
    count = 0
    for cell in range(len(chosen)):
        if chosen[cell]:
            check_inside(starts[cell], slots + 1)
            check_inside(starts[cell + 1], slots + 1)
            count += max(starts[cell + 1] - starts[cell], 0)
    return count


@helper
def far_enough(
    first: int,
    stop: int,
    distances: UInt8,
    near: np.float32,
    step: np.float32,
    least: np.float32 | float,
) -> int:
    """Return the end of the slots first..stop of a cell that may reach a score; the farthest come first.

    Args:
        near, step: As of `likely_slots`, of the cell.
        least: The score.
    """
    while first < stop:
        middle = (first + stop) // 2
        if near + step * distances[middle] >= least:
            first = middle + 1
        else:
            stop = middle
    return first


@helper
def not_done(found: Int64, size: int, scores: Float32, rows: Int32, deleted: Mask) -> int:
    """Keep the slots that are neither estimated nor deleted; return how many there are."""
    kept = 0
    for i in range(size):
        if len(deleted) and i + _AHEAD < size:
            prefetch(deleted, rows[found[i + _AHEAD]])
        slot = found[i]
        found[kept] = slot
        # Without a branch: which of them are deleted cannot be predicted.
        is_kept = scores[slot] != DONE
        if len(deleted):
            is_kept &= not deleted[rows[slot]]
        kept += is_kept
    return kept


@helper
def slots_of_cells(
    chosen: Mask, starts: Int64, scores: Float32, rows: Int32, deleted: Mask
) -> Int64:
    """Return the slots of the chosen cells that are not estimated yet."""
    found = np.empty(slots_in(chosen, starts, len(rows)), np.int64)
    size = 0
    for cell in range(len(chosen)):
        if chosen[cell]:
            for slot in range(starts[cell], starts[cell + 1]):
                found[size] = slot
                size += 1
    return found[: not_done(found, size, scores, rows, deleted)]


@helper
def slots_reaching(
    least: np.float32,
    read: Int32,
    reaches: Float32,
    chosen: Mask,
    cell_of: UInt16,
    scores: Float32,
    rows: Int32,
    deleted: Mask,
) -> Int64:
    """Return the slots read outside the chosen cells that may reach a score and are neither estimated nor deleted."""
    found = np.empty(len(read), np.int64)
    size = 0
    for i in range(len(read)):
        if reaches[i] >= least:
            slot = read[i]
            found[size] = slot
            is_new = scores[slot] != DONE and not chosen[cell_of[slot]]
            size += is_new and not (len(deleted) and deleted[rows[slot]])
    return found[:size]


@helper
def mark(pool: Int64, scores: Float32) -> None:
    """Mark slots as estimated."""
    for i in range(len(pool)):
        scores[pool[i]] = DONE


@helper
def unread_marked(
    first: int, stop: int, marked: UInt8, scores: Float32, found: Int64, size: int
) -> int:
    """Add the slots first..stop that are marked, and of which nothing was read, to those found; return their number."""
    for slot in range(first, stop):
        found[size] = slot
        size += (marked[slot] != 0) & (scores[slot] == 0)
    return size


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
