"""A cache of the embeddings of queries and pages.

An embedding depends on the bundle and the text alone, so its key is made of the bundle's id and a hash of the
normalised text. A table in the process comes first (the least recently used entries go first), Redis, where configured,
second. No value can change an answer: anything but the exact bytes that were stored counts as a miss, and so does any
failure of Redis. Each embedding is stored with the time that encoding took, which is the time that finding it saves.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Protocol

from cachetools import LRUCache

from fullrank.encoding import Encoded
from fullrank_service.search.caching.embedding import Embedding, Key
from fullrank_service.telemetry.metrics import Metrics


class Remote(Protocol):
    """A shared store that may fail in any way, but never raises."""

    async def get(self, key: Key) -> Embedding | None: ...

    def put(self, key: Key, found: Embedding) -> None:
        """Store soon, without waiting and without a guarantee."""

    async def close(self) -> None: ...


class EmbeddingCache:
    """The table in the process, backed by a shared store. For the event loop only.

    Args:
        entries: most embeddings in the table.
        metrics: counts hits and misses, and the time they saved and took.
        remote: the shared store; None: none.
        max_bytes: most memory that the table takes.
    """

    def __init__(
        self,
        entries: int,
        metrics: Metrics,
        remote: Remote | None = None,
        *,
        max_bytes: int = 64 << 20,
    ) -> None:
        self._remote = remote
        self._entries = entries
        self._table: LRUCache[bytes, Embedding] = LRUCache(max_bytes, lambda found: found.bytes)
        self._metrics = metrics
        self.on = entries > 0 or remote is not None
        """Whether there is a table or a shared store."""

    async def get(self, key: Key) -> Encoded | None:
        """Return the embedding of a text, or None."""
        started = time.perf_counter()
        found, where = self._table.get(key.digest), "process"
        if found is None and self._remote is not None:
            found, where = await self._remote.get(key), "redis"
            if found is not None:
                self._remember(key, found)
        if found is None:
            where = "miss"
        else:
            self._metrics.cache_saved[where].inc(found.seconds)
        self._metrics.cache[where].inc()
        self._metrics.cache_spent[where].inc(time.perf_counter() - started)
        return found.row if found is not None else None

    def put(self, key: Key, row: Encoded, seconds: float) -> None:
        """Store an embedding, with the time that encoding took."""
        found = Embedding(row, seconds)
        self._remember(key, found)
        if self._remote is not None:
            self._remote.put(key, found)

    async def close(self) -> None:
        """Close the shared store."""
        if self._remote is not None:
            await self._remote.close()

    def _remember(self, key: Key, found: Embedding) -> None:
        with suppress(ValueError):  # larger than the whole table
            self._table[key.digest] = found
        while len(self._table) > self._entries:
            self._table.popitem()
