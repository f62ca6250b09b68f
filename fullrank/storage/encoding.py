"""The encoded form of texts that text, models and retrieval share.

Rows     B sparse rows: counts of words, weights, or the sparse part of encoded texts
Encoded  B encoded texts: a dense vector, a sparse vector and a bias each

    score(q, d) = u·v + s·t + b        u, v: dense; s, t: sparse; b: the document's bias
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fullrank.kernels import rows as kernels
from fullrank.kernels.arrays import Float32 as Float32
from fullrank.kernels.arrays import Float64 as Float64
from fullrank.kernels.arrays import Int32 as Int32
from fullrank.kernels.arrays import Int64 as Int64
from fullrank.kernels.arrays import Mask as Mask
from fullrank.kernels.index import Matrix, read_only
from fullrank.kernels.rows import largest_entries


@dataclass(frozen=True, eq=False)
class Rows:
    """B sparse rows of F columns.

    Attributes:
        indptr: int64 (B + 1,); row i has the entries indptr[i]:indptr[i + 1].
        indices: int32 (nnz,), ascending and distinct inside a row, each below `width`.
        values: float32 (nnz,).
        width: F, the number of columns.
    """

    indptr: Int64
    indices: Int32
    values: Float32
    width: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @staticmethod
    def empty(count: int, width: int) -> Rows:
        """Make `count` rows without an entry."""
        nothing = np.zeros(0, np.float32)
        return Rows(np.zeros(count + 1, np.int64), np.zeros(0, np.int32), nothing, width)

    @staticmethod
    def from_lists(rows: Sequence[tuple[Sequence[int], Sequence[float]]], width: int) -> Rows:
        """Make rows of (indices, values) in any order inside a row; equal indices are added up."""
        indptr = np.array([0, *accumulate(len(indices) for indices, _ in rows)], np.int64)
        indices = np.array([i for row, _ in rows for i in row], np.int32)
        values = np.array([value for _, row in rows for value in row], np.float32)
        return Rows(*kernels.sort_rows(indptr, indices, values), width)

    @staticmethod
    def from_csr(matrix: sp.csr_array[np.float32]) -> Rows:
        """Make rows of a scipy matrix, whose entries are sorted in place."""
        matrix.sort_indices()
        return Rows(
            matrix.indptr.astype(np.int64, copy=False),
            matrix.indices.astype(np.int32, copy=False),
            matrix.data.astype(np.float32, copy=False),
            matrix.shape[1],
        )

    @staticmethod
    def add(parts: Sequence[Rows]) -> Rows:
        """Add matrices of one shape; entries that add up to zero are dropped."""
        total = parts[0]
        for part in parts[1:]:
            if len(part.indices):
                total = Rows(*kernels.add(*total.arrays, *part.arrays), total.width)
        return total

    @staticmethod
    def hstack(*parts: Rows) -> Rows:
        """Put the columns of matrices of as many rows side by side."""
        indptr = sum((part.indptr for part in parts[1:]), parts[0].indptr)
        indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
        places, width = indptr[:-1].copy(), 0
        for part in parts:
            kernels.put_part(*part.arrays, np.float32(1), width, places, indices, values)
            width += part.width
        return Rows(indptr, indices, values, width)

    @staticmethod
    def vstack(parts: Sequence[Rows]) -> Rows:
        """Put matrices of one width below each other."""
        offsets = np.cumsum([0] + [int(part.indptr[-1]) for part in parts])
        tails = [part.indptr[1:] + offset for part, offset in zip(parts, offsets, strict=False)]
        return Rows(
            np.concatenate([np.zeros(1, np.int64), *tails]),
            np.concatenate([part.indices for part in parts]),
            np.concatenate([part.values for part in parts]),
            parts[0].width,
        )

    def csr(self) -> sp.csr_array[np.float32]:
        """View the rows as a (B, F) matrix over the same memory."""
        return sp.csr_array((self.values, self.indices, self.indptr), shape=(len(self), self.width))

    def with_values(self, values: Float32) -> Rows:
        """Give the same entries other values."""
        return Rows(self.indptr, self.indices, values.astype(np.float32, copy=False), self.width)

    def distinct(self) -> list[int]:
        """List the columns that have an entry, ascending."""
        if len(self.indices) < self.width:
            return sorted(set(self.indices.tolist()))
        found: list[int] = np.flatnonzero(np.bincount(self.indices)).tolist()
        return found

    def row(self, i: int) -> tuple[Int32, Float32]:
        """Return (indices, values) of row i as views."""
        start, stop = self.indptr[i], self.indptr[i + 1]
        return self.indices[start:stop], self.values[start:stop]

    def slice(self, start: int, stop: int) -> Rows:
        """View rows start..stop; `indptr` is rebased to zero."""
        first, last = self.indptr[start], self.indptr[stop]
        return Rows(
            self.indptr[start : stop + 1] - first,
            self.indices[first:last],
            self.values[first:last],
            self.width,
        )

    def take(self, rows: Int64) -> Rows:
        """Copy the given rows, in the given order."""
        sizes = self.indptr[rows + 1] - self.indptr[rows]
        indptr = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(sizes, out=indptr[1:])
        place = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], sizes)
        return Rows(indptr, self.indices[place], self.values[place], self.width)

    def columns(self, first: int, last: int) -> Rows:
        """Copy columns first..last, renumbered from zero."""
        if (first, last) == (0, self.width):
            return self
        return Rows(*kernels.cut_columns(*self.arrays, first, last), last - first)

    def remap_columns(self, target: Int32, width: int) -> Rows:
        """Move column j to target[j]; -1 drops it, columns with one target are added up."""
        return Rows(*kernels.remap_columns(*self.arrays, target), width)

    def top_entries(self, keep: int) -> Rows:
        """Keep the `keep` entries of each row with the largest absolute value, ties by index; 0 keeps all."""
        if keep == 0 or len(self.values) <= keep:
            return self
        return Rows(*largest_entries(*self.arrays, keep), self.width)

    def transposed(self) -> Rows:
        """Return the columns as rows, (F, B)."""
        return Rows(*kernels.transpose(*self.arrays, self.width), len(self))

    def sums(self, values: Float32 | None = None) -> Float32:
        """Add up each row in float64, float32 (B,); of `values` in place of the rows' own where given."""
        return kernels.sum_rows(self.indptr, self.values if values is None else values)

    def spread(self, values: Float32) -> Float32:
        """Repeat one value per row for each entry of the row: (B,) to (nnz,)."""
        return np.repeat(values, np.diff(self.indptr))

    def matmul(self, table: Float32) -> Float32:
        """Multiply by a table, float32 (F, N) → (B, N); the products of a row are added in entry order."""
        return kernels.matmul(*self.arrays, table)

    def multiply(self, other: Rows) -> Rows:
        """Multiply by sparse rows, (F, G) → (B, G); the products of a row are added in entry order."""
        return Rows(*kernels.multiply(*self.arrays, *other.arrays), other.width)

    @property
    def arrays(self) -> kernels.Arrays:
        """(indptr, indices, values), as kernels take them."""
        return self.indptr, self.indices, self.values


