"""Sparse rows: sort, renumber, cut out, add and multiply them.

A matrix is three arrays, as in storage.encoding.Rows: indptr int64 (B + 1,), indices int32 (nnz,) and values float32
(nnz,). The kernels work row by row, so the bits of a row depend on that row alone.
"""

from __future__ import annotations

import numpy as np
from numba import types

from fullrank.kernels.arrays import Float32, Float64, Int32, Int64, UInt8, prefetch, stable_order
from fullrank.kernels.compiler import (
    FLOAT32,
    INT64,
    array,
    check_inside,
    helper,
    kernel,
    output,
    several,
)
from fullrank.kernels.scan import LEVELS

Arrays = tuple[Int64, Int32, Float32]
# 2⁶⁴ / golden ratio.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

_ROWS = (array("int64"), array("int32"), array("float32"))
_NEW_ROWS = several(output("int64"), output("int32"), output("float32"))


@kernel(INT64, output("int32"), output("float32"), INT64, INT64)
def sort_row(indices: Int32, values: Float32, start: int, stop: int) -> int:
    """Sort entries start..stop by index in place, add up equal ones in the order they had, return the new stop."""
    is_sorted = True
    for p in range(start + 1, stop):
        is_sorted = is_sorted and indices[p - 1] < indices[p]
    if is_sorted:
        return stop
    order = stable_order(indices[start:stop])
    columns, weights = indices[start:stop].copy(), values[start:stop].copy()
    last = start - 1
    for place in order:
        if last >= start and columns[place] == indices[last]:
            values[last] += weights[place]
        else:
            last += 1
            indices[last] = columns[place]
            values[last] = weights[place]
    return last + 1


@kernel(_NEW_ROWS, *_ROWS, array("int32"), INT64, INT64)
def pick_columns(
    indptr: Int64, indices: Int32, values: Float32, target: Int32, first: int, last: int
) -> Arrays:
    """Move column j to target[j], and copy columns first..last of that, renumbered from zero.

    Args:
        indptr, indices, values: The rows; their entries may have any order. Equal columns are added up in that order.
        target: int32, one number per column, -1 drops it; empty: columns keep their numbers.
        first, last: Not negative.
    """
    size = 0
    for p in range(len(indices)):
        size += first <= (target[indices[p]] if len(target) else indices[p]) < last
    ends = np.zeros(len(indptr), np.int64)
    columns, weights = np.empty(size, np.int32), np.empty(size, np.float32)
    stop = 0
    for row in range(len(indptr) - 1):
        start = stop
        for p in range(indptr[row], indptr[row + 1]):
            column = target[indices[p]] if len(target) else indices[p]
            if first <= column < last:
                columns[stop] = column - first
                weights[stop] = values[p]
                stop += 1
        stop = sort_row(columns, weights, start, stop)
        ends[row + 1] = stop
    return ends, columns[:stop], weights[:stop]


_AS_THEY_ARE, _ANY = np.zeros(0, np.int32), 1 << 31


def sort_rows(indptr: Int64, indices: Int32, values: Float32) -> Arrays:
    """Sort the entries of each row by index and add up equal ones in the order they had."""
    return pick_columns(indptr, indices, values, _AS_THEY_ARE, 0, _ANY)


def remap_columns(indptr: Int64, indices: Int32, values: Float32, target: Int32) -> Arrays:
    """Move column j to target[j]; -1 drops it, columns with one target are added up."""
    return pick_columns(indptr, indices, values, target, 0, _ANY)


def cut_columns(indptr: Int64, indices: Int32, values: Float32, first: int, last: int) -> Arrays:
    """Copy columns first..last, renumbered from zero."""
    return pick_columns(indptr, indices, values, _AS_THEY_ARE, first, last)


