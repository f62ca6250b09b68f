"""Values of pairs of a query and a document, in arrays: millions of judgements would need gigabytes as dictionaries."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Int32, Int64
from fullrank_trainer.compiled import compiled

Value = TypeVar("Value", int, float)

KINDS: dict[type, npt.DTypeLike] = {int: np.int32, float: np.float64}
"""The dtype of each kind of value."""


class Ids(list[str]):
    """The distinct ids of the queries or documents of a collection, by row.

    Example:
        >>> Ids(["b", "a"]).rows["a"]
        1
    """

    @cached_property
    def rows(self) -> dict[str, int]:
        """id → row."""
        return {id: row for row, id in enumerate(self)}


@dataclass(frozen=True, eq=False)
class PairTable(Mapping[str, Mapping[str, Value]], Generic[Value]):
    """Query id → document id → value. Queries, and the documents of each, are in the order of their first pair.

    Attributes:
        query_ids, document_ids: of the collection.
        queries: int32 (B,), the rows of the queries that have a pair.
        starts: int64 (B + 1,); query i has the pairs starts[i]:starts[i + 1].
        documents: int32 (pairs,), rows.
        entries: int32 or float64 (pairs,), the values.
    """

    query_ids: Ids
    document_ids: Ids
    queries: Int32
    starts: Int64
    documents: Int32
    entries: npt.NDArray[Any]

    def __getitem__(self, query: str) -> dict[str, Value]:
        place = self._places[self.query_ids.rows[query]]
        if place < 0:
            raise KeyError(query)
        part = slice(self.starts[place], self.starts[place + 1])
        names = map(self.document_ids.__getitem__, self.documents[part].tolist())
        return dict(zip(names, self.entries[part].tolist(), strict=True))

    def __contains__(self, query: object) -> bool:
        row = self.query_ids.rows.get(query, -1)  # type: ignore[call-overload]
        return bool(row >= 0 and self._places[row] >= 0)

    def __iter__(self) -> Iterator[str]:
        return map(self.query_ids.__getitem__, self.queries.tolist())

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def _places(self) -> Int32:
        """The place of each query of the collection in ``queries``; -1 if it has no pair."""
        places = np.full(len(self.query_ids), -1, np.int32)
        places[self.queries] = np.arange(len(self.queries), dtype=np.int32)
        return places

    @staticmethod
    def of(
        given: Mapping[str, Mapping[str, Value]], queries: Ids, documents: Ids
    ) -> PairTable[Value]:
        """Make a table of pairs whose ids the collection has; a table is returned as it is."""
        if isinstance(given, PairTable):
            return given
        values = [value for found in given.values() for value in found.values()]
        sizes = np.array([len(found) for found in given.values()], np.int64)
        rows = np.array([queries.rows[query] for query in given], np.int32)
        names = (document for found in given.values() for document in found)
        columns = np.fromiter(map(documents.rows.__getitem__, names), np.int32, len(values))
        kind = KINDS[float if any(isinstance(value, float) for value in values) else int]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        return PairTable(queries, documents, rows, starts, columns, np.array(values, kind))


class Repeat(NamedTuple, Generic[Value]):
    """A pair that a file has a second time.

    Attributes:
        line: its number.
        query, document: rows.
        value: given here.
        first: value given first.
    """

    line: int
    query: int
    document: int
    value: Value
    first: Value


class PairReader(Generic[Value]):
    """Collects the pairs of a file, line by line, and makes a table of them.

    Args:
        queries, documents: ids of the collection.
        kind: of the values.
    """

    def __init__(self, queries: Ids, documents: Ids, kind: type[Value]) -> None:
        self._query_ids, self._document_ids, self._kind = queries, documents, KINDS[kind]
        self._lines, self._queries, self._documents = array("i"), array("i"), array("i")
        self._values: array[Any] = array(np.dtype(self._kind).char)

    def add(self, line: int, query: int, document: int, value: Value) -> None:
        """Add the pair of a line: rows of a query and a document, and a value."""
        self._lines.append(line)
        self._queries.append(query)
        self._documents.append(document)
        self._values.append(value)

    def table(self) -> tuple[PairTable[Value], list[Repeat[Value]]]:
        """Return the table with the first of equal pairs, and the others in the order of the file."""
        rows = np.frombuffer(self._queries, np.int32) if self._queries else np.zeros(0, np.int32)
        queries, places = _by_first(rows, len(self._query_ids))
        order = None
        if (np.diff(places) < 0).any():  # the pairs of a query are not one after another
            order = np.argsort(places, kind="stable")
        starts = np.zeros(len(queries) + 1, np.int64)
        np.cumsum(np.bincount(places, minlength=len(queries)), out=starts[1:])
        documents = _in_order(self._documents, np.int32, order)
        values = _in_order(self._values, self._kind, order)
        again = _repeats(starts, documents, len(self._document_ids))
        found: list[Repeat[Value]] = []
        if len(again):
            lines = _in_order(self._lines, np.int32, order)
            owner = np.searchsorted(starts, again[:, 0], "right") - 1
            place, first = again.T
            columns = lines[place], queries[owner], documents[place], values[place], values[first]
            rows_of = zip(*(column.tolist() for column in columns), strict=True)
            found = sorted(Repeat(*row) for row in rows_of)
            kept = np.ones(len(documents), np.bool_)
            kept[again[:, 0]] = False
            starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])[starts]
            documents, values = documents[kept], values[kept]
        ids = self._query_ids, self._document_ids
        return PairTable(*ids, queries, starts, documents, values), found


def _by_first(rows: Int32, count: int) -> tuple[Int32, Int32]:
    """Return the distinct rows in the order of their first use, and the place of each row among them."""
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    _, first = np.unique(rows[starts], return_index=True)
    distinct = rows[starts][np.sort(first)]
    place = np.empty(count, np.int32)
    place[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct, place[rows]


def _in_order(values: array[Any], kind: npt.DTypeLike, order: Int64 | None) -> npt.NDArray[Any]:
    """Return a copy of values in an order, by default their own."""
    found = np.array(values, kind)
    return found if order is None else found[order]


@compiled()
def _repeats(starts: Int64, documents: Int32, count: int) -> Int64:
    """Return the places of documents that their query has already, each with the first place, int64 (repeats, 2)."""
    size = 0
    out = np.empty((0, 2), np.int64)
    for is_counted in (False, True):
        if is_counted:
            out = np.empty((size, 2), np.int64)
            size = 0
        last = np.full(count, -1, np.int64)
        for query in range(len(starts) - 1):
            for place in range(starts[query], starts[query + 1]):
                first = last[documents[place]]
                if first < starts[query]:
                    last[documents[place]] = place
                    continue
                if is_counted:
                    out[size, 0], out[size, 1] = place, first
                size += 1
    return out
