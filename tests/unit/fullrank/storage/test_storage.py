"""Stored strings, lexicons, documents and files: what is written is read, what is damaged refused."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import pickle
import sys
from itertools import pairwise
from pathlib import Path
from random import Random
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import BundleError
from fullrank.kernels.words import EMPTY
from fullrank.storage import strings as module
from fullrank.storage.checks import ascends, check_ascending
from fullrank.storage.documents import Document, fields_line
from fullrank.storage.files import locked, replacing
from fullrank.storage.strict_json import (
    MAX_INTEGER,
    MIN_INTEGER,
    JsonError,
    parse,
    parse_items,
    parse_object,
)
from fullrank.storage.strings import (
    DocumentStore,
    Lexicon,
    Names,
    NameTable,
    StringTable,
    unknown_to,
)

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
        Document("a", {"tags": ["x", 5]}).texts(["tags"])


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


EDGES = st.sampled_from([0, 1, 2, 3, -1, 2**63 - 1, -(2**63)])


@given(st.lists(EDGES, min_size=1, max_size=6), st.integers(0, 3))
def test_pointers_ascend_from_zero_to_the_number_of_entries(
    numbers: list[int], entries: int
) -> None:
    expected = numbers[0] == 0 and numbers[-1] == entries
    expected &= all(one <= other for one, other in pairwise(numbers))
    assert ascends(np.array(numbers, np.int64), entries) == expected


def test_pointers_whose_differences_overflow_are_refused() -> None:
    forged = np.array([0, 2**63 - 1, -(2**63), -1, 4], np.int64)
    assert (np.diff(forged) > 0).all()
    with pytest.raises(BundleError, match=r"x\.npy: does not ascend"):
        check_ascending("x.npy", forged, 4)


def test_a_file_is_locked_on_a_file_system_that_locks_writable_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:  # as NFS does
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(tmp_path / "lock") as first, locked(tmp_path / "lock", 0) as second:
        assert (first, second) == (True, False)


def test_writers_of_one_file_with_the_same_process_id_do_not_meet(tmp_path: Path) -> None:
    """Containers that share a volume all write as process 1."""
    path = tmp_path / "active.json"
    with replacing(path) as first:
        first.write("first")
        with replacing(path) as second:
            second.write("the second")
        assert path.read_text() == "the second"
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is not JSON (character 1)"),
        (b"{} {}", "is not JSON (character 4)"),
        (b'{"a": 1', "is not JSON (character 8)"),
        (b'{"a": "\xff"}', "is not UTF-8 at byte 8"),
        ('{"a": 1}'.encode("utf-16"), "is not UTF-8 at byte 1"),
        (b"\xef\xbb\xbf{}", "is not JSON (character 1)"),
        (b'{"a": 1, "b": 2, "a": 3}', "holds the key 'a' twice in one object"),
        (b'[{"b": {"c": 1, "c": 1}}]', "holds the key 'c' twice in one object"),
        (b'{"n": NaN}', "holds NaN, which is not a JSON number"),
        (b'{"n": -Infinity}', "holds -Infinity, which is not a JSON number"),
        (b'{"m": 1, "n": [1e999]}', "n: holds a number too large for a float"),
        (b'{"n": -1e999}', "n: holds a number too large for a float"),
        (b'{"n": 18446744073709551616}', "n: holds an integer of more than 64 bits: store it as text"),
        (b'{"n": -9223372036854775809}', "n: holds an integer of more than 64 bits: store it as text"),
        (b"9" * 10_000, "holds an integer of more than 64 bits: store it as text"),
        (b'{"a": "\\ud800"}', "a: holds a lone surrogate"),
        (b'{"a": [{"\\udc00": 1}]}', "a: holds a lone surrogate"),
        (b'{"\\ud800": 1}', "?: holds a lone surrogate"),
        (b"[" * 100_000, "nests too deep"),
    ],
)  # fmt: skip
def test_text_that_is_not_strict_json_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(JsonError) as caught:
        parse(text)
    assert str(caught.value) == message


@given(
    items=st.lists(
        st.sampled_from(
            ['{"a": 1}', '"x"', '{"a": 1, "a": 2}', '["\\ud800"]', "1e999", "NaN", "[]"]
        ),
        max_size=6,
    ),
    wrapped=st.booleans(),
)
def test_each_item_is_read_or_refused_as_it_would_be_alone(items: list[str], wrapped: bool) -> None:
    def alone(item: str) -> object:
        try:
            return parse(item)
        except JsonError as error:
            return error.field, error.reason

    text = f"[{', '.join(items)}]"
    found = parse_items(f'{{"items": {text}, "x": 1}}' if wrapped else text, "items")
    if wrapped:
        assert found.pop("x") == 1
        found = found["items"]
    shown = [(item.field, item.reason) if isinstance(item, JsonError) else item for item in found]
    assert shown == [alone(item) for item in items]


@pytest.mark.parametrize(
    "text",
    ["[1", '{"items": [], "items": []}', '{"items": [1e999], "x": NaN}', "1e999", '{"x": [NaN]}'],
)
def test_what_is_no_matter_of_an_item_refuses_the_whole_text(text: str) -> None:
    with pytest.raises(JsonError):
        parse_items(text, "items")


def test_depth_is_limited_where_the_caller_limits_it() -> None:
    assert parse('{"a": [[1]], "b": []}', max_depth=3) == {"a": [[1]], "b": []}
    with pytest.raises(JsonError, match=r"^a: nests deeper than 1 levels$"):
        parse('{"a": [[1]], "b": []}', max_depth=2)
    with pytest.raises(JsonError, match=r"^nests deeper than 2 levels$"):
        parse("[[[1]]]", max_depth=2)
    assert parse("[[], [], {}, []]", max_depth=2) == [[], [], {}, []]
    assert parse(b"[" * 500 + b"]" * 500)
    with pytest.raises(JsonError, match="nests deeper than 9 levels"):
        parse('{"a": ' + "[" * 400 + "]" * 400 + "}", max_depth=10)


def test_an_object_is_asked_for() -> None:
    assert parse_object("{}") == {}
    for text in ("[]", '"text"', "null", "1"):
        with pytest.raises(JsonError, match="is not a JSON object"):
            parse_object(text)


def test_surrogate_pairs_and_the_widest_integers_are_read() -> None:
    assert parse('"\\ud83d\\ude00 \\u00e9"') == "😀 é"
    widest = {"least": MIN_INTEGER, "most": MAX_INTEGER, "large": 1.7e308}
    assert parse(json.dumps(widest)) == widest


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(MIN_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(VALUES, st.booleans())
def test_every_other_value_is_read_as_it_was_written(value: object, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    assert parse(text) == parse(text.encode()) == value


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        value = parse(content, max_depth=5)
    except JsonError:
        return
    assert value == json.loads(content)
