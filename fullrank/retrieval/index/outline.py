"""Outlines of the dense parts: a vector in the few directions that hold most of it, and the length of the rest.

    v = B h + r        B: H orthonormal directions; h = Bᵀv as int8 codes ĥ, of r only the length
    u = B a + p        a query, a with a code â of its own

    u·v ≤ â·ĥ + ‖p‖ ‖r‖ + ‖a‖ max ‖h − ĥ‖ + ‖a − â‖ max ‖ĥ‖        (Cauchy and Schwarz; query.py adds the rounding)

The directions are near the first eigenvectors of Σ v vᵀ; the bound holds for any. An exact search reads the outlines of
all documents, and the codes of those that may still be among the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float32, Float64, Int32
from fullrank.kernels.arrays import UInt8
from fullrank.kernels.groups import GROUP, TOGETHER, in_groups
from fullrank.kernels.rounding import UNIT_ROUNDOFF
from fullrank.progress import Progress, silent
from fullrank.retrieval.index.codes import Create, encode

# H; narrower vectors are their own outlines.
DIRECTIONS = 64
# Documents that choose the directions.
_SAMPLE = 4096
_SEED, _ITERATIONS = 1, 4
# Of documents at a time; a multiple of GROUP, because whole groups are written.
_CHUNK = 1 << 14
# Products of longer vectors may overflow.
_MOST = float(np.finfo(np.float32).max) / 4


@dataclass(frozen=True, eq=False)
class Outline:
    """Outlines of n vectors, by slot.

    Attributes:
        directions: B, float32 (N, H); (N, 0) where h is v, and zeros up to a width that 4 divides.
        codes: uint8 (⌈n / 16⌉, 16 H), in the order of kernels/groups.py.
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
    for start in range(0, count, _CHUNK):
        chunk = np.asarray(vectors[rows[start : start + _CHUNK]])
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
    return Outline(directions, codes, scales, rest, *(_up(n) for n in (error, length, longest)))


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


def _up(value: float) -> float:
    """Round a computed norm up by more than its rounding error."""
    return value * (1 + 1e-6)
