"""Put imported records into a log: a segment for each day and kind, kept as long as if its records were made now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fullrank.errors import FullrankError
from fullrank.events.log import EVENTS, LISTS, Pseudonyms
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import (
    imported_name,
    imported_remark,
    remove_sealed,
    size_of,
    write_sealed,
)

_DAY_S = 86_400


def store(
    records: Iterable[ServedList | Event],
    folder: Path,
    people: Pseudonyms,
    now: float,
    max_bytes: float,
) -> dict[str, int]:
    """Write records into segments of a log, with pseudonyms for people; return the number of lists and events.

    Importing the same twice changes no vote: lists count by their id, clicks by person, query, document and day.

    Args:
        records: in any order; their lines are in memory until all are read.
        folder: of the log; created if need be.
        people: replaces ids of people.
        now: in seconds since 1970; their retention begins.
        max_bytes: size that the log may have.

    Raises:
        FullrankError: the log would be larger; nothing was stored.
        OSError: a segment cannot be written.
    """
    lines: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
    counts = {LISTS: 0, EVENTS: 0}
    for record in records:
        kind = LISTS if isinstance(record, ServedList) else EVENTS
        record = replace(record, texts=people.replace(record.texts))
        lines[kind, int(record.at // _DAY_S)].append(record.line())
        counts[kind] += 1
    folder.mkdir(0o700, parents=True, exist_ok=True)
    written = []
    for (kind, day), found in sorted(lines.items()):
        path = folder / imported_name(kind, day * _DAY_S)
        write_sealed(path, (line + b"\n" for line in found), imported_remark(now))
        written.append(path)
    if (size := size_of(folder)) > max_bytes:
        for path in written:
            remove_sealed(path)
        raise FullrankError(
            f"{folder}: would have {size / 2**20:,.1f} MB, and the service removes the oldest records beyond "
            f"{max_bytes / 2**20:,.1f}; raise FULLRANK_EVENTS_MB, here and for the service"
        )
    return counts
