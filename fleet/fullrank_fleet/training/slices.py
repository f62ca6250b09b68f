"""Cut the training queries into logical slices: their number is a setting and does not depend on the machines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fullrank.encoding import Int64
from fullrank_fleet.partitions import partition_of, runs_of, shard_of


def cut_queries(queries: Int64, ids: Sequence[str], slices: int) -> list[Int64]:
    """Cut queries into slices by the hash of their ids, so that all clicks of a query are in one slice.

    Args:
        queries: Their rows, ascending.
        ids: The id of each row.
        slices: Their number, 1 to 4,096.

    Returns:
        The rows of each slice, ascending; a slice may be empty.

    Raises:
        FullrankError: There cannot be so many slices.

    Example:
        >>> cut_queries(np.arange(4), ["apple", "pear", "plum", "fig"], 2)
        [array([2, 3]), array([0, 1])]
    """
    runs = runs_of(slices)
    owners = np.array([shard_of(partition_of(ids[row]), runs) for row in queries.tolist()], int)
    return [queries[owners == number] for number in range(slices)]


def part_of(queries: Int64, part: int, parts: int, seed: Sequence[int]) -> Int64:
    """Return the queries of one part of an epoch, ascending; the parts are random and differ by a query at most.

    Args:
        queries: Those of a slice.
        part: Which, from 0.
        parts: Their number.
        seed: Of the epoch and the slice.
    """
    if parts == 1:
        return queries
    return np.sort(np.random.default_rng(seed).permutation(queries)[part::parts])
