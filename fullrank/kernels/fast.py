"""The candidates of the fast mode, found in one pass (fullrank.retrieval.candidates says how)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fullrank.kernels.arrays import (
    Float32,
    Int32,
    Int64,
    Mask,
    UInt8,
    prefetch,
    prefetch_row,
)
from fullrank.kernels.compiler import array, check_inside, helper, kernel, output
from fullrank.kernels.evidence import mark_lists
from fullrank.kernels.exact import read_heads
from fullrank.kernels.index import (
    LIMITS,
    QUERY,
    READS,
    TABLES,
    Cells,
    CodedQuery,
    Limits,
    Reads,
    Tables,
    record,
)
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
    cells: Cells,
    read: Int32,
    scores: Float32,
    deleted: Mask,
    sparse: int,
) -> tuple[Int64, Float32]:
    """Return the `sparse` best of the slots read, by what was read of them and a share of their cell's score.

    Args:
        near: What a document at the centre of each cell has, float32 (C,).
        steps: What each step of its distance from the centre may add, float32 (C,).
        sparse: How many; some more may be returned, because they tie, or nearly do.

    Returns:
        These slots, and the most that each slot read may have, float32 (read,).
    """
    cell_of, distances, rows = cells.of, cells.distances, cells.rows
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
    """Return how many slots the chosen cells have."""
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
    """Return the end of the slots first..stop of a cell that may reach a score; the farthest come first."""
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
def slots_of_cells(chosen: Mask, cells: Cells, scores: Float32, deleted: Mask) -> Int64:
    """Return the slots of the chosen cells that are not estimated yet."""
    starts, rows = cells.starts, cells.rows
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
    least: np.float32, read: Int32, reaches: Float32, chosen: Mask, cells: Cells, scores: Float32,
    deleted: Mask,
) -> Int64:  # fmt: skip
    """Return the slots read outside the chosen cells that may reach a score and are neither estimated nor deleted."""
    cell_of, rows = cells.of, cells.rows
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


class Buffers(NamedTuple):
    """float32 and uint8 (n,), zero between searches: what was read of each slot, and which have a feature."""

    scores: Float32
    marked: UInt8


class Heap(NamedTuple):
    """The best estimates and their slots, and the signature bits of words with what each adds to an estimate."""

    best: Float32
    found: Int64
    bits: Int64
    values: Float32


@helper
def estimate(
    pool: Int64,
    tables: Tables,
    query: CodedQuery,
    limits: Limits,
    buffers: Buffers,
    heap: Heap,
    size: int,
) -> int:
    """Estimate the scores of slots, and put the best with evidence into a heap; return its size."""
    codes, scales, bias = tables.codes.codes, tables.codes.scales, tables.codes.bias
    code, scale, shift = query.code, np.float32(query.scale), code_shift(query.code)
    signatures, dense, lexical = tables.shortlists.signatures, limits.dense, limits.lexical
    scores, marked = buffers.scores, buffers.marked
    best, found, bits, values = heap.best, heap.found, heap.bits, heap.values
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
    chosen: Mask, near: Float32, steps: Float32, least: np.float32, deleted: Mask,
    tables: Tables, query: CodedQuery, limits: Limits, buffers: Buffers, heap: Heap, size: int,
) -> int:  # fmt: skip
    """Estimate the slots of the chosen cells that by their distance may be among the best with evidence.

    Where u·v can be no evidence, these are the marked ones: what was read of the others is estimated already.
    """
    cells, scores, marked = tables.cells, buffers.scores, buffers.marked
    starts, distances, rows, centre_bias = cells.starts, cells.distances, cells.rows, cells.bias
    pool = np.empty(slots_in(chosen, starts, len(rows)), np.int64)
    waiting, last = 0, len(chosen) - 1
    for cell in range(len(chosen)):
        if chosen[cell]:
            first, step = starts[cell], steps[cell]
            stop = far_enough(first, starts[cell + 1], distances, near[cell], step, least)
            product = near[cell] - centre_bias[cell]
            may_suffice = far_enough(first, stop, distances, product, step, limits.dense)
            for slot in range(first, may_suffice):
                pool[waiting] = slot
                waiting += 1
            waiting = unread_marked(may_suffice, stop, marked, scores, pool, waiting)
        if waiting >= _TOGETHER or (cell == last and waiting):
            waiting = not_done(pool, waiting, scores, rows, deleted)
            size = estimate(pool[:waiting], tables, query, limits, buffers, heap, size)
            waiting = 0
    return size


@kernel(
    array("int64"),
    TABLES, QUERY, array("int32"), array("float32"), array("boolean"), LIMITS, READS,
    record(Buffers, output("float32"), output("uint8")),
)  # fmt: skip
def best_estimated(
    tables: Tables,
    query: CodedQuery,
    words: Int32,
    weights: Float32,
    deleted: Mask,
    limits: Limits,
    reads: Reads,
    buffers: Buffers,
) -> Int64:
    """Return at most `rescored` candidates with evidence, those with the best estimates, as slots in no order.

    The estimate of a document is û·v̂ + Σ impacts read + Σ of its signature's words + b. A document of a cell may reach
    u · centre + the mean b + spread · its distance from the centre, and the impacts read on top.

    Args:
        limits: Estimates of u·v and s·t decide about evidence.
        buffers: Zero before and afterwards.
    """
    cells, postings, asked = tables.cells, tables.postings, reads.asked
    scores, marked, features = buffers.scores, buffers.marked, limits.features
    read, bits, values = read_heads(tables, words, weights, reads, scores)
    # Of many slots that are estimated, a mark tells sooner than a search in the lists.
    mark_lists(postings.indptr, postings.slots, features, np.uint8(1), marked)
    best, found = np.empty(reads.rescored, np.float32), np.empty(reads.rescored, np.int64)
    heap, size, count = Heap(best, found, bits, values), 0, len(cells.scales)
    near, reach = np.empty(count, np.float32), np.empty(count, np.float32)
    steps = np.empty(count, np.float32)
    chosen, opened = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    pool, reaches, nearest = asked, near, np.float32(0)
    if len(asked) == 0:
        shift, scale = code_shift(query.code), np.float32(query.scale)
        for cell in range(count):
            product = code_product(query.code, shift, cells.centres, cell) * scale
            near[cell] = product * cells.scales[cell] + cells.bias[cell]
            steps[cell] = np.float32(reads.spread / DISTANCES) * cells.longest[cell]
            reach[cell] = near[cell] + steps[cell] * np.float32(DISTANCES)
        pool, reaches = likely_slots(near, steps, cells, read, scores, deleted, reads.sparse)
        nearest = about_kth_largest(near, max(reads.nprobe, 1))
    # The likely slots, the nearest cells, then the other slots that may reach the k-th best estimate so far.
    for turn in range(3):
        if turn == 1:
            if len(asked):
                break
            mark(pool, scores)
            for cell in range(len(near)):
                chosen[cell] = reads.nprobe > 0 and near[cell] >= nearest
            pool = slots_of_cells(chosen, cells, scores, deleted)
        elif turn == 2:
            least = kth_estimate(best, size, limits.wanted, limits.least)
            pool = slots_reaching(least, read, reaches, chosen, cells, scores, deleted)
        size = estimate(pool, tables, query, limits, buffers, heap, size)
    # Then the other cells that may: some near ones, because they raise that estimate, and all.
    if len(asked) == 0:
        mark(pool, scores)
        for nearest in (about_kth_largest(near, min(_NEXT, len(near))), np.float32(-np.inf)):
            least = kth_estimate(best, size, limits.wanted, limits.least)
            for cell in range(len(near)):
                opened[cell] = not chosen[cell] and near[cell] >= nearest and reach[cell] >= least
                chosen[cell] |= opened[cell]
            size = estimate_cells(
                opened, near, steps, least, deleted, tables, query, limits, buffers, heap, size
            )
    for i in range(len(read)):
        scores[read[i]] = 0
    mark_lists(postings.indptr, postings.slots, features, np.uint8(0), marked)
    return found[:size]
