"""Whether the log of events may grow."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

from fullrank.events.compaction import WITHHELD
from fullrank.events.segments import size_of
from fullrank_service.telemetry.metrics import Metrics

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Capacity:
    """The bytes of the log of all workers: measured now and then, and what this worker adds in between.

    Args:
        folder: Of the log.
        max_bytes: At which it is full.
        metrics: Show both.
    """

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
