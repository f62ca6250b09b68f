"""The app of a router in a Ray cluster. Worker processes make it from their environment."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleet.cluster import join
from fleet.remote import BundleCache
from fleet.remote.cache import default_cache
from fleet.serving.actors import answer_of, coordinator_of
from fleet.serving.app import create_router
from fleet.serving.coordinator import Snapshot
from fleet.serving.fanout import ReplicatedShards
from fleet.serving.following import Following
from fleet.serving.log import LogSource
from fleet.serving.models import SetModels
from service.app import App
from service.models.models import Models
from service.models.workers import Report
from service.settings import Settings
from service.telemetry.metrics import Metrics

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


@dataclass(frozen=True, slots=True)
class ActorCoordinator:
    """The coordinator in another process. Its methods raise ConnectionError if that is dead."""

    actor: Any

    async def ping(self) -> None:
        """See Coordinator.ping."""
        await answer_of(self.actor.ping.remote())

    async def follow(self, report: Report | None, epoch: int, wait_s: float) -> Snapshot:
        """See Coordinator.follow."""
        return await answer_of(self.actor.follow.remote(report, epoch, wait_s))

    async def leave(self, id: str) -> None:
        """See Coordinator.leave."""
        await answer_of(self.actor.leave.remote(id))

    async def routers(self) -> list[Report]:
        """See Coordinator.routers."""
        return await answer_of(self.actor.routers.remote())

    async def settled(self, epoch: int, versions: Sequence[str]) -> tuple[int, bool]:
        """See Coordinator.settled."""
        return await answer_of(self.actor.settled.remote(epoch, list(versions)))

    async def activate(self, name_or_version: str, *, is_version: bool = False) -> Snapshot:
        """See Coordinator.activate."""
        return await answer_of(self.actor.activate.remote(name_or_version, is_version=is_version))

    async def load(self, version: str) -> Snapshot:
        """See Coordinator.load."""
        return await answer_of(self.actor.load.remote(version))

    async def start_experiment(self, candidate: str, share: float, max_days: float) -> Snapshot:
        """See Coordinator.start_experiment."""
        return await answer_of(self.actor.start_experiment.remote(candidate, share, max_days))

    async def stop_experiment(self) -> Snapshot:
        """See Coordinator.stop_experiment."""
        return await answer_of(self.actor.stop_experiment.remote())


def create() -> App:
    """Join the cluster and create the app of a router."""
    own = FleetSettings.of_environment()
    join(own.ray)
    settings = Settings()
    log = LogSource.of(settings)
    coordinator = ActorCoordinator(coordinator_of(own.bundles, own.replicas, own.cache, log))
    cache = BundleCache(Path(own.cache) if own.cache else default_cache())

    def make_models(sets: SetModels, shards: ReplicatedShards, metrics: Metrics) -> Models:
        return Following(coordinator, sets, shards, metrics, log)

    return create_router(settings, ReplicatedShards, cache, make_models)
