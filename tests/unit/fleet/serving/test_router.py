"""What a router does that no other service does: shards that do not answer, and what it refuses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from fullrank.replies import SearchReply
from fullrank_fleet.partitions import partition_of, shard_of
from fullrank_fleet.remote import Folder
from fullrank_fleet.serving import engine
from fullrank_fleet.serving.answering import OpenShard
from fullrank_fleet.serving.fanout import Failure
from fullrank_fleet.serving.merge import Merged
from fullrank_fleet.serving.wire import Found, Scored
from fullrank_fleet.sets.manifest import SetManifest, read_set
from tests.api.support import Client
from tests.unit.fleet.serving.equality import FailingShards, Whole

pytestmark = pytest.mark.anyio
SEARCH = {"query": "copy files", "limit": 100}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"), 90, floor=None)


@pytest.fixture(scope="module")
def address(whole: Whole) -> str:
    return whole.cut(4)


@pytest.fixture(scope="module")
def manifest(address: str) -> SetManifest:
    return read_set(Folder(address))


@pytest.fixture
def shards(whole: Whole, address: str) -> Iterator[FailingShards]:
    found = FailingShards.of(address, whole.root / "cache")
    yield found
    found.close()


@pytest.fixture
async def client(whole: Whole, address: str, shards: FailingShards) -> AsyncIterator[Client]:
    async with whole.router(address, shards) as client:
        yield client


def shard_of_id(manifest: SetManifest, id: str) -> int:
    return shard_of(partition_of(id), manifest.runs)


async def test_a_missing_shard_fails_a_search(
    client: Client, shards: FailingShards, manifest: SetManifest
) -> None:
    shards.failing = {2}
    found = await client.post("/v1/search", json=SEARCH)
    assert found.status_code == 503
    assert found.headers["retry-after"] == "1"
    problem = found.json()
    assert problem["type"] == "urn:fullrank:problem:documents-missing"
    share = manifest.shards[2].documents / 90
    assert (
        problem["detail"] == f"No answer of shard 2 of 4, which has {share:.1%} of the documents."
    )
    shards.failing = set()
    assert (await client.post("/v1/search", json=SEARCH)).status_code == 200


class LateShards(FailingShards):
    """Shards of which the failing ones keep the caller waiting until it gives up."""

    async def ask(
        self, payloads: Mapping[int, bytes], deadline_s: float
    ) -> Mapping[int, bytes | Failure]:
        if not self.failing.isdisjoint(payloads):
            await asyncio.sleep(deadline_s)
        return await super().ask(payloads, deadline_s) if deadline_s else self._late(payloads)

    @staticmethod
    def _late(payloads: Mapping[int, bytes]) -> Mapping[int, Failure]:
        return dict.fromkeys(payloads, Failure("no answer before the deadline"))


@pytest.fixture
async def late(whole: Whole, address: str) -> AsyncIterator[tuple[FailingShards, Client]]:
    """Shards of which the second is late, and a router that asks them."""
    shards = LateShards.of(address, whole.root / "cache")
    try:
        async with whole.router(address, shards, name="late", deadline_ms=4000) as client:
            shards.failing = {1}
            yield shards, client
    finally:
        shards.close()


async def test_a_late_shard_leaves_time_to_show_the_hits_of_the_others(
    late: tuple[FailingShards, Client],
) -> None:
    """A search with explanations asks twice, and the first call ends only when it gives up."""
    shards, client = late
    reply = await client.post("/v1/search", json={**SEARCH, "explain": True, "partial": True})
    assert reply.status_code == 200, reply.text
    assert len(reply.json()["hits"]) == reply.json()["total_at_least"] > 0
    assert 0 < reply.json()["covered"] < 1
    assert shards.asked == [4, 3]


async def test_all_searches_of_a_batch_wait_for_a_late_shard_once(
    late: tuple[FailingShards, Client],
) -> None:
    shards, client = late
    searches = [{**SEARCH, "limit": limit, "partial": True} for limit in (1, 2, 3, 4)]
    reply = await client.post("/v1/search:batch", json={"searches": searches})
    assert reply.status_code == 200, reply.text
    found = reply.json()["answers"]
    assert [len(one["hits"]) for one in found] == [1, 2, 3, 4]
    assert all(0 < one["covered"] < 1 for one in found)
    assert shards.asked[:4] == [4, 3, 3, 3]
    shards.failing = set()
    again = await client.post("/v1/search", json={**SEARCH, "partial": True})
    assert again.json()["covered"] == 1


@pytest.mark.parametrize("changes", [{}, {"limit": 5}, {"explain": True}, {"diversity": 0.5}])
async def test_a_partial_answer_says_what_it_covers(
    client: Client, shards: FailingShards, manifest: SetManifest, changes: dict[str, Any]
) -> None:
    body = {**SEARCH, "partial": True, "facets": ["brand"], **changes}
    whole = (await client.post("/v1/search", json=body)).json()
    assert (whole["covered"], whole["certified"], whole["total"]) == (1, True, 90)
    shards.failing = {1, 3}
    found = (await client.post("/v1/search", json=body)).json()
    TypeAdapter(SearchReply).validate_python(found)
    left = manifest.shards[0].documents + manifest.shards[2].documents
    assert found["covered"] == left / 90
    assert found["certified"] is False
    assert (found["total"], found["total_at_least"]) == (None, left)
    ids = [hit["id"] for hit in found["hits"]]
    assert {shard_of_id(manifest, id) for id in ids} <= {0, 2}
    if not changes:
        assert ids == [
            hit["id"] for hit in whole["hits"] if shard_of_id(manifest, hit["id"]) in (0, 2)
        ]


async def test_a_shard_that_dies_between_two_calls_loses_its_hits(
    whole: Whole, address: str, shards: FailingShards, manifest: SetManifest
) -> None:
    own_ask = shards.ask

    async def ask(payloads: Any, deadline_s: float) -> Any:
        found = await own_ask(payloads, deadline_s)
        shards.failing = {0}
        return found

    async with whole.router(address, shards) as client:
        shards.ask = ask  # type: ignore[method-assign]
        body = {**SEARCH, "explain": True, "partial": True}
        found = (await client.post("/v1/search", json=body)).json()
    assert found["hits"]
    assert all(shard_of_id(manifest, hit["id"]) != 0 for hit in found["hits"])
    assert found["covered"] == (90 - manifest.shards[0].documents) / 90
    assert found["certified"] is False


async def test_no_shard_is_no_answer(client: Client, shards: FailingShards) -> None:
    shards.failing = {0, 1, 2, 3}
    found = await client.post("/v1/search", json={**SEARCH, "partial": True})
    assert found.status_code == 503


async def test_a_document_needs_its_own_shard_only(
    client: Client, shards: FailingShards, manifest: SetManifest, whole: Whole
) -> None:
    shards.failing = {1}
    for id in whole.ids:
        found = await client.get(f"/v1/documents/{id}")
        assert found.status_code == (503 if shard_of_id(manifest, id) == 1 else 200)


async def test_a_first_page_takes_one_call_a_shard(client: Client, shards: FailingShards) -> None:
    shards.asked.clear()
    await client.post("/v1/search", json={"query": "copy"})
    assert shards.asked == [4]


async def test_a_shard_without_the_version_is_missing(
    whole: Whole, address: str, manifest: SetManifest
) -> None:
    shards = FailingShards.of(address, whole.root / "cache")
    async with whole.router(address, shards) as client:
        shards.servers[3].release(manifest.version)
        assert (await client.post("/v1/search", json=SEARCH)).status_code == 503
        shards.servers[3].load(address)
        assert (await client.post("/v1/search", json=SEARCH)).status_code == 200
    shards.close()


async def test_a_defect_of_a_shard_is_not_an_answer(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(OpenShard, "_rank", broken)
    assert (await client.post("/v1/search", json=SEARCH)).status_code == 503


async def test_a_facet_of_too_many_values_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_fleet.serving.answering.MAX_FACET_VALUES", 3)
    found = await client.post("/v1/search", json={**SEARCH, "facets": ["is_new", "stars"]})
    assert found.status_code == 422
    [error] = found.json()["errors"]
    assert error["field"] == "facets.1"
    assert "values in one shard" in error["reason"]


async def test_writes_are_refused(client: Client) -> None:
    lines = '{"_id": "a", "title": "scp"}\n{"_id": "b", "_delete": true}\n'
    ndjson = {"Content-Type": "application/x-ndjson"}
    answers = [
        await client.put("/v1/documents/a", json={"title": "scp"}),
        await client.put("/v1/documents/a", json={}, headers={"Idempotency-Key": "k"}),
        await client.patch("/v1/documents/a", json={"title": "scp"}),
        await client.patch("/v1/documents/d/0001", json={"title": "scp"}),
        await client.delete("/v1/documents/d/0001"),
        await client.post("/v1/documents:bulk", content=lines, headers=ndjson),
    ]
    for found in answers:
        assert found.status_code == 409, found.text
        assert "planted is a sharded bundle" in found.json()["detail"]


async def test_a_router_lists_its_sets(client: Client, manifest: SetManifest) -> None:
    found = (await client.get("/v1/models")).json()
    [model] = found["models"]
    assert (model["version"], model["documents"]) == (manifest.version, 90)
    assert model["bytes"] == sum(shard.bytes for shard in manifest.shards)
    assert found["aliases"] == {"default": manifest.version}
    assert (await client.get("/readyz")).status_code == 200


async def test_an_unknown_write_cannot_be_waited_for(client: Client) -> None:
    found = await client.post("/v1/search", json={**SEARCH, "min_seq": 1})
    assert found.status_code == 422


async def test_a_router_starts_while_no_shard_answers(
    whole: Whole, address: str, shards: FailingShards
) -> None:
    # Without the times of set.json a text field could not be sorted by.
    body = {**SEARCH, "sort": [{"field": "published"}], "facets": ["brand"]}
    async with whole.service() as own:
        expected = (await own.post("/v1/search", json=body)).json()
    shards.failing = {0, 1, 2, 3}
    async with whole.router(address, shards) as client:
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.post("/v1/search", json=body)).status_code == 503
        shards.failing = {1}
        assert (await client.post("/v1/search", json=body)).status_code == 503
        partial = (await client.post("/v1/search", json={**body, "partial": True})).json()
        assert 0 < partial["covered"] < 1
        shards.failing = set()
        found = (await client.post("/v1/search", json=body)).json()
        assert found["hits"] == expected["hits"]
        assert found["facets"] == expected["facets"]


async def test_a_router_downloads_no_documents(
    whole: Whole, address: str, shards: FailingShards, tmp_path: Path
) -> None:
    """Shards are as large as their documents; a router needs the model."""
    remote = Folder(f"memory://{tmp_path.name}") / Path(address).parent.name / Path(address).name
    for path in Path(address).rglob("*"):
        if path.is_file() and "router" not in path.parts:
            remote.upload(path, str(path.relative_to(address)))
    cache = tmp_path / "cache"
    async with whole.router(address, shards, name="small", source=remote, cache=cache) as client:
        assert (await client.post("/v1/search", json=SEARCH)).json()["hits"]
    files = {path.relative_to(cache).parts[1:] for path in cache.rglob("*") if path.is_file()}
    assert ("manifest.json",) in files
    assert {parts[0] for parts in files} == {"manifest.json", "model"}


async def test_deep_groups_are_merged_beside_the_event_loop(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_MERGED_AT_ONCE", 50)
    merged, threads = Merged.of, list[bool]()

    def noting(*arguments: Any) -> Merged:
        threads.append(threading.current_thread() is threading.main_thread())
        return merged(*arguments)

    monkeypatch.setattr(Merged, "of", noting)
    for limit in (5, 80):
        body = {**SEARCH, "limit": limit, "group_by": {"field": "brand", "limit": 40}}
        found = await client.post("/v1/search", json=body)
        assert found.status_code == 200, found.text
    assert threads == [True, False]


@pytest.mark.parametrize("most", [1, 7, 60, 1000])
def test_a_merge_stops_after_the_hits_that_are_needed(most: int) -> None:
    """All hits of all shards, of which a deep page needs a few, would keep other requests waiting."""
    rng = np.random.default_rng(most)
    shards = {}
    for number in range(5):
        scores = -np.sort(-rng.integers(0, 9, (60, 5)) / 4, axis=0)
        hits = Scored([f"{row:03}-{number}" for row in range(60)], scores)
        shards[number] = Found(hits, None, None, False, True, 60, True, "exact", (), {}, None)
    assert Merged.of(shards, None, most).places == Merged.of(shards).places[:most]
