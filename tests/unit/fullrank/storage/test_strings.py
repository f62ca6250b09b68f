"""String tables against lists of strings."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.storage import strings as module
from fullrank.storage.strings import StringTable

_STRINGS = st.lists(st.text("aé日 🙂\n", max_size=5), max_size=20)


@pytest.mark.parametrize("chunk", [1, 3, 4096])
@given(_STRINGS)
def test_a_table_is_read_as_the_strings_that_it_was_made_of(chunk: int, strings: list[str]) -> None:
    table = StringTable.of(strings)
    assert StringTable.of(table) is table
    for most_bytes in (0, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_CHUNK", chunk)
            patch.setattr(module, "_PIECE", most_bytes)
            assert [*table] == [table[i] for i in range(len(table))] == strings


@given(st.lists(_STRINGS, min_size=1, max_size=4), st.randoms())
def test_strings_of_several_tables_are_copied_in_any_order(
    lists: list[list[str]], random: Random
) -> None:
    places = [(i, row) for i, strings in enumerate(lists) for row in range(len(strings))] * 2
    random.shuffle(places)
    number = np.array([i for i, _ in places], np.int32)
    row = np.array([row for _, row in places], np.int64)
    found = StringTable.gather([StringTable.of(strings) for strings in lists], number, row)
    assert [*found] == [lists[i][row] for i, row in places]
    assert found.damage() is None


def test_a_damaged_table_is_not_copied() -> None:
    table = StringTable(np.zeros(3, np.uint8), np.array([0, 9], np.int64))
    with pytest.raises(IndexError, match="damaged"):
        StringTable.gather([table], np.zeros(1, np.int32), np.zeros(1, np.int64))
