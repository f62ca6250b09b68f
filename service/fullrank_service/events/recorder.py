"""The log of events, as the requests of one worker see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from logging import getLogger
from pathlib import Path
from typing import Any

from fullrank.errors import FullrankError
from fullrank.events.log import EVENTS, LISTS, Pseudonyms, erase, places, read_key
from fullrank.events.records import MAX_AHEAD_S, Event, ServedList
from fullrank.experiment.decisions import LOOP_LOCK
from fullrank_service.base import errors
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.events.analytics import Analytics
from fullrank_service.events.shown import Shown
from fullrank_service.events.upkeep import Capacity, Journal, Upkeep

# So many lines are made on the event loop; more on a thread.
_MAX_INLINE = 32
_log = getLogger(__name__)


class Recorder:
    """Records answers, stores events, erases people.

    Args:
        folder: Of the log.
        key: File of the key of pseudonyms.
        days: After which what was logged is removed.
        max_bytes: At which nothing more is logged.
        metrics: Count lists and events.
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
        """Start writing."""
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
        """Store events; when this returns they survive a power cut.

        Raises:
            EventsFull, EventsUnavailable, Overloaded: They are not acknowledged.
        """
        await self._store(EVENTS, events, is_bot)
        usable = sum(event.is_trainable for event in events)
        self.metrics.events["kept"].inc(usable)
        self.metrics.events["untrainable"].inc(len(events) - usable)

    async def store_lists(self, lists: Sequence[ServedList], *, is_bot: bool) -> None:
        """Store lists that a client reports. Raises as `store_events`."""
        await self._store(LISTS, lists, is_bot)
        self.metrics.lists["reported"].inc(len(lists))

    async def erase(self, id: str) -> None:
        """Hide all that a person did from every reader; it leaves the disk within a day.

        Args:
            id: A user, client or session.

        Raises:
            EventsUnavailable: Nothing was done.
        """

        def work() -> None:
            # Clocks of clients may be ahead.
            erase(self.folder, [self.people().of(id)], time.time() + MAX_AHEAD_S)

        try:
            await asyncio.to_thread(work)
        except (OSError, FullrankError) as error:
            _log.error("nobody was erased: %s", error)
            raise errors.EventsUnavailable from None

    async def analytics(self, days: int) -> dict[str, Any]:
        """Return what the log says of the last days. Raises EventsUnavailable."""
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._reading, self._analytics.report, days)
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
