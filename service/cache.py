"""Embeddings of queries and pages, remembered.

What a text is encoded to depends on the bundle and the text alone, so an embedding is kept under
the bundle's id and a hash of the normalised text. A least-recently-used table in the process comes
first, Redis (when configured) behind it. Nothing here can change an answer: a value that is not
exactly what was stored counts as a miss, and so does whatever Redis does wrong.
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fullrank.encoding import Encoded
from service.metrics import Metrics

_MAGIC = b"FRE1"
# magic, key digest, N, F, nnz, bias, length of what follows up to the checksum
_HEADER = struct.Struct("<4s16sIIIfI")
_CHECKSUM_BYTES = 16


def normalise(text: str) -> str:
    """A text with the same words as the original, so that spellings that cannot differ share a key.

    White space only separates words, and ASCII letters are lowercased before anything is looked up;
    what case means beyond ASCII is left to the featuriser.
    """
    collapsed = " ".join(text.split())
    return collapsed.lower() if collapsed.isascii() else collapsed


@dataclass(frozen=True, slots=True)
class Key:
    """One text under one bundle; n_dense and width are what its embedding must have."""

    digest: bytes
    n_dense: int
    width: int

    @classmethod
    def of(cls, bundle_id: str, text: str, n_dense: int, width: int) -> Key:
        """Texts with the same words under the same bundle have the same key."""
        hashed = hashlib.blake2b(digest_size=16, person=b"fullrank.embed")
        hashed.update(bundle_id.encode())
        hashed.update(b"\0")
        hashed.update(normalise(text).encode())
        return cls(hashed.digest(), n_dense, width)


def pack(key: Key, row: Encoded) -> bytes:
    """One encoded text as bytes that say what they are: key, shapes, length, checksum."""
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
        len(payload),
    )
    return header + payload + _checksum(header, payload)


def unpack(key: Key, value: bytes) -> Encoded | None:
    """The encoded text, or None when the bytes are not exactly one that pack made for this key."""
    if len(value) < _HEADER.size + _CHECKSUM_BYTES:
        return None
    header, payload = value[: _HEADER.size], value[_HEADER.size : -_CHECKSUM_BYTES]
    magic, digest, n_dense, width, nnz, bias, length = _HEADER.unpack(header)
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
    if not (ascending and inside and finite):
        return None
    return Encoded(
        dense.astype(np.float32),
        np.array([0, nnz], np.int64),
        indices.astype(np.int32),
        weights.astype(np.float32),
        width,
        np.array([bias], np.float32),
    )


def _checksum(header: bytes, payload: bytes) -> bytes:
    hashed = hashlib.blake2b(header, digest_size=_CHECKSUM_BYTES)
    hashed.update(payload)
    return hashed.digest()


class Remote(Protocol):
    """A shared store that may fail in any way without raising."""

    async def get(self, key: Key) -> bytes | None: ...

    def put(self, key: Key, value: bytes) -> None:
        """Store soon, without waiting and without a promise."""

    async def close(self) -> None: ...


class EmbeddingCache:
    """The table in the process, and the shared store behind it. Used from the event loop only."""

    def __init__(self, entries: int, metrics: Metrics, remote: Remote | None = None) -> None:
        self._entries = entries
        self._metrics = metrics
        self._remote = remote
        self._rows: OrderedDict[bytes, Encoded] = OrderedDict()

    @property
    def on(self) -> bool:
        """Whether anything is remembered at all."""
        return self._entries > 0 or self._remote is not None

    async def get(self, key: Key) -> Encoded | None:
        """The embedding, or None."""
        row = self._rows.get(key.digest)
        if row is not None:
            self._rows.move_to_end(key.digest)
            self._metrics.cache.labels("process").inc()
            return row
        if self._remote is not None:
            value = await self._remote.get(key)
            if value is not None:
                row = unpack(key, value)
                if row is not None:
                    self._metrics.cache.labels("redis").inc()
                    self._remember(key, row)
                    return row
                self._metrics.redis_errors.inc()
        self._metrics.cache.labels("miss").inc()
        return None

    def put(self, key: Key, row: Encoded) -> None:
        """Remember an embedding."""
        self._remember(key, row)
        if self._remote is not None:
            self._remote.put(key, pack(key, row))

    async def close(self) -> None:
        """Let the shared store go."""
        if self._remote is not None:
            await self._remote.close()

    def _remember(self, key: Key, row: Encoded) -> None:
        if self._entries == 0:
            return
        self._rows[key.digest] = row
        self._rows.move_to_end(key.digest)
        while len(self._rows) > self._entries:
            self._rows.popitem(last=False)
