"""Arrays and words of one object."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from fullrank.kernels.arrays import UInt8
from fullrank_fleet.remote import Folder, RemoteError
from fullrank_fleet.remote.files import write_as_file

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

# Of numpy and zipfile for a damaged object.
_UNREADABLE = (BadZipFile, EOFError, KeyError, OSError, ValueError, zlib.error)


def write_arrays(folder: Folder, name: str, arrays: dict[str, Any]) -> None:
    """Write an object of arrays; it appears whole. Raises RemoteError."""
    with write_as_file(folder, name) as path, path.open("wb") as file:
        np.savez(file, **arrays)


@contextmanager
def read_arrays(folder: Folder, name: str) -> Iterator[Arrays]:
    """Yield the arrays of an object; only those that are asked for are read, inside the block. Raises RemoteError."""
    with folder.open(name) as file:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                yield arrays
        except _UNREADABLE as error:
            raise RemoteError(f"{folder}/{name}: cannot be read: {error}") from error


def pack_words(words: Sequence[str]) -> UInt8:
    """Return words as one array of bytes; no word contains a line end."""
    return np.frombuffer("\n".join(words).encode("utf-8", "surrogatepass"), np.uint8)


def unpack_words(packed: npt.NDArray[Any]) -> list[str]:
    """Return the words that ``pack_words`` packed."""
    return packed.tobytes().decode("utf-8", "surrogatepass").split("\n") if len(packed) else []
