"""A circuit breaker: when failures outnumber answers, leave the other side alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable


class Breaker:
    """closed → (max_failures more than answers) → open → (retry_s later) → one trial → closed or open.

    An answer makes up for one failure: a side that fails every other time is left alone too.
    """

    def __init__(
        self,
        max_failures: int = 3,
        retry_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_failures = max_failures
        self._retry_s = retry_s
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0
        self._trying = False

    @property
    def open(self) -> bool:
        """Whether it has opened and not closed since."""
        return self._failures >= self._max_failures

    def allows(self) -> bool:
        """Whether to try now. When open and due, the one that asks is the trial."""
        if self._failures < self._max_failures:
            return True
        now = self._clock()
        if now < self._open_until:
            return False
        self._open_until = now + self._retry_s
        self._trying = True
        return True

    def success(self) -> None:
        """The other side answered."""
        if not self.open:
            self._failures = max(0, self._failures - 1)
        elif self._trying:  # else it was asked before the others failed
            self._failures = 0
            self._trying = False

    def failure(self) -> None:
        """The other side failed or came late."""
        self._failures += 1
        self._trying = False
        if self._failures >= self._max_failures:
            self._open_until = self._clock() + self._retry_s
