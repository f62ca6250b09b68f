"""What must hold of a bundle's files and arrays. Every check raises BundleError(file: reason)."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle.manifest import MANIFEST, FileEntry, Manifest
from fullrank.encoding import Encoded
from fullrank.errors import BundleError
from fullrank.storage.strings import StringTable

# Values looked at in one step, so that checking a mapped array of gigabytes needs megabytes.
_CHUNK = 1 << 22


def check_folder(path: Path, manifest: Manifest) -> None:
    """The manifest's files and no others, each a plain file of the stated size."""
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
                raise BundleError(f"{name}: not a plain file")


def check_hash(path: Path, name: str, entry: FileEntry) -> None:
    """The file's sha256 is the manifest's."""
    with (path / name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != entry.sha256:
        raise BundleError(f"{name}: sha256 differs from the manifest")


def map_array(path: Path, name: str, entry: FileEntry) -> npt.NDArray[Any]:
    """Map one .npy file read-only, its header held against the manifest."""
    try:
        # Not np.load, which would also try archives and pickles.
        mapped = np.lib.format.open_memmap(path / name, mode="r")
    except (ValueError, EOFError) as error:
        raise BundleError(f"{name}: not a readable .npy file: {error}") from error
    if mapped.dtype.str != entry.dtype:
        raise BundleError(f"{name}: dtype {mapped.dtype.str}, the manifest says {entry.dtype}")
    if mapped.shape != entry.shape:
        raise BundleError(f"{name}: shape {mapped.shape}, the manifest says {entry.shape}")
    if not mapped.flags.c_contiguous:
        raise BundleError(f"{name}: not in row order")
    if mapped.offset + mapped.nbytes != entry.bytes:
        raise BundleError(f"{name}: holds more than its array")
    # The plain view keeps the mapping alive and indexes faster than the memmap class.
    return mapped.view(np.ndarray)


def map_bytes(path: Path, name: str) -> npt.NDArray[np.uint8]:
    """Map a file's bytes read-only; an empty file, which cannot be mapped, is an empty array."""
    file = path / name
    if file.stat().st_size == 0:
        return np.empty(0, np.uint8)
    return np.memmap(file, np.uint8, mode="r").view(np.ndarray)


def advise(array: npt.NDArray[Any], advice: int) -> None:
    """Tell the system how a mapped array will be read (mmap.MADV_…); others are left alone."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap):
        base.madvise(advice)


def check_finite(name: str, array: npt.NDArray[Any]) -> None:
    """Floats are neither infinite nor NaN; other kinds pass."""
    if array.dtype.kind != "f":
        return
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        if not np.isfinite(flat[start : start + _CHUNK]).all():
            raise BundleError(f"{name}: not finite")


def check_strings(name: str, table: StringTable) -> None:
    """Offsets span the bytes, ascend, and cut no character; the bytes are utf-8."""
    damage = table.damage()
    if damage is not None:
        raise BundleError(f"{name}: {damage}")


def check_ids(
    name: str, ids: Iterable[str], first: int = 0, previous: str | None = None
) -> str | None:
    """Ids ascend and are distinct; returns the last.

    first, previous  the row of the first of them, and the id before it
    """
    for row, text in enumerate(ids, first):
        if previous is not None and text <= previous:
            raise BundleError(f"{name}: row {row}, {text!r}, does not come after {previous!r}")
        previous = text
    return previous


def check_shapes(encoded: Encoded, documents: int, n_dense: int, n_sparse: int) -> None:
    """The five arrays fit each other, the number of documents and the model's two widths."""
    for name, dtype in (
        ("dense", np.float32),
        ("indptr", np.int64),
        ("indices", np.int32),
        ("weights", np.float32),
        ("bias", np.float32),
    ):
        array = getattr(encoded, name)
        if array.dtype != dtype:
            raise BundleError(f"documents/{name}.npy: {array.dtype}, not {np.dtype(dtype)}")
    nnz = encoded.indices.shape
    expected = {
        "dense": (documents, n_dense),
        "indptr": (documents + 1,),
        "weights": nnz if len(nnz) == 1 else (-1,),
        "bias": (documents,),
    }
    for name, shape in expected.items():
        found = getattr(encoded, name).shape
        if found != shape:
            raise BundleError(f"documents/{name}.npy: shape {found}, expected {shape}")
    if encoded.width != n_sparse:
        raise BundleError(
            f"documents/indices.npy: {encoded.width} sparse features, the model has {n_sparse}"
        )


def check_values(encoded: Encoded) -> None:
    """Finite numbers; row pointers that ascend; indices ascending in a row and below the width."""
    for name in ("dense", "weights", "bias"):
        check_finite(f"documents/{name}.npy", getattr(encoded, name))
    check_rows(
        "documents/indptr.npy",
        encoded.indptr,
        "documents/indices.npy",
        encoded.indices,
        encoded.width,
    )


def check_rows(
    pointers: str,
    indptr: npt.NDArray[np.int64],
    name: str,
    indices: npt.NDArray[Any],
    width: int,
) -> None:
    """Row pointers ascend from 0 to the number of indices, which ascend in each row and are below the width.

    pointers, name  the files they are in
    """
    if indptr[0] != 0 or indptr[-1] != len(indices) or not _ascends(indptr):
        raise BundleError(f"{pointers}: does not ascend from 0 to the number of entries")
    for start in range(0, len(indices), _CHUNK):
        # One entry of overlap: the step into a chunk is looked at too.
        before = max(start - 1, 0)
        part = indices[before : start + _CHUNK]
        if part.min() < 0 or part.max() >= width:
            raise BundleError(f"{name}: an index outside 0..{width - 1}")
        rising = part[1:] > part[:-1]
        # A row may begin lower than the one before it ended.
        rows = np.searchsorted(indptr, (before + 1, before + len(part)))
        rising[indptr[slice(*rows)] - before - 1] = True
        if not rising.all():
            raise BundleError(f"{name}: indices of a row do not ascend")


def _ascends(numbers: npt.NDArray[Any]) -> bool:
    return all(
        bool((part[1:] >= part[:-1]).all())
        for part in (
            numbers[start : start + _CHUNK + 1] for start in range(0, len(numbers), _CHUNK)
        )
    )
