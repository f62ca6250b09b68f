"""Live documents of a set: who owns them, how far a search waits, and what happens without the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fullrank.errors import FullrankError
from fullrank_fleet.partitions import PARTITIONS, partition_of
from fullrank_fleet.remote import Folder
from fullrank_fleet.serving.documents import LogSource, check_same
from fullrank_fleet.sets.manifest import SetManifest, read_set
from tests.api.support import Client
from tests.databases import NewDatabase, unreachable
from tests.unit.fleet.serving.equality import FailingShards, Whole

pytestmark = [pytest.mark.anyio, pytest.mark.server]
COUNT = 6


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"), COUNT, floor=None)


@pytest.fixture(scope="module")
def address(whole: Whole) -> str:
    """Few documents in many shards: some shards have none."""
    return whole.cut(16)


@pytest.fixture(scope="module")
def manifest(address: str) -> SetManifest:
    return read_set(Folder(address))


@pytest.fixture
def log(new_database: NewDatabase) -> LogSource:
    return LogSource(new_database(), 0.05)


@pytest.fixture
def shards(whole: Whole, address: str, log: LogSource) -> Iterator[FailingShards]:
    found = FailingShards.of(address, whole.root / "cache", log)
    yield found
    found.close()


@pytest.fixture
async def clients(
    whole: Whole, address: str, log: LogSource, shards: FailingShards
) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                whole.router(address, shards, documents_url=log.address, min_seq_wait_ms=5_000)
            )
            for _ in range(2)
        ]


@pytest.fixture
def client(clients: list[Client]) -> Client:
    return clients[0]


async def ids(client: Client, **asked: Any) -> list[str]:
    body = {"query": "zebra copy", "limit": 100, **asked}
    reply = await client.post("/v1/search", json=body)
    assert reply.status_code == 200, reply.text
    assert reply.json()["certified"]
    return [hit["id"] for hit in reply.json()["hits"]]


def test_shards_with_documents_share_out_all_partitions(manifest: SetManifest) -> None:
    filled = [number for number, shard in enumerate(manifest.shards) if shard.documents]
    assert 1 < len(filled) < 16
    assert list(manifest.owned) == filled
    partitions = [partition for run in manifest.owned.values() for partition in run]
    assert partitions == list(range(PARTITIONS))
    for number in filled:
        shard = manifest.shards[number]
        assert {shard.first, shard.end - 1} <= set(manifest.owned[number])
    for number in range(200):
        assert partition_of(f"x{number}") in manifest.owned[manifest.owner(f"x{number}")]


async def test_documents_of_shards_without_documents_are_found(
    client: Client, whole: Whole, manifest: SetManifest
) -> None:
    new = [f"new/{number}" for number in range(60)]
    runs = [(shard.first, shard.end) for shard in manifest.shards if not shard.documents]
    assert any(first <= partition_of(id) < end for id in new for first, end in runs)
    for id in new:
        written = await client.put(f"/v1/documents/{id}", json={"title": f"zebra {id}"})
        assert written.status_code == 200
    seq = written.json()["seq"]
    assert seq == 60
    assert sorted(await ids(client, min_seq=seq)) == sorted([*new, *whole.ids])
    for id in new:
        found = await client.get(f"/v1/documents/{id}", params={"min_seq": seq})
        assert found.json()["fields"] == {"title": f"zebra {id}"}


async def test_a_search_waits_for_the_write_that_it_names(
    client: Client, clients: list[Client]
) -> None:
    for number in range(20):
        reply = await client.put(f"/v1/documents/w{number}", json={"title": "zebra"})
        assert f"w{number}" in await ids(clients[number % 2], min_seq=reply.json()["seq"])
    found = await client.get("/v1/documents/w1", params={"min_seq": 21})
    assert found.status_code == 422
    assert "every acknowledged write" in found.text


async def test_a_write_becomes_visible_everywhere_without_waiting(
    client: Client, clients: list[Client]
) -> None:
    await client.put("/v1/documents/soon", json={"title": "zebra"})
    async with asyncio.timeout(10):
        while not all(["soon" in await ids(one) for one in clients]):
            await asyncio.sleep(0.02)


async def test_a_shard_that_reads_no_writes_is_not_waited_for_forever(
    whole: Whole, address: str, log: LogSource, new_database: NewDatabase
) -> None:
    shards = FailingShards.of(address, whole.root / "cache", LogSource(new_database()))
    settings: dict[str, Any] = {"documents_url": log.address, "min_seq_wait_ms": 200}
    try:
        async with whole.router(address, shards, **settings) as client:
            reply = await client.put("/v1/documents/a", json={"title": "zebra"})
            assert reply.status_code == 200
            body = {"query": "zebra", "min_seq": 1}
            for _ in range(2):
                found = await client.post("/v1/search", json=body)
                assert found.status_code == 503
                assert found.json()["type"].endswith(":not-yet-visible")
            assert "a" not in await ids(client)
    finally:
        shards.close()


async def test_changes_through_two_routers_at_once_are_all_kept(
    clients: list[Client], whole: Whole
) -> None:
    id = whole.ids[0]
    before = (await clients[0].get(f"/v1/documents/{id}")).json()["fields"]

    async def change(number: int) -> None:
        reply = await clients[number % 2].patch(
            f"/v1/documents/{id}", json={f"field{number}": number}
        )
        assert reply.status_code == 200, reply.text

    await asyncio.gather(*map(change, range(12)))
    found = await clients[1].get(f"/v1/documents/{id}", params={"min_seq": 12})
    assert found.json()["fields"] == before | {f"field{number}": number for number in range(12)}


async def test_searches_go_on_while_the_log_is_away(
    client: Client, log: LogSource, postgres_server: str
) -> None:
    await client.put("/v1/documents/a", json={"title": "zebra"})
    assert "a" in await ids(client, min_seq=1)
    with unreachable(postgres_server, log.address):
        for _ in range(3):
            refused = await client.put("/v1/documents/b", json={"title": "zebra"})
            assert refused.status_code == 503
            assert refused.json()["type"].endswith(":log-unavailable")
            assert "a" in await ids(client)
            assert (await client.get("/v1/documents/a")).status_code == 200
    async with asyncio.timeout(20):
        while True:
            written = await client.put("/v1/documents/b", json={"title": "zebra"})
            if written.status_code == 200:
                break
            await asyncio.sleep(0.05)
    assert {"a", "b"} <= set(await ids(client, min_seq=written.json()["seq"]))


async def test_hits_that_are_deleted_between_two_calls_are_left_out(
    whole: Whole, address: str, log: LogSource, shards: FailingShards
) -> None:
    """The shards rank with a document, and no longer have it when they are asked to show it or to describe it."""
    own_ask = shards.ask
    async with whole.router(address, shards, documents_url=log.address) as client:
        for number in range(3):
            await client.put(f"/v1/documents/z{number}", json={"title": "zebra"})
        assert {"z0", "z1", "z2"} <= set(await ids(client, min_seq=3))

        async def ask(payloads: Mapping[int, bytes], deadline_s: float) -> Any:
            found = await own_ask(payloads, deadline_s)
            shards.ask = own_ask  # type: ignore[method-assign]
            reply = await client.delete("/v1/documents/z1")
            await ids(client, min_seq=reply.json()["seq"])
            return found

        for asked in ({"explain": True}, {"diversity": 0.5}):
            await client.put("/v1/documents/z1", json={"title": "zebra"})
            assert "z1" in await ids(client, min_seq=(await head(client)))
            shards.ask = ask  # type: ignore[method-assign]
            found = await ids(client, **asked)
            assert {"z0", "z2"} <= set(found)
            assert "z1" not in found


async def head(client: Client) -> int:
    """Return the number of the last write, that of a deletion which changes nothing."""
    seq: int = (await client.delete("/v1/documents/nowhere")).json()["seq"]
    return seq


async def test_pages_by_cursors_have_each_document_that_is_not_written_once(
    clients: list[Client], whole: Whole
) -> None:
    """Over two routers, while documents are added, replaced and deleted."""
    for number in range(10):
        await clients[0].put(f"/v1/documents/z{number}", json={"title": f"zebra {number}"})
    body = {"query": "zebra copy", "limit": 4, "min_seq": 10}
    every = (await clients[0].post("/v1/search", json={**body, "limit": 100})).json()["hits"]
    assert len(every) == len(whole.ids) + 10
    cursor: str | None = "*"
    hits: list[Any] = []
    pages = 0
    while cursor is not None:
        asked = {**body, "cursor": cursor}
        reply = (await clients[pages % 2].post("/v1/search", json=asked)).json()
        hits, cursor, pages = hits + reply["hits"], reply["cursor"], pages + 1
        for id in (f"new{pages}", whole.ids[pages], f"z{pages}", "z9") if pages < 4 else ():
            written = await clients[0].put(f"/v1/documents/{id}", json={"title": "yak"})
        if pages == 1:
            written = await clients[0].delete("/v1/documents/z0")
        body["min_seq"] = written.json()["seq"]
    own = [*(id for id in whole.ids if id not in whole.ids[1:4]), *(f"z{n}" for n in range(4, 9))]
    seen = [hit for hit in hits if hit["id"] in own]
    assert seen == [hit for hit in every if hit["id"] in own]
    assert pages > 3


@pytest.mark.parametrize(
    ("router", "of_shards", "message"),
    [
        ("postgresql://one/x", None, "is one with the hash .* here, and unset in"),
        (None, "postgresql://one/x", "is unset here, and one with the hash"),
        ("postgresql://one/x", "postgresql://two/x", "is one with .* here, and one with"),
    ],
)
def test_a_router_with_another_log_than_the_shards_does_not_start(
    router: str | None, of_shards: str | None, message: str
) -> None:
    def source(address: str | None) -> LogSource | None:
        return None if address is None else LogSource(address)

    shards = source(of_shards)
    with pytest.raises(FullrankError, match=message):
        check_same(source(router), None if shards is None else shards.fingerprint)
    check_same(source(router), None if router is None else LogSource(router).fingerprint)
    assert "postgresql" not in repr(LogSource("postgresql://user:secret@host/x"))