@kernel(
    types.void,
    *_ROWS, FLOAT32, INT64, output("int64"), output("int32"), output("float32"),
)  # fmt: skip
def put_part(
    indptr: Int64,
    indices: Int32,
    values: Float32,
    factor: np.float32,
    first: int,
    places: Int64,
    out_indices: Int32,
    out_values: Float32,
) -> None:
    """Put rows, times a factor, into wider ones.

    Args:
        first: The column that their first column becomes.
        places: int64 (B,), where the next entry of each row goes; moved behind the entries of this part.
    """
    for row in range(len(places)):
        place = places[row]
        for p in range(indptr[row], indptr[row + 1]):
            out_indices[place] = indices[p] + first
            out_values[place] = values[p] * factor
            place += 1
        places[row] = place


@helper
def add_row(
    columns: Int32, values: Float32, size: int, more: Int32, more_values: Float32, more_size: int,
    out: Int32, out_values: Float32,
) -> int:  # fmt: skip
    """Add two rows into a third without entries of zero; return its size."""
    p = q = stop = 0
    while p < size or q < more_size:
        if q == more_size or (p < size and columns[p] < more[q]):
            column, value = columns[p], values[p]
            p += 1
        elif p == size or more[q] < columns[p]:
            column, value = more[q], more_values[q]
            q += 1
        else:
            column, value = columns[p], values[p] + more_values[q]
            p += 1
            q += 1
        if value != 0:
            out[stop] = column
            out_values[stop] = value
            stop += 1
    return stop


@kernel(_NEW_ROWS, *_ROWS, *_ROWS)
def add(
    indptr: Int64,
    indices: Int32,
    values: Float32,
    other_indptr: Int64,
    other_indices: Int32,
    other_values: Float32,
) -> Arrays:
    """Add two matrices of one shape; entries that add up to zero are dropped."""
    ends = np.zeros(len(indptr), np.int64)
    columns = np.empty(len(indices) + len(other_indices), np.int32)
    weights = np.empty(len(columns), np.float32)
    stop = 0
    for row in range(len(indptr) - 1):
        p, p_end = indptr[row], indptr[row + 1]
        q, q_end = other_indptr[row], other_indptr[row + 1]
        stop += add_row(
            indices[p:p_end], values[p:p_end], p_end - p,
            other_indices[q:q_end], other_values[q:q_end], q_end - q,
            columns[stop:], weights[stop:],
        )  # fmt: skip
        ends[row + 1] = stop
    return ends, columns[:stop], weights[:stop]


@kernel(_NEW_ROWS, *_ROWS, *_ROWS)
def multiply(
    indptr: Int64,
    indices: Int32,
    values: Float32,
    factor_indptr: Int64,
    factor_indices: Int32,
    factor_values: Float32,
) -> Arrays:
    """Multiply (B, W) by a factor (W, F); the products of a row are added in entry order."""
    size = 0
    for p in range(len(indices)):
        size += factor_indptr[indices[p] + 1] - factor_indptr[indices[p]]
    ends = np.zeros(len(indptr), np.int64)
    columns = np.empty(size, np.int32)
    weights = np.empty(size, np.float32)
    stop = 0
    for row in range(len(indptr) - 1):
        start = stop
        for p in range(indptr[row], indptr[row + 1]):
            for q in range(factor_indptr[indices[p]], factor_indptr[indices[p] + 1]):
                columns[stop] = factor_indices[q]
                weights[stop] = values[p] * factor_values[q]
                stop += 1
        stop = sort_row(columns, weights, start, stop)
        ends[row + 1] = stop
    return ends, columns[:stop], weights[:stop]


@kernel(_NEW_ROWS, *_ROWS, INT64)
def transpose(indptr: Int64, indices: Int32, values: Float32, width: int) -> Arrays:
    """Return the columns of a matrix as rows, entries ascending by the row that they come from."""
    starts = np.zeros(width + 1, np.int64)
    for p in range(len(indices)):
        starts[indices[p] + 1] += 1
    for column in range(width):
        starts[column + 1] += starts[column]
    rows = np.empty(len(indices), np.int32)
    weights = np.empty(len(indices), np.float32)
    for row in range(len(indptr) - 1):
        for p in range(indptr[row], indptr[row + 1]):
            place = starts[indices[p]]
            starts[indices[p]] = place + 1
            rows[place] = row
            weights[place] = values[p]
    # Each column has moved its start to that of the next one.
    for column in range(width, 0, -1):
        starts[column] = starts[column - 1]
    starts[0] = 0
    return starts, rows, weights


