"""Routers over 1, 3 and 16 compacted shards answer as the service over the compacted bundle, to the last bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.databases import NewDatabase
from tests.unit.fleet.serving.routing import WORDS, Whole
from tests.unit.fleet.serving.test_equal import all_equal, answer_of
from tests.unit.fleet.serving.test_equal_live import NEW_WORDS, Places, search, write, written
from tests.unit.fleet.serving.test_equal_live import (
    merge_small_segments_only as merge_small_segments_only,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def whole(tmp_path: Path) -> Whole:
    """One for each test, because compactions add versions."""
    (tmp_path / "whole").mkdir()
    return Whole(tmp_path / "whole", 120)


@pytest.fixture
def places(whole: Whole, tmp_path: Path, new_database: NewDatabase) -> Places:
    return Places(whole, tmp_path, new_database)


class Searching:
    """Random writes and searches, the same for all clients."""

    def __init__(self, whole: Whole, seed: int) -> None:
        self.rng = random.Random(seed)
        self.ids = [*self.rng.sample(whole.ids, 25), *(f"new/{n}" for n in range(15)), "日本"]
        self.seq = self.certified = 0

    async def write(self, clients: list[httpx.AsyncClient], count: int) -> None:
        for _ in range(count):
            method, url, arguments = write(self.rng, self.ids)
            _, own = await written(clients, method, url, **arguments)
            self.seq = max(self.seq, own)
            # Which fields a document may have depends on those before, so all must have read these.
            body = {"query": "zebra", "min_seq": self.seq}
            await all_equal(clients, "POST", "/v1/search", json=body)

    async def compare(self, clients: list[httpx.AsyncClient], count: int) -> None:
        """Send searches, also for words of live documents, and read documents."""
        rng = self.rng
        for _ in range(count):
            body = search(rng, self.seq)
            status, found = await all_equal(clients, "POST", "/v1/search", json=body)
            self.certified += status == 200 and found["certified"]
        for text in ("zebra", "zebr", "copy yak", "zebar", "quok", "走る", "xyzzy"):
            body = {"query": text, "min_seq": self.seq, "explain": True, "highlight": {}}
            await all_equal(clients, "POST", "/v1/search", json=body)
        for id in rng.sample(self.ids, 8):
            seq = {"min_seq": self.seq}
            await all_equal(clients, "GET", f"/v1/documents/{id}", params=seq)
            await all_equal(clients, "GET", f"/v1/documents/{id}/similar", params=seq)

    async def page(self, clients: list[httpx.AsyncClient]) -> int:
        """Read all pages of a search by cursors; return their number."""
        words = self.rng.sample([*WORDS, *NEW_WORDS], 2)
        body = {"query": " ".join(words), "limit": 7, "min_seq": self.seq, "min_score": -5.0}
        cursors: list[Any] = ["*"] * len(clients)
        pages = 0
        while cursors[0] is not None:
            answers = []
            for place, client in enumerate(clients):
                reply = await client.post("/v1/search", json={**body, "cursor": cursors[place]})
                cursors[place] = reply.json()["cursor"]
                answers.append(answer_of(reply))
            assert all(answer == answers[0] for answer in answers)
            assert len({cursor is None for cursor in cursors}) == 1
            pages += 1
        return pages


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))]
)
async def test_compacted_fleets_answer_as_a_compacted_bundle(
    places: Places, whole: Whole, seed: int
) -> None:
    own = Searching(whole, seed)
    async with places.clients() as clients:
        await own.write(clients, 20)
        places.compact()
        # Some of these replace operations that were compacted.
        await own.write(clients, 10)
    async with places.clients() as clients:
        await own.compare(clients, 20)
        assert await own.page(clients) > 10
        for _ in range(8):
            await own.write(clients, 2)
            await own.compare(clients, 2)
        await own.page(clients)
        places.compact()
    assert len(set(places.forget_earlier())) == 1
    async with places.clients() as clients:
        await own.compare(clients, 20)
        assert await own.page(clients) > 10
        await own.write(clients, 4)
        await own.compare(clients, 5)
    assert own.certified > 25


async def test_compacted_documents_alone_know_their_words(places: Places, whole: Whole) -> None:
    """No document is live any more: what a query may have meant comes from the compacted ones of all shards."""
    own = Searching(whole, 5)
    async with places.clients() as clients:
        for number, word in enumerate(NEW_WORDS):
            arguments: dict[str, Any] = {"json": {"title": word, "brand": "only live"}}
            _, own.seq = await written(clients, "PUT", f"/v1/documents/z{number}", **arguments)
        places.compact()
    removed = places.forget_earlier()
    assert removed == [len(NEW_WORDS)] * len(removed)
    async with places.clients() as clients:
        for text in ("zebr", "quokka copy", "yak", "走る"):
            status, found = await all_equal(clients, "POST", "/v1/search", json={"query": text})
            assert status == 200
            assert any(hit["id"].startswith("z") for hit in found["hits"]), text
        lists = [(await client.get("/v1/models")).json()["models"] for client in clients]
        active = [next(one for one in models if one["active"]) for models in lists]
        assert all(one["fields"] == active[0]["fields"] for one in active)
        body = {"query": "zebra", "filter": {"brand": "only live"}, "facets": ["brand"]}
        _, found = await all_equal(clients, "POST", "/v1/search", json=body)
        assert found["total"] >= 1
        await own.compare(clients, 10)
