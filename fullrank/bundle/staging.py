"""Fill a folder file by file, then publish it under its name: readers find all of it or nothing.

The folder is written next to its final place, under a temporary name that no reader takes for a bundle. Every file is
synced when it is finished, and hashed in chunks, so a file may be larger than memory. Publishing renames the folder and
syncs its parent. After a failure the folder is removed. A killed writer leaves it under its temporary name, unlocked:
``abandoned`` finds it.

A folder with a key can be resumed: ``checkpoint`` syncs the growing files and notes their sizes. The next folder with
the same key starts with these files, cut to these sizes, and with nothing else.

    write_bytes, write_text, write_array   content that is in memory
    write_strings                          a string table from an iterator
    write_with                             a file that a library writes by its path
    remove                                 a file that was only needed meanwhile
    create_array                           an .npy file of known shape, to be filled through its memory map
    growing_array(s), growing_strings      .npy files and a string table of unknown length
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle.manifest import FileEntry, is_dtype
from fullrank.bundle.verify import advise, map_array, map_bytes
from fullrank.errors import BundleError, CollectionError
from fullrank.storage.checks import Stored, shape_of
from fullrank.storage.files import replace_file, sync_folder

TEMPORARY, RESUMABLE = ".tmp-", ".resume-"
ABANDONED_S = {TEMPORARY: 3600.0, RESUMABLE: 7 * 86400.0}
"""How long nothing in an unlocked folder changed before it counts as abandoned: not every file system has locks."""

CHECKPOINT = "checkpoint.json"

_STRINGS_PER_CHUNK = 4096


def temporary_folder(parent: Path) -> Path:
    return parent / f"{TEMPORARY}{secrets.token_hex(8)}"


def abandoned(parent: Path) -> Iterator[Path]:
    """Yield the temporary folders under a parent whose writers are dead."""
    for prefix, unchanged_s in ABANDONED_S.items():
        for folder in sorted(parent.glob(f"{prefix}*")):
            if folder.is_symlink() or not folder.is_dir():
                continue
            try:
                changed = max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
                with _locked(folder, fcntl.LOCK_NB):
                    is_dead = time.time() - changed > unchanged_s
            except OSError:  # it is locked, or was removed meanwhile
                continue
            if is_dead:
                yield folder


@contextlib.contextmanager
def _locked(folder: Path, flags: int = 0) -> Iterator[None]:
    """Lock a folder while the block runs, if the file system has locks. Raises BlockingIOError with LOCK_NB."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | flags)
        except BlockingIOError:
            raise
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)


