"""A router over 1, 3 and 16 shards fills pages of ads as the unsharded service does, to the last bit of a score."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank.events.people import read_key
from fullrank.live import View
from fullrank_fleet.serving import answering
from fullrank_fleet.serving.wire import Show, Shown
from fullrank_service.ads import placing
from fullrank_service.ads.tokens import Signer
from tests.api.support import redis_process
from tests.unit.fleet.serving import ads
from tests.unit.fleet.serving.ads import pages_equal, stop_the_clock
from tests.unit.fleet.serving.routing import FailingShards, Whole
from tests.unit.fleet.serving.test_equal import CUTS

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    root = tmp_path_factory.mktemp("whole")
    ads.taxonomy(root)
    return Whole(root, 300, further=ads.ads_of_the_corpus)


@pytest.fixture(scope="module")
def sets(whole: Whole) -> list[str]:
    return [whole.cut(count) for count in CUTS]


@pytest.fixture
def shards(whole: Whole, sets: list[str]) -> Iterator[list[FailingShards]]:
    found = [FailingShards.of(address, whole.root / "cache") for address in sets]
    yield found
    for own in found:
        own.close()


@pytest.fixture
def settings(whole: Whole, tmp_path: Path) -> dict[str, Any]:
    return {
        "events_key": whole.root / "key",
        "ad_taxonomy": whole.root / "taxonomy.tsv",
        "documents": tmp_path / "documents.sqlite",
    }


@pytest.fixture
async def clients(
    whole: Whole,
    sets: list[str],
    shards: list[FailingShards],
    settings: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[list[httpx.AsyncClient]]:
    """The unsharded service, then the routers, at one moment; each has a folder of its own for its counts."""
    stop_the_clock(monkeypatch)
    async with AsyncExitStack() as stack:
        found = [await stack.enter_async_context(whole.service(**settings))]
        for cut, address, own in zip(CUTS, sets, shards, strict=True):
            folder = tmp_path / str(cut)
            folder.mkdir()
            settings["documents"] = folder / "documents.sqlite"
            router = whole.router(address, own, **settings)
            found.append(await stack.enter_async_context(router))
        yield found


@pytest.fixture
def signer(clients: list[httpx.AsyncClient], whole: Whole) -> Signer:
    return Signer(read_key(whole.root / "key"))


def folders(tmp_path: Path) -> list[Path]:
    """The folders of the counts of all clients."""
    return [tmp_path, *(tmp_path / str(cut) for cut in CUTS)]


def placed(found: Any) -> list[str]:
    return [hit["id"] for one in found["placements"] for hit in one["hits"]]


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))]
)
async def test_pages_are_equal(
    clients: list[httpx.AsyncClient], signer: Signer, whole: Whole, seed: int
) -> None:
    rng = random.Random(seed)
    with_token, reasons = 0, set[str]()
    for _ in range(40):
        status, found = await pages_equal(clients, signer, ads.page(rng, whole.ids))
        assert status in (200, 422)
        if status == 200:
            assert found["certified"]
            with_token += any(hit["token"] for one in found["placements"] for hit in one["hits"])
            reasons |= set(found["left_out"] or {})
            reasons |= {name for one in found["placements"] for name in one["left_out"] or {}}
    assert with_token > 20
    assert len(reasons) > 10


async def model_of(clients: Sequence[httpx.AsyncClient], signer: Signer) -> str:
    """Return the id of the model, as tokens have it."""
    body = {"page": {"text": "copy files"}, "placements": [{"id": "p0", "count": 20}]}
    _, found = await pages_equal(clients, signer, body)
    [model] = {hit["token"].model for hit in found["placements"][0]["hits"] if hit["token"]}
    assert isinstance(model, str)
    return model


@pytest.fixture
def quick_calibrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit clicks soon after they are counted."""
    monkeypatch.setattr("fullrank_service.ads.calibrations.POLL_S", 0.02)


