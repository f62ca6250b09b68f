"""Upper bounds of scores from outlines: the rows whose score may reach a threshold."""

from __future__ import annotations

import numpy as np
from numba import types

from fullrank.kernels.arrays import Float32, Int8, Int64, Mask
from fullrank.kernels.compiler import FLOAT32, array, kernel, output
from fullrank.kernels.products import code_product, code_shift

_BLOCK = 256


@kernel(
    types.void,
    array("int8"), FLOAT32, array("int8", 2), array("float32"), array("float32"),
    output("float32"),
)  # fmt: skip
def add_outlines(
    code: Int8, scale: np.float32, codes: Int8, scales: Float32, bias: Float32, scores: Float32
) -> None:
    """Add the products with a query's code and the biases to the scores of all documents.

    Args:
        code, scale: The query's, int8 (H,).
        codes, scales: Those of all documents, int8 (n, H) and float32 (n,).
        bias: float32 (n,).
        scores: float32 (n,), updated.
    """
    shift = code_shift(code)
    for row in range(len(scores)):
        scores[row] += code_product(code, shift, codes, row) * scale * scales[row] + bias[row]


@kernel(
    array("int64"),
    array("float32"), array("boolean"), FLOAT32,
    FLOAT32, array("float32"),
    array("int8"), FLOAT32, array("int8", 2), array("float32"),
    FLOAT32, array("float32"),
)  # fmt: skip
def rows_reaching(
    scores: Float32,
    deleted: Mask,
    threshold: np.float32,
    length: np.float32,
    rest: Float32,
    code: Int8,
    scale: np.float32,
    codes: Int8,
    scales: Float32,
    last_length: np.float32,
    last_rest: Float32,
) -> Int64:
    """Return the rows whose bounds reach the threshold, ascending.

    Args:
        scores: With the outlines added, float32 (n,).
        deleted: bool (n,), rows to leave out; empty for none.
        threshold: The least bound.
        length, rest: Of what the outlines leave of the query, and of the documents, float32 (n,).
        code, scale, codes, scales: More of them, read for the rows whose first bound reaches the threshold.
        last_length, last_rest: Of what both leave.
    """
    shift = code_shift(code)
    found, near = np.empty(64, np.int64), np.empty(_BLOCK, np.int64)
    size = 0
    for start in range(0, len(scores), _BLOCK):
        reaching = 0
        for row in range(start, min(start + _BLOCK, len(scores))):
            # Without a branch: whether a row reaches the threshold cannot be predicted.
            near[reaching] = row
            reaching += scores[row] + length * rest[row] >= threshold
        for i in range(reaching):
            row = near[i]
            if len(deleted) and deleted[row]:
                continue
            score = scores[row] + code_product(code, shift, codes, row) * scale * scales[row]
            if score + last_length * last_rest[row] >= threshold:
                if size == len(found):
                    larger = np.empty(2 * size, np.int64)
                    larger[:size] = found
                    found = larger
                found[size] = row
                size += 1
    return found[:size]
