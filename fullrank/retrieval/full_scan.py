"""Approximate scores of all documents from their encoded form, in float32, with a bound on the error.

The error against the float64 score is at most

    ε = (N + m + 4) · 2⁻²⁴ · (‖u‖ · max‖v‖ + S + max|b| + 2⁻¹²⁶)        (standard forward error of a sum)

    m = min(|s|, max|t|)        S = min(Σ|s_w| · max_d |t_wd|, ‖s‖ · max‖t‖)
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from fullrank.encoding import Encoded, Float32, Float64, Int64, Rows
from fullrank.kernels.evidence import Evidence, reaching_in_order
from fullrank.kernels.rounding import rounding
from fullrank.kernels.rows import largest_entries
from fullrank.kernels.scan import add_weights
from fullrank.records import Documents
from fullrank.scoring import InnerProduct, Ranked, Scorer

# At once: float64 copies of all weights would be larger than the documents.
_BLOCK_DOCUMENTS = 512


class FullScan:
    """Scores of encoded documents.

    Args:
        documents: n documents.
        scorer: Replaces u·v + s·t. Its scan is the float64 score itself, rounded to float32.
    """

    def __init__(self, documents: Documents, scorer: Scorer | None = None) -> None:
        self.documents, self.scorer = documents, scorer or InnerProduct(documents)
        self.is_inner_product = scorer is None

    @cached_property
    def _all(self) -> Encoded:
        """All documents, in memory or mapped. A scan reads them; scores of given documents do not."""
        return self.documents.whole()

    @cached_property
    def postings(self) -> Rows:
        """Feature → documents, F rows of n columns."""
        return self._all.sparse.transposed()

    @cached_property
    def _largest_weight(self) -> Float64:
        """max_d |t_wd| of each feature."""
        sparse = self._all.sparse
        return largest_entries(sparse.indices, sparse.values, sparse.width)

    @cached_property
    def _sparse_limits(self) -> tuple[int, float]:
        """max_d |t_d|, the most sparse entries of a document, and max_d ‖t_d‖."""
        sparse = self._all.sparse
        sizes = np.diff(sparse.indptr)
        largest = 0.0
        for start in range(0, len(sizes), _BLOCK_DOCUMENTS):
            part = sparse.slice(start, min(start + _BLOCK_DOCUMENTS, len(sizes)))
            owner = np.repeat(np.arange(len(part)), np.diff(part.indptr))
            squares = np.bincount(owner, part.values.astype(np.float64) ** 2)
            largest = max(largest, float(squares.max(initial=0.0)))
        return int(sizes.max(initial=0)), math.sqrt(largest)

    @cached_property
    def _largest_norm(self) -> float:
        """max_d ‖v_d‖."""
        dense = self._all.dense
        if not dense.size:
            return 0.0
        return float(np.sqrt(np.einsum("ij,ij->i", dense, dense, dtype=np.float64).max()))

    @cached_property
    def _largest_bias(self) -> float:
        """max_d |b_d|."""
        return float(np.abs(self.documents.bias).max(initial=0.0))

    def warm(self) -> None:
        """Build the matrices and bounds that the first scan would build."""
        if self.is_inner_product:
            _ = self.postings, self._largest_weight, self._sparse_limits, self._largest_norm

    def score_parts(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64, Float64]:
        """Return (dense, lexical, bias) of one query for the given documents, float64 (rows,) each."""
        bias = self.documents.bias.take(rows).astype(np.float64)
        return *self.scorer.score(query, rows), bias

    def rank(
        self, query: Encoded, rows: Int64, evidence: Evidence, offset: int, limit: int
    ) -> tuple[Ranked, int]:
        """Score rows in float64, and order those that have evidence; see ``InnerProduct.rank``."""
        if isinstance(self.scorer, InnerProduct):
            return self.scorer.rank(query, rows, evidence, offset, limit)
        dense, lexical, bias = self.score_parts(query, rows)
        return reaching_in_order(rows, dense, lexical, bias, *evidence, offset, limit)

    @np.errstate(over="ignore", invalid="ignore")
    def scan(self, queries: Encoded) -> Float32:
        """Return the scores of all documents, float32 (B, n), each within ε of the float64 score."""
        if not self.is_inner_product:
            everything = np.arange(len(self.documents))
            scanned = np.zeros((len(queries), len(self.documents)), np.float32)
            for i, line in enumerate(scanned):
                dense, lexical, bias = self.score_parts(queries.slice(i, i + 1), everything)
                line[:] = dense + lexical + bias
            return scanned
        if queries.dense.shape[1]:
            scanned = queries.dense @ self._all.dense.T
        else:
            scanned = np.zeros((len(queries), len(self.documents)), np.float32)
        scanned += self.documents.bias
        postings = self.postings
        for i, scores in enumerate(scanned):
            words, weights = queries.sparse.row(i)
            add_weights(postings.indptr, postings.indices, postings.values, words, weights, scores)
        return scanned

    def error(self, queries: Encoded, i: int, scanned: Float32) -> float:
        """Return ε of query i. The scan of a scorer is off by its rounding to float32 only."""
        if not self.is_inner_product:
            return rounding(1, float(np.abs(scanned).max(initial=0.0)))
        u, indices, weights, _ = queries.row(i)
        size = float(np.linalg.norm(u.astype(np.float64))) * self._largest_norm
        longest, largest = self._sparse_limits
        # No np.dot: BLAS would start threads for the many features of an expanded query.
        by_word = float(np.sum(np.abs(weights) * self._largest_weight[indices]))
        by_norm = float(np.sqrt(np.sum(np.square(weights, dtype=np.float64)))) * largest
        size += min(by_word, by_norm) + self._largest_bias
        return rounding(len(u) + min(len(indices), longest) + 4, size)
