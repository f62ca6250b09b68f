"""A circuit breaker: when calls fail more often than they succeed, make no calls for a while."""

from __future__ import annotations

import time
from collections.abc import Callable


class Breaker:
    """closed → (max_failures more than successes) → open → (retry_s later) → one trial → closed or open.

    A success cancels one failure, so the breaker also opens for a server that fails every second call.
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
    def is_open(self) -> bool:
        """Whether it has opened and not closed since."""
        return self._failures >= self._max_failures

    def allows(self) -> bool:
        """Return whether to make a call now. When retry_s is over, the first caller makes the trial."""
        if self._failures < self._max_failures:
            return True
        now = self._clock()
        if now < self._open_until:
            return False
        self._open_until = now + self._retry_s
        self._trying = True
        return True

    def success(self) -> None:
        """Note a call that succeeded."""
        if not self.is_open:
            self._failures = max(0, self._failures - 1)
        elif self._trying:  # Otherwise the call began before the breaker opened.
            self._failures = 0
            self._trying = False

    def failure(self) -> None:
        """Note a call that failed or timed out."""
        self._failures += 1
        self._trying = False
        if self._failures >= self._max_failures:
            self._open_until = self._clock() + self._retry_s
