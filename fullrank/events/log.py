"""The log as a reader sees it: served lists and events, without those of people who were erased."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fullrank.events.archive import SegmentError, list_segments, read_all
from fullrank.events.lists import ServedList, parse_list
from fullrank.events.people import is_erased, read_erased
from fullrank.events.records import MAX_AGE_S, Event, parse_stored
from fullrank.events.sealed import begun

LISTS, EVENTS = "lists", "events"
_DAY_S = 86_400
_LINES_PER_PAUSE, _PAUSE_S = 200, 0.001


@dataclass(frozen=True)
class EventLog:
    """A folder of segments.

    Attributes:
        folder: Of the segments; it need not exist.
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
            segments: Read only these, in their order.

        Raises:
            SegmentError: A segment is damaged.
        """
        erased = read_erased(self.folder)
        for path, line in self._lines(LISTS, since, segments):
            try:
                found = parse_list(line)
            except (ValueError, KeyError, TypeError) as error:
                raise SegmentError(f"{path}: no served list: {line[:80]!r}") from error
            if found.at >= since and not is_erased(erased, found.texts, found.at):
                yield found

    def events(self, since: float = 0.0, segments: Sequence[Path] | None = None) -> Iterator[Event]:
        """Yield the events, the oldest segment first; of those with one event_id, the first of each day.

        Args:
            since: Skip what happened before, in seconds since 1970.
            segments: Read only these, in their order.

        Raises:
            SegmentError: A segment is damaged.
        """
        erased = read_erased(self.folder)
        seen = _SeenIds()
        for path, line in self._lines(EVENTS, since, segments):
            try:
                found = parse_stored(line)
            except (ValueError, KeyError, TypeError) as error:
                raise SegmentError(f"{path}: no event: {line[:80]!r}") from error
            if found.at < since or is_erased(erased, found.texts, found.at):
                continue
            event_id = found.texts.get("event_id")
            if event_id is None or seen.add(event_id, found.at, path):
                yield found

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
