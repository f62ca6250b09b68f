"""Events on disk: the requests of one worker that wait share one sync."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from logging import getLogger
from pathlib import Path
from typing import NamedTuple

from fullrank.events.segments import SegmentWriter
from fullrank_service import errors
from fullrank_service.events.capacity import NO_SPACE, Capacity
from fullrank_service.groups import Full, GroupCommit, Stopping
from fullrank_service.repeating import Failed, uncounted

# Requests that share one sync.
_MAX_GROUP = 256
_log = getLogger(__name__)


class Batch(NamedTuple):
    """Lines of one request, for the segment of one kind."""

    kind: str
    lines: Sequence[bytes]


class Journal:
    """Appends lines that survive a power cut once `store` returns. Call `store` on the event loop.

    Args:
        folder: Of the segments.
        capacity: Whether they may grow.
        failed: Counts unexpected failures.
    """

    def __init__(self, folder: Path, capacity: Capacity, failed: Failed = uncounted) -> None:
        self._folder, self._capacity = folder, capacity
        self._lock = threading.Lock()
        self._writers: dict[str, SegmentWriter] = {}
        self._full: list[SegmentWriter] = []
        self._groups: GroupCommit[Batch, OSError | None] = GroupCommit(
            "events", self._commit, most=_MAX_GROUP, failed=failed
        )

    async def store(self, kind: str, lines: Sequence[bytes]) -> None:
        """Append lines to the segment of a kind; when this returns they survive a power cut.

        Raises:
            EventsFull, EventsUnavailable, Overloaded: Nothing is acknowledged; some lines may be stored.
        """
        if self._capacity.is_full:
            raise errors.EventsFull
        try:
            failure = await self._groups.submit(Batch(kind, lines))
        except Full:
            raise errors.Overloaded("Too many events are waiting; try again shortly.") from None
        except Stopping:
            raise errors.EventsUnavailable("The service is stopping.") from None
        if failure is not None:
            raise errors.EventsFull if failure.errno in NO_SPACE else errors.EventsUnavailable

    def close(self) -> None:
        """Write what waits, then stop; `take_due` then returns every segment."""
        self._groups.close()
        with self._lock:
            self._full += self._writers.values()
            self._writers.clear()

    def take_due(self) -> list[SegmentWriter]:
        """Return the segments that are to be sealed; they get no more lines. Sealing takes seconds: not here."""
        with self._lock:
            for kind in [kind for kind, writer in self._writers.items() if writer.is_due()]:
                self._full.append(self._writers.pop(kind))
            due, self._full = self._full, []
        return due

    def _commit(self, group: Sequence[Batch]) -> Sequence[OSError | None]:
        failures: dict[str, OSError | None] = {}
        with self._lock:
            for kind in {batch.kind for batch in group}:
                lines = [line for batch in group if batch.kind == kind for line in batch.lines]
                failures[kind] = self._append(kind, lines)
        return [failures[batch.kind] for batch in group]

    def _append(self, kind: str, lines: Sequence[bytes]) -> OSError | None:
        writer = self._writers.get(kind)
        if writer is None:
            writer = self._writers[kind] = SegmentWriter(self._folder, kind)
        try:
            writer.append(lines)
        except OSError as error:
            _log.error("%d lines of events were not stored: %s", len(lines), error)
            return error
        try:
            writer.sync()
        except OSError as error:
            _log.error("%d lines of events may not be stored: %s", len(lines), error)
            # After a failed sync the kernel no longer knows which pages of the file are not on disk.
            self._full.append(self._writers.pop(kind))
            return error
        self._capacity.add(sum(map(len, lines)) + len(lines))
        return None
