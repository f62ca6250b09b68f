"""Strict JSON: what is refused, with which reason, and that everything else is read as the standard says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.storage.strict_json import (
    MAX_INTEGER,
    MIN_INTEGER,
    JsonError,
    parse,
    parse_items,
    parse_object,
)


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
        (
            b'{"n": 18446744073709551616}',
            "n: holds an integer of more than 64 bits: store it as text",
        ),
        (
            b'{"n": -9223372036854775809}',
            "n: holds an integer of more than 64 bits: store it as text",
        ),
        (b"9" * 10_000, "holds an integer of more than 64 bits: store it as text"),
        (b'{"a": "\\ud800"}', "a: holds a lone surrogate"),
        (b'{"a": [{"\\udc00": 1}]}', "a: holds a lone surrogate"),
        (b'{"\\ud800": 1}', "?: holds a lone surrogate"),
        (b"[" * 100_000, "nests too deep"),
    ],
)
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
