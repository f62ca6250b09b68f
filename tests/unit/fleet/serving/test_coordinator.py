"""The coordinator over replicas that are objects: swaps and experiments in two phases, through deaths and freezes."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fullrank.errors import BundleNotFound
from fullrank_fleet.remote import Folder
from fullrank_fleet.serving import tracking, waiting
from fullrank_fleet.serving.coordinator import Coordinator, Snapshot, SwapUnderWay
from fullrank_fleet.serving.tracking import SwapRefused
from fullrank_fleet.sets.manifest import find_version, read_set, write_set
from tests.unit.fleet.serving.replicas import (
    Fake,
    Fleet,
    active,
    coordinating,
    counts,
    heard,
    until,
)
from tests.unit.fleet.serving.replicas import fleet as fleet
from tests.unit.fleet.serving.replicas import own as own
from tests.unit.fleet.serving.replicas import root as root
from tests.unit.fleet.serving.replicas import versions as versions

pytestmark = pytest.mark.anyio
Versions = tuple[str, str]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is silent for 0.3 s counts as frozen."""
    monkeypatch.setattr(waiting, "SILENT_S", 0.3)
    monkeypatch.setattr(waiting, "_PAUSE_S", 0.02)


async def freeze_while_loading(swap: asyncio.Future[Snapshot], fakes: Sequence[Fake]) -> None:
    await until(lambda: all(fake.control.locked() for fake in fakes))
    assert not swap.done()
    for fake in fakes:
        fake.is_frozen = True


async def test_a_version_serves_when_every_replica_has_loaded_it(
    root: Path, versions: Versions, own: Coordinator, fleet: Fleet
) -> None:
    found = await own.activate(versions[0])
    assert (found.generation, found.version) == (1, versions[0])
    assert (found.root, found.per_shard) == (str(root), 2)
    assert counts(found) == [2, 2, 2]
    assert fleet.loaded() == [{versions[0]}] * 6
    assert active(root) == (1, versions[0])
    assert await own.activate(versions[0]) == found
    with pytest.raises(BundleNotFound):
        await own.activate("nosuch")


async def test_a_refusal_of_one_replica_changes_nothing(
    root: Path, versions: Versions, own: Coordinator, fleet: Fleet
) -> None:
    await own.activate(versions[0])
    fleet(1, 1).refuses = True
    with pytest.raises(SwapRefused, match=r"shard 1: golden\.jsonl: differs"):
        await own.activate(versions[1])
    assert (await own.follow(None, 0, 0)).version == versions[0]
    assert active(root) == (1, versions[0])
    fleet(1, 1).refuses = False
    assert (await own.activate(versions[1])).generation == 2


async def test_two_swaps_at_once_are_refused(
    versions: Versions, own: Coordinator, fleet: Fleet
) -> None:
    fleet(0, 0).load_s = 0.2
    first = asyncio.ensure_future(own.activate(versions[0]))
    await until(fleet(0, 0).control.locked)
    with pytest.raises(SwapUnderWay):
        await own.activate(versions[1])
    assert (await first).version == versions[0]


async def test_a_swap_while_old_versions_are_dropped_keeps_the_new_one(
    versions: Versions, own: Coordinator, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "SILENT_S", 0.05)
    monkeypatch.setattr(tracking, "_PING_S", 0.3)
    await own.activate(versions[1])
    await asyncio.sleep(0.1)
    fleet(0, 0).release_s = 0.2
    await own.activate(versions[0])
    await until(lambda: fleet(0, 0).control.locked())
    # The other replicas have dropped the version, or will, when it comes again.
    await own.activate(versions[1])
    for _ in range(50):
        found = await own.follow(None, 0, 0)
        assert counts(found) == [2, 2]
        assert all(versions[1] in fake.loaded for shard in found.replicas for fake in shard)
        await asyncio.sleep(0.01)


