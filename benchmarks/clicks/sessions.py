"""One round of searches by simulated people: the lists that a service would log, and the clicks on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from benchmarks.clicks.worlds import PLACES, World
from fullrank.encoding import Int64
from fullrank.events.lists import ServedList
from fullrank.events.records import Event
from fullrank.experiment.exploring import explore
from fullrank.experiment.interleave import CANDIDATE, interleave

_START = 1_790_000_000.0  # seconds since 1970
ROUND_S = 7 * 86_400.0


@dataclass(frozen=True, eq=False)
class Collection:
    """Queries with their answers.

    Attributes:
        queries: Texts.
        documents: Ids.
        answers: Of each query, the documents that answer it, as places in `documents`.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    answers: Sequence[frozenset[int]]


@dataclass(frozen=True, eq=False)
class People:
    """Who searches what in one round.

    Attributes:
        number: Of the round, from 0.
        query: int64 (sessions,), places in the queries.
        user: int64 (sessions,).
    """

    number: int
    query: Int64
    user: Int64

    @staticmethod
    def draw(number: int, sessions: int, users: int, queries: int, seed: int) -> People:
        """Draw sessions: each by any user about any query."""
        rng = np.random.default_rng([seed, number])
        return People(number, rng.integers(0, queries, sessions), rng.integers(0, users, sessions))

    def at(self, session: int) -> float:
        """Return when a session took place, in seconds since 1970."""
        return _START + ROUND_S * (self.number + session / len(self.query))


@dataclass(frozen=True, eq=False)
class Logged:
    """What a service logs.

    Attributes:
        lists, events: In the order of time.
    """

    lists: list[ServedList]
    events: list[Event]

    def add(self, later: Logged) -> None:
        """Append what was logged later."""
        self.lists.extend(later.lists)
        self.events.extend(later.events)


def serve(
    collection: Collection,
    people: People,
    sessions: range,
    rankings: Int64,
    world: World,
    *,
    explored: float,
    seed: int,
    model: str,
    candidate: tuple[str, Int64, float] | None = None,
) -> Logged:
    """Serve some sessions of a round and log what the people do.

    Args:
        collection: What they search.
        people: Who they are.
        sessions: Which of their sessions.
        rankings: int64 (queries, depth), the best documents of the active model for each query, −1 where there is none.
        world: How they click.
        explored: Share of lists that are explored, in each of the two ways.
        seed: Of exploration, interleaving and clicks.
        model: Version of the active model.
        candidate: A second version, its rankings, and the share of lists that interleave it.
    """
    rng = np.random.default_rng([seed, people.number, sessions.start])
    coin = Random(f"{seed} {people.number} {sessions.start}")
    lists: list[ServedList] = []
    shown = np.full((len(sessions), PLACES), -1, np.int64)
    for row, session in enumerate(sessions):
        query = int(people.query[session])
        ranked = _ranked(rankings[query])
        facts: dict[str, object] = {}
        if candidate is not None and coin.random() < candidate[2]:
            other = _ranked(candidate[1][query])
            picks = interleave(ranked, other, PLACES, coin)  # type: ignore[arg-type]
            places = [(other if team == CANDIDATE else ranked)[rank] for team, rank in picks]
            facts = {"candidate": candidate[0], "teams": "".join(team for team, _ in picks)}
        else:
            found = explore([str(d) for d in ranked], explored, coin) if explored else None
            places = ranked[:PLACES] if found is None else [ranked[place] for place in found.order]
            if found is not None:
                facts = {"pair": found.pair, "swapped": found.swapped, "inserted": found.inserted}
        shown[row, : len(places)] = places
        lists.append(
            ServedList(
                f"{people.number}-{session}",
                people.at(session),
                collection.queries[query],
                [collection.documents[place] for place in places],
                model=model,
                texts={"user_id": f"u{people.user[session]}"},
                **facts,  # type: ignore[arg-type]
            )
        )
    return Logged(lists, _events(collection, people, sessions, lists, shown, world, rng))


def _ranked(row: Int64) -> list[int]:
    found: list[int] = row.tolist()
    return found[: found.index(-1)] if found[-1] < 0 else found


def _events(
    collection: Collection,
    people: People,
    sessions: range,
    lists: Sequence[ServedList],
    shown: Int64,
    world: World,
    rng: np.random.Generator,
) -> list[Event]:
    answers = np.zeros(shown.shape, np.bool_)
    for row, session in enumerate(sessions):
        wanted = collection.answers[int(people.query[session])]
        answers[row] = [place in wanted for place in shown[row].tolist()]
    clicked = world.clicks(answers, rng) & (shown >= 0)
    return [
        Event(
            "click",
            lists[row].at + 5 + place,
            {"query_id": lists[row].query_id, **lists[row].texts},
            lists[row].ids[place],
        )
        for row, place in np.argwhere(clicked).tolist()
    ]
