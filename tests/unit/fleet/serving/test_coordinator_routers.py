"""The coordinator, its routers and its replicas: what routers hear, what stays loaded, where replicas are."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet.serving import cloned
from fullrank_fleet.jobs.index import index_set
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.serving import coordinator
from fullrank_fleet.serving import tracking as routers
from fullrank_fleet.serving.coordinator import Coordinator
from fullrank_fleet.serving.tracking import SwapRefused
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, planted_bundle
from tests.unit.fleet.serving.led import LocalFleet
from tests.unit.fleet.serving.replicas import Fleet, coordinating, counts, heard, report, until
from tests.unit.fleet.serving.replicas import fleet as fleet
from tests.unit.fleet.serving.replicas import own as own
from tests.unit.fleet.serving.replicas import root as root
from tests.unit.fleet.serving.replicas import versions as versions

pytestmark = pytest.mark.anyio
Versions = tuple[str, str]


async def test_old_versions_stay_while_a_router_uses_them(
    versions: Versions, own: Coordinator, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "SILENT_S", 0.3)
    await own.activate(versions[0])
    await own.activate(versions[1])
    using = report("a", versions)
    for _ in range(40):
        await own.follow(using, 0, 0)
        await asyncio.sleep(0.01)
        assert versions[0] in fleet(0, 0).loaded
    await until(lambda: fleet.loaded() == [{versions[1]}] * 4 + [set()] * 2)


async def test_old_versions_stay_where_an_unknown_router_asks_for_them(
    versions: Versions, own: Coordinator, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "SILENT_S", 0.05)
    await own.activate(versions[0])
    fleet(0, 0).asked = {versions[0]}
    await own.activate(versions[1])
    await until(lambda: fleet.loaded() == [set(versions)] + [{versions[1]}] * 3 + [set()] * 2)
    await asyncio.sleep(0.1)
    assert fleet(0, 0).loaded == set(versions)
    fleet(0, 0).asked.clear()
    await until(lambda: fleet(0, 0).loaded == {versions[1]})


async def test_old_versions_are_dropped_while_a_swap_runs(
    root: Path, versions: Versions, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "SILENT_S", 0.05)
    shutil.copytree(root, tmp_path / "sets")
    third = cloned(tmp_path / "sets" / "planted" / versions[1], f"{versions[1]}-later").name
    async with coordinating(tmp_path / "sets", fleet) as own:
        await own.activate(versions[0])
        await own.activate(versions[1])
        fleet(0, 0).load_s = 1.0
        swap = asyncio.ensure_future(own.activate(third))
        # A replica that has the new version keeps it, although nothing serves it yet.
        await until(lambda: fleet(1, 1).loaded == {versions[1], third})
        assert not swap.done()
        await swap
        assert all(third in fake.loaded for place, fake in fleet.fakes.items() if place[0] < 2)


async def test_routers_hear_of_a_change_at_once(versions: Versions, own: Coordinator) -> None:
    before = await own.follow(None, 0, 0)
    waiting = asyncio.ensure_future(own.follow(None, before.epoch, 60))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await own.activate(versions[0])
    async with asyncio.timeout(1):
        assert (await waiting).version == versions[0]


async def test_routers_prefer_replicas_that_have_the_candidate(
    versions: Versions, own: Coordinator, fleet: Fleet
) -> None:
    await own.activate(versions[0])
    await own.start_experiment(versions[1], 0.5, 3)
    fleet(0, 0).is_dead = True
    await heard(own, lambda found: found.replicas[0] == (fleet(0, 1),))
    fleet(0, 0).load_s = 0.1
    fleet(0, 0).restart()
    await heard(own, lambda found: found.replicas[0] == (fleet(0, 0), fleet(0, 1)))
    assert fleet(0, 0).loaded == set(versions)
    for place in (0, 1):
        fleet(0, place).refused = {versions[1]}
        fleet(0, place).restart()
    await until(lambda: [fleet(0, place).loaded for place in (0, 1)] == [{versions[0]}] * 2)
    # The active version is answered while no replica has the candidate.
    assert (await heard(own, lambda found: counts(found)[0] == 2)).versions == versions


async def test_the_last_version_that_was_loaded_stays(
    versions: Versions, own: Coordinator, fleet: Fleet
) -> None:
    with pytest.raises(SwapRefused, match="no version serves yet"):
        await own.load(versions[1])
    await own.activate(versions[0])
    found = await own.load(versions[1])
    assert (found.generation, found.versions) == (1, versions)
    assert fleet.loaded() == [set(versions)] * 4 + [{versions[0]}] * 2
    assert (await own.load(versions[1])).versions == versions


async def test_a_change_is_settled_once_every_router_follows(
    versions: Versions, own: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_SETTLE_S", 0.3)
    first = await own.activate(versions[0])
    assert await own.settled(first.epoch, first.versions) == (0, True)
    for id in ("a", "b"):
        await own.follow(report(id, versions[:1]), first.epoch, 0)
    found = await own.activate(versions[1])
    assert await own.settled(found.epoch, found.versions) == (2, False)
    waiting = asyncio.ensure_future(own.settled(found.epoch, found.versions))
    await own.follow(report("a", versions, 2), found.epoch, 0)
    # Follows, but could not load the version.
    await own.follow(report("b", versions[:1], 2), found.epoch, 0)
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await own.follow(report("b", versions, 2), found.epoch, 0)
    assert await waiting == (2, True)
    assert [one.id for one in await own.routers()] == ["a", "b"]
    await own.leave("a")
    assert [one.id for one in await own.routers()] == ["b"]
    monkeypatch.setattr(routers, "SILENT_S", 0.01)
    async with asyncio.timeout(5):
        while await own.routers():
            await asyncio.sleep(0.01)


async def test_a_coordinator_that_begins_again_waits_for_all_its_routers(
    root: Path, versions: Versions, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "_RETURN_S", 0.2)
    async with coordinating(root, fleet) as before:
        await before.activate(versions[0])
    async with coordinating(root, fleet) as own:
        snapshot = await own.follow(report("a", versions[:1]), 0, 0)
        found = await own.load(versions[1])
        await own.follow(report("a", versions), found.epoch, 0)
        # Only one of the two has found the new coordinator.
        waiting = asyncio.ensure_future(own.settled(found.epoch, found.versions))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await own.follow(report("b", versions[:1]), snapshot.epoch, 0)
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await own.follow(report("b", versions), found.epoch, 0)
        assert await waiting == (2, True)


async def test_a_router_becomes_ready_when_the_first_set_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_ROUND_S", 0.01)
    monkeypatch.setattr(coordinator, "_LOOK_S", 0.05)
    bundle, corpus = planted_bundle(tmp_path / "bundles"), corpus_of(tmp_path, 20)
    root, asked, follow = tmp_path / "sets", list[int](), Coordinator.follow

    async def counting(*arguments: Any) -> Any:
        asked.append(1)
        return await follow(*arguments)

    monkeypatch.setattr(Coordinator, "follow", counting)
    root.mkdir()
    fleet = LocalFleet(root, tmp_path / "cache")
    try:
        async with fleet.running(), fleet.router() as client:
            assert (await client.get("/livez")).status_code == 200
            assert (await client.get("/readyz")).status_code == 503
            # It waits for the set, and does not ask on and on.
            await asyncio.sleep(0.3)
            assert len(asked) <= 3
            written = await asyncio.to_thread(
                index_set, str(bundle), str(corpus), str(root),
                shards=2, runner=InProcess(), reporter=QUIET,
            )  # fmt: skip
            async with asyncio.timeout(20):
                while (await client.get("/readyz")).status_code != 200:
                    await asyncio.sleep(0.02)
            assert (await client.get("/readyz")).json()["model"] == written.version
            assert (await client.get("/v1/search", params={"q": "a"})).status_code == 200
    finally:
        fleet.close()


async def test_the_coordinator_goes_on_watching_after_a_failure(
    root: Path,
    versions: Versions,
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(coordinator, "_LOOK_S", 0.02)
    for place in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)):
        fleet(*place).refuses = True
    async with coordinating(root, fleet) as own:
        await until(lambda: "cannot watch, failure 2: SwapRefused" in caplog.text)
        assert (await own.follow(None, 0, 0)).version is None
        for fake in fleet.fakes.values():
            fake.refuses = False
        await heard(own, lambda found: found.version is not None)


@pytest.fixture
def moving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often for replicas that share a node."""
    monkeypatch.setattr(coordinator, "_SPREAD_S", 0.02)


