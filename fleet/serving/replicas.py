"""Ask one of several replicas of a shard, and another one if the first is slow or fails.

Ray notices a frozen node after more than a minute, so a router decides by itself, with three times:

    p95 of the shard   a second replica is asked as well (a hedge), for at most 5 % of the calls
    attempt            the first replica has failed: another one is asked in any case
    deadline           the request gives up

Three failures in a row open the breaker of a replica; then nobody waits for it until a trial succeeds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from fleet.serving.breaker import Breaker
from fullrank.errors import FullrankError
from service.telemetry.metrics import Metrics

# Hedges per call, and how many may be saved up for a moment when a replica freezes.
_HEDGE_SHARE = 0.05
_HEDGE_BURST = 64.0
# Latencies kept of a shard, and before there are this many no call is hedged.
_KEPT, _NEEDED = 256, 20
# An attempt may take this many times the p95 of the shard, and at least this many seconds.
_ATTEMPT_P95S, _MIN_ATTEMPT_S = 10.0, 0.25


class Unavailable(FullrankError):
    """No replica of a shard has answered in time."""


class Replica(Protocol):
    """A process that holds one shard; equal and hashed by what it is."""

    async def call(self, payload: bytes) -> bytes:
        """Answer a request. Raises any exception if it cannot."""


class Latencies:
    """The 95th percentile of the latest answers of a shard, in seconds."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_KEPT)
        self._p95: float | None = None
        self._added = 0

    def add(self, seconds: float) -> None:
        """Note how long an answer took."""
        self._seconds.append(seconds)
        self._added += 1
        if self._added >= _NEEDED and self._added % 16 == 4:
            self._p95 = sorted(self._seconds)[int(0.95 * len(self._seconds))]

    @property
    def p95(self) -> float | None:
        """None until there are enough answers."""
        return self._p95

    @property
    def attempt_s(self) -> float:
        """How long one replica may take."""
        return max(_MIN_ATTEMPT_S, _ATTEMPT_P95S * (self._p95 or 0.0))


@dataclass
class HedgeBudget:
    """Allows a hedge for at most 5 % of the calls; calls without one save it for later, up to 64."""

    left: float = _HEDGE_BURST

    def count_call(self) -> None:
        """Note a first call."""
        self.left = min(_HEDGE_BURST, self.left + _HEDGE_SHARE)

    def take(self) -> bool:
        """Take one hedge from the budget; False: there is none left."""
        if self.left < 1:
            return False
        self.left -= 1
        return True


@dataclass(eq=False)
class _Tracked:
    replica: Replica
    breaker: Breaker


@dataclass(eq=False)
class ReplicaSet:
    """The replicas of one shard.

    Attributes:
        metrics: Count its calls.
        latencies: Of its answers.
        budget: Of its hedges.
    """

    metrics: Metrics
    latencies: Latencies = field(default_factory=Latencies)
    budget: HedgeBudget = field(default_factory=HedgeBudget)
    clock: Callable[[], float] = time.monotonic
    _tracked: list[_Tracked] = field(default_factory=list)
    _turn: int = 0
    _open_breakers: int = 0

    def update(self, replicas: Sequence[Replica]) -> None:
        """Replace the replicas; those that stay keep their breakers."""
        breakers = {own.replica: own.breaker for own in self._tracked}
        self._tracked = [
            _Tracked(replica, breakers.get(replica) or Breaker(self.clock)) for replica in replicas
        ]
        self._count_breakers()

    async def ask(self, payload: bytes, deadline_s: float) -> bytes:
        """Return the first answer of a replica.

        Args:
            payload: The request.
            deadline_s: Seconds until the caller gives up.

        Raises:
            Unavailable: No replica has answered before the deadline, or all have failed.
        """
        self.metrics.shard_calls["first"].inc()
        self.budget.count_call()
        end = self.clock() + deadline_s
        untried = self._order()
        running: set[asyncio.Task[bytes]] = set()
        reason = "no replica is known" if not untried else "no replica has answered in time"
        try:
            while untried or running:
                if not running:
                    self._start(untried.pop(0), payload, running)
                left = end - self.clock()
                if left <= 0:
                    break
                done = await self._wait(running, untried, payload, left)
                for task in done:
                    running.discard(task)
                    error = task.exception()
                    if error is None:
                        return task.result()
                    reason = f"{type(error).__name__}: {error}"
                    if untried and not running:
                        self.metrics.shard_calls["retry"].inc()
        finally:
            for task in running:
                self._abandon(task)
        raise Unavailable(reason)

    def _order(self) -> list[_Tracked]:
        """Return the replicas in the order in which this call asks them: in turn, those with open breakers last."""
        self._turn += 1
        count = len(self._tracked)
        rotated = [self._tracked[(self._turn + i) % count] for i in range(count)]
        # Trying a replica whose breaker is open is still better than giving up.
        return sorted(rotated, key=lambda own: not own.breaker.allows())

    async def _wait(
        self,
        running: set[asyncio.Task[bytes]],
        untried: list[_Tracked],
        payload: bytes,
        left: float,
    ) -> set[asyncio.Task[bytes]]:
        """Wait until a call ends or the deadline; start a hedge once the running calls are slow."""
        hedge_s = self.latencies.p95
        can_hedge = len(running) == 1 and untried and not untried[0].breaker.is_open
        if can_hedge and hedge_s is not None and hedge_s < left:
            done, _ = await asyncio.wait(running, timeout=hedge_s)
            if done:
                return done
            if self.budget.take():
                self.metrics.shard_calls["hedge"].inc()
                self._start(untried.pop(0), payload, running)
            left -= hedge_s
        done, _ = await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        return done

    def _start(self, own: _Tracked, payload: bytes, running: set[asyncio.Task[bytes]]) -> None:
        running.add(asyncio.ensure_future(self._call(own, payload)))

    async def _call(self, own: _Tracked, payload: bytes) -> bytes:
        began = self.clock()
        try:
            answer = await asyncio.wait_for(own.replica.call(payload), self.latencies.attempt_s)
        except asyncio.CancelledError:
            raise
        except Exception:
            own.breaker.failed()
            self.metrics.shard_failures.inc()
            self._count_breakers()
            raise
        own.breaker.succeeded()
        self._count_breakers()
        self.latencies.add(self.clock() - began)
        return answer

    def _count_breakers(self) -> None:
        count = sum(own.breaker.is_open for own in self._tracked)
        if count != self._open_breakers:
            self.metrics.shard_breakers_open.inc(count - self._open_breakers)
            self._open_breakers = count

    def _abandon(self, task: asyncio.Task[bytes]) -> None:
        """Let an overtaken call end by itself: if it times out, its replica has failed."""
        task.add_done_callback(_forget)


def _forget(task: asyncio.Task[bytes]) -> None:
    """Read the exception of a call that nobody waits for, or asyncio would log it."""
    with suppress(asyncio.CancelledError):
        task.exception()
