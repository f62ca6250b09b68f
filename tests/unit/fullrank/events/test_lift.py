"""Documents clicked together, against counting in plain Python."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from fullrank.events.together import MIN_PEOPLE, Click, Together, together

clicks_of = st.lists(
    st.builds(
        Click,
        person=st.sampled_from("tuvwxyz"),
        session=st.sampled_from(["s", "r"]),
        document=st.sampled_from("abc"),
        at=st.just(0.0),
    ),
    max_size=60,
)


@given(clicks_of)
def test_people_are_counted_once(clicks: list[Click]) -> None:
    people = {click.person for click in clicks}
    of = {d: {c.person for c in clicks if c.document == d} for d in "abc"}
    expected: dict[str, list[Together]] = {}
    for a, b in permutations("abc", 2):
        both = {
            c.person
            for c in clicks
            for other in clicks
            if (c.person, c.session) == (other.person, other.session)
            and (c.document, other.document) == (a, b)
        }
        if len(both) >= MIN_PEOPLE:
            lift = len(both) * len(people) / (len(of[a]) * len(of[b]))
            expected.setdefault(a, []).append(Together(b, len(both), lift))
    for several in expected.values():
        several.sort(key=lambda found: (-found.lift, -found.people, found.document))
    assert together(clicks) == expected


def test_a_pause_of_half_an_hour_ends_a_session_without_a_name() -> None:
    def found(pause_s: float) -> dict[str, list[Together]]:
        return together(
            Click(person, None, document, at)
            for person in "uvw"
            for document, at in (("a", 0.0), ("b", pause_s))
        )

    assert found(1_800.0)["a"] == [Together("b", 3, 1.0)]
    assert found(1_800.1) == {}


def test_two_people_are_too_few() -> None:
    clicks = [Click(person, "s", document, 0.0) for person in "uv" for document in "ab"]
    assert together(clicks) == {}
