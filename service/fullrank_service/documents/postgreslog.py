"""The log in PostgreSQL, for the machines of a fleet: its schema ``fullrank``, whose table ``log`` has one row.

That row holds the last sequence number, and every commit locks it. A sequence of the database would give numbers
before their transactions commit: of two writers the one with the larger number may commit first, and a reader that has
seen it would never look for the smaller one. The transaction that holds the row has the largest number, until the
commit makes it visible. A commit that fails gives its numbers back, so there is no gap either.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from fullrank.partitions import partition_of
from fullrank_service.documents.log import Log, LogError, LogFull, Rows, Write, bytes_of, key_table

SCHEMA = 1

# Give up after seconds if the server cannot be reached or is gone; the defaults of the system take minutes. In seconds,
# tcp_user_timeout in milliseconds.
_CONNECTION: dict[str, Any] = {
    "connect_timeout": 5,
    "tcp_user_timeout": 5_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "application_name": "fullrank",
}
_SESSION = """
SET search_path = fullrank;
SET client_encoding = 'UTF8';
SET lock_timeout = '5s';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
"""
# A writer that freezes with the lock would stop all others.
_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL idle_in_transaction_session_timeout = '5s';
"""
# Of all locks of a database, the one for making the tables; any number that nobody else uses.
_MAKING = 0x66756C6C72616E6B
_TABLES = f"""
CREATE SCHEMA IF NOT EXISTS fullrank;
CREATE TABLE operations (
    seq BIGINT PRIMARY KEY,
    collection TEXT NOT NULL,
    partition SMALLINT NOT NULL,
    id TEXT NOT NULL,
    fields BYTEA,
    bytes INTEGER NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    UNIQUE (collection, id)
);
CREATE INDEX operations_in_order ON operations (collection, seq, partition) INCLUDE (bytes);
CREATE TABLE removed (collection TEXT PRIMARY KEY, seq BIGINT NOT NULL);
CREATE TABLE log (id TEXT NOT NULL, schema INTEGER NOT NULL, head BIGINT NOT NULL) WITH (fillfactor = 10);
{key_table("BYTEA", "DOUBLE PRECISION")};
"""


class PostgresLog(Log):
    """The log in a database; see ``Log``. Only operations of some partitions are read; None: of all."""

    def __init__(self, address: str, partitions: range | None = None) -> None:
        super().__init__()
        self._partitions = partitions
        self._name = name_of(address)
        self._connection = self._connect(address)
        try:
            with self._errors():
                self.id = self._prepare()
        except BaseException:
            self.close()
            raise

    @classmethod
    def existing(cls, address: str, partitions: range | None = None) -> PostgresLog | None:
        """Open the log if there is one. Return None where nothing was ever written."""
        try:
            return _Existing(address, partitions)
        except _Missing:
            return None

    def close(self) -> None:
        self._connection.close()

    def check_in_place(self) -> None:
        """Nothing to check: what reads the last number names the id of this log."""

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.DiskFull as error:
            raise LogFull(f"{self._name}: {_line(error)}") from error
        except psycopg.Error as error:
            raise LogError(f"{self._name}: {_line(error)}") from error

    def _execute(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        return self._connection.execute(sql.replace("?", "%s").encode(), parameters)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._transaction(_BEGIN):
            # The order of this lock is the order of the commits.
            self._read_head("FOR UPDATE")
            yield

    def _reading(self) -> AbstractContextManager[None]:
        return self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._connection.execute(begin.encode())
        try:
            yield
            self._connection.execute(b"COMMIT")
        finally:
            if self._in_transaction:
                # A connection that is lost has rolled back.
                with suppress(psycopg.Error):
                    self._connection.execute(b"ROLLBACK")

    @property
    def _in_transaction(self) -> bool:
        status = self._connection.info.transaction_status
        return status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def _head(self) -> int:
        return self._read_head()

    def _read_head(self, lock: str = "") -> int:
        found = self._execute(f"SELECT head FROM log WHERE id = ? {lock}", (self.id,)).fetchone()
        if found is None:
            raise LogError(f"{self._name}: another log has replaced it; restart the service")
        return int(found[0])

    def _raise_head(self, seq: int) -> None:
        self._execute("UPDATE log SET head = ?", (seq,))

    def _append(self, collection: str, first: int, writes: Sequence[Write], now: float) -> None:
        rows = [
            (seq, collection, partition_of(w.id), w.id, w.fields, bytes_of(w), now)
            for seq, w in enumerate(writes, first)
        ]
        with self._connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO operations VALUES (%s, %s, %s, %s, %s, %s, %s) "
                "ON CONFLICT (collection, id) DO UPDATE SET seq = excluded.seq, "
                "fields = excluded.fields, bytes = excluded.bytes, created = excluded.created",
                rows,
            )
        self._raise_head(first + len(rows) - 1)

    def _own(self) -> tuple[str, tuple[int, ...]]:
        own = self._partitions
        return (
            ("", ())
            if own is None
            else (" AND partition BETWEEN ? AND ?", (own.start, own.stop - 1))
        )

    # -- opening ------------------------------------------------------------------------------

    def _connect(self, address: str) -> psycopg.Connection[Any]:
        with self._errors():
            given = {**_CONNECTION, **conninfo_to_dict(address)}
            return psycopg.connect(make_conninfo(**given), autocommit=True)

    def _prepare(self) -> str:
        self._connection.execute(_SESSION.encode())
        if self._execute("SELECT current_setting('fsync')").fetchone()[0] != "on":
            raise LogError(f"{self._name}: runs with fsync = off, so it may lose what it commits")
        if not self._is_there():
            self._make()
        id, schema = self._execute("SELECT id, schema FROM log").fetchone()
        if schema != SCHEMA:
            raise LogError(f"{self._name}: has schema {schema}; this release reads schema {SCHEMA}")
        return str(id)

    def _is_there(self) -> bool:
        # to_regclass would answer from a cache, which does not see what another transaction has just made.
        found = self._execute(
            "SELECT 1 FROM pg_tables WHERE schemaname = 'fullrank' AND tablename = 'log'"
        )
        return found.fetchone() is not None

    def _make(self) -> None:
        with self._transaction(_BEGIN):
            self._execute("SELECT pg_advisory_xact_lock(?)", (_MAKING,))
            if not self._is_there():
                self._connection.execute(_TABLES.encode())
                row = (secrets.token_hex(16), SCHEMA)
                self._execute("INSERT INTO log VALUES (?, ?, 0)", row)


class _Missing(Exception):
    """The database has no log."""


class _Existing(PostgresLog):
    """A log that must not be made."""

    def _make(self) -> None:
        raise _Missing


def name_of(address: str) -> str:
    """Return an address without user and password, for messages. Raises LogError."""
    try:
        given = conninfo_to_dict(address)
    except psycopg.Error:
        # The reason stays out of the message, because it may quote the password.
        raise LogError("the address of the log is not one of PostgreSQL") from None
    return f"PostgreSQL {given.get('host', 'localhost')}/{given.get('dbname', '')}"


def _line(error: psycopg.Error) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
