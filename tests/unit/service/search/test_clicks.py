"""Which clicks of the log count as new: those that training would count."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from fullrank.events.caps import MAX_VOTES_A_DAY, MAX_VOTES_ON_DOCUMENT
from fullrank.events.log import erase
from fullrank.events.records import Event, ServedList
from fullrank_service.search.clicks import read_votes, refresh_votes
from tests.clicking import MONDAY, click, listing
from tests.unit.service.completion.test_digest import DAY, log_of

Records = tuple[list[ServedList], list[Event]]


def counted(folder: Path, records: Records) -> Counter[tuple[str, str]]:
    """Count the votes of a log by query and document."""
    log = log_of(folder, *records)
    path = refresh_votes(log, 0, time.time())
    assert path is not None
    found = read_votes(path)
    assert found is not None
    return Counter(
        (found.queries[query][1], found.documents[document][1])
        for query, document, _ in found.rows.tolist()
    )


def clicked(
    user: str | None, at: Sequence[float], texts: Sequence[str] = ("hat",), **more: object
) -> Records:
    """Searches of one person, each with a click on "a"."""
    lists = [
        listing(f"{user}{i}", ["b", "a"], texts[i % len(texts)], t, user, **more)
        for i, t in enumerate(at)
    ]
    return lists, [click(f"{user}{i}", "a", t + 1, user) for i, t in enumerate(at)]


QUERIES = [f"q{i}" for i in range(1000)]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (clicked("ann", [0, 60, 120]), 1),
        (clicked("ann", [0, DAY, 2 * DAY]), 3),
        (clicked(None, [0, 60, 120]), 3),
        # A thousand clicks: of a program, or of somebody who takes time.
        (clicked("spam", range(1000), QUERIES), 0),
        (clicked("spam", range(0, 100_000, 100), QUERIES), MAX_VOTES_ON_DOCUMENT),
        (clicked("ann", [0], kind="similar"), 0),
        (clicked("ann", [0], pinned=(1,)), 0),
        (clicked("ann", [0], kind="reported"), 1),
        (([listing("x", ["b"])], [click("x", "a")]), 0),
        (([listing("x", ["a"])], [click("x", "a", is_bot=True)]), 0),
        (([], [click("x", "a")]), 0),
    ],
)
def test_votes_are_those_of_training(tmp_path: Path, records: Records, expected: int) -> None:
    assert counted(tmp_path, records).total() == expected


def test_a_person_has_so_many_votes_a_day(tmp_path: Path) -> None:
    ids = [f"d{i}" for i in range(300)]
    lists = [listing(id, [id], at=i * 200.0) for i, id in enumerate(ids)]
    events = [click(id, id, i * 200.0 + 1) for i, id in enumerate(ids)]
    assert counted(tmp_path, (lists, events)).total() == MAX_VOTES_A_DAY


def test_erased_people_have_no_votes(tmp_path: Path) -> None:
    records = clicked("ann", [0])
    assert counted(tmp_path, records) == {("hat", "a"): 1}
    erase(tmp_path, ["ann"], MONDAY + DAY)
    assert counted(tmp_path, ([], [])) == {}
