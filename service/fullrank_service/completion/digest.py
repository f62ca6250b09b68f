"""The part of the log of events that everybody may see: queries of several people, documents clicked together, and the
probabilities of clicks on ads.

One worker makes it from the digests of the days and writes it beside them; the others read it. Ids of people are hashes
of their pseudonyms, and only counts of at least three people leave this module.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import orjson

from fullrank.encoding import Int64
from fullrank.events.caps import find_programs
from fullrank.events.days import CLIENT, DAY_S, USER, DayDigest, Days, erased_hash, hashed
from fullrank.events.log import Erasures, EventLog, erasures
from fullrank.storage.files import replace_file
from fullrank.together import MIN_PEOPLE, Click, Together, together
from fullrank_service.completion.calibrations import AdCounts, Calibrated, Calibration

MAX_READ_S = 30.0
"""Time to read what is new; older days follow in the next rounds."""
# Older rows are left out.
_MAX_CLICKS, _MAX_ASKS = 500_000, 2_000_000
# Lets the event loop of the same process run.
_PAUSE_S = 0.001


@dataclass(frozen=True)
class Digest:
    """Counts of the log.

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
