"""The thread of a worker that writes what answers showed, seals segments, measures and compacts the log."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from logging import getLogger
from pathlib import Path
from typing import NamedTuple

from fullrank.errors import FullrankError
from fullrank.events.compaction import WITHHELD, compact
from fullrank.events.log import LISTS, SHRINK_TO, Pseudonyms
from fullrank.events.segments import SegmentWriter, recover, size_of
from fullrank_service.base import errors
from fullrank_service.base.background import (
    Failed,
    Full,
    GroupCommit,
    Repeater,
    Stopping,
    uncounted,
)
from fullrank_service.base.metrics import Metrics
from fullrank_service.events.shown import Shown

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Capacity:
    """The bytes of the log of all workers: measured now and then, and what this worker adds in between."""

    def __init__(self, folder: Path, max_bytes: int, metrics: Metrics) -> None:
        self.max_bytes = max_bytes
        self._folder, self._metrics = folder, metrics
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        """Whether nothing may be added."""
        return self._bytes >= self.max_bytes

    def add(self, added: int) -> None:
        """Count bytes that were appended."""
        with self._lock:
            self._bytes += added
        self._publish()

    def measure(self) -> None:
        """Read the sizes of the files. Raises OSError if one of them was just sealed or removed."""
        found = size_of(self._folder)
        self._metrics.events_withheld.set((self._folder / WITHHELD).exists())
        with self._lock:
            self._bytes = found
        self._publish()

    def _publish(self) -> None:
        self._metrics.events_bytes.set(self._bytes)
        self._metrics.events_full.set(self.is_full)


# Requests that share one sync.
_MAX_GROUP = 256
_log = getLogger(__name__)


class Batch(NamedTuple):
    """Lines of one request, for the segment of one kind."""

    kind: str
    lines: Sequence[bytes]


class Journal:
    """Appends lines that survive a power cut once `store` returns. Call `store` on the event loop."""

    def __init__(self, folder: Path, capacity: Capacity, failed: Failed = uncounted) -> None:
        self._folder, self._capacity = folder, capacity
        self._lock = threading.Lock()
        self._writers: dict[str, SegmentWriter] = {}
        self._full: list[SegmentWriter] = []
        self._groups: GroupCommit[Batch, OSError | None] = GroupCommit(
            "events", self._commit, most=_MAX_GROUP, failed=failed
        )

    async def store(self, kind: str, lines: Sequence[bytes]) -> None:
        """Append lines to the segment of a kind, synced. Raises EventsFull, EventsUnavailable, Overloaded."""
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


_FLUSH_S = 0.25
_FAILURE = "the log of events"
_MEASURE_S = 2.0
_HOUR_S, _DAY_S = 3600.0, 86_400.0
# Answers that may wait for the thread. Sealing a full segment takes it a few seconds.
_MAX_WAITING = 20_000
# Lines made in one go. The event loop waits for the interpreter meanwhile.
_LINES_AT_ONCE = 64
# A log that is full is compacted sooner.
_FULL_PAUSE_S = 60.0
# Its time of modification is when a worker last compacted the log.
_TURN = ".upkeep"


class Upkeep:
    """Writes served lists without fsync, so a crash of the machine loses the last ones. Also seals the journal's
    segments.

    Args:
        days: What is older is removed.
        people: Returns the pseudonyms. May raise FullrankError.
        loop: File with the time when the loop last ended without a failure.
    """

    def __init__(
        self,
        folder: Path,
        days: int,
        people: Callable[[], Pseudonyms],
        journal: Journal,
        capacity: Capacity,
        metrics: Metrics,
        loop: Path | None = None,
    ) -> None:
        self._folder, self._days, self._people = folder, days, people
        self._journal, self._capacity, self._metrics = journal, capacity, metrics
        self._loop = loop
        self._waiting: deque[Shown] = deque()
        self._lists = SegmentWriter(folder, LISTS)
        self._unsealed: list[SegmentWriter] = []
        self._warned = ""
        self._next_measure = self._next_turn = self._next_full_turn = 0.0
        self._is_recovered = False
        failed = metrics.background_failed
        self._thread = Repeater(
            "upkeep", self._tick, _FLUSH_S, failure=_FAILURE, failed=failed, ended=self._end
        )
        # With much to erase compaction takes minutes.
        self._cleaning = Repeater("upkeep", self._clean, None, failure=_FAILURE, failed=failed)

    def start(self) -> None:
        """Start the thread; it first seals the segments of workers that died."""
        self._thread.start()
        self._cleaning.start()

    def note(self, shown: Shown) -> None:
        """Note an answer, to be written within a second. Called on the event loop."""
        if len(self._waiting) < _MAX_WAITING:
            self._waiting.append(shown)
        else:
            self._metrics.lists["overflow"].inc()

    def close(self) -> None:
        """Write what was noted and seal every segment, or leave that to the next start. The journal must be closed."""
        self._cleaning.close(0.0)
        self._thread.close()

    def _end(self) -> None:
        try:
            self._flush()
            self._unsealed.append(self._lists)
            self._seal()
        except Exception as error:
            self._thread.log_failure(error)

    def _tick(self) -> None:
        self._flush()
        if self._lists.is_due():
            self._unsealed.append(self._lists)
            self._lists = SegmentWriter(self._folder, LISTS)
        self._seal()
        now = time.monotonic()
        if now >= self._next_measure:
            self._next_measure = now + _MEASURE_S
            with suppress(FileNotFoundError):  # sealed or removed by another worker meanwhile
                self._capacity.measure()
            if self._loop is not None and self._loop.exists():
                self._metrics.loop_last_success.set(self._loop.stat().st_mtime)
        if not self._folder.is_dir():
            return
        if not self._is_recovered:
            self._is_recovered = True
            recover(self._folder)
        if now >= self._next_turn or (self._capacity.is_full and now >= self._next_full_turn):
            self._next_turn, self._next_full_turn = now + _HOUR_S, now + _FULL_PAUSE_S
            self._cleaning.nudge()

    def _flush(self) -> None:
        while self._waiting:
            count = min(len(self._waiting), _LINES_AT_ONCE)
            noted = [self._waiting.popleft() for _ in range(count)]
            self._metrics.lists[self._write(noted)].inc(count)

    def _write(self, noted: list[Shown]) -> str:
        if self._capacity.is_full:
            return "full"
        try:
            people = self._people()
            lines = [shown.line(people) for shown in noted]
            self._lists.append(lines)
        except (OSError, FullrankError) as error:
            self._warn_once(error)
            return "unwritable"
        except (TypeError, ValueError):
            _log.exception("lists that cannot be stored")
            return "unwritable"
        self._capacity.add(sum(map(len, lines)) + len(lines))
        return "written"

    def _warn_once(self, error: Exception) -> None:
        if str(error) != self._warned:
            _log.error("answers are not logged: %s", error)
        self._warned = str(error)

    def _seal(self) -> None:
        self._unsealed += self._journal.take_due()
        waiting, self._unsealed = self._unsealed, []
        for writer in waiting:
            try:
                writer.seal()
            except OSError as error:
                self._warn_once(error)
                self._unsealed.append(writer)  # again in a moment

    def _clean(self) -> None:
        most = int(self._capacity.max_bytes * SHRINK_TO)
        pause = _FULL_PAUSE_S if self._capacity.is_full else _HOUR_S / 2
        clean(self._folder, self._days, most, pause)


def clean(folder: Path, days: int, max_bytes: int, pause_s: float) -> bool:
    """Compact a log, unless another worker does or did within a pause; return whether it was done."""
    with (folder / _TURN).open("a") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        status = os.fstat(turn.fileno())
        # A turn in the future was taken before the clock was set back.
        if status.st_size and abs(time.time() - status.st_mtime) < pause_s:
            return False
        turn.truncate(0)
        turn.write("The time of this file is when a service last compacted the log.\n")
        turn.flush()
        compact(folder, days, max_bytes, time.time(), wait_s=_DAY_S)
    return True
