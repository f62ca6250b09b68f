"""Candidates of both sides, the best of them scored exactly.

The dense side's come from the cells nearest to u, the sparse side's from the documents that the query's words weigh
most in. Codes and impacts tell which of them are worth an exact score. A document that is good on both sides without
being among the best on either is missed; how often is measured when a bundle is made and stands in its manifest.
"""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float32, Int32, Int64
from fullrank.index import Effort, Index
from fullrank.retrieval.ranking import Mask
from fullrank.retrieval.scratch import Scratch


class Candidates:
    """Finds candidates of one query, in the room of its thread."""

    def __init__(self, index: Index, room: Scratch) -> None:
        self._index = index
        self._room = room

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
        index, scores = self._index, self._room.scores
        chosen = index.postings.strongest(words, weights, effort.words)
        lists = index.postings.best(*chosen, effort.postings)
        for rows, values in lists:
            np.add.at(scores, rows, values)
        reached = np.concatenate([np.zeros(0, np.int32), *(rows for rows, _ in lists)])
        pool = reached[self._first(reached, deleted)].astype(np.int64)
        if effort.sparse < len(pool):
            pool = pool[_largest(scores[pool] + index.bias[pool], effort.sparse)]
        learned = index.codes.of(u, pool)
        if index.cells is not None and u.any():
            dense, found = index.cells.search(u, effort.dense, effort.nprobe)
            pool, learned = np.concatenate([pool, dense]), np.concatenate([learned, found])
            once = self._first(pool, deleted)
            pool, learned = pool[once], learned[once]
        limit = max(effort.exact, 2 * wanted)
        if limit < len(pool):
            learned += scores[pool]
            learned += index.bias[pool]
            pool = pool[_largest(learned, limit)]
        scores[reached] = 0
        return pool

    def _first(self, rows: Int32 | Int64, deleted: Mask | None) -> Mask:
        """One place of each row that is not deleted, bool (rows,)."""
        # The last place that a row is written from stays.
        last, place = self._room.places, np.arange(len(rows), dtype=np.int32)
        last[rows] = place
        once: Mask = last[rows] == place
        if deleted is not None:
            once &= ~deleted[rows]
        return once


def _largest(values: Float32, count: int) -> Int64:
    """Where the so many largest values are, in no order."""
    return np.argpartition(values, len(values) - count)[len(values) - count :]
