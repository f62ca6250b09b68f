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
from fleet.serving import coordinator
from fleet.serving.coordinator import Coordinator, Snapshot, Source, SwapRefused, SwapUnderWay
from fullrank.errors import BundleError, BundleNotFound
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, planted_bundle


class Fake:
    """A replica that notes what it has loaded."""

    def __init__(self) -> None:
        self.loaded: set[str] = set()
        self.instance = 0
        self.refuses = self.is_dead = self.is_frozen = False
        self.load_s = self.release_s = 0.0
        # One after the other, as in a process.
        self.control = asyncio.Lock()

    async def load(self, source: Source) -> Sequence[str]:
        await self._act()
        async with self.control:
            if source.version not in self.loaded:
                await asyncio.sleep(self.load_s)
                if self.refuses:
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
    monkeypatch.setattr(coordinator, "_PING_S", 0.05)
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
        assert (await own.follow((), 0, 0)).version == before.version
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
                later = await own.follow((), later.epoch, 1)
        assert versions[1] in fleet(0, 0).loaded & fleet(1, 1).loaded
        assert later.generation == found.generation

    run(root, work, Fleet())


def test_routers_may_try_the_replicas_of_a_shard_of_which_none_answers_pings(
    root: Path, versions: tuple[str, str]
) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        found = await own.activate(versions[1])
        fleet(0, 0).is_frozen = True
        found = await own.follow((), found.epoch, 5)
        assert [len(replicas) for replicas in found.replicas] == [1, 2]
        fleet(0, 1).is_frozen = True
        found = await own.follow((), found.epoch, 5)
        assert [len(replicas) for replicas in found.replicas] == [2, 2]
        fleet(0, 1).is_frozen = False
        found = await own.follow((), found.epoch, 5)
        assert found.replicas[0] == (fleet(0, 1),)

    run(root, work, Fleet())


def test_a_shard_without_a_replica_refuses_the_swap(root: Path, versions: tuple[str, str]) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        fleet(1, 0).is_dead = fleet(1, 1).is_dead = True
        with pytest.raises(SwapRefused, match=r"no replica of the shards \[1\] answers"):
            await own.activate(versions[0])
        assert not (root / "active.json").exists()

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
        found = await own.follow((), 0, 0)
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
        found = await own.follow((), 0, 0)
        assert (found.generation, found.version) == (2, versions[1])

    run(root, dies, fleet)
    run(root, next_one, fleet)


def test_old_versions_stay_while_a_router_uses_them(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_UNUSED_S", 0.3)

    async def work(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[0])
        await own.activate(versions[1])
        for _ in range(40):
            await own.follow(versions, 0, 0)
            await asyncio.sleep(0.01)
            assert versions[0] in fleet(0, 0).loaded
        await until(lambda: fleet.loaded() == [{versions[1]}] * 4 + [set()] * 2)

    run(root, work, Fleet())


def test_a_swap_while_old_versions_are_dropped_keeps_the_new_one(
    root: Path, versions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_UNUSED_S", 0.05)
    monkeypatch.setattr(coordinator, "_PING_S", 0.3)

    async def work(own: Coordinator, fleet: Fleet) -> None:
        await own.activate(versions[1])
        await asyncio.sleep(0.1)
        fleet(0, 0).release_s = 0.2
        await own.activate(versions[0])
        await until(lambda: fleet(0, 0).control.locked())
        # The other replicas have dropped the version, or will, when it comes again.
        await own.activate(versions[1])
        for _ in range(50):
            found = await own.follow((), 0, 0)
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
        monkeypatch.setattr(coordinator, "_UNUSED_S", 0.05)
        await until(lambda: fleet.loaded()[:4] == [{versions[1]}] * 4)

    run(root, dies, fleet)
    assert fleet.loaded()[0] == set(versions)
    run(root, next_one, fleet)


def test_routers_hear_of_a_change_at_once(root: Path, versions: tuple[str, str]) -> None:
    async def work(own: Coordinator, fleet: Fleet) -> None:
        before: Snapshot = await own.follow((), 0, 0)
        waiting = asyncio.ensure_future(own.follow((), before.epoch, 60))
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
