"""Build an index from encoded documents; open and check a stored one.

The documents may be memory maps of any size: they are read in chunks, and `create` decides where the parts are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.errors import BundleError
from fullrank.kernels.fast import DISTANCES
from fullrank.kernels.index import STORED, Codes, Outline, Postings, Shortlists, Tables, read_only
from fullrank.kernels.rows import count_entries, fill_lists
from fullrank.progress import Progress, silent
from fullrank.retrieval.index import Effort, Index
from fullrank.retrieval.index.cells import build_cells
from fullrank.retrieval.index.codes import build_codes, build_outline, made, outline_sizes
from fullrank.storage.checks import Create, ascends, check_ascending, misfits
from fullrank.storage.encoding import Encoded, Int32, Rows
from fullrank.storage.records import Documents

# Posting lists: word → slots of documents, each with an 8-bit impact.
#
#     slots     ascending inside a word
#     t̂_wd     = low_w + step_w · impact        step_w = (high_w − low_w) / 255
#
# low and high are the smallest and the largest weight of a word among its documents. A word with equal weights is
# therefore stored without error, and otherwise |s_w t_wd − s_w t̂_wd| ≤ |s_w| step_w / 2.
#
# A word with a long list costs much to add and, if its weight is low, changes little. `plan_words` puts such words
# last; a word that is never added contributes between min(0, s_w low_w) and max(0, s_w high_w).

# Between two reports of progress.
_CHUNK, _DOCUMENTS = 1 << 22, 1 << 16


def build_postings(
    documents: Rows, order: Int32, create: Create, progress: Progress = silent
) -> Postings:
    """Transpose documents → words in two passes: the first finds the limits, the second the impacts."""
    width, entries = documents.width, len(documents.indices)
    indices, values = np.asarray(documents.indices), np.asarray(documents.values)
    counts = np.zeros(width, np.int64)
    indptr, slots, impacts, limits = made(create, Postings, F=width, E=entries)
    for first in range(0, entries, _CHUNK):
        part = slice(first, first + _CHUNK)
        count_entries(indices[part], values[part], counts, np.asarray(limits))
        progress("postings", min(first + _CHUNK, entries), 2 * entries)
    np.cumsum(counts, out=indptr[1:])
    following = np.array(indptr[:-1])
    for start in range(0, len(order), _DOCUMENTS):
        stop = min(start + _DOCUMENTS, len(order))
        fill_lists(
            (np.asarray(documents.indptr), indices, values), np.asarray(order), start, stop,
            np.asarray(limits), following, np.asarray(slots), np.asarray(impacts),
        )  # fmt: skip
        progress("postings", entries + entries * stop // len(order), 2 * entries)
    return read_only(Postings(indptr, slots, impacts, limits))


# Short lists of frequent words, and a signature of each document: one bit per frequent word.
#
# A list of half of all documents is slow to read and says little. The fast mode reads only its head, the documents in
# which the word weighs most. For a document found in another way, the signature says whether the word is in it. If
# so, the estimate adds the mean contribution of the word to the documents behind the head:
#
#     rest_w = (Σ all impacts − Σ impacts read) / (documents − documents read)
#
# A word has a list here if it is in the signatures, or in more documents than a list may hold (`list_length`). The
# signatures hold the MAX_SIGNED_WORDS most frequent of the words that are in more than MIN_SIGNED_DOCUMENTS documents.
# The lists of all other words are short enough to be read from the postings.

MAX_LIST_LENGTH = 8192
# Of more than a million documents, a list may hold one in so many: without that, the fast mode loses what most words
# say about most documents that have them (docs/results/speed.md#ten-million-documents).
_DOCUMENTS_PER_ENTRY = 128
MAX_SIGNED_WORDS = 512
MIN_SIGNED_DOCUMENTS = 1024


def list_length(documents: int) -> int:
    """Return the most entries of a list, by the number of documents."""
    return max(MAX_LIST_LENGTH, documents // _DOCUMENTS_PER_ENTRY)


def build_shortlists(postings: Postings, documents: int, create: Create) -> Shortlists:
    """Build the lists and the signatures."""
    counts, longest = np.diff(postings.indptr), list_length(documents)
    most = np.argsort(-counts, kind="stable")[:MAX_SIGNED_WORDS]
    signed = np.sort(most[counts[most] > MIN_SIGNED_DOCUMENTS])
    listed = np.union1d(signed, np.flatnonzero(counts > longest))
    kept = np.zeros(len(counts), np.int64)
    kept[listed] = np.minimum(counts[listed], longest)
    sizes = shortlist_sizes(len(counts), documents, int(kept.sum()), len(signed))
    lists = Shortlists(*made(create, Shortlists, **sizes))
    indptr, slots, impacts, words, means, signatures = lists
    np.cumsum(kept, out=indptr[1:])
    for word in listed.tolist():
        every = slice(postings.indptr[word], postings.indptr[word + 1])
        at = slice(indptr[word], indptr[word + 1])
        impact = np.asarray(postings.impacts[every])
        # Weights may all be negative: order by absolute value.
        size = impact.astype(np.int16) * (1 if postings.limits[word, 1] > 0 else -1)
        order = np.argsort(-size, kind="stable")[: at.stop - at.start]
        slots[at], impacts[at] = postings.slots[every][order], impact[order]
    words[:] = signed
    for i, word in enumerate(signed.tolist()):
        every = slice(postings.indptr[word], postings.indptr[word + 1])
        means[i] = postings.impacts[every].mean(dtype=np.float64)
        signatures[postings.slots[every], i >> 3] |= np.uint8(1 << (i & 7))
    return read_only(lists)


def shortlist_sizes(width: int, documents: int, kept: int, signed: int) -> dict[str, int]:
    """Return the sizes of lists with `kept` entries, and of the signatures of `signed` words."""
    return {"F": width, "n": documents, "K": kept, "S": signed, "S/8": -(-signed // 8)}


# With fewer documents, a scan of the documents themselves is as fast.
INDEXED_FROM = 1_000
# With fewer, an exact search takes less than a millisecond: no fast mode is needed.
FAST_FROM = 20_000


def build_index(
    documents: Encoded, create: Create, progress: Progress = silent, *, cells: int = 1
) -> Index:
    """Build the index of the documents.

    Args:
        create: create(name, shape, dtype) makes each array.
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
    return Index(Tables(groups, codes, outline, postings, shortlists))


