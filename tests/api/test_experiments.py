"""Experiments over HTTP: two rankings in one list, on record, and gone when they end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from math import comb
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import orjson
import pytest

from fullrank.events.log import EVENTS, LISTS, EventLog
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import SegmentWriter
from fullrank_service.experiments.routes import (
    DecisionsReply,
    ExperimentReply,
    ExperimentStatusReply,
)
from tests.api.conftest import Root
from tests.api.support import AUTH, Client, ids, ok, running

pytestmark = pytest.mark.anyio
PATH = "/v1/experiments/default"
QUERY = "copy files to a remote host"


async def start(client: Client, candidate: str, **body: Any) -> httpx.Response:
    return await client.put(PATH, json={"candidate": candidate, **body}, headers=AUTH)


async def search(client: Client, **body: Any) -> dict[str, Any]:
    return await client.search(**{"query": QUERY, **body})


def logged(root: Root) -> dict[str, ServedList]:
    return {found.query_id: found for found in EventLog(root.path / ".events").lists()}


async def test_an_experiment_begins_and_ends(root: Root) -> None:
    async with running(root.path) as client:
        assert (await client.get(PATH, headers=AUTH)).status_code == 404
        assert (await client.delete(PATH, headers=AUTH)).status_code == 404
        begun = ok(await start(client, root.bm25, share=0.5, max_days=3))
        ExperimentReply.model_validate(begun)
        found = (await client.get(PATH, headers=AUTH)).json()
        ExperimentStatusReply.model_validate(found)
        assert begun.items() <= found.items()
        assert (found["wins"], found["losses"], found["verdict"]) == (0, 0, "open")
        assert found["e_values"] == found["decisions"] == []
        assert (found["active"], found["candidate"]) == (root.learned, root.bm25)
        assert (await client.delete(PATH, headers=AUTH)).json() == begun
        assert (await client.get(PATH, headers=AUTH)).status_code == 404


async def test_an_experiment_takes_a_fifth_of_the_searches_for_two_weeks_by_default(
    root: Root,
) -> None:
    async with running(root.path) as client:
        begun = (await start(client, root.bm25)).json()
        assert (begun["share"], begun["max_days"]) == (0.2, 14)
        found = (await client.get(PATH, headers=AUTH)).json()
        assert (found["share"], found["max_days"]) == (0.2, 14)
    state = orjson.loads((root.path / "active.json").read_bytes())
    assert (state["experiment"]["share"], state["experiment"]["max_days"]) == (0.2, 14)


async def test_only_an_admin_may_experiment(reader: Client, two_models: Root) -> None:
    assert (await reader.put(PATH, json={"candidate": two_models.bm25})).status_code == 401
    assert (await reader.get(PATH)).status_code == 401
    assert (await reader.get(f"{PATH}/decisions")).status_code == 401
    assert (await reader.delete(PATH)).status_code == 401


@pytest.mark.parametrize(
    "body",
    [
        {"candidate": "../x"},
        {"candidate": "a", "share": 0},
        {"candidate": "a", "share": 1.5},
        {"candidate": "a", "max_days": 0},
        {"candidate": "a", "other": 1},
        {},
    ],
)
async def test_a_bad_request_starts_nothing(
    reader: Client, two_models: Root, body: dict[str, Any]
) -> None:
    assert (await reader.put(PATH, json=body, headers=AUTH)).status_code == 422
    assert (await start(reader, "absent-1")).status_code == 404
    assert (await start(reader, two_models.learned)).status_code == 409
    assert (await reader.get(PATH, headers=AUTH)).status_code == 404


async def test_an_interleaved_answer_names_both_and_is_on_record(root: Root) -> None:
    async with running(root.path) as client:
        alone = {v: ids(await search(client, model=v, limit=4)) for v in (root.learned, root.bm25)}
        await start(client, root.bm25, share=1)
        replies = [await search(client, limit=4, user_id=f"u{i}") for i in range(20)]
        named = await search(client, limit=4, model=root.learned, user_id="u1")
        unseen = await search(client, limit=4, record=False)
    found = logged(root)
    assert unseen["query_id"] not in found
    assert named["candidate"] is unseen["candidate"] is None
    for reply in replies:
        assert (reply["model"], reply["candidate"]) == (root.learned, root.bm25)
        served = found[reply["query_id"]]
        assert list(served.ids) == ids(reply)
        assert (served.model, served.candidate) == (root.learned, root.bm25)
        assert len(served.teams) == len(served.ids)
        for id, team in zip(served.ids, served.teams, strict=True):
            if team == "-":
                assert id in alone[root.learned]
                assert id in alone[root.bm25]
            else:
                assert id in alone[root.learned if team == "a" else root.bm25]
    # Nothing in the answer tells which ranking a hit is from.
    assert not any("team" in key for reply in replies for hit in reply["hits"] for key in hit)


async def test_pages_of_one_person_fit_together(root: Root) -> None:
    async with running(root.path) as client:
        await start(client, root.bm25, share=0.5)
        interleaved = 0
        for i in range(12):
            who = {"client_id": f"c{i}"}
            whole = await search(client, limit=4, **who)
            pages = [await search(client, limit=2, offset=offset, **who) for offset in (0, 2)]
            assert ids(whole) == ids(pages[0]) + ids(pages[1])
            assert len({reply["candidate"] for reply in (whole, *pages)}) == 1
            interleaved += whole["candidate"] is not None
        assert 0 < interleaved < 12


async def test_strangers_see_interleaved_first_pages_only(root: Root) -> None:
    async with running(root.path) as client:
        await start(client, root.bm25, share=0.5)
        first = Counter([(await search(client))["candidate"] for _ in range(60)])
        assert 10 < first[root.bm25] < 50
        later = [await search(client, offset=2) for _ in range(10)]
        assert {reply["candidate"] for reply in later} == {None}


async def test_filters_and_facets_hold_in_an_experiment(root: Root) -> None:
    async with running(root.path) as client:
        every = await search(client, limit=10, facets=["title"])
        kept = every["hits"][0]["fields"]["title"]
        await start(client, root.bm25, share=1)
        reply = await search(client, filter={"title": kept}, facets=["title"], user_id="u")
        assert reply["candidate"] == root.bm25
        assert {hit["fields"]["title"] for hit in reply["hits"]} == {kept}
        assert [value["value"] for value in reply["facets"]["title"]["values"]] == [kept]


async def test_an_experiment_out_of_time_changes_nothing(root: Root) -> None:
    async with running(root.path) as client:
        await start(client, root.bm25, share=1, max_days=1e-6)
        await asyncio.sleep(0.1)
        found = [await search(client, user_id=f"u{i}") for i in range(5)]
        assert {reply["candidate"] for reply in found} == {None}


async def test_exploration_is_on_record(root: Root) -> None:
    async with running(root.path, explore=0.25) as client:
        plain = ids(await search(client, record=False))
        replies = [await search(client) for _ in range(60)]
    found = logged(root)
    swapped = 0
    for reply in replies:
        served = found[reply["query_id"]]
        assert list(served.ids) == ids(reply)
        assert sorted(served.ids) == sorted(plain)
        if served.swapped:
            assert served.pair is not None
            undone = list(served.ids)
            undone[served.pair : served.pair + 2] = undone[served.pair : served.pair + 2][::-1]
            assert undone == plain
            swapped += 1
        else:
            assert list(served.ids) == plain
    assert swapped > 0


async def test_a_sorted_list_is_not_explored(root: Root) -> None:
    async with running(root.path, explore=0.25) as client:
        found = {tuple(ids(await search(client, sort=[{"field": "section"}]))) for _ in range(30)}
    assert len(found) == 1


async def test_what_an_experiment_does_not_interleave_is_explored(root: Root) -> None:
    async with running(root.path, explore=0.25) as client:
        await start(client, root.bm25, share=0.3)
        replies = [await search(client) for _ in range(60)]
    found = logged(root)
    kinds = Counter(
        (reply["candidate"] is not None, found[reply["query_id"]].pair is not None)
        for reply in replies
    )
    assert kinds[True, True] == 0
    assert kinds[True, False] > 0
    assert kinds[False, True] > 0


async def test_without_events_there_are_no_experiments(root: Root, tmp_path: Path) -> None:
    async with running(root.path, events=False, explore=0.25) as client:
        assert (await client.get(PATH, headers=AUTH)).status_code == 404
        found = {tuple(ids(await search(client))) for _ in range(20)}
        assert len(found) == 1


def log_votes(root: Root, wins: int, losses: int) -> None:
    """Log lists in which one document is from each version, and one click on each list."""
    lists, events = [], []
    for number in range(wins + losses):
        who = {"user_id": f"u{number}"}
        at = time.time() + number / 1000
        served = ServedList(
            f"q{number}", at, QUERY, ["a", "b"], model=root.learned, candidate=root.bm25,
            teams="ab", texts=who,
        )  # fmt: skip
        lists.append(served.line())
        clicked = "b" if number < wins else "a"
        events.append(Event("click", at, {"query_id": f"q{number}", **who}, clicked).line())
    for kind, lines in ((LISTS, lists), (EVENTS, events)):
        writer = SegmentWriter(root.path / ".events", kind)
        writer.append(lines)
        writer.close()


@pytest.fixture
def tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Votes are counted a day later, because those of a day count when it is over."""
    clock = SimpleNamespace(time=lambda: time.time() + 86_400, monotonic=time.monotonic)
    monkeypatch.setattr("fullrank_service.experiments.status.time", clock)


