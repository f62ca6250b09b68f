"""Lists of different lengths in the flat form that kernels read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fullrank.encoding import Int64


def ragged(lists: Sequence[Int64]) -> tuple[Int64, Int64]:
    """Return (indptr, values); list i is ``values[indptr[i]:indptr[i + 1]]``.

    Example:
        >>> ragged([np.array([3, 5]), np.array([4])])
        (array([0, 2, 3]), array([3, 5, 4]))
    """
    indptr = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(x) for x in lists], out=indptr[1:])
    return indptr, np.concatenate(lists).astype(np.int64)
