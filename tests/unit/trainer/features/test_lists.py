"""Lists in arrays do what dictionaries of arrays do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank_trainer.features.pairs import Lists

GIVEN = st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 50), max_size=4), max_size=8)
Given = dict[int, list[int]]


def lists(given: Given) -> Lists:
    return Lists.of({row: np.array(found, np.int64) for row, found in given.items()})


def plain(found: Lists) -> list[tuple[int, list[int]]]:
    return [(row, entries.tolist()) for row, entries in found.items()]


@given(GIVEN, st.lists(st.integers(0, 12), max_size=6, unique=True))
def test_rows_have_their_lists_in_their_order(given: Given, asked: list[int]) -> None:
    found, rows = lists(given), np.array(asked, np.int64)
    assert plain(found) == [*given.items()]
    assert found.sizes.tolist() == [len(row) for row in given.values()]
    assert found.owners.tolist() == [row for row, entries in given.items() for _ in entries]
    assert [row in found for row in range(13)] == [row in given for row in range(13)]
    assert plain(found.of_rows(rows)) == [(row, given[row]) for row in asked if row in given]
    assert plain(found.among(rows)) == [(row, x) for row, x in given.items() if row in asked]


@given(GIVEN, st.data())
def test_lists_of_some_rows_follow_each_other(given: Given, data: st.DataObject) -> None:
    asked = data.draw(st.permutations([*given]))
    starts, entries = lists(given).take(np.array(asked, np.int64))
    assert starts.tolist() == np.cumsum([0, *(len(given[row]) for row in asked)]).tolist()
    assert entries.tolist() == [x for row in asked for x in given[row]]


@given(GIVEN)
def test_entries_are_kept_and_empty_lists_are_not(given: Given) -> None:
    found = lists(given)
    kept = (found.entries + found.owners) % 2 == 0
    chosen = {row: [x for x in entries if (x + row) % 2 == 0] for row, entries in given.items()}
    assert plain(found.where(kept)) == [(row, x) for row, x in chosen.items() if x]


@given(GIVEN, GIVEN)
def test_lists_of_other_rows_come_after(given: Given, more: Given) -> None:
    more = {row + 10: entries for row, entries in more.items()}
    assert plain(lists(given).joined(lists(more))) == [*given.items(), *more.items()]


def test_rows_without_a_list_are_missed() -> None:
    found = lists({4: [1, 2], 1: []})
    assert 2 not in found
    for rows in ([4, 2], [11]):
        with pytest.raises(KeyError, match=str(rows[-1])):
            found.take(np.array(rows))
    with pytest.raises(KeyError, match="2"):
        found[2]
