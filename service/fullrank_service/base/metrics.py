"""The metrics of the service, for Prometheus.

Counters and histograms are sums over all workers since the service started. Gauges are those of live workers: their
sum, or one number for each under the label ``worker``. Route labels are templates, never paths, so they stay few.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from fullrank_service.base.sharing import DIED, HUNG, RESTARTS, shared_folder, worker_number
from fullrank_service.base.tracing import STAGES, Stages

if TYPE_CHECKING:  # importing it takes two seconds, and several processes only count
    from fullrank.bundle import BundleInfo

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "fullrank_"
WORKER = "worker"
_PROCESS_ID = PREFIX + "worker_process_id"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_BYTES = tuple(1 << power for power in range(10, 25, 2))
# The parts of a request take less time than the whole.
_PART_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, *_SECONDS)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Series(dict[str, Counter]):
    """The series of a counter with one label; `labels` looks them up by all labels, which costs as much as counting."""

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self._counter = counter

    def __missing__(self, value: str) -> Counter:
        found: Counter = self._counter.labels(value)
        self[value] = found
        return found


class Metrics:
    """The metrics of one worker, one attribute each; ``render`` reports those of all workers."""

    def __init__(self) -> None:
        disable_created_metrics()
        self._registry = CollectorRegistry()
        self._described: dict[str, tuple[tuple[str, ...], str]] = {}
        self._worker = worker_number()
        counter, each = self._counter, self._gauge_of_each_worker

        self.requests = counter("requests", "Requests answered", "method", "route", "status")
        self.latency = self._histogram(
            "request_seconds",
            "Time from receiving a request to sending its last byte, including queueing",
            _SECONDS,
            "route",
        )
        self.answer_bytes = self._histogram(
            "answer_bytes", "Bytes of the bodies of answers", _BYTES, "route"
        )
        self.stages = self._histogram(
            "stage_seconds",
            f"Time of the parts of a search: {', '.join(STAGES)}",
            _PART_SECONDS,
            "stage",
        )
        self.loop_lag = self._histogram(
            "event_loop_lag_seconds",
            "Delay of the event loop, measured once a second",
            _SECONDS,
        )
        name, about = RESTARTS
        self._restarts = counter(name.removeprefix(PREFIX), about, "reason")
        self.queue = self._gauge("rankings_in_flight", "Rankings waiting or running")
        self.searches = counter(
            "searches", "Rankings by mode and whether they are certified", "mode", "certified"
        )
        self.zero_results = counter(
            "zero_results", "Searches without an offset that found no document"
        )
        lookups = "Embeddings looked up: found in process or in redis, or a miss"
        self.cache = Series(counter("cache_lookups", lookups, "result"))
        saved = "Encoding time saved by cache hits"
        self.cache_saved = Series(counter("cache_saved_seconds", saved, "result"))
        spent = "Time spent on cache lookups"
        self.cache_spent = Series(counter("cache_spent_seconds", spent, "result"))
        self.redis_passed = counter(
            "redis_passed_over", "Redis lookups skipped because the text is short"
        )
        self.redis_errors = counter(
            "redis_errors", "Redis calls that failed, timed out or returned an invalid value"
        )
        self.redis_open = each("redis_breaker_open", "1 while the circuit breaker is open")
        self.swaps = counter(
            "swaps", "Swaps and loads requested over HTTP: done, refused or failed", "result"
        )
        self.generation = each("generation", "Generation that the worker serves")
        self.models_loaded = each("models_loaded", "Models loaded")
        self.writes = counter("writes", "Acknowledged writes of documents: put or delete", "kind")
        self.visible_s = self._histogram(
            "write_visible_seconds",
            "Time from acknowledging a write until the same worker serves it",
            (*_SECONDS, 10.0, 30.0, 60.0),
        )
        self.backlog = each(
            "log_backlog", "Operations of the log that a loaded model does not contain yet"
        )
        self.skipped_writes = counter(
            "writes_skipped", "Operations of the log that a worker skipped because they failed"
        )
        about = "Failures of background tasks, each of which is tried again"
        self._background = Series(counter("background_failures", about, "task"))
        self.live_documents = each(
            "live_documents",
            "Documents written since their bundle was made, over all loaded models",
        )
        self.live_share = each(
            "live_documents_share",
            "Live documents as a share of FULLRANK_MAX_LIVE_DOCUMENTS, in the collection with the most",
        )
        self.live_memory = each(
            "live_memory_share",
            "Memory of live documents as a share of FULLRANK_MAX_LIVE_MB, in the collection with the most",
        )
        self.hidden_documents = each(
            "hidden_documents",
            "Bundle documents replaced or deleted since, over all loaded models",
        )
        self.log_position = each(
            "log_position", "Last operation of the log that all loaded models contain"
        )
        self.events = Series(
            counter("events", "Events reported: kept, untrainable (kept too) or refused", "outcome")
        )
        self.event_fields_dropped = counter(
            "event_fields_dropped", "Fields of reported events that are not stored"
        )
        self.lists = Series(
            counter(
                "served_lists",
                "Answers written to the log of events, or dropped, by reason",
                "outcome",
            )
        )
        self.events_bytes = each("events_bytes", "Bytes of the log of events, of all workers")
        about = "1 while old events are kept for another day because the clock may be wrong"
        self.events_withheld = each("events_withheld", about)
        about = "When the log was read for completions and documents clicked together, in seconds since 1970"
        self.usage_read = each("usage_read_timestamp_seconds", about)
        about = "1 while completions and documents clicked together do not cover the oldest days of the log"
        self.usage_incomplete = each("usage_incomplete", about)
        self.click_queries = each(
            "new_clicks_queries", "Queries with clicks that a loaded bundle has not learned yet"
        )
        self.click_documents = each(
            "new_clicks_documents", "Documents with clicks that a loaded bundle has not learned yet"
        )
        about = "When the log was last read for new clicks, in seconds since 1970"
        self.clicks_read = each("new_clicks_read_timestamp_seconds", about)
        about = "When fullrank loop last ended without a failure, in seconds since 1970"
        self.loop_last_success = each("loop_last_success_timestamp_seconds", about)
        self.events_full = each("events_full", "1 while the log of events takes nothing more")
        self.documents = each("documents", "Documents of the active bundle")
        self.bundle_bytes = each("bundle_bytes", "Bytes of the active bundle")
        each("worker_process_id", "Process id of the worker").set(os.getpid())
        about = "Calls from a router to replicas: first, hedge or retry"
        self.shard_calls = Series(counter("shard_calls", about, "kind"))
        self.shard_failures = counter(
            "shard_failures", "Calls to replicas that failed or timed out"
        )
        self.shards_missing = counter(
            "shards_missing", "Requests to a shard that no replica answered"
        )
        self.follow_failures = counter(
            "follow_failures", "Failed attempts of a router to follow the coordinator"
        )
        self.shard_replicas = each(
            "shard_replicas", "Replicas that the router may call, over all shards"
        )
        self.shard_breakers_open = each(
            "shard_breakers_open", "Replicas whose circuit breaker is open"
        )
        # Made now, so that Prometheus sees the first swap and the first hedge as an increase.
        for result in ("done", "refused", "failed"):
            self.swaps.labels(result)
        for reason in (DIED, HUNG):
            self._restarts.labels(reason)
        for kind in ("first", "hedge", "retry"):
            self.shard_calls[kind]
        self._requests: dict[tuple[str, str, int], tuple[Counter, Histogram, Histogram]] = {}
        self._searches: dict[tuple[str, bool], Counter] = {}
        self._rendered = b""
        self._stages = {stage: self.stages.labels(stage) for stage in STAGES}
        self._exposed = CollectorRegistry()
        folder = shared_folder()
        self._exposed.register(
            _Workers(self._registry if folder is None else MultiProcessCollector(None, str(folder)))
        )

    def request(self, method: str, route: str, status: int, seconds: float, size: int = 0) -> None:
        """Count one answered request, and the bytes of its answer; one dictionary lookup finds its series."""
        key = (method, route, status)
        found = self._requests.get(key)
        if found is None:
            counter = self.requests.labels(method, route, str(status))
            found = self._requests[key] = (
                counter,
                self.latency.labels(route),
                self.answer_bytes.labels(route),
            )
        found[0].inc()
        found[1].observe(seconds)
        found[2].observe(size)

    def background_failed(self, task: str) -> None:
        """Count one failure of a thread or task that serves no request."""
        self._background[task].inc()

    def refused(self, method: str, route: str, status: int) -> None:
        """Count one request that was refused unread; its time would distort the latency of the others."""
        self.requests.labels(method, route, str(status)).inc()

    def search(self, stages: Stages, mode: str, certified: bool) -> None:
        """Count one search and its stages."""
        for stage, seconds in stages.seconds.items():
            self._stages[stage].observe(seconds)
        found = self._searches.get((mode, certified))
        if found is None:
            found = self.searches.labels(mode, str(certified).lower())
            self._searches[mode, certified] = found
        found.inc()

    def described(self) -> Mapping[str, tuple[tuple[str, ...], str]]:
        """Return labels and description of every metric, by its exposed name."""
        own = {metric.name: ((WORKER,), metric.documentation) for metric in _processes({})}
        disk = {
            metric.name: (("name",), metric.documentation) for metric in _Versions(()).collect()
        }
        return self._described | own | disk

    def render(self, versions: Iterable[BundleInfo] = ()) -> bytes:
        """Return the metrics of all workers, and the numbers of versions on disk, in Prometheus's text format."""
        disk = CollectorRegistry()
        disk.register(_Versions(versions))
        return generate_latest(self._exposed) + generate_latest(disk)

    async def scrape(
        self, versions: Callable[[], Awaitable[Iterable[BundleInfo]]], *, is_flood: bool
    ) -> bytes:
        """Render on a thread; in a flood return the last text if there is one, because it takes 20 ms with four
        workers.
        """
        if is_flood and self._rendered:
            return self._rendered
        self._rendered = await asyncio.to_thread(self.render, await versions())
        return self._rendered

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        self._described[f"{PREFIX}{name}_total"] = labels, about
        return Counter(PREFIX + name, about, labels, registry=self._registry)

    def _histogram(self, name: str, about: str, bounds: Iterable[float], *labels: str) -> Histogram:
        self._described[PREFIX + name] = labels, about
        buckets = tuple(bounds)
        return Histogram(PREFIX + name, about, labels, buckets=buckets, registry=self._registry)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        self._described[PREFIX + name] = labels, about
        return Gauge(
            PREFIX + name, about, labels, registry=self._registry, multiprocess_mode="livesum"
        )

    def _gauge_of_each_worker(self, name: str, about: str) -> Gauge:
        return self._gauge(name, about, WORKER).labels(self._worker)


