"""PATCH of documents: merged into what is stored, without a lost change, durable like a PUT."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.api.conftest import Root
from tests.api.support import CORPUS, Client, ok, running

pytestmark = pytest.mark.anyio


async def patch(client: Client, id: str, body: Any, **more: Any) -> httpx.Response:
    return await client.patch(f"/v1/documents/{id}", json=body, **more)


async def read(client: Client, id: str, seq: int = 0) -> dict[str, Any]:
    return dict(ok(await client.get(f"/v1/documents/{id}", params={"min_seq": seq}))["fields"])


async def test_fields_are_set_and_removed_and_the_others_stay(client: Client) -> None:
    [original] = [document.fields for document in CORPUS if document.id == "linux/cp"]
    response = await patch(client, "linux/cp", {"section": None, "price": 3, "text": "duplicate"})
    assert response.status_code == 200, response.text
    reply = response.json()
    assert reply["id"] == "linux/cp"
    assert response.headers["X-Seq"] == str(reply["seq"])
    stored = await read(client, "linux/cp", reply["seq"])
    assert stored == {"title": original["title"], "text": "duplicate", "price": 3}
    found = await client.post(
        "/v1/search", json={"query": "duplicate", "min_seq": reply["seq"], "model": "learned"}
    )
    assert found.json()["hits"][0]["id"] == "linux/cp"
    again = await patch(client, "linux/cp", {"size": {"width": 2}})
    assert await read(client, "linux/cp", again.json()["seq"]) == stored | {"size": {"width": 2}}


async def test_no_change_of_many_at_once_is_lost(root: Root) -> None:
    async with running(root.path) as client:
        replies = await asyncio.gather(
            *(patch(client, "ls", {f"field{i % 6}": i}) for i in range(18))
        )
        assert [reply.status_code for reply in replies] == [200] * 18
        seqs = [reply.json()["seq"] for reply in replies]
        assert len(set(seqs)) == 18
        stored = await read(client, "ls", max(seqs))
        newest = {f"field{i % 6}": i for _, i in sorted(zip(seqs, range(18), strict=True))}
        assert {name: stored[name] for name in newest} == newest
        assert stored["title"] == "ls"


async def test_a_document_that_is_missing_or_deleted_is_not_found(client: Client) -> None:
    response = await patch(client, "nowhere", {"price": 3})
    assert response.status_code == 404
    assert response.json()["type"].endswith("document-not-found")
    seq = (await client.delete("/v1/documents/ls")).json()["seq"]
    await client.get("/v1/documents/linux/mv", params={"min_seq": seq})
    assert (await patch(client, "ls", {"price": 3})).status_code == 404


async def test_a_retry_with_its_key_is_answered_again(client: Client) -> None:
    key = {"Idempotency-Key": "patch-1"}
    first = await patch(client, "ls", {"price": 3}, headers=key)
    await patch(client, "ls", {"price": 4})
    again = await patch(client, "ls", {"price": 3}, headers=key)
    assert again.json() == first.json()
    assert again.headers["Idempotent-Replayed"] == "true"
    other = await client.put("/v1/documents/ls", json={"price": 3, "title": "x"}, headers=key)
    assert other.json()["type"].endswith("idempotency-key-reused")
    seq = int(again.headers["X-Seq"]) + 1
    assert (await read(client, "ls", seq))["price"] == 4


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"_id": "ls"}, 422, "_id"),
        ({"title": 7}, 422, "body.title"),
        ([], 422, "body"),
        ({"title": None, "text": None}, 409, None),
    ],
)
async def test_what_could_not_be_written_is_refused(
    reader: Client, body: Any, status: int, field: str | None
) -> None:
    before = await read(reader, "ls")
    response = await patch(reader, "ls", body)
    assert response.status_code == status, response.text
    assert field in [None, *(error["field"] for error in response.json().get("errors", ()))]
    assert await read(reader, "ls") == before


async def test_a_document_stays_within_its_limit(root: Root) -> None:
    async with running(root.path, max_document_bytes=1024) as client:
        assert (await patch(client, "ls", {"a": "x" * 600})).status_code == 200
        response = await patch(client, "ls", {"b": "x" * 600})
        assert response.status_code == 413
