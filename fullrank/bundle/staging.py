"""A folder that is filled file by file and gets its name at the end, or never was there.

It is written under a temporary name beside its final place. Every file is synced when it ends and
hashed by reading it once more in chunks, so what is written may be larger than memory. The folder
is renamed when all is in it, and the parent synced. Whatever fails on the way, it is removed; after
a power cut it may remain under its temporary name, which no reader takes for a bundle.

    bytes, text, array   what is in memory
    strings              a string table from an iterator
    written              what a library writes by itself
    create               an .npy file of known shape, to be filled through its memory map
    rows, table          an .npy file and a string table that grow, their length not known beforehand
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle.manifest import FileEntry, is_dtype
from fullrank.errors import BundleError
from fullrank.storage.files import sync_folder
from fullrank.verify import map_array, map_bytes

TEMPORARY = ".tmp-"

_STRINGS = 4096  # strings encoded in one step


class Folder:
    """A new folder under ``parent``. On leaving its block it is removed unless it was published.

    path   where it is being written
    files  what the manifest says of each file that has ended
    """

    def __init__(self, parent: Path) -> None:
        self.path = parent / f"{TEMPORARY}{secrets.token_hex(8)}"
        self.files: dict[str, FileEntry] = {}
        self._names: set[str] = set()
        self._created: dict[str, np.memmap[Any, Any]] = {}
        self._open = contextlib.ExitStack()
        self._published = False

    def __enter__(self) -> Folder:
        try:
            self.path.mkdir(parents=True)
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Of files that did not end: a full disk may refuse even what is still buffered.
        with contextlib.suppress(OSError):
            self._open.close()
        if not self._published:
            self._discard()

    def bytes(self, name: str, content: bytes | memoryview) -> None:
        """A file of the given content."""
        file = self._file(name)
        file.write(content)
        self._end(name, file)

    def written(self, name: str, write: Callable[[Path], None]) -> None:
        """A file that a library writes by its path."""
        self._file(name).close()
        write(self.path / name)
        with (self.path / name).open("rb") as file:
            os.fsync(file.fileno())
        self._record(name, None, None)

    def text(self, name: str, content: str) -> None:
        """A file of UTF-8."""
        self.bytes(name, content.encode())

    def array(self, name: str, array: npt.NDArray[Any]) -> None:
        """An .npy file. Raises BundleError for a dtype that no bundle may hold."""
        array = np.ascontiguousarray(array)  # also of no axes: one then
        rows = self.rows(name, array.dtype, array.shape[1:])
        rows.append(array)
        rows.end()

    def strings(self, stem: str, suffix: str, strings: Iterable[str]) -> None:
        """A string table. Raises UnicodeEncodeError on a lone surrogate."""
        table = self.table(stem, suffix)
        table.extend(strings)
        table.end()

    def create(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An .npy file of zeros as a writable memory map; it ends with ``finish``.

        The room is taken on the disk at once: a full one is an OSError here, not a signal later.
        """
        kind = _plain(name, dtype)
        file = self._file(name)
        _header(file, kind, shape)
        begin = file.tell()
        os.posix_fallocate(file.fileno(), 0, begin + kind.itemsize * int(np.prod(shape)))
        file.close()
        mapped = np.memmap(self.path / name, kind, "r+", begin, shape)
        self._created[name] = mapped
        return mapped.view(np.ndarray)

    def finish(self) -> None:
        """End every array that ``create`` gave; nothing may be written to them afterwards."""
        for name, mapped in self._created.items():
            mapped.flush()
            with (self.path / name).open("rb") as file:
                os.fsync(file.fileno())
            self._record(name, mapped.dtype, mapped.shape)
        self._created.clear()

    def rows(self, name: str, dtype: npt.DTypeLike, tail: tuple[int, ...] = ()) -> GrowingArray:
        """An .npy file of shape (?, *tail)."""
        kind = _plain(name, dtype)
        return GrowingArray(self, name, self._file(name), kind, tail)

    def table(self, stem: str, suffix: str) -> GrowingStrings:
        """A string table of any number of strings."""
        text = self._file(stem + suffix)
        return GrowingStrings(self, stem + suffix, text, self.rows(f"{stem}.offsets.npy", np.int64))

    def map_array(self, name: str) -> npt.NDArray[Any]:
        """An .npy file that has ended, mapped read-only."""
        return map_array(self.path, name, self.files[name])

    def map_bytes(self, name: str) -> npt.NDArray[np.uint8]:
        """A file that has ended, mapped read-only."""
        return map_bytes(self.path, name)

    def sync(self) -> None:
        """Sync the folders: their files are synced already."""
        for folder in {(self.path / name).parent for name in self.files} | {self.path}:
            sync_folder(folder)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Of all that are written under the same parent one at a time, where the file system has locks."""
        descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def publish(self, target: Path) -> None:
        """Give the folder its name."""
        self.path.rename(target)
        self._published = True
        sync_folder(target.parent)
        sync_folder(target.parent.parent)

    def _file(self, name: str) -> _File:
        if name.lower() in self._names:
            raise BundleError(f"{name}: two parts of the model want this file")
        self._names.add(name.lower())
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _File(path)
        self._open.callback(file.close)
        return file

    def _end(
        self,
        name: str,
        file: _File,
        dtype: np.dtype[Any] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        file.sync()
        file.close()
        self._record(name, dtype, shape)

    def _record(
        self, name: str, dtype: np.dtype[Any] | None, shape: tuple[int, ...] | None
    ) -> None:
        with (self.path / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
        self.files[name] = FileEntry(digest, size, dtype.str if dtype is not None else None, shape)

    def _discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # other versions live there
            self.path.parent.rmdir()


class GrowingArray:
    """An .npy file (?, *tail) that grows by rows; the header gets the number of rows at the end."""

    def __init__(
        self, folder: Folder, name: str, file: _File, dtype: np.dtype[Any], tail: tuple[int, ...]
    ) -> None:
        self._folder, self._name, self._file = folder, name, file
        self._dtype, self._tail, self._rows = dtype, tail, 0
        _header(file, dtype, (0, *tail))
        self._begin = file.tell()

    def append(self, rows: npt.NDArray[Any]) -> None:
        """More rows, of the file's dtype and (?, *tail)."""
        if rows.dtype != self._dtype or rows.shape[1:] != self._tail:
            raise BundleError(f"{self._name}: rows of {rows.dtype} {rows.shape[1:]} do not fit")
        if rows.size:
            self._file.write(np.ascontiguousarray(rows).data.cast("B"))
        self._rows += len(rows)

    def end(self) -> None:
        """Nothing more comes."""
        shape = (self._rows, *self._tail)
        self._file.seek(0)
        _header(self._file, self._dtype, shape)
        # The format leaves room in a header for the first axis to grow.
        if self._file.tell() != self._begin:
            raise BundleError(f"{self._name}: its header grew")
        self._folder._end(self._name, self._file, self._dtype, shape)


