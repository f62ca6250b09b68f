"""A stable order. numba's own stable sort takes five seconds to compile, this one a fraction of a second."""

from __future__ import annotations

from typing import Any

import numpy as np

from fullrank.kernels.arrays import Int64
from fullrank.kernels.compiler import helper


@helper
def stable_order(keys: Any) -> Int64:
    """Return the places of the keys in ascending order, equal ones in the order they had: a merge sort, bottom up."""
    count = len(keys)
    order, merged = np.arange(count), np.empty(count, np.int64)
    width = 1
    while width < count:
        for start in range(0, count, 2 * width):
            middle, stop = min(start + width, count), min(start + 2 * width, count)
            left, right = start, middle
            for place in range(start, stop):
                if left < middle and (right == stop or keys[order[left]] <= keys[order[right]]):
                    merged[place] = order[left]
                    left += 1
                else:
                    merged[place] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order
