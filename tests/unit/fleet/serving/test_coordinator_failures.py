"""The coordinator over replicas that are objects: replicas that die, freeze or are late, and a second coordinator."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fullrank_fleet.serving import tracking as routers
from fullrank_fleet.serving import waiting
from fullrank_fleet.serving.coordinator import Coordinator, Snapshot
from fullrank_fleet.serving.tracking import SwapRefused
from tests.unit.fleet.serving.replicas import Fleet, active, run, until
from tests.unit.fleet.serving.replicas import root as root
from tests.unit.fleet.serving.replicas import versions as versions


def test_dead_and_frozen_replicas_do_not_stop_a_swap_and_join_later(
    root: Path, versions: tuple[str, str]
) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])
        fleet(0, 0).is_dead = fleet(1, 1).is_frozen = True
        found = await own.activate(versions[1])
        assert [len(replicas) for replicas in found.replicas] == [1, 1]
        fleet(0, 0).restart()
        fleet(1, 1).is_frozen = False
        later = found
        async with asyncio.timeout(5):
            while [len(replicas) for replicas in later.replicas] != [2, 2]:
                later = await own.follow(None, later.epoch, 1)
        assert versions[1] in fleet(0, 0).loaded & fleet(1, 1).loaded
        assert later.generation == found.generation

    run(root, work, Fleet())


def test_routers_may_try_the_replicas_of_a_shard_of_which_none_answers_pings(
    root: Path, versions: tuple[str, str]
) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        found = await own.activate(versions[1])
        fleet(0, 0).is_frozen = True
        found = await own.follow(None, found.epoch, 5)
        assert [len(replicas) for replicas in found.replicas] == [1, 2]
        fleet(0, 1).is_frozen = True
        found = await own.follow(None, found.epoch, 5)
        assert [len(replicas) for replicas in found.replicas] == [2, 2]
        fleet(0, 1).is_frozen = False
        found = await own.follow(None, found.epoch, 5)
        assert found.replicas[0] == (fleet(0, 1),)

    run(root, work, Fleet())


def test_a_shard_without_a_replica_refuses_the_swap(root: Path, versions: tuple[str, str]) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        fleet(1, 0).is_dead = fleet(1, 1).is_dead = True
        with pytest.raises(SwapRefused, match=r"no replica of the shards \[1\] answers"):
            await own.activate(versions[0])
        assert not (root / "active.json").exists()

    run(root, work, Fleet())


def test_replicas_that_freeze_while_they_load_do_not_stop_a_swap_and_join_later(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "SILENT_S", 0.3)
    monkeypatch.setattr(waiting, "_PAUSE_S", 0.02)

    async def work(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])
        # Two replicas load for longer than a frozen one is awaited, but answer pings.
        fleet(0, 0).load_s = fleet(0, 1).load_s = 0.6
        fleet(1, 1).load_s = 3600
        swap = asyncio.ensure_future(own.activate(versions[1]))
        await asyncio.sleep(0.05)
        fleet(1, 1).is_frozen = True
        async with asyncio.timeout(5):
            found = await swap
        assert [len(replicas) for replicas in found.replicas] == [2, 1]
        assert (await own.activate(versions[0])).generation == 3
        fleet(1, 1).is_frozen, fleet(1, 1).load_s = False, 0
        await until(lambda: versions[0] in fleet(1, 1).loaded)

    run(root, work, Fleet())


def test_a_shard_that_freezes_while_it_loads_refuses_the_swap(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "SILENT_S", 0.2)
    monkeypatch.setattr(waiting, "_PAUSE_S", 0.02)

    async def work(own: Coordinator, fleet: Fleet) -> None:
        before = await own.activate(versions[0])
        frozen = [fleet(1, place) for place in (0, 1)]
        for one in frozen:
            one.load_s = 3600
        swap = asyncio.ensure_future(own.activate(versions[1]))
        await asyncio.sleep(0.05)
        for one in frozen:
            one.is_frozen = True
        async with asyncio.timeout(5):
            with pytest.raises(SwapRefused, match=r"no replica of the shards \[1\] answers"):
                await swap
        assert (await own.follow(None, 0, 0)).version == before.version
        assert active(root) == (1, versions[0])

    run(root, work, Fleet())


def test_a_coordinator_starts_although_a_replica_freezes_while_it_loads(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "SILENT_S", 0.2)
    monkeypatch.setattr(waiting, "_PAUSE_S", 0.02)
    fleet = Fleet()

    async def first(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[1])

    async def next_one() -> None:
        own = Coordinator(str(root), 2, fleet)
        fleet(1, 1).restart()
        fleet(1, 1).load_s = 3600
        start = asyncio.ensure_future(own.start())
        await asyncio.sleep(0.05)
        fleet(1, 1).is_frozen = True
        async with asyncio.timeout(5):
            await start
        found = await own.follow(None, 0, 0)
        assert [len(replicas) for replicas in found.replicas] == [2, 1]
        await own.close()

    run(root, first, fleet)
    asyncio.run(next_one())


def test_a_coordinator_that_dies_while_it_proposes_has_changed_nothing(
    root: Path, versions: tuple[str, str]
) -> None:
    fleet = Fleet()

    async def dies(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])
        fleet(0, 0).load_s = 60
        swap = asyncio.ensure_future(own.activate(versions[1]))
        await asyncio.sleep(0.05)
        swap.cancel()

    async def next_one(own: Coordinator, fleet: Fleet) -> None:
        found = await own.follow(None, 0, 0)
        assert (found.generation, found.version) == (1, versions[0])
        assert [len(replicas) for replicas in found.replicas] == [2, 2, 2]
        fleet(0, 0).load_s = 0
        assert (await own.activate(versions[1])).generation == 2

    run(root, dies, fleet)
    run(root, next_one, fleet)


def test_a_coordinator_that_dies_after_the_commit_has_swapped(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet()

    async def dies(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])

        async def never(*_: object) -> None:
            raise asyncio.CancelledError

        monkeypatch.setattr(own, "_publish", never)
        with pytest.raises(asyncio.CancelledError):
            await own.activate(versions[1])

    async def next_one(own: Coordinator, fleet: Fleet) -> None:
        found = await own.follow(None, 0, 0)
        assert (found.generation, found.version) == (2, versions[1])

    run(root, dies, fleet)
    run(root, next_one, fleet)


def test_a_new_coordinator_drops_what_the_one_before_has_left(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet()

    async def dies(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])
        await own.activate(versions[1])

    async def next_one(own: Coordinator, fleet: Fleet) -> None:
        monkeypatch.setattr(routers, "SILENT_S", 0.05)
        await until(lambda: fleet.loaded()[:4] == [{versions[1]}] * 4)

    run(root, dies, fleet)
    assert fleet.loaded()[0] == set(versions)
    run(root, next_one, fleet)


def test_a_coordinator_that_dies_during_an_experiment_leaves_it_to_the_next(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet()
    begun: list[Snapshot] = []

    async def dies(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])
        begun.append(await own.start_experiment(versions[1], 0.5, 3))
        fleet(0, 0).restart()

    async def next_one(own: Coordinator, fleet: Fleet) -> None:
        monkeypatch.setattr(routers, "SILENT_S", 0.02)
        found = await own.follow(None, 0, 0)
        assert (found.generation, found.experiment) == (2, begun[0].experiment)
        assert fleet(0, 0).loaded == set(versions)
        # No router has reported yet, but what serves stays.
        await asyncio.sleep(0.3)
        assert fleet.loaded() == [set(versions)] * 4 + [{versions[0]}] * 2

    run(root, dies, fleet)
    run(root, next_one, fleet)
