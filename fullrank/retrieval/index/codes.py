"""int8 codes of the dense parts, one scale per document: a quarter of the bytes of v.

    v̂_d = a_d c_d      a_d = max_j |v_dj| / 127,   c_d = round(v_d / a_d)

A query is coded in the same way, û = a_q c_q (CodedQuery), so a product is integer arithmetic over N bytes. By Cauchy
and Schwarz its error is at most

    |u·v_d − û·v̂_d| ≤ ‖u‖ max_d ‖v_d − v̂_d‖ + ‖u − û‖ max_d ‖v̂_d‖
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float32, Float64, Int32
from fullrank.kernels.arrays import UNIT_ROUNDOFF, Int8, UInt8
from fullrank.kernels.products import (
    CODE_LEVELS,
    GROUP,
    TOGETHER,
    code_query,
    code_vectors,
    in_groups,
)
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


# Outlines of the dense parts: a vector in the few directions that hold most of it, and the length of the rest.
#
#     v = B h + r        B: H orthonormal directions; h = Bᵀv as int8 codes ĥ, of r only the length
#     u = B a + p        a query, a with a code â of its own
#
#     u·v ≤ â·ĥ + ‖p‖ ‖r‖ + ‖a‖ max ‖h − ĥ‖ + ‖a − â‖ max ‖ĥ‖        (Cauchy and Schwarz; CodedQuery adds the rounding)
#
# The directions are near the first eigenvectors of Σ v vᵀ; the bound holds for any. An exact search reads the
# outlines of all documents, and the codes of those that may still be among the best.


# H; narrower vectors are their own outlines.
DIRECTIONS = 64
# Documents that choose the directions.
_SAMPLE = 4096
_SEED, _ITERATIONS = 1, 4
# Of documents at a time; a multiple of GROUP, because whole groups are written.
_OUTLINE_CHUNK = 1 << 14
# Norms, and float32 numbers made of float64 ones, are rounded up by this factor.
_UP = 1 + 1e-6
_LARGEST = float(np.finfo(np.float32).max)
# Products of longer vectors may overflow.
_MOST = _LARGEST / 4


@dataclass(frozen=True, eq=False)
class Outline:
    """Outlines of n vectors, by slot.

    Attributes:
        directions: B, float32 (N, H); (N, 0) where h is v, and zeros up to a width that 4 divides.
        codes: uint8 (⌈n / 16⌉, 16 H), in the order of fullrank.kernels.products.
        scales: float32 (n,).
        rest: ‖r‖, rounded up, float32 (n,).
        error: max ‖h − ĥ‖, rounded up.
        length: max ‖ĥ‖, rounded up.
        longest: max ‖v‖, rounded up.
    """

    directions: Float32
    codes: UInt8
    scales: Float32
    rest: Float32
    error: float
    length: float
    longest: float

    def shapes(
        self, width: int, count: int
    ) -> list[tuple[str, npt.NDArray[Any], str, tuple[int, ...]]]:
        """Return name, array, dtype and shape of each part, for n documents of N numbers."""
        own, wide = outline_width(width), width > DIRECTIONS
        return [
            ("outline.directions", self.directions, "<f4", (width, own if wide else 0)),
            ("outline.codes", self.codes, "|u1", (-(-count // GROUP), GROUP * own)),
            ("outline.scales", self.scales, "<f4", (count,)),
            ("outline.rest", self.rest, "<f4", (count,)),
        ]


def outline_width(width: int) -> int:
    """Return H for vectors of N numbers."""
    return DIRECTIONS if width > DIRECTIONS else -(-width // TOGETHER) * TOGETHER


def build_outline(
    vectors: Float32,
    rows: Int32,
    create: Create,
    progress: Progress = silent,
    known: Float32 | None = None,
) -> Outline:
    """Make the outlines of float32 (n, N) in the order of the slots, a chunk at a time.

    Args:
        vectors: Of the documents.
        rows: int32 (n,), the document of each slot.
        create: Makes each array.
        progress: Receives the number of documents done.
        known: B of documents of the same model; None: choose it.
    """
    count, width = vectors.shape
    narrow = width <= DIRECTIONS
    directions = create("outline.directions", (width, 0 if narrow else DIRECTIONS), np.float32)
    if not narrow:
        directions[:] = _directions(vectors) if known is None else known
    codes = create("outline.codes", (-(-count // GROUP), GROUP * outline_width(width)), np.uint8)
    scales = create("outline.scales", (count,), np.float32)
    rest = create("outline.rest", (count,), np.float32)
    error = length = longest = 0.0
    for start in range(0, count, _OUTLINE_CHUNK):
        chunk = np.asarray(vectors[rows[start : start + _OUTLINE_CHUNK]])
        sizes = np.sqrt(_squares(chunk))
        part = _padded(chunk) if narrow else chunk @ directions
        if not float(sizes.max()) < _MOST:
            part = np.zeros_like(part)  # no query uses them
        elif not narrow:
            slack = 4 * (width + DIRECTIONS) ** 0.5 * UNIT_ROUNDOFF * sizes
            lengths = np.sqrt(_squares(chunk - part @ directions.T)) + slack
            rest[start : start + len(chunk)] = np.nextafter(
                lengths.astype(np.float32), np.float32(np.inf)
            )
        coded, part_scales, off, long = encode(part)
        codes[start // GROUP : -(-(start + len(chunk)) // GROUP)] = in_groups(coded)
        scales[start : start + len(chunk)] = part_scales
        error, length = max(error, off), max(length, long)
        longest = max(longest, float(sizes.max()))
        progress("outlines", start + len(chunk), count)
    return Outline(directions, codes, scales, rest, *(_UP * n for n in (error, length, longest)))


def _directions(vectors: Float32) -> Float32:
    """Return about the first eigenvectors of Σ v vᵀ over a sample, float32 (N, H), by orthogonal iteration."""
    places = np.linspace(0, len(vectors) - 1, min(len(vectors), _SAMPLE)).astype(np.int64)
    sample = vectors[np.unique(places)].astype(np.float64)
    found: Float64 = np.random.default_rng(_SEED).normal(size=(vectors.shape[1], DIRECTIONS))
    for _ in range(_ITERATIONS):
        found = np.linalg.qr(sample.T @ (sample @ found))[0]
    return np.ascontiguousarray(found, np.float32)


def _padded(vectors: Float32) -> Float32:
    """Add zeros up to a width that 4 divides."""
    width = vectors.shape[1]
    more = outline_width(width) - width
    return np.pad(vectors, ((0, 0), (0, more))) if more > 0 else vectors


def _squares(vectors: Float32) -> Float64:
    """Return ‖v‖² of each vector, float64 (n,)."""
    found: Float64 = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    return found


# A query as the index compares it with documents: codes of u, and bounds on what they are off by.


class CodedQuery(NamedTuple):
    """The codes of u, and of its outline a: u = B a + p.

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
    is_safe &= max(length, 1.0) * max(outline.longest, 1.0) < _MOST
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
