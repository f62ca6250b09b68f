"""Some documents of a view and how they are searched: those of the bundle, or of one segment of added ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fullrank.bundle.catalog import Bundle
from fullrank.columns import Columns
from fullrank.encoding import Encoded, Int32
from fullrank.explain import Explanation, explain
from fullrank.model import TermShare
from fullrank.retrieval import Mask, Ranking, Retriever
from fullrank.storage.documents import DocumentStore
from fullrank.unseen.columns import known

# Up to so many documents that are gone are searched with the others.
_FEW = 64


@dataclass(frozen=True, eq=False)
class Part:
    """Documents in ascending id order, some of them gone.

    key        what is remembered of these documents elsewhere, a filter's bitmap, is remembered under
    store      ids and stored fields
    retriever  over the documents
    features   int32, ascending: the sparse feature that each column of the retriever stands for, so that a segment of
               few documents is not as wide as the model; None where they are the model's own
    removed    bool (n,): replaced or deleted since; None where none is
    fields     the stored fields of a segment as columns, or the bundle whose documents these are
    """

    key: str
    store: DocumentStore
    retriever: Retriever
    fields: Columns | Bundle
    features: Int32 | None = None
    removed: Mask | None = None

    @classmethod
    def of(cls, bundle: Bundle) -> Part:
        """The documents of a bundle, all of them."""
        return cls(bundle.bundle_id, bundle.documents, bundle.retriever, bundle)

    def __len__(self) -> int:
        """Documents, those that are gone among them."""
        return len(self.store)

    @cached_property
    def gone(self) -> int:
        """Documents that are."""
        return 0 if self.removed is None else int(np.count_nonzero(self.removed))

    @property
    def live(self) -> int:
        """Documents that are not gone."""
        return len(self) - self.gone

    @property
    def columns(self) -> Columns:
        """The stored fields as columns."""
        return self.fields if isinstance(self.fields, Columns) else self.fields.columns

    def row(self, id: str) -> int | None:
        """The row of a document; None where it is not here, or gone."""
        try:
            row = self.store.row(id)
        except KeyError:
            return None
        return None if self.removed is not None and self.removed[row] else row

    def without(self, rows: Sequence[int]) -> Part:
        """The same documents with some more of them gone."""
        if not rows:
            return self
        removed = np.zeros(len(self), np.bool_) if self.removed is None else self.removed.copy()
        removed[list(rows)] = True
        return replace(self, removed=removed)

    def search(
        self, query: Encoded, limit: int, *, offset: int, deleted: Mask | None, mode: str
    ) -> Ranking:
        """``Retriever.search`` of one query. deleted: True is never returned; ``removed`` belongs in it."""
        query = self.query(query)
        if deleted is None or deleted is not self.removed or self.gone > _FEW:
            [found] = self.retriever.search(query, limit, offset=offset, deleted=deleted, mode=mode)
            return found
        # So many more than are wanted, and those that are gone left out: a mask is as long as there are documents.
        [found] = self.retriever.search(query, offset + limit + self.gone, mode=mode)
        kept = np.flatnonzero(~deleted[found.rows])[offset : offset + limit]
        return Ranking(
            found.rows[kept],
            found.scores[kept],
            found.learned[kept],
            found.exact[kept],
            found.bias[kept],
            found.certified,
            found.total - self.gone,
        )

    def query(self, query: Encoded) -> Encoded:
        """One query in the columns of these documents."""
        width = self.retriever.documents.width
        if self.features is None:
            return known(query, width)
        place = np.searchsorted(self.features, query.indices)
        place[place == width] = 0
        kept = np.flatnonzero(self.features[place] == query.indices) if width else place[:0]
        return _with_entries(query, place[kept].astype(np.int32), query.weights[kept], width)

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> Explanation:
        """Why one of the documents was returned."""
        if self.features is None:
            return explain(terms, self.retriever, self.query(query), row)
        one = self.retriever.documents.slice(row, row + 1)
        one = _with_entries(one, self.features[one.indices], one.weights, query.width)
        return explain(terms, Retriever(one), query, 0)


def _with_entries(text: Encoded, indices: Int32, weights: np.ndarray, width: int) -> Encoded:
    """One encoded text with other sparse entries."""
    indptr = np.array([0, len(indices)], np.int64)
    return replace(text, indptr=indptr, indices=indices, weights=weights, width=width)
