"""Judged pairs of a collection, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fullrank.encoding import Float32, Float64, Int64
from fullrank.errors import TrainingError
from fullrank_trainer.collection import Collection
from fullrank_trainer.collection.judgements import MIN_PEOPLE, PairTable

Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Lists(Mapping[int, Int64]):
    """A list for each of some rows.

    Attributes:
        rows: int64 (B,), distinct.
        starts: int64 (B + 1,); row i of ``rows`` has the entries starts[i]:starts[i + 1].
        entries: int64 (entries,).
    """

    rows: Int64
    starts: Int64
    entries: Int64

    @staticmethod
    def of(given: Mapping[int, Int64]) -> Lists:
        starts = np.zeros(len(given) + 1, np.int64)
        np.cumsum([len(found) for found in given.values()], out=starts[1:])
        entries = np.concatenate([np.zeros(0, np.int64), *given.values()], dtype=np.int64)
        return Lists(np.array([*given], np.int64), starts, entries)

    def __getitem__(self, row: int) -> Int64:
        return self.entries[self.slice_of(row)]

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int | np.integer) and bool(self._places(np.array([row]))[0] >= 0)

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows.tolist())

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes(self) -> Int64:
        """The length of each list, int64 (B,)."""
        return np.diff(self.starts)

    @property
    def owners(self) -> Int64:
        """The row that each entry belongs to, int64 (entries,)."""
        return np.repeat(self.rows, self.sizes)

    def matrix(self, rows: int, columns: int) -> sp.csr_array[np.float32]:
        """Return ones where a row has an entry, (rows, columns)."""
        ones = np.ones(len(self.entries), np.float32)
        return sp.csr_array((ones, (self.owners, self.entries)), shape=(rows, columns))

    def slice_of(self, row: int) -> slice:
        """Return the places of the entries of a row. Raises KeyError if it has no list."""
        place = int(self._places(np.array([row]))[0])
        if place < 0:
            raise KeyError(row)
        return slice(int(self.starts[place]), int(self.starts[place + 1]))

    def places(self, rows: Int64) -> tuple[Int64, Int64]:
        """Return starts, int64 (rows + 1,), and the places in ``entries`` of some rows' lists. Raises KeyError."""
        found = self._places(rows)
        if found.min(initial=0) < 0:
            raise KeyError(int(rows[found < 0][0]))
        first, sizes = self.starts[found], self.starts[found + 1] - self.starts[found]
        starts = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(sizes, out=starts[1:])
        return starts, np.arange(starts[-1]) + np.repeat(first - starts[:-1], sizes)

    def take(self, rows: Int64) -> tuple[Int64, Int64]:
        """Return the lists of some rows one after another: starts, as ``places`` does, and the entries."""
        if np.array_equal(rows, self.rows):
            return self.starts, self.entries
        starts, places = self.places(rows)
        return starts, self.entries[places]

    def of_rows(self, rows: Int64) -> Lists:
        """Return the lists that some rows have, in the order of these rows."""
        rows = rows[self._places(rows) >= 0]
        return Lists(rows, *self.take(rows))

    def among(self, rows: Int64) -> Lists:
        """Return the lists of the rows that are among some, in their own order."""
        return self.of_rows(self.rows[np.isin(self.rows, rows)])

    def where(self, kept: Bool) -> Lists:
        """Keep some entries, bool (entries,), and the rows that have any."""
        if kept.all() and (self.sizes > 0).all():
            return self
        # int32, because a number of 8 bytes for each entry would be the largest array here.
        before = np.cumsum(kept, dtype=np.int32 if len(kept) < 2**31 else np.int64)
        starts = np.zeros(len(self.starts), np.int64)
        starts[self.starts > 0] = before[self.starts[self.starts > 0] - 1]
        has_any = starts[1:] > starts[:-1]
        return Lists(
            self.rows[has_any], np.append(starts[:-1][has_any], starts[-1]), self.entries[kept]
        )

    def joined(self, other: Lists) -> Lists:
        """Return these lists, then those of other rows."""
        return Lists(
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.starts, other.starts[1:] + self.starts[-1]]),
            np.concatenate([self.entries, other.entries]),
        )

    @cached_property
    def _ascending(self) -> tuple[Int64, Int64] | None:
        """The rows ascending, and the place of each; None if they ascend already."""
        if (self.rows[1:] > self.rows[:-1]).all():
            return None
        order = np.argsort(self.rows)
        return self.rows[order], order

    def _places(self, rows: Int64) -> Int64:
        known, order = self._ascending or (self.rows, None)
        if not len(known):
            return np.full(len(rows), -1, np.int64)
        places = known.searchsorted(rows)
        places[places == len(known)] = 0
        missing = known[places] != rows
        if order is not None:
            places = order[places]
        places[missing] = -1
        return places


