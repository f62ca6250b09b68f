"""Several collections in one service: /v1/collections/{name}/… is /v1/… for one bundle name."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from fullrank.bundle import BundleInfo, list_bundles, open_bundle
from fullrank_service.base.experiment import Active
from fullrank_service.base.metrics import Metrics
from fullrank_service.models.follower import LoadedModels
from fullrank_service.models.retention import superseded
from fullrank_service.models.state import read_state
from tests.api.conftest import Root
from tests.api.support import AUTH, Client, at, ids, make_bundle, ok, rules_applied, running
from tests.api.test_errors import check
from tests.api.test_follower import Failing, worker
from tests.api.test_usage import completed, ready

pytestmark = pytest.mark.anyio
LEARNED, BM25 = "/v1/collections/learned", "/v1/collections/bm25"


async def search(client: Client, prefix: str, query: str, **body: Any) -> dict[str, Any]:
    found: dict[str, Any] = ok(await client.post(f"{prefix}/search", json={"query": query, **body}))
    return found


async def test_each_collection_has_its_own_documents_and_rules(root: Root) -> None:
    async with running(root.path) as client:
        assert (await search(client, "/v1", "copy"))["model"] == root.learned
        assert (await search(client, LEARNED, "copy"))["model"] == root.learned
        assert (await search(client, BM25, "copy"))["model"] == root.bm25
        link = ok(await client.get(f"{BM25}/search", params={"q": "copy"}))
        assert link["model"] == root.bm25
        batch = ok(await client.post(f"{BM25}/search:batch", json={"searches": [{"query": "ls"}]}))
        assert batch["answers"][0]["model"] == root.bm25

        fields = {"title": "rsync", "text": "rsync mirrors folders"}
        written = ok(await client.put(f"{BM25}/documents/x%2Fy", json=fields))
        assert written["collection"] == "bm25"
        asked = {"min_seq": written["seq"]}
        assert ok(await client.get(f"{BM25}/documents/x%2Fy", params=asked))["fields"] == fields
        check(await client.get("/v1/documents/x%2Fy", params=asked), 404, "document-not-found")
        assert "x/y" in ids(await search(client, BM25, "rsync", **asked))
        assert "x/y" not in ids(await search(client, "/v1", "rsync", **asked))
        near = ok(await client.get(f"{BM25}/documents/x%2Fy/similar", params=asked))
        assert near["model"] == root.bm25

        ok(await client.put(f"{BM25}/rules/hidden", json={"hide": ["linux/cp"]}, headers=AUTH))
        await rules_applied(client, "bm25", {"hidden"})
        assert "linux/cp" not in ids(await search(client, BM25, "copy"))
        assert "linux/cp" in ids(await search(client, LEARNED, "copy"))
        assert ok(await client.get(f"{LEARNED}/rules", headers=AUTH))["rules"] == []

        listed = ok(await client.get(f"{BM25}/models"))
        assert [model["version"] for model in listed["models"]] == [root.bm25]
        assert listed["aliases"] == {"default": root.bm25}


async def test_what_no_collection_has_is_refused(reader: Client) -> None:
    body = {"query": "copy"}
    check(await reader.post("/v1/collections/none/search", json=body), 404, "model-not-found")
    check(await reader.get("/v1/collections/none/analytics", headers=AUTH), 404, "model-not-found")
    other = {"query": "copy", "model": "bm25"}
    check(await reader.post(f"{LEARNED}/search", json=other), 404, "model-not-found")
    for path in ("/v1/collections", LEARNED, f"{LEARNED}/", f"{LEARNED}/pages", f"{LEARNED}/none"):
        check(await reader.get(path, headers=AUTH), 404, "not-found")
    users = await reader.delete(f"{LEARNED}/events/users/ann", headers=AUTH)
    check(users, 404, "not-found")


async def test_an_id_in_a_collection_is_utf_8(reader: Client) -> None:
    """However the slashes before it are written."""
    for path in (f"{LEARNED}/documents", "/v1/collections%2Flearned%2Fdocuments"):
        check(await reader.get(f"{path}/%ff/x", headers=AUTH), 422, "invalid")


async def test_collections_do_not_share_idempotency_keys(root: Root) -> None:
    """Else a tenant could use up the keys of another."""
    key = {"Idempotency-Key": "1"}
    async with running(root.path) as client:
        for prefix in (LEARNED, BM25):
            path = f"{prefix}/documents/x"
            first = ok(await client.put(path, json={"title": "x"}, headers=key))
            again = await client.put(path, json={"title": "x"}, headers=key)
            assert (ok(again), again.headers["Idempotent-Replayed"]) == (first, "true")


async def activated(client: Client, prefix: str, version: str) -> dict[str, Any]:
    path = f"{prefix}/models/aliases/default"
    found: dict[str, Any] = ok(await client.put(path, json={"version": version}, headers=AUTH))
    return found


async def test_each_collection_has_its_own_active_version(root: Root) -> None:
    newer = make_bundle(root.path, "bm25", created=at(3))
    async with running(root.path, default_model="learned") as client:
        assert (await search(client, BM25, "copy"))["model"] == newer
        swapped = await activated(client, BM25, root.bm25)
        assert (swapped["version"], swapped["previous"], swapped["converged"]) == (
            root.bm25,
            newer,
            True,
        )
        assert (await search(client, BM25, "copy"))["model"] == root.bm25
        assert (await search(client, "/v1", "copy", model="bm25"))["model"] == root.bm25
        assert (await search(client, BM25, "copy", model=newer))["model"] == newer
        assert (await search(client, "/v1", "copy"))["model"] == root.learned
        listed = ok(await client.get(f"{BM25}/models", headers=AUTH))
        assert (listed["aliases"], listed["previous"]) == ({"default": root.bm25}, newer)
        other = {"version": root.learned}
        refused = await client.put(f"{BM25}/models/aliases/default", json=other, headers=AUTH)
        check(refused, 404, "model-not-found")
        # The collection of the active version is the default one, whatever the path.
        assert (await activated(client, LEARNED, root.learned))["version"] == root.learned
    async with running(
        root.path
    ) as client:  # after a restart, and with the default of another name
        assert (await search(client, BM25, "copy"))["model"] == root.bm25
        assert (await search(client, "/v1", "copy"))["model"] == root.learned
        await activated(client, "/v1", newer)
        assert (await search(client, BM25, "copy"))["model"] == newer
        await activated(client, "/v1", root.bm25)  # a rollback
        for prefix in ("/v1", BM25):
            assert (await search(client, prefix, "copy", model="bm25"))["model"] == root.bm25
        await activated(client, "/v1", newer)
        assert (await search(client, LEARNED, "copy"))["model"] == root.learned
        await activated(client, "/v1", root.learned)
        assert (await search(client, BM25, "copy"))["model"] == newer
        await activated(client, BM25, root.bm25)
    assert {info.version for info in superseded_of(root)} == set()


async def test_what_was_the_default_stays_active_in_its_collection(root: Root) -> None:
    newer = make_bundle(root.path, "bm25", created=at(3))
    async with running(root.path, default_model="learned") as client:
        await activated(client, "/v1", newer)
        await activated(client, "/v1", root.bm25)
        await activated(client, "/v1", root.learned)
        assert (await search(client, BM25, "copy"))["model"] == root.bm25
        assert (await search(client, "/v1", "copy", model="bm25"))["model"] == root.bm25
    async with running(root.path) as client:
        assert (await search(client, BM25, "copy"))["model"] == root.bm25
        listed = ok(await client.get(f"{BM25}/models", headers=AUTH))
        assert (listed["aliases"], listed["previous"]) == ({"default": root.bm25}, newer)
        # A rollback of the default, then one of the rollback.
        await activated(client, "/v1", root.bm25)
        assert (await search(client, LEARNED, "copy"))["model"] == root.learned
        await activated(client, "/v1", root.learned)
        assert (await search(client, BM25, "copy"))["model"] == root.bm25


async def test_a_default_that_nobody_activated_stays_active_in_its_collection(root: Root) -> None:
    async with running(root.path, default_model="bm25") as client:
        assert (await search(client, "/v1", "copy"))["model"] == root.bm25
        await activated(client, "/v1", root.learned)
        newer = make_bundle(root.path, "bm25", created=at(3))
        ok(await client.post(f"/v1/models/{newer}:load", headers=AUTH))
        assert (await search(client, BM25, "copy"))["model"] == root.bm25
    async with running(root.path) as client:
        assert (await search(client, BM25, "copy"))["model"] == root.bm25
        assert (await search(client, BM25, "copy", model=newer))["model"] == newer


async def test_each_collection_has_its_own_experiment(root: Root) -> None:
    newer = make_bundle(root.path, "bm25", created=at(3))
    async with running(root.path, default_model="learned") as client:
        await activated(client, BM25, root.bm25)
        path, body = f"{BM25}/experiments/default", {"candidate": newer, "share": 1.0}
        begun = ok(await client.put(path, json=body, headers=AUTH))
        assert (begun["active"], begun["candidate"]) == (root.bm25, newer)
        found = ok(await client.get(path, headers=AUTH))
        assert (found["candidate"], found["wins"], found["decisions"]) == (newer, 0, [])
        check(
            await client.get("/v1/experiments/default", headers=AUTH), 404, "experiment-not-found"
        )
        assert (await search(client, BM25, "copy", user_id="ann"))["candidate"] == newer
        assert (await search(client, "/v1", "copy", user_id="ann"))["candidate"] is None
        foreign = {"candidate": root.learned}
        check(await client.put(path, json=foreign, headers=AUTH), 404, "model-not-found")
        ok(await client.delete(path, headers=AUTH))
        assert (await search(client, BM25, "copy", user_id="ann"))["candidate"] is None
        assert (await search(client, BM25, "copy"))["model"] == root.bm25


async def test_a_collection_gets_its_version_back_once_it_opens(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure the newest version, which was rolled back, serves no longer than that lasts."""
    make_bundle(root.path, "bm25", created=at(3))
    async with running(root.path, default_model="learned") as client:
        await activated(client, BM25, root.bm25)
    monkeypatch.setattr("fullrank_service.models.follower._RETRY_S", 0.05)
    failing = Failing(root.bm25)
    async with worker(root.path, opener=failing) as registry:
        assert registry.serving.resolve("bm25").version != root.bm25
        failing.works.set()
        async with asyncio.timeout(10):
            while registry.serving.resolve("bm25").version != root.bm25:
                await asyncio.sleep(0.01)


