"""The loop over HTTP: what the clients know is in the log, and the mistakes that the benchmark has to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.clicks.rounds import Workbench
from benchmarks.clicks.worlds import WORLDS
from benchmarks.performance.loop_http import Notes, Plan, compare, run_over_http
from fullrank.events.lists import ServedList
from fullrank.events.log import EVENTS, LISTS, EventLog
from fullrank.events.records import Event
from fullrank.events.segments import SegmentWriter

_DAY_S = 86_400


def click(list_id: str, event_id: str, at: float = 1e9) -> Event:
    return Event("click", at, {"query_id": list_id, "event_id": event_id}, "d1")


def test_lost_and_repeated_events_and_lost_lists_are_counted(tmp_path: Path) -> None:
    lists = SegmentWriter(tmp_path, LISTS)
    lists.append([ServedList(id, 1e9, "copy", ["d1"]).line() for id in ("a", "b")])
    lists.sync()
    events = SegmentWriter(tmp_path, EVENTS)
    # The reader drops the second "1" of a day, but not one of another day.
    stored = [
        click("a", "1"),
        click("a", "1"),
        click("b", "2"),
        click("b", "2", 1e9 + _DAY_S),
        click("lost", "3"),
    ]
    events.append([event.line() for event in stored])
    events.sync()
    notes = Notes(["a", "b", "lost", "gone"], {"1": "a", "2": "b", "3": "lost", "4": "a"}, ["/"])
    assert compare(EventLog(tmp_path), notes) == {
        "searches": 4,
        "clicks": 4,
        "retries": 1,
        "lost_events": 1,
        "repeated_events": 1,
        "lost_lists": 2,
        "unmatched": 1,
        "unmatched_expected": 1,
    }


@pytest.mark.slow
def test_the_log_has_what_clients_know_although_workers_are_killed(
    source: Path, tmp_path: Path
) -> None:
    collection = Workbench(source, tmp_path / "work", "1s").collection
    folder = tmp_path / "bundles"
    plan = Plan(rounds=2, sessions=600, users=30, queries=450, kills=3, time="2s", seed=1)
    found = run_over_http(source, collection, folder, WORLDS["eta=1"](), plan)
    assert found["searches"] == 1200
    assert found["clicks"] > 100
    assert found["kills"] > 2
    assert (found["lost_events"], found["repeated_events"]) == (0, 0)
    assert found["unmatched"] == found["unmatched_expected"]
    assert found["steps"][0]["did"] in ("began an experiment", "trained, not published")
    assert found["serving"].is_relative_to(folder)
