"""Digests of the log by day: what was asked and clicked, so that a reader of the whole log reads only what is new.

    .digests/<days since 1970>-<hash of the list of the erased>.digest

The digest of a day is made of the segments that were begun on it. One process makes digests, the newest day first; all
others merge them. Clicks are joined to the lists of their day and of the two hours before it. People are hashes of
their pseudonyms.
"""

from __future__ import annotations

import gzip
import math
import os
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson

from fullrank.events.log import ERASED, EVENTS, LISTS, EventLog
from fullrank.events.records import PEOPLE, Event, ServedList, normalised
from fullrank.events.segments import OPEN, begun, list_segments
from fullrank.storage.encoding import Int64
from fullrank.storage.files import locked

FOLDER = ".digests"
DAY_S = 86_400
USER, CLIENT = 1, 2
"""Kinds of people: places in PEOPLE, from 1."""

_LOCK = ".lock"
# A digest begins with a hash of the names of its segments; the rest is compressed JSON.
_STATE_BYTES = 8
_TAIL_S = 7_200
# Bounds of memory, for one day.
_MAX_CLICKS, _MAX_LISTS, _MAX_REPORTED = 500_000, 500_000, 50_000
# Impressions, and groups of them. Clicks count only with their impression, so that what is left is a fair sample.
_MAX_IMPRESSIONS, _MAX_ADS = 500_000, 50_000
_MAX_AD_CLICKS = 25  # of a person
_SCORE_BITS = 8

Record = TypeVar("Record")


@dataclass(frozen=True, eq=False)
class DayDigest:
    """What was asked and clicked in the segments of a day.

    Attributes:
        is_complete: Whether everything of the day was read.
        queries: (bundle name, normalised text); the name is "" for lists that name no model.
        documents: (bundle name, id), likewise.
        asks: int64 (n, 8): query, person and their kind (0, 0 if unknown), whether there were hits, and day; then for
            these the searches, those that were clicked, and the sum of their uppermost clicked places, from 1.
        clicks: int64 (m, 4): document, person, session (0 if unknown), milliseconds since 1970.
        ads: Of ads with a reported impression: bundle name, model id, placement and score (rounded); then for these the
            impressions and how many of them were clicked. An ad counts once for each list, if its impression is in a
            segment of the same day, and of one person up to 25 clicks.
        votes: int64 (v, 4): query, document, person, and the time of the search, in milliseconds since 1970. Each is a
            click on a document that a search showed and that no rule had pinned. Each search of an unnamed person
            counts as another person.
    """

    is_complete: bool
    queries: Sequence[Sequence[str]]
    documents: Sequence[Sequence[str]]
    asks: Int64
    clicks: Int64
    votes: Int64
    ads: Sequence[tuple[str, str, str, float, int, int]] = ()


def hashed(*texts: str) -> int:
    """Return a hash of texts that is the same in all processes, from 1 to 2^63 − 1."""
    content = "\0".join(texts).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big") >> 1 or 1


