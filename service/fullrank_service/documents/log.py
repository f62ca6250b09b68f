"""The log of live documents: durable and totally ordered, in a database that all workers share.

An operation is acknowledged after the commit that contains it was synced. The log keeps only the newest operation on
each document, deletions included, so it grows with the number of ids, not of writes; replaying it gives the same
documents. Sequence numbers only rise, are never reused, and become visible in their order.

The manifest of a bundle (``log_position``) says up to which number of which log the bundle contains all operations.
Operations that every bundle of a collection contains may be removed. The log records the last one removed, so that it
recognises a bundle that lacks them.

This class has what all databases share, in SQL that they all read; ``sqlitelog`` and ``postgreslog`` have the rest.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fullrank.errors import FullrankError

# Idempotency keys: a request that is sent twice is stored once and gets the same answer.

KEYS_KEPT_S = 24 * 3600

Execute = Callable[..., Any]
"""Runs a statement with its parameters in the transaction of a log."""


def key_table(binary: str, time: str) -> str:
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


def request_digest(*parts: bytes) -> bytes:
    """Hash what identifies a request; each part is hashed with its length."""
    hashed = hashlib.blake2b(digest_size=32)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return hashed.digest()


def find_answer(execute: Execute, key: str, wanted: bytes) -> tuple[bytes, int] | None:
    """Return the answer stored under a key and its last sequence number. Raises KeyReused if the digest differs."""
    row = execute("SELECT digest, answer, seq FROM keys WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    if row[0] != wanted:
        raise KeyReused
    return zlib.decompress(row[1]), row[2]


def keep_answer(
    execute: Execute, key: str, digest: bytes, answer: bytes, seq: int, now: float
) -> None:
    packed = zlib.compress(answer, 1)
    execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?)", (key, digest, packed, seq, now))


def expire_answers(execute: Execute, now: float) -> None:
    """Delete answers that are older than a day, and those of a clock that was set back since."""
    kept = (now - KEYS_KEPT_S, now + KEYS_KEPT_S)
    execute("DELETE FROM keys WHERE created < ? OR created > ?", kept)


# Why the log of live documents cannot be read or written.


# With less free space than this an I/O error counts as a full disk.
_ROOM_BYTES = 1 << 20


class LogError(FullrankError):
    """The log cannot be read or written; the message says why."""


class LogFull(LogError):
    """The disk is full; nothing was written."""


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Raise what SQLite raises inside this context as a LogError that names the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise _reason(path, error) from error


def _reason(path: Path, error: sqlite3.Error) -> LogError:
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    if name == "SQLITE_FULL" or (name.startswith("SQLITE_IOERR") and not _has_free_space(path)):
        return LogFull(f"{path}: {os.strerror(errno.ENOSPC)}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return LogError(f"{path}: another process has locked it")
    return LogError(f"{path}: {error} ({name})")


def _has_free_space(path: Path) -> bool:
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return True
    return found.f_bavail * found.f_frsize > _ROOM_BYTES


# The types of a request to the log and of its result.


class Logged(NamedTuple):
    """One stored operation; fields is a JSON object, None for a deletion."""

    seq: int
    id: str
    fields: bytes | None


class Held(NamedTuple):
    """A document of the log and the bytes that it counts against the cap."""

    seq: int
    bytes: int
    collection: str
    id: str


class Write(NamedTuple):
    """A document to write (fields is a JSON object) or to delete (None); memory: bytes in a worker, estimated."""

    id: str
    fields: bytes | None
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Submission:
    """The writes of one request: all of them are stored, or none. Without writes it only looks up its key.

    render       returns the answer, given the number of the first write; the others follow without a gap
    key, digest  if the log has an answer under this key for the same digest, that answer is returned again
    unchanged_since  store nothing if the document of the only write was written after this operation
    seen         this worker has read the log up to this number; a log that ends before has lost operations
    after        the loaded bundle contains all operations up to this number; later ones count against the caps
    """

    collection: str
    writes: Sequence[Write]
    render: Callable[[int], bytes]
    key: str | None = None
    digest: bytes = b""
    after: int = 0
    unchanged_since: int | None = None
    seen: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """A stored submission: its answer and its last number; again: it was stored by an earlier request."""

    answer: bytes
    seq: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Caps:
    """How much may wait for compaction in one collection."""

    documents: int = 100_000
    bytes: int = 512 << 20


# How long a count of the operations beyond a bundle is used for checking the caps.
_COUNT_S = 1.0
# Operations are read up to this many bytes of `bytes_of` at once, so that a step of a reader takes little memory.
_READ_BYTES = 8 << 20
# Operations removed in one transaction, which is as long as a writer may have to wait.
_REMOVED_AT_ONCE = 5_000
# Expired answers are removed after so many seconds.
_EXPIRY_S = 60.0


class TooManyLive(LogError):
    """More live documents would wait for compaction than the caps allow."""


class Changed(LogError):
    """A document was written meanwhile, by the operation `seq`; nothing was stored."""

    def __init__(self, id: str, seq: int) -> None:
        super().__init__(f"{id} was written meanwhile")
        self.seq = seq


Outcome = Kept | LogError | KeyReused


class Rows(Protocol):
    """What a statement has found or done: a cursor of any driver."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


