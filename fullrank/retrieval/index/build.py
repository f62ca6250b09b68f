"""Build an index from encoded documents; open and check a stored one.

The documents may be memory maps of any size: they are read in chunks, and `create` decides where the parts are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Encoded
from fullrank.errors import BundleError
from fullrank.kernels.fast import DISTANCES
from fullrank.progress import Progress, silent
from fullrank.records import Documents
from fullrank.retrieval.index import Effort, Index
from fullrank.retrieval.index.cells import Cells, build_cells
from fullrank.retrieval.index.codes import Codes, Create, Outline, build_codes, build_outline
from fullrank.retrieval.index.postings import (
    Postings,
    Shortlists,
    build_postings,
    build_shortlists,
    no_shortlists,
    shapes,
)
from fullrank.storage.checks import ascends, check_ascending

# With fewer documents, a scan of the documents themselves is as fast.
INDEXED_FROM = 1_000
# With fewer, an exact search takes less than a millisecond: no fast mode is needed.
FAST_FROM = 20_000
_OF_CELLS = ("rows", "slots", "of", "distances", "starts", "centres", "scales", "bias", "longest")
_CELLS = {name: f"cells.{name}" for name in _OF_CELLS}
_OUTLINE = {name: f"outline.{name}" for name in ("directions", "codes", "scales", "rest")}
_OUTLINE_BOUNDS = ("error", "length", "longest")
_POSTINGS = {
    "indptr": "postings.indptr",
    "slots": "postings.slots",
    "impacts": "postings.impacts",
    "limits": "limits",
}
_SHORTLISTS = {
    "indptr": "champions.indptr",
    "slots": "champions.slots",
    "impacts": "champions.impacts",
    "signed": "signatures.words",
    "means": "signatures.means",
    "signatures": "signatures",
}


def build_index(
    documents: Encoded, create: Create, progress: Progress = silent, *, cells: int = 1
) -> Index:
    """Build the index of the documents.

    Args:
        documents: n documents.
        create: create(name, shape, dtype) makes each array.
        progress: Receives the step and how much of it is done.
        cells: How many groups the fast mode chooses from.
    """
    groups = build_cells(documents.dense, documents.bias, cells, create, progress)
    codes = build_codes(documents.dense, documents.bias, groups.rows, create, progress)
    outline = build_outline(documents.dense, groups.rows, create, progress)
    postings = build_postings(documents.sparse, groups.rows, create, progress)
    shortlists = build_shortlists(postings, len(documents), create)
    # The bounds are in a file because files have checksums, and certificates depend on these numbers.
    bounds = create("bounds", (6,), np.float64)
    bounds[:3] = codes.error, codes.length, codes.largest_bias
    bounds[3:] = outline.error, outline.length, outline.longest
    return Index(groups, codes, outline, postings, shortlists)


def check_index(index: Index, documents: Documents) -> None:
    """Check that every slot, row, word and cell of an index exists.

    Raises:
        BundleError: One does not; the message names the file.
    """
    count, cells = len(documents), index.cells
    for name, one, other in (("slots", cells.rows, cells.slots), ("rows", cells.slots, cells.rows)):
        inside = np.all((one >= 0) & (one < count))
        if not inside or not np.array_equal(other[one], np.arange(count)):
            raise BundleError(f"index/cells.{name}.npy: not the inverse of the other order")
    if not ascends(cells.starts, count):
        raise BundleError("index/cells.starts.npy: does not ascend to the number of documents")
    if not np.array_equal(cells.of, np.repeat(np.arange(cells.count), np.diff(cells.starts))):
        raise BundleError("index/cells.of.npy: a slot in another cell")
    lists_of: tuple[tuple[str, Postings | Shortlists], ...] = (
        ("postings", index.postings),
        ("champions", index.shortlists),
    )
    for name, lists in lists_of:
        indptr, slots = lists.indptr, lists.slots
        check_ascending(f"index/{name}.indptr.npy", indptr, len(slots))
        if len(slots) and not 0 <= int(slots.min()) <= int(slots.max()) < count:
            raise BundleError(f"index/{name}.slots.npy: a slot outside 0..{count - 1}")
    codes, outline = index.codes, index.outline
    bounds = [codes.error, codes.length, codes.largest_bias]
    bounds += [outline.error, outline.length, outline.longest]
    if not all(np.isfinite(bound) and bound >= 0 for bound in bounds):
        raise BundleError("index/bounds.npy: a bound is not a finite number above zero")
    words = index.shortlists.signed
    if np.any(words[1:] <= words[:-1]) or np.any((words < 0) | (words >= documents.width)):
        raise BundleError("index/signatures.words.npy: does not ascend among the words")
    if index.effort is not None and not index.effort.is_valid():
        raise BundleError("manifest.json: index.fast.effort: a number is out of range")


def index_in_memory(documents: Encoded, *, cells: int = 1) -> Index:
    """Build the index in memory."""
    return build_index(documents, _in_memory, cells=cells)


def index_of_segment(documents: Encoded, like: Index | None) -> Index:
    """Build the index of live documents, with the directions of their bundle's index.

    Many have a fast mode, with the effort and the centres of the bundle's, if that has one.
    """
    effort = None if like is None or len(documents) < FAST_FROM else like.effort
    cells = None if like is None or effort is None else like.cells
    groups = build_cells(documents.dense, documents.bias, 1, _in_memory, known=cells)
    codes = build_codes(documents.dense, documents.bias, groups.rows, _in_memory)
    known = None if like is None else like.outline.directions
    outline = build_outline(documents.dense, groups.rows, _in_memory, known=known)
    postings = build_postings(documents.sparse, groups.rows, _in_memory)
    if effort is None:
        shortlists = no_shortlists(documents.sparse.width)
    else:
        shortlists = build_shortlists(postings, len(documents), _in_memory)
    own_effort = None if effort is None else effort.of_segment()
    return Index(groups, codes, outline, postings, shortlists, own_effort)


def _in_memory(_name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.zeros(shape, dtype)


def _cell_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of the cells.

    Older bundles have one distance for all documents of a cell. Their margin was chosen for it.
    """
    if (radius := arrays.get("cells.radius")) is not None:
        same = np.full(len(arrays[_CELLS["of"]]), DISTANCES, np.uint8)
        arrays = {**arrays, _CELLS["distances"]: same, _CELLS["longest"]: radius}
    return {name: arrays[file] for name, file in _CELLS.items()}