class GrowingStrings:
    """A string table that grows by strings, their bytes and their offsets."""

    def __init__(self, folder: Folder, name: str, file: _File, offsets: GrowingArray) -> None:
        self._folder, self._name, self._file, self._offsets = folder, name, file, offsets
        self._bytes = 0
        offsets.append(np.zeros(1, np.int64))

    def extend(self, strings: Iterable[str]) -> None:
        """More strings. Raises UnicodeEncodeError on a lone surrogate."""
        rest = iter(strings)
        while encoded := [string.encode() for string in islice(rest, _STRINGS)]:
            ends = self._bytes + np.cumsum([len(string) for string in encoded], dtype=np.int64)
            self._file.write(b"".join(encoded))
            self._offsets.append(ends)
            self._bytes = int(ends[-1])

    def end(self) -> None:
        """Nothing more comes."""
        self._folder._end(self._name, self._file)
        self._offsets.end()


class _File:
    """A new file; everything that a folder writes goes through ``write``, but for memory maps."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self.fileno, self.seek, self.tell = self._file.fileno, self._file.seek, self._file.tell
        self.close = self._file.close

    def write(self, content: bytes | memoryview) -> int:
        return self._file.write(content)

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


def _plain(name: str, dtype: npt.DTypeLike) -> np.dtype[Any]:
    found = np.dtype(dtype)
    if not is_dtype(found.str):
        raise BundleError(f"{name}: dtype {found} cannot be stored")
    return found


def _header(file: _File, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """The head of an .npy file, as numpy itself writes it."""
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(file, header)
