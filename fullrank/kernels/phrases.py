"""Find phrases, words joined by spaces, in a sequence of words.

    slots  as of fullrank.kernels.words, for every beginning of a phrase of one word or more: its CRC-32 and the row of
           a phrase that begins so, which is the phrase itself where the beginning is a whole one

A phrase is followed word by word, until no phrase begins so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fullrank.kernels.arrays import Int32, Int64, UInt8, UInt64
from fullrank.kernels.compiler import INT64, array, helper, kernel, output, several
from fullrank.kernels.rows import Arrays, sort_row
from fullrank.kernels.words import (
    CRC_START,
    EMPTY,
    add_bytes,
    empty_slots,
    end_crc,
    has_bytes,
    put,
    row_of,
    slot_row,
)

_SPACE = 32
_HALF, _ONE = np.uint64(32), np.uint64(1)


@helper
def _begins(blob: UInt8, offsets: Int64, row: int, names: UInt8, start: int, stop: int) -> bool:
    """Return whether the words of a phrase begin with some words."""
    first, size = offsets[row], offsets[row + 1] - offsets[row]
    if size < stop - start or (size > stop - start and blob[first + stop - start] != _SPACE):
        return False
    return has_bytes(blob, first, names, start, stop)


@helper
def _slot_of(
    blob: UInt8, offsets: Int64, slots: UInt64, crc: np.uint64, names: UInt8, start: int, stop: int
) -> Any:
    """Return the slot of a beginning with a CRC-32; -1 if no phrase begins so."""
    mask = np.uint64(len(slots) - 1)
    place = crc & mask
    for _ in range(len(slots)):
        if slots[place] == EMPTY:
            return -1
        row = slot_row(slots[place], crc, offsets, blob)
        if row >= 0 and _begins(blob, offsets, row, names, start, stop):
            return np.int64(place)
        place = (place + _ONE) & mask
    return -1


@kernel(output("uint64"), array("uint8"), array("int64"))
def hash_beginnings(blob: UInt8, offsets: Int64) -> UInt64:
    """Make the slots of phrases.

    Args:
        blob, offsets: The phrases, distinct; words are joined by single spaces.
    """
    most, count = len(offsets) - 1, 0
    for byte in blob:
        if byte == _SPACE:
            most += 1
    slots = empty_slots(most)
    for row in range(len(offsets) - 1):
        whole = end_crc(add_bytes(CRC_START, blob, offsets[row], offsets[row + 1]))
        put(slots, whole, row)
        count += 1
    for row in range(len(offsets) - 1):
        start, crc = offsets[row], CRC_START
        for stop in range(start, offsets[row + 1]):
            if blob[stop] == _SPACE:
                ended = end_crc(crc)
                if _slot_of(blob, offsets, slots, ended, blob, start, stop) < 0:
                    put(slots, ended, row)
                    count += 1
            crc = add_bytes(crc, blob, stop, stop + 1)
    fewer = empty_slots(count)
    if len(fewer) == len(slots):
        return slots
    for slot in slots:
        if slot != EMPTY:
            put(fewer, slot >> _HALF, row_of(slot))
    return fewer


@kernel(
    several(output("int64"), output("int32"), output("float32")),
    array("uint8"), array("int64"), array("uint64"), array("uint8"), array("int64"), INT64,
)  # fmt: skip
def count_phrases(
    blob: UInt8, offsets: Int64, slots: UInt64, names: UInt8, bounds: Int64, first_column: int
) -> Arrays:
    """Count the phrases in a sequence of words, overlapping ones too.

    Args:
        blob, offsets, slots: The phrases.
        names: The bytes of the words, a space behind each.
        bounds: int64 (words + 1,), where each word begins.
        first_column: Of the phrases.

    Returns:
        One sparse row: the column of each phrase that was found, and its count.
    """
    found, count = np.empty(16, np.int32), 0
    for first in range(len(bounds) - 1):
        start, crc = bounds[first], CRC_START
        for last in range(first, len(bounds) - 1):
            stop = bounds[last + 1] - 1
            crc = add_bytes(crc, names, max(bounds[last] - 1, start), stop)
            place = _slot_of(blob, offsets, slots, end_crc(crc), names, start, stop)
            if place < 0:
                break
            row = row_of(slots[place])
            if offsets[row + 1] - offsets[row] == stop - start:
                if count == len(found):
                    more = np.empty(2 * count, np.int32)
                    more[:count] = found
                    found = more
                found[count] = first_column + row
                count += 1
    columns, counts = found[:count], np.ones(count, np.float32)
    stop = sort_row(columns, counts, 0, count)
    return np.array([0, stop]), columns[:stop], counts[:stop]


@kernel(
    output("int32"),
    array("uint8"), array("int64"), array("uint64"), array("uint8"), array("int64"),
)  # fmt: skip
def find_whole(blob: UInt8, offsets: Int64, slots: UInt64, names: UInt8, bounds: Int64) -> Int32:
    """Return the row of the phrase that each name is, int32 (B,), -1 for none; arguments as of words.find_strings."""
    rows = np.full(len(bounds) - 1, -1, np.int32)
    for i in range(len(rows)):
        start, stop = bounds[i], bounds[i + 1]
        crc = end_crc(add_bytes(CRC_START, names, start, stop))
        place = _slot_of(blob, offsets, slots, crc, names, start, stop)
        if place >= 0:
            row = row_of(slots[place])
            if offsets[row + 1] - offsets[row] == stop - start:
                rows[i] = row
    return rows
