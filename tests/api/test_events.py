"""Events over HTTP: verdicts, limits, keys, what reaches the log and what never does."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from fullrank.events.log import EventLog
from fullrank_service.http.keys import create_key
from tests.api.conftest import Root
from tests.api.support import AUTH, Client, ok, running
from tests.api.test_errors import check

pytestmark = pytest.mark.anyio

EVENTS, UBI, INSIGHTS = "/v1/events", "/v1/ubi", "/v1/insights/1/events"
ENDPOINTS = (EVENTS, f"{UBI}/ubi_events", f"{UBI}/ubi_queries")


def event(**changes: Any) -> dict[str, Any]:
    """A click."""
    return {
        "action_name": "click",
        "timestamp": time.time() * 1000,
        "query_id": "q",
        "client_id": "anna@example.org",
        "event_attributes": {"object": {"object_id": "d1"}},
        **changes,
    }


def query(**changes: Any) -> dict[str, Any]:
    return {
        "query_id": "q",
        "user_query": "copy",
        "timestamp": time.time() * 1000,
        "query_response_hit_ids": ["d1", "d2"],
        **changes,
    }


def insight(**changes: Any) -> dict[str, Any]:
    return {
        "eventType": "click",
        "eventName": "Opened",
        "index": "shop",
        "userToken": "anna@example.org",
        "objectIDs": ["d1"],
        "queryID": "q",
        **changes,
    }


def log_of(root: Path) -> EventLog:
    return EventLog(root / ".events")


async def metric(client: Client, name: str) -> float:
    text = (await client.get("/metrics")).text
    found = [line.split(" ")[1] for line in text.splitlines() if line.startswith(name + " ")]
    return float(found[0]) if found else 0.0


async def test_every_event_has_a_verdict_and_the_good_ones_are_kept(root: Root) -> None:
    bad: Sequence[tuple[Any, str]] = [
        ("x", "event"),
        (event(action_name=None), "action_name"),
        (event(timestamp=None), "timestamp"),
        (event(timestamp=(time.time() - 7.1 * 86_400) * 1000), "timestamp"),
        (event(timestamp=(time.time() + 400) * 1000), "timestamp"),
        (event(client_id="x" * 101), "client_id"),
        (event(event_attributes={"object": {"object_id": 5}}), "event_attributes.object.object_id"),
    ]
    async with running(root.path) as client:
        sent = [event(), *(item for item, _ in bad), event(query_id="r", position=3)]
        found = ok(await client.post(EVENTS, json={"events": sent}))
        # As soon as the answer is there.
        assert [e.texts["query_id"] for e in log_of(root.path).events()] == ["q", "r"]
        assert await metric(client, 'fullrank_events_total{outcome="kept"}') == 2
        assert await metric(client, 'fullrank_events_total{outcome="refused"}') == 7
        assert await metric(client, "fullrank_event_fields_dropped_total") == 1
    assert (found["kept"], found["refused"], found["dropped_fields"]) == (2, 7, 1)
    assert [v["result"] for v in found["verdicts"]] == ["kept", *["refused"] * 7, "kept"]
    assert [v["field"] for v in found["verdicts"]] == [None, *(field for _, field in bad), None]


UNREADABLE: Sequence[tuple[bytes, str, str]] = [
    (b'"x": "\\ud800"', "x", "holds a lone surrogate"),
    (b'"x": {"y": [{"\\udc00": 1}]}', "x", "holds a lone surrogate"),
    (b'"a": 1, "a": 2', "event", "holds the key 'a' twice in one object"),
    (b'"x": {"a": 1, "a": 2}', "x", "holds the key 'a' twice in one object"),
    (b'"n": ' + b"9" * 30, "n", "holds an integer of more than 64 bits: store it as text"),
    (b'"n": -1e999', "n", "holds a number too large for a float"),
    (b'"n": NaN', "n", "holds NaN, which is not a JSON number"),
]


@pytest.mark.parametrize("path", [*ENDPOINTS, "wrapped"])
async def test_an_event_that_cannot_be_read_is_refused_alone(root: Root, path: str) -> None:
    good = json.dumps(query() if path.endswith("queries") else event()).encode()
    bad = [good[:-1] + b", " + field + b"}" for field, _, _ in UNREADABLE]
    body = b"[" + b", ".join([good, *bad, good]) + b"]"
    if path == "wrapped":
        path, body = EVENTS, b'{"events": ' + body + b', "sent_by": "x", "events_of": {"a": 1}}'
    async with running(root.path) as client:
        headers = {"Content-Type": "application/json"}
        found = ok(await client.post(path, content=body, headers=headers))
        # What is wrong around the events concerns them all.
        for whole in (b'{"events": [], "events": []}', b'{"events": [], "x": 1e999}', b"[1e999"):
            check(await client.post(EVENTS, content=whole, headers=headers), 422, "invalid")
        insights = b'{"events": [' + json.dumps(insight()).encode() + b', {"n": 1e999}]}'
        check(await client.post(INSIGHTS, content=insights, headers=headers), 422, "invalid")
    kept = {"result": "kept", "field": None, "reason": None}
    refused = [{"result": "refused", "field": f, "reason": reason} for _, f, reason in UNREADABLE]
    assert found["verdicts"] == [kept, *refused, kept]
    assert (found["kept"], found["refused"]) == (2, len(refused))
    assert found["dropped_fields"] == (2 if b"sent_by" in body else 0)
    log = log_of(root.path)
    assert len(list(log.events())) + len(list(log.lists())) == 2


async def test_unknown_fields_beside_the_events_are_dropped_and_counted(root: Root) -> None:
    async with running(root.path) as client:
        reply = await client.post(EVENTS, json={"events": [event()], "sent_by": "x", "n": 1})
        assert (reply.status_code, reply.json()["dropped_fields"]) == (200, 2)
        reply = await client.post(INSIGHTS, json={"events": [insight()], "sent_by": "x"})
        assert reply.status_code == 200
        assert await metric(client, "fullrank_event_fields_dropped_total") == 3


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_bare_array_is_taken_as_ubi_js_sends_it(root: Root, path: str) -> None:
    one = query() if path.endswith("queries") else event()
    async with running(root.path) as client:
        reply = await client.post(path, json=[one])
        assert (reply.status_code, reply.json()["kept"]) == (200, 1)
    log = log_of(root.path)
    if path.endswith("queries"):
        [served] = log.lists()
        assert (served.kind, served.text, list(served.ids)) == ("reported", "copy", ["d1", "d2"])
    else:
        [kept] = log.events()
        assert (kept.action, kept.object_id) == ("click", "d1")


@pytest.mark.parametrize("path", [*ENDPOINTS, INSIGHTS])
async def test_the_limits_of_a_request(root: Root, path: str) -> None:
    def wrapped(events: Sequence[Any]) -> Any:
        return {"events": events} if path in (EVENTS, INSIGHTS) else events

    one = query() if path.endswith("queries") else insight() if path == INSIGHTS else event()
    json_type = {"Content-Type": "application/json"}
    async with running(root.path) as client:
        most = await client.post(path, json=wrapped([one] * 1000))
        assert most.status_code == 200
        check(await client.post(path, json=wrapped([one] * 1001)), 422, "invalid")
        for body in (b"{}", b'"x"', b"[", b'{"events": 1}', b"\xff"):
            reply = await client.post(path, content=body, headers=json_type)
            assert reply.status_code == (400 if body == b"\xff" else 422), body
        # Larger than other bodies may be, but not than 2 MiB.
        padded = json.dumps(wrapped([one])).encode()
        large = padded + b" " * ((2 << 20) - len(padded))
        assert (await client.post(path, content=large, headers=json_type)).status_code == 200
        check(await client.post(path, content=large + b" ", headers=json_type), 413, "too-large")
        check(await client.post(path, content=b"a=b"), 415, "unsupported-media-type")
    kept = sum(
        1 for _ in (log_of(root.path).lists() if "queries" in path else log_of(root.path).events())
    )
    assert kept == 1001


@pytest.mark.parametrize("kind", ["application/json", "text/plain;charset=UTF-8"])
async def test_insights_become_events(root: Root, kind: str) -> None:
    now = time.time()
    sent = [
        insight(objectIDs=["d1", "d2"], positions=[1, 2]),
        insight(eventType="view", authenticatedUserToken="u"),
        insight(eventType="conversion", eventSubtype="addToCart"),
        insight(eventType="conversion", timestamp=(now - 60) * 1000),
    ]
    async with running(root.path) as client:
        reply = await client.post(
            INSIGHTS, content=json.dumps({"events": sent}), headers={"Content-Type": kind}
        )
        assert (reply.status_code, reply.json()) == (200, {"status": 200, "message": "OK"})
    found = list(log_of(root.path).events())
    actions = ["click", "click", "impression", "add_to_cart", "conversion"]
    assert [e.action for e in found] == actions
    assert [e.object_id for e in found] == ["d1", "d2", "d1", "d1", "d1"]
    assert {e.texts["query_id"] for e in found} == {"q"}
    assert {e.texts["application"] for e in found} == {"shop"}
    assert "user_id" in found[2].texts
    assert found[4].at == pytest.approx(now - 60, abs=0.01)


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (5, "event"),
        (insight(eventType="buy"), "eventType"),
        (insight(userToken=None), "userToken"),
        (insight(objectIDs=[]), "objectIDs"),
        (insight(objectIDs=["d"] * 21), "objectIDs"),
        (insight(eventType="conversion", eventSubtype="x"), "eventSubtype"),
        (insight(timestamp="2026-01-01"), "timestamp"),
        (insight(timestamp=1), "timestamp"),
        (insight(index=5), "index"),
        (insight(userToken="x" * 101), "userToken"),
        (insight(authenticatedUserToken=5), "authenticatedUserToken"),
        (insight(queryID=["q"]), "queryID"),
        (insight(objectIDs=["d1", 5]), "objectIDs"),
    ],
)
async def test_insights_are_all_or_nothing(reader: Client, bad: Any, field: str) -> None:
    reply = await reader.post(INSIGHTS, json={"events": [insight(), bad]})
    found = check(reply, 422, "invalid")
    assert [error["field"] for error in found["errors"]] == [f"events.1.{field}"]
    assert list(log_of(reader.root).events()) == []


async def test_the_key_of_insights_has_no_other_scope(root: Root, tmp_path: Path) -> None:
    keys = tmp_path / "the-keys.json"
    tokens = {
        name: create_key(keys, scopes, name)[1]
        for name, scopes in {
            "events": ["events"],
            "both": ["search", "events"],
            "search": ["search"],
        }.items()
    }
    expected = {"events": 200, "both": 403, "search": 403, "wrong": 401}
    async with running(root.path, keys=keys, anonymous="none") as client:
        for name, status in expected.items():
            key = {"X-Algolia-API-Key": tokens.get(name, "wrong")}
            for sent in ({"headers": key}, {"params": key}):
                reply = await client.post(INSIGHTS, json={"events": [insight()]}, **sent)  # type: ignore[arg-type]
                assert reply.status_code == status, (name, sent)
        check(await client.post(INSIGHTS, json={"events": [insight()]}), 401, "unauthorized")
        # A key in the address opens nothing else.
        reply = await client.post(
            EVENTS, json=[event()], params={"X-Algolia-API-Key": tokens["events"]}
        )
        check(reply, 401, "unauthorized")


async def test_an_erased_person_is_gone_at_once(root: Root) -> None:
    async with running(root.path) as client:
        await client.post(EVENTS, json=[event(), event(client_id="bert")])
        check(await client.delete(f"{EVENTS}/users/anna@example.org"), 401, "unauthorized")
        reply = await client.delete(f"{EVENTS}/users/anna@example.org", headers=AUTH)
        assert (reply.status_code, reply.json()) == (200, {"erased": True})
        assert len(list(log_of(root.path).events())) == 1


async def test_nothing_is_logged_while_events_are_off(root: Root) -> None:
    async with running(root.path, events=False) as client:
        assert (await client.post("/v1/search", json={"query": "copy"})).status_code == 200
        for path in (*ENDPOINTS, INSIGHTS):
            check(await client.post(path, json=[event()]), 404, "not-found")
        check(await client.get("/v1/analytics", headers=AUTH), 404, "not-found")
        check(await client.delete(f"{EVENTS}/users/x", headers=AUTH), 404, "not-found")
    assert not (root.path / ".events").exists()
    assert not (root.path / ".events.key").exists()


async def test_a_full_log_refuses_events_and_searches_go_on(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_service.events.upkeep._MEASURE_S", 0.0)
    folder = root.path / ".events"
    folder.mkdir()
    # Begun now, and without a checksum: compaction removes neither what is old nor what is beyond the size.
    begun = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    (folder / f"events-{begun}-0123abcd.jsonl.gz").write_bytes(b"x" * (1 << 20))
    async with running(root.path, events_mb=1) as client:
        end = time.monotonic() + 10
        while await metric_full(client) == 0:
            assert time.monotonic() < end
        found = check(await client.post(EVENTS, json=[event()]), 507, "events-full")
        assert "full" in found["detail"]
        assert (await client.post("/v1/search", json={"query": "copy"})).status_code == 200
        await until(client, 'fullrank_served_lists_total{outcome="full"}')
    assert not list(folder.glob("*.jsonl"))


async def metric_full(client: Client) -> float:
    text = (await client.get("/metrics")).text
    return sum(
        float(line.split(" ")[1])
        for line in text.splitlines()
        if line.startswith("fullrank_events_full{")
    )


async def until(client: Client, name: str) -> None:
    end = time.monotonic() + 10
    while await metric(client, name) == 0:
        assert time.monotonic() < end, name


@pytest.mark.parametrize(
    ("number", "status", "slug"),
    [(errno.ENOSPC, 507, "events-full"), (errno.EIO, 503, "events-unavailable")],
)
@pytest.mark.parametrize("call", ["append", "sync"])
async def test_a_disk_that_fails_is_named_and_searches_go_on(
    root: Root, monkeypatch: pytest.MonkeyPatch, number: int, status: int, slug: str, call: str
) -> None:
    fail = Mock(side_effect=OSError(number, os.strerror(number)))
    async with running(root.path) as client:
        with monkeypatch.context() as broken:
            broken.setattr(f"fullrank.events.segments.SegmentWriter.{call}", fail)
            check(await client.post(EVENTS, json=[event()]), status, slug)
            assert (await client.post("/v1/search", json={"query": "copy"})).status_code == 200
            outcome = "unwritable" if call == "append" else "written"
            await until(client, f'fullrank_served_lists_total{{outcome="{outcome}"}}')
        assert (await client.post(EVENTS, json=[event(query_id="later")])).status_code == 200
    assert "later" in {e.texts["query_id"] for e in log_of(root.path).events()}


async def test_no_event_is_acknowledged_into_a_removed_log(root: Root) -> None:
    folder = root.path / ".events"
    async with running(root.path) as client:
        for query_id in ("before", "after"):
            assert (await client.post(EVENTS, json=[event(query_id=query_id)])).status_code == 200
            if query_id == "before":
                shutil.rmtree(folder)
        assert [e.texts["query_id"] for e in log_of(root.path).events()] == ["after"]
    assert [e.texts["query_id"] for e in log_of(root.path).events()] == ["after"]


async def test_neither_people_nor_addresses_reach_the_disk(root: Root) -> None:
    person = {"client_id": "anna@example.org", "session_id": "session-of-anna", "user_id": "anna"}
    async with running(root.path) as client:
        asked = {"query": "copy", **person, "application": "shop"}
        await client.post("/v1/search", json=asked, headers={"User-Agent": "secret-agent"})
        await client.post(EVENTS, json=[event(**person)])
        await client.post(INSIGHTS, json={"events": [insight()]})
        await client.post(f"{UBI}/ubi_queries", json=[query(**person)])
    files = {p: p.read_bytes() for p in (root.path / ".events").rglob("*") if p.is_file()}
    content = b"".join(
        gzip.decompress(found) if path.suffix == ".gz" else found for path, found in files.items()
    )
    assert b"shop" in content
    for secret in (b"anna", b"127.0.0.1", b"secret-agent"):
        assert secret not in content, secret
    [one, *_] = [s for s in log_of(root.path).lists() if s.kind == "search"]
    [first, *_] = log_of(root.path).events()
    assert one.texts["client_id"] == first.texts["client_id"]


CORS_PATHS = ["/v1/search", "/v1/match", "/v1/documents/a/b/similar", *ENDPOINTS, INSIGHTS]


async def test_pages_of_permitted_origins_may_ask(root: Root) -> None:
    origin = "https://shop.example"

    def asks(who: str) -> Mapping[str, str]:
        return {
            "Origin": who,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, content-type",
        }

    async with running(root.path, cors_origins=f"https://other.example, {origin}") as client:
        for path in CORS_PATHS:
            reply = await client.options(path, headers=asks(origin))
            assert reply.status_code == 200, path
            assert reply.headers["access-control-allow-origin"] == origin, path
            assert "POST" in reply.headers["access-control-allow-methods"], path
            refused = await client.options(path, headers=asks("https://evil.example"))
            assert "access-control-allow-origin" not in refused.headers, path
        # Problems can be read too.
        problem = await client.post("/v1/search", json={}, headers={"Origin": origin})
        assert problem.status_code == 422
        assert problem.headers["access-control-allow-origin"] == origin
        for other in ("/v1/models", "/v1/analytics", f"{EVENTS}/users/anna"):
            closed = await client.options(other, headers=asks(origin))
            assert "access-control-allow-origin" not in closed.headers
        answer = await client.get("/v1/analytics", headers={**AUTH, "Origin": origin})
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers
    async with running(root.path) as client:
        for path in CORS_PATHS:
            reply = await client.options(path, headers=asks(origin))
            assert "access-control-allow-origin" not in reply.headers, path


async def test_pages_of_all_origins_may_ask_if_the_star_permits_it(root: Root) -> None:
    origin = {"Origin": f"https://{os.urandom(4).hex()}.example"}
    async with running(root.path, cors_origins="*") as client:
        asked = {
            **origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, content-type",
        }
        for path in CORS_PATHS:
            reply = await client.options(path, headers=asked)
            assert reply.status_code == 200, path
            assert reply.headers["access-control-allow-origin"] == "*", path
        answer = await client.post("/v1/search", json={"query": "copy"}, headers=origin)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "*"
        # A browser sends no cookies then, and a page must name its key itself.
        assert "access-control-allow-credentials" not in answer.headers
        for other in ("/v1/models", "/v1/analytics", f"{EVENTS}/users/anna"):
            closed = await client.options(other, headers=asked)
            assert "access-control-allow-origin" not in closed.headers
