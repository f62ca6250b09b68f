"""Partitions: each document belongs to one of 4,096 by its id, and each shard owns a run of them.

The hash spreads ids evenly whatever they look like, so shards get the same load, and everybody who knows the id of a
document knows its shard without asking. A set of bundles can be cut into other shards without new hashes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

from fullrank.errors import FullrankError

PARTITIONS = 4096


def partition_of(id: str) -> int:
    """Return the partition of a document: blake2b(id) mod 4096.

    Args:
        id: The id of the document.

    Returns:
        A number from 0 to 4095, the same on every machine and in every release.

    Example:
        >>> partition_of("apple")
        3807
    """
    digest = blake2b(id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % PARTITIONS


def runs_of(shards: int) -> list[range]:
    """Cut the partitions into runs, one for each shard; their lengths differ by at most 1.

    Args:
        shards: The number of shards, 1 to 4096.

    Raises:
        FullrankError: There cannot be so many shards.

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
