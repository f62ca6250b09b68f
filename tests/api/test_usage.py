"""Completions and documents clicked together, over HTTP and from the log that the service writes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.api.conftest import Root
from tests.api.support import AUTH, Client, activate, ok, running
from tests.api.test_errors import check

pytestmark = pytest.mark.anyio


async def completed(client: Client, prefix: str, **asked: Any) -> list[tuple[str, str]]:
    reply = ok(await client.get("/v1/complete", params={"prefix": prefix, **asked}))
    return [(one["text"], one["kind"]) for one in reply["completions"]]


async def ready(client: Client, **asked: Any) -> None:
    """Wait for the first reading."""
    async with asyncio.timeout(10):
        while not await completed(client, "c", **asked):
            await asyncio.sleep(0.02)


async def use(client: Client, people: str, query: str, *clicked: str) -> None:
    """Search as several people, and click."""
    for person in people:
        asked = {"query": query, "user_id": person, "session_id": f"s-{person}"}
        reply = (await client.post("/v1/search", json=asked)).json()
        events = [
            {
                "action_name": "click",
                "timestamp": time.time() * 1000,
                "query_id": reply["query_id"],
                "user_id": person,
                "session_id": f"s-{person}",
                "event_attributes": {"object": {"object_id": id}},
            }
            for id in clicked
        ]
        if events:
            response = await client.post("/v1/events", json={"events": events})
            assert response.status_code == 200, response.text


async def test_titles_and_words_complete_without_a_log(root: Root) -> None:
    async with running(root.path, events=False) as client:
        await ready(client)
        assert await completed(client, "c") == [("cp", "title"), ("copy", "word")]
        assert await completed(client, "COPY fi") == [("COPY files", "word")]
        assert await completed(client, "remtoe") == [("remote", "word")]
        assert await completed(client, "日本") == [("日本語の検索", "title")]
        assert await completed(client, "zzzz") == []
        assert len(await completed(client, "d", limit=1)) == 1
        reply = (await client.get("/v1/documents/ls/together")).json()
        assert reply["hits"] == []


async def test_queries_of_three_people_and_what_they_clicked(root: Root) -> None:
    async with running(root.path) as client:
        await use(client, "abc", "Copy everything", "linux/cp", "linux/scp", "gone")
        await use(client, "de", "copy secret")
        await use(client, "fgh", "copy that", "linux/cp")
    async with running(root.path) as client:
        await ready(client)
        found = await completed(client, "copy ")
        assert found[:2] == [("copy that", "query"), ("copy everything", "query")]
        assert not any("secret" in text for text, _ in found)
        assert [
            text for text, kind in await completed(client, "copy", model="bm25") if kind == "query"
        ] == []
        reply = (await client.get("/v1/documents/linux/cp/together?fields=title")).json()
        # Six people clicked: 3 both, 6 the one, 3 the other.
        hit = {"id": "linux/scp", "lift": 1.0, "people": 3, "fields": {"title": "scp"}}
        assert reply["hits"] == [hit]
        assert (await client.get("/v1/documents/none/together")).json()["hits"] == []


async def test_live_documents_and_new_models_complete(root: Root) -> None:
    async with running(root.path, usage_refresh_s=1) as client:
        await ready(client)
        document = {"title": "Cryptography", "text": "secret"}
        for id, method in (("new", "PUT"), ("linux/cp", "DELETE")):
            sent = {"json": document} if method == "PUT" else {}
            response = await client.request(method, f"/v1/documents/{id}", **sent)  # type: ignore[arg-type]
            assert response.status_code == 200
        async with asyncio.timeout(10):
            while ("Cryptography", "title") not in (found := await completed(client, "c")):
                await asyncio.sleep(0.05)
        assert ("cp", "title") not in found
        assert (await activate(client, root.bm25)).status_code == 200
        await ready(client)


@pytest.mark.parametrize(
    ("path", "status", "slug"),
    [
        ("/v1/complete", 422, "invalid"),
        ("/v1/complete?prefix=", 422, "invalid"),
        ("/v1/complete?prefix=a&limit=51", 422, "invalid"),
        ("/v1/complete?prefix=a&word=1", 422, "invalid"),
        ("/v1/complete?prefix=a&model=unknown", 404, "model-not-found"),
        ("/v1/documents/ls/together?limit=0", 422, "invalid"),
        ("/v1/documents/ls/together?min_seq=99", 422, "invalid"),
        (f"/v1/documents/{'x' * 513}/together", 422, "invalid"),
        ("/v1/documents/ls/together?model=unknown", 404, "model-not-found"),
    ],
)
async def test_what_is_refused(reader: Client, path: str, status: int, slug: str) -> None:
    check(await reader.get(path), status, slug)


async def test_both_need_the_scope_of_searches(root: Root) -> None:
    async with running(root.path, anonymous="none") as client:
        for path in ("/v1/complete?prefix=a", "/v1/documents/ls/together"):
            check(await client.get(path), 401, "unauthorized")
            assert (await client.get(path, headers=AUTH)).status_code == 200
        put = await client.put("/v1/documents/ls/together", json={"title": "x"}, headers=AUTH)
        check(put, 405, "method-not-allowed")
