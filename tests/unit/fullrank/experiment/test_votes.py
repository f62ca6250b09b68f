"""A vote counts once, for the ranking that picked what was clicked."""

from __future__ import annotations

from fullrank.events.records import Event, ServedList
from fullrank.experiment.votes import Vote, votes_of

DAY = 86_400


def shown(
    query_id: str, user: str | None = "u", text: str = "copy", **changes: object
) -> ServedList:
    given: dict[str, object] = {
        "model": "m1",
        "candidate": "m2",
        "teams": "-ab",
        "texts": {} if user is None else {"user_id": user},
        **changes,
    }
    at = given.pop("at", 10.0)
    return ServedList(query_id, at, text, ["x", "y", "z"], **given)  # type: ignore[arg-type]


def click(query_id: str, document: str, at: float = 11, **changes: object) -> Event:
    return Event("click", at, {"query_id": query_id}, document, **changes)  # type: ignore[arg-type]


def votes(lists: list[ServedList], events: list[Event]) -> list[Vote]:
    return votes_of(lists, events, "m1", "m2", 5.0)


def test_a_click_is_a_vote_for_its_team() -> None:
    assert votes([shown("1")], [click("1", "z")]) == [Vote(11, True)]
    assert votes([shown("1")], [click("1", "y")]) == [Vote(11, False)]
    # What both rankings begin with, what was not shown, and what is no click votes for nobody.
    other = [
        click("1", "x"),
        click("1", "w"),
        click("2", "z"),
        Event("view", 9, {"query_id": "1"}, "z"),
    ]
    assert votes([shown("1")], other) == []


def test_a_person_has_one_vote_a_query_and_day() -> None:
    lists = [shown("1"), shown("2", at=20.0), shown("3", at=DAY + 1.0), shown("4", text="move")]
    events = [click(found.query_id, "z", found.at + 1) for found in lists]
    assert len(votes(lists, events)) == 3
    # Both teams equally often: no vote. The same document again adds nothing.
    assert votes(lists, [click("1", "y"), click("2", "z")]) == []
    assert votes(lists, [click("1", "y"), click("2", "y"), click("2", "z")]) == []
    # People without a name are different people.
    strangers = [shown("1", None), shown("2", None)]
    assert len(votes(strangers, [click("1", "z"), click("2", "z")])) == 2


def test_a_vote_does_not_change_once_its_day_is_over() -> None:
    first = click("1", "z")
    assert votes([shown("1")], [first, click("1", "y", DAY - 1)]) == []
    assert votes([shown("1")], [first, click("1", "y", DAY + 1)]) == [Vote(11, True)]
    lists = [shown("1"), shown("2", at=DAY + 1.0)]
    events = [first, click("2", "z", DAY + 2)]
    assert votes_of(lists, events, "m1", "m2", 5.0, DAY) == [Vote(11, True)]


def test_other_experiments_and_programs_do_not_vote() -> None:
    for other in (
        shown("1", model="m0"),
        shown("1", candidate="m3"),
        shown("1", at=4.0),
        shown("1", is_bot=True),
        shown("1", teams=""),
    ):
        assert votes([other], [click("1", "z")]) == []
    assert votes([shown("1")], [click("1", "z", is_bot=True)]) == []


def test_who_the_list_does_not_name_the_click_may() -> None:
    lists = [shown("1", None), shown("2", None)]
    events = [Event("click", 11, {"query_id": id, "client_id": "c"}, "z") for id in ("1", "2")]
    assert votes(lists, events) == [Vote(11, True)]


def test_people_who_click_too_fast_do_not_vote() -> None:
    """More than a hundred clicks in an hour, on any list."""
    named = {"user_id": "u"}
    elsewhere = [Event("click", 12 + i, {"query_id": "9", **named}, "q") for i in range(100)]
    lists, vote = [shown("1")], Event("click", 11, {"query_id": "1", **named}, "z")
    assert votes(lists, [vote, *elsewhere[1:]]) == [Vote(11, True)]
    assert votes(lists, [vote, *elsewhere]) == []
    slow = [Event("click", 12 + 40 * i, event.texts, "q") for i, event in enumerate(elsewhere)]
    assert votes(lists, [vote, *slow]) == [Vote(11, True)]
