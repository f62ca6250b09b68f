"""Phrases: a document's whole title as one more lexical feature.

A link to an article often contains its title, and the whole title in a query says more than each of its words. A phrase
is the sequence of words of a short field (1 to `MAX_WORDS` words); a query contains it if the same words follow one
another there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from fullrank.kernels import joined as kernels
from fullrank.kernels.arrays import UInt64
from fullrank.storage.encoding import Int32, Rows
from fullrank.storage.strings import Names, NameTable, StringTable, check_slots
from fullrank.text.forms import spaced
from fullrank.text.sequences import number_words
from fullrank.text.words import words

MAX_WORDS = 8


def phrases_of(texts: Sequence[str]) -> list[str]:
    """Join the words of each text by spaces; "" for no words or more than `MAX_WORDS`."""
    number: dict[str, int] = {}
    indptr, numbers = number_words(texts, number)
    names, places = list(number), numbers.tolist()
    return [
        " ".join([names[i] for i in places[start:stop]]) if stop - start <= MAX_WORDS else ""
        for start, stop in pairwise(indptr.tolist())
    ]


class Phrases:
    """Known phrases, ascending; the row of a phrase is its place.

    Args:
        beginnings: The slots of their beginnings (fullrank.kernels.joined), made on first use where none are given.
            ValueError is raised where their number is no power of two.
    """

    def __init__(self, phrases: Sequence[str], beginnings: UInt64 | None = None) -> None:
        if beginnings is not None:
            check_slots(beginnings)
        self.phrases = phrases
        self._given = beginnings

    def __len__(self) -> int:
        return len(self.phrases)

    def __reduce__(self) -> tuple[type[Phrases], tuple[list[str]]]:
        return Phrases, (list(self.phrases),)

    @cached_property
    def table(self) -> StringTable:
        given = self.phrases
        return given if isinstance(given, StringTable) else StringTable.of(given)

    @cached_property
    def beginnings(self) -> UInt64:
        if self._given is not None:
            return self._given
        return kernels.hash_beginnings(self.table.blob, self.table.offsets)

    def rows_of_whole(self, phrases: Sequence[str]) -> Int32:
        """Return the row of each phrase, int32, -1 for an unknown one."""
        table = self.table
        packed = Names.of(phrases).packed
        return kernels.find_whole(table.blob, table.offsets, self.beginnings, *packed)

    def rows(self, texts: Sequence[str]) -> Rows:
        """Count the known phrases of each text, overlapping ones too, (B, phrases)."""
        if not len(self) or not len(texts):
            return Rows.empty(len(texts), len(self))
        return Rows.vstack([self.rows_of(spaced(words(text))) for text in texts])

    def rows_of(self, sequence: Names | NameTable, first_column: int = 0) -> Rows:
        """Count the known phrases in the words of one text, as `spaced` returns them, (1, first_column + phrases)."""
        table = self.table
        if not sequence or not len(table):
            return Rows.empty(1, first_column + len(self))
        args = (table.blob, table.offsets, self.beginnings, *sequence.packed, first_column)
        return Rows(*kernels.count_phrases(*args), first_column + len(table))

    def own(self, texts: Sequence[str]) -> Rows:
        return self.whole(phrases_of(texts)) if len(self) else Rows.empty(len(texts), 0)

    def whole(self, phrases: Sequence[str], first_column: int = 0) -> Rows:
        """Return the known ones of some phrases, with value 1, (B, first_column + phrases)."""
        found = self.rows_of_whole(phrases)
        is_known = found >= 0
        indptr = np.zeros(len(found) + 1, np.int64)
        np.cumsum(is_known, out=indptr[1:])
        rows = (found[is_known] + first_column).astype(np.int32)
        return Rows(indptr, rows, np.ones(len(rows), np.float32), first_column + len(self))
