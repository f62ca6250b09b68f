"""Scores of given documents in float64, and their explanation word by word.

TermShare, WordScore  a word of a query, and its contribution to one score
Scorer                the protocol; a model that is no inner product brings its own
InnerProduct          u·v + s·t, the scorer of all other models
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Encoded, Float32, Float64, Int32, Int64

# Rows scored at a time: their dense parts stay below 32 MB.
_ROWS = 1 << 14


class TermShare(NamedTuple):
    """One word or phrase of a query.

    Attributes:
        term: The word or “phrase”.
        dense: Its share of u, float32 (N,).
        feature: Its sparse feature, -1 where it has none; of a word with several features ascending int32.
        weight: Its weight at that feature; of several features float32.
    """

    term: str
    dense: Float32
    feature: int | Int32
    weight: float | Float32


class WordScore(NamedTuple):
    """The contribution of one word (or “phrase”) of a query to the dense and the lexical part of a score."""

    word: str
    dense: float
    lexical: float


class Scorer(Protocol):
    """Scores of one set of documents: score = dense + lexical + bias.

    The bits of a document's score depend on the query and on that document alone.
    """

    def score(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64]:
        """Return (dense, lexical) of one encoded query for the given rows, float64 (rows,) each."""

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> list[WordScore]:
        """Return the contribution of each word to one document's score; they add up to dense and lexical."""


class _QueryBuffers(threading.local):
    """One query's sparse part as rows over all F features, zero between queries; each thread has its own.

    `weights` holds s. `known` says which features the query has: the look-up for every feature of a document reads it
    because it has an eighth of the bytes.
    """

    _weights: Float64 | None = None
    _known: npt.NDArray[np.bool_] | None = None

    def weights(self, width: int) -> Float64:
        if self._weights is None:
            self._weights = np.zeros(width)
        return self._weights

    def known(self, width: int) -> npt.NDArray[np.bool_]:
        if self._known is None:
            self._known = np.zeros(width, np.bool_)
        return self._known


class InnerProduct:
    """dense = u·v and lexical = s·t, each a sum in an order that depends on the document's own row alone.

    Equal documents therefore tie exactly, and a batch gives the same bits as its queries one by one.
    """

    def __init__(self, documents: Encoded) -> None:
        self.documents = documents
        self._buffers = _QueryBuffers()

    def score(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64]:
        """Return (dense, lexical) of one encoded query for the given documents, float64 (rows,) each."""
        u, indices, weights, _ = query.row(0)
        s = self._buffers.weights(self.documents.sparse.width)
        known = self._buffers.known(self.documents.sparse.width)
        dense, lexical = np.zeros(len(rows)), np.zeros(len(rows))
        try:
            s[indices], known[indices] = weights, True
            for start in range(0, len(rows), _ROWS):
                part = slice(start, start + _ROWS)
                dense[part] = self._dense(u, rows[part])
                lexical[part] = self._lexical(s, known, rows[part])
        finally:
            s[indices], known[indices] = 0, False
        return dense, lexical

    def _dense(self, u: Float32, rows: Int64) -> Float64:
        products = self.documents.dense.take(rows, axis=0).astype(np.float64)
        products *= u
        found: Float64 = np.add.reduce(products, axis=1)
        return found

    def _lexical(self, s: Float64, known: npt.NDArray[np.bool_], rows: Int64) -> Float64:
        """Add up each row in the order of its entries; features that the query lacks add nothing and are skipped."""
        sparse = self.documents.sparse
        begin = sparse.indptr.take(rows)
        sizes = sparse.indptr.take(rows + 1) - begin
        ends = np.cumsum(sizes)
        place = np.repeat(begin - ends + sizes, sizes)
        place += np.arange(len(place))
        features = sparse.indices.take(place)
        shared = np.flatnonzero(known.take(features))
        products = s.take(features.take(shared)) * sparse.values.take(place.take(shared))
        owner = ends.searchsorted(shared, side="right")
        found: Float64 = np.bincount(owner, products, minlength=len(rows)).astype(np.float64)
        return found

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> list[WordScore]:
        """Split u·v and s·t by word: (the word's share of u)·v and Σ_f s_wf t_f over its features f."""
        v, indices, weights, _ = self.documents.row(row)
        weight_of = dict(zip(indices.tolist(), weights.tolist(), strict=True))
        return [
            WordScore(
                term.term,
                float(np.dot(term.dense.astype(np.float64), v)) if len(v) else 0.0,
                _lexical_share(term, weight_of, indices, weights),
            )
            for term in terms
        ]


def _lexical_share(
    term: TermShare, weight_of: Mapping[int, float], indices: Int32, weights: Float32
) -> float:
    """Σ_f s_wf t_f over the features of one word."""
    if isinstance(term.feature, int):
        return float(term.weight * weight_of.get(term.feature, 0.0))
    place = np.searchsorted(term.feature, indices)
    inside = np.flatnonzero(place < len(term.feature))
    found = inside[term.feature[place[inside]] == indices[inside]]
    shares = np.atleast_1d(term.weight)[place[found]].astype(np.float64)
    return float(shares @ weights[found])
