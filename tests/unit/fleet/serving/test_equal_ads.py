"""A router over 1, 3 and 16 shards fills pages of ads as the unsharded service does, to the last bit of a score."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fullrank.bundle import find_bundle, open_bundle
from fullrank.events.log import EVENTS, LISTS
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import SegmentWriter
from fullrank.live import View
from fullrank_fleet.serving import answering
from fullrank_fleet.serving.wire import Show, Shown
from fullrank_service.ads import placing
from tests.api.support import Client
from tests.databases import NewDatabase
from tests.unit.fleet.serving.equality import (
    NEW_WORDS,
    WORDS,
    FailingShards,
    Places,
    Whole,
    all_equal,
    body,
    condition,
    query,
    sides,
    written,
)
from tests.unit.fleet.serving.equality import merge_small_segments_only as merge_small_segments_only
from tests.unit.fleet.serving.reordering import stage_of_documents
from tests.unit.service.ads.oracle import NOW, PARENTS, random_ad, random_page

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for all pages at one moment."""
    clock = SimpleNamespace(time=lambda: NOW, perf_counter=time.perf_counter)
    monkeypatch.setattr("fullrank_service.ads.routes.time", clock)


@pytest.fixture(scope="module", params=[None, stage_of_documents], ids=["scored", "reordered"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    root = tmp_path_factory.mktemp("whole")
    tree = "".join(f"{id}\t{parent}\n" for id, parent in PARENTS.items())
    (root / "taxonomy.tsv").write_text(tree)
    return Whole(root, 300, further=ad_of_the_corpus, make_stage=request.param)


@pytest.fixture
async def clients(
    whole: Whole, shards: dict[str, FailingShards], tmp_path: Path
) -> AsyncIterator[list[Client]]:
    """The unsharded service, then the routers, with one log of events."""
    taxonomy = whole.root / "taxonomy.tsv"
    async with sides(
        whole, shards, ad_taxonomy=taxonomy, events_folder=tmp_path / "events"
    ) as found:
        yield found


def some_ad(rng: random.Random) -> dict[str, Any]:
    """A random ad, often of an advertiser of its own and with a price of its own."""
    ad = random_ad(rng)
    if rng.random() < 0.7:
        ad["adomain"] = [f"shop{rng.randrange(60)}.example"]
    if rng.random() < 0.3:
        ad["price"] = round(rng.lognormvariate(0, 1), 2) + 0.01
    return ad


def ad_of_the_corpus(number: int) -> dict[str, Any]:
    """The ad of most documents, a few of them malformed."""
    rng = random.Random(number + 1_000_000)
    if rng.random() < 0.25:
        return {}
    return {"ad": some_ad(rng) if rng.random() < 0.95 else {"adomain": "shop.example"}}


def page(rng: random.Random, ids: list[str]) -> dict[str, Any]:
    found = {
        name: value
        for name, value in random_page(rng).items()
        if not name.startswith("bidfloor") and rng.random() < 0.6
    }
    if "bcat" in found or "acat" in found:
        found["cattax"] = rng.choice([1, 7, 7])
    found |= {
        "page": {"title": query(rng), "text": " ".join(rng.choices(WORDS, k=rng.randint(1, 9)))},
        "placements": [placement(rng, number) for number in range(rng.randint(1, 4))],
    }
    if rng.random() < 0.3:
        found["per_advertiser"] = rng.randint(2, 9)
    if rng.random() < 0.3:
        found["cur"] = "USD"
    if rng.random() < 0.3:
        found["targeting"] = condition(rng)
    if rng.random() < 0.3:
        found["blocked_ids"] = rng.sample(ids, 5)
    if rng.random() < 0.4:
        found["explain"] = True
    if rng.random() < 0.2:
        found["fields"] = ["title"]
    return found


def placement(rng: random.Random, number: int) -> dict[str, Any]:
    found: dict[str, Any] = {"id": f"p{number}", "count": rng.choice([1, 2, 3, 8, 40])}
    if rng.random() < 0.3:
        found["bidfloor"] = rng.choice([0.0, 0.5, 1.0, 2.5])
    if rng.random() < 0.2:
        found["bidfloorcur"] = "USD"
    if rng.random() < 0.3:
        found["min_score"] = rng.choice([-1.0, 1.0, 3.0, 5.0])
    return found


def placed(found: Any) -> list[str]:
    return [hit["id"] for one in found["placements"] for hit in one["hits"]]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))]
)
async def test_pages_are_equal(clients: list[Client], whole: Whole, seed: int) -> None:
    rng = random.Random(seed)
    filled, reasons = 0, set[str]()
    for _ in range(40):
        status, found = await all_equal(clients, "POST", "/v1/match", json=page(rng, whole.ids))
        assert status in (200, 422)
        if status == 200:
            assert found["certified"]
            filled += bool(placed(found))
            reasons |= set(found["left_out"] or {})
            reasons |= {name for one in found["placements"] for name in one["left_out"] or {}}
    assert filled > 20
    assert len(reasons) > 10