@pytest.mark.usefixtures("tomorrow")
async def test_votes_are_counted_and_their_course_is_kept(root: Root) -> None:
    async with running(root.path) as client:
        await start(client, root.bm25)
        log_votes(root, wins=5, losses=2)
        found = (await client.get(PATH, headers=AUTH)).json()
        ExperimentStatusReply.model_validate(found)
        assert (found["wins"], found["losses"], found["verdict"]) == (5, 2, "open")
        assert found["expired"] is False
        # B(w + 1, l + 1) 2^(w + l) is 2^n / ((n + 1) binomial(n, w)).
        votes = [(n, min(n, 5)) for n in range(1, 8)]
        expected = [2**n / ((n + 1) * comb(n, w)) for n, w in votes]
        assert [e for _, e in found["e_values"]] == pytest.approx(expected)
        assert found["e_value"] == pytest.approx(expected[-1])
        # For 30 seconds the log is not read again.
        log_votes(root, wins=20, losses=0)
        again = (await client.get(PATH, headers=AUTH)).json()
        assert (again["wins"], again["e_values"]) == (5, found["e_values"])


@pytest.mark.usefixtures("tomorrow")
async def test_votes_that_decide_promote(root: Root) -> None:
    async with running(root.path) as client:
        await start(client, root.bm25)
        log_votes(root, wins=12, losses=0)
        found = (await client.get(PATH, headers=AUTH)).json()
        assert found["verdict"] == "promote"
        assert found["e_value"] >= 20 > found["e_values"][-2][1]


