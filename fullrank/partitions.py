"""Partitions: each document belongs to one of 4,096 by its id.

The hash spreads ids evenly whatever they look like, and everybody who knows the id of a document knows its partition
without asking.
"""

from __future__ import annotations

from hashlib import blake2b

PARTITIONS = 4096


def partition_of(id: str) -> int:
    """Return the partition of a document: blake2b(id) mod 4096.

    Example:
        >>> partition_of("apple")
        3807
    """
    digest = blake2b(id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % PARTITIONS
