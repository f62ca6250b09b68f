"""Columns: the values of each stored field as codes into a sorted dictionary.

A field has up to three parts side by side, one for each kind of value it holds; a value never changes its kind, so 5,
"5" and true are three different values.

    boolean   false, true
    number    float64, finite
    keyword   text of at most 256 bytes, by code point

Code c stands for the c-th smallest value of its part. A question about values (equal to, one of, between) is therefore
a few ranges of codes, answered by comparing small integers; counting values is counting codes.

    one value a document    codes (n,), −1 where the document has none
    lists                   indptr int64 (n + 1,), codes (entries,): document i has the distinct, ascending codes
                            codes[indptr[i]:indptr[i + 1]]

Codes are int8, int16 or int32, the smallest that hold their part's values.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fullrank.storage.strings import StringTable

Mask = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Codes = npt.NDArray[np.signedinteger[Any]]

Kind = Literal["boolean", "number", "keyword"]
KINDS: tuple[Kind, ...] = ("boolean", "number", "keyword")
BOOLEANS = (False, True)

# Up to so many ranges are compared one by one; beyond, each code is looked up in a table.
_COMPARED = 8


@dataclass(frozen=True, eq=False)
class Part:
    """The values of one kind in one field.

    values  ascending and distinct: (False, True), float64 (V,) or a string table
    codes   (n,) with −1 for none, or (entries,) where indptr is there
    indptr  int64 (n + 1,) where a document may hold several; else None
    """

    values: Sequence[Any] | Float64 | StringTable
    codes: Codes
    indptr: Int64 | None = None

    def equal(self, value: bool | float | str) -> range:
        """The code of a value of this part's kind, as a range that is empty where there is none."""
        return self.between(value, value)

    def between(
        self,
        lower: bool | float | str | None,
        upper: bool | float | str | None,
        *,
        above: bool = False,
        below: bool = False,
    ) -> range:
        """The codes of the values from lower to upper; None: without bound.

        above   leave lower itself out
        below   leave upper itself out
        """
        values: Any = self.values
        first = 0 if lower is None else (bisect_right if above else bisect_left)(values, lower)
        stop = (
            len(values)
            if upper is None
            else (bisect_left if below else bisect_right)(values, upper)
        )
        return range(first, max(first, stop))

    def holding(self, spans: Sequence[range]) -> Mask:
        """bool (n,): the documents that hold a value whose code lies in one of the ranges."""
        hits = self._hits([span for span in spans if span])
        if self.indptr is None:
            return hits
        # How many of the entries before each document's first are hits; a document holds one where that grows.
        before = np.zeros(len(hits) + 1, np.int64)
        np.cumsum(hits, out=before[1:])
        before = before[self.indptr]
        return np.asarray(before[1:] > before[:-1])

    def present(self) -> Mask:
        """bool (n,): the documents that hold any value of this kind."""
        if self.indptr is None:
            return np.asarray(self.codes >= 0)
        return np.asarray(self.indptr[1:] > self.indptr[:-1])

    def counts(self, matching: Mask) -> Int64:
        """int64 (V,): how many of the matching documents hold each value."""
        if self.indptr is None:
            codes = self.codes[matching]
            codes = codes[codes >= 0]
        else:
            codes = self.codes[np.repeat(matching, np.diff(self.indptr))]
        return np.bincount(codes, minlength=len(self.values)).astype(np.int64, copy=False)

    def _hits(self, spans: Sequence[range]) -> Mask:
        codes = self.codes
        if len(spans) > _COMPARED:
            # One place more than there are values: code −1 finds the last, which stays False.
            wanted = np.zeros(len(self.values) + 1, np.bool_)
            for span in spans:
                wanted[span.start : span.stop] = True
            return wanted[codes]
        hits = np.zeros(len(codes), np.bool_)
        for span in spans:
            # Codes of a part that has a value fit its dtype, and so do the range's two ends.
            if len(span) == 1:
                hits |= codes == span.start
            else:
                hits |= (codes >= span.start) & (codes <= span.stop - 1)
        return hits


@dataclass(frozen=True, eq=False)
class Column:
    """One field: its parts by kind; none where every document leaves it out.

    elsewhere  kinds that it holds in documents beside these, so that asking for them is no mistake
    """

    name: str
    parts: Mapping[Kind, Part]
    documents: int
    elsewhere: frozenset[Kind] = frozenset()

    def present(self) -> Mask:
        """bool (n,): the documents that hold any value."""
        found = np.zeros(self.documents, np.bool_)
        for part in self.parts.values():
            found |= part.present()
        return found


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of n documents by field name.

    refused   fields that are no columns → why, in words
    """

    documents: int
    by_name: Mapping[str, Column]
    refused: Mapping[str, str]

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __getitem__(self, name: str) -> Column:
        return self.by_name[name]


def aligned(tables: Sequence[Columns]) -> list[Columns]:
    """The columns of several sets of documents, so that any question is lawful of each that is lawful of their union.

    A field that some do not have is one without values there; one that is refused anywhere is refused everywhere.
    """
    refused = {name: why for columns in tables for name, why in columns.refused.items()}
    kinds: dict[str, set[Kind]] = {}
    for columns in tables:
        for name, column in columns.by_name.items():
            if name not in refused:
                kinds.setdefault(name, set()).update(column.parts)
    found = []
    for columns in tables:
        by_name = {}
        for name, held in kinds.items():
            own = columns.by_name.get(name)
            parts = {} if own is None else own.parts
            by_name[name] = Column(name, parts, columns.documents, frozenset(held))
        found.append(Columns(columns.documents, by_name, refused))
    return found
