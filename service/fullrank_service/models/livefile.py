"""Files that are valid only while their writer lives.

The writer keeps its file locked (flock), and the kernel releases the lock however the writer dies. A file is replaced
by a new one that was locked before it got the name. So the file of that name is always complete, and it is locked
if and only if its writer lives.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from fullrank.storage.files import temporary_name


class LiveFile:
    """The writer's side: the file is valid until ``close`` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def write(self, content: bytes) -> None:
        """Replace the content. If it raises OSError the former content stays."""
        temporary = temporary_name(self._path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.write(descriptor, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            temporary.replace(self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        former, self._descriptor = self._descriptor, descriptor
        if former is not None:
            os.close(former)

    def close(self) -> None:
        """Remove the file; further calls do nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # Removed while it is locked, so that no reader assumes a dead writer.
            with suppress(OSError):
                self._path.unlink()
            os.close(descriptor)


def read_live(path: Path) -> bytes | None:
    """Return the content of a file if its writer lives, else None."""
    return _read(path)[0]


def read_or_sweep(path: Path) -> bytes | None:
    """Return the content of a file, or remove that of a dead writer; only for names that no other writer uses."""
    content, is_abandoned = _read(path)
    if is_abandoned:
        with suppress(OSError):
            path.unlink()
    return content


def _read(path: Path) -> tuple[bytes | None, bool]:
    """Return the content if the writer lives, and whether the writer is dead."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None, False
        try:
            content = os.read(descriptor, os.fstat(descriptor).st_size)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return content, False
            # Not locked: its writer has died, or has replaced it since it was opened.
            try:
                current = path.stat().st_ino == os.fstat(descriptor).st_ino
            except OSError:
                return None, False
            if current:
                return None, True
        finally:
            os.close(descriptor)
