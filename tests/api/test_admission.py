"""Deadlines, the bounded queue and the bound of a client, over HTTP without a socket."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fullrank_service.search import ranking
from fullrank_service.search import ranking as local
from tests.api.conftest import Root
from tests.api.support import AUTH, running
from tests.api.test_errors import check

pytestmark = pytest.mark.anyio
QUERY = {"query": "copy files"}


class Gate(threading.Event):
    """held: rankings that have come to it."""

    held = 0


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Rankings wait for it, and are counted."""
    event = Gate()
    original = ranking.rank_view

    def held(*args: Any) -> Any:
        event.held += 1
        event.wait(20)
        return original(*args)

    monkeypatch.setattr(local, "rank_view", held)
    yield event
    event.set()


def later(response: httpx.Response, status: int, slug: str) -> None:
    """The response is such a problem, and says when to come back."""
    check(response, status, slug)
    assert int(response.headers["Retry-After"]) >= 1


async def test_a_full_queue_is_refused_at_once(root: Root, gate: Gate) -> None:
    async with running(root.path, max_queue=2, rank_threads=1) as client:
        waiting = [asyncio.create_task(client.post("/v1/search", json=QUERY)) for _ in range(2)]
        await asyncio.sleep(0.1)
        later(await client.post("/v1/search", json=QUERY), 503, "overloaded")
        later(await client.get("/v1/documents/ls/similar"), 503, "overloaded")
        for path in ("/livez", "/readyz", "/metrics", "/v1/models"):
            assert (await client.get(path)).status_code == 200
        loaded = await client.post(f"/v1/models/{root.bm25}:load", headers=AUTH)
        assert loaded.status_code == 200
        gate.set()
        assert [(await task).status_code for task in waiting] == [200, 200]
        assert (await client.post("/v1/search", json=QUERY)).status_code == 200


async def test_a_request_that_misses_its_deadline_gets_503_at_the_deadline(
    root: Root, gate: Gate
) -> None:
    """Running and waiting alike; who waited is never ranked after that."""
    async with running(root.path, deadline_ms=300, rank_threads=1) as client:
        started = time.monotonic()
        tasks = [asyncio.create_task(client.post("/v1/search", json=QUERY)) for _ in range(3)]
        async with asyncio.timeout(30):
            for task in tasks:
                later(await task, 503, "overloaded")
        assert time.monotonic() - started > 0.25
        gate.set()
        await asyncio.sleep(0.05)
        assert gate.held == 1
        assert (await client.post("/v1/search", json=QUERY)).status_code == 200
        assert gate.held == 2


async def test_a_client_above_its_rate_gets_429(root: Root) -> None:
    async with running(root.path, rate_limit=0.01, rate_burst=3) as client:
        for _ in range(3):
            assert (await client.post("/v1/search", json=QUERY)).status_code == 200
        later(await client.post("/v1/search", json=QUERY), 429, "too-many-requests")
        # A key is a client of its own; operators and health are never held back.
        assert (await client.post("/v1/search", json=QUERY, headers=AUTH)).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        for _ in range(5):
            loaded = await client.post(f"/v1/models/{root.bm25}:load", headers=AUTH)
            assert loaded.status_code == 200


async def test_the_number_of_words_is_limited(root: Root) -> None:
    async with running(root.path, max_words=3) as client:
        for text, status in (
            ("a b c", 200),
            ("a b c d", 422),
            ("a  b.....c", 200),
            ("東京の天", 200),
        ):
            assert (await client.post("/v1/search", json={"query": text})).status_code == status
        page = {"page": {"text": "東京の天気"}, "placements": [{"id": "a"}]}
        problem = check(await client.post("/v1/match", json=page), 422, "invalid")
        assert problem["errors"] == [{"field": "text", "reason": "must have at most 3 words"}]