def check_index(index: Index, documents: Documents) -> None:
    """Check that every slot, row, word and cell of an index exists.

    Raises:
        BundleError: One does not; the message names the file.
    """
    count, (cells, codes, outline, postings, shortlists) = len(documents), index.tables
    for name, one, other in (("slots", cells.rows, cells.slots), ("rows", cells.slots, cells.rows)):
        inside = np.all((one >= 0) & (one < count))
        if not inside or not np.array_equal(other[one], np.arange(count)):
            raise BundleError(f"index/cells.{name}.npy: not the inverse of the other order")
    if not ascends(cells.starts, count):
        raise BundleError("index/cells.starts.npy: does not ascend to the number of documents")
    if not np.array_equal(cells.of, np.repeat(np.arange(cells.n_cells), np.diff(cells.starts))):
        raise BundleError("index/cells.of.npy: a slot in another cell")
    lists_of: tuple[tuple[str, Postings | Shortlists], ...] = (
        ("postings", postings),
        ("champions", shortlists),
    )
    for name, lists in lists_of:
        indptr, slots = lists.indptr, lists.slots
        check_ascending(f"index/{name}.indptr.npy", indptr, len(slots))
        if len(slots) and not 0 <= int(slots.min()) <= int(slots.max()) < count:
            raise BundleError(f"index/{name}.slots.npy: a slot outside 0..{count - 1}")
    bounds = [codes.error, codes.length, codes.largest_bias]
    bounds += [outline.error, outline.length, outline.longest]
    if not all(np.isfinite(bound) and bound >= 0 for bound in bounds):
        raise BundleError("index/bounds.npy: a bound is not a finite number above zero")
    words = shortlists.signed
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
    known = None if like is None else like.tables.outline.directions
    outline = build_outline(documents.dense, groups.rows, _in_memory, known=known)
    postings = build_postings(documents.sparse, groups.rows, _in_memory)
    if effort is None:
        sizes = shortlist_sizes(documents.sparse.width, 0, 0, 0)
        shortlists = read_only(Shortlists(*made(_in_memory, Shortlists, **sizes)))
    else:
        shortlists = build_shortlists(postings, len(documents), _in_memory)
    own_effort = None if effort is None else effort.of_segment()
    return Index(Tables(groups, codes, outline, postings, shortlists), own_effort)


def _in_memory(_name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.zeros(shape, dtype)


def open_index(
    arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any], documents: Documents
) -> Index | None:
    """Open an index over mapped arrays; None for one from before slots, which nothing reads any more.

    Raises:
        BundleError: An array is missing or does not fit the documents.
    """
    if "cells.rows" not in arrays and "postings.rows" in arrays:
        return None
    count, width, fast = len(documents), documents.width, facts.get("fast", {})
    if (radius := arrays.get("cells.radius")) is not None:
        # Older bundles have one distance for all documents of a cell. Their margin was chosen for it.
        same = np.full(len(arrays["cells.of"]), DISTANCES, np.uint8)
        arrays = {**arrays, "cells.distances": same, "cells.longest": radius}
    stored = {name: of for files in STORED.values() for name, of in files.items()}
    stored["bounds"] = ("float64", "6")
    try:
        found: dict[Any, list[Any]] = {
            part: [arrays[name] for name in files] for part, files in STORED.items()
        }
        bounds = list(map(float, arrays["bounds"]))
        cells, signed = len(arrays["cells.scales"]), len(arrays["signatures.words"])
        sizes = {"C": cells, "E": documents.n_entries}
        sizes |= outline_sizes(documents.n_dense, count)
        sizes |= shortlist_sizes(width, count, len(arrays["champions.slots"]), signed)
        effort = Effort.from_json(fast["effort"]) if "effort" in fast else None
    except (KeyError, TypeError, ValueError) as error:
        raise BundleError(f"index: {type(error).__name__}: {error}") from error
    for name, reason in misfits(arrays, stored, sizes):
        raise BundleError(f"index/{name}.npy: {reason}")
    found[Codes] += bounds[:3]
    found[Outline] += bounds[3:]
    return Index(Tables(*(read_only(part(*found[part])) for part in STORED)), effort)