class Days:
    """The digests of a log."""

    def __init__(self, log: EventLog) -> None:
        self._log, self.folder = log, log.folder / FOLDER

    @contextmanager
    def turn(self, wait_s: float = 0.0) -> Iterator[bool]:
        """Take the turn to make digests, if no other process has it; yield whether this one has."""
        if not self._log.folder.is_dir():
            yield False
            return
        self.folder.mkdir(0o700, exist_ok=True)
        with locked(self.folder / _LOCK, wait_s) as is_ours:
            yield is_ours

    def update(
        self, seconds: float, since: int = 0, is_stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Make the digests that are missing, the newest day first. Call it in a turn.

        Args:
            seconds: No day is begun later, and none takes longer; what is left of it is not counted, and the digest
                says so.
            since: First day, in days since 1970.
        """
        end = time.monotonic() + seconds
        prune(self._log.folder)
        for left in self.folder.glob("*.tmp"):  # by a process that was killed
            left.unlink(missing_ok=True)
        erased, groups = erased_hash(self._log.folder), _groups(self._log.folder)
        for day in sorted(groups, reverse=True):
            path, state = self.folder / _name_of(day, erased), groups[day].fingerprint()
            if day < since or _is_of(path, state):
                continue
            if time.monotonic() > end:
                break
            making = _Making(self._log, groups[day], time.monotonic() + seconds, is_stopping)
            found = making.digest()
            if is_stopping() or erased_hash(self._log.folder) != erased:
                return
            _write(path, state + gzip.compress(orjson.dumps(found), 1))

    def read(self, since: int = 0) -> Iterator[tuple[int, DayDigest | None]]:
        """Yield the days of the log from one on, the newest first, each with its digest.

        The last is None if it is missing or damaged; a damaged one is removed, and made again.
        """
        erased = erased_hash(self._log.folder)
        for day in sorted(_groups(self._log.folder), reverse=True):
            if day < since:
                return
            found = _read(self.folder / _name_of(day, erased))
            yield day, found
            if found is None:
                return


def prune(folder: Path) -> None:
    """Remove the digests of a log that are of removed segments, or with what erased people did."""
    erased, groups = erased_hash(folder), _groups(folder)
    for path in (folder / FOLDER).glob("*-*"):
        day = path.name.partition("-")[0]
        if erased not in path.name or (day.isdigit() and int(day) not in groups):
            path.unlink(missing_ok=True)


def erased_hash(folder: Path) -> str:
    """Return a hash of the list of the erased people of a log, for names of files."""
    try:
        content = (folder / ERASED).read_bytes()
    except FileNotFoundError:
        content = b""
    return blake2b(content, digest_size=6).hexdigest()


def _name_of(day: int, erased: str) -> str:
    return f"{day}-{erased}.digest"


def _is_of(path: Path, state: bytes) -> bool:
    with suppress(FileNotFoundError), path.open("rb") as file:
        return file.read(len(state)) == state
    return False


def _read(path: Path) -> DayDigest | None:
    try:
        found = orjson.loads(gzip.decompress(path.read_bytes()[_STATE_BYTES:]))
        asks, clicks, votes = (
            np.array(found.pop(name), np.int64).reshape(-1, width)
            for name, width in (("asks", 8), ("clicks", 4), ("votes", 4))
        )
        return DayDigest(**found, asks=asks, clicks=clicks, votes=votes)
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError):
        path.unlink(missing_ok=True)
        return None


def _write(path: Path, content: bytes) -> None:
    """Write a digest. It is not synced: a damaged one is made again."""
    temporary = path.with_name(f".{path.name}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(content)
    with suppress(FileNotFoundError):  # pruned, because somebody was erased meanwhile
        temporary.replace(path)


@dataclass
class _Group:
    """The segments of a day, and those begun in the two hours before it, the newest first."""

    lists: list[Path] = field(default_factory=list)
    events: list[Path] = field(default_factory=list)
    lists_before: list[Path] = field(default_factory=list)
    events_before: list[Path] = field(default_factory=list)

    def fingerprint(self) -> bytes:
        digest = blake2b(digest_size=_STATE_BYTES)
        for path in (*self.lists, *self.events, *self.lists_before, *self.events_before):
            digest.update(path.name.encode())
            if path.name.endswith(OPEN):
                with suppress(FileNotFoundError):
                    digest.update(b"%d" % path.stat().st_size)
        return digest.digest()


def _rounded(score: float) -> float:
    """Return a score with eight binary digits, at most 0.4 % away, so that equal ones share a group."""
    mantissa, exponent = math.frexp(score)
    return math.ldexp(round(mantissa * (1 << _SCORE_BITS)), exponent - _SCORE_BITS)


def _groups(folder: Path) -> dict[int, _Group]:
    groups = defaultdict[int, _Group](_Group)
    for kind in (LISTS, EVENTS):
        for path in reversed(list_segments(folder, kind)):
            day, second = divmod(int(begun(path).timestamp()), DAY_S)
            is_list = kind == LISTS
            (groups[day].lists if is_list else groups[day].events).append(path)
            # A click on one of the last lists may be in a segment that was begun an hour earlier.
            if second >= DAY_S - (_TAIL_S if is_list else _TAIL_S + 3_600):
                after = groups[day + 1]
                (after.lists_before if is_list else after.events_before).append(path)
    return {day: group for day, group in groups.items() if group.lists or group.events}


class _Making:
    """Reads the segments of a day: the clicks in at most half of the time, then the lists."""

    def __init__(
        self, log: EventLog, group: _Group, end: float, is_stopping: Callable[[], bool]
    ) -> None:
        self._log, self._group, self._end, self._is_stopping = log, group, end, is_stopping
        self._is_complete = True
        self._queries: dict[tuple[str, str], int] = {}
        self._documents: dict[tuple[str, str], int] = {}
        self._asks: dict[tuple[int, ...], list[int]] = {}
        self._clicks: list[tuple[int, ...]] = []
        self._votes: list[tuple[int, ...]] = []
        # The clicks on each list; a list is taken out once they are joined to it.
        self._clicked = defaultdict[str, list[Event]](list)
        self._impressions: set[int] = set()
        self._ads: dict[tuple[str, str, str, float], list[int]] = {}
        self._ad_clicks = Counter[str]()
        self._hashed = lru_cache(100_000)(hashed)

    def digest(self) -> dict[str, Any]:
        """Return the fields of a ``DayDigest``."""
        now = time.monotonic()
        half = now + (self._end - now) / 2
        count = 0
        for event in self._read_events(self._group.events, half):
            query_id = event.texts.get("query_id", "")
            if event.is_impression:
                if len(self._impressions) < _MAX_IMPRESSIONS:
                    self._impressions.add(hash((query_id, event.object_id)))
                continue
            if count == _MAX_CLICKS:
                self._is_complete = False
                break
            count += 1
            self._clicked[query_id].append(event)
        self._read_lists()
        if self._clicked:
            self._read_lists_before()
        for clicks in self._clicked.values():
            self._add_clicks("", None, clicks)
        return {
            "is_complete": self._is_complete,
            "queries": list(self._queries),
            "documents": list(self._documents),
            "asks": [(*key, *counts) for key, counts in self._asks.items()],
            "clicks": self._clicks,
            "votes": self._votes,
            "ads": [(*key, *counts) for key, counts in self._ads.items()],
        }

    def _read_lists(self) -> None:
        ours: set[int] = set()
        reported: dict[str, ServedList] = {}
        for served in self._within(self._log.lists(segments=self._group.lists), self._end):
            if served.kind == "reported":
                if len(reported) < _MAX_REPORTED:
                    reported.setdefault(served.query_id, served)
                else:
                    self._is_complete = False
                continue
            if len(ours) == _MAX_LISTS:
                self._is_complete = False
                break
            ours.add(hash(served.query_id))
            self._add(served)
        for served in reported.values():
            if hash(served.query_id) not in ours:
                self._add(served)

    def _read_lists_before(self) -> None:
        """Join clicks to lists that the day before has counted, perhaps as clicked."""
        before = {
            event.texts.get("query_id", "")
            for event in self._read_events(self._group.events_before, self._end)
            if event.is_click
        }
        for served in self._within(self._log.lists(segments=self._group.lists_before), self._end):
            if served.query_id in self._clicked:
                self._add(served, searches=0, is_clicked=served.query_id in before)

    def _read_events(self, segments: Sequence[Path], end: float) -> Iterator[Event]:
        for event in self._within(self._log.events(segments=segments), end):
            # An impression without a document says that its query was not typed on.
            is_used = event.is_impression or (event.is_click and event.object_id is not None)
            if is_used and not event.is_bot:
                yield event

    def _within(self, records: Iterable[Record], end: float) -> Iterator[Record]:
        for record in records:
            if time.monotonic() > end:
                self._is_complete = False
                return
            if self._is_stopping():
                return
            yield record

    def _add(self, served: ServedList, *, searches: int = 1, is_clicked: bool = False) -> None:
        """Count a list, and the clicks on it.

        Args:
            searches: 0 if it was counted before.
            is_clicked: Whether it was counted as clicked before.
        """
        clicks = self._clicked.pop(served.query_id, [])
        is_search = served.kind == "reported" or (served.kind == "search" and served.offset == 0)
        is_final = not served.typing or clicks or hash((served.query_id, None)) in self._impressions
        if is_search and is_final and not served.is_bot:
            place = 0
            if clicks and not is_clicked:
                documents = {event.object_id for event in clicks}
                place = next((i for i, id in enumerate(served.ids, 1) if id in documents), 0)
            query = served.name, normalised(served.text)
            people = (
                (i, served.texts[name]) for i, name in enumerate(PEOPLE, 1) if name in served.texts
            )
            kind, who = next(people, (0, None))
            key = (
                self._number(self._queries, *query),
                0 if who is None else self._hashed(who),
                kind,
                int(bool(served.ids)),
                int(served.at // DAY_S),
            )
            counts = self._asks.setdefault(key, [0, 0, 0])
            counts[0] += searches
            counts[1] += place > 0
            counts[2] += place
        if clicks and served.kind in ("search", "reported") and not served.is_bot:
            self._add_votes(served, clicks)
        if searches and served.ads and not served.is_bot:
            self._add_ads(served, {event.object_id for event in clicks})
        self._add_clicks(served.name, None if served.is_bot else served.person, clicks)

    def _add_ads(self, served: ServedList, clicked: Container[str | None]) -> None:
        for place, placement, score in served.ads:
            who, id = served.person, served.ids[place]
            key = served.name, served.model_id, placement, _rounded(score)
            is_new = key not in self._ads and len(self._ads) >= _MAX_ADS
            if is_new or hash((served.query_id, id)) not in self._impressions:
                continue
            if who is not None and self._ad_clicks[who] >= _MAX_AD_CLICKS:
                return
            counts = self._ads.setdefault(key, [0, 0])
            counts[0] += 1
            if id in clicked:
                counts[1] += 1
                if who is not None:
                    self._ad_clicks[who] += 1

    def _add_votes(self, served: ServedList, clicks: Iterable[Event]) -> None:
        pinned = {served.ids[place] for place in served.pinned if place < len(served.ids)}
        votable = {*served.ids} - pinned
        query = self._number(self._queries, served.name, normalised(served.text))
        for event in clicks:
            if event.object_id in votable:
                document = self._number(self._documents, served.name, event.object_id)
                who = served.person or event.person or f"\0{served.query_id}"
                at = round(served.at * 1000)
                self._votes.append((query, document, self._hashed(who), at))

    def _number(self, table: dict[tuple[str, str], int], name: str, text: str) -> int:
        return table.setdefault((name, text), len(table))

    def _add_clicks(self, name: str, person: str | None, clicks: Iterable[Event]) -> None:
        for event in clicks:
            who = event.person or person
            if who is not None and event.object_id is not None:
                number = self._number(self._documents, name, event.object_id)
                session = event.texts.get("session_id")
                within = 0 if session is None else self._hashed(session)
                self._clicks.append((number, self._hashed(who), within, round(event.at * 1000)))
