"""Join the cluster again after its head was started again.

Ray 2.60 tells the processes that it has started, but not those that have joined by themselves, to ask a new head for
the addresses of actors. So a router would never reach an actor that was started again since: a replica, or the
coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from logging import getLogger
from typing import Any, Protocol

from fullrank_fleet.serving.fanout import ReplicatedShards
from fullrank_fleet.serving.replicas import Replica

# Pause before the next try to join.
_RETRY_S = 0.5
_log = getLogger(__name__)


class Cluster(Protocol):
    """The cluster, as a router joins it. The methods may wait for the network."""

    def head(self) -> str | None:
        """Return an id of the head, another one after it was started again; None: it does not answer."""

    def join_again(self) -> None:
        """Leave the cluster and join it. Raises any exception: this process is in no cluster now."""

    def coordinator(self) -> Any:
        """Find the coordinator."""

    def replica(self, replica: Replica) -> Replica:
        """Find a replica, given its handle of before. Raises ValueError: there is none."""


class Rejoining:
    """Joins a cluster again if its head is another one than before.

    Args:
        cluster: That this process has joined.
        shards: Whose calls wait meanwhile; get new handles.
        found: Called with the new handle of the coordinator.
    """

    def __init__(
        self, cluster: Cluster, shards: ReplicatedShards, found: Callable[[Any], None]
    ) -> None:
        self._cluster, self._shards, self._found = cluster, shards, found
        self._head = cluster.head()

    async def __call__(self) -> None:
        """Join again, if the head answers and was started again."""
        head = await asyncio.to_thread(self._cluster.head)
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
        self._cluster.join_again()
        coordinator, replicas = self._cluster.coordinator(), dict[Replica, Replica]()
        for known in (one for of in self._shards.replicas for one in of):
            try:
                replicas[known] = self._cluster.replica(known)
            except ValueError as error:
                _log.warning("cannot find a replica: %s", error)
        return coordinator, replicas
