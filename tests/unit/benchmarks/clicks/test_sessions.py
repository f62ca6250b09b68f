"""Simulated people click as their world says, on the lists that were served."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.clicks.people import (
    PLACES,
    WORLDS,
    Collection,
    Logged,
    People,
    mixed,
    reciprocal_ranks,
    run_experiment,
    serve,
)
from fullrank.encoding import Int64
from fullrank.experiment.decisions import Verdict
from fullrank.experiment.votes import votes_of

QUERIES, DOCUMENTS, SESSIONS = 40, 120, 6000


@pytest.fixture(scope="module")
def collection() -> Collection:
    rng = np.random.default_rng(1)
    return Collection(
        [f"query {i}" for i in range(QUERIES)],
        [f"d{i}" for i in range(DOCUMENTS)],
        [frozenset([int(rng.integers(DOCUMENTS))]) for _ in range(QUERIES)],
    )


def ranked(collection: Collection, place: int) -> Int64:
    """Fifty documents for each query, the answer at one place."""
    found = np.empty((QUERIES, 50), np.int64)
    for query, wanted in enumerate(collection.answers):
        rest = [d for d in range(DOCUMENTS) if d not in wanted]
        found[query] = [*rest[:place], *wanted, *rest[place:49]]
    return found


def logged(collection: Collection, world: str, place: int, explored: float = 0.0) -> Logged:
    people = People.draw(2, SESSIONS, 100, QUERIES, 1)
    return serve(
        collection,
        people,
        range(SESSIONS),
        ranked(collection, place),
        WORLDS[world](),
        explored=explored,
        seed=1,
        model="m",
    )


@pytest.mark.parametrize(
    ("world", "place"), [("eta=1", 0), ("eta=1", 4), ("eta=2", 1), ("ultra", 2)]
)
def test_an_answer_is_clicked_as_often_as_its_place_is_seen(
    collection: Collection, world: str, place: int
) -> None:
    found = logged(collection, world, place)
    lists = {served.query_id: served for served in found.lists}
    clicked = [(lists[event.texts["query_id"]].ids, event.object_id) for event in found.events]
    hit = sum(ids[place] == object_id for ids, object_id in clicked)
    examined = WORLDS[world]().examined[place]
    assert hit / SESSIONS == pytest.approx(0.8 * examined, abs=0.02)
    others = (len(found.events) - hit) / SESSIONS
    assert others == pytest.approx(0.05 * (WORLDS[world]().examined.sum() - examined), abs=0.02)


def test_a_cascade_ends_at_its_first_click(collection: Collection) -> None:
    found = logged(collection, "cascade", 3)
    ids = [event.texts["query_id"] for event in found.events]
    assert len(ids) == len(set(ids)) > SESSIONS / 2


def test_clean_clicks_are_the_answers_that_were_shown(collection: Collection) -> None:
    found = logged(collection, "clean", 9)
    assert len(found.events) == SESSIONS
    assert logged(collection, "clean", 10).events == []


def test_exploration_is_logged_as_it_was_shown(collection: Collection) -> None:
    found = logged(collection, "eta=1", 0, explored=0.2)
    inserted = [served for served in found.lists if served.inserted is not None]
    assert len(inserted) / SESSIONS == pytest.approx(0.2, abs=0.02)
    ranking = ranked(collection, 0)
    place_of = {text: i for i, text in enumerate(collection.queries)}
    for served in inserted:
        place = collection.documents.index(served.ids[served.inserted])  # type: ignore[index]
        assert place in ranking[place_of[served.text], PLACES:]
    pairs = [served for served in found.lists if served.pair is not None]
    assert len(pairs) / SESSIONS == pytest.approx(0.2, abs=0.02)


def test_mixed_rankings_differ_by_what_was_asked_for(collection: Collection) -> None:
    better, worse = ranked(collection, 0), ranked(collection, 3)
    ranks = reciprocal_ranks(collection.answers, better)
    assert ranks.tolist() == [1.0] * QUERIES
    gaps = ranks - reciprocal_ranks(collection.answers, worse)
    rng = np.random.default_rng(1)
    for wanted in (-0.3, 0.0, 0.3):
        found = []
        for _ in range(200):
            active, candidate = mixed(better, worse, wanted, gaps, rng)
            assert (active != candidate).any()
            mrr = [
                reciprocal_ranks(collection.answers, side).mean() for side in (active, candidate)
            ]
            found.append(mrr[1] - mrr[0])
        assert np.mean(found) == pytest.approx(wanted, abs=0.03)
    with pytest.raises(ValueError, match="differ by"):
        mixed(better, worse, 0.9, gaps, rng)


def test_an_experiment_finds_the_better_ranking(collection: Collection) -> None:
    better, worse = ranked(collection, 0), ranked(collection, 5)
    ask = {"sessions": 5000, "users": 100, "seed": 1}
    world = WORLDS["eta=1"]()
    assert run_experiment(collection, worse, better, world, **ask).verdict is Verdict.PROMOTE
    assert run_experiment(collection, better, worse, world, **ask).verdict is Verdict.STOP
    same = run_experiment(collection, better, better, world, **ask)
    assert same == (Verdict.OPEN, 0)


def test_interleaved_lists_vote(collection: Collection) -> None:
    people = People.draw(0, 500, 50, QUERIES, 1)
    found = serve(
        collection,
        people,
        range(500),
        ranked(collection, 5),
        WORLDS["clean"](),
        explored=0,
        seed=1,
        model="m",
        candidate=("n", ranked(collection, 0), 0.5),
    )
    assert sum(bool(served.teams) for served in found.lists) / 500 == pytest.approx(0.5, abs=0.07)
    votes = votes_of(found.lists, found.events, "m", "n", 0)
    # The active ranking shows the answer below what the candidate shows first.
    assert sum(vote.wins for vote in votes) > 0.8 * len(votes) > 100
