"""From a scan whose error is bounded to the proven top-k.

Where a document's score f lies in [g − below, g + above] for what the scan says of it, g:

    θ = the k-th best exact score of the k documents with the largest g ≤ the k-th best score of all
    a document with g + above < θ is no answer

so the few others are scored exactly, and the best k of these are the best of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fullrank.encoding import Float32, Float64, Int64
from fullrank.retrieval.ranking import Mask, Ranking

# (learned, exact, bias) of rows
Exact = Callable[[Int64], tuple[Float64, Float64, Float64]]


class Scanned(NamedTuple):
    """g of all documents, float32 (n,), and how far below and above it a score may lie: infinity where g overflows."""

    scores: Float32
    below: float
    above: float


def candidates(
    scanned: Scanned,
    wanted: int,
    exact: Exact,
    deleted: Mask | None,
    work: Float32 | None = None,
) -> Int64:
    """The rows that may be among the best ``wanted``, ascending; none can be that is not here.

    work  room, float32 (n,), where there is some
    """
    scores, kept = scanned.scores, None
    if deleted is not None:
        # Taken out, not lowered: to select among many equal numbers is slow.
        kept = np.flatnonzero(~deleted)
        scores = scores[kept]
    if scanned.above == math.inf:
        return np.arange(len(scores)) if kept is None else kept
    work = np.empty_like(scores) if work is None else work[: len(scores)]
    work[:] = scores
    work.partition(len(work) - wanted)
    best = np.flatnonzero(scores >= work[len(work) - wanted])[:wanted]
    theta = float(np.sum(exact(best if kept is None else kept[best]), axis=0).min())
    threshold = theta - scanned.above
    # The threshold may have been rounded up; the next number below it was not.
    rows = np.flatnonzero(scores >= np.nextafter(np.float32(threshold), np.float32(-np.inf)))
    return rows if kept is None else kept[rows]


def rank(
    rows: Int64, exact: Exact, limit: int, offset: int, *, certified: bool, total: int
) -> Ranking:
    """Score rows exactly and keep places offset..offset + limit; ties by row."""
    learned, match, bias = exact(rows)
    scores = learned + match + bias
    order = np.lexsort((rows, -scores))[offset : offset + limit]
    return Ranking(
        rows[order].astype(np.int64),
        scores[order],
        learned[order],
        match[order],
        bias[order],
        certified=certified,
        total=total,
    )
