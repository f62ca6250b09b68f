"""int8 codes of the dense parts, one scale per document: a quarter of the bytes of v.

    v̂_d = a_d c_d      a_d = max_j |v_dj| / 127,   c_d = round(v_d / a_d)

A query is coded in the same way, û = a_q c_q (query.py), so a product is integer arithmetic over N bytes. By Cauchy and
Schwarz its error is at most

    |u·v_d − û·v̂_d| ≤ ‖u‖ max_d ‖v_d − v̂_d‖ + ‖u − û‖ max_d ‖v̂_d‖
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float32, Int32
from fullrank.kernels.arrays import Int8
from fullrank.kernels.codes import code_vectors
from fullrank.progress import Progress, silent

Create = Callable[[str, tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]

_CHUNK = 1 << 16


@dataclass(frozen=True, eq=False)
class Codes:
    """Coded vectors, by slot.

    Attributes:
        codes: int8 (n, N).
        scales: float32 (n,).
        bias: float32 (n,), b.
        error: max_d ‖v_d − v̂_d‖, rounded up.
        length: max_d ‖v̂_d‖, rounded up.
        largest_bias: max_d |b_d|.
    """

    codes: Int8
    scales: Float32
    bias: Float32
    error: float
    length: float
    largest_bias: float


def encode(vectors: Float32) -> tuple[Int8, Float32, float, float]:
    """Code float32 (B, N): return codes, scales, max ‖v − v̂‖ and max ‖v̂‖."""
    codes, scales = np.empty(vectors.shape, np.int8), np.empty(len(vectors), np.float32)
    error, length = code_vectors(np.ascontiguousarray(vectors), codes, scales)
    return codes, scales, error, length


def build_codes(
    vectors: Float32, bias: Float32, rows: Int32, create: Create, progress: Progress = silent
) -> Codes:
    """Code all documents in the order of the slots, a chunk at a time."""
    codes = create("codes", vectors.shape, np.int8)
    scales = create("scales", (len(vectors),), np.float32)
    error = length = 0.0
    for start in range(0, len(vectors), _CHUNK):
        chunk = np.asarray(vectors[rows[start : start + _CHUNK]])
        part, part_scales, off, longest = encode(chunk)
        codes[start : start + len(chunk)] = part
        scales[start : start + len(chunk)] = part_scales
        error, length = max(error, off), max(length, longest)
        progress("codes", start + len(chunk), len(vectors))
    by_slot = create("bias", bias.shape, np.float32)
    by_slot[:] = bias[rows]
    largest = float(np.abs(by_slot).max(initial=0.0))
    return Codes(codes, scales, by_slot, _up(error), _up(length), largest)


def _up(value: float) -> float:
    """Round a computed norm up by more than its rounding error."""
    return value * (1 + 1e-9)
