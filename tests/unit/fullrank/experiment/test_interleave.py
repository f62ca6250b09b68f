"""Interleaved lists are fair, complete and without repeats."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fullrank.experiment.interleave import ACTIVE, BOTH, CANDIDATE, Pick, interleave

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