def open_index(
    arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any], documents: Documents
) -> Index | None:
    """Open an index over mapped arrays; None for one from before slots, which nothing reads any more.

    Args:
        arrays: The arrays of `index/`, by name.
        facts: The manifest's section "index".
        documents: The documents of the bundle.

    Raises:
        BundleError: An array is missing or does not fit the documents.
    """
    if _CELLS["rows"] not in arrays and "postings.rows" in arrays:
        return None
    count, width, entries = len(documents), documents.width, documents.n_entries
    fast = facts.get("fast", {})
    try:
        bounds = arrays["bounds"]
        error, length, largest, *of_outline = map(float, bounds)
        cells = Cells(**_cell_arrays(arrays))
        codes = Codes(arrays["codes"], arrays["scales"], arrays["bias"], error, length, largest)
        outline_parts: dict[str, Any] = {name: arrays[file] for name, file in _OUTLINE.items()}
        outline_parts |= zip(_OUTLINE_BOUNDS, of_outline, strict=True)
        outline = Outline(**outline_parts)
        postings = Postings(**{name: arrays[file] for name, file in _POSTINGS.items()})
        shortlists = Shortlists(**{name: arrays[file] for name, file in _SHORTLISTS.items()})
        effort = Effort.from_json(fast["effort"]) if "effort" in fast else None
    except (KeyError, TypeError, ValueError) as error:
        raise BundleError(f"index: {type(error).__name__}: {error}") from error
    wanted: list[tuple[str, npt.NDArray[Any], str, tuple[int, ...]]] = [
        ("cells.rows", cells.rows, "<i4", (count,)),
        ("cells.slots", cells.slots, "<i4", (count,)),
        ("cells.of", cells.of, "<u2", (count,)),
        ("cells.distances", cells.distances, "|u1", (count,)),
        ("cells.starts", cells.starts, "<i8", (cells.count + 1,)),
        ("cells.centres", cells.centres, "|i1", (cells.count, documents.n_dense)),
        ("cells.scales", cells.scales, "<f4", (cells.count,)),
        ("cells.bias", cells.bias, "<f4", (cells.count,)),
        ("cells.longest", cells.longest, "<f4", (cells.count,)),
        ("codes", codes.codes, "|i1", (count, documents.n_dense)),
        ("bounds", bounds, "<f8", (6,)),
        ("scales", codes.scales, "<f4", (count,)),
        ("bias", codes.bias, "<f4", (count,)),
        *outline.shapes(documents.n_dense, count),
        ("postings.indptr", postings.indptr, "<i8", (width + 1,)),
        ("postings.slots", postings.slots, "<i4", (entries,)),
        ("postings.impacts", postings.impacts, "|u1", (entries,)),
        ("limits", postings.limits, "<f4", (width, 2)),
        *shapes(shortlists, width, count),
    ]
    for name, array, dtype, shape in wanted:
        if array.dtype.str != dtype or array.shape != shape:
            raise BundleError(
                f"index/{name}.npy: {array.dtype.str} {array.shape}, not {dtype} {shape}"
            )
    return Index(cells, codes, outline, postings, shortlists, effort)
