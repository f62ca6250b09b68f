"""Events in the shape of Algolia's Insights API → events of User Behavior Insights.

https://www.algolia.com/doc/rest-api/insights describes the shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fullrank.events.records import MAX_AGE_S, Event, EventRefused, parse_event

_ACTIONS = {"click": "click", "view": "impression", "conversion": "conversion"}
_SUBTYPES = {"purchase": "purchase", "addToCart": "add_to_cart"}
_MAX_OBJECTS = 20
# eventName names a button of the client, not what was done.
_USED = {
    "eventType", "eventSubtype", "eventName", "index", "userToken", "authenticatedUserToken", "timestamp", "queryID",
    "objectIDs",
}  # fmt: skip
# A field of UBI → that of Algolia which became it.
_THEIRS = {
    "query_id": "queryID", "client_id": "userToken", "user_id": "authenticatedUserToken", "application": "index",
    "event_attributes.object.object_id": "objectIDs",
}  # fmt: skip


def parse_insight(
    given: object, now: float, max_age_s: float = MAX_AGE_S
) -> tuple[list[Event], int]:
    """Read an event.

    Args:
        given: A JSON value.
        now: Seconds since 1970; the time of an event that names none.
        max_age_s: Older events are refused.

    Returns:
        One event for each of its objects, at least one, and how many fields were dropped.

    Raises:
        EventRefused: It is not an event of this shape; the field has the name that Algolia gives it.
    """
    translated, dropped = _as_ubi(given, now * 1000)
    try:
        return [parse_event(event, now, max_age_s) for event in translated], dropped
    except EventRefused as error:
        raise EventRefused(_THEIRS.get(error.field, error.field), error.reason) from None


def _as_ubi(given: object, now_ms: float) -> tuple[list[dict[str, Any]], int]:
    if not isinstance(given, dict):
        raise EventRefused("event", "is not an object")
    event = {
        "action_name": _action(given),
        "timestamp": given.get("timestamp", now_ms),
        "query_id": given.get("queryID"),
        "client_id": given.get("userToken"),
        "user_id": given.get("authenticatedUserToken"),
        "application": given.get("index"),
    }
    if event["client_id"] is None:
        raise EventRefused("userToken", "is missing")
    if isinstance(event["timestamp"], str):
        raise EventRefused("timestamp", "is not a number of milliseconds")
    dropped = len(given.keys() - _USED)
    ids = given.get("objectIDs")
    if ids is None:
        return [event], dropped
    if not isinstance(ids, list) or not 1 <= len(ids) <= _MAX_OBJECTS:
        raise EventRefused("objectIDs", f"is not an array of 1 to {_MAX_OBJECTS} ids")
    return [{**event, "event_attributes": {"object": {"object_id": id}}} for id in ids], dropped


def _action(given: Mapping[str, Any]) -> str:
    kind, subtype = given.get("eventType"), given.get("eventSubtype")
    if not isinstance(kind, str) or kind not in _ACTIONS:
        raise EventRefused("eventType", "is not click, view or conversion")
    if kind != "conversion" or subtype is None:
        return _ACTIONS[kind]
    if not isinstance(subtype, str) or subtype not in _SUBTYPES:
        raise EventRefused("eventSubtype", "is neither purchase nor addToCart")
    return _SUBTYPES[subtype]
