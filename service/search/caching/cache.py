"""Embeddings of queries and pages, remembered.

What a text is encoded to depends on the bundle and the text alone, so an embedding is kept under
the bundle's id and a hash of the normalised text. A least-recently-used table in the process comes
first, Redis (when configured) behind it. Nothing here can change an answer: a value that is not
exactly what was stored counts as a miss, and so does whatever Redis does wrong. With an embedding goes
the time that encoding it took, which is what finding it saves.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fullrank.encoding import Encoded
from service.telemetry.metrics import Metrics

_MAGIC = b"FRE2"
# magic, key digest, N, F, nnz, bias, seconds, length of what follows up to the checksum
_HEADER = struct.Struct("<4s16sIIIffI")
_CHECKSUM_BYTES = 16
# Of an entry beside its numbers: six array objects, key, place in the table.
_OVERHEAD_BYTES = 1024


def normalise(text: str) -> str:
    """A text with the same words as the original, so that spellings that cannot differ share a key.

    White space only separates words, and ASCII letters are lowercased before anything is looked up;
    what case means beyond ASCII is left to the featuriser.
    """
    collapsed = " ".join(text.split())
    return collapsed.lower() if collapsed.isascii() else collapsed


@dataclass(frozen=True, slots=True)
class Key:
    """One text under one bundle.

    n_dense, width  what its embedding must have
    kind            the bundle, and how long the text is (bits of its number of characters)
    """

    digest: bytes
    n_dense: int
    width: int
    kind: tuple[str, int]

    @classmethod
    def of(cls, bundle_id: str, text: str, n_dense: int, width: int) -> Key:
        """Texts with the same words under the same bundle and in the same shape have the same key.

        Where a bundle has live documents its queries are wider: their unseen words count too.
        """
        hashed = hashlib.blake2b(digest_size=16, person=b"fullrank.embed")
        hashed.update(f"{bundle_id}\0{n_dense}\0{width}\0".encode())
        hashed.update(normalise(text).encode())
        return cls(hashed.digest(), n_dense, width, (bundle_id, len(text).bit_length()))


@dataclass(frozen=True, slots=True)
class Embedding:
    """One encoded text, and how long encoding it took."""

    row: Encoded
    seconds: float

    @property
    def bytes(self) -> int:
        """What it takes of memory, about."""
        row = self.row
        return row.dense.nbytes + row.indices.nbytes + row.weights.nbytes + _OVERHEAD_BYTES


def pack(key: Key, found: Embedding) -> bytes:
    """One encoded text as bytes that say what they are: key, shapes, length, checksum."""
    row = found.row
    payload = b"".join(
        (
            np.ascontiguousarray(row.dense[0], "<f4").tobytes(),
            np.ascontiguousarray(row.indices, "<i4").tobytes(),
            np.ascontiguousarray(row.weights, "<f4").tobytes(),
        )
    )
    header = _HEADER.pack(
        _MAGIC,
        key.digest,
        row.dense.shape[1],
        row.width,
        len(row.indices),
        float(row.bias[0]),
        found.seconds,
        len(payload),
    )
    return header + payload + _checksum(header, payload)


def unpack(key: Key, value: bytes) -> Embedding | None:
    """The encoded text, or None when the bytes are not exactly one that pack made for this key."""
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
    # A checksum can be forged; an index outside the matrix must still never reach a kernel.
    ascending = bool((np.diff(indices) > 0).all())
    inside = nnz == 0 or (indices[0] >= 0 and indices[-1] < width)
    finite = np.isfinite(dense).all() and np.isfinite(weights).all() and np.isfinite(bias)
    timed = np.isfinite(seconds) and seconds >= 0
    if not (ascending and inside and finite and timed):
        return None
    row = Encoded(
        dense.astype(np.float32),
        np.array([0, nnz], np.int64),
        indices.astype(np.int32),
        weights.astype(np.float32),
        width,
        np.array([bias], np.float32),
    )
    return Embedding(row, seconds)


def _checksum(header: bytes, payload: bytes) -> bytes:
    hashed = hashlib.blake2b(header, digest_size=_CHECKSUM_BYTES)
    hashed.update(payload)
    return hashed.digest()


class Remote(Protocol):
    """A shared store that may fail in any way without raising."""

    async def get(self, key: Key) -> Embedding | None: ...

    def put(self, key: Key, found: Embedding) -> None:
        """Store soon, without waiting and without a promise."""

    async def close(self) -> None: ...


class EmbeddingCache:
    """The table in the process, and the shared store behind it. Used from the event loop only.

    entries, max_bytes  bounds of the table; the least recently used go first
    """

    def __init__(
        self,
        entries: int,
        metrics: Metrics,
        remote: Remote | None = None,
        *,
        max_bytes: int = 64 << 20,
    ) -> None:
        self._entries = entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self._remote = remote
        self._table: OrderedDict[bytes, Embedding] = OrderedDict()
        self._metrics = metrics

    @property
    def on(self) -> bool:
        """Whether anything is remembered at all."""
        return self._entries > 0 or self._remote is not None

    async def get(self, key: Key) -> Encoded | None:
        """The embedding, or None."""
        started = time.perf_counter()
        found, where = self._table.get(key.digest), "process"
        if found is not None:
            self._table.move_to_end(key.digest)
        elif self._remote is not None:
            found, where = await self._remote.get(key), "redis"
            if found is not None:
                self._remember(key, found)
        if found is None:
            where = "miss"
        else:
            self._metrics.cache_saved.labels(where).inc(found.seconds)
        self._metrics.cache.labels(where).inc()
        self._metrics.cache_spent.labels(where).inc(time.perf_counter() - started)
        return found.row if found is not None else None

    def put(self, key: Key, row: Encoded, seconds: float) -> None:
        """Remember an embedding that took so long to make."""
        found = Embedding(row, seconds)
        self._remember(key, found)
        if self._remote is not None:
            self._remote.put(key, found)

    async def close(self) -> None:
        """Let the shared store go."""
        if self._remote is not None:
            await self._remote.close()

    def _remember(self, key: Key, found: Embedding) -> None:
        if self._entries == 0 or found.bytes > self._max_bytes:
            return
        old = self._table.pop(key.digest, None)
        self._table[key.digest] = found
        self._bytes += found.bytes - (old.bytes if old is not None else 0)
        while len(self._table) > self._entries or self._bytes > self._max_bytes:
            _, gone = self._table.popitem(last=False)
            self._bytes -= gone.bytes
