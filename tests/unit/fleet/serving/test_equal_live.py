"""Writes to routers over 1, 3 and 16 shards, and their compaction, change answers as those of the unsharded service."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from fullrank.search.rerank.stage import DEPTH
from tests.api.support import Client
from tests.databases import NewDatabase
from tests.unit.fleet.serving.equality import (
    NEW_WORDS,
    WORDS,
    Places,
    Whole,
    all_equal,
    all_pages,
    answer_of,
    query,
    search,
    write,
    written,
)
from tests.unit.fleet.serving.equality import merge_small_segments_only as merge_small_segments_only
from tests.unit.fleet.serving.reordering import stage_for

pytestmark = pytest.mark.anyio
both_stages = pytest.mark.parametrize(
    "whole", [None, stage_for], indirect=True, ids=["scored", "reordered"]
)


@pytest.fixture
def whole(tmp_path: Path, request: pytest.FixtureRequest) -> Whole:
    """One for each test, because compactions add versions."""
    (tmp_path / "whole").mkdir()
    return Whole(tmp_path / "whole", 160, make_stage=getattr(request, "param", None))


@pytest.fixture
def places(whole: Whole, tmp_path: Path, new_database: NewDatabase) -> Places:
    return Places(whole, tmp_path, new_database)


@both_stages
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))]
)
async def test_writes_change_answers_equally(places: Places, whole: Whole, seed: int) -> None:
    rng = random.Random(seed)
    ids = [*rng.sample(whole.ids, 25), *(f"new/{number}" for number in range(15)), "日本"]
    seq, statuses, certified = 0, [], 0
    async with places.clients() as clients:
        for _ in range(30):
            method, url, arguments = write(rng, ids)
            status, own = await written(clients, method, url, **arguments)
            statuses.append(status)
            seq = max(seq, own)
            for _ in range(3):
                status, found = await all_equal(
                    clients, "POST", "/v1/search", json=search(rng, seq)
                )
                certified += status == 200 and found["certified"]
            id = rng.choice(ids)
            await all_equal(clients, "GET", f"/v1/documents/{id}", params={"min_seq": seq})
            await all_equal(clients, "GET", f"/v1/documents/{id}/similar", params={"min_seq": seq})
    assert statuses.count(200) > 15
    assert certified > 40
    # Another process replays the log.
    async with places.clients() as clients:
        for _ in range(15):
            await all_equal(clients, "POST", "/v1/search", json=search(rng, seq))
        for id in ids:
            await all_equal(clients, "GET", f"/v1/documents/{id}")


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))]
)
async def test_pages_under_writes_have_what_is_not_written_once(
    places: Places, whole: Whole, seed: int
) -> None:
    """Equal to each other; but for documents written meanwhile, the list before without deleted ones."""
    rng = random.Random(seed)
    ids = [*rng.sample(whole.ids, 25), *(f"new/{number}" for number in range(15))]
    pages = compared = 0
    async with places.clients() as clients:
        for _ in range(4):
            for _ in range(5):
                method, url, arguments = write(rng, ids)
                await written(clients, method, url, **arguments)
            _, seq = await written(clients, "DELETE", "/v1/documents/nowhere")
            asked: dict[str, Any] = {"query": query(rng), "explain": True, "min_seq": seq}
            asked["query"] += " " + rng.choice([*NEW_WORDS, "zebr", "quo"])
            if rng.random() < 0.4:
                asked |= {"filter": {"stars": {"gte": 2}}, "facets": ["brand"]}
            expected: list[dict[str, Any]] = []
            for offset in (0, 100):
                page = {**asked, "limit": 100, "offset": offset, "mode": "exact"}
                status, found = await all_equal(clients, "POST", "/v1/search", json=page)
                assert status == 200
                expected += found["hits"]
            asked["limit"] = rng.choice([5, 23])
            cursors: list[str | None] = ["*"] * len(clients)
            hits: list[dict[str, Any]] = []
            moved = set[str]()
            while cursors[0] is not None:
                replies = [
                    await client.post("/v1/search", json=asked | {"cursor": cursor})
                    for client, cursor in zip(clients, cursors, strict=True)
                ]
                found, *others = [answer_of(reply)[1] for reply in replies]
                assert all(other == found for other in others), asked
                hits += found["hits"]
                cursors = [reply.json()["cursor"] for reply in replies]
                pages += 1
                for _ in range(2):
                    method, url, arguments = write(rng, ids)
                    if method != "DELETE" and "content" not in arguments:
                        seq = max(seq, (await written(clients, method, url, **arguments))[1])
                        moved.add(url.removeprefix("/v1/documents/"))
                read = {hit["id"] for hit in hits}
                left = [hit["id"] for hit in expected if hit["id"] not in read]
                if left and rng.random() < 0.2:
                    gone = rng.choice(left)
                    seq = max(seq, (await written(clients, "DELETE", f"/v1/documents/{gone}"))[1])
                    expected = [hit for hit in expected if hit["id"] != gone]
                asked["min_seq"] = max(asked["min_seq"], seq)
            kept = [hit for hit in hits if hit["id"] not in moved]
            assert kept == [hit for hit in expected if hit["id"] not in moved]
            compared += len(kept)
    assert pages > 8
    assert compared > 20


class Searching:
    """Random writes and searches, the same for all clients."""

    def __init__(self, whole: Whole, seed: int) -> None:
        self.rng = random.Random(seed)
        self.ids = [*self.rng.sample(whole.ids, 25), *(f"new/{n}" for n in range(15)), "日本"]
        self.seq = self.certified = 0

    async def write(self, clients: list[Client], count: int) -> None:
        for _ in range(count):
            method, url, arguments = write(self.rng, self.ids)
            _, own = await written(clients, method, url, **arguments)
            self.seq = max(self.seq, own)
            # Which fields a document may have depends on those before, so all must have read these.
            body = {"query": "zebra", "min_seq": self.seq}
            await all_equal(clients, "POST", "/v1/search", json=body)

    async def compare(self, clients: list[Client], count: int) -> None:
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

    async def page(self, clients: list[Client]) -> int:
        words = self.rng.sample([*WORDS, *NEW_WORDS], 2)
        body = {"query": " ".join(words), "limit": 7, "min_seq": self.seq, "min_score": -5.0}
        return await all_pages(clients, body)


@both_stages
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


@pytest.mark.parametrize("whole", [stage_for], indirect=True)
async def test_live_documents_are_reordered_with_the_others(places: Places, whole: Whole) -> None:
    asked: dict[str, Any] = {"query": "copy zebra", "limit": 100, "min_score": -50, "explain": True}

    async def compare(seq: int, new: set[str]) -> None:
        body = {**asked, "min_seq": seq}
        status, found = await all_equal(clients, "POST", "/v1/search", json=body)
        assert (status, found["reordered"]) == (200, DEPTH)
        ids = [hit["id"] for hit in found["hits"]]
        assert new <= set(ids)
        assert all(hit["explanation"]["second_stage"] for hit in found["hits"])

    new = {"new/1", "new/2", whole.ids[3]}
    async with places.clients() as clients:
        for number, id in enumerate(sorted(new)):
            fields = {"title": "copy zebra", "text": "zebra files"}
            fields["published"] = f"2027-01-0{number + 1}"
            _, seq = await written(clients, "PUT", f"/v1/documents/{id}", json=fields)
        await compare(seq, new)
        _, seq = await written(clients, "DELETE", "/v1/documents/new/2")
        await compare(seq, new - {"new/2"})
        places.compact()
    async with places.clients() as clients:
        await compare(seq, new - {"new/2"})
