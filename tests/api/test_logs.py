"""A log line for each request, if it is switched on: enough to find the request, nothing of its content."""

from __future__ import annotations

import json
import logging

import pytest

from fullrank_service.base import logs
from fullrank_service.http.keys import create_key
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
        await client.get("/no%0Asuch\u00e9private", headers=AUTH)
        await client.post(f"/v1/models/{KEY}:load", headers=AUTH)
        await client.delete("/v1/events/users/private", headers=AUTH)
    records = [record for record in caplog.records if record.name == logs.REQUESTS]
    search, similar, unknown, load, erased = [record.__dict__["facts"] for record in records]
    assert (search["status"], search["route"]) == (200, "/v1/search")
    assert search["generation"] == int(response.headers["X-Model-Generation"])
    assert search["ms"] > 0
    assert similar["route"] == "/v1/documents/{id:path}/similar"
    assert (unknown["route"], unknown["status"]) == ("unmatched", 404)
    assert (erased["route"], erased["status"]) == ("/v1/events/users/{id:path}", 200)
    assert load["status"] == 404
    form = logs.JsonLines()
    own = [record for record in caplog.records if record.name.startswith("fullrank")]
    everything = "\n".join(map(form.format, own))
    assert "private" not in everything
    assert KEY not in everything
    assert all(json.loads(form.format(record)) for record in records)


async def test_only_failures_are_logged_by_default_and_not_a_flood_of_them(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ingest = create_key(root.path / "own.json", ["ingest"], "shop")[1]
    async with running(root.path, keys=root.path / "own.json", anonymous="none") as client:
        await client.get("/livez")
        await client.get("/nowhere")
        for _ in range(100):
            await client.post("/v1/search", json={"query": "private"})
        shop = {"Authorization": f"Bearer {ingest}"}
        await client.post("/v1/search", json={"query": "private"}, headers=shop)
        await client.put("/v1/documents/private", json=["private"], headers=shop)
    records = [record for record in caplog.records if record.name == logs.REQUESTS]
    lines = [logs.JsonLines().format(record) for record in records]
    facts = [json.loads(line) for line in lines]
    assert 0 < sum(fact["status"] == 401 for fact in facts) <= 20
    refused, invalid = facts[-2:]
    assert (refused["status"], refused["problem"], refused["key"]) == (403, "forbidden", "shop")
    assert (invalid["status"], invalid["problem"], invalid["key"]) == (422, "invalid", "shop")
    assert invalid["route"] == "/v1/documents/{id:path}"
    assert "problem=forbidden key=shop" in logs.Lines().format(records[-2])
    assert len(facts) == 2 + sum(fact["status"] == 401 for fact in facts)
    assert "private" not in "".join(lines)
    assert "client" not in refused


async def test_an_unexpected_error_is_logged_with_the_request_id_of_the_answer(
    root: Root, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(logs.JsonLines().format(record))

    log, handler = logging.getLogger("fullrank_service.http.middleware"), Kept()
    log.addHandler(handler)
    try:
        async with running(root.path) as client:

            def broken(*_: object) -> None:
                raise RuntimeError("a defect")

            monkeypatch.setattr("fullrank_service.search.routes.check_limits", broken)
            response = await client.post("/v1/search", json={"query": "x"})
    finally:
        log.removeHandler(handler)
    assert response.status_code == 500
    [line] = map(json.loads, lines)
    assert line["request_id"] == response.headers["X-Request-Id"]
    assert "a defect" in line["error"]
