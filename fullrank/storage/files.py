"""Files that are replaced whole. Only the standard library is imported here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def replace_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Let a file hold this text; see ``replacing``."""
    with replacing(path, mode) as file:
        file.write(text)


@contextmanager
def replacing(path: Path, mode: int = 0o644) -> Iterator[IO[str]]:
    """What is written, in UTF-8, becomes the file: a reader finds the old one or the new one, also after a power cut.

    When the block has ended the new one survives it. It is written beside its place as ``.<name>.<process>.tmp``.
    Raises OSError; then the old one is there, or the new one that may not survive a power cut.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, mode), "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """What was made, renamed or removed in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