class Log(ABC):
    """One connection to a log, for one thread. Every method raises LogError if the database refuses."""

    id: str

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, int, int, int]] = {}
        self._next_expiry = 0.0

    # -- what each database does in its own way -----------------------------------------------

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def check_in_place(self) -> None:
        """Raise LogError if another log, or none, is in the place of this one."""

    @abstractmethod
    def _errors(self) -> AbstractContextManager[None]:
        """Raise errors of the driver inside this context as LogError."""

    @abstractmethod
    def _execute(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        """Run a statement; ``?`` stands for each parameter."""

    @abstractmethod
    def _changing(self) -> AbstractContextManager[None]:
        """Return a transaction that may write, after all others that may."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[None]:
        """Return a transaction that reads one consistent state and blocks no writer."""

    @property
    @abstractmethod
    def _in_transaction(self) -> bool:
        """Whether a transaction is open."""

    @abstractmethod
    def _head(self) -> int:
        """Return the last sequence number; 0 where nothing was written."""

    @abstractmethod
    def _raise_head(self, seq: int) -> None:
        """Never use a number up to this one."""

    @abstractmethod
    def _append(self, collection: str, first: int, writes: Sequence[Write], now: float) -> None:
        """Store operations from a number on, each in place of an earlier one on its document."""

    def _own(self) -> tuple[str, tuple[int, ...]]:
        """Return the condition of the operations that this connection reads, and its parameters."""
        return "", ()

    # -- writing ------------------------------------------------------------------------------

    def commit(self, submissions: Sequence[Submission], caps: Caps) -> list[Outcome]:
        """Write all submissions in one synced transaction and return the outcome of each.

        A submission that is refused (caps, a reused key) does not affect the others. After a LogError nothing was
        stored, or what stores it was removed.
        """
        now = time.time()
        # Before: a view that still follows a removed log must not show writes that are refused.
        self.check_in_place()
        with self._errors(), self._all_or_nothing():
            if time.monotonic() >= self._next_expiry:
                expire_answers(self._execute, now)
                self._next_expiry = time.monotonic() + _EXPIRY_S
            outcomes = [self._store(submission, caps, now) for submission in submissions]
        # And after: only now is it certain that what was synced was in place.
        self.check_in_place()
        return outcomes

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        try:
            with self._changing():
                yield
        except BaseException:
            # The counts include the writes that were rolled back.
            self._counts.clear()
            raise

    def _store(self, submission: Submission, caps: Caps, now: float) -> Outcome:
        if submission.key is not None:
            try:
                found = find_answer(self._execute, submission.key, submission.digest)
            except KeyReused as error:
                return error
            if found is not None:
                return Kept(*found, again=True)
        if not submission.writes:
            return Kept(b"", self._head())
        if self._head() < submission.seen:
            # Its numbers would be given again, to operations that views which have read further would skip.
            return LogError("the log has lost operations that it had; restart the service")
        if submission.unchanged_since is not None:
            changed = self._written_after(submission, submission.unchanged_since)
            if changed is not None:
                return changed
        try:
            self._check_room(submission, caps)
        except TooManyLive as error:
            return error
        first = self._head() + 1
        self._append(submission.collection, first, submission.writes, now)
        answer, last = submission.render(first), first + len(submission.writes) - 1
        if submission.key is not None:
            keep_answer(self._execute, submission.key, submission.digest, answer, last, now)
        return Kept(answer, last)

    def _written_after(self, submission: Submission, seq: int) -> Changed | None:
        [write] = submission.writes
        row = self._execute(
            "SELECT seq FROM operations WHERE collection = ? AND id = ? AND seq > ?",
            (submission.collection, write.id, seq),
        ).fetchone()
        return None if row is None else Changed(write.id, row[0])

    def _check_room(self, submission: Submission, caps: Caps) -> None:
        """Raise TooManyLive above the caps. They are not exact: other workers' writes are counted once a second."""
        name, after = submission.collection, submission.after
        counted, since, count, size = self._counts.get(name, (0.0, -1, 0, 0))
        if since != after or time.monotonic() - counted > _COUNT_S:
            counted, (count, size) = time.monotonic(), self.count(name, after)
        count += len(submission.writes)
        size += sum(map(bytes_of, submission.writes))
        if count > caps.documents or size > caps.bytes:
            # Count again without the operations that these writes replace.
            count, size = self.count(name, after)
            for id, write in {write.id: write for write in submission.writes}.items():
                old = self._execute(
                    "SELECT bytes FROM operations WHERE collection = ? AND id = ? AND seq > ?",
                    (name, id, after),
                ).fetchone()
                count += old is None
                size += bytes_of(write) - (0 if old is None else old[0])
        if count > caps.documents or size > caps.bytes:
            raise TooManyLive(
                f"{name} has as many live documents as it may have ({caps.documents} operations,"
                f" {caps.bytes >> 20} MB in memory): compact it"
            )
        self._counts[name] = counted, after, count, size

    def count(self, collection: str, after: int) -> tuple[int, int]:
        """Return the number of operations beyond a sequence number, and their bytes."""
        count, size = self._execute(
            "SELECT count(*), coalesce(sum(bytes), 0) FROM operations WHERE collection = ? AND seq > ?",
            (collection, after),
        ).fetchone()
        return int(count), int(size)

    def delete(self, collection: str, id: str) -> int:
        """Delete a document of the log, whatever the caps are; return the number of the operation."""
        with self._errors(), self._changing():
            if self.find(collection, id) is None:
                raise LogError(f"{id!r}: the log has no such document of {collection}")
            seq = self._head() + 1
            self._append(collection, seq, [Write(id, None)], time.time())
            return seq

    # -- reading ------------------------------------------------------------------------------

    def head(self) -> int:
        """Return the last sequence number; 0 where nothing was written."""
        with self._errors():
            return self._head()

    def after(self, collection: str, seq: int, limit: int) -> tuple[list[Logged], int]:
        """Return the next operations, at most 8 MB or one, and the number up to which there are no others."""
        with self.snapshot():
            head = self._head()
            if head <= seq:
                return [], seq
            own, parameters = self._own()
            beyond = f"FROM operations WHERE collection = ? AND seq > ?{own} ORDER BY seq LIMIT ?"
            sizes = [
                *self._execute(f"SELECT bytes {beyond}", (collection, seq, *parameters, limit))
            ]
            totals = accumulate(size for (size,) in sizes)
            count = max(1, sum(total <= _READ_BYTES for total in totals))
            rows = self._execute(
                f"SELECT seq, id, fields {beyond}", (collection, seq, *parameters, count)
            )
            found = [Logged(*row) for row in rows]
            is_all = len(found) == len(sizes) < limit
            return found, head if is_all else found[-1].seq

    def find(self, collection: str, id: str) -> bytes | None:
        """Return the fields of a document; None if it is deleted or the log does not have it."""
        with self._errors():
            row = self._execute(
                "SELECT fields FROM operations WHERE collection = ? AND id = ?", (collection, id)
            ).fetchone()
            return None if row is None else row[0]

    def largest(self, limit: int) -> list[Held]:
        """Return the documents that take most memory, the largest first."""
        with self._errors():
            rows = self._execute(
                "SELECT seq, bytes, collection, id FROM operations "
                "WHERE fields IS NOT NULL AND substr(collection, 1, 1) <> '.' "  # no rules
                "ORDER BY bytes DESC, seq LIMIT ?",
                (limit,),
            )
            return [Held(*row) for row in rows]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one consistent state inside this context; writers are not blocked."""
        if self._in_transaction:
            yield
            return
        with self._errors(), self._reading():
            yield

    def removed(self, collection: str) -> int:
        """Return the number up to which operations were removed and only bundles contain them; 0 for none."""
        with self._errors():
            row = self._execute("SELECT seq FROM removed WHERE collection = ?", (collection,))
            return int((row.fetchone() or (0,))[0])

    # -- removing -----------------------------------------------------------------------------

    def skip(self, collection: str, seq: int) -> None:
        """Never use a number up to this one, and note those operations as removed.

        Needed where an older copy of the log was restored: a bundle contains operations that the log lacks.
        """
        with self._errors(), self._changing():
            if self._head() < seq:
                self._raise_head(seq)
                self._note_removed(collection, seq)

    def remove(self, collection: str, seq: int, min_age_s: float) -> int:
        """Remove the operations up to a number, which every bundle of the collection contains; return how many.

        Operations younger than ``min_age_s`` stay, and all later ones: workers may not have read them yet. Those
        further ahead were written before the clock was set back, and are old.
        """
        now = time.time()
        with self._errors():
            [young] = self._execute(
                "SELECT min(seq) FROM operations WHERE collection = ? AND seq <= ? "
                "AND created > ? AND created < ?",
                (collection, seq, now - min_age_s, now + min_age_s),
            ).fetchone()
            last = seq if young is None else young - 1
            removed = 0
            while True:
                with self._changing():
                    gone = self._execute(
                        "DELETE FROM operations WHERE seq IN (SELECT seq FROM operations "
                        "WHERE collection = ? AND seq <= ? ORDER BY seq LIMIT ?)",
                        (collection, last, _REMOVED_AT_ONCE),
                    ).rowcount
                    if gone == 0:
                        return removed
                    self._note_removed(collection, last)
                    removed += gone

    def _note_removed(self, collection: str, seq: int) -> None:
        self._execute(
            "INSERT INTO removed VALUES (?, ?) ON CONFLICT (collection) "
            "DO UPDATE SET seq = excluded.seq WHERE excluded.seq > removed.seq",
            (collection, seq),
        )


def bytes_of(write: Write) -> int:
    """Return how much a write counts against the cap: the memory that it takes in a worker, estimated."""
    return len(write.id) + len(write.fields or b"") + write.memory