def test_what_serves_stays_loaded_until_the_switch(root: Root) -> None:
    """A request would fail that asks for it between the loading of the next version and the switch."""
    newer = make_bundle(root.path, "bm25", created=at(3))
    default, before, after = (
        open_bundle(root.path / name / version)
        for name, version in (("learned", root.learned), ("bm25", root.bm25), ("bm25", newer))
    )
    models = LoadedModels(Metrics(), max_loaded=1)
    models.pinned = (root.bm25,)
    models.add(before)
    models.switch(default, 1, None, None, {"bm25": Active(root.bm25)})
    models.pinned = (newer,)
    models.add(after)
    assert models.serving.resolve("bm25") is before
    models.switch(default, 2, None, None, {"bm25": Active(newer)})
    assert models.serving.resolve("bm25") is after


def superseded_of(root: Root) -> list[BundleInfo]:
    """What pruning would remove: nothing that a collection serves."""
    state = read_state(root.path)
    assert state is not None
    return [
        info
        for info in superseded(list_bundles(root.path), state, [], 1)
        if info.version in {own.version for own in state.collections.values()}
    ]


def click(query_id: str, person: str, id: str) -> dict[str, Any]:
    return {
        "action_name": "click",
        "timestamp": time.time() * 1000,
        "query_id": query_id,
        "user_id": person,
        "session_id": f"s-{person}",
        "event_attributes": {"object": {"object_id": id}},
    }


