"""Experiments and swaps over HTTP on a fleet: as on one machine, through the coordinator."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank.events.log import EventLog
from fullrank.events.records import ServedList
from fullrank_fleet.remote import Folder
from fullrank_fleet.serving import coordinator, following
from fullrank_fleet.serving import tracking as routers
from fullrank_fleet.serving.head import Head
from fullrank_fleet.sets.manifest import read_set
from fullrank_service.experiments.routes import ExperimentReply, ExperimentStatusReply
from fullrank_service.experiments.status import read_status
from fullrank_service.models.routes import AliasReply, LoadReply, ModelsReply
from fullrank_service.search import ruled as trying
from fullrank_service.search.request import RankRequest
from tests.api.support import AUTH, Client
from tests.api.test_new_clicks import counting
from tests.unit.fleet.serving.equality import CUTS, Whole, answer_of, condition, query
from tests.unit.fleet.serving.led import LocalFleet

pytestmark = pytest.mark.anyio
EXPERIMENT, ALIAS = "/v1/experiments/default", "/v1/models/aliases/default"


class Versions:
    """Two models over one corpus: in one bundle each, and as sets of 1, 3 and 16 shards; the older model first."""

    def __init__(self, root: Path) -> None:
        self.whole = Whole(root, 200, wrap=counting)
        models = [None, self.whole.train(seed=2)]
        self.bundles = self.whole.versions
        self.sets = {
            cut: [read_set(Folder(self.whole.cut(cut, own))).version for own in models]
            for cut in CUTS
        }


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Versions:
    return Versions(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def fleets(versions: Versions, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, LocalFleet]]:
    monkeypatch.setattr(coordinator, "_ROUND_S", 0.02)
    found = {}
    for cut in CUTS:
        root = versions.whole.root / f"sets-{cut}"
        (root / "active.json").unlink(missing_ok=True)
        found[cut] = LocalFleet(root, versions.whole.root / "cache")
    yield found
    for fleet in found.values():
        fleet.close()


_STAND_INS = ("@old", "@new", "@first", "@second")


class Sides:
    """The unsharded service and routers, each with its names of the versions and its log of events."""

    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.names: list[list[str]] = []
        self.logs: list[Path] = []

    def add(self, client: Client, names: list[str], log: Path) -> None:
        self.clients.append(client)
        self.names.append(names)
        self.logs.append(log)

    async def all_equal(
        self, method: str, url: str, changing: bool = False, **arguments: Any
    ) -> tuple[int, Any]:
        """Send a request to all, with their names for @old and so on; return the answer that they agree on."""
        answers = []
        for client, names in zip(self.clients, self.names, strict=True):
            named = dict(zip(_STAND_INS, names, strict=False))
            own = json.loads(_named(json.dumps(arguments), named))
            random.seed(json.dumps(arguments))
            response = await client.request(method, _named(url, named), headers=AUTH, **own)
            text = _named(response.text, {name: other for other, name in named.items()})
            status, found = answer_of(httpx.Response(response.status_code, text=text))
            for name in ("generation", "workers", "started", "previous"):
                if changing:
                    found.pop(name, None)
            answers.append((status, found))
        for answer in answers[1:]:
            assert answer == answers[0], (url, arguments)
        return answers[0]


def _named(text: str, names: dict[str, str]) -> str:
    for name, other in names.items():
        text = text.replace(name, other)
    return text


@pytest.fixture
async def sides(
    versions: Versions,
    fleets: dict[int, LocalFleet],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Sides]:
    """All of them serve the older model."""

    def coin(_: object, request: RankRequest, person: str | None) -> random.Random | None:
        # The coin of the service depends on the time of the start and on the name of the candidate.
        found = random.Random(f"{person} {request.text}")
        return found if found.random() < 0.7 else None

    monkeypatch.setattr(trying, "_coin", coin)
    root = versions.whole.root
    (root / "bundles" / "active.json").unlink(missing_ok=True)
    async with AsyncExitStack() as stack:
        found = Sides()
        log = tmp_path / "events"
        client = await stack.enter_async_context(versions.whole.service(events_folder=log))
        found.add(client, versions.bundles, log)
        for cut, fleet in fleets.items():
            await stack.enter_async_context(fleet.running())
            await fleet.coordinator.activate(versions.sets[cut][0])
            log = tmp_path / f"events-{cut}"
            client = await stack.enter_async_context(fleet.router(events_folder=log))
            found.add(client, versions.sets[cut], log)
        await found.all_equal("PUT", ALIAS, changing=True, json={"version": "@old"})
        yield found


async def test_interleaved_answers_and_their_records_are_equal(sides: Sides) -> None:
    body = {"candidate": "@new", "share": 0.7, "max_days": 3}
    status, begun = await sides.all_equal("PUT", EXPERIMENT, changing=True, json=body)
    assert (status, begun["active"], begun["candidate"]) == (200, "@old", "@new")
    rng = random.Random(4)
    interleaved = 0
    for number in range(120):
        asked: dict[str, Any] = {"query": query(rng), "limit": rng.randint(1, 12)}
        asked["user_id"] = f"u{number % 7}"
        if rng.random() < 0.3:
            asked["offset"] = rng.choice([2, 10, 40])
        if rng.random() < 0.4:
            asked["filter"] = condition(rng)
        if rng.random() < 0.3:
            asked["facets"] = ["brand", "stars"]
        if rng.random() < 0.2:
            asked |= {"explain": True, "highlight": {"fields": ["title", "text"]}}
        if rng.random() < 0.1:
            asked["model"] = rng.choice(["@old", "@new"])
        if rng.random() < 0.1:
            asked["sort"] = [{"field": "stars"}]
        status, found = await sides.all_equal("POST", "/v1/search", changing=True, json=asked)
        assert status == 200
        assert found["candidate"] in (None, "@new")
        assert "team" not in json.dumps(found)
        interleaved += found["candidate"] is not None
    assert 40 < interleaved < 110
    expected, *others = [_records(found) for found in await _logged(sides, 120)]
    assert {team for record in expected for team in record[2]} == {"a", "b", "-"}
    for records in others:
        assert records == expected


async def _logged(sides: Sides, count: int) -> list[list[ServedList]]:
    """Return the lists of each log, in their order, once all are written."""
    found: list[list[ServedList]] = []
    async with asyncio.timeout(10):
        while not found or any(len(lists) != count for lists in found):
            await asyncio.sleep(0.05)
            found = [sorted(EventLog(log).lists(), key=lambda one: one.at) for log in sides.logs]
    return found


def _records(lists: Sequence[ServedList]) -> list[Any]:
    return [(one.text, one.ids, one.teams, one.candidate is None) for one in lists]


async def test_explored_lists_and_their_records_are_equal(
    versions: Versions, fleets: dict[int, LocalFleet], tmp_path: Path
) -> None:
    """The coins of exploration come from the generator that the test seeds."""
    sides = Sides()
    async with AsyncExitStack() as stack:
        log = tmp_path / "events"
        service = versions.whole.service(explore=0.25, events_folder=log)
        sides.add(await stack.enter_async_context(service), versions.bundles, log)
        for cut, fleet in fleets.items():
            await stack.enter_async_context(fleet.running())
            await fleet.coordinator.activate(versions.sets[cut][1])
            log = tmp_path / f"events-{cut}"
            router = fleet.router(explore=0.25, events_folder=log)
            sides.add(await stack.enter_async_context(router), versions.sets[cut], log)
        await sides.all_equal("PUT", ALIAS, changing=True, json={"version": "@new"})
        rng = random.Random(5)
        plain = 0
        for number in range(120):
            asked: dict[str, Any] = {"query": f"{query(rng)} copy", "limit": rng.randint(4, 12)}
            asked["user_id"] = f"u{number}"
            _, found = await sides.all_equal("POST", "/v1/search", changing=True, json=asked)
            own = {**asked, "record": False}
            _, unvaried = await sides.all_equal("POST", "/v1/search", changing=True, json=own)
            plain += found == unvaried
        assert 10 < plain < 110
        tried = [
            [(one.ids, one.pair, one.swapped, one.inserted) for one in lists]
            for lists in await _logged(sides, 120)
        ]
    assert all(found == tried[0] for found in tried)
    assert any(one[2] for one in tried[0])
    assert any(one[3] is not None for one in tried[0])


async def test_a_swap_over_http_is_that_of_one_machine(sides: Sides) -> None:
    search = {"query": "copy files", "limit": 5}
    for version in ("@new", "@old", "@new"):
        status, found = await sides.all_equal(
            "PUT", ALIAS, changing=True, json={"version": version}
        )
        assert (status, found["version"], found["converged"]) == (200, version, True)
        _, answer = await sides.all_equal("POST", "/v1/search", changing=True, json=search)
        assert answer["model"] == version
    for client, names in zip(sides.clients, sides.names, strict=True):
        found = (await client.get("/v1/models", headers=AUTH)).json()
        ModelsReply.model_validate(found)
        assert found["aliases"] == {"default": names[1]}
        assert (found["previous"], found["converged"]) == (names[0], True)
        [worker] = found["workers"]
        assert (worker["started"], worker["version"]) == (True, names[1])
        assert worker["generation"] == found["generation"]
        done = await client.put(ALIAS, json={"version": names[0]}, headers=AUTH)
        AliasReply.model_validate(done.json())
        assert (done.json()["workers"], done.json()["previous"]) == (1, names[1])


async def test_what_cannot_change_is_refused_alike(sides: Sides) -> None:
    for method, url, body in (
        ("PUT", ALIAS, {"version": "absent-1"}),
        ("PUT", ALIAS, {"version": "planted"}),
        ("POST", "/v1/models/absent-1:load", None),
        ("POST", "/v1/models/planted:load", None),
        ("PUT", EXPERIMENT, {"candidate": "absent-1"}),
        ("PUT", EXPERIMENT, {"candidate": "@old"}),
        ("PUT", EXPERIMENT, {"candidate": "@new", "share": 2}),
        ("GET", EXPERIMENT, None),
        ("DELETE", EXPERIMENT, None),
    ):
        status, found = await sides.all_equal(method, url, changing=True, json=body)
        assert status in (404, 409, 422), found


async def test_a_version_is_loaded_beside_the_one_that_serves(
    versions: Versions, fleets: dict[int, LocalFleet]
) -> None:
    fleet, (old, new) = fleets[3], versions.sets[3]
    async with fleet.running():
        await fleet.coordinator.activate(old)
        async with fleet.router() as client, fleet.router("other") as other:
            named = {"query": "copy", "model": new}
            assert (await client.post("/v1/search", json=named)).status_code == 404
            found = await client.post(f"/v1/models/{new}:load", headers=AUTH)
            LoadReply.model_validate(found.json())
            assert (found.json()["version"], found.json()["documents"]) == (new, 200)
            for one in (client, other):
                answer = (await one.post("/v1/search", json=named)).json()
                assert (answer["model"], answer["generation"]) == (new, 1)
                assert (await one.post("/v1/search", json={"query": "copy"})).json()["model"] == old
    async with fleet.running(), fleet.router() as client:
        assert (await client.post("/v1/search", json=named)).status_code == 200


async def test_every_router_follows_an_experiment_to_its_end(
    versions: Versions, fleets: dict[int, LocalFleet]
) -> None:
    fleet, (old, new) = fleets[3], versions.sets[3]
    body = {"candidate": new, "share": 1, "max_days": 3}
    search = {"query": "copy files", "user_id": "ann"}
    async with fleet.running():
        await fleet.coordinator.activate(old)
        async with fleet.router() as client, fleet.router("other") as other:
            begun = await client.put(EXPERIMENT, json=body, headers=AUTH)
            assert begun.status_code == 200, begun.text
            ExperimentReply.model_validate(begun.json())
            for one in (client, other):
                status = (await one.get(EXPERIMENT, headers=AUTH)).json()
                ExperimentStatusReply.model_validate(status)
                assert begun.json().items() <= status.items()
                assert (status["generation"], status["verdict"]) == (2, "open")
                answer = (await one.post("/v1/search", json=search)).json()
                names = answer["model"], answer["candidate"], answer["generation"]
                assert names == (old, new, 2)
        # What `fullrank experiment status` reads.
        status = read_status(fleet.root, EventLog(fleet.root / ".router" / ".events"))
        assert status is not None
        assert (status.active, status.candidate, status.max_days) == (old, new, 3)
    # A coordinator and a router that start again go on with it.
    async with fleet.running(), fleet.router() as client, fleet.router("other") as other:
        assert (await client.get(EXPERIMENT, headers=AUTH)).json()["started"] == begun.json()[
            "started"
        ]
        ended = await client.delete(EXPERIMENT, headers=AUTH)
        assert ended.json() == begun.json()
        for one in (client, other):
            assert (await one.get(EXPERIMENT, headers=AUTH)).status_code == 404
            answer = (await one.post("/v1/search", json=search)).json()
            assert (answer["model"], answer["candidate"], answer["generation"]) == (old, None, 3)
        await client.put(EXPERIMENT, json=body, headers=AUTH)
        await other.put(ALIAS, json={"version": new}, headers=AUTH)
        for one in (client, other):
            assert (await one.get(EXPERIMENT, headers=AUTH)).status_code == 404
            answer = (await one.post("/v1/search", json=search)).json()
            assert (answer["model"], answer["candidate"], answer["generation"]) == (new, None, 5)


async def test_a_replica_that_starts_again_serves_the_active_version_first(
    versions: Versions, fleets: dict[int, LocalFleet]
) -> None:
    fleet, (old, new) = fleets[3], versions.sets[3]
    search = {"query": "copy files", "user_id": "ann"}
    body = {"candidate": new, "share": 1}
    async with fleet.running():
        await fleet.coordinator.activate(old)
        async with fleet.router() as client:
            alone = (await client.post("/v1/search", json=search)).json()
            await client.put(EXPERIMENT, json=body, headers=AUTH)
            both = (await client.post("/v1/search", json=search)).json()
            assert both["candidate"] == new
            replica = fleet.replicas[0]
            replica.refused, replica.is_dead = {new}, True
            await asyncio.sleep(0.1)
            replica.restart()

            async def answers(expected: dict[str, Any]) -> bool:
                found = await client.post("/v1/search", json=search)
                # Until the replica has loaded the active version there is no answer.
                return bool(found.status_code == 200 and found.json()["hits"] == expected["hits"])

            async with asyncio.timeout(10):
                while not await answers(alone):
                    await asyncio.sleep(0.01)
                replica.refused = set()
                while not await answers(both):
                    await asyncio.sleep(0.01)


async def test_the_old_version_stays_while_a_router_opens_the_new_one(
    versions: Versions, fleets: dict[int, LocalFleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, (old, new) = fleets[3], versions.sets[3]
    monkeypatch.setattr(following, "_WAIT_S", 0.05)
    monkeypatch.setattr(routers, "SILENT_S", 0.4)
    opened = Head.open

    def slowly(folder: Folder, *arguments: Any, **named: Any) -> Head:
        if folder.address.endswith(new):
            time.sleep(1.5)
        return opened(folder, *arguments, **named)

    async with fleet.running():
        await fleet.coordinator.activate(old)
        async with fleet.router() as client:
            monkeypatch.setattr(Head, "open", slowly)
            await asyncio.sleep(0.5)
            await fleet.coordinator.activate(new)
            served = [old]
            async with asyncio.timeout(10):
                while served[-1] == old:
                    found = await client.post("/v1/search", json={"query": "copy"})
                    assert found.status_code == 200, found.text
                    served.append(found.json()["model"])
                    await asyncio.sleep(0.02)
            assert served[-1] == new
            assert served.count(old) > 20