@kernel(output("float32"), array("int64"), array("float32"))
def sum_rows(indptr: Int64, values: Float32) -> Float32:
    """Add up each row in float64, one value after another, float32 (B,)."""
    sums = np.empty(len(indptr) - 1, np.float32)
    for row in range(len(sums)):
        total = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            total += values[p]
        sums[row] = total
    return sums


@helper
def normalise(values: Float32, size: int) -> None:
    """Divide the first values by their Euclidean norm, unless that is zero."""
    total = 0.0
    for p in range(size):
        total += values[p] * values[p]
    norm = np.sqrt(np.float32(total))
    if norm != 0:
        for p in range(size):
            values[p] /= norm


@kernel(output("float32"), array("int64"), array("float32"))
def unit_rows(indptr: Int64, values: Float32) -> Float32:
    """Divide each row by its Euclidean norm; an all-zero row stays zero. Return the new values."""
    found = values.copy()
    for row in range(len(indptr) - 1):
        normalise(found[indptr[row] :], indptr[row + 1] - indptr[row])
    return found


@kernel(output("float32", 2), *_ROWS, array("float32", 2))
def matmul(indptr: Int64, indices: Int32, values: Float32, table: Float32) -> Float32:
    """Multiply by a table, float32 (F, N) → (B, N); the products of a row are added in entry order."""
    found = np.zeros((len(indptr) - 1, table.shape[1]), np.float32)
    for row in range(len(indptr) - 1):
        total = found[row]
        for p in range(indptr[row], indptr[row + 1]):
            value, line = values[p], table[indices[p]]
            for j in range(len(total)):
                total[j] += value * line[j]
    return found


@kernel(output("float64"), array("int32"), array("float32"), INT64)
def largest_weights(indices: Int32, values: Float32, width: int) -> Float64:
    """Return the largest absolute value of each column, float64 (width,); 0 for a column without an entry."""
    found = np.zeros(width)
    for p in range(len(indices)):
        found[indices[p]] = max(found[indices[p]], abs(np.float64(values[p])))
    return found


@kernel(several(array("int32"), array("float32")), array("int32"), array("int32"), array("float32"))
def find_columns(features: Int32, indices: Int32, values: Float32) -> tuple[Int32, Float32]:
    """Number the entries of a row by their places among some features; leave out all others."""
    places, kept = np.empty(len(indices), np.int32), np.empty(len(indices), np.float32)
    size = 0
    for i in range(len(indices)):
        place = np.searchsorted(features, indices[i])
        if place < len(features) and features[place] == indices[i]:
            places[size], kept[size] = place, values[i]
            size += 1
    return places[:size], kept[:size]


@kernel(
    several(output("int32"), output("float32"), output("int64")),
    array("int32"), array("float32"), array("int32"), array("float32"),
)  # fmt: skip
def widen_row(
    indices: Int32, values: Float32, features: Int32, weights: Float32
) -> tuple[Int32, Float32, Int64]:
    """Add features to a row that it does not have yet, each with the weight of the largest absolute value.

    Args:
        indices, values: The row, ascending.
        features, weights: What to add, in any order; of equal weights the first counts, and none of 0.

    Returns:
        The row, and the places of the features that it gained, ascending by feature.
    """
    order, count = stable_order(features), len(features)
    gained = np.empty(count, np.int64)
    n_gained = own = start = 0
    while start < count:
        feature = features[order[start]]
        best, stop = order[start], start + 1
        while stop < count and features[order[stop]] == feature:
            if abs(weights[order[stop]]) > abs(weights[best]):
                best = order[stop]
            stop += 1
        while own < len(indices) and indices[own] < feature:
            own += 1
        if weights[best] != 0 and not (own < len(indices) and indices[own] == feature):
            gained[n_gained] = best
            n_gained += 1
        start = stop
    size = len(indices) + n_gained
    columns, found = np.empty(size, np.int32), np.empty(size, np.float32)
    own = new = 0
    for place in range(size):
        is_new = own == len(indices) or (new < n_gained and features[gained[new]] < indices[own])
        if is_new:
            columns[place], found[place] = features[gained[new]], weights[gained[new]]
            new += 1
        else:
            columns[place], found[place] = indices[own], values[own]
            own += 1
    return columns, found, gained[:n_gained]


