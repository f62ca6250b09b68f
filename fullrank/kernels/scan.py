"""Approximate scores of all documents from int8 codes and 8-bit impacts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from fullrank.encoding import Float32, Float64, Int32, Int64
from fullrank.kernels.compiler import FLOAT32, array, kernel, output

Int8 = npt.NDArray[np.int8]
UInt8 = npt.NDArray[np.uint8]

# Of 8-bit impacts.
LEVELS = 255


@kernel(
    types.void,
    array("int8"), FLOAT32, array("int8", 2), array("float32"), output("float32"),
)  # fmt: skip
def scan_codes(
    code: Int8, scale: np.float32, codes: Int8, scales: Float32, scores: Float32
) -> None:
    """Write the scaled products of a query's code with all codes.

    Args:
        code: int8 (N,), N below 130,000 so that a product fits in 32 bits.
        scale: Of the query.
        codes: int8 (n, N).
        scales: Of the documents, float32 (n,).
        scores: float32 (n,), written.
    """
    for row in range(len(scores)):
        product = np.int32(0)
        for j in range(len(code)):
            product = np.int32(product + np.int32(np.int32(code[j]) * np.int32(codes[row, j])))
        scores[row] = np.float32(product) * scale * scales[row]


@kernel(
    types.void,
    array("int64"), array("int32"), array("uint8"), array("float32", 2),
    array("int32"), array("float64"), output("float32"),
)  # fmt: skip
def add_impacts(
    indptr: Int64,
    rows: Int32,
    impacts: UInt8,
    limits: Float32,
    words: Int32,
    weights: Float64,
    scores: Float32,
) -> None:
    """Add s_w t̂_wd of some words to the scores of their documents.

    Args:
        indptr, rows, impacts, limits: As in Postings.
        words: int32 (m,).
        weights: s_w, float64 (m,).
        scores: float32 (n,), updated.
    """
    table = np.empty(LEVELS + 1, np.float32)
    for i in range(len(words)):
        word = words[i]
        low = np.float64(limits[word, 0])
        step = (np.float64(limits[word, 1]) - low) / LEVELS
        for level in range(LEVELS + 1):
            table[level] = np.float32((low + step * level) * weights[i])
        for p in range(indptr[word], indptr[word + 1]):
            scores[rows[p]] += table[impacts[p]]


@kernel(
    types.void,
    array("int64"), array("int32"), array("float32"),
    array("int32"), array("float32"), output("float32"),
)  # fmt: skip
def add_weights(
    indptr: Int64, rows: Int32, values: Float32, words: Int32, weights: Float32, scores: Float32
) -> None:
    """Add s_w t_wd of some words to the scores of their documents, from postings with float32 weights."""
    for i in range(len(words)):
        for p in range(indptr[words[i]], indptr[words[i] + 1]):
            scores[rows[p]] += weights[i] * values[p]
