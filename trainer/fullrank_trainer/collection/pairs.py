"""Judged pairs of queries and documents: one frame, whose columns are grades, weights, and how many people clicked."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fullrank.errors import TrainingError
from fullrank.storage.encoding import Float32, Int32, Int64
from fullrank_trainer.lines import Lines

Bool = npt.NDArray[np.bool_]

MIN_PEOPLE = 2
"""So many people must click before a query becomes clicked text."""


class Ids(list[str]):
    """The distinct ids of the queries or documents of a collection, by row."""

    @cached_property
    def rows(self) -> dict[str, int]:
        return {id: row for row, id in enumerate(self)}


def hashed(text: str, salt: bytes, size: int = 8) -> int:
    """Return a hash of so many bytes that never changes; a salt has at most 16 bytes."""
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=size, person=salt).digest())


def falls_into(id: str, share: float, salt: bytes, size: int = 8) -> bool:
    """Return whether an id falls into a share of all ids, by ``hashed``."""
    return hashed(id, salt, size) < share * 2.0 ** (8 * size)


def ragged(lists: Sequence[Int64]) -> tuple[Int64, Int64]:
    """Return (indptr, values); list i is ``values[indptr[i]:indptr[i + 1]]``."""
    values = np.concatenate([np.zeros(0, np.int64), *lists]).astype(np.int64)
    return _ends([len(x) for x in lists]), values


def _ends(sizes: Sequence[int] | Int64) -> Int64:
    return np.append(0, np.cumsum(sizes)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Judged pairs as rows; those of a query follow each other.

    Training learns from the relevant pairs of a split (``relevant_pairs``): documents ascend, and no grades are left.

    Attributes:
        rows: int64 (B,), the queries, distinct.
        starts: int64 (B + 1,); query i has the pairs starts[i]:starts[i + 1].
        entries: the document of each pair, int32 as read, int64 in training, (pairs,).
        grades: int32 (pairs,), as read.
        weights: above zero, float64 as read, float32 in training, (pairs,); None: all alike. As read 0: not given.
        people: how many clicked, float64 (pairs,), 0: unknown; None: unknown of all.
        passed_over: documents that people passed over on the way to a click, ascending, of queries with a pair.
        judged: rows of the judged documents, int64, ascending, if these pairs are a part of those that judge them.
        source: the qrels file, for error messages.
    """

    rows: Int64
    starts: Int64
    entries: Int64
    grades: Int32 | None = None
    weights: npt.NDArray[Any] | None = None
    people: npt.NDArray[Any] | None = None
    passed_over: Pairs | None = None
    judged: Int64 | None = None
    source: str = "qrels/train.tsv"

    @staticmethod
    def from_lists(given: Mapping[int, Int64], **columns: Any) -> Pairs:
        """Make pairs of the documents by query row."""
        return Pairs(np.array([*given], np.int64), *ragged([*given.values()]), **columns)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, query: int) -> Int64:
        return self.entries[self.slice_of(query)]

    def __contains__(self, query: int) -> bool:
        return bool(self._places(np.array([query]))[0] >= 0)

    def items(self) -> Iterator[tuple[int, Int64]]:
        parts = np.split(self.entries, self.starts[1:-1]) if len(self.rows) else []
        return zip(self.rows.tolist(), parts, strict=True)

    @cached_property
    def queries(self) -> Int64:
        """The rows of the queries with a pair, int64, ascending."""
        return np.sort(self.rows)

    @cached_property
    def documents(self) -> Int64:
        """The rows of the judged documents, int64, ascending."""
        if self.judged is not None:
            return self.judged
        return np.flatnonzero(np.bincount(self.entries))

    @property
    def sizes(self) -> Int64:
        """The number of pairs of each query, int64 (B,)."""
        return np.diff(self.starts)

    @property
    def owners(self) -> Int64:
        """The query of each pair, int64 (pairs,)."""
        return np.repeat(self.rows, self.sizes)

    @property
    def shared(self) -> Bool | None:
        """Which pairs at least two people clicked, bool (pairs,); None: all."""
        return None if self.people is None else (self.people == 0) | (self.people >= MIN_PEOPLE)

    @property
    def clicked(self) -> Pairs:
        """The pairs whose query becomes clicked text of the document."""
        return self if self.shared is None else self.where(self.shared)

    def matrix(self, queries: int, documents: int) -> sp.csr_array[np.float32]:
        """Return ones where there is a pair, (queries, documents)."""
        ones = np.ones(len(self), np.float32)
        return sp.csr_array((ones, (self.owners, self.entries)), shape=(queries, documents))

    def slice_of(self, query: int) -> slice:
        """Return the place of the pairs of a query. Raises KeyError if it has none."""
        place = int(self._places(np.array([query]))[0])
        if place < 0:
            raise KeyError(query)
        return slice(int(self.starts[place]), int(self.starts[place + 1]))

    def places(self, queries: Int64) -> tuple[Int64, Int64]:
        """Return starts, int64 (queries + 1,), and the places of the pairs of some queries. Raises KeyError."""
        found = self._places(queries)
        if found.min(initial=0) < 0:
            raise KeyError(int(queries[found < 0][0]))
        first, sizes = self.starts[found], self.sizes[found]
        starts = _ends(sizes)
        return starts, np.arange(starts[-1]) + np.repeat(first - starts[:-1], sizes)

    def take(self, queries: Int64) -> tuple[Int64, Int64]:
        """Return the documents of some queries one after another: starts, as ``places`` does, and the documents."""
        if np.array_equal(queries, self.rows):
            return self.starts, self.entries
        starts, places = self.places(queries)
        return starts, self.entries[places]

    def having(self, queries: Int64) -> Int64:
        """Return those of some queries that have a pair."""
        return queries[self._places(queries) >= 0]

    def of_queries(self, queries: Int64) -> Pairs:
        """Return the pairs of some queries, in their order. All judged documents stay judged. Raises KeyError."""
        starts, places = self.places(queries)
        passed = self.passed_over
        passed = None if passed is None else passed.of_queries(passed.having(queries))
        kept = replace(self._columns(places), rows=queries, starts=starts, passed_over=passed)
        return replace(kept, judged=self.documents)

    def where(self, kept: Bool) -> Pairs:
        """Return some pairs, bool (pairs,), of the queries that have any."""
        sizes, filled = np.zeros(len(self.rows), np.int64), self.sizes > 0
        sizes[filled] = np.add.reduceat(kept, self.starts[:-1][filled], dtype=np.int64)
        rows, passed = self.rows[sizes > 0], self.passed_over
        passed = None if passed is None else passed.where(np.isin(passed.owners, rows))
        starts = _ends(sizes[sizes > 0])
        found = replace(self._columns(kept), rows=rows, starts=starts, passed_over=passed)
        return replace(found, judged=None)

    def ascending(self) -> Pairs:
        """Return the pairs with the documents of each query in ascending order."""
        owner = np.repeat(np.arange(len(self.rows)), self.sizes)
        return self._columns(np.lexsort((self.entries, owner)))

    def with_queries_of(self, other: Pairs) -> Pairs:
        """Return these pairs and those of queries that have none here.

        Weights of the others are at most the largest of these: in a split that measures, a judgement of a click that
        was unlikely counts up to ten times.
        """
        new = other.where(~np.isin(other.owners, self.rows))
        weights, people, passed = self.weights, self.people, self.passed_over
        if weights is not None:
            given = np.ones(len(new), np.float32) if new.weights is None else new.weights
            weights = np.append(weights, np.minimum(given, weights.max(initial=1.0)))
        if people is not None:
            people = np.append(people, np.zeros(len(new)) if new.people is None else new.people)
        if passed is not None and new.passed_over is not None:
            passed = passed.with_queries_of(new.passed_over)
        return Pairs(
            np.append(self.rows, new.rows),
            np.append(self.starts, new.starts[1:] + self.starts[-1]),
            np.append(self.entries, new.entries),
            None,
            weights,
            people,
            passed or new.passed_over,
            source=self.source,
        )

    def weights_of(self, queries: Int64) -> Float32 | None:
        """Return the weights of the pairs of some queries, one query after another; None without weights."""
        return None if self.weights is None else self.weights[self.places(queries)[1]]

    def weight_of(self, query: int, documents: Int64) -> Float32:
        """Return the weights of some of a query's documents, ascending; 1 without weights."""
        if self.weights is None:
            return np.ones(len(documents), np.float32)
        own = self.slice_of(query)
        found: Float32 = self.weights[own][np.searchsorted(self.entries[own], documents)]
        return found

    def aligned(self, part: Pairs, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values of some of these pairs for all of them, float64 (pairs,); 0 for the others."""
        found, width = np.zeros(len(self)), 1 + int(self.entries.max(initial=0))
        mine, asked = (pairs.owners * width + pairs.entries for pairs in (self, part))
        order = np.argsort(mine)
        found[order[np.searchsorted(mine, asked, sorter=order)]] = values
        return found

    def require(self) -> None:
        if not len(self):
            raise TrainingError(
                f"{self.source}: no judged pair to learn from. Add judgements of known documents, or "
                "leave out --recipe: the default needs none"
            )

    def _columns(self, places: Bool | Int64) -> Pairs:
        def part(column: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
            return None if column is None else column[places]

        return replace(
            self,
            entries=self.entries[places],
            grades=part(self.grades),
            weights=part(self.weights),
            people=part(self.people),
        )

    @cached_property
    def _place(self) -> Int32:
        places = np.full(self.rows.max(initial=-1) + 1, -1, np.int32)
        places[self.rows] = np.arange(len(self.rows), dtype=np.int32)
        return places

    def _places(self, queries: Int64) -> Int32:
        found = np.full(len(queries), -1, np.int32)
        known = (queries >= 0) & (queries < len(self._place))
        found[known] = self._place[queries[known]]
        return found


@dataclass(frozen=True, eq=False)
class ById(Mapping[str, Mapping[str, Any]]):
    """A column of pairs: query id → document id → value, in the order of the pairs."""

    query_ids: Ids
    document_ids: Ids
    pairs: Pairs
    column: str

    def __getitem__(self, query: str) -> dict[str, Any]:
        part = self.pairs.slice_of(self.query_ids.rows[query])
        names = map(self.document_ids.__getitem__, self.pairs.entries[part].tolist())
        return dict(zip(names, getattr(self.pairs, self.column)[part].tolist(), strict=True))

    def __contains__(self, query: object) -> bool:
        return self.query_ids.rows.get(query, -1) in self.pairs  # type: ignore[call-overload]

    def __iter__(self) -> Iterator[str]:
        return map(self.query_ids.__getitem__, self.pairs.rows.tolist())

    def __len__(self) -> int:
        return len(self.pairs.rows)


class Repeat(NamedTuple):
    """A pair that a file has a second time."""

    line: int
    query: int
    document: int
    value: float
    first: float


class PairReader:
    """Collects the pairs of a file, line by line."""

    def __init__(self, queries: Ids, documents: Ids, kind: npt.DTypeLike) -> None:
        self._query_ids, self._document_ids, self._kind = queries, documents, np.dtype(kind)
        self._lines, self._queries, self._documents = array("i"), array("i"), array("i")
        self._values: array[Any] = array(self._kind.char)

    def add(self, line: int, query: int, document: int, value: float) -> None:
        """Add the pair of a line: rows of a query and a document, and a value."""
        self._lines.append(line)
        self._queries.append(query)
        self._documents.append(document)
        self._values.append(value)

    def checked(self, lines: Lines, form: str) -> tuple[Pairs, npt.NDArray[Any], int]:
        """Return the pairs, their values and the number of repeats; refuse those with another value.

        Raises CollectionError.
        """
        pairs, values, repeats = self.pairs()
        for again in repeats:
            if again.value != again.first:
                pair = f"{self._query_ids[again.query]!r} {self._document_ids[again.document]!r}"
                lines.refuse(lines.error(again.line, form.format(pair=pair, again=again)))
        lines.check()
        return pairs, values, len(repeats)

    def pairs(self) -> tuple[Pairs, npt.NDArray[Any], list[Repeat]]:
        """Return the first of equal pairs, queries in the order of their first pair; and the others, as in the file."""
        queries, documents = np.array(self._queries, np.int32), np.array(self._documents, np.int32)
        values, width = np.array(self._values, self._kind), len(self._document_ids)
        keys = queries * np.int64(width) + documents
        distinct, first = np.unique(keys, return_index=True)
        again = np.setdiff1d(np.arange(len(keys)), first, assume_unique=True)
        before = first[np.searchsorted(distinct, keys[again])]
        lines = np.array(self._lines, np.int32)
        columns = lines[again], queries[again], documents[again], values[again], values[before]
        repeats = [Repeat(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
        kept = np.sort(first)
        rows, start, owner, sizes = np.unique(
            queries[kept], return_index=True, return_inverse=True, return_counts=True
        )
        order, by_start = kept[np.argsort(start[owner], kind="stable")], np.argsort(start)
        starts = _ends(sizes[by_start])
        pairs = Pairs(rows[by_start].astype(np.int64), starts, documents[order])
        return pairs, values[order], repeats
