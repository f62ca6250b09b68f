"""Ads over HTTP: written with their checks, placed by the rules of a page, and ranked by value once people clicked."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from fullrank.replies import MatchReply
from fullrank.storage.documents import Document
from tests.api.conftest import Root
from tests.api.support import CORPUS, Client, make_bundle, ok, running

pytestmark = pytest.mark.anyio

PAGE = {"text": "copy files to a remote host"}


def ad(domain: str, **more: Any) -> dict[str, Any]:
    return {"adomain": [domain], "price": 1, "cur": "EUR", **more}


GONE = "is no longer a field: an ad server keeps budgets and caps, see docs/guides/ads.md"


async def put(client: Client, id: str, **fields: Any) -> httpx.Response:
    body = {"title": "copy files", "text": "copy files to a remote host", **fields}
    return await client.put(f"/v1/documents/{id}", json=body)


async def match(client: Client, **body: Any) -> dict[str, Any]:
    placements = body.pop("placements", [{"id": "top", "count": 3}])
    reply: dict[str, Any] = ok(
        await client.post("/v1/match", json={"page": PAGE, "placements": placements, **body})
    )
    TypeAdapter(MatchReply).validate_python(reply)
    return reply


def ids(reply: dict[str, Any]) -> list[list[str]]:
    return [[hit["id"] for hit in placement["hits"]] for placement in reply["placements"]]


@pytest.mark.parametrize(
    ("given", "field", "reason"),
    [
        (ad("a.example", start="2026-01-01T00:00:00"), "ad.start", "has no offset, such as Z or +01:00"),
        (ad("a.example", budget={"amount": 5}), "ad.budget", GONE),
        (ad("a.example", end="2020-01-01T00:00:00Z"), "ad.end", "has passed: the ad could never be shown"),
        ({"price": 1}, "ad.adomain", "Field required"),
        ("x", "ad", "is not an object"),
    ],
)  # fmt: skip
async def test_a_bad_ad_is_refused_when_it_is_written(
    reader: Client, given: Any, field: str, reason: str
) -> None:
    response = await put(reader, "x", ad=given)
    assert response.status_code == 422
    assert response.json()["errors"] == [{"field": f"body.{field}", "reason": reason}]
    line = httpx.Response(200, json={"_id": "x", "title": "x", "ad": given}).content
    headers = {"Content-Type": "application/x-ndjson"}
    bulk = await reader.post("/v1/documents:bulk", content=line, headers=headers)
    assert bulk.json()["error"] == f"{field}: {reason}"


async def test_a_document_without_an_ad_may_name_the_field(client: Client) -> None:
    assert (await put(client, "x", ad=None)).status_code == 200
    refused = await client.patch("/v1/documents/x", json={"ad": "x"})
    assert refused.json()["errors"] == [{"field": "body.ad", "reason": "is not an object"}]


async def test_a_stored_ad_does_not_keep_its_document_from_a_patch(tmp_path: Path) -> None:
    old = ad("a.example", budget={"amount": 1}, end="2020-01-01T00:00:00Z")
    make_bundle(tmp_path, "ads", [*CORPUS, Document("old", {"title": "copy", "ad": old})])
    async with running(tmp_path) as client:
        patched = await client.patch("/v1/documents/old", json={"title": "move"})
        assert patched.status_code == 200, patched.text
        refused = await client.patch("/v1/documents/old", json={"ad": old})
        assert refused.json()["errors"] == [{"field": "body.ad.budget", "reason": GONE}]


async def test_written_ads_obey_the_rules_of_a_page(client: Client) -> None:
    for number, given in enumerate(
        [
            ad("a.example", seat="s1", cat=["552"], cattax=7, price=3),
            ad("a.example", seat="s1"),
            ad("b.example", attr=[3], status="paused"),
            ad("b.example", attr=[3], cur="USD", price=9),
        ]
    ):
        seq = (await put(client, f"ad{number}", ad=given)).json()["seq"]
    only = {"targeting": {"title": "copy files"}, "min_seq": seq}
    whole = await match(client, **only, explain=True)
    assert ids(whole) == [["ad0", "ad3"]]
    assert whole["left_out"] == {"status": 1, "per_advertiser": 1}
    assert whole["placements"][0]["left_out"] == {}
    assert whole["placements"][0]["hits"][0]["explanation"] is not None
    assert ids(await match(client, **only, per_advertiser=2)) == [["ad0", "ad1", "ad3"]]
    assert ids(await match(client, **only, badv=["Example"])) == [[]]
    assert ids(await match(client, **only, bcat=["552"], cattax=7)) == [["ad1", "ad3"]]
    assert ids(await match(client, **only, acat=["552"], cattax=7)) == [["ad0"]]
    assert ids(await match(client, **only, wseat=["s1"])) == [["ad0"]]
    assert ids(await match(client, **only, bseat=["s1"], battr=[3])) == [[]]
    placements = [{"id": "a", "bidfloor": 5}, {"id": "b", "bidfloorcur": "EUR", "bidfloor": 2}]
    floors = await match(client, **only, placements=placements, explain=True)
    assert ids(floors) == [["ad3"], ["ad0"]]
    assert [one["left_out"] for one in floors["placements"]] == [
        {"bidfloorcur": 2},
        {"bidfloorcur": 1, "bidfloor": 1},
    ]
    assert ids(await match(client, **only, placements=[{"id": "a", "min_score": 1e6}])) == [[]]
    plain = await match(client, **only)
    assert plain["left_out"] is None
    assert "left_out" in plain["placements"][0]


async def test_ads_of_a_bundle_obey_the_taxonomy_of_the_operator(tmp_path: Path) -> None:
    ads = [
        Document("bread", {"title": "copy", "text": "files", "ad": ad("a.example", cat=["2"], cattax=7)}),
        Document("car", {"title": "copy", "text": "files", "ad": ad("b.example", cat=["3"], cattax=7)}),
        Document("odd", {"title": "copy", "text": "files", "ad": {"adomain": "c.example"}}),
        # Release 0.1 stored budgets and caps.
        Document("old", {"title": "copy", "text": "files", "ad": ad("d.example", budget={"amount": 1}, cap={})}),
    ]  # fmt: skip
    root = tmp_path / "bundles"
    make_bundle(root, "ads", [*CORPUS, *ads])
    tree = tmp_path / "taxonomy.tsv"
    tree.write_text("1\t\n2\t1\n3\t\n")
    asked = {"bcat": ["1"], "cattax": 7, "placements": [{"id": "a", "count": 20}], "explain": True}
    async with running(root) as client:
        [whole] = ids(await match(client, **asked))
        assert {"bread", "car", "old"} <= set(whole)
        assert "odd" not in whole
    async with running(root, ad_taxonomy=tree) as client:
        reply = await match(client, **asked)
    assert "car" in ids(reply)[0]
    assert "bread" not in ids(reply)[0]
    assert reply["left_out"] == {"malformed": 1, "bcat": 1}


async def test_a_reason_has_its_braces_once(reader: Client) -> None:
    asked = {"page": PAGE, "placements": [{"id": "a", "bidfloorcur": "eur"}], "cur": "eur"}
    response = await reader.post("/v1/match", json=asked)
    errors = {one["field"]: one["reason"] for one in response.json()["errors"]}
    assert errors["body.cur"] == "String should match pattern '^[A-Z]{3}$'"
    assert errors["body.placements.0.bidfloorcur"] == errors["body.cur"]


PRICES = {"cheap": (1, "EUR"), "dear": (4, "EUR"), "usd": (9, "USD")}


async def put_priced(client: Client) -> int:
    """Write ads of which the cheapest has the best score; give the last sequence number."""
    seq = 0
    for id, (price, cur) in PRICES.items():
        text = "copy files to a remote host" if id == "cheap" else "copy files"
        given = ad(f"{id}.example", price=price, cur=cur)
        seq = (await put(client, id, ad=given, text=text)).json()["seq"]
    return seq


async def by_value(client: Client, **more: Any) -> httpx.Response:
    asked = {"page": PAGE, "placements": [{"id": "top", "count": 3}], "rank": "value", **more}
    targeting = {"title": "copy files"}
    return await client.post("/v1/match", json={"targeting": targeting, "cur": "EUR", **asked})


def event(action: str, query_id: str, id: str) -> dict[str, Any]:
    attributes = {"object": {"object_id": id}}
    at = datetime.now(UTC).isoformat()
    return {
        "action_name": action,
        "timestamp": at,
        "query_id": query_id,
        "event_attributes": attributes,
    }


async def test_value_is_price_times_the_probability_of_a_click(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_service.completion.calibrations.MIN_CLICKS", 24)
    async with running(root.path) as client:
        seq = await put_priced(client)
        refused = await by_value(client, min_seq=seq)
        assert refused.status_code == 409
        assert refused.json()["type"] == "urn:fullrank:problem:too-few-clicks"
        assert " 0 clicks on ads " in refused.json()["detail"]
        events = []
        for number in range(48):
            page = await match(client, targeting={"title": "copy files"}, cur="EUR")
            assert ids(page) == [["cheap", "dear"]]
            for id in ids(page)[0]:
                events.append(event("impression", page["query_id"], id))
                # Clicks depend on nothing, so the price decides.
                if number % 4 == 0:
                    events.append(event("click", page["query_id"], id))
        assert (await client.post("/v1/events", json=events)).json()["kept"] == len(events)
    # A service that starts reads the log at once.
    async with running(root.path) as client:
        end = time.monotonic() + 20
        while (found := await by_value(client, min_seq=seq, explain=True)).status_code == 409:
            assert time.monotonic() < end
            await asyncio.sleep(0.02)
        reply = found.json()
        TypeAdapter(MatchReply).validate_python(reply)
        assert (reply["rank"], reply["left_out"]) == ("value", {"cur": 1})
        first, second = reply["placements"][0]["hits"]
        assert [first["id"], second["id"]] == ["dear", "cheap"]
        assert first["score"] < second["score"]
        for hit in (first, second):
            value, price = hit["value"], PRICES[hit["id"]][0]
            assert value["price"] == price
            assert value["probability"] == pytest.approx(0.25, abs=0.02)
            assert value["value"] == value["price"] * value["probability"]
        plain = (await by_value(client)).json()
        assert ids(plain) == [["dear", "cheap"]]
        assert plain["placements"][0]["hits"][0]["value"] is None
        # Without a currency that of OpenRTB is meant.
        assert ids((await by_value(client, cur=None)).json()) == [["usd"]]


async def test_an_event_that_names_its_ad_by_a_token_alone_is_refused(reader: Client) -> None:
    given = {**event("click", "q", "x"), "event_attributes": {"token": "abc"}}
    [verdict] = (await reader.post("/v1/events", json=[given])).json()["verdicts"]
    assert (verdict["result"], verdict["field"]) == ("refused", "event_attributes.token")
