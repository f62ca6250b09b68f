"""A query as the index compares it with documents: codes of u, and bounds on what they are off by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fullrank.encoding import Float32
from fullrank.kernels.arrays import Int8
from fullrank.kernels.codes import CODE_LEVELS, code_query
from fullrank.kernels.rounding import UNIT_ROUNDOFF
from fullrank.retrieval.index.codes import Codes
from fullrank.retrieval.index.outline import Outline, outline_width

_LARGEST = float(np.finfo(np.float32).max)
# Of norms and of float32 numbers made of float64 ones.
_UP = 1 + 1e-6


class CodedQuery(NamedTuple):
    """The codes of u, and of its outline a: u = B a + p (codes.py, outline.py).

    Attributes:
        code: int8 (N,).
        scale: Of the code.
        error: The largest |u·v − û·v̂| of any document; infinite where a product may overflow.
        outline: int8 (H,).
        outline_scale: Of the outline.
        left: ‖p‖, rounded up.
        outline_error: The most that u·v is above â·ĥ + ‖p‖ ‖r‖; infinite where a product may overflow.
        length: ‖u‖.
        size: The largest absolute value on the way to a product, or more.
    """

    code: Int8
    scale: np.float32
    error: float
    outline: Int8
    outline_scale: np.float32
    left: np.float32
    outline_error: float
    length: float
    size: float


def coded(u: Float32, codes: Codes, outline: Outline) -> CodedQuery:
    """Code a query's u, float32 (N,)."""
    code, part = np.empty(len(u), np.int8), np.zeros(outline_width(len(u)), np.int8)
    length, scale, lost, part_scale, part_lost, beyond = code_query(
        u, outline.directions, code, part
    )
    # A product is scaled by the query first, and may overflow before the document's scale makes it small.
    is_safe = float(scale) * CODE_LEVELS**2 * len(u) < _LARGEST
    is_safe &= max(length, 1.0) * max(outline.longest, 1.0) < _LARGEST / 4
    if not is_safe:
        nothing = np.float32(0)
        return CodedQuery(code, scale, np.inf, part, part_scale, nothing, np.inf, length, np.inf)
    error = length * _UP * codes.error + lost * _UP * codes.length
    outline_error, left = length * _UP * outline.error + part_lost * _UP * outline.length, 0.0
    if outline.directions.size:
        # The directions are orthonormal, and h is computed, up to rounding.
        rounded = 4 * (len(u) + len(part)) ** 0.5 * UNIT_ROUNDOFF
        left = (max(beyond, 0.0) + rounded * length**2) ** 0.5 * _UP
        outline_error += 4 * len(part) ** 0.5 * len(u) * UNIT_ROUNDOFF * length * outline.longest
    size = length * max(codes.length + codes.error, 2 * outline.longest)
    return CodedQuery(
        code, scale, error, part, part_scale, np.float32(left), outline_error, length, size
    )