@pytest.mark.usefixtures("quick_calibrations")
@pytest.mark.parametrize(
    ("seed", "limits"),
    [
        (0, {}),
        (1, {"FIRST": 3, "FACTOR": 2}),
        # Not read to its end, so some pages are not certified.
        (2, {"FIRST": 3, "MOST": 12}),
        *(pytest.param(seed, {}, marks=pytest.mark.slow) for seed in range(3, 12)),
    ],
)
async def test_pages_by_value_are_equal(
    clients: list[httpx.AsyncClient],
    signer: Signer,
    whole: Whole,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    limits: dict[str, int],
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(placing, name, value)
    asked = {"page": {"text": "copy"}, "placements": [{"id": "p0"}], "rank": "value"}
    status, refused = await pages_equal(clients, signer, asked)
    assert (status, refused["type"].rpartition(":")[2]) == (409, "too-few-clicks")
    model = await model_of(clients, signer)
    for folder in folders(tmp_path):
        ads.count_clicks(folder, model)
    for client in clients:
        end = time.monotonic() + 30
        while (await client.post("/v1/match", json=asked)).status_code == 409:
            assert time.monotonic() < end
            await asyncio.sleep(0.02)
    rng = random.Random(seed)
    certified, values = list[bool](), list[float]()
    for _ in range(20):
        body: dict[str, Any] = {
            **ads.page(rng, whole.ids),
            "rank": "value",
            "cur": rng.choice(["EUR", "USD"]),
        }
        for one in body["placements"]:
            one.pop("bidfloorcur", None)
        status, found = await pages_equal(clients, signer, body)
        assert status in (200, 422)
        if status == 200:
            certified.append(found["certified"])
            hits = [hit for one in found["placements"] for hit in one["hits"]]
            values += [hit["value"]["value"] for hit in hits if hit["value"]]
    assert any(certified)
    assert all(certified) == ("MOST" not in limits)
    assert len(set(values)) > 10


async def report(client: httpx.AsyncClient, *events: tuple[str, str]) -> list[str | None]:
    """Report (action, token) events; give what became of them as events of ads."""
    body = [
        {
            "action_name": action,
            "timestamp": time.time() * 1000,
            "event_attributes": {"token": token},
        }
        for action, token in events
    ]
    reply = await client.post("/v1/events", json=body)
    assert reply.status_code == 200, reply.text
    return [verdict.get("ad") for verdict in reply.json()["verdicts"]]


async def last_change(client: httpx.AsyncClient, last: int) -> None:
    """Wait until pages know what ads have spent up to a change."""
    found: Any = client
    ledger = found._transport.app.state.services.ads.events.spending
    async with asyncio.timeout(20):
        while ledger.excerpt("planted", 0.0).last < last:
            await asyncio.sleep(0.01)


@pytest.fixture
def unlimited_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one person click as often as it likes."""
    monkeypatch.setattr("fullrank_service.ads.counts.LIMITS", ())


@pytest.mark.usefixtures("unlimited_clients")
async def test_what_is_spent_and_seen_leaves_pages_equally(
    clients: list[httpx.AsyncClient], signer: Signer, whole: Whole
) -> None:
    rng = random.Random(5)
    clicks, reasons, results = 0, set[str](), set[str | None]()
    gone = 0
    for turn in range(12):
        body = {**ads.page(rng, whole.ids), "explain": True, "user": {"id": f"v{turn % 5}"}}
        status, before = await pages_equal(clients, signer, body)
        if status != 200:
            continue
        reasons |= set(before["left_out"])
        # Two pages, so that some clicks come too late for a budget.
        tokens: list[list[str]] = [[] for _ in clients]
        for _ in range(2):
            for client, own in zip(clients, tokens, strict=True):
                reply = (await client.post("/v1/match", json=body)).json()
                hits = [hit for one in reply["placements"] for hit in one["hits"]]
                own += [hit["token"] for hit in hits if hit["token"]][:12]
        verdicts = [
            await report(client, *((kind, t) for t in own for kind in ("impression", "click")))
            for client, own in zip(clients, tokens, strict=True)
        ]
        assert all(own == verdicts[0] for own in verdicts)
        results |= set(verdicts[0])
        clicks += verdicts[0].count("click")
        for client in clients:
            await last_change(client, clicks)
        _, after = await pages_equal(clients, signer, body)
        reasons |= set(after["left_out"])
        gone += placed(after) != placed(before)
    assert {"impression", "click", "over_budget"} <= results
    assert clicks > 30
    assert gone > 3
    assert {"budget", "cap"} <= reasons


@pytest.mark.usefixtures("unlimited_clients")
async def test_a_shard_that_starts_again_learns_what_was_spent(
    whole: Whole, sets: list[str], settings: dict[str, Any]
) -> None:
    """Its ads stay off the page whose budget they have used up."""
    address = sets[1]
    shards = FailingShards.of(address, whole.root / "cache")
    body: dict[str, Any] = {
        "page": {"text": "copy files"},
        "placements": [{"id": "p0", "count": 60}],
        "per_advertiser": 60,
    }
    async with whole.router(address, shards, **settings) as client:
        first_page = (await client.post("/v1/match", json=body)).json()
        tokens = [hit["token"] for hit in first_page["placements"][0]["hits"] if hit["token"]]
        events = [(kind, token) for token in tokens for kind in ("impression", "click")]
        clicks = (await report(client, *events)).count("click")
        await last_change(client, clicks)
        expected = (await client.post("/v1/match", json={**body, "explain": True})).json()
        assert placed(expected) != placed(first_page)
        again = FailingShards.of(address, whole.root / "cache")
        shards.replace(again)
        found = (await client.post("/v1/match", json={**body, "explain": True})).json()
    assert placed(found) == placed(expected)
    assert found["left_out"] == expected["left_out"]
    # More than the last changes, so that the shards had to ask for the others.
    assert clicks > 32
    shards.close()
    again.close()


async def test_a_missing_shard_fails_pages_and_reports(
    clients: list[httpx.AsyncClient], shards: list[FailingShards], signer: Signer
) -> None:
    body = {"page": {"text": "copy files"}, "placements": [{"id": "p0", "count": 40}]}
    _, expected = await pages_equal(clients, signer, body)
    reply = await clients[2].post("/v1/match", json=body)
    tokens = {h["id"]: h["token"] for h in reply.json()["placements"][0]["hits"] if h["token"]}
    shards[1].failing = {0, 1, 2}
    lost = await clients[2].post("/v1/match", json=body)
    assert (lost.status_code, lost.json()["type"].rpartition(":")[2]) == (503, "documents-missing")
    events = [
        {
            "action_name": "impression",
            "timestamp": time.time() * 1000,
            "event_attributes": {"token": token},
        }
        for token in tokens.values()
    ]
    lost = await clients[2].post("/v1/events", json=events)
    assert (lost.status_code, lost.json()["type"].rpartition(":")[2]) == (503, "documents-missing")
    shards[1].failing = set()
    assert (await pages_equal(clients, signer, body))[1] == expected
    # Nothing was counted.
    found = await clients[2].post("/v1/events", json=events)
    assert [one["ad"] for one in found.json()["verdicts"]] == ["impression"] * len(tokens)


async def test_a_hit_that_is_gone_leaves_its_place_to_no_other_one(
    clients: list[httpx.AsyncClient], signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that is deleted while its page is put together."""
    slots = [{"id": "p0", "count": 7}, {"id": "p1", "count": 7, "min_score": -9.0}]
    body = {"page": {"text": "copy files"}, "placements": slots, "per_advertiser": 60}
    _, before = await pages_equal(clients, signer, body)
    gone = placed(before)[2]
    show = answering._show

    def shown(view: View, asked: Show) -> list[Shown | None]:
        pairs = zip(asked.hits.ids, show(view, asked), strict=True)
        return [None if id == gone else own for id, own in pairs]

    monkeypatch.setattr(answering, "_show", shown)
    for one in before["placements"]:
        one["hits"] = [hit for hit in one["hits"] if hit["id"] != gone]
    for client in clients[1:]:
        _, found = ads.match_of(await client.post("/v1/match", json=body), signer)
        assert found["placements"] == before["placements"]


async def test_caps_are_shared_by_routers(
    whole: Whole, sets: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_the_clock(monkeypatch)
    body: dict[str, Any] = {
        "page": {"text": "copy files"},
        "placements": [{"id": "p0", "count": 60}],
        "per_advertiser": 60,
        "user": {"id": "u"},
        "explain": True,
    }
    own = FailingShards.of(sets[1], whole.root / "cache")
    async with AsyncExitStack() as stack:
        stack.callback(own.close)
        url, _ = stack.enter_context(redis_process(tmp_path))
        one, other = [
            await stack.enter_async_context(
                whole.router(
                    sets[1],
                    own,
                    name=name,
                    events_key=whole.root / "key",
                    ad_shared_budgets=True,
                    redis_url=url,
                    redis_timeout_ms=2000,
                )
            )
            for name in ("one", "other")
        ]
        first = (await one.post("/v1/match", json=body)).json()
        tokens = [hit["token"] for hit in first["placements"][0]["hits"] if hit["token"]]
        results = await report(one, *(("impression", token) for token in tokens))
        assert set(results) == {"impression"}
        capped = (await other.post("/v1/match", json=body)).json()
        assert capped["left_out"].get("cap", 0) > first["left_out"].get("cap", 0)
        assert capped["left_out"] == (await one.post("/v1/match", json=body)).json()["left_out"]
