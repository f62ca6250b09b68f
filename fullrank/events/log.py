"""The log as a reader sees it, without people who were erased; where it is kept, and its pseudonyms."""

from __future__ import annotations

import hmac
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import orjson

from fullrank.errors import FullrankError
from fullrank.events.records import MAX_AGE_S, PEOPLE, Event, ServedList, parse_list, parse_stored
from fullrank.events.segments import SegmentError, begun, list_segments, read_all
from fullrank.storage.files import FileFingerprint, fingerprint, locked, replace_file, sync_folder

# Where a service keeps the log and the key of its pseudonyms, and for how long: the defaults of its settings.

FOLDER, KEY = ".events", ".events.key"
DAYS, MEGABYTES = 90, 10_000
SHRINK_TO = 0.9
"""A service removes the oldest segments beyond this share of the megabytes."""


class Places(NamedTuple):
    """Where they are."""

    folder: Path
    key: Path


def places(
    bundles: Path,
    documents: Path | None = None,
    folder: Path | None = None,
    key: Path | None = None,
) -> Places:
    """Return where a service that has these settings keeps its log and its key.

    Example:
        >>> places(Path("bundles")).key.as_posix()
        'bundles/.events.key'
    """
    beside = bundles if documents is None else documents.parent
    return Places(folder or beside / FOLDER, key or beside / KEY)


# People in the log: pseudonyms, and who has been erased.

ERASED = "erased.json"
_LOCK = ".erased.lock"
_KEY_BYTES = 32
Erasures = FileFingerprint
"""State of the list of erased people."""


class KeyDamaged(FullrankError):
    """The key of the pseudonyms cannot be read; the message says why."""


class Pseudonyms:
    """Replaces the ids of people by HMAC-SHA256 under a secret key, cut to 128 bits.

    Args:
        key: 32 bytes. Who has them can find a known id in the log, so they lie outside of it.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, id: str) -> str:
        """Return the pseudonym of an id, 32 hexadecimal digits."""
        # hmac.digest lets other threads run, and the event loop would wait for them.
        text = id.encode("utf-8", "surrogatepass")
        return hmac.new(self._key, text, "sha256").hexdigest()[:32]

    def replace(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return texts with pseudonyms for ids of people."""
        return {name: self.of(text) if name in PEOPLE else text for name, text in texts.items()}


def read_key(path: Path) -> bytes:
    """Read the key; make one if the file does not exist. Processes that do so at once agree.

    Raises:
        KeyDamaged: The file is not a key, or cannot be read or written.
    """
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, secrets.token_bytes(_KEY_BYTES))
                os.fsync(file)
                with suppress(FileExistsError):  # another process was first
                    path.hardlink_to(temporary)
            finally:
                os.close(file)
                temporary.unlink()
            sync_folder(path.parent)
        key = path.read_bytes()
    except OSError as error:
        raise KeyDamaged(f"{path}: {error.strerror or error}") from error
    if len(key) != _KEY_BYTES:
        raise KeyDamaged(f"{path}: has {len(key)} bytes, not {_KEY_BYTES}")
    return key


def key_for(key: bytes, purpose: bytes) -> bytes:
    """Derive 32 bytes for another purpose: HKDF-SHA256 without a salt, RFC 5869.

    Pseudonyms are HMACs under the key itself, of ids that callers choose, so nothing else may be.
    """
    extracted = hmac.digest(b"", key, "sha256")
    return hmac.digest(extracted, purpose + b"\x01", "sha256")


