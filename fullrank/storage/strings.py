"""Strings in two arrays that can be mapped, their UTF-8 bytes and where each begins; and documents stored so.

    blob     uint8 (bytes,)   the strings one after another, nothing between them
    offsets  int64 (n + 1,)   string i is blob[offsets[i]:offsets[i + 1]]

A string is decoded when it is read, so a table of millions opens at once and worker processes share its pages.
"""

from __future__ import annotations

import codecs
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, cast, overload

import numpy as np

from fullrank.errors import BundleError
from fullrank.kernels.arrays import Int32, Int64, UInt8, UInt64
from fullrank.kernels.records import copy_strings
from fullrank.kernels.words import find_ascending, find_string, find_strings, hash_strings
from fullrank.storage.documents import Document, fields_line

_CHUNK = 4096
_PIECE = 1 << 20  # offsets, or bytes, checked in one step


def bytes_of(string: str) -> UInt8:
    """Return the UTF-8 bytes of a string; those of a lone surrogate, too."""
    return np.frombuffer(string.encode("utf-8", "surrogatepass"), np.uint8)


class StringTable(Sequence[str]):
    """A sequence of strings over a blob and its offsets, which are not copied."""

    __slots__ = ("_bounds", "_view", "blob", "offsets")

    def __init__(self, blob: UInt8, offsets: Int64) -> None:
        self.blob = blob
        self.offsets = offsets
        # A memoryview gives a number as a Python int; numpy would make a scalar object of it first.
        self._view, self._bounds = blob.data, offsets.data

    @staticmethod
    def of(strings: Iterable[str]) -> StringTable:
        """Make a table in memory; a table stays as it is. Raises UnicodeEncodeError on a lone surrogate."""
        if isinstance(strings, StringTable):
            return strings
        encoded = [string.encode() for string in strings]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(string) for string in encoded], out=offsets[1:])
        return StringTable(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    @staticmethod
    def gather(tables: Sequence[StringTable], number: Int32, row: Int64) -> StringTable:
        """Copy strings of several tables into one.

        Args:
            number: int32 (n,), the table of each string.
            row: int64 (n,), its row there.
        """
        offsets = np.zeros(len(row) + 1, np.int64)
        places = [np.flatnonzero(number == i) for i in range(len(tables))]
        for table, here in zip(tables, places, strict=True):
            rows = row[here]
            offsets[here + 1] = table.offsets[rows + 1] - table.offsets[rows]
        np.cumsum(offsets, out=offsets)
        blob = np.empty(offsets[-1], np.uint8)
        for table, here in zip(tables, places, strict=True):
            copy_strings(table.blob, table.offsets, row[here], here, offsets, blob)
        return StringTable(blob, offsets)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.blob, self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return str(self._bytes(index), "utf-8", "surrogatepass")

    def utf8(self, index: int) -> bytes:
        """Return the UTF-8 bytes of a string. Raises IndexError."""
        return bytes(self._bytes(index))

    def several(self, rows: Iterable[int]) -> list[str]:
        """Return strings in less time than one by one; rows: not negative. Raises IndexError."""
        view, bounds = self._view, self._bounds
        return [str(view[bounds[row] : bounds[row + 1]], "utf-8") for row in rows]

    def _bytes(self, index: int) -> memoryview:
        bounds = self._bounds
        if index < 0:
            index += len(self)
            if index < 0:
                raise IndexError("string index out of range")
        return self._view[bounds[index] : bounds[index + 1]]

    def __iter__(self) -> Iterator[str]:
        # Offsets become Python integers by the chunk: reading numpy scalars one by one takes four times as long.
        for start in range(0, len(self), _CHUNK):
            bounds = self.offsets[start : start + _CHUNK + 1].tolist()
            if bounds[-1] - bounds[0] <= _PIECE:
                # Where one character is one byte, all strings of a chunk are parts of one.
                piece = str(self._view[bounds[0] : bounds[-1]], "utf-8", "surrogatepass")
                if piece.isascii():
                    begin = bounds[0]
                    for first, last in pairwise(bounds):
                        yield piece[first - begin : last - begin]
                    continue
            for first, last in pairwise(bounds):
                yield str(self._view[first:last], "utf-8", "surrogatepass")

    def damage(self) -> str | None:
        """Return what is wrong with the table; None if every string can be read."""
        offsets, blob = self.offsets, self.blob
        if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(blob):
            return "its offsets do not span its bytes"
        # By the chunk, because a mapped table may be larger than memory.
        for start in range(0, len(offsets), _PIECE):
            part = offsets[start : start + _PIECE + 1]
            if np.any(part[1:] < part[:-1]):
                return "its offsets descend"
        for start in range(0, len(offsets), _PIECE):
            starts = offsets[start : start + _PIECE]
            starts = starts[starts < len(blob)]
            # A string that begins with a continuation byte begins inside a character.
            if np.any((blob[starts] & 0xC0) == 0x80):
                return "an offset points inside a character"
        return self._not_utf8()

    def _not_utf8(self) -> str | None:
        decoder = codecs.getincrementaldecoder("utf-8")()
        for start in range(0, len(self._view), _PIECE):
            # The decoder keeps the first bytes of a character that the chunk cuts.
            waiting = len(decoder.getstate()[0])
            end = start + _PIECE
            try:
                decoder.decode(self._view[start:end], final=end >= len(self._view))
            except UnicodeDecodeError as error:
                return f"byte {start - waiting + error.start} is not utf-8"
        return None


# A string table that finds the row of a string, by a hash table that can be mapped too.
#
# Worker processes share its pages, where each would have a dictionary of its own.


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


class DocumentStore:
    """Stored fields by row, and rows by id; rows are in ascending order of id.

    Ids ascend by code point, which is also the order of their UTF-8 bytes, so "ties by id" and "ties by row" are the
    same rule. A row is found by binary search over the mapped ids: nothing is built at load, and worker processes
    share the pages.
    """

    def __init__(self, ids: Sequence[str], lines: Sequence[str]) -> None:
        self.ids, self.lines = ids, lines

    @classmethod
    def of(cls, documents: Sequence[Document]) -> DocumentStore:
        """Make a store in memory from documents in ascending order of id."""
        return cls(
            StringTable.of(document.id for document in documents),
            StringTable.of(fields_line(document.id, document.fields) for document in documents),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def row(self, id: str) -> int:
        """Find the row of a document. Raises KeyError for an unknown id."""
        row = bisect_left(self.ids, id)
        if row == len(self.ids) or self.ids[row] != id:
            raise KeyError(id)
        return row

    def rows(self, ids: Sequence[str]) -> Int32:
        """Return the row of each id, int32, -1 for unknown ones."""
        return find_ascending(self._table.blob, self._table.offsets, *Names.of(ids).packed)

    @cached_property
    def _table(self) -> StringTable:
        return StringTable.of(self.ids)

    def ids_of(self, rows: Iterable[int]) -> list[str]:
        return self._table.several(rows)

    def line(self, row: int) -> str:
        """Return the stored fields of one row as a line of JSON."""
        return self.lines[row]

    def json(self, row: int) -> bytes:
        """Return the stored fields of one row as the bytes of a JSON object."""
        lines = self.lines
        line = lines.utf8(row) if isinstance(lines, StringTable) else lines[row].encode()
        return line.rstrip()

    def corpus_line(self, row: int) -> str:
        """Return one row as a line of a corpus.jsonl: its id as _id, then its fields."""
        id, line = json.dumps(self.ids[row], ensure_ascii=False), self.lines[row]
        return f'{{"_id":{id}}}\n' if line.rstrip() == "{}" else f'{{"_id":{id},{line[1:]}'

    def fields(self, row: int) -> dict[str, Any]:
        """Return the stored fields of one row. Raises IndexError, or BundleError for a damaged line."""
        try:
            fields = json.loads(self.lines[row])
        except ValueError as error:
            raise BundleError(f"documents/fields.jsonl: row {row}: {error}") from error
        if not isinstance(fields, dict):
            raise BundleError(f"documents/fields.jsonl: row {row} is not a JSON object")
        return fields

    def document(self, row: int) -> Document:
        """Return one row as a Document."""
        return Document(self.ids[row], self.fields(row))
