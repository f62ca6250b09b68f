"""Documents that are searched together: those of a bundle, or of one segment of live documents."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from heapq import nlargest
from typing import Any, NamedTuple

import numpy as np

from fullrank.filters.columns import Columns
from fullrank.kernels import rows as kernels
from fullrank.kernels.compiler import direct
from fullrank.models.clicks import ClickParts, ClickShare
from fullrank.models.contract import warm
from fullrank.models.memory import MemoryModel
from fullrank.models.unseen import without_unseen
from fullrank.retrieval import Floor, Mask, Ranking, Required, Retriever
from fullrank.retrieval.ranking import Choice
from fullrank.retrieval.retriever import Explanation, explain, largest
from fullrank.retrieval.scoring import InnerProduct, TermShare, WordScore
from fullrank.search.rerank.facts import DocumentFacts
from fullrank.storage.encoding import Encoded, Float64, Int32, Int64, Rows
from fullrank.storage.records import used_columns
from fullrank.storage.strings import DocumentStore, Lexicon, Names

find_columns = direct(kernels.find_columns)
# A mask is as long as all documents, so up to this many removed ones are ranked too and left out afterwards.
_MAX_EXTRA_HITS = 64


@dataclass(frozen=True, eq=False)
class Part:
    """Documents in ascending id order, some of them removed.

    Attributes:
        key: Cache key of the documents, e.g. for bitmaps of filters.
        fields: Columns of the stored fields, or the bundle that has them.
        features: int32, ascending: the model's feature of each sparse column, so that a small segment is not as wide as
            the model. None if the columns are the model's. Each is one of a document, perhaps of a removed one.
        removed: bool (n,), True for documents replaced or deleted later; None if there are no such documents.
        facts: About the documents, for the second stage; None: the bundle has no second stage.
        new_words: Words of the documents that the model was not trained on, ascending; some may be those of removed
            documents alone, which ``has_features`` tells.
    """

    key: str
    store: DocumentStore
    retriever: Retriever
    fields: Columns | Any
    features: Int32 | None = None
    removed: Mask | None = None
    facts: DocumentFacts | None = None
    new_words: Sequence[str] = ()

    def __len__(self) -> int:
        """Number of documents, with those removed."""
        return len(self.store)

    @cached_property
    def n_removed(self) -> int:
        return 0 if self.removed is None else int(np.count_nonzero(self.removed))

    @property
    def n_live(self) -> int:
        return len(self) - self.n_removed

    @property
    def columns(self) -> Columns:
        """The stored fields as columns; those of a bundle are opened on first use."""
        columns: Columns = self.fields if isinstance(self.fields, Columns) else self.fields.columns
        return columns

    def row(self, id: str) -> int | None:
        try:
            row = self.store.row(id)
        except KeyError:
            return None
        return None if self.removed is not None and self.removed[row] else row

    def live_rows(self, ids: Sequence[str]) -> Int64:
        """Return the rows of those ids that are in this part and not removed, in the order of the ids."""
        found = self.store.rows(ids)
        rows = found[found >= 0].astype(np.int64)
        return rows if self.removed is None else rows[~self.removed[rows]]

    def remove(self, rows: Int64) -> Part:
        """Return this part with more documents removed."""
        if not len(rows):
            return self
        removed = np.zeros(len(self), np.bool_) if self.removed is None else self.removed.copy()
        removed[rows] = True
        return replace(self, removed=removed)

    def has_features(self, features: Int32 | Sequence[int]) -> Mask:
        """Return whether a document that is not removed has each sparse feature of the model, bool."""
        wanted = np.asarray(features, np.int32)
        if self.features is None:
            return np.asarray(self._present[wanted])
        columns = np.searchsorted(self.features, wanted)
        found: Mask = columns < len(self.features)
        columns = columns[found]
        found[found] = (self.features[columns] == wanted[found]) & self._present[columns]
        return found

    @cached_property
    def _present(self) -> Mask:
        """bool (width,), True for sparse columns of documents that are not removed."""
        documents = self.retriever.documents
        if self.removed is None and self.features is not None:
            return np.ones(documents.width, np.bool_)
        return used_columns(documents, self.removed)

    def search(
        self,
        query: Encoded,
        limit: int,
        *,
        offset: int,
        deleted: Mask | None,
        mode: str,
        least: float = -math.inf,
        floor: Floor | None = None,
        counted: int | None = None,
    ) -> Ranking:
        """Rank the documents for one query, encoded in the features of the model.

        Arguments are those of ``Retriever.search``; ``deleted`` must include ``removed``.
        """
        added, own = self._added(query), self.project(query)
        floor_here = None if floor is None else self._project_floor(floor)
        first, count, low = offset, limit, least
        if added is not None:
            # One that is not among these scores at most `least` without its clicks, and these add at most so much.
            first, count, low = 0, offset + limit, least - float(added.bias.max())
        if (
            deleted is None
            or deleted is not self.removed
            or self.n_removed > _MAX_EXTRA_HITS
            or (counted is not None)
        ):
            [raw] = self.retriever.search(
                own, count, offset=first, deleted=deleted, mode=mode, least=low,
                floor=floor_here, counted=counted,
            )  # fmt: skip
        else:
            wanted = first + count + self.n_removed
            [raw] = self.retriever.search(own, wanted, mode=mode, least=low, floor=floor_here)
            kept = np.flatnonzero(~deleted[raw.rows])[first : first + count]
            raw = replace(raw.take(kept), total=raw.total - self.n_removed)
        if added is None:
            return raw
        found = raw.raised(*added.of(raw.rows))
        rest = self._left(added.rows[~np.isin(added.rows, raw.rows)], deleted)
        if len(raw.rows) == count:
            least = max(least, float(found.scores.min()))
        elif floor is None or floor.score is None:
            rest = rest[added.of(rest)[0] > 0]  # only clicks after the query are evidence
        more, new = self._clicked(query, added, rest, floor, least)
        both = found.with_others(more)
        if both.found is not None:
            both = replace(both, found=both.found + len(new))
        return both.take(np.lexsort((both.rows, -both.scores))[offset:count])

    def _added(self, query: Encoded) -> Added | None:
        if not isinstance(query, Query) or query.clicks is None:
            return None
        return query.clicks.added(self, query.key)

    def _left(self, rows: Int64, deleted: Mask | None) -> Int64:
        mask = self.removed if deleted is None else deleted
        return rows if mask is None else rows[~mask[rows]]

    def _clicked(
        self,
        query: Encoded,
        added: Added,
        rows: Int64,
        floor: Floor | None,
        least: float = math.inf,
    ) -> tuple[Ranking, Int64]:
        """Score documents with new clicks.

        Returns:
            Those that reach a floor and a score, in no order, and the rows that only reach the floor with their clicks.
        """
        dense, lexical, bias = self.retriever.score_parts(self.project(query), rows)
        raw = Ranking(rows, dense + lexical + bias, dense, lexical, bias, True, len(rows))
        clicks = added.of(rows)
        found = raw.raised(*clicks)
        if floor is None:
            return found.take(np.flatnonzero(found.scores >= least)), rows[:0]
        # Clicks after a query are evidence, but not for a score that the request asks for.
        own = floor.reached(found.dense, found.lexical, found.bias)
        own |= (clicks[0] > 0) & (floor.score is None)
        unsure = np.flatnonzero(own | (found.scores >= least))
        has_word = np.zeros(len(rows), np.bool_)
        has_word[unsure] = self._having(rows[unsure], self._project_floor(floor).words)
        is_new = own & ~has_word & ~floor.reached(dense, lexical, bias)
        reached = (own | has_word) & (found.scores >= least)
        return found.take(np.flatnonzero(reached)), rows[is_new]

    def _new(self, query: Encoded, floor: Floor, deleted: Mask | None) -> Int64:
        """Return the rows of the documents that only reach a floor with new clicks."""
        added = self._added(query)
        if added is None:
            return np.zeros(0, np.int64)
        rows = added.rows if floor.score is not None else added.rows[added.lexical > 0]
        return self._clicked(query, added, self._left(rows, deleted), floor)[1]

    def _having(self, rows: Int64, columns: Sequence[int]) -> Mask:
        has = np.zeros(len(rows), np.bool_)
        if columns and len(rows) and isinstance(self.retriever.scorer, InnerProduct):
            found, places = self.retriever.documents.fetch(rows)
            entries = found.sparse.take(places)
            has[
                np.repeat(np.arange(len(rows)), np.diff(entries.indptr))[
                    np.isin(entries.indices, columns)
                ]
            ] = True
        return has

    def score_parts(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64, Float64]:
        """Return (dense, lexical, bias) of one query for the given documents, float64 (rows,) each."""
        dense, lexical, bias = self.retriever.score_parts(self.project(query), rows)
        added = self._added(query)
        if added is None:
            return dense, lexical, bias
        clicks = added.of(rows)
        return dense, lexical + clicks[0], bias + clicks[1]

    def words_had(self, required: Required) -> Int64:
        """Return which words each document has, as ``Retriever.words_had`` does."""
        words = tuple(map(self._columns, required.words))
        return self.retriever.words_had(
            required._replace(words=words, kept=self._columns(required.kept))
        )

    def lacking(
        self, required: Required, bits: Int64, choice: Choice, deleted: Mask | None, query: Encoded
    ) -> Mask | None:
        """Return ``deleted`` with documents that lack words; auto leaves those with new clicks after the query."""
        mask = required.lacking(bits, choice, deleted)
        added = self._added(query) if required.is_auto and mask is not deleted else None
        if mask is not None and added is not None:
            clicked = added.rows[added.lexical > 0]
            mask[clicked] = False if deleted is None else deleted[clicked]
        return mask

    def count(self, query: Encoded, floor: Floor, most: int, deleted: Mask | None) -> int:
        """Return how many documents reach a floor, or ``most`` + 1 if these are more; arguments as for ``search``."""
        own = self._project_floor(floor)
        found = self.retriever.count(self.project(query), own, most, deleted=deleted)
        found += len(self._new(query, floor, deleted))
        return min(found, most + 1)

    def below(self, query: Encoded, floor: Floor, deleted: Mask | None) -> Mask:
        """Return bool (n,), True for documents that do not reach the floor or are to be left out."""
        mask = np.ones(len(self), np.bool_)
        own = self._project_floor(floor)
        mask[self.retriever.reaching(self.project(query), own, deleted=deleted)] = False
        mask[self._new(query, floor, deleted)] = False
        return mask

    def project(self, query: Encoded) -> Encoded:
        """Return a query in the sparse columns of these documents."""
        width = self.retriever.documents.width
        if self.features is None:
            return without_unseen(query, width)
        found = find_columns(self.features, query.sparse.indices, query.sparse.values)
        return _with_sparse(query, *found, width)

    def _project_floor(self, floor: Floor) -> Floor:
        """Return a floor with its words in the sparse columns of these documents."""
        words = self._columns(floor.words)
        return floor if words == floor.words else replace(floor, words=words)

    def _columns(self, words: tuple[int, ...]) -> tuple[int, ...]:
        if self.features is None:
            return words[: bisect_left(words, self.retriever.documents.width)]
        own, _ = find_columns(
            self.features, np.array(words, np.int32), np.ones(len(words), np.float32)
        )
        return tuple(own.tolist())

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> Explanation:
        """Split the score of one document; terms: as the model's ``query_terms`` returns them."""
        found = self._explain(terms, query, row)
        added = self._added(query)
        if added is None or not isinstance(query, Query) or query.clicks is None:
            return found
        [lexical], [bias] = (more.tolist() for more in added.of(np.array([row])))
        words = {word.word: word for word in found.words}
        if lexical:
            name = f"“{query.key}”"
            word = words.get(name, WordScore(name, 0.0, 0.0))
            words[name] = word._replace(lexical=word.lexical + lexical)
        return Explanation(
            found.dense, found.lexical + lexical, found.bias + bias, largest([*words.values()])
        )

    def clicks(self, learned: ClickParts, query: Encoded, key: str | None, row: int) -> ClickShare:
        """Return what clicks add to the score of one document; key: of the query among known ones, or None."""
        found = learned.share(self.retriever.documents, row, key, self.features)
        added = self._added(query)
        if added is None or not isinstance(query, Query) or query.clicks is None:
            return found
        [lexical], [bias] = (more.tolist() for more in added.of(np.array([row])))
        id, n = self.store.ids[row], 0
        if key is not None:
            n = query.clicks.clicked(key).get(id, 0)
        return ClickShare(
            found.after_query + n,
            found.lexical + lexical,
            found.in_all + query.clicks.of_document.get(id, 0),
            found.bias + bias,
        )

    def _explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> Explanation:
        if self.features is None:
            return explain(terms, self.retriever, self.project(query), row)
        document = self.retriever.documents.slice(row, row + 1)
        sparse = document.sparse
        document = _with_sparse(
            document, self.features[sparse.indices], sparse.values, query.sparse.width
        )
        return explain(terms, Retriever(document), query, 0)


