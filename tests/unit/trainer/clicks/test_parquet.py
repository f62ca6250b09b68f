"""The log as Parquet, read back by pyarrow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from fullrank.errors import FullrankError
from fullrank.events.log import EVENTS, LISTS, EventLog, erase
from fullrank.events.records import Event
from fullrank.events.segments import SegmentWriter
from fullrank_trainer.clicks import parquet as under_test
from fullrank_trainer.clicks.parquet import write_parquet
from tests.clicking import MONDAY, click, listing, simulate

# As the schemas of UBI 1.3 name them; user_id, session_id of a query and event_id are ours.
UBI_QUERY = {
    "application", "query_id", "client_id", "user_query", "timestamp", "query_response_hit_ids",
    "query_attributes",
}  # fmt: skip
UBI_EVENT = {
    "application", "action_name", "query_id", "session_id", "client_id", "user_id", "timestamp",
    "event_attributes",
}  # fmt: skip


def plain(value: Any) -> Any:
    """Leave out what is absent, and turn times into milliseconds, as JSON lines have it."""
    if isinstance(value, dict):
        kept = {name: plain(part) for name, part in value.items() if part is not None}
        return {name: part for name, part in kept.items() if part != {} or name.endswith("butes")}
    if isinstance(value, datetime):
        assert value.tzinfo is not None
        return round((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    return value


def read(path: Path) -> list[dict[str, Any]]:
    rows = [plain(row) for row in parquet.read_table(path).to_pylist()]
    for row in rows:
        if "filter" in row.get("query_attributes", {}):
            row["query_attributes"]["filter"] = json.loads(row["query_attributes"]["filter"])
    return rows


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    """A log of 300 lists with their clicks, of every kind of list and event, and of a person who is erased."""
    lists, events = simulate(300, lambda k: 1 / k, np.full((20, 5), 0.6), seed=1)
    lists += [
        listing("f", ["a"], filter={"all": [{"field": "tag", "any": ["x"]}]}, page_url="https://x/y"),
        listing("x", ["a", "b"], candidate="v2", model="v1", generation=3, teams="ab", offset=10),
        listing("i", ["ä", "b"], "naïve \u2028", user=None, inserted=1, pinned=(0,), is_bot=True),
        listing("none", [], kind="similar"),
        listing("gone", ["a"], user="kim"),
    ]  # fmt: skip
    events += [
        click("x", "a", dwell_ms=12.5, is_bot=True),
        click(None, None, user=None, action="scroll"),
        click("gone", "a", user="kim"),
        *[Event("click", MONDAY, {"event_id": "e", "application": "shop"}, "a")] * 2,
    ]
    for kind, records in ((LISTS, lists), (EVENTS, events)):
        writer = SegmentWriter(tmp_path / "log", kind, clock=lambda: MONDAY)
        writer.append(record.line() for record in records)
        writer.close()
    erase(tmp_path / "log", ["kim"], MONDAY + 86_400)
    return EventLog(tmp_path / "log")


def test_what_is_read_back_equals_the_log(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "_ROWS_AT_ONCE", 64)
    out = tmp_path / "made" / "out"
    counts = write_parquet(log.lists(), log.events(), out)
    assert {path.name for path in out.iterdir()} == {"ubi_queries.parquet", "ubi_events.parquet"}
    queries, events = out / "ubi_queries.parquet", out / "ubi_events.parquet"
    assert read(queries) == [json.loads(served.line()) for served in log.lists()]
    assert read(events) == [json.loads(event.line()) for event in log.events()]
    assert counts == {"lists": 304, "events": len(read(events))}
    assert parquet.ParquetFile(queries).num_row_groups == 5
    assert set(parquet.read_schema(queries).names) >= UBI_QUERY
    assert set(parquet.read_schema(events).names) >= UBI_EVENT
    assert not any("kim" in row.values() for row in read(queries) + read(events))


def test_an_empty_log_makes_files_without_rows(tmp_path: Path) -> None:
    assert write_parquet([], [], tmp_path / "out") == {"lists": 0, "events": 0}
    assert read(tmp_path / "out" / "ubi_events.parquet") == []


def test_nothing_is_left_of_an_export_that_failed(log: EventLog, tmp_path: Path) -> None:
    def torn() -> Iterator[Event]:
        yield from list(log.events())[:3]
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_parquet(log.lists(), torn(), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    (tmp_path / "out").mkdir()
    with pytest.raises(FullrankError, match="exists already"):
        write_parquet(log.lists(), log.events(), tmp_path / "out")
