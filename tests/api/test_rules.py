"""Rules over HTTP: what they do to answers, how long they last, what is refused."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fullrank.events.log import EventLog
from fullrank_service.documents.sqlitelog import FILE, LogPlace
from fullrank_service.http.keys import create_key
from fullrank_service.rules import routes as store
from tests.api.conftest import Root
from tests.api.support import AUTH, Client, answer_of, ids, running
from tests.api.test_errors import check

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(root: Root) -> AsyncIterator[Client]:
    async with running(root.path, documents_poll_ms=5) as client:
        yield client


async def put(client: Client, id: str, rule: dict[str, Any]) -> None:
    response = await client.put(f"/v1/rules/{id}", json=rule)
    assert response.status_code == 200, response.text
    await seen(client, id, True)


async def seen(client: Client, id: str, expected: bool) -> None:
    """Wait until this worker applies a rule, or no longer does."""
    rules = client.app.state.rules
    async with asyncio.timeout(10):
        while (id in rules.ids("learned")) != expected:
            await asyncio.sleep(0.005)


async def search(client: Client, query: str = "copy files", **asked: Any) -> dict[str, Any]:
    return await client.search(query, **asked)


async def test_a_pinned_document_stands_at_its_place_on_every_page(client: Client) -> None:
    plain = await search(client)
    others = [id for id in ids(plain) if id not in ("日本", "ls")]
    pins = [
        {"id": "日本", "position": 2},
        {"id": "none", "position": 1},
        {"id": "ls", "position": 4},
    ]
    await put(client, "first", {"query": {"is": "COPY files"}, "pin": pins})
    reply = await search(client, explain=True)
    whole = [others[0], "日本", others[1], "ls", *others[2:]]
    assert ids(reply) == whole
    assert reply["rules"] == ["first"]
    assert [hit["rule"] for hit in reply["hits"]] == [None, "first", None, "first"] + [None] * 3
    assert reply["total"] == plain["total"]
    # Scores are those of the ranking.
    scores = {hit["id"]: hit["score"] for hit in plain["hits"]}
    assert {hit["id"]: hit["score"] for hit in reply["hits"]} == scores
    for limit in (1, 2, 3):
        pages = [ids(await search(client, limit=limit, offset=o)) for o in range(0, 9, limit)]
        assert [id for page in pages for id in page] == whole
    assert answer_of(await search(client, rules=False)) == answer_of(plain)
    assert (await search(client, "copy files now"))["rules"] == []


async def test_pins_obey_filters(client: Client) -> None:
    await put(
        client, "p", {"pin": [{"id": "ls", "position": 1}, {"id": "linux/mv", "position": 2}]}
    )
    reply = await search(client, filter={"section": 1}, facets=["section"])
    assert ids(reply)[1] == "linux/mv"
    assert set(ids(reply)) == {"linux/cp", "linux/mv", "linux/ssh"}
    assert reply["total"] == reply["facets"]["section"]["values"][0]["count"] == 3


async def test_filters_restrict_and_hidden_documents_are_gone(client: Client) -> None:
    await put(client, "f", {"query": {"contains": "files"}, "filter": {"section": 1}})
    await put(client, "h", {"query": {"prefix": "copy f"}, "hide": ["linux/cp", "none"]})
    reply = await search(client, facets=["section"])
    assert set(ids(reply)) == {"linux/mv", "linux/ssh"}
    assert reply["rules"] == ["f", "h"]
    assert reply["total"] == reply["facets"]["section"]["values"][0]["count"] == 2
    empty = await search(client, filter={"section": {"exists": False}})
    assert empty["hits"] == []


async def test_synonyms_find_documents_and_are_explained(client: Client) -> None:
    """The rule for „duplicate“ names a word of the corpus that the query lacks."""
    await put(client, "s", {"synonyms": [["duplicate", "copy"], ["everywhere", "remote host"]]})
    plain = await search(client, "duplicate", rules=False, model="bm25")
    assert all(hit["score"] == 0 for hit in plain["hits"])
    copied = await search(client, "copy", rules=False, model="bm25")
    found = await search(client, "duplicate", model="bm25", mode="exact", explain=True)
    assert found["rules"] == []  # a rule is for one collection
    for model in ("bm25", "default"):
        response = await client.put(
            "/v1/rules/s2", json={"synonyms": [["duplicate", "copy"]]}, params={"model": model}
        )
        assert response.status_code == 200
        await asyncio.sleep(0.1)
        found = await search(client, "duplicate", model=model, mode="exact", explain=True)
        assert found["certified"]
        for hit in found["hits"]:
            parts = hit["explanation"]
            assert hit["score"] == parts["dense"] + parts["lexical"] + parts["bias"]
            words = sum(word["lexical"] for word in parts["words"])
            assert words == pytest.approx(parts["lexical"], abs=1e-5)
        if model == "bm25":
            for hit, other in zip(found["hits"], copied["hits"], strict=True):
                assert hit["id"] == other["id"]
                assert hit["score"] == pytest.approx(0.8 * other["score"], rel=1e-6)


async def test_a_rule_is_read_listed_replaced_and_deleted(client: Client) -> None:
    rule = {"query": {"is": "a"}, "hide": ["x"], "until": "2099-01-01T00:00:00Z"}
    await put(client, "b", rule)
    await put(client, "a", {"synonyms": [["tv", "television"]]})
    found = (await client.get("/v1/rules/b")).json()
    assert {name: found[name] for name in rule} == rule
    assert (found["id"], found["collection"], found["pin"]) == ("b", "learned", [])
    listed = (await client.get("/v1/rules")).json()
    assert [one["id"] for one in listed["rules"]] == ["a", "b"]
    page = (await client.get("/v1/rules", params={"after": "a", "limit": 1})).json()
    assert [one["id"] for one in page["rules"]] == ["b"]
    await put(client, "b", {"hide": ["linux/cp"]})
    assert (await client.get("/v1/rules/b")).json()["query"] is None
    for _ in range(2):
        assert (await client.delete("/v1/rules/b")).status_code == 200
    await seen(client, "b", False)
    check(await client.get("/v1/rules/b"), 404, "rule-not-found")
    assert (await search(client))["rules"] == ["a"]


async def test_rules_outlive_the_process_and_reach_other_workers(root: Root) -> None:
    async with running(root.path, documents_poll_ms=5) as one, running(root.path) as other:
        await put(one, "h", {"hide": ["linux/cp"]})
        await seen(other, "h", True)
        assert "linux/cp" not in ids(await search(other))
        assert (await one.delete("/v1/rules/h")).status_code == 200
        await seen(other, "h", False)
        await put(one, "i", {"hide": ["linux/mv"]})
    async with running(root.path) as again:
        assert "linux/mv" not in ids(await search(again))


@pytest.mark.parametrize(
    ("rule", "field", "reason"),
    [
        ({"pins": []}, "body.pins", "query, filter, pin, hide, synonyms, from, until"),
        ({"query": {"matches": "x"}, "hide": ["a"]}, "body.query.matches", "is, contains, prefix"),
        ({"pin": [{"id": "a", "place": 1}]}, "body.pin.0.place", "id, position"),
        ({"pin": [{"id": "a", "position": 0}]}, "body.pin.0.position", "greater"),
        ({"hide": "a"}, "body.hide", "list"),
        ({}, "body", "at least one of"),
        ({"query": {}, "hide": ["a"]}, "body.query", "is, contains, prefix"),
        ({"hide": ["a"], "from": "2026-01-01"}, "body.from", "offset"),
        ({"hide": ["a"], "until": "2020-01-01T00:00:00Z"}, "body.until", "never"),
        ({"filter": {"colour": "red"}}, "body.filter.colour", "section"),
        ({"filter": {"section": "one"}}, "body.filter.section", "numbers"),
        ({"filter": {}}, "body.filter", "no effect"),
        ({"filter": {"and": [{}, {"not": {"or": []}}]}}, "body.filter", "no effect"),
        ({"filter": {"or": []}, "hide": ["a"]}, "body.filter", "matches no document"),
        ({"filter": {"section": {"in": []}}}, "body.filter", "matches no document"),
        ({"filter": {"section": {"gt": 3, "lt": 3}}}, "body.filter", "matches no document"),
        (
            {"query": {"is": "coffee"}, "synonyms": [["tv", "television"]]},
            "body.synonyms.0",
            "can never apply",
        ),
    ],
)
async def test_a_rule_is_refused_with_path_and_reason(
    reader: Client, rule: dict[str, Any], field: str, reason: str
) -> None:
    problem = check(await reader.put("/v1/rules/r", json=rule), 422, "invalid")
    errors = {error["field"]: error["reason"] for error in problem["errors"]}
    assert reason in errors[field]
    check(await reader.get("/v1/rules/r"), 404, "rule-not-found")


async def test_a_filter_of_every_document_is_accepted_with_another_effect(client: Client) -> None:
    await put(client, "r", {"filter": {}, "hide": ["ls"]})


async def test_only_so_many_rules_are_kept(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_RULES", 2)
    for id in ("a", "b", "b"):
        await put(client, id, {"hide": ["x"]})
    check(await client.put("/v1/rules/c", json={"hide": ["x"]}), 409, "too-many-rules")


async def test_rules_need_the_scope_of_writes(root: Root) -> None:
    keys = root.path / "keys.json"
    tokens = [create_key(keys, [scope])[1] for scope in ("search", "ingest")]
    reader, writer = ({"Authorization": f"Bearer {token}"} for token in tokens)
    async with running(root.path, keys=keys, anonymous="none") as client:
        for method in ("GET", "PUT", "DELETE"):
            body = {"hide": ["a"]} if method == "PUT" else None
            response = await client.request(method, "/v1/rules/r", headers=reader, json=body)
            check(response, 403, "forbidden")
        assert (await client.get("/v1/rules", headers=writer)).json()["rules"] == []


async def test_a_filter_that_no_longer_fits_the_fields_is_left_out(root: Root) -> None:
    stored = store.Rules(LogPlace.of_file(root.path / FILE))
    await stored.put("learned", "f", {"filter": {"colour": "red"}, "hide": ["ls"]})
    await stored.put("learned", "broken", {"query": 1})
    async with running(root.path) as client:
        found = ids(await search(client))
    assert "ls" not in found
    assert len(found) == 6


async def test_pinned_places_are_logged(root: Root) -> None:
    async with running(root.path, documents_poll_ms=5) as client:
        await put(client, "p", {"pin": [{"id": "ls", "position": 2}]})
        await search(client)
        await search(client, offset=1, limit=3)
        await search(client, rules=False)
    found = list(EventLog(root.path / ".events").lists())
    assert [list(served.pinned) for served in found] == [[1], [0], []]
    assert found[0].ids[1] == "ls"


async def test_what_is_tried_never_moves_a_pinned_document(root: Root) -> None:
    async with running(root.path, documents_poll_ms=5, explore=0.25) as client:
        await put(client, "p", {"pin": [{"id": "ls", "position": 1}]})
        plain = [id for id in ids(await search(client, rules=False, record=False)) if id != "ls"]
        for _ in range(80):
            await search(client, limit=5)
    lists = list(EventLog(root.path / ".events").lists())
    assert all(served.pinned == (0,) and served.ids[0] == "ls" for served in lists)
    tried = [served for served in lists if served.pair is not None]
    assert {served.swapped for served in tried} == {True, False}
    for served in tried:
        assert served.pair is not None
        both = [served.ids[served.pair], served.ids[served.pair + 1]]
        assert (plain.index(both[0]) > plain.index(both[1])) == served.swapped


async def test_a_pinned_document_belongs_to_neither_side_of_an_experiment(root: Root) -> None:
    candidate = {"candidate": root.bm25, "share": 0.5, "max_days": 1}
    async with running(root.path, documents_poll_ms=5) as client:
        await put(client, "p", {"pin": [{"id": "ls", "position": 2}]})
        started = await client.put("/v1/experiments/default", json=candidate, headers=AUTH)
        assert started.status_code == 200, started.text
        for number in range(20):
            await search(client, user_id=f"u{number}")
    lists = list(EventLog(root.path / ".events").lists())
    shared = [served for served in lists if served.teams]
    assert shared
    for served in shared:
        assert len(served.teams) == len(served.ids) == 7
        assert (served.ids[1], served.teams[1]) == ("ls", "-")
        assert set(served.teams) == {"a", "b", "-"}


async def test_boosts_are_part_of_the_scores_of_pinned_documents(root: Root) -> None:
    async with running(root.path) as client:
        await put(client, "p", {"pin": [{"id": "linux/ssh", "position": 1}]})
        boost = [{"field": "section", "log": True, "weight": 3.0}]
        body = {"query": "copy files", "explain": True}
        plain = (await client.post("/v1/search", json=body)).json()["hits"][0]
        boosted = (await client.post("/v1/search", json={**body, "boost": boost})).json()["hits"][0]
    assert plain["id"] == boosted["id"] == "linux/ssh"
    expected = 3.0 * math.log(2)
    assert boosted["explanation"]["boost"] == pytest.approx(expected)
    assert boosted["score"] == pytest.approx(plain["score"] + expected)
