"""Clicks that the loaded bundles have not learned yet, counted from the log of events while the service runs.

One worker reads the votes of the log from the digests of the days, and writes them beside these; all workers count
them for their bundles. A vote counts as in training: one a person, query, document and day, within the caps.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import orjson

from fullrank.bundle import Bundle
from fullrank.events.caps import find_programs, within_caps
from fullrank.events.days import DAY_S, Days, erased_hash
from fullrank.events.log import Erasures, EventLog, erasures
from fullrank.live import View
from fullrank.search.part import NewClicks
from fullrank.storage.encoding import Int64
from fullrank.storage.files import FileFingerprint, fingerprint, replace_file
from fullrank.storage.strict_json import parse_time
from fullrank_service.base.background import Repeater
from fullrank_service.base.metrics import Metrics

REFRESH_S = 15.0
"""How often a worker looks for new clicks; less often where that takes more than a twentieth of the time."""
_REST, _MAX_REST_S = 20, 600.0
# How often to look for models that were loaded, and for erased people.
_POLL_S = 0.5
_MAX_READ_S = 30.0
_MAX_VOTES = 500_000
_Names = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Votes:
    """Clicks on documents that a search showed.

    Attributes:
        since: First day that was read, in days since 1970.
        state: Of the digests that they come from.
        queries, documents: (bundle name, text or id); the name is "" for lists that name no model.
        rows: int64 (v, 3): query, document, and when the list was shown, in milliseconds since 1970.
    """

    since: int
    state: Sequence[Sequence[str | int]]
    queries: _Names = ()
    documents: _Names = ()
    rows: Int64 = field(default_factory=lambda: np.zeros((0, 3), np.int64))


def learned_until(bundle: Bundle) -> float:
    """Return since when a bundle has learned no clicks, in seconds since 1970."""
    card = bundle.card
    trained = card.get("trained", card)
    facts = trained.get("clicks") if isinstance(trained, Mapping) else None
    until = facts.get("until") if isinstance(facts, Mapping) else None
    if isinstance(until, int | float) and math.isfinite(until):
        return float(until)
    try:
        return parse_time(card["trained_at"])
    except (KeyError, ValueError):  # cards are free text
        return parse_time(bundle.manifest.created)


def refresh_votes(
    log: EventLog, since: int, not_before: float, is_stopping: Callable[[], bool] = lambda: False
) -> Path | None:
    """Return the file with the votes of a log; make it anew if no worker has since `not_before`.

    None if there is none, as another worker is at it, or the reading was stopped.

    Raises:
        SegmentError: A file of the log is damaged.
    """
    days, erased = Days(log), erased_hash(log.folder)
    path = days.folder / f"votes-{erased}.json"
    with suppress(FileNotFoundError):
        if not_before <= path.stat().st_mtime <= time.time():
            return path
    with days.turn() as is_ours:
        if not is_ours:
            return path if path.exists() else None
        days.update(_MAX_READ_S, since, is_stopping)
        if is_stopping():
            return None
        state: list[list[str | int]] = sorted(
            [one.name, one.stat().st_mtime_ns]
            for one in days.folder.glob(f"*-{erased}.digest")
            if int(one.name.partition("-")[0]) >= since
        )
        known = read_votes(path)
        if known is not None and (known.since, [*map(list, known.state)]) == (since, state):
            os.utime(path)
        else:
            votes = _collect(days, since, state)
            content = orjson.dumps(votes, option=orjson.OPT_SERIALIZE_NUMPY)
            replace_file(path, content.decode(), 0o600)
    return path


def read_votes(path: Path) -> Votes | None:
    """Read what a worker has made; None if there is nothing, or it is damaged."""
    try:
        found = orjson.loads(path.read_bytes())
        return Votes(**{**found, "rows": np.array(found["rows"], np.int64).reshape(-1, 3)})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _collect(days: Days, since: int, state: Sequence[Sequence[str | int]]) -> Votes:
    """Collect the newest votes; older ones beyond the limit are left out."""
    queries: dict[tuple[str, ...], int] = {}
    documents: dict[tuple[str, ...], int] = {}
    votes, clicks, left = [np.zeros((0, 4), np.int64)], [np.zeros((0, 4), np.int64)], _MAX_VOTES
    for _, day in days.read(since):
        if day is None or not left:
            break
        own = day.votes[:left].copy()
        for column, names, table in ((0, day.queries, queries), (1, day.documents, documents)):
            used, place = np.unique(own[:, column], return_inverse=True)
            numbers = [table.setdefault(tuple(names[row]), len(table)) for row in used.tolist()]
            own[:, column] = np.array(numbers, np.int64)[place] if numbers else place
        left -= len(own)
        votes.append(own)
        clicks.append(day.clicks)
    programs = find_programs(
        np.concatenate(clicks)[:, 1], np.concatenate(clicks)[:, 3].astype(np.float64) / 1000
    )
    query, document, person, at = _once_a_day(np.concatenate(votes)).T
    kept = within_caps(person, document, at / 1000, np.ones(len(at), np.bool_))
    kept &= ~np.isin(person, programs)
    rows = np.stack([query, document, at], axis=1)[kept]
    return Votes(since, state, [*queries], [*documents], rows)


def _once_a_day(votes: Int64) -> Int64:
    votes = votes[np.argsort(votes[:, 3], kind="stable")]
    keys = votes.copy()
    keys[:, 3] //= 1000 * DAY_S
    _, first = np.unique(keys, axis=0, return_index=True)
    return votes[np.sort(first)]


class ClickCounter:
    """Counts, on a thread, the clicks that each loaded bundle has not learned."""

    def __init__(
        self,
        views: Callable[[], Sequence[View]],
        events: Path,
        metrics: Metrics,
        refresh_s: float = REFRESH_S,
    ) -> None:
        self._views, self._metrics, self._refresh_s = views, metrics, refresh_s
        self._log = EventLog(events, pauses=True)
        self._found: Mapping[str, NewClicks | None] = {}
        self._read: tuple[FileFingerprint, Votes] = None, Votes(0, [])
        self._refreshed, self._erased = -refresh_s, erasures(events)
        self._thread = Repeater(
            "clicks",
            self._round,
            min(_POLL_S, refresh_s),
            rest=_REST,
            max_rest_s=_MAX_REST_S,
            failure="new clicks are not counted",
            failed=metrics.background_failed,
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.close()

    def of(self, bundle: Bundle) -> NewClicks | None:
        """Return the clicks that a bundle has not learned; None before the first reading, or if it counts none."""
        return self._found.get(bundle.bundle_id)

    def _round(self) -> None:
        views = self._views()
        erased: Erasures = erasures(self._log.folder)
        is_due = time.monotonic() - self._refreshed >= self._refresh_s or erased != self._erased
        if not is_due and all(view.bundle.bundle_id in self._found for view in views):
            return
        starts = [
            learned_until(view.bundle) for view in views if view.bundle.click_parts is not None
        ]
        before, is_read = self._read[1], True
        if starts and self._log.folder.is_dir():
            since = int(min(starts) // DAY_S)
            not_before = time.time() - (self._refresh_s / 2 if before.since <= since else 0)
            path = refresh_votes(self._log, since, not_before, lambda: self._thread.is_closing)
            is_read = path is not None
            if path is not None and self._read[0] != (now := fingerprint(path)):
                self._read = now, read_votes(path) or before
        votes, found = self._read[1], dict[str, NewClicks | None]()
        for view in views:
            key = view.bundle.bundle_id
            is_known = votes is before and key in self._found
            found[key] = self._found[key] if is_known else _count(view, votes)
        self._found = found
        self._refreshed = time.monotonic()
        if is_read:  # else another worker reads the log now, and an erased person may still be in these counts
            self._erased = erased
        counted = [clicks for clicks in found.values() if clicks is not None]
        self._metrics.click_queries.set(max((len(one.of_query) for one in counted), default=0))
        self._metrics.click_documents.set(max((len(one.of_document) for one in counted), default=0))
        self._metrics.clicks_read.set(time.time())


def _count(view: View, votes: Votes) -> NewClicks | None:
    """Count the votes on a bundle that it has not learned."""
    bundle = view.bundle
    if bundle.click_parts is None:
        return None
    after = round(learned_until(bundle) * 1000)
    texts, ids = votes.queries, votes.documents
    is_ours = [
        np.array([name in ("", bundle.name) for name, _ in table], np.bool_)
        for table in (texts, ids)
    ]
    query, document, at = votes.rows.T
    kept = (at > after) & is_ours[0][query] & is_ours[1][document]
    pairs, counts = np.unique(votes.rows[kept, :2], axis=0, return_counts=True)
    rows = zip(*pairs.T.tolist(), counts.tolist(), strict=True)
    found = NewClicks.of(bundle.click_parts, ((texts[q][1], ids[d][1], n) for q, d, n in rows))
    if found is not None:
        for part in view.parts:  # so that no request waits for it
            found.added(part, None)
    return found
