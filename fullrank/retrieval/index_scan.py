"""Approximate scores from an index: û·v̂ + Σ s_w t̂_w + b, and a bound on their error.

Words are added in the order of their plan. The scan stops when the remaining words could contribute less than the error
of the codes, or less than a fiftieth of what all words could. If too many candidates remain, `refine` adds more words.
"""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float32, Int32
from fullrank.retrieval.full_scan import rounding
from fullrank.retrieval.index import Index
from fullrank.retrieval.select import Scanned

# The largest contribution of words left out, as a share of the largest contribution of all words.
_MAX_LEFT_OUT = 0.02


class IndexScan:
    """The scan of one query over an index.

    Args:
        index: The index.
        u: float32 (N,).
        words: The query's words, int32 (m,).
        weights: float32 (m,).
        scores: The buffer to scan into, float32 (n,), zero at the start.
    """

    def __init__(
        self, index: Index, u: Float32, words: Int32, weights: Float32, scores: Float32
    ) -> None:
        self._postings = index.postings
        self._plan = plan = index.postings.plan(words, weights)
        self._scores = scores
        self._error = index.codes.scan(u, scores)
        scores += index.bias
        dense = float(np.linalg.norm(u.astype(np.float64))) * (
            index.codes.length + index.codes.error
        )
        size = dense + float(plan.above[0] - plan.below[0]) + index.largest_bias
        self._rounding = rounding(len(plan.words) + 8, size)
        self._added = 0
        width = plan.above - plan.below
        slack = max(2 * self._error, _MAX_LEFT_OUT * float(width[0]))
        self._add(int(np.argmax(width <= slack)))

    def scanned(self) -> Scanned:
        """Return g and its bounds with the words added so far."""
        error = self._error + self._rounding + float(self._plan.errors[self._added])
        below, above = self._plan.below[self._added], self._plan.above[self._added]
        return Scanned(self._scores, error - float(below), error + float(above))

    def refine(self) -> bool:
        """Add words until the others can contribute half as much as before; False when all were added."""
        width = self._plan.above - self._plan.below
        if self._added == len(self._plan.words):
            return False
        self._add(max(self._added + 1, int(np.argmax(width <= width[self._added] / 2))))
        return True

    def _add(self, until: int) -> None:
        added = slice(self._added, until)
        self._postings.add(self._plan.words[added], self._plan.weights[added], self._scores)
        self._added = until
