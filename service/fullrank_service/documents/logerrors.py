"""Why the log of live documents cannot be read or written."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fullrank.errors import FullrankError

# With less free space than this an I/O error counts as a full disk.
_ROOM_BYTES = 1 << 20


class LogError(FullrankError):
    """The log cannot be read or written; the message says why."""


class LogFull(LogError):
    """The disk is full; nothing was written."""


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Raise what SQLite raises inside this context as a LogError that names the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise _reason(path, error) from error


def _reason(path: Path, error: sqlite3.Error) -> LogError:
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    if name == "SQLITE_FULL" or (name.startswith("SQLITE_IOERR") and not _has_free_space(path)):
        return LogFull(f"{path}: {os.strerror(errno.ENOSPC)}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return LogError(f"{path}: another process has locked it")
    return LogError(f"{path}: {error} ({name})")


def _has_free_space(path: Path) -> bool:
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return True
    return found.f_bavail * found.f_frsize > _ROOM_BYTES
