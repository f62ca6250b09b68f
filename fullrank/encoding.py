"""What every model turns a text into: a dense vector, a sparse vector and a bias.

score(q, d) = u·v + s·t + b
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Encoded:
    """B encoded texts, queries or documents.

    dense    float32 (B, N), C-contiguous; N may be 0
    indptr   int64 (B + 1,): row i's sparse entries are indices[indptr[i]:indptr[i + 1]]
    indices  int32 (nnz,), ascending and distinct inside a row, each < width
    weights  float32 (nnz,)
    width    F, the number of sparse features
    bias     float32 (B,); zero for queries
    """

    dense: Float32
    indptr: Int64
    indices: Int32
    weights: Float32
    width: int
    bias: Float32

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def row(self, i: int) -> tuple[Float32, Int32, Float32, float]:
        """Text i as (dense (N,), sparse indices, sparse weights, bias)."""
        start, stop = self.indptr[i], self.indptr[i + 1]
        return self.dense[i], self.indices[start:stop], self.weights[start:stop], self.bias[i]

    def slice(self, start: int, stop: int) -> Encoded:
        """Texts start..stop as views, indptr rebased to zero."""
        first, last = self.indptr[start], self.indptr[stop]
        return Encoded(
            self.dense[start:stop],
            self.indptr[start : stop + 1] - first,
            self.indices[first:last],
            self.weights[first:last],
            self.width,
            self.bias[start:stop],
        )

    def csr(self) -> sp.csr_array[np.float32]:
        """The sparse part as a (B, F) matrix over the same memory."""
        return sp.csr_array(
            (self.weights, self.indices, self.indptr), shape=(len(self), self.width)
        )


def concatenate(batches: Sequence[Encoded]) -> Encoded:
    """Encoded texts of several batches, in order; all must share N and F."""
    offsets = np.cumsum([0] + [int(batch.indptr[-1]) for batch in batches])
    tails = [batch.indptr[1:] + offset for batch, offset in zip(batches, offsets, strict=False)]
    return Encoded(
        np.concatenate([batch.dense for batch in batches]),
        np.concatenate([np.zeros(1, np.int64), *tails]),
        np.concatenate([batch.indices for batch in batches]),
        np.concatenate([batch.weights for batch in batches]),
        batches[0].width,
        np.concatenate([batch.bias for batch in batches]),
    )