def ragged(lists: Sequence[Int64]) -> tuple[Int64, Int64]:
    """Return (indptr, values); list i is ``values[indptr[i]:indptr[i + 1]]``."""
    indptr = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(x) for x in lists], out=indptr[1:])
    return indptr, np.concatenate(lists).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Judged pairs of one split.

    Attributes:
        relevant: query row → rows of its relevant documents, ascending; each entry is a pair.
        source: the qrels file, for error messages.
        weights: of the pairs, float32 (pairs,), above zero; None: all alike.
        shared: which pairs at least two people clicked, bool (pairs,); None: all.
        passed_over: query row → rows of documents that people passed over on the way to a click, ascending.
        judged: rows of the judged documents, int64, ascending, if these pairs are a part of those that judge them.
    """

    relevant: Lists
    source: str = "qrels/train.tsv"
    weights: Float32 | None = None
    shared: Bool | None = None
    passed_over: Lists = field(default_factory=lambda: Lists.of({}))
    judged: Int64 | None = None

    def __len__(self) -> int:
        return len(self.relevant.entries)

    @staticmethod
    def of(
        relevant: Mapping[int, Int64],
        *,
        weights: Mapping[int, Float32] | None = None,
        shared: Mapping[int, Bool] | None = None,
        passed_over: Mapping[int, Int64] | None = None,
        source: str = "qrels/train.tsv",
    ) -> Pairs:
        """Make pairs of arrays by query row; weights and shared have the rows of ``relevant``."""

        def flat(given: Mapping[int, npt.NDArray[Any]] | None, kind: npt.DTypeLike) -> Any:
            if given is None:
                return None
            return np.concatenate([np.zeros(0, kind), *(given[row] for row in relevant)]).astype(
                kind
            )

        return Pairs(
            Lists.of(relevant),
            source,
            flat(weights, np.float32),
            flat(shared, np.bool_),
            Lists.of(passed_over or {}),
        )

    @cached_property
    def queries(self) -> Int64:
        """The rows of the queries with a relevant document, int64, ascending."""
        return np.sort(self.relevant.rows)

    @cached_property
    def documents(self) -> Int64:
        """The rows of the judged documents, int64, ascending."""
        if self.judged is not None:
            return self.judged
        return np.flatnonzero(np.bincount(self.relevant.entries))

    @property
    def clicked(self) -> Lists:
        """Query row → rows of the documents whose clicked text it becomes."""
        return self.relevant if self.shared is None else self.relevant.where(self.shared)

    def keep(self, choose: Callable[[int, Int64], Bool]) -> Pairs:
        """Return the pairs that ``choose`` keeps, given a query's row and the rows of its relevant documents."""
        nothing = np.zeros(0, np.bool_)
        chosen = (choose(row, found) for row, found in self.relevant.items())
        return self.where(np.concatenate([nothing, *chosen]))

    def where(self, kept: Bool) -> Pairs:
        relevant = self.relevant.where(kept)
        return replace(
            self,
            relevant=relevant,
            weights=None if self.weights is None else self.weights[kept],
            shared=None if self.shared is None else self.shared[kept],
            passed_over=self.passed_over.among(relevant.rows),
            judged=None,
        )

    def of_queries(self, queries: Int64) -> Pairs:
        """Return the pairs of some queries, given by row, ascending. All judged documents stay judged."""
        starts, places = self.relevant.places(queries)
        return Pairs(
            Lists(queries, starts, self.relevant.entries[places]),
            self.source,
            None if self.weights is None else self.weights[places],
            None if self.shared is None else self.shared[places],
            self.passed_over.of_rows(queries),
            self.documents,
        )

    def with_queries_of(self, other: Pairs) -> Pairs:
        """Return these pairs and those of queries that have none here.

        Weights of the others are at most the largest of these: in a split that measures, a judgement of a click that
        was unlikely counts up to ten times.
        """
        new = other.keep(lambda query, rows: np.full(len(rows), query not in self.relevant))
        weights, shared = self.weights, self.shared
        if weights is not None:
            given = np.ones(len(new), np.float32) if new.weights is None else new.weights
            given = np.minimum(given, weights.max(initial=1.0))
            weights = np.concatenate([weights, given])
        if shared is not None:
            clicked = np.ones(len(new), np.bool_) if new.shared is None else new.shared
            shared = np.concatenate([shared, clicked])
        relevant = self.relevant.joined(new.relevant)
        return Pairs(
            relevant, self.source, weights, shared, self.passed_over.joined(new.passed_over)
        )

    def weights_of(self, queries: Int64) -> Float32 | None:
        """Return the weights of the pairs of some queries, one query after another; None without weights."""
        return None if self.weights is None else self.weights[self.relevant.places(queries)[1]]

    def weight_of(self, query: int, documents: Int64) -> Float32:
        """Return the weights of some of a query's relevant documents, ascending; 1 without weights."""
        if self.weights is None:
            return np.ones(len(documents), np.float32)
        own = self.relevant.slice_of(query)
        return self.weights[own][np.searchsorted(self.relevant.entries[own], documents)]

    def require(self) -> None:
        if not len(self):
            raise TrainingError(
                f"{self.source}: no judged pair to learn from. Add judgements of known documents, or "
                "leave out --recipe: the default needs none"
            )


