"""What is logged comes back, but for people who were erased; records are checked."""

from __future__ import annotations

import hashlib
import hmac
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import FullrankError
from fullrank.events.log import (
    ERASED,
    EVENTS,
    LISTS,
    EventLog,
    KeyDamaged,
    Pseudonyms,
    erase,
    key_for,
    read_erased,
    read_key,
)
from fullrank.events.records import (
    Event,
    EventRefused,
    ServedList,
    parse_event,
    parse_list,
    parse_stored,
)
from fullrank.events.segments import SegmentError, SegmentWriter

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.sampled_from(["user_id", "client_id", "session_id", "application"])
LISTS_OF = st.builds(
    ServedList,
    query_id=TEXT,
    at=st.integers(0, 2**41).map(lambda ms: ms / 1000),
    text=TEXT,
    ids=st.lists(TEXT, max_size=5),
    kind=st.sampled_from(["search", "similar", "match", "reported"]),
    offset=st.integers(0, 10_000),
    model=st.none() | TEXT.filter(bool),
    generation=st.integers(0, 2**31),
    candidate=st.none() | TEXT.filter(bool),
    teams=st.text("ab-", max_size=5),
    pair=st.none() | st.integers(0, 100),
    swapped=st.booleans(),
    inserted=st.none() | st.integers(0, 100),
    pinned=st.lists(st.integers(0, 100), max_size=3).map(tuple),
    texts=st.dictionaries(NAMES, TEXT, max_size=4),
    filter=st.none() | st.dictionaries(TEXT, st.integers(0, 9), min_size=1, max_size=2),
    page_url=st.none() | TEXT.filter(bool),
    is_bot=st.booleans(),
)
EVENTS_OF = st.builds(
    Event,
    action=TEXT,
    at=st.integers(0, 2**41).map(lambda ms: ms / 1000),
    texts=st.dictionaries(NAMES | st.sampled_from(["query_id", "event_id"]), TEXT, max_size=6),
    object_id=st.none() | TEXT,
    dwell_ms=st.none() | st.floats(0, 1e6),
    is_bot=st.booleans(),
)


@given(LISTS_OF)
def test_a_list_comes_back_from_its_line(served: ServedList) -> None:
    assert parse_list(served.line()) == served


@given(EVENTS_OF)
def test_an_event_comes_back_from_its_line(event: Event) -> None:
    assert parse_stored(event.line()) == event


def write(folder: Path, kind: str, lines: list[bytes]) -> None:
    writer = SegmentWriter(folder, kind)
    writer.append(lines)
    writer.close()


def click(at: float = 1e9, **texts: str) -> Event:
    return Event("click", at, texts, "d")


def test_an_event_id_counts_once_a_day(tmp_path: Path) -> None:
    day = 86_400
    events = [click(day, event_id="x"), click(day + 5, event_id="x"), click(2 * day, event_id="x")]
    events += [click(day, event_id="y"), click(day), click(day)]
    write(tmp_path, EVENTS, [event.line() for event in events[:1]])
    write(tmp_path, EVENTS, [event.line() for event in events[1:]])
    found = list(EventLog(tmp_path).events())
    assert len(found) == 5
    assert [event.at for event in found if event.texts.get("event_id") == "x"].count(day * 2) == 1


def test_event_ids_do_not_pile_up_over_a_long_log(tmp_path: Path) -> None:
    day, ids = 86_400, [f"{number:0>100}" for number in range(100)]
    peaks = []
    # The first is read to load what any log needs.
    for days in (2, 60, 120):
        for number in range(days):
            writer = SegmentWriter(tmp_path / f"{days}", EVENTS, clock=lambda at=number * day: at)  # type: ignore[misc]
            # Each segment begins with a repetition of the day before, which a client sent late.
            both = [number - 1, number] if number else [0]
            writer.append(
                click(d * day + 5, event_id=f"{id}{d}").line() for d in both for id in ids
            )
            writer.close()
        tracemalloc.start()
        assert sum(1 for _ in EventLog(tmp_path / f"{days}").events()) == days * len(ids)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # 6,000 more ids of 101 letters would take 900,000 bytes.
    assert peaks[2] - peaks[1] < 100_000


def test_a_reader_can_skip_the_past(tmp_path: Path) -> None:
    day = 86_400
    for at in (0, 5 * day, 10 * day):
        writer = SegmentWriter(tmp_path, EVENTS, clock=lambda at=at: at)  # type: ignore[misc]
        # The first event of a segment comes from a client that reports late.
        writer.append([click(at - day + 1).line(), click(at).line()])
        writer.seal()
    log = EventLog(tmp_path)
    for since in (0, 5 * day - 1, 5 * day, 10 * day, 10 * day + 1):
        everything = [event.at for event in log.events()]
        assert [event.at for event in log.events(since)] == [at for at in everything if at >= since]


