"""Ads ranked by value over HTTP: refused until enough clicks are counted, then price × probability."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank.events.people import read_key
from fullrank_service.ads.counts import CLICK, FILE, IMPRESSION, Counts, Report
from fullrank_service.ads.tokens import LIFETIME_S, Served, Signer
from fullrank_service.http.match_schemas import MatchReply
from tests.api.conftest import Root
from tests.api.support import running
from tests.api.test_ads import put

pytestmark = pytest.mark.anyio

PAGE = {"text": "copy files to a remote host"}
PRICES = {
    "cheap": ("a.example", 1, "EUR"),
    "dear": ("b.example", 4, "EUR"),
    "usd": ("c.example", 9, "USD"),
}


@pytest.fixture
async def client(root: Root, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setattr("fullrank_service.ads.calibrations.POLL_S", 0.02)
    async with running(root.path) as client:
        yield client


async def put_ads(client: httpx.AsyncClient) -> int:
    """Write ads of which the cheapest has the best score; give the last sequence number."""
    seq = 0
    for id, (domain, price, cur) in PRICES.items():
        text = "copy files to a remote host" if id == "cheap" else "copy files"
        ad = {"adomain": [domain], "price": price, "cur": cur}
        seq = (await put(client, id, ad=ad, text=text)).json()["seq"]
    return seq


async def match(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    asked = {
        "page": PAGE,
        "placements": [{"id": "top", "count": 3}],
        "targeting": {"title": "copy files"},
        "cur": "EUR",
        **body,
    }
    return await client.post("/v1/match", json=asked)


def count_clicks(root: Path, model: str, clicks: int) -> None:
    """Count clicks on ads of a model, and three times as many other impressions, without regard to their score."""
    counts, now = Counts(root / FILE), time.time()
    reports = []
    for number in range(4 * clicks):
        score = float(number // 4 % 2)
        id = f"{number:016x}{model[:16]:0>16}"
        served = Served(id, now + LIFETIME_S, "learned", model, "", "x", 1.0, score, "top")
        kinds = [IMPRESSION, CLICK] if number % 4 == 0 else [IMPRESSION]
        reports += [Report(kind, served, f"{model} {number}", now) for kind in kinds]
    counts.count(reports)
    counts.close()


async def test_value_needs_a_thousand_clicks_of_this_model(
    client: httpx.AsyncClient, root: Root
) -> None:
    seq = await put_ads(client)
    hits = (await match(client, min_seq=seq)).json()
    assert hits["rank"] == "relevance"
    assert [hit["id"] for hit in hits["placements"][0]["hits"]] == ["cheap", "dear"]
    refused = await match(client, min_seq=seq, rank="value")
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:fullrank:problem:too-few-clicks"
    assert refused.json()["detail"].startswith("0 clicks")
    token = hits["placements"][0]["hits"][0]["token"]
    model = Signer(read_key(root.path / ".events.key")).read(token).model
    # Clicks of another model do not help.
    count_clicks(root.path, "0" * 16, 1000)
    count_clicks(root.path, model, 999)
    end = time.monotonic() + 20
    while "999 clicks" not in (await match(client, rank="value")).json()["detail"]:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def test_value_is_price_times_the_probability_of_a_click(
    client: httpx.AsyncClient, root: Root
) -> None:
    seq = await put_ads(client)
    token = (await match(client, min_seq=seq)).json()["placements"][0]["hits"][0]["token"]
    model = Signer(read_key(root.path / ".events.key")).read(token).model
    count_clicks(root.path, model, 1000)
    end = time.monotonic() + 20
    while (found := await match(client, rank="value", explain=True)).status_code == 409:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
    reply = found.json()
    MatchReply.model_validate(reply)
    assert reply["rank"] == "value"
    assert reply["left_out"] == {"cur": 1}
    first, second = reply["placements"][0]["hits"]
    # Clicks depend on nothing, so the price decides.
    assert [first["id"], second["id"]] == ["dear", "cheap"]
    assert first["score"] < second["score"]
    for hit in (first, second):
        value, price = hit["value"], PRICES[hit["id"]][1]
        assert value["price"] == price
        assert value["probability"] == pytest.approx(0.25, abs=0.02)
        assert value["value"] == value["price"] * value["probability"]
    plain = (await match(client, rank="value")).json()["placements"][0]["hits"]
    assert [hit["id"] for hit in plain] == ["dear", "cheap"]
    assert plain[0]["value"] is None
    # Without a currency that of OpenRTB is meant.
    dollars = (await match(client, rank="value", cur=None)).json()["placements"][0]["hits"]
    assert [hit["id"] for hit in dollars] == ["usd"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"rank": "price"}, "relevance"),
        ({"cur": "eur"}, "pattern"),
        (
            {"rank": "value", "placements": [{"id": "a"}, {"id": "b", "bidfloorcur": "USD"}]},
            "is not cur, EUR: no ad has both currencies",
        ),
    ],
)
async def test_bad_ranks_and_currencies_are_refused(
    client: httpx.AsyncClient, body: dict[str, Any], reason: str
) -> None:
    response = await match(client, **body)
    assert response.status_code == 422
    assert reason in response.json()["errors"][0]["reason"]


async def test_without_events_there_is_no_value(root: Root) -> None:
    async with running(root.path, events=False) as client:
        response = await match(client, rank="value")
    assert response.status_code == 409
    assert "events are off" in response.json()["detail"]
