"""Copy encoded documents from several sets into one, and strings from several tables."""

from __future__ import annotations

from numba import types

from fullrank.kernels.arrays import Float32, Int32, Int64, UInt8
from fullrank.kernels.compiler import array, check_inside, kernel, output


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
    types.void,
    array("uint8"), array("int64"), array("int64"), array("int64"), array("int64"), output("uint8"),
)  # fmt: skip
def copy_strings(
    blob: UInt8, offsets: Int64, rows: Int64, places: Int64, bounds: Int64, out: UInt8
) -> None:
    """Copy strings of a table into another one.

    Args:
        blob, offsets: The table, as fullrank.storage.strings describes it.
        rows, places: int64 (B,), the strings to copy, and the place of each in the other table.
        bounds: int64, the offsets of the other table.
        out: uint8, its bytes.

    Raises:
        IndexError: A string does not fit the table.
    """
    for i in range(len(rows)):
        start, stop = offsets[rows[i]], offsets[rows[i] + 1]
        check_inside(start, len(blob) + 1)
        check_inside(stop, len(blob) + 1)
        place = bounds[places[i]]
        for p in range(start, stop):
            out[place] = blob[p]
            place += 1
