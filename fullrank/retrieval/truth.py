"""The documents as they are: exact scores of given rows in float64, and a float32 scan of all.

A document's float64 score is made of sums whose order depends on its own row alone. Hence equal documents tie exactly,
and a batch gives the same bits as its queries one by one. The scan's error against it is bounded by

    ε = (N + m + 4) · 2⁻²⁴ · (‖u‖ · max‖v‖ + S + max|b| + 2⁻¹²⁶)        (standard forward error of a sum)

    m = min(|s|, max|t|)        S = min(Σ|s_w| · max_d |t_wd|, ‖s‖ · max‖t‖)
"""

from __future__ import annotations

import math
import threading
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fullrank.encoding import Encoded, Float32, Float64, Int64
from fullrank.model import Scorer

UNIT_ROUNDOFF = 2.0**-24
_LARGEST, _LEAST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)
# Queries that weigh more than one in so many words are scanned by documents, not by postings.
_DENSE_SHARE = 8
# Rows that are scored at a time: their dense parts stay below 32 MB.
_ROWS = 1 << 14


def rounding(steps: int, size: float) -> float:
    """How far off a float32 result of so many steps may be, where the sizes of its parts add up to ``size``.

    Infinite where it may overflow. Where it underflows, a step is off by what it is at the least normal number.
    """
    if not size < _LARGEST / 4:
        return math.inf
    return steps * UNIT_ROUNDOFF * (size + _LEAST)


class _Query(threading.local):
    """The sparse part of the query that a thread scores, as a row of all words; zero between queries.

    known  which words it has: read for every word of a document, an eighth of the weights' bytes
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


class Truth:
    """Scores of encoded documents, or of the scorer that takes the place of u·v + s·t."""

    def __init__(self, documents: Encoded, scorer: Scorer | None = None) -> None:
        self.documents, self.scorer = documents, scorer
        self._query = _Query()

    @cached_property
    def _rows(self) -> sp.csr_array[np.float32]:
        """document → words, (n, F)."""
        return self.documents.csr()

    @cached_property
    def _postings(self) -> sp.csr_array[np.float32]:
        """word → documents, (F, n)."""
        return sp.csr_array(self._rows.T)

    @cached_property
    def _largest_weight(self) -> Float64:
        """max_d |t_wd| of each word."""
        largest = np.zeros(self.documents.width)
        np.maximum.at(largest, self.documents.indices, np.abs(self.documents.weights))
        return largest

    @cached_property
    def _sparse_limits(self) -> tuple[int, float]:
        """max_d |t_d|, the most sparse entries of a document, and max_d ‖t_d‖."""
        sizes = np.diff(self.documents.indptr)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        squares = np.bincount(owner, self.documents.weights.astype(np.float64) ** 2)
        return int(sizes.max(initial=0)), float(np.sqrt(squares.max(initial=0.0)))

    @cached_property
    def _largest_norm(self) -> float:
        """max_d ‖v_d‖."""
        dense = self.documents.dense
        if not dense.size:
            return 0.0
        return float(np.sqrt(np.einsum("ij,ij->i", dense, dense, dtype=np.float64).max()))

    @cached_property
    def _largest_bias(self) -> float:
        """max_d |b_d|."""
        return float(np.abs(self.documents.bias).max(initial=0.0))

    def warm(self) -> None:
        """Build what the first scan would have to."""
        if self.scorer is None:
            _ = self._postings, self._largest_weight, self._sparse_limits, self._largest_norm

    def exact(self, queries: Encoded, i: int, rows: Int64) -> tuple[Float64, Float64, Float64]:
        """(learned, exact, bias) of query i for the given documents, in float64."""
        if self.scorer is not None:
            return *self.scorer.score(queries.slice(i, i + 1), rows), self._bias(rows)
        u, indices, weights, _ = queries.row(i)
        query = self._query.weights(self.documents.width)
        known = self._query.known(self.documents.width)
        learned, exact = np.zeros(len(rows)), np.zeros(len(rows))
        try:
            query[indices], known[indices] = weights, True
            for start in range(0, len(rows), _ROWS):
                part = slice(start, start + _ROWS)
                learned[part] = self._learned(u, rows[part])
                exact[part] = self._exact(query, known, rows[part])
        finally:
            query[indices], known[indices] = 0, False
        return learned, exact, self._bias(rows)

    def _bias(self, rows: Int64) -> Float64:
        return self.documents.bias.take(rows).astype(np.float64)

    def _learned(self, u: Float32, rows: Int64) -> Float64:
        products = self.documents.dense.take(rows, axis=0).astype(np.float64)
        products *= u
        found: Float64 = np.add.reduce(products, axis=1)
        return found

    def _exact(self, query: Float64, known: npt.NDArray[np.bool_], rows: Int64) -> Float64:
        """A row's sum goes through its entries in their order, whatever the other rows are.

        Most words of a document are not the query's: these add nothing and are passed over.
        """
        documents = self.documents
        begin = documents.indptr.take(rows)
        sizes = documents.indptr.take(rows + 1) - begin
        ends = np.cumsum(sizes)
        place = np.repeat(begin - ends + sizes, sizes)
        place += np.arange(len(place))
        words = documents.indices.take(place)
        shared = np.flatnonzero(known.take(words))
        products = query.take(words.take(shared)) * documents.weights.take(place.take(shared))
        owner = ends.searchsorted(shared, side="right")
        found: Float64 = np.bincount(owner, products, minlength=len(rows)).astype(np.float64)
        return found

    @np.errstate(over="ignore", invalid="ignore")
    def scan(self, queries: Encoded) -> Float32:
        """Scores of all documents, float32 (B, n), each within ε of the exact one."""
        if self.scorer is not None:
            everything = np.arange(len(self.documents))
            scanned = np.zeros((len(queries), len(self.documents)), np.float32)
            for i, line in enumerate(scanned):
                learned, exact, bias = self.exact(queries, i, everything)
                line[:] = learned + exact + bias
            return scanned
        if queries.dense.shape[1]:
            scanned = queries.dense @ self.documents.dense.T
        else:
            scanned = np.zeros((len(queries), len(self.documents)), np.float32)
        if len(queries.indices) * _DENSE_SHARE > len(queries) * queries.width:
            scanned += (self._rows @ queries.csr().toarray().T).T
        else:
            matched = sp.csr_array(queries.csr() @ self._postings)
            for i in range(len(queries)):
                start, stop = matched.indptr[i], matched.indptr[i + 1]
                scanned[i, matched.indices[start:stop]] += matched.data[start:stop]
        scanned += self.documents.bias
        return scanned

    def error(self, queries: Encoded, i: int, scanned: Float32) -> float:
        """ε of query i. A scorer's scan is exact but for its rounding to float32."""
        if self.scorer is not None:
            return rounding(1, float(np.abs(scanned).max(initial=0.0)))
        u, indices, weights, _ = queries.row(i)
        size = float(np.linalg.norm(u.astype(np.float64))) * self._largest_norm
        longest, largest = self._sparse_limits
        # Plain sums: BLAS would start its threads for the many words of an expanded query.
        by_word = float(np.sum(np.abs(weights) * self._largest_weight[indices]))
        by_norm = float(np.sqrt(np.sum(np.square(weights, dtype=np.float64)))) * largest
        size += min(by_word, by_norm) + self._largest_bias
        return rounding(len(u) + min(len(indices), longest) + 4, size)
