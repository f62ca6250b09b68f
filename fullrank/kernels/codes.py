"""int8 codes of vectors, and what a search computes once of a query's vector."""

from __future__ import annotations

import math

import numpy as np

from fullrank.kernels.arrays import Float32, Int8
from fullrank.kernels.compiler import FLOAT32, FLOAT64, array, helper, kernel, output, several

# On each side of zero.
CODE_LEVELS = 127
_LEAST_SCALE = np.finfo(np.float32).tiny


@helper
def code_vector(vector: Float32, codes: Int8) -> tuple[np.float32, float, float]:
    """Code v as a scale times int8: the scale is max |v_j| / 127.

    Args:
        vector: float32 (N,).
        codes: int8, the first N are written.

    Returns:
        The scale, ‖v − v̂‖² and ‖v̂‖².
    """
    largest = np.float32(0)
    for j in range(len(vector)):
        largest = max(largest, abs(vector[j]))
    scale = largest / np.float32(CODE_LEVELS)
    # A subnormal scale has no inverse in float32, so such a vector is coded as zero.
    if scale < _LEAST_SCALE:
        scale = np.float32(0)
    error = length = 0.0
    for j in range(len(vector)):
        code = np.float32(0)
        if scale > 0:
            code = np.rint(vector[j] / scale)
            code = min(max(code, np.float32(-CODE_LEVELS)), np.float32(CODE_LEVELS))
        codes[j] = np.int8(code)
        decoded = np.float64(code) * np.float64(scale)
        error += (np.float64(vector[j]) - decoded) ** 2
        length += decoded**2
    return scale, error, length


@kernel(
    several(FLOAT64, FLOAT64),
    array("float32", 2), output("int8", 2), output("float32"),
)  # fmt: skip
def code_vectors(vectors: Float32, codes: Int8, scales: Float32) -> tuple[float, float]:
    """Code each row.

    Args:
        vectors: float32 (B, N).
        codes: int8 (B, N), written.
        scales: float32 (B,), written.

    Returns:
        max ‖v − v̂‖ and max ‖v̂‖ over the rows.
    """
    largest_error = largest_length = 0.0
    for row in range(len(vectors)):
        scales[row], error, length = code_vector(vectors[row], codes[row])
        largest_error = max(largest_error, error)
        largest_length = max(largest_length, length)
    return math.sqrt(largest_error), math.sqrt(largest_length)


@kernel(
    several(FLOAT64, FLOAT32, FLOAT64, FLOAT32, FLOAT64, FLOAT64),
    array("float32"), array("float32", 2), output("int8"), output("int8"),
)  # fmt: skip
def code_query(
    u: Float32, directions: Float32, code: Int8, outline: Int8
) -> tuple[float, np.float32, float, np.float32, float, float]:
    """Code u = B a + p, and a.

    Args:
        u: float32 (N,).
        directions: B, float32 (N, H) with orthonormal columns; (N, 0) where a is u, followed by zeros.
        code: int8 (N,), written.
        outline: int8 (H,), zeros before, written.

    Returns:
        ‖u‖, the scale of the code, ‖u − û‖, the scale of the outline, ‖a − â‖ and ‖u‖² − ‖a‖².
    """
    scale, error, _ = code_vector(u, code)
    size = 0.0
    for i in range(len(u)):
        size += np.float64(u[i]) ** 2
    width = directions.shape[1]
    if width == 0:
        outline_scale, lost, _ = code_vector(u, outline)
        return math.sqrt(size), scale, math.sqrt(error), outline_scale, math.sqrt(lost), 0.0
    sums = np.zeros(width)
    for i in range(len(u)):
        number, direction = np.float64(u[i]), directions[i]
        for j in range(width):
            sums[j] += number * direction[j]
    part = np.empty(width, np.float32)
    inside = 0.0
    for j in range(width):
        part[j] = sums[j]
        inside += sums[j] ** 2
    outline_scale, lost, _ = code_vector(part, outline)
    return (
        math.sqrt(size), scale, math.sqrt(error), outline_scale, math.sqrt(lost), size - inside
    )  # fmt: skip
