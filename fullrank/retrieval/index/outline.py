"""Outlines of the dense parts: a vector's part in the few directions that hold most of it, and the length of the rest.

    v = B h + r        B: H orthonormal directions, h = Bᵀv as int8 codes, only ‖r‖ of the rest
    u = B a + p

    u·v ≤ â·ĥ + ‖a − â‖ max ‖ĥ‖ + ‖a‖ max ‖h − ĥ‖ + ‖p‖ ‖r‖        (Cauchy and Schwarz)

An outline has a quarter of the bytes of 256 codes or less, and its bound leaves few documents to score: in 64 of the
256 directions of a model of Debian, one document in a hundred. The directions are the first eigenvectors of Σ v vᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Float32
from fullrank.kernels.arrays import Int8
from fullrank.kernels.outline import scan_outline
from fullrank.retrieval.full_scan import UNIT_ROUNDOFF
from fullrank.retrieval.index.codes import encode

# H. Half as many leave five times as many documents to score.
DIRECTIONS = 64
# Documents that choose the directions.
_SAMPLE = 4096
_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Outline:
    """Outlines of n vectors.

    Attributes:
        directions: B, float32 (N, H); None where N ≤ H: h is v.
        codes, scales: Of h, int8 (n, H) and float32 (n,).
        error: max ‖h − ĥ‖.
        coded_length: max ‖ĥ‖.
        rest: ‖r‖, rounded up, float32 (n,).
        length: max ‖v‖.
    """

    directions: Float32 | None
    codes: Int8
    scales: Float32
    error: float
    coded_length: float
    rest: Float32
    length: float

    def scan(self, u: Float32, bias: Float32, scores: Float32, bounds: Float32) -> float:
        """Add â·ĥ + b to the scores of all documents, and write them with ‖p‖ ‖r‖ added to `bounds`.

        Args:
            u: float32 (N,).
            bias: float32 (n,).
            scores: float32 (n,), updated.
            bounds: float32 (n,), written.

        Returns:
            How much larger a score can be than its bound; infinite where a product may overflow.
        """
        size = float(np.linalg.norm(u.astype(np.float64)))
        part, length, error = u, 0.0, 0.0
        if self.directions is not None:
            whole = u.astype(np.float64)
            part64 = whole @ self.directions
            length = float(np.linalg.norm(whole - self.directions @ part64)) * (1 + 1e-6)
            part = part64.astype(np.float32)
            # h was computed in float32: its error, and that of the directions, against exactly orthonormal ones.
            directions = self.directions.shape[1]
            error = 2 * directions**0.5 * len(u) * UNIT_ROUNDOFF * size * self.length
        codes, scales, lost, _ = encode(part[None])
        scan_outline(
            codes[0], scales[0], self.codes, self.scales,
            np.float32(length), self.rest, bias, scores, bounds,
        )  # fmt: skip
        if not size * max(self.length, 1.0) < float(np.finfo(np.float32).max) / 4:
            return np.inf
        return error + size * self.error + lost * self.coded_length


def build_outline(vectors: Float32) -> Outline:
    """Make the outlines of float32 (n, N)."""
    count, width = vectors.shape
    length = float(
        np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64).max(initial=0))
    )
    rest = np.zeros(count, np.float32)
    if width <= DIRECTIONS:
        return Outline(None, *_coded(vectors), rest, length)
    places = np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.int64)
    sample = vectors[np.unique(places)].astype(np.float64)
    _, vectors_of_sums = np.linalg.eigh(sample.T @ sample)
    directions = np.ascontiguousarray(vectors_of_sums[:, ::-1][:, :DIRECTIONS], np.float32)
    parts = np.empty((count, DIRECTIONS), np.float32)
    for start in range(0, count, _CHUNK):
        chunk = vectors[start : start + _CHUNK]
        part = parts[start : start + len(chunk)] = chunk @ directions
        chunk = (chunk - part @ directions.T).astype(np.float64)
        rest[start : start + len(chunk)] = np.sqrt(np.einsum("ij,ij->i", chunk, chunk))
    rest += np.float32(4 * DIRECTIONS * UNIT_ROUNDOFF * length)
    return Outline(directions, *_coded(parts), rest, length)


def _coded(vectors: Float32) -> tuple[Int8, Float32, float, float]:
    """Code vectors; the norms are rounded up by more than their rounding error."""
    codes, scales, error, length = encode(vectors)
    return codes, scales, error * (1 + 1e-9), length * (1 + 1e-9)
