"""The part of the log of events that everybody may see: queries of several people, and documents clicked together.

Ids of people are pseudonyms in the log, and only counts of at least three people leave this module.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from fullrank.events.lists import ServedList, normalised
from fullrank.events.log import EventLog
from fullrank.events.people import Erasures, erasures
from fullrank.events.programs import find_programs
from fullrank.events.records import Event
from fullrank.together import MIN_PEOPLE, Click, Together, together

# Limits of time and memory; records beyond them are not counted.
MAX_READ_S = 30.0
_MAX_CLICKS, _MAX_PEOPLE = 500_000, 1_000_000  # people: of all queries together

# Lets the event loop of the same process run.
_PAUSE_S = 0.001

Record = TypeVar("Record")


@dataclass(frozen=True)
class Digest:
    """Counts of the log.

    Attributes:
        queries: By bundle name, how many people asked each query that had hits; "" for lists that name no model.
        clicked: How many people clicked each document.
        together: Documents that were clicked together with each.
        erased: State of the list of erased people that it leaves out.
    """

    queries: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    clicked: Mapping[str, int] = field(default_factory=dict)
    together: Mapping[str, Sequence[Together]] = field(default_factory=dict)
    erased: Erasures = None


def read_digest(log: EventLog) -> Digest:
    """Read a log. Takes seconds for a large one; call it on a thread.

    Raises:
        SegmentError: A file of the log is damaged.
    """
    end = time.monotonic() + MAX_READ_S
    erased = erasures(log.folder)
    events = [
        event
        for event in _until(end, log.events())
        if event.is_click and not event.is_bot and event.object_id is not None
    ][:_MAX_CLICKS]
    lists = _Lists({event.texts.get("query_id", "") for event in events if event.person is None})
    for served in _until(end, log.lists()):
        lists.add(served)
    clicks = list(_clicks(events, lists.people))
    people = defaultdict[str, set[str]](set)
    for click in clicks:
        people[click.document].add(click.person)
    return Digest(
        lists.queries(),
        {id: len(found) for id, found in people.items()},
        together(clicks, _pause),
        erased,
    )


def _pause() -> None:
    time.sleep(_PAUSE_S)


def _until(end: float, records: Iterator[Record]) -> Iterator[Record]:
    for record in records:
        if time.monotonic() > end:
            return
        yield record


class _Lists:
    """Counts the people behind each query, and remembers the person of some lists."""

    def __init__(self, wanted: set[str]) -> None:
        self._wanted = wanted
        self._asked = defaultdict[tuple[str, str], set[str]](set)
        self._count = 0
        self.people: dict[str, str] = {}

    def add(self, served: ServedList) -> None:
        person = served.person
        if person is None or served.is_bot:
            return
        if served.query_id in self._wanted:
            self.people[served.query_id] = person
        is_first = served.kind in ("search", "reported") and served.offset == 0
        if is_first and served.ids and self._count < _MAX_PEOPLE:
            people = self._asked[served.name, normalised(served.text)]
            self._count += person not in people
            people.add(person)

    def queries(self) -> dict[str, dict[str, int]]:
        found = defaultdict[str, dict[str, int]](dict)
        for (name, text), people in self._asked.items():
            if len(people) >= MIN_PEOPLE and text:
                found[name][text] = len(people)
        return dict(found)


def _clicks(events: Sequence[Event], people: Mapping[str, str]) -> Iterator[Click]:
    """Yield the clicks of people; programs are left out."""
    named = [
        (person, event)
        for event in events
        if (person := event.person or people.get(event.texts.get("query_id", ""))) is not None
    ]
    numbers: dict[str, int] = {}
    who = np.array([numbers.setdefault(person, len(numbers)) for person, _ in named], np.int64)
    at = np.array([event.at for _, event in named], np.float64)
    programs = set(find_programs(who, at).tolist())
    for (person, event), number in zip(named, who.tolist(), strict=True):
        if number not in programs and event.object_id is not None:
            yield Click(person, event.texts.get("session_id"), event.object_id, event.at)


def queries_for(digest: Digest, name: str) -> Iterable[tuple[str, int]]:
    """Return the queries of one bundle name, and those of lists that name no model."""
    counts = Counter(digest.queries.get(name, {}))
    counts.update(digest.queries.get("", {}))
    return counts.items()
