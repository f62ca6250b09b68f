"""What a blend has learned of clicks: how often people chose a document, after a query and at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fullrank.models.contract import Model
from fullrank.models.memory import LinkModel, MemoryModel, query_key
from fullrank.models.mixed import MixedModel
from fullrank.models.unseen import OpenModel
from fullrank.storage.encoding import Float64, Int32, Int64
from fullrank.storage.records import Documents


class ClickShare(NamedTuple):
    """What clicks after the same query add to the lexical part of a score, and clicks after any query to its bias."""

    after_query: float
    lexical: float
    in_all: float
    bias: float


@dataclass(frozen=True)
class ClickParts:
    """The parts of a blend that count clicks.

    Attributes:
        known: Of queries; its first sparse feature is `first`, its weight in the blend w_q.
        raised: What is added to each of its entries in the encoded documents.
        popularity: Weight w_d of the part of documents, and the bias of a document without clicks, before the weight.
    """

    known: MemoryModel
    first: int
    weight: float
    raised: float
    popularity: tuple[float, float] = (0.0, 0.0)

    @staticmethod
    def of(model: Model) -> ClickParts | None:
        blend = model.model if isinstance(model, OpenModel) else model
        if not isinstance(blend, MixedModel):
            return None
        known, popularity = None, (0.0, 0.0)
        weights = zip(blend.weights, blend.for_documents.weights, strict=True)
        for part, place, (weight, bias) in zip(blend.models, blend.places(), weights, strict=True):
            if not isinstance(part, MemoryModel) or isinstance(part, LinkModel):
                continue
            if part.is_of_queries and weight > 0:
                known = part, place.sparse, weight
            elif not part.is_of_queries and bias > 0:
                popularity = bias, part.bias
        if known is None:
            return None
        return ClickParts(*known, max(0.0, blend.lift.added) / known[2], popularity)

    def key(self, text: str) -> str | None:
        """Return the key under which clicks after a query count: that of the known query that it is looked up as."""
        row = self.known.find(text)
        return query_key(text) if row < 0 else self.known.queries[row]

    def feature(self, text: str) -> int:
        """Return the sparse feature of the known query that a query is looked up as; -1 without one."""
        row = self.known.find(text)
        return row if row < 0 else self.first + row

    def learned(
        self,
        documents: Documents,
        rows: Int64,
        key: str | None = None,
        features: Int32 | None = None,
    ) -> Float64:
        """Return how often documents were chosen after a query, or after any (None), float64 (rows,).

        Args:
            features: int32, ascending: the feature of each sparse column; None: the columns are features.
        """
        first, stop = self.first, self.first + self.known.n_sparse
        if key is not None:
            row = self.known.queries.find(key) if len(self.known.queries) else -1
            first, stop = (0, 0) if row < 0 else (first + row, first + row + 1)
        if features is not None:
            first, stop = np.searchsorted(features, (first, stop)).tolist()
        found, places = documents.fetch(rows)
        total = np.zeros(len(rows))
        for i, place in enumerate(places.tolist() if first < stop else ()):
            columns, values = found.sparse.row(place)
            own = values[slice(*np.searchsorted(columns, (first, stop)))].astype(np.float64)
            total[i] = self.known.kappa * np.expm1(np.maximum(own - self.raised, 0.0)).sum()
        return total

    def share(
        self, documents: Documents, row: int, key: str | None, features: Int32 | None = None
    ) -> ClickShare:
        """Return what the clicks on a document add to its score; arguments as for ``learned``."""
        at, weight, start = np.array([row]), *self.popularity
        # Without what is lost to float32.
        n = 0.0 if key is None else round(float(self.learned(documents, at, key, features)[0]), 2)
        total = round(float(self.learned(documents, at, None, features)[0]), 2)
        lexical = self.weight * (math.log1p(n / self.known.kappa) + self.raised) if n else 0.0
        return ClickShare(n, lexical, total, weight * (math.log1p(total) if total else start))
