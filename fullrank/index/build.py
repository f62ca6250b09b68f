"""Make an index from encoded documents, and open what was made.

``documents`` may be memory maps of any size: they are read in chunks; what is made is written where ``create`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Encoded
from fullrank.errors import BundleError
from fullrank.index import Effort, Index
from fullrank.index.codes import Codes, Create, build_codes
from fullrank.index.postings import Postings, build_postings
from fullrank.progress import Progress, silent

# Below so many documents a scan of the truth takes a millisecond: there is no index.
INDEXED_FROM = 20_000
_POSTINGS = {
    "indptr": "postings.indptr",
    "rows": "postings.rows",
    "impacts": "postings.impacts",
    "limits": "limits",
    "champions": "champions.indptr",
    "champion_rows": "champions.rows",
    "champion_impacts": "champions.impacts",
}


def build_index(documents: Encoded, create: Create, progress: Progress = silent) -> Index:
    """The compact copies of the documents."""
    codes = build_codes(documents.dense, create, progress)
    postings = build_postings(documents, create, progress)
    largest = float(np.abs(documents.bias).max(initial=0.0))
    # In a file and not in the manifest, so that a hash guards what certificates rest on.
    create("bounds", (3,), np.float64)[:] = codes.error, codes.length, largest
    return Index(codes, postings, documents.bias, largest)


def check_index(index: Index, documents: Encoded) -> None:
    """Everything an index points to is there. Raises BundleError naming the file."""
    count, postings = len(documents), index.postings
    for name, indptr, rows in (
        ("postings", postings.indptr, postings.rows),
        ("champions", postings.champions, postings.champion_rows),
    ):
        if indptr[0] != 0 or indptr[-1] != len(rows) or np.any(indptr[1:] < indptr[:-1]):
            raise BundleError(f"index/{name}.indptr.npy: does not ascend to the number of entries")
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < count:
            raise BundleError(f"index/{name}.rows.npy: a row outside 0..{count - 1}")
    bounds = (index.codes.error, index.codes.length, index.largest_bias)
    if not all(np.isfinite(bound) and bound >= 0 for bound in bounds):
        raise BundleError("index/bounds.npy: a bound that is none")
    if index.effort is not None and min(asdict(index.effort).values()) < 1:
        raise BundleError("index: a fast mode that looks nowhere")


def index_in_memory(documents: Encoded) -> Index:
    """The same without files."""
    return build_index(documents, lambda name, shape, dtype: np.zeros(shape, dtype))


def open_index(
    arrays: Mapping[str, npt.NDArray[Any]],
    facts: Mapping[str, Any],
    documents: Encoded,
    cells: Path | None,
) -> Index:
    """The index over mapped arrays. Raises BundleError where they do not fit the documents."""
    from fullrank.index.cells import open_cells

    count, width, entries = len(documents), documents.width, len(documents.indices)
    try:
        postings = Postings(**{name: arrays[file] for name, file in _POSTINGS.items()})
        bounds = arrays["bounds"]
        error, length, largest = map(float, bounds)
        codes = Codes(arrays["codes"], arrays["scales"], error, length)
        fast = facts.get("fast", {})
        effort = Effort(**fast["effort"]) if "effort" in fast else None
    except (KeyError, TypeError, ValueError) as error:
        raise BundleError(f"index: {type(error).__name__}: {error}") from error
    kept = len(postings.champion_rows)
    wanted: list[tuple[str, npt.NDArray[Any], str, tuple[int, ...]]] = [
        ("codes", codes.codes, "|i1", documents.dense.shape),
        ("bounds", bounds, "<f8", (3,)),
        ("scales", codes.scales, "<f4", (count,)),
        ("postings.indptr", postings.indptr, "<i8", (width + 1,)),
        ("postings.rows", postings.rows, "<i4", (entries,)),
        ("postings.impacts", postings.impacts, "|u1", (entries,)),
        ("limits", postings.limits, "<f4", (width, 2)),
        ("champions.indptr", postings.champions, "<i8", (width + 1,)),
        ("champions.rows", postings.champion_rows, "<i4", (kept,)),
        ("champions.impacts", postings.champion_impacts, "|u1", (kept,)),
    ]
    for name, array, dtype, shape in wanted:
        if array.dtype.str != dtype or array.shape != shape:
            raise BundleError(
                f"index/{name}.npy: {array.dtype.str} {array.shape}, not {dtype} {shape}"
            )
    # Without an effort nothing would look into the cells, and each process holds its own.
    opened = None if cells is None or effort is None else open_cells(cells)
    if opened is not None and len(opened) != count:
        raise BundleError(f"index: {len(opened)} vectors for {count} documents")
    return Index(codes, postings, documents.bias, largest, opened, effort)
