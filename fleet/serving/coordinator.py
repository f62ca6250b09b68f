"""The coordinator of a fleet: the only writer of ``active.json``, and the one that knows every replica.

A swap has the two phases of a single machine (``service.models.swap``):

    1. propose   Every live replica downloads, verifies and warms its shard of the new version while it serves the old.
    2. commit    ``active.json`` is written once. Routers that follow the coordinator switch; a request that has begun
                 keeps its generation, and replicas keep the old version until no router uses it any more.

If the coordinator dies before the commit, nothing has changed: the next one reads ``active.json``. After the commit
nothing undoes it. A replica that starts late, or again, joins once it has loaded the active version.

This module does not name Ray: ``fleet.serving.actors`` runs it as an actor.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from logging import getLogger
from typing import Any, Protocol

from fleet.remote import Folder
from fleet.sets import SetManifest, find_set, read_set
from fullrank.errors import BundleError, FullrankError
from service.models.state import STATE, ActiveState, dump_state, parse_state

# Longest time to download, verify and warm a shard.
_LOAD_S = 1800.0
# A replica that does not answer a ping for so long is left out of what routers are given.
_PING_S = 1.0
# The longest time until the process of a replica has started, where a swap has to wait for it.
_START_S = 60.0
# Pause between two rounds of pings.
_ROUND_S = 0.5
# A version is dropped once no router has used it for so long: longer than a request takes, and than a router waits
# before it asks again.
_UNUSED_S = 15.0
_log = getLogger(__name__)


class SwapUnderWay(FullrankError):
    """Another swap is in progress; nothing was changed."""


class SwapRefused(FullrankError):
    """The version cannot serve; the message says why. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Source:
    """One shard of a version: where a replica gets it from.

    Attributes:
        version: Of the set.
        set_address: Of the set's folder.
        number: Of the shard.
    """

    version: str
    set_address: str
    number: int


class ReplicaHandle(Protocol):
    """A replica process, as the coordinator drives it."""

    async def load(self, source: Source) -> Sequence[str]:
        """Download, verify and warm a shard; at once if it has it.

        Returns:
            All versions that the replica has open.

        Raises:
            BundleError: The version cannot serve.
        """

    async def release(self, versions: Sequence[str]) -> None:
        """Drop versions."""

    async def ping(self) -> str:
        """Return a text that is another one after the process was started again."""


Spawn = Callable[[int, int], ReplicaHandle]
"""(number of the shard, number of the replica) → the replica, found or started."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What routers serve by.

    Attributes:
        epoch: Grows with every change.
        generation: Counts activations; 0: nothing was activated.
        version: That serves.
        set_address: Of its folder.
        replicas: By shard, those that have loaded the version and answer; all that have loaded it where none answers.
        log: Fingerprint of the log that shards follow; None: they follow none.
    """

    epoch: int = 0
    generation: int = 0
    version: str | None = None
    set_address: str | None = None
    replicas: tuple[tuple[Any, ...], ...] = ()
    log: str | None = None


@dataclass(eq=False)
class _Tracked:
    """A replica, what it has loaded, and since when it has not answered."""

    handle: ReplicaHandle
    instance: str | None = None
    loaded: set[str] = field(default_factory=set)
    is_up: bool = False
    loading: asyncio.Task[None] | None = None

    async def ping(self, *, start_s: float = _PING_S) -> None:
        """Find out whether the replica answers, and whether it was started again since.

        Args:
            start_s: Longest wait for a replica that has never answered.
        """
        limit = start_s if self.instance is None else _PING_S
        try:
            instance = await asyncio.wait_for(self.handle.ping(), limit)
        except Exception:
            self.is_up = False
            return
        if instance != self.instance:
            self.instance, self.loaded = instance, set()
        self.is_up = True

    async def load(self, source: Source) -> None:
        """Load a version. Raises what the replica raises, TimeoutError too."""
        if source.version not in self.loaded:
            instance = self.instance
            versions = await asyncio.wait_for(self.handle.load(source), _LOAD_S)
            if instance == self.instance:
                # A coordinator that was started again learns here what the replica has open.
                self.loaded |= {source.version} if self.loaded else set(versions)

    def load_soon(self, source: Source) -> None:
        """Load a version in the background; an error is logged, and the next round tries again."""
        if self.loading is None or self.loading.done():
            self.loading = asyncio.ensure_future(_all([self.load(source)]))


