"""The log of live documents: durable, totally ordered, one SQLite file for all workers of a machine.

An operation is acknowledged after the commit that contains it was synced (WAL, synchronous=FULL). The log keeps only
the newest operation on each document, deletions included, so the file grows with the number of ids, not of writes;
replaying it gives the same documents. Sequence numbers only rise and are never reused.

The manifest of a bundle (``log_position``) says up to which number of which log the bundle contains all operations.
Operations that every bundle of a collection contains may be removed. The log records the last one removed, so that it
recognises a bundle that lacks them.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from service.documents import idempotency
from service.documents.logerrors import LogError, sqlite_errors
from service.documents.submission import Caps, Kept, Logged, Submission, Write

SCHEMA = 1
FILE = "documents.sqlite"

# Longest wait for the commit of another worker, which locks the file for one sync.
_BUSY_S = 5.0
# Pages (of 4 KiB) of the write-ahead log before SQLite copies it into the file, and the size it is then cut to.
_CHECKPOINT_PAGES, _WAL_BYTES = 4096, 64 << 20
# How long a count of the operations beyond a bundle is used for checking the caps.
_COUNT_S = 1.0
# Operations removed in one transaction, which is as long as a writer may have to wait.
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


class TooManyLive(LogError):
    """More live documents would wait for compaction than the caps allow."""


class Changed(LogError):
    """A document was written meanwhile, by the operation `seq`; nothing was stored."""

    def __init__(self, id: str, seq: int) -> None:
        super().__init__(f"{id} was written meanwhile")
        self.seq = seq


Outcome = Kept | LogError | idempotency.KeyReused


class Log:
    """One connection, for one thread. Every method raises LogError if SQLite refuses."""

    def __init__(self, path: Path) -> None:
        """Open the log; create it if it is missing."""
        self.path = path
        self._counts: dict[str, tuple[float, int, int, int]] = {}
        self._next_expiry = 0.0
        with sqlite_errors(path):
            self.connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
            try:
                self.id = self._prepare()
                # Reading the id has opened the write-ahead log too.
                self._files = {name: _identity(name) for name in (str(path), f"{path}-wal")}
            except BaseException:
                self.connection.close()
                raise

    @classmethod
    def existing(cls, path: Path) -> Log | None:
        """Open the log if there is one. Return None where nothing was ever written."""
        try:
            if path.stat().st_size == 0:
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LogError(f"{path}: {error.strerror}") from error
        return cls(path)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def check_in_place(self) -> None:
        """Raise LogError if the files that this connection writes are no longer the ones at the path.

        SQLite does not notice: it goes on writing to a deleted file, whose content is lost when it is closed.
        """
        if any(_identity(name) != identity for name, identity in self._files.items()):
            raise LogError(f"{self.path}: the file was removed or replaced; restart the service")

    def _prepare(self) -> str:
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        self.connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        version = self._version()
        if version == 0:
            self._make()
            version = self._version()
        if version != SCHEMA:
            raise LogError(f"{self.path}: has schema {version}; this release reads schema {SCHEMA}")
        return str(self.connection.execute("SELECT id FROM log").fetchone()[0])

    def _version(self) -> int:
        return int(self.connection.execute("PRAGMA user_version").fetchone()[0])

    def _make(self) -> None:
        # Two workers may create the file at once. SQLite does not wait for the lock under which the mode is set.
        end = time.monotonic() + _BUSY_S
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > end:
                    raise
                time.sleep(0.01)
        with self._transaction():
            if self._version() == 0:
                for statement in _TABLES.split(";"):
                    self.connection.execute(statement)
                self.connection.execute("INSERT INTO log VALUES (?)", (secrets.token_hex(16),))
                self.connection.execute(f"PRAGMA user_version = {SCHEMA}")

    # -- writing ------------------------------------------------------------------------------

    def commit(self, submissions: Sequence[Submission], caps: Caps) -> list[Outcome]:
        """Write all submissions in one synced transaction and return the outcome of each.

        A submission that is refused (caps, a reused key) does not affect the others.

        Raises:
            LogError: nothing was stored, or the file that stores it was removed.
        """
        now = time.time()
        # Before: a view that still follows a removed file must not show writes that are refused.
        self.check_in_place()
        with sqlite_errors(self.path), self._transaction():
            if time.monotonic() >= self._next_expiry:
                idempotency.expire(self.connection, now)
                self._next_expiry = time.monotonic() + 60
            outcomes = [self._store(submission, caps, now) for submission in submissions]
        # And after: only now is it certain that the synced file was at the path.
        self.check_in_place()
        return outcomes

    def _store(self, submission: Submission, caps: Caps, now: float) -> Outcome:
        if submission.key is not None:
            try:
                found = idempotency.find(self.connection, submission.key, submission.digest)
            except idempotency.KeyReused as error:
                return error
            if found is not None:
                return Kept(*found, again=True)
        if not submission.writes:
            return Kept(b"", self._head())
        if submission.unchanged_since is not None:
            changed = self._written_after(submission, submission.unchanged_since)
            if changed is not None:
                return changed
        try:
            self._check_room(submission, caps)
        except TooManyLive as error:
            return error
        first = self._head() + 1
        collection = submission.collection
        self.connection.executemany(
            "INSERT OR REPLACE INTO operations VALUES (?, ?, ?, ?, ?, ?)",
            (
                (seq, collection, w.id, w.fields, _bytes(w), now)
                for seq, w in enumerate(submission.writes, first)
            ),
        )
        answer, last = submission.render(first), first + len(submission.writes) - 1
        if submission.key is not None:
            idempotency.keep(self.connection, submission.key, submission.digest, answer, last, now)
        return Kept(answer, last)

    def _written_after(self, submission: Submission, seq: int) -> Changed | None:
        """Tell whether the document of the only write has an operation after a number."""
        [write] = submission.writes
        row = self.connection.execute(
            "SELECT seq FROM operations WHERE collection = ? AND id = ? AND seq > ?",
            (submission.collection, write.id, seq),
        ).fetchone()
        return None if row is None else Changed(write.id, row[0])

    def _check_room(self, submission: Submission, caps: Caps) -> None:
        """Raise TooManyLive above the caps. They are not exact: other workers' writes are counted once a second."""
        name, after = submission.collection, submission.after
        counted, since, count, size = self._counts.get(name, (0.0, -1, 0, 0))
        if since != after or time.monotonic() - counted > _COUNT_S:
            counted, (count, size) = time.monotonic(), self._count(name, after)
        count += len(submission.writes)
        size += sum(map(_bytes, submission.writes))
        if count > caps.documents or size > caps.bytes:
            # Count again without the operations that these writes replace.
            count, size = self._count(name, after)
            for id, write in {write.id: write for write in submission.writes}.items():
                old = self.connection.execute(
                    "SELECT bytes FROM operations WHERE collection = ? AND id = ? AND seq > ?",
                    (name, id, after),
                ).fetchone()
                count += old is None
                size += _bytes(write) - (0 if old is None else old[0])
        if count > caps.documents or size > caps.bytes:
            raise TooManyLive(
                f"{name} has as many live documents as it may have ({caps.documents} operations,"
                f" {caps.bytes >> 20} MB): compact it"
            )
        self._counts[name] = counted, after, count, size

    def _count(self, collection: str, after: int) -> tuple[int, int]:
        """Return the number of operations beyond a sequence number, and their bytes."""
        count, size = self.connection.execute(
            "SELECT count(*), coalesce(sum(bytes), 0) FROM operations WHERE collection = ? AND seq > ?",
            (collection, after),
        ).fetchone()
        return count, size

    # -- reading ------------------------------------------------------------------------------

    def head(self) -> int:
        """Return the last sequence number; 0 where nothing was written."""
        with sqlite_errors(self.path):
            return self._head()

    def _head(self) -> int:
        row = self.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'operations'")
        return int((row.fetchone() or (0,))[0])

    def after(self, collection: str, seq: int, limit: int) -> tuple[list[Logged], int]:
        """Read the next operations on a collection, oldest first, at most ``limit``.

        Returns:
            the operations, and the number up to which there are no others.
        """
        with self.snapshot():
            head = self._head()
            if head <= seq:
                return [], seq
            found = [
                Logged(*row)
                for row in self.connection.execute(
                    "SELECT seq, id, fields FROM operations "
                    "WHERE collection = ? AND seq > ? ORDER BY seq LIMIT ?",
                    (collection, seq, limit),
                )
            ]
            return found, found[-1].seq if len(found) == limit else head

    def written_after(self, collection: str, seq: int, most: int) -> list[str] | None:
        """Return the ids with an operation after a number; None for more than ``most``, or if some were removed."""
        with self.snapshot():
            found = [
                str(id)
                for (id,) in self.connection.execute(
                    "SELECT id FROM operations WHERE collection = ? AND seq > ? LIMIT ?",
                    (collection, seq, most + 1),
                )
            ]
            return None if len(found) > most or self.removed(collection) > seq else found

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one consistent state inside this context; writers are not blocked."""
        if self.connection.in_transaction:
            yield
            return
        with sqlite_errors(self.path), self._transaction("DEFERRED"):
            yield

    def removed(self, collection: str) -> int:
        """Return the number up to which operations were removed and only bundles contain them; 0 for none."""
        with sqlite_errors(self.path):
            row = self.connection.execute(
                "SELECT seq FROM removed WHERE collection = ?", (collection,)
            )
            return int((row.fetchone() or (0,))[0])

    # -- removing -----------------------------------------------------------------------------

    def skip(self, collection: str, seq: int) -> None:
        """Never use a number up to this one, and note those operations as removed.

        Needed where an older copy of the file was restored: a bundle contains operations that the file lacks.
        """
        with sqlite_errors(self.path), self._transaction():
            if self._head() < seq:
                self.connection.execute("DELETE FROM sqlite_sequence WHERE name = 'operations'")
                self.connection.execute(
                    "INSERT INTO sqlite_sequence VALUES ('operations', ?)", (seq,)
                )
                self._note_removed(collection, seq)

    def remove(self, collection: str, seq: int, min_age_s: float) -> int:
        """Remove the operations up to a number, which every bundle of the collection contains; return how many.

        Args:
            min_age_s: operations younger than this stay, and all later ones: workers may not have read them yet.
        """
        with sqlite_errors(self.path):
            [young] = self.connection.execute(
                "SELECT min(seq) FROM operations WHERE collection = ? AND seq <= ? AND created > ?",
                (collection, seq, time.time() - min_age_s),
            ).fetchone()
            last = seq if young is None else young - 1
            removed = 0
            while True:
                with self._transaction():
                    cursor = self.connection.execute(
                        "DELETE FROM operations WHERE seq IN (SELECT seq FROM operations "
                        "WHERE collection = ? AND seq <= ? ORDER BY seq LIMIT ?)",
                        (collection, last, _REMOVED_AT_ONCE),
                    )
                    if cursor.rowcount == 0:
                        return removed
                    self._note_removed(collection, last)
                    removed += cursor.rowcount

    def _note_removed(self, collection: str, seq: int) -> None:
        self.connection.execute(
            "INSERT INTO removed VALUES (?, ?) ON CONFLICT (collection) "
            "DO UPDATE SET seq = max(seq, excluded.seq)",
            (collection, seq),
        )

    # -- transactions -------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        self.connection.execute(f"BEGIN {kind}")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            # The counts include the writes that are rolled back.
            self._counts.clear()
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise


def _identity(name: str) -> tuple[int, int] | None:
    """Return device and inode of a file; None if it does not exist."""
    try:
        status = os.stat(name)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _bytes(write: Write) -> int:
    return len(write.id) + len(write.fields or b"")
