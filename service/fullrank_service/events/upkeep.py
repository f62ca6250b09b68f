"""The thread of a worker that writes what answers showed, seals segments, measures and compacts the log."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from logging import getLogger
from pathlib import Path

from fullrank.errors import FullrankError
from fullrank.events.compaction import compact
from fullrank.events.log import LISTS, SHRINK_TO, Pseudonyms
from fullrank.events.segments import SegmentWriter, recover
from fullrank_service.events.capacity import Capacity
from fullrank_service.events.journal import Journal
from fullrank_service.events.shown import Shown
from fullrank_service.repeating import CLOSE_S
from fullrank_service.telemetry.metrics import Metrics

_FLUSH_S = 0.25
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
_log = getLogger(__name__)


class Upkeep:
    """Writes lists without a sync: a crash of the machine loses the last of them.

    Args:
        folder: Of the log.
        days: What is older is removed.
        people: Returns the pseudonyms. May raise FullrankError.
        journal: Its segments are sealed here.
        capacity: Whether lists may be written.
        metrics: Count lists; show when the loop last ended without a failure.
        loop: File with that time.
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
        self._closing = threading.Event()
        self._warned = ""
        self._next_measure = self._next_turn = self._next_full_turn = 0.0
        self._is_recovered = False
        self._cleaning = threading.Thread()
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)

    def start(self) -> None:
        """Start the thread; it first seals the segments of workers that died."""
        self._thread.start()

    def note(self, shown: Shown) -> None:
        """Note an answer, to be written within a second. Called on the event loop."""
        if len(self._waiting) < _MAX_WAITING:
            self._waiting.append(shown)
        else:
            self._metrics.lists["overflow"].inc()

    def close(self) -> None:
        """Write what was noted and seal every segment. The journal must be closed.

        The next start seals what a slow disk leaves open.
        """
        self._closing.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._closing.wait(_FLUSH_S):
            self._guarded(self._tick)
        self._guarded(self._flush)
        self._unsealed.append(self._lists)
        self._guarded(self._seal)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Do a step; a failure is counted, and logged once, not four times a second."""
        try:
            step()
        except Exception as error:
            self._metrics.background_failed("upkeep")
            failure = f"{step.__name__}: {type(error).__name__}: {error}"
            if failure != self._warned:
                _log.exception("the log of events: %s", error)
            self._warned = failure

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
            self._start_cleaning()

    def _flush(self) -> None:
        while self._waiting:
            count = min(len(self._waiting), _LINES_AT_ONCE)
            noted = [self._waiting.popleft() for _ in range(count)]
            self._metrics.lists[self._write(noted)].inc(count)

    def _write(self, noted: list[Shown]) -> str:
        """Write lists; return what became of them."""
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

    def _start_cleaning(self) -> None:
        """Compact the log on another thread: with much to erase it takes minutes."""
        if not self._cleaning.is_alive():
            self._cleaning = threading.Thread(
                target=self._guarded, args=(self._clean,), name="compaction", daemon=True
            )
            self._cleaning.start()

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
