from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import BundleError
from fullrank.storage.documents import Document, DocumentStore, fields_line
from fullrank.storage.strings import StringTable

NASTY = ["", "a", "çedilla", "日本語", "🙂", "line\nbreak", "nul\0inside", "\u2028"]


def test_string_table_gives_back_every_string() -> None:
    table = StringTable.of(NASTY)
    assert list(table) == NASTY
    assert [table[i] for i in range(len(NASTY))] == NASTY
    assert [table.utf8(i) for i in range(len(NASTY))] == [text.encode() for text in NASTY]
    assert table[-1] == NASTY[-1]
    assert table.utf8(-1) == NASTY[-1].encode()
    assert table[2:5] == NASTY[2:5]
    assert table.offsets.dtype == np.int64
    assert table.damage() is None


@pytest.mark.parametrize("strings", [[], [""], ["", ""]])
def test_string_table_without_bytes(strings: list[str]) -> None:
    table = StringTable.of(strings)
    assert list(table) == strings
    assert table.damage() is None


def test_string_table_longer_than_one_chunk() -> None:
    strings = [str(i) for i in range(10_000)]
    assert list(StringTable.of(strings)) == strings


@pytest.mark.parametrize("index", [3, -4])
def test_string_table_refuses_an_index_beyond_its_end(index: int) -> None:
    table = StringTable.of(["a", "b", "c"])
    for read in (table.__getitem__, table.utf8):
        with pytest.raises(IndexError):
            read(index)


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [
        ([], "span"),
        ([1, 4], "span"),
        ([0, 3], "span"),
        ([0, 3, 1, 4], "descend"),
        ([0, 2, 4], "inside a character"),
    ],
)
def test_a_damaged_string_table_is_described(offsets: list[int], reason: str) -> None:
    blob = np.frombuffer("aéb".encode(), np.uint8)
    damage = StringTable(blob, np.array(offsets, np.int64)).damage()
    assert damage is not None
    assert reason in damage


def test_a_string_table_that_is_not_utf8_is_described() -> None:
    table = StringTable(np.frombuffer(b"a\xff", np.uint8), np.array([0, 2], np.int64))
    assert table.damage() == "byte 1 is not utf-8"


def _store(ids: list[str]) -> DocumentStore:
    return DocumentStore.of([Document(id, {"title": id.upper()}) for id in sorted(ids)])


@given(st.sets(st.text(st.characters(exclude_categories=["Cs"]))), st.text())
def test_rows_and_ids_map_to_each_other(ids: set[str], other: str) -> None:
    store = _store(list(ids))
    assert list(store.ids) == sorted(ids)
    assert [store.row(id) for id in store.ids] == list(range(len(ids)))
    if other not in ids:
        with pytest.raises(KeyError):
            store.row(other)


def test_ids_ascend_by_code_point_as_their_bytes_do() -> None:
    # UTF-16 order, which many tools sort by, would put the emoji before U+FF5E.
    ids = ["\uff5e", "\U0001f642", chr(sys.maxunicode), "z", "Z", "é"]
    assert sorted(ids) == sorted(ids, key=str.encode)
    assert list(_store(ids).ids) == sorted(ids)


def test_fields_come_back_as_they_were_given() -> None:
    fields = {
        "text": "one\ntwo\u2028three",
        "title": "日本",
        "n": 3,
        "x": 0.1 + 0.2,
        "none": None,
        "nested": {"tags": ["a", {"b": True}]},
        "surrogate": "\ud800",
    }
    store = DocumentStore.of([Document("a", {}), Document("b", fields)])
    assert store.fields(0) == {}
    assert store.fields(1) == fields
    assert list(store.fields(1)) == list(fields)
    assert store.document(1) == Document("b", fields)
    with pytest.raises(IndexError):
        store.fields(2)


def test_a_stored_line_has_no_line_break() -> None:
    assert fields_line("a", {"text": "one\ntwo\r"}).count("\n") == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, {1, 2}, object()])
def test_a_value_without_a_json_form_is_refused_by_document(value: object) -> None:
    with pytest.raises(BundleError, match="document 'a/b' cannot be stored"):
        fields_line("a/b", {"x": value})


@pytest.mark.parametrize("line", ["", "{", "[1]", "3"])
def test_a_damaged_line_names_its_row(line: str) -> None:
    store = DocumentStore(StringTable.of(["a"]), StringTable.of([line]))
    with pytest.raises(BundleError, match=r"fields\.jsonl: row 0"):
        store.fields(0)


def test_missing_text_fields_are_empty_text() -> None:
    document = Document("a", {"title": "T", "year": None})
    assert document.texts(["title", "text", "year"]) == {"title": "T", "text": "", "year": ""}


def test_a_text_field_that_is_not_text_is_refused() -> None:
    with pytest.raises(TypeError, match="document 'a': field 'tags' is list, not text"):
        Document("a", {"tags": ["x"]}).texts(["tags"])
