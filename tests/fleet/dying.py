"""A coordinator that kills its process at a point of a swap that a file names."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

from fullrank_fleet.serving.actors import (
    _ALWAYS,
    COORDINATOR,
    ActorReplica,
    CoordinatorActor,
    Spawner,
)
from fullrank_fleet.serving.tracking import PlacedSet, Replicas
from fullrank_service.models.state import ActiveState

BEFORE_LOADING = "before loading"
WHILE_LOADING = "while replicas load"
BEFORE_COMMIT = "before the commit"
AFTER_COMMIT = "after the commit"
POINTS = (BEFORE_LOADING, WHILE_LOADING, BEFORE_COMMIT, AFTER_COMMIT)


class DyingCoordinator(CoordinatorActor):
    """Dies once at the point that a file names."""

    def __init__(self, file: str, root: str, replicas: int, cache: str | None) -> None:
        super().__init__(root, replicas, cache, None)
        spawner = Spawner(replicas, cache, None)
        self._replicas = _DyingReplicas(replicas, lambda *place: self._found(spawner(*place)))
        self._file = Path(file)
        _Watched.coordinator = _DyingReplicas.coordinator = self

    def die_at(self, point: str) -> None:
        if self._file.exists() and self._file.read_text() == point:
            self._file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def _found(self, replica: ActorReplica) -> _Watched:
        return _Watched(replica.number, replica.place, replica.actor)

    async def _publish(self, state: ActiveState, sets: list[PlacedSet]) -> None:
        self.die_at(AFTER_COMMIT)
        await super()._publish(state, sets)


class _DyingReplicas(Replicas):
    coordinator: DyingCoordinator

    async def propose(self, wanted: PlacedSet) -> None:
        self.coordinator.die_at(BEFORE_LOADING)
        await super().propose(wanted)
        self.coordinator.die_at(BEFORE_COMMIT)


class _Watched(ActorReplica):
    """A replica; the coordinator may die once the first of them has loaded a version."""

    coordinator: DyingCoordinator

    def __reduce__(self) -> Any:
        # Routers get the ordinary one.
        return ActorReplica, (self.number, self.place, self.actor)

    async def load(self, address: str) -> Sequence[str]:
        found = await super().load(address)
        type(self).coordinator.die_at(WHILE_LOADING)
        return found


def start(file: Path, root: Path, cache: Path) -> Any:
    options = {"name": COORDINATOR, "lifetime": "detached", "max_restarts": _ALWAYS, "num_cpus": 0}
    found: Any = ray.remote(DyingCoordinator)
    return found.options(**options).remote(str(file), str(root), 2, str(cache))
