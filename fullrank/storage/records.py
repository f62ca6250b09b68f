"""Encoded documents that stay in a file, for documents too many to be mapped by every process.

A search scores few documents, anywhere among all of them. Through a memory map Linux maps the pages around each one, so
a process soon holds nearly all. A record is read with one system call instead, and no page of the file is mapped.

Documents       what can be searched: Encoded, in memory or mapped, or Records
documents.fetch(rows)   the given documents, for kernels
blocks(documents)       all of them, piece by piece
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np

from fullrank.kernels.arrays import Mask
from fullrank.kernels.records import make_records, read_records
from fullrank.storage.encoding import Encoded, Float32, Int32, Int64, Rows

_BLOCK = 4096


class Records:
    """B encoded documents, read from a file of records as fullrank.kernels.records describes them.

    Attributes:
        indptr: int64 (B + 1,); t of document i has indptr[i + 1] − indptr[i] entries.
        bias: float32 (B,).
        n_dense: N.
        width: F.
    """

    def __init__(
        self, path: Path, start: int, indptr: Int64, bias: Float32, n_dense: int, width: int
    ) -> None:
        """Open the file; it is closed with the last reference to these documents.

        Raises:
            OSError: The file cannot be opened.
        """
        self.indptr, self.bias, self.n_dense, self.width = indptr, bias, n_dense, width
        self._start = start
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        # Without reading ahead, which would load neighbours that no search needs.
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_RANDOM)

    def __len__(self) -> int:
        return len(self.bias)

    @property
    def n_entries(self) -> int:
        """Number of entries of t of all documents."""
        return int(self.indptr[-1])

    def take(self, rows: Int64) -> Encoded:
        """Read the given documents, in the given order. Raises OSError where the file cannot be read."""
        dense, indptr, indices, values = read_records(
            self._file, self._start, self.n_dense, self.indptr, rows
        )
        return Encoded(dense, Rows(indptr, indices, values, self.width), self.bias[rows])

    def fetch(self, rows: Int64) -> tuple[Encoded, Int64]:
        """Return documents that include the given ones, and the places of these."""
        return self.take(rows), np.arange(len(rows))

    def slice(self, start: int, stop: int) -> Encoded:
        """Read documents start..stop."""
        return self.take(np.arange(start, stop))

    def row(self, i: int) -> tuple[Float32, Int32, Float32, float]:
        """Read document i as (dense (N,), sparse indices, sparse values, bias)."""
        return self.slice(i, i + 1).row(0)

    @cached_property
    def _all(self) -> Encoded:
        return self.slice(0, len(self))

    def whole(self) -> Encoded:
        """Read all documents into memory, where they stay; for programs that go through all of them many times."""
        return self._all


Documents: TypeAlias = Encoded | Records
"""Encoded documents that a search can rank."""


def records_of(documents: Encoded) -> Int32:
    """Return the records of documents, one after another."""
    return make_records(documents.dense, *documents.sparse.arrays)


def blocks(documents: Documents) -> Iterator[Encoded]:
    """Yield all documents in their order, some thousands at a time."""
    for start in range(0, len(documents), _BLOCK):
        yield documents.slice(start, min(start + _BLOCK, len(documents)))


def used_columns(documents: Documents, removed: Mask | None = None) -> Mask:
    """Return bool (F,), True for sparse columns that a document has, of those that are not removed (bool (B,))."""
    found = np.zeros(documents.width, np.bool_)
    done = 0
    for block in blocks(documents):
        sparse = block.sparse
        indices = sparse.indices
        if removed is not None:
            is_kept = ~removed[done : done + len(block)]
            indices = indices[np.repeat(is_kept, np.diff(sparse.indptr))]
        found[indices] = True
        done += len(block)
    return found
