"""A router over 1, 3 and 16 shards answers as the unsharded service, to the last bit of a score."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.test_new_clicks import click, clicks_on, counting, search
from tests.unit.fleet.serving.routing import BRANDS, WORDS, FailingShards, Whole

pytestmark = pytest.mark.anyio
CUTS = (1, 3, 16)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    root = tmp_path_factory.mktemp("whole")
    return Whole(root, 400, further=lambda number: {"sku": f"sk-{number % 30:04}"}, wrap=counting)


@pytest.fixture(scope="module")
def shards(whole: Whole) -> Iterator[dict[str, FailingShards]]:
    cuts = [whole.cut(count) for count in CUTS]
    found = {address: FailingShards.of(address, whole.root / "cache") for address in cuts}
    yield found
    for own in found.values():
        own.close()


@pytest.fixture
async def clients(
    whole: Whole, shards: dict[str, FailingShards]
) -> AsyncIterator[list[httpx.AsyncClient]]:
    """The unsharded service, then the routers."""
    async with AsyncExitStack() as stack:
        found = [await stack.enter_async_context(whole.service())]
        for address, own in shards.items():
            found.append(await stack.enter_async_context(whole.router(address, own)))
        yield found


def query(rng: random.Random) -> str:
    words = rng.choices(WORDS, k=rng.randint(1, 4))
    if rng.random() < 0.3:
        words[-1] = words[-1][: rng.randint(1, 4)]
    if rng.random() < 0.1:
        words.append(rng.choice(["xyzzy", "fiels", "日本"]))
    return " ".join(words)


def condition(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    if depth < 2 and rng.random() < 0.3:
        inner = [condition(rng, depth + 1) for _ in range(rng.randint(1, 3))]
        return rng.choice([{"and": inner}, {"or": inner}, {"not": inner[0]}])
    return rng.choice(
        [
            {"brand": rng.choice([*BRANDS, "unknown"])},
            {"brand": {"in": rng.sample(BRANDS, 2)}},
            {"stars": {"gte": rng.randint(-2, 8)}},
            {"sizes": rng.randint(0, 16)},
            {"mixed": rng.choice([1, "1", True])},
            {"published": {"lt": f"2026-{rng.randint(1, 12):02}"}},
            {"is_new": {"exists": rng.random() < 0.5}},
            {"rare": "only here"},
            {"alone": {"gt": 1}},
            {"nothing": {"exists": False}},
        ]
    )


def order(rng: random.Random) -> dict[str, Any]:
    """An order other than that of the score, or none."""
    found: dict[str, Any] = {}
    kind = rng.randrange(6)
    if kind == 0:
        fields = rng.sample(["stars", "published", "is_new", "sizes", "note", "mixed", "alone"], 2)
        found["sort"] = [{"field": f, "order": rng.choice(["asc", "desc"])} for f in fields]
    elif kind == 1:
        found["boost"] = [
            {"field": "stars", "log": True, "weight": rng.choice([0.3, -2, 50])},
            {"field": "published", "decay": {"origin": "2026-06-01T00:00:00Z", "scale": "30d"}},
        ]
    if rng.random() < 0.25:
        field = rng.choice(["brand", "sizes", "is_new", "mixed", "rare"])
        found["group_by"] = {"field": field, "limit": rng.randint(1, 3)}
    if rng.random() < 0.15 and kind != 0:
        found["diversity"] = rng.choice([0.2, 0.7, 1.0])
    return found


def request(rng: random.Random) -> dict[str, Any]:
    """A random search, now and then one that does not fit the fields."""
    found: dict[str, Any] = {"query": query(rng), "limit": rng.randint(1, 30), **order(rng)}
    if rng.random() < 0.4:
        found["offset"] = rng.choice([1, 7, 50, 300, 390])
    if rng.random() < 0.5:
        found["filter"] = condition(rng)
    if rng.random() < 0.3:
        found["facets"] = rng.sample(["brand", "stars", "sizes", "mixed", "note", "rare"], 3)
        found["facet_limit"] = rng.randint(1, 8)
    if rng.random() < 0.2:
        found["facet_ranges"] = {
            "stars": [{"to": 2}, {"from": 2, "to": 5.5}, {"from": 1}],
            "note": [{"from": "2026-01-01T00:00:00Z"}],
        }
    if rng.random() < 0.2:
        found["min_score"] = rng.choice([-1.0, 0.5, 2.0, 4.0, 99.0])
    if rng.random() < 0.3:
        found["explain"] = True
    if rng.random() < 0.3:
        found["highlight"] = {"fields": ["title", "text"], "words": rng.randint(3, 9)}
    if rng.random() < 0.2:
        found["fields"] = rng.sample(["title", "stars", "nowhere"], 2)
    if rng.random() < 0.2:
        found["prefix"] = "none"
    # Few documents have all words, so the deepest pages would be empty.
    if rng.random() < 0.4 and found.get("offset", 0) < 300:
        found["match"] = rng.choice(["all", "auto"])
    if rng.random() < 0.08:
        found |= rng.choice(
            [
                {"filter": {"nowhere": 1}},
                {"filter": {"brand": 5}},
                {"filter": {"nested": 1}},
                {"sort": [{"field": "brand"}], "boost": [], "diversity": 0},
                {"facets": ["nowhere"]},
                {"facet_ranges": {"brand": [{"from": 1}]}},
                {"facet_ranges": {"note": [{"from": 1}]}},
                {"highlight": {"fields": ["stars"]}},
                {"group_by": {"field": "nested"}},
            ]
        )
    return found


def answer_of(response: httpx.Response) -> tuple[int, Any]:
    """Return what must be equal: all but times, random ids and names of versions."""
    text = response.text.replace(response.headers.get("x-model-version", "\0"), "VERSION")
    found = json.loads(text)
    for part in [found, *found.get("answers", ())]:
        for name in ("query_id", "took_ms", "request_id", "cursor"):
            part.pop(name, None)
    return response.status_code, found


async def all_equal(
    clients: list[httpx.AsyncClient], method: str, url: str, **arguments: Any
) -> tuple[int, Any]:
    """Send a request to all, and return the answer that they agree on."""
    expected, *others = [
        answer_of(await client.request(method, url, **arguments)) for client in clients
    ]
    for cut, found in zip(CUTS, others, strict=True):
        assert found == expected, (cut, url, arguments)
    return expected


@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 30))]
)
async def test_searches_are_equal(clients: list[httpx.AsyncClient], seed: int) -> None:
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


async def test_named_documents_are_equal(clients: list[httpx.AsyncClient]) -> None:
    for condition in (None, {"stars": {"gte": 4}}):
        asked = {"query": "SK-0007", "limit": 20, "explain": True, "filter": condition}
        _, found = await all_equal(clients, "POST", "/v1/search", json=asked)
        assert {hit["fields"]["sku"] for hit in found["hits"][:3]} == {"sk-0007"}


async def test_every_page_of_cursors_is_equal(clients: list[httpx.AsyncClient]) -> None:
    boost = [{"field": "stars", "log": True, "weight": 0.5}]
    searches: list[dict[str, Any]] = [
        {"query": "copy files", "limit": 7},
        {"query": "remote", "limit": 20, "boost": boost, "filter": {"is_new": True}},
        {"query": "list", "limit": 100, "min_score": -5.0},
    ]
    for body in searches:
        cursors: list[str | None] = ["*"] * len(clients)
        pages = 0
        while cursors[0] is not None:
            answers = []
            for place, client in enumerate(clients):
                response = await client.post("/v1/search", json={**body, "cursor": cursors[place]})
                cursors[place] = response.json()["cursor"]
                answers.append(answer_of(response))
            assert all(answer == answers[0] for answer in answers)
            assert [cursor is None for cursor in cursors].count(cursors[0] is None) == len(clients)
            pages += 1
        assert pages > 2


async def test_batches_and_links_are_equal(clients: list[httpx.AsyncClient]) -> None:
    rng = random.Random(77)
    for _ in range(10):
        searches = [request(rng) for _ in range(3)]
        await all_equal(clients, "POST", "/v1/search:batch", json={"searches": searches})
        link = {"q": query(rng), "filter": json.dumps(condition(rng)), "facets": "brand"}
        await all_equal(clients, "GET", "/v1/search", params=link)


async def test_documents_and_similar_ones_are_equal(
    clients: list[httpx.AsyncClient], whole: Whole
) -> None:
    for id in [*random.Random(5).sample(whole.ids, 25), "nowhere", "d/%F0%9F%99%82"]:
        path = f"/v1/documents/{id}"
        await all_equal(clients, "GET", path)
        await all_equal(clients, "GET", f"{path}/similar", params={"limit": 7, "offset": 2})
        await all_equal(clients, "GET", f"{path}/together")


async def test_pages_without_ads_are_filled_equally(clients: list[httpx.AsyncClient]) -> None:
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


async def test_rules_are_applied_equally(clients: list[httpx.AsyncClient], whole: Whole) -> None:
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
    await asyncio.sleep(1)
    named = whole.ids[90].upper()  # a document that the query names is pinned, too
    for word in ("copy", "files", "host", "delete", "copy files delete", named):
        for _ in range(5):
            body = {**request(rng), "query": word}
            await all_equal(clients, "POST", "/v1/search", json=body)
    await all_equal(clients, "PUT", "/v1/rules/bad", json={**rules["hides"], "filter": {"x": 1}})


async def test_words_and_completions_of_the_model_are_equal(
    clients: list[httpx.AsyncClient],
) -> None:
    _, found = await all_equal(clients, "POST", "/v1/search", json={"query": "copy fiels"})
    assert found["did_you_mean"] == "copy files"


async def test_models_list_the_fields_and_titles_of_all_shards(
    clients: list[httpx.AsyncClient], whole: Whole
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
    async with AsyncExitStack() as stack:
        service = whole.service(usage_refresh_s=1, events_folder=tmp_path / "0")
        clients = [await stack.enter_async_context(service)]
        for address, of_set in shards.items():
            log = tmp_path / str(len(clients))
            router = whole.router(address, of_set, usage_refresh_s=1, events_folder=log)
            clients.append(await stack.enter_async_context(router))
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
