"""From approximate scores with an error bound to the proven top k.

A scan finds g with: score f in [g − below, g + above]. Let

    θ = the k-th best f among the k documents with the largest g ≤ the k-th best f of all documents

A document with g + above < θ cannot be among the top k. The few others are scored in float64, and the best k of them
are the best of all documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fullrank.kernels.select import best_rows, rows_at_least
from fullrank.retrieval.ranking import mask_of, remaining
from fullrank.storage.encoding import Float32, Float64, Int64, Mask

# (dense, lexical, bias) of the given rows, float64 each.
ScoreParts = Callable[[Int64], tuple[Float64, Float64, Float64]]


class Scanned(NamedTuple):
    """Approximate scores g of all documents, float32 (n,), and how far below and above them f may lie.

    The bounds are infinite where g overflows.
    """

    scores: Float32
    below: float
    above: float


def candidates(
    scanned: Scanned, wanted: int, score_parts: ScoreParts, deleted: Mask | None
) -> Int64:
    """Return the rows that may be among the top `wanted`, ascending; no other row can be."""
    scores = scanned.scores
    if scanned.above == math.inf:
        return remaining(len(scores), deleted)
    mask = mask_of(deleted)
    best = best_rows(scores, mask, wanted)
    theta = float(np.sum(score_parts(best), axis=0).min())
    # float32() may round the threshold up, so compare with the next number below it.
    threshold = np.nextafter(np.float32(theta - scanned.above), np.float32(-np.inf))
    return rows_at_least(scores, mask, threshold)
