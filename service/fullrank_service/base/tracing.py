"""A stopwatch for the stages of a search, and their OpenTelemetry spans; OpenTelemetry is imported if configured.

OpenTelemetry's own settings (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME, …) say where spans
go, which are sampled, and the name of the service. FastAPI makes the span of a request: it continues the caller's
``traceparent`` and has method, route and status. No span has paths, query strings, bodies or headers.
"""

from __future__ import annotations

import os
import time
from typing import Any

from fastapi.telemetry import TelemetryConfig

from fullrank.errors import FullrankError

# Cache lookup, wait for a thread, filter, encoding, facets, ranking, stored fields and explanations.
STAGES = ("cache", "wait", "filter", "encode", "facets", "rank", "fields")


class Stages:
    """Measures stages that follow one another. Each begins when the one before it ends."""

    __slots__ = ("_last", "began", "seconds")

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.began = time.time()
        self._last = time.perf_counter()

    def done(self, stage: str) -> float:
        """End a stage now and return its duration."""
        now = time.perf_counter()
        duration, self._last = now - self._last, now
        self.seconds[stage] = duration
        return duration


# FastAPI's own telemetry would contain what callers sent.
OFF: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}


class Tracing:
    """The spans of one worker. Raises FullrankError if the extra is not installed."""

    def __init__(self, processor: Any | None = None) -> None:
        """Send spans to a processor; None: in batches to a collector (OTLP over HTTP)."""
        try:
            from opentelemetry.sdk.resources import SERVICE_NAME, Resource
            from opentelemetry.sdk.trace import TracerProvider

            made = processor if processor is not None else _to_collector()
            redacting = _redacting()
        except ImportError as error:
            raise FullrankError(
                f"FULLRANK_TRACING needs the extra: pip install 'fullrank[tracing]' ({error})"
            ) from error
        name = os.environ.get("OTEL_SERVICE_NAME") or "fullrank"
        self._provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}))
        # Before the other, which sends.
        self._provider.add_span_processor(redacting)
        self._provider.add_span_processor(made)
        self._tracer = self._provider.get_tracer("fullrank")

    @property
    def framework(self) -> TelemetryConfig:
        """The configuration of FastAPI's telemetry: these spans and nothing else."""
        return {**OFF, "tracing": True, "tracer_provider": self._provider, "operation_spans": False}

    def search(self, stages: Stages) -> None:
        """Record the stages of a finished search inside the span of its request."""
        began = int(stages.began * 1e9)
        for stage, seconds in stages.seconds.items():
            ended = began + int(seconds * 1e9)
            self._tracer.start_span(f"search {stage}", start_time=began).end(end_time=ended)
            began = ended

    def close(self) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()


def _redacting() -> Any:
    """Return what removes the address of a request, which can hold its query, a key, or the id of a person."""
    from opentelemetry.sdk.trace import SpanProcessor

    class Redacting(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            span.set_attributes(
                {name: "REDACTED" for name in span.attributes if name in ("url.path", "url.query")}
            )

    return Redacting()


def _to_collector() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(OTLPSpanExporter())
