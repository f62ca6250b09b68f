"""Count the documents that have the evidence that a query asks for."""

from __future__ import annotations

import numpy as np

from fullrank.kernels.arrays import Float32, Int8, Int32, Int64, Mask
from fullrank.kernels.compiler import helper
from fullrank.kernels.products import code_product

# The compiler compares so many slots at once.
_LANES = 32


@helper
def count_block(
    marks: Mask,
    sums: Float32,
    bounds: Float32,
    lexical_far: np.float32,
    lexical_near: np.float32,
    bound: np.float32,
    near: np.float32,
    far: np.float32,
    code: Int8,
    shift: np.int32,
    scale: np.float32,
    codes: Int8,
    scales: Float32,
    rows: Int32,
    deleted: Mask,
    start: int,
    end: int,
    open_ones: Int64,
    n_open: int,
) -> tuple[int, int]:
    """Count the slots of a block that have evidence for certain, and list the others that may have it.

    Args:
        marks, sums, bounds: Of the slots from `start` on: whether a slot is in the list of a feature, what the words
            add to it, and its bound on u·v; (BLOCK,), overwritten behind `end`.
        lexical_far, lexical_near: The sums from which a slot has evidence for certain, and from which it may have it.
        bound: The bound from which it may have it.
        near, far: The û·v̂ from which it may have it, and from which it has it for certain.
        start, end: The slots of the block.
        open_ones, n_open: The slots that may have evidence, int64, and how many are listed.

    The other arguments are those of ``scan_slots``.

    Returns:
        How many slots of the block have evidence for certain, and the new `n_open`.
    """
    n_certain, size = 0, end - start
    # Nothing behind the last slot reaches anything, so the compiler knows the length of each step.
    marks[size:], sums[size:], bounds[size:] = False, np.nan, np.nan
    for begin in range(0, size, _LANES):
        # Counts of 32 bits are quicker than those of 64.
        n_sure, n_possible = np.int32(0), np.int32(0)
        for lane in range(_LANES):
            place = np.uint64(begin + lane)
            is_sure = marks[place] | (sums[place] >= lexical_far)
            is_open = (bounds[place] >= bound) | (sums[place] >= lexical_near)
            n_sure = np.int32(n_sure + is_sure)
            n_possible = np.int32(n_possible + (is_open | is_sure))
        if n_possible == 0:
            continue
        if not len(deleted):
            n_certain += int(n_sure)
            if n_possible == n_sure:
                continue
        for j in range(begin, min(begin + _LANES, size)):
            slot = start + j
            is_sure, product = marks[j] or sums[j] >= lexical_far, np.float32(-np.inf)
            if not (is_sure or bounds[j] >= bound or sums[j] >= lexical_near):
                continue
            if len(deleted) and deleted[rows[slot]]:
                continue
            if is_sure:
                n_certain += len(deleted) > 0  # else it is counted above
                continue
            if bounds[j] >= bound:
                product = code_product(code, shift, codes, slot) * scale * scales[slot]
            if product >= far:
                n_certain += 1
            elif sums[j] >= lexical_near or product >= near:
                open_ones[n_open] = slot
                n_open += 1
    return n_certain, n_open