class _Workers(Collector):
    def __init__(self, source: CollectorRegistry | MultiProcessCollector) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        processes: dict[str, int] = {}
        for metric in self._source.collect():
            if metric.name == _PROCESS_ID:
                processes = {s.labels[WORKER]: int(s.value) for s in metric.samples}
            yield metric
        yield from _processes(processes)


def _processes(processes: Mapping[str, int]) -> Iterator[Metric]:
    memory = GaugeMetricFamily(
        PREFIX + "worker_resident_bytes", "Resident memory of the worker", labels=(WORKER,)
    )
    files = GaugeMetricFamily(
        PREFIX + "worker_open_files", "Open files and sockets of the worker", labels=(WORKER,)
    )
    for worker, process_id in sorted(processes.items()):
        process = Path(f"/proc/{process_id}")
        try:
            pages = int((process / "statm").read_text().split()[1])
            opened = sum(1 for _ in (process / "fd").iterdir())
        except (OSError, ValueError, IndexError):
            continue  # the worker has just ended
        memory.add_metric([worker], pages * _PAGE_BYTES)
        files.add_metric([worker], opened)
    yield memory
    yield files


class _Versions(Collector):
    def __init__(self, versions: Iterable[BundleInfo]) -> None:
        self._versions = versions

    def collect(self) -> Iterator[Metric]:
        sizes: dict[str, list[int]] = {}
        for info in self._versions:
            sizes.setdefault(info.name, []).append(info.bytes)
        counts = GaugeMetricFamily(PREFIX + "versions", "Versions on disk", labels=["name"])
        total = GaugeMetricFamily(
            PREFIX + "versions_bytes", "Bytes of all versions on disk", labels=["name"]
        )
        for name, each in sizes.items():
            counts.add_metric([name], len(each))
            total.add_metric([name], sum(each))
        yield counts
        yield total
