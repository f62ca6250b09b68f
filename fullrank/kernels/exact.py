"""The candidates of the exact mode, found in one pass (fullrank.retrieval.index_scan says how)."""

from __future__ import annotations

import numpy as np
from numba import types

from fullrank.kernels.arrays import Float32, Float64, Int8, Int32, Int64, Mask, UInt8
from fullrank.kernels.compiler import FLOAT32, FLOAT64, INT64, array, helper, kernel, several
from fullrank.kernels.rounding import rounding_in_kernel
from fullrank.kernels.scan import plan_words, scan_slots

# The scan is repeated with more words while there are more candidates than this per wanted hit, and more than
# MIN_REFINED.
MAX_CANDIDATES_PER_HIT, MIN_REFINED = 8, 1024
# Roundings of a score besides those of its words.
_ROUNDINGS = 8
# So many entries of lists take less time than the scores of the candidates that they rule out.
_CHEAP_ENTRIES = 8192


@helper
def _first_below(widths: Float64, most: float) -> int:
    """Return the first place whose width is at most this; the last one is 0."""
    place = 0
    while place < len(widths) - 1 and not widths[place] <= most:
        place += 1
    return place


@helper
def _with_short_lists(planned: Int32, indptr: Int64, added: int) -> int:
    """Return how many words to add: more than `added` while the lists of the others are short together."""
    n_entries = 0
    while added < len(planned):
        n_entries += indptr[planned[added] + 1] - indptr[planned[added]]
        if n_entries > _CHEAP_ENTRIES:
            break
        added += 1
    return added


@kernel(
    several(
        types.boolean, array("int64"), array("float32"), FLOAT64, FLOAT64, INT64, array("int64")
    ),
    array("int8"), FLOAT32, array("uint8", 2), array("float32"), FLOAT32, array("float32"),
    array("int8"), FLOAT32, array("int8", 2), array("float32"), array("float32"),
    array("int64"), array("int32"), array("uint8"), array("float32", 2),
    array("int32"), array("float32"),
    array("int32"), array("boolean"),
    array("int32"), FLOAT64, FLOAT64,
    INT64, FLOAT64, FLOAT64, FLOAT64, FLOAT64, FLOAT64, INT64,
)  # fmt: skip
def rows_in_reach(
    outline: Int8,
    outline_scale: np.float32,
    outlines: UInt8,
    outline_scales: Float32,
    left: np.float32,
    rest: Float32,
    code: Int8,
    scale: np.float32,
    codes: Int8,
    scales: Float32,
    bias: Float32,
    indptr: Int64,
    slots: Int32,
    impacts: UInt8,
    limits: Float32,
    words: Int32,
    weights: Float32,
    rows: Int32,
    deleted: Mask,
    features: Int32,
    dense: float,
    lexical: float,
    wanted: int,
    least: float,
    query_error: float,
    outline_error: float,
    size: float,
    most_left_out: float,
    counted: int,
) -> tuple[bool, Int64, Float32, float, float, int, Int64]:
    """Find the rows that may be among the best `wanted` with evidence.

    Args:
        words, weights: The query's words in any order, int32 and float32 (m,).
        query_error, outline_error: What u·v may be off by, as in ``CodedQuery``.
        size: The largest absolute value of u·v + b, and on the way to it.
        most_left_out: The largest contribution of words left out, as a share of that of all words.

    The other arguments are those of ``scan_slots``.

    Returns:
        Whether the bounds hold; if not, all rows may be. The rows; their g; how far the score may be below and above
        g. How many slots have evidence for certain, and the rows of the others that may have it.

    Raises:
        IndexError: A list ends outside the file.
    """
    planned, s, below, above, errors = plan_words(indptr, limits, words, weights)
    widths = above - below
    rounded = rounding_in_kernel(len(planned) + _ROUNDINGS, size + widths[0])
    error, over = query_error + rounded, outline_error + rounded
    nothing, no_scores = np.empty(0, np.int64), np.empty(0, np.float32)
    if not max(error, over) < np.inf:
        return False, nothing, no_scores, error, error, 0, nothing
    added = _first_below(widths, max(2 * query_error, most_left_out * widths[0]))
    added = _with_short_lists(planned, indptr, added)
    if counted >= 0:
        added = len(planned)
    while True:
        most = max(MIN_REFINED, MAX_CANDIDATES_PER_HIT * wanted)
        if added == len(planned):
            most = len(rows)
        off = errors[added] + rounded
        found, scores, too_many, n_certain, open_slots = scan_slots(
            outline, outline_scale, outlines, outline_scales, left, rest,
            code, scale, codes, scales, bias, indptr, slots, impacts, limits,
            planned[:added], s[:added], rows, deleted, features, dense, lexical,
            wanted, least, over, error, off, below[added], above[added], most, counted,
        )  # fmt: skip
        if not too_many:
            may_be, open_rows = rows[found].astype(np.int64), rows[open_slots].astype(np.int64)
            off += error
            return (
                True,
                may_be,
                scores,
                off - below[added],
                off + above[added],
                n_certain,
                open_rows,
            )
        added = max(min(added + 1, len(planned)), _first_below(widths, widths[added] / 2))
