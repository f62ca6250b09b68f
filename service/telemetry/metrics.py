"""What Prometheus is told: the table of metrics.

Every worker counts in cells of its own (cells.py), and whichever is asked tells the numbers of all (instruments.py).
Route labels are templates, never paths, so they stay few.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from service.telemetry.cells import Snapshot
from service.telemetry.instruments import PREFIX, WORKER, Counter, Histogram, Table
from service.telemetry.stages import STAGES, Stages

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
# The parts of a request are quicker than the whole of it.
_PARTS = (0.00005, 0.0001, 0.0002, 0.0005, *_SECONDS)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Metrics:
    """The metrics of one worker, an attribute each.

    folder  where workers of one service share their numbers; None: they are this worker's alone
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._table = table = Table(folder)
        self.requests = table.counter("requests", "Requests answered", "method", "route", "status")
        self.latency = table.histogram(
            "request_seconds",
            "Time from when a request is there to the last of its answer, waiting in line included",
            _SECONDS,
            "route",
        )
        self.stages = table.histogram(
            "stage_seconds", f"Time of the parts of a search: {', '.join(STAGES)}", _PARTS, "stage"
        )
        self.queue = table.gauge("rankings_in_flight", "Rankings waiting or running")
        self.searches = table.counter(
            "searches", "Rankings by mode and whether they are certified", "mode", "certified"
        )
        self.zero_results = table.counter(
            "zero_results", "Searches without an offset that found no document"
        ).labels()
        self.cache = table.counter(
            "cache_lookups",
            "Embeddings looked up: found in process or in redis, or a miss",
            "result",
        )
        self.cache_saved = table.counter(
            "cache_saved_seconds", "Time that encoding the embeddings found had taken", "result"
        )
        self.cache_spent = table.counter(
            "cache_spent_seconds", "Time that looking embeddings up took", "result"
        )
        self.redis_passed = table.counter(
            "redis_passed_over", "Embeddings not asked of Redis because encoding is quicker"
        ).labels()
        self.redis_errors = table.counter(
            "redis_errors", "Calls of Redis that failed, came late or returned a bad value"
        ).labels()
        self.redis_open = table.each(
            "redis_breaker_open", "1 while Redis is left alone after failures"
        )
        self.swaps = table.counter(
            "swaps", "Swaps and loads asked over HTTP: done, refused or failed", "result"
        )
        self.generation = table.each("generation", "Generation that serves")
        self.models_loaded = table.each("models_loaded", "Models loaded")
        self.writes = table.counter(
            "writes", "Writes of documents acknowledged: put or delete", "kind"
        )
        self.live_documents = table.each(
            "live_documents",
            "Documents written since their bundle was made, over all models loaded",
        )
        self.hidden_documents = table.each(
            "hidden_documents",
            "Documents of bundles replaced or deleted since, over all models loaded",
        )
        self.log_position = table.each(
            "log_position", "Last operation of the log that all models loaded hold"
        )
        self.documents = table.each("documents", "Documents of the bundle that serves")
        self.bundle_bytes = table.each("bundle_bytes", "Bytes of the bundle that serves")
        # Known from the start, so that the first of them is seen to be one more.
        for result in ("done", "refused", "failed"):
            self.swaps.labels(result)
        self._requests: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._stages = {stage: self.stages.labels(stage) for stage in STAGES}

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request was answered; the series are found by one look into a table."""
        key = (method, route, status)
        found = self._requests.get(key)
        if found is None:
            counter = self.requests.labels(method, route, str(status))
            found = self._requests[key] = (counter, self.latency.labels(route))
        found[0].inc()
        found[1].observe(seconds)

    def refused(self, method: str, route: str, status: int) -> None:
        """One request was answered before it was looked at; its time would say nothing of those that were."""
        self.requests.labels(method, route, str(status)).inc()

    def search(self, stages: Stages) -> None:
        """One search was made."""
        for stage, seconds in stages.seconds.items():
            self._stages[stage].observe(seconds)

    def described(self) -> dict[str, tuple[tuple[str, ...], str]]:
        """Every metric as it is told: its labels, and what it is."""
        own = {name: (labels, about) for name, labels, about in self._table.described()}
        return own | {metric.name: ((WORKER,), metric.documentation) for metric in _processes(())}

    def collect(self) -> Iterator[Metric]:
        """The metrics of all workers."""
        slots = self._table.snapshots()
        yield from self._table.told(slots)
        yield from _processes(slots)

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(cast("CollectorRegistry", self))

    def close(self) -> None:
        """The worker ends: its gauges go, what it counted stays."""
        self._table.close()


def _processes(slots: Sequence[Snapshot]) -> Iterator[Metric]:
    """Memory and open files of every live worker, read when they are asked for."""
    memory = GaugeMetricFamily(
        PREFIX + "worker_resident_bytes", "Memory that the worker holds", labels=(WORKER,)
    )
    files = GaugeMetricFamily(
        PREFIX + "worker_open_files", "Files and sockets that the worker has open", labels=(WORKER,)
    )
    for slot in slots:
        if slot.pid is None:
            continue
        process = Path(f"/proc/{slot.pid}")
        try:
            pages = int((process / "statm").read_text().split()[1])
            opened = sum(1 for _ in (process / "fd").iterdir())
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile
        memory.add_metric([str(slot.slot)], pages * _PAGE_BYTES)
        files.add_metric([str(slot.slot)], opened)
    yield memory
    yield files
