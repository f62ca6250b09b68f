"""What the log says of the last days, for operators.

A query is shown only if several people asked it: a rare one may be the name or the address of somebody.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import nsmallest
from pathlib import Path
from typing import Any

from fullrank.events.days import DAY_S, DayDigest, Days
from fullrank.events.log import Erasures, EventLog, erasures

MIN_PEOPLE = 3
_FRESH_S = 60.0
_TOP = 20
# Bounds of time and memory. What is beyond them is not counted, and the answer says so.
_MAX_READ_S = 20.0
_MAX_QUERIES, _MAX_PEOPLE = 200_000, 1_000_000  # people: of all queries together


@dataclass(slots=True)
class _Query:
    searches: int = 0
    clicked: int = 0
    without_hits: int = 0
    people: set[int] = field(default_factory=set)


class Analytics:
    """Reads the log at most once a minute, and again once somebody was erased.

    Args:
        folder: Of the log.
        clock: Returns seconds since 1970.
        timer: Returns seconds since some moment.
    """

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._clock, self._timer = EventLog(folder, pauses=True), clock, timer
        self._days = Days(self._log)
        self._lock = threading.Lock()
        self._erased: Erasures = None
        self._found: dict[int, tuple[float, dict[str, Any]]] = {}

    def report(self, days: int) -> dict[str, Any]:
        """Count searches and clicks; call it on a thread.

        Args:
            days: So many whole days (UTC) before today, and today.

        Raises:
            FullrankError: A file of the log is damaged.
        """
        with self._lock:
            now, erased = self._timer(), erasures(self._log.folder)
            if erased != self._erased:
                self._erased, self._found = erased, {}
            at, found = self._found.get(days, (-_FRESH_S, {}))
            if now - at >= _FRESH_S or not found:
                found = self._count(days)
                self._found[days] = now, found
            return found

    def _count(self, days: int) -> dict[str, Any]:
        since = int(self._clock() // DAY_S) - days
        # The last segment of the day before may have lists of the first one.
        with self._days.turn(_MAX_READ_S) as is_ours:
            if is_ours:
                self._days.update(_MAX_READ_S, since - 1)
        counting = _Counting(since)
        for day, digest in self._days.read(since - 1):
            if digest is None or counting.is_full:
                counting.complete_since = max(counting.complete_since, day + 1)
                break
            counting.add(day, digest)
        return counting.result(days)


class _Counting:
    """Adds up days, the newest first."""

    def __init__(self, since: int) -> None:
        self._since = self.complete_since = since
        self._queries = defaultdict[str, _Query](_Query)
        self._people = 0
        self._searches = self._clicked = self._without_hits = self._places = 0

    @property
    def is_full(self) -> bool:
        """Whether another day may not fit into memory."""
        return len(self._queries) >= _MAX_QUERIES or self._people >= _MAX_PEOPLE

    def add(self, number: int, digest: DayDigest) -> None:
        """Add a day."""
        if not digest.is_complete:
            self.complete_since = max(self.complete_since, number + 1)
        for row, person, _, has_hits, day, searches, clicked, places in digest.asks.tolist():
            if day < self._since:
                continue
            without_hits = 0 if has_hits else searches
            self._searches += searches
            self._clicked += clicked
            self._places += places
            self._without_hits += without_hits
            query = self._queries[digest.queries[row][1]]
            query.searches += searches
            query.clicked += clicked
            query.without_hits += without_hits
            if person:
                self._people -= len(query.people)
                query.people.add(person)
                self._people += len(query.people)

    def result(self, days: int) -> dict[str, Any]:
        return {
            "days": days,
            "searches": self._searches,
            "clicked": self._clicked,
            "ctr": self._clicked / self._searches if self._searches else None,
            "clicked_place": self._places / self._clicked if self._clicked else None,
            "without_hits": self._without_hits,
            "top": self._top(lambda query: query.searches),
            "top_without_hits": self._top(lambda query: query.without_hits),
            "top_without_clicks": self._top(
                lambda query: 0 if query.clicked or query.without_hits else query.searches
            ),
            "complete": self.complete_since <= self._since,
            "since": float(self.complete_since * DAY_S),
        }

    def _top(self, size: Callable[[_Query], int]) -> list[dict[str, Any]]:
        known = (
            (text, query)
            for text, query in self._queries.items()
            if len(query.people) >= MIN_PEOPLE and size(query)
        )
        return [
            {
                "query": text,
                "searches": query.searches,
                "people": len(query.people),
                "clicked": query.clicked,
            }
            for text, query in nsmallest(_TOP, known, key=lambda item: (-size(item[1]), item[0]))
        ]