@kernel(several(output("int32"), output("int32")), array("int32"))
def number_values(values: Int32) -> tuple[Int32, Int32]:
    """Number different values in the order of their first use.

    Returns:
        The different values in that order, and the number of each value.
    """
    size = 2
    while size < 2 * len(values):
        size *= 2
    slots, mask = np.full(size, -1, np.int32), np.uint64(size - 1)
    found, numbers = np.empty(len(values), np.int32), np.empty(len(values), np.int32)
    count = 0
    for i in range(len(values)):
        # Fibonacci hashing: features of neighbouring words are often neighbours, too.
        slot = ((np.uint64(values[i]) * _GOLDEN) >> np.uint64(32)) & mask
        while slots[slot] >= 0 and found[slots[slot]] != values[i]:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot] = count
            found[count] = values[i]
            count += 1
        numbers[i] = slots[slot]
    return found[:count].copy(), numbers


# The entries of sparse rows with the largest absolute values.


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


@kernel(_NEW_ROWS, *_ROWS, INT64)
def largest_entries(indptr: Int64, indices: Int32, values: Float32, keep: int) -> Arrays:
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


# Make posting lists of sparse rows.


@kernel(
    types.void,
    array("int32"), array("float32"), output("int64"), output("float32", 2),
)  # fmt: skip
def count_entries(indices: Int32, values: Float32, counts: Int64, limits: Float32) -> None:
    """Count the entries of each word, and find its least and largest weight.

    Args:
        limits: float32 (F, 2), of the entries counted before; updated.
    """
    for p in range(len(indices)):
        word, value = indices[p], values[p]
        check_inside(word, len(counts))
        if counts[word] == 0:
            limits[word, 0] = limits[word, 1] = value
        limits[word, 0] = min(limits[word, 0], value)
        limits[word, 1] = max(limits[word, 1], value)
        counts[word] += 1


@kernel(
    types.void,
    several(*_ROWS), array("int32"), INT64, INT64,
    array("float32", 2), output("int64"), output("int32"), output("uint8"),
)  # fmt: skip
def fill_lists(
    documents: Arrays, order: Int32, start: int, stop: int,
    limits: Float32, following: Int64, slots: Int32, impacts: UInt8,
) -> None:  # fmt: skip
    """Append the documents of slots start..stop to the lists of their words.

    Args:
        documents: Words and weights.
        order, start, stop: int32 (n,), the document of each slot, and which slots.
        limits: float32 (F, 2), the least and the largest weight of a word.
        following: int64 (F,), where the next entry of each word goes; updated.
        slots, impacts: int32 and uint8 (entries,), written.
    """
    indptr, indices, values = documents
    for slot in range(start, stop):
        row = order[slot]
        for p in range(indptr[row], indptr[row + 1]):
            word = indices[p]
            low = np.float64(limits[word, 0])
            step = (np.float64(limits[word, 1]) - low) / LEVELS
            level = 0.0
            if step > 0:
                level = min(max(np.rint((np.float64(values[p]) - low) / step), 0.0), 255.0)
            to = following[word]
            slots[to] = slot
            impacts[to] = np.uint8(level)
            following[word] = to + 1


@kernel(
    several(array("int32"), array("float32")), array("int64"), array("int32"), array("float32")
)  # fmt: skip
def with_entries(indptr: Int64, words: Int32, weights: Float32) -> tuple[Int32, Float32]:
    """Return the words whose list has an entry, and their weights."""
    for i in range(len(words)):
        prefetch(indptr, words[i])
    found, own = np.empty(len(words), np.int32), np.empty(len(words), np.float32)
    size = 0
    for i in range(len(words)):
        found[size], own[size] = words[i], weights[i]
        size += indptr[words[i]] < indptr[words[i] + 1]
    return found[:size], own[:size]
