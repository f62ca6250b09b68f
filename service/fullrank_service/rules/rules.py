"""The rules of one worker: it writes changes to the file, and a thread reads those of all workers into memory.

The thread checks the file every few hundredths of a second, and at once after a change of this worker. It reads the
changes and replaces the index of the rules by one assignment, so a search sees the rules before a change or after it.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any, TypeVar

import orjson

from fullrank.rules.rule import Rule, RuleError, RuleIndex, read_rule
from fullrank_service import errors
from fullrank_service.repeating import Failed, Repeater, uncounted
from fullrank_service.rules.store import RulesError, RulesFull, RuleStore, Stored, TooManyRules

_MAX_REST_S = 0.5
_log = getLogger(__name__)
Found = TypeVar("Found")


class Rules:
    """Rules for routes and searches. Failures are raised as problems of fullrank_service.errors.

    Args:
        path: The file.
        poll_s: How often to look for changes of other workers.
        failed: Counts failures to follow the file.
    """

    def __init__(self, path: Path, *, poll_s: float = 0.05, failed: Failed = uncounted) -> None:
        self._store = RuleStore(path)
        self._watch = self._store.watch()
        self._indexes: Mapping[str, RuleIndex] = {}
        self._known: dict[int, tuple[str, Rule | None]] = {}
        self._last = 0
        self._file: tuple[int, ...] = ()
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
        """Stop following."""
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
        # Of these rules, not of all that were ever read: a file that was empty for a moment is read again as a whole.
        self._known, self._last = known, max(known, default=0)
        self._indexes = {name: RuleIndex(rules) for name, rules in by_collection.items()}


def _rule(stored: Stored) -> Rule | None:
    """Read a stored rule; None for one that this release cannot read."""
    try:
        return read_rule(stored.id, orjson.loads(stored.rule))
    except (RuleError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.error("rule %s of %s is ignored: %s", stored.id, stored.collection, error)
        return None