def _with_sparse(text: Encoded, indices: Int32, weights: np.ndarray, width: int) -> Encoded:
    indptr = np.array([0, len(indices)], np.int64)
    return Encoded(text.dense, Rows(indptr, indices, weights, width), text.bias)


# Clicks that a bundle has not learned yet, as additions to its scores.
#
#     w_q · ln(1 + n′_qd / (κ + n_qd))      n′_qd: new clicks on d after the query, n_qd: those that it learned
#     w_d · ln(1 + n′_d / (1 + n_d))        n′_d:  new clicks on d after any query
#
# With them a document scores as if the parts of the blend that remember clicks (fullrank.models.memory) had counted
# all of them. No addition is below 0, so the best k are among the best k without additions and the documents that have
# some.

MAX_QUERIES, MAX_DOCUMENTS, MAX_CLICKED = 20_000, 1_000, 100
"""Queries, documents, and documents of a query whose new clicks count: the most clicked ones."""
_MAX_CACHED = 1_000


class Added(NamedTuple):
    """What new clicks add to the scores of some documents, rows ascending: after the query, and after any."""

    rows: Int64
    lexical: Float64
    bias: Float64

    def of(self, rows: Int64) -> tuple[Float64, Float64]:
        """Return the additions to given documents, 0 for those that have none."""
        place = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        has = self.rows[place] == rows
        return np.where(has, self.lexical[place], 0.0), np.where(has, self.bias[place], 0.0)


