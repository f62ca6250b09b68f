"""How much a worker takes on: never more than it can answer in time.

A request that ranks takes a slot when it is wholly there, and gives it back with its answer. The worker follows the
time between answers while there is work, m ← m + (t − m) / 16: what waits is done after about (slots taken) · m, on
however many threads and cores, whatever a request costs. Where that would be too late, or all slots are taken, the
request is refused at once, with the time after which it is worth another try. Who has nothing before them is never
refused, so that the mean recovers by itself.

Of those that are let in only a few are begun at a time. The others stand in a line and are nothing but a place in it:
an event loop with a hundred tasks ready would hear of nothing else until all of them had their turn.

The other bound is by client: a bucket of tokens each, refilled at the rate that is allowed.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from service.errors import Overloaded, TooMany

# Where in the scope of a request its slot is.
SLOT = "fullrank.slot"
_WEIGHT = 1 / 16
# What is expected to take longer than this share of the deadline is refused: the mean is one, not a promise.
_SHARE = 0.5


class Slot:
    """The right to rank between two times of the event loop's clock; left once, however often that is said."""

    __slots__ = ("_admission", "_cost", "deadline", "since")

    def __init__(self, admission: Admission, since: float) -> None:
        self._admission = admission
        self._cost = 1
        self.since = since
        self.deadline = since + admission.deadline_s

    def weigh(self, cost: int) -> None:
        """The request is so many rankings. Raises Overloaded where the worker cannot take on all of them."""
        self._admission.add(cost - self._cost)
        self._cost = cost

    def leave(self) -> None:
        """Done, or given up."""
        if self._cost:
            self._admission.left(self._cost)
            self._cost = 0


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request in the line: what begins it, and what tells it that its time is over."""

    slot: Slot
    begin: Callable[[Slot], None]
    expire: Callable[[], None]


class Admission:
    """The slots of one worker. Used from the event loop only.

    max_queue  rankings waiting or running at most
    deadline_s from the moment that a request is wholly there to its answer
    at_once    requests that are begun before others have ended; the line keeps the rest
    changed    is told how many slots are taken
    """

    def __init__(
        self,
        max_queue: int,
        deadline_s: float,
        at_once: int = 4,
        changed: Callable[[int], None] = lambda taken: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.deadline_s = deadline_s
        # The worker was told to stop: what is there is finished, /readyz sends callers elsewhere.
        self.draining = False
        self._max_queue = max_queue
        self._at_once = at_once
        self._changed = changed
        self._clock = clock
        self._line: deque[_Waiting] = deque()
        self._taken = 0
        self._begun = 0
        self._moving = False
        self._interval = 0.0
        self._last = 0.0

    @property
    def full(self) -> bool:
        """Whether one more could not be answered in time. Who has nothing before them is always let in."""
        return self._taken > 0 and not self._fits(1)

    def enter(self) -> Slot:
        """A slot for a request that has begun. Raises Overloaded."""
        if self.full:
            raise self.refusal()
        slot = self._slot()
        self._begun += 1
        return slot

    def line_up(self, begin: Callable[[Slot], None], expire: Callable[[], None]) -> bool:
        """A slot for a request that begins now or in its turn; False where there is no room.

        Either begin is called with the slot or, when its turn comes after the deadline, expire. Those before it leave
        by their own deadlines, which are earlier, so this is soon.
        """
        if self.full:
            return False
        waiting = _Waiting(self._slot(), begin, expire)
        if self._begun < self._at_once and not self._line:
            self._begin(waiting)
        else:
            self._line.append(waiting)
        return True

    def add(self, cost: int) -> None:
        """So many more for a slot that is taken. Raises Overloaded."""
        if self._taken > 1 and not self._fits(cost):
            raise self.refusal()
        self._set(self._taken + cost)

    def left(self, cost: int) -> None:
        """A slot of a request that had begun was given back: the next one's turn."""
        self._begun -= 1
        self._measure(cost)
        self._set(self._taken - cost)
        self._next()

    @property
    def retry_after(self) -> int:
        """Seconds after which what is here now will be done, at least one."""
        return max(1, math.ceil(self._taken * self._interval))

    def refusal(self) -> Overloaded:
        """The error for what does not fit."""
        return Overloaded(retry_after=self.retry_after)

    def expired(self) -> Overloaded:
        """The error for what was let in and came too late all the same."""
        return Overloaded(
            f"The answer was not ready after {self.deadline_s:g} seconds.",
            retry_after=self.retry_after,
        )

    def _slot(self) -> Slot:
        now = self._clock()
        if not self._taken:
            self._last = now  # until now there was nothing to do
        self._set(self._taken + 1)
        return Slot(self, now)

    def _next(self) -> None:
        """Begin those whose turn it is; not once more from within, where one that is begun leaves at once."""
        if self._moving:
            return
        self._moving = True
        try:
            while self._line and self._begun < self._at_once:
                waiting = self._line.popleft()
                if self._clock() < waiting.slot.deadline:
                    self._begin(waiting)
                else:
                    self._late(waiting)
        finally:
            self._moving = False

    def _begin(self, waiting: _Waiting) -> None:
        self._begun += 1
        waiting.begin(waiting.slot)

    def _late(self, waiting: _Waiting) -> None:
        self._set(self._taken - 1)
        waiting.expire()

    def _measure(self, cost: int) -> None:
        now = self._clock()
        spent = (now - self._last) / cost
        self._last = now
        mean = self._interval
        self._interval = mean + (spent - mean) * _WEIGHT if mean else spent

    def _fits(self, more: int) -> bool:
        taken = self._taken + more
        return taken <= self._max_queue and taken * self._interval <= self.deadline_s * _SHARE

    def _set(self, taken: int) -> None:
        self._taken = taken
        self._changed(taken)


class Rates:
    """A bucket of tokens for each client: `burst` at once, `per_second` in the long run; 0: no bound.

    Only so many clients are remembered; who was forgotten starts with a full bucket.
    """

    def __init__(
        self,
        per_second: float,
        burst: int,
        clients: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = per_second
        self._burst = float(burst)
        self._clients = clients
        self._clock = clock
        # client → (tokens, when they were counted)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @property
    def on(self) -> bool:
        """Whether there is a bound at all."""
        return self._rate > 0

    def spend(self, client: str) -> None:
        """One request of the client. Raises TooMany."""
        now = self._clock()
        tokens, then = self._buckets.get(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - 1 if allowed else tokens, now)
        self._buckets.move_to_end(client)
        if len(self._buckets) > self._clients:
            self._buckets.popitem(last=False)
        if not allowed:
            raise TooMany(retry_after=max(1, math.ceil((1 - tokens) / self._rate)))
