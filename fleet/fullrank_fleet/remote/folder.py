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


class RemoteError(FullrankError):
    """An object cannot be read or written; the message names its address."""


def absolute(address: str) -> str:
    """Return an address that means the same in every process; nodes have other working folders than a command.

    Example:
        >>> absolute("/srv/sets"), absolute("s3://bundles")
        ('/srv/sets', 's3://bundles')
    """
    return address if "://" in address else os.path.abspath(address)


@dataclass(frozen=True)
class Folder:
    """A folder of objects.

    Attributes:
        address: A path, or an address that fsspec knows, such as s3://bucket/prefix.

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
        """Return the content of an object; None if it does not exist. Raises RemoteError."""
        system, root = self._open()
        try:
            content: bytes = system.cat_file(f"{root}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:
            raise self._error(name, error) from error
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a small object. Raises RemoteError."""
        system, root = self._open()
        try:
            if isinstance(system, LocalFileSystem):
                with _replacing(Path(root, name)) as file:
                    file.write(content)
            else:
                system.pipe_file(f"{root}/{name}", content)
        except Exception as error:
            raise self._error(name, error) from error

    def upload(self, source: Path, name: str) -> None:
        """Copy a file of this machine into the folder. Raises RemoteError."""
        system, root = self._open()
        try:
            if isinstance(system, LocalFileSystem):
                with source.open("rb") as content, _replacing(Path(root, name)) as file:
                    shutil.copyfileobj(content, file, _CHUNK)
            else:
                system.put_file(str(source), f"{root}/{name}")
        except Exception as error:
            raise self._error(name, error) from error

    def download(self, name: str, target: Path) -> None:
        """Copy an object to a file of this machine. Raises RemoteError."""
        system, root = self._open()
        try:
            system.get_file(f"{root}/{name}", str(target))
        except Exception as error:
            raise self._error(name, error) from error

    def open(self, name: str) -> IO[bytes]:
        """Open an object to read it in pieces. Raises RemoteError."""
        system, root = self._open()
        try:
            file: IO[bytes] = system.open(f"{root}/{name}", "rb")
        except Exception as error:
            raise self._error(name, error) from error
        return file

    def has(self, name: str) -> bool:
        """Return whether an object exists. Raises RemoteError."""
        system, root = self._open()
        try:
            return bool(system.isfile(f"{root}/{name}"))
        except Exception as error:
            raise self._error(name, error) from error

    def files(self) -> dict[str, str]:
        """Return what is directly in the folder: name → a text that changes when the content does.

        A folder that does not exist has no files. Raises RemoteError.
        """
        system, root = self._open()
        try:
            found = [item for item in system.ls(root, detail=True) if item["type"] == "file"]
            return {
                item["name"].rpartition("/")[2]: f"{item['size']}-{system.ukey(item['name'])}"
                for item in found
            }
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except Exception as error:
            raise self._error("", error) from error

    def size(self, name: str) -> int:
        """Return the bytes of an object. Raises RemoteError."""
        system, root = self._open()
        try:
            return int(system.size(f"{root}/{name}"))
        except Exception as error:
            raise self._error(name, error) from error

    def folders(self) -> list[str]:
        """Return the names of the folders directly in this one, sorted. Raises RemoteError."""
        system, root = self._open()
        try:
            found = [item for item in system.ls(root, detail=True) if item["type"] == "directory"]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except Exception as error:
            raise self._error("", error) from error
        return sorted(item["name"].rstrip("/").rpartition("/")[2] for item in found)

    def remove(self) -> None:
        """Remove the folder with everything in it; nothing happens if it does not exist. Raises RemoteError."""
        system, root = self._open()
        try:
            if system.exists(root):
                system.rm(root, recursive=True)
        except Exception as error:
            raise self._error("", error) from error

    def remove_unfinished(self) -> None:
        """Remove the files that writers left unfinished when they were killed; object storage has none.

        A writer that is still at work fails. Raises RemoteError.
        """
        if self.local is None:
            return
        try:
            for path in self.local.rglob(f".*{_UNFINISHED}"):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise self._error("", error) from error

    def _open(self) -> tuple[Any, str]:
        try:
            # Listings are not kept: another machine may have written since.
            system, path = fsspec.url_to_fs(self.address, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise RemoteError(f"{self.address}: {error}") from error
        return system, path.rstrip("/")

    def _error(self, name: str, error: Exception) -> RemoteError:
        address = f"{self.address.rstrip('/')}/{name}" if name else self.address
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, FileNotFoundError):
            # The message of fsspec is the path alone.
            reason = os.strerror(errno.ENOENT)
        return RemoteError(f"{address}: {reason}")


def unfinished(path: Path) -> Path:
    """Return where a file is written before it gets its name."""
    # Another machine may write the same file over a network disk, so a process id would not be unique.
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}{_UNFINISHED}")


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Replace a file with what the block writes; it is synced before it gets its name."""
    _make(path.parent)
    temporary = unfinished(path)
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
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
