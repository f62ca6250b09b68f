"""The entries of sparse rows with the largest absolute values."""

from __future__ import annotations

import numpy as np

from fullrank.kernels.arrays import Float32, Int32, Int64
from fullrank.kernels.compiler import INT64, array, helper, kernel, output, several
from fullrank.kernels.sorting import stable_order


@helper
def keep_largest(columns: Int32, values: Float32, size: int, keep: int) -> int:
    """Keep the entries with the largest absolute values, ties by place, in place; return how many there are."""
    if keep == 0 or size <= keep:
        return size
    order = stable_order(-np.abs(values[:size]))
    is_kept = np.zeros(size, np.bool_)
    is_kept[order[:keep]] = True
    stop = 0
    for p in range(size):
        if is_kept[p]:
            columns[stop] = columns[p]
            values[stop] = values[p]
            stop += 1
    return stop


@kernel(
    several(output("int64"), output("int32"), output("float32")),
    array("int64"), array("int32"), array("float32"), INT64,
)  # fmt: skip
def largest_entries(
    indptr: Int64, indices: Int32, values: Float32, keep: int
) -> tuple[Int64, Int32, Float32]:
    """Keep the `keep` entries of each row with the largest absolute values, ties by place; 0 keeps all."""
    ends = np.zeros(len(indptr), np.int64)
    columns, weights = indices.copy(), values.copy()
    stop = 0
    for row in range(len(indptr) - 1):
        begin, size = indptr[row], indptr[row + 1] - indptr[row]
        kept = keep_largest(columns[begin:], weights[begin:], size, keep)
        for p in range(kept):
            columns[stop + p] = columns[begin + p]
            weights[stop + p] = weights[begin + p]
        stop += kept
        ends[row + 1] = stop
    return ends, columns[:stop].copy(), weights[:stop].copy()
