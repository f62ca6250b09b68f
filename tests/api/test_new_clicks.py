"""New clicks count in rankings before any training: over HTTP, from the log that the service writes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.events.log import EventLog
from fullrank.models.linear import LinearModel
from fullrank.models.memory import MemoryModel
from fullrank.models.mixed import MixedModel
from fullrank.storage.documents import Document
from fullrank.storage.strings import Lexicon
from tests.api.support import AUTH, Client, at, make_bundle, running

pytestmark = pytest.mark.anyio
KAPPA, WEIGHT, POPULAR = 3.0, 3.0, 0.5
DOCUMENTS = [
    Document(id, {"title": f"Red {kind}", "price": i})
    for i, (id, kind) in enumerate([("boot", "boot"), ("shoe", "shoe"), ("hat", "hat")])
]


def counting(words: LinearModel) -> MixedModel:
    parts = [
        MemoryModel(Lexicon.of([]), np.zeros(0, np.float32), KAPPA, is_of_queries=of_queries)
        for of_queries in (True, False)
    ]
    return MixedModel([words, *parts], [1.0, WEIGHT, POPULAR])


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    make_bundle(tmp_path, "shop", DOCUMENTS, wrap=counting, created=at(1))
    return tmp_path


def serving(root: Path, **settings: Any) -> Any:
    return running(root, usage_refresh_s=1, **settings)


async def search(client: Client, query: str = "red", **asked: Any) -> dict[str, Any]:
    return await client.search(query, **{"explain": True, **asked})


async def click(client: Client, id: str, user: str, query: str = "red") -> None:
    found = await search(client, query, user_id=user)
    event = {
        "action_name": "click",
        "timestamp": time.time() * 1000,
        "query_id": found["query_id"],
        "event_attributes": {"object": {"object_id": id}},
    }
    response = await client.post("/v1/events", json={"events": [event]})
    assert response.status_code == 200, response.text


def clicks_on(found: dict[str, Any], id: str) -> tuple[float, float]:
    [clicks] = [hit["explanation"]["clicks"] for hit in found["hits"] if hit["id"] == id]
    return clicks["after_query"], clicks["in_all"]


async def until(
    client: Client, reached: Callable[[dict[str, Any]], bool], query: str = "red"
) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while not reached(found := await search(client, query)):
            await asyncio.sleep(0.05)
    return found


def first(found: dict[str, Any]) -> str:
    id: str = found["hits"][0]["id"]
    return id


async def metric(client: Client, name: str) -> float:
    text = (await client.get("/metrics", headers=AUTH)).text
    [line] = [line for line in text.splitlines() if line.startswith(f"fullrank_{name}")]
    return float(line.split()[-1])


async def test_clicked_documents_rise_and_a_restart_keeps_it(shop: Path) -> None:
    async with serving(shop) as client:
        before = await search(client)
        last = before["hits"][-1]["id"]
        assert last == "shoe"
        for user in ("ann", "bob", "cleo"):
            await click(client, last, user)
        found = await until(client, lambda found: clicks_on(found, last) == (3, 3))
        assert first(found) == last
        hit = found["hits"][0]
        parts = hit["explanation"]
        old = before["hits"][-1]["score"]
        assert hit["score"] == pytest.approx(old + WEIGHT * np.log(2) + POPULAR * np.log(4))
        assert hit["score"] == pytest.approx(parts["dense"] + parts["lexical"] + parts["bias"])
        assert parts["words"][0]["word"] == "“red”"
        assert parts["clicks"] == {
            "after_query": 3,
            "lexical": pytest.approx(WEIGHT * np.log(2)),
            "in_all": 3,
            "bias": pytest.approx(POPULAR * np.log(4)),
        }
        assert found["total"] == before["total"]
        # After another query it is popular, no more.
        other = await search(client, "red boot hat shoe")
        assert clicks_on(other, last) == (0, 3)
        others = await search(client, filter={"price": {"in": [0, 2]}})
        assert {hit["id"] for hit in others["hits"]} == {"boot", "hat"}
        # The pages of a cursor are those of a list that does not change.
        paged = await search(client, cursor="*")
        assert [hit["score"] for hit in paged["hits"]] == [hit["score"] for hit in before["hits"]]
    async with serving(shop) as client:
        await until(client, lambda found: first(found) == last)
        assert await metric(client, "new_clicks_documents") == 1


async def test_one_person_counts_as_often_as_in_training(shop: Path) -> None:
    async with serving(shop) as client:
        for query in [f"red{'!' * n}" for n in range(1, 21)] * 3:
            await click(client, "hat", "ann", query)
        await click(client, "shoe", "bob")
        found = await until(client, lambda found: clicks_on(found, "shoe")[1] == 1)
        # Each spelling of the query once a day, and ten times in all.
        assert clicks_on(found, "hat") == (10, 10)


async def test_clicks_of_erased_people_and_of_the_setting(shop: Path) -> None:
    async with serving(shop) as client:
        for user in ("ann", "bob"):
            await click(client, "hat", user)
        await until(client, lambda found: clicks_on(found, "hat") == (2, 2))
        response = await client.delete("/v1/events/users/ann", headers=AUTH)
        assert response.status_code < 300, response.text
        await until(client, lambda found: clicks_on(found, "hat") == (1, 1))
    async with serving(shop, live_clicks=False) as client:
        assert clicks_on(await search(client), "hat") == (0, 0)


async def test_what_a_bundle_has_learned_is_not_new(shop: Path) -> None:
    async with serving(shop) as client:
        await click(client, "hat", "ann")
        await until(client, lambda found: clicks_on(found, "hat") == (1, 1))
    for age, expected in ((3600, 1), (-60, 0)):
        now = time.time()
        card = {"clicks": {"until": now - age}}
        make_bundle(shop, "shop", DOCUMENTS, wrap=counting, card=card)
        async with serving(shop) as client:
            async with asyncio.timeout(20):
                while await metric(client, "new_clicks_read_timestamp_seconds") < now:
                    await asyncio.sleep(0.05)
            assert clicks_on(await search(client), "hat") == (expected, expected)


async def test_exploration_lifts_nothing_above_a_clicked_document(tmp_path: Path) -> None:
    more = [Document(f"d{i:02}", {"title": f"Red thing {i}"}) for i in range(30)]
    make_bundle(tmp_path, "shop", more, wrap=counting, created=at(1))
    async with serving(tmp_path, explore=0.25) as client:
        await click(client, "d04", "ann")
        await until(client, lambda found: first(found) == "d04")
        found = [await search(client, explain=False) for _ in range(80)]
        await search(client, record=False)
    assert {first(one) for one in found} == {"d04"}
    assert all(hit["explanation"] is None for one in found for hit in one["hits"])
    asked = {one["query_id"] for one in found}
    lists = [one for one in EventLog(tmp_path / ".events").lists() if one.query_id in asked]
    assert 0 not in {one.pair for one in lists}
    assert any(one.swapped for one in lists)
    assert any(one.inserted for one in lists)
