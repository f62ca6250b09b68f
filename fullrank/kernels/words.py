"""Find strings by their UTF-8 bytes in a hash table with open addressing.

    slots  uint64 (a power of two,)   crc32 · 2³² + row of a string, or EMPTY
    a string begins its search at slot crc32 mod slots and goes on to the next slot until it is found or a slot is EMPTY

At most half of the slots are full. The strings themselves are a StringTable: their bytes, and where each begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fullrank.kernels.arrays import Int32, Int64, UInt8, UInt64
from fullrank.kernels.compiler import INT64, array, check_inside, helper, kernel, output, several

EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
CRC_START = np.uint64(0xFFFFFFFF)
_LOW, _HALF, _ONE, _EIGHT = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1), np.uint64(8)
_BYTE = np.uint64(0xFF)


def _crc_table() -> UInt64:
    """Return the CRC-32 of zlib of each byte."""
    table = np.arange(256, dtype=np.uint64)
    for _ in range(8):
        table = np.where(table & _ONE, np.uint64(0xEDB88320) ^ (table >> _ONE), table >> _ONE)
    return table


_CRC = _crc_table()


@helper
def add_bytes(crc: np.uint64, names: UInt8, start: int, stop: int) -> np.uint64:
    """Continue a CRC-32, which begins as CRC_START and whose bits are flipped at the end, with more bytes."""
    for place in range(start, stop):
        byte = np.uint64(names[place])
        crc = (crc >> _EIGHT) ^ _CRC[(crc ^ byte) & _BYTE]
    return crc


@helper
def end_crc(crc: np.uint64) -> np.uint64:
    """Return the CRC-32 of the bytes so far."""
    return crc ^ _LOW


@helper
def row_of(slot: np.uint64) -> Any:
    """Return the row in a slot."""
    return np.int64(slot & _LOW)


@helper
def slot_row(slot: np.uint64, crc: np.uint64, offsets: Int64, blob: UInt8) -> int:
    """Return the row in a slot; -1 if the CRC-32 of its string is another one.

    Raises:
        IndexError: The slot or the row does not fit the strings.
    """
    if slot >> _HALF != crc:
        return -1
    row: int = row_of(slot)
    check_inside(row, len(offsets) - 1)
    check_inside(offsets[row], len(blob) + 1)
    check_inside(offsets[row + 1], len(blob) + 1)
    return row


@helper
def has_bytes(blob: UInt8, first: int, names: UInt8, start: int, stop: int) -> bool:
    """Return whether the bytes from `first` on are those of a name."""
    same = 0
    while same < stop - start and blob[first + same] == names[start + same]:
        same += 1
    return same == stop - start


@helper
def find(
    blob: UInt8, offsets: Int64, slots: UInt64, crc: np.uint64, names: UInt8, start: int, stop: int
) -> int:
    """Return the row of a name with a CRC-32; -1 if the table does not have it."""
    mask = np.uint64(len(slots) - 1)
    place = crc & mask
    for _ in range(len(slots)):
        slot = slots[place]
        if slot == EMPTY:
            return -1
        row = slot_row(slot, crc, offsets, blob)
        is_as_long = row >= 0 and offsets[row + 1] - offsets[row] == stop - start
        if is_as_long and has_bytes(blob, offsets[row], names, start, stop):
            return row
        place = (place + _ONE) & mask
    return -1


@helper
def put(slots: UInt64, crc: np.uint64, row: int) -> None:
    """Put a row into the first empty slot for a CRC-32."""
    mask = np.uint64(len(slots) - 1)
    place = crc & mask
    while slots[place] != EMPTY:
        place = (place + _ONE) & mask
    slots[place] = (crc << _HALF) | np.uint64(row)


@helper
def empty_slots(count: int) -> UInt64:
    """Return slots for `count` strings."""
    size = 1
    while size < 2 * count:
        size *= 2
    return np.full(size, EMPTY, np.uint64)


@kernel(output("uint64"), array("uint8"), array("int64"))
def hash_strings(blob: UInt8, offsets: Int64) -> UInt64:
    """Make the slots of strings; of equal strings the first is found.

    Args:
        blob, offsets: The strings.
    """
    slots = empty_slots(len(offsets) - 1)
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        crc = end_crc(add_bytes(CRC_START, blob, start, stop))
        if find(blob, offsets, slots, crc, blob, start, stop) < 0:
            put(slots, crc, row)
    return slots


@kernel(
    output("int32"),
    array("uint8"), array("int64"), array("uint64"), array("uint8"), array("int64"),
)  # fmt: skip
def find_strings(blob: UInt8, offsets: Int64, slots: UInt64, names: UInt8, bounds: Int64) -> Int32:
    """Find names in a table.

    Args:
        blob, offsets, slots: The table.
        names: The bytes of the names, one after another.
        bounds: int64 (B + 1,), where each name begins.

    Returns:
        int32 (B,), the row of each name; -1 where the table does not have it.
    """
    rows = np.empty(len(bounds) - 1, np.int32)
    for i in range(len(rows)):
        start, stop = bounds[i], bounds[i + 1]
        crc = end_crc(add_bytes(CRC_START, names, start, stop))
        rows[i] = find(blob, offsets, slots, crc, names, start, stop)
    return rows


@kernel(INT64, array("uint8"), array("int64"), array("uint64"), array("uint8"))
def find_string(blob: UInt8, offsets: Int64, slots: UInt64, name: UInt8) -> int:
    """Return the row of a name, -1 where the table does not have it; arguments as for ``find_strings``."""
    crc = end_crc(add_bytes(CRC_START, name, 0, len(name)))
    return find(blob, offsets, slots, crc, name, 0, len(name))


@helper
def compare_beginning(blob: UInt8, offsets: Int64, row: int, name: UInt8) -> int:
    """Compare the beginning of a string with a name: −1 if it is before it, 0 if equal, else 1."""
    start, stop = offsets[row], offsets[row + 1]
    check_inside(start, len(blob) + 1)
    check_inside(stop, len(blob) + 1)
    for place in range(len(name)):
        if start + place >= stop:
            return -1
        own, other = blob[start + place], name[place]
        if own != other:
            return -1 if own < other else 1
    return 0


@helper
def first_from(blob: UInt8, offsets: Int64, name: UInt8, least: int, first: int) -> int:
    """Return the first of ascending strings, from `first` on, whose comparison with a name is `least` or more."""
    last = len(offsets) - 1
    while first < last:
        middle = (first + last) // 2
        if compare_beginning(blob, offsets, middle, name) < least:
            first = middle + 1
        else:
            last = middle
    return first


@kernel(several(INT64, INT64), array("uint8"), array("int64"), array("uint8"))
def find_beginning(blob: UInt8, offsets: Int64, name: UInt8) -> tuple[int, int]:
    """Find the strings that begin with a name, among ascending ones; bytes of UTF-8 have the order of the characters.

    Args:
        blob, offsets: The strings.
        name: Its bytes.

    Returns:
        The row of the first of them, and the one after the last.
    """
    first = first_from(blob, offsets, name, 0, 0)
    return first, first_from(blob, offsets, name, 1, first)


@kernel(output("int32"), array("uint8"), array("int64"), array("uint8"), array("int64"))
def find_ascending(blob: UInt8, offsets: Int64, names: UInt8, bounds: Int64) -> Int32:
    """Find names as ``find_strings`` does, but among ascending strings and without a hash table.

    People choose ids, and can choose thousands of them with one CRC-32.
    """
    rows = np.full(len(bounds) - 1, -1, np.int32)
    for i in range(len(rows)):
        name = names[bounds[i] : bounds[i + 1]]
        row = first_from(blob, offsets, name, 0, 0)
        if row < len(offsets) - 1 and offsets[row + 1] - offsets[row] == len(name):
            rows[i] = row if compare_beginning(blob, offsets, row, name) == 0 else -1
    return rows
