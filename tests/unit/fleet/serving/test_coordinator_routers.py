"""The coordinator and its routers: what they hear, and what they keep loaded."""

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
from fullrank_fleet.serving.coordinator import Coordinator, Snapshot
from fullrank_fleet.serving.tracking import SwapRefused
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, planted_bundle
from tests.unit.fleet.serving.led import LocalFleet
from tests.unit.fleet.serving.replicas import Fleet, report, run, until
from tests.unit.fleet.serving.replicas import root as root
from tests.unit.fleet.serving.replicas import versions as versions


def test_old_versions_stay_while_a_router_uses_them(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "SILENT_S", 0.3)

    async def work(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])
        await own.activate(versions[1])
        using = report("a", versions)
        for _ in range(40):
            await own.follow(using, 0, 0)
            await asyncio.sleep(0.01)
            assert versions[0] in fleet(0, 0).loaded
        await until(lambda: fleet.loaded() == [{versions[1]}] * 4 + [set()] * 2)

    run(root, work, Fleet())


def test_old_versions_stay_where_an_unknown_router_asks_for_them(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "SILENT_S", 0.05)

    async def work(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])
        fleet(0, 0).asked = {versions[0]}
        await own.activate(versions[1])
        await until(lambda: fleet.loaded() == [set(versions)] + [{versions[1]}] * 3 + [set()] * 2)
        await asyncio.sleep(0.1)
        assert fleet(0, 0).loaded == set(versions)
        fleet(0, 0).asked.clear()
        await until(lambda: fleet(0, 0).loaded == {versions[1]})

    run(root, work, Fleet())


def test_old_versions_are_dropped_while_a_swap_runs(
    root: Path, versions: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "SILENT_S", 0.05)
    own_root = tmp_path / "sets"
    shutil.copytree(root, own_root)
    third = cloned(own_root / "planted" / versions[1], f"{versions[1]}-later").name

    async def work(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])
        await own.activate(versions[1])
        fleet(0, 0).load_s = 1.0
        swap = asyncio.ensure_future(own.activate(third))
        # A replica that has the new version keeps it, although nothing serves it yet.
        await until(lambda: fleet(1, 1).loaded == {versions[1], third})
        assert not swap.done()
        await swap
        assert all(third in fake.loaded for place, fake in fleet.fakes.items() if place[0] < 2)

    run(own_root, work, Fleet())


def test_routers_hear_of_a_change_at_once(root: Path, versions: tuple[str, str]) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        before: Snapshot = await own.follow(None, 0, 0)
        waiting = asyncio.ensure_future(own.follow(None, before.epoch, 60))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await own.activate(versions[0])
        async with asyncio.timeout(1):
            assert (await waiting).version == versions[0]

    run(root, work, Fleet())


def test_routers_prefer_replicas_that_have_the_candidate(
    root: Path, versions: tuple[str, str]
) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])
        found = await own.start_experiment(versions[1], 0.5, 3)
        fleet(0, 0).is_dead = True
        found = await own.follow(None, found.epoch, 5)
        assert found.replicas[0] == (fleet(0, 1),)
        fleet(0, 0).load_s = 0.1
        fleet(0, 0).restart()
        found = await own.follow(None, found.epoch, 5)
        assert found.replicas[0] == (fleet(0, 0), fleet(0, 1))
        assert fleet(0, 0).loaded == set(versions)
        for place in (0, 1):
            fleet(0, place).refused = {versions[1]}
            fleet(0, place).restart()
        await until(lambda: [fleet(0, place).loaded for place in (0, 1)] == [{versions[0]}] * 2)
        # The active version is answered while no replica has the candidate.
        later: Snapshot = await own.follow(None, 0, 0)
        async with asyncio.timeout(5):
            while len(later.replicas[0]) < 2:
                later = await own.follow(None, later.epoch, 1)
        assert later.versions == versions

    run(root, work, Fleet())


def test_the_last_version_that_was_loaded_stays(root: Path, versions: tuple[str, str]) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        with pytest.raises(SwapRefused, match="no version serves yet"):
            await own.load(versions[1])
        await own.activate(versions[0])
        found = await own.load(versions[1])
        assert (found.generation, found.versions) == (1, versions)
        assert fleet.loaded() == [set(versions)] * 4 + [{versions[0]}] * 2
        again = await own.load(versions[1])
        assert again.versions == versions

    run(root, work, Fleet())


def test_a_change_is_settled_once_every_router_follows(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_SETTLE_S", 0.3)

    async def work(own: Coordinator, fleet: Fleet) -> None:
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
        await asyncio.sleep(0.05)
        assert await own.routers() == []

    run(root, work, Fleet())


def test_a_coordinator_that_begins_again_waits_for_all_its_routers(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "_RETURN_S", 0.2)
    fleet = Fleet()

    async def before(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])

    async def after(own: Coordinator, fleet: Fleet) -> None:
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

    run(root, before, fleet)
    run(root, after, fleet)


def test_a_router_becomes_ready_when_the_first_set_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_ROUND_S", 0.01)
    monkeypatch.setattr(coordinator, "_LOOK_S", 0.05)
    bundle, corpus = planted_bundle(tmp_path / "bundles"), corpus_of(tmp_path, 20)
    root = tmp_path / "sets"
    root.mkdir()
    fleet = LocalFleet(root, tmp_path / "cache")

    async def work() -> None:
        async with fleet.running(), fleet.router() as client:
            assert (await client.get("/livez")).status_code == 200
            assert (await client.get("/readyz")).status_code == 503
            written = await asyncio.to_thread(
                index_set, str(bundle), str(corpus), str(root),
                shards=2, runner=InProcess(), reporter=QUIET,
            )  # fmt: skip
            async with asyncio.timeout(20):
                while (await client.get("/readyz")).status_code != 200:
                    await asyncio.sleep(0.02)
            assert (await client.get("/readyz")).json()["model"] == written.version
            assert (await client.get("/v1/search", params={"q": "a"})).status_code == 200

    try:
        asyncio.run(work())
    finally:
        fleet.close()


def test_a_router_waits_for_the_first_set_without_asking_on_and_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    follow = Coordinator.follow

    async def count(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        return await follow(*arguments)

    monkeypatch.setattr(Coordinator, "follow", count)
    (tmp_path / "sets").mkdir()
    fleet = LocalFleet(tmp_path / "sets", tmp_path / "cache")

    async def work() -> None:
        async with fleet.running(), fleet.router():
            await asyncio.sleep(0.3)

    try:
        asyncio.run(work())
    finally:
        fleet.close()
    assert asked <= 3


def test_the_coordinator_goes_on_watching_after_a_failure(
    root: Path,
    versions: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(coordinator, "_LOOK_S", 0.02)
    fleet = Fleet()
    for place in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)):
        fleet(*place).refuses = True

    async def work(own: Coordinator, fleet: Fleet) -> None:
        await until(lambda: "cannot watch, failure 2: SwapRefused" in caplog.text)
        assert (await own.follow(None, 0, 0)).version is None
        for fake in fleet.fakes.values():
            fake.refuses = False
        async with asyncio.timeout(5):
            found = await own.follow(None, 0, 0)
            while found.version is None:
                found = await own.follow(None, found.epoch, 1)

    run(root, work, fleet)
