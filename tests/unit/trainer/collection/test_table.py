"""Pairs in arrays are the dictionaries of the same lines."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank_trainer.collection.judgements import Ids, PairReader, PairTable, Repeat

QUERIES, DOCUMENTS = Ids(["q2", "q0", "q1", "q3"]), Ids(["a", "b", "c"])
LINES = st.lists(
    st.tuples(
        st.sampled_from([*QUERIES]), st.sampled_from([*DOCUMENTS]), st.integers(-2, 3)
    ),
    max_size=30,
)  # fmt: skip


def read(lines: list[tuple[str, str, int]]) -> tuple[PairTable[int], list[Repeat[int]]]:
    reader = PairReader(QUERIES, DOCUMENTS, int)
    for number, (query, document, value) in enumerate(lines, 2):
        reader.add(number, QUERIES.rows[query], DOCUMENTS.rows[document], value)
    return reader.table()


@given(LINES)
def test_a_table_is_the_dictionary_of_the_first_values(lines: list[tuple[str, str, int]]) -> None:
    wanted: dict[str, dict[str, int]] = {}
    again = []
    for number, (query, document, value) in enumerate(lines, 2):
        first = wanted.setdefault(query, {}).setdefault(document, value)
        again.append((number, QUERIES.rows[query], DOCUMENTS.rows[document], value, first))
    seen: set[tuple[int, ...]] = set()
    repeats = []
    for row in again:
        if row[1:3] in seen:
            repeats.append(row)
        seen.add(row[1:3])
    table, found = read(lines)
    assert table == wanted
    # The order counts, too: measures add up in it.
    assert [(query, [*pairs.items()]) for query, pairs in table.items()] == [
        (query, [*pairs.items()]) for query, pairs in wanted.items()
    ]
    assert [tuple(repeat) for repeat in found] == repeats
    assert table.entries.dtype == np.int32
    for query in QUERIES:
        assert (query in table) == (query in wanted)
        assert table.get(query, {}) == wanted.get(query, {})


@given(LINES)
def test_a_dictionary_becomes_the_same_table(lines: list[tuple[str, str, int]]) -> None:
    table, _ = read(lines)
    other = PairTable.of({q: dict(pairs) for q, pairs in table.items()}, QUERIES, DOCUMENTS)
    for mine, theirs in (
        (table.queries, other.queries), (table.starts, other.starts),
        (table.documents, other.documents), (table.entries, other.entries),
    ):  # fmt: skip
        np.testing.assert_array_equal(mine, theirs)
    assert PairTable.of(table, QUERIES, DOCUMENTS) is table
    assert pickle.loads(pickle.dumps(table)) == table


def test_unknown_queries_have_no_pairs() -> None:
    table, _ = read([("q0", "a", 1)])
    assert "nobody" not in table
    for query in ("nobody", "q1"):
        with pytest.raises(KeyError):
            table[query]


def test_numbers_with_a_fraction_keep_it() -> None:
    given = {"q1": {"c": 0.5, "a": 2}}
    table = PairTable.of(given, QUERIES, DOCUMENTS)
    assert table == given
    assert table.entries.dtype == np.float64
