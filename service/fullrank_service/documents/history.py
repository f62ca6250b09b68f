"""Operations that newer ones have replaced, for readers that go on at an earlier number.

A trigger stores an operation when a newer one takes its place, so also for writes of a release that does not know this
table.

The table is bounded: the newest ``KEPT`` operations of each collection stay, of at most ``KEPT_BYTES``, for ``KEPT_S``
seconds. The log records for each collection up to which number it has removed any, and has no state before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

KEPT = 10_000
KEPT_BYTES = 64 << 20
KEPT_S = 3600.0

Execute = Callable[..., Any]
"""Runs a statement with its parameters in the transaction of a log."""


def tables(integer: str, binary: str, time: str, *, more: str = "") -> Sequence[str]:
    """Return the statements that make the tables, given a database's types.

    Args:
        integer, binary, time: Types of numbers, of bytes and of times.
        more: Further columns.
    """
    return (
        f"CREATE TABLE replaced (replaced_by {integer} PRIMARY KEY, collection TEXT NOT NULL, "
        f"seq {integer} NOT NULL, id TEXT NOT NULL, fields {binary}, bytes INTEGER NOT NULL, "
        f"replaced_at {time} NOT NULL{more})",
        "CREATE INDEX replaced_in_order ON replaced (collection, replaced_by, bytes, replaced_at)",
        f"CREATE TABLE forgotten (collection TEXT PRIMARY KEY, seq {integer} NOT NULL)",
        # What was replaced before there was this table is not in it.
        "INSERT INTO forgotten SELECT collection, max(seq) FROM operations GROUP BY collection",
    )


def forgotten(execute: Execute, collection: str) -> int:
    """Return the number up to which replaced operations were removed; 0 for none."""
    row = execute("SELECT seq FROM forgotten WHERE collection = ?", (collection,)).fetchone()
    return 0 if row is None else int(row[0])


def trim(execute: Execute, now: float) -> None:
    """Remove what is beyond the bounds; times far ahead are those of a clock that was set back."""
    is_old = "replaced_at < ? OR replaced_at > ?"
    sizes = execute(
        f"SELECT collection, count(*), sum(bytes), max(CASE WHEN {is_old} THEN replaced_by END) "
        "FROM replaced GROUP BY collection",
        (now - KEPT_S, now + KEPT_S),
    )
    for collection, count, size, old in list(sizes):
        last = old or 0
        if count > KEPT:
            last = max(last, _first_beyond_count(execute, collection))
        if size > KEPT_BYTES:
            last = max(last, _first_beyond_bytes(execute, collection))
        if last:
            execute(
                "DELETE FROM replaced WHERE collection = ? AND replaced_by <= ?", (collection, last)
            )
            execute(
                "INSERT INTO forgotten VALUES (?, ?) "
                "ON CONFLICT (collection) DO UPDATE SET seq = excluded.seq",
                (collection, last),
            )


def _first_beyond_count(execute: Execute, collection: str) -> int:
    sql = "SELECT replaced_by FROM replaced WHERE collection = ? ORDER BY replaced_by DESC LIMIT 1 OFFSET ?"
    return int(execute(sql, (collection, KEPT)).fetchone()[0])


def _first_beyond_bytes(execute: Execute, collection: str) -> int:
    newest = "(ORDER BY replaced_by DESC ROWS UNBOUNDED PRECEDING)"
    sql = (
        f"SELECT max(replaced_by) FROM (SELECT replaced_by, sum(bytes) OVER {newest} AS size "
        "FROM replaced WHERE collection = ?) AS sizes WHERE size > ?"
    )
    return int(execute(sql, (collection, KEPT_BYTES)).fetchone()[0])
