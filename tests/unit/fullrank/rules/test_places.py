"""Pages with pins are cut from the whole list with pins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fullrank.rules.places import Page, spread


def whole(ranked: list[str], pins: list[tuple[int, str]]) -> list[str]:
    """Put the pins into the whole list one by one, the uppermost first."""
    found = list(ranked)
    last = -1
    for place, pin in sorted(pins, key=lambda pin: pin[0]):
        last = max(place, last + 1)
        found.insert(min(last, len(found)), pin)
    return found


@given(
    st.integers(0, 12),
    st.lists(st.integers(0, 15), max_size=5),
    st.integers(0, 18),
    st.integers(1, 8),
)
def test_a_page_is_a_part_of_the_whole_list(
    count: int, places: list[int], offset: int, limit: int
) -> None:
    ranked = [f"d{i}" for i in range(count)]
    places = sorted(places)
    pins = [f"p{i}" for i in range(len(places))]
    page = Page(offset, limit, spread(places))
    needed = ranked[page.ranked_offset :][: page.ranked_limit]
    found, pinned = page.put(needed, count, pins)
    expected = whole(ranked, list(zip(places, pins, strict=True)))[offset : offset + limit]
    assert found == expected
    assert pinned == [i for i, id in enumerate(expected) if id.startswith("p")]