class StagingFolder:
    """A new folder under ``parent``; leaving its block removes it unless published or kept.

    Attributes:
        files: Those finished.
        resumed: The note of the last checkpoint that an interrupted writer with the same key made; empty without one.
    """

    def __init__(self, parent: Path, key: str | None = None) -> None:
        """Name a folder; with a key, one that is kept from its first checkpoint on.

        Args:
            key: Of all that its growing files depend on; part of a file name.
        """
        self.path = temporary_folder(parent) if key is None else parent / f"{RESUMABLE}{key}"
        self.files: dict[str, FileEntry] = {}
        self.resumed: dict[str, Any] = {}
        self._is_resumable = key is not None
        self._is_kept = False
        self._names: set[str] = set()
        # The sizes of files, and the rows of arrays, at the last checkpoint.
        self._sizes: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._growing: dict[str, _File] = {}
        self._arrays: dict[str, GrowingArray] = {}
        self._created: dict[str, np.memmap[Any, Any]] = {}
        self._open = contextlib.ExitStack()
        self._published = False

    def __enter__(self) -> StagingFolder:
        """Make the folder. Raises BundleError where another process writes one with this key."""
        try:
            self.path.mkdir(parents=True, exist_ok=self._is_resumable)
            self._open.enter_context(_locked(self.path, fcntl.LOCK_NB))
        except BlockingIOError as error:
            self._open.close()
            raise BundleError(f"{self.path}: another process is writing this bundle") from error
        except BaseException:
            self._open.close()
            if not self._is_resumable:
                self._discard()
            raise
        if self._is_resumable:
            self._resume()
        return self

    def _resume(self) -> None:
        """Cut the files of the last checkpoint to their sizes then, and remove all others."""
        try:
            stored = json.loads((self.path / CHECKPOINT).read_bytes())
            sizes, rows, note = (dict(stored[name]) for name in ("sizes", "rows", "note"))
            if any((self.path / name).stat().st_size < size for name, size in sizes.items()):
                raise ValueError("a file is shorter than it was")
        except (OSError, ValueError, KeyError, TypeError):
            sizes, rows, note = {}, {}, {}
        for path in [path for path in self.path.rglob("*") if not path.is_dir()]:
            name = path.relative_to(self.path).as_posix()
            if name in sizes:
                os.truncate(path, sizes[name])
            elif name != CHECKPOINT or not sizes:
                path.unlink()
        self._sizes, self._rows, self.resumed, self._is_kept = sizes, rows, note, bool(sizes)

    def checkpoint(self, note: Mapping[str, Any]) -> None:
        """Sync the growing files; the next folder with the same key starts with them as they are now, and this note."""
        if not self._is_resumable:
            return
        sizes = {name: file.sync() for name, file in self._growing.items()}
        for folder in {(self.path / name).parent for name in sizes}:
            sync_folder(folder)
        rows = {name: len(array) for name, array in self._arrays.items()}
        stored = {"sizes": sizes, "rows": rows, "note": dict(note)}
        replace_file(self.path / CHECKPOINT, json.dumps(stored))
        self._is_kept = True

    def forget(self) -> None:
        """Remove the checkpoint, because the files that it names change from now on."""
        (self.path / CHECKPOINT).unlink(missing_ok=True)
        self._is_kept = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Unfinished files are still buffered, and a full disk refuses even that.
        with contextlib.suppress(OSError):
            self._open.close()
        if self._published:
            return
        # The same input would be refused again.
        if not self._is_kept or isinstance(error, BundleError | CollectionError):
            self._discard()
        elif error is not None:
            error.add_note(
                f"{self.path} keeps what is done: run the same command again to go on, or delete the folder"
            )

    def write_bytes(self, name: str, content: bytes | memoryview) -> None:
        file = self._file(name)
        file.write(content)
        self._finish(name, file)

    def remove(self, name: str) -> None:
        """Remove a finished file; its memory maps remain readable."""
        del self.files[name]
        self._names.remove(name.lower())
        (self.path / name).unlink()

    def write_text(self, name: str, content: str) -> None:
        self.write_bytes(name, content.encode())

    def write_array(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write an .npy file. Raises BundleError for a dtype that bundles do not allow."""
        array = np.ascontiguousarray(array)  # gives a scalar one axis
        rows = self.growing_array(name, array.dtype, array.shape[1:])
        rows.append(array)
        rows.finish()

    def write_strings(self, stem: str, suffix: str, strings: Iterable[str]) -> None:
        """Write a string table. Raises UnicodeEncodeError on a lone surrogate."""
        table = self.growing_strings(stem, suffix)
        table.extend(strings)
        table.finish()

    def create_array(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike
    ) -> npt.NDArray[Any]:
        """Create an .npy file of zeros as a writable memory map; ``finish_arrays`` finishes it.

        The disk space is allocated at once, so that a full disk is an OSError here and not a signal later.
        """
        kind = _storable_dtype(name, dtype)
        file = self._file(name)
        _write_header(file, kind, shape)
        data_start = file.tell()
        os.posix_fallocate(file.fileno(), 0, data_start + kind.itemsize * int(np.prod(shape)))
        file.close()
        mapped = np.memmap(self.path / name, kind, "r+", data_start, shape)
        self._created[name] = mapped
        return mapped.view(np.ndarray)

    def finish_arrays(self) -> None:
        """Sync and hash every array of ``create_array``; write nothing to them afterwards."""
        for name, mapped in self._created.items():
            mapped.flush()
            advise(mapped, mmap.MADV_DONTNEED)
            with (self.path / name).open("rb") as file:
                os.fsync(file.fileno())
            self._record(name, mapped.dtype, mapped.shape)
        self._created.clear()

    def release(self, arrays: Iterable[npt.NDArray[Any]]) -> None:
        """Drop the pages of created arrays, and of others that are mapped, from this process; the system keeps them."""
        for array in (*self._created.values(), *arrays):
            advise(array, mmap.MADV_DONTNEED)

    def growing_array(
        self, name: str, dtype: npt.DTypeLike, tail: tuple[int, ...] = ()
    ) -> GrowingArray:
        """Open an .npy file of shape (unknown, *tail)."""
        kind = _storable_dtype(name, dtype)
        file = self._growing[name] = self._file(name)
        array = GrowingArray(self, name, file, kind, tail, self._rows.get(name, 0))
        self._arrays[name] = array
        return array

    def growing_arrays(self, stem: str, stored: Stored, **sizes: int) -> GrowingArrays:
        """Open the .npy files of described arrays; the sizes are those of a row."""
        files = {}
        for name, (dtype, shape) in stored.items():
            tail = shape_of(shape.partition(" ")[2], sizes)
            files[name] = self.growing_array(f"{stem}{name}.npy", dtype, tail)
        return GrowingArrays(files)

    def growing_strings(self, stem: str, suffix: str) -> GrowingStrings:
        """Open a string table of unknown length."""
        text = self._growing[stem + suffix] = self._file(stem + suffix)
        offsets = self.growing_array(f"{stem}.offsets.npy", np.int64)
        return GrowingStrings(self, stem + suffix, text, offsets)

    def resumed_lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a file of text that the last checkpoint kept."""
        if name in self._sizes:
            with (self.path / name).open("rb") as file:
                yield from file

    def map_array(self, name: str) -> npt.NDArray[Any]:
        return map_array(self.path, name, self.files[name])

    def map_bytes(self, name: str) -> npt.NDArray[np.uint8]:
        return map_bytes(self.path, name)

    def sync(self) -> None:
        """Sync the folders; finished files are synced already."""
        for folder in {(self.path / name).parent for name in self.files} | {self.path}:
            sync_folder(folder)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other writers under the same parent while the block runs, if the file system has locks."""
        with _locked(self.path.parent):
            yield

    def publish(self, target: Path) -> None:
        """Rename the folder to its final name; it stays."""
        self.path.rename(target)
        self._published = True
        sync_folder(target.parent)
        sync_folder(target.parent.parent)

    def _file(self, name: str) -> _File:
        if name.lower() in self._names:
            raise BundleError(f"{name}: two parts of the model use this file name")
        self._names.add(name.lower())
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _File(path, is_new=name not in self._sizes)
        self._open.callback(file.close)
        return file

    def _finish(
        self,
        name: str,
        file: _File,
        dtype: np.dtype[Any] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        self._growing.pop(name, None)
        self._arrays.pop(name, None)
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
        with contextlib.suppress(OSError):  # the parent holds other versions
            self.path.parent.rmdir()


class GrowingArray:
    """An .npy file that grows by rows; its header gets the number of rows when it is finished."""

    def __init__(
        self,
        folder: StagingFolder,
        name: str,
        file: _File,
        dtype: np.dtype[Any],
        tail: tuple[int, ...],
        rows: int = 0,
    ) -> None:
        self._folder, self._name, self._file = folder, name, file
        self._dtype, self._tail, self._rows = dtype, tail, rows
        _write_header(file, dtype, (0, *tail))
        self._data_start = file.tell()
        file.seek(0, os.SEEK_END)

    def last(self) -> int:
        """Return the last number of a row of them, 0 without any."""
        return self._file.read_end(self._dtype) if self._rows else 0

    def __len__(self) -> int:
        return self._rows

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Append rows of the file's dtype and shape (any, *tail)."""
        if rows.dtype != self._dtype or rows.shape[1:] != self._tail:
            raise BundleError(f"{self._name}: rows of {rows.dtype} {rows.shape[1:]} do not fit")
        if rows.size:
            self._file.write(np.ascontiguousarray(rows).data.cast("B"))
        self._rows += len(rows)

    def finish(self) -> None:
        shape = (self._rows, *self._tail)
        self._file.seek(0)
        _write_header(self._file, self._dtype, shape)
        # The header is padded so that the first axis can grow; a longer one would overwrite rows.
        if self._file.tell() != self._data_start:
            raise BundleError(f"{self._name}: its header grew")
        self._folder._finish(self._name, self._file, self._dtype, shape)


class GrowingArrays:
    """Arrays that belong together and grow by rows; those called …indptr say where sparse rows begin."""

    def __init__(self, files: Mapping[str, GrowingArray]) -> None:
        self._files = files
        self._entries = {n: file.last() for n, file in files.items() if n.endswith("indptr")}
        for name in self._entries:
            if not len(files[name]):
                files[name].append(np.zeros(1, np.int64))

    def append(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        for name, file in self._files.items():
            rows = arrays[name]
            if name in self._entries:
                rows = rows[1:] + self._entries[name]
                self._entries[name] += int(arrays[name][-1])
            file.append(rows)

    def finish(self) -> None:
        for file in self._files.values():
            file.finish()


class GrowingStrings:
    def __init__(
        self, folder: StagingFolder, name: str, file: _File, offsets: GrowingArray
    ) -> None:
        self._folder, self._name, self._file, self._offsets = folder, name, file, offsets
        self._bytes = file.seek(0, os.SEEK_END)
        if not len(offsets):
            offsets.append(np.zeros(1, np.int64))

    def extend(self, strings: Iterable[str]) -> None:
        rest = iter(strings)
        while encoded := [string.encode() for string in islice(rest, _STRINGS_PER_CHUNK)]:
            ends = self._bytes + np.cumsum([len(string) for string in encoded], dtype=np.int64)
            self._file.write(b"".join(encoded))
            self._offsets.append(ends)
            self._bytes = int(ends[-1])

    def finish(self) -> None:
        self._folder._finish(self._name, self._file)
        self._offsets.finish()


class _File:
    """A file to write. All writes go through ``write``, except those to memory maps."""

    def __init__(self, path: Path, *, is_new: bool = True) -> None:
        self._file = path.open("xb+" if is_new else "rb+")
        self.fileno, self.seek, self.tell = self._file.fileno, self._file.seek, self._file.tell
        self.close = self._file.close

    def write(self, content: bytes | memoryview) -> int:
        return self._file.write(content)

    def sync(self) -> int:
        """Sync what was written; return the size."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def read_end(self, dtype: np.dtype[Any]) -> int:
        """Return the last number of the file, and stay at its end."""
        self._file.seek(-dtype.itemsize, os.SEEK_END)
        return int(np.frombuffer(self._file.read(), dtype)[0])


def _storable_dtype(name: str, dtype: npt.DTypeLike) -> np.dtype[Any]:
    found = np.dtype(dtype)
    if not is_dtype(found.str):
        raise BundleError(f"{name}: dtype {found} cannot be stored")
    return found


def _write_header(file: _File, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
