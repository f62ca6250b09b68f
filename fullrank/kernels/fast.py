"""The candidates of the fast mode: read the heads of lists, keep the best read, estimate the score of each.

`marks` holds the number of the step that saw a row last. Each step has a number of its own, so that the marks of
earlier queries need no clearing.
"""

from __future__ import annotations

import numpy as np

from fullrank.kernels.arrays import Float32, Float64, Int8, Int32, Int64, Mask, UInt8, UInt16
from fullrank.kernels.compiler import (
    FLOAT32,
    FLOAT64,
    INT64,
    array,
    check_inside,
    kernel,
    output,
    several,
)
from fullrank.kernels.scan import LEVELS, code_product
from fullrank.kernels.select import push


@kernel(
    several(array("int64"), array("int64"), array("float32")),
    array("int32"), array("float32"), INT64, FLOAT64,
    array("int64"), array("int32"), array("uint8"),
    array("int64"), array("int32"), array("uint8"), array("float32", 2),
    array("int32"), array("float64"),
    output("float32"), output("int32"), INT64,
)  # fmt: skip
def read_heads(
    words: Int32,
    weights: Float32,
    depth: int,
    floor: float,
    head_indptr: Int64,
    head_rows: Int32,
    head_impacts: UInt8,
    indptr: Int64,
    rows: Int32,
    impacts: UInt8,
    limits: Float32,
    signed: Int32,
    rest: Float64,
    scores: Float32,
    marks: Int32,
    mark: int,
) -> tuple[Int64, Int64, Float32]:
    """Add up the heads of the lists of a query's words.

    Args:
        words, weights: The query's words, int32 and float32 (m,).
        depth: Entries to read of a word of the signatures; other lists are read in full.
        floor: Stop where the word contributes less than this share of the largest contribution of any word.
        head_indptr, head_rows, head_impacts: The short lists (Shortlists).
        indptr, rows, impacts, limits: The postings, for words without a short list.
        signed: The words of the signatures, int32 ascending.
        rest: The mean impact of each behind its head, float64.
        scores: float32 (n,), updated.
        marks, mark: int32 (n,), and the number that marks the rows read.

    Returns:
        The rows read, each once; the signature bits of words read in part; what each bit adds to an estimate. A head's
        contribution leaves that out, so that a document gets the sum of both.

    Raises:
        IndexError: A list has a row that does not exist.
    """
    count = len(words)
    start, stop = np.empty(count, np.int64), np.empty(count, np.int64)
    from_heads, cut = np.empty(count, np.bool_), np.empty(count, np.bool_)
    base, step = np.empty(count, np.float64), np.empty(count, np.float64)
    bits, values = np.empty(count, np.int64), np.empty(count, np.float32)
    n_bits = n_entries = 0
    largest = 0.0
    for i in range(count):
        word, weight = words[i], np.float64(weights[i])
        low = np.float64(limits[word, 0]) * weight
        step[i] = (np.float64(limits[word, 1]) - np.float64(limits[word, 0])) * weight / LEVELS
        start[i], stop[i] = head_indptr[word], head_indptr[word + 1]
        from_heads[i] = start[i] < stop[i]
        bit = np.searchsorted(signed, word)
        is_signed = bit < len(signed) and signed[bit] == word
        if is_signed:
            stop[i] = min(stop[i], start[i] + depth)
        in_part = is_signed and stop[i] - start[i] < indptr[word + 1] - indptr[word]
        base[i] = low
        if in_part:
            value = low + step[i] * rest[bit]
            bits[n_bits], values[n_bits] = bit, np.float32(value)
            n_bits += 1
            base[i] = low - value
        largest = max(largest, base[i] + LEVELS * max(step[i], 0.0))
        # A floor needs contributions that descend along the list.
        cut[i] = in_part and step[i] > 0 and limits[word, 1] > 0
        if not from_heads[i]:
            start[i], stop[i] = indptr[word], indptr[word + 1]
        n_entries += stop[i] - start[i]
    least = floor * largest
    found = np.empty(n_entries, np.int64)
    size = 0
    for i in range(count):
        list_rows = head_rows if from_heads[i] else rows
        list_impacts = head_impacts if from_heads[i] else impacts
        check_inside(start[i], len(list_rows) + 1)
        check_inside(stop[i], len(list_rows) + 1)
        for p in range(start[i], stop[i]):
            value = base[i] + step[i] * list_impacts[p]
            if cut[i] and least > 0 and value < least:
                break
            row = list_rows[p]
            check_inside(row, len(scores))
            scores[row] += np.float32(value)
            if marks[row] != mark:
                marks[row] = mark
                found[size] = row
                size += 1
    return found[:size], bits[:n_bits], values[:n_bits]


@kernel(
    array("int64"),
    array("int64"), array("float32"), array("float32"), array("uint16"), FLOAT32,
    array("boolean"), INT64,
)  # fmt: skip
def best_read(
    read: Int64,
    scores: Float32,
    near: Float32,
    cell_of: UInt16,
    centre_weight: np.float32,
    deleted: Mask,
    limit: int,
) -> Int64:
    """Keep the rows read whose score and share of u · (centre of their cell) are best.

    Args:
        read: int64, distinct rows.
        scores: float32 (n,).
        near: u · centre of each cell; empty for none.
        cell_of: uint16 (n,), the cell of each document.
        centre_weight: The share.
        deleted: bool (n,); empty for none.
        limit: How many to keep.
    """
    best, rows = np.empty(limit, np.float32), np.empty(limit, np.int64)
    size = 0
    for row in read:
        if not (len(deleted) and deleted[row]):
            score = scores[row]
            if len(near):
                score += centre_weight * near[cell_of[row]]
            if size < limit or score > best[0]:
                size = push(best, rows, size, score, row)
    return rows[:size]


@kernel(
    array("int64"),
    array("int64"), array("int64"), array("boolean"), output("int32"), INT64,
    array("int8"), FLOAT32, array("int8", 2), array("float32"),
    array("float32"), array("float32"), array("uint8", 2), array("int64"), array("float32"), INT64,
)  # fmt: skip
def best_estimated(
    read: Int64,
    dense: Int64,
    deleted: Mask,
    marks: Int32,
    mark: int,
    code: Int8,
    scale: np.float32,
    codes: Int8,
    scales: Float32,
    scores: Float32,
    bias: Float32,
    signatures: UInt8,
    bits: Int64,
    values: Float32,
    limit: int,
) -> Int64:
    """Keep the candidates with the best estimates: û·v̂ + Σ impacts read + Σ of the signature's words + b.

    Args:
        read, dense: Candidates of the sparse and of the dense side; a row in both counts once.
        deleted: bool (n,); empty for none.
        marks, mark: int32 (n,), and the number that marks the rows estimated.
        code, scale: The query's code.
        codes, scales, scores, bias, signatures: Of all documents.
        bits, values: What read_heads returned.
        limit: How many to keep.
    """
    best, rows = np.empty(limit, np.float32), np.empty(limit, np.int64)
    size = 0
    for i in range(len(read) + len(dense)):
        row = read[i] if i < len(read) else dense[i - len(read)]
        if marks[row] == mark or (len(deleted) and deleted[row]):
            continue
        marks[row] = mark
        estimate = code_product(code, codes, row) * scale * scales[row] + scores[row] + bias[row]
        for k in range(len(bits)):
            if signatures[row, bits[k] >> 3] >> (bits[k] & 7) & 1:
                estimate += values[k]
        if size < limit or estimate > best[0]:
            size = push(best, rows, size, estimate, row)
    return rows[:size]
