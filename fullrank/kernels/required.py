"""Which words of a query each document has, as bits, the first word lowest."""

from __future__ import annotations

import numpy as np

from fullrank.kernels.arrays import Float64, Int32, Int64, Mask
from fullrank.kernels.compiler import (
    FLOAT64,
    INT64,
    array,
    check_inside,
    helper,
    kernel,
    output,
    several,
)
from fullrank.kernels.scan import lists_of


@kernel(
    output("int64"),
    array("int64"), array("int32"), array("int32"), array("int32"), array("int64"), INT64,
)  # fmt: skip
def words_had(
    indptr: Int64, entries: Int32, rows: Int32, features: Int32, words: Int64, count: int
) -> Int64:
    """Return the bits of each document, int64 (count,).

    Args:
        indptr, entries: Posting lists by feature.
        rows: int32 (count,), the document of each entry; empty where an entry is a document.
        features: int32 (m,).
        words: int64 (m,), the word of each feature.
        count: Number of documents.

    Raises:
        IndexError: A list ends outside the file, or has an entry that does not exist.
    """
    bits = np.zeros(count, np.int64)
    place, stop = lists_of(indptr, len(entries), features)
    for i in range(len(features)):
        for p in range(place[i], stop[i]):
            row = entries[p]
            if len(rows):
                check_inside(row, len(rows))
                row = rows[row]
            check_inside(row, count)
            bits[row] |= np.int64(1) << words[i]
    return bits


@helper
def _weigh(bits: int, weights: Float64) -> float:
    weight = 0.0
    for word in range(len(weights)):
        if bits >> word & 1:
            weight += weights[word]
    return weight


@kernel(several(INT64, INT64), array("int64"), array("float64"), array("boolean"), array("boolean"))
def choose_words(bits: Int64, weights: Float64, removed: Mask, deleted: Mask) -> tuple[int, int]:
    """Return the words that documents have, and those of the document whose words weigh most.

    Args:
        bits: int64 (n,); bits beyond those of the weights do not count.
        weights: float64 (words,).
        removed, deleted: bool (n,), documents without a say in the first and in the second; empty: all have one.
    """
    present = best = 0
    most, mask = 0.0, (1 << len(weights)) - 1
    for row in range(len(bits)):
        own = bits[row] & mask
        if not (len(removed) and removed[row]):
            present |= own
        if own | best != best and not (len(deleted) and deleted[row]):
            weight = _weigh(own, weights)
            if weight > most:
                best, most = own, weight
    return present, best


@kernel(output("boolean"), array("int64"), array("float64"), INT64, FLOAT64, array("boolean"))
def lack_words(bits: Int64, weights: Float64, wanted: int, least: float, deleted: Mask) -> Mask:
    """Return bool (n,), True for documents that are deleted or lack words.

    Args:
        bits: int64 (n,); a document with a bit beyond those of the weights lacks none.
        weights: float64 (words,).
        wanted: The words to have; 0: words that weigh at least ``least``.
        least: See there.
        deleted: bool (n,), or empty.
    """
    lacks = np.empty(len(bits), np.bool_)
    for row in range(len(bits)):
        own = bits[row]
        if own >> len(weights):
            has = True
        elif wanted:
            has = own == wanted
        else:
            has = own != 0 and _weigh(own, weights) >= least
        lacks[row] = not has or (len(deleted) > 0 and deleted[row])
    return lacks
