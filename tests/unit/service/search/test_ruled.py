"""What was tried on a ranking keeps its meaning in the list that has pins."""

from __future__ import annotations

import pytest

from fullrank_service.events.shown import NOTHING, Tried
from fullrank_service.search.ruled import shifted


@pytest.mark.parametrize(
    ("tried", "pinned", "expected"),
    [
        (NOTHING, [0], NOTHING),
        (Tried(pair=0, swapped=True), [], Tried(pair=0, swapped=True)),
        (Tried(pair=0, swapped=True), [0, 3], Tried(pair=1, swapped=True)),
        (Tried(pair=0, swapped=True), [1], NOTHING),  # the pin stands between the two
        (Tried(pair=4, swapped=True), [0, 1], NOTHING),  # they are beyond the page
        (Tried(inserted=2), [0, 3], Tried(inserted=4)),
        (Tried(inserted=3), [0, 3, 4], NOTHING),
        (Tried("c", "ab-a"), [0, 2], Tried("c", "-a-b-a")),
    ],
)
def test_places_are_those_of_the_list(tried: Tried, pinned: list[int], expected: Tried) -> None:
    assert shifted(tried, pinned, 6) == expected
