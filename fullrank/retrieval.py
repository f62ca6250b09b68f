"""Exact retrieval: the top-k of u·v + s·t + b over all documents, ties by id.

Two passes make it fast and exact. A float32 scan scores everything; its error against exact arithmetic is bounded by

    ε = (N + m + 4) · 2⁻²⁴ · (‖u‖ · max‖v‖ + S + max|b|)        (standard forward error of a sum)

    m = min(|s|, max|t|)        S = min(Σ|s_w| · max_d |t_wd|, ‖s‖ · max‖t‖)

so each document whose scanned score lies within 2ε of the k-th may belong to the answer and no other can. Those few
are scored again in float64, each by sums whose order depends on its own row alone. Hence the order is that of the exact
scores, equal documents tie exactly, and a batch gives the same bits as its queries one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fullrank.encoding import Encoded, Float32, Float64, Int64
from fullrank.model import Scorer

Mask = npt.NDArray[np.bool_]

# Scores of one block of queries stay below 64 MB.
_BLOCK_SCORES = 1 << 24
_UNIT_ROUNDOFF = 2.0**-24
# Queries that weigh more than one in so many words are scanned by documents, not by postings.
_DENSE_SHARE = 8


@dataclass(frozen=True, eq=False)
class Ranking:
    """One query's answer, best first. score = learned + exact + bias, all float64 (k,).

    rows       int64 (k,) document rows
    learned    u·v
    exact      s·t
    bias       b
    certified  the ranking is proven equal to that of all documents' exact scores
    total      how many documents could have been returned
    """

    rows: Int64
    scores: Float64
    learned: Float64
    exact: Float64
    bias: Float64
    certified: bool
    total: int


class Retriever:
    """Exact search over encoded documents, whose rows ascend by document id.

    scorer  in place of u·v + s·t, where the model is no inner product: the scan is then the exact
            score itself, rounded
    """

    def __init__(self, documents: Encoded, scorer: Scorer | None = None) -> None:
        self.documents, self.scorer = documents, scorer
        self._bias64 = documents.bias.astype(np.float64)
        self._max_bias = float(np.abs(documents.bias).max(initial=0.0))

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
        return float(np.sqrt(np.einsum("ij,ij->i", dense, dense).max()))

    def warm(self) -> None:
        """Build what the first search would have to."""
        if self.scorer is None:
            _ = self._postings, self._largest_weight, self._sparse_limits, self._largest_norm

    def search(
        self,
        queries: Encoded,
        limit: int,
        *,
        offset: int = 0,
        deleted: Mask | None = None,
        scanned: Float32 | None = None,
    ) -> list[Ranking]:
        """The places offset..offset + limit of each query's ranking.

        limit    at least 1; fewer documents are returned where fewer remain
        deleted  bool (n,), or (B, n) per query: True is never returned
        scanned  what ``scores`` found for these queries, where the caller has it already
        """
        found: list[Ranking] = []
        block = max(1, _BLOCK_SCORES // max(1, len(self.documents)))
        for start in range(0, len(queries), block):
            part = queries.slice(start, min(start + block, len(queries)))
            stop = start + len(part)
            scan = self.scores(part) if scanned is None else scanned[start:stop]
            for i in range(len(part)):
                mask = deleted if deleted is None or deleted.ndim == 1 else deleted[start + i]
                found.append(self._best(part, i, scan[i], limit, offset, mask))
        return found

    def scores(self, queries: Encoded) -> Float32:
        """The float32 scan: scores of all documents, (B, n), each within ε of the exact one."""
        if self.scorer is not None:
            everything = np.arange(len(self.documents))
            parts = [self.exact(queries, i, everything) for i in range(len(queries))]
            found = np.zeros((len(queries), len(self.documents)), np.float32)
            for line, (learned, exact, bias) in zip(found, parts, strict=True):
                line[:] = learned + exact + bias
            return found
        if queries.dense.shape[1]:
            scanned = queries.dense @ self.documents.dense.T
        else:
            scanned = np.zeros((len(queries), len(self.documents)), np.float32)
        if len(queries.indices) * _DENSE_SHARE > len(queries) * queries.width:
            scanned += (self._rows @ queries.csr().toarray().T).T
            scanned += self.documents.bias
            return scanned
        matched = sp.csr_array(queries.csr() @ self._postings)
        for i in range(len(queries)):
            start, stop = matched.indptr[i], matched.indptr[i + 1]
            scanned[i, matched.indices[start:stop]] += matched.data[start:stop]
        scanned += self.documents.bias
        return scanned

    def exact(self, queries: Encoded, i: int, rows: Int64) -> tuple[Float64, Float64, Float64]:
        """(learned, exact, bias) of query i for the given documents, in float64."""
        if self.scorer is not None:
            return *self.scorer.score(queries.slice(i, i + 1), rows), self._bias64[rows]
        u, indices, weights, _ = queries.row(i)
        candidates = self.documents.dense[rows].astype(np.float64)
        learned = np.add.reduce(candidates * u.astype(np.float64), axis=1)
        dense_query = np.zeros(self.documents.width)
        dense_query[indices] = weights
        # One row of a sparse product is a sum in the order of its own entries.
        exact = np.asarray(self._rows[rows].astype(np.float64) @ dense_query)
        return learned, exact, self._bias64[rows]

    def _error(self, queries: Encoded, i: int, scanned: Float32) -> float:
        """ε of query i. A scorer's scan is exact but for its rounding to float32."""
        if self.scorer is not None:
            return _UNIT_ROUNDOFF * float(np.abs(scanned).max(initial=0.0))
        u, indices, weights, _ = queries.row(i)
        size = float(np.linalg.norm(u.astype(np.float64))) * self._largest_norm
        longest, largest = self._sparse_limits
        # Plain sums: BLAS would start its threads for the many words of an expanded query.
        by_word = float(np.sum(np.abs(weights) * self._largest_weight[indices]))
        by_norm = float(np.sqrt(np.sum(np.square(weights, dtype=np.float64)))) * largest
        size += min(by_word, by_norm) + self._max_bias
        return (len(u) + min(len(indices), longest) + 4) * _UNIT_ROUNDOFF * size

    def _best(
        self,
        queries: Encoded,
        i: int,
        scanned: Float32,
        limit: int,
        offset: int,
        deleted: Mask | None,
    ) -> Ranking:
        rows = np.arange(len(self.documents)) if deleted is None else np.flatnonzero(~deleted)
        total, wanted = len(rows), offset + limit
        if total > wanted:
            left = scanned if deleted is None else scanned[rows]
            kth = float(np.partition(left, total - wanted)[total - wanted])
            rows = rows[left >= kth - 2 * self._error(queries, i, scanned)]
        learned, exact, bias = self.exact(queries, i, rows)
        scores = learned + exact + bias
        order = np.lexsort((rows, -scores))[offset:wanted]
        return Ranking(
            rows[order].astype(np.int64),
            scores[order],
            learned[order],
            exact[order],
            bias[order],
            certified=True,
            total=total,
        )
