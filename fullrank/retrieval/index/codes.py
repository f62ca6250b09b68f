"""int8 codes of the dense parts, one scale per document: a quarter of the bytes of v.

    v̂_d = a_d c_d      a_d = max_j |v_dj| / 127,   c_d = round(v_d / a_d)

A query is coded in the same way, û = a_q c_q, so a scan is integer arithmetic over n N bytes. By Cauchy and Schwarz its
error is at most

    |u·v_d − û·v̂_d| ≤ ‖u‖ max_d ‖v_d − v̂_d‖ + ‖u − û‖ max_d ‖v̂_d‖
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float32
from fullrank.kernels.arrays import Int8
from fullrank.kernels.scan import CODE_LEVELS, code_vectors, scan_codes
from fullrank.progress import Progress, silent

Create = Callable[[str, tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]

_CHUNK = 1 << 16


@dataclass(frozen=True, eq=False)
class Codes:
    """Coded vectors.

    Attributes:
        codes: int8 (n, N).
        scales: float32 (n,).
        error: max_d ‖v_d − v̂_d‖, rounded up.
        length: max_d ‖v̂_d‖, rounded up.
    """

    codes: Int8
    scales: Float32
    error: float
    length: float

    def scan(self, u: Float32, scores: Float32) -> float:
        """Write û·v̂_d of all documents into `scores`, float32 (n,).

        Returns:
            The largest error against u·v_d; infinite where a product may overflow.
        """
        codes, scales, error, _ = encode(u[None])
        scan_codes(codes[0], scales[0], self.codes, self.scales, scores)
        size = float(np.linalg.norm(u.astype(np.float64)))
        # A product is scaled by the query first, and may overflow before the document's scale makes it small.
        if not float(scales[0]) * CODE_LEVELS**2 * len(u) < float(np.finfo(np.float32).max):
            return np.inf
        return size * self.error + error * self.length


def encode(vectors: Float32) -> tuple[Int8, Float32, float, float]:
    """Code float32 (B, N): return codes, scales, max ‖v − v̂‖ and max ‖v̂‖."""
    codes, scales = np.empty(vectors.shape, np.int8), np.empty(len(vectors), np.float32)
    error, length = code_vectors(np.ascontiguousarray(vectors), codes, scales)
    return codes, scales, error, length


def build_codes(vectors: Float32, create: Create, progress: Progress = silent) -> Codes:
    """Code all documents, a chunk at a time."""
    codes = create("codes", vectors.shape, np.int8)
    scales = create("scales", (len(vectors),), np.float32)
    error = length = 0.0
    for start in range(0, len(vectors), _CHUNK):
        chunk = np.asarray(vectors[start : start + _CHUNK])
        part, part_scales, off, longest = encode(chunk)
        codes[start : start + len(chunk)] = part
        scales[start : start + len(chunk)] = part_scales
        error, length = max(error, off), max(length, longest)
        progress("codes", start + len(chunk), len(vectors))
    return Codes(codes, scales, _up(error), _up(length))


def _up(value: float) -> float:
    """Round a computed norm up by more than its rounding error."""
    return value * (1 + 1e-9)