async def test_a_candidate_is_loaded_before_the_experiment_begins(
    root: Path, versions: Versions, own: Coordinator, fleet: Fleet
) -> None:
    await own.activate(versions[1])
    found = await own.start_experiment(versions[0], 0.5, 3)
    assert fleet.loaded() == [set(versions)] * 4 + [{versions[0]}] * 2
    assert (found.generation, found.version) == (2, versions[1])
    assert found.versions == versions[::-1]
    # The candidate has a shard more than the active version.
    assert counts(found) == [2, 2, 2]
    assert found.experiment is not None
    state = json.loads((root / "active.json").read_text())
    assert state["experiment"]["candidate"] == found.experiment.candidate == versions[0]
    assert (state["experiment"]["share"], state["experiment"]["max_days"]) == (0.5, 3)
    ended = await own.stop_experiment()
    assert (ended.generation, ended.version) == (3, versions[1])
    assert (ended.experiment, ended.versions) == (None, (versions[1],))
    assert await own.stop_experiment() == ended


async def test_a_candidate_that_is_refused_begins_no_experiment(
    root: Path, versions: Versions, own: Coordinator, fleet: Fleet
) -> None:
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


async def test_an_activation_ends_an_experiment(versions: Versions, own: Coordinator) -> None:
    await own.activate(versions[0])
    begun = await own.start_experiment(versions[1], 1, 3)
    assert await own.activate(versions[0]) == begun
    found = await own.activate(versions[1])
    assert (found.generation, found.version, found.previous) == (3, versions[1], versions[0])
    assert found.experiment is None


async def test_dead_and_frozen_replicas_do_not_stop_a_swap_and_join_later(
    versions: Versions, own: Coordinator, fleet: Fleet
) -> None:
    await own.activate(versions[0])
    fleet(0, 0).is_dead = fleet(1, 1).is_frozen = True
    found = await own.activate(versions[1])
    assert counts(found) == [1, 1]
    fleet(0, 0).restart()
    fleet(1, 1).is_frozen = False
    later = await heard(own, lambda one: counts(one) == [2, 2])
    assert versions[1] in fleet(0, 0).loaded & fleet(1, 1).loaded
    assert later.generation == found.generation


async def test_routers_may_try_the_replicas_of_a_shard_of_which_none_answers_pings(
    versions: Versions, own: Coordinator, fleet: Fleet
) -> None:
    await own.activate(versions[1])
    fleet(0, 0).is_frozen = True
    await heard(own, lambda one: counts(one) == [1, 2])
    fleet(0, 1).is_frozen = True
    await heard(own, lambda one: counts(one) == [2, 2])
    fleet(0, 1).is_frozen = False
    await heard(own, lambda one: one.replicas[0] == (fleet(0, 1),))


async def test_a_shard_without_a_replica_refuses_the_swap(
    root: Path, versions: Versions, own: Coordinator, fleet: Fleet
) -> None:
    fleet(1, 0).is_dead = fleet(1, 1).is_dead = True
    with pytest.raises(SwapRefused, match=r"no replica of the shards \[1\] answers"):
        await own.activate(versions[0])
    assert not (root / "active.json").exists()


@pytest.mark.usefixtures("impatient")
async def test_replicas_that_freeze_while_they_load_do_not_stop_a_swap_and_join_later(
    versions: Versions, own: Coordinator, fleet: Fleet
) -> None:
    await own.activate(versions[0])
    # Two replicas load for longer than a frozen one is awaited, but answer pings.
    fleet(0, 0).load_s = fleet(0, 1).load_s = 0.6
    fleet(1, 1).load_s = 3600
    swap = asyncio.ensure_future(own.activate(versions[1]))
    await freeze_while_loading(swap, [fleet(1, 1)])
    async with asyncio.timeout(5):
        assert counts(await swap) == [2, 1]
    assert (await own.activate(versions[0])).generation == 3
    fleet(1, 1).is_frozen, fleet(1, 1).load_s = False, 0
    await until(lambda: versions[0] in fleet(1, 1).loaded)


