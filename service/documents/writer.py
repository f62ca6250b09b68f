"""Group commit: the requests of one worker that wait for the disk share one sync.

A thread takes all that waits, keeps it in one transaction and wakes the requests. While it waits for the disk the next
ones gather, so the number of syncs falls as the number of writers rises.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from logging import getLogger
from pathlib import Path
from typing import NamedTuple

from service.documents.idempotency import KeyReused
from service.documents.log import Caps, Kept, Log, LogError, Outcome, Submission

# Requests in one transaction: what waits for the lock in other workers waits for all of them.
_TOGETHER = 64
# Requests that may wait for their transaction.
_MAX_WAITING = 256
_log = getLogger(__name__)


class Full(Exception):
    """As many requests wait for the disk as may."""


class _Waiting(NamedTuple):
    submission: Submission
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Outcome]


class Writer:
    """The writing end of the log in one worker. ``write`` is for the event loop."""

    def __init__(
        self,
        path: Path,
        caps: Caps,
        *,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        """committed: called on the writer's thread after each commit."""
        self._path, self._caps = path, caps
        self._committed = committed
        self._waiting: deque[_Waiting] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._log: Log | None = None
        self._thread = threading.Thread(target=self._run, name="documents", daemon=True)
        self._thread.start()

    async def write(self, submission: Submission) -> Kept:
        """Keep the writes; when this returns they survive a power cut.

        A request that is cancelled while it waits may be kept or not. Raises LogError, KeyReused, Full.
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
        """Keep what waits, then stop."""
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
                count = min(len(self._waiting), _TOGETHER)
                taken = [self._waiting.popleft() for _ in range(count)]
            self._commit(taken)
        if self._log is not None:
            self._log.close()

    def _commit(self, taken: list[_Waiting]) -> None:
        outcomes: list[Outcome]
        try:
            if self._log is None:
                self._log = Log(self._path)
            outcomes = self._log.commit([waiting.submission for waiting in taken], self._caps)
        except Exception as error:
            _log.error("nothing of %d requests was kept: %s", len(taken), error)
            if not isinstance(error, LogError):
                _log.exception("a defect")
                error = LogError(f"{type(error).__name__}")
            outcomes = [error] * len(taken)
            # A connection that failed is not used again: what it holds of the file may be no more.
            if self._log is not None:
                self._log.close()
                self._log = None
        else:
            self._committed()
        for waiting, outcome in zip(taken, outcomes, strict=True):
            # A loop that is gone has nobody waiting.
            try:
                waiting.loop.call_soon_threadsafe(_tell, waiting.future, outcome)
            except RuntimeError:
                continue


def _tell(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
