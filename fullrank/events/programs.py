"""Tell programs from people by how often they click."""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float64, Int64

MAX_CLICKS_AN_HOUR = 100
"""A person with more is a program."""

_HOUR_S = 3600


def find_programs(person: Int64, time: Float64) -> Int64:
    """Return the people who clicked more than 100 times within some hour.

    Args:
        person: of each click.
        time: of each click, in seconds.
    """
    order = np.lexsort((time, person))
    person, time = person[order], time[order]
    first, last = slice(None, -MAX_CLICKS_AN_HOUR), slice(MAX_CLICKS_AN_HOUR, None)
    is_fast = (person[last] == person[first]) & (time[last] - time[first] < _HOUR_S)
    return np.unique(person[last][is_fast])