@pytest.mark.usefixtures("impatient")
async def test_a_shard_that_freezes_while_it_loads_refuses_the_swap(
    root: Path, versions: Versions, own: Coordinator, fleet: Fleet
) -> None:
    await own.activate(versions[0])
    frozen = [fleet(1, place) for place in (0, 1)]
    for one in frozen:
        one.load_s = 3600
    swap = asyncio.ensure_future(own.activate(versions[1]))
    await freeze_while_loading(swap, frozen)
    async with asyncio.timeout(5):
        with pytest.raises(SwapRefused, match=r"no replica of the shards \[1\] answers"):
            await swap
    assert (await own.follow(None, 0, 0)).version == versions[0]
    assert active(root) == (1, versions[0])


@pytest.mark.usefixtures("impatient")
async def test_a_coordinator_starts_although_a_replica_freezes_while_it_loads(
    root: Path, versions: Versions, fleet: Fleet
) -> None:
    async with coordinating(root, fleet) as first:
        await first.activate(versions[1])
    own = Coordinator(str(root), 2, fleet)
    fleet(1, 1).restart()
    fleet(1, 1).load_s = 3600
    start = asyncio.ensure_future(own.start())
    await until(fleet(1, 1).control.locked)
    fleet(1, 1).is_frozen = True
    async with asyncio.timeout(5):
        await start
    assert counts(await own.follow(None, 0, 0)) == [2, 1]
    await own.close()


