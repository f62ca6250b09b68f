"""Group commit: requests of one worker that wait for the disk share one sync.

A thread takes all waiting items, writes them together and wakes their requests. While it waits for the disk further
ones queue up, so the number of syncs per item falls as the number of writers rises.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from logging import getLogger
from typing import Generic, NamedTuple, TypeVar

from fullrank_service.repeating import CLOSE_S, Failed, uncounted

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

# Items that may wait.
_MAX_WAITING = 256
_log = getLogger(__name__)


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
            name: Of the thread.
            commit: Writes a group and returns the outcome of each item, an exception too. What it raises is logged,
                and raised to the requests of the group.
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
        """Return the outcome of an item once its group is written. A cancelled call may have been written.

        Raises:
            Full, Stopping: It was not written.
        """
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
    """Give the requests of one loop their outcomes, or the error of all."""
    for number, waiting in enumerate(group):
        if waiting.loop is loop and not waiting.future.done():
            if isinstance(outcomes, Exception):
                waiting.future.set_exception(outcomes)
            else:
                waiting.future.set_result(outcomes[number])
