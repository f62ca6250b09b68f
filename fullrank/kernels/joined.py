"""Which neighbouring words of a query, joined, may be a form of a known word.

A key that some table has by its CRC-32 alone passes, so a few others pass too; `fullrank.text.forms` looks up what
passes.
"""

from __future__ import annotations

import numpy as np

from fullrank.kernels.arrays import Int32, Int64, UInt8, UInt64
from fullrank.kernels.compiler import INT64, array, helper, kernel, output
from fullrank.kernels.words import CRC_START, EMPTY, add_bytes, end_crc

_HALF, _ONE = np.uint64(32), np.uint64(1)
_E, _I, _S, _U, _X, _Z, _O, _H, _C, _Y = (np.uint8(ord(letter)) for letter in "eisuxzohcy")


@helper
def _has(slots: UInt64, crc: np.uint64) -> bool:
    """Return whether a table has a string with a CRC-32."""
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
def _cut_plural(key: UInt8, size: int) -> int:
    """Make the singular of a regular key in place, as fullrank.text.folding.singular does; return its size."""
    if size < 4 or (key[size - 1] != _S and key[size - 1] != _E):
        return size
    for place in range(size):
        if not (97 <= key[place] <= 122 or 65 <= key[place] <= 90):
            return size
    last, before = key[size - 1], key[size - 2]
    if last == _S and before != _S and before != _U and before != _I:
        size -= 1
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
def _may_be_form(
    key: UInt8, size: int, words: UInt64, folded: UInt64, singulars: UInt64, irregular: UInt64
) -> bool:
    """Return whether a key, or its singular, is among the words or the keys of their forms."""
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


@kernel(
    output("int32", 2),
    array("uint8"), array("int64"), array("uint8"), array("int64"), array("uint64"),
    array("uint64"), array("uint64"), array("uint64"), INT64, INT64,
)  # fmt: skip
def find_joined(
    plain: UInt8,
    plain_bounds: Int64,
    spelled: UInt8,
    spelled_bounds: Int64,
    words: UInt64,
    folded: UInt64,
    singulars: UInt64,
    irregular: UInt64,
    most: int,
    is_simple: int,
) -> Int32:
    """Find neighbouring words that, joined, may be a form of a known word.

    Args:
        plain, plain_bounds: The folded letters of the words of a query, a space behind each word.
        spelled, spelled_bounds: The same with umlauts spelled out.
        words: The slots of the known words.
        folded: The slots of the keys of their folded forms.
        singulars: The slots of their keys in the singular.
        irregular: The slots of irregular plurals.
        most: Words that are joined at most.
        is_simple: 1 if `spelled` is `plain`.

    Returns:
        int32 (m, 2), the first word of each, and the one after its last; two words come before three.
    """
    count = len(plain_bounds) - 1
    found, stop = np.empty((count * most, 2), np.int32), 0
    key = np.empty(max(len(plain), len(spelled)), np.uint8)
    for size in range(2, most + 1):
        for first in range(count - size + 1):
            letters = _join(plain, plain_bounds, first, first + size, key)
            # Where folding keeps no letter, the key is the words as they are.
            is_form = letters == 0
            if not is_form:
                is_form = _may_be_form(key, letters, words, folded, singulars, irregular)
            if not is_form and not is_simple:
                letters = _join(spelled, spelled_bounds, first, first + size, key)
                crc = end_crc(add_bytes(CRC_START, key, 0, letters))
                is_form = _has(words, crc) or _has(folded, crc)
            if is_form:
                found[stop, 0] = first
                found[stop, 1] = first + size
                stop += 1
    return found[:stop].copy()
