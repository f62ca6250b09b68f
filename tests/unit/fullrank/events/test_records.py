"""Events as clients send them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.events.records import Event, EventRefused, parse_event

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
CLICK: dict[str, Any] = {"action_name": "click", "timestamp": "2027-01-15T07:59:00Z"}


def test_an_event_of_ubi_is_read() -> None:
    found = parse_event(
        {
            "action_name": "click",
            "query_id": "q1",
            "client_id": "c",
            "session_id": "s",
            "timestamp": "2027-01-15T09:59:00.500+02:00",
            "message": "clicked",
            "event_attributes": {
                "object": {"object_id": "d7", "object_id_field": "ean"},
                "position": {"ordinal": 3},
                "dwell_ms": 1200,
            },
        },
        NOW,
    )
    texts = {"query_id": "q1", "client_id": "c", "session_id": "s"}
    assert found == Event("click", NOW - 59.5, texts, "d7", 1200.0, dropped=3)
    assert found.is_trainable


@pytest.mark.parametrize(
    "timestamp",
    ["2027-01-15T07:59:00Z", "2027-01-15T07:59:00", 1_799_999_940_000, 1_799_999_940_000.0],
)
def test_times_in_either_form(timestamp: object) -> None:
    found = parse_event({**CLICK, "timestamp": timestamp}, NOW)
    assert (found.at, found.is_trainable) == (NOW - 60, False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action_name": None}, "action_name: is missing"),
        ({"action_name": 1}, "action_name: is not text"),
        ({"action_name": "x" * 101}, "action_name: has more than 100 characters"),
        ({"timestamp": None}, "timestamp: is missing"),
        ({"timestamp": "yesterday"}, "timestamp: is no time"),
        ({"timestamp": True}, "timestamp: is neither"),
        ({"timestamp": "2027-01-08T07:59:59Z"}, "timestamp: is older than 7 days"),
        ({"timestamp": "2027-01-15T08:05:01Z"}, "timestamp: is more than 5 minutes ahead"),
        ({"query_id": "q" * 101}, "query_id: has more than 100"),
        ({"client_id": ["c"]}, "client_id: is not text"),
        ({"event_attributes": "x"}, "event_attributes: is not an object"),
        ({"event_attributes": {"object": "d"}}, "event_attributes.object: is not an object"),
        (
            {"event_attributes": {"object": {"object_id": 7}}},
            "event_attributes.object.object_id: is not text",
        ),
        ({"event_attributes": {"dwell_ms": -1}}, "event_attributes.dwell_ms: is not from 0"),
        ({"event_attributes": {"dwell_ms": "5"}}, "event_attributes.dwell_ms: is not a number"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(EventRefused, match=message):
        parse_event({**CLICK, **change}, NOW)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = [
    "action_name",
    "timestamp",
    "query_id",
    "event_attributes",
    "object",
    "dwell_ms",
    "object_id",
]


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5) | JSON)
def test_any_json_is_read_or_refused(given: object) -> None:
    with suppress(EventRefused):
        parse_event(given, NOW)