@dataclass(frozen=True, eq=False)
class Query(Encoded):
    """An encoded query, and how to search for it. A plain ``Encoded`` is searched by its score alone.

    Attributes:
        text: As it was typed.
        floor: What a document must reach to be found; None: every document is found.
        required: Words that a document must have; None: none.
        is_reordered: Whether the second stage reorders the first documents.
        find_terms: Returns what each addition gave the query, for explanations.
        clicks: New clicks that count.
        key: Among queries with new clicks, or among those that the bundle knows; None: it is in neither.
    """

    text: str = ""
    floor: Floor | None = None
    required: Required | None = None
    is_reordered: bool = False
    find_terms: Callable[[], list[TermShare]] = list
    clicks: NewClicks | None = None
    key: str | None = None

    @staticmethod
    def from_encoded(encoded: Encoded, **more: Any) -> Query:
        """Return an encoded query with more attributes; those of a Query stay."""
        if isinstance(encoded, Query):
            return replace(encoded, **more) if more else encoded
        return Query(encoded.dense, encoded.sparse, encoded.bias, **more)


@dataclass(frozen=True, eq=False)
class NewClicks:
    """Clicks that a bundle has not learned.

    Attributes:
        parts: Of its model.
        queries: The keys of queries with new clicks; typing errors are corrected as among known queries.
        of_query, of_document: The clicks by id of the document, of each of these keys and after any query.
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
        """Count votes (query, id, clicks); most queries are repeated. None if the model counts no clicks."""
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

    def asked(self, query: Encoded, key: str | None) -> Query:
        return Query.from_encoded(query, clicks=self, key=key)

    def of_one(self, key: str, clicked: Mapping[str, int]) -> NewClicks:
        """Return the same clicks after any query, with given ones after one query."""
        queries = replace(self.queries, queries=Lexicon.of([key]), clicks=np.ones(1, np.float32))
        return replace(self, queries=queries, of_query=[clicked], _added={})

    @cached_property
    def fingerprint(self) -> str:
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
            rows = np.sort(part.live_rows(self._ids)) if weight else np.zeros(0, np.int64)
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
    def _ids(self) -> Names:
        return Names(self.of_document)

    def clicked(self, key: str) -> Mapping[str, int]:
        """Return the new clicks after a query, by id of the document."""
        row = self.queries.queries.find(key) if len(self.of_query) else -1
        return {} if row < 0 else self.of_query[row]


def _most_clicked(clicks: Mapping[str, int], most: int) -> dict[str, int]:
    return dict(nlargest(most, clicks.items(), key=lambda item: (item[1], item[0])))
