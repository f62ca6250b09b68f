"""Completions, documents clicked together and probabilities of clicks on ads, as the requests of one worker see them.

A thread reads the log and the titles at intervals and replaces the completions by one assignment; requests never wait
for it. A model that was just loaded uses the completions of another version of its name until its own are ready. Once
somebody was erased, by any process, requests get no queries of the log and no documents clicked together until the
thread has read it again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from fullrank.bundle import Bundle
from fullrank.events.caps import find_programs
from fullrank.events.days import CLIENT, DAY_S, USER, DayDigest, Days, erased_hash, hashed
from fullrank.events.log import Erasures, EventLog, erasures
from fullrank.events.together import MIN_PEOPLE, Click, Together, together
from fullrank.live import View
from fullrank.live.segments import words_of
from fullrank.search.complete import (
    Candidate,
    Completion,
    Completions,
    Kind,
    folded_prefix,
    is_completing_word,
)
from fullrank.search.part import Part
from fullrank.storage.encoding import Int64
from fullrank.storage.files import replace_file
from fullrank_service.base.background import Repeater, trim_heap
from fullrank_service.base.metrics import Metrics
from fullrank_service.completion.calibrations import AdCounts, Calibrated, Calibration

MAX_READ_S = 30.0
"""Time to read what is new; older days follow in the next rounds."""
# Older rows are left out.
_MAX_CLICKS, _MAX_ASKS = 500_000, 2_000_000
# Lets the event loop of the same process run.
_PAUSE_S = 0.001


@dataclass(frozen=True)
class Digest:
    """Counts of the log, of at least three people each. One worker writes them beside the digests of the days.

    Attributes:
        queries: By bundle name, how many people asked each query that had hits; "" for lists that name no model.
        clicked: By bundle name, how many people clicked each document.
        together: By bundle name, documents that were clicked together with each.
        ads: By bundle name and model id, the clicks on ads and their calibration.
        since: Since when it has everything, in seconds since 1970; None if nothing of the log is left out.
        has_more: Whether the time ran out before all days were read.
        erased: State of the list of erased people that it leaves out.
    """

    queries: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    clicked: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    together: Mapping[str, Mapping[str, Sequence[Together]]] = field(default_factory=dict)
    ads: Mapping[str, Mapping[str, Calibrated]] = field(default_factory=dict)
    at: float = 0.0
    since: float | None = None
    has_more: bool = False
    erased: Erasures = None


def read_digest(
    log: EventLog, not_before: float, is_stopping: Callable[[], bool] = lambda: False
) -> Digest | None:
    """Return the digest of a log; None if another worker is at it, or the reading was stopped: ask again.

    Takes up to a minute if much is new; call it on a thread. What another worker has made since `not_before` is new
    enough.

    Raises:
        SegmentError: A file of the log is damaged.
    """
    if not log.folder.is_dir():
        return Digest(at=time.time())
    # Taken first: if somebody is erased meanwhile, it differs afterwards.
    erased = erasures(log.folder)
    days = Days(log)
    path = days.folder / f"usage-{erased_hash(log.folder)}.json"
    found = _read(path)
    if found is None or not not_before <= found.at <= time.time():
        with days.turn() as is_ours:
            if not is_ours:
                return None
            days.update(MAX_READ_S, is_stopping=is_stopping)
            if is_stopping():
                return None
            found = _merge(days)
            replace_file(path, orjson.dumps(found, default=tuple).decode(), 0o600)
    return replace(found, erased=erased)


def _merge(days: Days) -> Digest:
    asked, clicks = [np.zeros((0, 4), np.int64)], [np.zeros((0, 4), np.int64)]
    since: float | None = None
    has_more = False
    ads = AdCounts()
    for number, day in days.read():
        _pause()
        has_more = day is None
        if day is not None:
            ads.add(day.ads)
        fits = (
            day is not None
            and _fits(asked, _asks_of(day), _MAX_ASKS)
            and _fits(clicks, _clicks_of(day), _MAX_CLICKS)
        )
        if since is None and not (day and fits and day.is_complete):
            since = float((number + 1) * DAY_S)
        if not fits:
            break
    queries = _count_queries(np.concatenate(asked), days)
    clicked, paired = _count_clicks(np.concatenate(clicks), days)
    return Digest(queries, clicked, paired, ads.calibrated(), time.time(), since, has_more)


def _fits(parts: list[Int64], rows: Int64, most: int) -> bool:
    left = most - sum(map(len, parts))
    parts.append(rows[:left])
    return len(rows) <= left


def _asks_of(day: DayDigest) -> Int64:
    """Return (hash of name and query, person, kind, day) of the searches of known people that had hits."""
    query, person, kind, has_hits, asked_on = day.asks.T[:5]
    # A tab or a private window makes a session of its own, so sessions are no people.
    is_counted = (has_hits > 0) & ((kind == USER) | (kind == CLIENT))
    columns = _keys(day.queries)[query], person, kind, asked_on
    return np.stack([column[is_counted] for column in columns], axis=1)


def _clicks_of(day: DayDigest) -> Int64:
    """Return (hash of name and document, person, session, milliseconds since 1970)."""
    document, *others = day.clicks.T
    return np.stack([_keys(day.documents)[document], *others], axis=1)


def _keys(pairs: Sequence[Sequence[str]]) -> Int64:
    return np.array([hashed(*pair) for pair in pairs], np.int64)


def _named(days: Days, table: str, keys: Int64) -> dict[int, tuple[str, str]]:
    """Find the texts behind hashes: read the digests once more, instead of keeping all texts."""
    wanted, found = set(keys.tolist()), dict[int, tuple[str, str]]()
    for _, day in days.read():
        _pause()
        if day is None or len(found) == len(wanted):
            break
        for name, text in getattr(day, table):
            if (key := hashed(name, text)) in wanted:
                found[key] = name, text
    return found


def _count_queries(asked: Int64, days: Days) -> dict[str, dict[str, int]]:
    """Count the people behind each query; keep the queries that several people asked.

    A user is one. All clients that first asked on the same day are one, because a browser makes as many clients as
    somebody opens private windows.
    """
    # The first day of each person and query.
    asked = asked[np.lexsort((asked[:, 3], asked[:, 1], asked[:, 0]))]
    is_first = np.ones(len(asked), np.bool_)
    is_first[1:] = (asked[1:, :2] != asked[:-1, :2]).any(axis=1)
    asked = asked[is_first]
    keys, people = np.unique(asked[:, 0], return_counts=True)
    unit = np.where(asked[:, 2] == USER, asked[:, 1], asked[:, 3])
    units = np.unique(np.stack([asked[:, 0], asked[:, 2], unit], axis=1), axis=0)
    _, several = np.unique(units[:, 0], return_counts=True)
    is_kept = several >= MIN_PEOPLE
    texts = _named(days, "queries", keys[is_kept])
    found = defaultdict[str, dict[str, int]](dict)
    for key, count in zip(keys[is_kept].tolist(), people[is_kept].tolist(), strict=True):
        name, text = texts.get(key, ("", ""))
        if text:
            found[name][text] = count
    return dict(found)


def _count_clicks(
    clicks: Int64, days: Days
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, list[Together]]]]:
    programs = find_programs(clicks[:, 1], clicks[:, 3] / 1000)
    clicks = clicks[~np.isin(clicks[:, 1], programs)]
    documents = _named(days, "documents", np.unique(clicks[:, 0]))
    by_name = defaultdict[str, list[Click]](list)
    for key, who, session, at_ms in clicks.tolist():
        if key in documents:
            name, id = documents[key]
            by_name[name].append(
                Click(str(who), str(session) if session else None, id, at_ms / 1000)
            )
    unnamed = by_name.get("", [])
    clicked, paired = {}, {}
    for name, own in by_name.items():
        all_clicks = own if name == "" else own + unnamed
        pairs = {(click.document, click.person) for click in all_clicks}
        clicked[name] = dict(Counter(document for document, _ in pairs))
        paired[name] = together(all_clicks, _pause)
    return clicked, paired


def _read(path: Path) -> Digest | None:
    """Read what a worker has made, None if there is nothing, or it is damaged."""
    try:
        found = orjson.loads(path.read_bytes())
        paired = {
            name: {id: [Together(*one) for one in several] for id, several in documents.items()}
            for name, documents in found["together"].items()
        }
        ads = {
            name: {
                model_id: Calibrated(clicks, None if fitted is None else Calibration(**fitted))
                for model_id, (clicks, fitted) in models.items()
            }
            for name, models in found.get("ads", {}).items()
        }
        return Digest(**{**found, "together": paired, "ads": ads})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _pause() -> None:
    time.sleep(_PAUSE_S)


def queries_for(digest: Digest, name: str) -> Iterable[tuple[str, int]]:
    """Return the queries of one bundle name, and those of lists that name no model."""
    counts = Counter(digest.queries.get(name, {}))
    counts.update(digest.queries.get("", {}))
    return counts.items()


def clicked_for(digest: Digest, name: str) -> Mapping[str, int]:
    """Return how many people clicked each document of a bundle name; clicks on lists without a model count, too."""
    return digest.clicked.get(name, digest.clicked.get("", {}))


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
        """Return completions of what is typed, the best first; no queries from an erasure until the next reading."""
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
