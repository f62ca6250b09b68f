"""The log of events, as the requests of one worker see it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from logging import getLogger
from pathlib import Path
from typing import Any

from fullrank.errors import FullrankError
from fullrank.events.days import DAY_S, DayDigest, Days
from fullrank.events.decisions import LOOP_LOCK
from fullrank.events.log import (
    EVENTS,
    LISTS,
    Erasures,
    EventLog,
    Pseudonyms,
    erase,
    erasures,
    places,
    read_key,
)
from fullrank.events.records import MAX_AHEAD_S, Event, ServedList
from fullrank_service.base import errors
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.events.shown import Shown
from fullrank_service.events.upkeep import Capacity, Journal, Upkeep

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
    """Reads the log at most once a minute, and again once somebody was erased."""

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
        self._found: dict[tuple[int, str | None], tuple[float, dict[str, Any]]] = {}

    def report(self, days: int, collection: str | None = None) -> dict[str, Any]:
        """Count searches and clicks of today and so many whole days (UTC) before; call it on a thread.

        Args:
            collection: A bundle name; None: all of them.
        """
        with self._lock:
            now, erased = self._timer(), erasures(self._log.folder)
            if erased != self._erased:
                self._erased, self._found = erased, {}
            at, found = self._found.get((days, collection), (-_FRESH_S, {}))
            if now - at >= _FRESH_S or not found:
                found = self._count(days, collection)
                self._found[days, collection] = now, found
            return found

    def _count(self, days: int, collection: str | None) -> dict[str, Any]:
        since = int(self._clock() // DAY_S) - days
        # The last segment of the day before may have lists of the first one.
        with self._days.turn(_MAX_READ_S) as is_ours:
            if is_ours:
                self._days.update(_MAX_READ_S, since - 1)
        counting = _Counting(since, collection)
        for day, digest in self._days.read(since - 1):
            if digest is None or counting.is_full:
                counting.complete_since = max(counting.complete_since, day + 1)
                break
            counting.add(day, digest)
        return counting.result(days)


class _Counting:
    def __init__(self, since: int, collection: str | None) -> None:
        self._since = self.complete_since = since
        self._collection = collection
        self._queries = defaultdict[str, _Query](_Query)
        self._people = 0
        self._searches = self._clicked = self._without_hits = self._places = 0

    @property
    def is_full(self) -> bool:
        return len(self._queries) >= _MAX_QUERIES or self._people >= _MAX_PEOPLE

    def add(self, number: int, digest: DayDigest) -> None:
        if not digest.is_complete:
            self.complete_since = max(self.complete_since, number + 1)
        for row, person, _, has_hits, day, searches, clicked, summed in digest.asks.tolist():
            name, text = digest.queries[row]
            if day < self._since or self._collection not in (None, name):
                continue
            without_hits = 0 if has_hits else searches
            self._searches += searches
            self._clicked += clicked
            self._places += summed
            self._without_hits += without_hits
            query = self._queries[text]
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


# So many lines are made on the event loop; more on a thread.
_MAX_INLINE = 32
_log = getLogger(__name__)


class Recorder:
    """Records answers, stores events, erases people.

    Args:
        key: File of the key of pseudonyms.
        days: After which what was logged is removed.
        max_bytes: At which nothing more is logged.
        loop: File whose time of modification is when the loop last ended without a failure.
    """

    def __init__(
        self,
        folder: Path,
        key: Path,
        days: int,
        max_bytes: int,
        metrics: Metrics,
        loop: Path | None = None,
    ) -> None:
        self.folder = folder
        self.metrics = metrics
        self._key = key
        self._analytics = Analytics(folder)
        # Reads for up to 20 seconds, one request at a time: not on the threads of writes and reads.
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="analytics")
        self._pseudonyms: Pseudonyms | None = None
        self._capacity = Capacity(folder, max_bytes, metrics)
        self._journal = Journal(folder, self._capacity, metrics.background_failed)
        self._upkeep = Upkeep(
            folder, days, self.people, self._journal, self._capacity, metrics, loop
        )

    @classmethod
    def from_settings(cls, settings: Settings, metrics: Metrics) -> Recorder:
        """Make the recorder that the settings describe."""
        return cls(
            *places(
                settings.bundles, settings.documents, settings.events_folder, settings.events_key
            ),
            settings.events_days,
            settings.events_mb << 20,
            metrics,
            settings.bundles / LOOP_LOCK,
        )

    def start(self) -> None:
        self._upkeep.start()

    async def close(self) -> None:
        """Write and seal what waits."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._journal.close()
        self._upkeep.close()

    def people(self) -> Pseudonyms:
        """Return the pseudonyms. Raises KeyDamaged."""
        if self._pseudonyms is None:
            self._pseudonyms = Pseudonyms(read_key(self._key))
        return self._pseudonyms

    def record(self, shown: Shown) -> None:
        """Record what an answer showed, unless its request forbids it."""
        if shown.asker.record:
            self._upkeep.note(shown)

    async def store_events(self, events: Sequence[Event], *, is_bot: bool) -> None:
        """Store events; when this returns they survive a power cut. Raises as ``Journal.store``."""
        await self._store(EVENTS, events, is_bot)
        usable = sum(event.is_trainable for event in events)
        self.metrics.events["kept"].inc(usable)
        self.metrics.events["untrainable"].inc(len(events) - usable)

    async def store_lists(self, lists: Sequence[ServedList], *, is_bot: bool) -> None:
        """Store lists that a client reports. Raises as `store_events`."""
        await self._store(LISTS, lists, is_bot)
        self.metrics.lists["reported"].inc(len(lists))

    async def erase(self, id: str) -> None:
        """Hide all that a user, client or session did; it leaves the disk within a day. Raises EventsUnavailable."""

        def work() -> None:
            # Clocks of clients may be ahead.
            erase(self.folder, [self.people().of(id)], time.time() + MAX_AHEAD_S)

        try:
            await asyncio.to_thread(work)
        except (OSError, FullrankError) as error:
            _log.error("nobody was erased: %s", error)
            raise errors.EventsUnavailable from None

    async def analytics(self, days: int, collection: str | None) -> dict[str, Any]:
        """Return what the log says of the last days, as ``Analytics.report``. Raises EventsUnavailable."""
        try:
            loop = asyncio.get_running_loop()
            report = self._analytics.report
            return await loop.run_in_executor(self._reading, report, days, collection)
        except (OSError, FullrankError) as error:
            _log.error("no analytics: %s", error)
            raise errors.EventsUnavailable from None

    async def _store(
        self, kind: str, records: Sequence[Event] | Sequence[ServedList], is_bot: bool
    ) -> None:
        if not records:
            return

        def work() -> list[bytes]:
            people = self.people()
            return [
                replace(record, texts=people.replace(record.texts), is_bot=is_bot).line()
                for record in records
            ]

        try:
            lines = work() if len(records) <= _MAX_INLINE else await asyncio.to_thread(work)
        except FullrankError:
            raise errors.EventsUnavailable from None
        await self._journal.store(kind, lines)
