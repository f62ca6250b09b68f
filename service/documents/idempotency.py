"""Idempotency keys: a request that is sent twice is stored once and gets the same answer.

The answer is stored in the transaction that stores the writes, so neither exists without the other. It expires
after a day; then the key may be used again.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib

KEPT_S = 24 * 3600
TABLE = """
CREATE TABLE keys (
    key TEXT PRIMARY KEY,
    digest BLOB NOT NULL,
    answer BLOB NOT NULL,
    seq INTEGER NOT NULL,
    created REAL NOT NULL
);
CREATE INDEX keys_by_age ON keys (created)
"""


class KeyReused(Exception):
    """The key belongs to another request."""


def digest(*parts: bytes) -> bytes:
    """Hash what identifies a request; each part is hashed with its length."""
    hashed = hashlib.blake2b(digest_size=32)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return hashed.digest()


def find(db: sqlite3.Connection, key: str, wanted: bytes) -> tuple[bytes, int] | None:
    """Return the answer stored under a key and its last sequence number. Raises KeyReused if the digest differs."""
    row = db.execute("SELECT digest, answer, seq FROM keys WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    if row[0] != wanted:
        raise KeyReused
    return zlib.decompress(row[1]), row[2]


def keep(
    db: sqlite3.Connection, key: str, digest: bytes, answer: bytes, seq: int, now: float
) -> None:
    """Store an answer."""
    packed = zlib.compress(answer, 1)
    db.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?)", (key, digest, packed, seq, now))


def expire(db: sqlite3.Connection, now: float) -> None:
    """Delete answers that are older than a day."""
    db.execute("DELETE FROM keys WHERE created < ?", (now - KEPT_S,))
