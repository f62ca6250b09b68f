"""Where the log is: opens connections to it, and refuses one that was removed or replaced.

A worker that has opened the log once refuses to write to another one in its place. Otherwise it would acknowledge
writes into a new log, without the documents that it has already acknowledged and serves from memory.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fullrank.errors import FullrankError
from fullrank_service.documents.log import Log
from fullrank_service.documents.logerrors import LogError
from fullrank_service.documents.sqlitelog import SqliteLog
from fullrank_service.settings import Settings

FILE = "documents.sqlite"


def place_of(settings: Settings, bundles: Path) -> LogPlace:
    """Return the place of the log that the settings name; bundles: the folder of bundles. Raises FullrankError."""
    if settings.documents_url is not None:
        return LogPlace.of_database(settings.documents_url.get_secret_value())
    return LogPlace.of_file(settings.documents or bundles / FILE)


class LogPlace:
    """Opens connections to the log for one worker; for any thread.

    Args:
        name: Of the place, for errors.
        make: Opens the log, and creates it if it is missing.
        find: Opens the log; None if there is none.
    """

    def __init__(self, name: str, make: Callable[[], Log], find: Callable[[], Log | None]) -> None:
        self.name, self._make, self._find = name, make, find
        self._id: str | None = None

    @classmethod
    def of_file(cls, path: Path) -> LogPlace:
        """Return the place of a log in a file."""
        return cls(str(path), lambda: SqliteLog(path), lambda: SqliteLog.existing(path))

    @classmethod
    def of_database(cls, address: str, partitions: range | None = None) -> LogPlace:
        """Return the place of a log in PostgreSQL; arguments as of ``PostgresLog``.

        Raises:
            FullrankError: The driver is not installed.
            LogError: The address is not one of PostgreSQL.
        """
        try:
            from fullrank_service.documents.postgreslog import PostgresLog, name_of
        except ImportError as error:
            raise FullrankError(
                "a log in PostgreSQL needs psycopg; install it with: pip install 'fullrank[postgresql]'"
            ) from error
        return cls(
            name_of(address),
            lambda: PostgresLog(address, partitions),
            lambda: PostgresLog.existing(address, partitions),
        )

    @property
    def is_written(self) -> bool:
        """Whether there is a log. Raises LogError."""
        log = self.existing()
        if log is not None:
            log.close()
        return log is not None

    def open(self) -> Log:
        """Open the log; create it if there never was one. Raises LogError if it was removed or replaced."""
        log = self.existing()
        return log if log is not None else self._checked(self._make())

    def existing(self) -> Log | None:
        """Open the log; return None if there never was one. Raises LogError if it was removed or replaced."""
        # Read before looking: if another thread makes the log meanwhile, it was not removed.
        was_there = self._id is not None
        log = self._find()
        if log is not None:
            return self._checked(log)
        if was_there:
            raise LogError(f"{self.name}: the log was removed; restart the service")
        return None

    def _checked(self, log: Log) -> Log:
        if self._id not in (None, log.id):
            log.close()
            raise LogError(f"{self.name}: another log has replaced it; restart the service")
        self._id = log.id
        return log
