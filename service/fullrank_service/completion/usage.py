"""Completions, documents clicked together and probabilities of clicks on ads, as the requests of one worker see them.

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
from fullrank.complete import (
    Completion,
    Completions,
    Kind,
)
from fullrank.events.log import Erasures, EventLog, erasures
from fullrank.live import View
from fullrank.together import Together
from fullrank_service.base.background import Repeater, trim_heap
from fullrank_service.base.metrics import Metrics
from fullrank_service.completion.calibrations import Calibrated
from fullrank_service.completion.candidates import CandidateReader
from fullrank_service.completion.digest import Digest, clicked_for, queries_for, read_digest

# How often to look for models that were loaded.
_POLL_S = 0.5
# Lets the event loop of the same process run.
_PAUSE_S = 0.001
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
        metrics: Show how old and how complete that is.
    """

    def __init__(
        self,
        views: Callable[[], Sequence[View]],
        events: Path | None,
        refresh_s: float,
        metrics: Metrics,
    ) -> None:
        self._views, self._refresh_s = views, refresh_s
        self._events = None if events is None else EventLog(events, pauses=True)
        self._digest = Digest()
        self._completions: Mapping[str, _Built] = {}
        self._metrics = metrics
        self._refreshed = -refresh_s
        self._due: float | None = None
        self._tried: Erasures = None
        pause_s = min(_POLL_S, refresh_s)
        self._thread = Repeater(
            "usage",
            self._round,
            pause_s,
            failure="completions are not refreshed",
            failed=metrics.background_failed,
        )
        self._reader = CandidateReader(lambda: self._thread.pause(_PAUSE_S))

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

    def together(self, name: str, id: str) -> Sequence[Together]:
        """Return the documents of a bundle name that were clicked together with one, the best first."""
        digest = self._digest
        if digest.erased != self._erased():
            return ()
        return digest.together.get(name, digest.together.get("", {})).get(id, ())

    def on_ads(self, name: str, model_id: str) -> Calibrated:
        """Return the clicks on the ads that a model placed, and their calibration."""
        return self._digest.ads.get(name, {}).get(model_id, Calibrated())

    def _erased(self) -> Erasures:
        return None if self._events is None else erasures(self._events.folder)

    def _round(self) -> None:
        erased, before = self._erased(), self._digest
        # A reading that failed is repeated at the interval, not at once.
        is_due = erased != self._tried or time.monotonic() - self._refreshed >= self._refresh_s
        is_done = is_due
        try:
            views = self._views()
            is_new = any(view.bundle.bundle_id not in self._completions for view in views)
            if is_due and self._events is not None:
                is_done = self._read(self._events)
            if is_done or is_new or self._digest is not before:
                self._build(views)
        except Exception:
            is_done = is_due
            raise
        finally:
            if is_done:
                self._tried, self._refreshed, self._due = erased, time.monotonic(), None

    def _read(self, log: EventLog) -> bool:
        """Read the digest of the log; return whether this round is the last of the reading."""
        if self._due is None:
            # At the first reading a digest of the service that ran before is too old.
            self._due = time.time() - (self._refresh_s / 2 if self._digest.at else 0)
        found = read_digest(log, self._due, lambda: self._thread.is_closing)
        if found is None:
            return False
        self._digest = found
        self._metrics.usage_read.set(found.at)
        self._metrics.usage_incomplete.set(found.since is not None)
        if found.has_more:
            self._due = time.time()
        return not found.has_more

    def _build(self, views: Sequence[View]) -> None:
        """Build the completions of each view whose documents or queries have changed."""
        self._reader.forget_others(views)
        found: dict[str, _Built] = {}
        for view in views:
            if self._thread.is_closing:
                return
            bundle, queries = view.bundle, dict(queries_for(self._digest, view.bundle.name))
            state = view.seq, queries, clicked_for(self._digest, bundle.name)
            built = self._completions.get(bundle.bundle_id)
            if built is None or built.state != state:
                completions = self._reader.completions(view, self._digest)
                built = _Built(bundle.name, state, self._digest.erased, completions)
                trim_heap()
            found[bundle.bundle_id] = built._replace(erased=self._digest.erased)
            self._completions = {**self._completions, **found}
        self._completions = found
