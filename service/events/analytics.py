"""What the log says of the last days, for operators.

A query is shown only if several people asked it: a rare one may be the name or the address of somebody.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from pathlib import Path
from typing import Any, TypeVar

from fullrank.events.lists import ServedList, normalised
from fullrank.events.log import EventLog
from fullrank.events.people import Erasures, erasures

MIN_PEOPLE = 3
_DAY_S = 86_400
_FRESH_S = 60.0
_TOP = 20
# Bounds of time and memory. What is beyond them is not counted, and the answer says so.
_MAX_READ_S = 20.0
_MAX_CLICKED_LISTS, _MAX_QUERIES, _MAX_REPORTED = 500_000, 200_000, 50_000

Record = TypeVar("Record")


@dataclass(slots=True)
class _Query:
    searches: int = 0
    clicked: int = 0
    without_hits: int = 0
    people: set[str] = field(default_factory=set)


class Analytics:
    """Reads the log at most once a minute, and again once somebody was erased.

    Args:
        folder: Of the log.
        clock: Returns seconds since 1970.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._log, self._clock = EventLog(folder, pauses=True), clock
        self._lock = threading.Lock()
        self._erased: Erasures = None
        self._found: dict[int, tuple[float, dict[str, Any]]] = {}

    def report(self, days: int) -> dict[str, Any]:
        """Count searches and clicks; call it on a thread.

        Args:
            days: Up to now.

        Raises:
            FullrankError: A file of the log is damaged.
        """
        with self._lock:
            now, erased = self._clock(), erasures(self._log.folder)
            if erased != self._erased:
                self._erased, self._found = erased, {}
            at, found = self._found.get(days, (-_FRESH_S, {}))
            if now - at >= _FRESH_S:
                found = _Counting(now - days * _DAY_S).report(self._log, days)
                self._found = {days: (now, found)}
            return found


class _Counting:
    """One reading of the log: first the clicks, then the lists that they belong to."""

    def __init__(self, since: float) -> None:
        self._since = since
        self._end = time.monotonic() + _MAX_READ_S
        self._is_complete = True
        self._clicks: dict[str, set[str]] = {}
        self._queries: dict[str, _Query] = {}
        self._reported: dict[str, ServedList] = {}
        self._searches = self._clicked = self._without_hits = self._places = 0

    def report(self, log: EventLog, days: int) -> dict[str, Any]:
        for event in self._in_time(log.events(self._since)):
            if not event.is_bot and event.object_id is not None and event.is_click:
                self._click(event.texts.get("query_id"), event.object_id)
        ours: set[str] = set()
        for served in self._in_time(log.lists(self._since)):
            if served.kind == "reported":
                self._keep(self._reported, _MAX_REPORTED, served.query_id, served)
                continue
            if len(ours) < _MAX_CLICKED_LISTS:
                ours.add(served.query_id)
            else:
                self._is_complete = False
            if served.kind == "search" and served.offset == 0 and not served.is_bot:
                self._count(served)
        for query_id, served in self._reported.items():
            if query_id not in ours and not served.is_bot:
                self._count(served)
        return self._result(days)

    def _in_time(self, records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            if time.monotonic() > self._end:
                self._is_complete = False
                return
            yield record

    def _keep(self, store: dict[str, Any], most: int, key: str, value: Any) -> bool:
        """Store a value if there is room."""
        if key not in store and len(store) >= most:
            self._is_complete = False
            return False
        store.setdefault(key, value)
        return True

    def _click(self, query_id: str | None, object_id: str) -> None:
        if query_id is not None and self._keep(self._clicks, _MAX_CLICKED_LISTS, query_id, set()):
            self._clicks[query_id].add(object_id)

    def _count(self, served: ServedList) -> None:
        clicked = self._clicks.get(served.query_id, ())
        places = [place for place, id in enumerate(served.ids, 1) if id in clicked]
        self._searches += 1
        self._without_hits += not served.ids
        if places:
            self._clicked += 1
            self._places += places[0]
        text = normalised(served.text)
        if self._keep(self._queries, _MAX_QUERIES, text, _Query()):
            query = self._queries[text]
            query.searches += 1
            query.clicked += bool(places)
            query.without_hits += not served.ids
            if served.person is not None:
                query.people.add(served.person)

    def _result(self, days: int) -> dict[str, Any]:
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
            "complete": self._is_complete,
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
