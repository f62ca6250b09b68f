"""The app of a router in a Ray cluster. Worker processes make it from their environment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from logging import getLogger
from pathlib import Path
from typing import Any, cast

from fullrank_fleet.cluster import head_of, join, leave, restore_handler
from fullrank_fleet.remote import BundleCache
from fullrank_fleet.remote.cache import default_cache
from fullrank_fleet.serving.actors import ActorReplica, answer_of, coordinator_of, running_replica
from fullrank_fleet.serving.app import create_router
from fullrank_fleet.serving.coordinator import Coordinator
from fullrank_fleet.serving.documents import LogSource
from fullrank_fleet.serving.fanout import ReplicatedShards
from fullrank_fleet.serving.replicas import Replica
from fullrank_service.app import App
from fullrank_service.base.settings import Settings

VARIABLE = "FLEET"


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Where a fleet is: its cluster, its sharded bundles, and the cache of downloaded ones."""

    ray: str
    bundles: str
    replicas: int = 2
    cache: str | None = None

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_environment(cls) -> FleetSettings:
        return cls(**json.loads(os.environ[VARIABLE]))


# Join the cluster again after its head was started again.
#
# Ray 2.60 tells the processes that it has started, but not those that have joined by themselves, to ask a new head
# for the addresses of actors. So a router would never reach an actor that was started again since: a replica, or the
# coordinator.


# Pause before the next try to join.
_RETRY_S = 0.5
_log = getLogger(__name__)


class Rejoining:
    """Joins a cluster again if its head is another one than before.

    Args:
        shards: Whose calls wait meanwhile; get new handles.
        found: Called with the new handle of the coordinator.
    """

    def __init__(
        self,
        fleet: FleetSettings,
        log: LogSource | None,
        shards: ReplicatedShards,
        found: Callable[[Any], None],
    ) -> None:
        self._fleet, self._log, self._shards, self._found = fleet, log, shards, found
        self._head = head_of(fleet.ray)

    async def __call__(self) -> None:
        head = await asyncio.to_thread(head_of, self._fleet.ray)
        if head in (None, self._head):
            return
        _log.warning("the head of the cluster was started again; joining again")
        async with self._shards.paused():
            coordinator, replicas = await self._joined()
            self._found(coordinator)
            self._shards.update(
                [[replicas[one] for one in of if one in replicas] for of in self._shards.replicas]
            )
        self._head = head

    async def _joined(self) -> tuple[Any, Mapping[Replica, Replica]]:
        """Join, however often it fails; return the coordinator, and the replicas by their former handles."""
        while True:
            try:
                return await asyncio.to_thread(self._join)
            except Exception as error:
                _log.error("cannot join the cluster: %s: %s", type(error).__name__, error)
                await asyncio.sleep(_RETRY_S)

    def _join(self) -> tuple[Any, Mapping[Replica, Replica]]:
        leave()
        join(self._fleet.ray)
        coordinator, replicas = _coordinator(self._fleet, self._log), dict[Replica, Replica]()
        for known in (one for of in self._shards.replicas for one in of):
            try:
                replica = cast(ActorReplica, known)
                replicas[known] = running_replica(replica.number, replica.place)
            except ValueError as error:
                _log.warning("cannot find a replica: %s", error)
        return coordinator, replicas


class ActorCoordinator:
    """The coordinator in another process, with the methods of ``Coordinator``."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def __getattr__(self, method: str) -> Any:
        async def call(*arguments: Any, **named: Any) -> Any:
            return await answer_of(getattr(self.actor, method).remote(*arguments, **named))

        return call


def _coordinator(fleet: FleetSettings, log: LogSource | None) -> Any:
    return coordinator_of(fleet.bundles, fleet.replicas, fleet.cache, log)


def create() -> App:
    own = FleetSettings.of_environment()
    join(own.ray)
    settings = Settings()
    log = LogSource.of(settings)
    coordinator = ActorCoordinator(_coordinator(own, log))
    cache = BundleCache(Path(own.cache) if own.cache else default_cache())

    def found(actor: Any) -> None:
        coordinator.actor = actor
        # Ray took it in another thread, which cannot set handlers.
        handler = signal.getsignal(signal.SIGTERM)
        if callable(handler):
            restore_handler(handler)

    return create_router(
        settings,
        cache,
        cast(Coordinator, coordinator),
        rejoining=lambda shards: Rejoining(own, log, shards, found),
    )