@dataclass(frozen=True, eq=False)
class Encoded:
    """B encoded texts, queries or documents.

    Attributes:
        dense: float32 (B, N), C-contiguous; N may be 0.
        sparse: B rows of F features.
        bias: float32 (B,); zero for queries.
    """

    dense: Float32
    sparse: Rows
    bias: Float32

    STORED: ClassVar = {
        "dense": ("<f4", "n N"),
        "indptr": ("<i8", "n+1"),
        "indices": ("<i4", "E"),
        "weights": ("<f4", "E"),
        "bias": ("<f4", "n"),
    }

    @staticmethod
    def from_rows(
        sparse: Rows, dense: Float32 | None = None, bias: Float32 | float = 0.0
    ) -> Encoded:
        """Make encoded texts of their sparse parts; without `dense` they have no dense part.

        Args:
            dense: (B, N); copied where it is not contiguous float32.
            bias: (B,), or one number for all texts.
        """
        count = len(sparse)
        if dense is None:
            dense = np.zeros((count, 0), np.float32)
        biases = np.full(count, bias, np.float32)
        return Encoded(np.ascontiguousarray(dense, np.float32), sparse, biases)

    @staticmethod
    def from_arrays(arrays: Mapping[str, npt.NDArray[Any]], width: int) -> Encoded:
        """Make encoded texts of `arrays()`; `width` is F."""
        sparse = Rows(arrays["indptr"], arrays["indices"], arrays["weights"], width)
        return Encoded(arrays["dense"], sparse, arrays["bias"])

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the five arrays under the names that a bundle stores them by."""
        return dict(zip(self.STORED, (self.dense, *self.sparse.arrays, self.bias), strict=True))

    def __len__(self) -> int:
        return len(self.bias)

    @property
    def n_dense(self) -> int:
        """N, the width of the dense part."""
        return int(self.dense.shape[1])

    @property
    def width(self) -> int:
        """F, the number of sparse features."""
        return self.sparse.width

    @property
    def indptr(self) -> Int64:
        """int64 (B + 1,): where the sparse entries of each text begin."""
        return self.sparse.indptr

    @property
    def n_entries(self) -> int:
        """Number of sparse entries of all texts."""
        return len(self.sparse.indices)

    def fetch(self, rows: Int64) -> tuple[Encoded, Int64]:
        """Return texts that include the given ones, and the places of these."""
        return self, rows

    @cached_property
    def matrix(self) -> Matrix:
        """These texts with arrays as kernels need them; those of a bundle are not copied."""
        arrays = map(np.ascontiguousarray, (self.dense, *self.sparse.arrays, self.bias))
        return read_only(Matrix(*arrays))

    def whole(self) -> Encoded:
        """Return all texts."""
        return self

    def row(self, i: int) -> tuple[Float32, Int32, Float32, float]:
        """Return text i as (dense (N,), sparse indices, sparse values, bias)."""
        return self.dense[i], *self.sparse.row(i), self.bias[i]

    def slice(self, start: int, stop: int) -> Encoded:
        """View texts start..stop."""
        if start == 0 and stop == len(self):
            return self  # a query is sliced twice on its way to its score
        return Encoded(
            self.dense[start:stop], self.sparse.slice(start, stop), self.bias[start:stop]
        )

    def take(self, rows: Int64) -> Encoded:
        """Copy the given texts, in the given order."""
        return Encoded(self.dense[rows], self.sparse.take(rows), self.bias[rows])


def distinct(features: Any) -> tuple[Any, Any]:
    """Return the distinct features, ascending, and the place of each feature among them, int32 both."""
    found, numbers = kernels.number_values(features)
    order = np.argsort(found)
    place = np.empty(len(found), np.int32)
    place[order] = np.arange(len(found), dtype=np.int32)
    return found[order], place[numbers]


def concatenate(batches: Sequence[Encoded]) -> Encoded:
    """Put batches of encoded texts of one N and F one after another."""
    return Encoded(
        np.concatenate([batch.dense for batch in batches]),
        Rows.vstack([batch.sparse for batch in batches]),
        np.concatenate([batch.bias for batch in batches]),
    )
