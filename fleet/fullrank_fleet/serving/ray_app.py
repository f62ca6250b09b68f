"""The app of a router in a Ray cluster. Worker processes make it from their environment."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from fullrank_fleet.cluster import head_of, join, leave, restore_handler
from fullrank_fleet.remote import BundleCache
from fullrank_fleet.remote.cache import default_cache
from fullrank_fleet.serving.actors import ActorReplica, answer_of, coordinator_of, running_replica
from fullrank_fleet.serving.app import create_router
from fullrank_fleet.serving.fanout import ReplicatedShards
from fullrank_fleet.serving.following import CoordinatorHandle, Following
from fullrank_fleet.serving.log import LogSource
from fullrank_fleet.serving.models import SetModels
from fullrank_fleet.serving.rejoining import Rejoining
from fullrank_fleet.serving.replicas import Replica
from fullrank_service.app import App
from fullrank_service.models.models import Models
from fullrank_service.settings import Settings
from fullrank_service.telemetry.metrics import Metrics

VARIABLE = "FLEET"


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Where a fleet is.

    Attributes:
        ray: Address of the cluster.
        bundles: Address of the folder of sharded bundles.
        replicas: Of each shard.
        cache: Folder of downloaded bundles; None: one in the system's folder of temporary files.
    """

    ray: str
    bundles: str
    replicas: int = 2
    cache: str | None = None

    def as_json(self) -> str:
        """Return the value of the environment variable that passes these to worker processes."""
        return json.dumps(asdict(self))

    @classmethod
    def of_environment(cls) -> FleetSettings:
        """Return those of the process that started this one."""
        return cls(**json.loads(os.environ[VARIABLE]))


class ActorCoordinator:
    """The coordinator in another process; a ``CoordinatorHandle``."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def __getattr__(self, method: str) -> Any:
        async def call(*arguments: Any, **named: Any) -> Any:
            return await answer_of(getattr(self.actor, method).remote(*arguments, **named))

        return call


@dataclass(frozen=True, slots=True)
class RayCluster:
    """The cluster of a fleet; see ``fullrank_fleet.serving.rejoining.Cluster``.

    Attributes:
        fleet: Where it is.
        log: As for ``coordinator_of``.
    """

    fleet: FleetSettings
    log: LogSource | None

    def head(self) -> str | None:
        """See Cluster.head."""
        return head_of(self.fleet.ray)

    def join_again(self) -> None:
        """See Cluster.join_again."""
        leave()
        join(self.fleet.ray)

    def coordinator(self) -> Any:
        """See Cluster.coordinator; starts it if it does not run."""
        own = self.fleet
        return coordinator_of(own.bundles, own.replicas, own.cache, self.log)

    def replica(self, replica: Replica) -> Replica:
        """See Cluster.replica."""
        assert isinstance(replica, ActorReplica)
        return running_replica(replica.number, replica.place)


def create() -> App:
    """Join the cluster and create the app of a router."""
    own = FleetSettings.of_environment()
    join(own.ray)
    settings = Settings()
    log = LogSource.of(settings)
    cluster = RayCluster(own, log)
    coordinator = ActorCoordinator(cluster.coordinator())
    cache = BundleCache(Path(own.cache) if own.cache else default_cache())

    def found(actor: Any) -> None:
        coordinator.actor = actor
        # Ray took it in another thread, which cannot set handlers.
        handler = signal.getsignal(signal.SIGTERM)
        if callable(handler):
            restore_handler(handler)

    def make_models(sets: SetModels, shards: ReplicatedShards, metrics: Metrics) -> Models:
        rejoin = Rejoining(cluster, shards, found)
        return Following(cast(CoordinatorHandle, coordinator), sets, shards, metrics, log, rejoin)

    return create_router(settings, ReplicatedShards, cache, make_models)
