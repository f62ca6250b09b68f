"""What Prometheus is told. One registry an app, so that several apps can live in one process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """The metrics of one worker; route labels are templates, never paths, so they stay few."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "fullrank_requests",
            "Requests answered",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.latency = Histogram(
            "fullrank_request_seconds",
            "Time from the first byte of a request to the last of its answer",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.ranking = Histogram(
            "fullrank_ranking_seconds",
            "Time of encoding and ranking, waiting left out",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.queue = Gauge(
            "fullrank_rankings_in_flight",
            "Rankings waiting or running",
            registry=self.registry,
        )
        self.cache = Counter(
            "fullrank_cache_lookups",
            "Embeddings looked up, by where they were found",
            ["result"],
            registry=self.registry,
        )
        self.redis_errors = Counter(
            "fullrank_redis_errors",
            "Calls of Redis that failed, came late or returned a bad value",
            registry=self.registry,
        )
        self.swaps = Counter(
            "fullrank_swaps",
            "Switches of the default model: done, refused or failed",
            ["result"],
            registry=self.registry,
        )
        self.generation = Gauge(
            "fullrank_generation", "Generation that serves", registry=self.registry
        )
        self.models_loaded = Gauge(
            "fullrank_models_loaded", "Models loaded", registry=self.registry
        )

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)
