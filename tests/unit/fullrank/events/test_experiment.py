"""A vote counts once, for the ranking that picked what was clicked."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from fullrank.events.decisions import LEVEL, Verdict, e_value, tally_of
from fullrank.events.interleave import ACTIVE, BOTH, CANDIDATE, SHOWN, Pick, explore, interleave
from fullrank.events.records import Event, ServedList
from fullrank.events.votes import Vote, votes_of

DAY = 86_400


def shown(
    query_id: str, user: str | None = "u", text: str = "copy", **changes: object
) -> ServedList:
    given: dict[str, object] = {
        "model": "m1",
        "candidate": "m2",
        "teams": "-ab",
        "texts": {} if user is None else {"user_id": user},
        **changes,
    }
    at = given.pop("at", 10.0)
    return ServedList(query_id, at, text, ["x", "y", "z"], **given)  # type: ignore[arg-type]


def click(query_id: str, document: str, at: float = 11, **changes: object) -> Event:
    return Event("click", at, {"query_id": query_id}, document, **changes)  # type: ignore[arg-type]


def votes(lists: list[ServedList], events: list[Event]) -> list[Vote]:
    return votes_of(lists, events, "m1", "m2", 5.0)


def test_a_click_is_a_vote_for_its_team() -> None:
    assert votes([shown("1")], [click("1", "z")]) == [Vote(11, True)]
    assert votes([shown("1")], [click("1", "y")]) == [Vote(11, False)]
    # What both rankings begin with, what was not shown, and what is no click votes for nobody.
    other = [
        click("1", "x"),
        click("1", "w"),
        click("2", "z"),
        Event("view", 9, {"query_id": "1"}, "z"),
    ]
    assert votes([shown("1")], other) == []


def test_a_person_has_one_vote_a_query_and_day() -> None:
    lists = [shown("1"), shown("2", at=20.0), shown("3", at=DAY + 1.0), shown("4", text="move")]
    events = [click(found.query_id, "z", found.at + 1) for found in lists]
    assert len(votes(lists, events)) == 3
    # Both teams equally often: no vote. The same document again adds nothing.
    assert votes(lists, [click("1", "y"), click("2", "z")]) == []
    assert votes(lists, [click("1", "y"), click("2", "y"), click("2", "z")]) == []
    # People without a name are different people.
    strangers = [shown("1", None), shown("2", None)]
    assert len(votes(strangers, [click("1", "z"), click("2", "z")])) == 2


def test_a_vote_does_not_change_once_its_day_is_over() -> None:
    first = click("1", "z")
    assert votes([shown("1")], [first, click("1", "y", DAY - 1)]) == []
    assert votes([shown("1")], [first, click("1", "y", DAY + 1)]) == [Vote(11, True)]
    lists = [shown("1"), shown("2", at=DAY + 1.0)]
    events = [first, click("2", "z", DAY + 2)]
    assert votes_of(lists, events, "m1", "m2", 5.0, DAY) == [Vote(11, True)]


def test_other_experiments_and_programs_do_not_vote() -> None:
    for other in (
        shown("1", model="m0"),
        shown("1", candidate="m3"),
        shown("1", at=4.0),
        shown("1", is_bot=True),
        shown("1", teams=""),
    ):
        assert votes([other], [click("1", "z")]) == []
    assert votes([shown("1")], [click("1", "z", is_bot=True)]) == []


def test_who_the_list_does_not_name_the_click_may() -> None:
    lists = [shown("1", None), shown("2", None)]
    events = [Event("click", 11, {"query_id": id, "client_id": "c"}, "z") for id in ("1", "2")]
    assert votes(lists, events) == [Vote(11, True)]


def test_people_who_click_too_fast_do_not_vote() -> None:
    """More than a hundred clicks in an hour, on any list."""
    named = {"user_id": "u"}
    elsewhere = [Event("click", 12 + i, {"query_id": "9", **named}, "q") for i in range(100)]
    lists, vote = [shown("1")], Event("click", 11, {"query_id": "1", **named}, "z")
    assert votes(lists, [vote, *elsewhere[1:]]) == [Vote(11, True)]
    assert votes(lists, [vote, *elsewhere]) == []
    slow = [Event("click", 12 + 40 * i, event.texts, "q") for i, event in enumerate(elsewhere)]
    assert votes(lists, [vote, *slow]) == [Vote(11, True)]


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (3, 7), (40, 10), (25, 25)])
def test_it_is_the_integral(wins: int, losses: int) -> None:
    found, _ = quad(lambda t: (2 * t) ** wins * (2 * (1 - t)) ** losses, 0, 1)
    assert e_value(wins, losses) == pytest.approx(found)
    assert e_value(losses, wins) == pytest.approx(found)


def test_its_mean_under_a_fair_coin_is_one() -> None:
    # Over all outcomes of ten votes, each as likely as its number of orders.
    outcomes = [(w, np.prod(range(11 - w, 11)) / np.prod(range(1, w + 1))) for w in range(11)]
    assert sum(e_value(w, 10 - w) * ways / 1024 for w, ways in outcomes) == pytest.approx(1)


@pytest.mark.sweep
def test_equal_models_are_rarely_told_apart() -> None:
    rng = np.random.default_rng(1)
    decided = 0
    for _ in range(400):
        wins = np.cumsum(rng.random(3000) < 0.5)
        total = np.arange(1, 3001)
        decided += any(
            e_value(w, n - w) >= LEVEL for w, n in zip(wins[::7], total[::7], strict=True)
        )
    assert decided <= 20


def test_a_better_candidate_is_promoted_and_a_worse_one_stopped() -> None:
    assert tally_of(70, 30).verdict is Verdict.PROMOTE
    assert tally_of(30, 70).verdict is Verdict.STOP
    assert tally_of(55, 45).verdict is Verdict.OPEN
    assert tally_of(0, 0).verdict is Verdict.OPEN
    assert tally_of(100_000, 10).verdict is Verdict.PROMOTE


@given(st.integers(0, 60), st.floats(0, 0.5), st.integers(0, 999), st.integers(1, 100))
def test_a_list_keeps_its_documents(count: int, share: float, seed: int, shown: int) -> None:
    ids = [f"d{i}" for i in range(count)]
    found = explore(ids, share, Random(seed), shown=shown)
    ranked = list(range(min(shown, count)))
    assert len(set(found.order)) == len(found.order) == len(ranked)
    if found.inserted is not None:
        assert found.pair is None
        assert 3 <= found.inserted <= 9
        assert found.order[found.inserted] >= max(SHOWN, shown)
        rest = [rank for rank in found.order if rank < shown]
        assert rest == ranked[:-1]
    elif found.swapped:
        assert found.pair is not None
        assert found.pair < SHOWN - 1
        ranked[found.pair : found.pair + 2] = ranked[found.pair : found.pair + 2][::-1]
        assert list(found.order) == ranked
    else:
        assert list(found.order) == ranked


@given(st.integers(1, 60), st.sets(st.integers(0, 59)), st.integers(0, 10**6), st.integers(1, 20))
def test_a_clicked_document_is_passed_by_clicked_ones_only(
    count: int, places: set[int], seed: int, shown: int
) -> None:
    ids = [f"d{i}" for i in range(count)]
    clicked = {f"d{i}" for i in places}
    found = explore(ids, 0.5, Random(seed), shown=shown, clicked=clicked)
    for place, rank in enumerate(found.order):
        passed = set(range(rank)) - set(found.order[:place])
        assert ids[rank] in clicked or not clicked.intersection(ids[other] for other in passed)


def test_what_clicks_leave_is_explored() -> None:
    coin, ids = Random(1), [f"d{i}" for i in range(50)]
    found = [explore(ids, 0.5, coin, clicked={"d1", "d4", "d20"}) for _ in range(20_000)]
    pairs = Counter(one.pair for one in found if one.pair is not None)
    assert {*pairs} == {0, 2, 3, 5, 6, 7, 8}
    for pair in pairs:
        swapped = [one.swapped for one in found if one.pair == pair]
        assert sum(swapped) / len(swapped) == pytest.approx(0.5, abs=5 / len(swapped) ** 0.5)
    assert {one.inserted for one in found} == {None, *range(5, 10)}
    assert {rank for one in found for rank in one.order} == set(range(21))


def test_shares_are_kept_and_the_coin_is_fair() -> None:
    coin, ids = Random(1), [f"d{i}" for i in range(50)]
    found = [explore(ids, 0.05, coin) for _ in range(20_000)]
    pairs = [one for one in found if one.pair is not None]
    assert len(pairs) / 20_000 == pytest.approx(0.05, abs=0.006)
    assert sum(one.swapped for one in pairs) / len(pairs) == pytest.approx(0.5, abs=0.06)
    assert sum(one.inserted is not None for one in found) / 20_000 == pytest.approx(0.05, abs=0.006)
    assert Counter(one.pair for one in pairs).most_common(1)[0][0] == 0


def test_new_documents_are_inserted_first() -> None:
    coin, ids = Random(1), [f"d{i}" for i in range(50)]
    found = [explore(ids, 0.5, coin, lambda id: id == "d33") for _ in range(200)]
    assert {one.order[one.inserted] for one in found if one.inserted is not None} == {33}


RANKING = st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=10)


@given(RANKING, RANKING, st.integers(0, 12), st.integers(0, 99))
def test_a_list_has_every_document_once(a: list[str], b: list[str], count: int, seed: int) -> None:
    picks = interleave(a, b, count, Random(seed))
    ids = [(b if pick.team == CANDIDATE else a)[pick.rank] for pick in picks]
    assert len(ids) == len(set(ids)) == min(count, len({*a, *b}))
    # Each ranking's documents come in its order.
    for team in (ACTIVE, CANDIDATE):
        ranks = [pick.rank for pick in picks if pick.team == team]
        assert ranks == sorted(ranks)
    # What both begin with belongs to neither, and nothing else does.
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    same = min(len(a), len(b)) if same is None else same
    assert [pick.team for pick in picks].count(BOTH) == min(same, count)
    assert all(pick == Pick(BOTH, i) for i, pick in enumerate(picks[:same]))


@given(RANKING, RANKING, st.integers(0, 12), st.integers(0, 99))
def test_no_team_is_more_than_one_pick_ahead(
    a: list[str], b: list[str], count: int, seed: int
) -> None:
    if set(a) != set(b):
        return
    teams = [pick.team for pick in interleave(a, b, count, Random(seed))]
    for stop in range(len(teams)):
        found = Counter(teams[:stop])
        assert abs(found[ACTIVE] - found[CANDIDATE]) <= 1


def test_each_team_picks_first_equally_often() -> None:
    coin = Random(1)
    first = Counter(interleave(["x"], ["y"], 1, coin)[0].team for _ in range(4000))
    assert 1900 < first[ACTIVE] < 2100