async def test_a_collection_that_cannot_be_read_waits_alone(
    root: Path,
    versions: Versions,
    fleet: Fleet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sets, other = tmp_path / "sets", "other-20260801t101500z-1f2e3d4c"
    shutil.copytree(root, sets)
    shutil.copytree(root / "planted" / versions[1], sets / "other" / other)
    file = sets / "other" / other / "set.json"
    file.unlink()
    manifest = read_set(Folder(str(root / "planted" / versions[1])))
    write_set(Folder(str(file.parent)), replace(manifest, name="other", version=other))
    async with coordinating(sets, fleet) as own:
        with pytest.raises(SwapRefused, match="activate one first"):
            await own.activate("other", "other")
        await own.activate(versions[0])
        with pytest.raises(BundleNotFound, match="no version of the collection other"):
            await own.activate(versions[1], "other")
        found = await own.activate("other", "other")
        assert (found.generation, found.version) == (2, versions[0])
        assert found.of("other").version == other
        assert counts(found) == [2, 2, 2]
        assert fleet.loaded() == [{versions[0], other}] * 4 + [{versions[0]}] * 2
        # The default one goes on without the other.
        for one in (fleet(0, 0), fleet(0, 1)):
            one.refused = {other}
            one.restart()
        await until(lambda: fleet(0, 0).loaded == fleet(0, 1).loaded == {versions[0]})
        await heard(own, lambda one: counts(one) == [2, 2, 2])
        fleet(0, 0).refused = fleet(0, 1).refused = set()
        await until(lambda: fleet(0, 0).loaded == fleet(0, 1).loaded == {versions[0], other})
    content = file.read_bytes()
    file.unlink()
    monkeypatch.setattr("fullrank_fleet.serving.coordinator._LOOK_S", 0.02)
    async with coordinating(sets, fleet) as own:
        found = await own.follow(None, 0, 0)
        assert (found.version, found.of("other").version) == (versions[0], None)
        assert (await own.activate(versions[1])).of("other").version is None
        file.write_bytes(content)
        later = await heard(own, lambda one: one.of("other").version)
        assert (later.version, later.of("other").version) == (versions[1], other)


async def test_replicas_are_watched_while_they_load_what_could_not_be_read(
    root: Path,
    versions: Versions,
    fleet: Fleet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sets = tmp_path / "sets"
    shutil.copytree(root, sets)
    async with coordinating(sets, fleet) as own:
        await own.activate(versions[0])
        await own.load(versions[1])
    folder, looks = sets / "planted" / versions[1], []
    folder.rename(tmp_path / "away")

    def counted(root: Folder, version: str) -> Folder:
        looks.append(version)
        return find_version(root, version)

    monkeypatch.setattr("fullrank_fleet.serving.coordinator._LOOK_S", 0.02)
    monkeypatch.setattr("fullrank_fleet.serving.coordinator.find_version", counted)
    for fake in fleet.fakes.values():
        fake.restart()
    async with coordinating(sets, fleet) as own:
        await until(lambda: looks.count(versions[1]) > 3)
        assert [line for line in caplog.messages if versions[1] in line] == [
            f"cannot load {versions[1]}: No bundle has the version {versions[1]!r}."
        ]
        fleet(1, 0).load_s = 3600.0
        (tmp_path / "away").rename(folder)
        await until(lambda: versions[1] in fleet(1, 1).loaded)
        fleet(0, 0).is_dead = True
        found = await heard(own, lambda one: counts(one) == [1, 2, 2])
        assert found.versions == (versions[0],)


async def test_a_coordinator_that_dies_while_it_proposes_has_changed_nothing(
    root: Path, versions: Versions, fleet: Fleet
) -> None:
    async with coordinating(root, fleet) as dying:
        await dying.activate(versions[0])
        fleet(0, 0).load_s = 60
        swap = asyncio.ensure_future(dying.activate(versions[1]))
        await until(fleet(0, 0).control.locked)
        swap.cancel()
    async with coordinating(root, fleet) as own:
        found = await own.follow(None, 0, 0)
        assert (found.generation, found.version) == (1, versions[0])
        assert counts(found) == [2, 2, 2]
        fleet(0, 0).load_s = 0
        assert (await own.activate(versions[1])).generation == 2


async def test_a_coordinator_that_dies_after_the_commit_has_swapped(
    root: Path, versions: Versions, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Folder.write

    def die(folder: Folder, name: str, content: bytes) -> None:
        write(folder, name, content)
        raise MemoryError

    async with coordinating(root, fleet) as dying:
        await dying.activate(versions[0])
        monkeypatch.setattr(Folder, "write", die)
        with pytest.raises(MemoryError):
            await dying.activate(versions[1])
    async with coordinating(root, fleet) as own:
        found = await own.follow(None, 0, 0)
        assert (found.generation, found.version) == (2, versions[1])


async def test_a_new_coordinator_drops_what_the_one_before_has_left(
    root: Path, versions: Versions, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinating(root, fleet) as before:
        await before.activate(versions[0])
        await before.activate(versions[1])
    assert fleet.loaded()[0] == set(versions)
    monkeypatch.setattr(tracking, "SILENT_S", 0.05)
    async with coordinating(root, fleet):
        await until(lambda: fleet.loaded()[:4] == [{versions[1]}] * 4)


async def test_a_coordinator_that_dies_during_an_experiment_leaves_it_to_the_next(
    root: Path, versions: Versions, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinating(root, fleet) as dying:
        await dying.activate(versions[0])
        begun = await dying.start_experiment(versions[1], 0.5, 3)
        fleet(0, 0).restart()
    monkeypatch.setattr(tracking, "SILENT_S", 0.02)
    async with coordinating(root, fleet) as own:
        found = await own.follow(None, 0, 0)
        assert (found.generation, found.experiment) == (2, begun.experiment)
        assert fleet(0, 0).loaded == set(versions)
        # No router has reported yet, but what serves stays.
        await asyncio.sleep(0.3)
        assert fleet.loaded() == [set(versions)] * 4 + [{versions[0]}] * 2
    # A candidate that cannot be read leaves the active version alone.
    file = root / "planted" / versions[1] / "set.json"
    content = file.read_bytes()
    file.unlink()
    try:
        async with coordinating(root, fleet) as own:
            found = await own.follow(None, 0, 0)
            assert (found.generation, found.version, found.experiment) == (2, versions[0], None)
    finally:
        file.write_bytes(content)
