"""One training at a time in a folder of checkpoints."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fullrank.errors import TrainingError


@contextmanager
def training_folder(folder: Path) -> Iterator[None]:
    """Make and lock the folder of the checkpoints of a training; remove it in the end if it is empty.

    The kernel releases the lock when the process dies, however it dies.

    Args:
        folder: Need not exist.

    Raises:
        TrainingError: Another process has locked it; nothing was changed.
    """
    opened = _locked(folder)
    try:
        yield
    finally:
        for path in (folder, folder.parent):
            with suppress(OSError):
                path.rmdir()
        os.close(opened)


def _locked(folder: Path) -> int:
    """Return the descriptor of a folder that this process has locked."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        # The training that had the lock may remove the folder at any moment.
        try:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(opened)
            raise TrainingError(
                f"{folder}: another training of {folder.name} runs; wait for it, or give another --name or --out"
            ) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(opened), folder.stat()):
                return opened
        os.close(opened)
