"""The coordinator over replicas that are objects: swaps and experiments, in two phases."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from fullrank.errors import BundleNotFound
from fullrank_fleet.serving import tracking
from fullrank_fleet.serving import tracking as routers
from fullrank_fleet.serving.coordinator import Coordinator, SwapUnderWay
from fullrank_fleet.serving.tracking import SwapRefused
from tests.unit.fleet.serving.replicas import Fleet, active, run, until
from tests.unit.fleet.serving.replicas import root as root
from tests.unit.fleet.serving.replicas import versions as versions


def test_a_version_serves_when_every_replica_has_loaded_it(
    root: Path, versions: tuple[str, str]
) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        found = await own.activate(versions[0])
        assert (found.generation, found.version) == (1, versions[0])
        assert (found.root, found.per_shard) == (str(root), 2)
        assert [len(replicas) for replicas in found.replicas] == [2, 2, 2]
        assert fleet.loaded() == [{versions[0]}] * 6
        assert active(root) == (1, versions[0])
        assert await own.activate(versions[0]) == found

    run(root, work, Fleet())


def test_a_refusal_of_one_replica_changes_nothing(root: Path, versions: tuple[str, str]) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        before = await own.activate(versions[0])
        fleet(1, 1).refuses = True
        with pytest.raises(SwapRefused, match=r"shard 1: golden\.jsonl: differs"):
            await own.activate(versions[1])
        assert (await own.follow(None, 0, 0)).version == before.version
        assert active(root) == (1, versions[0])
        fleet(1, 1).refuses = False
        assert (await own.activate(versions[1])).generation == 2

    run(root, work, Fleet())


def test_two_swaps_at_once_are_refused(root: Path, versions: tuple[str, str]) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        fleet(0, 0).load_s = 0.2
        first = asyncio.ensure_future(own.activate(versions[0]))
        await asyncio.sleep(0.05)
        with pytest.raises(SwapUnderWay):
            await own.activate(versions[1])
        assert (await first).version == versions[0]

    run(root, work, Fleet())


def test_a_swap_while_old_versions_are_dropped_keeps_the_new_one(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "SILENT_S", 0.05)
    monkeypatch.setattr(tracking, "_PING_S", 0.3)

    async def work(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[1])
        await asyncio.sleep(0.1)
        fleet(0, 0).release_s = 0.2
        await own.activate(versions[0])
        await until(lambda: fleet(0, 0).control.locked())
        # The other replicas have dropped the version, or will, when it comes again.
        await own.activate(versions[1])
        for _ in range(50):
            found = await own.follow(None, 0, 0)
            assert [len(replicas) for replicas in found.replicas] == [2, 2]
            assert all(versions[1] in fake.loaded for shard in found.replicas for fake in shard)
            await asyncio.sleep(0.01)

    run(root, work, Fleet())


def test_an_unknown_version_is_not_found(root: Path, versions: tuple[str, str]) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        with pytest.raises(BundleNotFound):
            await own.activate("nosuch")

    run(root, work, Fleet())


def test_a_candidate_is_loaded_before_the_experiment_begins(
    root: Path, versions: tuple[str, str]
) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[1])
        found = await own.start_experiment(versions[0], 0.5, 3)
        assert fleet.loaded() == [set(versions)] * 4 + [{versions[0]}] * 2
        assert (found.generation, found.version) == (2, versions[1])
        assert found.versions == versions[::-1]
        # The candidate has a shard more than the active version.
        assert [len(replicas) for replicas in found.replicas] == [2, 2, 2]
        assert found.experiment is not None
        state = json.loads((root / "active.json").read_text())
        assert state["experiment"]["candidate"] == found.experiment.candidate == versions[0]
        assert (state["experiment"]["share"], state["experiment"]["max_days"]) == (0.5, 3)
        ended = await own.stop_experiment()
        assert (ended.generation, ended.version) == (3, versions[1])
        assert (ended.experiment, ended.versions) == (None, (versions[1],))
        assert await own.stop_experiment() == ended

    run(root, work, Fleet())


def test_a_candidate_that_is_refused_begins_no_experiment(
    root: Path, versions: tuple[str, str]
) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        with pytest.raises(SwapRefused, match="no other version to compare it with"):
            await own.start_experiment(versions[0], 0.5, 3)
        before = await own.activate(versions[0])
        with pytest.raises(SwapRefused, match="no other version to compare it with"):
            await own.start_experiment(versions[0], 0.5, 3)
        fleet(0, 1).refuses = True
        with pytest.raises(SwapRefused, match=r"shard 0: golden\.jsonl: differs"):
            await own.start_experiment(versions[1], 0.5, 3)
        with pytest.raises(BundleNotFound):
            await own.start_experiment("planted", 0.5, 3)
        assert (await own.follow(None, 0, 0)) == before
        assert json.loads((root / "active.json").read_text())["experiment"] is None

    run(root, work, Fleet())


def test_an_activation_ends_an_experiment(root: Path, versions: tuple[str, str]) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])
        begun = await own.start_experiment(versions[1], 1, 3)
        assert await own.activate(versions[0]) == begun
        found = await own.activate(versions[1])
        assert (found.generation, found.version, found.previous) == (3, versions[1], versions[0])
        assert found.experiment is None

    run(root, work, Fleet())


def test_a_candidate_that_cannot_be_read_leaves_the_active_version_alone(
    root: Path, versions: tuple[str, str]
) -> None:
    fleet = Fleet()
    file = root / "planted" / versions[1] / "set.json"

    async def dies(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])
        await own.start_experiment(versions[1], 0.5, 3)

    async def next_one(own: Coordinator, fleet: Fleet) -> None:
        found = await own.follow(None, 0, 0)
        assert (found.generation, found.version, found.experiment) == (2, versions[0], None)

    run(root, dies, fleet)
    content = file.read_bytes()
    file.unlink()
    try:
        run(root, next_one, fleet)
    finally:
        file.write_bytes(content)