class Coordinator:
    """Activates versions on the replicas of a fleet.

    Args:
        root: Folder of sharded bundles; has ``active.json``.
        replicas: Of each shard.
        spawn: Finds or starts a replica.
        log: As in ``Snapshot``.
    """

    def __init__(self, root: str, replicas: int, spawn: Spawn, log: str | None = None) -> None:
        self._root = Folder(root)
        self._replicas = replicas
        self._spawn = spawn
        self._tracked: dict[tuple[int, int], _Tracked] = {}
        self._swap = asyncio.Lock()
        self._changed = asyncio.Condition()
        # A coordinator that is started again must not give a number that a router has.
        self._snapshot = Snapshot(time.time_ns(), log=log)
        self._manifest: SetManifest | None = None
        self._last_used: dict[str, float] = {}
        self._started_at = time.monotonic()
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load what is active, then watch the replicas in the background.

        Raises:
            StateDamaged: ``active.json`` cannot be read.
            BundleNotFound, BundleError, RemoteError: The active version cannot be read.
        """
        async with self._swap:
            state = await asyncio.to_thread(self._read_state)
            if state.version is not None:
                await self._follow_state(state)
        self._watcher = asyncio.ensure_future(self._watch_always())

    async def close(self) -> None:
        """Stop watching."""
        if self._watcher is not None:
            self._watcher.cancel()

    async def activate(self, name_or_version: str) -> Snapshot:
        """Make a version the one that serves: propose, commit.

        Args:
            name_or_version: A version, or a name for its newest version.

        Returns:
            The new state; if the version serves already, the present one.

        Raises:
            SwapUnderWay, SwapRefused, BundleNotFound, RemoteError: Nothing was changed.
        """
        if self._swap.locked():
            raise SwapUnderWay("Another swap is in progress; nothing was changed.")
        async with self._swap:
            folder = await asyncio.to_thread(find_set, self._root, name_or_version)
            manifest = await asyncio.to_thread(read_set, folder)
            state = await asyncio.to_thread(self._read_state)
            sha256 = hashlib.sha256(manifest.dump().encode()).hexdigest()
            if (state.version, state.manifest_sha256) == (manifest.version, sha256):
                return self._snapshot
            await self._propose(manifest, str(folder))
            after = ActiveState(
                state.generation + 1, manifest.version, sha256, previous=state.version
            )
            # The commit.
            await asyncio.to_thread(self._root.write, STATE, dump_state(after).encode())
            await self._publish(after.generation, manifest, str(folder))
            return self._snapshot

    async def follow(self, uses: Iterable[str], epoch: int, wait_s: float) -> Snapshot:
        """Return the state once it is another one than a router has, or after some seconds.

        Args:
            uses: The versions that the router may ask for.
            epoch: Of the snapshot that it has.
            wait_s: The longest wait.
        """
        self._last_used |= dict.fromkeys(uses, time.monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(lambda: self._snapshot.epoch != epoch)
        return self._snapshot

    async def _follow_state(self, state: ActiveState) -> None:
        """Serve what was committed before this coordinator started."""
        assert state.version is not None
        folder = await asyncio.to_thread(find_set, self._root, state.version)
        manifest = await asyncio.to_thread(read_set, folder)
        self._spawn_all(manifest)
        wanted = self._of(manifest)
        pings = (own.ping(start_s=_START_S) for owners in wanted.values() for own in owners)
        await _all(pings)
        # Replicas that have it already, because only the coordinator was started again, return at once.
        await _all(
            own.load(Source(manifest.version, str(folder), number))
            for number, owners in wanted.items()
            for own in owners
            if own.is_up
        )
        await self._publish(state.generation, manifest, str(folder))

    async def _propose(self, manifest: SetManifest, address: str) -> None:
        """Load a version in every live replica. Raises SwapRefused."""
        self._spawn_all(manifest)
        wanted = self._of(manifest)
        pings = (own.ping(start_s=_START_S) for owners in wanted.values() for own in owners)
        await _all(pings)
        loads = [
            (
                number,
                own,
                asyncio.ensure_future(own.load(Source(manifest.version, address, number))),
            )
            for number, owners in wanted.items()
            for own in owners
            if own.is_up
        ]
        await asyncio.gather(*(load for *_, load in loads), return_exceptions=True)
        ready = set()
        for number, own, load in loads:
            error = load.exception()
            if error is None:
                ready.add(number)
            elif isinstance(error, BundleError) or not _is_lost(error):
                raise SwapRefused(f"{manifest.version}, shard {number}: {error}")
            else:
                own.is_up = False
        missing = sorted(wanted.keys() - ready)
        if missing:
            raise SwapRefused(f"{manifest.version}: no replica of the shards {missing} answers")

    def _spawn_all(self, manifest: SetManifest) -> None:
        for number, shard in enumerate(manifest.shards):
            for place in range(self._replicas if shard.documents else 0):
                if (number, place) not in self._tracked:
                    self._tracked[number, place] = _Tracked(self._spawn(number, place))

    def _of(self, manifest: SetManifest) -> dict[int, list[_Tracked]]:
        """Return the replicas of each shard that has documents."""
        return {
            number: [own for (of, _), own in sorted(self._tracked.items()) if of == number]
            for number, shard in enumerate(manifest.shards)
            if shard.documents
        }

    async def _publish(self, generation: int, manifest: SetManifest, address: str) -> None:
        self._manifest = manifest
        self._snapshot = replace(
            self._snapshot, generation=generation, version=manifest.version, set_address=address
        )
        await self._refresh(is_forced=True)

    async def _refresh(self, *, is_forced: bool = False) -> None:
        """Give routers the replicas that answer and have the active version, if these have changed."""
        assert self._manifest is not None
        version, owners = self._manifest.version, self._of(self._manifest)
        found = tuple(
            _askable(owners.get(number, ()), version)
            for number in range(len(self._manifest.shards))
        )
        if is_forced or found != self._snapshot.replicas:
            self._snapshot = replace(self._snapshot, epoch=self._snapshot.epoch + 1, replicas=found)
            async with self._changed:
                self._changed.notify_all()

    async def _watch_always(self) -> None:
        while True:
            await asyncio.sleep(_ROUND_S)
            await self._watch()

    async def _watch(self) -> None:
        """Ping every replica, let late ones load the active version, drop versions that nobody uses."""
        tracked = list(self._tracked.items())
        await _all(own.ping() for _, own in tracked)
        manifest, address = self._manifest, self._snapshot.set_address
        if manifest is None or address is None:
            return
        await self._refresh()
        for number, owners in self._of(manifest).items():
            for own in owners:
                if own.is_up and manifest.version not in own.loaded:
                    own.load_soon(Source(manifest.version, address, number))
        # A coordinator that has just started does not know yet what routers use.
        is_known = time.monotonic() - self._started_at > _UNUSED_S
        if is_known and not self._swap.locked():
            await self._release(manifest.version)

    async def _release(self, active: str) -> None:
        oldest = time.monotonic() - _UNUSED_S
        self._last_used = {v: used for v, used in self._last_used.items() if used > oldest}
        keep = {active, *self._last_used}
        # Versions are named, and taken from what is loaded before anything waits: a swap that begins meanwhile loads
        # a version that no release drops.
        releases = []
        for own in self._tracked.values():
            unused = own.loaded - keep
            if own.is_up and unused:
                own.loaded -= unused
                releases.append(asyncio.wait_for(own.handle.release(sorted(unused)), _PING_S))
        await _all(releases)

    def _read_state(self) -> ActiveState:
        content = self._root.read(STATE)
        return ActiveState() if content is None else parse_state(content, f"{self._root}/{STATE}")


def _askable(owners: Sequence[_Tracked], version: str) -> tuple[ReplicaHandle, ...]:
    """Return the replicas of a shard that routers may ask for a version.

    If none of them answers pings, all that have the version: they may only be slow, and routers can try.
    """
    loaded = [own for own in owners if version in own.loaded]
    return tuple(own.handle for own in loaded if own.is_up) or tuple(own.handle for own in loaded)


async def _all(calls: Iterable[Awaitable[Any]]) -> None:
    """Run calls together; those that fail are logged."""
    for error in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(error, Exception):
            _log.warning("a replica failed: %s: %s", type(error).__name__, error)


def _is_lost(error: BaseException) -> bool:
    """Return whether an error says that the replica is dead or does not answer."""
    return isinstance(error, TimeoutError | ConnectionError)
