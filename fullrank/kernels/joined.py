"""Neighbouring words of a text: known phrases, and words that are joined."""

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

# Find phrases, words joined by spaces, in a sequence of words.
#
#     slots  as of fullrank.kernels.words, for every beginning of a phrase of one word or more: its CRC-32 and the row
#            of a phrase that begins so, which is the phrase itself where the beginning is a whole one
#
# A phrase is followed word by word, until no phrase begins so.

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
    """Make the slots of phrases."""
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


# The neighbouring words of a query that, joined, may be a form of a known word. A key passes that some table has by its
# CRC-32 alone, so a few others pass too; `fullrank.text.forms` looks up what passes.

_E, _I, _S, _U, _X, _Z, _O, _H, _C, _Y = (np.uint8(ord(letter)) for letter in "eisuxzohcy")


@helper
def _has(slots: UInt64, crc: np.uint64) -> bool:
    mask = np.uint64(len(slots) - 1)
    place = crc & mask
    for _ in range(len(slots)):
        if slots[place] == EMPTY:
            return False
        if slots[place] >> _HALF == crc:
            return True
        place = (place + _ONE) & mask
    return False


@helper
def _is_word(key: UInt8, size: int) -> bool:
    for place in range(size):
        if not (97 <= key[place] <= 122 or 65 <= key[place] <= 90):
            return False
    return size >= 4


@helper
def _cut_e(key: UInt8, size: int) -> int:
    """Cut the end of a singular that other singulars share (cache, cach), in place; return the size of the key."""
    if size <= 3 or key[size - 1] != _E:
        return size
    before, two_before = key[size - 2], key[size - 3]
    if before == _I:
        key[size - 2] = _Y
        return size - 1
    is_che = before == _H and two_before == _C
    is_she = before == _H and two_before == _S
    if is_che or is_she or before in (_X, _S, _Z, _O):
        return size - 1
    return size


@helper
def _cut_plural(key: UInt8, size: int) -> int:
    """Make the singular of a regular key in place, as fullrank.text.folding.singular does; return its size."""
    if size < 4 or (key[size - 1] != _S and key[size - 1] != _E) or not _is_word(key, size):
        return size
    last, before = key[size - 1], key[size - 2]
    if last == _S and before != _S and before != _U and before != _I:
        size -= 1
    return _cut_e(key, size)


Slots = tuple[UInt64, UInt64, UInt64, UInt64]
"""The slots of known words, of their folded forms, of their singulars, and of irregular plurals."""


@helper
def _may_be_form(key: UInt8, size: int, tables: Slots) -> bool:
    words, folded, singulars, irregular = tables
    crc = end_crc(add_bytes(CRC_START, key, 0, size))
    if _has(words, crc) or _has(folded, crc) or _has(singulars, crc) or _has(irregular, crc):
        return True
    fewer = _cut_plural(key, size)
    if fewer == size:
        return False
    crc = end_crc(add_bytes(CRC_START, key, 0, fewer))
    return _has(words, crc) or _has(folded, crc) or _has(singulars, crc)


@helper
def _join(names: UInt8, bounds: Int64, first: int, last: int, key: UInt8) -> int:
    """Write the letters of words from `first` to before `last` into a key; return how many bytes they have."""
    size = 0
    for word in range(first, last):
        for place in range(bounds[word], bounds[word + 1] - 1):
            key[size] = names[place]
            size += 1
    return size


_NAMES = several(array("uint8"), array("int64"))


@kernel(output("int32", 2), _NAMES, _NAMES, several(*[array("uint64")] * 4), INT64, INT64)
def find_joined(
    folded: tuple[UInt8, Int64],
    spelled_out: tuple[UInt8, Int64],
    tables: Slots,
    most: int,
    is_simple: int,
) -> Int32:
    """Find neighbouring words that, joined, may be a form of a known word.

    Args:
        folded: The folded letters of the words of a query, a space behind each word, and where each begins.
        spelled_out: The same with umlauts spelled out.
        tables: What is known.
        most: Words that are joined at most.
        is_simple: 1 if `spelled_out` is `folded`.

    Returns:
        int32 (m, 2), the first word of each, and the one after its last; two words come before three.
    """
    plain, plain_bounds = folded
    spelled, spelled_bounds = spelled_out
    count = len(plain_bounds) - 1
    found, stop = np.empty((count * most, 2), np.int32), 0
    key = np.empty(max(len(plain), len(spelled)), np.uint8)
    for size in range(2, most + 1):
        for first in range(count - size + 1):
            letters = _join(plain, plain_bounds, first, first + size, key)
            # Where folding keeps no letter, the key is the words as they are.
            is_form = letters == 0
            if not is_form:
                is_form = _may_be_form(key, letters, tables)
            if not is_form and not is_simple:
                letters = _join(spelled, spelled_bounds, first, first + size, key)
                crc = end_crc(add_bytes(CRC_START, key, 0, letters))
                is_form = _has(tables[0], crc) or _has(tables[1], crc)
            if is_form:
                found[stop, 0] = first
                found[stop, 1] = first + size
                stop += 1
    return found[:stop].copy()
