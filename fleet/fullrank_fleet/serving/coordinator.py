"""The coordinator of a fleet: the only writer of ``active.json``, and the one that knows every replica and router.

A swap has the two phases of a single machine (``fullrank_service.models.swap``):

    1. propose   Every live replica downloads, verifies and warms its shard of the new version while it serves the old.
    2. commit    ``active.json`` is written once. Routers that follow the coordinator switch; a request that has begun
                 keeps its generation, and replicas keep the old version until no router uses it any more.

So does the start of an experiment, whose candidate is the new version. If the coordinator dies before the commit,
nothing has changed: the next one reads ``active.json``. After the commit nothing undoes it. A replica that starts late,
or again, joins once it has loaded what serves.

This module does not name Ray: ``fullrank_fleet.serving.actors`` runs it as an actor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from logging import getLogger
from typing import Any

from fullrank.errors import BundleError, BundleNotFound, FullrankError
from fullrank_fleet.remote import Folder, RemoteError
from fullrank_fleet.serving.tracking import (
    LOAD_S,
    START_S,
    PlacedSet,
    Replicas,
    Routers,
    Spawn,
    SwapRefused,
)
from fullrank_fleet.sets.manifest import find_set, find_version, newest_set, read_set
from fullrank_service.base.experiment import Active, Experiment, name_of
from fullrank_service.models.policy import pinned
from fullrank_service.models.state import (
    STATE,
    ActiveState,
    activated,
    dump_state,
    experimenting,
    loading,
    parse_state,
    without_experiment,
)
from fullrank_service.models.workers import Report

# Pause between two rounds of pings.
_ROUND_S = 0.5
# Pause between two looks for the first set, which a router that starts later activates at once.
_LOOK_S = 5.0
# Pause between two looks for replicas that share a node: one that has joined may take them apart.
_SPREAD_S = 10.0
# The longest wait after a commit until every router follows.
_SETTLE_S = 10.0
CHANGE_S = 2 * (START_S + LOAD_S)
"""The longest time of a change: a coordinator that was started again lets replicas load what serves first."""
MAX_LOADED = 2
"""Sets that routers, and so all replicas, keep loaded at least: the active one, and the one before, which requests and
the cursors of pages may name. Those of other collections, candidates and the one that was loaded last stay as well."""
_log = getLogger(__name__)


class SwapUnderWay(FullrankError):
    """Another swap is in progress; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What routers serve by.

    Attributes:
        epoch: Grows with every change.
        generation: Counts activations, and starts and ends of experiments; 0: nothing was activated.
        replicas: By shard, those that have loaded the version and answer; all that have loaded it where none answers.
        log: Fingerprint of the log that shards follow; None: they follow none.
        further: Other versions that every router loads, each with its address; candidates and what other collections
            serve are among them.
        collections: What other collections than that of the version serve, by bundle name.
        root: Address of the folder of sharded bundles.
        per_shard: Replicas that the fleet was started with.
    """

    epoch: int = 0
    generation: int = 0
    version: str | None = None
    set_address: str | None = None
    replicas: tuple[tuple[Any, ...], ...] = ()
    log: str | None = None
    previous: str | None = None
    further: tuple[tuple[str, str], ...] = ()
    experiment: Experiment | None = None
    collections: Mapping[str, Active] = field(default_factory=dict)
    root: str = ""
    per_shard: int = 0

    @property
    def versions(self) -> tuple[str, ...]:
        active = () if self.version is None else (self.version,)
        return (*active, *(version for version, _ in self.further))

    def of(self, collection: str | None) -> Snapshot:
        """Return the snapshot with version, previous version and experiment of a collection; None: the default one."""
        if collection is None or (self.version is not None and name_of(self.version) == collection):
            return self
        own = self.collections.get(collection, Active())
        return replace(self, version=own.version, previous=own.previous, experiment=own.experiment)


class Coordinator:
    """Changes what the fleet serves.

    Args:
        replicas: Of each shard.
        log: As in ``Snapshot``.
        nodes: Returns the ids of the nodes that can hold replicas; the replicas of a shard are spread over them.
    """

    def __init__(
        self,
        root: str,
        replicas: int,
        spawn: Spawn,
        log: str | None = None,
        nodes: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._root = Folder(root)
        self._replicas, self._nodes = Replicas(replicas, spawn), nodes
        self._routers = Routers()
        self._swap = asyncio.Lock()
        self._changed = asyncio.Condition()
        # A coordinator that is started again must not give a number that a router has.
        self._snapshot = Snapshot(time.time_ns(), log=log, root=root, per_shard=replicas)
        # What routers load, the active one first, and whether the state names more, which could not be read.
        self._sets: list[PlacedSet] = []
        self._lacks = False
        self._unread: dict[str, str] = {}
        # The versions of the change in progress: replicas may have them open before anything serves them.
        self._proposed: Collection[str] = ()
        self._late: asyncio.Task[None] | None = None
        self._started: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._look_at = time.monotonic() + _LOOK_S
        self._spread_at = time.monotonic() + _SPREAD_S

    async def start(self) -> None:
        """Load what is active, then watch the replicas in the background; once, and again only if that fails.

        All changes, and ``follow``, do it first: Ray calls nothing but the constructor when it starts a coordinator
        again.

        Raises:
            StateDamaged, BundleNotFound, BundleError, RemoteError: What is active cannot be read.
        """
        if self._started is None or (self._started.done() and self._started.exception()):
            self._started = asyncio.ensure_future(self._start())
        await asyncio.shield(self._started)

    async def _start(self) -> None:
        async with self._swap:
            state = await asyncio.to_thread(self._read_state)
            if state.version is not None:
                await self._serve(state, await asyncio.to_thread(self._placed, state))
                self._routers.expect()
        self._watcher = asyncio.ensure_future(self._watch_always())

    async def _serve(self, state: ActiveState, sets: list[PlacedSet]) -> None:
        for wanted in sets:
            await self._replicas.load(wanted)
        await self._publish(state, sets)

    async def ping(self) -> None:
        """Return at once, whatever else the coordinator waits for."""

    async def close(self) -> None:
        for task in (self._watcher, self._late):
            if task is not None:
                task.cancel()

    async def activate(
        self, name_or_version: str, collection: str | None = None, *, is_version: bool = False
    ) -> Snapshot:
        """Make a version the one that serves, which ends an experiment: propose, commit.

        Args:
            name_or_version: A version, or a name for its newest version.
            collection: Bundle name for whose searches alone it becomes the default.
            is_version: Whether it must be a version.

        Raises:
            SwapUnderWay, SwapRefused, StateDamaged, BundleNotFound, BundleError, RemoteError: Nothing was changed.
        """
        find = find_version if is_version else find_set

        def change(state: ActiveState, found: PlacedSet) -> ActiveState:
            served = self._served(state, collection)
            before = state.version or (None if served is None else served.version)
            return activated(state, found.version, found.sha256, state.generation + 1, before)

        return await self._run(lambda: find(self._root, name_or_version), change, collection)

    async def load(self, version: str) -> Snapshot:
        """Load a version in every replica and router; the one that serves stays. Raises as ``activate``."""

        def change(state: ActiveState, found: PlacedSet) -> ActiveState:
            if state.version is None:
                raise SwapRefused(f"{found.version}: no version serves yet; activate one")
            return loading(state, found.version, self._snapshot.versions)

        return await self._run(lambda: find_version(self._root, version), change)

    async def start_experiment(
        self, candidate: str, share: float, max_days: float, collection: str | None = None
    ) -> Snapshot:
        """Interleave a version with the one that serves, in a share of the searches. Raises as ``activate``."""

        def change(state: ActiveState, found: PlacedSet) -> ActiveState:
            served = self._served(state, collection)
            if served is None or served.version == found.version:
                raise SwapRefused(f"{found.version}: there is no other version to compare it with")
            experiment = Experiment(found.version, share, time.time(), max_days)
            generation = state.generation + 1
            return experimenting(state, served.version, served.sha256, generation, experiment)

        return await self._run(lambda: find_version(self._root, candidate), change, collection)

    async def stop_experiment(self, collection: str | None = None) -> Snapshot:
        """End the experiment, if there is one; the active version stays. Raises as ``activate``."""
        async with self._changing():
            state = await asyncio.to_thread(self._read_state)
            own = state.of(collection)
            after = without_experiment(own, own.generation + 1)
            # No replica has to load anything.
            await self._commit(state, state if after is own else state.within(collection, after))
            return self._snapshot

    async def scale(self, replicas: int) -> Snapshot:
        """Change how many replicas each shard has. Raises SwapUnderWay: nothing was changed."""
        async with self._changing():
            unused = await self._replicas.scale(replicas, self._sets)
            self._snapshot = replace(self._snapshot, per_shard=replicas)
            if self._sets:
                await self._refresh(is_forced=True)
                # Routers ask them until they follow.
                await self.settled(self._snapshot.epoch, self._snapshot.versions)
            await asyncio.gather(*(one.stop() for one in unused), return_exceptions=True)
            return self._snapshot

    async def follow(self, report: Report | None, epoch: int, wait_s: float) -> Snapshot:
        """Return the state once it is another one than a router has, or after some seconds.

        Args:
            report: Of the router; None: the caller is another program.
            epoch: Of the snapshot that it has.
        """
        await self.start()
        if report is not None:
            await self._routers.note(report, epoch)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(lambda: self._snapshot.epoch != epoch)
        return self._snapshot

    async def leave(self, id: str) -> None:
        """Forget a router that stops."""
        await self._routers.forget(id)

    async def routers(self) -> list[Report]:
        return self._routers.reports

    async def settled(self, epoch: int, versions: Sequence[str]) -> tuple[int, bool]:
        """Wait, but no longer than ten seconds, until every router follows a snapshot and has loaded its versions.

        Returns:
            The number of routers, and whether all do.
        """
        return await self._routers.settled(epoch, versions, _SETTLE_S)

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Keep others from changing the state. Raises SwapUnderWay if one does."""
        await self.start()
        if self._swap.locked():
            raise SwapUnderWay("Another swap is in progress; nothing was changed.")
        async with self._swap:
            yield

    async def _run(
        self,
        find: Callable[[], Folder],
        change: Callable[[ActiveState, PlacedSet], ActiveState],
        collection: str | None = None,
    ) -> Snapshot:
        """Change the state in two phases.

        Args:
            find: Returns the folder of the set that must be loaded for it.
            change: Given the state of the collection and the set, returns the new state.
        """
        async with self._changing():
            folder = await asyncio.to_thread(find)
            found = PlacedSet(await asyncio.to_thread(read_set, folder), str(folder))
            state = await asyncio.to_thread(self._read_state)
            if collection not in (None, found.manifest.name):
                raise BundleNotFound(
                    f"{found.version} is no version of the collection {collection}."
                )
            if collection is not None and state.version is None:
                raise SwapRefused("no version serves by default yet; activate one first")
            after = state.within(collection, change(state.of(collection), found))
            self._proposed = (found.version,)
            try:
                if after != state:
                    await self._replicas.propose(found)
                await self._commit(state, after, found)
            finally:
                self._proposed = ()
            return self._snapshot

    async def _commit(self, state: ActiveState, after: ActiveState, *new: PlacedSet) -> None:
        """Write a state, which commits it, and tell routers; new: a set that it names."""
        if after != state:
            await asyncio.to_thread(self._root.write, STATE, dump_state(after).encode())
            # What is known already is not read again: that could fail, and nothing may after the commit.
            await self._publish(after, await asyncio.to_thread(self._placed, after, *new))

    async def _publish(self, state: ActiveState, sets: list[PlacedSet]) -> None:
        self._sets = sets
        self._lacks = not {*pinned(state, MAX_LOADED)} <= {one.version for one in sets}
        active, *others = sets
        further = tuple((one.version, one.address) for one in others)
        experiment, collections = readable(state.experiment, state.collections, dict(further))
        self._snapshot = replace(
            self._snapshot,
            generation=state.generation,
            version=active.version,
            set_address=active.address,
            previous=state.previous,
            further=further,
            experiment=experiment,
            collections=collections,
        )
        await self._refresh(is_forced=True)

    def _placed(self, state: ActiveState, *new: PlacedSet) -> list[PlacedSet]:
        """Return the active set first, then further ones that can be read. Raises if the active one cannot."""
        assert state.version is not None
        known = {own.version: own for own in (*self._sets, *new)}
        found = [known.get(state.version) or self._read(state.version)]
        unread: dict[str, str] = {}
        for version in dict.fromkeys(pinned(state, MAX_LOADED)):
            if version == state.version:
                continue
            try:
                found.append(known.get(version) or self._read(version))
            except (BundleError, RemoteError) as error:
                unread[version] = str(error)
                if self._unread.get(version) != str(error):  # it is tried again every few seconds
                    _log.error("cannot load %s: %s", version, error)
        self._unread = unread
        return found

    def _served(self, state: ActiveState, collection: str | None) -> PlacedSet | None:
        """Return what serves in a collection: its active version, else the newest loaded one."""
        own = [one for one in self._sets if collection in (None, one.manifest.name)]
        if state.version is not None:
            own = [one for one in own if one.version == state.version]
        return max(own, key=lambda one: (one.manifest.created, one.version), default=None)

    def _read(self, version: str) -> PlacedSet:
        folder = find_version(self._root, version)
        return PlacedSet(read_set(folder), str(folder))

    async def _refresh(self, *, is_forced: bool = False) -> None:
        """Give routers the replicas that answer and have what serves, if these have changed."""
        found = self._replicas.askable(self._sets)
        if is_forced or found != self._snapshot.replicas:
            self._snapshot = replace(self._snapshot, epoch=self._snapshot.epoch + 1, replicas=found)
            async with self._changed:
                self._changed.notify_all()

    async def _watch_always(self) -> None:
        failures, before = 0, ""
        while True:
            await asyncio.sleep(_ROUND_S)
            try:
                await self._watch()
            except Exception as error:
                failures += 1
                reason = f"{type(error).__name__}: {error}"
                is_new, before = reason != before, reason
                _log.error("cannot watch, failure %d: %s", failures, reason, exc_info=is_new)

    async def _watch(self) -> None:
        """Ping every replica, let late ones load what serves, drop versions that nobody uses."""
        await self._replicas.ping()
        if not self._sets:
            await self._serve_first()
            return
        await self._refresh()
        if self._lacks:
            await self._serve_missing()
        self._replicas.load_late(self._sets)
        if time.monotonic() > self._spread_at and not self._swap.locked():
            self._spread_at = time.monotonic() + _SPREAD_S
            await self._replicas.spread(await asyncio.to_thread(self._nodes), self._sets)
        used = self._routers.used
        if used is not None:
            # Also while a swap runs: swaps that follow each other would let no version go.
            await self._replicas.release({*used, *self._snapshot.versions, *self._proposed})

    async def _serve_first(self) -> None:
        """Activate the newest set where nothing serves yet: routers may have started before the first was written."""
        if self._swap.locked() or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_S
        with suppress(BundleNotFound):
            newest = await asyncio.to_thread(newest_set, self._root)
            await self.activate(newest.address.rpartition("/")[2], is_version=True)

    async def _serve_missing(self) -> None:
        """Serve what could not be read before: a collection, or a candidate, should not wait for the next swap."""
        if self._swap.locked() or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_S
        found = await asyncio.to_thread(lambda: self._placed(self._read_state()))
        if len(found) > len(self._sets):
            # Not here: replicas may load it for minutes, and are watched meanwhile.
            self._late = asyncio.ensure_future(self._serve_again())

    async def _serve_again(self) -> None:
        async with self._swap:
            try:
                state = await asyncio.to_thread(self._read_state)
                sets = await asyncio.to_thread(self._placed, state)
                self._proposed = [one.version for one in sets]
                await self._serve(state, sets)
            except Exception as error:
                _log.error("cannot serve what could not be read before: %s", error)
            finally:
                self._proposed = ()

    def _read_state(self) -> ActiveState:
        content = self._root.read(STATE)
        return ActiveState(0) if content is None else parse_state(content, f"{self._root}/{STATE}")


def readable(
    experiment: Experiment | None,
    collections: Mapping[str, Active],
    versions: Collection[str],
) -> tuple[Experiment | None, Mapping[str, Active]]:
    """Leave out what needs other versions: the active version serves alone then, or the newest loaded one."""

    def kept(own: Experiment | None) -> Experiment | None:
        return own if own is not None and own.candidate in versions else None

    others = {
        name: replace(own, experiment=kept(own.experiment))
        for name, own in collections.items()
        if own.version in versions
    }
    return kept(experiment), others
