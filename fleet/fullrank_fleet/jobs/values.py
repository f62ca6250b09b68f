"""How many different values a field has over all shards, from a sample of each shard.

A value gets a hash of 64 bits. Of k + 1 or more different values the k smallest hashes are kept; if h is the largest of
these, the number of values is about (k − 1) / (h / 2⁶⁴) with a standard error of 1/√(k − 2) of it (K. Beyer et al.:
On synopses for distinct-value estimation under multiset operations, SIGMOD 2007). Samples of shards merge into that of
all: of the hashes of both the k smallest. The number of fewer than k values is exact.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from fullrank.filters.columns import Kind
from fullrank.filters.columns.table import ColumnPart

K = 4_096
"""Hashes of a sample: a standard error of 1.6 %."""
_RANGE = 1 << 64


class ValueSample(NamedTuple):
    """The different values of a field, in one shard or in several.

    Attributes:
        least: So many there are at least.
        most: So many there are at most; equal in one shard.
        hashes: The smallest hashes, ascending.
    """

    least: int
    most: int
    hashes: Sequence[int]

    @classmethod
    def of(cls, parts: Mapping[Kind, ColumnPart]) -> ValueSample:
        """Return the sample of one shard, given the parts of its column."""
        count = sum(len(part.values) for part in parts.values())
        return cls(count, count, heapq.nsmallest(K, _hashes(parts)))

    @classmethod
    def merged(cls, samples: Iterable[ValueSample]) -> ValueSample:
        """Return the sample of several shards."""
        samples = list(samples)
        hashes = sorted({one for sample in samples for one in sample.hashes})[:K]
        least = max((sample.least for sample in samples), default=0)
        return cls(least, sum(sample.most for sample in samples), hashes)

    @property
    def distinct(self) -> int:
        """The number of values; exact below K, and of one shard."""
        if len(self.hashes) < K:
            return len(self.hashes)
        estimate = round((K - 1) * _RANGE / self.hashes[-1])
        return min(max(estimate, self.least), self.most)


def _hashes(parts: Mapping[Kind, ColumnPart]) -> Iterator[int]:
    for kind, part in parts.items():
        salt = kind[:1].encode()
        for value in part.values:
            text = value if kind == "keyword" else repr(float(value))
            digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, salt=salt)
            yield int.from_bytes(digest.digest())
