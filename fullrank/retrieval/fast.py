"""Candidates of both sides, the best of them scored exactly.

The dense side's come from the cells nearest to u, the sparse side's from the documents that the query's words weigh
most in. Codes and impacts tell which of them are worth an exact score. A document that is good on both sides without
being among the best on either is missed; how often is measured when a bundle is made and stands in its manifest.
"""

from __future__ import annotations

import threading

import numpy as np

from fullrank.encoding import Float32, Int32, Int64
from fullrank.index import Effort, Index
from fullrank.retrieval.ranking import Mask


class Candidates(threading.local):
    """Finds candidates; each thread has a row of scores and one of places of its own."""

    def __init__(self, index: Index) -> None:
        self._index = index
        # Zero between queries.
        self._scores = np.zeros(len(index.bias), np.float32)
        self._last = np.zeros(len(index.bias), np.int32)

    def find(
        self,
        u: Float32,
        words: Int32,
        weights: Float32,
        wanted: int,
        effort: Effort,
        deleted: Mask | None,
    ) -> Int64:
        """Rows worth an exact score, distinct: at most effort.exact, or twice what is wanted."""
        index, scores = self._index, self._scores
        chosen = index.postings.strongest(words, weights, effort.words)
        lists = [index.postings.best(word, weight) for word, weight in chosen]
        for rows, values in lists:
            np.add.at(scores, rows, values)
        reached = np.concatenate([np.zeros(0, np.int32), *(rows for rows, _ in lists)])
        pool = self._strongest(self._distinct(reached, deleted), effort.sparse)
        if index.cells is not None and u.any():
            dense = index.cells.search(u, effort.dense, effort.nprobe)
            pool = self._distinct(np.concatenate([pool, dense]), deleted)
        limit = max(effort.exact, 2 * wanted)
        if limit < len(pool):
            found = scores[pool] + index.bias[pool] + index.codes.of(u, pool)
            pool = pool[np.argpartition(found, len(pool) - limit)[len(pool) - limit :]]
        scores[reached] = 0
        return pool

    def _distinct(self, rows: Int32 | Int64, deleted: Mask | None) -> Int64:
        """Each row once, without those deleted: of equal ones, the place written last stays."""
        place = np.arange(len(rows), dtype=np.int32)
        self._last[rows] = place
        kept = self._last[rows] == place
        if deleted is not None:
            kept &= ~deleted[rows]
        return np.asarray(rows[kept], np.int64)

    def _strongest(self, rows: Int64, limit: int) -> Int64:
        """The rows of the largest sparse score and bias."""
        if limit >= len(rows):
            return rows
        found = self._scores[rows] + self._index.bias[rows]
        return rows[np.argpartition(found, len(rows) - limit)[len(rows) - limit :]]
