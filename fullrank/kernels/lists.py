"""Make posting lists of sparse rows."""

from __future__ import annotations

import numpy as np
from numba import types

from fullrank.kernels.arrays import Float32, Int32, Int64, UInt8
from fullrank.kernels.compiler import INT64, array, check_inside, kernel, output, several
from fullrank.kernels.prefetch import prefetch
from fullrank.kernels.scan import LEVELS


@kernel(
    types.void,
    array("int32"), array("float32"), output("int64"), output("float32", 2),
)  # fmt: skip
def count_entries(indices: Int32, values: Float32, counts: Int64, limits: Float32) -> None:
    """Count the entries of each word, and find its least and largest weight.

    Args:
        indices, values: Words and weights, int32 and float32 (entries,).
        counts: int64 (F,), added to.
        limits: float32 (F, 2), of the entries counted before; updated.
    """
    for p in range(len(indices)):
        word, value = indices[p], values[p]
        check_inside(word, len(counts))
        if counts[word] == 0:
            limits[word, 0] = limits[word, 1] = value
        limits[word, 0] = min(limits[word, 0], value)
        limits[word, 1] = max(limits[word, 1], value)
        counts[word] += 1


@kernel(
    types.void,
    array("int64"), array("int32"), array("float32"), array("int32"), INT64, INT64,
    array("float32", 2), output("int64"), output("int32"), output("uint8"),
)  # fmt: skip
def fill_lists(
    indptr: Int64,
    indices: Int32,
    values: Float32,
    order: Int32,
    start: int,
    stop: int,
    limits: Float32,
    following: Int64,
    slots: Int32,
    impacts: UInt8,
) -> None:
    """Append the documents of slots start..stop to the lists of their words.

    Args:
        indptr, indices, values: Words and weights of the documents, as in Rows.
        order: int32 (n,), the document of each slot.
        start, stop: Slots.
        limits: float32 (F, 2), the least and the largest weight of a word.
        following: int64 (F,), where the next entry of each word goes; updated.
        slots, impacts: int32 and uint8 (entries,), written.
    """
    for slot in range(start, stop):
        row = order[slot]
        for p in range(indptr[row], indptr[row + 1]):
            word = indices[p]
            low = np.float64(limits[word, 0])
            step = (np.float64(limits[word, 1]) - low) / LEVELS
            level = 0.0
            if step > 0:
                level = min(max(np.rint((np.float64(values[p]) - low) / step), 0.0), 255.0)
            to = following[word]
            slots[to] = slot
            impacts[to] = np.uint8(level)
            following[word] = to + 1


@kernel(
    several(array("int32"), array("float32")), array("int64"), array("int32"), array("float32")
)  # fmt: skip
def with_entries(indptr: Int64, words: Int32, weights: Float32) -> tuple[Int32, Float32]:
    """Return the words whose list has an entry, and their weights.

    Args:
        indptr: Of the lists, int64 (F + 1,).
        words, weights: int32 and float32 (m,).
    """
    for i in range(len(words)):
        prefetch(indptr, words[i])
    found, own = np.empty(len(words), np.int32), np.empty(len(words), np.float32)
    size = 0
    for i in range(len(words)):
        found[size], own[size] = words[i], weights[i]
        size += indptr[words[i]] < indptr[words[i] + 1]
    return found[:size], own[:size]
