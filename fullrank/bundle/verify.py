"""Check a bundle's files (names, sizes, hashes, headers) and map them. Each raises BundleError("file: reason")."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle.manifest import MANIFEST, FileEntry, Manifest
from fullrank.errors import BundleError

# numpy reads an .npy header with ast.literal_eval, and all threads of CPython count the depth of a syntax tree in one
# place: where a garbage collection lets another thread in half-way, one of the two raises SystemError.
_READING_A_HEADER = threading.Lock()


def check_folder(path: Path, manifest: Manifest) -> None:
    """Check that the folder holds the manifest's files and no others, each a regular file of the stated size."""
    found = dict(_walk(path, ""))
    found.pop(MANIFEST, None)
    for name in sorted(found.keys() - manifest.files.keys()):
        raise BundleError(f"{name}: not in the manifest")
    for name, entry in sorted(manifest.files.items()):
        if name not in found:
            raise BundleError(f"{name}: missing")
        if found[name] != entry.bytes:
            raise BundleError(f"{name}: {found[name]} bytes, the manifest says {entry.bytes}")


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                raise BundleError(f"{name}: a symbolic link")
            if stat.S_ISDIR(status.st_mode):
                yield from _walk(Path(entry.path), name + "/")
            elif stat.S_ISREG(status.st_mode):
                yield name, status.st_size
            else:
                raise BundleError(f"{name}: not a regular file")


def check_hash(path: Path, name: str, entry: FileEntry) -> None:
    with (path / name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != entry.sha256:
        raise BundleError(f"{name}: sha256 differs from the manifest")


def map_array(path: Path, name: str, entry: FileEntry) -> npt.NDArray[Any]:
    """Map an .npy file read-only and check its header against the manifest."""
    try:
        # np.load would also accept archives and pickles.
        with _READING_A_HEADER:
            mapped = np.lib.format.open_memmap(str(path / name), mode="r")
    except (ValueError, EOFError) as error:
        raise BundleError(f"{name}: not a readable .npy file: {error}") from error
    if mapped.dtype.str != entry.dtype:
        raise BundleError(f"{name}: dtype {mapped.dtype.str}, the manifest says {entry.dtype}")
    if mapped.shape != entry.shape:
        raise BundleError(f"{name}: shape {mapped.shape}, the manifest says {entry.shape}")
    if not mapped.flags.c_contiguous:
        raise BundleError(f"{name}: not in C order")
    if mapped.offset + mapped.nbytes != entry.bytes:
        raise BundleError(f"{name}: has bytes after its array")
    # A plain array keeps the mapping alive and indexes faster than np.memmap does.
    return mapped.view(np.ndarray)


def map_bytes(path: Path, name: str) -> npt.NDArray[np.uint8]:
    """Map a file's bytes read-only; an empty file, which cannot be mapped, is an empty array."""
    file = path / name
    if file.stat().st_size == 0:
        return np.empty(0, np.uint8)
    return np.memmap(file, np.uint8, mode="r").view(np.ndarray)


def advise(array: npt.NDArray[Any], advice: int) -> None:
    """Tell the system how a mapped array will be read (mmap.MADV_…); it skips arrays in memory."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap):
        base.madvise(advice)
