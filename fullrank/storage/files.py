"""Replace files atomically. Only the standard library is imported here."""

from __future__ import annotations

import fcntl
import math
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_POLL_S = 0.05
FileFingerprint = tuple[int, int, int, int] | None
"""Changes whenever a file is replaced or written; None: there is no file."""


def replace_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file's content with this text; see ``replacing``."""
    with replacing(path, mode) as file:
        file.write(text)


def temporary_name(path: Path) -> Path:
    """Return a new name beside a path. Process ids would not do: containers that share a volume have the same."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


@contextmanager
def replacing(path: Path, mode: int = 0o644) -> Iterator[IO[str]]:
    """Replace a file with what the block writes; a reader finds the old file or the new one, also after a power cut.

    The new file is written as ``.<name>.<random>.tmp`` in the same folder, synced and renamed.

    Raises:
        OSError: The old file is unchanged, or replaced by a new one that a power cut may undo.
    """
    temporary = temporary_name(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, mode), "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def fingerprint(path: Path) -> FileFingerprint:
    """Return the fingerprint of a file; one stat call, cheap enough to repeat many times a second."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size


@contextmanager
def locked(path: Path, wait_s: float = math.inf) -> Iterator[bool]:
    """Hold the lock of a file, which is created, or of a folder; it ends with the process at the latest.

    Yields:
        Whether it was free within `wait_s`.
    """
    # A network file system locks only a file that is open for writing.
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor, end = os.open(path, flags | os.O_CLOEXEC, 0o666), time.monotonic() + wait_s
    try:
        is_ours = wait_s == math.inf
        if is_ours:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        while not is_ours:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours = True
            if is_ours or time.monotonic() >= end:
                break
            time.sleep(_POLL_S)
        yield is_ours
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make creations, renames and deletions in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Make a folder with all files and folders in it survive a power cut."""
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_folder(folder)
