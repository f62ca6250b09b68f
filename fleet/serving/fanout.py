"""Ask the shards of a set at once, each through its replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from fleet.serving.replicas import Replica, ReplicaSet, Unavailable
from fleet.serving.transport import Failure
from service.telemetry.metrics import Metrics


class ReplicatedShards:
    """The shards of a set, each with replicas; implements ``fleet.serving.transport.Shards``.

    Args:
        metrics: Count the calls of replicas.

    Example:
        >>> shards = ReplicatedShards(Metrics())
        >>> shards.update([[replica_of_0, other_of_0], [replica_of_1]])
        >>> answers = await shards.ask({0: payload, 1: payload}, deadline_s=1.0)
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._sets: list[ReplicaSet] = []

    def update(self, replicas: Sequence[Sequence[Replica]]) -> None:
        """Replace the replicas of each shard; those that stay keep their latencies and breakers.

        Shards beyond these keep their replicas, for requests of a version that has more shards. So does one without any
        replica here: those that the coordinator cannot reach may still answer this process.
        """
        self._sets += [ReplicaSet(self._metrics) for _ in range(len(replicas) - len(self._sets))]
        for own, new in zip(self._sets, replicas, strict=False):
            if new:
                own.update(new)
        self._metrics.shard_replicas.set(sum(map(len, replicas)))

    async def ask(
        self, payloads: Mapping[int, bytes], deadline_s: float
    ) -> Mapping[int, bytes | Failure]:
        """See Shards.ask."""
        answers = await asyncio.gather(
            *(self._ask(number, payload, deadline_s) for number, payload in payloads.items())
        )
        return dict(zip(payloads, answers, strict=True))

    async def _ask(self, number: int, payload: bytes, deadline_s: float) -> bytes | Failure:
        try:
            if number >= len(self._sets):
                raise Unavailable("no such shard")
            return await self._sets[number].ask(payload, deadline_s)
        except Unavailable as error:
            self._metrics.shards_missing.inc()
            return Failure(str(error))
