"""The log as a reader sees it: served lists and events, without those of people who were erased."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fullrank.events.archive import SegmentError, list_segments, read_all
from fullrank.events.lists import ServedList, parse_list
from fullrank.events.people import is_erased, read_erased
from fullrank.events.records import Event, parse_stored
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

    def lists(self, since: float = 0.0) -> Iterator[ServedList]:
        """Yield the served lists, the oldest segment first.

        Args:
            since: Skip what was shown before, in seconds since 1970.

        Raises:
            SegmentError: A segment is damaged.
        """
        erased = read_erased(self.folder)
        for path, line in self._lines(LISTS, since):
            try:
                found = parse_list(line)
            except (ValueError, KeyError, TypeError) as error:
                raise SegmentError(f"{path}: no served list: {line[:80]!r}") from error
            if found.at >= since and not is_erased(erased, found.texts, found.at):
                yield found

    def events(self, since: float = 0.0) -> Iterator[Event]:
        """Yield the events, the oldest segment first; of those with one event_id, the first of each day.

        Args:
            since: Skip what happened before, in seconds since 1970.

        Raises:
            SegmentError: A segment is damaged.
        """
        erased = read_erased(self.folder)
        seen: set[tuple[int, str]] = set()
        for path, line in self._lines(EVENTS, since):
            try:
                found = parse_stored(line)
            except (ValueError, KeyError, TypeError) as error:
                raise SegmentError(f"{path}: no event: {line[:80]!r}") from error
            if found.at < since or is_erased(erased, found.texts, found.at):
                continue
            if "event_id" in found.texts:
                key = int(found.at // _DAY_S), found.texts["event_id"]
                if key in seen:
                    continue
                seen.add(key)
            yield found

    def _lines(self, kind: str, since: float) -> Iterator[tuple[Path, bytes]]:
        segments = list_segments(self.folder, kind)
        # A segment is sealed an hour after its begin, and clocks of clients may be ahead.
        recent = [path for path in segments if begun(path).timestamp() + _DAY_S >= since]
        for number, found in enumerate(read_all(recent)):
            if self.pauses and number % _LINES_PER_PAUSE == 0:
                time.sleep(_PAUSE_S)
            yield found
