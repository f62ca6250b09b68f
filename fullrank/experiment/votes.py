"""Which of two interleaved rankings people clicked: one vote a person, query and day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from fullrank.events.lists import ServedList, normalised
from fullrank.events.records import Event
from fullrank.experiment.interleave import ACTIVE, CANDIDATE

_DAY_S = 86_400


class Vote(NamedTuple):
    """One vote.

    Attributes:
        at: When it was first cast, in seconds since 1970.
        wins: Whether it is for the candidate.
    """

    at: float
    wins: bool


def votes_of(
    lists: Iterable[ServedList], events: Iterable[Event], active: str, candidate: str, since: float
) -> list[Vote]:
    """Count votes for a candidate.

    A person who clicked documents of both rankings, after one query and on one day, votes for the one with more of
    them, or not at all. Programs do not vote.

    Args:
        lists, events: Of the log.
        active, candidate: Versions that were interleaved.
        since: Start of the experiment, in seconds since 1970.

    Returns:
        The votes by time.
    """
    shown = {
        found.query_id: found
        for found in lists
        if found.teams
        and (found.model, found.candidate) == (active, candidate)
        and found.at >= since
        and not found.is_bot
    }
    clicked: dict[tuple[str, str, int], dict[str, str]] = defaultdict(dict)
    first: dict[tuple[str, str, int], float] = {}
    for event in events:
        found = shown.get(event.texts.get("query_id", ""))
        if found is None or not event.is_click or event.is_bot or event.object_id is None:
            continue
        team = dict(zip(found.ids, found.teams, strict=True)).get(event.object_id)
        if team in (ACTIVE, CANDIDATE):
            who = found.person or found.query_id
            key = who, normalised(found.text), int(found.at // _DAY_S)
            clicked[key].setdefault(event.object_id, team)
            first[key] = min(event.at, first.get(key, event.at))
    votes = []
    for key, teams in clicked.items():
        balance = sum(1 if team == CANDIDATE else -1 for team in teams.values())
        if balance:
            votes.append(Vote(first[key], balance > 0))
    return sorted(votes, key=lambda vote: vote.at)
