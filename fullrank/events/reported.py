"""Lists that a client reports, as queries of User Behavior Insights 1.3."""

from __future__ import annotations

from fullrank.events.lists import MAX_TEXT_CHARS, ServedList
from fullrank.events.records import MAX_AGE_S, MAX_OBJECT_CHARS, EventRefused, parse_event

_MAX_IDS = 1_000
_USED = ("user_query", "query_response_hit_ids")


def parse_reported(
    given: object, now: float, max_age_s: float = MAX_AGE_S
) -> tuple[ServedList, int]:
    """Read a list.

    Args:
        given: A JSON value.
        now: Seconds since 1970.
        max_age_s: Older lists are refused.

    Returns:
        The list, and how many fields were dropped.

    Raises:
        EventRefused: It is no query, a field is missing or too long, or its time is out of range.
    """
    if not isinstance(given, dict):
        raise EventRefused("query", "is not an object")
    # Time and people are those of an event.
    rest = {name: value for name, value in given.items() if name not in _USED}
    as_event = {**rest, "action_name": "query", "event_attributes": None}
    event = parse_event(as_event, now, max_age_s)
    texts = dict(event.texts)
    texts.pop("event_id", None)
    query_id = texts.pop("query_id", None)
    if query_id is None:
        raise EventRefused("query_id", "is missing")
    text, ids = given.get("user_query"), given.get("query_response_hit_ids")
    if not isinstance(text, str):
        raise EventRefused("user_query", "is missing" if text is None else "is not text")
    if len(text) > MAX_TEXT_CHARS:
        raise EventRefused("user_query", f"has more than {MAX_TEXT_CHARS} characters")
    found = ServedList(query_id, event.at, text, _ids(ids), "reported", texts=texts)
    return found, event.dropped


def _ids(given: object) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, list) or len(given) > _MAX_IDS:
        raise EventRefused("query_response_hit_ids", f"is not an array of at most {_MAX_IDS} ids")
    for id in given:
        if not isinstance(id, str) or not 1 <= len(id) <= MAX_OBJECT_CHARS:
            raise EventRefused(
                "query_response_hit_ids", f"holds an id without 1 to {MAX_OBJECT_CHARS} characters"
            )
    return given
