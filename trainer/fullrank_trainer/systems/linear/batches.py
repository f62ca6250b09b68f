"""Numba kernels that cut a batch of sparse rows out of a matrix, by row and by column.

Each does in one pass what fancy indexing and a change of format do in several, without the copies between. The layout
of a result does not depend on the number of threads: entries of a column are in the order of the batch.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import prange

from fullrank.storage.encoding import Float32, Int32, Int64, Rows
from fullrank_trainer.compiled import compiled
from fullrank_trainer.features.composition import Phi

ByColumn = tuple[Int64, Int32, Float32]
"""starts int64 (columns + 1,), texts (places in the batch) int32 (entries,), values float32 (entries,)."""

_SAME_COLUMNS = np.zeros(0, np.int32)
_NO_LINES, _NO_TABLE = np.zeros(0, np.int32), np.zeros((0, 0), np.float32)


@compiled(parallel=True)
def _take(  # type: ignore[no-untyped-def]
    indptr, indices, values, rows, out_indptr, out_indices, out_values
):
    for i in prange(len(rows)):
        source, first = indptr[rows[i]], out_indptr[i]
        for p in range(out_indptr[i + 1] - first):
            out_indices[first + p] = indices[source + p]
            out_values[first + p] = values[source + p]


def take(matrix: Rows, rows: Int64) -> Rows:
    """Copy the given rows, in the given order, as ``Rows.take``."""
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(matrix.indptr[rows + 1] - matrix.indptr[rows], out=indptr[1:])
    indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    _take(matrix.indptr, matrix.indices, matrix.values, rows, indptr, indices, values)
    return Rows(indptr, indices, values, matrix.width)


@compiled()
def _note(indices, places):  # type: ignore[no-untyped-def]
    """Set the place of each column that occurs to 0 and of the others to -1; return how many occur."""
    places[:] = -1
    found = 0
    for p in range(len(indices)):
        found -= places[indices[p]]  # adds 1 for the first entry of a column, 0 for the others
        places[indices[p]] = 0
    return found


@compiled()
def _place(places, columns):  # type: ignore[no-untyped-def]
    """Number the columns whose place is 0, in order."""
    place = 0
    for column in range(len(places)):
        if places[column] == 0:
            columns[place] = column
            places[column] = place
            place += 1


@compiled()
def _renumber(indices, places, out):  # type: ignore[no-untyped-def]
    for p in range(len(indices)):
        out[p] = places[indices[p]]


def number(indices: Int32, width: int, scratch: Scratch) -> tuple[Int64, Int32]:
    """Number the columns that occur in a batch, so that arrays over columns are as long as there are such columns.

    Returns:
        The columns, int64, ascending, and the number of each, int32 (width,), -1 for the others; the next call with
        this scratch overwrites these.
    """
    places = scratch.array("places", width, dtype=np.int32)
    columns = np.empty(_note(indices, places), np.int64)
    _place(places, columns)
    return columns, places


def renumber(rows: Rows, columns: Int64, places: Int32) -> Rows:
    """Return rows over the columns that ``number`` found."""
    local = np.empty_like(rows.indices)
    _renumber(rows.indices, places, local)
    return Rows(rows.indptr, local, rows.values, len(columns))


def split(phi: Phi, scratch: Scratch) -> tuple[Rows | None, Rows]:
    """Return C of the words that occur, (occurring words, trained rows), and x over them; without C None and x."""
    x = phi.words
    if phi.parts is None:
        return None, x
    words, places = number(x.indices, x.width, scratch)
    return take(phi.parts, words), renumber(x, words, places)


@compiled(parallel=True)
def _count(indptr, indices, rows, places, counts):  # type: ignore[no-untyped-def]
    """Count the entries of each column in every block of the batch, int32 (blocks, columns)."""
    blocks = len(counts)
    for block in prange(blocks):
        count = counts[block]
        for i in range(block * len(rows) // blocks, (block + 1) * len(rows) // blocks):
            for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
                column = places[indices[p]] if len(places) else indices[p]
                if column >= 0:
                    count[column] += 1


@compiled()
def _starts(counts, line, starts):  # type: ignore[no-untyped-def]
    """Set where each column starts, and turn counts into where each block of it starts."""
    total = 0
    for column in range(counts.shape[1]):
        starts[column] = total
        if len(line) and line[column] >= 0:
            continue
        for block in range(counts.shape[0]):
            count = counts[block, column]
            counts[block, column] = total
            total += count
    starts[counts.shape[1]] = total


@compiled(parallel=True)
def _fill(  # type: ignore[no-untyped-def]
    indptr, indices, values, rows, places, counts, texts, weights, line, table
):
    blocks = len(counts)
    for block in prange(blocks):
        free = counts[block]
        for i in range(block * len(rows) // blocks, (block + 1) * len(rows) // blocks):
            for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
                column = places[indices[p]] if len(places) else indices[p]
                if column < 0:
                    continue
                if len(line) and line[column] >= 0:
                    table[line[column], i] = values[p]
                    continue
                entry = free[column]
                free[column] = entry + 1
                texts[entry] = i
                weights[entry] = values[p]


def count_columns(matrix: Rows, rows: Int64, columns: int, places: Int32) -> Int32:
    """Count the entries of each column in parts of a batch, int32 (parts, columns); see ``by_column``."""
    counts = np.zeros((numba.get_num_threads(), columns), np.int32)
    _count(matrix.indptr, matrix.indices, rows, places, counts)
    return counts


def fill_columns(
    matrix: Rows,
    rows: Int64,
    counts: Int32,
    places: Int32,
    line: Int32 = _NO_LINES,
    table: Float32 = _NO_TABLE,
) -> ByColumn:
    """Return the given rows by column, except those columns that have a line in ``table``, which gets them.

    ``counts`` of ``count_columns`` is overwritten; ``table``, (lines, batch), is zero before.
    """
    starts = np.empty(counts.shape[1] + 1, np.int64)
    _starts(counts, line, starts)
    texts, weights = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    arrays = matrix.indptr, matrix.indices, matrix.values
    _fill(*arrays, rows, places, counts, texts, weights, line, table)
    return starts, texts, weights


def by_column(matrix: Rows, rows: Int64, columns: int, places: Int32 = _SAME_COLUMNS) -> ByColumn:
    """Return the given rows by column; ``places`` has the new column of each, -1 to leave it out; empty: the same."""
    return fill_columns(matrix, rows, count_columns(matrix, rows, columns, places), places)


# Scratch buffers that steps use again.
#
# A new block of several megabytes costs a step more than its use: the system clears each of its pages.


# A larger buffer than asked for, since the next step asks for a little more or less. Pages that no step reaches take
# no memory.
_SPARE = 8


class Scratch:
    """Buffers by name."""

    def __init__(self) -> None:
        self._buffers: dict[str, npt.NDArray[Any]] = {}
        self._sides: dict[str, Scratch] = {}

    def of(self, side: str) -> Scratch:
        """Return the buffers of one side, apart from all others."""
        return self._sides.setdefault(side, Scratch())

    def array(self, name: str, *shape: int, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        """Return an array with any values; it is valid until the next call with this name, always of this dtype."""
        size = math.prod(shape)
        if name not in self._buffers or len(self._buffers[name]) < size:
            self._buffers.pop(name, None)  # before the larger one is made
            self._buffers[name] = np.empty(size + size // _SPARE, dtype)
        return self._buffers[name][:size].reshape(shape)
