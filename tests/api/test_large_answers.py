"""Large answers: they are bounded, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fullrank.storage.documents import Document
from tests.api.support import Client, make_bundle, running
from tests.api.test_errors import check

pytestmark = pytest.mark.anyio


async def test_others_are_answered_between_the_pieces_of_a_large_answer(tmp_path: Path) -> None:
    size = 8 << 20
    make_bundle(tmp_path, "large", [Document("large", {"title": "large", "blob": "x" * size})])
    sent: list[int] = []
    async with running(tmp_path) as client:

        async def receive() -> dict[str, Any]:
            return {"type": "http.request"}

        async def send(message: Any) -> None:
            if not sent:
                tracemalloc.start()
            sent.append(len(message.get("body", b"")))

        app = client.app
        scope = {
            "type": "http", "method": "GET", "path": "/v1/documents/large", "query_string": b"",
            "raw_path": b"/v1/documents/large", "headers": [],
        }  # fmt: skip
        large = asyncio.create_task(app(scope, receive, send))
        while not sent:
            await asyncio.sleep(0)
        assert (await client.get("/livez")).status_code == 200
        assert not large.done()
        await large
        # Copying the rest for every piece would take the square of the length.
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert sum(sent) > size
    assert peak < size / 4


LIMIT = 1 << 18


@pytest.fixture(scope="module")
async def large(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A service whose limit of an answer is above four of its documents, and below five."""
    root = tmp_path_factory.mktemp("large")
    text = " ".join(["large"] * 10_500)
    documents = [
        Document(f"large{i}", {"title": f"large {i}", "text": text, "section": i}) for i in range(6)
    ]
    make_bundle(root, "large", documents)
    async with running(root, max_answer_bytes=LIMIT) as client:
        yield client


SEARCH = {"query": "large"}
MATCH = {"page": {"text": "large"}, "placements": [{"id": "side", "count": 5}]}
MARKED = {"fields": ["text"], "words": 200, "pre": '"' * 100, "post": '"' * 100}


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/v1/search", SEARCH, "limit"),
        ("POST", "/v1/search", {**SEARCH, "fields": ["text"]}, "limit"),
        ("POST", "/v1/search", {**SEARCH, "fields": [], "highlight": MARKED}, "limit"),
        ("GET", "/v1/search?q=large", None, "limit"),
        ("GET", "/v1/documents/large0/similar", None, "limit"),
        ("POST", "/v1/match", MATCH, "placements"),
        ("POST", "/v1/search:batch", {"searches": [{**SEARCH, "limit": 1}] * 5}, "searches.4.limit"),
    ],
)  # fmt: skip
async def test_an_answer_above_the_limit_is_refused(
    large: Client, method: str, path: str, body: Any, field: str
) -> None:
    problem = check(await large.request(method, path, json=body), 422, "invalid")
    [error] = problem["errors"]
    assert error["field"] == field
    assert "FULLRANK_MAX_ANSWER_BYTES" in error["reason"]


async def test_answers_up_to_the_limit_are_whole(large: Client) -> None:
    one = {**SEARCH, "limit": 4}
    for body in (one, {**SEARCH, "fields": ["title"]}):
        response = await large.post("/v1/search", json=body)
        assert response.status_code == 200, response.text
        assert len(response.content) <= LIMIT
    batch = (await large.post("/v1/search:batch", json={"searches": [one]})).json()
    [answer] = batch["answers"]
    assert answer["hits"] == (await large.post("/v1/search", json=one)).json()["hits"]
