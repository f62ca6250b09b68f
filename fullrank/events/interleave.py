"""One list of two rankings (team-draft interleaving), or of one ranking that explores.

What both rankings begin with belongs to neither. Then, round by round, a coin decides who picks first, and each picks
its best document that is not in the list yet. A click on a picked document is a vote for the ranking that picked it.
(F. Radlinski, M. Kurup, T. Joachims: How does clickthrough data reflect retrieval quality? CIKM 2008.)
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from random import Random
from typing import NamedTuple

ACTIVE, CANDIDATE, BOTH = "a", "b", "-"


class Pick(NamedTuple):
    """One place of an interleaved list.

    Attributes:
        team: "a", "b", or "-" for a document that both rankings begin with.
        rank: Where the document stands in the ranking of its team, from 0; of "-" in both.
    """

    team: str
    rank: int


def interleave(a: Sequence[str], b: Sequence[str], count: int, coin: Random) -> list[Pick]:
    """Interleave two rankings.

    Returns:
        The places, fewer than `count` if both rankings together have fewer documents.

    Example:
        >>> interleave(["x", "y"], ["x", "z"], 3, Random(1))
        [Pick(team='-', rank=0), Pick(team='a', rank=1), Pick(team='b', rank=1)]
    """
    same = 0
    while same < min(count, len(a), len(b)) and a[same] == b[same]:
        same += 1
    picks = [Pick(BOTH, rank) for rank in range(same)]
    taken, next_of = set(a[:same]), {ACTIVE: same, CANDIDATE: same}
    rankings = {ACTIVE: a, CANDIDATE: b}
    while len(picks) < count:
        before = len(picks)
        for team in (ACTIVE, CANDIDATE) if coin.random() < 0.5 else (CANDIDATE, ACTIVE):
            ranking, rank = rankings[team], next_of[team]
            while rank < len(ranking) and ranking[rank] in taken:
                rank += 1
            if rank < len(ranking) and len(picks) < count:
                picks.append(Pick(team, rank))
                taken.add(ranking[rank])
                rank += 1
            next_of[team] = rank
        if len(picks) == before:
            break
    return picks


# Exploration: small, logged deviations from a ranking that teach what the ranking alone cannot.
#
# A coin on the order of two neighbours shows how much more the upper place is clicked, whichever documents they are
# (FairPairs: F. Radlinski, T. Joachims, AAAI 2006). A document from further below in a place of the first page shows
# whether it deserves one. Neither lifts a document without clicks after the query above one that has some.

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
    clicked: Container[str] = (),
) -> Explored:
    """Explore one list.

    Args:
        share: Of the lists in which a coin is thrown on two neighbours, and of those with an inserted document; at
            most 0.5.
        shown: Documents that are shown. Only the first `SHOWN` places change.
        clicked: Documents that people clicked after this query.
    """
    order = list(range(min(shown, len(ids))))
    has_clicks = [id in clicked for id in ids]
    first = max([_INSERT_FIRST, *(place + 1 for place in order if has_clicks[place])])
    last = min(_INSERT_LAST, len(order) - 1)
    chance = coin.random()
    places = [
        place
        for place in range(min(SHOWN, len(order)) - 1)
        if has_clicks[place] <= has_clicks[place + 1]
    ]
    if chance < share and places:
        # The first places are clicked most and differ most, so a coin there teaches most.
        (pair,) = coin.choices(places, [(place + 1) ** -2 for place in places])
        swapped = coin.random() < 0.5
        if swapped:
            order[pair], order[pair + 1] = order[pair + 1], order[pair]
        return Explored(order, pair, swapped)
    below = range(max(SHOWN, shown), min(max(DEPTH, shown + 1), len(ids)))
    # Down to the first one with clicks, which none from further below may pass.
    clicks_below = (rank for rank in range(len(order), below.stop) if has_clicks[rank])
    below = range(below.start, next(clicks_below, below.stop - 1) + 1)
    if share <= chance < 2 * share and first <= last and below:
        rank = coin.choice([place for place in below if is_new(ids[place])] or below)
        place = coin.randint(first, last)
        return Explored([*order[:place], rank, *order[place:-1]], inserted=place)
    return Explored(order)
