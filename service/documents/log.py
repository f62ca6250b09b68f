"""The log of live documents: durable, in one order, one SQLite file for all workers of a machine.

An operation is acknowledged when the commit that holds it was synced (WAL, synchronous=FULL). Of each document only the
newest operation is kept, a deletion too, so the file grows with the ids that were ever written, not with the writes;
whoever replays what is left arrives at the same documents. Sequence numbers only ever rise and are never given twice.

A bundle says up to which number of which log it holds all operations (``log_position`` of its manifest). Operations
that every bundle of a collection holds may be removed; how far that went is noted, so that a bundle without them is
not mistaken for one that has them.
"""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fullrank.errors import FullrankError
from service.documents import idempotency

SCHEMA = 1
FILE = "documents.sqlite"

# Another worker's commit is waited for so long; it holds the lock for one sync.
_BUSY_S = 5.0
# Pages (of 4 KiB) of the write-ahead log before it is copied into the file, and what it is cut to then.
_CHECKPOINT_PAGES, _WAL_BYTES = 4096, 64 << 20
# Below this the disk counts as full whatever an error says.
_ROOM_BYTES = 1 << 20
# How old what each collection holds beyond a bundle may be when a write is held against the caps.
_COUNT_S = 1.0
# Operations removed in one transaction: writers wait for no longer.
_REMOVED_AT_ONCE = 5_000

_TABLES = f"""
CREATE TABLE operations (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    collection TEXT NOT NULL,
    id TEXT NOT NULL,
    fields BLOB,
    bytes INTEGER NOT NULL,
    created REAL NOT NULL,
    UNIQUE (collection, id)
);
CREATE INDEX operations_in_order ON operations (collection, seq, bytes);
CREATE TABLE removed (collection TEXT PRIMARY KEY, seq INTEGER NOT NULL);
CREATE TABLE log (id TEXT NOT NULL);
{idempotency.TABLE}
"""


class LogError(FullrankError):
    """The log cannot be read or written; the message says why."""


class LogFull(LogError):
    """The disk has no room for what was written; nothing of it was kept."""


class TooManyLive(LogError):
    """More documents would wait for compaction than a worker may hold."""


class Logged(NamedTuple):
    """One operation as it is kept; fields is a JSON object, None for a deletion."""

    seq: int
    id: str
    fields: bytes | None


class Write(NamedTuple):
    """A document to write (fields is a JSON object) or to delete (None)."""

    id: str
    fields: bytes | None


@dataclass(frozen=True, slots=True)
class Submission:
    """The writes of one request: all of them are kept, or none. Without writes: only asked for what the key kept.

    render  the answer, given the number of the first write; the others follow without a gap
    key     with digest: an answer already kept under this key for the same digest is given again
    after   the number up to which a loaded bundle itself holds everything: what comes later counts against the caps
    """

    collection: str
    writes: Sequence[Write]
    render: Callable[[int], bytes]
    key: str | None = None
    digest: bytes = b""
    after: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """A submission that was kept: its answer and its last number; again: it had been kept before."""

    answer: bytes
    seq: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Caps:
    """What may wait for compaction in one collection."""

    documents: int = 100_000
    bytes: int = 512 << 20


Outcome = Kept | LogError | idempotency.KeyReused


