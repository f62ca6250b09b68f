"""Build an index from encoded documents; open and check a stored one.

The documents may be memory maps of any size: they are read in chunks, and `create` decides where the parts are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Encoded
from fullrank.errors import BundleError
from fullrank.progress import Progress, silent
from fullrank.retrieval.index import Effort, Index
from fullrank.retrieval.index.codes import Codes, Create, build_codes
from fullrank.retrieval.index.postings import Postings, build_postings
from fullrank.retrieval.index.shortlists import Shortlists, build_shortlists, shapes

# With fewer documents, a scan of the documents themselves is as fast.
INDEXED_FROM = 1_000
# With fewer, an exact search takes less than a millisecond: no fast mode is needed.
FAST_FROM = 20_000
_POSTINGS = {
    "indptr": "postings.indptr",
    "rows": "postings.rows",
    "impacts": "postings.impacts",
    "limits": "limits",
}
_SHORTLISTS = {
    "indptr": "champions.indptr",
    "rows": "champions.rows",
    "impacts": "champions.impacts",
    "signed": "signatures.words",
    "means": "signatures.means",
    "signatures": "signatures",
}
CELL_OF = "cells.of"


def build_index(documents: Encoded, create: Create, progress: Progress = silent) -> Index:
    """Build the index of the documents; `create(name, shape, dtype)` makes each array."""
    codes = build_codes(documents.dense, create, progress)
    postings = build_postings(documents.sparse, create, progress)
    shortlists = build_shortlists(postings, len(documents), create)
    largest = float(np.abs(documents.bias).max(initial=0.0))
    # The bounds are in a file because files have checksums, and certificates depend on these numbers.
    create("bounds", (3,), np.float64)[:] = codes.error, codes.length, largest
    return Index(codes, postings, documents.bias, largest, shortlists)


def check_index(index: Index, documents: Encoded) -> None:
    """Check that every row, word and cell of an index exists.

    Raises:
        BundleError: One does not; the message names the file.
    """
    count, lists = len(documents), [("postings", index.postings.indptr, index.postings.rows)]
    if index.shortlists is not None:
        lists.append(("champions", index.shortlists.indptr, index.shortlists.rows))
    for name, indptr, rows in lists:
        if indptr[0] != 0 or indptr[-1] != len(rows) or np.any(indptr[1:] < indptr[:-1]):
            raise BundleError(f"index/{name}.indptr.npy: does not ascend to the number of entries")
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < count:
            raise BundleError(f"index/{name}.rows.npy: a row outside 0..{count - 1}")
    bounds = (index.codes.error, index.codes.length, index.largest_bias)
    if not all(np.isfinite(bound) and bound >= 0 for bound in bounds):
        raise BundleError("index/bounds.npy: a bound is not a finite number above zero")
    if index.shortlists is not None:
        words = index.shortlists.signed
        if np.any(words[1:] <= words[:-1]) or np.any(
            (words < 0) | (words >= documents.sparse.width)
        ):
            raise BundleError("index/signatures.words.npy: does not ascend among the words")
    if index.cells is not None and int(index.cells.of.max(initial=0)) >= index.cells.count:
        raise BundleError(f"index/{CELL_OF}.npy: a cell that does not exist")
    if index.effort is not None and not index.effort.is_valid():
        raise BundleError("manifest.json: index.fast.effort: a number is out of range")


def index_in_memory(documents: Encoded) -> Index:
    """Build the index in memory."""
    return build_index(documents, lambda name, shape, dtype: np.zeros(shape, dtype))


def open_index(
    arrays: Mapping[str, npt.NDArray[Any]],
    facts: Mapping[str, Any],
    documents: Encoded,
    cells: Path | None,
) -> Index:
    """Open an index over mapped arrays.

    Args:
        arrays: The arrays of `index/`, by name.
        facts: The manifest's section "index".
        documents: The documents of the bundle.
        cells: The file of the cells, if there is one.

    Raises:
        BundleError: An array is missing or does not fit the documents.
    """
    from fullrank.retrieval.index.cells import open_cells

    count, width, entries = len(documents), documents.sparse.width, len(documents.sparse.indices)
    # An index without signatures has cells of an older kind: it has no fast mode.
    fast = facts.get("fast", {}) if _SHORTLISTS["signatures"] in arrays else None
    try:
        postings = Postings(**{name: arrays[file] for name, file in _POSTINGS.items()})
        bounds = arrays["bounds"]
        error, length, largest = map(float, bounds)
        codes = Codes(arrays["codes"], arrays["scales"], error, length)
        shortlists = effort = None
        if fast is not None:
            shortlists = Shortlists(**{name: arrays[file] for name, file in _SHORTLISTS.items()})
            effort = Effort.from_json(fast["effort"]) if "effort" in fast else None
    except (KeyError, TypeError, ValueError) as error:
        raise BundleError(f"index: {type(error).__name__}: {error}") from error
    wanted: list[tuple[str, npt.NDArray[Any], str, tuple[int, ...]]] = [
        ("codes", codes.codes, "|i1", documents.dense.shape),
        ("bounds", bounds, "<f8", (3,)),
        ("scales", codes.scales, "<f4", (count,)),
        ("postings.indptr", postings.indptr, "<i8", (width + 1,)),
        ("postings.rows", postings.rows, "<i4", (entries,)),
        ("postings.impacts", postings.impacts, "|u1", (entries,)),
        ("limits", postings.limits, "<f4", (width, 2)),
    ]
    if shortlists is not None:
        wanted += shapes(shortlists, width, count)
    # Without an effort no search uses the cells, which take memory in each process.
    opened = None
    if cells is not None and effort is not None:
        if CELL_OF not in arrays:
            raise BundleError(f"index/{CELL_OF}.npy: missing")
        wanted.append((CELL_OF, arrays[CELL_OF], "<u2", (count,)))
    for name, array, dtype, shape in wanted:
        if array.dtype.str != dtype or array.shape != shape:
            raise BundleError(
                f"index/{name}.npy: {array.dtype.str} {array.shape}, not {dtype} {shape}"
            )
    if cells is not None and effort is not None:
        opened = open_cells(cells, arrays[CELL_OF])
        if len(opened) != count or opened.centres.shape[1] != documents.dense.shape[1]:
            raise BundleError(f"index: {len(opened)} vectors for {count} documents")
    return Index(codes, postings, documents.bias, largest, shortlists, opened, effort)
