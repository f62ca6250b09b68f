"""What answers show is logged, from every kind of request."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from fullrank.events.log import EventLog
from fullrank.events.records import ServedList
from tests.api.conftest import Root
from tests.api.support import AUTH, Client, activate, ok, running
from tests.api.test_errors import check

pytestmark = pytest.mark.anyio
WHO = {"client_id": "c", "session_id": "s", "user_id": "u", "application": "shop"}


async def logged(root: Path, method: str, path: str, **sent: Any) -> tuple[Any, list[ServedList]]:
    """Send a request; return its answer and what was logged."""
    async with running(root) as client:
        reply = ok(await client.request(method, path, **sent))
    return reply, list(EventLog(root / ".events").lists())


@pytest.mark.parametrize(
    ("method", "text", "sent"), [("POST", "query", "json"), ("GET", "q", "params")]
)
async def test_a_search(root: Root, method: str, text: str, sent: str) -> None:
    asked = {text: "copy a file", "limit": 3, "offset": 1, "typing": True, **WHO}
    before = time.time()
    reply, [served] = await logged(root.path, method, "/v1/search", **{sent: asked})
    assert served.query_id == reply["query_id"]
    assert list(served.ids) == [hit["id"] for hit in reply["hits"]] != []
    assert before - 0.001 <= served.at <= time.time()
    assert (served.text, served.kind, served.offset) == ("copy a file", "search", 1)
    assert (served.model, served.generation) == (reply["model"], reply["generation"])
    assert set(served.texts) == set(WHO)
    assert served.texts["application"] == "shop"
    assert served.person not in (None, "u")
    assert not served.is_bot
    assert served.typing


async def test_a_search_with_a_filter_by_a_crawler(root: Root) -> None:
    condition = {"title": {"exists": True}}
    _, [served] = await logged(
        root.path,
        "POST",
        "/v1/search",
        json={"query": "copy", "filter": condition},
        headers={"User-Agent": "Mozilla/5.0 (compatible; Googlebot/2.1)"},
    )
    assert served.filter == condition
    assert served.is_bot
    assert served.texts == {}


async def test_each_search_of_a_batch(root: Root) -> None:
    asked = {
        "searches": [
            {"query": "copy", **WHO},
            {"query": "move", "record": False},
            {"query": "list"},
        ]
    }
    reply, found = await logged(root.path, "POST", "/v1/search:batch", json=asked)
    ids = [answer["query_id"] for answer in reply["answers"]]
    assert [(served.query_id, served.text) for served in found] == [
        (ids[0], "copy"),
        (ids[2], "list"),
    ]


async def test_a_match_with_the_hits_of_all_its_placements(root: Root) -> None:
    asked = {
        "page": {"url": "https://news.example/1", "title": "copy files"},
        "placements": [{"id": "top"}, {"id": "side", "count": 2}],
        **WHO,
    }
    reply, [served] = await logged(root.path, "POST", "/v1/match", json=asked)
    shown = [hit["id"] for place in reply["placements"] for hit in place["hits"]]
    assert list(served.ids) == shown
    assert (served.kind, served.page_url) == ("match", "https://news.example/1")


async def test_similar_documents_by_parameters(root: Root) -> None:
    async with running(root.path) as client:
        found = (await client.post("/v1/search", json={"query": "copy", "record": False})).json()
    id = found["hits"][0]["id"]
    reply, [served] = await logged(
        root.path, "GET", f"/v1/documents/{id}/similar", params={"client_id": "c", "limit": 2}
    )
    assert list(served.ids) == [hit["id"] for hit in reply["hits"]]
    assert served.kind == "similar"
    assert set(served.texts) == {"client_id"}


@pytest.mark.parametrize("path", ["/v1/search", "/v1/match", "/v1/documents/x/similar"])
async def test_record_false_logs_nothing(root: Root, path: str) -> None:
    async with running(root.path) as client:
        if path == "/v1/search":
            reply = await client.post(path, json={"query": "copy", "record": False})
        elif path == "/v1/match":
            asked = {"page": {"title": "copy"}, "placements": [{"id": "a"}], "record": False}
            reply = await client.post(path, json=asked)
        else:
            hits = (await client.post("/v1/search", json={"query": "copy", "record": False})).json()
            id = hits["hits"][0]["id"]
            reply = await client.get(f"/v1/documents/{id}/similar", params={"record": "false"})
        assert reply.status_code == 200
    assert list(EventLog(root.path / ".events").lists()) == []


async def test_long_names_are_refused(client: Client) -> None:
    for name in WHO:
        most = {"query": "copy", name: "x" * 100}
        assert (await client.post("/v1/search", json=most)).status_code == 200
        reply = await client.post("/v1/search", json={**most, name: "x" * 101})
        assert check(reply, 422, "invalid")["errors"][0]["field"] == f"body.{name}"
        similar = await client.get("/v1/documents/x/similar", params={name: "x" * 101})
        check(similar, 422, "invalid")


async def test_lists_appear_while_the_worker_runs(root: Root) -> None:
    async with running(root.path) as client:
        await client.post("/v1/search", json={"query": "copy"})
        end = time.monotonic() + 10
        while not list(EventLog(root.path / ".events").lists()):
            assert time.monotonic() < end


async def test_a_list_names_the_model_that_answered(root: Root) -> None:
    async with running(root.path) as client:
        await client.post("/v1/search", json={"query": "copy"})
        await activate(client, root.bm25)
        await client.post("/v1/search", json={"query": "copy"})
        await client.post("/v1/search", json={"query": "copy", "model": root.learned})
    found = [(s.model, s.generation) for s in EventLog(root.path / ".events").lists()]
    assert [model for model, _ in found] == [root.learned, root.bm25, root.learned]
    assert found[1][1] == found[2][1] > found[0][1]


async def test_the_folder_is_no_bundle(root: Root) -> None:
    async with running(root.path) as client:
        before = (await client.get("/v1/models")).json()["models"]
        await client.post("/v1/search", json={"query": "copy"})
    async with running(root.path) as client:
        assert (root.path / ".events").is_dir()
        after = (await client.get("/v1/models")).json()["models"]
        # Nor can a request read it.
        assert (await client.get("/.events", headers=AUTH)).status_code == 404
    assert [m["version"] for m in before] == [m["version"] for m in after]
