"""Documents of write requests: what is accepted, and what the errors say."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank_service.documents.log import Write
from fullrank_service.documents.reading import InvalidDocument, read_document, read_lines

CAP = 1000


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "is empty"),
        (b"  ", "is empty"),
        (b"[]", "is not a JSON object"),
        (b'"text"', "is not a JSON object"),
        (b'{"text": "x"', "is not JSON"),
        (b'{"text": "x"} {}', "is not JSON"),
        (b'{"text": "\xff"}', "is not UTF-8"),
        ('{"text": "x"}'.encode("utf-16"), "is not UTF-8"),
        (b'\xef\xbb\xbf{"text": "x"}', "is not JSON"),
        (b'{"text": "x", "text": "y"}', "twice in one object"),
        (b'{"a": {"b": 1, "b": 2}}', "twice in one object"),
        (b'{"n": NaN}', "holds NaN"),
        (b'{"n": -Infinity}', "holds -Infinity"),
        (b'{"n": 1e999}', "n: holds a number too large"),
        (b'{"n": 99999999999999999999}', "n: holds an integer of more than 64 bits"),
        (b'{"title": 3}', "title: is not text"),
        (b'{"text": ["x"]}', "text: is not text"),
        (b'{"_score": 3}', "_score: names that begin with _ are reserved"),
        (b'{"_id": "other"}', "_id: is not the id in the path"),
        (b'{"a": "\\ud800"}', "a: holds a lone surrogate"),
        (b'{"\\ud800": 1}', "holds a lone surrogate"),
        (b'{"a": [{"\\udc00": 1}]}', "a: holds a lone surrogate"),
        (b'{"a": ' + b"[" * 17 + b"]" * 17 + b"}", "a: nests deeper than 16"),
        (b'{"a": ' + b"[" * 400 + b"]" * 400 + b"}", "a: nests deeper than 16"),
        (b'{"text": "' + b"x" * CAP + b'"}', "is larger than 1000 bytes"),
    ],
)
def test_an_invalid_document_is_refused_with_the_reason(body: bytes, message: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        read_document("a", body, CAP)
    assert message in str(caught.value)


def test_endless_nesting_is_refused() -> None:
    body = b'{"a": ' + b"[" * 100_000
    with pytest.raises(InvalidDocument):
        read_document("a", body, 1 << 20)


def test_fields_are_stored_as_they_were_sent() -> None:
    body = '{"title": "日本", "b": 1.0, "a": [1, null, true, {"x": -0.5}], "_id": "k"}'
    write, _ = read_document("k", body.encode(), CAP)
    assert write == Write("k", '{"title":"日本","b":1.0,"a":[1,null,true,{"x":-0.5}]}'.encode())


def test_each_line_has_its_own_verdict() -> None:
    body = b"\n".join(
        [
            b'{"_id": "a", "text": "x"}',
            b"",
            b'{"_id": "b", "_delete": true}\r',
            b'{"text": "x"}',
            b'{"_id": 7}',
            b'{"_id": "c", "_delete": false}',
            b'{"_id": "d", "_delete": true, "text": "x"}',
            b'{"_id": "e", "title": 1}',
            b"",
        ]
    )
    lines = read_lines(body, CAP)
    assert [(line.number, line.id, line.write, str(line.error or "")[:28]) for line in lines] == [
        (1, "a", Write("a", b'{"text":"x"}'), ""),
        (2, None, None, "is empty"),
        (3, "b", Write("b", None), ""),
        (4, None, None, "_id: is missing"),
        (5, None, None, "_id: is not text"),
        (6, "c", None, "_delete: is not true"),
        (7, "d", None, "text: a deletion has no fiel"),
        (8, "e", None, "title: is not text"),
    ]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.sweep
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES, max_size=4))
def test_an_accepted_document_is_stored_unchanged(fields: dict[str, object]) -> None:
    try:
        write, parsed = read_document("a", json.dumps(fields).encode(), 1 << 20)
    except InvalidDocument as error:
        assert error.field.startswith("_") or error.field in ("title", "text")  # noqa: PT017
        return
    assert write.fields is not None
    assert parsed == json.loads(write.fields) == orjson.loads(write.fields) == fields


@given(st.binary(max_size=200))
def test_any_bytes_get_a_verdict_for_every_line(body: bytes) -> None:
    lines = read_lines(body, CAP)
    expected = body.split(b"\n")
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert len(lines) in (len(expected), len(expected) - 1)
    assert all((line.write is None) != (line.error is None) for line in lines)
