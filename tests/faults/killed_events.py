"""Kill services while clients report events, and look for every acknowledged event in their log.

Each life of the service: four clients report clicks in groups of three, without a pause. Up to half a second after the
first answer, SIGKILL ends the service and all its workers at once. The last service seals what the others left.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.performance.servers import kill, start
from fullrank.events.log import EVENTS, FOLDER, EventLog
from fullrank.events.segments import list_segments

_CLIENTS, _GROUP = 4, 3
_LONGEST_LIFE_S = 0.5
_SEAL_S, _FIRST_S = 30.0, 20.0


@dataclass(frozen=True)
class Survived:
    """What a log has after so many kills.

    Attributes:
        acknowledged: Events that the service acknowledged.
        lost: Of them, those that the log lacks.
        repeated: Of them, those that the log has more than once.
    """

    acknowledged: int
    lost: int
    repeated: int


def survive(root: Path, kills: int, workers: int, seed: int) -> Survived:
    """Kill a service so many times while clients report.

    Args:
        root: Folder of bundles; the log is in it.
        kills: Their number.
        workers: Of the service.
        seed: Of the moments.

    Raises:
        RuntimeError: A service acknowledged nothing, or did not seal what the killed ones left.
    """
    settings = {"FULLRANK_BUNDLES": str(root), "FULLRANK_ANONYMOUS": "search,events"}
    log = EventLog(root / FOLDER)
    draw = random.Random(seed)
    acknowledged: list[str] = []
    for life in range(kills):
        process, url = start(
            "fullrank_service.process.run", settings, "/readyz", workers, grouped=True
        )
        try:
            clients = _Clients(url, life)
            answered = clients.first.wait(_FIRST_S)
            time.sleep(draw.uniform(0, _LONGEST_LIFE_S))
        finally:
            kill(process)
        clients.join()
        if not answered:
            raise RuntimeError(f"{url}: no event was acknowledged in {_FIRST_S:g} s")
        acknowledged += clients.acknowledged
    # The next start seals what the dead left, without their torn lines.
    process, _ = start("fullrank_service.process.run", settings, "/readyz", workers, grouped=True)
    try:
        end = time.monotonic() + _SEAL_S
        while any(path.suffix == ".jsonl" for path in list_segments(log.folder, EVENTS)):
            if time.monotonic() > end:
                raise RuntimeError(f"{log.folder}: segments are open after {_SEAL_S:g} s")
            time.sleep(0.05)
    finally:
        kill(process)
    found = Counter(event.texts["query_id"] for event in log.events())
    times = [found[id] for id in acknowledged]
    return Survived(len(times), times.count(0), sum(count > 1 for count in times))


class _Clients:
    """Threads that report events and note those that were acknowledged."""

    def __init__(self, url: str, life: int) -> None:
        self.acknowledged: list[str] = []
        self.first = threading.Event()
        self._url, self._life = f"{url}/v1/events", life
        self._failure: Exception | None = None
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(_CLIENTS)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until every client has stopped. Raises RuntimeError if one stopped before the service was killed."""
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise RuntimeError(f"{self._url}: {self._failure}") from self._failure

    def _run(self, number: int) -> None:
        try:
            self._report(number)
        except (httpx.HTTPStatusError, ValueError) as error:
            self._failure = error

    def _report(self, number: int) -> None:
        with httpx.Client(timeout=10) as client:
            request = 0
            while True:
                ids = [f"{self._life}-{number}-{request}-{part}" for part in range(_GROUP)]
                events = [
                    {"action_name": "click", "timestamp": time.time() * 1000, "query_id": id}
                    for id in ids
                ]
                try:
                    reply = client.post(self._url, json=events)
                except httpx.TransportError:
                    return  # killed
                kept = reply.raise_for_status().json()["kept"]
                if kept != _GROUP:
                    raise ValueError(f"{kept} of {_GROUP} events were kept")
                self.acknowledged += ids
                self.first.set()
                request += 1
