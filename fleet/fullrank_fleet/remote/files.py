"""Objects of a folder as files of this machine, for libraries that read and write files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fullrank.storage.files import sync_folder
from fullrank_fleet.remote.folder import Folder, unfinished


@contextmanager
def read_as_file(folder: Folder, name: str) -> Iterator[Path | None]:
    """Yield a file with the content of an object, which may only be read inside the block.

    Args:
        folder: That has the object. One on a disk gives its own file.
        name: Of the object.

    Yields:
        The file; None if there is no such object.

    Raises:
        RemoteError: The object cannot be read.
    """
    if (local := folder.local) is not None:
        yield local / name if (local / name).exists() else None
        return
    if name not in folder.files():
        yield None
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder.download(name, Path(scratch, name))
        yield Path(scratch, name)


@contextmanager
def write_as_file(folder: Folder, name: str) -> Iterator[Path]:
    """Yield the path of a file to write; when the block ends, the object appears whole.

    Two tasks may write the same object at once, if a machine was only believed to be dead: the last one stays.

    Raises:
        RemoteError: The object cannot be written.
    """
    if (local := folder.local) is None:
        with tempfile.TemporaryDirectory() as scratch:
            yield Path(scratch, name)
            folder.upload(Path(scratch, name), name)
        return
    local.mkdir(parents=True, exist_ok=True)
    temporary = unfinished(local / name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(local / name)
        sync_folder(local)
    finally:
        temporary.unlink(missing_ok=True)
