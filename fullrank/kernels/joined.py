"""Neighbouring words of a text: known phrases, and words that are joined."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fullrank.kernels.arrays import Float32, Float64, Int32, Int64, UInt8, UInt64
from fullrank.kernels.compiler import FLOAT64, INT64, array, helper, kernel, output, several
from fullrank.kernels.index import record
from fullrank.kernels.rows import Arrays, sort_row
from fullrank.kernels.words import (
    CRC_START,
    EMPTY,
    add_bytes,
    empty_slots,
    end_crc,
    find_string,
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


# The forms of neighbouring words, joined, of an ASCII query whose words are all known; fullrank.text.forms says what
# forms are, and finds those of other queries.

_FEWEST_LETTERS = 16
"""At least as many as an irregular plural or its singular has."""
_MOST_FORMS = 256
"""Forms of one run of words that are compared."""
_MAX_FORMS = 8
"""The strongest forms of what neighbouring words make together."""


class KeyedWords(NamedTuple):
    """Keys, a lexicon, and the rows of the words of each: those of key k are rows[starts[k]:starts[k + 1]]."""

    blob: UInt8
    offsets: Int64
    slots: UInt64
    starts: Int64
    rows: Int32


class FormKeys(NamedTuple):
    """What forms of joined words are found by.

    Attributes:
        single: The folded keys that words have besides themselves.
        numbers: The keys of words in the singular.
        irregular: Irregular plurals; the row of each is that of its singular in `stems`.
        stems, stem_offsets: Singulars.
        strength: float32 (W,), of each known word.
        folded, plurals: Discounts, 0 for no such forms.
        longest: Words of the longest query whose neighbours are joined.
        parts: Words that are joined at most.
    """

    single: KeyedWords
    numbers: KeyedWords
    irregular: KeyedWords
    stems: UInt8
    stem_offsets: Int64
    strength: Float32
    folded: float
    plurals: float
    longest: int
    parts: int


_KEYED = record(
    KeyedWords,
    array("uint8"), array("int64"), array("uint64"), array("int64"), array("int32"),
)  # fmt: skip
FORM_KEYS = record(
    FormKeys,
    _KEYED, _KEYED, _KEYED, array("uint8"), array("int64"), array("float32"), FLOAT64, FLOAT64, INT64,
    INT64,
)  # fmt: skip
Strings = tuple[UInt8, Int64, UInt64]
"""The bytes of a lexicon, where each string begins, and its slots."""


@helper
def _add_form(row: int, discount: float, rows: Int32, discounts: Float64, found: int) -> int:
    if found == len(rows):
        return found
    for place in range(found):
        if rows[place] == row:
            return found
    rows[found], discounts[found] = row, discount
    return found + 1


@helper
def _add_words(
    key: UInt8, keyed: KeyedWords, discount: float, rows: Int32, discounts: Float64, found: int
) -> int:
    """Add the words of a key to those found."""
    k = find_string(keyed.blob, keyed.offsets, keyed.slots, key)
    if k >= 0:
        for place in range(keyed.starts[k], keyed.starts[k + 1]):
            found = _add_form(keyed.rows[place], discount, rows, discounts, found)
    return found


@kernel(INT64, output("uint8"), INT64, FORM_KEYS)
def make_singular(key: UInt8, size: int, forms: FormKeys) -> int:
    """Make the singular of a key in place, as fullrank.text.folding.singular does; return its size."""
    irregular = forms.irregular
    row = find_string(irregular.blob, irregular.offsets, irregular.slots, key[:size])
    if row < 0:
        return _cut_plural(key, size)
    first, last = forms.stem_offsets[row], forms.stem_offsets[row + 1]
    for place in range(first, last):
        key[place - first] = forms.stems[place]
    return _cut_e(key, last - first)


@kernel(
    INT64,
    output("uint8"), INT64, several(array("uint8"), array("int64"), array("uint64")), FORM_KEYS,
    output("int32"), output("float64"),
)  # fmt: skip
def find_forms(
    key: UInt8, size: int, words: Strings, forms: FormKeys, rows: Int32, discounts: Float64
) -> int:
    """Find the words that joined words are a spelling or a plural of.

    Args:
        key: uint8, their letters, with room for an irregular plural; changed.
        rows, discounts: Written: the words, in no order, and the discount of each.

    Returns:
        The number of words.
    """
    found, again = 0, key
    for discount, is_plural in ((forms.folded, False), (forms.plurals, True)):
        if discount <= 0:
            continue
        if is_plural:
            size = make_singular(key, size, forms)
            again = key.copy()
        # A key of which the singular is another one is no spelling.
        if not is_plural or (
            make_singular(again, size, forms) == size and has_bytes(again, 0, key, 0, size)
        ):
            row = find_string(*words, key[:size])
            if row >= 0:
                found = _add_form(row, discount, rows, discounts, found)
            found = _add_words(key[:size], forms.single, discount, rows, discounts, found)
        if is_plural:
            found = _add_words(key[:size], forms.numbers, discount, rows, discounts, found)
    return found


@helper
def _is_stronger(one: int, other: int, rows: Int32, discounts: Float64, strength: Float32) -> bool:
    """Return whether a form comes before another one."""
    own, theirs = strength[rows[one]], strength[rows[other]]
    is_stronger: bool = discounts[one] > discounts[other]
    if discounts[one] == discounts[other]:
        is_stronger = own < theirs or (own == theirs and rows[one] < rows[other])
    return is_stronger


@helper
def _keep_strongest(rows: Int32, discounts: Float64, strength: Float32, size: int) -> int:
    for kept in range(min(size, _MAX_FORMS)):
        best = kept
        for place in range(kept + 1, size):
            if _is_stronger(place, best, rows, discounts, strength):
                best = place
        rows[kept], rows[best] = rows[best], rows[kept]
        discounts[kept], discounts[best] = discounts[best], discounts[kept]
    return min(size, _MAX_FORMS)


@helper
def _compare(sequence: UInt8, places: Int64, one: Int64, other: Int64) -> int:
    """Compare two runs of words, each its first and the one after its last: −1, 0 or 1."""
    first, last = places[one[0]], places[one[1]] - 1
    start, stop = places[other[0]], places[other[1]] - 1
    same, size = 0, min(last - first, stop - start)
    while same < size and sequence[first + same] == sequence[start + same]:
        same += 1
    if same < size:
        return -1 if sequence[first + same] < sequence[start + same] else 1
    return int(np.sign((last - first) - (stop - start)))


@helper
def joined_forms(
    sequence: UInt8, places: Int64, words: Strings, forms: FormKeys
) -> tuple[Int32, Float32]:
    """Find the forms of neighbouring words as ``fullrank.text.forms.Forms`` does.

    Args:
        sequence: The words of a query, all ASCII and known, a space behind each.
        places: int64 (n + 1,), where each begins.

    Returns:
        Their rows, and their weights; those of a run of words one after another, runs in ascending order.
    """
    count = len(places) - 1
    if not 1 < count <= forms.longest:
        return np.empty(0, np.int32), np.empty(0, np.float32)
    strengths, key = np.empty(count), np.empty(len(sequence) + _FEWEST_LETTERS, np.uint8)
    changed = np.empty(len(key), np.uint8)
    for word in range(count):
        size = _join(sequence, places, word, word + 1, key)
        strengths[word] = forms.strength[find_string(*words, key[:size])]
    room = forms.parts * count
    runs, of_run = np.empty((room, 2), np.int64), np.empty(room, np.int64)
    bounds, repeats = np.zeros(room + 1, np.int64), np.zeros(room, np.int64)
    rows, shares = np.empty(room * _MAX_FORMS, np.int32), np.empty(room * _MAX_FORMS, np.float32)
    candidates, discounts = np.empty(_MOST_FORMS, np.int32), np.empty(_MOST_FORMS)
    slots = words[2], forms.single.slots, forms.numbers.slots, forms.irregular.slots
    n_runs = stop = 0
    for size in range(2, forms.parts + 1):
        for first in range(count - size + 1):
            letters = _join(sequence, places, first, first + size, key)
            for place in range(letters):
                changed[place] = key[place]
            if not _may_be_form(changed, letters, slots):
                continue
            found = find_forms(key, letters, words, forms, candidates, discounts)
            if not found:
                continue
            runs[n_runs, 0], runs[n_runs, 1] = first, first + size
            known = 0
            while known < n_runs and _compare(sequence, places, runs[known], runs[n_runs]) != 0:
                known += 1
            repeats[known] += 1
            if known < n_runs:
                continue
            limit = 0.0
            for word in range(first, first + size):
                limit += strengths[word]
            found = _keep_strongest(candidates, discounts, forms.strength, found)
            for place in range(found):
                strength = np.float64(forms.strength[candidates[place]])
                rows[stop] = candidates[place]
                shares[stop] = discounts[place] * min(1.0, limit / max(strength, 1e-9))
                stop += 1
            n_runs += 1
            bounds[n_runs] = stop
    for run in range(n_runs):
        place = run
        while place > 0 and _compare(sequence, places, runs[of_run[place - 1]], runs[run]) > 0:
            of_run[place] = of_run[place - 1]
            place -= 1
        of_run[place] = run
    out, weights, size = np.empty(stop, np.int32), np.empty(stop, np.float32), 0
    for run in of_run[:n_runs]:
        for place in range(bounds[run], bounds[run + 1]):
            out[size], weights[size] = rows[place], np.float32(repeats[run]) * shares[place]
            size += 1
    return out, weights
