"""Embeddings of queries and pages: a cache in the process, then the shared store, and how they are stored."""

from __future__ import annotations

import hashlib
import struct
import time
from contextlib import suppress
from typing import NamedTuple, Protocol

import numpy as np
from cachetools import LRUCache

from fullrank.storage.encoding import Encoded, Rows
from fullrank_service.base.metrics import Metrics

_MAGIC = b"FRE2"
# magic, key digest, N, F, nnz, bias, seconds, bytes between here and the checksum
_HEADER = struct.Struct("<4s16sIIIffI")
_CHECKSUM_BYTES = 16
# What an entry takes besides its numbers: six array objects, key, place in the table.
_OVERHEAD_BYTES = 1024


def normalise(text: str) -> str:
    """Return a text with the same words, equal for spellings that mean the same.

    White space only separates words, and the featuriser lowercases ASCII letters. What case means beyond ASCII is left
    to the featuriser.
    """
    collapsed = " ".join(text.split())
    return collapsed.lower() if collapsed.isascii() else collapsed


class Key(NamedTuple):
    """The key of one text under one bundle; the digest differs for each bundle, shape and normalised text."""

    digest: bytes
    n_dense: int
    width: int
    chars: int

    @classmethod
    def of(cls, bundle_id: str, text: str, n_dense: int, width: int) -> Key:
        """Return the key of a text. Queries of a bundle with live documents are wider: their new words count too."""
        normalised = normalise(text)
        named = f"{bundle_id}\0{n_dense}\0{width}\0{normalised}".encode()
        hashed = hashlib.blake2b(named, digest_size=16, person=b"fullrank.embed")
        return cls(hashed.digest(), n_dense, width, len(normalised))


class Embedding(NamedTuple):
    """One encoded text, and the seconds that encoding took."""

    row: Encoded
    seconds: float

    @property
    def bytes(self) -> int:
        """About how much memory it takes."""
        row = self.row
        return (
            row.dense.nbytes
            + row.sparse.indices.nbytes
            + row.sparse.values.nbytes
            + _OVERHEAD_BYTES
        )


def pack(key: Key, found: Embedding) -> bytes:
    """Return an embedding as bytes that identify themselves: key, shapes, length, checksum."""
    row = found.row
    payload = b"".join(
        (
            np.ascontiguousarray(row.dense[0], "<f4").tobytes(),
            np.ascontiguousarray(row.sparse.indices, "<i4").tobytes(),
            np.ascontiguousarray(row.sparse.values, "<f4").tobytes(),
        )
    )
    header = _HEADER.pack(
        _MAGIC,
        key.digest,
        row.dense.shape[1],
        row.sparse.width,
        len(row.sparse.indices),
        float(row.bias[0]),
        found.seconds,
        len(payload),
    )
    return header + payload + _checksum(header, payload)


def unpack(key: Key, value: bytes) -> Embedding | None:
    """Return the embedding, or None unless the bytes are exactly what ``pack`` made for this key."""
    if len(value) < _HEADER.size + _CHECKSUM_BYTES:
        return None
    header, payload = value[: _HEADER.size], value[_HEADER.size : -_CHECKSUM_BYTES]
    magic, digest, n_dense, width, nnz, bias, seconds, length = _HEADER.unpack(header)
    shaped = (
        magic == _MAGIC
        and digest == key.digest
        and (n_dense, width) == (key.n_dense, key.width)
        and length == len(payload) == 4 * (n_dense + 2 * nnz)
    )
    if not shaped or _checksum(header, payload) != value[-_CHECKSUM_BYTES:]:
        return None
    dense = np.frombuffer(payload, "<f4", n_dense).reshape(1, n_dense)
    indices = np.frombuffer(payload, "<i4", nnz, 4 * n_dense)
    weights = np.frombuffer(payload, "<f4", nnz, 4 * (n_dense + nnz))
    # Compiled kernels check no bounds, and a checksum can be forged: an index outside the matrix is refused here.
    ascending = bool((indices[1:] > indices[:-1]).all())
    inside = nnz == 0 or (indices[0] >= 0 and indices[-1] < width)
    finite = np.isfinite(dense).all() and np.isfinite(weights).all() and np.isfinite(bias)
    timed = np.isfinite(seconds) and seconds >= 0
    if not (ascending and inside and finite and timed):
        return None
    row = Encoded(
        dense.astype(np.float32),
        Rows(
            np.array([0, nnz], np.int64),
            indices.astype(np.int32),
            weights.astype(np.float32),
            width,
        ),
        np.array([bias], np.float32),
    )
    return Embedding(row, seconds)


def _checksum(header: bytes, payload: bytes) -> bytes:
    hashed = hashlib.blake2b(header, digest_size=_CHECKSUM_BYTES)
    hashed.update(payload)
    return hashed.digest()


# A cache of the embeddings of queries and pages.
#
# An embedding depends on the bundle and the text alone, so its key is made of the bundle's id and a hash of the
# normalised text. A table in the process comes first (the least recently used entries go first), Redis, where
# configured, second. No value can change an answer: anything but the exact bytes that were stored counts as a miss,
# and so does any failure of Redis. Each embedding is stored with the time that encoding took, which is the time that
# finding it saves.


class Remote(Protocol):
    """A shared store that may fail in any way, but never raises."""

    async def get(self, key: Key) -> Embedding | None: ...

    def put(self, key: Key, found: Embedding) -> None:
        """Store soon, without waiting and without a guarantee."""

    async def close(self) -> None: ...


class EmbeddingCache:
    """The table in the process, backed by a shared store. For the event loop only."""

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
        if self._remote is not None:
            await self._remote.close()

    def _remember(self, key: Key, found: Embedding) -> None:
        with suppress(ValueError):  # larger than the whole table
            self._table[key.digest] = found
        while len(self._table) > self._entries:
            self._table.popitem()
