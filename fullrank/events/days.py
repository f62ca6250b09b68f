"""Digests of the log by day: what was asked and clicked, so that a reader of the whole log reads only what is new.

The digest of a day is made of the segments that were begun on it, and kept in a file whose name says of which:

    .digests/<days since 1970>-<hash of the list of the erased>-<hash of the segments>.json.gz

One process makes them, the newest day first; all others merge them. Clicks are joined to the lists of their day and of
the two hours before it. People are hashes of their pseudonyms.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import orjson

from fullrank.encoding import Int64
from fullrank.events.archive import list_segments
from fullrank.events.lists import PEOPLE, ServedList, normalised
from fullrank.events.log import EVENTS, LISTS, EventLog
from fullrank.events.people import ERASED
from fullrank.events.records import Event
from fullrank.events.sealed import begun
from fullrank.events.segments import OPEN

FOLDER = ".digests"
DAY_S = 86_400
QUERY, PERSON, KIND, HITS, DAY, SEARCHES, CLICKED, PLACES = range(8)
"""Columns of asks: KIND is that of the person, PLACES the sum of the uppermost clicked places, from 1."""
NOBODY, USER, CLIENT, SESSION = range(4)
DOCUMENT, WHO, WITHIN, AT_MS = range(4)
"""Columns of clicks: WITHIN is the session, 0 if it is unknown."""

_SUFFIX, _LOCK = ".json.gz", ".lock"
_TAIL_S = 7_200
# Older digests of a day stay so long for readers that have listed them.
_KEPT_S = 60.0
_POLL_S = 0.05
# Bounds of memory, for one day.
_MAX_CLICKS, _MAX_LISTS, _MAX_REPORTED = 500_000, 500_000, 50_000

Record = TypeVar("Record")


@dataclass(frozen=True, eq=False)
class DayDigest:
    """What was asked and clicked in the segments of a day.

    Attributes:
        is_complete: Whether everything of the day was read.
        queries: (bundle name, normalised text); the name is "" for lists that name no model.
        documents: (bundle name, id), likewise.
        asks: int64 (n, 8), searches by query, person and day; see QUERY and the others.
        clicks: int64 (m, 4); see DOCUMENT and the others.
    """

    is_complete: bool
    queries: Sequence[Sequence[str]]
    documents: Sequence[Sequence[str]]
    asks: Int64
    clicks: Int64


def hashed(*texts: str) -> int:
    """Return a hash of texts that is the same in all processes, from 1 to 2^63 − 1."""
    content = "\0".join(texts).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big") >> 1 or 1


def read_day(path: Path) -> DayDigest | None:
    """Read a digest; None if the file is gone, or damaged: then it is removed, and made again."""
    try:
        found = orjson.loads(gzip.decompress(path.read_bytes()))
        asks, clicks = (np.array(found[name], np.int64) for name in ("asks", "clicks"))
        return DayDigest(
            found["complete"],
            found["queries"],
            found["documents"],
            asks.reshape(-1, PLACES + 1),
            clicks.reshape(-1, AT_MS + 1),
        )
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
        path.unlink(missing_ok=True)
        return None


class Days:
    """The digests of a log.

    Args:
        log: The log; its folder need not exist.
    """

    def __init__(self, log: EventLog) -> None:
        self._log, self.folder = log, log.folder / FOLDER

    @contextmanager
    def turn(self, wait_s: float = 0.0) -> Iterator[bool]:
        """Take the turn to make digests, if no other process has it; yield whether this one has.

        Args:
            wait_s: How long to wait for it.
        """
        if not self._log.folder.is_dir():
            yield False
            return
        self.folder.mkdir(0o700, exist_ok=True)
        with (self.folder / _LOCK).open("a") as lock:
            end = time.monotonic() + wait_s
            while not (is_ours := _is_locked(lock)) and time.monotonic() < end:
                time.sleep(_POLL_S)
            yield is_ours

    def update(
        self, seconds: float, since: int = 0, is_stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Make the digests that are missing, the newest day first. Call it in a turn.

        Args:
            seconds: No day is begun later, and none takes longer; what is left of it is not counted, and the digest
                says so.
            since: First day, in days since 1970.
            is_stopping: Whether to stop at once.

        Raises:
            SegmentError: A segment is damaged.
        """
        end = time.monotonic() + seconds
        erased, groups = erased_hash(self._log.folder), _groups(self._log.folder)
        for day in sorted(groups, reverse=True):
            path = self.folder / f"{day}-{erased}-{groups[day].fingerprint()}{_SUFFIX}"
            if day < since or path.exists():
                continue
            if time.monotonic() > end:
                break
            making = _Making(self._log, groups[day], time.monotonic() + seconds, is_stopping)
            found = making.digest()
            if is_stopping():
                return
            _write(path, found)
        prune(self._log.folder)

    def files(self, since: int = 0) -> tuple[list[Path], bool]:
        """Return the digests from a day on, the newest first, up to the first that is missing.

        Returns:
            The files, and whether none is missing.
        """
        made = _made(self.folder, erased_hash(self._log.folder))
        files: list[Path] = []
        for day in sorted(_groups(self._log.folder), reverse=True):
            if day < since:
                break
            if day not in made:
                return files, False
            files.append(made[day][-1])
        return files, True


