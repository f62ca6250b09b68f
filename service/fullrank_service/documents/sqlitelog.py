"""The log in one SQLite file, for all workers of a machine: WAL, synchronous=FULL."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from fullrank.errors import FullrankError
from fullrank_service.base.settings import Settings
from fullrank_service.base.sqlite import connect, identity, write_ahead
from fullrank_service.documents.log import (
    Log,
    LogError,
    Rows,
    Write,
    bytes_of,
    key_table,
    sqlite_errors,
)

# Where the log is: opens connections to it, and refuses one that was removed or replaced.
#
# A worker that has opened the log once refuses to write to another one in its place. Otherwise it would acknowledge
# writes into a new log, without the documents that it has already acknowledged and serves from memory.

FILE = "documents.sqlite"
FORMER_RULES = "rules.sqlite"
"""Beside the log: the rules of releases before they were in the log."""


def log_file(settings: Settings) -> Path:
    """Return the file of live documents, beside which other files of a worker are."""
    return settings.documents or settings.bundles / FILE


def place_of(settings: Settings, bundles: Path) -> LogPlace:
    """Return the place of the log that the settings name; bundles: the folder of bundles. Raises FullrankError."""
    if settings.documents_url is not None:
        return LogPlace.of_database(settings.documents_url.get_secret_value())
    return LogPlace.of_file(settings.documents or bundles / FILE)


class LogPlace:
    """Opens connections to the log for one worker; for any thread. ``make`` creates what is missing."""

    def __init__(self, name: str, make: Callable[[], Log], find: Callable[[], Log | None]) -> None:
        self.name, self._make, self._find = name, make, find
        self._id: str | None = None

    @classmethod
    def of_file(cls, path: Path) -> LogPlace:
        """Return the place of a log in a file."""
        return cls(str(path), lambda: SqliteLog(path), lambda: SqliteLog.existing(path))

    @classmethod
    def of_database(cls, address: str, partitions: range | None = None) -> LogPlace:
        """Return the place of a log in PostgreSQL. Raises FullrankError."""
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


SCHEMA = 1

# Longest wait for the commit of another worker, which locks the file for one sync.
_BUSY_S = 5.0
# Pages (of 4 KiB) of the write-ahead log before SQLite copies it into the file, and the size it is then cut to.
_CHECKPOINT_PAGES, _WAL_BYTES = 4096, 64 << 20
# Operations in one statement. SQLite before 3.32 allows 999 parameters, which is 166 operations.
_ROWS = 100

_TABLES = f"""
CREATE TABLE operations (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    collection TEXT NOT NULL,
    id TEXT NOT NULL,
    fields BLOB,
    bytes INTEGER NOT NULL,
    created REAL NOT NULL,
    UNIQUE (collection, id)
);
CREATE INDEX operations_in_order ON operations (collection, seq, bytes);
CREATE TABLE removed (collection TEXT PRIMARY KEY, seq INTEGER NOT NULL);
CREATE TABLE log (id TEXT NOT NULL);
{key_table("BLOB", "REAL")}
"""


class SqliteLog(Log):
    """The log in a file; see ``Log``."""

    def __init__(self, path: Path) -> None:
        """Open the log; create it if it is missing."""
        super().__init__()
        self.path = path
        with sqlite_errors(path):
            self.connection = connect(path, check_same_thread=True)
            try:
                self.id = self._prepare()
                # Reading the id has opened the write-ahead log too.
                self._files = {name: identity(name) for name in (str(path), f"{path}-wal")}
            except BaseException:
                self.connection.close()
                raise

    @classmethod
    def existing(cls, path: Path) -> SqliteLog | None:
        """Open the log if there is one. Return None where nothing was ever written."""
        try:
            if path.stat().st_size == 0:
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LogError(f"{path}: {error.strerror}") from error
        return cls(path)

    def close(self) -> None:
        self.connection.close()

    def check_in_place(self) -> None:
        """Raise LogError if the files that this connection writes are no longer the ones at the path.

        SQLite does not notice: it goes on writing to a deleted file, whose content is lost when it is closed.
        """
        if any(identity(name) != opened for name, opened in self._files.items()):
            raise LogError(f"{self.path}: the file was removed or replaced; restart the service")

    def _errors(self) -> AbstractContextManager[None]:
        return sqlite_errors(self.path)

    def _execute(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        return self.connection.execute(sql, parameters)

    def _changing(self) -> AbstractContextManager[None]:
        return self._transaction("IMMEDIATE")

    def _reading(self) -> AbstractContextManager[None]:
        return self._transaction("DEFERRED")

    @property
    def _in_transaction(self) -> bool:
        return self.connection.in_transaction

    def _head(self) -> int:
        row = self._execute("SELECT seq FROM sqlite_sequence WHERE name = 'operations'")
        return int((row.fetchone() or (0,))[0])

    def _raise_head(self, seq: int) -> None:
        self._execute("DELETE FROM sqlite_sequence WHERE name = 'operations'")
        self._execute("INSERT INTO sqlite_sequence VALUES ('operations', ?)", (seq,))

    def _append(self, collection: str, first: int, writes: Sequence[Write], now: float) -> None:
        for start in range(0, len(writes), _ROWS):
            rows = writes[start : start + _ROWS]
            values: list[Any] = []
            for seq, write in enumerate(rows, first + start):
                values += (seq, collection, write.id, write.fields, bytes_of(write), now)
            marks = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(rows))
            self._execute(f"INSERT OR REPLACE INTO operations VALUES {marks}", values)

    def _prepare(self) -> str:
        self._execute("PRAGMA synchronous = FULL")
        # The copies that undo a statement: in a file they cost system calls, and after a crash nobody reads them.
        self._execute("PRAGMA temp_store = MEMORY")
        self._execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        self._execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        version = self._version()
        if version == 0:
            self._make()
            version = self._version()
        if version != SCHEMA:
            raise LogError(f"{self.path}: has schema {version}; this release reads schema {SCHEMA}")
        return str(self._execute("SELECT id FROM log").fetchone()[0])

    def _version(self) -> int:
        return int(self._execute("PRAGMA user_version").fetchone()[0])

    def _make(self) -> None:
        write_ahead(self._execute, _BUSY_S)
        with self._changing():
            if self._version() == 0:
                for statement in _TABLES.split(";"):
                    self._execute(statement)
                self._execute("INSERT INTO log VALUES (?)", (secrets.token_hex(16),))
                self._execute(f"PRAGMA user_version = {SCHEMA}")

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        self._execute(f"BEGIN {kind}")
        try:
            yield
            self._execute("COMMIT")
        finally:
            if self._in_transaction:
                self._execute("ROLLBACK")
