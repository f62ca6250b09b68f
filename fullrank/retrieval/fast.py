"""Candidates of both sides, the best of them scored exactly.

The sparse side's are found by reading the beginnings of the query's words' lists; the dense side's come from the cells
nearest to u. Each is told what the other side thinks of it, as far as that is cheap:

    a document that was read    Σ of what was read + HALF · u · (the centre of its cell)       → effort.sparse
    one of those, or of cells   û·v̂ + Σ of what was read + Σ of what its signature says + b    → effort.exact

A document that is good on both sides without being among the best on either is missed; how often is measured when a
bundle is made and stands in its manifest.
"""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float32, Int32, Int64
from fullrank.index import Effort, Index
from fullrank.retrieval.index.shortlists import Mark
from fullrank.retrieval.ranking import Mask
from fullrank.retrieval.scratch import Scratch

# What is known of a document from its cell is half of the truth: between a quarter and all, recall hardly changes.
_HALF = np.float32(0.5)
_NOTHING, _NO_VALUES = np.zeros(0, np.int64), np.zeros(0, np.float32)


class Candidates:
    """Finds candidates of one query, in the room of its thread."""

    def __init__(self, index: Index, room: Scratch) -> None:
        assert index.shortlists is not None
        self._index, self._shortlists = index, index.shortlists
        self._room = room

    def find(
        self,
        u: Float32,
        words: Int32,
        weights: Float32,
        effort: Effort,
        deleted: Mask | None,
    ) -> Int64:
        """Rows worth an exact score, distinct."""
        index, scores = self._index, self._room.scores
        lists, marks = self._shortlists.read(
            index.postings, words, weights, effort.depth, effort.floor
        )
        # Indices are made int64 once: each use of others would.
        read = np.concatenate([_NOTHING, *(rows for rows, _ in lists)])
        values = np.concatenate([_NO_VALUES, *(values for _, values in lists)])
        try:
            np.add.at(scores, read, values)
            cells = index.cells if u.any() else None
            near = None if cells is None else cells.near(u)
            pool = self._read(read, near, effort.sparse, deleted)
            if cells is not None and near is not None:
                found = cells.search(u, near, effort.dense, effort.nprobe, effort.margin)
                pool = np.concatenate([pool, found])
            pool = self._once(pool, deleted)
            if effort.exact < len(pool):
                pool = pool[_largest(self._estimates(u, pool, marks), effort.exact)]
            return pool
        finally:
            scores[read] = 0

    def _read(self, read: Int64, near: Float32 | None, limit: int, deleted: Mask | None) -> Int64:
        """The best of what was read; each as often as it was read."""
        if limit >= len(read):
            return read
        values = self._room.scores.take(read)
        if self._index.cells is not None and near is not None:
            values += (near * _HALF).take(self._index.cells.of.take(read))
        if deleted is not None:
            values[deleted[read]] = -np.inf
        at = len(values) - limit
        least = np.partition(values, at)[at]
        kept: Int64 = read[values >= least]
        return kept

    def _estimates(self, u: Float32, pool: Int64, marks: list[Mark]) -> Float32:
        """About the score of each."""
        values = self._index.codes.of(u, pool)
        values += self._room.scores.take(pool)
        values += self._index.bias.take(pool)
        if marks:
            signatures = self._shortlists.signatures.take(pool, axis=0)
            for mark in marks:
                values += ((signatures[:, mark.byte] & mark.bit) != 0) * mark.value
        return values

    def _once(self, rows: Int64, deleted: Mask | None) -> Int64:
        """Each of the rows once, those that are deleted not at all."""
        # The last place that a row is written from stays.
        last, place = self._room.places, np.arange(len(rows), dtype=np.int32)
        last[rows] = place
        once: Mask = last.take(rows) == place
        if deleted is not None:
            once &= ~deleted[rows]
        return rows[once]


def _largest(values: Float32, count: int) -> Int64:
    """Where the so many largest values are, in no order."""
    return np.argpartition(values, len(values) - count)[len(values) - count :]
