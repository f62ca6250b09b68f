"""Open the log; refuse one that was removed or replaced.

A worker that has opened the log once refuses to write to another one in its place. Otherwise it would acknowledge
writes into a new file, without the documents that it has already acknowledged and serves from memory.
"""

from __future__ import annotations

from pathlib import Path

from service.documents.log import Log
from service.documents.logerrors import LogError


class LogFile:
    """Opens connections to the log of one worker; for any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._id: str | None = None

    def open(self) -> Log:
        """Open the log; create it if there never was one. Raises LogError if it was removed or replaced."""
        log = self.existing()
        return log if log is not None else self._checked(Log(self.path))

    def existing(self) -> Log | None:
        """Open the log; return None if there never was one. Raises LogError if it was removed or replaced."""
        log = Log.existing(self.path)
        if log is not None:
            return self._checked(log)
        if self._id is not None:
            raise LogError(f"{self.path}: the log was removed; restart the service")
        return None

    def _checked(self, log: Log) -> Log:
        if self._id not in (None, log.id):
            log.close()
            raise LogError(f"{self.path}: another log has replaced it; restart the service")
        self._id = log.id
        return log
