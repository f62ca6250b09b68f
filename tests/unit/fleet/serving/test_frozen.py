"""A replica or the coordinator freezes: changes end soon, with an error that says so, and searches go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from fullrank_fleet.remote import Folder
from fullrank_fleet.serving import coordinator, following, tracking, waiting
from fullrank_fleet.sets.manifest import read_set
from tests.api.support import AUTH, Client
from tests.unit.fleet.serving.equality import Whole
from tests.unit.fleet.serving.led import LocalFleet

pytestmark = pytest.mark.anyio
EXPERIMENT, ALIAS = "/v1/experiments/default", "/v1/models/aliases/default"
SHARDS = 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"), 30, floor=None)


@pytest.fixture(scope="module")
def versions(whole: Whole) -> list[str]:
    models = [None, whole.train(seed=2)]
    return [read_set(Folder(whole.cut(SHARDS, own))).version for own in models]


@pytest.fixture
async def fleet(
    whole: Whole, versions: list[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LocalFleet]:
    """Serves the first version; what is silent for half a second counts as frozen."""
    monkeypatch.setattr(coordinator, "_ROUND_S", 0.02)
    monkeypatch.setattr(tracking, "_PING_S", 0.05)
    monkeypatch.setattr(waiting, "SILENT_S", 0.5)
    monkeypatch.setattr(waiting, "_PAUSE_S", 0.02)
    monkeypatch.setattr(following, "_RETRY_S", 0.02)
    root = whole.root / f"sets-{SHARDS}"
    (root / "active.json").unlink(missing_ok=True)
    found = LocalFleet(root, whole.root / "cache")
    async with found.running():
        await found.coordinator.activate(versions[0])
        yield found
    found.close()


@pytest.fixture
async def client(fleet: LocalFleet) -> AsyncIterator[Client]:
    async with fleet.router() as client:
        yield client


async def served(client: Client) -> str:
    found = await client.post("/v1/search", json={"query": "copy files"})
    assert found.status_code == 200, found.text
    return str(found.json()["model"])


def check_unavailable(found: httpx.Response, *, is_certain: bool = False) -> None:
    assert found.status_code == 503, found.text
    assert found.json()["type"].endswith("coordinator-unavailable")
    assert is_certain != ("It may still make the change" in found.json()["detail"])
    assert found.headers["retry-after"]


async def test_a_replica_that_freezes_while_it_loads_refuses_the_swap(
    fleet: LocalFleet, client: Client, versions: list[str]
) -> None:
    old, new = versions
    fleet.replicas[1].freezing = {new}
    swap = asyncio.ensure_future(client.put(ALIAS, json={"version": new}, headers=AUTH))
    async with asyncio.timeout(10):
        while not fleet.replicas[1].is_frozen:
            await asyncio.sleep(0.01)
        other = await client.put(ALIAS, json={"version": old}, headers=AUTH)
        assert other.status_code == 409
        assert "in progress" in other.json()["detail"]
        refused = await swap
    assert refused.status_code == 409
    assert "no replica of the shards [1] answers" in refused.json()["detail"]
    fleet.replicas[1].freezing, fleet.replicas[1].is_frozen = set(), False
    assert await served(client) == old
    async with asyncio.timeout(10):
        found = await client.put(ALIAS, json={"version": new}, headers=AUTH)
    assert found.status_code == 200, found.text
    assert await served(client) == new


async def test_a_router_joins_again_when_the_coordinator_is_dead_and_follows_the_next(
    fleet: LocalFleet, versions: list[str]
) -> None:
    former = fleet.handle
    tries = 0

    async def rejoin() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RuntimeError("the head does not answer")
        former.own, former.is_dead = fleet.coordinator, False

    async with fleet.router(rejoin=rejoin) as client:
        assert await served(client) == versions[0]
        former.is_dead = True
        async with fleet.running():
            await fleet.coordinator.activate(versions[1])
            async with asyncio.timeout(10):
                while await served(client) != versions[1]:
                    await asyncio.sleep(0.02)
        exposed = (await client.get("/metrics", headers=AUTH)).text
        assert f"fullrank_follow_failures_total {tries}.0" in exposed


@pytest.mark.parametrize("state", ["is_frozen", "is_dead"])
async def test_changes_of_a_coordinator_that_does_not_answer_are_unavailable_and_searches_go_on(
    fleet: LocalFleet, client: Client, versions: list[str], state: str
) -> None:
    old, new = versions
    setattr(fleet.handle, state, True)
    async with asyncio.timeout(20):
        for found in (
            await client.put(ALIAS, json={"version": new}, headers=AUTH),
            await client.post(f"/v1/models/{new}:load", headers=AUTH),
            await client.put(EXPERIMENT, json={"candidate": new}, headers=AUTH),
        ):
            check_unavailable(found, is_certain=state == "is_dead")
        models = (await client.get("/v1/models", headers=AUTH)).json()
        assert [worker["version"] for worker in models["workers"]] == [old]
        assert await served(client) == old
        setattr(fleet.handle, state, False)
        found = await client.put(ALIAS, json={"version": new}, headers=AUTH)
    assert found.json()["converged"], found.text
    assert await served(client) == new


async def test_a_coordinator_that_freezes_during_a_swap_is_unavailable(
    fleet: LocalFleet, client: Client, versions: list[str]
) -> None:
    """What it has been asked for it does when it goes on, and routers follow."""
    new = versions[1]
    fleet.replicas[0].freezing = {new}
    swap = asyncio.ensure_future(client.put(ALIAS, json={"version": new}, headers=AUTH))
    async with asyncio.timeout(20):
        while not fleet.replicas[0].is_frozen:
            await asyncio.sleep(0.01)
        fleet.handle.is_frozen = True
        fleet.replicas[0].freezing, fleet.replicas[0].is_frozen = set(), False
        check_unavailable(await swap)
        fleet.handle.is_frozen = False
        while await served(client) != new:
            await asyncio.sleep(0.02)


async def test_a_router_follows_again_after_the_coordinator_was_frozen(
    fleet: LocalFleet, client: Client, versions: list[str]
) -> None:
    """The answers of calls that it has given up come late, and change nothing."""
    fleet.handle.is_frozen = True
    await asyncio.sleep(1.2)
    fleet.handle.is_frozen = False
    async with asyncio.timeout(20):
        await fleet.coordinator.activate(versions[1])
        while await served(client) != versions[1]:
            await asyncio.sleep(0.02)


async def test_a_router_of_a_frozen_coordinator_does_not_start(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    fleet.handle.is_frozen = True
    async with asyncio.timeout(20):
        with pytest.raises(ConnectionError, match="no ping was answered"):
            async with fleet.router("second"):
                pass
