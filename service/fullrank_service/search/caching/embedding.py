"""Embeddings of texts as they are cached: their keys, and the bytes of the shared store."""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

import numpy as np

from fullrank.encoding import Encoded, Rows

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
    """The key of one text under one bundle.

    digest          16 bytes, different for each bundle, shape and normalised text
    n_dense, width  N and F of the embedding
    chars           length of the normalised text
    """

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
