"""A router over 1, 3 and 16 shards answers as the unsharded service, to the last bit of a score."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from fullrank_service.http.keys import derive_key
from tests.api.support import KEY, Client, rules_applied
from tests.api.test_new_clicks import click, clicks_on, counting, search
from tests.unit.fleet.serving.equality import (
    FailingShards,
    Whole,
    all_equal,
    all_pages,
    condition,
    query,
    request,
    sides,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    root = tmp_path_factory.mktemp("whole")
    return Whole(root, 400, further=lambda number: {"sku": f"sk-{number % 30:04}"}, wrap=counting)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 30))]
)
async def test_searches_are_equal(clients: list[Client], seed: int) -> None:
    rng = random.Random(seed)
    statuses = []
    for _ in range(100):
        status, found = await all_equal(clients, "POST", "/v1/search", json=request(rng))
        statuses.append(status)
        if status == 200:
            assert found["certified"]
            assert found["covered"] == 1
    assert statuses.count(200) > 60
    assert statuses.count(200) + statuses.count(422) == 100


async def test_named_documents_are_equal(clients: list[Client]) -> None:
    for filter in (None, {"stars": {"gte": 4}}):
        asked = {"query": "SK-0007", "limit": 20, "explain": True, "filter": filter}
        _, found = await all_equal(clients, "POST", "/v1/search", json=asked)
        assert {hit["fields"]["sku"] for hit in found["hits"][:3]} == {"sk-0007"}


async def test_every_page_of_cursors_is_equal(clients: list[Client]) -> None:
    boost = [{"field": "stars", "log": True, "weight": 0.5}]
    searches: list[dict[str, Any]] = [
        {"query": "copy files", "limit": 7},
        {"query": "remote", "limit": 20, "boost": boost, "filter": {"is_new": True}},
        {"query": "list", "limit": 100, "min_score": -5.0},
    ]
    for body in searches:
        assert await all_pages(clients, body) > 2


async def test_batches_and_links_are_equal(clients: list[Client]) -> None:
    rng = random.Random(77)
    for _ in range(10):
        searches = [request(rng) for _ in range(3)]
        await all_equal(clients, "POST", "/v1/search:batch", json={"searches": searches})
        link = {"q": query(rng), "filter": json.dumps(condition(rng)), "facets": "brand"}
        await all_equal(clients, "GET", "/v1/search", params=link)


async def test_documents_and_similar_ones_are_equal(clients: list[Client], whole: Whole) -> None:
    for id in [*random.Random(5).sample(whole.ids, 25), "nowhere", "d/%F0%9F%99%82"]:
        path = f"/v1/documents/{id}"
        await all_equal(clients, "GET", path)
        await all_equal(clients, "GET", f"{path}/similar", params={"limit": 7, "offset": 2})
        await all_equal(clients, "GET", f"{path}/together")


async def test_a_tenant_sees_the_same(clients: list[Client], whole: Whole) -> None:
    token = derive_key(KEY, filter={"is_new": True})
    headers, rng = {"Authorization": f"Bearer {token}"}, random.Random(6)
    for _ in range(20):
        body = request(rng)
        await all_equal(clients, "POST", "/v1/search", json=body, headers=headers)
    statuses = []
    for id in rng.sample(whole.ids, 20):
        path = f"/v1/documents/{id}"
        statuses.append((await all_equal(clients, "GET", path, headers=headers))[0])
        await all_equal(clients, "GET", f"{path}/similar", headers=headers)
    assert {*statuses} == {200, 404}
    # Most shards have no document with this field.
    token = derive_key(KEY, filter={"rare": "only here"})
    headers = {"Authorization": f"Bearer {token}"}
    for id in rng.sample(whole.ids, 20):
        await all_equal(clients, "GET", f"/v1/documents/{id}", headers=headers)


async def test_pages_without_ads_are_filled_equally(clients: list[Client]) -> None:
    rng = random.Random(9)
    for _ in range(40):
        body = {
            "page": {"title": query(rng), "text": query(rng)},
            "placements": [
                {"id": f"p{i}", "count": rng.randint(1, 8)}
                | ({"min_score": rng.choice([0.0, 3.0, 6.0])} if rng.random() < 0.5 else {})
                for i in range(rng.randint(1, 4))
            ],
            "explain": rng.random() < 0.3,
        }
        if rng.random() < 0.5:
            body["targeting"] = condition(rng)
        status, _ = await all_equal(clients, "POST", "/v1/match", json=body)
        assert status == 200


async def test_words_and_completions_of_the_model_are_equal(clients: list[Client]) -> None:
    _, found = await all_equal(clients, "POST", "/v1/search", json={"query": "copy fiels"})
    assert found["did_you_mean"] == "copy files"


async def test_models_list_the_fields_and_titles_of_all_shards(
    clients: list[Client], whole: Whole
) -> None:
    lists = [(await client.get("/v1/models")).json()["models"] for client in clients]
    for [model] in lists:
        assert model["fields"] == lists[0][0]["fields"]
        assert model["documents"] == len(whole.ids)
        assert len(model["examples"]) == len(set(model["examples"])) == 3
        for title in model["examples"]:
            assert " " in title
            assert title in whole.titles
    assert set(lists[0][0]["fields"]) > {"title", "text", "stars", "mixed", "rare"}


async def test_new_clicks_count_equally(
    whole: Whole, shards: dict[str, FailingShards], tmp_path: Path
) -> None:
    rng = random.Random(3)
    queries = ["copy files", "files copy remote", "ssh", "delete archive"]
    async with sides(whole, shards, tmp_path, usage_refresh_s=1) as clients:
        first = {text: (await search(clients[0], text))["hits"] for text in queries}
        # The second time, shards have the numbers of clicks of the first time.
        for count, place in ((2, 4), (12, 5)):
            clicks = [
                (text := rng.choice(queries), first[text][rng.randrange(4)]["id"])
                for _ in range(count)
            ]
            clicks.append((queries[0], last := first[queries[0]][place]["id"]))
            for number, (text, id) in enumerate(clicks):
                for client in clients:
                    await click(client, id, f"u{place}-{number}", text)
            async with asyncio.timeout(30):
                for client in clients:
                    while not clicks_on(await search(client, queries[0]), last)[0]:
                        await asyncio.sleep(0.1)
            asked = [
                {"query": text, "explain": True} for text in (*queries, "copy filse", "ssh files")
            ]
            asked += [{**one, "match": "auto", "limit": 3, "facets": ["stars"]} for one in asked]
            for one in [*asked, *(request(rng) for _ in range(20))]:
                await all_equal(clients, "POST", "/v1/search", json=one)


async def test_rules_are_applied_equally(clients: list[Client], whole: Whole) -> None:
    rng = random.Random(3)
    pins = [
        {"id": id, "position": place} for id, place in zip(whole.ids[5:8], (1, 3, 4), strict=True)
    ]
    rules: dict[str, dict[str, Any]] = {
        "pins": {"query": {"contains": "copy"}, "pin": pins},
        "hides": {"query": {"contains": "files"}, "hide": whole.ids[40:80]},
        "filters": {"query": {"contains": "host"}, "filter": {"is_new": True}},
        "synonyms": {
            "query": {"contains": "delete"},
            "synonyms": [["delete", "remove", "archive"]],
        },
    }
    for id, rule in rules.items():
        for client in clients:
            found = await client.put(f"/v1/rules/{id}", json=rule)
            assert found.status_code == 200, found.text
    for client in clients:
        await rules_applied(client, "planted", rules)
    named = whole.ids[90].upper()  # a document that the query names is pinned, too
    for word in ("copy", "files", "host", "delete", "copy files delete", named):
        for _ in range(5):
            body = {**request(rng), "query": word}
            await all_equal(clients, "POST", "/v1/search", json=body)
    await all_equal(clients, "PUT", "/v1/rules/bad", json={**rules["hides"], "filter": {"x": 1}})
