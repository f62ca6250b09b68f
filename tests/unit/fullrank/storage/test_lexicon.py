"""The compiled hash table of strings against a dictionary."""

from __future__ import annotations

import pickle
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.kernels.words import EMPTY
from fullrank.storage.strings import Lexicon, Names, NameTable, StringTable, unknown_to

# Short texts over few letters are often equal, and often the beginnings of each other.
texts = st.one_of(
    st.text("abé日", max_size=4),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.integers(0, 300).map(lambda size: "x" * size),
)


@given(st.lists(texts, unique=True, max_size=60), st.lists(texts, max_size=30))
def test_rows_equal_those_of_a_dictionary(known: list[str], asked: list[str]) -> None:
    index = {text: row for row, text in enumerate(known)}
    lexicon = Lexicon.of(known)
    asked = [*asked, *known[::2]]
    wanted = [index.get(text, -1) for text in asked]
    assert lexicon.rows(asked).tolist() == lexicon.rows(Names(asked)).tolist() == wanted
    assert list(map(lexicon.find, asked)) == wanted
    assert [text in lexicon for text in asked] == [text in index for text in asked]
    assert list(lexicon) == known


@given(st.lists(texts, unique=True, max_size=60), st.lists(texts, max_size=30))
def test_a_table_of_names_is_searched_for_as_its_strings_are(
    known: list[str], asked: list[str]
) -> None:
    strings = StringTable.of([*asked, *known[::2]])
    table, names = NameTable(strings.blob, strings.offsets), Names(strings)
    lexicon, half = Lexicon.of(known), Lexicon.of(known[::3])
    assert Names.of(table) is table
    np.testing.assert_array_equal(lexicon.rows(table), lexicon.rows(names))
    assert lexicon.rows(table) is lexicon.rows(table)
    assert table.missing(lexicon) == names.missing(lexicon)
    assert unknown_to(table, [lexicon, half]) == unknown_to(names, [lexicon, half])
    assert list(pickle.loads(pickle.dumps(table))) == list(names)


@given(st.lists(texts, unique=True, max_size=60))
def test_slots_hold_each_string_once_on_its_way(known: list[str]) -> None:
    """Search by hand from the slot that zlib's CRC-32 gives."""
    slots = Lexicon.of(known).slots.tolist()
    assert len(slots) >= 2 * len(known)
    assert sorted(slot & 0xFFFFFFFF for slot in slots if slot != int(EMPTY)) == [*range(len(known))]
    for row, text in enumerate(known):
        hashed = crc32(text.encode())
        place = hashed % len(slots)
        while slots[place] != hashed << 32 | row:
            assert slots[place] != int(EMPTY)
            place = (place + 1) % len(slots)


def test_strings_with_one_hash_are_told_apart() -> None:
    pair = ["plumless", "buckeroo"]
    assert crc32(pair[0].encode()) == crc32(pair[1].encode())
    assert Lexicon.of(pair).rows([*pair, "plumles"]).tolist() == [0, 1, -1]
    assert Lexicon.of(pair[:1]).find(pair[1]) == -1


def test_a_lone_surrogate_is_unknown() -> None:
    assert Lexicon.of(["a"]).rows(["\ud800", "a"]).tolist() == [-1, 0]


def test_an_empty_table_knows_nothing() -> None:
    assert Lexicon.of([]).rows(["", "a"]).tolist() == [-1, -1]
    assert Lexicon.of(["a"]).rows([]).tolist() == []


def test_a_string_table_becomes_a_lexicon_without_a_copy() -> None:
    table = StringTable.of(["b", "a"])
    lexicon = Lexicon.of(table)
    assert lexicon.blob is table.blob
    assert Lexicon.of(lexicon) is lexicon


def test_many_strings_are_found() -> None:
    known = [f"word{i}" for i in range(20_000)]
    rows = Lexicon.of(known).rows([*known, "word", "word20000"])
    assert rows.tolist() == [*range(20_000), -1, -1]


def test_a_lexicon_and_names_are_pickled() -> None:
    lexicon, names = Lexicon.of(["b", "a"]), Names(["a", "c"])
    assert lexicon.rows(names).tolist() == [1, -1]
    again = pickle.loads(pickle.dumps(lexicon))
    assert again.rows(pickle.loads(pickle.dumps(names))).tolist() == [1, -1]


def test_slots_of_another_table_are_refused_or_find_nothing_wrong() -> None:
    good = Lexicon.of(["apple", "pear", "plum"])
    with pytest.raises(ValueError, match="no hash table"):
        Lexicon(good.blob, good.offsets, np.zeros(3, np.uint64))
    full = Lexicon(good.blob, good.offsets, np.zeros(4, np.uint64))
    assert full.find("apple") == -1  # the search ends although no slot is empty
    damaged = np.full(8, np.uint64(crc32(b"apple") << 32 | 7))
    with pytest.raises(IndexError, match="damaged index"):
        Lexicon(good.blob, good.offsets, damaged).find("apple")
