"""The real server with several workers: /metrics reports all of them, whichever worker answers."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.conftest import Root
from tests.api.support import AUTH, running, served
from tests.faults.load import children


def workers() -> list[int]:
    """List the workers of the only server that this process runs."""
    return [
        worker
        for server in children(os.getpid())
        if b"service.process.run" in Path(f"/proc/{server}/cmdline").read_bytes()
        for worker in children(server)
        if b"service.process.worker" in Path(f"/proc/{worker}/cmdline").read_bytes()
    ]


def test_both_workers_report_the_same_metrics_and_a_kill_loses_no_count(root: Root) -> None:
    with (
        served(root.path, workers=2) as url,
        # A connection for each request, so that both workers answer some.
        httpx.Client(base_url=url, headers={"Connection": "close"}, timeout=30) as client,
    ):

        def samples(name: str) -> dict[tuple[str, ...], float]:
            while True:
                try:
                    text = client.get("/metrics").text
                    break
                except httpx.TransportError:
                    time.sleep(0.05)
            return {
                tuple(sample.labels.values()): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name == f"fullrank_{name}"
            }

        def until_both_serve() -> None:
            end = time.monotonic() + 60
            while samples("generation") != {("0",): 1.0, ("1",): 1.0}:
                assert time.monotonic() < end
                time.sleep(0.05)

        until_both_serve()
        asked = 40
        for _ in range(asked):
            assert client.post("/v1/search", json={"query": "copy"}).status_code == 200
        searches = ("POST", "/v1/search", "200")
        end = time.monotonic() + 10
        while samples("requests_total")[searches] != asked:  # counted after the last byte is sent
            assert time.monotonic() < end
        assert {samples("requests_total")[searches] for _ in range(10)} == {asked}
        assert sum(samples("searches_total").values()) == asked

        before = workers()
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        end = time.monotonic() + 60
        while len(now := workers()) < 2 or before[0] in now:
            assert samples("requests_total")[searches] == asked
            assert time.monotonic() < end
        until_both_serve()
        assert set(samples("worker_resident_bytes")) == {("0",), ("1",)}
        assert samples("requests_total")[searches] == asked


@pytest.mark.anyio
async def test_live_documents_are_counted(root: Root) -> None:
    async with running(root.path) as client:

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
        assert await metric("hidden_documents") == {("0",): 1}
        end = time.monotonic() + 30
        while await metric("log_position") != {("0",): seq}:  # the other model follows later
            assert time.monotonic() < end
            await asyncio.sleep(0.02)
        assert await metric("documents") == {("0",): 7}