@pytest.fixture
def clicks(whole: Whole, tmp_path: Path) -> None:
    """Write a log with clicks on ads, the more the better the score is."""
    rng, now = random.Random(6), time.time()
    bundle = open_bundle(find_bundle(whole.root / "bundles", "planted")).manifest
    lists, events = [], []
    for number in range(3600):
        id, score, place = f"q{number}", rng.uniform(0, 8), f"p{rng.randrange(4)}"
        ads = ((0, place, score),)
        served = ServedList(
            id, now, "page", ["x"], "match", model=bundle.version, model_id=bundle.model_id, ads=ads
        )
        lists.append(served.line())
        is_click = rng.random() < (0.2 + 0.1 * score) * (0.5 if place == "p0" else 1)
        actions = ["impression", "click"] if is_click else ["impression"]
        events += [Event(action, now, {"query_id": id}, "x").line() for action in actions]
    for kind, lines in ((LISTS, lists), (EVENTS, events)):
        writer = SegmentWriter(tmp_path / "events", kind)
        writer.append(lines)
        writer.close()


async def test_pages_by_value_need_clicks(clients: list[Client]) -> None:
    asked = {"page": {"text": "copy"}, "placements": [{"id": "p0"}], "rank": "value"}
    status, refused = await all_equal(clients, "POST", "/v1/match", json=asked)
    assert (status, refused["type"].rpartition(":")[2]) == (409, "too-few-clicks")


