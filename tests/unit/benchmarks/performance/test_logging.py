"""The benchmark of the log: each event that it counts as acknowledged is in the log."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.performance.logging import milliseconds, post_events
from fullrank.events.log import EventLog
from tests.api.support import at, make_bundle, served


def test_acknowledged_events_are_counted_once(tmp_path: Path) -> None:
    make_bundle(tmp_path, "bm25", created=at(1))
    with served(tmp_path) as url:
        took = {clients: asyncio.run(post_events(url, clients, 0.3)) for clients in (1, 3)}
    stored = [event.texts["query_id"] for event in EventLog(tmp_path / ".events").events()]
    assert len(stored) == len(took[1]) + len(took[3])
    assert len(took[3]) >= 3
    assert min(took[1] + took[3]) > 0


def test_times_are_told_in_milliseconds() -> None:
    assert milliseconds([0.001] * 99 + [0.101]) == {"p50": 1.0, "p99": 2.0, "requests": 100}
