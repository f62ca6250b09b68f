"""Ask the shards of a set at once, each through its replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from fullrank_fleet.serving.replicas import Replica, ReplicaSet, Unavailable
from fullrank_service.base.metrics import Metrics

# Longest wait for the calls that run when a pause begins.
_PAUSE_S = 2.0


class Failure(NamedTuple):
    """Why a shard has not answered, for the log and for operators."""

    reason: str


class ReplicatedShards:
    """The shards of a set, each with replicas."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._sets: list[ReplicaSet] = []
        self._running = 0
        self._resumed = asyncio.Event()
        self._resumed.set()

    @property
    def replicas(self) -> list[list[Replica]]:
        return [own.replicas for own in self._sets]

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

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Begin no call while the block runs; requests wait, until their deadlines. Calls that run end before."""
        self._resumed.clear()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_S):
                    while self._running:
                        await asyncio.sleep(0.005)
            yield
        finally:
            self._resumed.set()

    async def ask(
        self, payloads: Mapping[int, bytes], deadline_s: float
    ) -> Mapping[int, bytes | Failure]:
        """Ask some shards at once, each with an ``Ask``, packed (wire.py).

        Returns:
            For each what ``ShardServer.answers`` returned, or why there is no answer within the deadline. If the caller
            is cancelled, calls that have not begun never do.
        """
        if not self._resumed.is_set():
            deadline_s -= await self._wait(deadline_s)
        asked = {
            number: self._sets[number].ask(payload, deadline_s)
            for number, payload in payloads.items()
            if number < len(self._sets)
        }
        self._running += 1
        try:
            if asked:
                await asyncio.wait(asked.values())
        finally:
            self._running -= 1
            for answer in asked.values():
                if not answer.cancel():
                    # Nobody reads it if this was cancelled, and asyncio would log it.
                    answer.exception()
        return {number: self._outcome(asked.get(number)) for number in payloads}

    def _outcome(self, answer: asyncio.Future[bytes] | None) -> bytes | Failure:
        error = Unavailable("no such shard") if answer is None else answer.exception()
        if answer is not None and error is None:
            return answer.result()
        self._metrics.shards_missing.inc()
        return Failure(str(error))

    async def _wait(self, deadline_s: float) -> float:
        """Wait for the end of a pause; return the seconds that it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._resumed.wait()
        return loop.time() - began
