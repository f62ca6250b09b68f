"""A string table that finds the row of a string, by a hash table that can be mapped too.

Worker processes share its pages, where each would have a dictionary of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, cast

import numpy as np

from fullrank.kernels.arrays import Int32, Int64, UInt8, UInt64
from fullrank.kernels.words import find_string, find_strings, hash_strings
from fullrank.storage.strings import StringTable, bytes_of


def check_slots(slots: UInt64) -> None:
    """Raise ValueError if slots are not a hash table: their number must be a power of two."""
    if slots.dtype != np.uint64 or slots.ndim != 1 or len(slots).bit_count() != 1:
        raise ValueError(f"slots of the shape {slots.shape} are no hash table")


class _Sought:
    """Strings to find in several tables: each table searches for them once."""

    found: dict[StringTable, Int32]
    _missing: dict[StringTable, list[int]]

    def _start(self) -> None:
        self.found = {}
        self._missing = {}

    def missing(self, lexicon: Lexicon) -> list[int]:
        """Return the places of the strings that a table does not have, ascending."""
        places = self._missing.get(lexicon)
        if places is None:
            rows = lexicon.rows(cast(Sequence[str], self)).tolist()
            places = [place for place, row in enumerate(rows) if row < 0]
            self._missing[lexicon] = places
        return places


class Names(_Sought, list[str]):
    """Strings to find in several tables: their bytes are made once, and each table searches for them once.

    Example:
        >>> names = Names(["red", "apple"])
        >>> Lexicon.of(["apple", "pear"]).rows(names).tolist()
        [-1, 0]
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__(names)
        self._start()
        self._packed: tuple[UInt8, Int64] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Names, (list(self),)

    @staticmethod
    def of(names: Iterable[str]) -> Names | NameTable:
        """Return names as they are if they are Names or a table of them."""
        return names if isinstance(names, Names | NameTable) else Names(names)

    @property
    def packed(self) -> tuple[UInt8, Int64]:
        """The bytes of all strings, and where each begins, int64 (n + 1,)."""
        if self._packed is None:
            whole = "".join(self)
            sizes: Iterable[int] = map(len, self)
            if not whole.isascii():
                sizes = (len(name.encode("utf-8", "surrogatepass")) for name in self)
            bounds = np.fromiter(accumulate(sizes, initial=0), np.int64, len(self) + 1)
            self._packed = np.frombuffer(whole.encode("utf-8", "surrogatepass"), np.uint8), bounds
        return self._packed


class NameTable(_Sought, StringTable):
    """Names that lie in a string table: those of a corpus would take several times as much memory as strings."""

    def __init__(self, blob: UInt8, offsets: Int64) -> None:
        StringTable.__init__(self, blob, offsets)
        self._start()

    @property
    def packed(self) -> tuple[UInt8, Int64]:
        """The bytes of all strings, and where each begins, int64 (n + 1,)."""
        return self.blob, self.offsets


class Lexicon(StringTable):
    """A string table with its hash table, which is made on first use where none is given.

    Args:
        blob, offsets: As of a StringTable; the strings are distinct.
        slots: See fullrank.kernels.words.

    Raises:
        ValueError: The number of slots is no power of two.
    """

    def __init__(self, blob: UInt8, offsets: Int64, slots: UInt64 | None = None) -> None:
        super().__init__(blob, offsets)
        if slots is not None:
            check_slots(slots)
        self._given = slots

    def __reduce__(self) -> tuple[Any, ...]:
        return Lexicon, (self.blob, self.offsets, self._given)

    @classmethod
    def of(cls, strings: Iterable[str]) -> Lexicon:
        """Return strings as a lexicon: a lexicon as it is, a string table without a copy."""
        if isinstance(strings, Lexicon):
            return strings
        table = strings if isinstance(strings, StringTable) else StringTable.of(strings)
        return cls(table.blob, table.offsets)

    def is_same(self, other: Lexicon) -> bool:
        """Return whether both have the same strings in the same order."""
        if self is other:
            return True
        pairs = ((self.offsets, other.offsets), (self.blob, other.blob))
        return all(np.array_equal(own, theirs) for own, theirs in pairs)

    @cached_property
    def slots(self) -> UInt64:
        """The hash table, uint64 (a power of two,)."""
        return hash_strings(self.blob, self.offsets) if self._given is None else self._given

    def rows(self, names: Sequence[str]) -> Int32:
        """Return the row of each string, int32, -1 where the table does not have it. Do not write to it."""
        names = Names.of(names)
        rows = names.found.get(self)
        if rows is None:
            rows = find_strings(self.blob, self.offsets, self.slots, *names.packed)
            names.found[self] = rows
        return rows

    def find(self, name: str) -> int:
        """Return the row of a string; -1 if the table does not have it."""
        return find_string(self.blob, self.offsets, self.slots, bytes_of(name))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) >= 0


def unknown_to(names: Names | NameTable, lexicons: Iterable[Lexicon]) -> list[int]:
    """Return the places of the strings that none of some tables has, ascending."""
    places = None
    for lexicon in lexicons:
        missing = names.missing(lexicon)
        if not missing:
            return missing
        places = missing if places is None else sorted({*places}.intersection(missing))
    return [*range(len(names))] if places is None else places
