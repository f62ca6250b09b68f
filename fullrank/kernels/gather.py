"""Copy encoded documents from several sets into one, and transpose them into posting lists."""

from __future__ import annotations

import numpy as np
from numba import types

from fullrank.kernels.arrays import Float32, Int32, Int64
from fullrank.kernels.compiler import INT64, array, kernel, output, several
from fullrank.kernels.scan import LEVELS


@kernel(
    types.void,
    array("float32", 2), array("int64"), array("int32"), array("float32"),
    array("int64"), array("int64"), array("int32"),
    output("float32", 2), array("int64"), output("int32"), output("float32"),
)  # fmt: skip
def copy_documents(
    dense: Float32,
    indptr: Int64,
    indices: Int32,
    values: Float32,
    rows: Int64,
    places: Int64,
    target: Int32,
    to_dense: Float32,
    to_indptr: Int64,
    to_indices: Int32,
    to_values: Float32,
) -> None:
    """Copy documents to places of a larger set.

    Args:
        dense, indptr, indices, values: The documents to copy from, as in Encoded.
        rows: Which of them, int64 (k,).
        places: Where each goes, int64 (k,).
        target: The new number of each feature, ascending; empty if features keep their numbers.
        to_dense, to_indptr, to_indices, to_values: The larger set; all but the ends of its rows are written.
    """
    for i in range(len(rows)):
        row, place = rows[i], places[i]
        for j in range(dense.shape[1]):
            to_dense[place, j] = dense[row, j]
        to = to_indptr[place]
        for p in range(indptr[row], indptr[row + 1]):
            to_indices[to] = target[indices[p]] if len(target) else indices[p]
            to_values[to] = values[p]
            to += 1


@kernel(
    several(output("int64"), output("int32"), output("uint8"), output("float32", 2)),
    array("int64"), array("int32"), array("float32"), INT64,
)  # fmt: skip
def transpose(
    indptr: Int64, indices: Int32, values: Float32, width: int
) -> tuple[Int64, Int32, np.ndarray, Float32]:
    """Make posting lists of sparse rows.

    Args:
        indptr, indices, values: The rows, as in Rows.
        width: F.

    Returns:
        indptr, rows, impacts and limits, as in Postings.
    """
    ends = np.zeros(width + 1, np.int64)
    limits = np.zeros((width, 2), np.float32)
    for p in range(indptr[0], indptr[-1]):
        word, value = indices[p], values[p]
        if ends[word + 1] == 0:
            limits[word, 0] = limits[word, 1] = value
        limits[word, 0] = min(limits[word, 0], value)
        limits[word, 1] = max(limits[word, 1], value)
        ends[word + 1] += 1
    for word in range(width):
        ends[word + 1] += ends[word]
    following = ends[:-1].copy()
    rows = np.empty(ends[-1], np.int32)
    impacts = np.empty(ends[-1], np.uint8)
    for row in range(len(indptr) - 1):
        for p in range(indptr[row], indptr[row + 1]):
            word = indices[p]
            low = np.float64(limits[word, 0])
            step = (np.float64(limits[word, 1]) - low) / LEVELS
            level = 0.0
            if step > 0:
                level = min(max(np.rint((np.float64(values[p]) - low) / step), 0.0), 255.0)
            rows[following[word]] = row
            impacts[following[word]] = np.uint8(level)
            following[word] += 1
    return ends, rows, impacts, limits
