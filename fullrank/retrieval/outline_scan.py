"""Candidates from outlines and posting lists: the documents whose score may reach a threshold.

A scan finds g and a bound of its own for each document: f ≤ g + ‖p‖ ‖r‖ + error (index/outline.py). The threshold is
a score that the caller knows to be reached, or the k-th best f among the k documents with the largest g. It reads far
less than a scan of codes, and pays where most documents are far below the threshold.
"""

from __future__ import annotations

import math

import numpy as np

from fullrank.encoding import Encoded, Float32, Int32, Int64
from fullrank.kernels.gather import transpose
from fullrank.kernels.select import best_rows
from fullrank.retrieval.full_scan import rounding
from fullrank.retrieval.index.outline import build_outline
from fullrank.retrieval.index.postings import Postings
from fullrank.retrieval.ranking import NONE_DELETED, Mask
from fullrank.retrieval.scratch import Scratch
from fullrank.retrieval.select import ScoreParts

# The largest contribution of words left out, as a share of the largest contribution of all words.
_MAX_LEFT_OUT = 0.005


class OutlineScan:
    """Scans of documents in memory.

    Args:
        documents: n documents, of a model that is an inner product.
    """

    def __init__(self, documents: Encoded) -> None:
        self._bias = documents.bias
        self._largest_bias = float(np.abs(documents.bias).max(initial=0.0))
        self._outline = build_outline(documents.dense)
        sparse = documents.sparse
        arrays = transpose(sparse.indptr, sparse.indices, sparse.values, sparse.width)
        self._postings = Postings(*arrays)
        self._scratch = Scratch(len(documents))

    @np.errstate(over="ignore", invalid="ignore")
    def candidates(
        self,
        u: Float32,
        words: Int32,
        weights: Float32,
        wanted: int,
        score_parts: ScoreParts,
        deleted: Mask | None,
        least: float,
    ) -> Int64:
        """Return the rows that may be among the top `wanted` and reach `least`, ascending; no other row can.

        Args:
            u: float32 (N,).
            words: The query's words, int32 (m,).
            weights: float32 (m,).
            wanted: k.
            score_parts: Scores given rows in float64.
            deleted: bool (n,), rows that must not be returned.
            least: A score that every wanted document reaches; −∞ if none is known.
        """
        mask = NONE_DELETED if deleted is None else deleted
        scores = self._scratch.scores
        try:
            plan = self._postings.plan(words, weights)
            width = plan.above - plan.below
            added = int(np.argmax(width <= _MAX_LEFT_OUT * float(width[0])))
            self._postings.add(plan.words[:added], plan.weights[:added], scores)
            query = self._outline.query(u)
            query.add(self._bias, scores)
            size = query.size * self._outline.length + float(width[0]) + self._largest_bias
            above = query.error + float(plan.errors[added] + plan.above[added])
            above += rounding(len(words) + len(u) + 8, 2 * size)
            if above == math.inf:
                return np.arange(len(scores)) if deleted is None else np.flatnonzero(~deleted)
            if least == -math.inf:
                best = best_rows(scores, mask, wanted)
                least = float(np.sum(score_parts(best), axis=0).min())
            # float32() may round the threshold up, so compare with the next number below it.
            threshold = np.nextafter(np.float32(least - above), np.float32(-np.inf))
            return query.reaching(scores, mask, threshold)
        finally:
            scores.fill(0)
