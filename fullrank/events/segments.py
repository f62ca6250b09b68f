"""Segments: files of JSON lines that one writer appends to and compresses when they are full.

    <kind>-<start>-<writer>.jsonl             open: its writer holds a lock on it
    <kind>-<start>-<writer>.jsonl.gz          sealed: complete, never written again
    <kind>-<start>-<writer>.jsonl.gz.sha256   its checksum, as `sha256sum --check` reads it

`start` is the second in UTC when the segment was begun, `writer` is random, so the segments of several processes and
machines lie in one folder without a clash. A crash may tear the last line of an open segment; `recover` cuts it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from logging import getLogger
from pathlib import Path

from fullrank.events.sealed import SEALED, TIME, write_sealed
from fullrank.storage.files import sync_folder

OPEN = ".jsonl"
_PIECE = 1 << 20
_log = getLogger(__name__)


class SegmentWriter:
    """Appends lines to a segment of its own. For one thread.

    Args:
        folder: Of the segments; created if need be.
        kind: First part of the names, letters only.
        max_bytes: A segment of this size is sealed.
        max_age_s: A segment that was begun so long ago is sealed.
        clock: Returns the time in seconds since 1970.

    Example:
        >>> writer = SegmentWriter(folder, "events")
        >>> writer.append([b'{"action_name":"click"}'])
        >>> writer.sync()  # now it survives a power cut
        >>> writer.close()
    """

    def __init__(
        self,
        folder: Path,
        kind: str,
        *,
        max_bytes: int = 64 << 20,
        max_age_s: float = 3600,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._kind, self._clock = folder, kind, clock
        self._max_bytes, self._max_age_s = max_bytes, max_age_s
        self._path: Path | None = None
        self._file = -1
        self._began = 0.0
        self._size = 0

    def append(self, lines: Iterable[bytes]) -> None:
        """Append lines, each without its line end, in one piece; begin another segment if this one's file is gone.

        Raises:
            OSError: Nothing was appended.
        """
        content = b"".join([line + b"\n" for line in lines])
        if not content:
            return
        if self._is_lost():
            self._abandon()
        if self._path is None:
            self._begin()
        try:
            written = 0
            while written < len(content):
                written += os.write(self._file, content[written:])
        except OSError:
            # A line that a full disk cut short must not be followed by another.
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(content)

    def sync(self) -> None:
        """Return when everything appended so far survives a power cut.

        Raises:
            OSError: It may not, for example because somebody removed the file meanwhile.
        """
        if self._path is not None:
            os.fsync(self._file)
            if self._is_lost():
                raise FileNotFoundError(
                    errno.ENOENT, "removed while it was written", str(self._path)
                )

    def is_due(self) -> bool:
        """Whether the segment is large or old enough to be sealed."""
        if self._path is None:
            return False
        age_s = self._clock() - self._began
        # A clock that was set back makes it due, too.
        return self._size >= self._max_bytes or not 0 <= age_s < self._max_age_s

    def seal(self) -> Path | None:
        """Compress the segment; the next line begins another one. Return its new path, None if there is none.

        Raises:
            OSError: The segment stays open.
        """
        if self._is_lost():
            self._abandon()
        if self._path is None:
            return None
        sealed = _seal(self._path)
        os.close(self._file)
        self._path, self._file = None, -1
        return sealed

    close = seal

    def _is_lost(self) -> bool:
        """Return whether the file was removed, moved or replaced."""
        if self._path is None:
            return False
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return True
        ours = os.fstat(self._file)
        return (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino)

    def _abandon(self) -> None:
        _log.error("%s: was removed or replaced with %d bytes in it", self._path, self._size)
        os.close(self._file)
        self._path, self._file = None, -1

    def _begin(self) -> None:
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        self._began = self._clock()
        start = datetime.fromtimestamp(self._began, UTC).strftime(TIME)
        path = self._folder / f"{self._kind}-{start}-{secrets.token_hex(4)}{OPEN}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        # Under another name until it is locked, so that no other process takes it for the segment of a dead writer.
        unlocked = path.with_suffix(".new")
        self._file = os.open(unlocked, flags, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        unlocked.rename(path)
        sync_folder(self._folder)
        self._path, self._size = path, 0


def recover(folder: Path) -> list[Path]:
    """Seal the open segments whose writers have ended, without a last line that was torn; return their paths."""
    found = []
    for path in sorted(folder.glob(f"*{OPEN}")):
        with suppress(FileNotFoundError, BlockingIOError):  # another process was first
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(file, _end_of_lines(file))
                found.append(_seal(path))
            finally:
                os.close(file)
    return found


def _end_of_lines(file: int) -> int:
    """Return where the last whole line of a file ends."""
    end = os.fstat(file).st_size
    while end:
        start = max(0, end - _PIECE)
        last = os.pread(file, end - start, start).rfind(b"\n")
        if last >= 0:
            return start + last + 1
        end = start
    return 0


def _seal(path: Path) -> Path:
    """Compress an open segment, or remove an empty one. A crash on the way leaves the open one, to be sealed again."""
    sealed = path.with_suffix(SEALED)
    if path.stat().st_size:
        with path.open("rb") as lines:
            write_sealed(sealed, iter(partial(lines.read, _PIECE), b""))
    path.unlink()
    return sealed
