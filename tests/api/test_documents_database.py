"""Live documents in PostgreSQL, on one machine: as in a file, and through a server that cannot be reached."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fullrank.bundle import find_bundle, open_bundle
from fullrank_service.documents.compact import compact, trim
from fullrank_service.documents.sqlitelog import LogPlace
from tests.api.support import AUTH, Client, make_bundle, running
from tests.databases import NewDatabase, unreachable

pytestmark = [pytest.mark.anyio, pytest.mark.server]


@pytest.fixture
def address(new_database: NewDatabase) -> str:
    return new_database()


async def found(client: Client, query: str, **asked: Any) -> set[str]:
    """Return the ids of the hits with a positive score: live documents with a word of the query."""
    reply = await client.search(query, **{"limit": 100, "min_score": 0.01, **asked})
    return {hit["id"] for hit in reply["hits"]} & {"new", "a", "b"}


async def test_workers_of_two_machines_share_a_log(tmp_path: Path, address: str) -> None:
    version = make_bundle(tmp_path / "one", "docs")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "docs").symlink_to(tmp_path / "one" / "docs")
    async with (
        running(tmp_path / "one", documents_url=address) as one,
        running(tmp_path / "two", documents_url=address) as two,
    ):
        written = await one.put("/v1/documents/new", json={"title": "zebra crossing"})
        assert written.json() == {"id": "new", "collection": "docs", "seq": 1}
        assert await found(two, "zebra", min_seq=1) == {"new"}
        patched = await two.patch("/v1/documents/new", json={"title": "yak", "stars": 3})
        assert patched.json()["seq"] == 2
        reply = await one.get("/v1/documents/new", params={"min_seq": 2})
        assert reply.json()["fields"] == {"title": "yak", "stars": 3}
        assert (await one.delete("/v1/documents/new")).json()["seq"] == 3
        reply = await two.get("/v1/documents/new", params={"min_seq": 3})
        assert reply.status_code == 404
    async with running(tmp_path / "one", documents_url=address) as again:
        assert (await again.get("/v1/documents/new")).status_code == 404
        assert (await again.get("/readyz")).json()["model"] == version


async def test_a_compacted_version_contains_them(tmp_path: Path, address: str) -> None:
    make_bundle(tmp_path, "docs")
    async with running(tmp_path, documents_url=address) as client:
        await client.put("/v1/documents/new", json={"title": "zebra crossing"})
    place = LogPlace.of_database(address)
    made = compact(find_bundle(tmp_path, "docs"), place)
    assert made.seq == 1
    assert open_bundle(made.path).documents.fields(open_bundle(made.path).documents.row("new")) == {
        "title": "zebra crossing"
    }
    assert trim(tmp_path, "docs", place, settled_s=-1) == 0  # the first version still needs it


async def test_searches_go_on_while_the_server_is_away(
    tmp_path: Path, address: str, postgres_server: str
) -> None:
    make_bundle(tmp_path, "docs")
    async with running(tmp_path, documents_url=address) as client:
        assert (await client.put("/v1/documents/a", json={"title": "zebra"})).status_code == 200
        assert await found(client, "zebra", min_seq=1) == {"a"}
        with unreachable(postgres_server, address):
            for _ in range(3):
                refused = await client.put("/v1/documents/b", json={"title": "zebra"})
                assert refused.status_code == 503
                assert refused.json()["type"].endswith(":log-unavailable")
                assert await found(client, "zebra") == {"a"}
        written = await client.put("/v1/documents/b", json={"title": "zebra"})
        assert (written.status_code, written.json()["seq"]) == (200, 2)
        assert await found(client, "zebra", min_seq=2) == {"a", "b"}


async def test_no_version_is_loaded_without_its_log(
    tmp_path: Path, address: str, postgres_server: str
) -> None:
    make_bundle(tmp_path, "docs")
    async with running(tmp_path, documents_url=address) as client:
        await client.put("/v1/documents/a", json={"title": "zebra"})
    with unreachable(postgres_server, address):
        async with running(tmp_path, documents_url=address) as client:
            assert (await client.get("/readyz")).status_code == 503
            models = (await client.get("/v1/models", headers=AUTH)).json()
            assert "live documents cannot be read" in models["failure"]


async def test_writers_of_several_workers_lose_no_change(tmp_path: Path, address: str) -> None:
    """Two services add to one document at once, each change to a field of its own."""
    make_bundle(tmp_path, "docs")
    async with (
        running(tmp_path, documents_url=address) as one,
        running(tmp_path, documents_url=address) as two,
    ):
        await one.put("/v1/documents/a", json={"title": "zebra"})

        async def change(client: Client, number: int) -> None:
            reply = await client.patch("/v1/documents/a", json={f"field{number}": number})
            assert reply.status_code == 200, reply.text

        await asyncio.gather(
            *(change(client, 2 * i + j) for i in range(6) for j, client in enumerate((one, two)))
        )
        reply = await one.get("/v1/documents/a", params={"min_seq": 13})
    fields = {"title": "zebra"} | {f"field{number}": number for number in range(12)}
    assert reply.json()["fields"] == fields
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT count(*) FROM fullrank.operations").fetchone() == (1,)


async def test_a_log_that_has_lost_operations_takes_no_writes_until_a_restart(
    tmp_path: Path, address: str
) -> None:
    """A standby without the last commits has taken over: their numbers would be given to other writes."""
    make_bundle(tmp_path, "docs")
    async with running(tmp_path, documents_url=address) as client:
        for id in ("a", "b", "new"):
            await client.put(f"/v1/documents/{id}", json={"title": "zebra"})
        assert await found(client, "zebra", min_seq=3) == {"a", "b", "new"}
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("DELETE FROM fullrank.operations WHERE seq > 1")
            connection.execute("UPDATE fullrank.log SET head = 1")
        for _ in range(3):
            refused = await client.put("/v1/documents/c", json={"title": "zebra"})
            assert refused.json()["type"].endswith(":log-unavailable")
            assert await found(client, "zebra") == {"a", "b", "new"}
    async with running(tmp_path, documents_url=address) as client:
        written = await client.put("/v1/documents/b", json={"title": "zebra"})
        assert await found(client, "zebra", min_seq=written.json()["seq"]) == {"a", "b"}
