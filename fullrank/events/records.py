"""Reported events: from what clients send to what the log stores.

The fields are those of User Behavior Insights 1.3, and `event_id` and `event_attributes.dwell_ms` of ours.
Whatever else a client sends is dropped and counted. A position that a client reports is dropped too: clients
disagree whether the first place is 0 or 1, so places come from the served list alone.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import orjson

from fullrank.storage.strict_json import parse_time

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
        now: Seconds since 1970.

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
            return parse_time(value)
        except ValueError:
            raise EventRefused("timestamp", "is no time in ISO 8601") from None
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


# Served lists: what an answer showed, as a query of User Behavior Insights 1.3.
#
# What UBI does not name stands in `query_attributes`. Places count from 0 at the first document of the list; `offset`
# says how many documents stood before it.

PEOPLE = ("user_id", "client_id", "session_id")
"""Who asked: the first of these that is known counts as the person."""
MAX_TEXT_CHARS = 2_000
"""Documents and pages are queries too; of their texts so much is stored."""
_LIST_TEXTS = (*PEOPLE, "application")


@dataclass(frozen=True, slots=True)
class ServedList:
    """One answer.

    Attributes:
        query_id: Of the answer.
        at: When, in seconds since 1970.
        text: What was asked for.
        ids: The documents, in the order in which they were shown.
        kind: search, similar or match; "reported" for a list that only a client knows of.
        offset: Number of documents before the first.
        model: Version that answered; of an interleaved list, the active one.
        generation: Of the models.
        candidate: Version whose documents were interleaved, None outside of an experiment.
        teams: A letter for each place: "a" the active model's, "b" the candidate's, "-" either's. Empty without an
            experiment.
        pair: Place of the upper one of two neighbours whose order a coin decided, None if no coin was thrown.
        swapped: Whether the coin swapped them.
        inserted: Place of a document that was shown only to learn about it, None without one.
        pinned: Places of documents that a rule put there, ascending; clicks on them say nothing about a ranking.
        texts: user_id, client_id, session_id and application, where given; people as pseudonyms.
        filter, page_url: Of the request.
        is_bot: Whether the client said that it is a program.
        only_clicked: Whether `ids` has only the documents that were clicked, as the log does not say what was shown.
        model_id: Of the model that scored the ads; compaction makes a new version with the same model.
        ads: Of each ad its place in `ids`, its placement and its score.
        typing: Whether the query was still being typed.
    """

    query_id: str
    at: float
    text: str
    ids: Sequence[str]
    kind: str = "search"
    offset: int = 0
    model: str | None = None
    generation: int = 0
    candidate: str | None = None
    teams: str = ""
    pair: int | None = None
    swapped: bool = False
    inserted: int | None = None
    pinned: tuple[int, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    filter: Any = None
    page_url: str | None = None
    is_bot: bool = False
    only_clicked: bool = False
    model_id: str = ""
    ads: Sequence[tuple[int, str, float]] = ()
    typing: bool = False

    @property
    def person(self) -> str | None:
        """Who asked, as a pseudonym."""
        return person(self.texts)

    @property
    def name(self) -> str:
        """The bundle name of the version that answered; "" if the list names none."""
        return "" if self.model is None else self.model.rsplit("-", 2)[0]

    def line(self) -> bytes:
        """Return the line that stores it."""
        attributes = {
            name: value
            for name in _LIST_ATTRIBUTES
            if (value := getattr(self, name)) not in (None, "", ()) and value is not False
        }
        return orjson.dumps(
            {
                "query_id": self.query_id,
                "timestamp": round(self.at * 1000),
                "user_query": self.text,
                "query_response_hit_ids": list(self.ids),
                **self.texts,
                "query_attributes": attributes,
            }
        )


_LIST_ATTRIBUTES = (
    "kind", "offset", "model", "generation", "candidate", "teams", "pair", "swapped", "inserted", "pinned",
    "filter", "page_url", "is_bot", "only_clicked", "model_id", "ads", "typing",
)  # fmt: skip


def normalised(text: str) -> str:
    """Return the form of a query that its repetitions share: NFKC, case folded, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def person(texts: Mapping[str, str]) -> str | None:
    """Return the first known of user, client and session."""
    return next((texts[name] for name in PEOPLE if name in texts), None)


def parse_list(line: bytes) -> ServedList:
    """Read the line of a served list. Raises ValueError, KeyError or TypeError if it is something else.

    Attributes of a newer release are ignored.
    """
    given = orjson.loads(line)
    attributes = {
        name: value for name, value in given["query_attributes"].items() if name in _LIST_ATTRIBUTES
    }
    return ServedList(
        given["query_id"],
        given["timestamp"] / 1000,
        given["user_query"],
        given["query_response_hit_ids"],
        texts={name: given[name] for name in _LIST_TEXTS if name in given},
        **attributes
        | {
            "pinned": tuple(attributes.get("pinned", ())),
            "ads": tuple(map(tuple, attributes.get("ads", ()))),
        },
    )


# Lists that a client reports, as queries of User Behavior Insights 1.3.

_MAX_IDS = 1_000
_USED = ("user_query", "query_response_hit_ids")


def parse_reported(
    given: object, now: float, max_age_s: float = MAX_AGE_S
) -> tuple[ServedList, int]:
    """Read a list.

    Returns:
        The list, and how many fields were dropped.
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


# Events in the shape of Algolia's Insights API → events of User Behavior Insights.
#
# https://www.algolia.com/doc/rest-api/insights describes the shape.

_ACTIONS = {"click": "click", "view": "impression", "conversion": "conversion"}
_SUBTYPES = {"purchase": "purchase", "addToCart": "add_to_cart"}
_MAX_OBJECTS = 20
# eventName names a button of the client, not what was done.
_INSIGHTS_USED = {
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
        now: Seconds since 1970; the time of an event that names none.

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
    dropped = len(given.keys() - _INSIGHTS_USED)
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
