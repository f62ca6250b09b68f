"""The coordinator over replicas that are objects: two phases, lost and late replicas, a second coordinator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from fleet.jobs.index import index_set
from fleet.jobs.tasks import InProcess
from fleet.serving import coordinator, routers, tracking, waiting
from fleet.serving.coordinator import Coordinator, Snapshot, SwapUnderWay
from fleet.serving.tracking import Source, SwapRefused
from fullrank.errors import BundleError, BundleNotFound
from service.models.workers import Report
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, planted_bundle


class Fake:
    """A replica that notes what it has loaded."""

    def __init__(self) -> None:
        self.loaded: set[str] = set()
        self.instance = 0
        self.refuses = self.is_dead = self.is_frozen = False
        self.refused: set[str] = set()
        self.load_s = self.release_s = 0.0
        # One after the other, as in a process.
        self.control = asyncio.Lock()

    async def load(self, source: Source) -> Sequence[str]:
        await self._act()
        async with self.control:
            if source.version not in self.loaded:
                await asyncio.sleep(self.load_s)
                if self.refuses or source.version in self.refused:
                    raise BundleError("golden.jsonl: differs")
                self.loaded.add(source.version)
            return sorted(self.loaded)

    async def release(self, versions: Sequence[str]) -> None:
        await self._act()
        async with self.control:
            await asyncio.sleep(self.release_s)
            self.loaded -= set(versions)

    async def ping(self) -> str:
        await self._act()
        return str(self.instance)

    def restart(self) -> None:
        self.loaded, self.instance, self.is_dead = set(), self.instance + 1, False

    async def _act(self) -> None:
        if self.is_dead:
            raise ConnectionError("died")
        if self.is_frozen:
            await asyncio.sleep(3600)


class Fleet:
    """Fakes by shard and place."""

    def __init__(self) -> None:
        self.fakes: dict[tuple[int, int], Fake] = {}

    def __call__(self, number: int, place: int) -> Fake:
        return self.fakes.setdefault((number, place), Fake())

    def loaded(self) -> list[set[str]]:
        return [fake.loaded for _, fake in sorted(self.fakes.items())]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of one name, of 3 and of 2 shards."""
    folder = tmp_path_factory.mktemp("sets")
    bundle = planted_bundle(tmp_path_factory.mktemp("bundles"))
    for shards in (3, 2):
        corpus = corpus_of(tmp_path_factory.mktemp("corpus"), 40 + shards)
        index_set(
            str(bundle), str(corpus), str(folder), shards=shards, runner=InProcess(), reporter=QUIET
        )
    return folder


@pytest.fixture
def versions(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """That of 3 shards and that of 2; nothing is active, and pings are quick."""
    (root / "active.json").unlink(missing_ok=True)
    monkeypatch.setattr(coordinator, "_ROUND_S", 0.01)
    monkeypatch.setattr(tracking, "_PING_S", 0.05)
    found = {
        len(json.loads(path.read_text())["shards"]): path.parent.name
        for path in root.rglob("set.json")
    }
    return found[3], found[2]


def run(
    root: Path, work: Callable[[Coordinator, Fleet], Coroutine[Any, Any, None]], fleet: Fleet
) -> None:
    async def main() -> None:
        own = Coordinator(str(root), 2, fleet)
        await own.start()
        try:
            await work(own, fleet)
        finally:
            await own.close()

    asyncio.run(main())


def report(id: str, loaded: Sequence[str], generation: int = 1) -> Report:
    return Report(id, 1, "host", True, generation, loaded[0], loaded=tuple(loaded))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


def active(root: Path) -> tuple[int, str]:
    value = json.loads((root / "active.json").read_text())
    return value["generation"], value["version"]


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


def test_two_swaps_at_once_are_refused(root: Path, versions: tuple[str, str]) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        fleet(0, 0).load_s = 0.2
        first = asyncio.ensure_future(own.activate(versions[0]))
        await asyncio.sleep(0.05)
        with pytest.raises(SwapUnderWay):
            await own.activate(versions[1])
        assert (await first).version == versions[0]

    run(root, work, Fleet())


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
