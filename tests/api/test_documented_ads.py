"""Every example of docs/ads.md runs, in its order."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.examples import REST, differences, of_curl, read_json

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ads.md"


def blocks() -> list[str]:
    """Return the indented blocks of the page."""
    found = re.findall(r"(?:^    .*\n)+", PAGE.read_text("utf-8"), re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE).strip() for block in found]


async def match(client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    response = await client.post("/v1/match", json=body)
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    return reply


async def test_the_examples_of_the_page_run(client: httpx.AsyncClient) -> None:
    put, left_out, event, by_value = blocks()
    example = of_curl(put)
    written = await client.request(example.method, example.path, json=example.body)
    assert written.status_code == 200, written.text
    others = {f"b{number}": {"adomain": ["b.example"], "price": 9} for number in range(12)}
    others |= {f"c{number}": {"adomain": [f"c{number}.example"], "price": 1} for number in range(2)}
    others["paused"] = {"adomain": ["d.example"], "status": "paused"}
    for id, ad in others.items():
        fields = {"title": "boots", "ad": {**ad, "cur": "EUR"}}
        seq = (await client.put(f"/v1/documents/{id}", json=fields)).json()["seq"]
    page = {"page": {"text": "waterproof boots"}, "min_seq": seq, "badv": ["b.example"]}
    ads = {"targeting": {"title": {"in": ["Waterproof boots", "boots"]}}}
    floored = {"cur": "EUR", "placements": [{"id": "top", "bidfloor": 2.6}], "explain": True}
    reply = await match(client, page | ads | floored)
    [shown] = read_json("{" + left_out + "}")
    assert list(differences(shown | {REST: None}, reply)) == []

    reply = await match(client, page | ads | {"placements": [{"id": "top"}]})
    [hit] = reply["placements"][0]["hits"]
    assert hit["id"] == "boots"
    reported = json.loads(event.replace("…", hit["token"]))
    reported["timestamp"] = datetime.now(UTC).isoformat()
    verdicts = (await client.post("/v1/events", json=[reported])).json()["verdicts"]
    assert [verdict["ad"] for verdict in verdicts] == ["impression"]

    refused = await client.post("/v1/match", json=json.loads(by_value))
    assert refused.status_code == 409
    assert refused.json()["type"].endswith(":too-few-clicks")
