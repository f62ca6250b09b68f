"""A folder of objects, on a disk or in object storage, through fsspec.

An object appears whole or not at all: object stores work like that, and on a disk a file is renamed after it is synced.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from fullrank.errors import FullrankError
from fullrank.storage.files import sync_folder

# Bytes that are copied at once.
_CHUNK = 1 << 20
_UNFINISHED = ".tmp"
_ABSENT = (FileNotFoundError, NotADirectoryError)


class RemoteError(FullrankError):
    """An object cannot be read or written; the message names its address."""


def absolute(address: str) -> str:
    """Return an address that means the same in every process; nodes have other working folders than a command."""
    return address if "://" in address else os.path.abspath(address)


@dataclass(frozen=True)
class Folder:
    """A folder of objects, at a path or an address that fsspec knows. What cannot be read or written raises
    RemoteError.

    Example:
        >>> folder = Folder("s3://bundles") / "shop"
        >>> folder.write("set.json", b"{}")
        >>> folder.read("set.json")
        b'{}'
    """

    address: str

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self.address.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.address

    @property
    def local(self) -> Path | None:
        """The path of a folder on a disk; None in object storage."""
        system, path = self._open()
        return Path(path) if isinstance(system, LocalFileSystem) else None

    def read(self, name: str) -> bytes | None:
        """Return the content of an object; None if it does not exist."""
        with self._at(name) as (system, path):
            try:
                content: bytes = system.cat_file(path)
            except _ABSENT:
                return None
        return content

    def write(self, name: str, content: bytes) -> None:
        with self._at(name) as (system, path):
            if isinstance(system, LocalFileSystem):
                with _replacing(Path(path)) as temporary:
                    temporary.write_bytes(content)
            else:
                system.pipe_file(path, content)

    def upload(self, source: Path, name: str) -> None:
        with self._at(name) as (system, path):
            if isinstance(system, LocalFileSystem):
                with (
                    source.open("rb") as content,
                    _replacing(Path(path)) as temporary,
                    temporary.open("xb") as file,
                ):
                    shutil.copyfileobj(content, file, _CHUNK)
            else:
                system.put_file(str(source), path)

    def download(self, name: str, target: Path) -> None:
        with self._at(name) as (system, path):
            system.get_file(path, str(target))

    def open(self, name: str) -> IO[bytes]:
        """Open an object to read it in pieces."""
        with self._at(name) as (system, path):
            file: IO[bytes] = system.open(path, "rb")
        return file

    def has(self, name: str) -> bool:
        with self._at(name) as (system, path):
            return bool(system.isfile(path))

    def files(self) -> dict[str, str]:
        """Return what is directly in the folder, if it exists: name → a text that changes when the content does."""
        with self._at() as (system, _):
            return {
                _last(item): f"{item['size']}-{system.ukey(item['name'])}"
                for item in self._items("file")
            }

    def size(self, name: str) -> int:
        with self._at(name) as (system, path):
            return int(system.size(path))

    def folders(self) -> list[str]:
        """Return the names of the folders directly in this one, sorted."""
        return sorted(map(_last, self._items("directory")))

    def remove(self) -> None:
        """Remove the folder with everything in it, if it exists."""
        with self._at() as (system, root):
            if system.exists(root):
                system.rm(root, recursive=True)

    def remove_unfinished(self) -> None:
        """Remove files that killed writers left. A writer still running then fails."""
        if self.local is not None:
            with self._at():
                for path in self.local.rglob(f".*{_UNFINISHED}"):
                    path.unlink(missing_ok=True)

    def _items(self, kind: str) -> list[dict[str, Any]]:
        with self._at() as (system, root):
            try:
                return [item for item in system.ls(root, detail=True) if item["type"] == kind]
            except _ABSENT:
                return []

    @contextmanager
    def _at(self, name: str = "") -> Iterator[tuple[Any, str]]:
        """Yield the file system and the path of an object, or of the folder; what fails raises RemoteError."""
        system, root = self._open()
        try:
            yield system, f"{root}/{name}" if name else root
        except RemoteError:
            raise
        except Exception as error:
            address = f"{self.address.rstrip('/')}/{name}" if name else self.address
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            if isinstance(error, FileNotFoundError):
                # The message of fsspec is the path alone.
                reason = os.strerror(errno.ENOENT)
            raise RemoteError(f"{address}: {reason}") from error

    def _open(self) -> tuple[Any, str]:
        try:
            # Listings are not kept: another machine may have written since.
            system, path = fsspec.url_to_fs(self.address, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise RemoteError(f"{self.address}: {error}") from error
        return system, path.rstrip("/")


def _last(item: dict[str, Any]) -> str:
    return str(item["name"]).rstrip("/").rpartition("/")[2]


def unfinished(path: Path) -> Path:
    # Another machine may write the same file over a network disk, so a process id would not be unique.
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}{_UNFINISHED}")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Replace a file with what the block writes to the yielded path; it is synced before it gets its name."""
    _make(path.parent)
    temporary = unfinished(path)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def _make(folder: Path) -> None:
    """Create a folder, and those above it, so that they survive a power cut."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


# Objects of a folder as files of this machine, for libraries that read and write files.


@contextmanager
def read_as_file(folder: Folder, name: str) -> Iterator[Path | None]:
    """Yield a file with the content of an object, to be read inside the block; None without such an object."""
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
    """
    if (local := folder.local) is None:
        with tempfile.TemporaryDirectory() as scratch:
            yield Path(scratch, name)
            folder.upload(Path(scratch, name), name)
        return
    with _replacing(local / name) as temporary:
        yield temporary
