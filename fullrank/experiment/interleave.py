"""Team-draft interleaving: one list of two rankings, each of which picks documents in turn.

What both rankings begin with belongs to neither. Then, round by round, a coin decides who picks first, and each picks
its best document that is not in the list yet. A click on a picked document is a vote for the ranking that picked it.
(F. Radlinski, M. Kurup, T. Joachims: How does clickthrough data reflect retrieval quality? CIKM 2008.)
"""

from __future__ import annotations

from collections.abc import Sequence
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

    Args:
        a, b: Ids of documents, the best first.
        count: Places of the list.
        coin: Decides who picks first.

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
