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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from fullrank.errors import FullrankError
from fullrank_service.base.metrics import Metrics

# A circuit breaker: a replica that fails again and again is left alone for a while.

FAILURES = 3
"""Failures in a row that open the breaker."""
OPEN_S = 1.0
"""How long it stays open at first; each failed trial doubles the time, up to ``_MAX_OPEN_S``."""
_MAX_OPEN_S = 30.0


class Breaker:
    """Decides whether a replica may be called.

    Closed, it lets every call pass. After ``FAILURES`` failures in a row it opens: no call passes for a while, then one
    trial at a time, until one succeeds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._open_s = OPEN_S
        self._opens_until = 0.0
        self._on_trial = False

    @property
    def is_open(self) -> bool:
        return self._failures >= FAILURES

    def allows(self) -> bool:
        """Return whether a call may be made now; a trial that this allows delays the next one."""
        if not self.is_open:
            return True
        now = self._clock()
        if now < self._opens_until:
            return False
        self._opens_until, self._on_trial = now + self._open_s, True
        return True

    def succeeded(self) -> None:
        self._failures, self._on_trial = 0, False
        self._open_s = OPEN_S

    def failed(self) -> None:
        """Note a failure. While the breaker is open, only that of a trial counts, not of earlier calls."""
        self._failures += 1
        if self._failures == FAILURES:
            self._opens_until = self._clock() + self._open_s
        elif self._on_trial:
            self._on_trial = False
            self._open_s = min(2 * self._open_s, _MAX_OPEN_S)
            self._opens_until = self._clock() + self._open_s


# Send the requests that wait for a replica in one call.
#
# A call of Ray costs its caller nearly the same processor time whether it carries one request or four, and a replica
# answers few calls at once anyway. So the requests of one round of the event loop travel together; a busy router has
# several in a round. A request that finds enough calls under way waits, and travels with the others that wait.

Answers = Sequence[bytes | Exception]

# Calls of one replica under way: one for each of its threads.
_CALLS = 2
# Requests of a call, which all wait for the last of them. Eight cost a router the same processor time as four.
_MOST = 4


class _Waiting(NamedTuple):
    payload: bytes
    until: float
    wanted: asyncio.Future[bytes]
    answer: asyncio.Future[bytes]


class Batcher:
    """The requests of this process to one replica.

    Args:
        send: Sends requests in one call, with the seconds that each may still wait; returns for each the answer, or the
            exception that it caused.
    """

    def __init__(
        self, send: Callable[[Sequence[bytes], Sequence[float]], Awaitable[Answers]]
    ) -> None:
        self._send = send
        self._waiting = deque[_Waiting]()
        self._calls = set[asyncio.Task[None]]()

    def ask(
        self, payload: bytes, until: float, wanted: asyncio.Future[bytes]
    ) -> asyncio.Future[bytes]:
        """Send a request as soon as a call may begin.

        Args:
            until: When the call that carries it ends without an answer, by the event loop's clock.
            wanted: Once it is done, nobody waits any more, and a request that still waits here is cancelled, not sent.
        """
        loop = asyncio.get_running_loop()
        asked = _Waiting(payload, until, wanted, loop.create_future())
        self._waiting.append(asked)
        if len(self._waiting) == 1:
            # After the other requests of this round. If others wait already, a start is due or all calls are under way.
            loop.call_soon(self._start)
        return asked.answer

    def _start(self) -> None:
        while self._waiting and len(self._calls) < _CALLS:
            batch = self._next()
            if batch:
                call = asyncio.ensure_future(self._call(batch))
                self._calls.add(call)
                call.add_done_callback(self._ended)

    def _next(self) -> list[_Waiting]:
        batch = list[_Waiting]()
        while self._waiting and len(batch) < _MOST:
            asked = self._waiting.popleft()
            if asked.wanted.done():
                asked.answer.cancel()
            else:
                batch.append(asked)
        return batch

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._start()

    async def _call(self, batch: Sequence[_Waiting]) -> None:
        answers: Answers
        now = asyncio.get_running_loop().time()
        left_s = [asked.until - now for asked in batch]
        try:
            # A frozen replica must not keep its place longer than somebody waits: later requests find it thawed.
            async with asyncio.timeout(max(left_s)):
                answers = await self._send([asked.payload for asked in batch], left_s)
        except Exception as error:
            answers = [error] * len(batch)
        for asked, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Exception):
                asked.answer.set_exception(answer)
            else:
                asked.answer.set_result(answer)


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

    async def call(self, payloads: Sequence[bytes], left_s: Sequence[float]) -> Answers:
        """Answer requests, each by itself, if it begins within so many seconds. Raises if it can answer none."""


class Latencies:
    """The 95th percentile of the latest answers of a replica, in seconds."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_KEPT)
        self._p95: float | None = None
        self._added = 0

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)
        self._added += 1
        if self._added >= _NEEDED and self._added % 16 == 4:
            self._p95 = sorted(self._seconds)[int(0.95 * len(self._seconds))]

    @property
    def p95(self) -> float | None:
        return self._p95


@dataclass(eq=False)
class _Tracked:
    replica: Replica
    breaker: Breaker
    latencies: Latencies = field(default_factory=Latencies)
    batcher: Batcher = field(init=False)

    def __post_init__(self) -> None:
        # The handle of a replica is replaced when its process is.
        self.batcher = Batcher(lambda *asked: self.replica.call(*asked))


