"""Impressions and clicks of ads: tied to a served hit by its token, each counted once."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

import httpx
import pytest

from fullrank.events.people import Pseudonyms, read_key
from tests.api.conftest import Root
from tests.api.support import AUTH, running

pytestmark = pytest.mark.anyio


async def put_ads(client: httpx.AsyncClient, count: int = 3) -> int:
    """Write some ads of different advertisers; give the last sequence number."""
    seq = 0
    for number in range(count):
        ad = {"adomain": [f"a{number}.example"], "price": 1.5, "cur": "EUR"}
        fields = {"title": "copy files", "text": "copy files", "ad": ad}
        response = await client.put(f"/v1/documents/ad{number}", json=fields)
        seq = response.json()["seq"]
    return seq


async def served(client: httpx.AsyncClient, seq: int, **more: Any) -> list[dict[str, Any]]:
    """Fill three places; give the hits."""
    body = {
        "page": {"text": "copy files"},
        "placements": [{"id": "top", "count": 3}],
        "targeting": {"title": "copy files"},
        "min_seq": seq,
        **more,
    }
    reply = (await client.post("/v1/match", json=body)).json()
    hits: list[dict[str, Any]] = reply["placements"][0]["hits"]
    return hits


async def report(
    client: httpx.AsyncClient, *events: tuple[str, str], agent: str = "Mozilla/5.0", **more: Any
) -> list[str | None]:
    """Report (action, token) events; give what became of them as events of ads."""
    body = [
        {
            "action_name": action,
            "timestamp": time.time() * 1000,
            "event_attributes": {"token": token},
            **more,
        }
        for action, token in events
    ]
    response = await client.post("/v1/events", json=body, headers={"User-Agent": agent})
    assert response.status_code == 200, response.text
    reply = response.json()
    assert reply["dropped_fields"] == 0
    return [verdict.get("ad") for verdict in reply["verdicts"]]


async def counted(client: httpx.AsyncClient, result: str) -> float:
    """Read the metric of one result."""
    for line in (await client.get("/metrics")).text.splitlines():
        if line.startswith(f'fullrank_ad_events_total{{result="{result}"}}'):
            return float(line.split()[-1])
    return 0.0


async def test_each_token_counts_once_and_a_click_after_its_impression(
    client: httpx.AsyncClient,
) -> None:
    first, second, third = await served(client, await put_ads(client))
    token = first["token"]
    assert len({first["token"], second["token"], third["token"]}) == 3
    assert await report(client, ("click", token)) == ["no_impression"]
    assert await report(client, ("impression", token), ("click", token)) == ["impression", "click"]
    assert await report(client, ("impression", token), ("Click", token)) == ["repeated"] * 2
    # Others may follow at once: other ads, but not a second click of the same client.
    events = [(kind, hit["token"]) for hit in (second, third) for kind in ("impression", "click")]
    assert await report(client, *events) == ["impression", "over_limit"] * 2
    assert await counted(client, "impression") == 3
    assert await counted(client, "click") == 1
    assert await counted(client, "repeated") == 2
    assert await counted(client, "over_limit") == 2
    assert await counted(client, "no_impression") == 1


async def test_people_are_told_apart_by_who_asked_for_the_page(client: httpx.AsyncClient) -> None:
    seq = await put_ads(client)
    pages = [await served(client, seq, user={"id": user}) for user in ("u1", "u2", "u1")]
    found = [
        # The id in the event is not that of the page, so it changes nothing.
        await report(client, ("impression", page[0]["token"]), client_id=f"c{number}")
        for number, page in enumerate(pages)
    ]
    assert found == [["impression"], ["impression"], ["over_limit"]]
    nameless = [(await served(client, seq))[1]["token"] for _ in range(3)]
    found = [
        await report(client, ("impression", token), client_id=id)
        for token, id in zip(nameless, ("x", "y", "y"), strict=True)
    ]
    assert found == [["impression"], ["impression"], ["over_limit"]]


async def test_a_token_shows_no_pseudonym_of_the_log(client: httpx.AsyncClient, root: Root) -> None:
    [ad] = await served(client, await put_ads(client, 1), user_id="ann")
    content = base64.urlsafe_b64decode(ad["token"] + "=" * (-len(ad["token"]) % 4))
    pseudonym = Pseudonyms(read_key(root.path / ".events.key")).of("ann")
    assert b'"ad0"' in content
    assert pseudonym.encode() not in content


async def test_programs_forged_tokens_and_other_documents_count_nothing(
    client: httpx.AsyncClient,
) -> None:
    [hit, *_] = await served(client, await put_ads(client))
    token = hit["token"]
    assert await report(client, ("impression", token), agent="Googlebot/2.1") == ["bot"]
    assert await report(client, ("impression", "x" + token)) == ["invalid"]
    other: dict[str, Any] = {"event_attributes": {"token": token, "object": {"object_id": "other"}}}
    assert await report(client, ("impression", token), **other) == ["invalid"]
    assert await report(client, ("purchase", token)) == [None]
    own: dict[str, Any] = {"event_attributes": {"token": token, "object": {"object_id": hit["id"]}}}
    assert await report(client, ("impression", token), **own) == ["impression"]
    assert await counted(client, "bot") == 1
    assert await counted(client, "invalid") == 2


async def test_other_workers_and_later_ones_know_a_token(root: Root) -> None:
    async with running(root.path) as client, running(root.path) as other:
        [hit, *_] = await served(client, await put_ads(client))
        assert await report(client, ("impression", hit["token"])) == ["impression"]
        assert await report(other, ("impression", hit["token"])) == ["repeated"]
        assert await report(other, ("click", hit["token"])) == ["click"]
    async with running(root.path) as later:
        assert await report(later, ("click", hit["token"])) == ["repeated"]


async def test_an_expired_token_counts_nothing(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_service.ads.tokens.LIFETIME_S", -1)
    [hit, *_] = await served(client, await put_ads(client))
    assert await report(client, ("impression", hit["token"])) == ["expired"]


async def test_documents_without_ads_and_services_without_events_have_no_tokens(root: Root) -> None:
    async with running(root.path) as client:
        body = {"page": {"text": "copy files"}, "placements": [{"id": "top", "count": 2}]}
        reply = (await client.post("/v1/match", json=body)).json()
        assert [hit["token"] for hit in reply["placements"][0]["hits"]] == [None, None]
    async with running(root.path, events=False) as client:
        assert [hit["token"] for hit in await served(client, await put_ads(client))] == [None] * 3


async def test_budgets_and_caps_take_ads_off_the_page(client: httpx.AsyncClient) -> None:
    own = {"adomain": ["a.example"], "price": 1.5}
    for id, more in (
        ("dear", {"budget": {"amount": 2}}),
        ("capped", {"cap": {"count": 1, "seconds": 60}}),
    ):
        fields = {
            "title": "copy files",
            "text": "copy files",
            "ad": own | more | {"adomain": [f"{id}.example"]},
        }
        seq = (await client.put(f"/v1/documents/{id}", json=fields)).json()["seq"]
    page = await served(client, seq, user={"id": "u1"})
    other = await served(client, seq, user={"id": "u2"})
    assert {hit["id"] for hit in page} == {"dear", "capped"}
    tokens = {hit["id"]: hit["token"] for hit in page}
    kinds = [("impression", tokens["dear"]), ("click", tokens["dear"])]
    assert await report(client, *kinds, ("impression", tokens["capped"])) == [
        "impression",
        "click",
        "impression",
    ]
    token = next(hit["token"] for hit in other if hit["id"] == "dear")
    assert await report(client, ("impression", token), ("click", token)) == [
        "impression",
        "over_budget",
    ]
    end = time.monotonic() + 10
    while [hit["id"] for hit in await served(client, seq, user={"id": "u2"})] != ["capped"]:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
    assert await served(client, seq, user={"id": "u1"}) == []
    await client.delete("/v1/events/users/u1", headers=AUTH)
    assert [hit["id"] for hit in await served(client, seq, user={"id": "u1"})] == ["capped"]
    token = (await served(client, seq, user={"id": "u1"}))[0]["token"]
    assert await report(client, ("impression", token)) == ["impression"]
    body = {
        "page": {"text": "copy files"},
        "placements": [{"id": "top"}],
        "user": {"id": "u1"},
        "explain": True,
        "min_seq": seq,
    }
    reply = (await client.post("/v1/match", json=body)).json()
    assert reply["left_out"] == {"budget": 1, "cap": 1}
