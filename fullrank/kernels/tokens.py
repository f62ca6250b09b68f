"""Split texts into tokens and count them; `fullrank.text.sequences` makes words of tokens."""

from __future__ import annotations

import numpy as np
from numba import types

from fullrank.kernels.arrays import Float32, Int32, Int64, UInt8, UInt64
from fullrank.kernels.compiler import INT64, array, helper, kernel, output, several

SPACE = 32
# What a byte of a text may be, for `keep_joined`; a byte of a character beyond ASCII may be either.
BETWEEN, LETTER, JOIN, EITHER = 0, 1, 2, 3
_FIRST_SLOTS = 1 << 12
# FNV-1a of 64 bits.
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


@helper
def _find_tokens(blob: UInt8, ends: Int64, table: UInt8) -> tuple[Int64, Int64, Int64, UInt64]:
    """Map the bytes and find the tokens; return indptr, and of each token where it starts, its size and its hash."""
    most = len(blob) // 2 + len(ends) + 1
    indptr = np.zeros(len(ends) + 1, np.int64)
    starts, sizes, hashes = (
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.uint64),
    )
    count, place = np.uint64(0), np.uint64(0)
    for text in range(len(ends)):
        end = np.uint64(ends[text])
        hashed, start = _OFFSET, place
        while place < end:
            byte = table[np.uint64(blob[place])]
            blob[place] = byte
            if byte != SPACE:
                hashed = (hashed ^ np.uint64(byte)) * _PRIME
            else:
                if start < place:
                    starts[count] = start
                    sizes[count] = place - start
                    hashes[count] = hashed ^ (hashed >> np.uint64(29))
                    count += np.uint64(1)
                hashed, start = _OFFSET, place + np.uint64(1)
            place += np.uint64(1)
        indptr[text + 1] = count
    return indptr, starts[:count], sizes[:count], hashes[:count]


@helper
def _is_equal(blob: UInt8, start: int, other: int, size: int) -> bool:
    same = 0
    while same < size and blob[np.uint64(start + same)] == blob[np.uint64(other + same)]:
        same += 1
    return same == size


@helper
def _grown(hashes: UInt64, firsts: Int64, count: int, size: int) -> Int32:
    """Make a table of `size` slots, a power of two, with the first `count` different tokens."""
    slots, mask = np.full(size, -1, np.int32), np.uint64(size - 1)
    for number in range(count):
        slot = hashes[firsts[number]] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = number
    return slots


@kernel(types.void, output("uint8"), array("uint8"))
def keep_joined(blob: UInt8, kinds: UInt8) -> None:
    """Replace by spaces, in place, what is between tokens, and the tokens that join no letter to another.

    Args:
        blob: uint8, texts in UTF-8.
        kinds: uint8 (256,), what each byte may be: BETWEEN, LETTER, JOIN or EITHER. A token is a maximal run of bytes
            that are not BETWEEN.
    """
    place = 0
    while place < len(blob):
        start, is_joined = place, False
        first = second = np.uint8(BETWEEN)
        while place < len(blob) and kinds[blob[place]] != BETWEEN:
            third = kinds[blob[place]]
            is_joined |= (first & LETTER) != 0 and (second & JOIN) != 0 and (third & LETTER) != 0
            first, second = second, third
            place += 1
        if not is_joined:
            blob[start:place] = SPACE
        if place < len(blob):
            blob[place] = SPACE
        place += 1


@helper
def _is_after(blob: UInt8, starts: Int64, sizes: Int64, one: int, other: int) -> bool:
    i, size = 0, min(sizes[one], sizes[other])
    while i < size and blob[starts[one] + i] == blob[starts[other] + i]:
        i += 1
    is_after: bool = (
        sizes[one] > size if i == size else blob[starts[one] + i] > blob[starts[other] + i]
    )
    return is_after


@helper
def _ascending(blob: UInt8, starts: Int64, sizes: Int64) -> Int64:
    """Return the numbers of tokens, in the order of their bytes; a merge sort, as people choose the words."""
    count = len(starts)
    order, merged = np.arange(count), np.empty(count, np.int64)
    run = 1
    while run < count:
        for first in range(0, count, 2 * run):
            middle, last = min(first + run, count), min(first + 2 * run, count)
            left, right = first, middle
            for place in range(first, last):
                is_right = left == middle
                if right < last and not is_right:
                    is_right = _is_after(blob, starts, sizes, order[left], order[right])
                if is_right:
                    merged[place] = order[right]
                    right += 1
                else:
                    merged[place] = order[left]
                    left += 1
        order, merged = merged, order
        run *= 2
    return order


@helper
def _copy(blob: UInt8, start: int, size: int, out: UInt8, place: int) -> int:
    for i in range(size):
        out[place + i] = blob[start + i]
    return place + size


