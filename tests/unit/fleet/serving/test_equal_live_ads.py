"""Ads that are written, replaced and deleted while a router fills pages over 1, 3 and 16 shards, and compacted."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank.events.people import read_key
from fullrank_service.ads.tokens import Signer
from fullrank_service.documents import merging
from tests.databases import NewDatabase
from tests.unit.fleet.serving import ads
from tests.unit.fleet.serving.ads import pages_equal, stop_the_clock
from tests.unit.fleet.serving.routing import Whole
from tests.unit.fleet.serving.test_equal_live import NEW_WORDS, Places, body, written

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", params=[True, False], ids=["ads", "no ads"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A corpus with ads, or one whose first ads are live."""
    root = tmp_path_factory.mktemp("whole")
    further = ads.ads_of_the_corpus if request.param else lambda _: {}
    return Whole(root, 120, further=further)


@pytest.fixture(autouse=True)
def merge_small_segments_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge nothing by time, as in test_equal_live.py."""
    monkeypatch.setattr(merging, "_IDLE_S", 1e6)


@pytest.fixture
def places(whole: Whole, tmp_path: Path, new_database: NewDatabase) -> Places:
    return Places(whole, tmp_path, new_database)


def advertised(rng: random.Random) -> dict[str, Any]:
    """The fields of a document, most with an ad that has not ended by the clock of the tests."""
    found = body(rng)
    if rng.random() < 0.8:
        found["ad"] = ads.some_ad(rng)
        if rng.random() < 0.8:
            found["ad"].pop("end", None)
    return found


async def write(rng: random.Random, ids: list[str], clients: list[httpx.AsyncClient]) -> int:
    """Write a random ad to all; return the number of the write."""
    id, kind = rng.choice(ids), rng.random()
    if kind < 0.5:
        return (await written(clients, "PUT", f"/v1/documents/{id}", json=advertised(rng)))[1]
    if kind < 0.6:
        changes = {"ad": rng.choice([None, ads.some_ad(rng)])}
        return (await written(clients, "PATCH", f"/v1/documents/{id}", json=changes))[1]
    if kind < 0.8:
        return (await written(clients, "DELETE", f"/v1/documents/{id}"))[1]
    lines = [{"_id": rng.choice(ids), **advertised(rng)} for _ in range(8)]
    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": str(rng.random())}
    content = "\n".join(map(json.dumps, lines))
    bulk = await written(clients, "POST", "/v1/documents:bulk", content=content, headers=headers)
    return bulk[1]


def page(rng: random.Random, ids: list[str], seq: int) -> dict[str, Any]:
    found = {**ads.page(rng, ids), "min_seq": seq}
    found["page"]["text"] += " " + rng.choice(NEW_WORDS)
    return found


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 15))]
)
async def test_written_ads_change_pages_equally(
    places: Places, whole: Whole, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    stop_the_clock(monkeypatch)
    rng = random.Random(seed)
    ids = [*rng.sample(whole.ids, 25), *(f"new/{number}" for number in range(15))]
    key = whole.root / "key"
    seq = live = 0
    async with places.clients(events_key=key) as clients:
        signer = Signer(read_key(key))
        for _ in range(20):
            seq = max(seq, await write(rng, ids, clients))
            for _ in range(2):
                status, found = await pages_equal(clients, signer, page(rng, ids, seq))
                if status == 200:
                    assert found["certified"]
                    hits = [hit for one in found["placements"] for hit in one["hits"]]
                    live += any(hit["token"] and hit["id"] in ids for hit in hits)
    assert live > 5
    places.compact()
    async with places.clients(events_key=key) as clients:
        for _ in range(10):
            seq = max(seq, await write(rng, ids, clients))
            status, found = await pages_equal(clients, signer, page(rng, ids, seq))
