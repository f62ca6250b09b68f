"""The replicas of a fleet, as its coordinator sees them: which versions each has loaded, and whether it answers."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from logging import getLogger
from typing import Any, Protocol

from fullrank.errors import BundleError, FullrankError
from fullrank_fleet.serving.waiting import answered
from fullrank_fleet.sets.manifest import SetManifest
from fullrank_service.models.workers import Report

# The routers that follow a coordinator, by what they have reported.


# A router that has not reported for so long counts as dead. A version is dropped once no router has used it for so
# long: longer than a request takes, and than a router waits before it reports again.
SILENT_S = 15.0
# The routers of a coordinator that died report to the next one within this time, unless they are dead.
_RETURN_S = 2.0


@dataclass(frozen=True, slots=True)
class _Heard:
    report: Report
    epoch: int
    at: float


class Routers:
    def __init__(self) -> None:
        self._heard: dict[str, _Heard] = {}
        self._last_used: dict[str, float] = {}
        self._changed = asyncio.Condition()
        self._since = time.monotonic()
        self._complete_at = self._since

    def expect(self) -> None:
        """Expect the routers of the coordinator before: no change counts as settled until they had time to report."""
        self._complete_at = time.monotonic() + _RETURN_S

    async def note(self, report: Report, epoch: int) -> None:
        """Note the report of a router that follows the snapshot of an epoch."""
        now = time.monotonic()
        self._heard[report.id] = _Heard(report, epoch, now)
        self._last_used |= dict.fromkeys(report.loaded, now)
        async with self._changed:
            self._changed.notify_all()

    async def forget(self, id: str) -> None:
        self._heard.pop(id, None)
        async with self._changed:
            self._changed.notify_all()

    @property
    def reports(self) -> list[Report]:
        return [heard.report for _, heard in sorted(self._alive.items())]

    @property
    def used(self) -> Collection[str] | None:
        """The versions that requests may still ask for; None for as long as not every router can have reported."""
        if time.monotonic() - self._since <= SILENT_S:
            return None
        oldest = time.monotonic() - SILENT_S
        self._last_used = {own: used for own, used in self._last_used.items() if used > oldest}
        return self._last_used

    async def settled(
        self, epoch: int, versions: Collection[str], wait_s: float
    ) -> tuple[int, bool]:
        """As ``Coordinator.settled``."""

        def is_done() -> bool:
            return all(
                heard.epoch >= epoch and set(versions) <= {*heard.report.loaded}
                for heard in self._alive.values()
            )

        await asyncio.sleep(self._complete_at - time.monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(is_done)
        return len(self._alive), is_done()

    @property
    def _alive(self) -> dict[str, _Heard]:
        oldest = time.monotonic() - SILENT_S
        self._heard = {id: heard for id, heard in self._heard.items() if heard.at > oldest}
        return self._heard


LOAD_S = 1800.0
"""Longest time to download, verify and warm a shard, for a replica that answers pings meanwhile."""
START_S = 60.0
"""The longest time until the process of a replica has started, where a swap has to wait for it."""
# A replica that does not answer a ping for so long is left out of what routers are given.
_PING_S = 1.0
_log = getLogger(__name__)


class SwapRefused(FullrankError):
    """The version cannot serve; the message says why. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class PlacedSet:
    """A set, and the address of its folder."""

    manifest: SetManifest
    address: str

    @property
    def version(self) -> str:
        return self.manifest.version

    @property
    def sha256(self) -> str:
        """Of set.json (hex)."""
        return hashlib.sha256(self.manifest.dump().encode()).hexdigest()

    def has(self, number: int) -> bool:
        """Return whether it has documents in a shard."""
        shards = self.manifest.shards
        return number < len(shards) and bool(shards[number].documents)


class ReplicaHandle(Protocol):
    """A replica process, as the coordinator drives it."""

    async def load(self, address: str) -> Sequence[str]:
        """Download, verify and warm a shard of a set; return all versions that are open. Raises BundleError."""

    async def release(self, versions: Sequence[str]) -> Sequence[str]:
        """Drop versions that nobody asks the replica for; return all versions that are open."""

    async def ping(self) -> str:
        """Return a text that is another one after the process was started again."""

    async def node(self) -> str:
        """Return the id of the node that the process is on."""

    async def stop(self) -> None:
        """End the process for good."""


