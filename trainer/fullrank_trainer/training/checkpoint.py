"""Checkpoints: the state of a training in one file, replaced atomically."""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import numpy.typing as npt

from fullrank.errors import TrainingError


@contextmanager
def training_folder(folder: Path) -> Iterator[None]:
    """Make and lock the folder of the checkpoints of a training; remove it in the end if it is empty.

    The kernel releases the lock when the process dies, however it dies. Raises TrainingError if another has locked it.
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


# Errors of numpy and zipfile for a damaged file; AttributeError for a file that is a single array.
_UNREADABLE = (
    AttributeError, BadZipFile, EOFError, KeyError, NotImplementedError, OSError, TypeError, ValueError,
    zlib.error,
)  # fmt: skip


_CHUNK_BYTES = 1 << 24


class StoredArrays(Mapping[str, npt.NDArray[Any]]):
    """Arrays of a checkpoint that stay in its file until they are read."""

    def __init__(self, path: Path, names: Mapping[str, str]) -> None:
        self._path, self._names = path, names

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        with np.load(self._path, allow_pickle=False) as stored:
            found: npt.NDArray[Any] = stored[self._names[name]]
            return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def group(self, prefix: str) -> StoredArrays:
        """Return the arrays whose names begin with ``prefix``, without it."""
        found = {n.removeprefix(prefix): p for n, p in self._names.items() if n.startswith(prefix)}
        return StoredArrays(self._path, found)

    def read_into(self, name: str, out: npt.NDArray[Any]) -> None:
        """Read an array into another of its shape and dtype, piece by piece. Raises ValueError."""
        with ZipFile(self._path) as file, file.open(f"{self._names[name]}.npy") as entry:
            np.lib.format.read_magic(entry)
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(entry)
            if shape != out.shape or dtype != out.dtype:
                raise ValueError(f"{name} is {dtype}{shape}, not {out.dtype}{out.shape}")
            if is_fortran or not out.flags.c_contiguous:
                out[...] = self[name]
                return
            rest = out.reshape(-1).view(np.uint8)
            while len(rest):
                piece = np.frombuffer(entry.read(min(len(rest), _CHUNK_BYTES)), np.uint8)
                if not len(piece):
                    raise EOFError(f"{self._path}: {name} is cut short")
                rest[: len(piece)] = piece
                rest = rest[len(piece) :]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A fit at the end of an epoch: arrays by name, and JSON facts (epoch, history, generator, …)."""

    facts: dict[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write a temporary file, sync and rename it, so a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    facts = np.frombuffer(json.dumps(checkpoint.facts).encode(), np.uint8)
    with temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, facts=facts, **checkpoint.arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def save_copy(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays to a file without waiting for the disk; ``sync`` waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def stored_arrays(path: Path) -> StoredArrays:
    with ZipFile(path) as file:
        names = [name.removesuffix(".npy") for name in file.namelist()]
    return StoredArrays(path, {name: name for name in names if name != "facts"})


def load(path: Path, *, identity: str, is_needed: bool = True) -> Checkpoint | None:
    """Load a checkpoint; None without one, or if another run's and not needed. Raises TrainingError."""
    if not path.exists():
        return None
    try:
        with ZipFile(path) as file:
            if (damaged := file.testzip()) is not None:
                raise BadZipFile(f"{damaged} is damaged")
        with np.load(path, allow_pickle=False) as stored:
            facts = dict(json.loads(stored["facts"].tobytes()))
        arrays = stored_arrays(path)
    except _UNREADABLE as error:
        raise TrainingError(
            f"checkpoint {path} cannot be read: {error}; train without --resume to start again"
        ) from error
    if facts.get("identity") != identity:
        if not is_needed:
            return None
        raise TrainingError(
            f"checkpoint {path} belongs to another recipe, seed or collection; train without --resume to start again"
        )
    return Checkpoint(facts, arrays)
