"""Bound the work that a worker accepts, so that it answers all accepted requests in time.

A ranking request takes a slot once its body has arrived, and frees it with its response. The worker tracks the mean
time m between answers while there is work, m ← m + (t − m) / 16. So the last of n slots is answered after about n·m. A
request is refused at once if that is later than half of the deadline, or if all slots are taken. A request that finds
the queue empty is always admitted, so the mean recovers.

Only a few admitted requests run at a time. If all of them ran, the event loop would reach new connections late.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from types import coroutine
from typing import Any, TypeVar

from cachetools import LRUCache

from fullrank_service.base.errors import Overloaded, TooManyRequests

T = TypeVar("T")


class DeadlinePassed(TimeoutError):
    """The coroutine was cancelled because its deadline passed."""


async def within(work: Coroutine[Any, Any, T], deadline: float) -> T:
    """Run a coroutine until a time of the event loop's clock, as ``asyncio.timeout_at``. Raises DeadlinePassed."""
    try:
        awaited = work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    timeout = asyncio.timeout_at(deadline)
    try:
        async with timeout:
            return await _resume(work, awaited)
    except TimeoutError:
        if timeout.expired():
            raise DeadlinePassed from None
        raise


@coroutine
def _resume(work: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """Continue a coroutine that waits for `awaited`. ``yield from`` would begin by waking it."""
    try:
        while True:
            try:
                received = yield awaited
            except BaseException as error:
                awaited = work.throw(error)
            else:
                awaited = work.send(received)
    except StopIteration as ended:
        result: T = ended.value
        return result


_MEAN_WEIGHT = 1 / 16
# The mean is not a bound: a request expected to need more than this share of the deadline is refused.
_DEADLINE_SHARE = 0.5


_CURRENT: ContextVar[Slot | None] = ContextVar("slot", default=None)


def current_slot() -> Slot | None:
    """Return the slot of the request that this task ranks, if it ranks one."""
    return _CURRENT.get()


class Slot:
    """The right of one request to rank until its deadline, in seconds of the event loop's clock."""

    __slots__ = ("__weakref__", "_admission", "cost", "deadline", "is_running")

    def __init__(self, admission: Admission, deadline: float) -> None:
        self._admission = admission
        self.cost = 1
        self.deadline = deadline
        self.is_running = False

    def set_cost(self, cost: int) -> None:
        """Count the request as `cost` rankings. Raises Overloaded if they do not fit."""
        self._admission.resize(self, cost)


class Admission:
    """The ranking slots of one worker. Use it from the event loop only.

    Args:
        max_queue: most rankings that wait or run.
        deadline_s: longest time from a complete request to its answer.
        max_running: requests that run at a time; the others wait in a queue.
        on_change: called with the number of slots taken.
    """

    def __init__(
        self,
        max_queue: int,
        deadline_s: float,
        max_running: int = 4,
        on_change: Callable[[int], None] = lambda taken: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.deadline_s = deadline_s
        self._max_queue = max_queue
        self._max_running = max_running
        self._on_change = on_change
        self._clock = clock
        self._queue: deque[asyncio.Future[None]] = deque()
        self._taken = 0
        self._running = 0
        self._mean_s = 0.0
        self._last_answer = 0.0

    @property
    def full(self) -> bool:
        """Whether one more request would be refused."""
        return self._taken > 0 and not self._fits(1)

    @property
    def retry_after(self) -> int:
        """Seconds, at least 1, until the requests admitted now are answered."""
        return max(1, math.ceil(self._taken * self._mean_s))

    async def run(self, work: Callable[[Slot], Awaitable[T]]) -> T:
        """Call `work` with a slot in its turn. Raises Overloaded if no slot is free, or the deadline has passed."""
        if self.full:
            raise self.refusal()
        slot = self._take()
        token = _CURRENT.set(slot)
        try:
            return await within(self._in_turn(slot, work), slot.deadline)
        except DeadlinePassed:
            raise self._expired() from None
        finally:
            _CURRENT.reset(token)
            self._release(slot)

    def resize(self, slot: Slot, cost: int) -> None:
        """Change the number of rankings that a slot covers. Raises Overloaded if they do not fit."""
        more = cost - slot.cost
        if self._taken > slot.cost and not self._fits(more):
            raise self.refusal()
        slot.cost = cost
        self._set_taken(self._taken + more)

    def refusal(self) -> Overloaded:
        """The error of a request that does not fit."""
        return Overloaded(retry_after=self.retry_after)

    def _expired(self) -> Overloaded:
        return Overloaded(
            f"The answer was not ready after {self.deadline_s:g} seconds.",
            retry_after=self.retry_after,
        )

    def _take(self) -> Slot:
        now = self._clock()
        if not self._taken:
            self._last_answer = now  # idle time is not work
        self._set_taken(self._taken + 1)
        return Slot(self, now + self.deadline_s)

    async def _in_turn(self, slot: Slot, work: Callable[[Slot], Awaitable[T]]) -> T:
        if self._running < self._max_running and not self._queue:
            self._running += 1
            slot.is_running = True
        else:
            await self._wait_for_turn(slot)
        return await work(slot)

    async def _wait_for_turn(self, slot: Slot) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        finally:
            # True even if the request is cancelled after its turn was granted: _release gives it back.
            slot.is_running = turn.done() and not turn.cancelled()

    def _release(self, slot: Slot) -> None:
        if slot.is_running:
            self._running -= 1
            now = self._clock()
            seconds = (now - self._last_answer) / slot.cost
            self._last_answer = now
            mean = self._mean_s
            self._mean_s = mean + (seconds - mean) * _MEAN_WEIGHT if mean else seconds
        self._set_taken(self._taken - slot.cost)
        while self._queue and self._running < self._max_running:
            turn = self._queue.popleft()
            if not turn.done():  # a cancelled request has left the queue
                self._running += 1
                turn.set_result(None)

    def _fits(self, more: int) -> bool:
        taken = self._taken + more
        return (
            taken <= self._max_queue and taken * self._mean_s <= self.deadline_s * _DEADLINE_SHARE
        )

    def _set_taken(self, taken: int) -> None:
        self._taken = taken
        self._on_change(taken)


class RateLimiter:
    """A token bucket for each client: `burst` requests at once, `per_second` in the long run; 0: no limit."""

    def __init__(
        self,
        per_second: float,
        burst: int,
        max_clients: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        # client → (tokens, time when they were counted)
        self._buckets: LRUCache[str, tuple[float, float]] = LRUCache(max_clients)

    @property
    def is_enabled(self) -> bool:
        return self._per_second > 0

    def spend(self, client: str) -> None:
        """Count one request of a client. Raises TooManyRequests."""
        now = self._clock()
        tokens, then = self._buckets.get(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._per_second)
        is_allowed = tokens >= 1
        self._buckets[client] = (tokens - 1 if is_allowed else tokens, now)
        if not is_allowed:
            raise TooManyRequests(retry_after=max(1, math.ceil((1 - tokens) / self._per_second)))