class Log:
    """One connection, for one thread. Every method raises LogError where the file refuses."""

    def __init__(self, path: Path) -> None:
        """Open the log, made first where there is none."""
        self.path = path
        self._counts: dict[str, tuple[float, int, int, int]] = {}
        self._next_expiry = 0.0
        with _explained(path):
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
            try:
                self.id = self._ready()
            except BaseException:
                self._db.close()
                raise

    @classmethod
    def existing(cls, path: Path) -> Log | None:
        """The log, or None where nothing was ever written: to read needs no file."""
        try:
            if path.stat().st_size == 0:
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LogError(f"{path}: {error.strerror}") from error
        return cls(path)

    def close(self) -> None:
        """Let the file go."""
        self._db.close()

    def _ready(self) -> str:
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        self._db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        version = self._version()
        if version == 0:
            self._make()
            version = self._version()
        if version != SCHEMA:
            raise LogError(f"{self.path}: schema {version}, this release reads {SCHEMA}")
        return str(self._db.execute("SELECT id FROM log").fetchone()[0])

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _make(self) -> None:
        # Two workers may both find no file: the mode is set under a lock that nobody waits for by itself.
        end = time.monotonic() + _BUSY_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > end:
                    raise
                time.sleep(0.01)
        with self._transaction():
            if self._version() == 0:
                for statement in _TABLES.split(";"):
                    self._db.execute(statement)
                self._db.execute("INSERT INTO log VALUES (?)", (secrets.token_hex(16),))
                self._db.execute(f"PRAGMA user_version = {SCHEMA}")

    # -- writing ------------------------------------------------------------------------------

    def commit(self, submissions: Sequence[Submission], caps: Caps) -> list[Outcome]:
        """All submissions in one synced transaction; for each what became of it.

        One that is refused (caps, a key of another request) leaves the others alone. Raises LogError
        when nothing could be kept.
        """
        now = time.time()
        with _explained(self.path), self._transaction():
            if time.monotonic() >= self._next_expiry:
                idempotency.expire(self._db, now)
                self._next_expiry = time.monotonic() + 60
            return [self._keep(submission, caps, now) for submission in submissions]

    def _keep(self, submission: Submission, caps: Caps, now: float) -> Outcome:
        if submission.key is not None:
            try:
                found = idempotency.find(self._db, submission.key, submission.digest)
            except idempotency.KeyReused as error:
                return error
            if found is not None:
                return Kept(*found, again=True)
        if not submission.writes:
            return Kept(b"", self._head())
        try:
            self._check_room(submission, caps)
        except TooManyLive as error:
            return error
        first = self._head() + 1
        collection = submission.collection
        self._db.executemany(
            "INSERT OR REPLACE INTO operations VALUES (?, ?, ?, ?, ?, ?)",
            (
                (seq, collection, w.id, w.fields, _bytes(w), now)
                for seq, w in enumerate(submission.writes, first)
            ),
        )
        answer, last = submission.render(first), first + len(submission.writes) - 1
        if submission.key is not None:
            idempotency.keep(self._db, submission.key, submission.digest, answer, last, now)
        return Kept(answer, last)

    def _check_room(self, submission: Submission, caps: Caps) -> None:
        """Raises TooManyLive. What other workers wrote is counted again every second, so caps are kept loosely."""
        name, after = submission.collection, submission.after
        counted, since, count, size = self._counts.get(name, (0.0, -1, 0, 0))
        if since != after or time.monotonic() - counted > _COUNT_S:
            counted, (count, size) = time.monotonic(), self._count(name, after)
        count += len(submission.writes)
        size += sum(map(_bytes, submission.writes))
        if count > caps.documents or size > caps.bytes:
            # What replaces others was counted beside them.
            count, size = self._count(name, after)
            for id, write in {write.id: write for write in submission.writes}.items():
                old = self._db.execute(
                    "SELECT bytes FROM operations WHERE collection = ? AND id = ? AND seq > ?",
                    (name, id, after),
                ).fetchone()
                count += old is None
                size += _bytes(write) - (0 if old is None else old[0])
        if count > caps.documents or size > caps.bytes:
            raise TooManyLive(
                f"{name} holds as many live documents as it may ({caps.documents} operations,"
                f" {caps.bytes >> 20} MB): compact it"
            )
        self._counts[name] = counted, after, count, size

    def _count(self, collection: str, after: int) -> tuple[int, int]:
        """Operations beyond a number, and their bytes."""
        count, size = self._db.execute(
            "SELECT count(*), coalesce(sum(bytes), 0) FROM operations WHERE collection = ? AND seq > ?",
            (collection, after),
        ).fetchone()
        return count, size

    # -- reading ------------------------------------------------------------------------------

    def head(self) -> int:
        """The last number given; 0 where nothing was written."""
        with _explained(self.path):
            return self._head()

    def _head(self) -> int:
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'operations'")
        return int((row.fetchone() or (0,))[0])

    def after(self, collection: str, seq: int, limit: int) -> tuple[list[Logged], int]:
        """The next operations on a collection, oldest first, and the number up to which they are all there are."""
        with self.snapshot():
            head = self._head()
            if head <= seq:
                return [], seq
            found = [
                Logged(*row)
                for row in self._db.execute(
                    "SELECT seq, id, fields FROM operations "
                    "WHERE collection = ? AND seq > ? ORDER BY seq LIMIT ?",
                    (collection, seq, limit),
                )
            ]
            return found, found[-1].seq if len(found) == limit else head

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Whatever is read meanwhile is of one moment; writers go on."""
        if self._db.in_transaction:
            yield
            return
        with _explained(self.path), self._transaction("DEFERRED"):
            yield

    def removed(self, collection: str) -> int:
        """Operations up to this number were removed: only bundles have them. 0 where none were."""
        with _explained(self.path):
            row = self._db.execute("SELECT seq FROM removed WHERE collection = ?", (collection,))
            return int((row.fetchone() or (0,))[0])

    # -- removing -----------------------------------------------------------------------------

    def skip(self, collection: str, seq: int) -> None:
        """Never give a number up to this one: a bundle holds operations of this log that the file lacks.

        So it is where an older copy of the file was put back. They are noted as removed.
        """
        with _explained(self.path), self._transaction():
            if self._head() < seq:
                self._db.execute("DELETE FROM sqlite_sequence WHERE name = 'operations'")
                self._db.execute("INSERT INTO sqlite_sequence VALUES ('operations', ?)", (seq,))
                self._note_removed(collection, seq)

    def remove(self, collection: str, seq: int, min_age_s: float) -> int:
        """Remove the operations up to a number, which every bundle of the collection holds; how many went.

        min_age_s  leaves alone what is younger, and all that comes after it: workers may not have read it yet
        """
        with _explained(self.path):
            [young] = self._db.execute(
                "SELECT min(seq) FROM operations WHERE collection = ? AND seq <= ? AND created > ?",
                (collection, seq, time.time() - min_age_s),
            ).fetchone()
            last = seq if young is None else young - 1
            gone = 0
            while True:
                with self._transaction():
                    cursor = self._db.execute(
                        "DELETE FROM operations WHERE seq IN (SELECT seq FROM operations "
                        "WHERE collection = ? AND seq <= ? ORDER BY seq LIMIT ?)",
                        (collection, last, _REMOVED_AT_ONCE),
                    )
                    if cursor.rowcount == 0:
                        return gone
                    self._note_removed(collection, last)
                    gone += cursor.rowcount

    def _note_removed(self, collection: str, seq: int) -> None:
        self._db.execute(
            "INSERT INTO removed VALUES (?, ?) ON CONFLICT (collection) "
            "DO UPDATE SET seq = max(seq, excluded.seq)",
            (collection, seq),
        )

    # -- transactions -------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        self._db.execute(f"BEGIN {kind}")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # Counted with what is now not there.
            self._counts.clear()
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def _bytes(write: Write) -> int:
    return len(write.id) + len(write.fields or b"")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _reason(path, error) from error


def _reason(path: Path, error: sqlite3.Error) -> LogError:
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    if name == "SQLITE_FULL" or (name.startswith("SQLITE_IOERR") and not _has_room(path)):
        return LogFull(f"{path}: {os.strerror(errno.ENOSPC)}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return LogError(f"{path}: another process holds it")
    return LogError(f"{path}: {error} ({name})")


def _has_room(path: Path) -> bool:
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return True
    return found.f_bavail * found.f_frsize > _ROOM_BYTES
