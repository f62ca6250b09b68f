"""int8 codes of the dense parts, one scale per document: a quarter of the bytes of v.

    v̂_d = a_d c_d      a_d = max_j |v_dj| / 127,   c_d = round(v_d / a_d)

A query is coded in the same way, û = a_q c_q (CodedQuery), so a product is integer arithmetic over N bytes. By Cauchy
and Schwarz its error is at most

    |u·v_d − û·v̂_d| ≤ ‖u‖ max_d ‖v_d − v̂_d‖ + ‖u − û‖ max_d ‖v̂_d‖
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.kernels.arrays import UNIT_ROUNDOFF, Int8
from fullrank.kernels.index import STORED, CodedQuery, Codes, Outline, read_only
from fullrank.kernels.products import (
    CODE_LEVELS,
    GROUP,
    TOGETHER,
    code_query,
    code_vectors,
    in_groups,
)
from fullrank.progress import Progress, silent
from fullrank.storage.checks import Create, shape_of
from fullrank.storage.encoding import Float32, Float64, Int32

_CHUNK = 1 << 16


def made(create: Create, part: type[Any], **sizes: int) -> list[npt.NDArray[Any]]:
    """Create the arrays of a part of an index, in the order of its fields."""
    return [
        create(name, shape_of(shape, sizes), dtype) for name, (dtype, shape) in STORED[part].items()
    ]


def encode(vectors: Float32) -> tuple[Int8, Float32, float, float]:
    """Code float32 (B, N): return codes, scales, max ‖v − v̂‖ and max ‖v̂‖."""
    codes, scales = np.empty(vectors.shape, np.int8), np.empty(len(vectors), np.float32)
    error, length = code_vectors(np.ascontiguousarray(vectors), codes, scales)
    return codes, scales, error, length


def build_codes(
    vectors: Float32, bias: Float32, rows: Int32, create: Create, progress: Progress = silent
) -> Codes:
    """Code all documents in the order of the slots, a chunk at a time."""
    count, width = vectors.shape
    codes, scales, by_slot = made(create, Codes, n=count, N=width)
    error = length = 0.0
    for start in range(0, len(vectors), _CHUNK):
        chunk = np.asarray(vectors[rows[start : start + _CHUNK]])
        part, part_scales, off, longest = encode(chunk)
        codes[start : start + len(chunk)] = part
        scales[start : start + len(chunk)] = part_scales
        error, length = max(error, off), max(length, longest)
        progress("codes", start + len(chunk), len(vectors))
    by_slot[:] = bias[rows]
    largest = float(np.abs(by_slot).max(initial=0.0))
    return read_only(Codes(codes, scales, by_slot, _up(error), _up(length), largest))


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


def outline_width(width: int) -> int:
    """Return H for vectors of N numbers."""
    return DIRECTIONS if width > DIRECTIONS else -(-width // TOGETHER) * TOGETHER


def outline_sizes(width: int, count: int) -> dict[str, int]:
    """Return the sizes that the outlines of n documents of N numbers have."""
    own = outline_width(width)
    directions = own if width > DIRECTIONS else 0
    return {"n": count, "N": width, "D": directions, "G": -(-count // GROUP), "16H": GROUP * own}


def build_outline(
    vectors: Float32,
    rows: Int32,
    create: Create,
    progress: Progress = silent,
    known: Float32 | None = None,
) -> Outline:
    """Make the outlines of float32 (n, N) in the order of the slots, a chunk at a time.

    Args:
        known: B of documents of the same model; None: choose it.
    """
    count, width = vectors.shape
    narrow = width <= DIRECTIONS
    sizes = outline_sizes(width, count)
    directions, codes, scales, rest = made(create, Outline, **sizes)
    if not narrow:
        directions[:] = _directions(vectors) if known is None else known
    error = length = longest = 0.0
    for start in range(0, count, _OUTLINE_CHUNK):
        chunk = np.asarray(vectors[rows[start : start + _OUTLINE_CHUNK]])
        norms = np.sqrt(_squares(chunk))
        if not float(norms.max()) < _MOST:
            part = np.zeros((len(chunk), outline_width(width)), np.float32)  # no query uses them
        elif narrow:
            part = _padded(chunk)
        else:
            part = chunk @ directions
            slack = 4 * (width + DIRECTIONS) ** 0.5 * UNIT_ROUNDOFF * norms
            lengths = np.sqrt(_squares(chunk - part @ directions.T)) + slack
            rest[start : start + len(chunk)] = np.nextafter(
                lengths.astype(np.float32), np.float32(np.inf)
            )
        coded, part_scales, off, long = encode(part)
        codes[start // GROUP : -(-(start + len(chunk)) // GROUP)] = in_groups(coded)
        scales[start : start + len(chunk)] = part_scales
        error, length = max(error, off), max(length, long)
        longest = max(longest, float(norms.max()))
        progress("outlines", start + len(chunk), count)
    bounds = (_UP * n for n in (error, length, longest))
    return read_only(Outline(directions, codes, scales, rest, *bounds))


def _directions(vectors: Float32) -> Float32:
    """Return about the first eigenvectors of Σ v vᵀ over a sample, float32 (N, H), by orthogonal iteration."""
    places = np.linspace(0, len(vectors) - 1, min(len(vectors), _SAMPLE)).astype(np.int64)
    sample = vectors[np.unique(places)].astype(np.float64)
    found: Float64 = np.random.default_rng(_SEED).normal(size=(vectors.shape[1], DIRECTIONS))
    for _ in range(_ITERATIONS):
        found = np.linalg.qr(sample.T @ (sample @ found))[0]
    return np.ascontiguousarray(found, np.float32)


def _padded(vectors: Float32) -> Float32:
    width = vectors.shape[1]
    more = outline_width(width) - width
    return np.pad(vectors, ((0, 0), (0, more))) if more > 0 else vectors


def _squares(vectors: Float32) -> Float64:
    found: Float64 = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    return found


# A query as the index compares it with documents: codes of u, and bounds on what they are off by.


def coded(u: Float32, codes: Codes, outline: Outline) -> CodedQuery:
    """Code a query's u, float32 (N,)."""
    code, part = np.empty(len(u), np.int8), np.zeros(outline_width(len(u)), np.int8)
    found: Any = code_query(u, outline.directions, code, part)
    length, scale, lost, part_scale, part_lost, beyond = found
    # A product is scaled by the query first, and may overflow before the document's scale makes it small.
    is_safe = scale * CODE_LEVELS**2 * len(u) < _LARGEST
    is_safe &= max(length, 1.0) * max(outline.longest, 1.0) < _MOST
    if not is_safe:
        return CodedQuery(code, scale, np.inf, part, part_scale, 0.0, np.inf, length, np.inf)
    error = length * _UP * codes.error + lost * _UP * codes.length
    outline_error, left = length * _UP * outline.error + part_lost * _UP * outline.length, 0.0
    if outline.directions.size:
        # The directions are orthonormal, and h is computed, up to rounding.
        rounded = 4 * (len(u) + len(part)) ** 0.5 * UNIT_ROUNDOFF
        left = (max(beyond, 0.0) + rounded * length**2) ** 0.5 * _UP
        outline_error += 4 * len(part) ** 0.5 * len(u) * UNIT_ROUNDOFF * length * outline.longest
    size = length * max(codes.length + codes.error, 2 * outline.longest)
    return CodedQuery(code, scale, error, part, part_scale, left, outline_error, length, size)
