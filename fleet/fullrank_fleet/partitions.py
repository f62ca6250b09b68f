"""Each shard owns a run of the partitions of documents (fullrank.partitions).

The hash spreads ids evenly, so shards get the same load, and everybody who knows the id of a document knows its shard
without asking. A set of bundles can be cut into other shards without new hashes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from fullrank.errors import FullrankError
from fullrank.partitions import PARTITIONS as PARTITIONS
from fullrank.partitions import partition_of as partition_of


def runs_of(shards: int) -> list[range]:
    """Cut the partitions into runs, one for each of 1 to 4,096 shards, or raise FullrankError.

    Example:
        >>> runs_of(3)
        [range(0, 1365), range(1365, 2730), range(2730, 4096)]
    """
    if not 1 <= shards <= PARTITIONS:
        raise FullrankError(f"{shards} shards: there are from 1 to {PARTITIONS:,}")
    starts = [PARTITIONS * shard // shards for shard in range(shards + 1)]
    return [range(first, end) for first, end in pairwise(starts)]


def shard_of(partition: int, runs: Sequence[range]) -> int:
    """Return the place of the run that has a partition; the runs follow each other from 0 on."""
    return bisect_right(runs, partition, key=lambda run: run.start) - 1
