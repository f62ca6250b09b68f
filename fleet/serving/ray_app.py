"""The app of a router in a Ray cluster. Worker processes make it from their environment."""

from __future__ import annotations

import json
import os
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
from service.app import App
from service.settings import Settings

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
    """The coordinator in another process."""

    actor: Any

    async def follow(self, uses: list[str], epoch: int, wait_s: float) -> Snapshot:
        """See Coordinator.follow. Raises ConnectionError if it is dead."""
        return await answer_of(self.actor.follow.remote(uses, epoch, wait_s))


def create() -> App:
    """Join the cluster and create the app of a router."""
    own = FleetSettings.of_environment()
    join(own.ray)
    settings = Settings()
    log = LogSource.of(settings)
    coordinator = ActorCoordinator(coordinator_of(own.bundles, own.replicas, own.cache, log))
    cache = BundleCache(Path(own.cache) if own.cache else default_cache())
    return create_router(settings, ReplicatedShards, cache, Following(coordinator, log).start)