# Finds or starts a replica of a shard, given its number, its place, and perhaps the id of a node for it.
Spawn = Callable[..., ReplicaHandle]


@dataclass(eq=False)
class _Tracked:
    handle: ReplicaHandle
    instance: str | None = None
    loaded: set[str] = field(default_factory=set)
    is_up: bool = False
    loading: asyncio.Task[None] | None = None

    async def ping(self, *, start_s: float = _PING_S) -> None:
        """Find out whether the replica answers (within ``start_s`` if it never has) and was started again."""
        limit = start_s if self.instance is None else _PING_S
        try:
            async with asyncio.timeout(limit):
                instance = await self.handle.ping()
        except Exception:
            self.is_up = False
            return
        if instance != self.instance:
            self.instance, self.loaded = instance, set()
        self.is_up = True

    async def load(self, wanted: PlacedSet) -> None:
        """Load a version. Raises NoAnswer if the replica answers no pings meanwhile, or as the replica does."""
        if wanted.version not in self.loaded:
            instance, loading = self.instance, self.handle.load(wanted.address)
            versions = await answered(loading, self.handle.ping, limit_s=LOAD_S)
            if instance == self.instance:
                # A coordinator that was started again learns here what the replica has open.
                self.loaded |= {wanted.version} if self.loaded else set(versions)

    async def release(self, versions: Sequence[str]) -> None:
        """Drop versions that do not count as loaded any more; those that the replica keeps count again."""
        instance = self.instance
        async with asyncio.timeout(_PING_S):
            kept = await self.handle.release(versions)
        if instance == self.instance:
            self.loaded.update(set(versions).intersection(kept))

    def load_soon(self, wanted: PlacedSet) -> None:
        if self.loading is None or self.loading.done():
            self.loading = asyncio.ensure_future(_all([self.load(wanted)]))


