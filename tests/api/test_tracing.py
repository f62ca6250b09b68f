"""Spans of requests and their stages, if tracing is on, without the content of requests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from fullrank_service import app as service_app
from fullrank_service.base.tracing import Tracing
from tests.api.conftest import Root
from tests.api.support import AUTH, KEY, running, settings_for


@pytest.mark.anyio
async def test_a_search_is_a_span_that_contains_its_stages(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    processor = export.SimpleSpanProcessor(exporter)
    monkeypatch.setattr(service_app, "Tracing", lambda: Tracing(processor))
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop search")
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with running(root.path, tracing=True) as client:
        body = {"query": "copy private files", "filter": {"section": 1}}
        headers = {**AUTH, "traceparent": f"00-{trace}-{parent}-01"}
        assert (await client.post("/v1/search", json=body, headers=headers)).status_code == 200
        spans: Any = exporter.get_finished_spans()
        exporter.clear()
        # A refused request appears with its status only.
        bad = await client.post("/v1/search", json={"private": "secret words"}, headers=AUTH)
        assert bad.status_code == 422
        key = {"X-Algolia-API-Key": KEY, "q": "private"}
        await client.post("/v1/insights/1/events", params=key, json={"events": []})
        await client.delete("/v1/events/users/private", headers=AUTH)
        await client.get("/v1/search?q=private+words", headers=AUTH)
        refused: Any = exporter.get_finished_spans()
    [request] = [span for span in spans if span.kind.name == "SERVER"]
    stages = [span for span in spans if span is not request]
    assert f"{request.context.trace_id:032x}" == trace
    assert f"{request.parent.span_id:016x}" == parent
    assert request.attributes["http.route"] == "/v1/search"
    assert request.attributes["http.response.status_code"] == 200
    assert request.resource.attributes["service.name"] == "shop search"
    assert [span.name for span in stages] == [
        "search cache",
        "search wait",
        "search filter",
        "search encode",
        "search rank",
        "search fields",
    ]
    for span in stages:
        assert span.parent.span_id == request.context.span_id
        assert 0 <= span.end_time - span.start_time <= request.end_time - request.start_time
    everything = "".join(span.to_json() for span in (*spans, *refused))
    assert refused
    for private in ("private", "secret", KEY):
        assert private not in everything


def test_a_missing_extra_is_a_one_line_error_if_tracing_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    service_app.create_app(settings_for(tmp_path))
    with pytest.raises(Exception, match=r"fullrank\[tracing\]"):
        Tracing()