def judged_pairs(collection: Collection, split: str) -> Pairs:
    """Return the judged pairs of a split as rows; empty if the split does not exist."""
    source = str(collection.path / "qrels" / f"{split}.tsv")
    if split not in collection.splits:
        return Pairs.of({}, source=source)
    table = PairTable.of(collection.qrels(split), collection.query_ids, collection.document_ids)
    is_relevant = table.entries > 0
    if collection.has_mates:
        mates = mate_rows(collection)[table.queries]
        is_relevant &= np.repeat(mates, np.diff(table.starts)) != table.documents
    relevant = _lists_of(table, is_relevant)
    weights, people = (
        None
        if split not in given
        else _entries_of(
            PairTable.of(given[split], collection.query_ids, collection.document_ids),
            relevant,
            default,
        )
        for given, default in ((collection.weights, 1.0), (collection.people, MIN_PEOPLE))
    )
    return Pairs(
        relevant,
        source,
        None if weights is None else weights.astype(np.float32),
        None if people is None else people >= MIN_PEOPLE,
        _lists_of(table, table.entries < 0).among(relevant.rows),
    )


def mate_rows(collection: Collection) -> Int64:
    """Return the row of each query's mate, int64 (queries,); -1 if it has none."""
    if not collection.has_mates:
        return np.full(len(collection.query_ids), -1, np.int64)
    rows = collection.document_ids.rows
    return np.array([rows[query] for query in collection.query_ids], np.int64)


def _lists_of(table: PairTable[int], chosen: Bool) -> Lists:
    """Return the documents of the chosen pairs of each query, ascending; queries in the order of the table."""
    found = Lists(table.queries.astype(np.int64), table.starts, table.documents).where(chosen)  # type: ignore[arg-type]
    width = len(table.document_ids)
    places = np.repeat(np.arange(len(found)) * width, found.sizes)
    places += found.entries
    places.sort()
    places %= width
    return replace(found, entries=places.astype(np.int64, copy=False))


def _entries_of(table: PairTable[float], pairs: Lists, default: float) -> Float64:
    """Return the value of each of some pairs, float64 (pairs,); a default where the table has none."""
    width = len(table.document_ids)
    known = np.repeat(table.queries.astype(np.int64), np.diff(table.starts)) * width
    known += table.documents
    order = np.argsort(known)
    asked = pairs.owners * width + pairs.entries
    places = np.searchsorted(known, asked, sorter=order)
    places[places == len(known)] = 0
    found = np.full(len(asked), default, np.float64)
    if len(known):
        places = order[places]
        has_value = known[places] == asked
        found[has_value] = table.entries[places[has_value]]
    return found
