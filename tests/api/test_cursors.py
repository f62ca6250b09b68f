"""Cursors over HTTP: pages of one version, whatever is written or activated meanwhile."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.documents import live
from service.http.schemas import SearchReply
from tests.api.conftest import Root
from tests.api.support import activate, registry, running

pytestmark = pytest.mark.anyio

BODY: dict[str, Any] = {"query": "copy files", "min_score": -100.0, "limit": 2}


async def search(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await client.post("/v1/search", json=BODY | body)
    assert response.status_code == 200, response.text
    SearchReply.model_validate_json(response.content)
    reply: dict[str, Any] = response.json()
    return reply


async def refused(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await client.post("/v1/search", json=BODY | body)


BOOST = [{"field": "section", "decay": {"origin": 1, "scale": 1}, "weight": 0.4}]


@pytest.mark.parametrize("more", [{}, {"boost": BOOST}, {"model": "bm25", "limit": 3}])
async def test_pages_add_up_to_the_whole_list(
    client: httpx.AsyncClient, more: dict[str, Any]
) -> None:
    whole = await search(client, **{**more, "limit": 100})
    assert whole["cursor"] is None
    cursor: str | None = "*"
    hits, pages = list[Any](), 0
    while cursor is not None:
        page = await search(client, **more, cursor=cursor)
        assert page["total"] == whole["total"]
        hits, cursor, pages = hits + page["hits"], page["cursor"], pages + 1
    assert hits == whole["hits"]
    assert pages == -(-len(hits) // (BODY | more)["limit"])


async def test_pages_go_on_under_writes_and_swaps(root: Root) -> None:
    async with running(root.path) as client:
        whole = [hit["id"] for hit in (await search(client, limit=100))["hits"]]
        page = await search(client, cursor="*")
        seen = [hit["id"] for hit in page["hits"]]
        for i in range(3):
            fields = {"title": "copy files", "text": "copy copy files"}
            written = await client.put(f"/v1/documents/new{i}", json=fields)
        gone = whole[-1]
        written = await client.delete(f"/v1/documents/{gone}")
        assert (await activate(client, root.bm25)).status_code == 200
        cursor = page["cursor"]
        while cursor is not None:
            page = await search(client, cursor=cursor, min_seq=written.json()["seq"])
            assert page["model"] == root.learned
            seen += [hit["id"] for hit in page["hits"]]
            cursor = page["cursor"]
    assert seen == whole[:-1]


async def test_written_documents_come_neither_twice_nor_later(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root.path) as client:
        whole = [hit["id"] for hit in (await search(client, limit=100))["hits"]]
        page = await search(client, cursor="*")
        seen = [hit["id"] for hit in page["hits"]]
        worst = {"title": "nothing", "text": "else"}
        best = {"title": "copy files", "text": "copy copy files"}
        await client.put(f"/v1/documents/{seen[0]}", json=worst)  # would come again
        written = await client.put(f"/v1/documents/{whole[-1]}", json=best)  # would be missed
        cursor, seq = page["cursor"], written.json()["seq"]
        expired = await refused(client, cursor=cursor, min_seq=seq)
        assert expired.status_code == 200
        monkeypatch.setattr(live, "_MAX_WRITTEN", 1)
        expired = await refused(client, cursor=cursor, min_seq=seq)
        assert expired.status_code == 410
        assert "Too much was written" in expired.json()["detail"]
        monkeypatch.undo()
        while cursor is not None:
            page = await search(client, cursor=cursor, min_seq=seq)
            assert page["total"] == len(whole) - 2
            seen += [hit["id"] for hit in page["hits"]]
            cursor = page["cursor"]
        assert seen == whole[:-1]
        again = [hit["id"] for hit in (await search(client, limit=100))["hits"]]
        assert sorted(again) == sorted(whole)


async def test_a_cursor_of_an_unloaded_version_has_expired(
    client: httpx.AsyncClient, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = (await search(client, cursor="*", model=root.bm25))["cursor"]
    serving = registry(client).serving
    left = {root.learned: serving.models[root.learned]}
    object.__setattr__(serving, "models", left)
    response = await refused(client, cursor=cursor, model=root.bm25)
    assert response.status_code == 410
    assert response.json()["type"] == "urn:fullrank:problem:cursor-expired"


async def test_what_does_not_go_with_a_cursor_is_named(client: httpx.AsyncClient) -> None:
    cursor = (await search(client, cursor="*"))["cursor"]
    for more, field in (
        ({"offset": 1}, "offset"),
        ({"sort": [{"field": "section"}]}, "sort"),
        ({"group_by": {"field": "section"}}, "group_by"),
        ({"diversity": 0.5}, "diversity"),
        ({"mode": "fast"}, "mode"),
        ({"query": "other"}, "cursor"),
        ({"filter": {"section": 1}}, "cursor"),
        ({"cursor": cursor[:-2]}, "cursor"),
        ({"cursor": "?"}, "cursor"),
    ):
        response = await refused(client, **{"cursor": cursor, **more})
        assert response.status_code == 422
        assert [error["field"] for error in response.json()["errors"]] == [field]


async def test_cursors_end_where_offsets_do(root: Root) -> None:
    async with running(root.path, max_offset=3) as client:
        first = await search(client, cursor="*")
        second = await search(client, cursor=first["cursor"])
    assert second["cursor"] is None
    assert len(second["hits"]) == 2
