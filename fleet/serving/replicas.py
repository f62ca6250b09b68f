"""Ask one of several replicas of a shard, and another one if the first is slow or fails.

Ray notices a frozen node after more than a minute, so a router decides by itself, with three times:

    p95       of the fastest replica: a second one is asked as well (a hedge), for at most 5 % of the calls
    late      ten times that: another one is asked in any case, and the replica has failed
    deadline  the request gives up

The answer of a late replica counts if it is the first. Three failures in a row open the breaker of a replica; then
nobody waits for it until a trial succeeds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from fleet.serving.batching import Answers, Batcher
from fleet.serving.breaker import Breaker
from fullrank.errors import FullrankError
from service.telemetry.metrics import Metrics

# Hedges per call, and how many may be saved up for a moment when a replica freezes.
_HEDGE_SHARE = 0.05
_HEDGE_BURST = 64.0
# Latencies kept of a shard, and before there are this many no call is hedged.
_KEPT, _NEEDED = 256, 20
# A replica is late after this many times the p95, and at least this many seconds.
_LATE_P95S, _MIN_LATE_S = 10.0, 0.25


class Unavailable(FullrankError):
    """No replica of a shard has answered in time."""


class Replica(Protocol):
    """A process that holds one shard; equal and hashed by what it is."""

    async def call(self, payloads: Sequence[bytes]) -> Answers:
        """Answer requests, each by itself. Raises any exception if it can answer none."""


class Latencies:
    """The 95th percentile of the latest answers of a replica, in seconds."""

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
    latencies: Latencies = field(default_factory=Latencies)
    batcher: Batcher = field(init=False)

    def __post_init__(self) -> None:
        # The handle of a replica is replaced when its process is.
        self.batcher = Batcher(lambda payloads: self.replica.call(payloads))


@dataclass(eq=False)
class ReplicaSet:
    """The replicas of one shard.

    Attributes:
        metrics: Count its calls.
        budget: Of its hedges.
    """

    metrics: Metrics
    budget: HedgeBudget = field(default_factory=HedgeBudget)
    clock: Callable[[], float] = time.monotonic
    _tracked: list[_Tracked] = field(default_factory=list)
    _turn: int = 0
    _open_breakers: int = 0

    @property
    def replicas(self) -> list[Replica]:
        """The replicas that may be asked."""
        return [own.replica for own in self._tracked]

    def update(self, replicas: Sequence[Replica]) -> None:
        """Replace the replicas; those that stay keep their latencies and breakers."""
        known = {own.replica: own for own in self._tracked}
        self._tracked = []
        for replica in replicas:
            own = known.get(replica) or _Tracked(replica, Breaker(self.clock))
            own.replica = replica
            self._tracked.append(own)
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
                left = end - self.clock()
                if left <= 0:
                    break
                if not running:
                    self._start(untried.pop(0), payload, left, running)
                for task in await self._wait(running, untried, payload, left):
                    running.discard(task)
                    error = task.exception()
                    if error is None:
                        return task.result()
                    reason = f"{type(error).__name__}: {error}"
                    if untried and not running:
                        self.metrics.shard_calls["retry"].inc()
        finally:
            for task in running:
                # An overtaken call ends by itself.
                task.add_done_callback(_forget)
        raise Unavailable(reason)

    def _order(self) -> list[_Tracked]:
        """Return the replicas in the order in which this call asks them: in turn, those with open breakers last.

        An open breaker is asked for a trial only where its replica comes first, so that no trial is wasted.
        """
        self._turn += 1
        count = len(self._tracked)
        rotated = [self._tracked[(self._turn + i) % count] for i in range(count)]
        if rotated and rotated[0].breaker.is_open and rotated[0].breaker.allows():
            return rotated
        # Trying a replica whose breaker is open is still better than giving up.
        return sorted(rotated, key=lambda own: own.breaker.is_open)

    @property
    def _p95(self) -> float | None:
        """That of the fastest replica whose breaker is closed, if any is: a slow one must not raise it."""
        closed = [own for own in self._tracked if not own.breaker.is_open]
        found = [own.latencies.p95 for own in closed or self._tracked]
        return min((p95 for p95 in found if p95 is not None), default=None)

    @property
    def _late_s(self) -> float:
        return max(_MIN_LATE_S, _LATE_P95S * (self._p95 or 0.0))

    async def _wait(
        self,
        running: set[asyncio.Task[bytes]],
        untried: list[_Tracked],
        payload: bytes,
        left: float,
    ) -> set[asyncio.Task[bytes]]:
        """Wait until a call ends or the deadline; ask another replica as well once the running calls are slow or late.

        Returns:
            The calls that have ended; none if another replica was asked.
        """
        late_s, hedge_s = self._late_s, self._p95
        can_hedge = len(running) == 1 and untried and not untried[0].breaker.is_open
        if can_hedge and hedge_s is not None and hedge_s < left:
            done, _ = await asyncio.wait(running, timeout=hedge_s)
            if done:
                return done
            late_s, left = late_s - hedge_s, left - hedge_s
            if self.budget.take():
                self.metrics.shard_calls["hedge"].inc()
                self._start(untried.pop(0), payload, left, running)
                return set()
        is_limited = bool(untried) and late_s < left
        done, _ = await asyncio.wait(
            running, timeout=late_s if is_limited else left, return_when=asyncio.FIRST_COMPLETED
        )
        if is_limited and not done:
            self.metrics.shard_calls["retry"].inc()
            self._start(untried.pop(0), payload, left - late_s, running)
        return done

    def _start(
        self, own: _Tracked, payload: bytes, left: float, running: set[asyncio.Task[bytes]]
    ) -> None:
        running.add(asyncio.ensure_future(self._call(own, payload, left)))

    async def _call(self, own: _Tracked, payload: bytes, left: float) -> bytes:
        """Call a replica, until the deadline or until it is late, whichever is later."""
        began, late_s = self.clock(), self._late_s
        late = asyncio.get_running_loop().call_later(late_s, self._failed, own)
        try:
            answer = await own.batcher.ask(payload, max(left, late_s))
        except asyncio.CancelledError:
            raise
        except Exception:
            if self.clock() - began < late_s:
                self._failed(own)
            raise
        finally:
            late.cancel()
        seconds = self.clock() - began
        # Late answers count too: if all replicas become slow, none is late any more.
        own.latencies.add(seconds)
        if seconds < late_s:
            own.breaker.succeeded()
            self._count_breakers()
        return answer

    def _failed(self, own: _Tracked) -> None:
        own.breaker.failed()
        self.metrics.shard_failures.inc()
        self._count_breakers()

    def _count_breakers(self) -> None:
        count = sum(own.breaker.is_open for own in self._tracked)
        if count != self._open_breakers:
            self.metrics.shard_breakers_open.inc(count - self._open_breakers)
            self._open_breakers = count


def _forget(task: asyncio.Task[bytes]) -> None:
    """Read the exception of a call that nobody waits for, or asyncio would log it."""
    with suppress(asyncio.CancelledError):
        task.exception()
