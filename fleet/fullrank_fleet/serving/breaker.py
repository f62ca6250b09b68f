"""A circuit breaker: a replica that fails again and again is left alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable

FAILURES = 3
"""Failures in a row that open the breaker."""
OPEN_S = 1.0
"""How long it stays open at first; each failed trial doubles the time, up to ``_MAX_OPEN_S``."""
_MAX_OPEN_S = 30.0


class Breaker:
    """Decides whether a replica may be called.

    Closed, it lets every call pass. After ``FAILURES`` failures in a row it opens: no call passes for a while, then one
    trial at a time, until one succeeds.

    Args:
        clock: Seconds that only grow.

    Example:
        >>> breaker = Breaker()
        >>> for _ in range(FAILURES):
        ...     breaker.failed()
        >>> breaker.allows()
        False
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._open_s = OPEN_S
        self._opens_until = 0.0
        self._on_trial = False

    @property
    def is_open(self) -> bool:
        """Whether the last calls failed and none has succeeded since."""
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
        """Note an answer: the breaker closes."""
        self._failures, self._on_trial = 0, False
        self._open_s = OPEN_S

    def failed(self) -> None:
        """Note a failure or a timeout. While the breaker is open, only that of a trial counts, not of earlier calls."""
        self._failures += 1
        if self._failures == FAILURES:
            self._opens_until = self._clock() + self._open_s
        elif self._on_trial:
            self._on_trial = False
            self._open_s = min(2 * self._open_s, _MAX_OPEN_S)
            self._opens_until = self._clock() + self._open_s