class Replicas:
    """The replicas of all shards, ``count`` of each."""

    def __init__(self, count: int, spawn: Spawn) -> None:
        self._count, self._spawn = count, spawn
        self._tracked: dict[tuple[int, int], _Tracked] = {}

    async def ping(self) -> None:
        await _all(own.ping() for own in list(self._tracked.values()))

    async def propose(self, wanted: PlacedSet) -> None:
        """Load a set in every replica that answers; start those that do not run.

        A replica that dies or freezes while it loads is left out; it loads the set when it answers again.

        Raises:
            SwapRefused: A replica refuses the set, or none of a shard answers.
        """
        owners = await self._started(wanted)
        loads = [
            (number, own, asyncio.ensure_future(own.load(wanted)))
            for number, replicas in owners.items()
            for own in replicas
            if own.is_up
        ]
        await asyncio.gather(*(load for *_, load in loads), return_exceptions=True)
        ready = set()
        for number, own, load in loads:
            error = load.exception()
            if error is None:
                ready.add(number)
            elif isinstance(error, BundleError) or not _is_lost(error):
                raise SwapRefused(f"{wanted.version}, shard {number}: {error}")
            else:
                own.is_up = False
        missing = sorted(owners.keys() - ready)
        if missing:
            raise SwapRefused(f"{wanted.version}: no replica of the shards {missing} answers")

    async def load(self, wanted: PlacedSet) -> None:
        """Load a set that was proposed before in every replica that answers; errors are logged."""
        owners = await self._started(wanted)
        await _all(own.load(wanted) for found in owners.values() for own in found if own.is_up)

    def load_late(self, wanted: Sequence[PlacedSet]) -> None:
        """Let replicas that have missed a set load it in the background, one after the other in this order."""
        for (number, _), own in self._tracked.items():
            missing = [one for one in wanted if one.has(number) and one.version not in own.loaded]
            if own.is_up and missing:
                own.load_soon(missing[0])

    async def release(self, keep: Collection[str]) -> None:
        # Versions are named, and taken from what is loaded before anything waits: a swap that begins meanwhile loads
        # a version that no release drops.
        releases = []
        for own in self._tracked.values():
            unused = own.loaded.difference(keep)
            if own.is_up and unused:
                own.loaded -= unused
                releases.append(own.release(sorted(unused)))
        await _all(releases)

    def askable(self, wanted: Sequence[PlacedSet]) -> tuple[tuple[ReplicaHandle, ...], ...]:
        """Return the replicas of each shard that routers may ask for some sets.

        These are the ones that answer and have all of the sets; else those that have the first of them. If none of a
        shard answers pings, all that have the sets: they may only be slow, and routers can try.
        """
        count = max(len(one.manifest.shards) for one in wanted)
        return tuple(self._askable(number, wanted) for number in range(count))

    def _askable(self, number: int, wanted: Sequence[PlacedSet]) -> tuple[ReplicaHandle, ...]:
        versions = [one.version for one in wanted if one.has(number)]
        owners = [own for (of, _), own in sorted(self._tracked.items()) if of == number]
        having_any = [own for own in owners if versions and versions[0] in own.loaded]
        having_all = [own for own in having_any if own.loaded.issuperset(versions)]
        for found in (
            [own for own in having_all if own.is_up],
            [own for own in having_any if own.is_up],
            having_all,
        ):
            if found:
                return tuple(own.handle for own in found)
        return tuple(own.handle for own in having_any)

    async def spread(self, nodes: Collection[str], wanted: Sequence[PlacedSet]) -> None:
        """Move a replica that shares its node with another one of its shard to one of ``nodes`` that has none.

        All replicas must answer and have loaded everything, so the shard stays served and one moves at a time.
        """
        serving = dict(self._tracked)
        for (number, _), own in serving.items():
            needed = {one.version for one in wanted if one.has(number)}
            if not (own.is_up and own.loaded.issuperset(needed)):
                return
        found = await asyncio.gather(*map(_node, serving.values()))
        node_of = dict(zip(serving, found, strict=True))
        held = Counter(node_of.values())
        for (number, place), node in sorted(node_of.items()):
            others = {node_of[key] for key in node_of if key[0] == number and key[1] != place}
            free = set(nodes) - others - {node}
            if node in others and free:
                await self._move(number, place, min(free, key=lambda one: (held[one], one)))
                return

    async def _move(self, number: int, place: int, node: str) -> None:
        own = self._tracked[number, place]
        _log.info("shard %d: moving replica %d to node %s", number, place, node)
        own.is_up = False
        try:
            await own.handle.stop()
        finally:
            if self._tracked.get((number, place)) is own:
                self._tracked[number, place] = _Tracked(self._spawn(number, place, node))

    async def scale(self, count: int, wanted: Sequence[PlacedSet]) -> Sequence[ReplicaHandle]:
        """Change how many replicas each shard has; new ones load the sets. Return those that are not used any more."""
        self._count = count
        unused = [key for key in self._tracked if key[1] >= count]
        stopping = [self._tracked.pop(key).handle for key in unused]
        for one in wanted:
            await self.load(one)
        return stopping

    async def _started(self, wanted: PlacedSet) -> Mapping[int, Sequence[_Tracked]]:
        """Return the replicas of each shard in which a set has documents, once they have started or are late."""
        owners: dict[int, list[_Tracked]] = {}
        for number in range(len(wanted.manifest.shards)):
            for place in range(self._count if wanted.has(number) else 0):
                if (number, place) not in self._tracked:
                    self._tracked[number, place] = _Tracked(self._spawn(number, place))
                owners.setdefault(number, []).append(self._tracked[number, place])
        await _all(own.ping(start_s=START_S) for found in owners.values() for own in found)
        return owners


async def _node(own: _Tracked) -> str:
    # A timeout here, as a call that is cancelled before it begins would never be awaited.
    async with asyncio.timeout(_PING_S):
        return await own.handle.node()


async def _all(calls: Iterable[Awaitable[Any]]) -> None:
    for error in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(error, Exception):
            _log.warning("a replica failed: %s: %s", type(error).__name__, error)


def _is_lost(error: BaseException) -> bool:
    return isinstance(error, TimeoutError | ConnectionError)
