"""Describe, create and check stored arrays; check strings. Each check raises BundleError("file: reason").

One table describes arrays that belong together: {"bias": ("<f4", "n"), "indptr": ("<i8", "n+1")} gives each array its
dtype and its shape, in sizes that all of them share. Arrays are created, stored and checked by that table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.errors import BundleError
from fullrank.storage.encoding import Encoded
from fullrank.storage.strings import StringTable

Stored = Mapping[str, tuple[str, str]]
"""Name of an array → its dtype and shape."""
Create = Callable[[str, tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]
"""Create an array of a name, a shape and a dtype."""
# Values checked in one step: a mapped array of gigabytes then needs megabytes.
_CHUNK = 1 << 22


def check_finite(name: str, array: npt.NDArray[Any]) -> None:
    """Check that floats are finite; other dtypes pass."""
    if array.dtype.kind == "f" and not is_finite(array):
        raise BundleError(f"{name}: not finite")


def is_finite(array: npt.NDArray[Any]) -> bool:
    """Tell whether all numbers are finite."""
    flat = array.reshape(-1)
    parts = (flat[start : start + _CHUNK] for start in range(0, flat.size, _CHUNK))
    return all(np.isfinite(part).all() for part in parts)


def check_strings(name: str, table: StringTable) -> None:
    """Check that the offsets of a string table fit its bytes and that the bytes are UTF-8."""
    damage = table.damage()
    if damage is not None:
        raise BundleError(f"{name}: {damage}")


def check_ids(
    name: str, ids: Iterable[str], first: int = 0, previous: str | None = None
) -> str | None:
    """Check that ids ascend and are distinct.

    Args:
        first: Row of the first id.
        previous: The id before the first one, if there is one.
    """
    for row, text in enumerate(ids, first):
        if previous is not None and text <= previous:
            raise BundleError(f"{name}: row {row}, {text!r}, does not come after {previous!r}")
        previous = text
    return previous


def shape_of(shape: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return a described shape in numbers; a size may be a number itself, or a name and "+1"."""

    def number(size: str) -> int:
        name = size.removesuffix("+1")
        return (sizes[name] if name in sizes else int(name)) + (name != size)

    return tuple(map(number, shape.split()))


def misfits(
    arrays: Mapping[str, npt.NDArray[Any]], stored: Stored, sizes: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Yield the name of each array that is not as described, and how it differs."""
    for name, (dtype, shape) in stored.items():
        found, expected = arrays[name], shape_of(shape, sizes)
        if found.dtype != np.dtype(dtype):
            yield name, f"{found.dtype}, not {np.dtype(dtype)}"
        elif found.shape != expected:
            yield name, f"shape {found.shape}, expected {expected}"


def check_shapes(encoded: Encoded, documents: int, n_dense: int, n_sparse: int) -> None:
    """Check that the arrays fit each other, the number of documents and the model's two widths."""
    sizes = {"n": documents, "N": n_dense, "E": encoded.sparse.indices.size}
    for name, reason in misfits(encoded.arrays(), Encoded.STORED, sizes):
        raise BundleError(f"documents/{name}.npy: {reason}")
    if encoded.sparse.width != n_sparse:
        raise BundleError(
            f"documents/indices.npy: {encoded.sparse.width} sparse features, the model has {n_sparse}"
        )


def check_values(encoded: Encoded) -> None:
    """Check that numbers are finite, row pointers ascend, and indices ascend in each row below the width."""
    arrays = encoded.arrays()
    for name in ("dense", "weights", "bias"):
        check_finite(f"documents/{name}.npy", arrays[name])
    check_rows(
        "documents/indptr.npy",
        encoded.sparse.indptr,
        "documents/indices.npy",
        encoded.sparse.indices,
        encoded.sparse.width,
    )


def check_rows(
    pointers: str,
    indptr: npt.NDArray[np.int64],
    name: str,
    indices: npt.NDArray[Any],
    width: int,
) -> None:
    """Check that row pointers ascend from 0 to the number of indices, and that indices ascend in each row."""
    check_ascending(pointers, indptr, len(indices))
    for start in range(0, len(indices), _CHUNK):
        # One entry of overlap, so that the step into this chunk is checked too.
        before = max(start - 1, 0)
        part = indices[before : start + _CHUNK]
        if part.min() < 0 or part.max() >= width:
            raise BundleError(f"{name}: an index outside 0..{width - 1}")
        rising = part[1:] > part[:-1]
        # The first index of a row may be lower than the last of the row before it.
        rows = np.searchsorted(indptr, (before + 1, before + len(part)))
        rising[indptr[slice(*rows)] - before - 1] = True
        if not rising.all():
            raise BundleError(f"{name}: indices of a row do not ascend")


def check_ascending(name: str, indptr: npt.NDArray[np.int64], entries: int) -> None:
    """Check that row pointers ascend from 0 to the number of entries."""
    if not ascends(indptr, entries):
        raise BundleError(f"{name}: does not ascend from 0 to the number of entries")


def ascends(indptr: npt.NDArray[Any], entries: int) -> bool:
    """Tell whether row pointers, at least one, ascend from 0 to the number of entries.

    Neighbours are compared, because the difference of two forged pointers can overflow.
    """
    steps = (indptr[start : start + _CHUNK + 1] for start in range(0, len(indptr), _CHUNK))
    is_rising = all(bool((part[1:] >= part[:-1]).all()) for part in steps)
    return is_rising and int(indptr[0]) == 0 and int(indptr[-1]) == entries
