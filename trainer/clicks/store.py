"""Put imported records into a log: a segment for each day and kind, so that retention removes them by their age."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fullrank.events.lists import ServedList
from fullrank.events.log import EVENTS, LISTS
from fullrank.events.people import Pseudonyms
from fullrank.events.records import Event
from fullrank.events.segments import SegmentWriter

_DAY_S = 86_400


def store(
    records: Iterable[ServedList | Event], folder: Path, people: Pseudonyms
) -> dict[str, int]:
    """Write records into segments of a log, with pseudonyms for people; return the number of lists and events.

    Importing the same twice changes no vote: lists count by their id, clicks by person, query, document and day.

    Args:
        records: in any order; their lines are in memory until all are read.
        folder: of the log; created if need be.
        people: replaces ids of people.

    Raises:
        OSError: a segment cannot be written.
    """
    lines: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
    counts = {LISTS: 0, EVENTS: 0}
    for record in records:
        kind = LISTS if isinstance(record, ServedList) else EVENTS
        record = replace(record, texts=people.replace(record.texts))
        lines[kind, int(record.at // _DAY_S)].append(record.line())
        counts[kind] += 1
    for (kind, day), found in sorted(lines.items()):
        writer = SegmentWriter(folder, kind, clock=lambda day=day: day * _DAY_S)  # type: ignore[misc]
        writer.append(found)
        writer.sync()
        writer.close()
    return counts