def test_erased_people_are_gone_at_once(tmp_path: Path) -> None:
    write(
        tmp_path,
        EVENTS,
        [
            click(10, user_id="u").line(),
            click(10, client_id="u").line(),
            click(10, user_id="v", session_id="w").line(),
            click(30, user_id="u").line(),
        ],
    )
    served = [ServedList("q1", 10, "a", [], texts={"client_id": "w"}), ServedList("q2", 1, "b", [])]
    write(tmp_path, LISTS, [found.line() for found in served])
    log = EventLog(tmp_path)
    assert len(list(log.events())) == 4
    erase(tmp_path, ["u"], 20)
    assert [(e.at, e.person) for e in log.events()] == [(10, "v"), (30, "u")]
    erase(tmp_path, ["w"], 20)
    # What somebody does afterwards is theirs again.
    assert [(e.at, e.person) for e in log.events()] == [(30, "u")]
    assert [found.query_id for found in log.lists()] == ["q2"]
    assert read_erased(tmp_path) == {"u": 20, "w": 20}


def test_erasing_at_once_loses_nobody(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: erase(tmp_path, [f"u{i}"], i), range(40)))
    assert len(read_erased(tmp_path)) == 40


def test_a_damaged_list_of_the_erased_hides_nothing_silently(tmp_path: Path) -> None:
    (tmp_path / ERASED).write_text("[1")
    with pytest.raises(FullrankError, match=ERASED):
        list(EventLog(tmp_path).events())


def test_attributes_of_a_newer_release_are_ignored(tmp_path: Path) -> None:
    served, event = ServedList("q", 10.0, "a", ["d"], offset=3), click(10.0, user_id="u")
    for kind, record, holder in (
        (LISTS, served, "query_attributes"),
        (EVENTS, event, "event_attributes"),
    ):
        given = orjson.loads(record.line())
        given[holder]["invented_later"] = {"x": 1}
        write(tmp_path, kind, [orjson.dumps({**given, "field_of_tomorrow": [1]})])
    log = EventLog(tmp_path)
    assert [*log.lists(), *log.events()] == [served, event]


@pytest.mark.parametrize("line", [b"[]", b"{", b'{"query_id":"x"}'])
def test_a_line_of_something_else_is_damage(tmp_path: Path, line: bytes) -> None:
    write(tmp_path, LISTS, [line])
    write(tmp_path, EVENTS, [line])
    with pytest.raises(SegmentError, match="no served list"):
        list(EventLog(tmp_path).lists())
    with pytest.raises(SegmentError, match="no event"):
        list(EventLog(tmp_path).events())


def test_pseudonyms_are_hmacs_of_ids_of_people(tmp_path: Path) -> None:
    key = read_key(tmp_path / "a" / "key")
    assert key == read_key(tmp_path / "a" / "key") != read_key(tmp_path / "other")
    assert (tmp_path / "a" / "key").stat().st_mode & 0o777 == 0o600
    found = Pseudonyms(key).replace({"user_id": "ann", "application": "shop", "query_id": "q"})
    wanted = hmac.new(key, b"ann", hashlib.sha256).hexdigest()[:32]
    assert found == {"user_id": wanted, "application": "shop", "query_id": "q"}


def test_keys_of_purposes_are_those_of_rfc_5869() -> None:
    """Test case 3 of the RFC: no salt, no info; 32 bytes are the beginning of its 42."""
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert key_for(b"\x0b" * 22, b"").hex() == expected
    assert key_for(b"k" * 32, b"a") != key_for(b"k" * 32, b"b")


def test_processes_that_make_the_key_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: read_key(tmp_path / "key"), range(32)))
    assert len(keys) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_key_of_another_length_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(KeyDamaged, match="has 5 bytes"):
        read_key(tmp_path / "key")


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
RECORDS_NAMES = [
    "action_name",
    "timestamp",
    "query_id",
    "event_attributes",
    "object",
    "dwell_ms",
    "object_id",
]


@given(st.dictionaries(st.sampled_from(RECORDS_NAMES), JSON, max_size=5) | JSON)
def test_any_json_is_read_or_refused(given: object) -> None:
    with suppress(EventRefused):
        parse_event(given, NOW)
