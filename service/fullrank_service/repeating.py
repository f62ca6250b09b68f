"""Repeat a step on a thread of its own: how a worker follows files and does slow work beside its requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from logging import getLogger

# Shortest pause between log lines about failures.
_LOG_PAUSE_S = 10.0
# How long closing waits for a round. It may be in a step that cannot be interrupted, and dies with the process.
CLOSE_S = 5.0
_log = getLogger(__name__)

Failed = Callable[[str], None]
"""Counts a failure of work in the background, given the name of the work."""


def uncounted(name: str) -> None:
    """Count nothing."""


class Closing(Exception):
    """The thread is being closed: its round ends."""


class Repeater:
    """Repeats a step until it is closed. A failure is logged and counted, and does not end the thread.

    Args:
        name: Of the thread.
        step: One round of work.
        pause_s: Longest pause between rounds, in seconds; None waits for `nudge`. A function is called before each.
        failure: Begins the log line about a failed round.
        failed: Called with the name of the thread after each failure.
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
        failed: Failed = uncounted,
        expected: tuple[type[Exception], ...] = (),
        rest: float = 0.0,
        max_rest_s: float = 0.0,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._step, self._ended = step, ended
        self._pause_s = pause_s if callable(pause_s) else lambda: pause_s
        self._name, self._failed = name, failed
        self._failure, self._expected = failure, expected
        self._rest, self._max_rest_s = rest, max_rest_s
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._logged_at = -_LOG_PAUSE_S
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._closing = threading.Event()

    @property
    def is_closing(self) -> bool:
        """Whether the thread is being closed; a long step looks at it now and then, or calls `pause`."""
        return self._closing.is_set()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def nudge(self, *, is_urgent: bool = False) -> None:
        """End the pause; with is_urgent the rest as well."""
        if is_urgent:
            self._hurry.set()
        self._wake.set()

    def pause(self, seconds: float) -> None:
        """Pause a long step, so that requests get the interpreter. Raises Closing."""
        if self._closing.wait(seconds):
            raise Closing

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Stop after the round that is running; wait for it, at most timeout_s."""
        self._closing.set()
        self.nudge(is_urgent=True)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def log_failure(self, error: Exception) -> None:
        """Count a failure, and log it unless one was logged within the last ten seconds."""
        self._failed(self._name)
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
            except Closing:
                break
            except Exception as error:
                self.log_failure(error)
            took = time.perf_counter() - began
            self._hurry.wait(min(self._rest * took, self._max_rest_s))
        self._ended()
