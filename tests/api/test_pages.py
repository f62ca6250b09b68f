"""Pages named by their URL alone: their text comes from PUT /v1/pages or an earlier match."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.conftest import Root
from tests.api.support import AUTH, Client, ok, running

pytestmark = pytest.mark.anyio

URL = "https://news.example/a?b=1"
TEXT = {"title": "Backups", "text": "copy files to a remote host", "keywords": ["ssh"]}
OTHER = {"title": "Lists", "text": "list the files of a directory"}


async def match(client: Client, page: dict[str, Any], **more: Any) -> httpx.Response:
    body = {"page": page, "placements": [{"id": "top", "count": 3}], **more}
    return await client.post("/v1/match", json=body)


async def scores(client: Client, page: dict[str, Any]) -> list[tuple[str, float]]:
    [place] = ok(await match(client, page, record=False))["placements"]
    return [(hit["id"], hit["score"]) for hit in place["hits"]]


async def put(client: Client, **page: Any) -> httpx.Response:
    return await client.put("/v1/pages", json=page)


async def test_an_unknown_page_is_refused_and_nothing_is_fetched(reader: Client) -> None:
    response = await match(reader, {"url": URL})
    assert response.status_code == 422
    assert response.json()["type"] == "urn:fullrank:problem:page-unknown"
    errors = [{"field": "body.page.url", "reason": "no text is kept for it"}]
    assert response.json()["errors"] == errors


async def test_a_page_is_found_by_its_url(client: Client, root: Root) -> None:
    expected = await scores(client, TEXT)
    assert (await put(client, url=f"{URL}#top", **TEXT)).json() == {"url": URL}
    assert await scores(client, {"url": URL}) == expected
    assert await scores(client, {"url": f"{URL}#foot"}) == expected
    # What a match says of it counts for that match alone.
    assert (await match(client, {"url": URL, **OTHER})).status_code == 200
    assert await scores(client, {"url": URL}) == expected
    assert (await put(client, url=URL, **OTHER)).status_code == 200
    assert await scores(client, {"url": URL}) == await scores(client, OTHER)
    # Another worker reads the same file, also after this one.
    async with running(root.path) as other:
        assert await scores(other, {"url": URL}) == await scores(client, OTHER)


async def test_an_earlier_match_brings_the_text(client: Client, root: Root) -> None:
    assert (await match(client, {"url": URL, **TEXT}, record=False)).status_code == 200
    assert (await match(client, {"url": URL})).status_code == 422
    for text in (TEXT, OTHER, TEXT):
        assert (await match(client, {"url": URL, **text})).status_code == 200
        assert await scores(client, {"url": URL}) == await scores(client, text)
    async with running(root.path) as other:
        assert await scores(other, {"url": URL}) == await scores(client, TEXT)


async def test_a_match_keeps_the_text_only_for_callers_who_may_write(root: Root) -> None:
    async with running(root.path, anonymous="search") as client:
        assert (await match(client, {"url": URL, **TEXT})).status_code == 200
        assert (await match(client, {"url": URL})).status_code == 422
        body = {"page": {"url": URL, **TEXT}, "placements": [{"id": "top", "count": 3}]}
        assert (await client.post("/v1/match", json=body, headers=AUTH)).status_code == 200
        expected = await scores(client, {"url": URL})
        assert (await match(client, {"url": URL, **OTHER})).status_code == 200
        assert await scores(client, {"url": URL}) == expected


async def test_a_page_needs_a_url_a_text_and_the_scope(root: Root) -> None:
    async with running(root.path, anonymous="search", max_page_chars=50) as client:
        assert (await put(client, url=URL, **TEXT)).status_code == 401
        for page in (
            TEXT,
            {"url": URL},
            {"url": "", **TEXT},
            {"url": "#frag", **TEXT},
            {"url": " #frag", **TEXT},
            {"url": URL, "text": " \n"},
            {"url": URL, "text": "x" * 51},
        ):
            response = await client.put("/v1/pages", json=page, headers=AUTH)
            assert response.status_code == 422, page


async def test_blank_text_is_no_text(client: Client) -> None:
    expected = await scores(client, TEXT)
    blank = {"url": URL, "title": "", "text": " ", "keywords": ["\t"]}
    assert (await match(client, blank)).json()["type"] == "urn:fullrank:problem:page-unknown"
    assert (await match(client, {"url": URL, **TEXT})).status_code == 200
    assert await scores(client, blank) == expected
    assert (await match(client, blank)).status_code == 200
    assert await scores(client, {"url": URL}) == expected