@kernel(
    several(output("uint8"), output("int64"), output("float32"), output("uint8"), output("int64")),
    output("uint8"), array("uint8"),
)  # fmt: skip
def read_words(blob: UInt8, table: UInt8) -> tuple[UInt8, Int64, Float32, UInt8, Int64]:
    """Split one text into words, and count them.

    Args:
        blob: uint8, the text, and a space behind it; changed in place.
        table: uint8 (256,), what replaces each byte.

    Returns:
        The different words, ascending, and where each begins; their counts; all words in order, a space behind each,
        and where each begins.
    """
    _, starts, sizes, _ = _find_tokens(blob, np.array([len(blob)]), table)
    count = len(starts)
    sequence, places, place = np.full(len(blob), SPACE, np.uint8), np.zeros(count + 1, np.int64), 0
    for i in range(count):
        place = _copy(blob, starts[i], sizes[i], sequence, place) + 1
        places[i + 1] = place
    names, bounds = np.empty(place - count, np.uint8), np.zeros(count + 1, np.int64)
    counts, size = np.zeros(count, np.float32), 0
    order = _ascending(blob, starts, sizes)
    for i in range(count):
        if i == 0 or _is_after(blob, starts, sizes, order[i], order[i - 1]):
            size += 1
            bounds[size] = _copy(blob, starts[order[i]], sizes[order[i]], names, bounds[size - 1])
        counts[size - 1] += 1
    return names[: bounds[size]], bounds[: size + 1], counts[:size], sequence[:place], places


@kernel(
    several(output("int64"), output("int32"), output("uint8")),
    output("uint8"), array("int64"), array("uint8"),
)  # fmt: skip
def split_tokens(blob: UInt8, ends: Int64, table: UInt8) -> tuple[Int64, Int32, UInt8]:
    """Split texts into tokens, maximal runs of bytes that `table` does not map to a space.

    Args:
        ends: int64 (B,), where each text ends; its last byte is a space.
        table: uint8 (256,), what replaces each byte.

    Returns:
        indptr, int64 (B + 1,): the tokens of text i are those from indptr[i] to indptr[i + 1].
        int32 (tokens,): the number of each token; different ones are numbered in the order of their first use.
        uint8: the different tokens in that order, a space behind each.
    """
    indptr, starts, sizes, hashes = _find_tokens(blob, ends, table)
    numbers, firsts = np.empty(len(starts), np.int32), np.empty(len(starts), np.int64)
    distinct = length = done = 0
    size = _FIRST_SLOTS
    while done < len(starts):
        slots, mask = _grown(hashes, firsts, distinct, size), np.uint64(size - 1)
        while done < len(starts) and 2 * distinct < size:
            slot = hashes[done] & mask
            number = slots[slot]
            while number >= 0:
                first = firsts[number]
                if (
                    hashes[first] == hashes[done]
                    and sizes[first] == sizes[done]
                    and _is_equal(blob, starts[first], starts[done], sizes[done])
                ):
                    break
                slot = (slot + np.uint64(1)) & mask
                number = slots[slot]
            if number < 0:
                number = np.int32(distinct)
                slots[slot] = number
                firsts[distinct] = done
                distinct += 1
                length += sizes[done] + 1
            numbers[done] = number
            done += 1
        size *= 2
    names, place = np.full(length, SPACE, np.uint8), 0
    for number in range(distinct):
        start = starts[firsts[number]]
        for i in range(sizes[firsts[number]]):
            names[place] = blob[start + i]
            place += 1
        place += 1
    return indptr, numbers, names


@kernel(
    several(output("int64"), output("int32")),
    array("int64"), array("int32"), array("int64"), array("int32"),
)  # fmt: skip
def replace_tokens(
    indptr: Int64, numbers: Int32, word_indptr: Int64, words: Int32
) -> tuple[Int64, Int32]:
    """Replace each token of texts by its words, none or several."""
    total = 0
    for p in range(len(numbers)):
        total += word_indptr[numbers[p] + 1] - word_indptr[numbers[p]]
    ends, found = np.zeros(len(indptr), np.int64), np.empty(total, np.int32)
    stop = 0
    for text in range(len(indptr) - 1):
        for p in range(indptr[text], indptr[text + 1]):
            for q in range(word_indptr[numbers[p]], word_indptr[numbers[p] + 1]):
                found[stop] = words[q]
                stop += 1
        ends[text + 1] = stop
    return ends, found


@kernel(
    several(output("int64"), output("int32"), output("int32")),
    array("int64"), array("int32"), INT64,
)  # fmt: skip
def count_numbers(indptr: Int64, numbers: Int32, width: int) -> tuple[Int64, Int32, Int32]:
    """Count the different numbers of each text.

    Returns:
        sizes, int64 (B,): how many different numbers each text has; the numbers of each text in the order of their
        first use, and the count of each, int32 (entries,).
    """
    tally = np.zeros(width, np.int32)
    sizes = np.zeros(len(indptr) - 1, np.int64)
    found, counts = np.empty(len(numbers), np.int32), np.empty(len(numbers), np.int32)
    stop = 0
    for text in range(len(sizes)):
        first = stop
        for p in range(indptr[text], indptr[text + 1]):
            number = numbers[p]
            if tally[number] == 0:
                found[stop] = number
                stop += 1
            tally[number] += 1
        for p in range(first, stop):
            counts[p] = tally[found[p]]
            tally[found[p]] = 0
        sizes[text] = stop - first
    return sizes, found[:stop].copy(), counts[:stop].copy()
