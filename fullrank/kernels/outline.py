"""Upper bounds of scores from outlines: the rows whose score may reach a threshold."""

from __future__ import annotations

import numpy as np
from numba import types

from fullrank.kernels.arrays import Float32, Int8
from fullrank.kernels.compiler import FLOAT32, array, kernel, output
from fullrank.kernels.products import code_product, code_shift

_BLOCK = 256


@kernel(
    types.void,
    array("int8"), FLOAT32, array("int8", 2), array("float32"),
    FLOAT32, array("float32"), array("float32"),
    output("float32"), output("float32"),
)  # fmt: skip
def scan_outline(
    code: Int8,
    scale: np.float32,
    codes: Int8,
    scales: Float32,
    length: np.float32,
    rest: Float32,
    bias: Float32,
    scores: Float32,
    bounds: Float32,
) -> None:
    """Complete the lexical scores of all documents, and bound their scores from above.

    Args:
        code, scale: The code of the query's part in the directions, int8 (H,).
        codes, scales: Those of all documents, int8 (n, H) and float32 (n,).
        length: Of the rest of the query.
        rest: The lengths of the rests of all documents, float32 (n,).
        bias: float32 (n,).
        scores: s·t, float32 (n,); the dense part in the directions and the bias are added.
        bounds: float32 (n,), written: the scores and the largest product of the rests.
    """
    shift = code_shift(code)
    for row in range(len(scores)):
        scores[row] += code_product(code, shift, codes, row) * scale * scales[row] + bias[row]
        bounds[row] = scores[row] + length * rest[row]
