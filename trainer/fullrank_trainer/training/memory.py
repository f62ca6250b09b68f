"""Memory of the process: arrays in temporary files, and freed memory for the system.

A training makes large arrays that it reads a few times: counts of words, weights, tables of finished models. In a file
that is mapped into memory they read like any array, and ``ArrayFiles.release`` takes their pages out of the process
until they are read again.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from math import prod
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from fullrank.errors import TrainingError
from fullrank.progress import Progress
from fullrank.storage.encoding import Encoded, Rows

_LEAST_BYTES = 1 << 18  # smaller arrays stay where they are
_WRITTEN_BYTES = 1 << 24  # between two releases
_MAPPED_BYTES = 1 << 22  # larger blocks of the C library are mapped by themselves
_KEPT_BYTES = 1 << 24  # free memory that the C library may keep: a step needs it again
# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


class ArrayFiles:
    """Arrays that lie in anonymous temporary files, which end with the last reference to their array."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._maps: WeakSet[mmap.mmap] = WeakSet()

    def zeros(self, shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        """Make an array of zeros in a file; a small one is in memory. Raises TrainingError."""
        kind = np.dtype(dtype)
        size = prod(shape) * kind.itemsize
        if size < _LEAST_BYTES:
            return np.zeros(shape, kind)
        with self._file(size) as file:
            # Allocated at once, so that a full disk is an error here and not a signal later.
            os.posix_fallocate(file.fileno(), 0, size)
            return self._mapped(file, size, kind).reshape(shape)

    @contextmanager
    def _file(self, size: int) -> Iterator[IO[bytes]]:
        try:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder) as file:
                yield file
        except OSError as error:
            where = self._folder or tempfile.gettempdir()
            raise TrainingError(
                f"cannot write a temporary file of {size >> 20} MiB to {where}: {error.strerror}"
            ) from error

    def _mapped(self, file: IO[bytes], size: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        mapped = mmap.mmap(file.fileno(), size)
        self._maps.add(mapped)
        return np.frombuffer(mapped, kind)

    def stack(self, blocks: Iterable[Rows]) -> Rows:
        """Put blocks of rows below each other, in files with the pages of one block in memory. Raises TrainingError."""
        waiting = iter(blocks)
        first, second = next(waiting), next(waiting, None)
        if second is None:
            return self.put_rows(first)
        size = first.indices.nbytes
        ends, total = [first.indptr[:1]], 0
        with self._file(size) as indices, self._file(size) as values:
            for block in chain([first, second], waiting):
                indices.write(np.ascontiguousarray(block.indices).data)
                values.write(np.ascontiguousarray(block.values).data)
                ends.append(block.indptr[1:] + total)
                total += len(block.indices)
                self._drop()  # blocks are made of matrices in files, and read once
            if not total:
                return Rows(np.concatenate(ends), first.indices, first.values, first.width)
            indices.flush()
            values.flush()
            return Rows(
                self.put(np.concatenate(ends)),
                self._mapped(indices, 4 * total, np.int32),
                self._mapped(values, 4 * total, np.float32),
                first.width,
            )

    def put(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a copy of an array in a file; a small array, or one in a file, itself. Raises TrainingError."""
        if (
            array.nbytes < _LEAST_BYTES
            or not array.flags.c_contiguous
            or _map_of(array) is not None
        ):
            return array
        copy = self.zeros(array.shape, array.dtype)
        source, target = array.reshape(-1), copy.reshape(-1)
        step = max(1, _WRITTEN_BYTES // array.itemsize)
        for first in range(0, len(source), step):
            target[first : first + step] = source[first : first + step]
            release(copy)
        return copy

    def put_rows(self, rows: Rows) -> Rows:
        return Rows(
            self.put(rows.indptr), self.put(rows.indices), self.put(rows.values), rows.width
        )

    def put_encoded(self, encoded: Encoded) -> Encoded:
        dense, sparse = self.put(encoded.dense), self.put_rows(encoded.sparse)
        return Encoded(dense, sparse, encoded.bias)

    def release(self) -> None:
        """Take the pages of all arrays out of the process, and return freed memory to the system."""
        self._drop()
        return_free_memory()

    def _drop(self) -> None:
        for mapped in self._maps:
            mapped.madvise(mmap.MADV_DONTNEED)

    def releasing(self, progress: Progress) -> Progress:

        def report(part: str, done: int, total: int) -> None:
            self.release()
            progress(part, done, total)

        return report


def _map_of(array: npt.NDArray[Any]) -> mmap.mmap | None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None


def release(*arrays: npt.NDArray[Any]) -> None:
    """Take the pages of arrays in files out of the process; other arrays stay. Return freed memory to the system."""
    drop_pages(*arrays)
    return_free_memory()


def drop_pages(*arrays: npt.NDArray[Any]) -> None:
    """Take the pages of arrays in files out of the process; other arrays stay."""
    for mapped in filter(None, map(_map_of, arrays)):
        mapped.madvise(mmap.MADV_DONTNEED)


def return_free_memory() -> None:
    """Return freed memory to the system; the C library would keep it, above all that of many texts.

    No-op where the C library is not glibc.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return
    trim(0)


def map_large_blocks() -> None:
    """Let the C library map each block of 4 MiB and more by itself, so that it leaves the process when it is freed.

    glibc otherwise keeps the blocks up to 32 MiB that a step frees in its heap, where small ones divide the gaps. No-op
    with other C libraries.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    set_option(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
    set_option(_M_TRIM_THRESHOLD, _KEPT_BYTES)
