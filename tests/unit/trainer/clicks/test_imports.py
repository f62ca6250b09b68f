"""Click logs of other programs become lists and events."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from pathlib import Path

import pytest

from fullrank.errors import FullrankError
from fullrank.events.log import EVENTS, LISTS, EventLog, Pseudonyms
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import list_segments
from fullrank_trainer.clicks.imports import Record, format_of, read_records, store
from fullrank_trainer.clicks.join import join
from tests.clicking import MONDAY

NOW = MONDAY + 86_400
YEARS_AGO = 1_500_000_000


def read(
    path: Path, form: str | None = None, first_position: int = 1
) -> tuple[list[Record], Counter[str]]:
    refused: Counter[str] = Counter()
    records = read_records(path, form or format_of(path), NOW, refused, first_position)
    return list(records), refused


def seen(records: list[Record]) -> list[tuple[str, list[str], int]]:
    return [(r.text, list(r.ids), r.offset) for r in records if isinstance(r, ServedList)]


def clicks(records: list[Record]) -> list[tuple[str, str | None]]:
    return [(r.texts["query_id"], r.object_id) for r in records if isinstance(r, Event)]


def test_ubi_events_and_queries_are_read(tmp_path: Path) -> None:
    query = {
        "query_id": "l1", "timestamp": YEARS_AGO * 1000, "user_query": "red", "client_id": "ann",
        "query_response_hit_ids": ["a", "b"], "query_attributes": {"x": 1},
    }  # fmt: skip
    click = {
        "action_name": "click", "timestamp": "2017-07-14T02:40:05Z", "query_id": "l1",
        "event_attributes": {"object": {"object_id": "b", "name": "B"}, "position": {"ordinal": 9}},
    }  # fmt: skip
    lines = [query, {"_source": click}, {"action_name": "click"}, {**query, "user_query": 3}]
    path = tmp_path / "log.ndjson.gz"
    text = "\n".join([*map(json.dumps, lines), "", "{"])
    path.write_bytes(gzip.compress(text.encode()))
    records, refused = read(path)
    assert seen(records) == [("red", ["a", "b"], 0)]
    assert clicks(records) == [("l1", "b")]
    assert [record.at for record in records] == [YEARS_AGO, YEARS_AGO + 5]
    assert refused == {"timestamp: is missing": 1, "user_query: is not text": 1, "no JSON": 1}


@pytest.mark.parametrize("shape", ["lines", "array", "events", "unfolded", "marked"])
def test_algolia_events_are_read(tmp_path: Path, shape: str) -> None:
    events = [
        {"eventType": "click", "eventName": "x", "index": "shop", "userToken": "ann",
         "timestamp": YEARS_AGO * 1000, "queryID": "l1", "objectIDs": ["a", "b"], "positions": [1, 2]},
        {"eventType": "conversion", "eventSubtype": "purchase", "eventName": "x", "index": "shop",
         "userToken": "ann", "queryID": "l1", "objectIDs": ["a"]},
        {"eventType": "tap"},
    ]  # fmt: skip
    texts = {
        "lines": "\n".join(map(json.dumps, events)),
        "array": json.dumps(events, indent=1),
        "events": json.dumps({"events": events}),
        "unfolded": json.dumps({"events": events}, indent=2),
        "marked": "\ufeff" + "\n".join(map(json.dumps, events)),
    }
    path = tmp_path / "events.json"
    path.write_text(texts[shape], "utf-8")
    records, refused = read(path)
    assert clicks(records) == [("l1", "a"), ("l1", "b"), ("l1", "a")]
    assert [r.action for r in records if isinstance(r, Event)] == ["click", "click", "purchase"]
    assert [record.at for record in records] == [YEARS_AGO, YEARS_AGO, NOW]
    assert refused == {"eventType: is not click, view or conversion": 1}


def test_values_that_nothing_can_hold_are_refused_one_by_one(tmp_path: Path) -> None:
    good = '{"action_name": "click", "timestamp": 1500000000000, "query_id": "l1"}'
    texts = [
        "{",
        good,
        good.replace("1500000000000", "1" + 400 * "0"),
        good.replace("1500000000000", "-1e17"),
        good.replace("1500000000000", '"0001-01-01T00:00:00Z"'),
        good.replace("l1", "\\ud800"),
        "7",
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(texts), "utf-8")
    records, refused = read(path)
    assert [record.at for record in records] == [YEARS_AGO]
    assert refused == {
        "no JSON": 1,
        "timestamp: holds an integer of more than 64 bits: store it as text": 1,
        "timestamp: is before 1970": 2,
        "query_id: holds a lone surrogate": 1,
        "no object": 1,
    }
    path.write_text(f"[{','.join(texts[1:])}]", "utf-8")
    assert len(read(path)[0]) == 1


@pytest.mark.parametrize("time", ["0001-01-01", "0999-01-01", "1969-12-31T23:59:59Z", "-1"])
def test_a_row_from_before_1970_is_refused(tmp_path: Path, time: str) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text(f"query,document,time\nred,a,{time}\nred,b,2017-07-14\n", "utf-8")
    records, refused = read(path)
    assert clicks(records) == [("clicks.csv:1", "b")]
    assert sum(refused.values()) == 1


def test_a_position_that_nobody_reaches_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    rows = [f"red,a,{position}" for position in (10**23, 10**15, 10_001, 10_000)]
    path.write_text("\n".join(["query,document,position", *rows]), "utf-8")
    records, refused = read(path)
    assert seen(records) == [("red", ["a"], 9_999)]
    assert sum(refused.values()) == 3


def test_a_table_of_clicks_is_read(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text(
        "\ufeffuser,query,document,position,time,extra\n"
        'ann,"red, shoes",a,3,2017-07-14T02:40:00Z,x\n'
        "bob,boots,b,,1500000000000,x\n"
        "bob,boots,b,zero,1500000000,x\n"
        ",boots,b,0,1500000000,x\n"
        "kim,,b,1,1500000000,x\n"
        ",boots,c,1,9999999999,x\n",
        "utf-8",
    )
    records, refused = read(path)
    assert seen(records) == [("red, shoes", ["a"], 2), ("boots", ["b"], 0)]
    assert [document for _, document in clicks(records)] == ["a", "b"]
    assert {record.at for record in records} == {YEARS_AGO}
    assert {record.texts["user_id"] for record in records} == {"ann", "bob"}
    assert sum(refused.values()) == 4


def test_a_table_of_what_was_shown_is_read(tmp_path: Path) -> None:
    path = tmp_path / "shown.tsv"
    path.write_text(
        "query_id\tquery\tdocument\tposition\tclicked\n"
        "l1\tred\ta\t0\t0\nl1\tred\tb\t1\t1\nl1\tred\tz\t5\ttrue\nl2\tred\tb\t0\tfalse\n",
        "utf-8",
    )
    records, refused = read(path, first_position=0)
    assert seen(records) == [("red", ["a", "b"], 0), ("red", ["z"], 5), ("red", ["b"], 0)]
    assert clicks(records) == [("l1", "b"), ("l1/1", "z")]
    assert not refused


def test_a_table_with_whole_lists_is_read(tmp_path: Path) -> None:
    path = tmp_path / "shown.csv"
    path.write_text(
        "query_id,query,document,shown,user\nl1,red,b,a|b|c,ann\nl1,red,c,a|b|c,ann\nl2,red,x,a|b,bob\n",
        "utf-8",
    )
    records, refused = read(path)
    assert seen(records) == [("red", ["a", "b", "c"], 0), ("red", ["a", "b"], 0)]
    assert clicks(records) == [("l1", "b"), ("l1", "c")]
    assert refused == {"document is not in shown": 1}


@pytest.mark.parametrize(
    ("header", "rows", "only_clicked"),
    [
        ("query,document", ["red,a", "red,b"], [True, True]),
        ("query,document,position", ["red,a,3"], [True]),
        ("query,document,query_id", ["red,a,1", "red,b,1"], [True]),
        ("query,document,shown", ["red,a,a|b", "red,b,"], [False, True]),
        ("query,document,shown", ["red,a,a"], [False]),
        ("query,document,query_id,clicked", ["red,a,1,1", "red,b,1,0"], [False]),
    ],
)
def test_a_table_without_what_was_shown_has_clicks_alone(
    tmp_path: Path, header: str, rows: list[str], only_clicked: list[bool]
) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("\n".join([header, *rows]))
    records, _ = read(path)
    store(records, tmp_path / "log", Pseudonyms(b"key" * 11), NOW, 1e9)
    found = [served.only_clicked for served in EventLog(tmp_path / "log").lists()]
    assert found == only_clicked


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello", "utf-8")
    with pytest.raises(FullrankError, match="neither UBI nor Algolia"):
        format_of(tmp_path / "notes.txt")
    with pytest.raises(FullrankError, match="No such file"):
        format_of(tmp_path / "absent.json")
    (tmp_path / "x.csv").write_text("query,url\nred,b\n", "utf-8")
    with pytest.raises(FullrankError, match="no column 'document'; there are: query, url"):
        read(tmp_path / "x.csv")


def test_imported_records_lie_in_segments_of_their_days_under_pseudonyms(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    rows = [f"u{i % 3},red,d{i % 2},{i % 2 + 1},{YEARS_AGO + i * 40_000}" for i in range(6)]
    path.write_text("user,query,document,position,time\n" + "\n".join(rows) + "\n", "utf-8")
    records, _ = read(path)
    folder, people = tmp_path / "log", Pseudonyms(b"k" * 32)
    for _ in range(2):
        assert store(records, folder, people, time.time(), 1e9) == {LISTS: 6, EVENTS: 6}
    days = {path.name.split("-")[1] for path in list_segments(folder, EVENTS)}
    assert days == {"20170714T000000Z", "20170715T000000Z", "20170716T000000Z"}
    log = EventLog(folder)
    assert {event.person for event in log.events()} == {people.of(f"u{i}") for i in range(3)}
    twice, once = join(log.lists(), log.events()), join(*split(records))
    assert sorted(twice.time.tolist()) == sorted(once.time.tolist())
    assert twice.clicked.sum() == once.clicked.sum() == 6


def split(records: list[Record]) -> tuple[list[ServedList], list[Event]]:
    lists = [record for record in records if isinstance(record, ServedList)]
    return lists, [record for record in records if isinstance(record, Event)]
