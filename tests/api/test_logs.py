"""A log line for each request, if it is switched on: enough to find the request, nothing of its content."""

from __future__ import annotations

import json
import logging

import pytest

from service.telemetry import logs
from tests.api.conftest import Root
from tests.api.support import AUTH, KEY, running

pytestmark = pytest.mark.anyio


async def test_a_request_is_logged_with_its_id_and_without_its_content(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running(root.path, log_requests=True) as client:
        body = {"query": "very private words"}
        response = await client.post("/v1/search", json=body, headers=AUTH)
        await client.get("/v1/documents/ls/similar?fields=private", headers=AUTH)
        await client.get("/no%0Asuch\u00e9", headers=AUTH)
        await client.post(f"/v1/models/{KEY}:load", headers=AUTH)
    records = [record for record in caplog.records if record.name == logs.REQUESTS]
    search, similar, unknown, load = [record.__dict__["facts"] for record in records]
    assert (search["status"], search["route"]) == (200, "/v1/search")
    assert search["generation"] == int(response.headers["X-Model-Generation"])
    assert search["ms"] > 0
    assert (similar["path"], similar["route"]) == (
        "/v1/documents/ls/similar",
        "/v1/documents/{id:path}/similar",
    )
    assert (unknown["path"], unknown["status"]) == ("/no%0Asuch%C3%A9", 404)
    assert load["status"] == 404
    form = logs.JsonLines()
    own = [record for record in caplog.records if record.name.startswith(("service", "fullrank"))]
    everything = "\n".join(map(form.format, own))
    assert "private" not in everything
    assert KEY not in everything
    assert all(json.loads(form.format(record)) for record in records)


async def test_requests_are_not_logged_by_default(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running(root.path) as client:
        await client.get("/livez")
    assert not [record for record in caplog.records if record.name == logs.REQUESTS]


async def test_an_unexpected_error_is_logged_with_the_request_id_of_the_answer(
    root: Root, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(logs.JsonLines().format(record))

    log, handler = logging.getLogger("service.http.middleware"), Kept()
    log.addHandler(handler)
    try:
        async with running(root.path) as client:

            def broken(*_: object) -> None:
                raise RuntimeError("a defect")

            monkeypatch.setattr("service.http.routes.search.check_limits", broken)
            response = await client.post("/v1/search", json={"query": "x"})
    finally:
        log.removeHandler(handler)
    assert response.status_code == 500
    [line] = map(json.loads, lines)
    assert line["request_id"] == response.headers["X-Request-Id"]
    assert "a defect" in line["error"]
