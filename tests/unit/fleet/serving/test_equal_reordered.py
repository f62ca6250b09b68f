"""Routers over 1, 3 and 16 shards apply a second stage as the unsharded service does, to the last bit.

The tests of ``test_equal`` run here over a bundle with a second stage.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fullrank.bundle import find_bundle, open_bundle
from fullrank.search.rerank.stage import DEPTH
from fullrank_fleet.remote import Folder
from fullrank_fleet.sets.manifest import read_set
from tests.api.support import Client
from tests.unit.fleet.serving import test_equal as equal
from tests.unit.fleet.serving.equality import (
    WORDS,
    FailingShards,
    Whole,
    all_equal,
    answer_of,
    condition,
    query,
)
from tests.unit.fleet.serving.reordering import stage_for, stage_of_documents

pytestmark = pytest.mark.anyio
COUNT = 400


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"), COUNT, make_stage=stage_for)


async def test_pages_are_cut_from_the_reordered_list(clients: list[Client]) -> None:
    rng = random.Random(6)
    for _ in range(6):
        body: dict[str, Any] = {
            "query": query(rng),
            "min_score": -50.0,
            "explain": True,
            "rules": False,
        }
        if rng.random() < 0.5:
            body["filter"] = condition(rng)
        ids: list[str] = []
        for offset in range(0, 160, 20):
            page = {**body, "limit": 20, "offset": offset}
            status, found = await all_equal(clients, "POST", "/v1/search", json=page)
            assert status == 200
            count = min(DEPTH, found["total"])
            assert found["reordered"] == (count if offset < DEPTH else 0)
            ids += [hit["id"] for hit in found["hits"]]
            seconds = [hit["explanation"]["second_stage"] for hit in found["hits"]]
            reordered = [second["score"] for second in seconds if second is not None]
            assert len(reordered) == max(0, min(count - offset, 20))
        assert len(ids) == len(set(ids))


async def test_the_order_is_that_of_the_second_score(clients: list[Client]) -> None:
    rng, changed = random.Random(7), 0
    for _ in range(20):
        body: dict[str, Any] = {"query": query(rng), "min_score": -50.0, "limit": 100}
        body |= {"explain": True, "rules": False}
        hits: list[dict[str, Any]] = []
        for offset in (0, DEPTH):
            page = {**body, "offset": offset}
            hits += (await all_equal(clients, "POST", "/v1/search", json=page))[1]["hits"]
        first = sorted(hits, key=lambda hit: (-hit["score"], hit["id"]))
        assert sorted(hit["id"] for hit in hits[:DEPTH]) == sorted(h["id"] for h in first[:DEPTH])
        assert hits[DEPTH:] == first[DEPTH:]
        second = [hit["explanation"]["second_stage"]["score"] for hit in hits[:DEPTH]]
        # The sums of an explanation differ from those of the order by rounding.
        assert all(a >= b - 1e-9 for a, b in pairwise(second))
        changed += hits != first
    assert changed == 20


@pytest.mark.parametrize("limit", [1, 2])
async def test_groups_are_read_from_the_reordered_list(clients: list[Client], limit: int) -> None:
    rng, compared = random.Random(8), 0
    for field in ("brand", "sizes", "is_new", "mixed", "stars", "rare"):
        for offset in (0, 4, 30, 120):
            body = {
                "query": query(rng),
                "group_by": {"field": field, "limit": limit},
                "limit": rng.choice([3, 25]),
                "offset": offset,
                "min_score": -50.0,
                "explain": True,
                "rules": False,
            }
            status, found = await all_equal(clients, "POST", "/v1/search", json=body)
            assert (status, found["reordered"]) == (200, DEPTH)
            compared += len(found["hits"])
    assert compared > 150


@pytest.mark.parametrize(
    "extra",
    [
        {"sort": [{"field": "stars"}]},
        {"boost": [{"field": "stars", "log": True, "weight": 0.5}]},
        {"diversity": 0.4},
        {"diversity": 0.4, "group_by": {"field": "brand", "limit": 3}},
        {"cursor": "*"},
    ],
)
async def test_other_orders_have_no_second_stage(
    clients: list[Client], extra: dict[str, Any]
) -> None:
    for word in WORDS[:3]:
        body = {"query": word, "explain": True, "rules": False, **extra}
        status, found = await all_equal(clients, "POST", "/v1/search", json=body)
        assert (status, found["reordered"]) == (200, 0)
        assert all(hit["explanation"]["second_stage"] is None for hit in found["hits"])


def page(rng: random.Random) -> dict[str, Any]:
    placements = [
        {"id": f"p{i}", "count": rng.randint(1, 8)}
        | ({"min_score": rng.choice([0.0, 3.0, 6.0])} if rng.random() < 0.5 else {})
        for i in range(rng.randint(1, 4))
    ]
    text = {"title": query(rng), "text": query(rng)}
    return {"page": text, "placements": placements, "explain": rng.random() < 0.5}


async def test_documents_as_queries_use_only_a_stage_that_was_trained_on_them(
    tmp_path: Path,
) -> None:
    for make_stage in (stage_of_documents, stage_for):
        root, rng = tmp_path / make_stage.__name__, random.Random(9)
        root.mkdir()
        whole, own = Whole(root, 120, make_stage=make_stage), make_stage is stage_of_documents
        address = whole.cut(3)
        shards = FailingShards.of(address, root / "cache")
        similar = [f"/v1/documents/{id}/similar?limit=7" for id in rng.sample(whole.ids, 10)]
        search = {"query": "copy", "min_score": -50.0, "explain": True}
        requests: list[tuple[str, str, Any, bool]] = [
            *(("GET", url, None, own) for url in similar),
            *(("POST", "/v1/match", page(rng), own) for _ in range(25)),
            ("POST", "/v1/search", search, not own),
        ]
        try:
            async with whole.service() as one, whole.router(address, shards) as router:
                for method, url, body, reordered in requests:
                    expected, found = [
                        answer_of(await client.request(method, url, json=body))
                        for client in (one, router)
                    ]
                    assert found == expected
                    status, reply = found
                    reordered &= bool(reply.get("hits", True))
                    assert (status, reply["reordered"] > 0) == (200, reordered)
        finally:
            shards.close()


async def test_a_search_without_hits_has_nothing_to_reorder(clients: list[Client]) -> None:
    extras: list[dict[str, Any]] = [{"min_score": 99.0}, {"filter": {"stars": 77}}]
    for extra in extras:
        body = {"query": "copy", "rules": False, **extra}
        status, found = await all_equal(clients, "POST", "/v1/search", json=body)
        assert (status, found["hits"], found["reordered"]) == (200, [], 0)


async def test_without_a_shard_the_others_are_reordered(
    whole: Whole, shards: dict[str, FailingShards]
) -> None:
    """As the unsharded bundle reorders its documents without those of that shard."""
    address, own = list(shards.items())[1]
    manifest = read_set(Folder(address))
    missing = [id for id in whole.ids if manifest.owner(id) == 1]
    bundle = open_bundle(find_bundle(whole.root / "bundles", "planted"))
    async with whole.router(address, own, name="partial") as client:
        own.failing = {1}
        try:
            for text in WORDS[:5]:
                body = {"query": text, "min_score": -50.0, "limit": 100, "prefix": "none"}
                reply = await client.post("/v1/search", json={**body, "partial": True})
                found = reply.json()
                expected = bundle.search(text, 100, exclude=missing, min_score=-50.0)
                assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in expected]
                assert found["reordered"] == expected.reordered == DEPTH
                assert 0 < found["covered"] < 1
        finally:
            own.failing = set()


test_searches = equal.test_searches_are_equal
test_every_page_of_cursors = equal.test_every_page_of_cursors_is_equal
test_batches_and_links = equal.test_batches_and_links_are_equal
test_rules = equal.test_rules_are_applied_equally
