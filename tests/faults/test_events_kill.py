"""Acknowledged events survive kill -9 of the service and all its workers, at any moment."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from fullrank.events.archive import list_segments
from fullrank.events.log import EventLog
from tests.api.support import at, free_port, make_bundle
from tests.faults.real import kill, start


class Clients:
    """Threads that report events and note those that were acknowledged."""

    def __init__(self, port: int, life: int, count: int = 4) -> None:
        self.acknowledged: list[str] = []
        self.first = threading.Event()
        self._url, self._life = f"http://127.0.0.1:{port}/v1/events", life
        self._threads = [threading.Thread(target=self._report, args=(n,)) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _report(self, number: int) -> None:
        with httpx.Client(timeout=10) as client:
            for request in range(100_000):
                ids = [f"{self._life}-{number}-{request}-{part}" for part in range(3)]
                events = [
                    {"action_name": "click", "timestamp": time.time() * 1000, "query_id": id}
                    for id in ids
                ]
                try:
                    reply = client.post(self._url, json=events)
                except httpx.TransportError:
                    return  # killed
                assert reply.json()["kept"] == 3
                self.acknowledged += ids
                self.first.set()


def survive(root: Path, kills: int, workers: int, seed: int) -> None:
    """Kill a service so many times while clients report; nothing acknowledged may be missing."""
    make_bundle(root, "bm25", created=at(1))
    draw = random.Random(seed)
    acknowledged: list[str] = []
    for life in range(kills):
        port = free_port()
        process = start(root, port, workers)
        clients = Clients(port, life)
        clients.first.wait(20)
        time.sleep(draw.uniform(0.0, 0.5))
        kill(process)
        clients.join()
        acknowledged += clients.acknowledged
    # The next start seals what the dead left, without their torn lines.
    process = start(root, free_port(), workers)
    end = time.monotonic() + 30
    log = EventLog(root / ".events")
    while any(path.suffix == ".jsonl" for path in list_segments(log.folder, "events")):
        assert time.monotonic() < end
        time.sleep(0.05)
    kill(process)
    found = Counter(event.texts["query_id"] for event in log.events())
    assert len(acknowledged) > kills
    assert [id for id in acknowledged if found[id] != 1] == []


@pytest.mark.parametrize("workers", [1, 2])
def test_acknowledged_events_survive(tmp_path: Path, workers: int) -> None:
    survive(tmp_path, kills=2, workers=workers, seed=workers)


@pytest.mark.slow
def test_acknowledged_events_survive_a_thousand_kills(tmp_path: Path) -> None:
    survive(tmp_path, kills=1_000, workers=1, seed=0)
