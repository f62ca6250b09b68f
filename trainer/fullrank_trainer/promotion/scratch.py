"""The folder in which one training of a model works."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fullrank.errors import FullrankError


class RetrainRuns(FullrankError):
    """Another process trains a new version of the same model."""


@contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Lock a folder, remove what a killed run left in it, and remove it in the end.

    The kernel releases the lock when the process dies, however it dies.

    Args:
        folder: Need not exist.

    Yields:
        The folder, which does not exist.

    Raises:
        RetrainRuns: Another process has locked it; nothing was changed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, because a lock within it would be removed with it.
    with folder.with_name(f".{folder.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RetrainRuns(
                f"{folder}: another fullrank retrain of {folder.name} runs; try again when it has ended"
            ) from None
        shutil.rmtree(folder, ignore_errors=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
