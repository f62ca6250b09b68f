"""Files that say whether their writer still lives.

A writer holds a lock (flock) on its file for as long as it stands by what is in it, and the kernel takes the lock back
however the writer dies. A file is replaced by a new one that was locked before it got the name, so at any moment
the file of that name is whole, and it is locked exactly if its writer lives.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path


class LiveFile:
    """The writer's side: a file that counts until ``close``, or until this process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def write(self, content: bytes) -> None:
        """Replace the content. Raises OSError, and then the former content stands."""
        temporary = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}.tmp")
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
        """Remove the file; nothing happens the second time."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # Removed while locked: nobody can take it for a dead writer's meanwhile.
            with suppress(OSError):
                self._path.unlink()
            os.close(descriptor)


def read_live(path: Path) -> bytes | None:
    """What a living writer says in a file; None where there is none or its writer is gone."""
    return _read(path)[0]


def read_or_sweep(path: Path) -> bytes | None:
    """The same, and the file of a writer that is gone is removed.

    Only for names that no later writer takes: it might have written since.
    """
    content, gone = _read(path)
    if gone:
        with suppress(OSError):
            path.unlink()
    return content


def _read(path: Path) -> tuple[bytes | None, bool]:
    """(content of a living writer, whether the file is one of a writer that is gone)."""
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
            # Not locked: its writer is gone, or has replaced it since it was opened.
            try:
                current = path.stat().st_ino == os.fstat(descriptor).st_ino
            except OSError:
                return None, False
            if current:
                return None, True
        finally:
            os.close(descriptor)
