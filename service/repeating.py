"""Repeat a step on a thread of its own: how a worker follows files and does slow work beside its requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from logging import getLogger

# Shortest pause between log lines about failures.
_LOG_PAUSE_S = 10.0
_log = getLogger(__name__)


class Repeater:
    """Repeats a step until it is closed. A failure is logged and does not end the thread.

    Args:
        name: Of the thread.
        step: One round of work.
        pause_s: Longest pause between rounds, in seconds; None waits for `nudge`. A function is called before each.
        failure: Begins the log line about a failed round.
        expected: Failures that are logged without a traceback.
        rest: After a round, rest so many times as long as it took: requests need the interpreter, too.
        max_rest_s: Longest rest.
        ended: Called on the thread when it ends.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], None],
        pause_s: float | Callable[[], float | None],
        *,
        failure: str,
        expected: tuple[type[Exception], ...] = (),
        rest: float = 0.0,
        max_rest_s: float = 0.0,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._step, self._ended = step, ended
        self._pause_s = pause_s if callable(pause_s) else lambda: pause_s
        self._failure, self._expected = failure, expected
        self._rest, self._max_rest_s = rest, max_rest_s
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._logged_at = -_LOG_PAUSE_S
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.is_closing = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def nudge(self, *, is_urgent: bool = False) -> None:
        """End the pause; with is_urgent the rest as well."""
        if is_urgent:
            self._hurry.set()
        self._wake.set()

    def close(self, timeout_s: float | None = None) -> None:
        """Stop after the round that is running; wait for it, at most timeout_s."""
        self.is_closing = True
        self.nudge(is_urgent=True)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def log_failure(self, error: Exception) -> None:
        """Log a failure, unless one was logged within the last ten seconds."""
        if time.monotonic() - self._logged_at > _LOG_PAUSE_S:
            self._logged_at = time.monotonic()
            is_known = isinstance(error, self._expected)
            _log.error("%s: %s", self._failure, error, exc_info=None if is_known else error)

    def _run(self) -> None:
        while True:
            self._wake.wait(self._pause_s())
            self._wake.clear()
            # Cleared before the step, so that a nudge during the step ends the rest after it.
            self._hurry.clear()
            if self.is_closing:
                break
            began = time.perf_counter()
            try:
                self._step()
            except Exception as error:
                self.log_failure(error)
            took = time.perf_counter() - began
            self._hurry.wait(min(self._rest * took, self._max_rest_s))
        self._ended()