@pytest.mark.usefixtures("moving")
async def test_replicas_that_share_a_node_are_taken_apart_when_one_joins(
    root: Path, versions: Versions, fleet: Fleet
) -> None:
    async with coordinating(root, fleet) as own:
        await own.activate(versions[1])
        before = set(fleet.fakes.values())
        await asyncio.sleep(0.1)
        assert set(fleet.fakes.values()) == before
        fleet.nodes = ["a", "b"]

        def is_apart() -> bool:
            return all({fleet(n, 0).place, fleet(n, 1).place} == {"a", "b"} for n in range(2))

        await until(is_apart)
        await until(lambda: all(versions[1] in fake.loaded for fake in fleet.fakes.values()))
        # One of each shard was never stopped, and nothing moves again.
        assert len(before.intersection(fleet.fakes.values())) == 2
        after = set(fleet.fakes.values())
        await asyncio.sleep(0.1)
        assert set(fleet.fakes.values()) == after
        await heard(own, lambda found: {one for of in found.replicas for one in of} == after)


@pytest.mark.usefixtures("moving")
async def test_no_replica_moves_while_another_one_is_away(
    root: Path, versions: Versions, fleet: Fleet
) -> None:
    async with coordinating(root, fleet) as own:
        await own.activate(versions[1])
        fleet(1, 0).is_dead = True
        await heard(own, lambda found: counts(found) == [2, 1])
        before = dict(fleet.fakes)
        fleet.nodes = ["a", "b"]
        await asyncio.sleep(0.15)
        assert fleet.fakes == before
        fleet(1, 0).restart()
        await until(lambda: fleet.fakes != before)


async def test_a_fleet_gets_more_replicas_and_fewer(
    versions: Versions, own: Coordinator, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_SETTLE_S", 0.5)
    await own.activate(versions[1])
    found = await own.scale(3)
    assert found.per_shard == 3
    assert counts(found) == [3, 3]
    assert all(versions[1] in fake.loaded for fake in fleet.fakes.values())
    # A router that does not follow yet still asks the replicas that are dropped.
    await own.follow(report("a", [versions[1]]), found.epoch, 0)
    fewer = asyncio.ensure_future(own.scale(1))
    found = await heard(own, lambda found: counts(found) == [1, 1])
    assert not any(fake.is_dead for fake in fleet.fakes.values())
    await own.follow(report("a", [versions[1]]), found.epoch, 0)
    assert (await fewer).per_shard == 1
    stopped = [place for (_, place), fake in sorted(fleet.fakes.items()) if fake.is_dead]
    assert stopped == [1, 2] * 2
    assert (await own.scale(2)).per_shard == 2
