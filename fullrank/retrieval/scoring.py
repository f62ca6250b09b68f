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

from fullrank.kernels import scoring
from fullrank.kernels.compiler import direct
from fullrank.kernels.evidence import Evidence, reaching_in_order
from fullrank.kernels.index import Vector
from fullrank.kernels.scoring import score_rows
from fullrank.storage.encoding import Encoded, Float32, Float64, Int32, Int64
from fullrank.storage.records import Documents

# So many documents are scored at once: those that are read from a file take a megabyte of memory meanwhile.
rank_rows = direct(scoring.rank_rows)
_AT_ONCE = 1024

Ranked = tuple[Int64, Float64, Float64, Float64, Float64]
"""rows, scores, dense, lexical and bias of documents in the order of a ranking."""


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

    @staticmethod
    def from_weights(term: str, dense: Float32, weights: Mapping[int, float]) -> TermShare:
        """Make a term of the weights of its features."""
        features = np.array(sorted(weights), np.int32)
        values = np.array([weights[feature] for feature in features.tolist()], np.float32)
        return TermShare(term, dense, features, values)

    @property
    def pairs(self) -> list[tuple[int, float]]:
        """Its sparse features and their weights."""
        features, weights = np.atleast_1d(self.feature), np.atleast_1d(self.weight)
        found = zip(features.tolist(), weights.tolist(), strict=True)
        return [(feature, weight) for feature, weight in found if feature >= 0]


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


class _QueryBuffer(threading.local):
    """Lends a kernel float64 (F,) for one query's sparse part, zero between queries; each thread has its own."""

    _weights: Float64 | None = None

    def __init__(self, width: int) -> None:
        self._width = width

    def __enter__(self) -> Float64:
        if self._weights is None:
            self._weights = np.zeros(self._width)
        return self._weights

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._weights is not None:  # a kernel that fails does not clear it
            self._weights.fill(0)


def _vector(query: Encoded) -> Vector:
    arrays = query.row(0)[:3]
    for view in arrays:  # as read_only does, without another view
        view.setflags(write=False)
    return Vector(*arrays)


class InnerProduct:
    """dense = u·v and lexical = s·t, each a sum in an order that depends on the document's own row alone.

    Equal documents therefore tie exactly, and a batch gives the same bits as its queries one by one.
    """

    def __init__(self, documents: Documents) -> None:
        self.documents = documents
        self._buffer = _QueryBuffer(documents.width)

    def score(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64]:
        """Return (dense, lexical) of one encoded query for the given documents, float64 (rows,) each."""
        vector = _vector(query)
        # An empty query, for which all documents may be scored.
        if not len(vector.words) and not vector.u.any():
            return np.zeros(len(rows)), np.zeros(len(rows))
        dense, lexical = np.empty(len(rows)), np.empty(len(rows))
        with self._buffer as scratch:
            for start in range(0, len(rows), _AT_ONCE):
                part = slice(start, start + _AT_ONCE)
                found, places = self.documents.fetch(rows[part])
                score_rows(vector, found.matrix, places, scratch, dense[part], lexical[part])
        return dense, lexical

    def rank(
        self,
        query: Encoded,
        rows: Int64,
        evidence: Evidence,
        offset: int,
        limit: int,
        is_counted: bool = False,
    ) -> tuple[Ranked, int]:
        """Score the given documents, and order those that have evidence, ties by row.

        Returns:
            Places offset..offset + limit of the order, and how many documents have evidence; unless these are to be
            counted, perhaps fewer.
        """
        asked = offset, limit, int(is_counted)
        if len(rows) > _AT_ONCE:
            dense, lexical = self.score(query, rows)
            bias = self.documents.bias.take(rows).astype(np.float64)
            return reaching_in_order(rows, dense, lexical, bias, evidence, *asked)
        vector, (found, places) = _vector(query), self.documents.fetch(rows)
        with self._buffer as scratch:
            return rank_rows(vector, found.matrix, places, rows, scratch, evidence, *asked)

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
