"""Work beside requests: a step that repeats on a thread of its own, group commit, and freed memory given back."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from logging import getLogger
from typing import Generic, NamedTuple, TypeVar

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
        pause_s: Longest pause between rounds; None waits for `nudge`. A function is called before each.
        failure: Begins the log line about a failed round.
        expected: Failures that are logged without a traceback.
        rest: After a round, rest so many times as long as it took: requests need the interpreter, too.
        ended: Called on the thread when it ends.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], None],
        pause_s: float | Callable[[], float | None] | None,
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


# Group commit: requests of one worker that wait for the disk share one sync.
#
# A thread takes all waiting items, writes them together and wakes their requests. While it waits for the disk further
# ones queue up, so the number of syncs per item falls as the number of writers rises.

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

# Items that may wait.
_MAX_WAITING = 256


class Full(Exception):
    """Too many requests wait for the disk."""


class Stopping(Exception):
    """The service is stopping."""


class _Waiting(NamedTuple, Generic[Item, Outcome]):
    item: Item
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Outcome]


class GroupCommit(Generic[Item, Outcome]):
    """Writes the items of one worker in groups, on a thread of its own."""

    def __init__(
        self,
        name: str,
        commit: Callable[[Sequence[Item]], Sequence[Outcome]],
        *,
        most: int,
        failed: Failed = uncounted,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the thread.

        Args:
            commit: Writes a group and returns the outcome of each item, an exception too. What it raises is logged, and
                raised to the requests of the group.
            most: Items in a group. Those of other workers may have to wait for all of them.
            failed: Called with the name after commit has raised.
            ended: Called on the thread when it ends.
        """
        self._commit, self._most, self._ended = commit, most, ended
        self._name, self._failed = name, failed
        self._waiting: deque[_Waiting[Item, Outcome]] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def submit(self, item: Item) -> Outcome:
        """Return the outcome of an item once its group is written. Raises Full, Stopping: it was not written."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        with self._wake:
            if len(self._waiting) >= _MAX_WAITING:
                raise Full
            if self._closed:
                raise Stopping
            self._waiting.append(_Waiting(item, loop, future))
            self._wake.notify()
        return await future

    def close(self) -> None:
        """Write the waiting items, then stop; wait for a hanging disk no longer than a few seconds."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._closed:
                    self._wake.wait()
                if not self._waiting:
                    break
                count = min(len(self._waiting), self._most)
                group = [self._waiting.popleft() for _ in range(count)]
            outcomes: Sequence[Outcome] | Exception
            try:
                outcomes = self._commit([waiting.item for waiting in group])
            except Exception as error:
                _log.exception("%s: %d requests failed", self._name, len(group))
                self._failed(self._name)
                outcomes = error
            for loop in {waiting.loop for waiting in group}:
                # If the loop is closed, no request waits for the outcome.
                with suppress(RuntimeError):
                    # Once for all requests: each call wakes the loop.
                    loop.call_soon_threadsafe(_resolve, loop, group, outcomes)
        self._ended()


def _resolve(
    loop: asyncio.AbstractEventLoop,
    group: Sequence[_Waiting[Item, Outcome]],
    outcomes: Sequence[Outcome] | Exception,
) -> None:
    for number, waiting in enumerate(group):
        if waiting.loop is loop and not waiting.future.done():
            if isinstance(outcomes, Exception):
                waiting.future.set_exception(outcomes)
            else:
                waiting.future.set_result(outcomes[number])


def trim_heap() -> None:
    """Give back to the system what large temporary objects have left free, which glibc keeps: hundreds of MB after a
    bundle of a million documents was verified.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