def read_erased(folder: Path) -> dict[str, float]:
    """Return who was erased from a log, and when, in seconds since 1970.

    Raises:
        FullrankError: The file is damaged.
    """
    path = folder / ERASED
    try:
        found = orjson.loads(path.read_bytes())
        return {str(who): float(at) for who, at in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise FullrankError(f"{path}: {type(error).__name__}: {error}") from error


def erase(folder: Path, who: Iterable[str], at: float) -> None:
    """Hide all that some people did up to now from every reader; `compact` removes it from the disk.

    Raises:
        FullrankError: The list of the erased is damaged.
    """
    folder.mkdir(0o700, parents=True, exist_ok=True)
    with locked(folder / _LOCK):
        known = read_erased(folder) | dict.fromkeys(who, at)
        replace_file(folder / ERASED, orjson.dumps(known).decode() + "\n", 0o600)


def erasures(folder: Path) -> Erasures:
    """Return the state of the list of erased people of a log; one stat call.

    A reader that remembers what it read takes it before it reads. If it differs later, somebody was erased since, by
    any process, and what the reader remembers may hold what this person did.
    """
    return fingerprint(folder / ERASED)


def drop_erased(folder: Path, before: float) -> None:
    """Forget who was erased before a time, in seconds since 1970, when no record is so old any more."""
    if not any(at < before for at in read_erased(folder).values()):
        return
    with locked(folder / _LOCK):
        kept = {who: at for who, at in read_erased(folder).items() if at >= before}
        replace_file(folder / ERASED, orjson.dumps(kept).decode() + "\n", 0o600)


def is_erased(erased: Mapping[str, float], texts: Mapping[str, str], at: float) -> bool:
    """Return whether a record names a person who was erased after it was made."""
    return any(at <= erased.get(texts.get(name, ""), -1.0) for name in PEOPLE)


LISTS, EVENTS = "lists", "events"
Record = TypeVar("Record", ServedList, Event)
_DAY_S = 86_400
_LINES_PER_PAUSE, _PAUSE_S = 200, 0.001


@dataclass(frozen=True)
class EventLog:
    """A folder of segments.

    Attributes:
        pauses: Whether readers pause now and then, so that an event loop of the same process gets the interpreter.
    """

    folder: Path
    pauses: bool = False

    def lists(
        self, since: float = 0.0, segments: Sequence[Path] | None = None
    ) -> Iterator[ServedList]:
        """Yield the served lists, the oldest segment first.

        Args:
            since: Skip what was shown before, in seconds since 1970.
        """
        for _, found in self._records(LISTS, parse_list, since, segments):
            yield found

    def events(self, since: float = 0.0, segments: Sequence[Path] | None = None) -> Iterator[Event]:
        """Yield the events, the oldest segment first; of those with one event_id, the first of each day."""
        seen = _SeenIds()
        for path, found in self._records(EVENTS, parse_stored, since, segments):
            event_id = found.texts.get("event_id")
            if event_id is None or seen.add(event_id, found.at, path):
                yield found

    def _records(
        self,
        kind: str,
        parse: Callable[[bytes], Record],
        since: float,
        segments: Sequence[Path] | None,
    ) -> Iterator[tuple[Path, Record]]:
        erased = read_erased(self.folder)
        for path, line in self._lines(kind, since, segments):
            try:
                found = parse(line)
            except (ValueError, KeyError, TypeError) as error:
                what = "served list" if kind == LISTS else "event"
                raise SegmentError(f"{path}: no {what}: {line[:80]!r}") from error
            if found.at >= since and not is_erased(erased, found.texts, found.at):
                yield path, found

    def _lines(
        self, kind: str, since: float, segments: Sequence[Path] | None
    ) -> Iterator[tuple[Path, bytes]]:
        if segments is None:
            segments = list_segments(self.folder, kind)
        # A segment is sealed an hour after its begin, and clocks of clients may be ahead.
        recent = [path for path in segments if begun(path).timestamp() + _DAY_S >= since]
        for number, found in enumerate(read_all(recent)):
            if self.pauses and number % _LINES_PER_PAUSE == 0:
                time.sleep(_PAUSE_S)
            yield found


class _SeenIds:
    """The ids of events by day, as hashes of 64 bits; days that no later segment can repeat are forgotten."""

    def __init__(self) -> None:
        self._days: dict[int, set[int]] = {}
        self._segment: Path | None = None
        self._begun = 0

    def add(self, event_id: str, at: float, segment: Path) -> bool:
        """Add the id of an event of a segment; return whether its day had none."""
        if segment != self._segment:
            self._segment, last = segment, self._begun
            self._begun = int(begun(segment).timestamp() // _DAY_S)
            if self._begun > last:
                oldest = self._begun - MAX_AGE_S // _DAY_S
                self._days = {day: ids for day, ids in self._days.items() if day >= oldest}
        ids = self._days.setdefault(int(at // _DAY_S), set())
        before = len(ids)
        ids.add(hash(event_id))
        return len(ids) > before
