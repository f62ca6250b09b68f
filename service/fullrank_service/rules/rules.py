"""The rules of one worker: it writes changes to the log of documents, and a thread reads those of all workers.

The rules of all bundle names are one collection of the log, with ids such as "shop/summer-sale". The thread replaces
their index by one assignment, so a search sees the rules before a change or after it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from logging import getLogger
from pathlib import Path
from typing import Any, TypeVar

import orjson

from fullrank.rules.rule import Rule, RuleError, RuleIndex, read_rule
from fullrank_service.base import errors
from fullrank_service.base.background import Failed, Repeater, uncounted
from fullrank_service.documents.log import Caps, Log, LogError, LogFull, Logged, Submission, Write
from fullrank_service.documents.sqlitelog import LogPlace

# No bundle can have this name.
COLLECTION = ".rules"
MAX_RULES = 10_000
_NO_CAPS = Caps(sys.maxsize, sys.maxsize)
_MAX_REST_S = 0.5
_log = getLogger(__name__)
Found = TypeVar("Found")


def _since(log: Log, seq: int) -> tuple[list[Logged], int]:
    """Return the changes of rules after a number, and the number up to which there are no others."""
    found: list[Logged] = []
    while True:
        new, seq = log.after(COLLECTION, seq, MAX_RULES)
        if not new:
            return found, seq
        found += new


def _stored(log: Log | None) -> dict[str, bytes]:
    found = [] if log is None else _since(log, 0)[0]
    return {one.id: one.fields for one in found if one.fields is not None}


def _write(log: Log, writes: Sequence[Write], seen: int = 0) -> None:
    [outcome] = log.commit([Submission(COLLECTION, writes, lambda _: b"", seen=seen)], _NO_CAPS)
    if isinstance(outcome, Exception):
        raise outcome


class Rules:
    """Rules for routes and searches. Failures are raised as problems of fullrank_service.base.errors.

    Args:
        former: The file in which releases before kept the rules; they move into the log.
    """

    def __init__(
        self,
        place: LogPlace,
        former: Path | None = None,
        *,
        poll_s: float = 0.05,
        failed: Failed = uncounted,
    ) -> None:
        self._place, self._former = place, former
        self._log: Log | None = None
        self._indexes: Mapping[str, RuleIndex] = {}
        self._known: dict[str, Rule] = {}
        self._seq = 0
        self._thread = Repeater(
            "rules", self._follow, poll_s, rest=2, max_rest_s=_MAX_REST_S, ended=self._close,
            failure="rules are not followed", failed=failed,
            expected=(LogError, OSError),
        )  # fmt: skip

    def start(self) -> None:
        """Read the rules, then follow them."""
        try:
            self._follow()
        except Exception as error:
            self._thread.log_failure(error)
        self._close()  # the thread has a connection of its own
        self._thread.start()

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.close)

    def matching(self, collection: str, query: str) -> Sequence[Rule]:
        """Return the rules that apply to a query now, by id."""
        index = self._indexes.get(collection)
        return () if index is None else index.matching(query, time.time())

    def ids(self, collection: str) -> set[str]:
        """Return the rules of a collection that searches of this worker see."""
        return {rule.id for key, rule in self._known.items() if key == f"{collection}/{rule.id}"}

    async def put(self, collection: str, id: str, rule: Mapping[str, Any]) -> None:
        """Add or replace a rule that was checked; when this returns it survives a power cut.

        Raises:
            TooManyRules, StorageFull, RulesUnavailable: Nothing was changed.
        """
        if len(self.ids(collection) - {id}) >= MAX_RULES:
            raise errors.TooManyRules(f"{collection} has {MAX_RULES} rules; delete one first.")
        write = Write(f"{collection}/{id}", orjson.dumps(rule))
        await self._on_thread(lambda: self._put(write))

    async def delete(self, collection: str, id: str) -> None:
        """Delete a rule, if there is one. Raises as put."""
        await self._on_thread(lambda: self._delete(f"{collection}/{id}"))

    async def get(self, collection: str, id: str) -> dict[str, Any] | None:
        """Return a rule as it is stored; None if there is none with this id. Raises RulesUnavailable."""
        found = (await self._on_thread(self._all)).get(f"{collection}/{id}")
        return None if found is None else orjson.loads(found)

    async def page(self, collection: str, after: str, limit: int) -> list[dict[str, Any]]:
        """Return rules as they are stored, each with its id, in ascending id order. Raises RulesUnavailable."""
        found = await self._on_thread(self._all)
        names = ((key, *key.partition("/")[::2]) for key in found)
        ids = {id: found[key] for key, name, id in names if name == collection and id > after}
        return [{"id": id, **orjson.loads(ids[id])} for id in sorted(ids)[:limit]]

    def _put(self, write: Write) -> None:
        with closing(self._place.open()) as log:
            _write(log, [write], self._seq)
        self._thread.nudge()

    def _delete(self, key: str) -> None:
        if key in self._all():
            self._put(Write(key, None))

    def _all(self) -> dict[str, bytes]:
        log = self._place.existing()
        if log is None:
            return {}
        with closing(log):
            return _stored(log)

    async def _on_thread(self, work: Callable[[], Found]) -> Found:
        try:
            return await asyncio.to_thread(work)
        except LogFull:
            raise errors.StorageFull from None
        except (LogError, OSError) as error:
            _log.error("rules: %s", error)
            raise errors.RulesUnavailable from None

    def _follow(self) -> None:
        """Bring the rules up to date; after a failure they stay as they were until the next round."""
        if self._former is not None:
            _move(self._former, self._place)
            self._former = None
        try:
            self._log = self._log or self._place.existing()
            if self._log is None:
                return
            found, self._seq = _since(self._log, self._seq)
        except Exception:
            self._close()
            raise
        if not found:
            return
        known: dict[str, Rule | None] = {**self._known, **{one.id: _rule(one) for one in found}}
        self._known = {key: rule for key, rule in known.items() if rule is not None}
        by_collection = defaultdict[str, list[Rule]](list)
        for key, rule in self._known.items():
            by_collection[key.partition("/")[0]].append(rule)
        self._indexes = {name: RuleIndex(rules) for name, rules in by_collection.items()}

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def _rule(stored: Logged) -> Rule | None:
    """Read a rule; None for a deleted one, or one that this release cannot read."""
    if stored.fields is None:
        return None
    try:
        return read_rule(stored.id.partition("/")[2], orjson.loads(stored.fields))
    except (RuleError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.error("rule %s is ignored: %s", stored.id, error)
        return None


def _move(former: Path, place: LogPlace) -> None:
    """Move the rules of a file into the log; a file that is left after a crash is not read again."""
    if not former.exists():
        return
    with closing(place.open()) as log:
        if not _since(log, 0)[0]:
            with closing(sqlite3.connect(former)) as file:
                rows = file.execute("SELECT collection || '/' || id, rule FROM rules").fetchall()
            _write(log, [Write(key, rule) for key, rule in rows])
    former.rename(former.with_name(f"{former.name}.moved"))
    _log.info("moved the rules of %s into the log of documents", former)
