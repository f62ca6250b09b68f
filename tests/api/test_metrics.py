"""The real server with several workers: /metrics reports all of them, whichever worker answers."""

from __future__ import annotations

import asyncio
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.conftest import Root
from tests.api.support import AUTH, models, running


@pytest.mark.anyio
async def test_live_documents_are_counted(root: Root) -> None:
    async with running(root.path, max_live_documents=10) as client:

        async def metric(name: str) -> dict[tuple[str, ...], float]:
            families = text_string_to_metric_families((await client.get("/metrics")).text)
            samples = [sample for family in families for sample in family.samples]
            return {
                tuple(s.labels.values()): s.value for s in samples if s.name == f"fullrank_{name}"
            }

        assert await metric("log_position") == {("0",): 0}
        for id in ("new", "newer", "ls"):
            fields = {"title": id, "text": "Written just now"}
            reply = await client.put(f"/v1/documents/{id}", json=fields, headers=AUTH)
            assert reply.status_code == 200, reply.text
        reply = await client.delete("/v1/documents/new", headers=AUTH)
        seq = reply.json()["seq"]
        body = {"query": "just now", "min_seq": seq}
        assert (await client.post("/v1/search", json=body)).status_code == 200
        assert await metric("writes_total") == {("delete",): 1, ("put",): 3}
        assert await metric("live_documents") == {("0",): 2}
        assert await metric("live_documents_share") == {("0",): 0.2}
        assert await metric("hidden_documents") == {("0",): 1}
        end = time.monotonic() + 30
        while await metric("log_position") != {("0",): seq}:  # the other model follows later
            assert time.monotonic() < end
            await asyncio.sleep(0.02)
        assert await metric("documents") == {("0",): 7}
        assert await metric("versions") == {("bm25",): 1, ("learned",): 1}
        sizes = (await models(client))["models"]
        expected = {(entry["name"],): entry["bytes"] for entry in sizes}
        assert await metric("versions_bytes") == expected
        assert (await metric("log_backlog"), await metric("write_visible_seconds_count")) == (
            {("0",): 0},
            {(): 4},
        )
        while not 0 < (await metric("live_memory_share"))["0",] < 0.001:  # counted once a second
            assert time.monotonic() < end
            await asyncio.sleep(0.2)


@pytest.mark.anyio
async def test_a_flood_of_scrapes_gets_copies(root: Root) -> None:
    """Each scrape counts the ones before it, so no two are equal if all are rendered."""
    async with running(root.path) as client:
        began = time.monotonic()
        texts = [(await client.get("/metrics")).text for _ in range(200)]
        rendered = len(set(texts))
    assert 30 <= rendered <= 32 + 2 * (time.monotonic() - began)
    assert all("fullrank_requests_total" in text for text in texts)