def _is_locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def day_of(file: Path) -> int:
    """Return the day of a digest, in days since 1970."""
    return int(file.name.split("-", 1)[0])


def prune(folder: Path) -> None:
    """Remove the digests of a log that are of no use: of removed segments, or with what erased people did."""
    digests = folder / FOLDER
    if not digests.is_dir():
        return
    erased = erased_hash(folder)
    groups, made = _groups(folder), _made(digests, erased)
    kept = {path for day, paths in made.items() if day in groups for path in paths[-1:]}
    young = {path for day, paths in made.items() if day in groups for path in paths[:-1]}
    for path in digests.glob("*.json*"):
        with suppress(FileNotFoundError):
            if not path.name.endswith(_SUFFIX):
                if erased not in path.name:  # made of digests by a caller
                    path.unlink()
                continue
            is_young = path in young and abs(time.time() - path.stat().st_mtime) < _KEPT_S
            if path not in kept and not is_young:
                path.unlink()


def erased_hash(folder: Path) -> str:
    """Return a hash of the list of the erased people of a log, for names of files."""
    try:
        content = (folder / ERASED).read_bytes()
    except FileNotFoundError:
        content = b""
    return blake2b(content, digest_size=6).hexdigest()


def _made(digests: Path, erased: str) -> dict[int, list[Path]]:
    """Return the digests by day, the newest of each last."""
    found = defaultdict[int, list[tuple[int, Path]]](list)
    for path in digests.glob(f"*-{erased}-*{_SUFFIX}"):
        with suppress(FileNotFoundError):
            found[day_of(path)].append((path.stat().st_mtime_ns, path))
    return {day: [path for _, path in sorted(paths)] for day, paths in found.items()}


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write a digest. It is not synced: a damaged one is made again."""
    temporary = path.with_name(f".{path.name}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(gzip.compress(orjson.dumps(content), 1))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@dataclass
class _Group:
    """The segments of a day, and those of lists from the two hours before it, the newest first."""

    lists: list[Path] = field(default_factory=list)
    events: list[Path] = field(default_factory=list)
    tail: list[Path] = field(default_factory=list)

    def fingerprint(self) -> str:
        digest = blake2b(digest_size=8)
        for path in (*self.lists, *self.events, *self.tail):
            digest.update(path.name.encode())
            if path.name.endswith(OPEN):
                with suppress(FileNotFoundError):
                    digest.update(b"%d" % path.stat().st_size)
        return digest.hexdigest()


def _groups(folder: Path) -> dict[int, _Group]:
    groups = defaultdict[int, _Group](_Group)
    lists = [(begun(path).timestamp(), path) for path in list_segments(folder, LISTS)][::-1]
    for at, path in lists:
        groups[int(at // DAY_S)].lists.append(path)
    for path in list_segments(folder, EVENTS)[::-1]:
        groups[int(begun(path).timestamp() // DAY_S)].events.append(path)
    for at, path in lists:
        day = int(at // DAY_S) + 1
        if day in groups and at >= day * DAY_S - _TAIL_S:
            groups[day].tail.append(path)
    return dict(groups)


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
        self._clicked = defaultdict[str, list[Event]](list)
        self._joined: set[str] = set()
        self._hashed = lru_cache(100_000)(hashed)

    def digest(self) -> dict[str, Any]:
        now, count = time.monotonic(), 0
        half = now + (self._end - now) / 2
        for event in self._within(self._log.events(segments=self._group.events), half):
            if event.is_click and not event.is_bot and event.object_id is not None:
                if count == _MAX_CLICKS:
                    self._is_complete = False
                    break
                count += 1
                self._clicked[event.texts.get("query_id", "")].append(event)
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
            self._add(served, is_search=served.kind == "search" and served.offset == 0)
        for served in reported.values():
            if hash(served.query_id) not in ours:
                self._add(served, is_search=True)
        if self._clicked.keys() - self._joined:
            for served in self._within(self._log.lists(segments=self._group.tail), self._end):
                if served.query_id in self._clicked and served.query_id not in self._joined:
                    is_first = served.kind == "search" and served.offset == 0
                    self._add(served, is_search=is_first or served.kind == "reported", searches=0)
        for query_id in self._clicked.keys() - self._joined:
            self._add_clicks("", None, self._clicked[query_id])
        return {
            "complete": self._is_complete,
            "queries": list(self._queries),
            "documents": list(self._documents),
            "asks": [(*key, *counts) for key, counts in self._asks.items()],
            "clicks": self._clicks,
        }

    def _within(self, records: Iterable[Record], end: float) -> Iterator[Record]:
        for record in records:
            if time.monotonic() > end:
                self._is_complete = False
                return
            if self._is_stopping():
                return
            yield record

    def _add(self, served: ServedList, *, is_search: bool, searches: int = 1) -> None:
        """Count a list, and the clicks on it."""
        clicks = self._clicked.get(served.query_id, [])
        if is_search and not served.is_bot:
            place = 0
            if clicks:
                documents = {event.object_id for event in clicks}
                place = next((i for i, id in enumerate(served.ids, 1) if id in documents), 0)
            query = served.name, normalised(served.text)
            kind, who = next(
                ((kind, served.texts[name]) for kind, name in _KINDS if name in served.texts),
                (NOBODY, None),
            )
            key = (
                self._queries.setdefault(query, len(self._queries)),
                0 if who is None else self._hashed(who),
                kind,
                int(bool(served.ids)),
                int(served.at // DAY_S),
            )
            counts = self._asks.setdefault(key, [0, 0, 0])
            counts[0] += searches
            counts[1] += place > 0
            counts[2] += place
        if clicks and served.query_id not in self._joined:
            self._joined.add(served.query_id)
            self._add_clicks(served.name, None if served.is_bot else served.person, clicks)

    def _add_clicks(self, name: str, person: str | None, clicks: Iterable[Event]) -> None:
        for event in clicks:
            who = event.person or person
            if who is not None and event.object_id is not None:
                document = name, event.object_id
                number = self._documents.setdefault(document, len(self._documents))
                session = event.texts.get("session_id")
                within = 0 if session is None else self._hashed(session)
                self._clicks.append((number, self._hashed(who), within, round(event.at * 1000)))


_KINDS = tuple(zip((USER, CLIENT, SESSION), PEOPLE, strict=True))
