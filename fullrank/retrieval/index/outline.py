"""Outlines of the dense parts: a vector's part in a few directions that hold most of it, and the length of the rest.

    v = B h + r        B: H orthonormal directions, h = Bᵀv as int8 codes, only ‖r‖ of the rest
    u = B a + p

    u·v ≤ â·ĥ + ‖a − â‖ max ‖ĥ‖ + ‖a‖ max ‖h − ĥ‖ + ‖p‖ ‖r‖        (Cauchy and Schwarz)

The directions are the first eigenvectors of Σ v vᵀ. A scan reads the first 64 numbers of all outlines, and the others
of the few documents that may still reach the score asked for: with a model of Debian of 256 dimensions, one document in
100 after the first and one in 500 after all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Float32, Float64, Int64
from fullrank.kernels.arrays import Int8, Mask
from fullrank.kernels.outline import add_outlines, rows_reaching
from fullrank.retrieval.full_scan import UNIT_ROUNDOFF
from fullrank.retrieval.index.codes import encode

# The numbers of an outline that are read of all documents, and all.
FIRST, DIRECTIONS = 64, 128
# Documents that choose the directions.
_SAMPLE = 4096
_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Coded:
    """Codes of n vectors w.

    Attributes:
        codes: ŵ, int8 (n, H).
        scales: float32 (n,).
        error: max ‖w − ŵ‖.
        length: max ‖ŵ‖.
    """

    codes: Int8
    scales: Float32
    error: float
    length: float


@dataclass(frozen=True, eq=False)
class Outline:
    """Outlines of n vectors, and the lengths of what they leave.

    Attributes:
        directions: B, float32 (N, H); None where N is so small that h is v.
        first: Codes of the first numbers of h.
        last: Codes of its other numbers.
        rest: The length that the first leave, rounded up, float32 (n,).
        last_rest: The length that both leave.
        length: max ‖v‖.
    """

    directions: Float32 | None
    first: Coded
    last: Coded
    rest: Float32
    last_rest: Float32
    length: float

    def query(self, u: Float32) -> QueryOutline:
        """Outline a query, float32 (N,)."""
        size = _length(u)
        first = self.first.codes.shape[1]
        part, last_length, error = u, 0.0, 0.0
        if self.directions is not None:
            part = u @ self.directions
            slack = 4 * len(part) * UNIT_ROUNDOFF * size
            last_length = _length(u - self.directions @ part) + slack
            # a and h were computed in float32: their errors, and that of the directions, against orthonormal ones.
            error = 4 * len(part) ** 0.5 * len(u) * UNIT_ROUNDOFF * size * self.length
        length = float(np.hypot(_length(part[first:]), last_length))
        codes, scales = [], []
        for numbers, own in ((part[:first], self.first), (part[first:], self.last)):
            code, scale, lost, _ = encode(numbers[None])
            error += size * own.error + lost * own.length
            codes.append(code[0])
            scales.append(scale[0])
        if not size * max(self.length, 1.0) < float(np.finfo(np.float32).max) / 4:
            error = np.inf
        return QueryOutline(
            self, codes[0], scales[0], codes[1], scales[1], length, last_length, error, size
        )


@dataclass(frozen=True, eq=False)
class QueryOutline:
    """The outline of one query.

    Attributes:
        error: How much larger a score can be than its bounds; infinite where a product may overflow.
        size: ‖u‖.
    """

    outline: Outline
    first: Int8
    first_scale: np.float32
    last: Int8
    last_scale: np.float32
    length: float
    last_length: float
    error: float
    size: float

    def add(self, bias: Float32, scores: Float32) -> None:
        """Add the products of the first numbers, and the biases, to the scores of all documents."""
        own = self.outline.first
        add_outlines(self.first, self.first_scale, own.codes, own.scales, bias, scores)

    def reaching(self, scores: Float32, deleted: Mask, threshold: np.float32) -> Int64:
        """Return the rows whose bounds reach a threshold, ascending.

        Args:
            scores: What ``add`` has completed, float32 (n,).
            deleted: bool (n,), rows to leave out; empty for none.
            threshold: The least bound.
        """
        outline = self.outline
        return rows_reaching(
            scores, deleted, threshold,
            np.float32(self.length), outline.rest,
            self.last, self.last_scale, outline.last.codes, outline.last.scales,
            np.float32(self.last_length), outline.last_rest,
        )  # fmt: skip


def build_outline(vectors: Float32) -> Outline:
    """Make the outlines of float32 (n, N)."""
    count, width = vectors.shape
    length = float(
        np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64).max(initial=0))
    )
    rest, last_rest = np.zeros(count, np.float32), np.zeros(count, np.float32)
    if width <= FIRST:
        return Outline(None, _coded(vectors), _coded(vectors[:, :0]), rest, last_rest, length)
    places = np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.int64)
    sample = vectors[np.unique(places)].astype(np.float64)
    _, eigenvectors = np.linalg.eigh(sample.T @ sample)
    directions = np.ascontiguousarray(eigenvectors[:, ::-1][:, :DIRECTIONS], np.float32)
    parts = np.empty((count, directions.shape[1]), np.float32)
    slack = 4 * directions.shape[1] * UNIT_ROUNDOFF * length
    for start in range(0, count, _CHUNK):
        chunk = vectors[start : start + _CHUNK]
        here = slice(start, start + len(chunk))
        part = parts[here] = chunk @ directions
        left = _squares(chunk - part @ directions.T)
        last_rest[here] = np.sqrt(left) + slack
        rest[here] = np.sqrt(left + _squares(part[:, FIRST:])) + 2 * slack
    first, last = _coded(parts[:, :FIRST]), _coded(parts[:, FIRST:])
    return Outline(directions, first, last, rest, last_rest, length)


def _length(vector: Float32) -> float:
    """Return ‖v‖, rounded up by more than its rounding error."""
    whole = vector.astype(np.float64)
    return float(np.sqrt(whole @ whole)) * (1 + 1e-6)


def _squares(vectors: Float32 | Float64) -> Float64:
    """Return ‖v‖² of each vector, float64 (n,)."""
    found: Float64 = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    return found


def _coded(vectors: Float32) -> Coded:
    """Code vectors; the norms are rounded up by more than their rounding error."""
    codes, scales, error, length = encode(vectors)
    return Coded(codes, scales, error * (1 + 1e-9), length * (1 + 1e-9))
