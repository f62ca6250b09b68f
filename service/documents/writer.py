"""Group commit: requests of one worker that wait for the disk share one sync.

A thread stores all waiting submissions in one transaction and wakes their requests. While it waits for the disk further
ones queue up, so the number of syncs per write falls as the number of writers rises.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from logging import getLogger
from typing import NamedTuple

from service.documents.idempotency import KeyReused
from service.documents.log import Log, LogError, Outcome
from service.documents.logfile import LogFile
from service.documents.submission import Caps, Kept, Submission

# Requests in one transaction. Writers of other workers wait for all of them.
_MAX_GROUP = 64
# Requests that may wait for a transaction.
_MAX_WAITING = 256
_log = getLogger(__name__)


class Full(Exception):
    """Too many requests wait for the disk."""


class _Waiting(NamedTuple):
    submission: Submission
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Outcome]


class Writer:
    """Writes to the log in one worker. Call ``write`` on the event loop."""

    def __init__(
        self,
        file: LogFile,
        caps: Caps,
        *,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the thread of the writer.

        Args:
            file: the log.
            caps: how much may wait for compaction.
            committed: called on the writer's thread after each commit.
        """
        self._file, self._caps = file, caps
        self._committed = committed
        self._waiting: deque[_Waiting] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._log: Log | None = None
        self._thread = threading.Thread(target=self._run, name="documents", daemon=True)
        self._thread.start()

    async def write(self, submission: Submission) -> Kept:
        """Store a submission; when this returns it survives a power cut. A cancelled call may have stored it.

        Raises:
            LogError, KeyReused, Full: none of its writes was stored.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        with self._wake:
            if len(self._waiting) >= _MAX_WAITING:
                raise Full
            if self._closed:
                raise LogError("the service is stopping")
            self._waiting.append(_Waiting(submission, loop, future))
            self._wake.notify()
        outcome = await future
        if isinstance(outcome, LogError | KeyReused):
            raise outcome
        return outcome

    def close(self) -> None:
        """Store the waiting submissions, then stop."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._closed:
                    self._wake.wait()
                if not self._waiting:
                    break
                count = min(len(self._waiting), _MAX_GROUP)
                group = [self._waiting.popleft() for _ in range(count)]
            self._commit(group)
        if self._log is not None:
            self._log.close()

    def _commit(self, group: list[_Waiting]) -> None:
        outcomes: list[Outcome]
        try:
            if self._log is None:
                self._log = self._file.open()
            outcomes = self._log.commit([waiting.submission for waiting in group], self._caps)
        except Exception as error:
            _log.error("%d write requests failed: %s", len(group), error)
            if not isinstance(error, LogError):
                _log.exception("unexpected error in the writer")
                error = LogError(f"{type(error).__name__}")
            outcomes = [error] * len(group)
            # After a failure a new connection is opened: the old one may cache pages that are not in the file.
            if self._log is not None:
                self._log.close()
                self._log = None
        else:
            self._committed()
        for loop in {waiting.loop for waiting in group}:
            # If the loop is closed, no request waits for the outcome.
            with suppress(RuntimeError):
                # Once for all requests: each call wakes the loop.
                loop.call_soon_threadsafe(_resolve, loop, group, outcomes)


def _resolve(
    loop: asyncio.AbstractEventLoop, group: Sequence[_Waiting], outcomes: Sequence[Outcome]
) -> None:
    """Give the requests of one loop their outcomes."""
    for waiting, outcome in zip(group, outcomes, strict=True):
        if waiting.loop is loop and not waiting.future.done():
            waiting.future.set_result(outcome)
