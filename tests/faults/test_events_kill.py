"""Acknowledged events survive kill -9 of the service and all its workers, at any moment."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from fullrank.events.log import EVENTS, FOLDER, EventLog
from fullrank.events.segments import list_segments
from tests.api.support import AUTH, at, make_bundle
from tests.faults.real import Writer, lives

GROUP = 3


@dataclass
class Clicking(Writer):
    """Reports clicks in groups, without a pause; kept: the ids of those that were acknowledged."""

    name: str
    kept: list[str] = field(default_factory=list)
    sent: int = 0

    def write(self, client: httpx.Client) -> None:
        self.sent += 1
        ids = [f"{self.name}-{self.sent}-{part}" for part in range(GROUP)]
        now = time.time() * 1000
        events = [{"action_name": "click", "timestamp": now, "query_id": id} for id in ids]
        reply = client.post("/v1/events", json=events, headers=AUTH)
        assert reply.json()["kept"] == GROUP, reply.text
        self.kept += ids


def check(root: Path, kills: int, workers: int, seed: int) -> None:
    """The last service seals what the others left, without their torn lines."""
    make_bundle(root, "bm25", created=at(1))
    log, writers = EventLog(root / FOLDER), [Clicking(f"w{i}") for i in range(4)]
    for number, _ in enumerate(lives(root, writers, kills, workers, seed=seed), 1):
        end = time.monotonic() + 30
        while number == kills and any(
            path.suffix == ".jsonl" for path in list_segments(log.folder, EVENTS)
        ):
            assert time.monotonic() < end, "segments are open"
            time.sleep(0.05)
    found = Counter(event.texts["query_id"] for event in log.events())
    acknowledged = [id for writer in writers for id in writer.kept]
    assert len(acknowledged) > kills
    assert {found[id] for id in acknowledged} == {1}


@pytest.mark.parametrize(
    ("kills", "workers", "seed"),
    [(2, 1, 1), (2, 2, 2), pytest.param(1_000, 1, 0, marks=pytest.mark.slow)],
)
def test_acknowledged_events_survive(tmp_path: Path, kills: int, workers: int, seed: int) -> None:
    check(tmp_path, kills, workers, seed)
