"""Rows by id for many ids at once: a sorted array of hashes in place of a binary search over strings for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fullrank.encoding import Int64


def hashes_of(ids: Sequence[str]) -> Int64:
    """Return the hash of each id, int64; equal in one process only."""
    return np.fromiter(map(hash, ids), np.int64, len(ids))


class IdIndex:
    """The rows of distinct ids; made on first use, 12 bytes an id.

    Args:
        ids: The id of every row.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = ids
        self._sorted: tuple[Int64, np.ndarray] | None = None

    def rows(self, ids: Sequence[str], hashes: Int64) -> list[int]:
        """Return the rows of those ids that are here.

        Args:
            ids: Ids to look up.
            hashes: What ``hashes_of`` returned for them.
        """
        if self._sorted is None:
            own = hashes_of(self._ids)
            order = np.argsort(own, kind="stable").astype(np.int32)
            self._sorted = own[order], order
        known, order = self._sorted
        first, stop = np.searchsorted(known, hashes), np.searchsorted(known, hashes, side="right")
        found = []
        for i in np.flatnonzero(first < stop).tolist():
            # Ids with one hash are rare, but may exist.
            rows = order[first[i] : stop[i]].tolist()
            found += [row for row in rows if self._ids[row] == ids[i]]
        return found
