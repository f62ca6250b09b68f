"""Idempotency keys: a request that is sent twice is stored once and gets the same answer.

The answer is stored in the transaction that stores the writes, so neither exists without the other. It expires
after a day; then the key may be used again.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from typing import Any

KEPT_S = 24 * 3600

Execute = Callable[..., Any]
"""Runs a statement with its parameters in the transaction of a log."""


def table(binary: str, time: str) -> str:
    """Return the statements that make the table of keys, given a database's types of bytes and of times."""
    return f"""
CREATE TABLE keys (
    key TEXT PRIMARY KEY,
    digest {binary} NOT NULL,
    answer {binary} NOT NULL,
    seq BIGINT NOT NULL,
    created {time} NOT NULL
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


def find(execute: Execute, key: str, wanted: bytes) -> tuple[bytes, int] | None:
    """Return the answer stored under a key and its last sequence number. Raises KeyReused if the digest differs."""
    row = execute("SELECT digest, answer, seq FROM keys WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    if row[0] != wanted:
        raise KeyReused
    return zlib.decompress(row[1]), row[2]


def keep(execute: Execute, key: str, digest: bytes, answer: bytes, seq: int, now: float) -> None:
    """Store an answer."""
    packed = zlib.compress(answer, 1)
    execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?)", (key, digest, packed, seq, now))


def expire(execute: Execute, now: float) -> None:
    """Delete answers that are older than a day, and those of a clock that was set back since."""
    kept = (now - KEPT_S, now + KEPT_S)
    execute("DELETE FROM keys WHERE created < ? OR created > ?", kept)
