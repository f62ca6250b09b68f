"""Move encoded documents: read their records from a file, and copy them from several sets into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fullrank.kernels.arrays import Float32, Int32, Int64, UInt8
from fullrank.kernels.compiler import INT64, array, check_inside, kernel, output, several
from fullrank.kernels.index import MATRIX, Matrix

# Read records of documents from a file: the vector v, then the columns and the weights of t, 4 bytes each.


# Bytes of a number.
_SIZE = 4

Arrays = tuple[Float32, Int64, Int32, Float32]


@intrinsic
def _typed_pread(_typing: Any, file: Any, buffer: Any, size: Any, offset: Any) -> Any:
    """Call pread(2) of the C library: read `size` bytes at an offset of a file into an array; return how many."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        descriptor, target, count, place = arguments
        data = context.make_array(signature.args[1])(context, builder, target).data
        narrow, wide = ir.IntType(32), ir.IntType(64)
        into = builder.bitcast(data, ir.IntType(8).as_pointer())
        kind = ir.FunctionType(wide, [narrow, into.type, wide, wide])
        function = builder.module.globals.get("pread")
        function = function or ir.Function(builder.module, kind, "pread")
        return builder.call(function, [builder.trunc(descriptor, narrow), into, count, place])

    return types.int64(types.int64, buffer, types.int64, types.int64), generate


# numba gives the first argument; a caller leaves it out.
_pread: Callable[..., int] = _typed_pread


@kernel(
    several(output("float32", 2), output("int64"), output("int32"), output("float32")),
    INT64, INT64, INT64, array("int64"), array("int64"),
)  # fmt: skip
def read_records(file: int, start: int, width: int, indptr: Int64, rows: Int64) -> Arrays:
    """Read the records of some documents, each with one system call.

    Returns:
        dense (k, N), indptr (k + 1,), indices and values of these documents, in the given order.

    Raises:
        IndexError: A row or an end of a row does not exist.
        OSError: The file cannot be read, or is shorter than its records.
    """
    ends = np.zeros(len(rows) + 1, np.int64)
    longest = 0
    for i in range(len(rows)):
        check_inside(rows[i], len(indptr) - 1)
        size = indptr[rows[i] + 1] - indptr[rows[i]]
        check_inside(size, indptr[-1] + 1)
        ends[i + 1] = ends[i] + size
        longest = max(longest, size)
    dense = np.empty((len(rows), width), np.float32)
    indices, values = np.empty(ends[-1], np.int32), np.empty(ends[-1], np.float32)
    record = np.empty(width + 2 * longest, np.int32)
    floats = record.view(np.float32)
    for i in range(len(rows)):
        size = ends[i + 1] - ends[i]
        length = _SIZE * (width + 2 * size)
        place = start + _SIZE * (rows[i] * width + 2 * indptr[rows[i]])
        if _pread(file, record, length, place) != length:
            raise OSError("documents/records.npy cannot be read; is the disk or the file damaged?")
        dense[i] = floats[:width]
        indices[ends[i] : ends[i + 1]] = record[width : width + size]
        values[ends[i] : ends[i + 1]] = floats[width + size : width + 2 * size]
    return dense, ends, indices, values


@kernel(
    output("int32"), array("float32", 2), array("int64"), array("int32"), array("float32")
)  # fmt: skip
def make_records(dense: Float32, indptr: Int64, indices: Int32, values: Float32) -> Int32:
    """Return the records of documents, one after another, int32 (B · N + 2 · entries,)."""
    width = dense.shape[1]
    records = np.empty(dense.size + 2 * len(indices), np.int32)
    floats = records.view(np.float32)
    place = 0
    for row in range(len(dense)):
        size = indptr[row + 1] - indptr[row]
        floats[place : place + width] = dense[row]
        place += width
        records[place : place + size] = indices[indptr[row] : indptr[row + 1]]
        place += size
        floats[place : place + size] = values[indptr[row] : indptr[row + 1]]
        place += size
    return records


# Copy encoded documents from several sets into one, and strings from several tables.


@kernel(
    types.void,
    MATRIX, array("int64"), array("int64"), array("int32"),
    several(output("float32", 2), array("int64"), output("int32"), output("float32")),
)  # fmt: skip
def copy_documents(
    documents: Matrix, rows: Int64, places: Int64, target: Int32, to: Arrays
) -> None:
    """Copy documents to places of a larger set.

    Args:
        documents: The documents to copy from.
        rows, places: int64 (k,), which of them, and where each goes.
        target: The new number of each feature, ascending; empty if features keep their numbers.
        to: dense, indptr, indices and values of the larger set; all but the ends of its rows are written.
    """
    to_dense, to_indptr, to_indices, to_values = to
    dense, indptr = documents.dense, documents.indptr
    indices, values = documents.indices, documents.values
    for i in range(len(rows)):
        row, place = rows[i], places[i]
        for j in range(dense.shape[1]):
            to_dense[place, j] = dense[row, j]
        at = to_indptr[place]
        for p in range(indptr[row], indptr[row + 1]):
            to_indices[at] = target[indices[p]] if len(target) else indices[p]
            to_values[at] = values[p]
            at += 1


@kernel(
    types.void,
    array("uint8"), array("int64"), array("int64"), array("int64"), array("int64"), output("uint8"),
)  # fmt: skip
def copy_strings(
    blob: UInt8, offsets: Int64, rows: Int64, places: Int64, bounds: Int64, out: UInt8
) -> None:
    """Copy strings of a table into another one.

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
