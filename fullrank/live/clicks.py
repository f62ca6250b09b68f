"""Clicks that a bundle has not learned yet, as additions to its scores.

    w_q · ln(1 + n′_qd / (κ + n_qd))      n′_qd: new clicks on d after the query, n_qd: those that it learned
    w_d · ln(1 + n′_d / (1 + n_d))        n′_d:  new clicks on d after any query

With them a document scores as if the parts of the blend that remember clicks (fullrank.models.memory) had counted all
of them. No addition is below 0, so the best k are among the best k without additions and the documents that have some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from heapq import nlargest
from typing import NamedTuple, Protocol

import numpy as np

from fullrank.encoding import Encoded, Float64, Int32, Int64
from fullrank.live.ids import hashes_of
from fullrank.models.clicks import ClickParts
from fullrank.models.contract import warm
from fullrank.models.memory import MemoryModel
from fullrank.retrieval import Retriever
from fullrank.storage.documents import DocumentStore
from fullrank.storage.strings import Lexicon, Names

MAX_QUERIES, MAX_DOCUMENTS, MAX_CLICKED = 20_000, 1_000, 100
"""Queries, documents, and documents of a query whose new clicks count: the most clicked ones."""
_MAX_CACHED = 1_000


class Part(Protocol):
    """Documents that are searched together, as ``fullrank.live.part`` has them."""

    @property
    def key(self) -> str: ...
    @property
    def store(self) -> DocumentStore: ...
    @property
    def retriever(self) -> Retriever: ...
    @property
    def features(self) -> Int32 | None: ...
    def row(self, id: str) -> int | None: ...
    def live_rows(self, ids: Sequence[str], hashes: Int64) -> Int64: ...


class Added(NamedTuple):
    """What new clicks add to the scores of some documents.

    Attributes:
        rows: int64 (r,), ascending.
        lexical: float64 (r,), clicks after the query.
        bias: float64 (r,), clicks after any query.
    """

    rows: Int64
    lexical: Float64
    bias: Float64

    def of(self, rows: Int64) -> tuple[Float64, Float64]:
        """Return the additions to given documents, 0 for those that have none."""
        place = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        has = self.rows[place] == rows
        return np.where(has, self.lexical[place], 0.0), np.where(has, self.bias[place], 0.0)


@dataclass(frozen=True, eq=False)
class ClickedQuery(Encoded):
    """An encoded query, with the new clicks that count for it.

    Attributes:
        clicks: Those of the bundle.
        key: Its key among queries with new clicks, or among those that the bundle knows; None: it is in neither.
    """

    clicks: NewClicks
    key: str | None


@dataclass(frozen=True, eq=False)
class NewClicks:
    """Clicks that a bundle has not learned.

    Attributes:
        parts: Of its model.
        queries: The keys of queries with new clicks; typing errors are corrected as among known queries.
        of_query: Of each of these keys, the clicks by id of the document.
        of_document: Clicks by id.
    """

    parts: ClickParts
    queries: MemoryModel
    of_query: Sequence[Mapping[str, int]]
    of_document: Mapping[str, int]
    _popular: dict[str, tuple[Int64, Float64]] = field(default_factory=dict)
    _added: dict[tuple[str, str | None], Added | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls, parts: ClickParts | None, votes: Iterable[tuple[str, str, int]]
    ) -> NewClicks | None:
        """Count clicks.

        Args:
            parts: Of the bundle's model.
            votes: Query, id of the document, and how often it was clicked; most queries are repeated.

        Returns:
            The counts; None if the model counts no clicks.
        """
        if parts is None:
            return None
        of_query = defaultdict[str, dict[str, int]](dict)
        of_document: dict[str, int] = {}
        keys: dict[str, str | None] = {}
        for text, id, count in votes:
            if text not in keys:
                keys[text] = parts.key(text)
            of_document[id] = of_document.get(id, 0) + count
            if (key := keys[text]) is not None:
                of_query[key][id] = of_query[key].get(id, 0) + count
        kept = nlargest(MAX_QUERIES, of_query, key=lambda key: (sum(of_query[key].values()), key))
        totals = np.array([sum(of_query[key].values()) for key in kept], np.float32)
        queries = MemoryModel(Lexicon.of(kept), totals, parts.known.kappa, is_of_queries=True)
        warm(queries)
        several = [_most_clicked(of_query[key], MAX_CLICKED) for key in kept]
        return cls(parts, queries, several, _most_clicked(of_document, MAX_DOCUMENTS))

    def key(self, text: str) -> str | None:
        """Return the key of a query among those with learned or new clicks; None: it is in neither."""
        for queries in (self.parts.known, self.queries):
            if (row := queries.find(text)) >= 0:
                return queries.queries[row]
        return None

    def asked(self, query: Encoded, key: str | None) -> ClickedQuery:
        """Return a query for whose key the new clicks count."""
        return ClickedQuery(query.dense, query.sparse, query.bias, self, key)

    def of_one(self, key: str, clicked: Mapping[str, int]) -> NewClicks:
        """Return the same clicks after any query, with given ones after one query."""
        queries = replace(self.queries, queries=Lexicon.of([key]), clicks=np.ones(1, np.float32))
        return replace(self, queries=queries, of_query=[clicked], _added={})

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the clicks after any query."""
        return blake2b(repr(sorted(self.of_document.items())).encode(), digest_size=8).hexdigest()

    def added(self, part: Part, key: str | None) -> Added | None:
        """Return the additions to the documents of a part, those of removed ones too; None without any."""
        place = part.key, key
        try:
            return self._added[place]
        except KeyError:
            found = self._add(part, key)
        if len(self._added) >= _MAX_CACHED:
            self._added.clear()
        self._added[place] = found
        return found

    def _add(self, part: Part, key: str | None) -> Added | None:
        # The key of a part outlives the removal of its documents, which the search leaves out.
        popular, bias = self._popular_in(part)
        clicks = {} if key is None else self.clicked(key)
        found = sorted((row, n) for id, n in clicks.items() if (row := part.row(id)) is not None)
        clicked, counts = np.array(found, np.int64).reshape(-1, 2).T
        rows = np.union1d(popular, clicked)
        if not len(rows):
            return None
        added = Added(rows, np.zeros(len(rows)), np.zeros(len(rows)))
        added.bias[np.searchsorted(rows, popular)] = bias
        n = self.parts.known.kappa + self.parts.learned(
            part.retriever.documents, clicked, key, part.features
        )
        added.lexical[np.searchsorted(rows, clicked)] = self.parts.weight * np.log1p(counts / n)
        return added

    def _popular_in(self, part: Part) -> tuple[Int64, Float64]:
        """Return rows, ascending, and what clicks after any query add to them."""
        found = self._popular.get(part.key)
        if found is None:
            weight, start = self.parts.popularity
            rows = np.sort(part.live_rows(*self._ids)) if weight else np.zeros(0, np.int64)
            counts = [self.of_document[part.store.ids[row]] for row in rows.tolist()]
            n = self.parts.learned(part.retriever.documents, rows, features=part.features)
            # One that nobody had clicked before has the bias of a document without clicks instead of ln 1.
            more = np.log1p(np.array(counts) / (1 + n)) - np.where(n > 0, 0.0, start)
            found = rows, weight * np.maximum(more, 0.0)
            if len(self._popular) >= _MAX_CACHED:
                self._popular.clear()
            self._popular[part.key] = found
        return found

    @cached_property
    def _ids(self) -> tuple[Names, Int64]:
        ids = Names(self.of_document)
        return ids, hashes_of(ids)

    def clicked(self, key: str) -> Mapping[str, int]:
        """Return the new clicks after a query, by id of the document."""
        row = self.queries.queries.find(key) if len(self.of_query) else -1
        return {} if row < 0 else self.of_query[row]


def _most_clicked(clicks: Mapping[str, int], most: int) -> dict[str, int]:
    return dict(nlargest(most, clicks.items(), key=lambda item: (item[1], item[0])))
