"""Which of two interleaved rankings people clicked: one vote a person, query and day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from fullrank.events.caps import find_programs
from fullrank.events.interleave import ACTIVE, CANDIDATE
from fullrank.events.records import Event, ServedList, normalised

_DAY_S = 86_400


class Vote(NamedTuple):
    """One vote.

    Attributes:
        at: When it was first cast, in seconds since 1970.
    """

    at: float
    wins: bool


def votes_of(
    lists: Iterable[ServedList],
    events: Iterable[Event],
    active: str,
    candidate: str,
    since: float,
    until: float = inf,
) -> list[Vote]:
    """Count votes for a candidate.

    A person who clicked documents of both rankings, after one query and on one day, votes for the one with more of
    them, or not at all. Clicks on the next day do not change the vote. Who voted is the person of the list, else of the
    click. Programs do not vote.

    Args:
        since: Start of the experiment, in seconds since 1970.
        until: Lists from then on do not vote. The votes of a day may change until it is over, so `until` is the
            beginning of today while the experiment runs.

    Returns:
        The votes by time.
    """
    shown = {
        found.query_id: found
        for found in lists
        if found.teams
        and (found.model, found.candidate) == (active, candidate)
        and since <= found.at < until
        and not found.is_bot
    }
    clicks = []
    for event in events:
        if event.is_click and not event.is_bot and event.object_id is not None:
            found = shown.get(event.texts.get("query_id", ""))
            clicks.append((_who(event, found), event, found))
    programs = _programs(clicks)
    clicked: dict[tuple[str, str, int], dict[str, str]] = defaultdict(dict)
    first: dict[tuple[str, str, int], float] = {}
    for who, event, found in clicks:
        if found is None or event.object_id is None or who in programs:
            continue
        if event.at // _DAY_S > (day := found.at // _DAY_S):
            continue
        team = dict(zip(found.ids, found.teams, strict=True)).get(event.object_id)
        if team in (ACTIVE, CANDIDATE):
            key = who, normalised(found.text), int(day)
            clicked[key].setdefault(event.object_id, team)
            first[key] = min(event.at, first.get(key, event.at))
    votes = []
    for key, teams in clicked.items():
        balance = sum(1 if team == CANDIDATE else -1 for team in teams.values())
        if balance:
            votes.append(Vote(first[key], balance > 0))
    return sorted(votes, key=lambda vote: vote.at)


def _who(event: Event, found: ServedList | None) -> str:
    if found is None:
        return event.person or ""
    return found.person or event.person or f"\0{found.query_id}"


def _programs(clicks: Sequence[tuple[str, Event, ServedList | None]]) -> set[str]:
    numbers: dict[str, int] = {}
    known = [(numbers.setdefault(who, len(numbers)), event.at) for who, event, _ in clicks if who]
    person = np.array([number for number, _ in known], np.int64)
    found = set(find_programs(person, np.array([at for _, at in known], np.float64)).tolist())
    return {who for who, number in numbers.items() if number in found}
