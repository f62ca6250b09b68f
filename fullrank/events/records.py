"""Reported events: from what clients send to what the log stores.

The fields are those of User Behavior Insights 1.3, and `event_id` and `event_attributes.dwell_ms` of ours.
Whatever else a client sends is dropped and counted. A position that a client reports is dropped too: clients
disagree whether the first place is 0 or 1, so places come from the served list alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import orjson

from fullrank.events.lists import person

CLICKS = frozenset({"click", "conversion", "addtocart", "checkout", "purchase", "download"})
"""Actions that speak for a document, in lower case and without separators."""
MAX_CHARS = 100
MAX_OBJECT_CHARS = 512  # as an id of a document
MAX_AGE_S, MAX_AHEAD_S = 7 * 86_400, 300
_MAX_DWELL_MS = 86_400_000

# Texts of an event that are stored as they are.
_TEXTS = ("query_id", "client_id", "session_id", "user_id", "application", "event_id")
_KNOWN = {*_TEXTS, "action_name", "timestamp", "event_attributes"}
_ATTRIBUTES = {"object", "dwell_ms"}


class EventRefused(ValueError):
    """An event cannot be stored.

    Attributes:
        field: The field at fault, as a path.
        reason: What is wrong, as a phrase: "is missing".
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field, self.reason = field, reason


@dataclass(frozen=True, slots=True)
class Event:
    """One reported event.

    Attributes:
        action: What happened: click, impression, purchase, …
        at: When, in seconds since 1970.
        texts: query_id, client_id, session_id, user_id, application and event_id, where given.
        object_id: The document.
        dwell_ms: How long the document was looked at.
        is_bot: Whether the client said that it is a program.
        dropped: Number of fields that are not stored.
    """

    action: str
    at: float
    texts: Mapping[str, str]
    object_id: str | None = None
    dwell_ms: float | None = None
    is_bot: bool = False
    dropped: int = 0

    @property
    def is_click(self) -> bool:
        """Whether it speaks for its document."""
        return self.action.lower().replace("_", "").replace("-", "") in CLICKS

    @property
    def is_impression(self) -> bool:
        """Whether its document was seen."""
        return self.action.lower() == "impression"

    @property
    def is_trainable(self) -> bool:
        """Whether it names the list and the document that training needs."""
        return "query_id" in self.texts and self.object_id is not None

    @property
    def person(self) -> str | None:
        """Who did it, as a pseudonym once it is stored."""
        return person(self.texts)

    def line(self) -> bytes:
        """Return the line that stores it."""
        attributes: dict[str, Any] = {}
        if self.object_id is not None:
            attributes["object"] = {"object_id": self.object_id}
        if self.dwell_ms is not None:
            attributes["dwell_ms"] = self.dwell_ms
        if self.is_bot:
            attributes["is_bot"] = True
        return orjson.dumps(
            {
                "action_name": self.action,
                "timestamp": round(self.at * 1000),
                **self.texts,
                "event_attributes": attributes,
            }
        )


def parse_stored(line: bytes) -> Event:
    """Read the line of a stored event. Raises ValueError, KeyError or TypeError if it is something else."""
    given = orjson.loads(line)
    attributes = given["event_attributes"]
    return Event(
        given["action_name"],
        given["timestamp"] / 1000,
        {name: given[name] for name in _TEXTS if name in given},
        attributes.get("object", {}).get("object_id"),
        attributes.get("dwell_ms"),
        attributes.get("is_bot", False),
    )


def parse_event(given: object, now: float, max_age_s: float = MAX_AGE_S) -> Event:
    """Read one event.

    Args:
        given: A JSON value.
        now: Seconds since 1970.
        max_age_s: Older events are refused.

    Raises:
        EventRefused: It is no event, a field is missing or too long, or its time is out of range.

    Example:
        >>> parse_event({"action_name": "click", "timestamp": "2026-11-23T12:00:00Z"}, 1795435200).action
        'click'
    """
    if not isinstance(given, dict):
        raise EventRefused("event", "is not an object")
    action = _text(given, "action_name", MAX_CHARS)
    if action is None:
        raise EventRefused("action_name", "is missing")
    at = _time(given.get("timestamp"))
    if at < now - max_age_s:
        raise EventRefused("timestamp", "is older than 7 days")
    if at > now + MAX_AHEAD_S:
        raise EventRefused("timestamp", "is more than 5 minutes ahead")
    if at < 0:
        raise EventRefused("timestamp", "is before 1970")
    found = {name: _text(given, name, MAX_CHARS) for name in _TEXTS}
    texts = {name: text for name, text in found.items() if text is not None}
    dropped = len(given.keys() - _KNOWN)
    attributes = given.get("event_attributes")
    if attributes is None:
        return Event(action, at, texts, dropped=dropped)
    if not isinstance(attributes, dict):
        raise EventRefused("event_attributes", "is not an object")
    dropped += len(attributes.keys() - _ATTRIBUTES)
    object_id, dropped_there = _object_id(attributes.get("object"))
    dwell_ms = _dwell(attributes.get("dwell_ms"))
    if "token" in attributes and object_id is None:
        reason = "is no longer read: name the ad by query_id and event_attributes.object.object_id"
        raise EventRefused("event_attributes.token", reason)
    dropped += dropped_there
    return Event(action, at, texts, object_id, dwell_ms, dropped=dropped)


def _text(given: Mapping[str, Any], name: str, most: int, path: str = "") -> str | None:
    """Return a text, None where it is absent, null or empty."""
    value = given.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise EventRefused(path + name, "is not text")
    if len(value) > most:
        raise EventRefused(path + name, f"has more than {most} characters")
    return value


def _time(value: object) -> float:
    """Read a time: ISO 8601, in UTC where it names no offset, or milliseconds since 1970."""
    if value is None:
        raise EventRefused("timestamp", "is missing")
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            raise EventRefused("timestamp", "is no time in ISO 8601") from None
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise EventRefused("timestamp", "is neither text nor a number of milliseconds")
    return value / 1000


def _object_id(given: object) -> tuple[str | None, int]:
    """Return the id of the document and how many other fields the object has."""
    if given is None:
        return None, 0
    if not isinstance(given, dict):
        raise EventRefused("event_attributes.object", "is not an object")
    found = _text(given, "object_id", MAX_OBJECT_CHARS, "event_attributes.object.")
    return found, len(given.keys() - {"object_id"})


def _dwell(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EventRefused("event_attributes.dwell_ms", "is not a number")
    if not 0 <= value <= _MAX_DWELL_MS:
        raise EventRefused("event_attributes.dwell_ms", "is not from 0 to a day")
    return float(value)
