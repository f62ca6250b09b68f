"""Where the replicas of shards are, and how many there are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fullrank_fleet.serving import coordinator
from fullrank_fleet.serving.coordinator import Coordinator
from tests.unit.fleet.serving.replicas import Fleet, report, run, until
from tests.unit.fleet.serving.replicas import root as root
from tests.unit.fleet.serving.replicas import versions as versions


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_SPREAD_S", 0.02)


def test_replicas_that_share_a_node_are_taken_apart_when_one_joins(
    root: Path, versions: tuple[str, str]
) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
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
        stayed = before.intersection(fleet.fakes.values())
        assert len(stayed) == 2
        after = set(fleet.fakes.values())
        await asyncio.sleep(0.1)
        assert set(fleet.fakes.values()) == after
        [first, second] = (await own.follow(None, 0, 0)).replicas
        assert set(first + second) == after

    run(root, work, Fleet())


def test_no_replica_moves_while_another_one_is_away(root: Path, versions: tuple[str, str]) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[1])
        fleet(1, 0).is_dead = True
        await until(lambda: len(own._snapshot.replicas[1]) == 1)
        before = dict(fleet.fakes)
        fleet.nodes = ["a", "b"]
        await asyncio.sleep(0.15)
        assert fleet.fakes == before
        fleet(1, 0).restart()
        await until(lambda: fleet.fakes != before)

    run(root, work, Fleet())


def test_a_fleet_gets_more_replicas_and_fewer(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_SETTLE_S", 0.5)

    async def work(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[1])
        found = await own.scale(3)
        assert found.per_shard == 3
        assert [len(of) for of in found.replicas] == [3, 3]
        assert all(versions[1] in fake.loaded for fake in fleet.fakes.values())
        # A router that does not follow yet still asks the replicas that are dropped.
        await own.follow(report("a", [versions[1]]), found.epoch, 0)
        fewer = asyncio.ensure_future(own.scale(1))
        await until(lambda: [len(of) for of in own._snapshot.replicas] == [1, 1])
        assert not any(fake.is_dead for fake in fleet.fakes.values())
        await own.follow(report("a", [versions[1]]), own._snapshot.epoch, 0)
        assert (await fewer).per_shard == 1
        assert [place for (_, place), fake in sorted(fleet.fakes.items()) if fake.is_dead] == [
            1,
            2,
        ] * 2
        again = await own.scale(2)
        assert again.per_shard == 2

    run(root, work, Fleet())
