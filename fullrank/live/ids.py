"""Rows by id for many ids at once: a sorted array of hashes in place of a binary search over strings for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fullrank.encoding import Int32, Int64
from fullrank.kernels.words import find_hashed
from fullrank.storage.strings import Names, StringTable


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
        self._made: tuple[StringTable, Int64, Int32] | None = None

    def rows(self, ids: Sequence[str], hashes: Int64) -> Int64:
        """Return the rows of those ids that are here, int64, in the order of the ids.

        Args:
            ids: Ids to look up; as Names, their bytes are made once for several tables.
            hashes: What ``hashes_of`` returned for them.
        """
        if self._made is None:
            table, own = StringTable.of(self._ids), hashes_of(self._ids)
            order = np.argsort(own, kind="stable").astype(np.int32)
            self._made = table, own[order], order
        table, known, order = self._made
        return find_hashed(table.blob, table.offsets, known, order, hashes, *Names.of(ids).packed)
