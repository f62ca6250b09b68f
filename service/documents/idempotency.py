"""Idempotency keys: a request sent twice is kept once and answered alike.

The answer is kept in the transaction that keeps the writes, so there is no moment at which one is there without the
other. A day later it is forgotten, and the key is free again.
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
    """The key was given to another request before."""


def digest(*parts: bytes) -> bytes:
    """What tells requests apart: each part with its length, hashed."""
    hashed = hashlib.blake2b(digest_size=32)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return hashed.digest()


def find(db: sqlite3.Connection, key: str, wanted: bytes) -> tuple[bytes, int] | None:
    """The answer kept under a key and its last number. Raises KeyReused where the digest is another."""
    row = db.execute("SELECT digest, answer, seq FROM keys WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    if row[0] != wanted:
        raise KeyReused
    return zlib.decompress(row[1]), row[2]


def keep(
    db: sqlite3.Connection, key: str, digest: bytes, answer: bytes, seq: int, now: float
) -> None:
    """Keep an answer."""
    packed = zlib.compress(answer, 1)
    db.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?)", (key, digest, packed, seq, now))


def expire(db: sqlite3.Connection, now: float) -> None:
    """Forget what is older than a day."""
    db.execute("DELETE FROM keys WHERE created < ?", (now - KEPT_S,))
