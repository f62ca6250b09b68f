"""Limit what one person can do to a ranking: votes are capped."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float64, Int64

MAX_VOTES_ON_DOCUMENT = 10
MAX_VOTES_A_DAY = 200
MAX_COINS = 10
"""Most clicked coins of a person that estimate η, so that no single account decides it."""

_DAY_S = 86_400

Bool = npt.NDArray[np.bool_]


def within_caps(person: Int64, document: Int64, time: Float64, clicked: Bool) -> Bool:
    """Return which votes count.

    Of one person, the votes on a document end with the 10th click on it, and those of a day with the 200th click;
    what the person saw later does not count either, as the absence of a click would then say nothing.

    Args:
        person, document, time, clicked: of each vote.
    """
    kept = np.ones(len(person), np.bool_)
    day = (time // _DAY_S).astype(np.int64)
    for group, limit in ((document, MAX_VOTES_ON_DOCUMENT), (day, MAX_VOTES_A_DAY)):
        rows = np.flatnonzero(kept)
        before = _clicks_before(person[rows], group[rows], time[rows], clicked[rows])
        kept[rows[before >= limit]] = False
    return kept


def _clicks_before(person: Int64, group: Int64, time: Float64, clicked: Bool) -> Int64:
    """Return for each vote the number of earlier clicks of the same person in the same group."""
    # What a list showed next to a click was seen with it, so it comes first.
    order = np.lexsort((clicked, time, group, person))
    p, g, c = person[order], group[order], clicked[order].astype(np.int64)
    total = np.cumsum(c) - c
    starts = np.ones(len(order), np.bool_)
    starts[1:] = (p[1:] != p[:-1]) | (g[1:] != g[:-1])
    base = np.maximum.accumulate(np.where(starts, total, 0))
    before = np.empty(len(order), np.int64)
    before[order] = total - base
    return before
