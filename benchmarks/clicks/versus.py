"""Experiments between two rankings whose true difference is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.clicks.sessions import Collection, People, serve
from benchmarks.clicks.worlds import World
from fullrank.encoding import Float64, Int64
from fullrank.experiment.evidence import SHARE, Verdict, follow
from fullrank.experiment.votes import votes_of


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
