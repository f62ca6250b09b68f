"""Replicas that are objects, and a coordinator over them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fullrank.errors import BundleError
from fullrank_fleet.jobs.index import index_set
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.serving import coordinator, tracking
from fullrank_fleet.serving.coordinator import Coordinator, Snapshot
from fullrank_service.models.workers import Report
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, planted_bundle


class Fake:
    """A replica that notes what it has loaded; place: its node."""

    def __init__(self, place: str = "a") -> None:
        self.place = place
        self.loaded: set[str] = set()
        self.instance = 0
        self.refuses = self.is_dead = self.is_frozen = False
        self.refused: set[str] = set()
        self.asked: set[str] = set()
        self.load_s = self.release_s = 0.0
        # One after the other, as in a process.
        self.control = asyncio.Lock()

    async def load(self, address: str) -> Sequence[str]:
        await self._act()
        version = address.rpartition("/")[2]
        async with self.control:
            if version not in self.loaded:
                await asyncio.sleep(self.load_s)
                if self.refuses or version in self.refused:
                    raise BundleError("golden.jsonl: differs")
                self.loaded.add(version)
            return sorted(self.loaded)

    async def release(self, versions: Sequence[str]) -> Sequence[str]:
        await self._act()
        async with self.control:
            await asyncio.sleep(self.release_s)
            self.loaded -= set(versions) - self.asked
            return sorted(self.loaded)

    async def ping(self) -> str:
        await self._act()
        return str(self.instance)

    async def node(self) -> str:
        await self._act()
        return self.place

    async def stop(self) -> None:
        self.is_dead = True

    def restart(self) -> None:
        self.loaded, self.instance, self.is_dead = set(), self.instance + 1, False

    async def _act(self) -> None:
        if self.is_dead:
            raise ConnectionError("died")
        if self.is_frozen:
            await asyncio.sleep(3600)


class Fleet:
    """The fake of each shard and place. A call that names a node makes one there; the first of `nodes` is usual."""

    def __init__(self) -> None:
        self.fakes: dict[tuple[int, int], Fake] = {}
        self.nodes = ["a"]

    def __call__(self, number: int, place: int, node: str | None = None) -> Fake:
        found = self.fakes.get((number, place))
        if found is None or node is not None:
            found = self.fakes[number, place] = Fake(node or self.nodes[0])
        return found

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


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@asynccontextmanager
async def coordinating(root: Path, fleet: Fleet) -> AsyncIterator[Coordinator]:
    """A coordinator that runs while the block does; the replicas stay."""
    own = Coordinator(str(root), 2, fleet, nodes=lambda: fleet.nodes)
    await own.start()
    try:
        yield own
    finally:
        await own.close()


@pytest.fixture
async def own(root: Path, versions: tuple[str, str], fleet: Fleet) -> AsyncIterator[Coordinator]:
    async with coordinating(root, fleet) as found:
        yield found


async def heard(own: Coordinator, condition: Callable[[Snapshot], object]) -> Snapshot:
    """What routers hear, once a condition holds."""
    found = await own.follow(None, 0, 0)
    async with asyncio.timeout(5):
        while not condition(found):
            found = await own.follow(None, found.epoch, 1)
    return found


def counts(found: Snapshot) -> list[int]:
    return [len(replicas) for replicas in found.replicas]


def report(id: str, loaded: Sequence[str], generation: int = 1) -> Report:
    return Report(id, 1, "host", True, generation, loaded[0], loaded=tuple(loaded))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


def active(root: Path) -> tuple[int, str]:
    value = json.loads((root / "active.json").read_text())
    return value["generation"], value["version"]
