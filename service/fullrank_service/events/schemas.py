"""Define the requests and replies of events and analytics."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fullrank_service.http.strict import QueryString, Reply

MAX_EVENTS = 1_000

_EVENT: dict[str, Any] = {
    "description": "an event of User Behavior Insights 1.3: action_name and timestamp, and to train on it query_id "
    "and event_attributes.object.object_id; see docs/api.md"
}
_QUERY: dict[str, Any] = {
    "description": "a query of User Behavior Insights 1.3: query_id, user_query, timestamp and "
    "query_response_hit_ids; see docs/api.md"
}
# Each item has a verdict of its own, so any JSON value is taken.
Events = Annotated[
    list[Annotated[Any, Field(json_schema_extra=_EVENT)]], Field(max_length=MAX_EVENTS)
]
Queries = Annotated[
    list[Annotated[Any, Field(json_schema_extra=_QUERY)]], Field(max_length=MAX_EVENTS)
]


class EventsRequest(BaseModel):
    """Events; fields beside them are dropped and counted."""

    model_config = ConfigDict(strict=True, extra="allow")

    events: Events

    @property
    def dropped(self) -> int:
        """The number of fields beside the events."""
        return len(self.model_extra or ())


class InsightsRequest(EventsRequest):
    """Algolia's shape."""


class Verdict(Reply):
    result: Literal["kept", "refused"]
    field: str | None = Field(description="the field at fault; null if it was kept")
    reason: str | None


class EventsReply(Reply):
    kept: int
    refused: int
    dropped_fields: int = Field(
        description="unknown fields of the request and of kept events, which are not stored"
    )
    verdicts: list[Verdict] = Field(description="in the order of the events")


class InsightsReply(Reply):
    status: Literal[200]
    message: Literal["OK"]


class ErasedReply(Reply):
    erased: Literal[True]


class AnalyticsQuery(QueryString):
    """The query string of analytics."""

    days: Annotated[int, Field(ge=1, le=90)] = 7


class QueryCount(Reply):
    query: str = Field(description="in lower case")
    searches: int
    people: int
    clicked: int = Field(description="searches with a click")


class AnalyticsReply(Reply):
    days: int
    searches: int = Field(description="first pages of searches, without those of programs")
    clicked: int = Field(description="searches with a click on a document of their list")
    ctr: float | None = Field(description="clicked / searches; null without searches")
    clicked_place: float | None = Field(
        description="mean place, from 1, of the uppermost clicked document"
    )
    without_hits: int = Field(description="searches that found no document")
    top: list[QueryCount] = Field(description="the most frequent queries of 3 or more people")
    top_without_hits: list[QueryCount]
    top_without_clicks: list[QueryCount]
    complete: bool = Field(description="false if the oldest days could not be read yet")
    since: float = Field(description="from when everything counts, in seconds since 1970")
