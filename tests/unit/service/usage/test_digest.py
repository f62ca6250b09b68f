"""What the log says to everybody: only what several people did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fullrank.events.lists import ServedList
from fullrank.events.log import EventLog
from fullrank.events.records import Event
from fullrank.together import Together
from service.usage.digest import queries_for, read_digest
from tests.clicking import click, listing


class Log(EventLog):
    """A log in memory."""

    def __init__(self, lists: list[ServedList], events: list[Event] = []) -> None:  # noqa: B006
        super().__init__(Path("none"))
        object.__setattr__(self, "_found", (lists, events))

    def lists(self, since: float = 0.0) -> Any:
        return iter(self._found[0])  # type: ignore[attr-defined]

    def events(self, since: float = 0.0) -> Any:
        return iter(self._found[1])  # type: ignore[attr-defined]


def shown(
    users: str, text: str = "Red  Shoes", ids: tuple[str, ...] = ("a",), **more: Any
) -> list[ServedList]:
    more = {"model": "shop-20260101t000000z-0123abcd", **more}
    return [listing(f"{text}{user}", ids, text, user=user, **more) for user in users]


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        (shown("uvw"), {"red shoes": 3}),
        (shown("uvw") + shown("uvx", "red shoes"), {"red shoes": 4}),
        (shown("uvuv"), {}),
        (shown("uvw", ids=()), {}),
        (shown("uvw", is_bot=True), {}),
        (shown("uvw", offset=10), {}),
        (shown("uvw", kind="similar"), {}),
        (shown("uvw", kind="reported", model=None), {"red shoes": 3}),
        (shown("uvw", model="shop-de-20260101t000000z-0123abcd"), {}),
    ],
)
def test_queries_of_three_people_that_had_hits(
    lists: list[ServedList], expected: dict[str, int]
) -> None:
    assert dict(queries_for(read_digest(Log(lists)), "shop")) == expected


def test_people_who_are_not_named_count_nothing() -> None:
    lists = [listing(f"l{i}", ["a"], user=None) for i in range(9)]
    assert read_digest(Log(lists)).queries == {}


def test_clicks_of_the_same_people_make_documents_belong_together() -> None:
    lists = [listing(f"l{user}", ["a", "b"], user=user) for user in "uvw"]
    # The events name no person; their lists do.
    events = [click(f"l{user}", document, user=None) for user in "uvw" for document in "ab"]
    digest = read_digest(Log(lists, events))
    assert digest.together == {"a": [Together("b", 3, 1.0)], "b": [Together("a", 3, 1.0)]}
    assert digest.clicked == {"a": 3, "b": 3}
    assert read_digest(Log([], events)).together == {}
    robots = [click(f"l{user}", d, user=None, is_bot=True) for user in "uvw" for d in "ab"]
    assert read_digest(Log(lists, robots)).together == {}
    busy = [click("lu", f"d{i}", at=float(i), user="u") for i in range(200)]
    assert read_digest(Log(lists, events + busy)).clicked == {"a": 2, "b": 2}