@dataclass(eq=False)
class ReplicaSet:
    """The replicas of one shard.

    Attributes:
        hedges_left: A hedge is allowed for 5 % of the calls; those without one save it for later, up to 64.
    """

    metrics: Metrics
    hedges_left: float = _HEDGE_BURST
    clock: Callable[[], float] = time.monotonic
    _tracked: list[_Tracked] = field(default_factory=list)
    _turn: int = 0
    _open_breakers: int = 0

    @property
    def replicas(self) -> list[Replica]:
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

    def ask(self, payload: bytes, deadline_s: float) -> asyncio.Future[bytes]:
        """Return the first answer of a replica.

        Its exception is Unavailable if no replica has answered before the deadline, or all have failed. If it is
        cancelled, calls that have not begun never do.
        """
        self.metrics.shard_calls["first"].inc()
        self.hedges_left = min(_HEDGE_BURST, self.hedges_left + _HEDGE_SHARE)
        return _Request(self, payload, deadline_s).answer

    def order(self) -> list[_Tracked]:
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
    def p95(self) -> float | None:
        """That of the fastest replica whose breaker is closed, if any is: a slow one must not raise it."""
        closed = [own for own in self._tracked if not own.breaker.is_open]
        found = [own.latencies.p95 for own in closed or self._tracked]
        return min((p95 for p95 in found if p95 is not None), default=None)

    @property
    def late_s(self) -> float:
        return max(_MIN_LATE_S, _LATE_P95S * (self.p95 or 0.0))

    def answered(self, own: _Tracked, seconds: float, *, is_late: bool) -> None:
        # Late answers count too: if all replicas become slow, none is late any more.
        own.latencies.add(seconds)
        if not is_late:
            own.breaker.succeeded()
            self._count_breakers()

    def failed(self, own: _Tracked) -> None:
        own.breaker.failed()
        self.metrics.shard_failures.inc()
        self._count_breakers()

    def _count_breakers(self) -> None:
        count = sum(own.breaker.is_open for own in self._tracked)
        if count != self._open_breakers:
            self.metrics.shard_breakers_open.inc(count - self._open_breakers)
            self._open_breakers = count


@dataclass(eq=False, slots=True)
class _Call:
    own: _Tracked
    began: float
    is_late: bool = False


class _Request:
    """A request to a shard, which ends with the first answer of a replica."""

    def __init__(self, replicas: ReplicaSet, payload: bytes, deadline_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[bytes] = self._loop.create_future()
        self._replicas, self._payload = replicas, payload
        self._untried = replicas.order()
        # Calls that have not ended, and those of them that are not late.
        self._running = self._waited = 0
        self._end = self._loop.time() + deadline_s
        self._reason = "no replica has answered in time" if self._untried else "no replica is known"
        self._deadline = self._loop.call_later(deadline_s, self._fail)
        self._hedging: asyncio.TimerHandle | None = None
        self.answer.add_done_callback(self._stop)
        if self._untried and deadline_s > 0:
            self._try_next()
        else:
            self._fail()

    def _try_next(self) -> None:
        call, late_s = _Call(self._untried.pop(0), self._loop.time()), self._replicas.late_s
        # A late answer still counts, even after the deadline.
        until = max(self._end, call.began + late_s)
        late = self._loop.call_later(late_s, self._late, call)
        answer = call.own.batcher.ask(self._payload, until, self.answer)
        answer.add_done_callback(partial(self._ended, call, late))
        self._running += 1
        self._waited += 1
        self._plan_hedge()

    def _plan_hedge(self) -> None:
        """Hedge after the p95 from now on, if one call runs alone and another replica may be asked."""
        if self._hedging is not None:
            self._hedging.cancel()
        wait_s = self._replicas.p95
        can_hedge = self._running == 1 and self._untried and not self._untried[0].breaker.is_open
        if can_hedge and wait_s is not None and self._loop.time() + wait_s < self._end:
            self._hedging = self._loop.call_later(wait_s, self._hedge)

    def _hedge(self) -> None:
        # The answer may have come in the same round of the loop, before the timer was cancelled.
        if not self.answer.done() and self._replicas.hedges_left >= 1:
            self._replicas.hedges_left -= 1
            self._replicas.metrics.shard_calls["hedge"].inc()
            self._try_next()

    def _late(self, call: _Call) -> None:
        call.is_late = True
        self._waited -= 1
        self._replicas.failed(call.own)
        if self._untried and not self.answer.done():
            self._retry()

    def _ended(self, call: _Call, late: asyncio.TimerHandle, answer: asyncio.Future[bytes]) -> None:
        late.cancel()
        self._running -= 1
        self._waited -= not call.is_late
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            seconds = self._loop.time() - call.began
            self._replicas.answered(call.own, seconds, is_late=call.is_late)
            if not self.answer.done():
                self.answer.set_result(answer.result())
            return
        if not call.is_late:
            self._replicas.failed(call.own)
        self._reason = f"{type(error).__name__}: {error}"
        if self.answer.done():
            return
        if self._untried and not self._waited:
            self._retry()
        elif self._running:
            self._plan_hedge()
        else:
            self._fail()

    def _retry(self) -> None:
        self._replicas.metrics.shard_calls["retry"].inc()
        self._try_next()

    def _fail(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(Unavailable(self._reason))

    def _stop(self, answer: asyncio.Future[bytes]) -> None:
        self._deadline.cancel()
        if self._hedging is not None:
            self._hedging.cancel()
