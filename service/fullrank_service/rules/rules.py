"""The rules of one worker: it writes changes to the file, and a thread reads those of all workers into memory.

The thread checks the file every few hundredths of a second, and at once after a change of this worker. It reads the
changes and replaces the index of the rules by one assignment, so a search sees the rules before a change or after it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from logging import getLogger
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson

from fullrank.errors import FullrankError
from fullrank.rules.rule import Rule, RuleError, RuleIndex, read_rule
from fullrank_service.base import errors
from fullrank_service.base.background import Failed, Repeater, uncounted
from fullrank_service.base.sqlite import connect, identity

# The file of rules: one SQLite file for all workers of a machine.
#
# A change is acknowledged after the commit that contains it was synced (synchronous=EXTRA, which syncs the folder
# too). Each read and each change opens the file anew: rules change rarely, and a connection that stays open would go
# on writing to a file that was replaced. Only SQLite opens the file: closing any other descriptor of it would drop
# the locks that a writer in the same process has (https://sqlite.org/howtocorrupt.html), and two workers would write
# at once.

FILE = "rules.sqlite"
MAX_RULES = 10_000
_SCHEMA = 1
_TABLE = """CREATE TABLE IF NOT EXISTS rules (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    collection TEXT NOT NULL,
    id TEXT NOT NULL,
    rule BLOB NOT NULL,
    UNIQUE (collection, id)
)"""


class RulesError(FullrankError):
    """The file of rules cannot be read or written; the message says why."""


class RulesFull(RulesError):
    """The disk is full; nothing was written."""


class TooManyRules(RulesError):
    """The collection has as many rules as it may have."""


class Stored(NamedTuple):
    """A rule in the file; `revision` rises with every change."""

    revision: int
    collection: str
    id: str
    rule: bytes


class RuleStore:
    """Reads and writes the file of rules, which need not exist; for any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, collection: str, id: str, rule: bytes) -> None:
        """Add or replace a rule; when this returns it survives a power cut. Raises TooManyRules, RulesError."""
        with self._changing() as file:
            [others] = file.execute(
                "SELECT count(*) FROM rules WHERE collection = ? AND id <> ?", (collection, id)
            ).fetchone()
            if others >= MAX_RULES:
                raise TooManyRules(f"{collection} has {MAX_RULES} rules; delete one first")
            file.execute(
                "INSERT OR REPLACE INTO rules (collection, id, rule) VALUES (?, ?, ?)",
                (collection, id, rule),
            )

    def delete(self, collection: str, id: str) -> None:
        """Delete a rule, if there is one. Raises RulesError if nothing was changed."""
        if self.path.exists():
            with self._changing() as file:
                file.execute("DELETE FROM rules WHERE collection = ? AND id = ?", (collection, id))

    def get(self, collection: str, id: str) -> bytes | None:
        """Return a rule; None if there is none with this id. Raises RulesError."""
        with self._reading() as file:
            query = "SELECT rule FROM rules WHERE collection = ? AND id = ?"
            found = file and file.execute(query, (collection, id)).fetchone()
            return found[0] if found else None

    def page(self, collection: str, after: str, limit: int) -> list[Stored]:
        """Return the rules of a collection by id, those after an id. Raises RulesError."""
        with self._reading() as file:
            if file is None:
                return []
            query = (
                "SELECT revision, collection, id, rule FROM rules "
                "WHERE collection = ? AND id > ? ORDER BY id LIMIT ?"
            )
            return [Stored(*row) for row in file.execute(query, (collection, after, limit))]

    def changes(self, revision: int) -> tuple[list[Stored], set[int]]:
        """Return the rules with a later revision, and the revisions of all rules. Raises RulesError."""
        with self._reading() as file:
            if file is None:
                return [], set()
            file.execute("BEGIN")  # both from one state of the file
            query = "SELECT revision, collection, id, rule FROM rules WHERE revision > ?"
            new = [Stored(*row) for row in file.execute(query, (revision,))]
            return new, {found for (found,) in file.execute("SELECT revision FROM rules")}

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """Open the file; None if it does not exist."""
        if not self.path.exists() or self.path.stat().st_size == 0:
            yield None
            return
        with _errors(self.path), closing(self._connect()) as file:
            yield file

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Change the file in one synced transaction; create it if it is missing."""
        with _errors(self.path), closing(self._connect()) as file:
            file.execute("PRAGMA synchronous = EXTRA")
            file.execute("BEGIN IMMEDIATE")
            file.execute(_TABLE)
            file.execute(f"PRAGMA user_version = {_SCHEMA}")
            yield file
            file.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        file = connect(self.path)
        try:
            [schema] = file.execute("PRAGMA user_version").fetchone()
        except BaseException:
            file.close()
            raise
        if schema not in (0, _SCHEMA):
            file.close()
            raise RulesError(
                f"{self.path}: has schema {schema}; this release reads schema {_SCHEMA}"
            )
        return file

    def watch(self) -> Watch:
        """Return a watch that finds out whether the file has changed."""
        return Watch(self.path, self._connect)


class Watch:
    """Finds out whether a file, which need not exist, has changed; for one thread at a time."""

    def __init__(self, path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        self._path, self._connect = path, connect
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._opened = 0

    def look(self) -> tuple[tuple[int, int] | None, tuple[int, int]]:
        """Return the identity of the file, None without one, and numbers that change with every commit."""
        file = identity(self._path)
        if file != self._file:
            self.close()
        if file is None:
            return None, (self._opened, 0)
        with _errors(self._path):
            if self._connection is None:
                self._connection, self._file = self._connect(), file
                self._opened += 1  # SQLite counts commits for each connection anew
            [commits] = self._connection.execute("PRAGMA data_version").fetchone()
        return file, (self._opened, commits)

    def close(self) -> None:
        """Close the file; the next look opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = self._file = None


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into RulesError."""
    try:
        yield
    except sqlite3.Error as error:
        kind = RulesFull if error.sqlite_errorname == "SQLITE_FULL" else RulesError
        raise kind(f"{path}: {error}") from error


_MAX_REST_S = 0.5
_log = getLogger(__name__)
Found = TypeVar("Found")


class Rules:
    """Rules for routes and searches. Failures are raised as problems of fullrank_service.base.errors."""

    def __init__(self, path: Path, *, poll_s: float = 0.05, failed: Failed = uncounted) -> None:
        self._store = RuleStore(path)
        self._watch = self._store.watch()
        self._indexes: Mapping[str, RuleIndex] = {}
        self._known: dict[int, tuple[str, Rule | None]] = {}
        self._last = 0
        self._file: tuple[int, int] | None = None
        self._version = (0, 0)
        self._thread = Repeater(
            "rules", self._follow, poll_s, rest=2, max_rest_s=_MAX_REST_S, ended=self._watch.close,
            failure="rules are not followed", failed=failed,
            expected=(RulesError, OSError),
        )  # fmt: skip

    def start(self) -> None:
        """Read the rules, then follow the file."""
        try:
            self._follow()
        except Exception as error:
            self._thread.log_failure(error)
        self._thread.start()

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.close)

    def matching(self, collection: str, query: str) -> Sequence[Rule]:
        """Return the rules that apply to a query now, by id."""
        index = self._indexes.get(collection)
        return () if index is None else index.matching(query, time.time())

    def ids(self, collection: str) -> set[str]:
        """Return the rules of a collection that searches of this worker see."""
        return {
            rule.id
            for name, rule in self._known.values()
            if rule is not None and name == collection
        }

    async def put(self, collection: str, id: str, rule: Mapping[str, Any]) -> None:
        """Add or replace a rule that was checked; when this returns it survives a power cut.

        Raises:
            TooManyRules, StorageFull, RulesUnavailable: Nothing was changed.
        """
        content = orjson.dumps(rule)
        await self._on_thread(lambda: self._store.put(collection, id, content))
        self._thread.nudge()

    async def delete(self, collection: str, id: str) -> None:
        """Delete a rule, if there is one. Raises as put."""
        await self._on_thread(lambda: self._store.delete(collection, id))
        self._thread.nudge()

    async def get(self, collection: str, id: str) -> dict[str, Any] | None:
        """Return a rule as it is stored; None if there is none with this id. Raises RulesUnavailable."""
        found = await self._on_thread(lambda: self._store.get(collection, id))
        return None if found is None else orjson.loads(found)

    async def page(self, collection: str, after: str, limit: int) -> list[dict[str, Any]]:
        """Return rules as they are stored, each with its id, in ascending id order. Raises RulesUnavailable."""
        found = await self._on_thread(lambda: self._store.page(collection, after, limit))
        return [{"id": stored.id, **orjson.loads(stored.rule)} for stored in found]

    async def _on_thread(self, work: Callable[[], Found]) -> Found:
        try:
            return await asyncio.to_thread(work)
        except TooManyRules as error:
            raise errors.TooManyRules(f"{error}.") from None
        except RulesFull:
            raise errors.StorageFull from None
        except (RulesError, OSError) as error:
            _log.error("rules: %s", error)
            raise errors.RulesUnavailable from None

    # -- following ----------------------------------------------------------------------------

    def _follow(self) -> None:
        """Bring the rules up to date; after a failure they stay as they were until the next round."""
        try:
            file, version = self._watch.look()
            if (file, version) != (self._file, self._version):
                if file != self._file:
                    self._known, self._last = {}, 0
                self._read()
                self._file, self._version = file, version
        except Exception:
            self._watch.close()
            raise

    def _read(self) -> None:
        new, revisions = self._store.changes(self._last)
        known = {at: entry for at, entry in self._known.items() if at in revisions}
        known |= {stored.revision: (stored.collection, _rule(stored)) for stored in new}
        by_collection = defaultdict[str, list[Rule]](list)
        for collection, rule in known.values():
            if rule is not None:
                by_collection[collection].append(rule)
        # The highest number in the file as it is now. If the file was empty for a moment, all rules are read again.
        self._known, self._last = known, max(known, default=0)
        self._indexes = {name: RuleIndex(rules) for name, rules in by_collection.items()}


def _rule(stored: Stored) -> Rule | None:
    try:
        return read_rule(stored.id, orjson.loads(stored.rule))
    except (RuleError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.error("rule %s of %s is ignored: %s", stored.id, stored.collection, error)
        return None
