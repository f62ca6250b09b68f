"""Candidates of the fast mode: documents that a cheap estimate puts among the best, to be scored in float64.

The sparse side reads the heads of the query words' posting lists; the dense side searches the cells nearest to u. Each
candidate gets a cheap estimate of its other score part:

    found on the sparse side    Σ impacts read + ½ · u · (centre of its cell)               the best effort.sparse
    found on either side        û·v̂ + Σ impacts read + Σ of its signature's words + b       the best effort.rescored

The fast mode misses a document that is good on both sides without being among the best on either. How often that
happens is measured when a bundle is made, and stored in its manifest.
"""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float32, Int32, Int64
from fullrank.retrieval.index import Effort, Index
from fullrank.retrieval.index.shortlists import SignatureBit
from fullrank.retrieval.ranking import Mask
from fullrank.retrieval.scratch import Scratch

# The weight of a cell's centre as an estimate of u·v. Recall hardly changes between a quarter and one.
_CENTRE_WEIGHT = np.float32(0.5)
_NO_ROWS, _NO_VALUES = np.zeros(0, np.int64), np.zeros(0, np.float32)


class Candidates:
    """Finds candidates of one query at a time, in the buffers of its thread."""

    def __init__(self, index: Index, scratch: Scratch) -> None:
        assert index.shortlists is not None
        self._index, self._shortlists = index, index.shortlists
        self._scratch = scratch

    def find(
        self,
        u: Float32,
        words: Int32,
        weights: Float32,
        effort: Effort,
        deleted: Mask | None,
    ) -> Int64:
        """Return the rows to score in float64, distinct, in no order."""
        index, scores = self._index, self._scratch.scores
        lists, bits = self._shortlists.read(
            index.postings, words, weights, effort.depth, effort.floor
        )
        # Convert the rows to int64 once: numpy would convert them at each use.
        read = np.concatenate([_NO_ROWS, *(rows for rows, _ in lists)])
        values = np.concatenate([_NO_VALUES, *(values for _, values in lists)])
        try:
            np.add.at(scores, read, values)
            cells = index.cells if u.any() else None
            near = None if cells is None else cells.near(u)
            pool = self._best_read(read, near, effort.sparse, deleted)
            if cells is not None and near is not None:
                found = cells.search(u, near, effort.dense, effort.nprobe, effort.margin)
                pool = np.concatenate([pool, found])
            pool = self._distinct(pool, deleted)
            if effort.rescored < len(pool):
                pool = pool[_largest(self._estimates(u, pool, bits), effort.rescored)]
            return pool
        finally:
            scores[read] = 0

    def _best_read(
        self, read: Int64, near: Float32 | None, limit: int, deleted: Mask | None
    ) -> Int64:
        """Keep about the `limit` best of the rows read; a row read for several words is kept as often."""
        if limit >= len(read):
            return read
        values = self._scratch.scores.take(read)
        if self._index.cells is not None and near is not None:
            values += (near * _CENTRE_WEIGHT).take(self._index.cells.of.take(read))
        if deleted is not None:
            values[deleted[read]] = -np.inf
        at = len(values) - limit
        least = np.partition(values, at)[at]
        kept: Int64 = read[values >= least]
        return kept

    def _estimates(self, u: Float32, pool: Int64, bits: list[SignatureBit]) -> Float32:
        """Estimate the score of each row."""
        values = self._index.codes.of(u, pool)
        values += self._scratch.scores.take(pool)
        values += self._index.bias.take(pool)
        if bits:
            signatures = self._shortlists.signatures.take(pool, axis=0)
            for bit in bits:
                values += ((signatures[:, bit.byte] & bit.mask) != 0) * bit.value
        return values

    def _distinct(self, rows: Int64, deleted: Mask | None) -> Int64:
        """Keep each row once, and no deleted row."""
        # Of equal rows, the last write stays: only that place is kept.
        last, place = self._scratch.places, np.arange(len(rows), dtype=np.int32)
        last[rows] = place
        kept: Mask = last.take(rows) == place
        if deleted is not None:
            kept &= ~deleted[rows]
        return rows[kept]


def _largest(values: Float32, count: int) -> Int64:
    """Return the places of the `count` largest values, in no order."""
    return np.argpartition(values, len(values) - count)[len(values) - count :]
