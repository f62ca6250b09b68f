"""Exploration stays small, fair and on record."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.experiment.interleave import SHOWN, explore


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
