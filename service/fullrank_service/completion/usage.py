"""Completions, documents clicked together and probabilities of clicks on ads, as the requests of one worker see them.

A thread reads the log and the titles at intervals and replaces the completions by one assignment; requests never wait
for it. A model that was just loaded uses the completions of another version of its name until its own are ready. Once
somebody was erased, by any process, requests get no queries of the log and no documents clicked together until the
thread has read it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from fullrank.bundle import Bundle
from fullrank.complete import (
    Candidate,
    Completion,
    Completions,
    Kind,
    folded_prefix,
    is_completing_word,
)
from fullrank.events.log import Erasures, EventLog, erasures
from fullrank.live import View
from fullrank.live.segments import words_of
from fullrank.search.part import Part
from fullrank.together import Together
from fullrank_service.base.background import Repeater, trim_heap
from fullrank_service.base.metrics import Metrics
from fullrank_service.completion.calibrations import Calibrated
from fullrank_service.completion.digest import Digest, clicked_for, queries_for, read_digest

TITLE = "title"
MAX_TITLES, MAX_WORDS = 100_000, 100_000
MAX_CHARS = 100
_TEXTS_PER_PAUSE = 200


class CandidateReader:
    """Collects candidates; remembers those of bundles, which do not change. What `pause` raises ends the collecting."""

    def __init__(self, pause: Callable[[], None] = lambda: None) -> None:
        self._pause = pause
        self._titles: dict[str, list[tuple[int, str, str]]] = {}
        self._words: dict[str, list[Candidate]] = {}

    def completions(self, view: View, digest: Digest) -> Completions:
        """Build the completions of a view. Takes seconds for 100,000 titles; call it on a thread."""
        name, bundle = view.bundle.name, view.bundle.bundle_id
        if bundle not in self._words:
            self._words[bundle] = list(self._paused(_words(view)))
        candidates = [
            Candidate(key, text, Kind.QUERY, count)
            for text, count in self._paused(queries_for(digest, name))
            if len(text) <= MAX_CHARS and (key := folded_prefix(text))
        ]
        clicked, seen = clicked_for(digest, name), 0
        for part in reversed(view.titled):
            ids, removed = part.store.ids, part.removed
            for row, key, text in self._paused(self._of_part(view.bundle, part)):
                if (removed is None or not removed[row]) and seen < MAX_TITLES:
                    seen += 1
                    count = clicked.get(ids[row], 0) if clicked else 0
                    candidates.append(Candidate(key, text, Kind.TITLE, count))
        candidates += (
            Candidate(folded_prefix(word), word, Kind.WORD, 0.0)
            for word in self._paused(islice(words_of(view.parts), MAX_WORDS))
        )
        return Completions([*candidates, *self._words[bundle]], self._pause)

    def forget_others(self, views: Iterable[View]) -> None:
        """Forget the titles and words of bundles and segments that are no longer loaded."""
        views = list(views)
        bundles = {view.bundle.bundle_id for view in views}
        parts = {part.key for view in views for part in view.titled}
        self._words = {key: found for key, found in self._words.items() if key in bundles}
        self._titles = {key: found for key, found in self._titles.items() if key in parts}

    def _of_part(self, bundle: Bundle, part: Part) -> list[tuple[int, str, str]]:
        """Return row, folded form and text of the titles of a part."""
        found = self._titles.get(part.key)
        if found is None:
            rows, names = range(min(len(part), MAX_TITLES)), title_fields(bundle)
            titles = ((row, title_of(part.store.fields(row), names)) for row in self._paused(rows))
            found = self._titles[part.key] = [
                (row, key, " ".join(title.split()))
                for row, title in titles
                if title is not None and (key := folded_prefix(title.strip()))
            ]
        return found

    def _paused(self, items: Iterable[Any]) -> Iterator[Any]:
        for number, item in enumerate(items):
            if number % _TEXTS_PER_PAUSE == _TEXTS_PER_PAUSE - 1:
                self._pause()
            yield item


def title_fields(bundle: Bundle) -> Sequence[str]:
    """Return the fields that may have the title of a document: `title`, then those that the model searches."""
    model = bundle.live_model
    searched = () if model is None else chain.from_iterable(model.rule.columns)
    return [*dict.fromkeys([TITLE, *searched])]


def title_of(fields: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return the text of the first of these fields that a document has; None for a long text, or without any."""
    for name in names:
        if isinstance(text := fields.get(name), str) and text.strip():
            return text if len(text) <= MAX_CHARS else None
    return None


def _words(view: View) -> Iterator[Candidate]:
    counts: dict[str, float] = {}
    for vocabulary, frequency in view.bundle.known_words.tables:
        for word, count in zip(vocabulary.words, frequency.tolist(), strict=True):
            counts.setdefault(word, count)
    best: list[tuple[str, Any]] = nlargest(
        MAX_WORDS, counts.items(), key=lambda item: (item[1], item[0])
    )
    for word, count in best:
        if is_completing_word(word):
            yield Candidate(folded_prefix(word), word, Kind.WORD, count)


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
    """Completions and documents clicked together, from the folder of the log of events; None: there is none."""

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
