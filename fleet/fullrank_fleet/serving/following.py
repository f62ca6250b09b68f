"""The models of a router: it follows the coordinator, which alone changes what serves.

A router learns from the coordinator which versions serve and which replicas answer, and reports what it has loaded.
What an operator asks of one router is asked of the coordinator, which all routers follow.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from logging import getLogger
from typing import TypeVar

from fullrank.bundle import Bundle, BundleInfo
from fullrank.errors import BundleError, BundleNotFound, FullrankError
from fullrank.models.contract import warm
from fullrank_fleet.remote import BundleCache, Folder, RemoteError
from fullrank_fleet.serving.coordinator import (
    CHANGE_S,
    MAX_LOADED,
    Coordinator,
    Snapshot,
    SwapUnderWay,
    readable,
)
from fullrank_fleet.serving.documents import LogSource, SetDocuments, check_same
from fullrank_fleet.serving.fanout import ReplicatedShards
from fullrank_fleet.serving.head import Head
from fullrank_fleet.serving.tracking import SwapRefused
from fullrank_fleet.serving.waiting import NoAnswer, answered
from fullrank_fleet.sets.manifest import read_set
from fullrank_service.base import errors
from fullrank_service.base.metrics import Metrics
from fullrank_service.http.deps import Serving
from fullrank_service.models.follower import LoadedModels
from fullrank_service.models.outline import Outline
from fullrank_service.models.state import StateDamaged
from fullrank_service.models.swap import Swapped
from fullrank_service.models.workers import Report

_log = getLogger(__name__)
# The longest wait for news; after it the router reports again.
_WAIT_S = 5.0
# Pause before the next try when the coordinator does not answer.
_RETRY_S = 0.2
# The longest wait for the reports of the other routers.
_REPORTS_S = 1.0
# The longest wait for a coordinator that waits itself until all routers follow, for ten seconds at most.
_SETTLED_S = 20.0
# The longest time to load the model of a set that shards have loaded.
_LOAD_S = 120.0
_FROZEN = (
    "The coordinator of the fleet does not answer. It may still make the change when it goes on; "
    "GET /v1/models says which version serves."
)
Answer = TypeVar("Answer")


class Following:
    """Keeps the sets and the shards of one router up to date; see ``fullrank_service.models.registry``.

    Args:
        coordinator: One in another process raises ConnectionError if it is dead, and keeps callers waiting if it is
            frozen.
        log: That this router writes; None: it takes no writes.
        rejoin: Called when the coordinator is dead or does not answer; finds it where Ray would not.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        shards: ReplicatedShards,
        documents: SetDocuments,
        cache: BundleCache,
        metrics: Metrics,
        log: LogSource | None,
        rejoin: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._coordinator, self._log, self._metrics = coordinator, log, metrics
        self._shards, self._documents, self._cache = shards, documents, cache
        self._rejoin = rejoin
        self._models = LoadedModels(metrics, MAX_LOADED, documents.release)
        self._id = secrets.token_hex(4)
        self._epoch = 0
        self._followed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    @property
    def serving(self) -> Serving:
        return self._models.serving

    @property
    def failures(self) -> Mapping[str, str]:
        return self._models.failures

    async def start(self) -> None:
        """Switch to what serves now, then follow in the background.

        Raises:
            Exception: The coordinator does not answer, the version cannot be opened, or shards follow another log.
        """
        await self._step(0.0)
        self._task = asyncio.ensure_future(self._always())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(Exception):
                async with asyncio.timeout(_REPORTS_S):
                    await self._coordinator.leave(self._id)

    async def outline(self, bundle: Bundle) -> Outline:
        return _as_head(bundle).set.outline or Outline({}, ())

    async def available(self) -> list[BundleInfo]:
        found = [
            BundleInfo(
                head.name, head.version, head.path, head.set.created, head.card, head.set.bytes
            )
            for head in map(_as_head, self.serving.models.values())
        ]
        return sorted(found, key=lambda info: (info.created, info.version), reverse=True)

    async def workers(self) -> list[Report]:
        """Return the reports of all routers; that of this one alone if the coordinator does not answer."""
        own = self._report
        try:
            async with asyncio.timeout(_REPORTS_S):
                found = await self._coordinator.routers()
        except Exception:
            return [own]
        return sorted(
            [own, *(other for other in found if other.id != own.id)], key=lambda one: one.id
        )

    async def activate(self, version: str, collection: str | None = None) -> Swapped:
        """Make a version the one that serves in every router, once all replicas have loaded it; see ``Swap.activate``.

        Raises:
            ModelNotFound, BundleRefused, Conflict, Internal: Nothing was changed.
            CoordinatorUnavailable: The change is done or has changed nothing.
        """
        change = self._coordinator.activate(version, collection, is_version=True)
        return await self._run(change, collection)

    async def load(self, version: str) -> Bundle:
        """Load a version in every replica and router. Raises as ``activate``."""
        await self._run(self._coordinator.load(version))
        if version in self.failures:
            raise errors.BundleRefused(self.failures[version])
        return self.serving.resolve(version)

    async def start_experiment(
        self, candidate: str, share: float, max_days: float, collection: str | None = None
    ) -> Swapped:
        change = self._coordinator.start_experiment(candidate, share, max_days, collection)
        return await self._run(change, collection)

    async def stop_experiment(self, collection: str | None = None) -> Swapped:
        return await self._run(self._coordinator.stop_experiment(collection), collection)

    async def _run(self, change: Awaitable[Snapshot], collection: str | None = None) -> Swapped:
        try:
            found = await self._answered(change, CHANGE_S)
        except SwapUnderWay:
            raise errors.Conflict from None
        except BundleNotFound as error:
            raise errors.ModelNotFound(str(error)) from error
        except (SwapRefused, BundleError, StateDamaged) as error:
            self._metrics.swaps.labels("refused").inc()
            raise errors.BundleRefused(str(error)) from error
        except RemoteError as error:
            self._metrics.swaps.labels("failed").inc()
            raise errors.Internal(f"{error}; nothing was changed.") from error
        except NoAnswer as error:
            self._metrics.swaps.labels("failed").inc()
            raise errors.CoordinatorUnavailable(_FROZEN) from error
        except ConnectionError as error:
            self._metrics.swaps.labels("failed").inc()
            raise errors.CoordinatorUnavailable from error
        self._metrics.swaps.labels("done").inc()
        try:
            await self._answered(self._follows(found.epoch), 2 * _LOAD_S)
            settled = self._coordinator.settled(found.epoch, found.versions)
            routers, is_done = await self._answered(settled, _SETTLED_S)
        except ConnectionError:
            routers, is_done = 1, False
        own = found.of(collection)
        return Swapped(found.generation, own.version, own.previous, routers, is_done)

    async def _follows(self, epoch: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOAD_S), self._followed:
                await self._followed.wait_for(lambda: self._epoch >= epoch)

    async def _answered(self, answer: Awaitable[Answer], limit_s: float) -> Answer:
        return await answered(answer, self._coordinator.ping, limit_s=limit_s)

    @property
    def _report(self) -> Report:
        serving = self._models.serving
        return Report(
            self._id,
            os.getpid(),
            socket.gethostname(),
            started=self._task is not None,
            generation=serving.generation,
            version=serving.active,
            loaded=tuple(serving.models),
        )

    async def _always(self) -> None:
        while True:
            try:
                await self._step(_WAIT_S)
            except Exception as error:
                # What the router has goes on serving.
                self._metrics.follow_failures.inc()
                _log.warning("cannot follow the coordinator: %s: %s", type(error).__name__, error)
                await asyncio.sleep(_RETRY_S)
                if self._rejoin is not None and isinstance(error, ConnectionError):
                    try:
                        await self._rejoin()
                    except Exception:
                        # The next round tries again.
                        _log.exception("cannot join the cluster again")

    async def _step(self, wait_s: float) -> None:
        # The coordinator answers once it has started, which lets replicas load what serves.
        news = self._coordinator.follow(self._report, self._epoch, wait_s)
        found = await self._answered(news, wait_s + CHANGE_S)
        check_same(self._log, found.log)
        if found.version is not None:
            self._shards.update(found.replicas)
            reporting = asyncio.ensure_future(self._report_always())
            try:
                await self._apply(found)
            finally:
                reporting.cancel()
        async with self._followed:
            self._epoch = found.epoch
            self._followed.notify_all()

    async def _apply(self, found: Snapshot) -> None:
        assert found.version is not None
        assert found.set_address is not None
        # Requests and the cursors of pages may name what served before, in every collection.
        before = (own.previous for own in found.collections.values() if own.previous is not None)
        self._models.pinned = (*found.versions, *before)
        head = await self._add(found.set_address)
        for version, address in found.further:
            try:
                await self._add(address)
            except FullrankError as error:
                if self._models.failures.get(version) != str(error):
                    _log.error("cannot load %s: %s", version, error)
                self._models.failures[version] = str(error)
        serving = self.serving
        others = readable(found.experiment, found.collections, serving.models)
        now = serving.generation, serving.active, serving.previous
        now_others = serving.experiment, serving.collections
        if (now, now_others) != ((found.generation, found.version, found.previous), others):
            self._models.switch(head, found.generation, found.previous, *others)
            self._metrics.bundle_bytes.set(head.set.bytes)

    async def _add(self, address: str) -> Head:
        """Load the set at an address; requests can name it from then on. No shard needs to answer for that."""
        folder = Folder(address)
        manifest = await asyncio.to_thread(read_set, folder)
        loaded = self.serving.models.get(manifest.version)
        if loaded is not None and loaded.bundle_id == manifest.set_id:
            return _as_head(loaded)
        takes_writes = self._documents.takes_writes
        head = await asyncio.to_thread(
            Head.open, folder, manifest, self._cache, takes_writes=takes_writes
        )
        await asyncio.to_thread(_warm, head)
        await asyncio.to_thread(self._documents.prepare, head)
        self._models.add(head)
        return head

    async def _report_always(self) -> None:
        """Report while a set is opened, which may take longer than the coordinator waits to drop what nobody uses."""
        while True:
            await asyncio.sleep(_WAIT_S)
            with suppress(Exception):
                news = self._coordinator.follow(self._report, self._epoch, 0.0)
                await self._answered(news, _WAIT_S)


def _as_head(bundle: Bundle) -> Head:
    assert isinstance(bundle, Head)
    return bundle


def _warm(head: Head) -> None:
    """Build the tables that the first request would build."""
    warm(head.model)
    head.known_words.warm()
    head.prefixes.of("warm")
