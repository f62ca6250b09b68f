"""What one person may do to a ranking: votes are capped, and programs do not count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fullrank.storage.encoding import Float64, Int64

MAX_VOTES_ON_DOCUMENT = 10
MAX_VOTES_A_DAY = 200
MAX_VIEWS_A_DAY = 10
"""Most votes of a person on a document for a query in a day: a page may repeat its search by itself."""
MAX_COINS = 10
"""Most clicked coins of a person that estimate η, so that no single account decides it."""

_DAY_S = 86_400

Bool = npt.NDArray[np.bool_]


def up_to_a_click(same: Sequence[Int64], time: Float64, place: Int64, clicked: Bool) -> Bool:
    """Return which votes of a person, query, document and day count: those up to the first click, and of them the last.

    What is shown again after a click says nothing if it is not clicked again. What was shown before and not clicked
    says as much as on another day.
    """
    order = np.lexsort((place, clicked, time, *same))
    starts = np.ones(len(order), np.bool_)
    starts[1:] = np.any([key[order][1:] != key[order][:-1] for key in same], axis=0)
    group, c = np.cumsum(starts) - 1, clicked[order].astype(np.int64)
    before = np.cumsum(c) - c
    is_open = before == before[starts][group]
    nth = np.arange(len(order)) - np.flatnonzero(starts)[group]
    is_late = nth >= np.bincount(group, is_open)[group] - MAX_VIEWS_A_DAY
    kept = np.empty(len(order), np.bool_)
    kept[order] = is_open & is_late
    return kept


def within_caps(person: Int64, document: Int64, time: Float64, clicked: Bool) -> Bool:
    """Return which votes count.

    Of one person, the votes on a document end with the 10th click on it, and those of a day with the 200th click;
    what the person saw later does not count either, as the absence of a click would then say nothing.
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


# Tell programs from people by how often they click.

MAX_CLICKS_AN_HOUR = 100
"""A person with more is a program."""

_HOUR_S = 3600


def find_programs(person: Int64, time: Float64) -> Int64:
    """Return the people who clicked more than 100 times within some hour.

    Args:
        time: of each click, in seconds.
    """
    order = np.lexsort((time, person))
    person, time = person[order], time[order]
    first, last = slice(None, -MAX_CLICKS_AN_HOUR), slice(MAX_CLICKS_AN_HOUR, None)
    is_fast = (person[last] == person[first]) & (time[last] - time[first] < _HOUR_S)
    return np.unique(person[last][is_fast])
