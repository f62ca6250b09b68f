"""One SQLite file that the workers of a machine share: opened when it is first used, closed after an error."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fullrank.errors import FullrankError

# Longest wait for another worker.
_BUSY_S = 5.0


def identity(path: Path | str) -> tuple[int, int] | None:
    """Return device and inode of a file; None if it is missing."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def connect(path: Path, *, check_same_thread: bool = False) -> sqlite3.Connection:
    """Open a file; create it if it is missing, readable by its owner only, and so are its -wal and -shm."""
    with suppress(OSError):
        # Without opening it: closing a file drops the locks of this process on it, those of SQLite too.
        os.mknod(path, 0o600)
    return sqlite3.connect(
        path, timeout=_BUSY_S, isolation_level=None, check_same_thread=check_same_thread
    )


def write_ahead(execute: Callable[[str], object], wait_s: float) -> None:
    """Let a file have a write-ahead log; SQLite does not wait for the lock that this needs. Raises OperationalError."""
    end = time.monotonic() + wait_s
    while True:
        try:
            execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > end:
                raise
            time.sleep(0.01)


class SqliteFile:
    """A connection for one thread at a time. A power cut may lose the last commits.

    Args:
        path: The file; it need not exist.
        tables: Statements that create what is missing.
        error: Raised in place of errors of SQLite.
    """

    def __init__(self, path: Path, tables: str, error: type[FullrankError]) -> None:
        self._path, self._tables, self._error = path, tables, error
        self._file: sqlite3.Connection | None = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Use the connection; create the file if it is missing. Raises the error of this file."""
        try:
            if self._file is None:
                self._file = self._open()
            yield self._file
        except (sqlite3.Error, OSError) as error:
            # Closing rolls an open transaction back.
            with suppress(sqlite3.Error):
                self.close()
            self._file = None
            raise self._error(f"{self._path}: {error}") from error

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Change the file in one transaction; after any exception nothing is changed. Raises as ``reading``."""
        with self.reading() as file:
            file.execute("BEGIN IMMEDIATE")
            try:
                yield file
                file.execute("COMMIT")
            finally:
                if file.in_transaction:
                    file.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> sqlite3.Connection:
        file = connect(self._path)
        try:
            write_ahead(file.execute, _BUSY_S)
            file.execute("PRAGMA synchronous = NORMAL")
            file.executescript(self._tables)
        except sqlite3.Error:
            file.close()
            raise
        return file
