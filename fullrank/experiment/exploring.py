"""Exploration: small, logged deviations from a ranking that teach what the ranking alone cannot.

A coin on the order of two neighbours shows how much more the upper place is clicked, whichever documents they are
(FairPairs: F. Radlinski, T. Joachims, AAAI 2006). A document from further below in a place of the first page shows
whether it deserves one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

SHOWN = 10
DEPTH = 50
"""Documents that must be ranked to insert one."""
_INSERT_FIRST, _INSERT_LAST = 3, 9  # places


class Explored(NamedTuple):
    """A list after exploration.

    Attributes:
        order: Places of the ranking in the order in which they are shown.
        pair: Place of the upper of two neighbours on whose order a coin was thrown, or None.
        swapped: Whether it swapped them.
        inserted: Place of a document from further below, or None.
    """

    order: Sequence[int]
    pair: int | None = None
    swapped: bool = False
    inserted: int | None = None


def explore(
    ids: Sequence[str],
    share: float,
    coin: Random,
    is_new: Callable[[str], bool] = lambda _: False,
    shown: int = SHOWN,
) -> Explored:
    """Explore one list.

    Args:
        ids: The best documents, up to `DEPTH`.
        share: Of the lists in which a coin is thrown on two neighbours, and of those with an inserted document; at
            most 0.5.
        coin: Random numbers.
        is_new: Whether a document is new; new ones are inserted first.
        shown: Documents that are shown. Only the first `SHOWN` places change.
    """
    order = list(range(min(shown, len(ids))))
    last = min(_INSERT_LAST, len(order) - 1)
    chance = coin.random()
    if chance < share and len(order) > 1:
        # The first places are clicked most and differ most, so a coin there teaches most.
        places = range(min(SHOWN, len(order)) - 1)
        (pair,) = coin.choices(places, [(place + 1) ** -2 for place in places])
        swapped = coin.random() < 0.5
        if swapped:
            order[pair], order[pair + 1] = order[pair + 1], order[pair]
        return Explored(order, pair, swapped)
    if share <= chance < 2 * share and last >= _INSERT_FIRST and len(ids) > max(SHOWN, shown):
        below = range(max(SHOWN, shown), min(max(DEPTH, shown + 1), len(ids)))
        rank = coin.choice([place for place in below if is_new(ids[place])] or below)
        place = coin.randint(_INSERT_FIRST, last)
        return Explored([*order[:place], rank, *order[place:-1]], inserted=place)
    return Explored(order)
