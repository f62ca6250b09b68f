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
    ids: Sequence[str], share: float, coin: Random, is_new: Callable[[str], bool] = lambda _: False
) -> Explored:
    """Explore one list.

    Args:
        ids: The best documents, up to `DEPTH`.
        share: Of the lists in which a coin is thrown on two neighbours, and of those with an inserted document; at
            most 0.5.
        coin: Random numbers.
        is_new: Whether a document is new; new ones are inserted first.

    Returns:
        The first `SHOWN` places.
    """
    order = list(range(min(SHOWN, len(ids))))
    chance = coin.random()
    if chance < share and len(order) > 1:
        # The first places are clicked most, so a coin there teaches most.
        places = range(len(order) - 1)
        (pair,) = coin.choices(places, [1 / (place + 1) for place in places])
        swapped = coin.random() < 0.5
        if swapped:
            order[pair], order[pair + 1] = order[pair + 1], order[pair]
        return Explored(order, pair, swapped)
    if share <= chance < 2 * share and len(ids) > SHOWN:
        below = range(SHOWN, min(DEPTH, len(ids)))
        rank = coin.choice([place for place in below if is_new(ids[place])] or below)
        place = coin.randint(_INSERT_FIRST, _INSERT_LAST)
        return Explored([*order[:place], rank, *order[place:-1]], inserted=place)
    return Explored(order)
