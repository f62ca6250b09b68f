"""People who search, how they click, and what is logged of it.

A world says who looks at which place and what they click there. Sessions go through the real log: the product's lists,
coins and events. Two rankings whose true difference is
known can be interleaved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fullrank.events.decisions import SHARE, Verdict, follow
from fullrank.events.interleave import CANDIDATE, explore, interleave
from fullrank.events.records import Event, ServedList
from fullrank.events.votes import votes_of
from fullrank.storage.encoding import Float64, Int64

Bool = npt.NDArray[np.bool_]

PLACES = 10
# Clicks on a document that answers the query, and on another, once it is looked at.
_RELEVANT, _OTHER = 0.8, 0.05
# Position-based examination as the ULTRA toolkit ships it, from an eye-tracking study.
_ULTRA = (0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06)


@dataclass(frozen=True)
class World:
    """How people click.

    Attributes:
        examined: Of each place, how likely it is looked at, float64 (PLACES,); all ones in a cascade.
        relevant, other: Of each place, how likely a document there is clicked once it is looked at.
        cascade: People read from the top and stop at their first click.
        eta: The η of p_k = k^−η, None if the world has no such number.
    """

    examined: Float64
    relevant: Float64
    other: Float64
    cascade: bool = False
    eta: float | None = None

    def clicks(self, answers: Bool, rng: np.random.Generator) -> Bool:
        """Draw the clicks on some lists.

        Args:
            answers: bool (lists, PLACES), which documents answer the query.
            rng: Random numbers.

        Returns:
            bool (lists, PLACES).
        """
        looked = rng.random(answers.shape) < self.examined
        clicked = looked & (
            rng.random(answers.shape) < np.where(answers, self.relevant, self.other)
        )
        if self.cascade:
            clicked &= np.cumsum(clicked, axis=1) == 1
        return clicked


def _world(examined: Float64, **changes: object) -> World:
    ones = np.ones(PLACES)
    given = {"relevant": _RELEVANT * ones, "other": _OTHER * ones, **changes}
    return World(examined, **given)  # type: ignore[arg-type]


def _power(eta: float) -> Float64:
    found: Float64 = np.power(np.arange(1.0, PLACES + 1), -eta)
    return found


WORLDS: dict[str, Callable[[], World]] = {
    "eta=1": lambda: _world(_power(1.0), eta=1.0),
    "eta=0": lambda: _world(_power(0.0), eta=0.0),
    "eta=2": lambda: _world(_power(2.0), eta=2.0),
    "ultra": lambda: _world(np.array(_ULTRA)),
    "cascade": lambda: _world(np.ones(PLACES), cascade=True),
    "trust": lambda: _world(_power(1.0), other=0.1 + 0.3 * _power(1.0), eta=1.0),
    "clean": lambda: _world(np.ones(PLACES), relevant=np.ones(PLACES), other=np.zeros(PLACES)),
}
"""`clean` has no bias and no noise: what is left is what the list did not show."""


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


class Outcome(NamedTuple):
    """How an experiment ended.

    Attributes:
        verdict: Open, if the sessions were too few.
        votes: Cast until then.
    """

    verdict: Verdict
    votes: int


def reciprocal_ranks(answers: Sequence[frozenset[int]], rankings: Int64) -> Float64:
    """Return the reciprocal rank of the first answer in each ranking, 0 without one."""
    found = np.zeros(len(rankings))
    for row, (wanted, ranking) in enumerate(zip(answers, rankings.tolist(), strict=True)):
        found[row] = next((1 / (i + 1) for i, d in enumerate(ranking) if d in wanted), 0.0)
    return found


def mixed(
    better: Int64, worse: Int64, difference: float, gaps: Float64, rng: np.random.Generator
) -> tuple[Int64, Int64]:
    """Mix two rankings into an active one and a candidate whose true quality differs by so much.

    Each query has the better ranking on one side and the worse on the other, or the same on both. With a difference
    of 0 a fair coin decides on which side; so the two are different and equally good.

    Args:
        better, worse: int64 (queries, depth).
        difference: Mean reciprocal rank of the candidate minus that of the active one, in expectation.
        gaps: Reciprocal rank of `better` minus that of `worse`, for each query.
        rng: Decides.
    """
    if difference == 0:
        first = rng.random(len(better)) < 0.5
        return np.where(first[:, None], better, worse), np.where(first[:, None], worse, better)
    share = abs(difference) / float(gaps.mean())
    if share > 1:
        raise ValueError(f"the two rankings differ by {gaps.mean():.3f} only")
    changed = np.where((rng.random(len(better)) < share)[:, None], worse, better)
    return (changed, better) if difference > 0 else (better, changed)


def run_experiment(
    collection: Collection,
    active: Int64,
    candidate: Int64,
    world: World,
    *,
    sessions: int,
    users: int,
    seed: int,
) -> Outcome:
    """Interleave two rankings until the votes decide or the sessions end.

    Args:
        collection: What people search.
        active, candidate: int64 (queries, depth).
        world: How people click.
        sessions: Of which `SHARE` are interleaved.
        users: Number of people.
        seed: Of all random numbers.
    """
    people = People.draw(0, round(SHARE * sessions), users, len(active), seed)
    logged = serve(
        collection,
        people,
        range(len(people.query)),
        active,
        world,
        explored=0,
        seed=seed,
        model="active",
        candidate=("candidate", candidate, 1.0),
    )
    votes = votes_of(logged.lists, logged.events, "active", "candidate", 0)
    tallies = list(follow(vote.wins for vote in votes))
    return Outcome(tallies[-1].verdict if tallies else Verdict.OPEN, len(tallies))
