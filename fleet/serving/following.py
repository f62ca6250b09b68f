"""Follow the coordinator: a router learns which version serves and which replicas answer."""

from __future__ import annotations

import asyncio
from logging import getLogger
from typing import Protocol

from fleet.serving.coordinator import Snapshot
from fleet.serving.fanout import ReplicatedShards
from fleet.serving.log import LogSource, check_same
from fleet.serving.models import SetModels

# The longest wait for news; after it the router says again which versions it uses.
_WAIT_S = 5.0
# Pause before the next try when the coordinator does not answer.
_RETRY_S = 0.2
_log = getLogger(__name__)


class Followed(Protocol):
    """A coordinator, wherever it runs."""

    async def follow(self, uses: list[str], epoch: int, wait_s: float) -> Snapshot:
        """See Coordinator.follow. Raises any exception if it does not answer."""


class Following:
    """Keeps the models and the shards of one router up to date.

    Args:
        coordinator: Knows what serves.
        log: That this router writes; None: it takes no writes.
    """

    def __init__(self, coordinator: Followed, log: LogSource | None = None) -> None:
        self._coordinator, self._log = coordinator, log
        self._epoch = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self, models: SetModels, shards: ReplicatedShards) -> None:
        """Switch to what serves now, then follow in the background.

        Args:
            models: Of the router; get the versions.
            shards: Of the router; get the replicas.

        Raises:
            Exception: The coordinator does not answer, the version cannot be opened, or shards follow another log: the
                router does not start.
        """
        await self._step(models, shards, 0.0)
        self._task = asyncio.ensure_future(self._always(models, shards))

    async def _always(self, models: SetModels, shards: ReplicatedShards) -> None:
        while True:
            try:
                await self._step(models, shards, _WAIT_S)
            except Exception as error:
                # What the router has goes on serving.
                _log.warning("cannot follow the coordinator: %s: %s", type(error).__name__, error)
                await asyncio.sleep(_RETRY_S)

    async def _step(self, models: SetModels, shards: ReplicatedShards, wait_s: float) -> None:
        uses = list(models.serving.models)
        found = await self._coordinator.follow(uses, self._epoch, wait_s)
        check_same(self._log, found.log)
        if found.version is None or found.set_address is None:
            return
        shards.update(found.replicas)
        serving = models.serving
        if (serving.generation, serving.active) != (found.generation, found.version):
            await models.add(found.set_address)
            models.switch(found.version, found.generation)
        self._epoch = found.epoch