@pytest.mark.usefixtures("clicks")
@pytest.mark.parametrize(
    ("seed", "limits"),
    [
        (0, {}),
        (1, {"FIRST": 3, "FACTOR": 2}),
        # Not read to its end, so some pages are not certified.
        (2, {"FIRST": 3, "MOST": 12}),
        *(pytest.param(seed, {}, marks=pytest.mark.slow) for seed in range(3, 20)),
    ],
)
async def test_pages_by_value_are_equal(
    clients: list[Client],
    whole: Whole,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    limits: dict[str, int],
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(placing, name, value)
    asked = {"page": {"text": "copy"}, "placements": [{"id": "p0"}], "rank": "value"}
    for client in clients:
        async with asyncio.timeout(30):
            while (await client.post("/v1/match", json=asked)).status_code == 409:
                await asyncio.sleep(0.02)
    rng = random.Random(seed)
    certified, values = list[bool](), list[float]()
    for _ in range(20):
        cur = rng.choice(["EUR", "USD"])
        body: dict[str, Any] = {**page(rng, whole.ids), "rank": "value", "cur": cur}
        for one in body["placements"]:
            one.pop("bidfloorcur", None)
        status, found = await all_equal(clients, "POST", "/v1/match", json=body)
        assert status in (200, 422)
        if status == 200:
            certified.append(found["certified"])
            hits = [hit for one in found["placements"] for hit in one["hits"]]
            values += [hit["value"]["value"] for hit in hits if hit["value"]]
    assert any(certified)
    assert all(certified) == ("MOST" not in limits)
    assert len(set(values)) > 10


async def test_a_missing_shard_fails_pages(
    clients: list[Client], shards: dict[str, FailingShards]
) -> None:
    body = {"page": {"text": "copy files"}, "placements": [{"id": "p0", "count": 40}]}
    _, expected = await all_equal(clients, "POST", "/v1/match", json=body)
    of_three = [*shards.values()][1]
    of_three.failing = {0, 1, 2}
    lost = await clients[2].post("/v1/match", json=body)
    assert (lost.status_code, lost.json()["type"].rpartition(":")[2]) == (503, "documents-missing")
    of_three.failing = set()
    assert (await all_equal(clients, "POST", "/v1/match", json=body))[1] == expected


async def test_a_hit_that_is_gone_leaves_its_place_to_no_other_one(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that is deleted while its page is put together."""
    slots = [{"id": "p0", "count": 7}, {"id": "p1", "count": 7, "min_score": -9.0}]
    body = {"page": {"text": "copy files"}, "placements": slots, "per_advertiser": 60}
    _, before = await all_equal(clients, "POST", "/v1/match", json=body)
    gone = placed(before)[2]
    show = answering._show

    def shown(view: View, asked: Show) -> list[Shown | None]:
        pairs = zip(asked.hits.ids, show(view, asked), strict=True)
        return [None if id == gone else own for id, own in pairs]

    monkeypatch.setattr(answering, "_show", shown)
    for one in before["placements"]:
        one["hits"] = [hit for hit in one["hits"] if hit["id"] != gone]
    for client in clients[1:]:
        found = (await client.post("/v1/match", json=body)).json()
        assert found["placements"] == before["placements"]


@pytest.fixture(params=[True, False], ids=["ads", "no ads"])
def live_whole(request: pytest.FixtureRequest, tmp_path: Path) -> Whole:
    """A corpus with ads, or one whose first ads are live; one for each test, because compactions add versions."""
    (tmp_path / "whole").mkdir()
    further = ad_of_the_corpus if request.param else lambda _: {}
    return Whole(tmp_path / "whole", 120, further=further)


def advertised(rng: random.Random) -> dict[str, Any]:
    found = body(rng)
    if rng.random() < 0.8:
        found["ad"] = some_ad(rng)
        if rng.random() < 0.8:
            found["ad"].pop("end", None)
    return found


async def write(rng: random.Random, ids: list[str], clients: list[Client]) -> int:
    """Write a random ad to all; return the number of the write."""
    id, kind = rng.choice(ids), rng.random()
    if kind < 0.5:
        return (await written(clients, "PUT", f"/v1/documents/{id}", json=advertised(rng)))[1]
    if kind < 0.6:
        changes = {"ad": rng.choice([None, some_ad(rng)])}
        return (await written(clients, "PATCH", f"/v1/documents/{id}", json=changes))[1]
    if kind < 0.8:
        return (await written(clients, "DELETE", f"/v1/documents/{id}"))[1]
    lines = [{"_id": rng.choice(ids), **advertised(rng)} for _ in range(8)]
    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": str(rng.random())}
    content = "\n".join(map(json.dumps, lines))
    bulk = await written(clients, "POST", "/v1/documents:bulk", content=content, headers=headers)
    return bulk[1]


@pytest.mark.parametrize(
    "seed",
    [0, 10, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20) if seed != 10)],
)
async def test_written_ads_change_pages_equally(
    live_whole: Whole, tmp_path: Path, new_database: NewDatabase, seed: int
) -> None:
    places = Places(live_whole, tmp_path, new_database)
    rng = random.Random(seed)
    ids = [*rng.sample(live_whole.ids, 25), *(f"new/{number}" for number in range(15))]
    seq = live = 0

    async def ask(clients: list[Client]) -> int:
        """Ask all for a page; return the number of written ads on it."""
        body = {**page(rng, ids), "min_seq": seq, "fields": ["ad"]}
        body["page"]["text"] += " " + rng.choice(NEW_WORDS)
        status, found = await all_equal(clients, "POST", "/v1/match", json=body)
        if status != 200:
            return 0
        assert found["certified"]
        hits = [hit for one in found["placements"] for hit in one["hits"]]
        return sum(bool(hit["fields"].get("ad")) and hit["id"] in ids for hit in hits)

    async with places.clients() as clients:
        rounds = 0
        # Some seeds write few ads that fit the pages.
        while rounds < 20 or (live <= 5 and rounds < 60):
            rounds += 1
            seq = max(seq, await write(rng, ids, clients))
            live += (await ask(clients)) + (await ask(clients))
    assert live > 5
    places.compact()
    async with places.clients() as clients:
        for _ in range(10):
            seq = max(seq, await write(rng, ids, clients))
            await ask(clients)
