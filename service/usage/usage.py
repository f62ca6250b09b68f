"""Completions and documents clicked together, as the requests of one worker see them.

A thread reads the log and the titles at intervals and replaces the completions by one assignment; requests never wait
for it. A model that was just loaded uses the completions of another version of its name until its own are ready. Once
somebody was erased, by any process, requests get no queries of the log and no documents clicked together until the
thread has read it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fullrank.bundle import Bundle
from fullrank.complete.completions import Completion, Completions, Kind
from fullrank.events.log import EventLog
from fullrank.events.people import Erasures, erasures
from fullrank.live import View
from fullrank.together import Together
from service.heap import trim_heap
from service.repeating import Repeater
from service.usage.candidates import CandidateReader
from service.usage.digest import Digest, queries_for, read_digest

# How often to look for models that were loaded.
_POLL_S = 0.5
# Completions that are looked through for titles and words while queries are left out.
_MORE = 50


class _Built(NamedTuple):
    """The completions of a view, its bundle name, and the state of the data behind them and of the erased people."""

    name: str
    state: tuple[int, Mapping[str, int], Mapping[str, int]]
    erased: Erasures
    completions: Completions


class Usage:
    """Completions and documents clicked together.

    Args:
        views: Returns the views of all loaded models.
        events: Folder of the log of events; None: there is none.
        refresh_s: How often to read the log and the titles.
    """

    def __init__(
        self, views: Callable[[], Sequence[View]], events: Path | None, refresh_s: float
    ) -> None:
        self._views, self._refresh_s = views, refresh_s
        self._events = None if events is None else EventLog(events, pauses=True)
        self._digest = Digest()
        self._completions: Mapping[str, _Built] = {}
        self._reader = CandidateReader()
        self._refreshed = -refresh_s
        self._tried: Erasures = None
        pause_s = min(_POLL_S, refresh_s)
        self._thread = Repeater(
            "usage", self._round, pause_s, failure="completions are not refreshed"
        )

    def start(self) -> None:
        """Start reading, at once."""
        self._thread.nudge()
        self._thread.start()

    async def close(self) -> None:
        """Stop reading."""
        await asyncio.to_thread(self._thread.close)

    def complete(self, bundle: Bundle, typed: str, limit: int) -> list[Completion]:
        """Return completions of what is typed, the best first; an empty list before the first reading.

        From an erasure until the next reading no query is among them.
        """
        found = self._completions.get(bundle.bundle_id)
        if found is None:
            others = [one for one in self._completions.values() if one.name == bundle.name]
            if not others:
                return []
            found = others[-1]
        if found.erased == self._erased():
            return found.completions.complete(typed, limit)
        # More than asked for, because queries come first.
        completions = found.completions.complete(typed, limit + _MORE)
        return [one for one in completions if one.kind != Kind.QUERY][:limit]

    def together(self, id: str) -> Sequence[Together]:
        """Return the documents that were clicked together with one, the best first."""
        digest = self._digest
        return digest.together.get(id, ()) if digest.erased == self._erased() else ()

    def _erased(self) -> Erasures:
        return None if self._events is None else erasures(self._events.folder)

    def _round(self) -> None:
        erased = self._erased()
        # A reading that failed is repeated at the interval, not at once.
        is_due = erased != self._tried or time.monotonic() - self._refreshed >= self._refresh_s
        try:
            views = self._views()
            is_new = any(view.bundle.bundle_id not in self._completions for view in views)
            if is_due and self._events is not None:
                self._digest = read_digest(self._events)
            if is_due or is_new:
                self._build(views)
        finally:
            if is_due:
                self._tried, self._refreshed = erased, time.monotonic()

    def _build(self, views: Sequence[View]) -> None:
        """Build the completions of each view whose documents or queries have changed."""
        self._reader.forget_others(views)
        found: dict[str, _Built] = {}
        for view in views:
            if self._thread.is_closing:
                return
            bundle, queries = view.bundle, dict(queries_for(self._digest, view.bundle.name))
            state = view.seq, queries, self._digest.clicked
            built = self._completions.get(bundle.bundle_id)
            if built is None or built.state != state:
                completions = self._reader.completions(view, self._digest)
                built = _Built(bundle.name, state, self._digest.erased, completions)
                trim_heap()
            found[bundle.bundle_id] = built._replace(erased=self._digest.erased)
            self._completions = {**self._completions, **found}
        self._completions = found