async def test_decisions_of_the_loop_are_listed(root: Root) -> None:
    gate = {"name": "clicks", "passed": True, "value": 0.0, "limit": -0.02, "reason": "as good"}
    report = {"published": root.bm25, "gates": [gate], "counts": {}}
    decisions = [
        {"at": 1.0, "name": "learned", "did": "could not train", "retrained": "x-0", "code": 1},
        {"at": 2.0, "name": "learned", "did": "began an experiment", "retrained": root.learned,
         "report": report},
        {"at": 3.0, "name": "learned", "did": "promoted", "active": root.learned,
         "candidate": root.bm25, "wins": 12, "losses": 1, "e_value": 24.4,
         "started": 0.0, "e_values": [[2.0, 2.0], [3.0, 24.4]]},
    ]  # fmt: skip
    path = root.path / "loop.json"
    async with running(root.path) as client:
        assert (await client.get(f"{PATH}/decisions", headers=AUTH)).json() == {"decisions": []}
        path.write_bytes(orjson.dumps(decisions))
        reply = (await client.get(f"{PATH}/decisions", headers=AUTH)).json()
        DecisionsReply.model_validate(reply)
        promoted, began, failed = reply["decisions"]
        assert (promoted["did"], promoted["wins"], promoted["gates"]) == ("promoted", 12, None)
        assert promoted["started"] == "1970-01-01T00:00:00+00:00"
        assert promoted["e_values"] == [[2.0, 2.0], [3.0, 24.4]]
        assert began["e_values"] is None
        assert (began["active"], began["candidate"]) == (root.learned, root.bm25)
        assert began["gates"] == [{"name": "clicks", "passed": True, "reason": "as good"}]
        assert (failed["candidate"], failed["gates"], failed["wins"]) == (None, None, None)
        await start(client, root.bm25)
        shown = (await client.get(PATH, headers=AUTH)).json()
        assert shown["decisions"] == reply["decisions"]
        path.write_text("[{}]")
        assert (await client.get(PATH, headers=AUTH)).status_code == 503
