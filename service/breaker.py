"""A circuit breaker: after failures in a row, leave the other side alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable


class Breaker:
    """closed → (max_failures in a row) → open → (retry_s later) → one trial → closed or open."""

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

    def allows(self) -> bool:
        """Whether to try now. When open and due, the one that asks is the trial."""
        if self._failures < self._max_failures:
            return True
        now = self._clock()
        if now < self._open_until:
            return False
        self._open_until = now + self._retry_s
        return True

    def success(self) -> None:
        """The other side answered."""
        self._failures = 0

    def failure(self) -> None:
        """The other side failed or came late."""
        self._failures += 1
        if self._failures >= self._max_failures:
            self._open_until = self._clock() + self._retry_s
