"""The rows of the best of many approximate scores.

best_rows and rows_at_least first count, block by block, how many scores reach the threshold, which compares many at
once. They look at single scores only in the few blocks that have one.
"""

from __future__ import annotations

import numpy as np

from fullrank.kernels.arrays import Float32, Float64, Int64, Mask, UInt64, stable_order
from fullrank.kernels.compiler import FLOAT32, INT64, array, helper, kernel, output, several

_BLOCK, _BARS = 256, 1024
# Numbers that are compared together, and one that says of eight places that all are deleted.
_STEP, _ALL_DELETED = 4, np.uint64(0x0101010101010101)


@helper
def push(
    best: Float32 | Float64, rows: Int64, size: int, score: np.float32 | np.float64, row: int
) -> int:
    """Put a score into a heap of the best ones, whose root is the least of them; return the new size.

    Args:
        best, rows: float32 or float64, and int64 (wanted,), the heap.
        score, row: The new score; a full heap drops it unless it is above the root. Compare with the root
            before calling: most scores are below it, and the comparison alone is many times as fast.
    """
    if size < len(best):
        place = size
        while place > 0:
            parent = (place - 1) // 2
            if best[parent] <= score:
                break
            best[place], rows[place] = best[parent], rows[parent]
            place = parent
        best[place], rows[place] = score, row
        return size + 1
    if len(best) and score > best[0]:
        place = 0
        while True:
            child = 2 * place + 1
            if child >= len(best):
                break
            if child + 1 < len(best) and best[child + 1] < best[child]:
                child += 1
            if best[child] >= score:
                break
            best[place], rows[place] = best[child], rows[child]
            place = child
        best[place], rows[place] = score, row
    return size


@helper
def kth_largest(values: Float32, k: int) -> np.float32:
    """Return the k-th largest of a few values, float32 (n,), k in 1..n."""
    best, rows = np.empty(k, np.float32), np.empty(k, np.int64)
    size = 0
    for value in values:
        size = push(best, rows, size, value, 0)
    return np.float32(best[0])


@helper
def about_kth_largest(values: Float32, k: int) -> np.float32:
    """Return a number that at least k values reach, and few more: the lower end of a bar of their histogram.

    A histogram has no branch to mispredict; a quickselect takes several times as long. Subnormal differences may be
    lost.
    """
    least, largest = values[0], values[0]
    for value in values:
        least, largest = min(least, value), max(largest, value)
    size = np.float64(largest) - np.float64(least)
    if not 0 < size < np.inf:
        return np.float32(-np.inf)
    heights = np.zeros(_BARS + 1, np.int64)
    to_bar = _BARS / size
    for value in values:
        place = (np.float64(value) - least) * to_bar
        heights[np.uint64(place if 0 <= place <= _BARS else 0.0)] += 1
    bar, reached = _BARS, heights[_BARS]
    while reached < k:
        bar -= 1
        reached += heights[bar]
    # A value on the border of two bars may be counted in the upper one.
    end = least + (bar / _BARS - 2.0**-40) * size
    return np.float32(np.nextafter(np.float32(end), np.float32(-np.inf)))


@kernel(array("int64"), array("float32"), array("boolean"), INT64)
def best_rows(scores: Float32, deleted: Mask, wanted: int) -> Int64:
    """Return the rows of the largest scores, in no order."""
    best = np.empty(wanted, np.float32)
    rows = np.empty(wanted, np.int64)
    size = 0
    for start in range(0, len(scores), _BLOCK):
        stop = min(start + _BLOCK, len(scores))
        if size == wanted:
            least = best[0]
            above = 0
            for row in range(start, stop):
                above += scores[row] > least
            if above == 0:
                continue
        for row in range(start, stop):
            is_candidate = size < wanted or scores[row] > best[0]
            if is_candidate and not (len(deleted) and deleted[row]):
                size = push(best, rows, size, scores[row], row)
    return rows[:size]


@kernel(array("int64"), array("float32"), array("boolean"), FLOAT32)
def rows_at_least(scores: Float32, deleted: Mask, threshold: np.float32) -> Int64:
    """Return the rows whose score is at least the threshold, ascending."""
    blocks = (len(scores) + _BLOCK - 1) // _BLOCK
    counts = np.empty(blocks, np.int64)
    total = 0
    for block in range(blocks):
        above = 0
        for row in range(block * _BLOCK, min((block + 1) * _BLOCK, len(scores))):
            above += scores[row] >= threshold
        counts[block] = above
        total += above
    rows = np.empty(total, np.int64)
    size = 0
    for block in range(blocks):
        if counts[block]:
            for row in range(block * _BLOCK, min((block + 1) * _BLOCK, len(scores))):
                if scores[row] >= threshold and not (len(deleted) and deleted[row]):
                    rows[size] = row
                    size += 1
    return rows[:size]


@kernel(output("int64"), array("uint64"), array("boolean"), INT64)
def places_left(words: UInt64, deleted: Mask, count: int) -> Int64:
    """Return the places that are not deleted, ascending, int64 (count,); quick where few are left.

    Args:
        words: The first ⌊n / 8⌋ · 8 bytes of `deleted`, eight in a number.
    """
    found, size = np.empty(count + 1, np.int64), 0
    whole = len(words) - len(words) % _STEP
    for begin in range(0, whole, _STEP):
        all_deleted = _ALL_DELETED
        for step in range(_STEP):
            all_deleted &= words[np.uint64(begin + step)]
        if all_deleted == _ALL_DELETED:
            continue
        for word in range(begin, begin + _STEP):
            if words[word] != _ALL_DELETED:
                for place in range(8 * word, 8 * word + 8):
                    # Without a branch: which of them are left cannot be predicted.
                    found[size] = place
                    size += not deleted[place]
    for place in range(8 * whole, len(deleted)):
        found[size] = place
        size += not deleted[place]
    return found[:size]


RANKED = several(array("int64"), *(array("float64"),) * 4)
"""The type of rows, scores, dense, lexical and bias."""


@kernel(
    RANKED,
    array("int64"), array("float64"), array("float64"), array("float64"), INT64, INT64,
)  # fmt: skip
def in_order(
    rows: Int64, dense: Float64, lexical: Float64, bias: Float64, offset: int, limit: int
) -> tuple[Int64, Float64, Float64, Float64, Float64]:
    """Order documents by score, best first, ties by row, and keep places offset..offset + limit."""
    scores = dense + lexical + bias
    kept = np.arange(len(rows))
    wanted = offset + limit
    if 0 < wanted < len(rows):
        # Sorting takes longer than finding the few that are returned, and those that tie with the last of them.
        best, places, size = np.empty(wanted), np.empty(wanted, np.int64), 0
        for i in range(len(rows)):
            if size < wanted or scores[i] > best[0]:
                size = push(best, places, size, scores[i], i)
        size = 0
        for i in range(len(rows)):
            kept[size] = i
            size += not scores[i] < best[0]
        kept = kept[:size]
    kept = kept[stable_order(rows[kept])]
    found = kept[stable_order(-scores[kept])][offset:wanted]
    return rows[found], scores[found], dense[found], lexical[found], bias[found]
