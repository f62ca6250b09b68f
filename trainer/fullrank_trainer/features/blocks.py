"""Matrices of many texts, block by block: what is between two steps is then small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from fullrank.encoding import Rows

ENTRIES = 1 << 21
"""Of a block."""

Stack = Callable[[Iterable[Rows]], Rows]
"""Puts blocks of rows below each other, in memory or in a file."""


def stack_in_memory(blocks: Iterable[Rows]) -> Rows:
    """Put blocks of rows below each other."""
    parts = [*blocks]
    return parts[0] if len(parts) == 1 else Rows.vstack(parts)


def blocks_of(columns: Sequence[Rows], most: int = ENTRIES) -> Iterator[list[Rows]]:
    """Cut matrices of as many rows into blocks of at most so many entries; without a row, into one empty block."""
    count = len(columns[0])
    entries = np.sum([rows.indptr for rows in columns], axis=0)
    start = 0
    while True:
        # At least one row, however long it is.
        stop = int(np.searchsorted(entries, entries[start] + most, "right")) - 1
        stop = min(count, max(stop, start + 1))
        yield [rows.slice(start, stop) for rows in columns]
        if stop == count:
            return
        start = stop
