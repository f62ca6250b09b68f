"""Slots to estimate: those read that are likely, those of chosen cells, and those that may reach a score."""

from __future__ import annotations

import numpy as np

from fullrank.kernels.arrays import Float32, Int32, Int64, Mask, UInt8, UInt16
from fullrank.kernels.compiler import check_inside, helper
from fullrank.kernels.prefetch import prefetch
from fullrank.kernels.scan import keep_from
from fullrank.kernels.select import about_kth_largest

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