async def use(client: Client, prefix: str, people: str, query: str, *clicked: str) -> None:
    """Search as several people, and click."""
    for person in people:
        asked = {"user_id": person, "session_id": f"s-{person}"}
        query_id = (await search(client, prefix, query, **asked))["query_id"]
        events = [click(query_id, person, id) for id in clicked]
        ok(await client.post(f"{prefix}/events", json={"events": events}))


async def report(client: Client, prefix: str, people: str, query: str, *clicked: str) -> None:
    """Report lists of another engine, and clicks on them."""
    for person in people:
        query_id = f"{prefix}-{person}-{query}"
        shown = {
            "query_id": query_id,
            "user_query": query,
            "timestamp": time.time() * 1000,
            "query_response_hit_ids": [*clicked],
            "user_id": person,
        }
        ok(await client.post(f"{prefix}/ubi/ubi_queries", json=[shown]))
        events = [click(query_id, person, id) for id in clicked]
        ok(await client.post(f"{prefix}/ubi/ubi_events", json=events))


async def together(client: Client, prefix: str, id: str) -> list[str]:
    return ids(ok(await client.get(f"{prefix}/documents/{id}/together")))


async def queries(client: Client, prefix: str) -> set[str]:
    found: httpx.Response = await client.get(f"{prefix}/complete", params={"prefix": "copy "})
    return {one["text"] for one in ok(found)["completions"] if one["kind"] == "query"}


async def test_clicks_completions_and_analytics_do_not_mix(root: Root) -> None:
    async with running(root.path) as client:
        await use(client, BM25, "abc", "copy folders", "linux/cp", "linux/scp")
        await use(client, LEARNED, "def", "copy disks", "linux/cp", "linux/mv")
        await report(client, BM25, "ghi", "copy tapes", "linux/ssh", "linux/mv")
        await report(client, "/v1", "jkl", "copy cards", "linux/ssh", "linux/scp")
    async with running(root.path) as client:
        for model in ("bm25", "learned"):
            await ready(client, model=model)
        assert await completed(client, "zzz") == []
        assert await queries(client, BM25) == {"copy folders", "copy tapes"}
        assert await queries(client, LEARNED) == {"copy disks", "copy cards"}
        assert await queries(client, "/v1") == {"copy disks", "copy cards"}
        assert await together(client, BM25, "linux/cp") == ["linux/scp"]
        assert await together(client, LEARNED, "linux/cp") == ["linux/mv"]
        assert await together(client, BM25, "linux/ssh") == ["linux/mv"]
        assert await together(client, LEARNED, "linux/ssh") == ["linux/scp"]
        for prefix, top in (
            (BM25, {"copy folders", "copy tapes"}),
            (LEARNED, {"copy disks", "copy cards"}),
            ("/v1", {"copy folders", "copy tapes", "copy disks", "copy cards"}),
        ):
            found = ok(await client.get(f"{prefix}/analytics", headers=AUTH))
            assert {one["query"] for one in found["top"]} == top
            assert (found["searches"], found["clicked"]) == (3 * len(top), 3 * len(top))
